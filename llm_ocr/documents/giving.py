"""Documents are opened here, in the main process: a worker gets a descriptor, and may open nothing itself."""

import asyncio
import hashlib
import os
import stat
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple, TypeVar

from llm_ocr.errors import PageFailure
from llm_ocr.types import Reason

T = TypeVar("T")


class Given(NamedTuple):
    """An open file; `version` is the SHA-256 of its bytes in hex."""

    descriptor: int
    version: str


@asynccontextmanager
async def given(source: str) -> AsyncIterator[int]:
    """The descriptor of a local file, for as long as the block lasts. Raises PageFailure when there is no such file."""
    async with _held(lambda: _open(source), os.close) as descriptor:
        yield descriptor


@asynccontextmanager
async def given_all(sources: Sequence[str]) -> AsyncIterator[list[Given | PageFailure]]:
    """Local files, read once for their versions, and open for as long as the block lasts; or why there is none."""
    async with _held(lambda: [_hashed(source) for source in sources], _close_all) as files:
        yield files


@asynccontextmanager
async def _held(open_them: Callable[[], T], close_them: Callable[[T], None]) -> AsyncIterator[T]:
    """What a thread opens is closed at the end, also when nobody waits for it any more."""
    opening = asyncio.ensure_future(asyncio.to_thread(open_them))
    try:
        opened = await asyncio.shield(opening)
    except asyncio.CancelledError:
        opening.add_done_callback(lambda late: _close_late(late, close_them))
        raise
    try:
        yield opened
    finally:
        close_them(opened)


def _open(source: str) -> int:
    try:
        # A pipe without a writer would hang; for files the flag means nothing.
        descriptor = os.open(source, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise PageFailure(Reason.NOT_FOUND, f"{source} does not exist") from error
    except PermissionError as error:
        raise PageFailure(Reason.UNREADABLE, "not a file that may be read") from error
    except (OSError, ValueError) as error:
        raise PageFailure(Reason.UNREADABLE, f"{source}: {getattr(error, 'strerror', None) or error}") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise PageFailure(Reason.UNREADABLE, "not a file that may be read")
    return descriptor


def _hashed(source: str) -> Given | PageFailure:
    try:
        descriptor = _open(source)
    except PageFailure as failure:
        return failure
    try:
        with open(descriptor, "rb", closefd=False) as file:
            return Given(descriptor, hashlib.file_digest(file, "sha256").hexdigest())
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


def _close_late(opening: "asyncio.Future[T]", close_them: Callable[[T], None]) -> None:
    if not opening.cancelled() and opening.exception() is None:
        close_them(opening.result())
