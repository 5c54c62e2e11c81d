"""Export with `format=json`, `jsonl`, and `markdown`: documents and pages as files."""

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from functools import cache, partial
from typing import Any

from llm_ocr.errors import ObjectNotFound, StorageError
from llm_ocr.exporting import Exported, ExportJob
from llm_ocr.results.balance import ink_totals
from llm_ocr.results.dataset import DatasetRow, page_notes
from llm_ocr.results.documents import FOLDER, document_markdown, figure_file, markdown_file
from llm_ocr.results.markdown import clean
from llm_ocr.results.schema import box_value
from llm_ocr.types import Block, Box, EncodedImage, Figure, FigureRecord, InkTotals, Status
from llm_ocr.workspace import Workspace
from llm_ocr.workspace.keys import ASSEMBLE, key_settings
from llm_ocr.workspace.stored import remembered_in
from llm_ocr_outputs.exports.dolma import PAGE_ATTRIBUTES
from llm_ocr_outputs.files import Batch, File, Form, export_files, json_document, json_line, json_text, json_value
from llm_ocr_outputs.places import unsupported_texts
from llm_ocr_outputs.source import Document, identity_of, provenance

# Document as JSON: its pages with text, layout, and figures, for programs that need more than Markdown.
# `document.schema.json` in this folder is the equivalent JSON Schema. All boxes are relative, 0..1 of the page as
# displayed (`rotation` applied), `{x0, y0, x1, y1}` with the origin at the top left; sizes are in pixels. Unknown
# fields are null; missing texts are empty.
#
# format          1; increased when a field changes its meaning or is removed. New fields may be added at any time.
# document        id; source (path or URL); names (of its files in the Markdown tree, without `documents/` and `.md`,
#                 several if there are copies); page_total (pages of the file, 0 if it could not be opened);
#                 counts {pages, ok, degraded, failed}; ink_accounted (share 0..1 of the ink of its pages that is not
#                 unread, null if unknown)
# pages[]         id; number (from 1, null for a document that did not open); dataset_index; status (ok, degraded,
#                 failed); reason and detail of a page that is not ok; quality (0..1, without a reference); width and
#                 height of its image; rotation (applied, degrees clockwise); blank; engine; text_source (text-layer,
#                 ocr, model); is_fallback (read by a fallback instead of the requested model); notes
#                 (primary_language, is_rotation_valid, rotation_correction, is_table, is_diagram); tokens_in;
#                 tokens_out; seconds; markdown (final, with descriptions); ink_accounted; unread[] (boxes of unread
#                 ink); unsupported[]; blocks[]; figures[]
# unsupported[]   text that nothing on the page supports: block (index in blocks); text; start and end (characters in
#                 markdown, null if it lacks the text)
# blocks[]        in reading order: kind; label (of the model); level (headings: 1 is the highest; list items: depth
#                 from 0); box; continued[] (boxes of the text's continuation); text (Markdown); figure_id; caption;
#                 inside (text read in a figure); described (description by the page's reader)
# figures[]       id; file (its image in the Markdown tree, `documents/` included); label; box; width, height, and
#                 media_type of the image; caption (the document's); inside; described; description, data (JSON of mode
#                 parse; of the CPU engine, the text inside), class (of mode classify), status, reason, and mode of
#                 Describe
# provenance      see `source.provenance`: workspace, version, and keys, models, and revisions of the stages


FORMAT = 1
# `getattr` reads the fields of these names, which are the keys.
_BLOCK_TEXTS = ("label", "text", "figure_id", "caption", "inside", "described")
_FIGURE_TEXTS = ("label", "caption", "inside", "described")


