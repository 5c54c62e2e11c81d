"""Answers of platforms: errors of their clients, and logs of jobs."""

import contextlib
import re
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from difflib import get_close_matches
from typing import NamedTuple

from llm_ocr.errors import LaunchError, LlmOcrError
from llm_ocr.launch import JobStatus, State

AGAIN = "Run the same command again; it finds the existing jobs."


class Refusal(NamedTuple):
    """Client error: the platform's message, a hint, and the HTTP status (0: no response, 400: unknown)."""

    words: str
    hint: str = ""
    status: int = 400

    def error(self, subject: str) -> LaunchError:
        """Return the error to raise."""
        retryable = self.status in (0, 408, 409, 429) or self.status >= 500
        return LaunchError(f"{subject}: {self.words}", hint=self.hint, retryable=retryable)


@contextlib.contextmanager
def translated(subject: str, explain: Callable[[Exception], Refusal | None]) -> Iterator[None]:
    """Convert the client errors that `explain` recognizes to `LaunchError`.

    Args:
        subject: Beginning of the message, for example `cannot start a job`; the platform's text follows.
        explain: Returns the content of an error; None for an error that is not the client's.
    """
    try:
        yield
    except LlmOcrError:
        raise
    except Exception as error:
        if (refusal := explain(error)) is None:
            raise
        raise refusal.error(subject) from error


def first_line(error: object) -> str:
    """Return the first line of an error's text, of at most 300 characters, or its class."""
    return str(error).strip().partition("\n")[0][:300] or type(error).__name__


def near(name: str, known: Iterable[str], otherwise: str = "", *, n: int = 3, cutoff: float = 0.6) -> str:
    """Return a hint with the names that are most similar to an unknown one; `otherwise` without similar names."""
    close = get_close_matches(name, list(known), n=n, cutoff=cutoff)
    return f"Did you mean {' or '.join(close)}?" if close else otherwise


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
