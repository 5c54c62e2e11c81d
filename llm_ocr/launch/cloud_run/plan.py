"""Requests to Cloud Run for a stage: its job is updated, then executed. Pure functions.

Each stage of a launch has a job of its own, whose executions are the submissions of the stage. Launches, and the
workspaces of a project, thus share no job. Values that an execution may override (tasks, time limit, variables) are
part of the execution. The rest is part of the job.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from llm_ocr.errors import UsageError
from llm_ocr.launch import GPU_STAGES, JobSpec, Plan, Request
from llm_ocr.launch.answers import near
from llm_ocr.launch.library import CPU_IMAGE, GPU_IMAGE, GPU_IMAGE_CUDA, job_command, library_notes
from llm_ocr.types import plural

PATCH = "run.projects.locations.jobs.patch"
RUN = "run.projects.locations.jobs.run"

#: Placeholder for the project of the credentials until these are loaded.
PROJECT = "<project>"
_REGION = "<region>"

#: Label of executions: the name of the job that owns them.
JOB_LABEL = "llm-ocr-job"

_MOST_TASKS = 10_000
_HOUR = 3600
#: Most pages of the documentation allow a GPU task one hour, the newest twelve (preview), others a week.
_GPU_DEFAULT, _GPU_MOST = _HOUR, 12 * _HOUR
_CPU_DEFAULT, _CPU_MOST = 6 * _HOUR, 168 * _HOUR

_SECRET = re.compile(
    r"(?P<secret>(?:projects/[a-z0-9.:-]+/secrets/)?[A-Za-z0-9_-]{1,255})(?:(?::|/versions/)(?P<version>[A-Za-z0-9_-]+))?"
)


def default_hardware(stage: str) -> str:
    """Return an L4 for stages that need a GPU."""
    return "nvidia-l4" if stage in GPU_STAGES else CPU


def job_name(spec: JobSpec) -> str:
    """Return the job's full name, with placeholders for an unknown project or region."""
    project, region = spec.options.get("project") or PROJECT, spec.options.get("region") or _REGION
    return f"projects/{project}/locations/{region}/jobs/{short_name(spec.name)}"


def short_name(name: str) -> str:
    """Return the name of the Cloud Run job for the name of a submission, which ends with its number."""
    return name.rpartition("-")[0]


def make_plan(platform: str, spec: JobSpec) -> Plan:
    """Return the plan; see `Launcher.plan`."""
    hardware = spec.hardware or default_hardware(spec.stage)
    limit = time_limit(spec)
    endpoint = str(spec.options.get("platform_endpoint") or "")
    parts = urlsplit(endpoint)
    local = parts.scheme == "http" and parts.hostname in ("localhost", "127.0.0.1", "::1")
    if endpoint and not local and not (parts.scheme == "https" and parts.hostname):  # would receive credentials
        hint = "Remove it to use Google's server."
        raise UsageError(f"--platform-endpoint {endpoint}: must be an https URL, or http on this machine", hint=hint)
    if spec.shards > _MOST_TASKS:
        hint = "Use fewer shards."
        raise UsageError(f"--shards {spec.shards}: a Cloud Run job has at most {_MOST_TASKS} tasks", hint=hint)
    name, gpus = job_name(spec), machine(hardware).gpus
    job = {
        "name": name,
        **({"launchStage": "BETA"} if gpus else {}),  # allows preview features, but requires none
        "labels": {"llm-ocr-stage": spec.stage},
        "template": {
            "labels": {JOB_LABEL: spec.name, "llm-ocr-launch": spec.launch},
            "parallelism": min(spec.options.get("parallelism") or spec.shards, spec.shards),
            "taskCount": spec.shards,
            "template": _task(spec, hardware, limit),
        },
    }
    variables = [{"name": key, "value": value} for key, value in sorted(spec.environment.items())]
    containers = [{"env": variables}]
    overrides = {"taskCount": spec.shards, "timeout": f"{limit}s", "containerOverrides": containers}
    patch, run = {"job": job, "allowMissing": True}, {"name": name, "overrides": overrides}
    requests = (Request(PATCH, patch), Request(RUN, run))
    # The credentials contain the project.
    missing = {} if spec.options.get("region") else {_REGION: "--region REGION, a region with this hardware"}
    notes = library_notes(spec, gpus)
    if _compatibility(spec, hardware):
        major, minor = MACHINES[hardware].cuda
        notes.append(
            f"{hardware} has a driver for CUDA {major}.{minor}, but {GPU_IMAGE} is built for CUDA {GPU_IMAGE_CUDA[0]}: "
            "VLLM_ENABLE_CUDA_COMPATIBILITY=1 makes vLLM use the compatibility libraries of the image"
        )
    if not spec.options.get("project"):
        notes.append(f"{PROJECT} is the project of the credentials; --project sets another")
    if not spec.options.get("service_account"):
        notes.append("tasks run as the project's default compute service account; --service-account sets another")
    if gpus and limit > _HOUR:
        notes.append("GPU tasks longer than one hour are a preview feature of Cloud Run, which may refuse them")
    if MACHINES[hardware].preview:
        notes.append(f"{hardware} may be a preview feature in this region")
    return Plan(platform, spec, requests, missing, tuple(notes))


