"""What a marker records of a unit's rows, and which of two rows of a page is better.

Summaries are sufficient for the status of a million pages: no row is read for it.
"""

import heapq
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Annotated

from pydantic import BaseModel, Field, PlainSerializer, StrictBool, StrictInt

from llm_ocr.results.balance import ink_totals
from llm_ocr.results.quality import what_is_wrong
from llm_ocr.results.routing import GAIN
from llm_ocr.types import Counts, FieldsRecord, FigureRecord, InkTotals, PageRecord, Repeated, Status, Totals, Unit

#: Upper limit of failures in a marker; the rows contain all of them.
MOST_EXAMPLES = 5

#: Bins of the histogram, each 0.05 wide; 1.0 is in the last bin.
BINS = 20
#: Upper limit of pages in a marker, and the score from which pages that are `ok` are not listed.
WORST, _GOOD = 20, 0.9
#: Longest detail of such a page in characters; that of a server's error may have thousands.
_DETAIL = 200


@dataclass(frozen=True, slots=True)
class Example:
    """Failed page, for messages. `page` is None for a document that could not be opened."""

    page_id: str
    source: str
    page: int | None
    reason: str
    detail: str = ""


def varied(examples: Iterable[Example]) -> tuple[Example, ...]:
    """Return at most `MOST_EXAMPLES` in their order: one of each reason before a second one of any reason."""
    found = list(examples)
    seen: Counter[str] = Counter()
    turns: list[tuple[int, int]] = []  # number of earlier examples of the reason, and place
    for place, example in enumerate(found):
        turns.append((seen[example.reason], place))
        seen[example.reason] += 1
    return tuple(found[place] for place in sorted(place for _, place in sorted(turns)[:MOST_EXAMPLES]))


@dataclass(frozen=True, slots=True)
class WeakPage:
    """Degraded page, or page of low quality. `wrong` describes the defects; `page` counts from 1."""

    score: float
    page_id: str
    source: str
    page: int | None
    wrong: str
    degraded: bool = False  # False in older markers


@dataclass(frozen=True, slots=True)
class UnbalancedPage:
    """Page with unread ink or unsupported text, as shares 0..1 of its ink and of its text."""

    unread: float
    unsupported: float
    page_id: str
    source: str
    page: int | None


class Quality(BaseModel, frozen=True):
    """Scores of a unit's pages: number of pages by bin, and the worst pages."""

    bins: Annotated[tuple[StrictInt, ...], Field(min_length=BINS, max_length=BINS)]
    worst: tuple[WeakPage, ...]


#: All fields are stored, as in the markers of older versions.
_Ink = Annotated[InkTotals, PlainSerializer(asdict)]


class Superseded(BaseModel, frozen=True):
    """Superseded rows of the pages that a unit read again: the unit's own or older ones.

    The plan records each repeated row (`Unit.repeats`). The marker of the repeating unit records the decision once, so
    that all readers have the same effective row: the new one, unless the older one is better (`gain`).
    """

    statuses: dict[str, StrictInt]
    reasons: dict[str, StrictInt]
    bins: dict[int, StrictInt]  # pages by bin of their score
    kept: tuple[str, ...]  # pages whose older row stays effective
    equal: StrictInt = 0
    figures: tuple[tuple[str, str, StrictInt], ...] = ()  # unit and page of a superseded row, and its figures
    ledger: _Ink = InkTotals()


class Extra(BaseModel, frozen=True):
    """What the markers of one stage record beside the counts. Markers lack values that are equal to their default."""

    # Of Extract.
    retries: StrictInt = 0  # requests beyond the first of each page
    sent: tuple[StrictInt, StrictInt] | None = None  # hybrid runs: pages read by a model after the CPU engine, and kept
    estimated: StrictInt = 0  # documents that were not counted in the plan
    planned: StrictInt = 0  # with these, the pages that the plan assumed for the unit
    given_up: StrictBool = False  # a unit of a retry that was given up
    quality: Quality | None = None  # None if no page has a score
    ledger: _Ink = InkTotals()  # of all pages
    unbalanced: tuple[UnbalancedPage, ...] = ()  # with the largest shares of unread ink and of unsupported text
    superseded: Superseded | None = None  # None if no page was read again
    # Of Describe, by page, because a page may be read again.
    not_ok: tuple[tuple[str, str, str, StrictInt], ...] = ()  # page, status, reason, and number of figures not ok
    undescribed: dict[str, StrictInt] = {}  # number of ok figures of which the engine has nothing to say


