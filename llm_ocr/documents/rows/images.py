"""Provide images of rows as local files, copied by row group."""

import asyncio
import bisect
import contextlib
import secrets
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow.parquet import ParquetFile

from llm_ocr.documents.remote import RemoteOptions
from llm_ocr.documents.remote.cache import Fetched, FileCache, LocalCopy, Room, disk_errors
from llm_ocr.documents.rows import DataFile, RowAddress, in_repository, row_address
from llm_ocr.documents.rows.files import HubFiles, decoding, parquet_file
from llm_ocr.documents.rows.listing import no_image
from llm_ocr.errors import ObjectNotFound, PageFailure
from llm_ocr.types import Reason

#: Limit of cached footers.
_FOOTERS = 64
#: Bytes per request, and approximate memory for rows that are decoded together.
_PIECE = 8 << 20
_MOST_ROWS = 64
_UNREADABLE = partial(PageFailure, Reason.UNREADABLE)


@dataclass(frozen=True, slots=True)
class Group:
    """Row group of a file; `first` is its first row, `size` the bytes of its images."""

    file: DataFile
    number: int
    first: int
    rows: int
    size: int


class Groups:
    """Finder and copier of row groups. Blocking; thread-safe.

    The methods raise `PageFailure` for a faulty file, `StorageError` if the dataset cannot be read.
    """

    def __init__(self, files: HubFiles) -> None:
        self._files = files
        self._footers: OrderedDict[DataFile, tuple[Any, list[int]]] = OrderedDict()  # metadata, first rows of groups
        self._lock = threading.Lock()

    def of(self, address: RowAddress) -> Group:
        """Return the row group of a row."""
        metadata, firsts = self._footer(address.file)
        if not 0 <= address.row < metadata.num_rows:
            raise PageFailure(Reason.NOT_FOUND, f"{address.file.url} has no row {address.row}")
        number = bisect.bisect_right(firsts, address.row) - 1
        group = metadata.row_group(number)
        leaves = (group.column(place) for place in range(group.num_columns))
        below = f"{address.column}."
        size = sum(
            leaf.total_uncompressed_size
            for leaf in leaves
            if leaf.path_in_schema == address.column or leaf.path_in_schema.startswith(below)
        )
        return Group(address.file, number, firsts[number], group.num_rows, size)

    def copy(self, group: Group, column: str, target: Path, stop: threading.Event) -> int:
        """Write the column as an Arrow file with one batch per row; return the size in bytes.

        Ends early when `stop` is set.
        """
        metadata, _ = self._footer(group.file)
        rows = max(1, min(_MOST_ROWS, _PIECE * group.rows // max(1, group.size)))
        try:
            with (
                self._opened(group.file, metadata) as parquet,
                disk_errors(target, "images of a dataset"),
                pa.OSFile(str(target), "wb") as sink,
            ):
                schema = pa.schema([parquet.schema_arrow.field(column).remove_metadata()])
                batches = parquet.iter_batches(rows, row_groups=[group.number], columns=[column], use_threads=False)
                with pa.ipc.new_file(sink, schema) as writer:
                    while True:
                        with decoding(group.file, _UNREADABLE):
                            batch = next(batches, None)
                        if batch is None:
                            break
                        if stop.is_set():
                            raise PageFailure(Reason.UNREADABLE, f"{group.file.url}: the read was canceled")
                        writer.write_table(pa.Table.from_arrays([batch.column(0)], schema=schema), 1)
            return target.stat().st_size
        finally:
            if stop.is_set():
                target.unlink(missing_ok=True)  # the file may have been created after the cleanup

    def _footer(self, file: DataFile) -> tuple[Any, list[int]]:
        """Return the footer, fetched once for concurrent callers."""
        with self._lock:
            if file not in self._footers:
                with self._opened(file, None) as parquet:
                    metadata = parquet.metadata
                firsts, next_first = [], 0
                for number in range(metadata.num_row_groups):
                    firsts.append(next_first)
                    next_first += metadata.row_group(number).num_rows
                self._footers[file] = metadata, firsts
                if len(self._footers) > _FOOTERS:
                    self._footers.popitem(last=False)
            self._footers.move_to_end(file)
            return self._footers[file]

    @contextlib.contextmanager
    def _opened(self, file: DataFile, metadata: Any) -> Iterator[ParquetFile]:
        try:
            raw = self._files.open(file)
        except ObjectNotFound as error:
            raise PageFailure(Reason.NOT_FOUND, f"no file {file.url}") from error
        with raw, parquet_file(raw, file, _UNREADABLE, metadata=metadata, buffer_size=_PIECE) as parquet:
            yield parquet


def take_image(copied: Path, place: int, number: int, row: int, target: Path) -> tuple[str, bool]:
    """Write the image of the row at `place` in a copied group to `target`; of a list, image `number`, from 1.

    Returns:
        The path that the row contains instead of bytes, or "" if the bytes were written; and whether the row has a
        list.

    Raises:
        PageFailure: The row has neither bytes nor a path.
    """
    with pa.memory_map(str(copied)) as mapped:
        cell = pa.ipc.open_file(mapped).get_batch(place).column(0)[0]
        has_list = isinstance(cell, pa.ListScalar)
        if has_list:
            if not cell.is_valid or not len(cell.values):
                raise PageFailure(Reason.NOT_FOUND, no_image(row))
            if not 1 <= number <= len(cell.values):
                raise PageFailure(Reason.NO_SUCH_PAGE, f"image {number} of {len(cell.values)} in row {row}")
            cell = cell.values[number - 1]
        has = dict(cell) if isinstance(cell, pa.StructScalar) and cell.is_valid else {"bytes": cell}
        if has["bytes"].is_valid and not isinstance(has["bytes"], pa.StructScalar):
            with disk_errors(target, "images of a dataset"):
                target.write_bytes(has["bytes"].as_buffer())
            return "", has_list
        path = has["path"].as_py() if "path" in has else None
        if not isinstance(path, str) or not path:
            raise PageFailure(Reason.NOT_FOUND, no_image(row))
        return path, has_list


#: Opens a document on a store as a local file: `RemoteDocuments.open`.
OpenOther = Callable[[str, str], AbstractAsyncContextManager[LocalCopy]]


class RowImages:
    """Images of dataset rows, for one event loop; `close` removes the files.

    A row group is fetched once for all rows that are requested while it is local. It is removed when room is needed.
    """

    def __init__(self, options: RemoteOptions, other: OpenOther) -> None:
        self._other = other
        self._stop = threading.Event()
        self._groups = Groups(HubFiles(pause=self._stop.wait))
        # Twice the number, so that row look-ups do not wait for groups in transfer.
        self._threads = ThreadPoolExecutor(2 * options.fetches, thread_name_prefix="llm-ocr-rows")
        self._cache = FileCache(self._fetch, options)

    @contextlib.asynccontextmanager
    async def open(self, address: RowAddress, number: int) -> AsyncIterator[tuple[Path, int | None]]:
        """Provide page `number`, from 1, of the row as a local file for the duration of the block.

        Yields:
            The file, and the number of the page in it. None: the image of a list, which has one page.

        Raises:
            PageFailure: Not found, unreadable, or no such page: a fault of this row or file.
            StorageError: The dataset cannot be read.
            DiskError: The local disk is full.
        """
        path = self._cache.folder.path / f"{secrets.token_hex(16)}.image"
        try:
            group = await asyncio.get_running_loop().run_in_executor(self._threads, self._groups.of, address)
            first = RowAddress(address.file, group.first, address.column)  # represents the group
            place = address.row - group.first
            async with self._cache.open(first.url, address.file.commit) as copy:
                reference, has_list = await asyncio.to_thread(take_image, copy.path, place, number, address.row, path)
            number_there = None if has_list else number
            if not reference:
                yield path, number_there
                return
        finally:
            path.unlink(missing_ok=True)
        async with self._referred(address, reference) as path:
            yield path, number_there

    async def close(self) -> None:
        """Cancel the transfers and remove all files."""
        self._stop.set()
        await self._cache.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

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
        """Provide the file of the repository that a row references instead of containing an image."""
        if not address.file.repository:
            folder = Path(address.file.path).parent.resolve()
            found = (folder / reference).resolve()
            if not found.is_relative_to(folder) or not found.is_file():
                detail = f"row {address.row} has no image but names {reference}, which is not in the data file's folder"
                raise PageFailure(Reason.NOT_FOUND, detail)
            yield found
            return
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
