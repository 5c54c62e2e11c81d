"""Shards of an exported dataset: row groups of the workspace's dataset files, without dropped documents."""

import contextlib
import hashlib
import json
import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llm_ocr.errors import StorageError
from llm_ocr.results.balance import is_balanced
from llm_ocr.results.dataset import GROUP_BYTES, GROUP_ROWS
from llm_ocr.results.schema import RangeFile, open_writer
from llm_ocr.storage.local import translated
from llm_ocr.types import Ledger, Status

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq


#: Columns that decide whether a document is dropped, and whether a page is left out; files of older versions may lack
#: the last ones.
_BALANCE = ("status", "ink", "unread_share", "unsupported_share")
_JUDGED = ("document_id", "source", "reason", "is_fallback", *_BALANCE)


# Assignment of the workspace's dataset files, or their row groups, to shards. It depends only on the workspace's
# content: the same state gives the same shards with the same names, and a change renames only the affected shards.


#: Increased when the same parts give other bytes.
EXPORT_VERSION = 1

#: Prefix of the names of shards. Their number follows, so that readers keep the plan's order.
PREFIX = "data/train-"
#: Matches all shards of an export, and no files of other tools (`data/train-00000-of-00001.parquet`).
GLOB = f"{PREFIX}*-{'?' * 16}.parquet"

_SHARD = re.compile(r"data/train-\d{5,}-[0-9a-f]{16}\.parquet")


@dataclass(frozen=True, slots=True)
class Source:
    """Dataset file of the workspace: `size` in bytes, `version` the store's token, `rows` those that are kept.

    `content` identifies the content, wherever the workspace is. With `most`, documents with a larger share (0..1) of
    bad pages are dropped. With `balanced`, pages that are not balanced are left out. `content` identifies both.
    `sha256` is the expected hash of the whole file, if known. The export names sources on this machine relative to
    `folder`, if it is not empty.
    """

    key: str
    size: int
    content: str
    version: str
    most: float | None = None
    sha256: str = ""
    folder: str = ""
    balanced: bool = False
    rows: int = 0


def relative_source(source: str, folder: str) -> str:
    """Return a source on this machine as a path relative to a folder, if there is one; others are unchanged."""
    path = source.removeprefix("file://")  # of rows: file:///folder/rows.parquet@column/3
    return os.path.relpath(path, folder) if folder and path.startswith("/") else source


@dataclass(frozen=True, slots=True)
class Part:
    """File, whole or (`groups`: first and end) a range of its row groups, with about `size` bytes."""

    source: Source
    size: int
    groups: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Shard:
    """File of an exported dataset, at its position in the order."""

    index: int
    parts: tuple[Part, ...]

    @property
    def size(self) -> int:
        """Approximate size of the file in bytes."""
        return sum(part.size for part in self.parts)

    @property
    def name(self) -> str:
        """File name, `data/train-00007-<16 hex digits of its content>.parquet`."""
        about = [EXPORT_VERSION, [(part.source.content, part.groups) for part in self.parts]]
        return f"{PREFIX}{self.index:05d}-{hashlib.sha256(json.dumps(about).encode()).hexdigest()[:16]}.parquet"


def is_shard(key: str) -> bool:
    """Return whether a file name is that of a shard."""
    return _SHARD.fullmatch(key) is not None


def cut(sources: Iterable[Source], size: int, group_sizes: Callable[[Source], Sequence[int]]) -> Iterator[Shard]:
    """Yield shards of at most `size` bytes, in the order of the files; larger only for a larger row group.

    `group_sizes` returns the bytes of each row group of a file; it is called for files above the size of a shard.
    """
    index, waiting, total = 0, list[Part](), 0
    for source in sources:
        whole = source.size <= size
        for part in [Part(source, source.size)] if whole else _divided(source, size, group_sizes(source)):
            if waiting and total + part.size > size:
                yield Shard(index, tuple(waiting))
                index, waiting, total = index + 1, [], 0
            waiting.append(part)
            total += part.size
    if waiting:
        yield Shard(index, tuple(waiting))


def _divided(source: Source, size: int, groups: Sequence[int]) -> Iterator[Part]:
    first, total = 0, 0
    for number, group in enumerate(groups):
        if number > first and total + group > size:
            yield Part(source, total, (first, number))
            first, total = number, 0
        total += group
    yield Part(source, total, (first, len(groups)))


# Writing of a shard from row groups of the workspace's dataset files. Small row groups are joined. Memory holds a few
# row groups, whatever the sizes of files and shards.


#: Returns a range of a file by key, first byte, and length.
Read = Callable[[str, int, int], bytes]


