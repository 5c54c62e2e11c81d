"""Plan a retry: a new generation with the failed pages, and optionally with pages of low quality."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple, Protocol

from llm_ocr.types import ALL_PAGES, DocumentPart, Reason, Repeated, Status, Unit, page_id
from llm_ocr.workspace import Workspace, codec
from llm_ocr.workspace.generations import (
    CutUnit,
    Generation,
    Kind,
    Piece,
    cut_units,
    generations,
    new_draft,
    units_of,
    write_generation,
)
from llm_ocr.workspace.items import whole_documents
from llm_ocr.workspace.keys import EXTRACT
from llm_ocr.workspace.planned import PlannedDocument, place_of
from llm_ocr.workspace.publish import Marker, done_units, iter_markers, read_data
from llm_ocr.workspace.superseding import LOW_QUALITY, PageKey, has_below

_NO_REASON = "unknown"


class FailedRow(PageKey, Protocol):
    """Failed row of Extract."""

    @property
    def reason(self) -> str | None: ...


class ScoredRow(PageKey, Protocol):
    """Ok or degraded row of Extract."""

    @property
    def status(self) -> Status: ...

    @property
    def reason(self) -> Reason | None: ...

    @property
    def quality(self) -> float | None: ...

    @property
    def figures(self) -> int: ...


#: Returns the failed rows of a unit from its data: `results.schema.failed_pages`.
ReadFailed = Callable[[bytes], Iterable[FailedRow]]

#: Returns all other rows of a unit from its data: `results.schema.scored_pages`.
ReadScored = Callable[[bytes], Iterable[ScoredRow]]


@dataclass(frozen=True, slots=True)
class Below:
    """Threshold to repeat pages whose quality is below `quality` as well."""

    quality: float
    rows: ReadScored


#: Opens a document again and counts its pages, with the currently known passwords.
Reopen = Callable[[DocumentPart], Awaitable[PlannedDocument]]


@dataclass(frozen=True, slots=True)
class _Failed:
    """Page to retry (number None: a document), and its latest part of the plan.

    `row` is the effective row if it is not failed.
    """

    part: DocumentPart
    number: int | None
    index: int
    reason: str
    row: Repeated | None = None


@dataclass(slots=True)
class _State:
    """Pages to retry after the generations processed so far."""

    failed: dict[str, _Failed] = field(default_factory=dict)  # by page id
    item_of: dict[str, str] = field(default_factory=dict)  # by document id, for documents ever in `failed`


async def plan_retry(
    workspace: Workspace,
    key: str,
    *,
    failed_rows: ReadFailed,
    reopen: Reopen,
    pages_per_unit: int,
    below: Below | None = None,
) -> Generation | None:
    """Write a generation with all pages that are failed now under Extract's `key`.

    A page below the quality threshold is repeated as well; its new row is effective unless it failed. Pages in an
    unfinished retry are left to that retry. A document that could not be opened is opened again. On success, the
    generation holds its pages, which supersede its only row; otherwise nothing changes.

    Args:
        workspace: the workspace.
        key: key of Extract.
        failed_rows: returns the failed rows of a unit.
        reopen: opens a document again and counts its pages.
        pages_per_unit: upper limit of pages in a unit.
        below: quality threshold; None to retry failed pages only.

    Returns:
        The generation, or None if there is nothing to retry.
    """
    while True:
        found = await asyncio.to_thread(generations, workspace)
        state = await asyncio.to_thread(_failed_now, workspace, key, found, failed_rows, below)
        begin = found[-1].next_index if found else 0
        pieces, next_index = await _pieces(state, reopen, begin)
        if not pieces:
            return None
        touched = sorted({state.item_of[piece.part.document_id] for piece in pieces})
        draft = new_draft(
            len(found) + 1, Kind.RETRY, pages_per_unit=pages_per_unit, next_index=next_index, touched=touched
        )
        standing = await asyncio.to_thread(write_generation, workspace, draft, partial(_cut, pieces, draft))
        if standing.attempt == draft.attempt:
            return standing
        # Another generation was published first: determine the failed and the waiting pages again.


def _cut(pieces: Sequence[Piece], draft: Generation) -> Iterator[CutUnit]:
    return cut_units(pieces, generation=draft.number, pages_per_unit=draft.pages_per_unit)


def _failed_now(
    workspace: Workspace, key: str, found: Sequence[Generation], failed_rows: ReadFailed, below: Below | None
) -> _State:
    wanted = {marker.unit: marker for marker in iter_markers(workspace, EXTRACT, key) if _matters(marker, below)}
    done = done_units(workspace, EXTRACT, key)
    retries = (units_of(workspace, one) for one in found if one.kind is Kind.RETRY)
    retried = {part.document_id for units in retries for unit in units for part in unit.parts}
    state = _State()
    for generation in found:
        for group in whole_documents(units_of(workspace, generation)):
            item = group[0].id if generation.kind is Kind.SOURCES else None
            for unit in group:
                if item is not None:
                    documents = retried.intersection(part.document_id for part in unit.parts)
                    state.item_of.update(dict.fromkeys(documents, item))
                marker = wanted.get(unit.id)
                data = b"" if marker is None else read_data(workspace, marker)
                failed = list(failed_rows(data)) if marker is not None and marker.counts.failed else []
                if generation.kind is Kind.RETRY:
                    _supersede(state, unit, failed if unit.id in done else [])
                if marker is not None:
                    weak = _weak(data, below)
                    _add(state, unit, _Rows(failed, weak), item, marker)
    return state


def _matters(marker: Marker, below: Below | None) -> bool:
    """Return whether the unit may have rows to retry."""
    return marker.counts.failed > 0 or (below is not None and has_below(marker.summary.extra, below.quality))


def _weak(data: bytes, below: Below | None) -> list[ScoredRow]:
    if below is None:
        return []
    return [row for row in below.rows(data) if row.quality is not None and row.quality < below.quality]


def _supersede(state: _State, unit: Unit, failed: Iterable[FailedRow]) -> None:
    """Drop pages that the unit's rows, published or pending, supersede. Keep pages that failed again."""
    repeated = {one.page_id for one in unit.repeats}
    kept = {row.page_id for row in failed} & repeated
    for part in unit.parts:
        state.failed.pop(page_id(part.document_id, None), None)
        for number in part.pages:
            page = page_id(part.document_id, number)
            if page not in kept:
                state.failed.pop(page, None)


