"""Deployed Modal app: the names of its parts, and the stage that its functions run as a process.

The process ends before the time limit, so that it publishes its finished units.
"""

import contextlib
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from llm_ocr.config.environment import environment as environment_now
from llm_ocr.launch.answers import ENOUGH, last_words

#: Folders of the containers.
DATA, MODELS, CACHE = "/data", "/models", "/vllm-cache"
DEFAULT_APP = "llm-ocr"
#: Seconds between SIGTERM and SIGKILL. A preempted container has about 30 s in all.
GRACE = 25.0
#: Seconds before the time limit at which a stage receives SIGTERM; a quarter of a limit below 8 minutes.
MARGIN = 120.0

#: Stores a value of a call for the launcher: its key, and the value.
Note = Callable[[str, Any], None]

_log = logging.getLogger("llm_ocr.launch.modal")


@dataclass(frozen=True, slots=True)
class ModalNames:
    """Names of an app and its volumes, its images, and its defaults."""

    app: str = DEFAULT_APP
    data: str = "llm-ocr-data"
    models: str = "llm-ocr-models"
    cache: str = "llm-ocr-vllm-cache"
    image: str = ""  # of GPU stages; "": built from the checkout
    cpu_image: str = ""  # of the other stages; "": built from the checkout
    gpu: str = ""  # of `modal run`; "": the launcher's default
    secrets: str = ""  # Modal secrets of all functions, separated by commas

    def environment(self) -> dict[str, str]:
        """Return the variables that give the same names: containers import the app's file again."""
        return {VARIABLES[name][0]: value for name, value in asdict(self).items() if value}


#: Field -> its variables, first that of llm_ocr; the others are those of the dots.ocr batch pipeline.
VARIABLES: Mapping[str, tuple[str, ...]] = {
    "app": ("LLM_OCR_MODAL_APP", "DOTS_MODAL_APP_NAME"),
    "data": ("LLM_OCR_MODAL_DATA_VOLUME", "DOTS_MODAL_DATA_VOLUME"),
    "models": ("LLM_OCR_MODAL_MODEL_VOLUME", "DOTS_MODAL_MODEL_VOLUME"),
    "cache": ("LLM_OCR_MODAL_CACHE_VOLUME", "DOTS_MODAL_VLLM_CACHE_VOLUME"),
    "image": ("LLM_OCR_MODAL_IMAGE",),
    "cpu_image": ("LLM_OCR_MODAL_CPU_IMAGE",),
    "gpu": ("LLM_OCR_MODAL_GPU",),
    "secrets": ("LLM_OCR_MODAL_SECRETS",),
}


def names_from(environment: Mapping[str, str]) -> ModalNames:
    """Return the names in an environment; an empty variable counts as unset."""
    found: dict[str, str] = {}
    for name, variables in VARIABLES.items():
        for variable in variables:
            if value := environment.get(variable):
                found.setdefault(name, value)
    return ModalNames(**found)


def board_name(app: str) -> str:
    """Return the name of the Modal Dict with the calls of an app: Modal has no names for calls."""
    return f"{app}-jobs"


@dataclass(frozen=True, slots=True)
class Ended:
    """End of a process; `last` is the last message of its log."""

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
    """Run the command of a job as share `index` of `count`.

    Args:
        index: Number of the share, from 0.
        count: Number of shares.
        argv: Command.
        environment: Variables of the command.
        limit: The platform's time limit in seconds; 0 for none.
        note: Stores the start and the end of the call.
        commits: Called after the command, whatever its result.

    Returns:
        The end of the command as JSON values.

    Raises:
        RuntimeError: The exit code is not 0. The call then also fails on Modal's pages, with the same message.
    """
    shard = {"LLM_OCR_SHARD_INDEX": str(index), "LLM_OCR_SHARD_COUNT": str(count)} if count > 1 else {}
    _store(note, "begun", time.time())
    try:
        ended = run_command(argv, {**environment, **shard}, limit=limit)
    finally:
        for commit in commits:
            commit()
    _store(note, "ended", {"time": time.time(), "exit_code": ended.exit_code, "timed_out": ended.timed_out})
    if ended.exit_code:
        why = f"stopped at the time limit of {limit:.0f} s, " if ended.timed_out else ""
        raise RuntimeError(f"{why}exit code {ended.exit_code}: {ended.last}")
    return {"exit_code": 0, "last": ended.last}


def run_command(argv: Sequence[str], environment: Mapping[str, str], *, limit: float = 0) -> Ended:
    """Run a command to its end, and copy its output line by line.

    The command receives SIGTERM before `limit` seconds have passed, and when this call is interrupted.
    """
    words = [sys.executable if word == "python" else word for word in argv]
    process = subprocess.Popen(
        words,
        env={**environment_now(), "PYTHONUNBUFFERED": "1", **environment},
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
        _signal_group(process.pid, signal.SIGTERM)

    timer = threading.Timer(max(limit - MARGIN, limit * 0.75), stop)
    timer.daemon = True
    if limit:
        timer.start()
    last: deque[str] = deque(maxlen=ENOUGH)
    assert process.stdout
    try:
        for line in process.stdout:
            sys.stdout.write(line)
            if line.strip():
                last.append(line)
        process.wait()
    finally:
        timer.cancel()
        if process.poll() is None:  # this call was interrupted
            _signal_group(process.pid, signal.SIGTERM)
            try:
                process.wait(GRACE)
            except subprocess.TimeoutExpired:
                _log.warning("the stage did not stop within %.0f s and was killed", GRACE)
        _signal_group(process.pid, signal.SIGKILL)  # and the processes that the command has left
        process.wait()
        process.stdout.close()
    return Ended(process.returncode, timed_out.is_set(), last_words(last) or "no output")


def _signal_group(group: int, number: int) -> None:
    """Send a signal to a process group that may be gone."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, number)


def _store(note: Note | None, key: str, value: Any) -> None:
    """Store a value of the call. A failure must not end the stage: notes only contain times of the call."""
    if note is None:
        return
    from modal.exception import Error

    try:
        note(key, value)
    except Error as error:
        _log.warning("cannot record that the call has %s: %s", key, error)
