"""What planning reads of a data file: its footer, the lengths of lists of images, the ids. Never an image."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from llm_ocr.documents.rows.address import DataFile
from llm_ocr.documents.rows.columns import ImageColumn
from llm_ocr.documents.rows.files import HubFiles
from llm_ocr.errors import LlmOcrError, StorageError, UsageError


@dataclass(frozen=True, slots=True)
class RowGroup:
    """Rows of a file, the first of them its row `first`.

    `images`: how many each row has, None for one each. `ids`: None where the dataset gives none.
    """

    first: int
    count: int
    images: Sequence[int] | None = None
    ids: Sequence[str] | None = None


class Footer:
    """A data file, its footer read. Blocking; for one thread at a time; `close` at the end."""

    def __init__(self, files: HubFiles, file: DataFile) -> None:
        from pyarrow import ArrowException
        from pyarrow.parquet import ParquetFile

        self._file = file
        self._opened = files.open(file)
        try:
            self._parquet = ParquetFile(self._opened)
        except (LlmOcrError, ArrowException, OSError, ValueError) as error:
            self._opened.close()
            raise _damaged(file, error) from error

    def close(self) -> None:
        self._parquet.close()
        self._opened.close()

    @property
    def schema(self) -> Any:
        """Arrow's."""
        return self._parquet.schema_arrow

    def groups(self, column: ImageColumn, id_column: str | None) -> Iterator[RowGroup]:
        """All row groups in order. Raises `UsageError` for a file without these columns, and for rows without id."""
        self._check(column, id_column)
        first = 0
        metadata = self._parquet.metadata
        for number in range(metadata.num_row_groups):
            count = metadata.row_group(number).num_rows
            if count:
                images = self._images(number, column.name) if column.many else None
                ids = self._ids(number, id_column, first) if id_column is not None else None
                yield RowGroup(first, count, images, ids)
            first += count

    def _check(self, column: ImageColumn, id_column: str | None) -> None:
        import pyarrow as pa

        names = self.schema.names
        for setting, name in (("--image-column", column.name), ("--id-column", id_column)):
            if name is not None and name not in names:
                hint = f"Columns: {', '.join(names)}."
                raise UsageError(f"{setting} {name}: there is no such column in {self._file.url}", hint=hint)
            if name is not None and names.count(name) > 1:
                raise UsageError(f"{setting} {name}: {self._file.url} has several columns of that name")
        if id_column is None:
            return
        kind = self.schema.field(id_column).type
        is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
        if not (is_text or pa.types.is_integer(kind)):
            raise UsageError(f"--id-column {id_column}: it holds {kind}, neither text nor whole numbers")

    def _images(self, number: int, column: str) -> list[int] | None:
        """How many images each row has; None when it is one each.

        A row without images stands there as one value, too: it turns out when it is read.
        """
        import pyarrow.compute as pc

        group = self._parquet.metadata.row_group(number)
        every = (group.column(place) for place in range(group.num_columns))
        leaves = [leaf for leaf in every if leaf.path_in_schema.startswith(f"{column}.")]
        smallest = min(leaves, key=lambda leaf: leaf.total_compressed_size)
        if smallest.num_values == group.num_rows:
            return None
        lists = self._read(number, smallest.path_in_schema)
        return [length or 0 for length in pc.list_value_length(lists).to_pylist()]

    def _ids(self, number: int, column: str, first: int) -> list[str]:
        ids = ["" if value is None else str(value) for value in self._read(number, column).to_pylist()]
        empty = next((place for place, value in enumerate(ids) if not value.strip()), None)
        if empty is not None:
            raise UsageError(
                f"--id-column {column}: row {first + empty} of {self._file.url} has no id",
                hint="Name a column with an id in each row, or none: ids are made of commit, file and row then.",
            )
        return ids

    def _read(self, number: int, path: str) -> Any:
        """The one column of the row group to which the leaf at `path` belongs."""
        from pyarrow import ArrowException

        try:
            return self._parquet.read_row_group(number, columns=[path], use_threads=False).column(0)
        except (ArrowException, OSError, ValueError) as error:
            raise _damaged(self._file, error) from error


def _damaged(file: DataFile, error: Exception) -> Exception:
    """An error of ours stays what it is."""
    if isinstance(error, LlmOcrError):
        return error
    said = str(error).strip().partition("\n")[0]
    return StorageError(f"{file.url} cannot be read as Parquet: {said}", hint="Name a revision in which it is whole.")