@dataclass(frozen=True, slots=True)
class Summary:
    """Summary of a unit's rows in its marker, sufficient for `status` of a million pages.

    `counts` are pages (in Assemble too); in Fields, documents. `figures` are figures: Extract fills `expected` only,
    Describe all counts. `reasons` counts rows that are not ok by reason. `seconds` is the sum over the rows.
    """

    counts: Counts = field(default_factory=Counts)
    figures: Counts = field(default_factory=Counts)
    tokens_in: int = 0
    tokens_out: int = 0
    seconds: float = 0.0
    reasons: Mapping[str, int] = field(default_factory=dict)
    examples: tuple[Example, ...] = ()
    replaces: int = 0
    extra: Extra = field(default_factory=Extra)


def pages_summary(unit: Unit, records: Sequence[PageRecord]) -> Summary:
    """Return the summary of a unit of Extract. `expected` comes from the plan, so that publishing detects a lost row.

    Documents of the unit that the plan did not count have been counted by now.
    """
    repeated = {row.page_id for row in unit.repeats}  # where these failed, an older row is effective
    failed = [record for record in records if record.status is Status.FAILED and record.page_id not in repeated]
    examples = (
        Example(
            record.page_id,
            record.source,
            record.page_number,
            record.reason.value if record.reason else "",
            record.detail,
        )
        for record in failed
    )
    retries = sum(max(0, sum(GAIN not in attempt for attempt in record.attempts) - 1) for record in records)
    hybrid = [record for record in records if record.attempts and GAIN in record.attempts[0]]
    sent = [record for record in hybrid if GAIN not in record.attempts[-1]]
    return replace(
        _summary(records),
        counts=_counts(unit.expected, records),
        figures=Counts(expected=sum(len(record.figures) for record in records)),
        examples=varied(examples),
        replaces=unit.replaces,
        extra=Extra(
            retries=retries,
            sent=(len(sent), sum(record.text_source == "model" for record in sent)) if hybrid else None,
            estimated=unit.estimated,
            planned=unit.planned if unit.estimated else 0,
            quality=_quality(records),
            ledger=sum((ink_totals(record.ledger, record.reason) for record in records), InkTotals()),
            unbalanced=_unbalanced(records),
            superseded=_superseded(unit, records),
        ),
    )


def figures_summary(expected: int, records: Sequence[FigureRecord]) -> Summary:
    """Return the summary of a unit of Describe. `expected` is the number of figures that Extract found in the unit."""
    ends = Counter((one.page_id, one.status.value, one.reason.value if one.reason else "") for one in records)
    # The data of the CPU engine are the letters inside a figure.
    undescribed = Counter(
        one.page_id
        for one in records
        if one.status is Status.OK and not (one.description or one.label or (one.data and one.engine != "embedded"))
    )
    not_ok = tuple((*end, count) for end, count in ends.items() if end[1:] != (Status.OK.value, ""))
    extra = Extra(not_ok=not_ok, undescribed=dict(undescribed))
    return replace(_summary(records), figures=_counts(expected, records), extra=extra)


def fields_summary(expected: int, records: Sequence[FieldsRecord]) -> Summary:
    """Return the summary of an item of Fields, whose counts are documents. `expected` comes from the plan."""
    failed = (record for record in records if record.status is Status.FAILED)
    examples = varied(Example(one.document_id, one.source, None, str(one.reason), one.detail) for one in failed)
    return replace(_summary(records), counts=_counts(expected, records), examples=examples)


def _summary(records: Sequence[PageRecord | FigureRecord | FieldsRecord]) -> Summary:
    """Return what the summaries of all stages have: costs, and the reasons of rows that are not ok."""
    return Summary(
        tokens_in=sum(record.tokens_in for record in records),
        tokens_out=sum(record.tokens_out for record in records),
        seconds=sum(record.seconds for record in records),
        reasons=dict(Counter(record.reason.value for record in records if record.reason is not None)),
    )


def _counts(expected: int, records: Sequence[PageRecord | FigureRecord | FieldsRecord]) -> Counts:
    found = Counter(record.status for record in records)
    return Counts(expected, found[Status.OK], found[Status.DEGRADED], found[Status.FAILED])


# Quality and ledgers.


def bin_of(score: float) -> int:
    """Return the index of a score's bin."""
    return min(BINS - 1, max(0, int(score * BINS)))


def _quality(records: Iterable[PageRecord]) -> Quality | None:
    bins = [0] * BINS
    worst: list[WeakPage] = []
    for record in records:
        if record.quality is None:
            continue
        bins[bin_of(record.quality)] += 1
        degraded = record.status is Status.DEGRADED
        if record.quality < _GOOD or degraded:
            wrong = what_is_wrong(record.quality_parts) or record.detail[:_DETAIL] or record.reason or ""
            worst.append(WeakPage(record.quality, record.page_id, record.source, record.page_number, wrong, degraded))
    return Quality(bins=tuple(bins), worst=tuple(heapq.nsmallest(WORST, worst, key=rank))) if any(bins) else None


