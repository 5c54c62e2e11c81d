"""Tables without rules: columns of values beside their labels, and keys with values inside a frame."""

from collections.abc import Iterator, Sequence
from itertools import pairwise, takewhile
from typing import TYPE_CHECKING

import numpy as np

from llm_ocr.engines.embedded.tables.lattice import components
from llm_ocr.engines.embedded.tables.pieces import Piece, Row, Segment, is_number, rows_of
from llm_ocr.engines.embedded.tables.rules import Rules
from llm_ocr.engines.embedded.tables.spaced import Area
from llm_ocr.types import Box

if TYPE_CHECKING:
    from llm_ocr.engines.embedded.tables.finder import Finder

_LEAST_KEYS = 4
_LEAST_VALUES = 5


def plain_areas(finder: "Finder", rules: Rules) -> Iterator[tuple[Area, str]]:
    """Areas of tables without rules, the certain ones only, and what they are: "keys" in a frame or "plain"."""
    for horizontal, vertical in components(rules):
        h, v = rules.horizontal[horizontal], rules.vertical[vertical]
        if len(v) >= 2:  # in scans a side of the frame may be missing
            top, bottom = min(float(h[0, 0]), float(v[:, 1].min())), max(float(h[-1, 0]), float(v[:, 2].max()))
            frame = Box(float(v[0, 0]), top, float(v[-1, 0]), bottom)
            yield from ((area, "keys") for area in _keys_in_frame(finder, frame))
    yield from ((area, "plain") for area in _value_columns(finder))


def _keys_in_frame(finder: "Finder", frame: Box) -> Iterator[Area]:
    """Below a title or picture: short keys on the left, values on the right, as in an infobox."""
    page = finder.content
    if frame.width < 0.15 * page.width or frame.height < 0.05 * page.height or frame.width > 0.9 * page.width:
        return
    rows = rows_of(finder.pieces(finder.inside(frame)), 1.0)
    pairs = [row for row in rows if len(row.segments) == 2]
    if len(pairs) < _LEAST_KEYS:
        return
    left = float(np.median([row.segments[0].x0 for row in pairs]))
    right = float(np.median([row.segments[1].x0 for row in pairs]))
    size = pairs[0].size
    keyed = [row for row in pairs if abs(row.segments[1].x0 - right) < size and abs(row.segments[0].x0 - left) < size]
    short = [row for row in keyed if len(row.segments[0].text.split()) <= 3]
    if len(short) < max(_LEAST_KEYS, 0.8 * len(pairs)):
        return
    inside = [row for row in rows if short[0].y <= row.y]
    fitting = sum(_fits(row, right, size) for row in inside)
    if fitting >= 0.85 * len(inside):
        bottom = max(piece.box.y1 for row in inside for piece in row.pieces)
        top = min(piece.box.y0 for piece in short[0].pieces)
        box = Box(left - size, top, max(frame.x1, right), bottom)
        yield Area(box, (), ())


def _fits(row: Row, right: float, size: float) -> bool:
    starts = [segment.x0 for segment in row.segments]
    return len(starts) == 2 or (len(starts) == 1 and (starts[0] >= right - size or row.segments[0].x1 < right))


def _value_columns(finder: "Finder") -> Iterator[Area]:
    """Labels with one or several columns of numbers on their right."""
    rows = line_rows(finder)
    values = [
        (number, segment)
        for number, row in enumerate(rows)
        for place, segment in enumerate(row.segments)
        if place > 0 and is_number(segment.text)
    ]
    if len(values) < _LEAST_VALUES:
        return
    taken: list[Box] = []
    for column in _columns(values, rows):
        area = _labelled(rows, column)
        if area is not None and not any(area.box.intersection(other) > 0.05 * area.box.area for other in taken):
            taken.append(area.box)
            yield area


def line_rows(finder: "Finder") -> list[Row]:
    """The free lines of a page in rows."""
    lines = finder.content.lines
    free = np.nonzero(finder.free)[0].tolist()
    pieces = [Piece(lines[i].text, lines[i].box, i, lines[i].size, lines[i].bold) for i in free]
    return rows_of(pieces, 0.3)


