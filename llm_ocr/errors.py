"""Errors of the library.

LlmOcrError                 exit 1 unless a subclass has another code
├── UsageError              exit 2: wrong flags, settings, or sources
├── WorkspaceError          exit 1: the workspace cannot be used
│   ├── WorkspaceMismatch       another key or a newer format
│   └── StageMissing            the preceding stage has not finished
├── StorageError            exit 1, also an OSError
│   ├── ObjectNotFound          also a FileNotFoundError
│   ├── ObjectExists            also a FileExistsError: create-if-absent failed
│   ├── ObjectChanged           compare-and-swap failed: the object has changed or is gone
│   └── DatasetDamaged          files of the assembled dataset differ from the files that Assemble wrote
├── MissingExtra            exit 1: an optional package is not installed
├── StageError              exit 1: the function of a user-defined stage failed for its first page, or returned no row
├── PageFailure             never ends a run: becomes a failed record of one page or document
├── Interrupted             exit 4: stopped by a signal; the same command continues the run
├── ServerError             exit 1: the model server cannot be started, reached, or used
├── LaunchError             exit 1: a platform refuses a job, or is unreachable
│   └── JobFailed               a job failed; the message has the platform's reason
├── LimitReached            exit 5: stopped by a cost or time limit; the same command with a higher limit continues
├── RequestError            a request to a server failed; recorded as an attempt, never ends a run
│   ├── ServerBusy              429, 503 or 529: retry later, not caused by the page
│   ├── RequestRefused          the server rejects this request (400, 413, 422)
│   └── RequestLost             no complete response: 500, connection lost, response cut, no progress
├── WorkerDied              a worker process ended before it responded (limit, crash); becomes a PageFailure
└── WorkerError             a worker process met an unexpected error; becomes a PageFailure

Every error has a `hint`, a sentence with the remedy, and `retryable`: whether the same call may succeed later.
"""

import contextlib
import logging
import traceback
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from llm_ocr.types import Reason


class LlmOcrError(Exception):
    """Base class of all errors that the library raises on purpose."""

    exit_code = 1
    retryable = False

    def __init__(self, message: str, *, hint: str = "", retryable: bool | None = None) -> None:
        super().__init__(message)
        self.hint = hint
        if retryable is not None:
            self.retryable = retryable

    def __str__(self) -> str:
        message = super().__str__()
        return f"{message}\n{self.hint}" if self.hint else message


class UsageError(LlmOcrError, ValueError):
    """Wrong flags, settings, or sources."""

    exit_code = 2


class WorkspaceError(LlmOcrError):
    """The workspace cannot be used."""


class WorkspaceMismatch(WorkspaceError):
    """The workspace was made with other settings, or by a newer version."""


class StageMissing(WorkspaceError):
    """A stage was started before its preceding stage had finished."""


class StorageError(LlmOcrError, OSError):
    """Reading or writing the workspace failed."""


class ObjectNotFound(StorageError, FileNotFoundError):
    """There is no object with this key."""


class ObjectExists(StorageError, FileExistsError):
    """Create-if-absent found an object."""


class ObjectChanged(StorageError):
    """Compare-and-swap found another version of the object, or none."""


class DatasetDamaged(StorageError):
    """Files of the assembled dataset differ from the files that Assemble wrote.

    Args:
        workspace: URL of the workspace.
        keys: Names of the files in the workspace.
        before: Instruction for the user before the remedy.
    """

    def __init__(self, workspace: str, keys: Iterable[str], *, before: str = "") -> None:
        self.keys = tuple(keys)
        more = f" and {len(self.keys) - 1} more" if len(self.keys) > 1 else ""
        super().__init__(
            f"{workspace}: the dataset is damaged: {self.keys[0]}{more} has other content than Assemble wrote",
            hint=f"{before}Make it again from the results of the stages: llm-ocr assemble -w {workspace}",
        )


class MissingExtra(LlmOcrError, ImportError):
    """An optional package is not installed; the hint names the command that installs it.

    Args:
        message: The feature, and the package that it needs.
        install: The missing extra or package; the hint is then its `install_command`.
        hint: Another hint.
    """

    def __init__(self, message: str, *, install: str = "", hint: str = "") -> None:
        super().__init__(message, hint=f"Install it: {install_command(install)}" if install else hint)


def install_command(name: str) -> str:
    """Return the command that installs an extra of the library, or a package that the library needs.

    The command names the missing packages of other projects, with the bounds in the metadata of the installed library.
    It does not name the library, which comes from a checkout, a Git URL, or a wheel, but not from a package index. The
    command is correct for all of these sources.

    Args:
        name: An extra, such as `s3`, or a required package, such as `pyarrow`.

    Returns:
        A command for a shell, such as `pip install "boto3>=1.36"`. A checkout without metadata is named instead.
    """
    from importlib import metadata

    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    try:
        requirements = [Requirement(text) for text in metadata.requires("llm-ocr") or ()]
    except metadata.PackageNotFoundError:
        requirements = []
    packages = [
        f'"{one.name}{one.specifier}"'
        for one in requirements
        if (
            one.marker.evaluate({"extra": name})
            if one.marker
            else canonicalize_name(one.name) == canonicalize_name(name)
        )
    ]
    if not packages:
        return f'pip install -e ".[{name}]" in the checkout of the library'
    return f"pip install {' '.join(packages)}"


