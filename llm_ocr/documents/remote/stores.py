"""Read documents from object stores, listed by key and fetched in ranges."""

import asyncio
import random
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from llm_ocr.documents.remote import RemoteOptions, shown, split
from llm_ocr.documents.remote.cache import DiskError, Fetched, Room, Sink, changed, store_version
from llm_ocr.errors import ObjectNotFound, PageFailure, StorageError, UsageError
from llm_ocr.storage import ObjectInfo, ObjectStore, StoreOptions, open_store
from llm_ocr.types import Reason

T = TypeVar("T")

#: Limit in seconds, also for a pause that the server requests.
_LONGEST_PAUSE = 60.0


class NotNow(PageFailure):
    """Temporary failure. `after`: seconds that the server asked to wait."""

    def __init__(self, failure: PageFailure, after: float | None = None) -> None:
        super().__init__(failure.reason, failure.detail, hint=failure.hint, retryable=True)
        self.after = after


async def persistently(attempt: Callable[[], Awaitable[T]], *, tries: int, pause: float) -> T:
    """Return the first result of up to `tries` attempts; only `NotNow` is retried, and the last one is raised.

    Pauses double and are randomized, so that parallel workers do not retry at the same moment.
    """
    for number in range(1, tries):
        try:
            return await attempt()
        except NotNow as failure:
            spread = pause * 2 ** (number - 1) * random.uniform(0.5, 1.5)
            await asyncio.sleep(min(max(spread, failure.after or 0.0), _LONGEST_PAUSE))
    return await attempt()


# Documents on stores: found by their keys, and read in ranges, so that a download can be canceled at any time.


OpenStore = Callable[[str, StoreOptions], ObjectStore]

#: Bytes per request; the memory of one download. Smaller objects are read in one request, with their version.
_PIECE = 16 << 20


class Stores:
    """Stores of the sources, each opened once; thread-safe."""

    def __init__(self, options: StoreOptions, opening: OpenStore = open_store) -> None:
        self._options = options
        self._opening = opening
        self._open: dict[str, ObjectStore] = {}
        self._lock = threading.Lock()

    def at(self, root: str) -> ObjectStore:
        """Return the store of a root as returned by `urls.split`. Raises `UsageError` and `MissingExtra`."""
        with self._lock:
            if root not in self._open:
                self._open[root] = self._opening(root, self._options)
            return self._open[root]


class StoreClient:
    """Client that fetches documents from stores in its own threads."""

    def __init__(self, options: RemoteOptions, stores: Stores) -> None:
        self._options = options
        self._stores = stores
        self._threads = ThreadPoolExecutor(options.fetches, thread_name_prefix="llm-ocr-documents")

    async def fetch(self, url: str, version: str, target: Path, room: Room) -> Fetched:
        """Write the document to `target`, and verify its version unless `version` is empty.

        Raises:
            PageFailure: Not found, unreadable, or source changed.
        """
        stop = threading.Event()
        try:
            info = await self._persist(self._stat, url, version)
            await room.take(info.size)
            await self._persist(self._copy, url, info, target, stop)
            return Fetched(store_version(url, info), info.size)
        finally:
            stop.set()

    async def look(self, url: str) -> Fetched:
        """Return version and size of the document without reading it. Raises `PageFailure`: not found, unreadable."""
        info = await self._persist(self._stat, url, "")
        return Fetched(store_version(url, info), info.size)

    def close(self) -> None:
        """End the threads; abandoned downloads end at their next piece."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _persist(self, step: Callable[..., ObjectInfo], url: str, *rest: object) -> ObjectInfo:
        """Return the step's result; errors of the store become failures of this document."""

        def call() -> ObjectInfo:
            try:
                return step(url, *rest)
            except DiskError:
                raise
            except ObjectNotFound as error:
                raise PageFailure(Reason.NOT_FOUND, f"no object {shown(url)}") from error
            except (StorageError, UsageError) as error:
                failure = PageFailure(Reason.UNREADABLE, f"{shown(url)}: {error.args[0]}", hint=error.hint)
                raise NotNow(failure) if error.retryable else failure from error

        loop = asyncio.get_running_loop()
        return await persistently(
            lambda: loop.run_in_executor(self._threads, call), tries=self._options.tries, pause=self._options.pause
        )

    def _stat(self, url: str, version: str) -> ObjectInfo:
        place = split(url)
        info = self._stores.at(place.root).stat(place.key)
        if info is None:
            raise PageFailure(Reason.NOT_FOUND, f"no object {shown(url)}")
        if version not in ("", store_version(url, info)):
            raise _changed(url)
        return info

    def _copy(self, url: str, info: ObjectInfo, target: Path, stop: threading.Event) -> ObjectInfo:
        """Copy the object and verify that it had one version from the first to the last byte."""
        place, version = split(url), store_version(url, info)
        store = self._stores.at(place.root)
        sink = Sink(target)
        try:
            if info.size <= _PIECE:
                data, token = store.fetch(place.key)
                if store_version(url, replace(info, version=token, size=len(data))) != version:
                    raise _changed(url)
                sink.write(data)
                return info
            while sink.size < info.size:
                if stop.is_set():
                    raise PageFailure(Reason.UNREADABLE, f"{shown(url)}: the read was canceled")
                piece = store.read_range(place.key, sink.size, min(_PIECE, info.size - sink.size))
                if not piece:
                    self._stat(url, version)
                    raise NotNow(PageFailure(Reason.UNREADABLE, f"{shown(url)}: ended early"))
                sink.write(piece)
            return self._stat(url, version)
        finally:
            sink.close()
            if stop.is_set():
                target.unlink(missing_ok=True)  # the file may have been created after the cleanup


def _changed(url: str) -> PageFailure:
    return changed(f"{shown(url)} differs from the planned object")
