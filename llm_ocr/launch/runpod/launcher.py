"""RunPod: a request a shard to a serverless endpoint that stands already (runpod-serverless/README.md).

Plain HTTP; the package `runpod` is the worker's. The endpoint decides machine, image, environment and how many workers
there are at the same time.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any

from llm_ocr.errors import LaunchError, UsageError
from llm_ocr.launch import GPU_STAGES, Job, JobSpec, JobStatus, Plan, Request, State
from llm_ocr.launch.runpod.api import Api, NotThere
from llm_ocr.launch.runpod.ledger import Ledger
from llm_ocr.launch.runpod.logs import console, log_lines
from llm_ocr.launch.runpod.states import status_of

#: What the endpoint has: a GPU of whatever kind where a stage needs one, anything where none does.
GPU, ENDPOINT = "gpu", "endpoint"
#: GPU ids of RunPod (docs.runpod.io/references/gpu-types, November 2026); a worker has one unless told otherwise.
GPUS: Mapping[str, int] = MappingProxyType(
    {
        "cpu": 0,
        GPU: 1,
        "NVIDIA L4": 1,
        "NVIDIA L40": 1,
        "NVIDIA L40S": 1,
        "NVIDIA A30": 1,
        "NVIDIA A40": 1,
        "NVIDIA RTX A6000": 1,
        "NVIDIA A100 80GB PCIe": 1,
        "NVIDIA A100-SXM4-80GB": 1,
        "NVIDIA H100 PCIe": 1,
        "NVIDIA H100 NVL": 1,
        "NVIDIA H100 80GB HBM3": 1,
        "NVIDIA H200": 1,
        "NVIDIA B200": 1,
        "NVIDIA GeForce RTX 4090": 1,
    }
)
#: Seconds. RunPod ends a job after ten minutes where it is told nothing else.
TIME_LIMIT = 3 * 3600
#: Seconds: what a job may take in all, the queue included; RunPod's most, and what is left for the queue.
_LONGEST, _QUEUE = 7 * 86_400, 86_400
_MISSING = "<runpod-endpoint>"
#: The variables that a job has from the launch, as fields of the worker's input.
_FIELDS: Mapping[str, str] = MappingProxyType(
    {
        "LLM_OCR_WORKSPACE": "workspace",
        "LLM_OCR_LAUNCH": "launch",
        "LLM_OCR_WORKSPACE_ENDPOINT": "workspace_endpoint",
        "LLM_OCR_WORKSPACE_REGION": "workspace_region",
    }
)


class RunPod:
    """The platform `runpod`."""

    platform = "runpod"

    def hardware(self, stage: str) -> str:
        return GPU if stage in GPU_STAGES else ENDPOINT

    def gpus(self, hardware: str) -> int | None:
        return GPUS.get(hardware)

    def time_limit(self, spec: JobSpec) -> int:
        return TIME_LIMIT

    def plan(self, spec: JobSpec) -> Plan:
        _possible(spec)
        endpoint = endpoint_of(spec)
        limit = spec.time_limit or TIME_LIMIT
        policy = {"executionTimeout": limit * 1000, "ttl": min(limit + _QUEUE, _LONGEST) * 1000}
        requests = []
        for index in range(spec.shards):
            job = {"stage": spec.stage, **_input(spec), "shard": {"index": index, "count": spec.shards}}
            body = {"endpoint": endpoint or _MISSING, "input": {**job, "name": name_of(spec, index)}, "policy": policy}
            requests.append(Request("run", body))
        missing = {} if endpoint else {_MISSING: f"{_flag(spec)} ID"}
        return Plan(self.platform, spec, tuple(requests), missing, tuple(_notes(spec)))

    def check(self, plan: Plan) -> None:
        api, endpoint = _api(plan.spec), endpoint_of(plan.spec)
        try:
            api.get(f"v2/{endpoint}/health")
        except NotThere as error:
            raise LaunchError(
                f"RunPod has no endpoint {endpoint}: {error.args[0]}",
                hint="Its id stands in the console, under Serverless: --runpod-endpoint ID",
            ) from error
        if about := api.about(endpoint):  # a key for this endpoint alone may not ask
            _check_endpoint(plan.spec, endpoint, about)

    def find(self, spec: JobSpec) -> Sequence[Job]:
        return [_job(spec, shard, id_) for shard, id_ in Ledger(spec.name).read().items()]

    def submit(self, plan: Plan) -> Sequence[Job]:
        spec, ledger = plan.spec, Ledger(plan.spec.name)
        api = _api(spec)
        jobs: list[Job] = []
        for shard, request in enumerate(plan.requests):
            body = {name: value for name, value in request.body.items() if name != "endpoint"}
            try:
                answer = api.post(f"v2/{request.body['endpoint']}/{request.call}", body)
                jobs.append(_job(spec, shard, _id(answer)))
            except LaunchError as error:
                ledger.remove()
                raise _undone(error, [job for job in jobs if not self._undo(api, job)]) from error
            ledger.write({job.shard or 0: job.id for job in jobs})
        return jobs

    def status(self, jobs: Sequence[Job]) -> Sequence[JobStatus]:
        return [_status(job) for job in jobs]

    def logs(self, job: Job, *, follow: bool = False, tail: int | None = None) -> Iterator[str]:
        lines = log_lines(job, lambda: _asked(job), follow=follow)
        return lines if tail is None else iter(list(lines)[-tail:])

    def cancel(self, job: Job) -> None:
        if not _status(job).state.over:
            _of(job).post(f"v2/{job.place['endpoint']}/cancel/{job.id}", {})

    def clean(self, jobs: Sequence[Job]) -> Sequence[str]:
        for name in {job.name.rpartition("-")[0] for job in jobs}:
            Ledger(name).remove()
        endpoints = sorted({str(job.place["endpoint"]) for job in jobs})
        return [f"left: endpoint {one}, which was there before ({console(one)})" for one in endpoints]

    def _undo(self, api: Api, job: Job) -> bool:
        """Whether it could be cancelled."""
        try:
            api.post(f"v2/{job.place['endpoint']}/cancel/{job.id}", {})
        except LaunchError:
            return False
        return True


def endpoint_of(spec: JobSpec) -> str:
    """The endpoint of the stage's jobs; "" where none is named."""
    cpu = spec.options.get("runpod_cpu_endpoint") if spec.stage == "assemble" else None
    return str(cpu or spec.options.get("runpod_endpoint") or "")


