"""Why a job failed, from the end of its log."""

import re
from collections.abc import Callable, Iterable
from dataclasses import replace

from llm_ocr.errors import LaunchError
from llm_ocr.launch import JobStatus, State

#: Lines of a log that are enough: a command prints its error last, with a hint below it.
ENOUGH = 12
#: A message of ours; some platforms put the number of a task before each line.
_OURS = re.compile(r"(\S+ )?llm-ocr: ")


def last_words(lines: Iterable[str]) -> str:
    """Return the last message of our commands with its hint, otherwise the last line; as one line."""
    kept = [line.strip() for line in lines if line.strip()][-ENOUGH:]
    start = max((place for place, line in enumerate(kept) if _OURS.match(line)), default=len(kept) - 1)
    return _OURS.sub("", " ".join(kept[max(start, 0) :]), count=1)


def explained(status: JobStatus, logs: Callable[..., Iterable[str]], known: dict[str, str]) -> JobStatus:
    """Return the status of a failed job with the last words of its log after the platform's reason.

    Args:
        status: What the platform says.
        logs: The launcher's `logs`.
        known: The last words that were read before, by the id of a job.
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
