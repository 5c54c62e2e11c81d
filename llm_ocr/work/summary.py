"""What a unit's marker tells, counted from the unit's rows."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from llm_ocr.types import Counts, FigureRecord, PageRecord, Reason, Status, Unit
from llm_ocr.work.publish import Example, Summary, varied
from llm_ocr.work.quality import quality_extra
from llm_ocr.work.superseded import not_ok_extra, superseded_extra

#: In `Summary.extra` of Extract: requests beyond the first of each page.
RETRIES = "retries"
#: And, where the plan had not counted documents of the unit: how many, and the pages that it took the unit for.
ESTIMATED, PLANNED = "estimated", "planned"


def pages_summary(unit: Unit, records: Sequence[PageRecord]) -> Summary:
    """For Extract. What is expected comes from the plan, so that a lost row is noticed when the unit is published.

    Documents of the unit that the plan did not count have been counted by now.
    """
    better = {one.page_id for one in unit.repeats}  # of these an older row counts
    failed = [record for record in records if record.status is Status.FAILED and record.page_id not in better]
    return Summary(
        counts=_counts(unit.expected, (record.status for record in records)),
        figures=Counts(expected=sum(len(record.figures) for record in records)),
        tokens_in=sum(record.tokens_in for record in records),
        tokens_out=sum(record.tokens_out for record in records),
        seconds=sum(record.seconds for record in records),
        reasons=_reasons(record.reason for record in records),
        examples=varied(_example(record) for record in failed),
        replaces=unit.replaces,
        extra=_extra(unit, records),
    )


def _extra(unit: Unit, records: Sequence[PageRecord]) -> dict[str, Any]:
    retries = sum(max(0, len(one.attempts) - 1) for one in records)
    estimate = {ESTIMATED: unit.estimated, PLANNED: unit.planned} if unit.estimated else {}
    told = {RETRIES: retries} if retries else {}
    return {**estimate, **told, **quality_extra(records), **superseded_extra(unit, records)}


def correction(summary: Summary) -> int:
    """By how much a finished unit of Extract has more rows than the plan took it for; below 0: fewer."""
    return summary.counts.expected - int(summary.extra.get(PLANNED, summary.counts.expected))


def figures_summary(expected: int, records: Sequence[FigureRecord], *, replaces: int = 0) -> Summary:
    """For Describe. `expected` is the number of figures that Extract found in the unit."""
    return Summary(
        figures=_counts(expected, (record.status for record in records)),
        tokens_in=sum(record.tokens_in for record in records),
        tokens_out=sum(record.tokens_out for record in records),
        seconds=sum(record.seconds for record in records),
        reasons=_reasons(record.reason for record in records),
        replaces=replaces,
        extra=not_ok_extra(records),
    )


def _counts(expected: int, statuses: Iterable[Status]) -> Counts:
    found = Counter(statuses)
    return Counts(expected, found[Status.OK], found[Status.DEGRADED], found[Status.FAILED])


def _reasons(reasons: Iterable[Reason | None]) -> dict[str, int]:
    return dict(Counter(reason.value for reason in reasons if reason is not None))


def _example(record: PageRecord) -> Example:
    reason = record.reason.value if record.reason else ""
    return Example(record.page_id, record.source, record.page_number, reason, record.detail)
