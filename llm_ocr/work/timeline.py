"""Many workers' series on one line of time: equal bins of the time at work, pauses of all of them left out."""

import bisect
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from llm_ocr.work.series import Sample, Series

#: Bins that are drawn at most.
MOST_BINS = 120
#: A time in which nobody was at work is a pause when it is longer than this, in seconds, and than this share of the
#: time at work; a shorter one is shown as it was.
_PAUSE, _SHARE = 60.0, 0.05

#: What a sample gives, for its whole span.
Value = Callable[[Sample], float | None]


@dataclass(frozen=True, slots=True)
class Timeline:
    """`spans`: when somebody was at work, in seconds since 1970, in order; `bins` of `width` seconds cover them."""

    spans: tuple[tuple[float, float], ...]
    starts: tuple[float, ...]  # of each span, in seconds at work
    bins: int
    width: float

    @property
    def seconds(self) -> float:
        """Time at work."""
        return self.bins * self.width

    @property
    def pauses(self) -> tuple[tuple[float, float], ...]:
        """Where a pause was left out, in seconds at work, and how long it was."""
        gaps = zip(self.starts[1:], self.spans, self.spans[1:], strict=False)
        return tuple((start, after[0] - before[1]) for start, before, after in gaps)

    def at(self, moment: float) -> float:
        """Seconds at work before a moment (seconds since 1970)."""
        place = bisect.bisect_right(self.spans, (moment, float("inf"))) - 1
        if place < 0:
            return 0.0
        begin, end = self.spans[place]
        return self.starts[place] + min(moment, end) - begin


def timeline(found: Sequence[Series], most: int = MOST_BINS) -> Timeline | None:
    """None where nothing was sampled. Bins are no shorter than most samples are."""
    worked = [(one.began, one.began + one.seconds) for one in found if one.seconds > 0]
    if not worked:
        return None
    spans = _without_pauses(_union(worked))
    starts = [0.0]
    for begin, end in spans:
        starts.append(starts[-1] + end - begin)
    seconds = starts.pop()
    lengths = sorted(sample.seconds for one in found for sample in one.samples)
    usual = max(lengths[len(lengths) // 2], 1e-3)
    bins = max(1, min(most, int(seconds / usual)))
    return Timeline(tuple(spans), tuple(starts), bins, seconds / bins)


def _union(spans: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    joined: list[tuple[float, float]] = []
    for begin, end in sorted(spans):
        if joined and begin <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(joined[-1][1], end)
        else:
            joined.append((begin, end))
    return joined


def _without_pauses(spans: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    longest = max(_PAUSE, _SHARE * sum(end - begin for begin, end in spans))
    kept: list[tuple[float, float]] = []
    for begin, end in spans:
        if kept and begin - kept[-1][1] <= longest:
            kept[-1] = kept[-1][0], end
        else:
            kept.append((begin, end))
    return kept


def rates(line: Timeline, found: Iterable[Series], value: Value) -> list[float]:
    """`value` per second in each bin, summed over the series; within a sample it is taken to be spread evenly."""
    sums = [0.0] * line.bins
    for sample, share in _placed(line, found):
        amount = value(sample)
        for place, part in share if amount else ():
            sums[place] += (amount or 0.0) * part / line.width
    return sums


def levels(line: Timeline, found: Iterable[Series], value: Value) -> list[float]:
    """The mean of a gauge in each bin, summed over the series; a series counts nothing while it tells none."""
    sums = [0.0] * line.bins
    for sample, share in _placed(line, found):
        amount = value(sample)
        for place, part in share if amount else ():
            sums[place] += (amount or 0.0) * part * sample.seconds / line.width
    return sums


def _placed(line: Timeline, found: Iterable[Series]) -> Iterator[tuple[Sample, list[tuple[int, float]]]]:
    """Every sample, and its share of each bin that it touches; the shares of one are 1 together."""
    for series in found:
        begin = series.began
        for sample in series.samples:
            end = begin + sample.seconds
            yield sample, _shares(line, line.at(begin), line.at(end))
            begin = end


def _shares(line: Timeline, begin: float, end: float) -> list[tuple[int, float]]:
    first = min(int(begin / line.width), line.bins - 1)
    last = min(int(end / line.width), line.bins - 1)
    if end <= begin or first == last:
        return [(first, 1.0)]
    edges = [begin, *(line.width * place for place in range(first + 1, last + 1)), end]
    return [(first + place, (edges[place + 1] - edges[place]) / (end - begin)) for place in range(last - first + 1)]
