"""Beaker: an experiment of one task with a replica a share, sent with the `beaker` program.

The fields of the experiment are those of its format v2; the program is asked for JSON where it gives some.
"""

import json
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from llm_ocr.errors import LaunchError, UsageError
from llm_ocr.launch import GPU_STAGES, Job, JobSpec, JobStatus, Plan, Request
from llm_ocr.launch.beaker.states import experiment_status
from llm_ocr.launch.programs import run_program

CPU = "cpu"
#: Seconds of a job of which nothing is known.
USUAL = 4 * 3600
#: Of a task with a GPU, a GPU: what olmOCR asks for there.
MEMORY = 125  # GB
_HARDWARE = re.compile(r"gpu:([1-9]\d*)")
_ABSENT = "Install the beaker program and log in (beaker account whoami), or send the plan of --dry-run yourself."
_HINTS = {
    "image": "Give an image that Beaker can pull: --image REPOSITORY/NAME@sha256:...",
    "cluster": "Clusters: beaker cluster list",
    "secret": "Make it: beaker secret write --workspace WORKSPACE NAME",
    "budget": "Give the budget of your team: --beaker-budget NAME",
    "workspace": "Workspaces: beaker workspace list",
    "unauthorized": "Log in: beaker account whoami says as whom.",
    "permission": "Ask an owner of the workspace.",
    "quota": "Fewer --shards, or another --cluster.",
}


class Beaker:
    """The platform `beaker`. Hardware is `cpu` or `gpu:N`."""

    platform = "beaker"

    def hardware(self, stage: str) -> str:
        return "gpu:1" if stage in GPU_STAGES else CPU

    def gpus(self, hardware: str) -> int | None:
        found = _HARDWARE.fullmatch(hardware)
        return 0 if hardware == CPU else int(found[1]) if found else None

    def time_limit(self, spec: JobSpec) -> int:
        return USUAL

    def plan(self, spec: JobSpec) -> Plan:
        gpus = self.gpus(spec.hardware or self.hardware(spec.stage))
        if gpus is None:
            raise UsageError(
                f"--hardware {spec.hardware}: must be cpu or gpu:N", hint="Which GPU is a matter of --cluster."
            )
        missing = {} if spec.image else {"<image>": "--image IMAGE"}
        workspace = spec.options.get("beaker_workspace")
        if not workspace:
            missing["<workspace>"] = "--beaker-workspace WORKSPACE"
        experiment: dict[str, Any] = {"version": "v2", "description": spec.name, "tasks": [_task(spec, gpus)]}
        if budget := spec.options.get("beaker_budget"):
            experiment["budget"] = budget
        body = {"name": spec.name, "workspace": workspace or "<workspace>", "spec": experiment}
        return Plan(self.platform, spec, (Request("beaker experiment create", body),), missing)

    def check(self, plan: Plan) -> None:
        _beaker("account", "whoami")
        workspace = plan.requests[0].body["workspace"]
        wanted = {where or name for name, where in plan.spec.secrets.items()}
        if not wanted:
            return
        lines = _beaker("secret", "list", f"--workspace={workspace}").splitlines()
        absent = sorted(wanted - {line.split()[0] for line in lines if line.strip()})
        if absent:
            hint = f"Make it: beaker secret write --workspace={workspace} {absent[0]}"
            raise LaunchError(f"the workspace {workspace} has no secret {absent[0]}", hint=hint)

    def find(self, spec: JobSpec) -> Sequence[Job]:
        workspace = str(spec.options.get("beaker_workspace") or "")
        known = _json(_beaker("workspace", "experiments", workspace, "--format=json"))
        return [_job(spec, str(one["id"])) for one in known if one.get("name") == spec.name]

    def submit(self, plan: Plan) -> Sequence[Job]:
        body = plan.requests[0].body
        with tempfile.TemporaryDirectory(prefix="llm-ocr-") as folder:
            file = Path(folder, "experiment.json")  # JSON is YAML, too
            file.write_text(json.dumps(body["spec"]))
            words = (f"--name={body['name']}", f"--workspace={body['workspace']}", str(file))
            said = _beaker("experiment", "create", *words)
        found = re.search(r"/ex/(\w+)", said)
        if found is None:
            raise LaunchError(f"beaker did not name the experiment: {' '.join(said.split())}")
        return [_job(plan.spec, found[1])]

    def status(self, jobs: Sequence[Job]) -> Sequence[JobStatus]:
        known = [_json(_beaker("experiment", "get", job.id, "--format=json")) for job in jobs]
        return [experiment_status(job, found[0] if found else {}) for job, found in zip(jobs, known, strict=True)]

    def logs(self, job: Job, *, follow: bool = False, tail: int | None = None) -> Iterator[str]:
        if follow:
            raise LaunchError(f"the log of {job.id} cannot be followed from here", hint=f"Look at {job.url}")
        lines = _beaker("experiment", "logs", job.id).splitlines()
        yield from lines if tail is None else lines[-tail:]

    def cancel(self, job: Job) -> None:
        if not self.status([job])[0].state.over:
            _beaker("experiment", "stop", job.id)

    def clean(self, jobs: Sequence[Job]) -> Sequence[str]:
        return [f"left: the experiment {job.id} (beaker experiment delete {job.id})" for job in jobs]


def _task(spec: JobSpec, gpus: int) -> dict[str, Any]:
    resources = {"gpuCount": gpus, "memory": f"{MEMORY * gpus}GB"} if gpus else {"cpuCount": 4, "memory": "16GB"}
    variables: list[Mapping[str, str]] = [{"name": name, "value": value} for name, value in spec.environment.items()]
    variables += [{"name": name, "secret": where or name} for name, where in spec.secrets.items()]
    task: dict[str, Any] = {
        "name": spec.stage,
        "image": {"docker": spec.image or "<image>"},
        "command": _command(spec),
        "envVars": variables,
        "resources": resources,
        "context": {"priority": spec.options.get("priority") or "normal", "preemptible": True},
        "result": {"path": "/unused"},  # required; results are in the workspace
        "timeout": f"{spec.time_limit or USUAL}s",
    }
    if clusters := spec.options.get("cluster"):
        task["constraints"] = {"cluster": list(clusters)}
    if spec.shards > 1:
        # A share that fails or is taken away ends no other.
        task |= {"replicas": spec.shards, "propagateFailure": False, "propagatePreemption": False}
    return task


def _command(spec: JobSpec) -> list[str]:
    """Replicas differ by a variable of Beaker's alone."""
    if spec.shards == 1:
        return list(spec.command)
    numbered = f'export LLM_OCR_SHARD_INDEX="$BEAKER_REPLICA_RANK" LLM_OCR_SHARD_COUNT={spec.shards}; exec "$@"'
    return ["sh", "-c", numbered, "sh", *spec.command]


def _job(spec: JobSpec, experiment: str) -> Job:
    return Job(experiment, spec.name, None, f"https://beaker.org/ex/{experiment}")


def _beaker(*words: str) -> str:
    return run_program(["beaker", *words], absent=_ABSENT, hints=_HINTS)


def _json(text: str) -> list[Any]:
    try:
        found = json.loads(text or "[]")
    except ValueError as error:
        raise LaunchError(f"beaker did not answer in JSON: {' '.join(text.split())[:200]}") from error
    return found if isinstance(found, list) else [found]
