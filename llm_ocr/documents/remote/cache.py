"""Local copies of remote documents, fetched once for all pages in flight."""

import asyncio
import contextlib
import hashlib
import secrets
import time
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from llm_ocr.documents.file_types import SUFFIXES
from llm_ocr.documents.open_fd import CHANGED_HINT
from llm_ocr.documents.remote.urls import RemoteOptions, fingerprint, scheme_of, suffix_of
from llm_ocr.errors import PageFailure, StorageError
from llm_ocr.storage import ObjectInfo
from llm_ocr.storage.own_folder import OwnFolder
from llm_ocr.types import Reason

# The folder of local copies: removed when its process ends, and by the next process when that was killed.


_PREFIX = "llm-ocr-documents-"


class CopyFolder(OwnFolder):
    """A folder of this process's own below `parent`, locked for as long as the process lives."""

    def __init__(self, parent: Path | None = None) -> None:
        super().__init__(_PREFIX, parent)


# How many bytes of documents stand on the local disk, and who waits for room.


class Budget:
    """Bytes under a limit. Who takes waits, in order, until idle bytes were given up or others let go.

    The limit is passed in two cases only: by one document that is larger than all of it, and by documents whose size
    was not known when they were taken. `give_up` frees idle bytes, least recently used first, by calling `free`, and
    says whether there were any.
    """

    def __init__(self, limit: int, give_up: Callable[[], bool]) -> None:
        self._limit = limit
        self._give_up = give_up
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self.used = 0

    async def take(self, size: int) -> None:
        """Wait for room, then count the bytes as used."""
        if not self._waiting and self._fits(size):
            self.used += size
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append((size, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.used -= size  # it was given in the same moment
            self._waiting = deque(one for one in self._waiting if one[1] is not turn)
            self.settle()
            raise

    def resize(self, before: int, after: int) -> None:
        """What was taken is of another size."""
        self.used += after - before
        self.settle()

    def settle(self) -> None:
        """Give up what is idle above the limit, and let those in that fit: called whenever bytes were let go."""
        while self.used > self._limit and self._give_up():
            pass
        while self._waiting and self._fits(self._waiting[0][0]):
            size, turn = self._waiting.popleft()
            if not turn.done():
                self.used += size
                turn.set_result(None)

    def free(self, size: int) -> None:
        """Bytes that are no longer there."""
        self.used -= size

    def _fits(self, size: int) -> bool:
        while self.used and self.used + size > self._limit:
            if not self._give_up():
                return False
        return True


# What fetching a document gives, and what it needs of the cache.


@dataclass(frozen=True, slots=True)
class Fetched:
    """A document that stands in a local file, whole."""

    version: str
    size: int  # bytes


class Room(Protocol):
    """The place that one document takes in the cache."""

    async def take(self, size: int) -> None:
        """Wait until there is room for so many bytes. Once, before anything is written."""

    def resize(self, size: int) -> None:
        """The document is found to have so many bytes; never waits."""


class DiskError(StorageError):
    """The local disk does not take a document: no fault of the document, and of the store neither."""


class Sink:
    """A local file that is written while its bytes come. Blocking; one thread at a time.

    Raises `DiskError`.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        with self._local():
            self._file = path.open("wb", buffering=0)
        self._digest = hashlib.sha256()
        self.size = 0

    def write(self, data: bytes) -> None:
        with self._local():
            view = memoryview(data)
            while view:
                view = view[self._file.write(view) :]
        self._digest.update(data)
        self.size += len(data)

    def sha256(self) -> str:
        """In hex, of what has been written."""
        return self._digest.hexdigest()

    def close(self) -> None:
        self._file.close()

    def clear(self) -> None:
        """Begin again."""
        with self._local():
            self._file.seek(0)
            self._file.truncate()
        self._digest = hashlib.sha256()
        self.size = 0

    @contextlib.contextmanager
    def _local(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise DiskError(
                f"cannot keep a document in {self._path.parent}: {error.strerror or error}",
                hint="Make room there, or name another folder for the local copies of documents.",
            ) from error


def store_version(url: str, info: ObjectInfo) -> str:
    """A version of the object that was found without reading it.

    Documents of one version count as copies of each other. ETags of S3 are made of the content; tokens of other stores
    may be equal for two objects, so that theirs hold the URL, too.
    """
    version = f"{info.version.strip(chr(34))}-{info.size}"
    return version if scheme_of(url) == "s3" else f"{version}@{fingerprint(url)}"


def changed(what: str) -> PageFailure:
    """The failure for a document that is not the one of the plan."""
    return PageFailure(Reason.SOURCE_CHANGED, what, hint=CHANGED_HINT)


# Local files of remote documents, fetched once for all pages in flight and kept while there is room.


Fetch = Callable[[str, str, Path, Room], Awaitable[Fetched]]
_Key = tuple[str, str]  # source and version

#: Failures that are remembered.
_MOST_FAILURES = 1024


@dataclass(frozen=True, slots=True)
class LocalCopy:
    """A document as a local file. `version` is the plan's, or what was found when none was asked for."""

    path: Path
    version: str


@dataclass(slots=True, eq=False)
class _Entry:
    """One document: on its way, in use, or idle. It is the place (`Room`) that its fetching asks for."""

    key: _Key
    path: Path
    budget: Budget
    size: int = 0
    users: int = 0
    task: "asyncio.Task[Fetched] | None" = None

    async def take(self, size: int) -> None:
        await self.budget.take(size)
        self.size = size

    def resize(self, size: int) -> None:
        before, self.size = self.size, size
        self.budget.resize(before, size)

    @property
    def idle(self) -> bool:
        return not self.users and self.task is not None and self.task.done()


class FileCache:
    """Documents below `folder`, at most `options.cache_bytes` of them. For one event loop."""

    def __init__(self, folder: Path, fetch: Fetch, options: RemoteOptions) -> None:
        self._folder = folder
        self._fetch = fetch
        self._options = options
        self._entries: OrderedDict[_Key, _Entry] = OrderedDict()  # the least recently used first
        self._failures: OrderedDict[_Key, tuple[PageFailure, float]] = OrderedDict()  # and until when, monotonic
        self._tasks: set[asyncio.Task[Fetched]] = set()
        self._turns = asyncio.Semaphore(options.fetches)
        self._budget = Budget(options.cache_bytes, self._give_up)

    @property
    def used(self) -> int:
        """Bytes that documents take on the local disk, or will when they are whole."""
        return self._budget.used

    @contextlib.asynccontextmanager
    async def open(self, source: str, version: str) -> AsyncIterator[LocalCopy]:
        """The document as a file that stays until the block ends. Raises `PageFailure`, and `DiskError`."""
        key = (source, version)
        self._raise_known(key)
        entry = self._entries.get(key) or self._start(key)
        entry.users += 1
        try:
            fetched = await self._arrival(entry)
            if entry.key in self._entries:
                self._entries.move_to_end(entry.key)
            yield LocalCopy(entry.path, fetched.version)
        finally:
            entry.users -= 1
            self._let_go(entry)

    async def close(self) -> None:
        """End what is on its way."""
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _arrival(self, entry: _Entry) -> Fetched:
        assert entry.task is not None
        try:
            return await asyncio.shield(entry.task)
        except PageFailure as failure:
            raise _again(failure) from failure  # several may wait for one: each raises its own

    def _start(self, key: _Key) -> _Entry:
        name = hashlib.sha256("\0".join(key).encode("utf-8", "surrogatepass")).hexdigest()[:32]
        suffix = suffix_of(key[0])
        # What was fetched without a version keeps its name when there is another without one.
        path = self._folder / f"{name}-{secrets.token_hex(4)}{suffix if suffix in SUFFIXES else ''}"
        entry = self._entries[key] = _Entry(key, path, self._budget)
        entry.task = asyncio.create_task(self._fetched(entry))
        self._tasks.add(entry.task)
        entry.task.add_done_callback(lambda task: self._ended(entry, task))
        return entry

    async def _fetched(self, entry: _Entry) -> Fetched:
        """The document whole under its name, or nothing."""
        part = entry.path.with_suffix(".part")
        async with self._turns:
            try:
                fetched = await self._with_room(entry, part)
                part.replace(entry.path)  # here, not in a thread: one that was given up would come too late
            finally:
                part.unlink(missing_ok=True)
        return fetched

    async def _with_room(self, entry: _Entry, part: Path) -> Fetched:
        """Once more without the idle documents when the disk is smaller than the limit."""
        try:
            return await self._fetch(*entry.key, part, entry)
        except DiskError:
            if not self._give_up():
                raise
            while self._give_up():
                pass
            entry.resize(0)
            return await self._fetch(*entry.key, part, entry)

    def _ended(self, entry: _Entry, task: "asyncio.Task[Fetched]") -> None:
        self._tasks.discard(task)
        failure = None if task.cancelled() else task.exception()
        if task.cancelled() or failure is not None:
            if isinstance(failure, PageFailure):
                self._remember(entry.key, failure)
            self._forget(entry)
            entry.resize(0)
            return
        if entry.key[1] != task.result().version:  # "whatever there is" is asked anew the next time
            self._forget(entry)
            entry.key = (entry.key[0], task.result().version)
            self._entries.setdefault(entry.key, entry)
        entry.resize(task.result().size)
        self._let_go(entry)

    def _let_go(self, entry: _Entry) -> None:
        if entry.users == 0 and entry.task is not None:
            if not entry.task.done():
                self._forget(entry)
                entry.task.cancel()  # nobody waits for it any more
            elif self._entries.get(entry.key) is not entry:
                self._remove(entry)
        self._budget.settle()

    def _forget(self, entry: _Entry) -> None:
        if self._entries.get(entry.key) is entry:
            del self._entries[entry.key]

    def _remove(self, entry: _Entry) -> None:
        entry.path.unlink(missing_ok=True)
        self._budget.free(entry.size)
        entry.size = 0

    def _give_up(self) -> bool:
        """Remove the idle document that was not used for the longest time; whether there was one."""
        entry = next((entry for entry in self._entries.values() if entry.idle), None)
        if entry is None:
            return False
        self._forget(entry)
        self._remove(entry)
        return True

    def _remember(self, key: _Key, failure: PageFailure) -> None:
        """All pages of a document would fail one by one, each after all tries."""
        self._failures[key] = (failure, time.monotonic() + self._options.remember_seconds)
        while len(self._failures) > _MOST_FAILURES:
            self._failures.popitem(last=False)

    def _raise_known(self, key: _Key) -> None:
        failure, until = self._failures.get(key, (None, 0.0))
        if failure is None:
            return
        if time.monotonic() < until:
            raise _again(failure) from failure
        del self._failures[key]


def _again(failure: PageFailure) -> PageFailure:
    return PageFailure(failure.reason, failure.detail, hint=failure.hint, retryable=failure.retryable)
