"""`export --format json`, `jsonl`, and `markdown`: documents and pages as files."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from typing import Any

from llm_ocr.errors import ObjectNotFound, StorageError
from llm_ocr.exports.dolma import PAGE_ATTRIBUTES
from llm_ocr.exports.files import Batch, File, Form, export_files, json_document, json_line, json_value
from llm_ocr.exports.job import Exported, ExportJob
from llm_ocr.exports.source import Document, identity_of, provenance
from llm_ocr.results.dataset import DatasetRow, page_notes
from llm_ocr.results.documents import FOLDER, figure_file, markdown_file
from llm_ocr.results.markdown import clean
from llm_ocr.results.schema import box_value
from llm_ocr.types import Block, Box, EncodedImage, Figure, FigureRecord, Status
from llm_ocr.workspace import Workspace
from llm_ocr.workspace.stored import remembered_in

# A document as JSON: its pages with text, layout and figures, for programs that need more than Markdown.
# `document.schema.json` beside this file is the same as a JSON Schema. All boxes are relative, 0..1 of the page as it
# is shown (`rotation` applied), `{x0, y0, x1, y1}` with the origin at the top left; sizes are in pixels. Fields that
# are not known are null; texts that are not there are empty. format          1; raised when a field changes its meaning
# or goes. New fields may come at any time. document        id; source (path or URL); names (of its files in the
# Markdown tree, without `documents/` and `.md`, more than one where copies of it were found); page_total (pages of the
# file, 0 when it did not open); counts {pages, ok, degraded, failed} pages[]         id; number (from 1, null for a
# document that did not open); dataset_index; status (ok, degraded, failed); reason and detail of a page that is not ok;
# quality (0..1, without a ground truth); width and height of its image; rotation (degrees clockwise by which it was
# turned); blank; engine; text_source (text-layer, ocr, model); is_fallback (another reader than the model that was
# asked); notes (primary_language, is_rotation_valid, rotation_correction, is_table, is_diagram); tokens_in; tokens_out;
# seconds; markdown (final, with descriptions); blocks[]; figures[] blocks[]        in reading order: kind; label (as
# the model named it); level (headings: 1 is the highest; list items: depth from 0); box; continued[] (boxes where its
# text goes on); text (Markdown); figure_id; caption; inside (text read in a figure); described (what the reader of the
# page said of a figure) figures[]       id; file (its image in the Markdown tree, `documents/` included); label; box;
# width, height and media_type of the image; caption (the document's); inside; described; description, data (JSON of
# mode parse), class (of mode classify), status, reason and mode of Describe provenance      see `api.provenance`:
# workspace, version, and keys, models and revisions of the stages


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


# `export --format json`: one file a document, `documents/<name>.json`, named as in the Markdown tree. A document of
# which copies were found is one file, under the first of its names; the others stand in it.


async def export_json(job: ExportJob) -> Exported:
    """Write a JSON file for each document; errors as in `export_files`. Fields: `results.export.document_json`."""
    about = cache(partial(provenance, job.workspace))

    def write(batch: Batch, documents: Iterator[Document]) -> Iterator[File]:
        return (_file(document, about(batch.key)) for document in documents)

    return await export_files(job, Form("json", FORMAT, write, _open_json))


def _file(document: Document, about: dict[str, Any]) -> File:
    value = document_json(document.id, document.source, document.names, document.page_total, document.rows, about)
    return File(f"{FOLDER}/{document.names[0]}.json", json_document(value))


def _open_json(url: str) -> str:
    return f'[json.load(file.open()) for file in fsspec.open_files("{url}/{FOLDER}/**/*.json")]'


# A page as one line of JSON: the records of the dots.ocr batch on Modal, and some fields more.


def page_line(row: DatasetRow, *, index: int, model: str, batch_id: str) -> dict[str, Any]:
    """The record of a page that succeeded (`ok` or `degraded`) or failed.

    Those of that batch: `document_id`; `page`, from 1, and `page_index`, its place from 1 among the document's pages
    that were read (both 0 for a document that could not be opened); `pdf_path`, the document's path or URL; `model`,
    the one given where the row names none; `success`; `latency` in seconds; `usage` in tokens, zeros for the embedded
    engine; `content`, the page's Markdown with its figures described, null when it failed; `error`, null unless it did.

    Ours: `page_id`; `status`; `reason` and `detail` of a page that is not ok, else empty; `is_fallback`, whether
    another reader than the model that was asked read it; `batch_id`. No field is of two types but `content` and
    `error`, so that readers which guess types from the first lines guess right.
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
    }


