"""Plan pages again: a new generation with failed pages, pages of low quality, or the pages of a list.

`retry-failed` plans them with the settings of the workspace, `repair` with settings of its own. The older rows stay
in their units. The marker of the new unit records which row of a page is effective (`summaries.gain`).

Pages with failed figures are planned too, and their rows are copied into the new units, so that no page is read:
Describe then asks for the figures, and all later stages see new units.
"""

import asyncio
import io
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Self

from llm_ocr.documents.remote import shown
from llm_ocr.errors import UsageError
from llm_ocr.results.balance import has_unread_ink, has_unsupported_text
from llm_ocr.results.schema import Images, PageStatus, iter_pages, page_statuses, pages_to_parquet
from llm_ocr.types import ALL_PAGES, DocumentPart, PageRecord, Reason, Repeated, Status, Unit, page_id, plural
from llm_ocr.workspace import Workspace, codec, library_version
from llm_ocr.workspace.generations import (
    Generation,
    Kind,
    Piece,
    Repair,
    generations,
    units_of,
    write_generation,
)
from llm_ocr.workspace.items import whole_documents
from llm_ocr.workspace.keys import DESCRIBE, EXTRACT
from llm_ocr.workspace.plan import SMALL_PLAN, id_by_content, planned_among
from llm_ocr.workspace.planned import PlannedDocument, place_of
from llm_ocr.workspace.publish import Marker, attempt_id, iter_markers, publish, read_data, standing_marker
from llm_ocr.workspace.published import published_figures
from llm_ocr.workspace.status import superseded_figures
from llm_ocr.workspace.summaries import LOW_QUALITY, RANKS, Summary, bin_of, kept_pages, pages_summary

#: Opens a document again and counts its pages, with the currently known passwords.
Reopen = Callable[[DocumentPart], Awaitable[PlannedDocument]]

#: Reasons of degraded pages that are in the page or in its answers. The others are those of a machine or a server.
_OF_THE_ANSWER = frozenset(
    {
        *(Reason.LOOP, Reason.TRUNCATED, Reason.EMPTY, Reason.MALFORMED, Reason.TOO_LONG, Reason.PLACEHOLDER),
        *(Reason.LOW_QUALITY, Reason.UNREAD, Reason.UNSUPPORTED),
    }
)


@dataclass(frozen=True, slots=True)
class NamedPages:
    """Pages of a user's list. `lines` has the line of each page, by page id, or by path and page number."""

    file: Path
    lines: Mapping[str | tuple[str, int], str]

    @classmethod
    def read(cls, file: Path) -> Self:
        """Read a list: in each line a page id, a path, a tab, and a page number, or a JSON object with `page_id`.

        Raises:
            UsageError: the file cannot be read, or a line has another form.
        """
        try:
            texts = file.read_text(encoding="utf-8-sig").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
            raise UsageError(f"`page_list={file}`: {why or error}") from error
        lines: dict[str | tuple[str, int], str] = {}
        for number, text in enumerate(texts, 1):
            path, tab, page = text.rpartition("\t")
            try:
                if text.startswith("{"):
                    lines[str(json.loads(text)["page_id"])] = text
                elif tab:
                    lines[path, int(page)] = lines[str(Path(path).absolute()), int(page)] = text
                elif text.strip():
                    lines[text.strip()] = text
            except (KeyError, ValueError) as error:
                raise UsageError(
                    f"`page_list={file}`: line {number} names no page: {text[:100]}",
                    hint='Each line is a page id, PATH<TAB>PAGE, or JSON with "page_id".',
                ) from error
        return cls(file, lines)

    def of(self, part: DocumentPart, number: int | None) -> set[str]:
        """Return the lines that name a page of the document."""
        names = (part.relative, *part.aliases, part.source, shown(part.source))
        keys: list[str | tuple[str, int]] = [page_id(part.document_id, number)]
        keys += [(name, number) for name in names if number is not None]
        return {self.lines[key] for key in keys if key in self.lines}

    def of_unit(self, unit: Unit) -> set[str]:
        """Return the lines that name a page of the unit, as far as the plan knows its pages."""
        pages = ((part, number) for part in unit.parts for number in (part.pages or (None,)))
        return set[str]().union(*(self.of(part, number) for part, number in pages))

    def check(self, known: set[str]) -> None:
        """Raise `UsageError` if a line names no page of the plan."""
        unknown = list(dict.fromkeys(line for line in self.lines.values() if line not in known))
        if unknown:
            more = f", and {plural(len(unknown) - 1, 'other page')}" if len(unknown) > 1 else ""
            raise UsageError(
                f"`page_list={self.file}`: the workspace has no page {' page '.join(unknown[0].split())}{more}",
                hint="Each line is a page id, or a path, a tab, and a page number. Exports contain the ids.",
            )