class _Rows(NamedTuple):
    """Rows of a unit to retry."""

    failed: Sequence[FailedRow]
    weak: Sequence[ScoredRow]


def _add(state: _State, unit: Unit, rows: _Rows, item: str | None, marker: Marker) -> None:
    places = {
        page_id(part.document_id, number): (part, number, part.first_index + position)
        for part in unit.parts
        for position, number in enumerate(part.pages or (None,))
    }
    uncounted = {part.document_id: part for part in unit.parts if not part.counted}
    repeated = {one.page_id for one in unit.repeats}  # where these failed again, an older row is effective
    chosen: list[tuple[PageKey, str, Repeated | None]] = [
        (row, str(row.reason or _NO_REASON), None) for row in rows.failed if row.page_id not in repeated
    ]
    chosen += [
        (row, LOW_QUALITY, Repeated(row.page_id, row.status, row.reason, row.quality, row.figures, unit.id))
        for row in rows.weak
    ]
    for row, reason, known in chosen:
        place = places.get(row.page_id) or _place(uncounted, row)
        if place is None:
            raise codec.damaged(marker.object, f"the page {row.page_id} is not in unit {unit.id}")
        part, number, index = place
        state.failed[row.page_id] = _Failed(part, number, index, reason, known)
        if item is not None:
            state.item_of[part.document_id] = item


def _place(uncounted: Mapping[str, DocumentPart], row: PageKey) -> tuple[DocumentPart, int | None, int] | None:
    """Return part, page number, and dataset index of a page whose document was counted after planning."""
    part, number = uncounted.get(row.document_id), row.page_number
    if part is None or number is None:
        return None
    return part, number, part.index_of(place_of(part.wanted, number))


async def _pieces(state: _State, reopen: Reopen, begin: int) -> tuple[list[Piece], int]:
    """Return the pieces to retry, by dataset index, and the next free index."""
    by_document: dict[str, list[_Failed]] = {}
    for failed in sorted(state.failed.values(), key=lambda failed: failed.index):
        by_document.setdefault(failed.part.document_id, []).append(failed)
    pieces: list[Piece] = []
    for group in by_document.values():
        if group[0].number is not None:
            pieces.append(_again(group))
            continue
        document = await reopen(group[0].part)
        if document.reason is None and document.pages:
            pieces.append(_opened(group[0], document, begin))
            begin += len(document.pages)
    return sorted(pieces, key=lambda piece: piece.indices[0]), begin


def _again(group: Sequence[_Failed]) -> Piece:
    pages = tuple(failed.number for failed in group if failed.number is not None)
    return Piece(
        replace(group[0].part, pages=pages, estimate=0, wanted=ALL_PAGES, again=False),
        [failed.index for failed in group],
        [failed.reason for failed in group],
        {failed.number: failed.row for failed in group if failed.row is not None and failed.number is not None},
    )


def _opened(failed: _Failed, document: PlannedDocument, begin: int) -> Piece:
    part = replace(
        failed.part,
        source=document.source,
        version=document.version,
        pages=document.pages,
        page_total=document.page_total,
        reason=None,
        detail="",
        estimate=0,
        wanted=ALL_PAGES,
    )
    rows = len(document.pages)
    return Piece(part, range(begin, begin + rows), [failed.reason] + [""] * (rows - 1))
