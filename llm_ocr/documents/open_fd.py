"""Open documents in the main process; workers receive a file descriptor."""

import asyncio
import hashlib
import os
import stat
import threading
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
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
            PageFailure: Not found, unreadable, or source changed; also raised at the end of the block.
        """
        async with _held(lambda: self._open(source, version), os.close) as descriptor:
            yield descriptor
            if version:
                await asyncio.to_thread(self._prove, descriptor, source, version)

    def _open(self, source: str, version: str) -> int:
        descriptor = _open(source)
        try:
            if version:
                self._prove(descriptor, source, version)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def _prove(self, descriptor: int, source: str, version: str) -> None:
        before = state(descriptor)
        if self._known.get(source) == (version, before):
            return
        began = time.time_ns()
        try:
            found = _hash(descriptor)
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
    async with _held(lambda: [_hashed(source) for source in sources], _close_all) as files:
        yield files


@asynccontextmanager
async def _held(open_them: Callable[[], T], close_them: Callable[[T], None]) -> AsyncIterator[T]:
    """Close at the end what a thread opens, even after the caller was canceled."""
    opening = asyncio.ensure_future(asyncio.to_thread(open_them))
    try:
        opened = await asyncio.shield(opening)
    except asyncio.CancelledError:

        def close_late(late: "asyncio.Future[T]") -> None:
            if not late.cancelled() and late.exception() is None:
                close_them(late.result())

        opening.add_done_callback(close_late)
        raise
    try:
        yield opened
    finally:
        close_them(opened)


def _hash(descriptor: int) -> str:
    with open(descriptor, "rb", closefd=False) as file:
        file.seek(0)
        return hashlib.file_digest(file, "sha256").hexdigest()


def _open(source: str) -> int:
    try:
        # A pipe without a writer would block; the flag has no effect on files.
        descriptor = os.open(source, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise PageFailure(Reason.NOT_FOUND, f"{source} does not exist") from error
    except PermissionError as error:
        raise PageFailure(Reason.UNREADABLE, "not a readable file") from error
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else ""
        raise PageFailure(Reason.UNREADABLE, f"{source}: {why or error}") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise PageFailure(Reason.UNREADABLE, "not a readable file")
    return descriptor


def _hashed(source: str) -> Given | PageFailure:
    try:
        descriptor = _open(source)
    except PageFailure as failure:
        return failure
    try:
        return Given(descriptor, _hash(descriptor))
    except OSError as error:
        os.close(descriptor)
        return PageFailure(Reason.UNREADABLE, str(error))
    except BaseException:
        os.close(descriptor)
        raise


def _close_all(files: Iterable[Given | PageFailure]) -> None:
    for file in files:
        if isinstance(file, Given):
            os.close(file.descriptor)