@dataclass(frozen=True, slots=True)
class Selection:
    """Pages to read again. A page is chosen if its effective row meets one of the conditions."""

    statuses: frozenset[Status] = frozenset({Status.FAILED})  # the row has one of these statuses
    unbalanced: bool = False  # the row has unread ink or unsupported text, by its shares or by its reason
    below: float | None = None  # the row has a quality below this
    named: NamedPages | None = None  # the list names the page
    most: int | None = None  # upper limit of pages, with those of unfinished repairs; the worst are first

    def may_have(self, summary: Summary) -> bool:
        """Return whether a unit may have such pages, according to its marker."""
        counts = {Status.FAILED: summary.counts.failed, Status.DEGRADED: summary.counts.degraded}
        quality, ledger = summary.extra.quality, summary.extra.ledger
        low = self.below is not None and quality is not None and any(quality.bins[: bin_of(self.below) + 1])
        counted = any(counts.get(status, 0) for status in self.statuses)
        uneven = self.unbalanced and (ledger.unread_pages > 0 or ledger.unsupported_pages > 0)
        return low or counted or uneven or self.named is not None

    def has(self, row: PageStatus) -> bool:
        """Return whether a row is chosen by its status, quality, or ledger."""
        low = self.below is not None and row.quality is not None and row.quality < self.below
        ledger, reason = row.ledger, row.reason
        uneven = self.unbalanced and (has_unread_ink(ledger, reason) or has_unsupported_text(ledger, reason))
        return low or uneven or row.status in self.statuses


@dataclass(frozen=True, slots=True)
class _Chosen:
    """Page to read again (number None: a document), its latest part of the plan, and its effective row in `unit`."""

    part: DocumentPart
    number: int | None
    index: int
    row: PageStatus
    unit: str

    @property
    def failed(self) -> bool:
        return self.row.status is Status.FAILED

    @property
    def reason(self) -> str:
        """Return the reason in `Generation.replaced`."""
        return str(self.row.reason or "unknown") if self.failed else LOW_QUALITY

    @property
    def repeated(self) -> Repeated:
        row = self.row
        return Repeated(row.page_id, row.status, row.reason, row.quality, row.figures, self.unit, row.ledger)

    @property
    def badness(self) -> tuple[int, float, float, int]:
        """Return a sort key: worst first."""
        quality = 1.0 if self.row.quality is None else self.row.quality
        imbalance = self.row.ledger.imbalance if self.row.ledger else 0.0
        return RANKS.index(self.row.status), -imbalance, quality, self.index


@dataclass(slots=True)
class _State:
    """Pages to read again after the generations processed so far."""

    chosen: dict[str, _Chosen] = field(default_factory=dict)  # by page id
    tried: set[str] = field(default_factory=set)  # ids of pages that were read with the same settings already
    item_of: dict[str, str] = field(default_factory=dict)  # by document id, for documents ever in `chosen`


