"""Read data files of datasets: image columns and footers."""

import contextlib
import io
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow.parquet import ParquetFile

from llm_ocr.documents.files import is_one_page
from llm_ocr.documents.rows import DataFile, local_version
from llm_ocr.errors import LlmOcrError, ObjectNotFound, PageFailure, StorageError, UsageError
from llm_ocr.storage import StoreOptions
from llm_ocr.storage.hf import Place
from llm_ocr.storage.hf.client import RETRIES, HubClient
from llm_ocr.types import Reason

if TYPE_CHECKING:
    from huggingface_hub import HfFileSystem


@dataclass(frozen=True, slots=True)
class ImageColumn:
    """Image column; `many`: each row has a list of images."""

    name: str
    many: bool


def image_column(schema: pa.Schema, features: Mapping[str, Any] | None, wanted: str | None, where: str) -> ImageColumn:
    """Return the requested column, or the only one with images.

    Args:
        schema: Arrow schema of a data file.
        features: Features from the dataset's card, if present.
        wanted: Name of the column; None: find it.
        where: Name of the dataset for errors.

    Raises:
        UsageError: The column is missing or ambiguous; the error names the candidates.
    """
    # Arrow returns no column by an ambiguous name
    several = {name for name, count in Counter(schema.names).items() if count > 1}
    shapes = {field.name: shape for field in schema if field.name not in several and (shape := _shape(field.type))}
    # The features of the card or of the file decide, and the types of the values for undeclared columns.
    declared = {**_stored_features(schema), **(features or {})}
    likely = [
        name
        for name in shapes
        if (_is_image(declared[name]) if name in declared else _has_structs(schema.field(name).type))
    ]
    hint = f"Columns: {', '.join(schema.names)}. For a column with bytes of images, set `image_column`."
    if likely:
        hint = f"Columns with images: {', '.join(likely)}."
    if wanted is not None:
        problem = ""
        if wanted not in schema.names:
            problem = f"{where} has no such column"
        elif wanted in several:
            problem = f"{where} has several columns of this name"
        elif wanted not in shapes:
            problem = f"the column is {schema.field(wanted).type}, not images"
        if problem:
            raise UsageError(f"`image_column={wanted}`: {problem}", hint=hint)
        return ImageColumn(wanted, shapes[wanted] == "many")
    if len(likely) == 1:
        return ImageColumn(likely[0], shapes[likely[0]] == "many")
    if likely:
        raise UsageError(f"{where} has several columns with images: {', '.join(likely)}", hint="Set `image_column`.")
    raise UsageError(f"{where} has no column with images", hint=hint)


def _stored_features(schema: pa.Schema) -> Mapping[str, Any]:
    """Return the column features that `datasets` stored in the file."""
    if b"huggingface" not in (schema.metadata or {}):
        return {}
    from datasets import Features

    try:
        return dict(Features.from_arrow_schema(schema))
    except (TypeError, ValueError, KeyError, AttributeError):
        return {}  # from another release: the values decide


def _is_image(feature: Any) -> bool:
    """Return whether the feature is of images or PDFs, or of lists of them."""
    from datasets import Image, Pdf

    if isinstance(feature, list):
        return len(feature) == 1 and _is_image(feature[0])
    if isinstance(feature, Image | Pdf):
        return True
    inner = getattr(feature, "feature", None)  # List, LargeList, and Sequence
    return inner is not None and not isinstance(inner, Mapping) and _is_image(inner)


def _has_structs(kind: pa.DataType) -> bool:
    return bool(pa.types.is_struct(kind.value_type if _is_list(kind) else kind))


def _shape(kind: pa.DataType) -> str:
    """Return `one`, `many`, or "" for other types: a struct with bytes, or bytes alone, is an image."""
    if _is_list(kind):
        return "many" if _shape(kind.value_type) == "one" else ""
    if pa.types.is_struct(kind):
        place = kind.get_field_index("bytes")
        if place < 0:
            return ""
        kind = kind.field(place).type
    is_bytes = pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind)
    return "one" if is_bytes else ""


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


class HubFiles:
    """Opener of data files, thread-safe. The first request occurs at the first file.

    Temporary failures are retried; `pause` implements the wait.
    """

    def __init__(self, pause: Callable[[float], object] | None = None) -> None:
        self._pause = pause or threading.Event().wait
        self._lock = threading.Lock()

    @cached_property
    def _system(self) -> "HfFileSystem":
        from huggingface_hub import HfFileSystem

        # Not the shared instance of this process: the cached listings are discarded with this object.
        return HfFileSystem(skip_instance_cache=True)

    def open(self, file: DataFile) -> io.RawIOBase:
        """Open the file for reading; each read fetches only its bytes.

        Raises:
            StorageError: The Hub failed; also raised by each read.
            ObjectNotFound: The file is missing.
            PageFailure: The file on this machine has changed since the plan.
        """
        if not file.repository:
            path = Path(file.path)
            try:
                if local_version(path) != file.commit:
                    raise PageFailure(Reason.SOURCE_CHANGED, f"{path} has changed since the plan")
                return path.open("rb", buffering=0)
            except FileNotFoundError as error:
                raise ObjectNotFound(f"no file {path}") from error
            except OSError as error:
                raise StorageError(f"cannot read {path}: {error.strerror or error}") from error
        client = HubClient(Place("dataset", file.repository, "", file.commit), StoreOptions(), RETRIES, self._pause)

        def opened() -> IO[bytes]:
            name = f"datasets/{file.repository}@{file.commit}/{file.path}"
            # One listing of the folder returns the sizes of all its files; parallel threads would each request it.
            with self._lock:
                try:
                    made: IO[bytes] = self._system.open(name, "rb", cache_type="none")
                except FileNotFoundError as error:
                    if error.__cause__ is None:  # otherwise the repository or the commit is missing
                        raise ObjectNotFound(f"no object {file.url}") from error
                    raise
            return made

        return _RemoteFile(client.ask("read", file.path, opened, reading=True), client, file.path)