class UnreadableFile(StorageError):
    """A dataset file of the workspace, `key`, is not a Parquet file."""

    def __init__(self, key: str, why: str) -> None:
        super().__init__(
            f"cannot read the dataset file {key} of the workspace: {why}",
            hint="The file is damaged. Remove it, run Assemble again, and then export again.",
        )
        self.key = key


def group_sizes(read: Read, source: Source) -> list[int]:
    """Return the bytes of each row group of a file.

    Raises:
        StorageError: the file is not a Parquet file.
    """
    sizes = []
    with _opened(read, source) as file:
        for number in range(file.metadata.num_row_groups):
            group = file.metadata.row_group(number)
            columns = [group.column(place) for place in range(group.num_columns)]
            starts = [one.dictionary_page_offset or one.data_page_offset for one in columns]
            ends = [start + one.total_compressed_size for start, one in zip(starts, columns, strict=True)]
            sizes.append(max(ends) - min(starts))
    return sizes


def excluded_of(read: Read, source: Source) -> tuple[list[dict[str, Any]], int]:
    """Return what `most` and `balanced` of a file exclude.

    A dataset file has whole documents, so each file is judged separately, by small columns.

    Returns:
        `document_id`, `source`, `pages`, `failed`, `error_rate`, and `reasons` of each document that is dropped, in the
        order of the file; and the number of pages of other documents that are left out.

    Raises:
        StorageError: the file is not a Parquet file.
    """
    documents: dict[str, list[dict[str, Any]]] = defaultdict(list)
    with _opened(read, source) as file:
        names = [name for name in _JUDGED if name in file.schema_arrow.names]
        for row in file.read(columns=names, use_threads=False).to_pylist():
            documents[row["document_id"]].append(row)
    found = []
    pages = 0
    for document, rows in documents.items():
        failed = [row["status"] == Status.FAILED.value for row in rows]
        rate = sum(fails or bool(row.get("is_fallback")) for fails, row in zip(failed, rows, strict=True)) / len(rows)
        if source.most is not None and rate > source.most:
            found.append(
                {
                    "document_id": document,
                    "source": relative_source(rows[0]["source"], source.folder),
                    "pages": len(rows),
                    "failed": sum(failed),
                    "error_rate": round(rate, 6),
                    "reasons": sorted({row["reason"] for row in rows if row["reason"]}),
                }
            )
        elif source.balanced:
            pages += sum(not _balances(row) for row in rows)
    return found, pages


def _balances(row: Mapping[str, Any]) -> bool:
    ink = row.get("ink")
    ledger = None if ink is None else Ledger(ink, row["unread_share"], row["unsupported_share"])
    return is_balanced(Status(row["status"]), ledger)


def write_shard(path: Path, parts: Iterable[Part], read: Read) -> int:
    """Write the parts' rows in row groups of at most 100 rows and about 100 MB; return the number of rows.

    Raises:
        StorageError: reading or writing failed.
    """
    rows = 0
    with translated("write", str(path), temporary=True), contextlib.ExitStack() as stack:
        writer: pq.ParquetWriter | None = None
        for table in _joined(table for part in parts for table in _tables(read, part)):
            writer = writer or stack.enter_context(open_writer(path, table.schema))
            writer.write_table(table)
            rows += table.num_rows
    return rows


def _joined(tables: Iterable["pa.Table"]) -> Iterator["pa.Table"]:
    """Yield the row groups of the shard."""
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
    import pyarrow as pa

    dropped, _ = excluded_of(read, part.source) if part.source.most is not None else ([], 0)
    ids = frozenset(one["document_id"] for one in dropped)
    with _opened(read, part.source) as file:
        for number in range(*(part.groups or (0, file.metadata.num_row_groups))):
            table = file.read_row_group(number, use_threads=False)  # threads of Arrow can abort an exiting process
            if part.source.folder:
                place = table.schema.get_field_index("source")
                column = table.schema.field(place)
                named = [relative_source(one, part.source.folder) for one in table["source"].to_pylist()]
                table = table.set_column(place, column, pa.array(named, column.type))
            kept = [document not in ids for document in table["document_id"].to_pylist()]
            if part.source.balanced:
                names = [name for name in _BALANCE if name in table.column_names]
                kept = [k and _balances(row) for k, row in zip(kept, table.select(names).to_pylist(), strict=True)]
            yield table if all(kept) else table.filter(pa.array(kept, pa.bool_()))


@contextlib.contextmanager
def _opened(read: Read, source: Source) -> Iterator["pq.ParquetFile"]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        yield pq.ParquetFile(RangeFile(partial(read, source.key), source.size), pre_buffer=False)
    except (pa.ArrowException, EOFError) as error:
        raise UnreadableFile(source.key, str(error)) from error
