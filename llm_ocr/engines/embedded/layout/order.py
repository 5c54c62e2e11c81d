"""Reading order: a page is cut at its gutters, again and again, until every part is read from top to bottom.

A gutter ends where something crosses it, so that a heading, figure or table over several columns parts what stands
above it from what stands below; within a gutter's height the columns are read one after the other.
"""

from collections.abc import Sequence

import numpy as np

from llm_ocr.engines.embedded.layout.gutters import Bools, Gutter, Ints, Sheet, find_gutter
from llm_ocr.engines.embedded.layout.measures import Measures
from llm_ocr.types import Box, Line, Path

#: Cuts a page at most; what is left then is read across. Ordinary pages need fewer than 20.
_MOST_CUTS = 150
_RULE_HEIGHT = 4.0
_MOST_RULES = 200


def make_sheet(lines: Sequence[Line], regions: Sequence[Box], rules: Sequence[Box], measures: Measures) -> Sheet:
    """Elements in the order lines, regions, rules."""
    boxes = [(line.box.x0, line.box.y0, line.box.x1, line.box.y1) for line in lines]
    boxes += [(box.x0, box.y0, box.x1, box.y1) for box in (*regions, *rules)]
    size = [line.size for line in lines] + [measures.body] * (len(regions) + len(rules))
    chars = [_weight(line.text) for line in lines] + [-1] * len(regions) + [-2] * len(rules)
    lower = [line.text[:1].islower() for line in lines] + [False] * (len(regions) + len(rules))
    return Sheet(
        np.array(boxes, dtype=np.float64).reshape(-1, 4),
        np.maximum(np.array(size, dtype=np.float64), 0.1),
        np.array(chars, dtype=np.int64),
        np.array(lower, dtype=np.bool_),
        measures.rtl,
        measures.noisy,
    )


def _weight(text: str) -> int:
    """Characters; those of CJK text count twice, as they are twice as wide."""
    return len(text) + (sum(character > "\u2e80" for character in text) if not text.isascii() else 0)


def ruling_lines(paths: Sequence[Path], width: float, covered: Sequence[Box]) -> list[Box]:
    """Horizontal rules long enough to part the page, outside of tables and figures."""
    found = []
    for path in paths:
        box = path.box
        painted = path.stroke is not None or (path.fill is not None and path.fill != (255, 255, 255))
        if painted and box.height < _RULE_HEIGHT and box.width > 0.4 * width and path.segments <= 6:
            grown = Box(box.x0, box.y0 - 1, box.x1, box.y1 + 1)
            if not any(grown.covered_by(other) > 0.3 for other in covered):
                found.append(grown)
    return found[:_MOST_RULES]


def reading_order(sheet: Sheet) -> list[Ints]:
    """Parts of the page in reading order, each to be read from top to bottom; ruling lines are left out."""
    leaves: list[Ints] = []
    waiting = [np.arange(len(sheet.chars))]
    cuts = 0
    while waiting:
        ids = waiting.pop()
        if not len(ids):
            continue
        gutter = find_gutter(sheet, ids) if cuts < _MOST_CUTS else None
        if gutter is None:
            leaves.append(ids[sheet.chars[ids] > -2])
            continue
        cuts += 1
        waiting += reversed(_parts(sheet, ids, _trimmed(sheet, gutter)))
    return [leaf for leaf in leaves if len(leaf)]


def _parts(sheet: Sheet, ids: Ints, gutter: Gutter) -> list[Ints]:
    """What is read before the columns, the columns, and what is read after them."""
    beside = np.concatenate((gutter.left, gutter.right))
    rest = ids[~np.isin(ids, beside)]
    middle = (sheet.boxes[rest, 1] + sheet.boxes[rest, 3]) / 2
    centre = (gutter.top + gutter.bottom) / 2
    columns = [gutter.right, gutter.left] if sheet.rtl else [gutter.left, gutter.right]
    return [rest[middle < centre], *columns, rest[middle >= centre]]


def _without(gutter: Gutter, keep_left: Bools, keep_right: Bools, top: float, bottom: float) -> Gutter:
    return Gutter(gutter.x, top, bottom, gutter.left[keep_left], gutter.right[keep_right])


def _trimmed(sheet: Sheet, gutter: Gutter) -> Gutter:
    """Ended above a heading that stands over both columns without reaching across the gutter."""
    left, right = sheet.boxes[gutter.left], sheet.boxes[gutter.right]
    if sheet.rtl:
        left, right = right, left
    first = gutter.right if sheet.rtl else gutter.left
    unit = float(np.median(sheet.size[sheet.lines(np.concatenate((gutter.left, gutter.right)))]))
    large = np.flatnonzero((sheet.size[first] > 1.15 * unit) & (sheet.chars[first] >= 0))
    for index in large[np.argsort(left[large, 1])][:30]:
        y0, y1 = float(left[index, 1]), float(left[index, 3])
        white = not ((right[:, 1] < y1 + 0.3 * unit) & (right[:, 3] > y0 - 0.5 * unit)).any()
        above = bool((right[:, 3] <= y0).any() and (left[:, 3] <= y0 + 0.2 * unit).any())
        below = bool((right[:, 1] >= y1).any())
        if white and above and below:
            end = y0 - 0.1 * unit
            sides = [(sheet.boxes[side, 1] + sheet.boxes[side, 3]) / 2 < end for side in (gutter.left, gutter.right)]
            return _without(gutter, sides[0], sides[1], gutter.top, end)
    return gutter
