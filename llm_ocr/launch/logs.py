"""Logs of jobs: the lines of a file, and the reason of a failure."""

import re
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from llm_ocr.errors import LaunchError
from llm_ocr.launch import JobStatus, State

#: Number of final lines that contain the last message: the command prints its error last, followed by a hint.
ENOUGH = 12
#: Message of this library; some platforms prefix each line with the number of a task.
_OURS = re.compile(r"(\S+ )?llm-ocr: ")


def last_words(lines: Iterable[str]) -> str:
    """Return the last message of llm-ocr with its hint, otherwise the last line; as one line."""
    kept = [line.strip() for line in lines if line.strip()][-ENOUGH:]
    start = max((place for place, line in enumerate(kept) if _OURS.match(line)), default=len(kept) - 1)
    return _OURS.sub("", " ".join(kept[max(start, 0) :]), count=1)


def explained(status: JobStatus, logs: Callable[..., Iterable[str]], known: dict[str, str]) -> JobStatus:
    """Return the status of a failed job with the last message of its log after the platform's reason.

    `known` contains the last messages that `logs` returned before, by job id.
    """
    if status.state is not State.FAILED or status.started is None:
        return status
    job = status.job
    if job.id not in known:
        try:
            known[job.id] = last_words(logs(job, tail=ENOUGH))
        except LaunchError:
            return status  # the platform's reason is all that is known
    return replace(status, reason=f"{status.reason}: {known[job.id]}".removesuffix(": "))


def followed(
    first: Iterable[str], new: Callable[[], Iterable[str]], over: Callable[[], bool], *, follow: bool, every: float
) -> Iterator[str]:
    """Yield the lines of a log.

    Args:
        first: Lines so far.
        new: Returns the lines since its last call.
        over: Returns whether the job has ended.
        follow: Wait for more lines until the job has ended. Lines may arrive late, so that `new` is called once more.
        every: Seconds between two requests for the log.
    """
    yield from first
    while follow:
        follow = not over()
        time.sleep(every)
        yield from new()


def last(lines: Iterable[str], tail: int | None) -> Iterable[str]:
    """Return the last `tail` lines; all for None."""
    return lines if tail is None else deque(lines, maxlen=tail)


def file_lines(log: Path, over: Callable[[], bool], *, follow: bool, tail: int | None, every: float) -> Iterator[str]:
    """Yield the lines of a log file; see `followed`."""
    with log.open(errors="replace") as file:

        def new() -> Iterator[str]:
            return (line.rstrip("\n") for line in file)

        yield from followed(last(new(), tail), new, over, follow=follow, every=every)
