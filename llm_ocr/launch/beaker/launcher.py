"""Beaker: an experiment of one task with one replica per share, submitted with the `beaker` program.

The fields of the experiment are those of its format v2. The program's output is JSON if possible.
"""

import json
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from llm_ocr.errors import LaunchError, UsageError
from llm_ocr.launch import Job, JobSpec, JobStatus, Launcher, Plan, Request, State, cpu_or_gpus, gpus_of, moment
from llm_ocr.launch.library import CPU_IMAGE, GPU_IMAGE, job_command, library_notes
from llm_ocr.launch.logs import last
from llm_ocr.launch.programs import run_program

#: Seconds of a job without a time limit.
USUAL = 4 * 3600
#: GB of a task per GPU, as in olmOCR.
MEMORY = 125
_LATE = re.compile(r"time(d )?\s*out|time limit", re.IGNORECASE)
#: Values of `canceledCode`: preempted by the scheduler, or by a person.
_PREEMPTED = (1, 2)
#: Order of states: several replicas together have the first of these states that a replica has.
_ORDER = (
    *(State.RUNNING, State.QUEUED, State.FAILED, State.TIMED_OUT),
    *(State.PREEMPTED, State.CANCELLED, State.SUCCEEDED),
)
_ABSENT = "Install the beaker program and log in (beaker account whoami), or submit the output of --dry-run yourself."
#: Text of an error of the program -> its hint.
_HINTS = {
    "image": "Use an image that Beaker can pull: --image REPOSITORY/NAME@sha256:...",
    "cluster": "List the clusters: beaker cluster list",
    "secret": "Create it: beaker secret write --workspace WORKSPACE NAME",
    "budget": "Set the budget of your team: --beaker-budget NAME",
    "workspace": "List the workspaces: beaker workspace list",
    "unauthorized": "Log in, and check the account: beaker account whoami",
    "permission": "Ask an owner of the workspace.",
    "quota": "Use fewer --shards, or another --cluster.",
}


class Beaker(Launcher):
    """Platform `beaker`. Hardware is `cpu` or `gpu:N`."""

    platform = "beaker"
    usual_limit = USUAL

    def hardware(self, stage: str) -> str:
        return cpu_or_gpus(stage)

    def gpus(self, hardware: str) -> int | None:
        return gpus_of(hardware)

    def plan(self, spec: JobSpec) -> Plan:
        gpus = self.gpus(spec.hardware or self.hardware(spec.stage))
        if gpus is None:
            hint = "--cluster determines the type of GPU."
            raise UsageError(f"--hardware {spec.hardware}: must be cpu or gpu:N", hint=hint)
        workspace = spec.options.get("beaker_workspace")
        missing = {} if workspace else {"<workspace>": "--beaker-workspace WORKSPACE"}
        experiment: dict[str, Any] = {"version": "v2", "description": spec.name, "tasks": [_task(spec, gpus)]}
        if budget := spec.options.get("beaker_budget"):
            experiment["budget"] = budget
        body = {"name": spec.name, "workspace": workspace or "<workspace>", "spec": experiment}
        request = Request("beaker experiment create", body)
        return Plan(self.platform, spec, (request,), missing, tuple(library_notes(spec, gpus)))

    def check(self, plan: Plan) -> None:
        _beaker("account", "whoami")
        workspace = plan.requests[0].body["workspace"]
        wanted = {where or name for name, where in plan.spec.secrets.items()}
        if not wanted:
            return
        lines = _beaker("secret", "list", f"--workspace={workspace}").splitlines()
        absent = sorted(wanted - {line.split()[0] for line in lines if line.strip()})
        if absent:
            hint = f"Create it: beaker secret write --workspace={workspace} {absent[0]}"
            raise LaunchError(f"the workspace {workspace} has no secret {absent[0]}", hint=hint)

    def find(self, spec: JobSpec) -> Sequence[Job]:
        workspace = str(spec.options.get("beaker_workspace") or "")
        known = _json("workspace", "experiments", workspace)
        return [_job(spec, str(one["id"])) for one in known if one.get("name") == spec.name]

    def submit(self, plan: Plan) -> Sequence[Job]:
        body = plan.requests[0].body
        with tempfile.TemporaryDirectory(prefix="llm-ocr-") as folder:
            file = Path(folder, "experiment.json")  # JSON is YAML, too
            file.write_text(json.dumps(body["spec"]))
            words = (f"--name={body['name']}", f"--workspace={body['workspace']}", str(file))
            answer = _beaker("experiment", "create", *words)
        found = re.search(r"/ex/(\w+)", answer)
        if found is None:
            raise LaunchError(f"beaker returned no experiment: {' '.join(answer.split())}")
        return [_job(plan.spec, found[1])]

    def _status(self, job: Job) -> JobStatus:
        found = _json("experiment", "get", job.id)
        return experiment_status(job, found[0] if found else {})

    def logs(self, job: Job, *, follow: bool = False, tail: int | None = None) -> Iterator[str]:
        if follow:
            raise LaunchError(f"the log of {job.id} cannot be followed from here", hint=f"Open {job.url}")
        yield from last(_beaker("experiment", "logs", job.id).splitlines(), tail)

    def _end(self, job: Job) -> None:
        _beaker("experiment", "stop", job.id)

    def clean(self, jobs: Sequence[Job]) -> Sequence[str]:
        return [f"kept: experiment {job.id} (beaker experiment delete {job.id})" for job in jobs]


