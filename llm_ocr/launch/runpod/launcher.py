"""RunPod: one request per shard to an existing serverless endpoint (runpod-serverless/README.md).

The endpoint determines machine, image, environment, and the number of workers. Requests are plain HTTP: the package
`runpod` is for workers.
"""

import contextlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from llm_ocr.errors import LaunchError, UsageError
from llm_ocr.launch import GPU_STAGES, Job, JobSpec, JobStatus, Launcher, Plan, Request, State
from llm_ocr.launch.logs import last
from llm_ocr.launch.programs import state_folder
from llm_ocr.launch.refusals import taken_back
from llm_ocr.launch.runpod.api import Api, NotThere

#: Hardware without a type: any GPU of the endpoint, and any machine of the endpoint.
GPU, ENDPOINT = "gpu", "endpoint"
#: GPU types with the GPUs per worker (docs.runpod.io/references/gpu-types, November 2026).
GPUS: Mapping[str, int] = {
    "cpu": 0,
    GPU: 1,
    **dict.fromkeys(("NVIDIA L4", "NVIDIA L40", "NVIDIA L40S", "NVIDIA A30", "NVIDIA A40", "NVIDIA RTX A6000"), 1),
    **dict.fromkeys(("NVIDIA A100 80GB PCIe", "NVIDIA A100-SXM4-80GB", "NVIDIA H100 PCIe", "NVIDIA H100 NVL"), 1),
    **dict.fromkeys(("NVIDIA H100 80GB HBM3", "NVIDIA H200", "NVIDIA B200", "NVIDIA GeForce RTX 4090"), 1),
}
#: Seconds of a job. Without a value RunPod ends a job after ten minutes.
TIME_LIMIT = 3 * 3600
#: Seconds of a job and its time in the queue: RunPod's maximum, and the part for the queue.
_LONGEST, _QUEUE = 7 * 86_400, 86_400
#: Seconds between two requests for a job whose log is followed.
EVERY = 3.0
STATES: Mapping[str, State] = {
    "IN_QUEUE": State.QUEUED,
    "IN_PROGRESS": State.RUNNING,
    "RUNNING": State.RUNNING,
    "COMPLETED": State.SUCCEEDED,
    "FAILED": State.FAILED,
    "CANCELLED": State.CANCELLED,
    "TIMED_OUT": State.TIMED_OUT,
}
_MISSING = "<runpod-endpoint>"
#: Variables of a launch -> fields of the worker's input.
_FIELDS: Mapping[str, str] = {
    "LLM_OCR_WORKSPACE": "workspace",
    "LLM_OCR_LAUNCH": "launch",
    "LLM_OCR_WORKSPACE_ENDPOINT": "workspace_endpoint",
    "LLM_OCR_WORKSPACE_REGION": "workspace_region",
}


