"""Errors of the library.

LlmOcrError                 exit 1 unless a subclass says otherwise
├── UsageError              exit 2: wrong flags, settings or sources
├── WorkspaceError          exit 1: the workspace cannot be used
│   ├── WorkspaceMismatch       another key or a newer format
│   └── StageMissing            the stage before has not finished
├── StorageError            exit 1, also an OSError
│   ├── ObjectNotFound          also a FileNotFoundError
│   ├── ObjectExists            also a FileExistsError: create-if-absent lost
│   ├── ObjectChanged           compare-and-swap lost: the object is another by now, or gone
│   └── DatasetDamaged          files of the assembled dataset are not as Assemble wrote them
├── MissingExtra            exit 1: an optional package is not installed
├── PageFailure             never ends a run: becomes a failed record of one page or document
├── Interrupted             exit 4: stopped by a signal; the same command goes on
├── ServerError             exit 1: the model server cannot be started, reached or used
├── LaunchError             exit 1: a platform refuses a job, or cannot be asked
│   └── JobFailed               a job ended otherwise than well; its platform's reason
├── LimitReached            exit 5: stopped by --max-cost or --max-hours; the same command goes on with a higher one
├── RequestError            one request to a server failed; the reader makes a try of it, never ends a run
│   ├── ServerBusy              429, 503 or 529: ask again later, not the page's fault
│   ├── RequestRefused          the server does not take this question (400, 413, 422)
│   └── RequestLost             no whole answer came: 500, connection lost, answer cut, no progress
├── WorkerDied              a worker process ended before it answered (limit, crash); callers turn it into a PageFailure
└── WorkerError             a worker process met an error that it did not expect; callers turn it into a PageFailure

Every error carries `hint`, a sentence that says what to do, and `retryable`: whether the same call may succeed later.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from llm_ocr.types import Reason


class LlmOcrError(Exception):
    """Base of all errors that the library raises on purpose."""

    exit_code = 1
    retryable = False

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint

    def __str__(self) -> str:
        message = super().__str__()
        return f"{message}\n{self.hint}" if self.hint else message


class UsageError(LlmOcrError, ValueError):
    """Wrong flags, settings or sources."""

    exit_code = 2


class WorkspaceError(LlmOcrError):
    """The workspace cannot be used."""


class WorkspaceMismatch(WorkspaceError):
    """The workspace was made with other settings, or by a newer version."""


class StageMissing(WorkspaceError):
    """A stage was started before the one that feeds it had finished."""


class StorageError(LlmOcrError, OSError):
    """Reading or writing the workspace failed."""


class ObjectNotFound(StorageError, FileNotFoundError):
    """No object of that key."""


class ObjectExists(StorageError, FileExistsError):
    """Create-if-absent found an object."""


class ObjectChanged(StorageError):
    """Compare-and-swap found another version of the object, or none."""


class DatasetDamaged(StorageError):
    """Files of the assembled dataset are not as Assemble wrote them; `keys` are their names in the workspace.

    `before` is what the user has to do first.
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
        message: What needs which package.
        install: The extra or package that is missing; the hint is then `install_command` of it.
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
        name: An extra, as `s3`, or a needed package, as `pyarrow`.

    Returns:
        A command for a shell, as `pip install "boto3>=1.36"`. A checkout without metadata is named instead.
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
    """A page (or, with page None, a whole document) could not be read; it ends as a `failed` record.

    `tries` are the requests that were made for it, as in `Attempt`.
    """

    def __init__(
        self,
        reason: Reason,
        detail: str = "",
        *,
        hint: str = "",
        retryable: bool = False,
        tries: tuple[Mapping[str, Any], ...] = (),
    ) -> None:
        super().__init__(f"{reason.value}: {detail}" if detail else reason.value, hint=hint)
        self.reason = reason
        self.detail = detail
        self.retryable = retryable
        self.tries = tries

    @property
    def why(self) -> str:
        """Its detail; the reason where there is none."""
        return self.detail or self.reason.value

    def with_tries(self, tries: Iterable[Mapping[str, Any]], detail: str = "") -> "PageFailure":
        """The same failure, with requests that were made before its own, and with another detail where one is given."""
        return PageFailure(
            self.reason,
            detail or self.detail,
            hint=self.hint,
            retryable=self.retryable,
            tries=(*tries, *self.tries),
        )


class Interrupted(LlmOcrError):
    """Stopped by SIGTERM or SIGINT; finished units are published."""

    exit_code = 4


class ServerError(LlmOcrError):
    """The model server cannot be started, reached or used."""


class LaunchError(LlmOcrError):
    """A platform refuses a job, or cannot be asked."""


class JobFailed(LaunchError):
    """A job ended otherwise than well. The message holds the platform's reason."""


class LimitReached(LlmOcrError):
    """Stopped by a limit of the user's own; what is done stays."""

    exit_code = 5


class RequestError(LlmOcrError):
    """One request to a model server failed."""

    retryable = True


class ServerBusy(RequestError):
    """The server is to be asked again later. `retry_after` in seconds, None when it did not say.

    `status`: 429, 503 or 529; 404 of a server that has answered before.
    """

    def __init__(self, message: str, *, status: int = 503, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after


class RequestRefused(RequestError):
    """The server does not take this question. `too_long`: its prompt does not fit, a smaller image may."""

    retryable = False

    def __init__(self, message: str, *, status: int, too_long: bool = False) -> None:
        super().__init__(message)
        self.status = status
        self.too_long = too_long


class RequestLost(RequestError):
    """No whole answer came. `status` is 0 when no response began.

    `unreachable`: nobody listens there any more. `stalled`: the connection stood, and nothing came for too long.
    `tokens_in` and `tokens_out` of the part that came: a provider has them paid.
    """

    tokens_in = tokens_out = 0

    def __init__(self, message: str, *, status: int = 0, unreachable: bool = False, stalled: bool = False) -> None:
        super().__init__(message)
        self.status = status
        self.unreachable = unreachable
        self.stalled = stalled


class WorkerDied(LlmOcrError):
    """A worker process ended before it answered: killed at a limit, or crashed."""

    def __init__(self, message: str, *, timed_out: bool = False, out_of_memory: bool = False) -> None:
        super().__init__(message)
        self.timed_out = timed_out
        self.out_of_memory = out_of_memory


class WorkerError(LlmOcrError):
    """A worker process raised something other than `PageFailure`; the message holds its last traceback line."""
