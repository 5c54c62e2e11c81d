"""Parquet mechanics: how tables are written and read so that images cost nothing to those who do not want them.

Image bytes are stored uncompressed (they are PNG, JPEG or WebP already) and without statistics, in columns of their own
at the end of each row group. So a reader that asks for other columns never touches them, and one that asks for figures
reads one contiguous range.
"""

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from llm_ocr.errors import StorageError, WorkspaceMismatch
from llm_ocr.processes.memory import give_back_memory

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

#: The whole file, or a seekable file of which only the wanted ranges are read.
Source = bytes | BinaryIO

#: Format number of the stage results of this version; readers refuse newer ones.
FORMAT = 1
_FORMAT_KEY = b"llm_ocr.format"
_KIND_KEY = b"llm_ocr.kind"

# pyarrow looks at the size of a data page only after this many values: with its own default of 1,024 all images of a
# file end up in one page, whose size Parquet limits to 2 GiB.
_VALUES_PER_CHECK = 8
_ROWS_PER_BATCH = 16


def with_format(schema: "pa.Schema", kind: str) -> "pa.Schema":
    """The schema with the format number and the kind of row in its metadata."""
    return schema.with_metadata({_FORMAT_KEY: str(FORMAT).encode(), _KIND_KEY: kind.encode()})


def leaf_columns(schema: "pa.Schema") -> list[str]:
    """The paths under which Parquet knows the values of the schema, `figure_images.list.element.bytes` for example."""
    return [path for field in schema for path in _leaves(field.name, field.type)]


def _leaves(path: str, kind: "pa.DataType") -> Iterator[str]:
    import pyarrow as pa

    if pa.types.is_struct(kind):
        for child in kind:
            yield from _leaves(f"{path}.{child.name}", child.type)
    elif pa.types.is_list(kind):
        yield from _leaves(f"{path}.list.element", kind.value_type)
    else:
        yield path


def open_writer(where: Path | BinaryIO, schema: "pa.Schema") -> "pq.ParquetWriter":
    """A writer that compresses all columns but image bytes; `where` is a path or a binary file."""
    import pyarrow.parquet as pq

    leaves = leaf_columns(schema)
    light = [leaf for leaf in leaves if not leaf.endswith(".bytes")]
    return pq.ParquetWriter(
        where,
        schema,
        compression={leaf: "ZSTD" if leaf in light else "NONE" for leaf in leaves},
        use_dictionary=light,
        write_statistics=light,
        write_batch_size=_VALUES_PER_CHECK,
    )


def table_bytes(schema: "pa.Schema", rows: Sequence[Mapping[str, object]]) -> bytes:
    """A Parquet file in memory, in row groups of a few pages: Arrow's copy of the images is then never that of all."""
    import pyarrow as pa

    buffer = io.BytesIO()
    with open_writer(buffer, schema) as writer:
        for start in range(0, len(rows), _ROWS_PER_BATCH):
            writer.write_table(pa.Table.from_pylist(rows[start : start + _ROWS_PER_BATCH], schema=schema))
    return buffer.getvalue()


def release_memory() -> None:
    """Hand back what Arrow keeps for its next table, and what is free beside it."""
    import pyarrow as pa

    pa.default_memory_pool().release_unused()
    give_back_memory()


def iter_rows(source: Source, kind: str, columns: Iterable[str]) -> Iterator[dict[str, Any]]:
    """The rows as dictionaries, reading those columns only.

    Raises `WorkspaceMismatch` for a newer format and `StorageError` for anything that is no such file.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(io.BytesIO(source) if isinstance(source, bytes) else source)
        _check(file.schema_arrow.metadata or {}, kind)
        # Without threads of Arrow: one that still runs when the process ends may abort it.
        for batch in file.iter_batches(batch_size=_ROWS_PER_BATCH, columns=list(columns), use_threads=False):
            yield from batch.to_pylist()
    except (pa.ArrowException, EOFError) as error:
        raise StorageError(
            f"cannot read a result file of the workspace: {error}",
            hint="The object is damaged. Delete it together with its .done marker and run the stage again.",
        ) from error


def _check(metadata: Mapping[bytes, bytes], kind: str) -> None:
    number = metadata.get(_FORMAT_KEY, b"").decode("ascii", "replace")
    if not number.isdecimal() or metadata.get(_KIND_KEY) != kind.encode():
        raise StorageError(f"expected a Parquet file with {kind} written by llm_ocr, found another Parquet file")
    if int(number) > FORMAT:
        raise WorkspaceMismatch(
            f"the result has format {number}, this version reads up to format {FORMAT}",
            hint="Install the version of llm-ocr that wrote the workspace, or a newer one.",
        )