class RunPod(Launcher):
    """Platform `runpod`. Hardware is a GPU type, `gpu`, `cpu`, or `endpoint`."""

    platform = "runpod"
    usual_limit = TIME_LIMIT

    def hardware(self, stage: str) -> str:
        return GPU if stage in GPU_STAGES else ENDPOINT

    def gpus(self, hardware: str) -> int | None:
        return GPUS.get(hardware)

    def plan(self, spec: JobSpec) -> Plan:
        _check_spec(spec)
        endpoint = _endpoint(spec)
        limit = spec.time_limit or TIME_LIMIT
        policy = {"executionTimeout": limit * 1000, "ttl": min(limit + _QUEUE, _LONGEST) * 1000}
        given = {field: spec.environment[name] for name, field in _FIELDS.items() if name in spec.environment}
        requests = []
        for index in range(spec.shards):
            shard = {"shard": {"index": index, "count": spec.shards}, "name": spec.shard_name(index)}
            job = {"stage": spec.stage, **given, **shard}
            body = {
                "endpoint": endpoint or _MISSING,
                "input": {**job, "name": spec.shard_name(index)},
                "policy": policy,
            }
            requests.append(Request("run", body))
        flag = "--runpod-cpu-endpoint ID or --runpod-endpoint" if spec.stage == "assemble" else "--runpod-endpoint"
        missing = {} if endpoint else {_MISSING: f"{flag} ID"}
        return Plan(self.platform, spec, tuple(requests), missing, tuple(_notes(spec)))

    def check(self, plan: Plan) -> None:
        api, endpoint = Api(_server(plan.spec)), _endpoint(plan.spec)
        try:
            api.get(f"v2/{endpoint}/health")
        except NotThere as error:
            hint = "The console shows IDs under Serverless: --runpod-endpoint ID"
            raise LaunchError(f"RunPod has no endpoint {endpoint}: {error.args[0]}", hint=hint) from error
        _check_endpoint(plan.spec, endpoint, api)

    def find(self, spec: JobSpec) -> Sequence[Job]:
        try:
            held = json.loads(_ledger(spec.name).read_text())
        except FileNotFoundError:
            return []
        return [_job(spec, int(shard), str(id_)) for shard, id_ in held.items()]

    def submit(self, plan: Plan) -> Sequence[Job]:
        spec, ledger = plan.spec, _ledger(plan.spec.name)
        ledger.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        api = Api(_server(spec))
        jobs: list[Job] = []
        for shard, request in enumerate(plan.requests):
            body = {name: value for name, value in request.body.items() if name != "endpoint"}
            try:
                answer = api.post(f"v2/{request.body['endpoint']}/{request.call}", body)
                if not isinstance(answer.get("id"), str):
                    raise LaunchError(f"RunPod accepted the job without an ID: {json.dumps(dict(answer))[:200]}")
            except LaunchError as error:
                ledger.unlink(missing_ok=True)
                raise taken_back(jobs, _cancel, error) from error
            jobs.append(_job(spec, shard, answer["id"]))
            part = ledger.with_suffix(".part")
            part.write_text(json.dumps({str(job.shard): job.id for job in jobs}))
            part.replace(ledger)
        return jobs

    def _status(self, job: Job) -> JobStatus:
        try:
            return _status_of(job, _ask(job))
        except NotThere:
            reason = "RunPod deletes jobs 30 minutes after their end; their results are in the workspace"
            return JobStatus(job, State.FAILED, reason)

    def logs(self, job: Job, *, follow: bool = False, tail: int | None = None) -> Iterator[str]:
        return iter(last(_log_lines(job, follow=follow), tail))

    def _end(self, job: Job) -> None:
        _cancel(job)

    def clean(self, jobs: Sequence[Job]) -> Sequence[str]:
        for name in {job.name.rpartition("-")[0] for job in jobs}:
            _ledger(name).unlink(missing_ok=True)
        endpoints = sorted({str(job.place["endpoint"]) for job in jobs})
        return [f"kept: endpoint {one} ({_console(one)})" for one in endpoints]


def _check_spec(spec: JobSpec) -> None:
    """Raise `UsageError` for a job that no endpoint can run."""
    if spec.image:
        hint = "Set it on the endpoint: runpod-serverless/README.md"
        raise UsageError("--image has no effect on RunPod: jobs run in the image of their endpoint", hint=hint)
    if spec.hardware not in (*GPUS, ENDPOINT, "") and (near := get_close_matches(spec.hardware, GPUS, cutoff=0.5)):
        raise UsageError(f"--hardware {spec.hardware}: RunPod has no such GPU", hint=f"Similar: {', '.join(near)}")
    if spec.time_limit is not None and spec.time_limit > _LONGEST - 3600:
        raise UsageError("--time-limit: RunPod ends every job after one week", hint="Use more --shards.")
    if strange := sorted(set(spec.environment) - set(_FIELDS)):
        hint = "Set it in the endpoint's environment, and remove --env: runpod-serverless/README.md"
        raise UsageError(f"--env {', '.join(strange)}: requests to an endpoint cannot set variables", hint=hint)


def _notes(spec: JobSpec) -> Iterator[str]:
    if spec.shards > 1:
        yield "the endpoint's Max workers limits how many shards run at the same time"
    if spec.secrets:
        yield f"set {', '.join(sorted(spec.secrets))} in the endpoint's environment: requests contain no secrets"


