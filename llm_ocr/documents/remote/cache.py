"""Keep local copies of remote documents, fetched once for all pages in flight."""

import asyncio
import contextlib
import hashlib
import random
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from llm_ocr.documents.files import SUFFIXES
from llm_ocr.documents.open_fd import CHANGED_HINT
from llm_ocr.documents.remote import RemoteOptions, fingerprint, scheme_of, suffix_of
from llm_ocr.errors import LlmOcrError, PageFailure, StorageError
from llm_ocr.storage import ObjectInfo, ObjectStore, StoreOptions, open_store
from llm_ocr.storage.own_folder import OwnFolder
from llm_ocr.types import Reason

T = TypeVar("T")

#: Prefix of the folders of local copies.
COPIES = "llm-ocr-documents-"


class Budget:
    """Disk budget in bytes.

    Callers of `take` wait in order until idle bytes are removed or other documents are released. Only two cases exceed
    the limit: a single document larger than the limit, and documents of unknown size. `give_up` removes idle bytes,
    least recently used first, by calling `Room.free`, and returns whether there were any.
    """

    def __init__(self, limit: int, give_up: Callable[[], bool]) -> None:
        self._limit = limit
        self._give_up = give_up
        self._order = asyncio.Lock()
        self._released = asyncio.Event()
        self.used = 0

    async def take(self, size: int) -> None:
        """Wait for room, then count the bytes as used."""
        async with self._order:
            while self.used and self.used + size > self._limit:
                if not self._give_up():
                    self._released.clear()
                    await self._released.wait()
            self.used += size

    def settle(self) -> None:
        """Remove idle bytes above the limit and let waiting callers look again; called after each release."""
        while self.used > self._limit and self._give_up():
            pass
        self._released.set()


@dataclass(frozen=True, slots=True)
class Fetched:
    """Complete document in a local file."""

    version: str
    size: int  # bytes


class Room:
    """Room of one document in the cache."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._size = 0

    async def take(self, size: int) -> None:
        """Wait until the bytes fit, and count them as used. Call once, before writing."""
        await self._budget.take(size)
        self._size = size

    def resize(self, size: int) -> None:
        """Set the actual size of the document; never waits."""
        self._budget.used += size - self._size
        self._size = size
        self._budget.settle()

    def free(self) -> None:
        """Subtract the bytes of a removed document, without admitting callers."""
        self._budget.used -= self._size
        self._size = 0


class DiskError(StorageError):
    """The local disk cannot store a document; neither the document nor the store is at fault."""


class Sink:
    """Local file for a download. Blocking; one thread at a time.

    Raises `DiskError`.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        with disk_errors(path):
            self._file = path.open("wb", buffering=0)
        self.digest = hashlib.sha256()
        self.size = 0

    def write(self, data: bytes) -> None:
        with disk_errors(self._path):
            view = memoryview(data)
            while view:
                view = view[self._file.write(view) :]
        self.digest.update(data)
        self.size += len(data)

    def close(self) -> None:
        self._file.close()

    def clear(self) -> None:
        """Start over with an empty file."""
        with disk_errors(self._path):
            self._file.seek(0)
            self._file.truncate()
        self.digest = hashlib.sha256()
        self.size = 0


@contextlib.contextmanager
def disk_errors(path: Path, what: str = "a document") -> Iterator[None]:
    """Raise `DiskError` for an error of the local file at `path`; this library's errors are unchanged."""
    try:
        yield
    except LlmOcrError:
        raise
    except OSError as error:
        raise DiskError(
            f"cannot store {what} in {path.parent}: {error.strerror or error}",
            hint="Free space there, or set another folder for temporary files (TMPDIR).",
        ) from error


def store_version(url: str, info: ObjectInfo) -> str:
    """Return a version of the object without reading it.

    Documents of one version count as copies of each other. ETags of S3 depend on the content. Tokens of other stores
    may be equal for two objects, so their versions include the URL.
    """
    version = f"{info.version.strip(chr(34))}-{info.size}"
    return version if scheme_of(url) == "s3" else f"{version}@{fingerprint(url)}"


def changed(what: str) -> PageFailure:
    """Return the failure for a document that differs from the plan."""
    return PageFailure(Reason.SOURCE_CHANGED, what, hint=CHANGED_HINT)


Fetch = Callable[[str, str, Path, Room], Awaitable[Fetched]]
_Key = tuple[str, str]  # source and version

#: Limit of remembered failures.
_MOST_FAILURES = 1024


@dataclass(frozen=True, slots=True)
class LocalCopy:
    """Document as a local file. `version` is the plan's, or the actual version if none was requested."""

    path: Path
    version: str


@dataclass(slots=True, eq=False)
class _Entry:
    """Document in transfer, in use, or idle."""

    key: _Key
    path: Path
    room: Room
    users: int = 0
    task: "asyncio.Task[Fetched] | None" = None


