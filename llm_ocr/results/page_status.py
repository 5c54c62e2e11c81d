"""How the pages of a unit ended, from the columns that say it: no texts and images are read."""

from typing import NamedTuple

from llm_ocr.results.parquet import Source, iter_rows
from llm_ocr.types import Reason, Status

_COLUMNS = ("page_id", "document_id", "page_number", "status", "reason")
#: The least of a figure that says that it is there.
_FIGURES = "figures.list.element.id"


class FailedPage(NamedTuple):
    """A page (number None: a document that could not be opened) that ended `failed`."""

    page_id: str
    document_id: str
    page_number: int | None
    status: Status
    reason: Reason | None


class ScoredPage(NamedTuple):
    """A page that was read; `quality` None: before there was a score."""

    page_id: str
    document_id: str
    page_number: int | None
    status: Status
    reason: Reason | None
    quality: float | None
    figures: int = 0


def failed_pages(source: Source) -> list[FailedPage]:
    """The failed rows of one unit of Extract."""
    return [
        FailedPage(row["page_id"], row["document_id"], row["page_number"], Status.FAILED, _reason(row["reason"]))
        for row in iter_rows(source, "pages", _COLUMNS)
        if row["status"] == Status.FAILED
    ]


def scored_pages(source: Source) -> list[ScoredPage]:
    """All other rows of one unit of Extract."""
    return [
        ScoredPage(
            row["page_id"],
            row["document_id"],
            row["page_number"],
            Status(row["status"]),
            _reason(row["reason"]),
            row.get("quality"),
            len(row["figures"]),
        )
        for row in iter_rows(source, "pages", (*_COLUMNS, "quality", _FIGURES))
        if row["status"] != Status.FAILED
    ]


def _reason(value: str | None) -> Reason | None:
    return None if value is None else Reason(value)