def _check_endpoint(spec: JobSpec, endpoint: str, api: Api) -> None:
    """Compare the endpoint with the needs of the jobs. Raise `LaunchError` if the endpoint lacks something."""
    found = api.endpoint(endpoint)
    if found is None:
        return
    if found.workers == 0:
        hint = f"Raise Max workers, within the account's quota: {_console(endpoint)}"
        raise LaunchError(f"endpoint {endpoint} has no workers: Max workers is 0", hint=hint)
    wanted = "cpu" if spec.hardware == "cpu" else "gpu"
    if spec.hardware in GPUS and found.machine and found.machine != wanted:
        raise LaunchError(
            f"endpoint {endpoint} runs on {found.machine.upper()}s, but the stage is for a {wanted.upper()}",
            hint="Use another endpoint, or its type of machine: --hardware cpu (with --engine embedded) or gpu.",
        )
    types = api.gpu_types(found) if found.pools and spec.hardware in GPUS.keys() - {"cpu", GPU} else []
    if types and spec.hardware not in types:
        hint = "Remove --hardware, or set one of these."
        raise LaunchError(f"endpoint {endpoint} has no {spec.hardware}: {', '.join(types)}", hint=hint)
    absent = [] if found.variables is None else sorted(set(spec.secrets) - found.variables)
    if absent:
        raise LaunchError(
            f"endpoint {endpoint} has no variable {', '.join(absent)}",
            hint=f"Set it on the endpoint, as {{{{ RUNPOD_SECRET_{spec.secrets[absent[0]] or absent[0]} }}}} "
            f"for a secret: {_console(endpoint)}",
        )


def _status_of(job: Job, answer: Mapping[str, Any]) -> JobStatus:
    """Return the status; a state that is new at RunPod counts as running, unless the job has an error."""
    word = str(answer.get("status", ""))
    state = STATES.get(word, State.FAILED if answer.get("error") else State.RUNNING)
    reason = ""
    if word not in STATES:
        reason = f"unknown state at RunPod: {word or 'none'}"
    elif state.over and state is not State.SUCCEEDED:
        late = "time limit reached, or worker lost" if state is State.TIMED_OUT else ""
        reason = (_error(answer) or late or state.value).splitlines()[0][:1000]  # the last line of the stage is first
    took = answer.get("executionTime")
    return JobStatus(job, state, reason, seconds=took / 1000 if state.over and isinstance(took, int | float) else None)


def _log_lines(job: Job, *, follow: bool) -> Iterator[str]:
    """Yield the place of the log, the worker's reports, and the end of the job."""
    yield f"Logs of the workers: {_console(str(job.place['endpoint']))} (tab Logs)"
    shown = ""
    while True:
        answer = _ask(job)
        state, output = _status_of(job, answer).state, answer.get("output")
        if not state.over and output:
            line = str(output.get("line") or json.dumps(output)) if isinstance(output, dict) else str(output)
            if line != shown:
                yield line
            shown = line
        if state.over or not follow:
            yield f"{job.name} {state.value}"
            if isinstance(answer.get("error"), str):
                yield from _error(answer).splitlines()
            elif isinstance(output, dict) and state is State.SUCCEEDED:
                yield json.dumps(output)
            return
        time.sleep(EVERY)


def _error(answer: Mapping[str, Any]) -> str:
    """Return the message of an error: a worker's is in JSON, RunPod's own is text."""
    error = answer.get("error")
    if isinstance(error, str):
        with contextlib.suppress(ValueError):
            held = json.loads(error)
            error = held.get("error_message") or error if isinstance(held, dict) else error
    return str(error or "").strip()


def _endpoint(spec: JobSpec) -> str:
    cpu = spec.options.get("runpod_cpu_endpoint") if spec.stage == "assemble" else None
    return str(cpu or spec.options.get("runpod_endpoint") or "")


def _server(spec: JobSpec) -> str:
    return str(spec.options.get("platform_endpoint") or "")


def _job(spec: JobSpec, shard: int, id_: str) -> Job:
    endpoint = _endpoint(spec)
    place = {"endpoint": endpoint, "api": _server(spec)}
    return Job(id_, spec.shard_name(shard), shard, _console(endpoint), place)


def _console(endpoint: str) -> str:
    return f"https://console.runpod.io/serverless/user/endpoint/{endpoint}"


def _ask(job: Job) -> Mapping[str, Any]:
    return Api(str(job.place.get("api") or "")).get(f"v2/{job.place['endpoint']}/status/{job.id}")


def _cancel(job: Job) -> None:
    Api(str(job.place.get("api") or "")).post(f"v2/{job.place['endpoint']}/cancel/{job.id}", {})


def _ledger(name: str) -> Path:
    """Return the file with the jobs of a submission. RunPod has no list of jobs for a launch after a crash."""
    return state_folder() / "runpod" / f"{name}.json"
