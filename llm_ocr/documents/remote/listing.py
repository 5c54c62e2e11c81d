"""List the remote documents that a user names (single URLs, prefixes, patterns, and manifests), and provide them."""

import asyncio
import tempfile
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import ParamSpec, Self, TypeVar

from llm_ocr.documents.files import ACCEPTED, HEAD_BYTES, kind_by_content, kind_of_head
from llm_ocr.documents.manifests import ManifestEntry, SourceDocument, listed_paths, manifest_entries
from llm_ocr.documents.remote import (
    RemoteOptions,
    StoreUrl,
    below,
    fixed_part,
    has_magic,
    hidden,
    is_remote,
    is_web,
    joined,
    kind_by_url,
    matcher,
    name_of,
    path_of,
    scheme_of,
    shown,
    split,
    suffix_of,
    unknown_scheme,
)
from llm_ocr.documents.remote.cache import (
    Budget,
    DiskError,
    Fetched,
    FileCache,
    LocalCopy,
    NotNow,
    Room,
    Sink,
    Stores,
    changed,
    persistently,
    store_version,
)
from llm_ocr.documents.remote.http import WebClient
from llm_ocr.errors import ObjectNotFound, PageFailure, StorageError, UsageError
from llm_ocr.storage import ObjectInfo
from llm_ocr.types import Reason

P = ParamSpec("P")
T = TypeVar("T")

# Remote documents from user input: single URLs, prefixes, patterns, lists, and manifests. The listing of a prefix
# includes versions. A document named in a list or manifest is not checked here; its existence and version are
# determined when it is opened.


_LISTS = (".txt", ".jsonl")
#: Number of parallel reads of first bytes, for names without a known suffix.
_AT_ONCE = 64


class RemoteListing:
    """Finder of remote documents. Blocking and lazy; memory holds only one page of a listing.

    `skipped` counts the objects below prefixes with an unknown type, by suffix; `ids` are those of all manifests.
    Errors of a store end a listing, because an incomplete listing would produce a wrong plan.
    """

    def __init__(
        self,
        skipped: Counter[str],
        ids: dict[str, str],
        options: RemoteOptions | None = None,
        *,
        stores: Stores | None = None,
    ) -> None:
        self._skipped = skipped
        self._ids = ids
        self._options = options or RemoteOptions()
        self._stores = stores or Stores(self._options.store)

    def documents(self, source: str) -> Iterator[SourceDocument]:
        """Yield the documents of a remote source. Raises `UsageError`, `StorageError`, and `MissingExtra`."""
        if suffix_of(source) in _LISTS and not source.endswith("/") and (is_web(source) or not has_magic(source)):
            yield from self._list(source)
        elif is_web(source):
            yield SourceDocument(source, name_of(source), kind_by_url(source))
        else:
            yield from self._stored(SourceDocument(source, name_of(source)))

    def line(self, text: str, base: str = "") -> Iterator[SourceDocument]:
        """Yield the documents of a remote line in a list; `base` is the URL of the list, empty for a local list."""
        found = self._named(text, base)
        if found.reason is None and not is_web(found.source):
            key = split(found.source).key
            if not found.kind or has_magic(key):
                yield from self._stored(found)
                return
        yield found

    def entry(self, entry: ManifestEntry, base: str = "") -> SourceDocument:
        """Return the document of a manifest's line; `base` is the URL of the manifest, empty for a local one."""
        return replace(self._named(entry.path, base), document_id=entry.document_id, pages=entry.pages)

    def _named(self, text: str, base: str) -> SourceDocument:
        """Return a document named individually, without a request; a source that cannot be a document fails.

        The document keeps its path below the list, as a local file does. Other documents keep their path in the bucket
        or web site. Their ids use only the name, for compatibility with older versions.
        """
        url = joined(base, text) if base else text
        near = below(base, url)
        relative = near or name_of(url)
        try:
            if not is_remote(url):
                raise unknown_scheme(url) or UsageError("a remote list must not name files of this machine")
            if not is_web(url):
                split(url)
            relative = near or path_of(url)
        except UsageError as error:
            return _failed(url, relative, Reason.UNREADABLE, " ".join(str(error).split("\n")))
        return SourceDocument(url, relative, kind_by_url(url), name_in_id="" if near else name_of(url))

    def _list(self, source: str) -> Iterator[SourceDocument]:
        """Yield the documents of a list or manifest, which is read line by line from a local copy."""
        with tempfile.TemporaryDirectory(prefix="llm-ocr-list-") as folder:
            file = Path(folder, "list")
            try:
                if is_web(source):

                    async def fetch() -> None:
                        web = WebClient(self._options)
                        try:
                            alone = Room(Budget(0, lambda: False))  # a list takes no room in the cache
                            await web.fetch(source, "", file, alone)
                        finally:
                            await web.close()

                    with ThreadPoolExecutor(1) as thread:  # the caller's thread may have a running loop
                        thread.submit(asyncio.run, fetch()).result()
                else:
                    place = split(source)
                    self._stores.at(place.root).download(place.key, file)
            except (PageFailure, ObjectNotFound) as error:
                raise UsageError(str(error.args[0]), hint=error.hint) from error
            if kind := kind_by_content(file):
                yield SourceDocument(source, name_of(source), kind)
            elif suffix_of(source) == ".jsonl":
                for entry in manifest_entries(file, self._ids, shown(source)):
                    yield self.entry(entry, source)
            else:
                for line in listed_paths(file, shown(source)):
                    yield from self.line(line, source)

    def _stored(self, named: SourceDocument) -> Iterator[SourceDocument]:
        """Yield the documents of a store URL; a literal key has priority over a pattern and over a folder."""
        place = split(named.source)
        store = self._stores.at(place.root)
        info = store.stat(place.key) if place.key and not place.key.endswith("/") else None
        if info is not None:
            url = place.at(info.key)
            if kind := kind_by_url(url) or self._look(place.root, info):
                yield replace(named, source=url, kind=kind, version=store_version(url, info), size=info.size)
            else:
                yield _failed(url, named.relative, Reason.UNKNOWN_TYPE, f"accepted are {ACCEPTED}")
            return
        found: Iterator[ObjectInfo]
        if has_magic(place.key):
            prefix = fixed_part(place.key)
            folder, missing = prefix[: prefix.rfind("/") + 1], "no object matches"
            fits = matcher(place.key[len(folder) :])
            found = (info for info in store.list(prefix) if fits(info.key[len(folder) :]))
        else:
            folder, missing = f"{place.key.rstrip('/')}/" if place.key.strip("/") else "", "no object has this prefix"
            found = store.list(folder)
        first = next(found, None)
        if first is None:
            yield _failed(place.at(place.key), name_of(place.key), Reason.NOT_FOUND, missing)
            return
        infos: Iterator[ObjectInfo] = chain([first], found)
        if not has_magic(place.key):
            infos = (info for info in infos if not hidden(info.key[len(folder) :]))
        yield from self._kept(place, infos, folder)

    def _kept(self, place: StoreUrl, infos: Iterable[ObjectInfo], folder: str) -> Iterator[SourceDocument]:
        """Yield objects of a known type by suffix, or by their first bytes without a suffix."""
        objects = (info for info in infos if info.size or not info.key.endswith("/"))  # empty objects represent folders
        with ThreadPoolExecutor(self._options.fetches) as threads:
            while batch := list(islice(objects, _AT_ONCE)):
                unnamed = [info for info in batch if not suffix_of(place.at(info.key))]
                looked = dict(
                    zip(unnamed, threads.map(lambda info: self._look(place.root, info), unnamed), strict=True)
                )
                for info in batch:
                    url = place.at(info.key)
                    kind = kind_by_url(url) or looked.get(info, "")
                    if kind:
                        relative = info.key[len(folder) :] or name_of(url)
                        yield SourceDocument(url, relative, kind, store_version(url, info), size=info.size)
                    else:
                        self._skipped[suffix_of(url)] += 1

    def _look(self, root: str, info: ObjectInfo) -> str:
        try:
            head = self._stores.at(root).read_range(info.key, 0, min(HEAD_BYTES, info.size)) if info.size else b""
        except ObjectNotFound:
            return ""  # removed since the listing
        return kind_of_head(head)


