"""Remote documents as local files: the one way in for everything that reads pages."""

import asyncio
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Self

from llm_ocr.documents.remote.cache import FileCache, LocalCopy
from llm_ocr.documents.remote.fetched import Fetched, Room
from llm_ocr.documents.remote.folder import CopyFolder
from llm_ocr.documents.remote.http import WebClient
from llm_ocr.documents.remote.options import RemoteOptions
from llm_ocr.documents.remote.stores import StoreClient, Stores
from llm_ocr.documents.remote.urls import is_web


class RemoteDocuments:
    """Local files of documents on stores and on the web. Made and used in one event loop; `close` removes the files.

        async with RemoteDocuments() as remote, remote.open(url, version) as copy:
            pages = await renderer.open(str(copy.path))

    `stores` and `web` replace what the options would open.
    """

    def __init__(
        self, options: RemoteOptions | None = None, *, stores: Stores | None = None, web: WebClient | None = None
    ) -> None:
        self._options = options or RemoteOptions()
        self._stores = stores
        self._web = web or WebClient(self._options)
        self._store: StoreClient | None = None
        self._folder: CopyFolder | None = None
        self._cache: FileCache | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    @property
    def used(self) -> int:
        """Bytes of documents on the local disk, those on their way included."""
        return self._cache.used if self._cache else 0

    def open(self, source: str, version: str = "") -> AbstractAsyncContextManager[LocalCopy]:
        """The document as a local file, for as long as the block lasts.

        `version` is the plan's, and what is there must be of it; empty: whatever is there, `LocalCopy.version` says of
        which version it is. Entering raises `PageFailure` (not found, unreadable, source changed, unknown type), also
        for what is no URL; `DiskError` when the local disk is full, and `MissingExtra`.
        """
        if self._cache is None:
            self._folder = CopyFolder(self._options.cache_folder)
            self._cache = FileCache(self._folder.path, self._fetch, self._options)
        return self._cache.open(source, version)

    async def look(self, source: str) -> Fetched:
        """Version and size of a document on a store, without reading it. Raises `PageFailure`, and `MissingExtra`."""
        return await self._client().look(source)

    def _client(self) -> StoreClient:
        if self._store is None:
            self._store = StoreClient(self._options, self._stores or Stores(self._options.store))
        return self._store

    async def close(self) -> None:
        """End what is on its way, and remove all files."""
        if self._cache is not None:
            await self._cache.close()
        await self._web.close()
        if self._store is not None:
            self._store.close()
        if self._folder is not None:
            await asyncio.to_thread(self._folder.remove)

    async def _fetch(self, source: str, version: str, target: Path, room: Room) -> Fetched:
        if is_web(source):
            return await self._web.fetch(source, version, target, room)
        return await self._client().fetch(source, version, target, room)