def _task(spec: JobSpec, hardware: str, limit: int) -> dict[str, Any]:
    cpu, _, memory = size(spec.stage, hardware, spec.options)
    gpus = machine(hardware).gpus
    limits = {"cpu": str(cpu), "memory": memory, **({"nvidia.com/gpu": str(gpus)} if gpus else {})}
    variables: list[dict[str, Any]] = []
    for name, where in sorted(spec.secrets.items()):
        found = _SECRET.fullmatch(where or name)  # "" is the name of the variable
        if found is None:
            hint = f"Use --secret {name}=SECRET, {name}=SECRET:VERSION, or {name}=projects/PROJECT/secrets/SECRET."
            raise UsageError(f"--secret {name}: {where!r} is not a valid name in Secret Manager", hint=hint)
        reference = {"secret": found["secret"], "version": found["version"] or "latest"}
        variables.append({"name": name, "valueSource": {"secretKeyRef": reference}})
    variables += [{"name": name, "value": value} for name, value in _compatibility(spec, hardware).items()]
    command = job_command(spec, gpus=gpus)
    container = {
        "image": spec.image or (f"docker.io/{GPU_IMAGE}" if gpus else f"docker.io/library/{CPU_IMAGE}"),
        "command": command[:1],
        "args": command[1:],
        **({"env": variables} if variables else {}),
        "resources": {"limits": limits},
    }
    account = spec.options.get("service_account")
    return {
        "containers": [container],
        # Whether another attempt is worth its money depends on the results of the last one, which Cloud Run does not
        # see.
        "maxRetries": 0,
        "timeout": f"{limit}s",
        **({"serviceAccount": account} if account else {}),
        **({"nodeSelector": {"accelerator": hardware}, "gpuZonalRedundancyDisabled": True} if gpus else {}),
    }


def _compatibility(spec: JobSpec, hardware: str) -> dict[str, str]:
    """Return variables with which the stock image (CUDA 13) loads its own CUDA libraries on an older driver."""
    older = MACHINES[hardware].gpus and MACHINES[hardware].cuda < GPU_IMAGE_CUDA
    name = "VLLM_ENABLE_CUDA_COMPATIBILITY"
    return {name: "1"} if older and not spec.image and name not in spec.environment else {}


def time_limit(spec: JobSpec) -> int:
    """Return the seconds of a task, or raise `UsageError` for more than Cloud Run allows."""
    gpu = machine(spec.hardware or default_hardware(spec.stage)).gpus > 0
    most = _GPU_MOST if gpu else _CPU_MOST
    limit = spec.time_limit or (_GPU_DEFAULT if gpu else _CPU_DEFAULT)
    if limit > most:
        raise UsageError(
            f"--time-limit {limit}s: a task {'with' if gpu else 'without'} GPU ends after {most // _HOUR} hours",
            hint="Use a shorter limit, and more --attempts or --shards: the next job continues the stage.",
        )
    return limit


#: Task without GPU; Cloud Run has no name for it.
CPU = "cpu"