def document_json(document: Document, provenance: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document's JSON value."""
    statuses = [row.record.status for row in document.rows]
    ink = sum((ink_totals(row.record.ledger, row.record.reason) for row in document.rows), InkTotals())
    return {
        "format": FORMAT,
        "document": {
            "id": document.id,
            "source": document.source,
            "names": list(document.names),
            "page_total": document.page_total,
            "counts": {"pages": len(statuses), **{status.value: statuses.count(status) for status in Status}},
            "ink_accounted": _share(ink.accounted),
        },
        "pages": [_page(row, document.names[0]) for row in document.rows],
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
        **_ledger(row),
        "blocks": [_block(block) for block in record.blocks],
        "figures": [_figure(figure, row.figures.get(figure.id), name) for figure in record.figures],
    }


def _ledger(row: DatasetRow) -> dict[str, Any]:
    """Return `ink_accounted`, `unread`, and `unsupported` of a page, with places in its final Markdown."""
    ledger = row.record.ledger
    return {
        "ink_accounted": None if ledger is None else _share(1 - ledger.unread_share),
        "unread": [_box(box) for box in ledger.unread] if ledger else [],
        "unsupported": [asdict(text) for text in unsupported_texts(row, clean(row.final_markdown))],
    }


def _share(share: float | None) -> float | None:
    return None if share is None else round(share, 6)


def _size(image: EncodedImage | None) -> dict[str, int | None]:
    return {"width": image.width if image else None, "height": image.height if image else None}


def _box(box: Box) -> dict[str, float]:
    """Return the box with six digits, which are a thousandth of a pixel."""
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


# Format `json`: one file per document, `documents/<name>.json`, named as in the Markdown tree. Copies of a document
# share a file with the first of their names; the file contains the other names.


async def export_json(job: ExportJob) -> Exported:
    """Write a JSON file for each document; errors as in `export_files`. See `document_json` for the fields."""
    about = cache(partial(provenance, job.workspace))

    def write(batch: Batch, documents: Iterator[Document]) -> Iterator[File]:
        for document in documents:
            value = document_json(document, about(batch.key))
            yield File(f"{FOLDER}/{document.names[0]}.json", json_document(value))

    return await export_files(job, Form("json", 2, write, lambda url: f"the .json files in {url}/{FOLDER}"))


# Page as one line of JSON: the records of the dots.ocr batch on Modal, with additional fields.


def page_line(row: DatasetRow, *, index: int, model: str, batch_id: str) -> dict[str, Any]:
    """Return the record of a page that succeeded (`ok` or `degraded`) or failed.

    Fields of that batch: `document_id`; `page`, from 1, and `page_index`, its position from 1 among the document's
    exported pages (both 0 for a document that could not be opened); `pdf_path`, the document's path or URL;
    `model`, the argument if the row names none; `success`; `latency` in seconds; `usage` in tokens, zeros for the
    embedded engine; `content`, the page's Markdown with described figures, null for a failed page; `error`, null
    otherwise.

    Additional fields: `page_id`; `status`; `reason` and `detail` of a page that is not ok, otherwise empty;
    `is_fallback`, whether a fallback read it instead of the requested model; `batch_id`; `ink_accounted`, the share
    0..1 of the page's ink that is not unread, null if unknown; `unread` and `unsupported`, JSON texts of the same lists
    as in `document_json`, with `start` and `end` in `content`. As lists, they would have no type in the first lines if
    these are of pages without such places. Only `content`, `error`, and `ink_accounted` have two types, so that readers
    which infer types from the first lines are correct.
    """
    record = row.record
    failed = record.status is Status.FAILED
    reason = record.reason.value if record.reason else ""
    return {
        "document_id": record.document_id,
        "page": record.page_number or 0,
        "page_index": index if record.page_number else 0,
        "pdf_path": record.source,
        "model": record.engine or model,
        "success": not failed,
        "latency": round(float(record.seconds), 3),
        "usage": {
            "prompt_tokens": record.tokens_in,
            "completion_tokens": record.tokens_out,
            "total_tokens": record.tokens_in + record.tokens_out,
        },
        "content": None if failed else row.final_markdown,
        "error": (": ".join(part for part in (reason, record.detail) if part) or "failed") if failed else None,
        "page_id": record.page_id,
        "status": record.status.value,
        "reason": reason,
        "detail": record.detail,
        "is_fallback": record.is_fallback,
        "batch_id": batch_id,
        **{name: json_text(value) if isinstance(value, list) else value for name, value in _ledger(row).items()},
    }


# Format `jsonl`: a line of JSON for each page (see `page_line`). There is no file without lines.
#
# successes/<batch>.jsonl     pages that are ok or degraded
# errors/<batch>.jsonl        pages that failed


async def export_jsonl(job: ExportJob) -> Exported:
    """Write the pages as lines of JSON; errors as in `export_files`.

    The batch id is the one stored in the workspace, otherwise the workspace's own id.
    """
    remembered = (await asyncio.to_thread(remembered_in, job.workspace)).get("batch_id")
    batch_id = str(remembered or await asyncio.to_thread(identity_of, job.workspace))

    @cache
    def model(key: str) -> str:
        read = provenance(job.workspace, key)["extract"]
        return str(read["model"] or read["engine"] or "")

    def write(batch: Batch, documents: Iterator[Document]) -> Iterator[File]:
        texts = {"successes": bytearray(), "errors": bytearray()}
        records = dict.fromkeys(texts, 0)
        for document in documents:
            for index, row in enumerate(document.rows, 1):
                record = page_line(row, index=index, model=model(batch.key), batch_id=batch_id)
                where = "successes" if record["success"] else "errors"
                texts[where] += json_line(record)
                records[where] += 1
        for where, text in texts.items():
            if text:
                yield File(f"{where}/{batch.name}.jsonl", bytes(text), records[where])

    def opened(_: str) -> str:
        return job.output.load_line("successes/*.jsonl", described=False, reader="json")

    return await export_files(job, Form("jsonl", 2, write, opened, {"batch_id": batch_id}, unit="pages"))


# Format `markdown`: a copy of the workspace's tree `documents/`, texts and figures. The files are byte for byte those
# of Assemble, without documents dropped for their bad pages. With the setting `only`, texts are written without the
# pages that are left out.


async def export_markdown(job: ExportJob) -> Exported:
    """Copy the documents; errors as in `export_files`.

    Raises:
        StorageError: a file of Assemble is missing.
    """
    is_whole = job.settings.only is None
    page_markers = cache(lambda key: bool(key_settings(job.workspace, ASSEMBLE, key)["page_markers"]))

    def write(batch: Batch, documents: Iterator[Document]) -> Iterator[File]:
        for document in documents:
            for place, name in enumerate(document.names):
                figures = [figure_file(name, figure) for row in document.rows for figure in row.record.figures]
                for key in figures:
                    yield File(key, records=0, fetch=partial(read_file, job.workspace, key))
                text, records = markdown_file(name), int(place == 0)
                if is_whole:
                    yield File(text, records=records, fetch=partial(read_file, job.workspace, text))
                else:
                    pages = [(row.record, row.final_markdown) for row in document.rows]
                    markdown = document_markdown(pages, name, page_markers=page_markers(batch.key))
                    yield File(text, clean(markdown).encode(), records)

    return await export_files(job, Form("markdown", 1, write, lambda url: f"the .md files in {url}/{FOLDER}"))


def read_file(workspace: Workspace, key: str) -> bytes:
    """Return a file that Assemble wrote; raise `StorageError` if it is missing."""
    try:
        return workspace.store.get(key)
    except ObjectNotFound as error:
        raise StorageError(
            f"{workspace.url}: {key} is missing",
            hint="Run Assemble again, which writes the file. Then export again.",
        ) from error
