"""Errors of the library.

LlmOcrError                 exit 1 unless a subclass says otherwise
├── UsageError              exit 2: wrong flags, settings or sources
├── WorkspaceError          exit 1: the workspace cannot be used
│   ├── WorkspaceMismatch       another key or a newer format
│   └── StageMissing            the stage before has not finished
├── StorageError            exit 1, also an OSError
│   ├── ObjectNotFound          also a FileNotFoundError
│   └── ObjectExists            also a FileExistsError: create-if-absent lost
├── MissingExtra            exit 1: an optional package is not installed
├── PageFailure             never ends a run: becomes a failed record of one page or document
├── Interrupted             exit 4: stopped by a signal; the same command goes on
├── WorkerDied              a worker process ended before it answered (limit, crash); callers turn it into a PageFailure
└── WorkerError             a worker process met an error that it did not expect; callers turn it into a PageFailure

Every error carries `hint`, a sentence that says what to do, and `retryable`: whether the same call may succeed later.
"""

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


class MissingExtra(LlmOcrError, ImportError):
    """An optional package is not installed; the hint names the command that brings it."""


class PageFailure(LlmOcrError):
    """A page (or, with page None, a whole document) could not be read; it ends as a `failed` record."""

    def __init__(self, reason: Reason, detail: str = "", *, hint: str = "", retryable: bool = False) -> None:
        super().__init__(f"{reason.value}: {detail}" if detail else reason.value, hint=hint)
        self.reason = reason
        self.detail = detail
        self.retryable = retryable


class Interrupted(LlmOcrError):
    """Stopped by SIGTERM or SIGINT; finished units are published."""

    exit_code = 4


class WorkerDied(LlmOcrError):
    """A worker process ended before it answered: killed at a limit, or crashed."""

    def __init__(self, message: str, *, timed_out: bool = False, out_of_memory: bool = False) -> None:
        super().__init__(message)
        self.timed_out = timed_out
        self.out_of_memory = out_of_memory


class WorkerError(LlmOcrError):
    """A worker process raised something other than `PageFailure`; the message holds its last traceback line."""
