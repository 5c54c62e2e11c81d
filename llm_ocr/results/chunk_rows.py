"""Passages as rows of JSON or Parquet, the same fields in both."""

from collections.abc import Iterable
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Any, BinaryIO

from llm_ocr.results.chunks import Chunk
from llm_ocr.results.parquet import open_writer

if TYPE_CHECKING:
    import pyarrow as pa

#: Rows of a group in Parquet.
_GROUP = 1000


def chunk_row(chunk: Chunk, *, tokens: bool) -> dict[str, Any]:
    """The fields of a passage.

    `id`, the same as long as the passage says the same; `document_id`; `source`, the document's path or URL; `index`,
    from 0 within the document; `text`, Markdown; `heading_path`, the headings that all of it stands under; `page_first`
    and `page_last`, from 1; `boxes`, `{page, x0, y0, x1, y1}` relative to the page as shown, none where the model gave
    none; `kinds` of its blocks; `figures`, `{id, description, image}`, where `image` is the key of the file in the
    workspace; `characters`; `tokens`, null unless a tokenizer counts them; `overlap`, how many characters at the
    beginning repeat the end of the passage before.
    """
    return {
        "id": chunk.id,
        "document_id": chunk.document_id,
        "source": chunk.source,
        "index": chunk.index,
        "text": chunk.text,
        "heading_path": list(chunk.heading_path),
        "page_first": chunk.page_first,
        "page_last": chunk.page_last,
        "boxes": [{"page": page, "x0": box.x0, "y0": box.y0, "x1": box.x1, "y1": box.y1} for page, box in chunk.boxes],
        "kinds": list(chunk.kinds),
        "figures": [{"id": one.id, "description": one.description, "image": one.image} for one in chunk.figures],
        "characters": len(chunk.text),
        "tokens": chunk.size if tokens else None,
        "overlap": chunk.overlap,
    }


def write_parquet(rows: Iterable[dict[str, Any]], where: BinaryIO) -> int:
    """Write the rows group by group; how many there are."""
    import pyarrow as pa

    count, rest = 0, iter(rows)
    with open_writer(where, _schema()) as writer:
        while group := list(islice(rest, _GROUP)):
            writer.write_table(pa.Table.from_pylist(group, schema=_schema()))
            count += len(group)
    return count


@cache
def _schema() -> "pa.Schema":
    import pyarrow as pa

    real, whole, text = pa.float64(), pa.int64(), pa.string()
    box = pa.struct([("page", whole), *((side, real) for side in ("x0", "y0", "x1", "y1"))])
    figure = pa.struct([(name, text) for name in ("id", "description", "image")])
    return pa.schema(
        [
            *((name, text) for name in ("id", "document_id", "source")),
            ("index", whole),
            ("text", text),
            ("heading_path", pa.list_(text)),
            ("page_first", whole),
            ("page_last", whole),
            ("boxes", pa.list_(box)),
            ("kinds", pa.list_(text)),
            ("figures", pa.list_(figure)),
            *((name, whole) for name in ("characters", "tokens", "overlap")),
        ]
    )
