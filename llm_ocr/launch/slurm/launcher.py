"""Slurm: a job array, one task a share, submitted with the cluster's own programs from one of its login nodes."""

import re
import shlex
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from llm_ocr.errors import LaunchError, UsageError
from llm_ocr.launch import GPU_STAGES, Job, JobSpec, JobStatus, Plan, Request
from llm_ocr.launch.programs import last_words, run_program
from llm_ocr.launch.slurm.states import Row, known_tasks, task_status
from llm_ocr.settings.environment import environment

CPU = "cpu"
#: Seconds of a job of which nothing is known.
USUAL = 4 * 3600
#: What a task gets of the submitting shell beside its secrets: where programs and caches are.
PASSED = (
    *("PATH", "HOME", "USER", "LANG", "LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV", "CONDA_PREFIX", "TMPDIR"),
    *("XDG_CACHE_HOME", "HF_HOME", "HF_HUB_CACHE", "VLLM_CACHE_ROOT", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"),
)
_HARDWARE = re.compile(r"gpu(:[A-Za-z][\w.-]*)?(:(?P<count>[1-9]\d*))?")
_HERE = "Launch from a login node of the cluster."


class Slurm:
    """The platform `slurm`. Hardware is `cpu`, or GPUs as Slurm writes them: `gpu:1`, `gpu:a100:2`."""

    platform = "slurm"

    def hardware(self, stage: str) -> str:
        return "gpu:1" if stage in GPU_STAGES else CPU

    def gpus(self, hardware: str) -> int | None:
        if hardware == CPU:
            return 0
        found = _HARDWARE.fullmatch(hardware)
        return int(found["count"] or 1) if found else None

    def time_limit(self, spec: JobSpec) -> int:
        return USUAL

    def plan(self, spec: JobSpec) -> Plan:
        hardware = spec.hardware or self.hardware(spec.stage)
        if self.gpus(hardware) is None:
            raise UsageError(f"--hardware {hardware}: must be cpu, gpu:N or gpu:TYPE:N")
        passed = [*PASSED, *(name for name, where in spec.secrets.items() if not where)]
        body = {"arguments": ["--parsable", f"--export={','.join(passed)}"], "script": _script(spec, hardware)}
        return Plan(self.platform, spec, (Request("sbatch", body),))

    def check(self, plan: Plan) -> None:
        absent = [name for name, where in plan.spec.secrets.items() if not where and not environment().get(name)]
        if absent:
            raise LaunchError(
                f"the secret {absent[0]} is not set here",
                hint=f"Set the variable, or give --secret {absent[0]}=FILE with a file that the nodes can read.",
            )
        body = plan.requests[0].body
        _sbatch(["--test-only", *body["arguments"]], body["script"])

    def find(self, spec: JobSpec) -> Sequence[Job]:
        arrays = {int(row.array) for row in known_tasks([spec.name], "") if row.array.isdigit()}
        return _jobs(spec, str(max(arrays)), "") if arrays else []

    def submit(self, plan: Plan) -> Sequence[Job]:
        body = plan.requests[0].body
        array, _, cluster = _sbatch(body["arguments"], body["script"]).strip().partition(";")
        return _jobs(plan.spec, array, cluster)

    def status(self, jobs: Sequence[Job]) -> Sequence[JobStatus]:
        rows: dict[str, Row] = {}
        for cluster in dict.fromkeys(job.place.get("cluster", "") for job in jobs):
            names = dict.fromkeys(job.place["name"] for job in jobs if job.place.get("cluster", "") == cluster)
            rows |= {row.id: row for row in known_tasks(list(names), cluster)}
        return [task_status(job, rows.get(job.id), _last_words(job)) for job in jobs]

    def logs(self, job: Job, *, follow: bool = False, tail: int | None = None) -> Iterator[str]:
        log = Path(job.place["log"])
        while not log.is_file():
            over = self.status([job])[0].state.over
            if over or not follow:
                why = "it never ran, or its log is on another machine" if over else "it has not begun"
                raise LaunchError(f"no log {log}: {why}")
            time.sleep(2)
        with log.open(errors="replace") as lines:
            if tail is not None:
                yield from (line.rstrip("\n") for line in deque(lines, maxlen=tail))
            while True:
                over = not follow or self.status([job])[0].state.over
                yield from (line.rstrip("\n") for line in lines)
                if over:
                    return
                time.sleep(2)

    def cancel(self, job: Job) -> None:
        if not self.status([job])[0].state.over:
            run_program(["scancel", *_on(job.place.get("cluster", "")), job.id], absent=_HERE)

    def clean(self, jobs: Sequence[Job]) -> Sequence[str]:
        return [f"left: {job.place['log']}" for job in jobs if Path(job.place["log"]).is_file()]


def _script(spec: JobSpec, hardware: str) -> str:
    """Slurm's arguments of the user come last: of two that say the same, the last counts."""
    arguments = [
        f"--job-name={spec.name}",
        f"--array=0-{spec.shards - 1}",
        f"--time={_time(spec.time_limit or USUAL)}",
        "--cpus-per-task=8",
        *([] if hardware == CPU else [f"--gres={hardware}"]),
        f"--output={_log_name(spec, '%a')}",
        "--open-mode=append",
        # The stage publishes what is whole then, and the next submission goes on.
        f"--signal=B:TERM@{min(120, (spec.time_limit or USUAL) // 4)}",
        "--no-requeue",
        *([f"--partition={spec.options['partition']}"] if spec.options.get("partition") else []),
        *spec.options.get("slurm_arg", ()),
    ]
    for argument in arguments:
        if "\n" in argument or not argument.startswith("-"):
            raise UsageError(f"--slurm-arg {argument!r}: must be one argument of sbatch, as --slurm-arg=--account=lab")
    variables = [f"export {name}={shlex.quote(value)}" for name, value in spec.environment.items()]
    secrets = [
        line
        for name, where in spec.secrets.items()
        if where
        for line in (f'{name}="$(cat {shlex.quote(where)})"', f"export {name}")
    ]
    lines = [
        "#!/bin/bash",
        *(f"#SBATCH {argument}" for argument in arguments),
        "set -e",
        *spec.options.get("slurm_setup", ()),
        *variables,
        *secrets,
        f"exec {shlex.join((*_container(spec, hardware), *spec.command))}",
    ]
    return "\n".join(lines) + "\n"


def _container(spec: JobSpec, hardware: str) -> tuple[str, ...]:
    """Clusters have Apptainer rather than Docker; it passes the environment on."""
    if not spec.image:
        return ()
    return ("apptainer", "exec", *(() if hardware == CPU else ("--nv",)), spec.image)


def _time(seconds: int) -> str:
    """`days-hours:minutes:seconds`."""
    days, rest = divmod(seconds, 86400)
    return f"{days}-{rest // 3600:02}:{rest % 3600 // 60:02}:{rest % 60:02}"


def _log_name(spec: JobSpec, index: Any) -> str:
    return f"{spec.name}-{index}.log"


def _jobs(spec: JobSpec, array: str, cluster: str) -> list[Job]:
    jobs = []
    for index in range(spec.shards):
        log = str(Path.cwd() / _log_name(spec, index))
        place = {"name": spec.name, "log": log, "cluster": cluster}
        jobs.append(Job(f"{array}_{index}", f"{spec.name}-{index}", index, log, place))
    return jobs


def _last_words(job: Job) -> str:
    try:
        with Path(job.place["log"]).open("rb") as log:
            log.seek(max(0, log.seek(0, 2) - 4096))
            return last_words(log.read().decode(errors="replace").splitlines())
    except OSError:
        return ""  # on another machine, or never written: Slurm's own word has to do


def _on(cluster: str) -> list[str]:
    return [f"--clusters={cluster}"] if cluster else []


def _sbatch(arguments: Sequence[str], script: str) -> str:
    """What sbatch prints. Raises `LaunchError` with its words, and with what the cluster has where it was that."""
    return run_program(["sbatch", *arguments], stdin=script, absent=_HERE, hints=_HINTS, offers=_offers)


def _offers() -> str:
    """The partitions and what GPUs they have, in Slurm's words."""
    lines = run_program(["sinfo", "--noheader", "--format=%R %G"], absent=_HERE).splitlines()
    return "Partitions and their GPUs: " + "; ".join(sorted({" ".join(line.split()) for line in lines if line.strip()}))


_QUOTA = "A limit of the account is reached: fewer --shards or a shorter --time-limit (sacctmgr show assoc shows it)."
#: What is in sbatch's words -> what to do; "" asks the cluster what it has.
_HINTS: Mapping[str, str] = {
    "account": "Give the account that pays: --slurm-arg=--account=NAME",
    "partition": "",
    "node configuration": "",
    "generic resource": "",
    "gres": "",
    "qos": _QUOTA,
    "limit": _QUOTA,
    "permission": "Ask the cluster's administrators for access.",
}
