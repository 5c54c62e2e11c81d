"""Run coroutines from scripts and notebooks, and blocking calls in threads."""

import asyncio
import contextlib
import signal
import sqlite3
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from typing import Any, TypeVar

from llm_ocr.errors import Interrupted, LlmOcrError, StorageError
from llm_ocr.sandbox.memory import map_large_blocks
from llm_ocr.storage.local import DISK_FULL, TEMPORARY_FULL
from llm_ocr.storage.waiting import STOPPING

T = TypeVar("T")

_END = object()


async def stepwise(items: Iterable[T], stop: Callable[[], bool] = lambda: False) -> AsyncIterator[T]:
    """Yield the items of a blocking iterable; each is fetched in a thread. End when `stop` returns true."""
    iterator = await asyncio.to_thread(iter, items)
    while not stop():
        item = await asyncio.to_thread(next, iterator, _END)
        if item is _END:
            return
        yield item  # type: ignore[misc]  # not _END, so a T


def run_blocking(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine to its end, from a script or from a notebook whose event loop is already running.

    Args:
        main: Returns the coroutine.

    Raises:
        Interrupted: SIGTERM or SIGINT arrived.
        StorageError: A local disk is full.
        LlmOcrError: Of an exception group, the first error that the library raised.
    """
    map_large_blocks()
    if threading.current_thread() is threading.main_thread():  # a command on Ray runs beside the one that is stopped
        STOPPING.reset()
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(_guarded(main))
    outcome: list[T] = []
    errors: list[BaseException] = []
    loop = asyncio.new_event_loop()
    task: list[asyncio.Task[T]] = []

    async def started() -> T:
        task.append(asyncio.ensure_future(_guarded(main)))
        return await task[0]

    def body() -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: loop) as runner:
                outcome.append(runner.run(started()))
        except BaseException as error:  # noqa: BLE001 - raised again in the caller's thread
            errors.append(error)

    thread = threading.Thread(target=body, name="llm_ocr", daemon=True)
    thread.start()
    try:
        thread.join()
    except KeyboardInterrupt:
        if task:
            loop.call_soon_threadsafe(task[0].cancel)
        thread.join()
        raise
    if errors:
        raise errors[0]
    return outcome[0]


async def _guarded(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    with _signals_cancel(asyncio.current_task()) as received:
        try:
            return await main()
        except asyncio.CancelledError:
            if received:
                raise Interrupted(
                    f"stopped by {received[0].name}", hint="Run the same command again to continue."
                ) from None
            raise
        except BaseExceptionGroup as group:
            error = first_error(group)
            raise (_disk_full(error) or error) from group
        except (OSError, sqlite3.Error) as error:
            if (disk_full := _disk_full(error)) is None:
                raise
            raise disk_full from error


def _disk_full(error: BaseException) -> StorageError | None:
    """Return the error to show if a local disk is full. Stores and copies of documents raise their own errors."""
    full = isinstance(error, OSError) and error.errno in DISK_FULL
    full = full or (isinstance(error, sqlite3.Error) and error.sqlite_errorcode == sqlite3.SQLITE_FULL)
    if not full or isinstance(error, LlmOcrError):
        return None
    return StorageError(
        f"a local disk is full, probably the disk of temporary files ({tempfile.gettempdir()}): {error}",
        hint=TEMPORARY_FULL,
    )


def first_error(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the error of a group to show: the first of this library, otherwise the first."""
    error: BaseException = group.subgroup(LlmOcrError) or group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


@contextlib.contextmanager
def _signals_cancel(task: "asyncio.Task[Any] | None") -> Iterator[list[signal.Signals]]:
    """Cancel the task on SIGTERM and SIGINT; yield the list of received signals. Works only in the main thread."""
    received: list[signal.Signals] = []
    loop = asyncio.get_running_loop()
    if task is None or threading.current_thread() is not threading.main_thread():
        yield received
        return

    def stop(which: signal.Signals) -> None:
        received.append(which)
        STOPPING.begin()
        task.cancel()

    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    for number in before:
        loop.add_signal_handler(number, stop, number)
    try:
        yield received
    finally:
        for number, handler in before.items():
            loop.remove_signal_handler(number)  # which sets the default handler
            if handler not in (None, signal.SIG_IGN):  # set outside of Python; ignored, as by a shell's background jobs
                signal.signal(number, handler)
