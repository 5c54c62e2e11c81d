"""What a sample of pages says about all of them: means with the range in which they are likely to be.

Ranges are 95 % t-intervals of the mean: the mean of n values, plus and minus t times their standard deviation over the
square root of n. A sample of a good part of all pages says more: the half-width is narrowed by the square root of the
share that was not in it (Cochran, Sampling Techniques, finite population correction).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, stdev

from llm_ocr.costs.spans import Span

#: Student's t for 95 % two-sided, by degrees of freedom; between two of them the one with fewer counts.
_T = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262, 10: 2.228}
_T |= {12: 2.179, 15: 2.131, 20: 2.086, 30: 2.042, 60: 2.0, 120: 1.98}
#: Slices of a sample by which its speed is judged; pages of a slice at least.
SLICES, _OF_A_SLICE = 8, 2
#: A sample of so many pages for each that is under way at a time has a middle in which the speed is steady.
_STEADY = 5
#: Between these shares of the pages that is: the first ones come at once, the last ones wait for nothing behind them.
_FIRST, _LAST = 0.1, 0.9


@dataclass(frozen=True, slots=True)
class Speed:
    """Seconds that each page takes where pages follow each other, and seconds once for the begin and the end."""

    each: Span
    once: float


def mean_span(values: Sequence[float], share: float, *, least: float) -> Span:
    """The mean of all, of which `values` are a sample of this share (0..1); at least `least` (relative) either way.

    Without values nothing is known: 0; a single one may be half or twice as much.
    """
    if not values:
        return Span.of(0.0)
    mean = fmean(values)
    if len(values) == 1:
        return Span.of(mean).wider(2.0 if share < 1 else 1 + least)
    half = _t(len(values) - 1) * stdev(values) / math.sqrt(len(values)) * math.sqrt(max(0.0, 1 - share))
    half = max(half, least * mean)
    return Span(max(mean - half, mean / 10), mean, mean + half)  # what is above 0 is never nothing


def speed_of(ends: Sequence[float], parallel: int, share: float, *, least: float) -> Speed:
    """From the moments at which pages ended, in seconds from the sample's begin, `parallel` under way at a time.

    The range is that of the mean over `SLICES` slices of equally many pages.
    """
    ordered = sorted(ends)
    count = len(ordered)
    steady = count >= max(_STEADY * parallel, SLICES * _OF_A_SLICE * 2)
    marks = [0.0, *ordered]
    first, last = (round(_FIRST * count), round(_LAST * count)) if steady else (0, count)
    slices = min(SLICES, (last - first) // _OF_A_SLICE)
    each = (marks[last] - marks[first]) / (last - first)
    if slices < 2:
        found = Span.of(each).wider(2.0)
    else:
        cuts = [first + round(number * (last - first) / slices) for number in range(slices + 1)]
        rates = [(marks[end] - marks[begin]) / (end - begin) for begin, end in pairwise(cuts)]
        around = mean_span(rates, share, least=least)
        found = around * (each / around.likely) if around.likely else Span.of(each)
    return Speed(found, max(0.0, marks[-1] - each * count))


def _t(freedom: int) -> float:
    return _T[max(known for known in _T if known <= freedom)]
