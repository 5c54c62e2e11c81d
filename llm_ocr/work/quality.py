"""Quality over many pages: a histogram and the worst pages, small enough for every marker."""

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from llm_ocr.results.quality.words import what_is_wrong
from llm_ocr.types import PageRecord

#: In `Summary.extra` of Extract: `{"bins": counts, "worst": the worst pages}`; missing where no page has a score.
QUALITY = "quality"
#: Bins of the histogram, each 0.05 wide; 1.0 is in the last one.
BINS = 20
#: Pages that a marker names; and the score from which on nothing is worth naming.
WORST, _GOOD = 20, 0.9


@dataclass(frozen=True, slots=True)
class WeakPage:
    """A page of low quality. `wrong` says in words what is; `page` counts from 1."""

    score: float
    page_id: str
    source: str
    page: int | None
    wrong: str

    def to_json(self) -> dict[str, Any]:
        """JSON values."""
        return asdict(self)


def bin_of(score: float) -> int:
    """The place of a score's bin."""
    return min(BINS - 1, max(0, int(score * BINS)))


def quality_extra(records: Iterable[PageRecord]) -> dict[str, Any]:
    """What a unit's marker tells of its rows' quality."""
    bins = [0] * BINS
    worst: list[WeakPage] = []
    for record in records:
        if record.quality is None:
            continue
        bins[bin_of(record.quality)] += 1
        if record.quality < _GOOD:
            wrong = what_is_wrong(record.quality_parts)
            worst.append(WeakPage(record.quality, record.page_id, record.source, record.page_number, wrong))
    named = [one.to_json() for one in heapq.nsmallest(WORST, worst, key=rank)]
    return {QUALITY: {"bins": bins, "worst": named}} if any(bins) else {}


def has_below(extra: Mapping[str, Any], score: float) -> bool:
    """Whether a unit may have pages below the score, by its marker."""
    bins: Sequence[int] = extra.get(QUALITY, {}).get("bins", ())
    return any(bins[: bin_of(score) + 1])


@dataclass(slots=True)
class QualitySum:
    """The quality of all markers, added up; of the pages at most `most` of each unit's worst, and 1,000."""

    most: int = WORST
    bins: list[int] = field(default_factory=lambda: [0] * BINS)
    worst: list[tuple[str, WeakPage]] = field(default_factory=list)  # with the unit

    def add(self, unit: str, extra: Mapping[str, Any]) -> None:
        """One marker's."""
        told = extra.get(QUALITY)
        if told is None:
            return
        self.bins = [mine + more for mine, more in zip(self.bins, told["bins"], strict=True)]
        self.worst += [(unit, WeakPage(**one)) for one in told["worst"]]
        if len(self.worst) > 2 * self._kept:
            self._cut()

    def without(self, bins: Mapping[int, int]) -> "tuple[int, ...]":
        """The histogram without rows that others stand for, by bin; () where no page has a score."""
        left = tuple(count - bins.get(place, 0) for place, count in enumerate(self.bins))
        return left if any(self.bins) else ()

    def named(self) -> list[tuple[str, WeakPage]]:
        """The worst pages with their units, the worst first."""
        self._cut()
        return self.worst

    @property
    def _kept(self) -> int:
        return max(1000, 2 * self.most)  # some may be of rows that newer ones stand for

    def _cut(self) -> None:
        self.worst = heapq.nsmallest(self._kept, self.worst, key=lambda one: rank(one[1]))


def rank(page: WeakPage) -> tuple[float, str, int]:
    """For sorting: the worst first."""
    return page.score, page.source, page.page or 0