class FileCache:
    """Local files of documents, at most `options.cache_bytes` of them, for one event loop; `close` removes them."""

    def __init__(self, fetch: Fetch, options: RemoteOptions) -> None:
        self._fetch = fetch
        self._options = options
        self._entries: OrderedDict[_Key, _Entry] = OrderedDict()  # least recently used first
        self._failures: OrderedDict[_Key, tuple[PageFailure, float]] = OrderedDict()  # and the expiry time, monotonic
        self._tasks: set[asyncio.Task[Fetched]] = set()
        self._turns = asyncio.Semaphore(options.fetches)
        self._budget = Budget(options.cache_bytes, self._give_up)

    @cached_property
    def folder(self) -> OwnFolder:
        """Folder of the files, which is made at its first use."""
        return OwnFolder(COPIES, self._options.cache_folder)

    @contextlib.asynccontextmanager
    async def open(self, source: str, version: str) -> AsyncIterator[LocalCopy]:
        """Provide the document as a file for the duration of the block. Raises `PageFailure` and `DiskError`."""
        key = (source, version)
        # Without the memory of failures, each page of the document would repeat all tries.
        known, until = self._failures.get(key, (None, 0.0))
        if known is not None:
            if time.monotonic() < until:
                raise _again(known) from known
            del self._failures[key]
        entry = self._entries.get(key) or self._start(key)
        entry.users += 1
        try:
            assert entry.task is not None
            try:
                fetched = await asyncio.shield(entry.task)
            except PageFailure as failure:
                # several callers may wait for the same document: each raises its own error
                raise _again(failure) from failure
            if entry.key in self._entries:
                self._entries.move_to_end(entry.key)
            yield LocalCopy(entry.path, fetched.version)
        finally:
            entry.users -= 1
            self._let_go(entry)

    async def close(self) -> None:
        """Cancel the transfers and remove all files."""
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if "folder" in self.__dict__:
            await asyncio.to_thread(self.folder.remove)

    def _start(self, key: _Key) -> _Entry:
        name = hashlib.sha256("\0".join(key).encode("utf-8", "surrogatepass")).hexdigest()[:32]
        suffix = suffix_of(key[0])
        # A file fetched without a version keeps its own name when another fetch without a version starts.
        path = self.folder.path / f"{name}-{secrets.token_hex(4)}{suffix if suffix in SUFFIXES else ''}"
        entry = self._entries[key] = _Entry(key, path, Room(self._budget))
        entry.task = asyncio.create_task(self._fetched(entry))
        self._tasks.add(entry.task)
        entry.task.add_done_callback(lambda task: self._ended(entry, task))
        return entry

    async def _fetched(self, entry: _Entry) -> Fetched:
        """Write the complete document under its name, or nothing."""
        part = entry.path.with_suffix(".part")
        async with self._turns:
            try:
                try:
                    fetched = await self._fetch(*entry.key, part, entry.room)
                except DiskError:  # the disk may be smaller than the limit: retry without the idle documents
                    if not self._give_up():
                        raise
                    while self._give_up():
                        pass
                    entry.room.resize(0)
                    fetched = await self._fetch(*entry.key, part, entry.room)
                part.replace(entry.path)  # not in a thread: a canceled thread would be too late
            finally:
                part.unlink(missing_ok=True)
        return fetched

    def _ended(self, entry: _Entry, task: "asyncio.Task[Fetched]") -> None:
        self._tasks.discard(task)
        failure = None if task.cancelled() else task.exception()
        if task.cancelled() or failure is not None:
            if isinstance(failure, PageFailure):
                self._failures[entry.key] = (failure, time.monotonic() + self._options.remember_seconds)
                while len(self._failures) > _MOST_FAILURES:
                    self._failures.popitem(last=False)
            self._forget(entry)
            entry.room.resize(0)
            return
        if entry.key[1] != task.result().version:  # a request for any version is repeated the next time
            self._forget(entry)
            entry.key = (entry.key[0], task.result().version)
            self._entries.setdefault(entry.key, entry)
        entry.room.resize(task.result().size)
        self._let_go(entry)

    def _let_go(self, entry: _Entry) -> None:
        if entry.users == 0 and entry.task is not None:
            if not entry.task.done():
                self._forget(entry)
                entry.task.cancel()  # no caller waits for the document
            elif self._entries.get(entry.key) is not entry:
                self._remove(entry)
        self._budget.settle()

    def _forget(self, entry: _Entry) -> None:
        if self._entries.get(entry.key) is entry:
            del self._entries[entry.key]

    def _remove(self, entry: _Entry) -> None:
        entry.path.unlink(missing_ok=True)
        entry.room.free()

    def _give_up(self) -> bool:
        """Remove the least recently used idle document; return whether there was one."""
        for entry in self._entries.values():
            if not entry.users and entry.task is not None and entry.task.done():
                self._forget(entry)
                self._remove(entry)
                return True
        return False


def _again(failure: PageFailure) -> PageFailure:
    return PageFailure(failure.reason, failure.detail, hint=failure.hint, retryable=failure.retryable)


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


OpenStore = Callable[[str, StoreOptions], ObjectStore]


class Stores:
    """Stores of the sources, each opened once; thread-safe."""

    def __init__(self, options: StoreOptions, opening: OpenStore = open_store) -> None:
        self._options = options
        self._opening = opening
        self._open: dict[str, ObjectStore] = {}
        self._lock = threading.Lock()

    def at(self, root: str) -> ObjectStore:
        """Return the store of a root, which `split` returns. Raises `UsageError` and `MissingExtra`."""
        with self._lock:
            if root not in self._open:
                self._open[root] = self._opening(root, self._options)
            return self._open[root]
