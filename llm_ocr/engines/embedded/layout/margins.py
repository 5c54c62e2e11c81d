"""The margins of a stretch of rows, and what it means that a row does not reach them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import inf

from llm_ocr.engines.embedded.layout.measures import Measures
from llm_ocr.engines.embedded.layout.rows import Row

#: Margins differ from this many font heights on.
_INDENT = 0.6
_INDENT_NOISY = 0.9
_DEEPEST_INDENT = 6.0
#: Rows of a column that show its width, and rows of an address at most.
_TELLING, _LONGEST_ADDRESS = 5, 8


@dataclass(frozen=True, slots=True)
class Margins:
    """Of rows that look alike. `left` is the margin at which most rows start; all mirrored for right-to-left pages."""

    left: float
    right: float
    centred: bool
    hanging: bool  # first lines stand out to the left, the others are indented
    indent: float  # least difference, page units
    rtl: bool
    heading: bool = False  # large or bold: the rows of one title, rather than sentences

    def start(self, row: Row) -> float:
        """Where the row begins, growing in the direction of reading."""
        return -row.x1 if self.rtl else row.x0

    def end(self, row: Row) -> float:
        """Where the row ends, growing in the direction of reading."""
        return -row.x0 if self.rtl else row.x1

    def is_short(self, before: Row, row: Row) -> bool:
        """Whether the first word of `row` had room at the end of `before`: its writer broke the line there."""
        words = row.lines[0].words
        if words:
            width = words[0].box.width
        else:
            text = row.lines[0].text
            width = len(text.split(maxsplit=1)[0] if text.strip() else "") / max(len(text), 1) * row.lines[0].box.width
        room = (self.right - self.left) - (before.x1 - before.x0) if self.centred else self.right - self.end(before)
        return room > width + 0.3 * row.size + self.indent * 0.7

    def begins_paragraph(self, before: Row, row: Row, first: Row) -> bool:
        """Whether the indentation parts `row` from `before`; `first` is the row that began the group."""
        if self.centred or self.heading:
            return False
        shift = self.start(row) - self.start(before)
        if self.hanging:
            return shift < -self.indent
        if shift > self.indent:
            return self.start(row) - self.left < _DEEPEST_INDENT * row.size or before is first
        return shift < -self.indent and before is not first

    def stands_over(self, before: Row, row: Row, short: bool) -> bool:
        """Whether `before` is a short line of its own above a paragraph that fills the column."""
        width = self.right - self.left
        full = self.right - self.end(row) < 0.12 * width
        flush = self.start(before) - self.left < 3 * self.indent
        alone = before.cells == 1 and self.end(before) - self.left < 0.6 * width
        return short and full and flush and alone and not self.centred

    def leaves_item(self, first: Row, before: Row, row: Row, several: bool, short: bool) -> bool:
        """Whether `row` stands outside of the list item that `first` began."""
        inset = self.start(row) - self.start(first)
        if inset < -self.indent:
            return True
        if inset > self.indent:  # hangs under the item's text
            return several and self.start(row) - self.start(before) > 1.5 * self.indent and short
        return (several and self.start(before) - self.start(first) > self.indent) or short


def _clusters(starts: Sequence[float], width: float) -> list[tuple[float, int]]:
    """Margins that rows share, with the number of rows at each, leftmost first."""
    found: list[tuple[float, int]] = []
    for start in sorted(starts):
        if found and start - found[-1][0] < width:
            found[-1] = (found[-1][0], found[-1][1] + 1)
        else:
            found.append((start, 1))
    return found


def _is_centred(rows: Sequence[Row], indent: float) -> bool:
    if len(rows) < 2:
        return False
    middles = [(row.x0 + row.x1) / 2 for row in rows]
    starts = [row.x0 for row in rows]
    ends = [row.x1 for row in rows]
    if max(middles) - min(middles) > 1.2 * indent:
        return False
    apart = sum(abs(a - b) > indent for a, b in pairwise(starts))
    return apart >= max(1, (len(rows) - 1) // 2) and max(ends) - min(ends) > indent


def column_edge(rows: Sequence[Row], measures: Measures) -> float:
    """Where full rows of the column end, in the direction of reading; minus infinity for a column too short to tell."""
    ends = sorted(-row.x0 if measures.rtl else row.x1 for row in rows)
    return ends[len(ends) * 4 // 5] if len(ends) >= _TELLING else -inf


def _right(rows: Sequence[Row], starts: Sequence[float], ends: Sequence[float], edge: float) -> float:
    """The right margin: that of the rows, or of the column where they look like an address rather than like a text."""
    right, left = max(ends), min(starts)
    if right > left + 0.65 * (edge - left) or len(rows) > _LONGEST_ADDRESS:
        return right
    running = sum(row.text[:1].islower() for row in rows[1:])
    return right if 2 * running >= len(rows) - 1 else edge


def find_margins(rows: Sequence[Row], measures: Measures, edge: float = -inf) -> Margins:
    """The margins of rows that follow each other at the usual distance; `edge` is that of their column."""
    size = rows[0].size
    indent = (_INDENT_NOISY if measures.noisy else _INDENT) * size
    rtl = measures.rtl
    starts = [-row.x1 if rtl else row.x0 for row in rows]
    ends = [-row.x0 if rtl else row.x1 for row in rows]
    large = size > 1.14 * measures.body or (not measures.bold and all(row.bold for row in rows))
    heading = len(rows) < 6 and large
    if _is_centred(rows, indent):
        return Margins(min(starts), max(ends), True, False, indent, rtl, heading)
    left = max(_clusters(starts, indent), key=lambda cluster: cluster[1])[0]
    right = _right(rows, starts, ends, edge)
    margins = Margins(left, right, False, False, indent, rtl, heading)
    return replace(margins, hanging=_is_hanging(rows, starts, margins))


def _is_hanging(rows: Sequence[Row], starts: Sequence[float], margins: Margins) -> bool:
    """Whether first lines stand out: rows before outdented ones end something, those before indented ones do not."""
    inwards = [0, 0]
    outwards = [0, 0]
    for index in range(1, len(rows)):
        shift = starts[index] - starts[index - 1]
        if abs(shift) < margins.indent or abs(shift) > _DEEPEST_INDENT * rows[0].size:
            continue
        before = rows[index - 1]
        ended = margins.is_short(before, rows[index]) or before.text.endswith((".", "!", "?", "。", ":"))
        counted = inwards if shift > 0 else outwards
        counted[0] += ended
        counted[1] += 1
    share_in = inwards[0] / inwards[1] if inwards[1] else None
    share_out = outwards[0] / outwards[1] if outwards[1] else None
    if share_in is None:
        return (share_out or 0.0) > 0.5 and starts[0] < margins.left + margins.indent and outwards[1] > 1
    if share_out is None:
        return share_in < 0.5 and starts[0] <= min(starts) + margins.indent
    return share_in < share_out
