"""What is sent to Cloud Run for a stage: its job brought up to date, then run. Pure.

A project has one job for each stage and hardware. What Cloud Run lets a run change (tasks, time limit, variables) goes
with the run, so that two launches at the same time do not get each other's; the rest stands in the job.
"""

import re
from collections.abc import Mapping
from typing import Any

from llm_ocr.errors import UsageError
from llm_ocr.launch import GPU_STAGES, JobSpec, Plan, Request
from llm_ocr.launch.cloud_run.address import check_endpoint
from llm_ocr.launch.cloud_run.hardware import CPU, MACHINES, machine, size

PATCH = "run.projects.locations.jobs.patch"
RUN = "run.projects.locations.jobs.run"

#: Stands for the project of the credentials until these are asked.
PROJECT = "<project>"
_REGION, _IMAGE = "<region>", "<image>"

#: Label of executions: whose they are.
JOB_LABEL = "llm-ocr-job"

_MOST_TASKS = 10_000
_HOUR = 3600
#: Most pages of the documentation allow a task with GPU one hour, the newest twelve (preview); others a week.
_GPU_DEFAULT, _GPU_MOST = _HOUR, 12 * _HOUR
_CPU_DEFAULT, _CPU_MOST = 6 * _HOUR, 168 * _HOUR

_SECRET = re.compile(
    r"(?P<secret>(?:projects/[a-z0-9.:-]+/secrets/)?[A-Za-z0-9_-]{1,255})(?:(?::|/versions/)(?P<version>[A-Za-z0-9_-]+))?"
)


def default_hardware(stage: str) -> str:
    """An L4 for stages that need a GPU."""
    return "nvidia-l4" if stage in GPU_STAGES else CPU


def default_limit(spec: JobSpec) -> int:
    """Return the seconds of a task without a time limit."""
    return _GPU_DEFAULT if machine(spec.hardware or default_hardware(spec.stage)).gpus else _CPU_DEFAULT


def job_name(spec: JobSpec) -> str:
    """The job's full name; placeholders where project or region are not known."""
    project, region = spec.options.get("project") or PROJECT, spec.options.get("region") or _REGION
    hardware = spec.hardware or default_hardware(spec.stage)
    return f"projects/{project}/locations/{region}/jobs/llm-ocr-{spec.stage}-{hardware}"


def make_plan(platform: str, spec: JobSpec) -> Plan:
    """See `Launcher.plan`."""
    hardware = spec.hardware or default_hardware(spec.stage)
    limit = _time_limit(spec, hardware)
    check_endpoint(str(spec.options.get("platform_endpoint") or ""))
    if spec.shards > _MOST_TASKS:
        raise UsageError(
            f"--shards {spec.shards}: a Cloud Run job has at most {_MOST_TASKS} tasks", hint="Use fewer shards."
        )
    name = job_name(spec)
    job = {
        "name": name,
        **({"launchStage": "BETA"} if machine(hardware).gpus else {}),  # allows what is in preview, demands nothing
        "labels": {"llm-ocr-stage": spec.stage},
        "template": {
            "labels": {JOB_LABEL: spec.name, "llm-ocr-launch": spec.launch},
            "parallelism": min(spec.options.get("parallelism") or spec.shards, spec.shards),
            "taskCount": spec.shards,
            "template": _task(spec, hardware, limit),
        },
    }
    overrides = {
        "taskCount": spec.shards,
        "timeout": f"{limit}s",
        "containerOverrides": [
            {"env": [{"name": key, "value": value} for key, value in sorted(spec.environment.items())]}
        ],
    }
    requests = (
        Request(PATCH, {"job": job, "allowMissing": True}),
        Request(RUN, {"name": name, "overrides": overrides}),
    )
    return Plan(platform, spec, requests, _missing(spec), tuple(_notes(spec, hardware, limit)))


def _task(spec: JobSpec, hardware: str, limit: int) -> dict[str, Any]:
    space = size(spec.stage, hardware, spec.options)
    gpus = machine(hardware).gpus
    limits = {"cpu": str(space.cpu), "memory": space.memory, **({"nvidia.com/gpu": str(gpus)} if gpus else {})}
    secrets = [
        {"name": name, "valueSource": {"secretKeyRef": secret_of(name, where)}}
        for name, where in sorted(spec.secrets.items())
    ]
    container = {
        "image": spec.image or _IMAGE,
        "command": [spec.command[0]],
        "args": list(spec.command[1:]),
        **({"env": secrets} if secrets else {}),
        "resources": {"limits": limits},
    }
    account = spec.options.get("service_account")
    return {
        "containers": [container],
        # Whether another try is worth its money is decided by what the last one finished, which Cloud Run cannot see.
        "maxRetries": 0,
        "timeout": f"{limit}s",
        **({"serviceAccount": account} if account else {}),
        **({"nodeSelector": {"accelerator": hardware}, "gpuZonalRedundancyDisabled": True} if gpus else {}),
    }


def secret_of(name: str, where: str) -> dict[str, str]:
    """A secret of Secret Manager: `SECRET`, `SECRET:VERSION` or `projects/P/secrets/SECRET`; "": named as the variable.

    Raises `UsageError`.
    """
    found = _SECRET.fullmatch(where or name)
    if found is None:
        raise UsageError(
            f"--secret {name}: {where!r} cannot be a secret of Secret Manager",
            hint=f"Give --secret {name}=SECRET, {name}=SECRET:VERSION or {name}=projects/PROJECT/secrets/SECRET.",
        )
    return {"secret": found["secret"], "version": found["version"] or "latest"}


def _time_limit(spec: JobSpec, hardware: str) -> int:
    """Seconds of one task."""
    gpu = machine(hardware).gpus > 0
    most = _GPU_MOST if gpu else _CPU_MOST
    limit = spec.time_limit or default_limit(spec)
    if limit > most:
        raise UsageError(
            f"--time-limit {limit}s: a task {'with' if gpu else 'without'} GPU ends after {most // _HOUR} hours",
            hint="A stage goes on where its last job ended: use a shorter limit and more --attempts or --shards.",
        )
    return limit


def _missing(spec: JobSpec) -> Mapping[str, str]:
    """The project is not among them: the credentials know it."""
    gaps = {}
    if not spec.options.get("region"):
        gaps[_REGION] = "--region REGION, one that has the hardware"
    if not spec.image:
        gaps[_IMAGE] = (
            "--image REGION-docker.pkg.dev/PROJECT/REPOSITORY/NAME:TAG (google-cloud-run/README.md builds one)"
        )
    return gaps


def _notes(spec: JobSpec, hardware: str, limit: int) -> list[str]:
    notes = []
    if not spec.options.get("project"):
        notes.append(f"{PROJECT} is the project of the credentials, or --project")
    if not spec.options.get("service_account"):
        notes.append("tasks run as the project's default compute service account; --service-account names another")
    if machine(hardware).gpus and limit > _HOUR:
        notes.append("more than an hour for a task with GPU is a preview of Cloud Run's, which may refuse it")
    if MACHINES[hardware].preview:
        notes.append(f"{hardware} may be a preview in this region")
    return notes
