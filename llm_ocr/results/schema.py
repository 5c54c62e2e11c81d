"""Read and write stage results as Parquet: one row per page or figure."""

import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from llm_ocr.config.environment import pyarrow_without_pandas
from llm_ocr.errors import StorageError, WorkspaceMismatch
from llm_ocr.results.markdown import clean
from llm_ocr.sandbox.memory import give_back_memory
from llm_ocr.types import (
    Block,
    BlockKind,
    Box,
    EncodedImage,
    FieldsRecord,
    Figure,
    FigureRecord,
    Ledger,
    PageRecord,
    Reason,
    Span,
    Status,
)

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq
    from _typeshed import WriteableBuffer


class RangeFile(io.RawIOBase):
    """File that is read by ranges, each by one request."""

    def __init__(self, read_range: Callable[[int, int], bytes], size: int) -> None:
        """Open the file without a request.

        Args:
            read_range: Returns a range of the file by its first byte and length.
            size: Size of the file in bytes.
        """
        self._read_range = read_range
        self._size = size
        self._position = 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Set the position, without a request, and return it."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(0, base + offset)
        return self._position

    def readinto(self, buffer: "WriteableBuffer") -> int:
        """Fill the buffer from the current position; return the number of bytes, 0 at the end."""
        view = memoryview(buffer).cast("B")
        length = min(len(view), self._size - self._position)
        if length <= 0:
            return 0
        data = self._read_range(self._position, length)
        view[: len(data)] = data
        self._position += len(data)
        return len(data)


# Tables whose images cost nothing to readers of other columns. Image bytes are stored uncompressed (they are PNG, JPEG,
# or WebP already) and without statistics. They are in their own columns at the end of each row group. A reader of other
# columns never fetches them, and a reader of figures reads one contiguous range.


#: The whole file, or a seekable file of which only the required ranges are read.
Source = bytes | BinaryIO

#: Format number of the stage results of this version; readers refuse newer formats.
FORMAT = 1
_FORMAT_KEY = b"llm_ocr.format"
_KIND_KEY = b"llm_ocr.kind"

# pyarrow checks the size of a data page only after this many values. With its default of 1,024, all images of a file
# are in one page, whose size Parquet limits to 2 GiB.
_VALUES_PER_CHECK = 8
_ROWS_PER_BATCH = 16


def with_format(schema: "pa.Schema", kind: str) -> "pa.Schema":
    """Return the schema with the format number and the kind of row in its metadata."""
    return schema.with_metadata({_FORMAT_KEY: str(FORMAT).encode(), _KIND_KEY: kind.encode()})


def _leaves(path: str, kind: "pa.DataType") -> Iterator[str]:
    """Yield Parquet's paths of the values of a column, for example `figure_images.list.element.bytes`."""
    import pyarrow as pa

    if pa.types.is_struct(kind):
        for child in kind:
            yield from _leaves(f"{path}.{child.name}", child.type)
    elif pa.types.is_list(kind):
        yield from _leaves(f"{path}.list.element", kind.value_type)
    else:
        yield path


def open_writer(where: Path | BinaryIO, schema: "pa.Schema") -> "pq.ParquetWriter":
    """Return a writer that compresses all columns except image bytes; `where` is a path or a binary file."""
    import pyarrow.parquet as pq

    pyarrow_without_pandas()
    leaves = [path for field in schema for path in _leaves(field.name, field.type)]
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
    """Return a Parquet file in small row groups, so that Arrow never copies all images at once."""
    import pyarrow as pa

    buffer = io.BytesIO()
    with open_writer(buffer, schema) as writer:
        for start in range(0, len(rows), _ROWS_PER_BATCH):
            writer.write_table(pa.Table.from_pylist(rows[start : start + _ROWS_PER_BATCH], schema=schema))
    return buffer.getvalue()


def release_memory() -> None:
    """Release memory that Arrow reserves for its next table, and other free memory."""
    import pyarrow as pa

    pa.default_memory_pool().release_unused()
    give_back_memory()