Values = list[tuple[int, Segment]]


def _columns(values: Values, rows: Sequence[Row]) -> list[Values]:
    """Numbers with a common right end, few rows apart; the leftmost columns first."""
    columns: list[Values] = []
    for number, segment in values:
        size = rows[number].size
        for column in columns:
            last, other = column[-1]
            near = rows[number].y - rows[last].y <= 7 * size
            if near and number != last and abs(other.x1 - segment.x1) < 0.8 * size:
                column.append((number, segment))
                break
        else:
            columns.append([(number, segment)])
    return sorted((c for c in columns if len(c) >= _LEAST_VALUES), key=lambda c: c[0][1].x0)


def _labelled(rows: Sequence[Row], column: Values) -> Area | None:
    """The area from the labels to the last number of each row."""
    labels: list[Segment] = []
    rights: list[list[Segment]] = []
    column = [(number, value) for number, value in column if not is_number(_label(rows[number], value).text)]
    if len(column) < _LEAST_VALUES:
        return None
    for number, value in column:
        segments = rows[number].segments
        place = segments.index(value)
        labels.append(_label(rows[number], value))
        rights.append(list(takewhile(lambda segment: is_number(segment.text), segments[place + 1 :])))
    size = rows[column[0][0]].size
    rights = [[value for value in right if _is_common(value, rights, size)] for right in rights]
    if not _plausible(labels, column, sum(map(bool, rights)), size):
        return None
    box = labels[0].pieces[0].box
    for label, (_, value), right in zip(labels, column, rights, strict=True):
        for each in (label, value, *right):
            for piece in each.pieces:
                box = box.union(piece.box)
    return Area(_with_headings(rows, column[0][0], box), (), ())


def _label(row: Row, value: Segment) -> Segment:
    """What stands directly on the left of a value."""
    return row.segments[row.segments.index(value) - 1]


def _is_common(value: Segment, rights: Sequence[Sequence[Segment]], size: float) -> bool:
    """Whether a third of the rows have a number that ends, or begins, where this one does."""
    alike = sum(any(abs(v.x1 - value.x1) < size or abs(v.x0 - value.x0) < size for v in right) for right in rights)
    return alike * 3 >= len(rights)


def _with_headings(rows: Sequence[Row], first: int, box: Box) -> Box:
    """The box grown by up to three rows above the values that stand in columns too."""
    last = rows[first]
    for row in reversed(rows[max(0, first - 4) : first]):
        inside = [segment for segment in row.segments if segment.x1 > box.x0 and segment.x0 < box.x1]
        if len(inside) < 2 or last.y - row.y > 4 * last.size:
            break
        if max(segment.x1 - segment.x0 for segment in inside) > 0.5 * box.width or inside[-1].x1 > box.x1 + row.size:
            break
        last = row
        for segment in inside:
            for piece in segment.pieces:
                box = box.union(piece.box)
    return box


def _plausible(labels: Sequence[Segment], column: Values, several: int, size: float) -> bool:
    """Not a table of contents, numbered equations or a page's columns."""
    texts = [value.text for _, value in column]
    printed = [piece.text for label in labels for piece in label.pieces]
    if several * 2 < len(column) and any("...." in text or ". . ." in text for text in printed):
        return False
    if several * 2 < len(column) and is_counting(texts):
        return False
    if all(text.startswith("(") and text.endswith(")") for text in texts):
        return False
    starts = np.array([label.x0 for label in labels])
    words = np.array([len(label.text.split()) for label in labels])
    letters = sum(any(character.isalpha() for character in label.text) for label in labels)
    aligned = float(np.mean(np.abs(starts - np.median(starts)) < 2.5 * size))
    return letters >= 0.8 * len(labels) and float(np.median(words)) <= 7 and aligned >= 0.6


def is_counting(texts: Sequence[str]) -> bool:
    """Whether the values are whole numbers that rise, as numbers of pages and of items do."""
    whole = [int(text) for text in texts if text.isdecimal()]
    rising = sum(a <= b for a, b in pairwise(whole))
    return len(whole) > 0.8 * len(texts) and rising > 0.8 * (len(whole) - 1)
