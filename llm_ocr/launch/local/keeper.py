"""`python -m llm_ocr.launch.local.keeper FOLDER` runs one local job, with its time limit, and writes how it ended."""

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from llm_ocr.launch import State

#: Seconds between SIGTERM and SIGKILL.
GRACE = 30.0


class _Cancelled(Exception):
    """SIGTERM came."""


def main(argv: Sequence[str]) -> int:
    """Keep the job of a folder; returns when it is over."""
    folder = Path(argv[0])
    job = json.loads((folder / "job.json").read_text())
    with (folder / "lock").open("wb") as lock, (folder / "log").open("ab") as log:
        fcntl.flock(lock, fcntl.LOCK_EX)
        (folder / "keeper").write_text(str(os.getpid()))
        told: list[int] = []
        signal.signal(signal.SIGTERM, lambda number, frame: told.append(number))
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        sys.stdout.close()
        started = time.time()
        state, reason = _run(job, log.fileno(), told)
        end = {"state": state.value, "reason": reason, "started": started, "ended": time.time()}
        (folder / "end.part").write_text(json.dumps(end))
        (folder / "end.part").replace(folder / "end.json")
    return 0


def _run(job: dict[str, object], log: int, told: list[int]) -> tuple[State, str]:
    """`told` fills when SIGTERM comes before there is a process to end: an exception then would leave it running."""
    command = [sys.executable if word == "python" else str(word) for word in _words(job["command"])]
    limit = job["time_limit"]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    try:
        signal.signal(signal.SIGTERM, _cancel)
        if told:
            raise _Cancelled
        code = process.wait(float(limit) if isinstance(limit, int | float) else None)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    except subprocess.TimeoutExpired:
        _end(process)
        return State.TIMED_OUT, f"time limit of {limit} s"
    except _Cancelled:
        _end(process)
        return State.CANCELLED, "cancelled"
    return (State.SUCCEEDED, "") if code == 0 else (State.FAILED, f"exit code {code}")


def _words(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _end(process: "subprocess.Popen[bytes]") -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(GRACE)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _cancel(number: int, frame: FrameType | None) -> None:
    raise _Cancelled


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
