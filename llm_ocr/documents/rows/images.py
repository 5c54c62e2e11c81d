"""Images of rows as local files: the way in for everything that reads pages of datasets."""

import asyncio
import contextlib
import secrets
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from llm_ocr.documents.remote.cache import FileCache, LocalCopy
from llm_ocr.documents.remote.fetched import Fetched, Room
from llm_ocr.documents.remote.folder import CopyFolder
from llm_ocr.documents.remote.options import RemoteOptions
from llm_ocr.documents.rows.address import DataFile, RowAddress, row_address
from llm_ocr.documents.rows.files import HubFiles
from llm_ocr.documents.rows.groups import Groups, take_image
from llm_ocr.documents.rows.paths import in_repository
from llm_ocr.errors import PageFailure
from llm_ocr.types import Reason

#: Gives a document on a store as a local file: `RemoteDocuments.open`.
OpenOther = Callable[[str, str], AbstractAsyncContextManager[LocalCopy]]


class RowImages:
    """Images of dataset rows. Made and used in one event loop; `close` removes the files.

    A row group is fetched once for all rows that are asked for while it is here, and goes when there is no room.
    """

    def __init__(self, options: RemoteOptions, other: OpenOther) -> None:
        self._other = other
        self._stop = threading.Event()
        self._groups = Groups(HubFiles(pause=self._stop.wait))
        # Twice, so that looking up where a row stands does not wait for the groups that are on their way.
        self._threads = ThreadPoolExecutor(2 * options.fetches, thread_name_prefix="llm-ocr-rows")
        self._folder = CopyFolder(options.cache_folder)
        self._cache = FileCache(self._folder.path, self._fetch, options)

    @contextlib.asynccontextmanager
    async def open(self, address: RowAddress, number: int) -> AsyncIterator[Path]:
        """Image `number`, from 1, of the row as a local file, for as long as the block lasts.

        Entering raises `PageFailure` (not found, unreadable, no such page) for what is wrong with this row or file,
        `StorageError` when the dataset cannot be read, `DiskError` when the local disk is full.
        """
        path = self._folder.path / f"{secrets.token_hex(16)}.image"
        try:
            reference = await self._take(address, number, path)
            if not reference:
                yield path
                return
        finally:
            path.unlink(missing_ok=True)
        async with self._referred(address, reference) as path:
            yield path

    async def close(self) -> None:
        """End what is on its way, and remove all files."""
        self._stop.set()
        await self._cache.close()
        self._threads.shutdown(wait=False, cancel_futures=True)
        await asyncio.to_thread(self._folder.remove)

    async def _take(self, address: RowAddress, number: int, target: Path) -> str:
        loop = asyncio.get_running_loop()
        group = await loop.run_in_executor(self._threads, self._groups.of, address)
        first = RowAddress(address.file, group.first, address.column)  # stands for the group
        async with self._cache.open(first.url, address.file.commit) as copy:
            return await asyncio.to_thread(
                take_image, copy.path, address.row - group.first, number, address.row, target
            )

    async def _fetch(self, source: str, version: str, target: Path, room: Room) -> Fetched:
        address = row_address(source)
        assert address is not None
        loop = asyncio.get_running_loop()
        group = await loop.run_in_executor(self._threads, self._groups.of, address)
        await room.take(group.size)
        stop = threading.Event()
        try:
            size = await loop.run_in_executor(self._threads, self._groups.copy, group, address.column, target, stop)
        finally:
            stop.set()
        return Fetched(version, size)

    @contextlib.asynccontextmanager
    async def _referred(self, address: RowAddress, reference: str) -> AsyncIterator[Path]:
        """The file of the repository that a row names instead of holding an image."""
        for path in in_repository(address.file, reference):
            url = DataFile(address.file.repository, address.file.commit, path).url
            async with contextlib.AsyncExitStack() as stack:
                try:
                    copy = await stack.enter_async_context(self._other(url, ""))
                except PageFailure as failure:
                    if failure.reason is Reason.NOT_FOUND:
                        continue
                    raise
                yield copy.path
                return
        raise PageFailure(
            Reason.NOT_FOUND, f"row {address.row} has no image but names {reference}, which is not in the repository"
        )