def iter_rows(source: Source, kind: str, columns: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Yield the rows as dictionaries with these columns only.

    Raises:
        WorkspaceMismatch: the file has a newer format.
        StorageError: the file is damaged or of another kind.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        # Without read-ahead and without threads of Arrow: a thread that outlives the interpreter can abort the process.
        file = pq.ParquetFile(io.BytesIO(source) if isinstance(source, bytes) else source, pre_buffer=False)
        metadata = file.schema_arrow.metadata or {}
        number = metadata.get(_FORMAT_KEY, b"").decode("ascii", "replace")
        if not number.isdecimal() or metadata.get(_KIND_KEY) != kind.encode():
            raise StorageError(f"expected a Parquet file with {kind} written by llm_ocr, found another Parquet file")
        if int(number) > FORMAT:
            raise WorkspaceMismatch(
                f"the result has format {number}, this version reads up to format {FORMAT}",
                hint="Install the version of llm-ocr that wrote the workspace, or a newer version.",
            )
        for batch in file.iter_batches(batch_size=_ROWS_PER_BATCH, columns=list(columns), use_threads=False):
            yield from batch.to_pylist()
    except (pa.ArrowException, EOFError) as error:
        raise StorageError(
            f"cannot read a result file of the workspace: {error}",
            hint="The object is damaged. Delete the object and its .done marker, and run the stage again.",
        ) from error


# Rows of Extract (one per page) and Describe (one per figure). Only this file defines their columns. Blocks and figures
# are lists of structs; attempts and notes are JSON texts, with keys of the engines. The images of a page and its
# figures are the last columns, as `{bytes, path}`, the form of `datasets`. `continued`, `described`, `notes`,
# `quality`, `quality_parts`, `invisible_chars`, and the columns of the ledger were added later: in files without them
# they are empty, or 0.


_PAGES, _FIGURES, _FIELDS = "pages", "figures", "fields"
_IMAGE_COLUMN, _FIGURE_IMAGES_COLUMN = "image", "figure_images"
# `getattr` reads the fields of these names, which are the columns.
BLOCK_TEXTS = ("text", "label", "figure_id", "inside", "caption", "described")
_CROP_TEXTS = ("id", "label", "caption", "inside", "described")
#: The same of `Ledger`, which are null for pages without a ledger.
LEDGER_TYPES: Mapping[str, str] = {
    "ink": "double",
    "unread_share": "double",
    "unsupported_share": "double",
    "furniture_share": "double",
    "verified_by": "string",
}
#: Columns of values in order, with their Arrow types, and those that are no plain fields of `PageRecord`.
_PAGE_TYPES = {
    "page_id": "string",
    "document_id": "string",
    "source": "string",
    "page_number": "int32",
    "dataset_index": "int64",
    "status": "string",
    "reason": "string",
    "detail": "string",
    "engine": "string",
    "text_source": "string",
    "rotation": "int32",
    "blank": "bool",
    "tokens_in": "int64",
    "tokens_out": "int64",
    "seconds": "double",
    "probe": "double",
    "attempts": "strings",
    "notes": "string",
    "quality": "double",
    "quality_parts": "string",
    "invisible_chars": "int32",
    **LEDGER_TYPES,
    "markdown": "string",
}
_CONVERTED = ("status", "reason", "attempts", "notes", "quality", "quality_parts", "invisible_chars", *LEDGER_TYPES)
_PLAIN_PAGE_COLUMNS = tuple(name for name in _PAGE_TYPES if name not in _CONVERTED)
_FIGURE_TEXTS = ("figure_id", "page_id", "document_id", "mode", "detail", "description", "data", "label", "engine")
_FIGURE_NUMBERS = {"tokens_in": "int64", "tokens_out": "int64", "seconds": "double"}

_FIGURE_TYPES = {**dict.fromkeys((*_FIGURE_TEXTS, "status", "reason"), "string"), **_FIGURE_NUMBERS}
#: Columns of Fields, whose values and fields are JSON texts.
_DOCUMENT_TYPES = {
    **dict.fromkeys(("document_id", "source", "status", "reason", "detail", "values", "fields", "engine"), "string"),
    **{"pages": "int32", "passages": "int32", **_FIGURE_NUMBERS},
}

_EXTENSIONS = {"image/png": "png", "image/jpeg": "jpg", "image/webp": "webp"}


class Images(StrEnum):
    """Image bytes to fetch. An omitted image has its size and media type, and empty `data`."""

    ALL = "all"
    FIGURES = "figures"
    NONE = "none"


def pages_to_parquet(records: Sequence[PageRecord]) -> bytes:
    """Encode a unit of Extract. Lone surrogates become U+FFFD; other values survive a round trip unchanged."""
    return table_bytes(_page_schema(), [_page_row(record) for record in records])


def pages_from_parquet(source: Source, *, images: Images) -> list[PageRecord]:
    """Return all rows of a unit of Extract; see `iter_pages`."""
    return list(iter_pages(source, images=images))


def iter_pages(source: Source, *, images: Images) -> Iterator[PageRecord]:
    """Yield the rows of a unit of Extract, a few at a time, with these image bytes.

    Raises:
        StorageError: the file is damaged.
        WorkspaceMismatch: the file has a newer format.
    """
    left_out = {
        Images.ALL: (),
        Images.FIGURES: (_IMAGE_COLUMN,),
        Images.NONE: (_IMAGE_COLUMN, _FIGURE_IMAGES_COLUMN),
    }[images]
    columns = [name for name in _page_schema().names if name not in left_out]
    for row in iter_rows(source, _PAGES, columns):
        yield _page_record(row)


def figures_to_parquet(records: Sequence[FigureRecord]) -> bytes:
    """Encode a unit of Describe."""
    rows = [{name: cleaned(getattr(record, name)) for name in _FIGURE_TYPES} for record in records]
    return table_bytes(_flat_schema(_FIGURES), rows)


def figures_from_parquet(source: Source) -> list[FigureRecord]:
    """Return all rows of a unit of Describe; errors as in `iter_pages`."""
    rows = iter_rows(source, _FIGURES, _flat_schema(_FIGURES).names)
    return [FigureRecord(**row | {"status": Status(row["status"]), "reason": _reason(row["reason"])}) for row in rows]


def fields_to_parquet(records: Sequence[FieldsRecord]) -> bytes:
    """Encode an item of Fields: one row per document."""
    rows = []
    for record in records:
        texts = {"values": json.dumps(record.values), "fields": json.dumps(record.fields)}
        rows.append({name: cleaned(getattr(record, name)) for name in _DOCUMENT_TYPES} | texts)
    return table_bytes(_flat_schema(_FIELDS), rows)


def fields_from_parquet(source: Source) -> list[FieldsRecord]:
    """Return all rows of an item of Fields; errors as in `iter_pages`."""
    found = []
    for row in iter_rows(source, _FIELDS, _flat_schema(_FIELDS).names):
        row |= {"status": Status(row["status"]), "reason": _reason(row["reason"])}
        row |= {"values": json.loads(row["values"]), "fields": tuple(json.loads(row["fields"]))}
        found.append(FieldsRecord(**row))
    return found


@cache
def _flat_schema(kind: str) -> "pa.Schema":
    """Return the columns of Describe or of Fields."""
    import pyarrow as pa

    types = {_FIGURES: _FIGURE_TYPES, _FIELDS: _DOCUMENT_TYPES}[kind]
    return with_format(pa.schema([(name, pa.type_for_alias(type_)) for name, type_ in types.items()]), kind)


@cache
def _page_schema() -> "pa.Schema":
    import pyarrow as pa

    box = pa.struct([(side, pa.float64()) for side in ("x0", "y0", "x1", "y1")])
    texts = [(name, pa.string()) for name in ("kind", *BLOCK_TEXTS)]
    block = pa.struct([*texts, ("level", pa.int32()), ("box", box), ("continued", pa.list_(box))])
    span = pa.struct([("block", pa.int32()), ("start", pa.int32()), ("end", pa.int32())])
    size = [("media_type", pa.string()), ("width", pa.int32()), ("height", pa.int32())]
    figure = pa.struct([*((name, pa.string()) for name in _CROP_TEXTS), ("box", box), *size])
    # large_binary: a unit's images may exceed the 2 GiB limit of an Arrow array of plain binary
    image = pa.struct([("bytes", pa.large_binary()), ("path", pa.string())])
    plain = [
        (name, pa.list_(pa.string()) if kind == "strings" else pa.type_for_alias(kind))
        for name, kind in _PAGE_TYPES.items()
    ]
    schema = pa.schema(
        [
            *plain,
            ("blocks", pa.list_(block)),
            ("figures", pa.list_(figure)),
            ("unread", pa.list_(box)),
            ("unsupported", pa.list_(span)),
            ("image_size", pa.struct(size)),
            (_FIGURE_IMAGES_COLUMN, pa.list_(image)),
            (_IMAGE_COLUMN, image),
        ]
    )
    return with_format(schema, _PAGES)


def _page_row(record: PageRecord) -> dict[str, object]:
    row: dict[str, object] = {name: getattr(record, name) for name in _PLAIN_PAGE_COLUMNS}
    row |= ledger_values(record.ledger)
    row |= {
        "status": record.status.value,
        "reason": record.reason and record.reason.value,
        "attempts": [json.dumps(dict(attempt), ensure_ascii=False) for attempt in record.attempts],
        "notes": json.dumps(dict(record.notes), ensure_ascii=False) if record.notes else None,
        "quality": record.quality,
        "invisible_chars": record.invisible_chars,
        "quality_parts": json.dumps(dict(record.quality_parts)) if record.quality_parts else None,
        "blocks": list(map(block_value, record.blocks)),
        "figures": [
            {
                **{name: getattr(figure, name) for name in _CROP_TEXTS},
                "box": box_value(figure.box),
                **_size(figure.image),
            }
            for figure in record.figures
        ],
        "image_size": record.image and _size(record.image),
        _FIGURE_IMAGES_COLUMN: [image_value(figure.image, figure.id) for figure in record.figures],
        _IMAGE_COLUMN: record.image and image_value(record.image, record.page_id),
    }
    return {name: cleaned(value) for name, value in row.items()}


def ledger_values(ledger: Ledger | None) -> dict[str, object]:
    """Return the columns of a ledger; without one, null and empty lists."""
    return {
        **{name: ledger and getattr(ledger, name) for name in LEDGER_TYPES},
        "unread": [box_value(box) for box in ledger.unread] if ledger else [],
        "unsupported": [asdict(span) for span in ledger.unsupported] if ledger else [],
    }


def block_value(block: Block) -> dict[str, object]:
    """Return the columns of a block."""
    return {
        "kind": block.kind.value,
        "level": block.level,
        "box": box_value(block.box),
        "continued": [box_value(box) for box in block.continued],
        **{name: getattr(block, name) for name in BLOCK_TEXTS},
    }


def image_extension(media_type: str) -> str:
    """Return `png`, `jpg` or `webp`, without a dot; `bin` for other media types."""
    return _EXTENSIONS.get(media_type, "bin")


def image_value(image: EncodedImage, name: str) -> dict[str, Any]:
    """Return `{bytes, path}` as `datasets` stores an image; the path is only a name."""
    return {"bytes": image.data, "path": f"{name}.{image_extension(image.media_type)}"}


def box_value(box: Box) -> dict[str, float]:
    """Return `{x0, y0, x1, y1}`."""
    return {"x0": box.x0, "y0": box.y0, "x1": box.x1, "y1": box.y1}


def _size(image: EncodedImage) -> dict[str, Any]:
    return {"media_type": image.media_type, "width": image.width, "height": image.height}


def cleaned(value: Any) -> Any:
    """Return a value of a row with `clean` texts, also inside of lists and structs."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, Mapping):
        return {key: cleaned(item) for key, item in value.items()}
    if isinstance(value, list):
        return [cleaned(item) for item in value]
    return value


def _page_record(row: Mapping[str, Any]) -> PageRecord:
    pictures = row.get(_FIGURE_IMAGES_COLUMN) or [None] * len(row["figures"])
    return PageRecord(
        status=Status(row["status"]),
        reason=_reason(row["reason"]),
        attempts=tuple(json.loads(text) for text in row["attempts"]),
        blocks=tuple(
            Block(
                kind=BlockKind(value["kind"]),
                box=Box(**value["box"]),
                level=value["level"],
                continued=tuple(Box(**box) for box in value.get("continued") or ()),
                **_texts_of(value, BLOCK_TEXTS),
            )
            for value in row["blocks"]
        ),
        figures=tuple(
            Figure(box=Box(**value["box"]), image=_image(value, picture), **_texts_of(value, _CROP_TEXTS))
            for value, picture in zip(row["figures"], pictures, strict=True)
        ),
        notes=json.loads(row.get("notes") or "{}"),
        quality=row.get("quality"),
        invisible_chars=row.get("invisible_chars") or 0,
        quality_parts=json.loads(row.get("quality_parts") or "{}"),
        ledger=ledger_of(row),
        image=row["image_size"] and _image(row["image_size"], row.get(_IMAGE_COLUMN)),
        **{name: row[name] for name in _PLAIN_PAGE_COLUMNS},
    )


def ledger_of(row: Mapping[str, Any]) -> Ledger | None:
    """Return the ledger, without places if their columns were not read; None for a page without a ledger."""
    if row.get("ink") is None:
        return None
    return Ledger(
        unread=tuple(Box(**box) for box in row.get("unread", ())),
        unsupported=tuple(Span(**span) for span in row.get("unsupported", ())),
        **{name: row[name] for name in LEDGER_TYPES},
    )


def _reason(value: str | None) -> Reason | None:
    return None if value is None else Reason(value)


def _image(size: Mapping[str, Any], picture: Mapping[str, Any] | None) -> EncodedImage:
    data = picture["bytes"] if picture else b""
    return EncodedImage(data, size["media_type"], size["width"], size["height"])


def _texts_of(value: Mapping[str, Any], names: Sequence[str]) -> dict[str, str]:
    return {name: value.get(name) or "" for name in names}


def finals_to_parquet(rows: Iterable[tuple[str, str]]) -> bytes:
    """Encode the rows of Assemble: page ids and their final Markdown."""
    import pyarrow as pa

    names = ("page_id", "document_final_markdown")
    schema = with_format(pa.schema([(name, pa.string()) for name in names]), "finals")
    return table_bytes(schema, [dict(zip(names, (page, clean(text)), strict=True)) for page, text in rows])


#: The last is the smallest column that counts figures.
_STATUS_COLUMNS = (
    *("page_id", "document_id", "page_number", "status", "reason", "quality"),
    *(*LEDGER_TYPES, "figures.list.element.id"),
)


class PageStatus(NamedTuple):
    """Status of a page (number None: a document that could not be opened).

    `quality` and `ledger` are None for failed pages and for pages of older versions. `ledger` has no places.
    """

    page_id: str
    document_id: str
    page_number: int | None
    status: Status
    reason: Reason | None
    quality: float | None = None
    figures: int = 0
    ledger: Ledger | None = None


def page_statuses(source: Source) -> list[PageStatus]:
    """Return status and quality of each row of a unit of Extract."""
    return [
        PageStatus(
            row["page_id"],
            row["document_id"],
            row["page_number"],
            Status(row["status"]),
            _reason(row["reason"]),
            row.get("quality"),
            len(row.get("figures") or ()),
            ledger_of(row),
        )
        for row in iter_rows(source, _PAGES, _STATUS_COLUMNS)
    ]
