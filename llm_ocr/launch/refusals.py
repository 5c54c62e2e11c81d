"""Convert errors of clients to `LaunchError`, and build hints with similar names."""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from difflib import get_close_matches
from typing import NamedTuple

from llm_ocr.errors import LaunchError, LlmOcrError
from llm_ocr.launch import Job

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


def taken_back(made: Iterable[Job], cancel: Callable[[Job], None], error: LaunchError) -> LaunchError:
    """Cancel the jobs that a refused submission has created; return the error, with the remaining jobs."""
    left = []
    for job in made:
        try:
            cancel(job)
        except LaunchError:
            left.append(job.url or job.id)
    more = f"; still running: {', '.join(left)}" if left else ""
    return LaunchError(f"{error.args[0]}{more}", hint=error.hint)
