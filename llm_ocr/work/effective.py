"""Which row counts for a page that was tried in several generations."""

from collections.abc import Iterable
from typing import Protocol, TypeVar

from llm_ocr.types import Status


class PageKey(Protocol):
    """Which page a row is of; `page_number` is None for a document that could not be opened."""

    @property
    def page_id(self) -> str: ...

    @property
    def document_id(self) -> str: ...

    @property
    def page_number(self) -> int | None: ...


class Row(PageKey, Protocol):
    """What is needed of a row; `PageRecord` has it."""

    @property
    def status(self) -> Status: ...


RowT = TypeVar("RowT", bound=Row)


def effective_rows(rows: Iterable[RowT]) -> list[RowT]:
    """One row a page, from the rows of all generations, oldest first: the last ok or degraded one, else the last.

    The row of a document that could not be opened (number None) counts only until a later generation has opened it.
    Pages stand in the order in which they first came.
    """
    best: dict[str, RowT] = {}
    opened: set[str] = set()
    for row in rows:
        known = best.get(row.page_id)
        if known is None or row.status is not Status.FAILED or known.status is Status.FAILED:
            best[row.page_id] = row
        if row.page_number is not None:
            opened.add(row.document_id)
    return [row for row in best.values() if row.page_number is not None or row.document_id not in opened]
