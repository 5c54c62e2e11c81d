"""The rows of an input's files: Arrow files mapped from the local disk, Parquet files there or by ranges.

Of a dataset on a store at most one file is on the local disk at a time; in memory are the rows that are asked for.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from llm_ocr.api.import_source import InputDataset, InputFile
from llm_ocr.errors import StorageError, UsageError
from llm_ocr.results.ranges import ObjectFile
from llm_ocr.storage.local import LocalStore

#: Columns of the predecessor's datasets that are taken over.
ID, IMAGE, MARKDOWN = "sample_id", "source_image", "document_markdown"
FIGURES, METADATA = "extracted_figures", "extracted_figures_metadata"
_COLUMNS = (ID, IMAGE, MARKDOWN, FIGURES, METADATA)
#: Without these there is nothing to take over.
_NEEDED = (IMAGE, MARKDOWN)

#: Rows with images that are made Python objects at a time, and rows without.
_HEAVY, _LIGHT = 8, 512
#: Bytes that are read ahead of what is decoded.
_AHEAD = 1 << 20

Row = Mapping[str, Any]


class _Rows(Protocol):
    """An opened file."""

    @property
    def names(self) -> Sequence[str]: ...

    def read(self, columns: Sequence[str], start: int, stop: int | None, most: int) -> Iterator[list[dict[str, Any]]]:
        """Rows from `start` to before `stop` (None: all), at most `most` at a time."""

    def close(self) -> None: ...


class InputRows:
    """Reads an input's files. For one thread at a time; a context manager that removes the local copy."""

    def __init__(self, dataset: InputDataset, folder: Path) -> None:
        """`folder` is where the local copy goes."""
        self._dataset = dataset
        self._copy = folder / "input-file"
        self._copied = ""
        self._open: tuple[str, _Rows] | None = None

    def __enter__(self) -> "InputRows":
        return self

    def __exit__(self, *_: object) -> None:
        self._close()
        self._copy.unlink(missing_ok=True)

    def texts(self, file: InputFile) -> Iterator[list[dict[str, Any]]]:
        """Ids and figures' metadata of all rows, some hundred at a time; images are not touched.

        Raises `UsageError` when the file has not the columns of the predecessor, `StorageError` when it is damaged.
        """
        rows = self._opened(file, whole=False)
        with _as_storage_error(self._dataset, file):
            yield from rows.read(_known(rows, (ID, METADATA)), 0, None, _LIGHT)

    def rows(self, file: InputFile, start: int, stop: int) -> Iterator[dict[str, Any]]:
        """Rows with all that is taken over; errors as in `texts`."""
        opened = self._opened(file, whole=True)
        with _as_storage_error(self._dataset, file):
            for batch in opened.read(_known(opened, _COLUMNS), start, stop, _HEAVY):
                yield from batch

    def _opened(self, file: InputFile, *, whole: bool) -> _Rows:
        """The file, fetched first unless ranges of it are enough."""
        parquet = file.key.endswith(".parquet")
        remote = not isinstance(self._dataset.store, LocalStore)
        by_ranges = parquet and remote and not whole
        name = f"{file.key}#" if by_ranges else file.key
        if self._open is not None and self._open[0] == name:
            return self._open[1]
        self._close()
        with _as_storage_error(self._dataset, file):
            if by_ranges:
                rows: _Rows = _Parquet(ObjectFile(self._dataset.store, file.key))
            else:
                rows = (_Parquet if parquet else _Arrow)(self._local(file))
        self._open = (name, rows)
        _check(self._dataset, file, rows.names)
        return rows

    def _local(self, file: InputFile) -> Path:
        store = self._dataset.store
        if isinstance(store, LocalStore):
            return store.root / file.key
        if self._copied != file.key:
            self._copied = ""
            store.download(file.key, self._copy)
            info = store.stat(file.key)
            if info is None or info.version != file.version:
                raise StorageError(
                    f"{self._dataset.name(file)} was changed while it was read",
                    hint="Wait until nothing writes to the dataset any more, then run the same command again.",
                )
            self._copied = file.key
        return self._copy

    def _close(self) -> None:
        # Taken first: a thread that an error has left behind may be closing it, too.
        opened, self._open = self._open, None
        if opened is not None:
            opened[1].close()


class _Arrow:
    """A stream of Arrow batches, mapped: a row costs memory when it is read."""

    def __init__(self, path: Path) -> None:
        import pyarrow as pa

        self._map = pa.memory_map(str(path))
        with pa.ipc.open_stream(self._map) as stream:
            self._table = stream.read_all()
        self.names = self._table.schema.names

    def read(self, columns: Sequence[str], start: int, stop: int | None, most: int) -> Iterator[list[dict[str, Any]]]:
        table = self._table.select(list(columns))
        end = table.num_rows if stop is None else min(stop, table.num_rows)
        for begin in range(start, end, most):
            yield table.slice(begin, min(most, end - begin)).to_pylist()

    def close(self) -> None:
        del self._table
        self._map.close()


class _Parquet:
    """A Parquet file, read row group by row group."""

    def __init__(self, source: "Path | ObjectFile") -> None:
        import pyarrow.parquet as pq

        mapped = isinstance(source, Path)
        where = str(source) if mapped else source
        self._file = pq.ParquetFile(where, memory_map=mapped, buffer_size=_AHEAD, pre_buffer=False)
        self.names = self._file.schema_arrow.names

    def read(self, columns: Sequence[str], start: int, stop: int | None, most: int) -> Iterator[list[dict[str, Any]]]:
        begin = 0
        for group in range(self._file.num_row_groups):
            rows = self._file.metadata.row_group(group).num_rows
            if begin + rows > start and (stop is None or begin < stop):
                yield from self._group(group, columns, start - begin, None if stop is None else stop - begin, most)
            begin += rows

    def _group(
        self, group: int, columns: Sequence[str], start: int, stop: int | None, most: int
    ) -> Iterator[list[dict[str, Any]]]:
        at = 0
        for batch in self._file.iter_batches(most, row_groups=[group], columns=list(columns)):
            first, last = max(0, start - at), batch.num_rows if stop is None else min(batch.num_rows, stop - at)
            at += batch.num_rows
            if first < last:
                yield batch.slice(first, last - first).to_pylist()
            if stop is not None and at >= stop:
                return

    def close(self) -> None:
        self._file.close(force=True)


@contextlib.contextmanager
def _as_storage_error(dataset: InputDataset, file: InputFile) -> Iterator[None]:
    """What Arrow says of a damaged file, with its name."""
    import pyarrow as pa

    try:
        yield
    except StorageError:
        raise
    except (pa.ArrowException, OSError, EOFError, ValueError) as error:
        raise StorageError(
            f"{dataset.name(file)} cannot be read: {error}",
            hint="Its upload may have been cut off: upload it again, or run the predecessor's stage again.",
        ) from error


def _known(rows: _Rows, wanted: Sequence[str]) -> list[str]:
    return [name for name in wanted if name in rows.names]


def _check(dataset: InputDataset, file: InputFile, names: Sequence[str]) -> None:
    missing = [name for name in _NEEDED if name not in names]
    if missing:
        raise UsageError(
            f"{dataset.name(file)} is not of the predecessor's Extract: it has no column {missing[0]} "
            f"(it has {', '.join(names) or 'none'})",
            hint="A dataset whose rows hold page images is a source: llm-ocr run --dataset NS/NAME.",
        )