def _unbalanced(records: Iterable[PageRecord]) -> tuple[UnbalancedPage, ...]:
    """Return the pages of a unit with the most unread ink and unsupported text."""
    found: list[UnbalancedPage] = []
    for record in records:
        page = ink_totals(record.ledger, record.reason)
        if record.ledger is not None and (page.unread_pages or page.unsupported_pages):
            shares = record.ledger.unread_share, record.ledger.unsupported_share
            found.append(UnbalancedPage(*shares, record.page_id, record.source, record.page_number))
    return tuple({page.page_id: page for side in worst_sides(found, WORST) for page in side}.values())


def worst_sides(pages: Sequence[UnbalancedPage], most: int) -> tuple[list[UnbalancedPage], list[UnbalancedPage]]:
    """Return at most this many pages with the largest shares of unread ink, and of unsupported text, worst first."""
    unread = heapq.nsmallest(most, pages, key=lambda page: (-page.unread, page.source, page.page or 0))
    unsupported = heapq.nsmallest(most, pages, key=lambda page: (-page.unsupported, page.source, page.page or 0))
    return [page for page in unread if page.unread > 0], [page for page in unsupported if page.unsupported > 0]


def rank(page: WeakPage) -> tuple[bool, float, str, int]:
    """Return a sort key: degraded pages first, and of each kind the worst."""
    return not page.degraded, page.score, page.source, page.page or 0


# Pages that were read again.


@dataclass(frozen=True, slots=True)
class Again(Totals):
    """Pages that finished units of a retry read again, and pages that were given up before.

    The older row of `kept` pages is effective, or both rows are failed. The rows of `equal` pages are equally good. The
    new rows of `failed` pages, which are among those kept, have no text.
    """

    read: int = 0
    kept: int = 0
    equal: int = 0
    given_up: int = 0
    failed: int = 0


def read_again(summary: Summary) -> Again:
    """Return the result of a finished unit of a retry."""
    if summary.extra.given_up:
        return Again(given_up=summary.counts.expected)
    kept, equal, failed = 0, 0, summary.counts.failed
    if found := summary.extra.superseded:
        kept, equal, failed = len(found.kept), found.equal, failed - found.statuses.get(Status.FAILED.value, 0)
    return Again(summary.counts.expected, kept + failed, equal, failed=summary.counts.failed)


def correction(summary: Summary) -> int:
    """Return the rows of a finished unit of Extract minus the rows that the plan assumed. May be negative."""
    return summary.counts.expected - summary.extra.planned if summary.extra.estimated else 0


#: Reason in `Generation.replaced` for rows that were not failed.
LOW_QUALITY = "low quality"

#: From the worst to the best.
RANKS = (Status.FAILED, Status.DEGRADED, Status.OK)


def gain(new: PageRecord, old: "Repeated | PageRecord") -> float:
    """Return how much better the new row of a page is: below 0, the older row stays effective; 0 for equal rows.

    The status decides. If it is equal, the row with less ink and text unaccounted for is better, if both have a ledger,
    and then the row with the higher quality, if both have one.
    """
    if new.status is not old.status:
        return RANKS.index(new.status) - RANKS.index(old.status)
    if new.ledger is not None and old.ledger is not None and new.ledger.imbalance != old.ledger.imbalance:
        return old.ledger.imbalance - new.ledger.imbalance
    return 0.0 if new.quality is None or old.quality is None else new.quality - old.quality


def kept_pages(summary: Summary) -> frozenset[str]:
    """Return the pages that a unit read again and whose older row stays effective, from the unit's marker."""
    return frozenset(summary.extra.superseded.kept if summary.extra.superseded else ())


def _superseded(unit: Unit, records: Iterable[PageRecord]) -> Superseded | None:
    old = {row.page_id: row for row in unit.repeats}
    if not old:
        return None
    statuses: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    bins: Counter[int] = Counter()
    ledger = InkTotals()
    kept, equal = [], 0
    figures: list[tuple[str, str, int]] = []
    for record in records:
        before = old.get(record.page_id)
        if before is None:
            continue
        row: PageRecord | Repeated = before
        by, found = before.unit, before.figures
        gained = gain(record, before)
        equal += gained == 0
        if gained < 0:
            row, by, found = record, unit.id, len(record.figures)
            kept.append(record.page_id)
        statuses[row.status.value] += 1
        reasons.update([row.reason.value] if row.reason else [])
        ledger += ink_totals(row.ledger, row.reason)
        if row.quality is not None:
            bins[bin_of(row.quality)] += 1
        if found:
            figures.append((by, record.page_id, found))
    return Superseded(
        statuses=dict(statuses),
        reasons=dict(reasons),
        bins=dict(bins),
        kept=tuple(kept),
        equal=equal,
        figures=tuple(figures),
        ledger=ledger,
    )
