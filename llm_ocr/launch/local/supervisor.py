"""Supervisor of one local job, which enforces its time limit and stores its end.

Run `python -m llm_ocr.launch.local.supervisor FOLDER`.
"""

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from llm_ocr.launch import State
from llm_ocr.launch.programs import end_group

#: Seconds between SIGTERM and SIGKILL.
GRACE = 30.0
#: Seconds between two checks of the job.
EVERY = 0.05


def main(argv: Sequence[str]) -> int:
    """Run the job of a folder to its end."""
    folder = Path(argv[0])
    job = json.loads((folder / "job.json").read_text())
    with (folder / "lock").open("wb") as lock, (folder / "log").open("ab") as log:
        fcntl.flock(lock, fcntl.LOCK_EX)
        (folder / "supervisor").write_text(str(os.getpid()))
        signals: list[int] = []
        signal.signal(signal.SIGTERM, lambda number, frame: signals.append(number))
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        sys.stdout.close()
        started = time.time()
        state, reason = _run(job["command"], job["time_limit"], log.fileno(), signals)
        end = {"state": state.value, "reason": reason, "started": started, "ended": time.time()}
        (folder / "end.part").write_text(json.dumps(end))
        (folder / "end.part").replace(folder / "end.json")
    return 0


def _run(words: Sequence[str], limit: float | None, log: int, signals: Sequence[int]) -> tuple[State, str]:
    """Return the job's state and reason; a signal cancels it."""
    command = [sys.executable if word == "python" else word for word in words]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    deadline = float("inf") if limit is None else time.monotonic() + limit
    while process.poll() is None and not signals and time.monotonic() < deadline:
        time.sleep(EVERY)
    if process.returncode is None:
        end_group(process, GRACE)
        return (State.CANCELLED, "canceled") if signals else (State.TIMED_OUT, f"time limit of {limit} s")
    return (State.SUCCEEDED, "") if process.returncode == 0 else (State.FAILED, f"exit code {process.returncode}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
