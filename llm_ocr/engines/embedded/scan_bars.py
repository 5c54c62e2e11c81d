"""Heading bars of tables on a scan: dark cells side by side with light text in them, as a PDF's filled rectangles.

The OCR reads their text, but a dark bar is neither a rule nor paper: without it a table loses its headings, and the
rules that end at the bar are not seen as rules.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from llm_ocr.types import Box, Line

Pixels = npt.NDArray[np.uint8]

#: A bar is at most so many lines of text high, and at least this share of the page wide.
_MOST_LINES, _LEAST_WIDTH = 5, 0.12
#: The share of a cell's box that is dark, its letters counted as dark.
_SOLID = 0.85


@dataclass(frozen=True, slots=True)
class Bar:
    """Dark cells on one height, left to right, with two texts at least. Boxes in pixels."""

    box: Box
    cells: tuple[Box, ...]
    texts: tuple[Box, ...]


def heading_bars(dark: Pixels, lines: Sequence[Line]) -> list[Bar]:
    """The bars of a page. `dark`: 1 where a pixel is darker than paper. `lines`: the OCR's, in the same pixels."""
    if not lines:
        return []
    texts = [line.box for line in lines]
    high = float(np.median([box.height for box in texts]))
    cells = [box for box in _solid(dark, texts, high) if 0.6 * high <= box.height <= _MOST_LINES * high]
    bars = [_bar(row, texts, high) for row in _rows(cells)]
    return [bar for bar in bars if bar is not None and bar.box.width >= _LEAST_WIDTH * dark.shape[1]]


def _solid(dark: Pixels, texts: Sequence[Box], high: float) -> list[Box]:
    """Rectangles that are dark but for the letters in them."""
    import cv2

    filled = dark.copy()
    height, width = dark.shape
    for box in texts:
        if _is_on_dark(dark, box):
            inner = box.grown(-1).clipped(width, height)
            filled[round(inner.y0) : round(inner.y1), round(inner.x0) : round(inner.x1)] = 1
    size = max(5, round(0.4 * high))
    solid = cv2.morphologyEx(filled, cv2.MORPH_OPEN, np.ones((size, size), np.uint8))
    _, _, stats, _ = cv2.connectedComponentsWithStats(solid, connectivity=4)
    found = []
    for x, y, w, h, area in stats[1:].tolist():
        if area >= _SOLID * w * h:
            found.append(Box(x, y, x + w, y + h))
    return found


def _is_on_dark(dark: Pixels, box: Box) -> bool:
    """Whether ink stands directly above and below, or in most of the box: light letters leave the dark between them."""
    x0, x1 = max(0, round(box.x0)), round(box.x1)
    y0, y1 = max(0, round(box.y0)), round(box.y1)
    inside = dark[y0:y1, x0:x1]
    return bool(inside.size) and float(inside.mean()) > 0.5


def _rows(cells: Sequence[Box]) -> list[list[Box]]:
    """Cells of the same height that stand side by side with no more than a rule between them."""
    rows: list[list[Box]] = []
    for cell in sorted(cells, key=lambda box: box.x0):
        for row in rows:
            last = row[-1]
            slack = 0.25 * min(cell.height, last.height)
            level = abs(cell.y0 - last.y0) <= slack and abs(cell.y1 - last.y1) <= slack
            if level and -slack <= cell.x0 - last.x1 <= 0.5 * last.height:
                row.append(cell)
                break
        else:
            rows.append([cell])
    return rows


def _bar(row: Sequence[Box], texts: Sequence[Box], high: float) -> Bar | None:
    box = row[0]
    for cell in row[1:]:
        box = box.union(cell)
    inside = tuple(text for text in texts if text.covered_by(box) > 0.6)
    columns = sum(
        not any(other.x0 < text.x0 and other.x1 > text.x0 for other in inside if other is not text) for text in inside
    )
    apart = max((text.x0 for text in inside), default=0.0) - min((text.x1 for text in inside), default=0.0)
    return Bar(box, tuple(row), inside) if columns >= 2 and apart > 0.5 * high else None


def without_bars(mask: Pixels, bars: Sequence[Bar], scale: float = 1.0) -> Pixels:
    """The mask, at `scale`, without the bars, so that what touches them is seen alone."""
    free = mask.copy()
    height, width = mask.shape
    for bar in bars:
        box = bar.box.scaled(scale, scale).grown(2).clipped(width, height)
        free[int(box.y0) : round(box.y1) + 1, int(box.x0) : round(box.x1) + 1] = 0
    return free


def edged(bars: Sequence[Bar], horizontal: Sequence[Box], reach: float) -> list[Bar]:
    """All cells of a bar as high as the bar, which ends at the rule beside its edge where there is one."""
    placed = []
    for bar in bars:
        y0, y1 = (_at_rule(y, bar.box, horizontal, reach) for y in (bar.box.y0, bar.box.y1))
        cells = tuple(Box(cell.x0, y0, cell.x1, y1) for cell in bar.cells)
        placed.append(Bar(Box(bar.box.x0, y0, bar.box.x1, y1), cells, bar.texts))
    return placed


def _at_rule(y: float, box: Box, horizontal: Sequence[Box], reach: float) -> float:
    beside = [rule.centre[1] for rule in horizontal if min(rule.x1, box.x1) - max(rule.x0, box.x0) > 0.3 * box.width]
    near = min(beside, key=lambda at: abs(at - y), default=y)
    return near if abs(near - y) <= reach else y


def through_bars(upright: Sequence[Box], bars: Sequence[Bar], reach: float) -> list[Box]:
    """Upright rules that end at a bar go on through it, unless text stands in the way: there its columns are parted."""
    longer = list(upright)
    for bar in bars:
        for number, rule in enumerate(longer):
            x = rule.centre[0]
            meets = -reach <= rule.y0 - bar.box.y1 <= reach or -reach <= bar.box.y0 - rule.y1 <= reach
            if meets and bar.box.x0 - reach <= x <= bar.box.x1 + reach and not any(t.x0 < x < t.x1 for t in bar.texts):
                longer[number] = Box(rule.x0, min(rule.y0, bar.box.y0), rule.x1, max(rule.y1, bar.box.y1))
    return longer