async def plan_retry(
    workspace: Workspace,
    key: str,
    *,
    reopen: Reopen,
    pages_per_unit: int,
    least_per_unit: int | None = None,
    selection: Selection = Selection(),
    repair: Repair | None = None,
    check: Callable[[], Awaitable[None]] | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Generation | None:
    """Write a generation with all pages whose effective row under Extract's `key` is in the selection.

    Pages in an unfinished retry are left to that retry. Pages that were read with the settings of the repair are not
    read with them again, unless a machine or a server is the reason that they are not `ok`. A document that could not
    be opened is opened again. On success, the generation holds its pages, which supersede its only row; otherwise
    nothing changes.

    Args:
        workspace: the workspace.
        key: key of Extract.
        reopen: opens a document again and counts its pages.
        pages_per_unit: upper limit of pages in a unit.
        least_per_unit: a small plan has smaller units than `pages_per_unit`, with at least this many pages.
        selection: the pages.
        repair: settings with which the pages are read; None for the workspace's.
        check: is called before the generation is written, and raises if its pages cannot be read.
        say: receives a message for each document that is left out.

    Returns:
        The generation, or None if there is nothing to read again, or if the launch of the repair has planned it.

    Raises:
        UsageError: the selection names an unknown page.
    """
    own = None if repair is None else repair.key
    while True:
        found = await asyncio.to_thread(generations, workspace)
        if repair is not None and any(one.of_launch(repair.launch) for one in found):
            return None
        state = await asyncio.to_thread(_chosen_now, workspace, key, found, selection, own)
        begin = found[-1].next_index if found else 0
        pieces, next_index = await _pieces(workspace, found, state, reopen, begin, say)
        if not pieces:
            return None
        least = least_per_unit or pages_per_unit
        size = min(pages_per_unit, max(least, least * len(state.chosen) // SMALL_PLAN))
        touched = sorted({state.item_of[piece.part.document_id] for piece in pieces})
        draft = Generation(
            len(found) + 1,
            Kind.RETRY,
            attempt_id(),
            size,
            next_index,
            touched=tuple(touched),
            created_by=library_version(),
            repair=repair,
        )
        if check is not None:
            await check()
        published = await asyncio.to_thread(write_generation, workspace, draft, partial(iter, pieces))
        if published.attempt == draft.attempt:
            return published
        # Another generation was published first: determine the chosen and the waiting pages again.


def _chosen_now(
    workspace: Workspace, key: str, found: Sequence[Generation], selection: Selection, own: str | None
) -> _State:
    kept: dict[str, frozenset[str]] = {}  # pages of finished units whose older row is effective
    markers: dict[str, Marker] = {}  # of the units that may have chosen rows, or failed rows of an earlier repair
    done: set[str] = set()
    for marker in iter_markers(workspace, EXTRACT, key):
        done.add(marker.unit)
        if pages := kept_pages(marker.summary):
            kept[marker.unit] = pages
        if marker.counts.failed or selection.may_have(marker.summary):
            markers[marker.unit] = marker
    earlier = {generation.number for generation in found if generation.key(key) == own}
    retries = (units_of(workspace, generation) for generation in found if generation.kind is Kind.RETRY)
    retried = {part.document_id for units in retries for unit in units for part in unit.parts}
    known: set[str] = set()  # lines of the user's list
    unfinished: set[int] = set()  # repairs with the same settings
    state = _State()
    for item, unit in _units_with_items(workspace, found):
        found_marker = markers.get(unit.id)
        wanted = found_marker is not None and selection.may_have(found_marker.summary)
        if selection.named is not None:
            lines = selection.named.of_unit(unit)
            known |= lines
            wanted = wanted and (bool(lines) or unit.estimated > 0)
        rows: list[PageStatus] = []
        if found_marker is not None and (wanted or unit.generation in earlier):
            rows = page_statuses(read_data(workspace, found_marker))
        older = kept.get(unit.id, frozenset[str]())
        if item is None:
            # The rows of a retry, published or pending, supersede older rows, except those that its marker names.
            repeated = {page_id(part.document_id, number) for part in unit.parts for number in (None, *part.pages)}
            for page in repeated - older:
                state.chosen.pop(page, None)
            if unit.generation in earlier and unit.id not in done:
                unfinished.add(unit.generation)
            elif unit.generation in earlier:
                state.tried |= repeated - {row.page_id for row in rows if not _answered(row)}
        else:
            state.tried |= {row.page_id for row in rows if unit.generation in earlier and _answered(row)}
            documents = retried.intersection(part.document_id for part in unit.parts)
            state.item_of.update(dict.fromkeys(documents, item))
        where = unit.id if found_marker is None else found_marker.object
        for chosen in _chosen_rows(unit, rows if wanted else (), selection, known, where):
            if chosen.row.page_id not in older:
                state.chosen[chosen.row.page_id] = chosen
                if item is not None:
                    state.item_of[chosen.part.document_id] = item
    if selection.named is not None:
        selection.named.check(known)
    left = [page for page in state.chosen if page not in state.tried]
    left.sort(key=lambda page: state.chosen[page].badness)
    planned = sum(one.expected for one in found if one.number in unfinished)
    most = None if selection.most is None else max(0, selection.most - planned)
    state.chosen = {page: state.chosen[page] for page in left[:most]}
    return state


def _answered(row: PageStatus) -> bool:
    """Return whether the page was read, so that the same settings would read the same."""
    return row.status is Status.OK or (row.status is Status.DEGRADED and row.reason in _OF_THE_ANSWER)


def _chosen_rows(
    unit: Unit, rows: Iterable[PageStatus], selection: Selection, known: set[str], where: str
) -> Iterator[_Chosen]:
    """Yield the rows of a unit that are in the selection. Lines of the user's list that name a page go to `known`.

    Raises:
        WorkspaceError: the data of the unit, at `where`, have a row of another unit.
    """
    uncounted = {part.document_id: part for part in unit.parts if not part.counted}
    places = {
        page_id(part.document_id, number): (part, number, part.first_index + position)
        for part in unit.parts
        for position, number in enumerate(part.pages or (None,))
    }
    for row in rows:
        place, whole = places.get(row.page_id), uncounted.get(row.document_id)
        if place is None and whole is not None and row.page_number is not None:  # counted after planning
            place = whole, row.page_number, whole.index_of(place_of(whole.wanted, row.page_number))
        lines = selection.named.of(place[0], row.page_number) if selection.named is not None and place else set[str]()
        known |= lines
        if not (lines or selection.has(row)):
            continue
        if place is None:
            raise codec.damaged(where, f"the page {row.page_id} is not in unit {unit.id}")
        yield _Chosen(*place, row, unit.id)


def _units_with_items(workspace: Workspace, found: Iterable[Generation]) -> Iterator[tuple[str | None, Unit]]:
    """Yield all units in order, each with the item of its documents; None for units of retries."""
    for generation in found:
        for group in whole_documents(units_of(workspace, generation)):
            item = group[0].id if generation.kind is Kind.SOURCES else None
            yield from ((item, unit) for unit in group)


async def _pieces(
    workspace: Workspace,
    found: Sequence[Generation],
    state: _State,
    reopen: Reopen,
    begin: int,
    say: Callable[[str], None],
) -> tuple[list[Piece], int]:
    """Return the pieces to read again, by dataset index, and the next free index.

    A document that can be opened now is left out if a later plan has the file as it is now. Its pages would be
    published twice.
    """
    by_document: dict[str, list[_Chosen]] = {}
    for chosen in sorted(state.chosen.values(), key=lambda chosen: chosen.index):
        by_document.setdefault(chosen.part.document_id, []).append(chosen)
    pieces: list[Piece] = []
    opened: list[tuple[str, DocumentPart, str]] = []  # with the id that a plan would give the document, and the reason
    for group in by_document.values():
        first = group[0]
        part = replace(first.part, estimate=0, wanted=ALL_PAGES, again=False)
        if first.number is not None:
            numbered = [(chosen.number, chosen) for chosen in group if chosen.number is not None]
            pages = tuple(number for number, _ in numbered)
            repeats = {number: chosen.repeated for number, chosen in numbered if not chosen.failed}
            indices, reasons = [chosen.index for chosen in group], [chosen.reason for chosen in group]
            pieces.append(Piece(replace(part, pages=pages), indices, reasons, repeats))
            continue
        document = await reopen(first.part)
        if document.reason is not None or not document.pages:
            continue
        part = replace(
            part,
            source=document.source,
            version=document.version,
            pages=document.pages,
            page_total=document.page_total,
            reason=None,
            detail="",
            again=first.part.again,
        )
        has_manifest_id = part.document_id != id_by_content(first.part)
        opened.append((part.document_id if has_manifest_id else id_by_content(part), part, first.reason))
    others = {name for name, part, _ in opened if name != part.document_id}
    planned = await asyncio.to_thread(planned_among, workspace, found, others) if others else set()
    for name, part, reason in opened:
        if name in planned:
            say(f"{shown(part.source)} is not read again: the plan has the new file. Its older row stays failed.")
            continue
        rows = len(part.pages)
        pieces.append(Piece(part, range(begin, begin + rows), [reason] + [""] * (rows - 1)))
        begin += rows
    return sorted(pieces, key=lambda piece: piece.indices[0]), begin


def failed_figures(workspace: Workspace, key: str, described: str) -> dict[str, int]:
    """Return the number of failed figures of each page that has any, by page id.

    Figures of superseded rows do not count.

    Args:
        workspace: the workspace.
        key: key of Extract.
        described: key of Describe.
    """
    superseded = superseded_figures(workspace, EXTRACT, key)
    failing = [marker for marker in iter_markers(workspace, DESCRIBE, described) if marker.figures.failed]
    return Counter(
        row.page_id
        for marker in failing
        for row in published_figures(workspace, [marker]).values()
        if row.status is Status.FAILED and row.page_id not in superseded.get(marker.unit, {})
    )


def copy_rows(workspace: Workspace, key: str, generation: Generation) -> None:
    """Publish the units of a retry with the rows that it supersedes: none of its pages is failed, and none is read.

    Args:
        workspace: the workspace.
        key: key of Extract.
        generation: the retry.
    """
    for unit in units_of(workspace, generation):
        by = {row.page_id: row.unit for row in unit.repeats}
        rows: dict[str, PageRecord] = {}
        for older in dict.fromkeys(by.values()):
            data = read_data(workspace, standing_marker(workspace, EXTRACT, key, older))
            found = iter_pages(io.BytesIO(data), images=Images.ALL)
            rows |= {row.page_id: row for row in found if by.get(row.page_id) == older}
        copies = [rows[page_id(part.document_id, number)] for part in unit.parts for number in part.pages]
        summary = pages_summary(unit, copies)
        extra = summary.extra.model_copy(update={"retries": 0, "sent": None})  # the costs are those of the older rows
        free = replace(summary, tokens_in=0, tokens_out=0, seconds=0.0, extra=extra)
        publish(workspace, EXTRACT, key, unit.id, pages_to_parquet(copies), free)
