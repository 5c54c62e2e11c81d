"""Documents in the format of the Dolma toolkit: one JSON object a document, its pages as spans of the text.

The fields are those that Dolma documents (`docs/data-format.md` of allenai/dolma) and that olmOCR writes
(`olmocr/pipeline.py` of allenai/olmocr, 0.4.27), so that what reads the one reads the other.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from llm_ocr.results.dataset import DatasetRow
from llm_ocr.results.figure_links import escape
from llm_ocr.results.figure_marks import new_words, with_figures
from llm_ocr.results.page_notes import page_notes
from llm_ocr.results.text import clean
from llm_ocr.types import Status

#: What `source` says: where a corpus got the document from, as `olmocr` or `common-crawl`.
SOURCE = "llm-ocr"
#: What stands between two pages.
BETWEEN = "\n\n"
#: Per page, in the order of the spans.
PAGE_ATTRIBUTES = ("primary_language", "is_rotation_valid", "rotation_correction", "is_table", "is_diagram")


@dataclass(frozen=True, slots=True)
class Origin:
    """What is the same for all documents of a workspace.

    `added` is the day on which its first page was read (`2026-03-01`), "" if that is not known; `model` the one that
    read, or the engine's name; `version` that of the llm-ocr that made the workspace.
    """

    added: str
    model: str
    version: str


def dolma_document(
    document_id: str, source: str, page_total: int, rows: Sequence[DatasetRow], origin: Origin
) -> dict[str, Any]:
    """One document from its rows in page order.

    `text` is the Markdown of its pages with a blank line between two of them; a figure stands in it as its description,
    one without a description not at all. `attributes.pdf_page_numbers` are `[start, end, page]`: `text[start:end]`, in
    characters of Unicode, is the page; a page without text (failed or blank) has an empty span. A document that could
    not be opened has no spans and no text. The other attributes have one value for each span, null where it is not
    known; one that is known of no page is left out, for Arrow's JSON reader fails on lists of nothing but null.

    `id` is our document id, which stays the same when the document is read again; `created` is not known of documents
    and repeats `added`, as in olmOCR.
    """
    pages = [row for row in rows if row.record.page_number is not None]
    text, spans = _joined(pages)
    notes = [page_notes(row.record) for row in pages]
    dates = {"added": origin.added, "created": origin.added} if origin.added else {}
    return {
        "id": clean(document_id),
        "text": text,
        "source": SOURCE,
        **dates,
        "metadata": {
            "Source-File": clean(source),
            "llm-ocr-version": origin.version,
            "model": origin.model,
            "pdf-total-pages": page_total,
            "total-input-tokens": sum(row.record.tokens_in for row in rows),
            "total-output-tokens": sum(row.record.tokens_out for row in rows),
            "total-fallback-pages": sum(row.record.is_fallback for row in rows),
            "total-failed-pages": sum(row.record.status is Status.FAILED for row in rows),
        },
        "attributes": {"pdf_page_numbers": spans, **_known(notes)},
    }


def page_text(row: DatasetRow) -> str:
    """The page's Markdown with its figures as their descriptions; "" for a failed page."""
    if row.record.status is Status.FAILED:
        return ""
    return with_figures(clean(row.record.markdown), lambda figure: escape(new_words(row, figure)))


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


def _known(notes: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    columns = {name: [note[name] for note in notes] for name in PAGE_ATTRIBUTES}
    return {name: values for name, values in columns.items() if any(value is not None for value in values)}
