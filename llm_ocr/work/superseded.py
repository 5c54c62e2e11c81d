"""Rows that count no more since newer ones do: those of pages that were read again for their quality.

The plan says what each repeated row was (`Unit.repeats`), the marker of the unit that read them again which of the two
counts: the new one, unless it failed.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from llm_ocr.types import Counts, FigureRecord, PageRecord, Status, Unit
from llm_ocr.work.quality import bin_of

#: Stands among the reasons of `Generation.replaced` for rows that were not failed.
LOW_QUALITY = "low quality"
#: In `Summary.extra` of Extract.
SUPERSEDED = "superseded"
#: In `Summary.extra` of Describe: `[page, status, reason, how many figures]` of those that are not ok.
NOT_OK = "not_ok"


def superseded_extra(unit: Unit, records: Iterable[PageRecord]) -> dict[str, Any]:
    """What the marker of a unit tells of the rows that no longer count, its own or older ones; {} without repeats."""
    old = {one.page_id: one for one in unit.repeats}
    if not old:
        return {}
    statuses: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    bins: Counter[str] = Counter()
    kept = []
    figures: list[tuple[str, str, int]] = []
    for record in records:
        before = old.get(record.page_id)
        if before is None:
            continue
        failed = record.status is Status.FAILED
        statuses[Status.FAILED.value if failed else before.status.value] += 1
        reason = record.reason if failed else before.reason
        reasons.update([reason.value] if reason else [])
        by, found = (unit.id, len(record.figures)) if failed else (before.unit, before.figures)
        if found:
            figures.append((by, record.page_id, found))
        if failed:
            kept.append(record.page_id)
        elif before.quality is not None:
            bins[str(bin_of(before.quality))] += 1
    told = {"statuses": statuses, "reasons": reasons, "bins": bins, "kept": kept}
    return {SUPERSEDED: {**told, "figures": figures} if figures else told}


def not_ok_extra(records: Iterable[FigureRecord]) -> dict[str, Any]:
    """What Describe's marker of a unit tells of figures whose page may be read again: by page, what is not ok."""
    ends = Counter((one.page_id, one.status.value, one.reason.value if one.reason else "") for one in records)
    told = [[*end, count] for end, count in ends.items() if end[1:] != (Status.OK.value, "")]
    return {NOT_OK: told} if told else {}


@dataclass(slots=True)
class SupersededSum:
    """Of all markers. `kept`: pages whose older row still counts, with the unit that did not do better.

    `figures`: how many there are on pages of rows that do not count, by the unit that has the row, and page.
    """

    statuses: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    bins: Counter[int] = field(default_factory=Counter)
    kept: set[tuple[str, str]] = field(default_factory=set)
    figures: dict[str, dict[str, int]] = field(default_factory=dict)

    def add(self, unit: str, extra: Mapping[str, Any]) -> None:
        """One marker's."""
        told = extra.get(SUPERSEDED)
        if told is None:
            return
        self.statuses.update(told["statuses"])
        self.reasons.update(told["reasons"])
        self.bins.update({int(place): count for place, count in told["bins"].items()})
        self.kept.update((unit, page) for page in told["kept"])
        for by, page, count in told.get("figures", ()):
            self.figures.setdefault(by, {})[page] = count

    @property
    def found(self) -> int:
        """All those figures."""
        return sum(count for pages in self.figures.values() for count in pages.values())

    def described(self, unit: str, extra: Mapping[str, Any]) -> tuple[Counts, Counter[str]]:
        """How those of a unit ended, by its marker of Describe, and the reasons of those that are not ok."""
        pages = self.figures.get(unit, {})
        statuses: Counter[str] = Counter()
        reasons: Counter[str] = Counter()
        for page, status, reason, count in extra.get(NOT_OK, ()) if pages else ():
            if page in pages:
                statuses[status] += count
                reasons.update({reason: count} if reason else {})
        found, degraded, failed = sum(pages.values()), statuses[Status.DEGRADED], statuses[Status.FAILED]
        return Counts(found, found - degraded - failed, degraded, failed), reasons