class _RemoteFile(io.RawIOBase):
    """Remote file whose reads are retried and raise this library's errors."""

    def __init__(self, file: IO[bytes], client: HubClient, path: str) -> None:
        self._file = file
        self._client = client
        self._path = path

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return self._file.seek(offset, whence)

    def read(self, size: int = -1) -> bytes:
        return self._client.ask("read", self._path, lambda: self._file.read(size), reading=True)

    def close(self) -> None:
        self._file.close()
        super().close()


@dataclass(frozen=True, slots=True)
class RowGroup:
    """Rows of a file that start at row `first`.

    `images`: number per row, None for one each. `ids`: None if the dataset has no ids. `one_page`: whether the names
    of the rows' files say that each has one page.
    """

    first: int
    count: int
    images: Sequence[int] | None = None
    ids: Sequence[str] | None = None
    one_page: bool = False


def row_groups(files: HubFiles, file: DataFile, column: ImageColumn, id_column: str | None) -> Iterator[RowGroup]:
    """Yield the row groups of a file in order, without reading its images. Blocking.

    Raises:
        UsageError: A column is missing, or a row has no id.
        StorageError: The file is missing or damaged.
    """
    with opened_for_planning(files, file) as parquet:
        _check_columns(file, parquet.schema_arrow, column.name, id_column)

        def read(number: int, path: str) -> Any:
            """Return the column of the row group that contains the leaf at `path`."""
            with decoding(file, _damaged):
                return parquet.read_row_group(number, columns=[path], use_threads=False).column(0)

        first = 0
        for number in range(parquet.metadata.num_row_groups):
            group = parquet.metadata.row_group(number)
            if group.num_rows:
                leaves = [group.column(place) for place in range(group.num_columns)]
                images = _images(group, leaves, column.name, partial(read, number)) if column.many else None
                ids = None
                if id_column is not None:
                    ids = ["" if value is None else str(value) for value in read(number, id_column).to_pylist()]
                    empty = next((place for place, value in enumerate(ids) if not value.strip()), None)
                    if empty is not None:
                        raise UsageError(
                            f"`id_column={id_column}`: row {first + empty} of {file.url} has no id",
                            hint="Name a column with an id in each row, or none: ids then consist of commit, file, and "
                            "row.",
                        )
                # Whether the first and the last name of the rows' files, which the footer has, are of images.
                names = next((leaf.statistics for leaf in leaves if leaf.path_in_schema == f"{column.name}.path"), None)
                one_page = (
                    names is not None
                    and names.has_min_max
                    and names.null_count == 0
                    and all(isinstance(name, str) and is_one_page(name) for name in (names.min, names.max))
                )
                yield RowGroup(first, group.num_rows, images, ids, one_page)
            first += group.num_rows


#: Returns the error for a damaged file, from a sentence about it.
Fault = Callable[[str], LlmOcrError]


@contextlib.contextmanager
def opened_for_planning(files: HubFiles, file: DataFile) -> Iterator[ParquetFile]:
    """Open a file to read its footer. Raises `StorageError` for a missing or damaged file."""
    with files.open(file) as raw, parquet_file(raw, file, _damaged) as parquet:
        yield parquet


@contextlib.contextmanager
def parquet_file(raw: io.RawIOBase, file: DataFile, fault: Fault, **how: Any) -> Iterator[ParquetFile]:
    """Read an opened file as Parquet; `how` are further arguments of `ParquetFile`."""
    with decoding(file, fault):
        # Not `pre_buffer`, which loads the columns of a whole row group into memory.
        parquet = ParquetFile(raw, pre_buffer=False, **how)
    with parquet:
        yield parquet


@contextlib.contextmanager
def decoding(file: DataFile, fault: Fault) -> Iterator[None]:
    """Raise `fault` for a damaged file; this library's errors are unchanged."""
    try:
        yield
    except LlmOcrError:
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise fault(f"{file.url} cannot be read as Parquet: {reason}") from error


def _damaged(detail: str) -> LlmOcrError:
    return StorageError(detail, hint="Name a revision with an intact file.")


def _check_columns(file: DataFile, schema: pa.Schema, image_column: str, id_column: str | None) -> None:
    names = schema.names
    for setting, name in (("image_column", image_column), ("id_column", id_column)):
        if name is not None and name not in names:
            hint = f"Columns: {', '.join(names)}."
            raise UsageError(f"`{setting}={name}`: {file.url} has no such column", hint=hint)
        if name is not None and names.count(name) > 1:
            raise UsageError(f"`{setting}={name}`: {file.url} has several columns of this name")
    if id_column is not None:
        kind = schema.field(id_column).type
        is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
        if not (is_text or pa.types.is_integer(kind)):
            raise UsageError(f"`id_column={id_column}`: the column has {kind}, neither text nor whole numbers")


def _images(group: Any, leaves: Sequence[Any], column: str, read: Callable[[str], Any]) -> list[int] | None:
    """Return the number of images per row; None for one each.

    A row without images also counts as one value here; the reader detects it.
    """
    import pyarrow.compute as pc

    own = [leaf for leaf in leaves if leaf.path_in_schema.startswith(f"{column}.")]
    smallest = min(own, key=lambda leaf: leaf.total_compressed_size)
    if smallest.num_values == group.num_rows:
        return None
    return [length or 0 for length in pc.list_value_length(read(smallest.path_in_schema)).to_pylist()]