class PageFailure(LlmOcrError):
    """A page (or, with page None, a whole document) could not be read; it becomes a `failed` record.

    `tries` are the requests made for it, as in `Attempt`. Another text as the reason is the detail of a `stage error`.
    """

    def __init__(
        self,
        reason: Reason | str,
        detail: str = "",
        *,
        hint: str = "",
        retryable: bool = False,
        tries: tuple[Mapping[str, Any], ...] = (),
    ) -> None:
        if reason not in list(Reason):  # raised by a function of a user
            reason, detail = Reason.STAGE_ERROR, f"{reason}: {detail}" if detail else reason
        reason = Reason(reason)
        super().__init__(f"{reason.value}: {detail}" if detail else reason.value, hint=hint)
        self.reason = reason
        self.detail = detail
        self.retryable = retryable
        self.tries = tries

    @property
    def why(self) -> str:
        """Detail of the failure, or its reason without a detail."""
        return self.detail or self.reason.value

    def with_tries(self, tries: Iterable[Mapping[str, Any]], detail: str = "") -> "PageFailure":
        """Return the same failure with earlier requests added, and with another detail if given."""
        return PageFailure(
            self.reason,
            detail or self.detail,
            hint=self.hint,
            retryable=self.retryable,
            tries=(*tries, *self.tries),
        )


#: Errors that programs do not raise on purpose: an input that the code does not expect. Errors of the machine (a full
#: disk, no memory, no more threads) are not among them, because they would affect all pages.
_UNEXPECTED = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
    zlib.error,
)


def error_place(error: BaseException) -> str:
    """Return the type of an error and the file and line that raised it, without its message, which may quote a page."""
    where = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} at {Path(where.filename).name}:{where.lineno}"


@contextlib.contextmanager
def unexpected_as_failure() -> Iterator[None]:
    """Turn an unexpected error of the block into `PageFailure`, so that it costs one page and not the run."""
    try:
        yield
    except LlmOcrError:
        raise
    except _UNEXPECTED as error:
        logging.getLogger(__name__).debug("an unexpected error", exc_info=True)
        detail = f"unexpected {error_place(error)}"
        hint = "This is a bug of llm-ocr or of an installed engine: please report it."
        raise PageFailure(Reason.ENGINE_ERROR, detail, hint=hint) from error


class StageError(LlmOcrError):
    """The function of a user-defined stage raised for its first page. `__cause__` is what it raised."""


class Interrupted(LlmOcrError):
    """Stopped by SIGTERM or SIGINT; finished units are published."""

    exit_code = 4


class ServerError(LlmOcrError):
    """The model server cannot be started, reached, or used."""


class LaunchError(LlmOcrError):
    """A platform refuses a job, or is unreachable."""


class JobFailed(LaunchError):
    """A job failed. The message has the platform's reason."""


class LimitReached(LlmOcrError):
    """Stopped by a limit that the user set; finished work is kept."""

    exit_code = 5


class RequestError(LlmOcrError):
    """A request to a model server failed."""

    retryable = True


class ServerBusy(RequestError):
    """The server is busy. `retry_after` in seconds, None if not given.

    `status`: 429, 503 or 529; 404 of a server that has responded before.
    """

    def __init__(self, message: str, *, status: int = 503, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after


class RequestRefused(RequestError):
    """The server rejects this request. `too_long`: its prompt is too long; a smaller image may fit."""

    retryable = False

    def __init__(self, message: str, *, status: int, too_long: bool = False) -> None:
        super().__init__(message)
        self.status = status
        self.too_long = too_long


class RequestLost(RequestError):
    """There was no complete response. `status` is 0 if no response began.

    `unreachable`: no server listens there any more. `stalled`: the connection was open, but no data arrived for too
    long. `tokens_in` and `tokens_out` cover the received part, which a provider charges.
    """

    tokens_in = tokens_out = 0

    def __init__(self, message: str, *, status: int = 0, unreachable: bool = False, stalled: bool = False) -> None:
        super().__init__(message)
        self.status = status
        self.unreachable = unreachable
        self.stalled = stalled


class WorkerDied(LlmOcrError):
    """A worker process ended before it responded: killed at a limit, or crashed."""

    def __init__(self, message: str, *, timed_out: bool = False, out_of_memory: bool = False) -> None:
        super().__init__(message)
        self.timed_out = timed_out
        self.out_of_memory = out_of_memory


class WorkerError(LlmOcrError):
    """A worker process raised an error other than `PageFailure`; the message has its last traceback line."""