def name_of(spec: JobSpec, index: int) -> str:
    """Of one job."""
    return f"{spec.name}-{index}"


def _flag(spec: JobSpec) -> str:
    return "--runpod-cpu-endpoint ID or --runpod-endpoint" if spec.stage == "assemble" else "--runpod-endpoint"


def _possible(spec: JobSpec) -> None:
    """Raises `UsageError` for what no endpoint can do."""
    if spec.image:
        raise UsageError(
            "--image: a job on RunPod runs in the image of its endpoint",
            hint="Set it on the endpoint: runpod-serverless/README.md",
        )
    if spec.hardware not in (*GPUS, ENDPOINT, "") and (near := get_close_matches(spec.hardware, GPUS, cutoff=0.5)):
        raise UsageError(f"--hardware {spec.hardware}: RunPod has no such GPU", hint=f"Near: {', '.join(near)}")
    if spec.time_limit is not None and spec.time_limit > _LONGEST - 3600:
        raise UsageError("--time-limit: RunPod ends every job after a week", hint="Give more --shards.")
    if "://" not in spec.workspace or spec.workspace.startswith("file:"):
        raise UsageError(
            f"{spec.workspace}: a folder of this machine, which workers on RunPod cannot reach",
            hint="Give a workspace on s3://, gs:// or hf://.",
        )
    if strange := sorted(set(spec.environment) - set(_FIELDS)):
        raise UsageError(f"{', '.join(strange)}: a job on RunPod cannot be given it; set it on the endpoint")


def _input(spec: JobSpec) -> dict[str, str]:
    return {field: spec.environment[name] for name, field in _FIELDS.items() if name in spec.environment}


def _notes(spec: JobSpec) -> Iterator[str]:
    if spec.shards > 1:
        yield "as many shards run at the same time as the endpoint has workers (Max workers)"
    if spec.secrets:
        yield f"the endpoint's environment must hold {', '.join(sorted(spec.secrets))}: requests carry no secrets"


def _check_endpoint(spec: JobSpec, endpoint: str, about: Mapping[str, Any]) -> None:
    """What the endpoint says of itself against what the jobs need."""
    if about.get("workersMax") == 0:
        raise LaunchError(
            f"endpoint {endpoint} has no workers: its Max workers are 0",
            hint=f"Raise them, within the account's quota: {console(endpoint)}",
        )
    kinds = [str(one) for one in about.get("gpuTypeIds") or ()]
    compute = str(about.get("computeType") or "").lower()
    wanted = "cpu" if spec.hardware == "cpu" else "gpu"
    if spec.hardware in GPUS and compute and compute != wanted:
        raise LaunchError(
            f"endpoint {endpoint} runs on {compute.upper()}s, and the stage is for a {wanted.upper()}",
            hint="Name another endpoint, or the machine that it has: --hardware cpu (with --engine embedded), or gpu.",
        )
    if spec.hardware in GPUS and wanted == "gpu" and spec.hardware != GPU and kinds and spec.hardware not in kinds:
        raise LaunchError(
            f"endpoint {endpoint} has no {spec.hardware}: {', '.join(kinds)}",
            hint="Leave --hardware out, or name one of these.",
        )
    held = {**((about.get("template") or {}).get("env") or {}), **(about.get("env") or {})}
    if absent := sorted(set(spec.secrets) - set(held)):
        raise LaunchError(
            f"endpoint {endpoint} has no variable {', '.join(absent)}",
            hint=f"Set it there, as {{{{ RUNPOD_SECRET_{spec.secrets[absent[0]] or absent[0]} }}}} "
            f"of a secret: {console(endpoint)}",
        )


def _id(answer: Mapping[str, Any]) -> str:
    if not isinstance(answer.get("id"), str):
        raise LaunchError(f"RunPod took the job and named none: {json.dumps(dict(answer))[:200]}")
    return str(answer["id"])


def _undone(error: LaunchError, left: Sequence[Job]) -> LaunchError:
    if not left:
        return error
    ids = ", ".join(job.id for job in left)
    return LaunchError(f"{error.args[0]}; these jobs could not be cancelled again: {ids}", hint=error.hint)


def _job(spec: JobSpec, shard: int, id_: str) -> Job:
    endpoint = endpoint_of(spec)
    place = {"endpoint": endpoint, "api": str(spec.options.get("platform_endpoint") or "")}
    return Job(id_, name_of(spec, shard), shard, console(endpoint), place)


def _api(spec: JobSpec) -> Api:
    return Api(str(spec.options.get("platform_endpoint") or ""))


def _of(job: Job) -> Api:
    return Api(str(job.place.get("api") or ""))


def _asked(job: Job) -> Mapping[str, Any]:
    return _of(job).get(f"v2/{job.place['endpoint']}/status/{job.id}")


def _status(job: Job) -> JobStatus:
    try:
        return status_of(job, _asked(job))
    except NotThere:
        reason = "RunPod forgets jobs half an hour after their end; what it did stands in the workspace"
        return JobStatus(job, State.FAILED, reason)
