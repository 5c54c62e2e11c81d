"""Slurm: a job array with one task per share, submitted with the cluster's own programs from a login node.

squeue lists current tasks, sacct those of the last weeks.
"""

import contextlib
import re
import shlex
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from llm_ocr.errors import LaunchError, UsageError
from llm_ocr.launch import Job, JobSpec, JobStatus, Launcher, Plan, Request, State, cpu_or_gpus, secrets_here
from llm_ocr.launch.answers import followed, last, last_words

CPU = "cpu"
#: Seconds of a job without a time limit.
USUAL = 4 * 3600
#: GB of a task per GPU (as on Modal), and of a task without one.
MEMORY, CPU_MEMORY = 32, 16
#: Variables of the submitting shell that a task receives in addition to its secrets: places of programs and caches.
PASSED = (
    *("PATH", "HOME", "USER", "LANG", "LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV", "CONDA_PREFIX", "TMPDIR"),
    *("XDG_CACHE_HOME", "HF_HOME", "HF_HUB_CACHE", "VLLM_CACHE_ROOT", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"),
    *("http_proxy", "https_proxy", "no_proxy"),
)
STATES: Mapping[str, State] = {
    **dict.fromkeys(("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED"), State.QUEUED),
    **dict.fromkeys(("RESV_DEL_HOLD", "SPECIAL_EXIT"), State.QUEUED),
    **dict.fromkeys(("RUNNING", "COMPLETING", "SIGNALING", "STAGE_OUT", "SUSPENDED", "STOPPED"), State.RUNNING),
    "RESIZING": State.RUNNING,
    "COMPLETED": State.SUCCEEDED,
    **dict.fromkeys(("CANCELLED", "REVOKED"), State.CANCELLED),
    **dict.fromkeys(("TIMEOUT", "DEADLINE"), State.TIMED_OUT),
    "PREEMPTED": State.PREEMPTED,
    **dict.fromkeys(("FAILED", "NODE_FAIL", "BOOT_FAIL", "OUT_OF_MEMORY"), State.FAILED),
}
#: Exit code of the stage after SIGTERM, and seconds of SIGTERM before the limit (for a short limit, at 3/4 of it).
_STOPPED, _BEFORE = "4:0", 200
_FIELDS = "JobID,State,ExitCode,Start,End,ElapsedRaw,TimelimitRaw"
_HARDWARE = re.compile(r"gpu(:[A-Za-z][\w.-]*)?(:(?P<count>[1-9]\d*))?")
#: Arguments by which the launcher finds tasks and logs, or which sbatch ignores in a script.
_RESERVED = re.compile(r"--(job-name|output|error|chdir|export|parsable)\b(?!-)|-[JoeD]")
#: Seconds after which a program is stopped.
_TIMEOUT = 120.0
_SECRET = "Set the variable, or use --secret {name}=FILE with a file that the nodes can read."
_QUOTA = "A limit of the account is reached (see sacctmgr show assoc): use fewer --shards or a shorter --time-limit."
#: Hints by lower-case text of an error of sbatch; the first match counts. For "", the cluster is queried.
_HINTS: Mapping[str, str] = {
    "memory": "Request other memory: --slurm-arg=--mem=16G or --slurm-arg=--mem-per-cpu=2G",
    "account": "Set the account that pays: --slurm-arg=--account=NAME",
    "partition": "",
    "node configuration": "",
    "generic resource": "",
    "gres": "",
    "qos": _QUOTA,
    "limit": _QUOTA,
    "permission": "Ask the cluster's administrators for access.",
}


class Slurm(Launcher):
    """Platform `slurm`. Hardware is `cpu`, or GPUs in Slurm's notation: `gpu:1`, `gpu:a100:2`."""

    platform = "slurm"
    usual_limit = USUAL

    def hardware(self, stage: str) -> str:
        return cpu_or_gpus(stage)

    def gpus(self, hardware: str) -> int | None:
        if hardware == CPU:
            return 0
        found = _HARDWARE.fullmatch(hardware)
        return int(found["count"] or 1) if found else None

    def plan(self, spec: JobSpec) -> Plan:
        hardware = spec.hardware or self.hardware(spec.stage)
        gpus = self.gpus(hardware)
        if gpus is None:
            raise UsageError(f"--hardware {hardware}: must be cpu, gpu:N, or gpu:TYPE:N")
        passed = [*PASSED, *(name for name, where in spec.secrets.items() if not where)]
        body = {"arguments": ["--parsable", f"--export={','.join(passed)}"], "script": _script(spec, hardware, gpus)}
        return Plan(self.platform, spec, (Request("sbatch", body),))

    def check(self, plan: Plan) -> None:
        secrets_here(plan.spec, _SECRET)
        body = plan.requests[0].body
        _sbatch(["--test-only", *body["arguments"]], body["script"])

    def find(self, spec: JobSpec) -> Sequence[Job]:
        arrays = [int(array) for row in _tasks([spec.name], "") if (array := row.id.partition("_")[0]).isdigit()]
        return _jobs(spec, str(max(arrays)), "") if arrays else []

    def submit(self, plan: Plan) -> Sequence[Job]:
        body = plan.requests[0].body
        array, _, cluster = _sbatch(body["arguments"], body["script"]).strip().partition(";")
        return _jobs(plan.spec, array, cluster)

    def status(self, jobs: Sequence[Job]) -> Sequence[JobStatus]:
        rows: dict[str, Row] = {}
        for cluster in dict.fromkeys(job.place.get("cluster", "") for job in jobs):
            names = dict.fromkeys(job.place["name"] for job in jobs if job.place.get("cluster", "") == cluster)
            rows |= {row.id: row for row in _tasks(list(names), cluster)}
        return [task_status(job, rows.get(job.id), _last_words(job)) for job in jobs]

    def logs(self, job: Job, *, follow: bool = False, tail: int | None = None) -> Iterator[str]:
        log = Path(job.place["log"])
        while not log.is_file():
            ended = self._status(job).state.over
            if ended or not follow:
                why = "the job never ran, or its log is on another machine" if ended else "the job has not started"
                raise LaunchError(f"{log} does not exist: {why}")
            time.sleep(2)
        with log.open(errors="replace") as file:

            def new() -> Iterator[str]:
                return (line.rstrip("\n") for line in file)

            yield from followed(last(new(), tail), new, lambda: self._status(job).state.over, follow=follow, every=2)

    def _end(self, job: Job) -> None:
        _run(["scancel", *_on(job.place.get("cluster", "")), job.id])

    def clean(self, jobs: Sequence[Job]) -> Sequence[str]:
        return [f"kept: {job.place['log']}" for job in jobs if Path(job.place["log"]).is_file()]


def _script(spec: JobSpec, hardware: str, gpus: int) -> str:
    """Return the batch script. The user's arguments are last: the last of two equal ones has precedence."""
    own = spec.options.get("slurm_arg", ())
    # sbatch refuses combinations of --mem, --mem-per-cpu, and --mem-per-gpu (its manual page).
    memory = [] if any(argument.startswith("--mem") for argument in own) else [f"--mem={MEMORY * gpus or CPU_MEMORY}G"]
    limit = spec.time_limit or USUAL
    arguments = [
        f"--job-name={spec.name}",
        f"--array=0-{spec.shards - 1}",
        f"--time={-(-limit // 60)}",  # minutes, rounded up as Slurm does
        "--cpus-per-task=8",
        *memory,
        *([] if hardware == CPU else [f"--gres={hardware}"]),
        f"--output={spec.name}-%a.log",
        "--open-mode=append",
        # The stage then publishes its finished units, and the next submission continues.
        f"--signal=B:TERM@{min(120, limit // 4)}",
        "--no-requeue",
        *([f"--partition={spec.options['partition']}"] if spec.options.get("partition") else []),
        *own,
    ]
    for argument in own:
        if _RESERVED.match(argument):
            hint = "Remove it. Logs are in the folder where the launch starts. Variables of jobs: --env NAME=VALUE"
            raise UsageError(f"--slurm-arg={argument}: the launch would not find its jobs or their logs", hint=hint)
    for argument in arguments:
        if "\n" in argument or not argument.startswith("-"):
            raise UsageError(
                f"--slurm-arg {argument!r}: must be an argument of sbatch, such as --slurm-arg=--account=lab"
            )
    lines = ["#!/bin/bash", *(f"#SBATCH {argument}" for argument in arguments), "set -e"]
    lines += spec.options.get("slurm_setup", ())
    lines += [f"export {name}={shlex.quote(value)}" for name, value in spec.environment.items()]
    for name, file in spec.secrets.items():
        if file:
            lines += [f'{name}="$(cat {shlex.quote(file)})"', f"export {name}"]
    # Clusters have Apptainer rather than Docker; Apptainer passes the environment on.
    nvidia = () if hardware == CPU else ("--nv",)
    container = ("apptainer", "exec", *nvidia, spec.image) if spec.image else ()
    lines.append(f"exec {shlex.join((*container, *spec.command))}")
    return "\n".join(lines) + "\n"


def _jobs(spec: JobSpec, array: str, cluster: str) -> list[Job]:
    jobs = []
    for index in range(spec.shards):
        log = str(Path.cwd() / f"{spec.shard_name(index)}.log")
        place = {"name": spec.name, "log": log, "cluster": cluster}
        jobs.append(Job(f"{array}_{index}", spec.shard_name(index), index, log, place))
    return jobs


@dataclass(frozen=True, slots=True)
class Row:
    """One task. `state` and `exit_code` (`1:0`, code and signal) are Slurm's; times are in seconds since 1970."""

    id: str
    state: str
    exit_code: str = ""
    started: float | None = None
    ended: float | None = None
    seconds: float | None = None
    limit: float | None = None  # seconds
    why: str = ""  # reason for waiting


def task_status(job: Job, row: Row | None, last: str) -> JobStatus:
    """Return the status of a task; `last` is the last message of its log."""
    if row is None:
        return JobStatus(job, State.FAILED, "Slurm does not have this job, or no longer")
    state = STATES.get(row.state, State.FAILED if row.ended else State.RUNNING)
    if row.state == "FAILED" and row.exit_code == _STOPPED and row.limit is not None and row.seconds is not None:
        late = row.seconds >= max(row.limit - _BEFORE, row.limit / 2)
        state = State.TIMED_OUT if late else state
    reason = "" if state in (State.SUCCEEDED, State.RUNNING) else row.why
    if state.over and state is not State.SUCCEEDED:
        code = f", exit code {row.exit_code.partition(':')[0]}" if row.state == "FAILED" else ""
        reason = f"{row.state}{code}{f': {last}' if last else ''}"
    elif row.state not in STATES:
        reason = row.state
    return JobStatus(job, state, reason, row.started, row.ended if state.over else None, row.seconds)


def _last_words(job: Job) -> str:
    try:
        with Path(job.place["log"]).open("rb") as log:
            log.seek(max(0, log.seek(0, 2) - 4096))
            return last_words(log.read().decode(errors="replace").splitlines())
    except OSError:
        return ""  # on another machine, or never written


def _tasks(names: Sequence[str], cluster: str) -> list[Row]:
    """Return all tasks of jobs with these names; a final state of sacct has precedence."""
    named, rows = f"--name={','.join(names)}", dict[str, Row]()
    for line in _ask(["squeue", "--noheader", "--array", "--states=all", named, "--format=%i|%T|%r"], cluster):
        task, state, why = line.split("|", 2)
        rows[task] = Row(task, state, why="" if why == "None" else why)
    words = ["sacct", "--noheader", "--parsable2", "--allocations", "--starttime=now-30days", named]
    try:
        lines = list(_ask([*words, f"--format={_FIELDS}"], cluster))
    except LaunchError as error:
        if "disabled" not in str(error):
            raise
        lines = []  # a cluster without accounting
    for line in lines:
        task, state, code, start, end, seconds, limit = line.split("|")
        state = state.split()[0]  # for example, CANCELLED by 1000
        if task in rows and not STATES.get(state, State.RUNNING).over:
            continue
        rows[task] = Row(
            task,
            state,
            code,
            _moment(start),
            _moment(end),
            float(seconds) if seconds.isdigit() else None,
            float(limit) * 60 if limit.isdigit() else None,
        )
    return [row for row in rows.values() if row.id.rpartition("_")[2].isdigit()]


def _moment(text: str) -> float | None:
    """Return a local time of Slurm; None for `Unknown` and `None`."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None


def _ask(words: list[str], cluster: str) -> Iterator[str]:
    text = _run([*words, *_on(cluster)])
    # With --clusters, the first line of squeue names the cluster.
    return (line.strip() for line in text.splitlines() if "|" in line)


def _on(cluster: str) -> list[str]:
    return [f"--clusters={cluster}"] if cluster else []


def _sbatch(arguments: Sequence[str], script: str) -> str:
    try:
        return _run(["sbatch", *arguments], script)
    except LaunchError as error:
        if error.hint:
            raise
        message = str(error).casefold()
        hint = next((hint for text, hint in _HINTS.items() if text in message), None)
        if hint == "":
            with contextlib.suppress(LaunchError):  # the user needs the first error
                lines = _run(["sinfo", "--noheader", "--format=%R %G"]).splitlines()
                offers = sorted({" ".join(line.split()) for line in lines if line.strip()})
                hint = f"Partitions and their GPUs: {'; '.join(offers)}"
        error.hint = hint or ""
        raise


def _run(words: Sequence[str], stdin: str = "") -> str:
    """Run a program of the cluster and return its standard output. Raises `LaunchError` with the program's message."""
    try:
        done = subprocess.run(words, input=stdin, capture_output=True, text=True, errors="replace", timeout=_TIMEOUT)
    except FileNotFoundError as error:
        hint = "Run this on a login node of the cluster."
        raise LaunchError(f"{words[0]} is not installed on this machine", hint=hint) from error
    except subprocess.TimeoutExpired as error:
        raise LaunchError(f"{words[0]} did not respond within {_TIMEOUT:.0f} s") from error
    if done.returncode:
        message = done.stderr.strip() or done.stdout.strip() or f"exit code {done.returncode}"
        raise LaunchError(f"{words[0]}: {' '.join(message.split())}")
    return done.stdout
