"""Jobs as processes of this machine: what a container would run, so that everything can be tried without an account.

Each job has a folder in the user's state directory with its log, and a keeper process that enforces the time limit and
writes how it ended; jobs outlive the command that launched them.
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
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from llm_ocr.errors import LaunchError
from llm_ocr.launch import Job, JobSpec, JobStatus, Plan, Request, State
from llm_ocr.settings.environment import environment
from llm_ocr.settings.fields import PREFIX


class Local:
    """The platform `local`: one process a shard, all at once."""

    platform = "local"

    def hardware(self, stage: str) -> str:
        return "this machine"

    def gpus(self, hardware: str) -> int | None:
        return None

    def time_limit(self, spec: JobSpec) -> None:
        return None

    def plan(self, spec: JobSpec) -> Plan:
        requests = [self._request(spec, shard) for shard in range(spec.shards)]
        return Plan(self.platform, spec, tuple(requests))

    def _request(self, spec: JobSpec, shard: int) -> Request:
        numbered = {"LLM_OCR_SHARD_INDEX": str(shard), "LLM_OCR_SHARD_COUNT": str(spec.shards)}
        body = {
            "name": f"{spec.name}-{shard}",
            "command": list(spec.command),
            "environment": {**spec.environment, **(numbered if spec.shards > 1 else {})},
            "secrets": sorted(spec.secrets),
            "time_limit": spec.time_limit,
        }
        return Request("start", body)

    def check(self, plan: Plan) -> None:
        absent = [name for name in plan.spec.secrets if name not in environment()]
        if absent:
            raise LaunchError(
                f"secret {', '.join(absent)} is not set here", hint=f"Set it first: export {absent[0]}=..."
            )

    def find(self, spec: JobSpec) -> Sequence[Job]:
        names = [f"{spec.name}-{shard}" for shard in range(spec.shards)]
        found = [_folder(name) / "job.json" for name in names]
        return [_job(path.parent, shard) for shard, path in enumerate(found) if path.is_file()]

    def submit(self, plan: Plan) -> Sequence[Job]:
        return [self._start(request.body, shard) for shard, request in enumerate(plan.requests)]

    def _start(self, body: Any, shard: int) -> Job:
        folder = _folder(body["name"])
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        (folder / "job.json").write_text(json.dumps(body))
        keeper = [sys.executable, "-m", "llm_ocr.launch.local.keeper", str(folder)]
        # As on a platform, nothing of this command's own settings reaches the job; keys and paths of the machine do.
        inherited = {name: value for name, value in environment().items() if not name.startswith(PREFIX)}
        secret = {name: environment()[name] for name in body["secrets"]}
        process = subprocess.Popen(
            keeper,
            env={**inherited, **secret, **body["environment"]},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        assert process.stdout
        process.stdout.readline()  # it holds its lock now
        process.stdout.close()
        return _job(folder, shard)

    def status(self, jobs: Sequence[Job]) -> Sequence[JobStatus]:
        return [_status(job) for job in jobs]

    def logs(self, job: Job, *, follow: bool = False, tail: int | None = None) -> Iterator[str]:
        log = _folder(job.id) / "log"
        if not log.is_file():
            raise LaunchError(f"there is no log of {job.id} on this machine")
        with log.open(errors="replace") as lines:
            if tail is not None:
                yield from (line.rstrip("\n") for line in lines.readlines()[-tail:])
            while True:
                over = _status(job).state.over
                yield from (line.rstrip("\n") for line in lines)
                if over or not follow:
                    return
                time.sleep(0.5)

    def cancel(self, job: Job) -> None:
        folder = _folder(job.id)
        with contextlib.suppress(FileNotFoundError, ValueError, ProcessLookupError):
            if _alive(folder):
                os.kill(int((folder / "keeper").read_text()), signal.SIGTERM)

    def clean(self, jobs: Sequence[Job]) -> Sequence[str]:
        removed = []
        for job in jobs:
            folder = _folder(job.id)
            if folder.is_dir() and _status(job).state.over:
                shutil.rmtree(folder)
                removed.append(f"removed {folder}")
        return removed


def _folder(name: str) -> Path:
    """Return the folder of a job. Raises `LaunchError` for a name that leads elsewhere: a workspace may hold it."""
    if not re.fullmatch(r"[A-Za-z0-9-]+", name):
        raise LaunchError(f"{name!r:.80} is no job of this machine")
    state = environment().get("XDG_STATE_HOME") or "~/.local/state"
    return Path(state).expanduser() / "llm-ocr" / "jobs" / name


def _job(folder: Path, shard: int) -> Job:
    return Job(folder.name, folder.name, shard, str(folder / "log"))


def _alive(folder: Path) -> bool:
    """Whether its keeper holds the lock: a process id alone may be another's by now."""
    try:
        with (folder / "lock").open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def _status(job: Job) -> JobStatus:
    folder = _folder(job.id)
    running = _alive(folder)  # asked first: it may end meanwhile
    try:
        end = json.loads((folder / "end.json").read_text())
    except FileNotFoundError:
        started = (folder / "keeper").stat().st_mtime if (folder / "keeper").is_file() else None
        if running:
            return JobStatus(job, State.RUNNING, started=started)
        reason = "its process is gone, it was killed" if folder.is_dir() else "this machine knows nothing of it"
        return JobStatus(job, State.FAILED, reason, started=started)
    reason = end["reason"] if end["state"] != State.SUCCEEDED else ""
    return JobStatus(job, State(end["state"]), reason, end["started"], end["ended"], end["ended"] - end["started"])