# `export --format jsonl`: a line of JSON for each page, those that succeeded and those that failed in files apart.
# successes/<batch>.jsonl     pages that are ok or degraded errors/<batch>.jsonl        pages that failed; no file where
# there is none The fields are those of `results.export.page_lines`.


async def export_jsonl(job: ExportJob) -> Exported:
    """Write the pages as lines of JSON; errors as in `export_files`.

    The batch id is the one that the workspace remembers (`--batch-id`), else the workspace's own id.
    """
    remembered = (await asyncio.to_thread(remembered_in, job.workspace)).get("batch_id")
    batch_id = str(remembered or await asyncio.to_thread(identity_of, job.workspace))

    @cache
    def model(key: str) -> str:
        read = provenance(job.workspace, key)["extract"]
        return str(read["model"] or read["engine"] or "")

    def write(batch: Batch, documents: Iterator[Document]) -> Iterator[File]:
        return _page_files(batch, documents, partial(page_line, model=model(batch.key), batch_id=batch_id))

    def opened(_: str) -> str:
        return job.output.load_line("successes/*.jsonl", described=False, reader="json")

    return await export_files(job, Form("jsonl", 1, write, opened, {"batch_id": batch_id}, unit="pages"))


def _page_files(batch: Batch, documents: Iterator[Document], line: Callable[..., dict[str, Any]]) -> Iterator[File]:
    """The two files of a batch."""
    texts = {"successes": bytearray(), "errors": bytearray()}
    records = dict.fromkeys(texts, 0)
    for document in documents:
        for index, row in enumerate(document.rows, 1):
            record = line(row, index=index)
            where = "successes" if record["success"] else "errors"
            texts[where] += json_line(record)
            records[where] += 1
    for where, text in texts.items():
        if text:
            yield File(f"{where}/{batch.name}.jsonl", bytes(text), records[where])


# `export --format markdown`: the tree `documents/` of the workspace, texts and figures, in a place of its own. The
# files are those that Assemble wrote, byte for byte; of documents that are left out for their bad pages, none.


async def export_markdown(job: ExportJob) -> Exported:
    """Copy the documents; errors as in `export_files`, `StorageError` for one that Assemble's files lack."""

    def write(_: Batch, documents: Iterator[Document]) -> Iterator[File]:
        return (file for document in documents for file in _files(job.workspace, document))

    return await export_files(job, Form("markdown", 1, write, _open_markdown))


def _files(workspace: Workspace, document: Document) -> Iterator[File]:
    """The document's text and figures, once for each of its names."""
    for place, name in enumerate(document.names):
        figures = [figure_file(name, figure) for row in document.rows for figure in row.record.figures]
        for key in figures:
            yield File(key, records=0, fetch=partial(_read, workspace, key))
        text = markdown_file(name)
        yield File(text, records=int(place == 0), fetch=partial(_read, workspace, text))


def _read(workspace: Workspace, key: str) -> bytes:
    try:
        return workspace.store.get(key)
    except ObjectNotFound as error:
        raise StorageError(
            f"{workspace.url}: {key} is missing",
            hint=f"Run `llm-ocr assemble -w {workspace.url}`, which writes it anew; then export again.",
        ) from error


def _open_markdown(url: str) -> str:
    return f'[file.open().read() for file in fsspec.open_files("{url}/{FOLDER}/**/*.md", "r")]'
