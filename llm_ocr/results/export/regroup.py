"""A shard of an exported dataset, made of row groups of the workspace's dataset files.

Files are read a row group at a time, by one range each, and small row groups are joined. So memory holds some row
groups, whatever the sizes of files and shards.
"""

import contextlib
import io
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llm_ocr.errors import StorageError
from llm_ocr.results.dataset import GROUP_BYTES, GROUP_ROWS
from llm_ocr.results.export.dropping import COLUMNS, bad_documents, without
from llm_ocr.results.export.shards import Part, Source
from llm_ocr.results.parquet import open_writer
from llm_ocr.storage.local_errors import translated

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

#: Gives a range of a file: its key, the first byte, how many.
Read = Callable[[str, int, int], bytes]


class RangeFile(io.RawIOBase):
    """An object as a file to read from; inside the range that was fetched last nothing is asked for again."""

    def __init__(self, read: Read, source: Source) -> None:
        super().__init__()
        self._read_range = read
        self._source = source
        self._at = 0
        self._begin = 0
        self._held = b""

    def fetch(self, start: int, length: int) -> None:
        """Read this range now, and hold it instead of the one before."""
        self.drop()
        self._begin, self._held = start, self._read_range(self._source.key, start, length)

    def drop(self) -> None:
        """Hold nothing."""
        self._held = b""

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._source.size}[whence]
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        left = max(0, self._source.size - self._at)
        wanted = left if size is None or size < 0 else min(size, left)
        start = self._at - self._begin
        if start < 0 or start + wanted > len(self._held):
            self.fetch(self._at, wanted)
            start = 0
        self._at += wanted
        return self._held[start : start + wanted]


class UnreadableFile(StorageError):
    """A dataset file of the workspace, `key`, is no Parquet file."""

    def __init__(self, key: str, why: str) -> None:
        super().__init__(
            f"cannot read the dataset file {key} of the workspace: {why}",
            hint="It is damaged. Remove it and run `llm-ocr assemble`, which writes it again; then export again.",
        )
        self.key = key


def group_sizes(read: Read, source: Source) -> list[int]:
    """The bytes of each row group of a file. Raises `StorageError` for what is no Parquet file."""
    with _opened(read, source) as (_, file):
        return [_span(file, number)[1] for number in range(file.metadata.num_row_groups)]


def bad_documents_of(read: Read, source: Source, most: float) -> list[dict[str, Any]]:
    """The documents of a file with a larger share (0..1) of bad pages than `most`; see `dropping.bad_documents`.

    Raises `StorageError` for what is no Parquet file.
    """
    with _opened(read, source) as (_, file):
        names = [name for name in COLUMNS if name in file.schema_arrow.names]
        return bad_documents(file.read(columns=names, use_threads=False), most)


def write_shard(path: Path, parts: Iterable[Part], read: Read) -> int:
    """Write the parts' rows to a file, in row groups of at most 100 rows and about 100 MB; the number of rows.

    Raises `StorageError`.
    """
    rows = 0
    with translated("write", str(path)), contextlib.ExitStack() as stack:
        writer: pq.ParquetWriter | None = None
        for table in _joined(table for part in parts for table in _tables(read, part)):
            writer = writer or stack.enter_context(open_writer(path, table.schema))
            writer.write_table(table)
            rows += table.num_rows
    return rows


def _joined(tables: Iterable["pa.Table"]) -> Iterator["pa.Table"]:
    """Row groups of the shard."""
    import pyarrow as pa

    waiting: list[pa.Table] = []
    rows = size = 0
    for table in tables:
        if waiting and (rows + table.num_rows > GROUP_ROWS or size + table.nbytes > GROUP_BYTES):
            yield pa.concat_tables(waiting)
            waiting, rows, size = [], 0, 0
        waiting.append(table)
        rows, size = rows + table.num_rows, size + table.nbytes
    if waiting:
        yield pa.concat_tables(waiting)


def _tables(read: Read, part: Part) -> Iterator["pa.Table"]:
    most = part.source.most
    dropped = None if most is None else bad_documents_of(read, part.source, most)
    ids = frozenset(one["document_id"] for one in dropped or ())
    with _opened(read, part.source) as (ranges, file):
        for number in range(*(part.groups or (0, file.metadata.num_row_groups))):
            ranges.fetch(*_span(file, number))
            table = file.read_row_group(number, use_threads=False)  # Arrow's own may abort a process that ends
            ranges.drop()
            yield without(table, ids) if ids else table


@contextlib.contextmanager
def _opened(read: Read, source: Source) -> Iterator[tuple[RangeFile, "pq.ParquetFile"]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    ranges = RangeFile(read, source)
    try:
        yield ranges, pq.ParquetFile(ranges)
    except (pa.ArrowException, EOFError) as error:
        raise UnreadableFile(source.key, str(error)) from error


def _span(file: "pq.ParquetFile", number: int) -> tuple[int, int]:
    """The first byte of a row group and how many there are."""
    group = file.metadata.row_group(number)
    columns = [group.column(place) for place in range(group.num_columns)]
    start = min(one.dictionary_page_offset or one.data_page_offset for one in columns)
    end = max((one.dictionary_page_offset or one.data_page_offset) + one.total_compressed_size for one in columns)
    return start, end - start