@dataclass(frozen=True, slots=True)
class Machine:
    """GPUs of a task, its minimum cores and GiB, and its default cores and GiB."""

    gpus: int
    least_cpu: int
    least_memory: int
    cpu: int
    memory: int
    preview: bool = False  # offered before general availability
    cuda: tuple[int, int] = (0, 0)  # newest version that the driver itself supports


#: Minima and drivers (L4: 535.216.03, RTX PRO 6000: 580): cloud.google.com/run/docs/configuring/jobs/gpu, 2026. A task
#: has one GPU, never more.
MACHINES: Mapping[str, Machine] = {
    "nvidia-l4": Machine(1, 4, 16, 8, 32, cuda=(12, 2)),
    "nvidia-rtx-pro-6000": Machine(1, 20, 80, 20, 80, preview=True, cuda=(13, 0)),
    CPU: Machine(0, 1, 0, 2, 4),
}

#: Cores -> maximum GiB, up to 8 cores; docs.cloud.google.com/run/docs/configuring/jobs/cpu, 2026.
_MOST_MEMORY = {1: 4, 2: 8, 4: 16, 6: 24, 8: 32}

_MEMORY = re.compile(r"(\d+)(Gi|Mi)")


def machine(hardware: str) -> Machine:
    """Return the machine with that name, or raise `UsageError` with similar names."""
    if hardware not in MACHINES:
        close = near(hardware.lower(), MACHINES, n=2, cutoff=0.4)
        hint = f"{close} --hardware accepts {', '.join(MACHINES)}.".lstrip()
        raise UsageError(f"Cloud Run has no hardware {hardware!r}", hint=hint)
    return MACHINES[hardware]


def size(stage: str, hardware: str, options: Mapping[str, Any]) -> tuple[int, float, str]:
    """Return cores, GiB, and the memory in Cloud Run's notation: as given, otherwise as fits the GPU.

    Raises:
        UsageError: `--cpu` and `--memory` do not fit the machine, or each other.
    """
    found = machine(hardware)
    cpu, memory = options.get("cpu"), options.get("memory")
    gib = None
    if memory is not None:
        parsed = _MEMORY.fullmatch(memory)
        if parsed is None:
            raise UsageError(f"--memory {memory}: must be a number with Gi or Mi", hint="Example: --memory 32Gi")
        gib = int(parsed[1]) / (1 if parsed[2] == "Gi" else 1024)
    small = stage not in GPU_STAGES and not found.gpus
    if small and ((cpu or 0) > max(_MOST_MEMORY) or (gib or 0) > max(_MOST_MEMORY.values())):
        cpu, memory, gib = None, None, None  # values for a pipeline's GPU stages: no machine without GPU is that large
    if cpu is None:
        cpu = found.cpu if gib is None else max(found.cpu, _cores_for(gib) or 0)
    if gib is None:
        gib = min(found.memory, _MOST_MEMORY.get(cpu, found.memory))
        memory = f"{int(gib)}Gi"
    if cpu < found.least_cpu or gib < found.least_memory:
        raise UsageError(
            f"{hardware} needs at least {found.least_cpu} cores and {found.least_memory}Gi, "
            f"not {cpu} cores and {memory}",
            hint="Raise --cpu and --memory, or remove both.",
        )
    if found.least_cpu > max(_MOST_MEMORY):  # a larger class of machines: the platform validates the combination
        return cpu, gib, str(memory)
    if cpu not in _MOST_MEMORY:
        raise UsageError(f"--cpu {cpu}: must be one of {', '.join(map(str, _MOST_MEMORY))}")
    if gib > _MOST_MEMORY[cpu]:
        enough = _cores_for(gib)
        hint = f"Use --cpu {enough}, or less --memory." if enough else "The maximum is --memory 32Gi, with --cpu 8."
        raise UsageError(f"{plural(cpu, 'core')} can have at most {_MOST_MEMORY[cpu]}Gi, not {memory}", hint=hint)
    return cpu, gib, str(memory)


def _cores_for(gib: float) -> int | None:
    return next((cores for cores, most in _MOST_MEMORY.items() if gib <= most), None)
