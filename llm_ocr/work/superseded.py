"""Rows that count no more since newer ones do: those of pages that were read again for their quality.

The plan says what each repeated row was (`Unit.repeats`), the marker of the unit that read them again which of the two
counts: the new one, unless it failed.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from llm_ocr.types import PageRecord, Status, Unit
from llm_ocr.work.quality import bin_of

#: Stands among the reasons of `Generation.replaced` for rows that were not failed.
LOW_QUALITY = "low quality"
#: In `Summary.extra` of Extract.
SUPERSEDED = "superseded"


def superseded_extra(unit: Unit, records: Iterable[PageRecord]) -> dict[str, Any]:
    """What the marker of a unit tells of the rows that no longer count, its own or older ones; {} without repeats."""
    old = {one.page_id: one for one in unit.repeats}
    if not old:
        return {}
    statuses: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    bins: Counter[str] = Counter()
    kept = []
    for record in records:
        before = old.get(record.page_id)
        if before is None:
            continue
        failed = record.status is Status.FAILED
        statuses[Status.FAILED.value if failed else before.status.value] += 1
        reason = record.reason if failed else before.reason
        reasons.update([reason.value] if reason else [])
        if failed:
            kept.append(record.page_id)
        elif before.quality is not None:
            bins[str(bin_of(before.quality))] += 1
    return {SUPERSEDED: {"statuses": statuses, "reasons": reasons, "bins": bins, "kept": kept}}


@dataclass(slots=True)
class SupersededSum:
    """Of all markers. `kept`: pages whose older row still counts, with the unit that did not do better."""

    statuses: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    bins: Counter[int] = field(default_factory=Counter)
    kept: set[tuple[str, str]] = field(default_factory=set)

    def add(self, unit: str, extra: Mapping[str, Any]) -> None:
        """One marker's."""
        told = extra.get(SUPERSEDED)
        if told is None:
            return
        self.statuses.update(told["statuses"])
        self.reasons.update(told["reasons"])
        self.bins.update({int(place): count for place, count in told["bins"].items()})
        self.kept.update((unit, page) for page in told["kept"])
