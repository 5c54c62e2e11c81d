"""Jobs as processes of this machine: all commands can be tried without an account.

Each job has a folder in the user's state directory with its log. A supervisor process enforces the time limit and
stores the end of the job. Jobs continue after the launching command exits.
"""

import contextlib
import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from llm_ocr.config.environment import environment
from llm_ocr.config.fields import PREFIX
from llm_ocr.errors import LaunchError
from llm_ocr.launch import Job, JobSpec, JobStatus, Launcher, Plan, Request, State
from llm_ocr.launch.logs import file_lines
from llm_ocr.launch.programs import secrets_here, state_folder


class Local(Launcher):
    """Platform `local`: one process per shard, all at the same time."""

    platform = "local"

    def hardware(self, stage: str) -> str:
        return "this machine"

    def gpus(self, hardware: str) -> int | None:
        return None

    def plan(self, spec: JobSpec) -> Plan:
        requests = []
        for shard in range(spec.shards):
            body = {
                "name": spec.shard_name(shard),
                "command": list(spec.command),
                "environment": {**spec.environment, **spec.shard_variables(shard)},
                "secrets": sorted(spec.secrets),
                "time_limit": spec.time_limit,
            }
            requests.append(Request("start", body))
        return Plan(self.platform, spec, tuple(requests))

    def check(self, plan: Plan) -> None:
        secrets_here(plan.spec.secrets, "Set it: export {name}=...")

    def find(self, spec: JobSpec) -> Sequence[Job]:
        folders = [_folder(spec.shard_name(shard)) for shard in range(spec.shards)]
        return [_job(folder, shard) for shard, folder in enumerate(folders) if (folder / "job.json").is_file()]

    def submit(self, plan: Plan) -> Sequence[Job]:
        return [_start(request.body, shard) for shard, request in enumerate(plan.requests)]

    def _status(self, job: Job) -> JobStatus:
        return _status(job)

    def logs(self, job: Job, *, follow: bool = False, tail: int | None = None) -> Iterator[str]:
        log = _folder(job.id) / "log"
        if not log.is_file():
            raise LaunchError(f"this machine has no log of {job.id}")
        yield from file_lines(log, lambda: _status(job).state.over, follow=follow, tail=tail, every=0.5)

    def _end(self, job: Job) -> None:
        with contextlib.suppress(FileNotFoundError, ValueError, ProcessLookupError):
            os.kill(int((_folder(job.id) / "supervisor").read_text()), signal.SIGTERM)

    def clean(self, jobs: Sequence[Job]) -> Sequence[str]:
        removed = []
        for job in jobs:
            folder = _folder(job.id)
            if folder.is_dir() and _status(job).state.over:
                shutil.rmtree(folder)
                removed.append(f"deleted: {folder}")
        return removed


def _start(body: Mapping[str, Any], shard: int) -> Job:
    folder = _folder(body["name"])
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    (folder / "job.json").write_text(json.dumps(body))
    # As on a platform, the job does not receive settings of this command, but receives keys and paths of the machine.
    inherited = {name: value for name, value in environment().items() if not name.startswith(PREFIX)}
    secret = {name: environment()[name] for name in body["secrets"]}
    process = subprocess.Popen(
        [sys.executable, "-m", "llm_ocr.launch.local.supervisor", str(folder)],
        env={**inherited, **secret, **body["environment"]},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    assert process.stdout
    process.stdout.readline()  # the supervisor holds its lock now
    process.stdout.close()
    return _job(folder, shard)


def _folder(name: str) -> Path:
    """Return the folder of a job, or raise `LaunchError` for a path outside: the name is read from a workspace."""
    if not re.fullmatch(r"[A-Za-z0-9-]+", name):
        raise LaunchError(f"{name!r:.80} is not a job on this machine")
    return state_folder() / "jobs" / name


def _job(folder: Path, shard: int) -> Job:
    return Job(folder.name, folder.name, shard, str(folder / "log"))


def _alive(folder: Path) -> bool:
    """Return whether the supervisor holds its lock: another process may have its id by now."""
    with contextlib.suppress(FileNotFoundError), (folder / "lock").open("rb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _status(job: Job) -> JobStatus:
    folder = _folder(job.id)
    running = _alive(folder)  # first: the job may end between the two checks
    try:
        end = json.loads((folder / "end.json").read_text())
    except FileNotFoundError:
        supervisor = folder / "supervisor"
        started = supervisor.stat().st_mtime if supervisor.is_file() else None
        if running:
            return JobStatus(job, State.RUNNING, started=started)
        reason = "its process was killed" if folder.is_dir() else "this machine does not have this job"
        return JobStatus(job, State.FAILED, reason, started=started)
    reason = end["reason"] if end["state"] != State.SUCCEEDED else ""
    return JobStatus(job, State(end["state"]), reason, end["started"], end["ended"], end["ended"] - end["started"])
