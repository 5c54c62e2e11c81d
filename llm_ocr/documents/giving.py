"""Documents are opened here, in the main process: a worker gets a descriptor, and may open nothing itself."""

import asyncio
import os
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from llm_ocr.errors import PageFailure
from llm_ocr.types import Reason


@asynccontextmanager
async def given(source: str) -> AsyncIterator[int]:
    """The descriptor of a local file, for as long as the block lasts. Raises PageFailure when there is no such file."""
    opening = asyncio.ensure_future(asyncio.to_thread(_open, source))
    try:
        descriptor = await asyncio.shield(opening)
    except asyncio.CancelledError:
        opening.add_done_callback(_close_late)
        raise
    try:
        yield descriptor
    finally:
        os.close(descriptor)


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


def _close_late(opening: "asyncio.Future[int]") -> None:
    if not opening.cancelled() and opening.exception() is None:
        os.close(opening.result())
