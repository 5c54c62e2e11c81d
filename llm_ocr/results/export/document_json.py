"""A document as JSON: its pages with text, layout and figures, for programs that need more than Markdown.

`document.schema.json` beside this file is the same as a JSON Schema. All boxes are relative, 0..1 of the page as it is
shown (`rotation` applied), `{x0, y0, x1, y1}` with the origin at the top left; sizes are in pixels. Fields that are not
known are null; texts that are not there are empty.

format          1; raised when a field changes its meaning or goes. New fields may come at any time.
document        id; source (path or URL); names (of its files in the Markdown tree, without `documents/` and `.md`, more
                than one where copies of it were found); page_total (pages of the file, 0 when it did not open);
                counts {pages, ok, degraded, failed}
pages[]         id; number (from 1, null for a document that did not open); dataset_index; status (ok, degraded,
                failed); reason and detail of a page that is not ok; quality (0..1, without a ground truth); width and
                height of its image; rotation (degrees clockwise by which it was turned); blank; engine; text_source
                (text-layer, ocr, model); is_fallback (another reader than the model that was asked); notes
                (primary_language, is_rotation_valid, rotation_correction, is_table, is_diagram); tokens_in; tokens_out;
                seconds; markdown (final, with descriptions); blocks[]; figures[]
blocks[]        in reading order: kind; label (as the model named it); level (headings: 1 is the highest; list items:
                depth from 0); box; continued[] (boxes where its text goes on); text (Markdown); figure_id; caption;
                inside (text read in a figure); described (what the reader of the page said of a figure)
figures[]       id; file (its image in the Markdown tree, `documents/` included); label; box; width, height and
                media_type of the image; caption (the document's); inside; described;
                description, data (JSON of mode parse), class (of mode classify), status, reason and mode of Describe
provenance      see `api.provenance`: workspace, version, and keys, models and revisions of the stages
"""

from collections.abc import Mapping, Sequence
from typing import Any

from llm_ocr.results.dataset import DatasetRow
from llm_ocr.results.documents import figure_file
from llm_ocr.results.export.dolma import PAGE_ATTRIBUTES
from llm_ocr.results.export.lines import json_value
from llm_ocr.results.page_notes import page_notes
from llm_ocr.results.schema import box_value
from llm_ocr.results.text import clean
from llm_ocr.types import Block, Box, EncodedImage, Figure, FigureRecord, Status

FORMAT = 1
# `getattr` reads the fields of these names, which are the keys.
_BLOCK_TEXTS = ("label", "text", "figure_id", "caption", "inside", "described")
_FIGURE_TEXTS = ("label", "caption", "inside", "described")


def document_json(
    document_id: str,
    source: str,
    names: Sequence[str],
    page_total: int,
    rows: Sequence[DatasetRow],
    provenance: Mapping[str, Any],
) -> dict[str, Any]:
    """The document's JSON value; `rows` in page order."""
    statuses = [row.record.status for row in rows]
    counts = {status.value: statuses.count(status) for status in Status}
    about = {"id": document_id, "source": source, "names": list(names), "page_total": page_total}
    return {
        "format": FORMAT,
        "document": {**about, "counts": {"pages": len(rows), **counts}},
        "pages": [_page(row, names[0]) for row in rows],
        "provenance": dict(provenance),
    }


def _page(row: DatasetRow, name: str) -> dict[str, Any]:
    record, notes = row.record, page_notes(row.record)
    return {
        "id": record.page_id,
        "number": record.page_number,
        "dataset_index": record.dataset_index,
        "status": record.status.value,
        "reason": record.reason.value if record.reason else None,
        "detail": record.detail,
        "quality": record.quality,
        **_size(record.image),
        "rotation": record.rotation,
        "blank": record.blank,
        "engine": record.engine,
        "text_source": record.text_source,
        "is_fallback": record.is_fallback,
        "notes": {name: notes[name] for name in PAGE_ATTRIBUTES},
        "tokens_in": record.tokens_in,
        "tokens_out": record.tokens_out,
        "seconds": round(float(record.seconds), 3),
        "markdown": row.final_markdown,
        "blocks": [_block(block) for block in record.blocks],
        "figures": [_figure(figure, row.figures.get(figure.id), name) for figure in record.figures],
    }


def _size(image: EncodedImage | None) -> dict[str, int | None]:
    return {"width": image.width if image else None, "height": image.height if image else None}


def _box(box: Box) -> dict[str, float]:
    """Six digits are a thousandth of a pixel."""
    return {side: round(value, 6) for side, value in box_value(box.clipped()).items()}


def _block(block: Block) -> dict[str, Any]:
    return {
        "kind": block.kind.value,
        "level": block.level,
        "box": _box(block.box),
        "continued": [_box(box) for box in block.continued],
        **{name: getattr(block, name) for name in _BLOCK_TEXTS},
    }


def _figure(figure: Figure, record: FigureRecord | None, name: str) -> dict[str, Any]:
    return {
        "id": figure.id,
        "file": clean(figure_file(name, figure)),
        "box": _box(figure.box),
        **_size(figure.image),
        "media_type": figure.image.media_type,
        **{name: getattr(figure, name) for name in _FIGURE_TEXTS},
        "description": record.description if record else "",
        "data": json_value(record.data) if record else None,
        "class": (record.label if record else "") or None,
        "status": record.status.value if record else None,
        "reason": record.reason.value if record and record.reason else None,
        "mode": record.mode if record else None,
    }
