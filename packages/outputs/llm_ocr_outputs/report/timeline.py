"""Time axis of the report's charts, and values of workers' series on it."""

import bisect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from llm_ocr.workspace.metrics import Sample, Series
from llm_ocr_outputs.places import joined_ranges

#: Upper limit of bins in a chart.
MOST_BINS = 120
#: A time without any active worker is a pause if it is longer than this number of seconds and this share of the active
#: time. Shorter times are shown.
_PAUSE, _SHARE = 60.0, 0.05

#: Returns the value of a sample for its whole span.
Value = Callable[[Sample], float | None]


@dataclass(frozen=True, slots=True)
class Timeline:
    """Time axis for many workers' series: equal bins of active time, without pauses of all workers.

    `spans` are active times in order, in seconds since 1970; `bins` of `width` seconds cover them.
    """

    spans: tuple[tuple[float, float], ...]
    starts: tuple[float, ...]  # start of each span, in seconds of active time
    bins: int
    width: float

    @property
    def seconds(self) -> float:
        """Active time in seconds."""
        return self.bins * self.width

    @property
    def pauses(self) -> tuple[tuple[float, float], ...]:
        """Position of each omitted pause in seconds of active time, and its length in seconds."""
        gaps = zip(self.starts[1:], self.spans, self.spans[1:], strict=False)
        return tuple((start, after[0] - before[1]) for start, before, after in gaps)

    def at(self, moment: float) -> float:
        """Return the seconds of active time before a moment (seconds since 1970)."""
        place = bisect.bisect_right(self.spans, (moment, float("inf"))) - 1
        if place < 0:
            return 0.0
        begin, end = self.spans[place]
        return self.starts[place] + min(moment, end) - begin


def timeline(found: Sequence[Series]) -> Timeline | None:
    """Return the time axis of these series; None without samples. Bins are not shorter than the median sample."""
    worked = joined_ranges((series.began, series.began + series.seconds) for series in found if series.seconds > 0)
    if not worked:
        return None
    spans = joined_ranges(worked, max(_PAUSE, _SHARE * sum(end - begin for begin, end in worked)))
    starts = [0.0]
    for begin, end in spans:
        starts.append(starts[-1] + end - begin)
    seconds = starts.pop()
    lengths = sorted(sample.seconds for series in found for sample in series.samples)
    usual = max(lengths[len(lengths) // 2], 1e-3)
    bins = max(1, min(MOST_BINS, int(seconds / usual)))
    return Timeline(tuple(spans), tuple(starts), bins, seconds / bins)


def rates(line: Timeline, found: Iterable[Series], value: Value) -> list[float]:
    """Return `value` per second in each bin, summed over the series. Values are spread evenly over their sample."""
    sums = [0.0] * line.bins
    for series in found:
        moment, end = series.began, line.at(series.began)
        for sample in series.samples:
            moment += sample.seconds
            begin, end = end, line.at(moment)
            amount = value(sample)
            if not amount:
                continue
            first = min(int(begin / line.width), line.bins - 1)
            last = min(int(end / line.width), line.bins - 1) if end > begin else first
            edges = [begin, *(line.width * place for place in range(first + 1, last + 1)), end]
            for place in range(first, last + 1):
                # The shares of the bins that a sample touches sum to 1.
                share = (edges[place - first + 1] - edges[place - first]) / (end - begin) if last > first else 1.0
                sums[place] += amount * share / line.width
    return sums


def levels(line: Timeline, found: Iterable[Series], value: Value) -> list[float]:
    """Return the mean of a gauge in each bin, summed over the series. A series without a value adds nothing."""
    return rates(line, found, lambda sample: (value(sample) or 0.0) * sample.seconds)
