"""Lines that the detector drew across the gutter between two columns, parted again.

A gutter narrower than the gap that parts a line by itself is known by the company it keeps: other lines end on its left
edge and others begin on its right edge, and hardly any runs through it.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from itertools import pairwise

from llm_ocr.types import Box, Line, Word

#: Narrowest gutter, in parts of the line's size; a space between words is a quarter to a half.
_NARROWEST = 0.8
#: How far an edge may be from another line's, in parts of the size.
_ALIGNED = 0.6
#: Other lines that must end before the gap, and begin behind it.
_ENDING, _BEGINNING = 3, 4
#: A line with fewer words is a label or a cell: it says nothing about columns.
_WORDS = 3


def parted_at_gutters(lines: Sequence[Line]) -> list[Line]:
    """The lines, those across a gutter as two or more."""
    page = _Edges(lines)
    return [part for line in lines for part in _parts(line, page)]


class _Edges:
    """Where the lines of a page begin and end."""

    def __init__(self, lines: Sequence[Line]) -> None:
        telling = [line for line in lines if len(line.words) >= _WORDS]
        self._starts = sorted(line.box.x0 for line in telling)
        self._ends = sorted(line.box.x1 for line in telling)
        self._lines = telling

    def is_gutter(self, left: float, right: float, size: float) -> bool:
        """Whether lines end at `left` and begin at `right`, and few run through."""
        reach = _ALIGNED * size
        beginning = _between(self._starts, right - reach, right + reach)
        if beginning < _BEGINNING or _between(self._ends, left - reach, left + reach) < _ENDING:
            return False
        return 2 * sum(_runs_through(line, left, right) for line in self._lines) <= beginning


def _between(values: Sequence[float], low: float, high: float) -> int:
    return bisect_right(values, high) - bisect_left(values, low)


def _runs_through(line: Line, left: float, right: float) -> bool:
    """Whether a word of the line stands in the gap, not only beside it."""
    if line.box.x1 <= right or line.box.x0 >= left:
        return False
    middle = (left + right) / 2
    return any(word.box.x0 < middle < word.box.x1 for word in line.words)


def _parts(line: Line, page: _Edges) -> list[Line]:
    words = line.words
    if len(words) < 2 or line.text != " ".join(word.text for word in words):
        return [line]
    cuts = [
        index
        for index in range(1, len(words))
        if words[index].box.x0 - words[index - 1].box.x1 >= _NARROWEST * line.size
        and page.is_gutter(words[index - 1].box.x1, words[index].box.x0, line.size)
    ]
    if not cuts:
        return [line]
    edges = [0, *cuts, len(words)]
    return [_of_words(line, words[begin:end]) for begin, end in pairwise(edges)]


def _of_words(line: Line, words: Sequence[Word]) -> Line:
    across = reduce(Box.union, (word.box for word in words))
    box = Box(across.x0, line.box.y0, across.x1, line.box.y1)
    return replace(line, text=" ".join(word.text for word in words), box=box, words=tuple(words))
