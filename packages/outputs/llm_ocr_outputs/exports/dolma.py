"""Export with `format=dolma`: documents for training, one JSON object per line."""

import gzip
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

from llm_ocr.exporting import Exported, ExportJob
from llm_ocr.results.dataset import DatasetRow, page_notes
from llm_ocr.results.figure_text import new_words, with_figures
from llm_ocr.results.markdown import clean, escape
from llm_ocr.types import PageRecord, Status
from llm_ocr.workspace import Workspace
from llm_ocr.workspace.keys import EXTRACT, stage_keys
from llm_ocr_outputs.files import Batch, File, Form, export_files, json_line
from llm_ocr_outputs.places import unsupported_texts
from llm_ocr_outputs.source import Document, provenance

# Documents in the format of the Dolma toolkit: one JSON object per document, with its pages as spans of the text. The
# fields are those of Dolma (`docs/data-format.md` of allenai/dolma) and olmOCR (`olmocr/pipeline.py` of allenai/olmocr,
# 0.4.27). Readers of either format accept these files.


#: Value of `source`: the origin of the document in a corpus, like `olmocr` or `common-crawl`.
SOURCE = "llm-ocr"
#: Separator of pages.
BETWEEN = "\n\n"
#: Attributes per page, in the order of the spans.
PAGE_ATTRIBUTES = ("primary_language", "is_rotation_valid", "rotation_correction", "is_table", "is_diagram")


@dataclass(frozen=True, slots=True)
class Origin:
    """Properties common to all documents of a workspace.

    `added` is the day on which its first page was read (`2026-03-01`), "" if unknown; `model` the model of the pages,
    or the engine's name; `version` the version of llm-ocr that created the workspace.
    """

    added: str
    model: str
    version: str


def dolma_document(document: Document, origin: Origin) -> dict[str, Any]:
    """Return a document in the format.

    `text` is the Markdown of its pages, separated by blank lines. A figure is replaced by its description, or removed
    without one. `attributes.pdf_page_numbers` are `[start, end, page]`: `text[start:end]`, in Unicode characters, is
    the page. A page without text (failed or blank) has an empty span. A document that could not be opened has no spans
    and no text. `attributes.unsupported_text` are `[start, end, 1.0]`, in the form of Dolma's taggers: nothing on the
    page supports `text[start:end]`. The other attributes have one value per page, null if unknown; `ink_accounted` is
    the share 0..1 of the page's ink that is not unread. An attribute that is empty, or unknown for all pages, is
    omitted, because Arrow's JSON reader fails on lists of nulls.

    `id` is our document id, which stays the same when the document is read again. `created` is unknown and repeats
    `added`, as in olmOCR.
    """
    rows = document.rows
    pages = [row for row in rows if row.record.page_number is not None]
    text, spans = _joined(pages)
    unsupported = [
        [start + place.start, start + place.end, 1.0]
        for row, (start, end, _) in zip(pages, spans, strict=True)
        for place in unsupported_texts(row, text[start:end], partial(_text_of, row))
        if place.start is not None and place.end is not None
    ]
    notes = [page_notes(row.record) for row in pages]
    columns = {column: [note[column] for note in notes] for column in PAGE_ATTRIBUTES}
    ledgers = [row.record.ledger for row in pages]
    columns["ink_accounted"] = [ledger and round(1 - ledger.unread_share, 6) for ledger in ledgers]
    known = {column: values for column, values in columns.items() if any(value is not None for value in values)}
    dates = {"added": origin.added, "created": origin.added} if origin.added else {}
    return {
        "id": clean(document.id),
        "text": text,
        "source": SOURCE,
        **dates,
        "metadata": {
            "Source-File": clean(document.source),
            "llm-ocr-version": origin.version,
            "model": origin.model,
            "pdf-total-pages": document.page_total,
            "total-input-tokens": sum(row.record.tokens_in for row in rows),
            "total-output-tokens": sum(row.record.tokens_out for row in rows),
            "total-fallback-pages": sum(row.record.is_fallback for row in rows),
            "total-failed-pages": sum(row.record.status is Status.FAILED for row in rows),
        },
        "attributes": {
            "pdf_page_numbers": spans,
            **known,
            **({"unsupported_text": unsupported} if unsupported else {}),
        },
    }


def page_text(row: DatasetRow) -> str:
    """Return the page's Markdown with figures replaced by their descriptions; "" for a failed page."""
    if row.record.status is Status.FAILED:
        return ""
    return with_figures(clean(row.record.markdown), lambda figure: escape(new_words(row, figure)))


def _text_of(row: DatasetRow, record: PageRecord) -> str:
    return page_text(replace(row, record=record))


def _joined(pages: Sequence[DatasetRow]) -> tuple[str, list[list[int]]]:
    parts: list[str] = []
    spans: list[list[int]] = []
    at = 0
    for row in pages:
        page = page_text(row)
        if page and at:
            parts.append(BETWEEN)
            at += len(BETWEEN)
        parts.append(page)
        spans.append([at, at + len(page), row.record.page_number or 0])
        at += len(page)
    return "".join(parts), spans


# Files of the format: `documents/<batch>.jsonl.gz`, one document per line, including documents without text.


_LEVEL = 6


async def export_dolma(job: ExportJob) -> Exported:
    """Write the documents; errors as in `export_files`."""
    origin = cache(lambda key: _origin(job.workspace, key))

    def write(batch: Batch, documents: Iterator[Document]) -> Iterator[File]:
        buffer, count = io.BytesIO(), 0
        # The header has no time or file name, so equal lines give equal bytes.
        with gzip.GzipFile("", "wb", _LEVEL, buffer, mtime=0) as file:
            for document in documents:
                file.write(json_line(dolma_document(document, origin(batch.key))))
                count += 1
        if count:
            yield File(f"documents/{batch.name}.jsonl.gz", buffer.getvalue(), count)

    def opened(_: str) -> str:
        return job.output.load_line("documents/*.jsonl.gz", described=False, reader="json")

    return await export_files(job, Form("dolma", 2, write, opened))


def _origin(workspace: Workspace, key: str) -> Origin:
    about = provenance(workspace, key)
    read = about["extract"]
    created = next((one.created for one in stage_keys(workspace, EXTRACT) if one.key == read["key"]), "")
    return Origin(created[: len("2026-03-01")], str(read["model"] or read["engine"] or ""), about["version"])
