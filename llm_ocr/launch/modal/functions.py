"""What the functions of a Modal app do: a stage as a process of its own, stopped in time to publish what is whole."""

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llm_ocr.launch.programs import ENOUGH, last_words
from llm_ocr.settings.environment import environment as environment_now

#: Seconds between SIGTERM and SIGKILL. Modal gives a container that it takes away about 30 in all.
GRACE = 25.0
#: A stage is told to stop so many seconds before the platform's limit, or at three quarters of a short one.
MARGIN = 120.0

#: Notes something of this call where the launcher finds it: what, and its value.
Note = Callable[[str, Any], None]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Ended:
    """How a process ended; `last` are its last words."""

    exit_code: int
    timed_out: bool
    last: str


def run_stage(
    index: int,
    count: int,
    argv: Sequence[str],
    environment: Mapping[str, str],
    *,
    limit: float = 0,
    note: Note | None = None,
    commits: Iterable[Callable[[], None]] = (),
) -> dict[str, Any]:
    """Run a job's command as share `index` of `count`; `limit` in seconds is the platform's, 0: none.

    `commits` are called when it is over, however it ended. Raises `RuntimeError` for any exit code but 0, with the
    last words that were written: a call of a stage that failed is a failed call on Modal's pages, too.
    """
    shard = {"LLM_OCR_SHARD_INDEX": str(index), "LLM_OCR_SHARD_COUNT": str(count)} if count > 1 else {}
    noted = _careful(note)
    noted("begun", time.time())
    try:
        ended = run_command(argv, {**environment, **shard}, limit=limit)
    finally:
        for commit in commits:
            commit()
    noted("ended", {"time": time.time(), "exit_code": ended.exit_code, "timed_out": ended.timed_out})
    if ended.exit_code:
        why = f"stopped at the time limit of {limit:.0f} s, " if ended.timed_out else ""
        raise RuntimeError(f"{why}exit code {ended.exit_code}: {ended.last}")
    return {"exit_code": 0, "last": ended.last}


def run_command(argv: Sequence[str], environment: Mapping[str, str], *, limit: float = 0) -> Ended:
    """Run a command to its end, its output copied to ours line by line.

    It gets SIGTERM before `limit` seconds are over, and when this call is cancelled or its machine taken away.
    """
    words = [sys.executable if word == "python" else word for word in argv]
    here = str(Path(__file__).parents[3])  # this package need not be installed where the function runs
    path = os.pathsep.join(filter(None, (here, environment_now().get("PYTHONPATH", ""))))
    process = subprocess.Popen(
        words,
        env={**environment_now(), "PYTHONUNBUFFERED": "1", "PYTHONPATH": path, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    timed_out = threading.Event()

    def stop() -> None:
        timed_out.set()
        _signal(process, signal.SIGTERM)

    timer = threading.Timer(_patience(limit), stop)
    timer.daemon = True
    if limit:
        timer.start()
    last: deque[str] = deque(maxlen=ENOUGH)
    try:
        assert process.stdout
        for line in process.stdout:
            sys.stdout.write(line)
            if line.strip():
                last.append(line)
        process.wait()
    finally:
        timer.cancel()
        _end(process)
    return Ended(process.returncode, timed_out.is_set(), last_words(last) or "it wrote nothing")


def _patience(limit: float) -> float:
    return max(limit - MARGIN, limit * 0.75)


def _end(process: subprocess.Popen[str]) -> None:
    """Nothing of it is left after this; a stage that is still at work gets the time to publish."""
    if process.poll() is None:
        _signal(process, signal.SIGTERM)
        try:
            process.wait(GRACE)
        except subprocess.TimeoutExpired:
            _log.warning("the stage did not stop within %.0f s and was killed", GRACE)
    _signal(process, signal.SIGKILL)  # children that it has left
    process.wait()
    if process.stdout:
        process.stdout.close()


def _signal(process: subprocess.Popen[str], number: int) -> None:
    try:
        os.killpg(process.pid, number)
    except ProcessLookupError:
        return


def _careful(note: Note | None) -> Note:
    """Notes tell the launcher when a call began; a stage does not end because one could not be written."""

    def noted(what: str, value: Any) -> None:
        from modal.exception import Error

        try:
            if note is not None:
                note(what, value)
        except Error as error:
            _log.warning("could not note that the call has %s: %s", what, error)

    return noted