def _failed(url: str, relative: str, reason: Reason, detail: str) -> SourceDocument:
    return SourceDocument(shown(url), relative, reason=reason, detail=detail)


#: Bytes per request, after which a download can be canceled. Smaller objects are read at once, with their version.
_PIECE = 16 << 20
#: Objects of a folder that are tried when a store refuses one of them, and refused objects that end a run if no other
#: object can be tried: of a list of objects, the first ones may be missing, and credentials without lists hide that.
_OTHERS, _MOST_REFUSED = 8, 5


class DaemonThreads(Executor):
    """Threads for calls, at most `most` at once. A call that does not end does not delay the end of the process.

    The interpreter waits for the threads of a `ThreadPoolExecutor`.
    """

    def __init__(self, most: int) -> None:
        self._turns = threading.Semaphore(most)

    def submit(self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> "Future[T]":
        """Start the call in a thread of its own, and return its future."""
        future: Future[T] = Future()

        def run() -> None:
            with self._turns:
                if not future.set_running_or_notify_cancel():
                    return
                try:
                    future.set_result(call(*args, **kwargs))
                except BaseException as error:  # noqa: BLE001 - raised again by the future
                    future.set_exception(error)

        threading.Thread(target=run, name="llm-ocr-documents", daemon=True).start()
        return future


class RemoteDocuments:
    """Local files of documents on stores and on the web, for one event loop; `close` removes the files.

        async with RemoteDocuments() as remote, remote.open(url, version) as copy:
            pages = await renderer.open(str(copy.path))

    `stores` and `web` replace the clients that the options would open.
    """

    def __init__(
        self, options: RemoteOptions | None = None, *, stores: Stores | None = None, web: WebClient | None = None
    ) -> None:
        self._options = options or RemoteOptions()
        self._web = web or WebClient(self._options)
        self._stores = stores or Stores(self._options.store)
        self._threads = DaemonThreads(self._options.fetches)
        self._cache = FileCache(self._fetch, self._options)
        self._last_read: dict[str, StoreUrl] = {}  # by scheme: the settings for stores apply to a scheme
        self._refused: set[StoreUrl] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    def open(self, source: str, version: str = "") -> AbstractAsyncContextManager[LocalCopy]:
        """Provide the document as a local file for the duration of the block.

        Args:
            source: URL of the document.
            version: The plan's version, which is verified. Empty: any version; `LocalCopy.version` is the actual one.

        Raises:
            PageFailure: Not found, unreadable, source changed, unknown type, or not a URL.
            StorageError: The store is down, or refuses the credentials.
            DiskError: The local disk is full.
            MissingExtra: The package for the store is not installed.
        """
        return self._cache.open(source, version)

    async def look(self, source: str) -> Fetched:
        """Return version and size of a document on a store without reading it. Raises the errors of `open`."""
        info = await self._persist(self._stat, source, "")
        return Fetched(store_version(source, info), info.size)

    async def close(self) -> None:
        """Cancel the transfers and remove all files; abandoned downloads end at their next piece."""
        await self._cache.close()
        await self._web.close()

    async def _fetch(self, source: str, version: str, target: Path, room: Room) -> Fetched:
        if is_web(source):
            return await self._web.fetch(source, version, target, room)
        stop = threading.Event()
        try:
            info = await self._persist(self._stat, source, version)
            await room.take(info.size)
            await self._persist(self._copy, source, info, target, stop)
            return Fetched(store_version(source, info), info.size)
        finally:
            stop.set()

    async def _persist(self, step: Callable[..., ObjectInfo], url: str, *rest: object) -> ObjectInfo:
        """Return the step's result. Raises `PageFailure` for a fault of this document, otherwise `StorageError`."""

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

        def attempt() -> Awaitable[ObjectInfo]:
            return loop.run_in_executor(self._threads, call)

        loop = asyncio.get_running_loop()
        try:
            return await persistently(attempt, tries=self._options.tries, pause=self._options.pause)
        except PageFailure as failure:
            error = failure.__cause__
            if not isinstance(error, StorageError) or isinstance(error, ObjectNotFound):
                raise
            # The errors of stores do not say whether they concern one object. While another one can be read, they do.
            # If none can be read, the credentials have expired or the store is down: the run ends, because all further
            # documents would fail.
            if not await loop.run_in_executor(self._threads, self._serves, split(url)):
                raise error from None
            if not failure.retryable:
                raise
        return await attempt()  # the store may have been down until now

    def _serves(self, refused: StoreUrl) -> bool:
        """Return whether another object can be read: the last one of a store of the scheme, or a listed one.

        A few objects are believed to be refused alone if there is no other.
        """
        last, tried = self._last_read.get(scheme_of(refused.root)), False
        others = [last] if last is not None else []
        prefixes = list(dict.fromkeys(("", refused.key[: refused.key.rfind("/") + 1])))  # the folder first
        while others or prefixes:
            try:
                if not others:
                    listed = self._stores.at(refused.root).list(prefixes.pop())
                    others = [replace(refused, key=info.key) for info in islice(listed, _OTHERS)]
                elif (other := others.pop()) != refused:
                    tried = True
                    self._stores.at(other.root).read_range(other.key, 0, 1)
                    return True
            except ObjectNotFound:
                return True  # removed meanwhile: the store answers
            except StorageError as error:
                if error.retryable:
                    return False
        self._refused.add(refused)
        return not tried and len(self._refused) < _MOST_REFUSED

    def _stat(self, url: str, version: str) -> ObjectInfo:
        place = split(url)
        info = self._stores.at(place.root).stat(place.key)
        if info is None:
            raise PageFailure(Reason.NOT_FOUND, f"no object {shown(url)}")
        if version not in ("", store_version(url, info)):
            raise changed(f"{shown(url)} differs from the planned object")
        return info

    def _copy(self, url: str, info: ObjectInfo, target: Path, stop: threading.Event) -> ObjectInfo:
        """Copy the object and verify that it had one version from the first to the last byte."""
        place, version = split(url), store_version(url, info)
        store = self._stores.at(place.root)
        sink = Sink(target)
        try:
            if info.size <= _PIECE:
                data, token = store.fetch(place.key)
                self._last_read[scheme_of(url)] = place
                if store_version(url, replace(info, version=token, size=len(data))) != version:
                    raise changed(f"{shown(url)} differs from the planned object")
                sink.write(data)
                return info
            while sink.size < info.size:
                if stop.is_set():
                    raise PageFailure(Reason.UNREADABLE, f"{shown(url)}: the read was canceled")
                piece = store.read_range(place.key, sink.size, min(_PIECE, info.size - sink.size))
                if not piece:
                    self._stat(url, version)
                    raise NotNow(PageFailure(Reason.UNREADABLE, f"{shown(url)}: ended early"))
                self._last_read[scheme_of(url)] = place
                sink.write(piece)
            return self._stat(url, version)
        finally:
            sink.close()
            if stop.is_set():
                target.unlink(missing_ok=True)  # the file may have been created after the cleanup
