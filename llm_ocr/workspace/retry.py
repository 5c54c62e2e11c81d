"""Plan a retry: a new generation with the failed pages, and optionally with pages of low quality."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from llm_ocr.results.schema import failed_pages, scored_pages
from llm_ocr.types import ALL_PAGES, DocumentPart, Repeated, Unit, page_id
from llm_ocr.workspace import Workspace, codec
from llm_ocr.workspace.generations import (
    Generation,
    Kind,
    Piece,
    generations,
    new_draft,
    units_of,
    write_generation,
)
from llm_ocr.workspace.items import whole_documents
from llm_ocr.workspace.keys import EXTRACT
from llm_ocr.workspace.planned import PlannedDocument, place_of
from llm_ocr.workspace.publish import done_units, iter_markers, read_data
from llm_ocr.workspace.superseding import LOW_QUALITY, PageKey, has_below

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
    reopen: Reopen,
    pages_per_unit: int,
    below: float | None = None,
) -> Generation | None:
    """Write a generation with all pages that are failed now under Extract's `key`.

    A page below the quality threshold is repeated as well; its new row is effective unless it failed. Pages in an
    unfinished retry are left to that retry. A document that could not be opened is opened again. On success, the
    generation holds its pages, which supersede its only row; otherwise nothing changes.

    Args:
        workspace: the workspace.
        key: key of Extract.
        reopen: opens a document again and counts its pages.
        pages_per_unit: upper limit of pages in a unit.
        below: quality threshold; None to retry failed pages only.

    Returns:
        The generation, or None if there is nothing to retry.
    """
    while True:
        found = await asyncio.to_thread(generations, workspace)
        state = await asyncio.to_thread(_failed_now, workspace, key, found, below)
        begin = found[-1].next_index if found else 0
        pieces, next_index = await _pieces(state, reopen, begin)
        if not pieces:
            return None
        touched = sorted({state.item_of[piece.part.document_id] for piece in pieces})
        draft = new_draft(
            len(found) + 1, Kind.RETRY, pages_per_unit=pages_per_unit, next_index=next_index, touched=touched
        )
        published = await asyncio.to_thread(write_generation, workspace, draft, partial(iter, pieces))
        if published.attempt == draft.attempt:
            return published
        # Another generation was published first: determine the failed and the waiting pages again.


def _failed_now(workspace: Workspace, key: str, found: Sequence[Generation], below: float | None) -> _State:
    wanted = {  # markers of the units that may have rows to retry
        marker.unit: marker
        for marker in iter_markers(workspace, EXTRACT, key)
        if marker.counts.failed > 0 or (below is not None and has_below(marker.summary.extra, below))
    }
    done = done_units(workspace, EXTRACT, key)
    retries = (units_of(workspace, generation) for generation in found if generation.kind is Kind.RETRY)
    retried = {part.document_id for units in retries for unit in units for part in unit.parts}
    state = _State()
    for item, unit in _units_with_items(workspace, found):
        marker = wanted.get(unit.id)
        data = b"" if marker is None else read_data(workspace, marker)
        failed = failed_pages(data) if marker is not None and marker.counts.failed else []
        repeated = {row.page_id for row in unit.repeats}
        if item is None:
            # The rows of a retry, published or pending, supersede older rows, except those of pages that failed again.
            kept = {row.page_id for row in failed} & repeated if unit.id in done else set[str]()
            for part in unit.parts:
                pages = {page_id(part.document_id, number) for number in (None, *part.pages)}
                for page in pages - kept:
                    state.failed.pop(page, None)
        else:
            documents = retried.intersection(part.document_id for part in unit.parts)
            state.item_of.update(dict.fromkeys(documents, item))
        if marker is None:
            continue
        # Where a repeated page failed again, an older row is effective.
        chosen: list[tuple[PageKey, str, Repeated | None]] = [
            (row, str(row.reason or "unknown"), None) for row in failed if row.page_id not in repeated
        ]
        chosen += [
            (
                row,
                LOW_QUALITY,
                Repeated(row.page_id, row.status, row.reason, row.quality, row.figures, unit.id, row.ledger),
            )
            for row in (scored_pages(data) if below is not None else ())
            if below is not None and row.quality is not None and row.quality < below
        ]
        places = {
            page_id(part.document_id, number): (part, number, part.first_index + position)
            for part in unit.parts
            for position, number in enumerate(part.pages or (None,))
        }
        uncounted = {part.document_id: part for part in unit.parts if not part.counted}
        for row, reason, known in chosen:
            place, whole = places.get(row.page_id), uncounted.get(row.document_id)
            if place is None and whole is not None and row.page_number is not None:  # counted after planning
                place = whole, row.page_number, whole.index_of(place_of(whole.wanted, row.page_number))
            if place is None:
                raise codec.damaged(marker.object, f"the page {row.page_id} is not in unit {unit.id}")
            state.failed[row.page_id] = _Failed(*place, reason, known)
            if item is not None:
                state.item_of[place[0].document_id] = item
    return state


def _units_with_items(workspace: Workspace, found: Iterable[Generation]) -> Iterator[tuple[str | None, Unit]]:
    """Yield all units in order, each with the item of its documents; None for units of retries."""
    for generation in found:
        for group in whole_documents(units_of(workspace, generation)):
            item = group[0].id if generation.kind is Kind.SOURCES else None
            yield from ((item, unit) for unit in group)


async def _pieces(state: _State, reopen: Reopen, begin: int) -> tuple[list[Piece], int]:
    """Return the pieces to retry, by dataset index, and the next free index."""
    by_document: dict[str, list[_Failed]] = {}
    for failed in sorted(state.failed.values(), key=lambda failed: failed.index):
        by_document.setdefault(failed.part.document_id, []).append(failed)
    pieces: list[Piece] = []
    for group in by_document.values():
        first = group[0]
        part = replace(first.part, estimate=0, wanted=ALL_PAGES, again=False)
        if first.number is not None:
            pages = tuple(failed.number for failed in group if failed.number is not None)
            repeats = {
                failed.number: failed.row for failed in group if failed.row is not None and failed.number is not None
            }
            indices, reasons = [failed.index for failed in group], [failed.reason for failed in group]
            pieces.append(Piece(replace(part, pages=pages), indices, reasons, repeats))
            continue
        document = await reopen(first.part)
        rows = len(document.pages)
        if document.reason is not None or not rows:
            continue
        opened = replace(
            part,
            source=document.source,
            version=document.version,
            pages=document.pages,
            page_total=document.page_total,
            reason=None,
            detail="",
            again=first.part.again,
        )
        pieces.append(Piece(opened, range(begin, begin + rows), [first.reason] + [""] * (rows - 1)))
        begin += rows
    return sorted(pieces, key=lambda piece: piece.indices[0]), begin
