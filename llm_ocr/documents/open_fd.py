"""Open documents in the main process; workers receive a file descriptor."""

import asyncio
import errno
import hashlib
import os
import stat
import threading
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import NamedTuple, TypeVar

from llm_ocr.documents.files import state
from llm_ocr.errors import PageFailure
from llm_ocr.types import Reason

T = TypeVar("T")

#: Number of remembered files whose content matched the plan; far more than are read in parallel.
_PROVED = 256
#: Nanoseconds: no file system has coarser timestamps.
_STEP = 2_000_000_000
#: Remedy for a document that differs from the plan.
CHANGED_HINT = "To read the current file, plan again in a new workspace."


class Given(NamedTuple):
    """Open file; `version` is the SHA-256 of its bytes in hex."""

    descriptor: int
    version: str


class Proofs:
    """Verified versions of local files. A file is hashed again only after a change.

    The check applies to the descriptor, not to the path: another file may replace the path at any time.
    """

    def __init__(self) -> None:
        # By source: version, and state at the check.
        self._known: OrderedDict[str, tuple[str, tuple[int, ...]]] = OrderedDict()
        self._lock = threading.Lock()

    @asynccontextmanager
    async def given(self, source: str, version: str = "") -> AsyncIterator[int]:
        """Open a local file for the duration of the block, and verify that it had one version throughout.

        Args:
            source: The path.
            version: The SHA-256 of the bytes in hex; empty: any.

        Yields:
            The descriptor.

        Raises:
            PageFailure: Not found, unreadable, or source changed; also raised at the end of the block. A changed file
                is the cause of the block's own error, and replaces it.
        """

        def opened(files: ExitStack) -> int:
            descriptor = _open(source, files)
            if version:
                self._prove(descriptor, source, version)
            return descriptor

        async with _held(opened) as descriptor:
            try:
                yield descriptor
            except Exception:
                if version:
                    await asyncio.to_thread(self._prove, descriptor, source, version)
                raise
            if version:
                await asyncio.to_thread(self._prove, descriptor, source, version)

    def _prove(self, descriptor: int, source: str, version: str) -> None:
        before = state(descriptor)
        if self._known.get(source) == (version, before):
            return
        began = time.time_ns()
        try:
            found = version_of(descriptor)
        except OSError as error:
            raise PageFailure(Reason.UNREADABLE, f"{source}: {error.strerror or error}") from error
        if found != version:
            raise PageFailure(Reason.SOURCE_CHANGED, f"{source} differs from the planned file", hint=CHANGED_HINT)
        # Timestamps have a resolution: a second write within the same step would be invisible.
        if abs(began - before[-1]) > _STEP and state(descriptor) == before:
            with self._lock:
                self._known[source] = (version, before)
                self._known.move_to_end(source)
                while len(self._known) > _PROVED:
                    self._known.popitem(last=False)


@asynccontextmanager
async def given_all(sources: Sequence[str]) -> AsyncIterator[list[Given | PageFailure]]:
    """Yield local files, read once for their versions and open for the duration of the block, or their failures."""

    def hashed(source: str, files: ExitStack) -> Given | PageFailure:
        try:
            descriptor = _open(source, files)
        except PageFailure as failure:
            return failure
        try:
            return Given(descriptor, version_of(descriptor))
        except OSError as error:
            return PageFailure(Reason.UNREADABLE, str(error))

    async with _held(lambda files: [hashed(source, files) for source in sources]) as given:
        yield given


@asynccontextmanager
async def _held(open_them: Callable[[ExitStack], T]) -> AsyncIterator[T]:
    """Close at the end what a thread opens, even after the caller was canceled."""
    files = ExitStack()
    opening = asyncio.ensure_future(asyncio.to_thread(open_them, files))
    try:
        yield await asyncio.shield(opening)
    finally:
        if opening.done():
            files.close()
        else:
            opening.add_done_callback(lambda _: files.close())


def version_of(file: str | Path | int) -> str:
    """Return the SHA-256 in hex of a file's bytes, by its path or its descriptor. Raises `OSError`."""
    with open(file, "rb", closefd=not isinstance(file, int)) as opened:
        opened.seek(0)
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _open(source: str, files: ExitStack) -> int:
    """Return the descriptor of a file, which `files` closes."""
    try:
        # A pipe without a writer would block; the flag has no effect on files.
        descriptor = os.open(source, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise PageFailure(Reason.NOT_FOUND, f"{source} does not exist") from error
    except PermissionError as error:
        raise PageFailure(Reason.UNREADABLE, "not a readable file") from error
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
            raise  # the limit of this machine, not a fault of the document: the command ends, and says so
        why = error.strerror if isinstance(error, OSError) else ""
        raise PageFailure(Reason.UNREADABLE, f"{source}: {why or error}") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise PageFailure(Reason.UNREADABLE, "not a readable file")
    files.callback(os.close, descriptor)
    return descriptor