def _task(spec: JobSpec, gpus: int) -> dict[str, Any]:
    resources = {"gpuCount": gpus, "memory": f"{MEMORY * gpus}GB"} if gpus else {"cpuCount": 4, "memory": "16GB"}
    variables: list[Mapping[str, str]] = [{"name": name, "value": value} for name, value in spec.environment.items()]
    variables += [{"name": name, "secret": where or name} for name, where in spec.secrets.items()]
    command = job_command(spec, gpus=gpus)
    if spec.shards > 1:  # replicas differ only by a variable of Beaker
        shard = f'export LLM_OCR_SHARD_INDEX="$BEAKER_REPLICA_RANK" LLM_OCR_SHARD_COUNT={spec.shards}; exec "$@"'
        command = ["sh", "-c", shard, "sh", *command]
    task: dict[str, Any] = {
        "name": spec.stage,
        "image": {"docker": spec.image or (GPU_IMAGE if gpus else CPU_IMAGE)},
        "command": command,
        "envVars": variables,
        "resources": resources,
        "context": {"priority": spec.options.get("priority") or "normal", "preemptible": True},
        "result": {"path": "/unused"},  # required; results are in the workspace
        "timeout": f"{spec.time_limit or USUAL}s",
    }
    if clusters := spec.options.get("cluster"):
        task["constraints"] = {"cluster": list(clusters)}
    if spec.shards > 1:
        # A share that fails or is preempted ends no other.
        task |= {"replicas": spec.shards, "propagateFailure": False, "propagatePreemption": False}
    return task


def _job(spec: JobSpec, experiment: str) -> Job:
    return Job(experiment, spec.name, None, f"https://beaker.org/ex/{experiment}")


def experiment_status(job: Job, experiment: Mapping[str, Any]) -> JobStatus:
    """Return the status of all replicas as one; the newest job of a replica counts."""
    newest: dict[Any, Mapping[str, Any]] = {}
    for one in sorted(experiment.get("jobs") or (), key=lambda one: str(one.get("status", {}).get("created", ""))):
        newest[(one.get("execution") or {}).get("replicaRank")] = one.get("status", {})
    if not newest:
        return JobStatus(job, State.QUEUED)
    found = [_replica(one) for one in newest.values()]
    state = next(state for state in _ORDER if any(one is state for one, _ in found))
    starts = [_moment(one, "started") for one in newest.values()]
    ends = [_moment(one, "exited", "failed", "canceled", "finalized") for one in newest.values()]
    started = min((one for one in starts if one), default=None)
    if not state.over:
        return JobStatus(job, state, started=started)
    reasons = dict.fromkeys(why for _, why in found if why)
    seconds = sum(end - start for start, end in zip(starts, ends, strict=True) if start and end)
    return JobStatus(job, state, "; ".join(reasons), started, max((one for one in ends if one), default=None), seconds)


def _replica(status: Mapping[str, Any]) -> tuple[State, str]:
    message = str(status.get("canceledFor") or status.get("message") or "")
    code = status.get("exitCode")
    late = _LATE.search(message)
    if _moment(status, "canceled"):
        if status.get("canceledCode") in _PREEMPTED:
            return State.PREEMPTED, message or "preempted"
        return (State.TIMED_OUT if late else State.CANCELLED), message or "canceled"
    if _moment(status, "failed") or (code is not None and code != 0):
        why = ", ".join(filter(None, (message, f"exit code {code}" if code is not None else "")))
        return (State.TIMED_OUT if late else State.FAILED), why or "failed"
    if _moment(status, "exited", "finalized"):
        return State.SUCCEEDED, ""
    return (State.RUNNING if _moment(status, "started") else State.QUEUED), ""


def _moment(status: Mapping[str, Any], *names: str) -> float | None:
    """Return the first of these times that is set; unset times are in the year 1."""
    return next((time for name in names if (time := moment(status.get(name)))), None)


def _beaker(*words: str) -> str:
    return run_program(["beaker", *words], absent=_ABSENT, hints=_HINTS)


def _json(*words: str) -> list[Any]:
    text = _beaker(*words, "--format=json")
    try:
        found = json.loads(text or "[]")
    except ValueError as error:
        raise LaunchError(f"beaker did not return JSON: {' '.join(text.split())[:200]}") from error
    return found if isinstance(found, list) else [found]
