"""Find tables with ruling lines."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from llm_ocr.types import Box, PageContent
from llm_ocr_cpu.tables.cells import (
    Cell,
    Piece,
    Row,
    Table,
    compacted,
    free_intervals,
    heading_rows,
    is_number,
    most_parted,
    rows_of,
    with_text,
)

# Ruling lines of a page: thin shapes and frames, merged to horizontal and vertical rules. All are arrays of shape (n,
# 3): position, start, end. For a horizontal rule, the position is y and the extent is in x; for a vertical rule, the
# reverse. All in page units.


Floats = npt.NDArray[np.float64]

#: A rule through words is farther from their upper and lower edge than this share of their height, and words cover this
#: share of its length.
_EDGE, _THROUGH = 0.2, 0.6
#: Largest thickness of a rule, and least length of one with many segments, in page units; drawn letters are shorter.
_THICK, _LEAST_RULE = 3.0, 12
#: Maximum rules per direction, the longest first: a table has hundreds at most, a map tens of thousands.
MAX_RULES = 700


@dataclass(frozen=True, slots=True)
class Rules:
    """`horizontal` and `vertical` rules: (n, 3) arrays, sorted by position. `unit`: a point of ordinary print."""

    horizontal: Floats
    vertical: Floats
    unit: float


@dataclass(frozen=True, slots=True)
class Shapes:
    """Boxes (n, 4) of a page's vector objects, and their paint: `filled` with a color other than white."""

    boxes: Floats
    stroked: npt.NDArray[np.bool_]
    filled: npt.NDArray[np.bool_]
    simple: npt.NDArray[np.bool_]  # a rule, or few segments, as of a rectangle: not a curve
    slanted: npt.NDArray[np.bool_]  # a line that is not along an axis


def page_unit(content: PageContent) -> float:
    """Return the length of a point of ordinary print on the page: usually 1 for PDFs, several pixels for scans."""
    by_page = max(math.sqrt(max(content.width * content.height, 0.0)) / 700, 1e-3)
    sizes = [line.size for line in content.lines if line.size > 0]
    if len(sizes) < 5:
        return by_page
    by_text = float(np.median(np.array(sizes))) / 10
    return min(max(by_text, 0.6 * by_page), 1.6 * by_page)


def page_shapes(content: PageContent) -> Shapes:
    """Return all paths, and images thinner than a text line: some producers draw rules as images."""
    unit = page_unit(content)
    paths = content.paths
    thin = [r.box for r in content.rasters if min(r.box.width, r.box.height) <= _THICK * unit]
    boxes = np.array(
        [(b.x0, b.y0, b.x1, b.y1) for b in (*(path.box for path in paths), *thin)], dtype=np.float64
    ).reshape(-1, 4)
    extra = len(thin)
    stroked = np.array([path.stroke is not None for path in paths] + [False] * extra, dtype=np.bool_)
    painted = [path.fill is not None and min(path.fill) < 250 for path in paths]
    filled = np.array(painted + [True] * extra, dtype=np.bool_)
    sides = boxes[:, 2:] - boxes[:, :2]
    rule = (sides.min(1) <= _THICK * unit) & (sides.max(1) > _LEAST_RULE * unit)  # some borders have cut corners
    simple = np.array([path.segments <= 6 for path in paths] + [True] * extra, dtype=np.bool_) | rule
    short = np.array([path.segments <= 3 and path.fill is None for path in paths] + [False] * extra, dtype=np.bool_)
    slanted = short & (np.minimum(boxes[:, 2] - boxes[:, 0], boxes[:, 3] - boxes[:, 1]) > 3 * unit)
    return Shapes(boxes, stroked, filled, simple, slanted)


def find_rules(content: PageContent, shapes: Shapes, *, fills: bool = False) -> Rules:
    """Return rules of thin shapes and of stroked rectangles; with `fills`, also the edges of filled rectangles."""
    unit = page_unit(content)
    boxes = shapes.boxes
    if not len(boxes):
        return Rules(np.zeros((0, 3)), np.zeros((0, 3)), unit)
    width, height = boxes[:, 2] - boxes[:, 0], boxes[:, 3] - boxes[:, 1]
    thick = _THICK * unit
    frame = shapes.simple & (width > thick) & (height > thick)
    edges = frame & (shapes.stroked | shapes.filled) if fills else frame & shapes.stroked
    horizontal = _thin(boxes[height <= thick], 1, width[height <= thick])
    vertical = _thin(boxes[width <= thick], 0, height[width <= thick])
    framed = boxes[edges]
    horizontal = np.concatenate((horizontal, framed[:, (1, 0, 2)], framed[:, (3, 0, 2)]))
    vertical = np.concatenate((vertical, framed[:, (0, 1, 3)], framed[:, (2, 1, 3)]))
    return Rules(_between_lines(_merged(horizontal, unit), content), _merged(vertical, unit), unit)


def _between_lines(rules: Floats, content: PageContent) -> Floats:
    """Return the horizontal rules without those through words: blurred words of a scan look like rules."""
    if not len(rules) or not content.lines:
        return rules
    lines = np.array([(box.x0, box.y0, box.x1, box.y1) for box in (line.box for line in content.lines)])
    x0, y0, x1, y1 = lines.T
    y, start, end = rules.T[:, :, None]
    through = (y > y0 + _EDGE * (y1 - y0)) & (y < y1 - _EDGE * (y1 - y0))
    covered = (np.minimum(end, x1) - np.maximum(start, x0)).clip(0) * through
    chosen: Floats = rules[covered.sum(1) < _THROUGH * (rules[:, 2] - rules[:, 1])]
    return chosen


def _thin(boxes: Floats, axis: int, length: Floats) -> Floats:
    """Return shapes thin across `axis` and at least as long as thick, as rules, including dots of dotted rules."""
    across = boxes[:, axis + 2] - boxes[:, axis]
    keep = boxes[length >= 0.9 * across]
    return np.stack(((keep[:, axis] + keep[:, axis + 2]) / 2, keep[:, 1 - axis], keep[:, 3 - axis]), axis=1)


def _merged(rules: Floats, unit: float) -> Floats:
    """Join touching and nearly touching pieces on one line, merge double lines, and drop short ones."""
    if not len(rules):
        return np.zeros((0, 3))
    rules = rules[np.lexsort((rules[:, 1], rules[:, 0]))]
    row = np.cumsum(np.diff(rules[:, 0], prepend=rules[0, 0]) > 1.2 * unit)
    order = np.lexsort((rules[:, 1], row))
    rules, row = rules[order], row[order]
    # A piece begins a new rule of its row if it starts beyond the farthest end so far: a running maximum per row.
    offset = row * (np.ptp(rules[:, 1:]) + 10 * unit)
    reach = np.maximum.accumulate(rules[:, 2] + offset)
    starts = np.ones(len(rules), dtype=np.bool_)
    starts[1:] = (rules[1:, 1] + offset[1:] > reach[:-1] + 2.5 * unit) | (row[1:] != row[:-1])
    first = np.nonzero(starts)[0]
    ends = np.maximum.reduceat(rules[:, 2], first)
    counts = np.diff(first, append=len(rules))
    where = np.add.reduceat(rules[:, 0], first) / counts
    joined = np.stack((where, rules[first, 1], ends), axis=1)
    length = joined[:, 2] - joined[:, 1]
    joined = joined[length >= 7 * unit]
    if len(joined) > MAX_RULES:
        longest = np.argsort(joined[:, 1] - joined[:, 2], kind="stable")[:MAX_RULES]
        joined = joined[longest]
    return _single(joined[np.argsort(joined[:, 0], kind="stable")], unit)


def _single(rules: Floats, unit: float) -> Floats:
    """Merge parallel rules closer than three points into one with the extent of both."""
    kept: list[list[float]] = []
    for where, start, end in rules.tolist():
        twin = next((other for other in kept[-8:] if _beside(other, where, start, end, unit)), None)
        if twin is None:
            kept.append([where, start, end])
        else:
            twin[1], twin[2] = min(start, twin[1]), max(end, twin[2])
    return np.array(kept, dtype=np.float64).reshape(-1, 3)


def _beside(other: list[float], where: float, start: float, end: float, unit: float) -> bool:
    shared = min(end, other[2]) - max(start, other[1])
    return where - other[0] <= 3 * unit and shared > 0.8 * min(end - start, other[2] - other[1])


# Ruled grids: connected rules, and the cells between them.


Bools = npt.NDArray[np.bool_]
#: Maximum number of places in a grid; more are graph paper.
MAX_PLACES = 12_000


@dataclass(frozen=True, slots=True)
class Lattice:
    """Grid of `len(ys) - 1` rows and `len(xs) - 1` columns.

    `beside` (rows, columns - 1): a rule separates the place from its right neighbor. `below` (rows - 1, columns): a
    rule separates the place from the lower neighbor.
    """

    xs: Floats
    ys: Floats
    beside: Bools
    below: Bools

    @property
    def rows(self) -> int:
        return len(self.ys) - 1

    @property
    def columns(self) -> int:
        return len(self.xs) - 1

    @property
    def box(self) -> Box:
        return Box(float(self.xs[0]), float(self.ys[0]), float(self.xs[-1]), float(self.ys[-1]))

    def spans(self) -> list[tuple[int, int, int, int]]:
        """Return row, column, rowspan, and colspan of each cell: rectangles of places without a rule between them."""
        taken = np.zeros((self.rows, self.columns), dtype=np.bool_)
        found = []
        for row in range(self.rows):
            for column in range(self.columns):
                if not taken[row, column]:
                    span = self._span(row, column, taken)
                    taken[row : row + span[0], column : column + span[1]] = True
                    found.append((row, column, *span))
        return found

    def _span(self, row: int, column: int, taken: Bools) -> tuple[int, int]:
        end = column + 1
        while end < self.columns and not self.beside[row, end - 1] and not taken[row, end]:
            end += 1
        bottom = row + 1
        while (
            bottom < self.rows
            and not self.below[bottom - 1, column:end].any()
            and not self.beside[bottom, column : end - 1].any()
            and not taken[bottom, column:end].any()
        ):
            bottom += 1
        return bottom - row, end - column


def components(rules: Rules) -> Iterator[tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]]:
    """Yield sets of horizontal and vertical rules (their indices) that cross or touch."""
    horizontal, vertical, slack = rules.horizontal, rules.vertical, 3.0 * rules.unit
    if not len(horizontal) or not len(vertical):
        return
    meet = (
        (vertical[None, :, 0] >= horizontal[:, None, 1] - slack)
        & (vertical[None, :, 0] <= horizontal[:, None, 2] + slack)
        & (horizontal[:, None, 0] >= vertical[None, :, 1] - slack)
        & (horizontal[:, None, 0] <= vertical[None, :, 2] + slack)
    )
    rows = np.where(meet.any(1), np.arange(len(horizontal)), len(horizontal))
    big = len(horizontal) + 1
    while True:  # the lowest reachable index, until nothing changes
        columns = np.where(meet, rows[:, None], big).min(0)
        lower = np.minimum(rows, np.where(meet, columns[None, :], big).min(1))
        if (lower == rows).all():
            break
        rows = lower
    for label in np.unique(rows[meet.any(1)]):
        yield np.nonzero((rows == label) & meet.any(1))[0], np.nonzero(columns == label)[0]


def lattice_of(horizontal: Floats, vertical: Floats, unit: float) -> Lattice | None:
    """Return the grid of connected rules; None for other shapes. Open sides are closed at the ends of the rules."""
    ys = _closed(_positions(horizontal[:, 0], unit), vertical, unit)
    xs = _closed(_positions(vertical[:, 0], unit), horizontal, unit)
    rows, columns = len(ys) - 1, len(xs) - 1
    if rows < 1 or columns < 1 or rows * columns > MAX_PLACES:
        return None
    beside = _separators(xs[1:-1], ys, vertical, unit)
    below = _separators(ys[1:-1], xs, horizontal, unit)
    return Lattice(xs, ys, beside.T.copy(), below)


def _positions(values: Floats, unit: float) -> Floats:
    ordered = np.sort(values)
    group = np.cumsum(np.diff(ordered, prepend=ordered[0]) > 2.5 * unit)
    return np.bincount(group, weights=ordered) / np.bincount(group)


def _closed(positions: Floats, across: Floats, unit: float) -> Floats:
    """Add the two ends of the crossing rules if they extend beyond the first or last position."""
    low, high = float(across[:, 1].min()), float(across[:, 2].max())
    before = [low] if low < positions[0] - 5 * unit else []
    after = [high] if high > positions[-1] + 5 * unit else []
    return np.array([*before, *positions.tolist(), *after])


def _separators(inner: Floats, stops: Floats, rules: Floats, unit: float) -> Bools:
    """Return whether a rule at each inner position covers most of each stretch: (len(inner), len(stops) - 1)."""
    covered = np.zeros((len(inner), len(stops) - 1))
    for where, start, end in rules.tolist():
        near = np.nonzero(np.abs(inner - where) <= 2.5 * unit)[0]
        if len(near):
            shared = np.minimum(stops[1:], end) - np.maximum(stops[:-1], start)
            covered[near[np.argmin(np.abs(inner[near] - where))]] += np.maximum(shared, 0)
    return covered >= 0.6 * np.diff(stops)[None, :]


# Grids with too few rules: rows and columns that only the text shows are added to the lattice.


#: Minimum gap in font sizes for a column added by text: little more than a space, because rules confirm the table.
_GAP = 0.45
#: Minimum height of rows without a rule between them, as a share of the height of as many ruled rows.
_ROWS_HIGH = 0.92
#: Share of the rows in a column, such as those of its heading, that may cover a part of the gap of the others: one of
#: 17 rows.
_HEADINGS = 0.06


def placed(lattice: Lattice, piece: Piece) -> tuple[int, int] | None:
    """Return row and column of the place with the center of a piece."""
    x, y = piece.box.centre
    row = int(np.searchsorted(lattice.ys, y)) - 1
    column = int(np.searchsorted(lattice.xs, x)) - 1
    inside = 0 <= row < lattice.rows and 0 <= column < lattice.columns
    return (row, column) if inside else None


def with_text_columns(lattice: Lattice, pieces: Sequence[Piece]) -> Lattice:
    """Split wide columns where their rows have a common gap."""
    cuts: list[float] = []
    wide: dict[float, tuple[float, float]] = {}
    for column in range(lattice.columns):
        left, right = float(lattice.xs[column]), float(lattice.xs[column + 1])
        inside = [piece for piece in pieces if left <= piece.box.centre[0] < right]
        rows = [r for r in rows_of(inside, _GAP) if r.segments[0].x0 >= left - 2 and r.segments[-1].x1 <= right + 2]
        size = float(np.median([row.size for row in rows])) if rows else 0.0
        if len(rows) >= 3 and right - left > 4 * size:
            found = _column_cuts(rows, size)
            cuts.extend(found)
            wide.update({cut: (left, right) for cut in found})
    if not cuts:
        return lattice
    lattice = _headings_parted(lattice, cuts, pieces)
    for cut in cuts:
        lattice = _column_added(lattice, cut, wide[cut], pieces)
    return lattice


def _column_cuts(rows: list[Row], size: float) -> list[float]:
    several = [row for row in rows if len(row.segments) > 1]
    if len(several) < max(3, 0.5 * len(rows)):
        return []
    several = most_parted(several)
    cuts: list[float] = []
    clear = free_intervals(several, 0.0)
    for low, high in free_intervals(several, _HEADINGS):
        inner = [(one, other) for one, other in clear if low <= one and other <= high]
        before = [s for row in several for s in row.segments if s.x1 <= low + 0.1]
        after = [s for row in several for s in row.segments if s.x0 >= high - 0.1]
        marks = sum(len(s.text) <= 2 and not is_number(s.text) for s in before)
        numbers = sum(is_number(s.text) for s in (*before, *after))
        least = 0.5 * size if numbers * 2 > len(before) + len(after) else size
        if high - low >= least and len(before) >= 3 and len(after) >= 3 and marks * 2 < len(before):
            low, high = max(inner, key=lambda gap: gap[1] - gap[0], default=(low, high))
            cuts.append((low + high) / 2)
    return cuts


def _headings_parted(lattice: Lattice, cuts: Sequence[float], pieces: Sequence[Piece]) -> Lattice:
    """Split the first row where a line over several new columns is above a line that fits the columns."""
    top, bottom = float(lattice.ys[0]), float(lattice.ys[1])
    edges = lattice.xs.tolist()
    sides = [side for side in pairwise(edges) if any(side[0] < cut < side[1] for cut in cuts)]
    lines = rows_of((piece for piece in pieces if _within(piece, top, bottom, sides)), _GAP)
    spanning = [sum(s.x0 < cut < s.x1 for s in line.segments for cut in cuts) for line in lines]
    for upper, lower, spanned, then in zip(lines[:-1], lines[1:], spanning[:-1], spanning[1:], strict=True):
        if spanned and not then and len(lower.segments) > len(upper.segments):
            return _row_added(lattice, (upper.y + lower.y) / 2, cuts)
    return lattice


def _within(piece: Piece, top: float, bottom: float, sides: Sequence[tuple[float, float]]) -> bool:
    x, y = piece.box.centre
    return top <= y < bottom and any(left <= x < right for left, right in sides)


def _row_added(lattice: Lattice, y: float, cuts: Sequence[float]) -> Lattice:
    """Split the first row at `y`, in the columns that are to be split."""
    inside = [any(left < cut < right for cut in cuts) for left, right in pairwise(lattice.xs.tolist())]
    ys = np.insert(lattice.ys, 1, y)
    beside = np.concatenate((lattice.beside[:1], lattice.beside))
    below = np.concatenate((np.array([inside], dtype=np.bool_), lattice.below))
    return Lattice(lattice.xs, ys, beside, below)


def _column_added(lattice: Lattice, cut: float, wide: tuple[float, float], pieces: Sequence[Piece]) -> Lattice:
    """Split the column `wide`, except in rows with text across the cut and with a single heading."""
    column = int(np.searchsorted(lattice.xs, cut)) - 1
    xs = np.insert(lattice.xs, column + 1, cut)
    parted = np.ones(lattice.rows, dtype=np.bool_)
    for row in range(lattice.rows):
        top, bottom = lattice.ys[row], lattice.ys[row + 1]
        inside = [piece for piece in pieces if top <= piece.box.centre[1] < bottom]
        for line in rows_of(inside, _GAP):
            parted[row] &= not any(segment.x0 < cut < segment.x1 for segment in line.segments)
        if row == 0 and lattice.rows > 2:
            above = [piece for piece in inside if wide[0] <= piece.box.centre[0] < wide[1]]
            parted[row] &= sum(len(line.segments) for line in rows_of(above, _GAP)) != 1
    beside = np.insert(lattice.beside, column, parted, axis=1)
    below = np.insert(lattice.below, column, lattice.below[:, column], axis=1)
    return Lattice(xs, lattice.ys, beside, below)


def with_text_rows(lattice: Lattice, pieces: Sequence[Piece]) -> Lattice:
    """Split high rows whose columns have values on the same baselines."""
    by_row: list[list[Piece]] = [[] for _ in range(lattice.rows)]
    for piece in pieces:
        place = placed(lattice, piece)
        if place:
            by_row[place[0]].append(piece)
    height = _one_line_height(lattice, by_row)
    parts = [_row_parts(lattice, row, inside, height) for row, inside in enumerate(by_row)]
    if not any(len(cuts) for cuts, _ in parts):
        return lattice
    ys: list[float] = [float(lattice.ys[0])]
    beside: list[Bools] = []
    below: list[Bools] = []
    for row, (cuts, stacked) in enumerate(parts):
        for number, bottom in enumerate([*cuts, float(lattice.ys[row + 1])]):
            ys.append(bottom)
            beside.append(lattice.beside[row])
            if number < len(cuts):
                below.append(stacked)
            elif row + 1 < lattice.rows:
                below.append(lattice.below[row])
    columns = lattice.columns
    return Lattice(
        lattice.xs, np.array(ys), np.array(beside).reshape(-1, columns - 1), np.array(below).reshape(-1, columns)
    )


def _one_line_height(lattice: Lattice, by_row: Sequence[list[Piece]]) -> float:
    """Return the usual height of rows of one line; infinity if there are fewer than two."""
    heights = np.diff(lattice.ys)
    single = [height for height, inside in zip(heights, by_row, strict=True) if len(rows_of(inside)) == 1]
    return float(np.median(single)) if len(single) > 1 else math.inf


def _row_parts(lattice: Lattice, row: int, inside: list[Piece], height: float) -> tuple[list[float], Bools]:
    """Return the row's cuts and the columns to cut; the other columns have one cell next to all parts."""
    whole: tuple[list[float], Bools] = ([], np.zeros(lattice.columns, dtype=np.bool_))
    lines = rows_of(inside)
    if len(lines) < 2:
        return whole
    texts: list[dict[int, str]] = [{} for _ in lines]
    for number, line in enumerate(lines):
        for segment in line.segments:
            for piece in segment.pieces:
                place = placed(lattice, piece)
                if place:
                    texts[number][place[1]] = f"{texts[number].get(place[1], '')} {piece.text}".strip()
    used = sorted({column for text in texts for column in text})
    full = [text for text in texts if len(text) * 2 >= len(used)]
    stacked = [column for column in used if sum(column in text for text in full) >= max(2, 0.7 * len(full))]
    going = [[text.get(column, "") for text in full] for column in stacked]
    stacked = [column for column, cells in zip(stacked, going, strict=True) if not _is_sentence(cells)]
    if len(full) < 2 or len(stacked) < 2 or len(stacked) * 2 < len(used):
        return whole
    values = [text[column] for text in full for column in stacked if column in text]
    numbers = sum(map(is_number, values))
    # Lines of one cell are nearer than rows of one line, whose rule a scan may have lost.
    high = lattice.ys[row + 1] - lattice.ys[row] >= _ROWS_HIGH * height * len(lines)
    aligned = len(full) == len(lines) and (high or len(lines) >= 3) and all(len(t) == len(used) for t in texts)
    if numbers * 2 < len(values) and not aligned:
        return whole
    return _cuts(lines, texts, len(used)), _mask(stacked, lattice.columns)


def _is_sentence(lines: Sequence[str]) -> bool:
    """Return whether the lines of a column are not cells: a sentence continues from one to the next."""
    return any(len(upper.split()) >= _SENTENCE and lower[:1].islower() for upper, lower in pairwise(lines))


def _mask(chosen: Sequence[int], count: int) -> Bools:
    mask = np.zeros(count, dtype=np.bool_)
    mask[list(chosen)] = True
    return mask


def _cuts(lines: list[Row], texts: list[dict[int, str]], used: int) -> list[float]:
    full = [line.y for line, text in zip(lines, texts, strict=True) if len(text) * 2 >= used]
    return [(upper + lower) / 2 for upper, lower in pairwise(full)]


#: Maximum distance of the beginnings of two cells of a column in letter sizes.
_SAME_START = 0.1


def with_values_parted(lattice: Lattice, pieces: Sequence[Piece]) -> Lattice:
    """Part cells over several columns at boundaries between values, and before words that begin as other cells.

    Statements of accounts have rules or fills in every second row only. The other rows have the same columns.
    """
    wide = [span for span in lattice.spans() if span[3] > 1]
    if not wide:
        return lattice
    inside: dict[tuple[int, int], list[Piece]] = {}
    for piece in pieces:
        place = placed(lattice, piece)
        if place:
            inside.setdefault(place, []).append(piece)
    beside = lattice.beside.copy()
    starts: dict[int, list[float]] = {}
    for row, column, rowspan, colspan in lattice.spans():
        own = inside.get((row, column), [])
        if rowspan == colspan == 1 and own:
            starts.setdefault(column, []).append(min(piece.box.x0 for piece in own))
    for row, column, rowspan, colspan in wide:
        places = [(r, c) for r in range(row, row + rowspan) for c in range(column, column + colspan)]
        lines = rows_of((piece for place in places for piece in inside.get(place, ())), _GAP)
        for boundary in range(column + 1, column + colspan):
            if _parts_cells(lines, float(lattice.xs[boundary]), starts.get(boundary, [])):
                beside[row : row + rowspan, boundary - 1] = True
    return Lattice(lattice.xs, lattice.ys, beside, lattice.below)


def _parts_cells(lines: Sequence[Row], x: float, starts: Sequence[float]) -> bool:
    """Return whether no text crosses `x`, and a line has two cells beside it: a value, or text at one of `starts`."""
    parted = False
    for line in lines:
        left = [segment for segment in line.segments if segment.x1 <= x]
        right = [segment for segment in line.segments if segment.x0 >= x]
        if len(left) + len(right) < len(line.segments):
            return False
        if left and right:
            begins = any(abs(right[0].x0 - start) < _SAME_START * line.size for start in starts)
            parted |= begins or is_number(left[-1].text) or is_number(right[0].text)
    return parted


# Tables whose cells are separated by rules.


_LONG = 40  # words; a longer cell is one or more paragraphs
_SENTENCE = 6  # words
_ENDS = ".!?:;。"
_MARK = re.compile(r"[•‣◦▪●○■□◆►▸–—*-]|\(?(?:\d{1,2}|[a-z])[.)]")


def ruled_table(lattice: Lattice, pieces: Sequence[Piece]) -> Table | None:
    """Return the table in a grid of rules; None for a frame, a form, a chart, or a page's layout."""
    lattice = with_text_columns(lattice, pieces)
    if lattice.columns < 2:
        return None
    lattice = with_values_parted(with_text_rows(lattice, pieces), pieces)
    cells = _cells(lattice, pieces)
    if cells is None:
        return None
    size = float(np.median([piece.size for piece in pieces]))
    table = _compact(lattice, with_text(cells), size)
    return table if is_table(table) else None


def _cells(lattice: Lattice, pieces: Sequence[Piece]) -> list[Cell] | None:
    owner = np.zeros((lattice.rows, lattice.columns), dtype=np.int64)
    cells = []
    for number, (row, column, rowspan, colspan) in enumerate(lattice.spans()):
        owner[row : row + rowspan, column : column + colspan] = number
        cells.append(Cell(row, column, rowspan, colspan))
    outside = 0
    for piece in pieces:
        place = placed(lattice, piece)
        if place is None:
            outside += 1
        else:
            cells[owner[place]].pieces.append(piece)
    return cells if outside * 5 <= len(pieces) else None


def _compact(lattice: Lattice, cells: list[Cell], size: float) -> Table:
    """Remove rows and columns that are artifacts of double rules, and those in which no cell begins."""
    filled_rows, filled_columns = np.zeros(lattice.rows, np.bool_), np.zeros(lattice.columns, np.bool_)
    begin_rows, begin_columns = filled_rows.copy(), filled_columns.copy()
    for cell in cells:
        begin_rows[cell.row], begin_columns[cell.column] = True, True
        if cell.pieces:
            filled_rows[cell.row : cell.row + cell.rowspan] = True
            filled_columns[cell.column : cell.column + cell.colspan] = True
    rows = begin_rows & (filled_rows | (np.diff(lattice.ys) > 0.9 * size))
    columns = begin_columns & (filled_columns | (np.diff(lattice.xs) > 1.2 * size))
    kept = compacted(cells, rows.tolist(), columns.tolist())
    count = int(rows.sum())
    return Table(count, int(columns.sum()), tuple(kept), heading_rows(kept, count))


def is_table(table: Table) -> bool:
    """Return whether cells with text form a table of at least two rows and columns, not a text frame or form."""
    texts = [cell for cell in table.cells if cell.text]
    if table.rows < 2 or table.columns < 2 or len(texts) < 4:
        return False
    if len({cell.row for cell in table.cells}) < 0.6 * table.rows:  # the ticks of a chart
        return False
    per_row = Counter(cell.row for cell in texts)
    if len(per_row) < 2 or len({cell.column for cell in texts}) < 2:
        return False
    if sum(count > 1 for count in per_row.values()) < max(2, 0.34 * len(per_row)) or _cuts_lines(texts):
        return False
    covered = sum(cell.rowspan * cell.colspan for cell in texts)
    if covered < 0.35 * table.rows * table.columns or len(texts) < 0.3 * len(table.cells):
        return False
    paragraphs = sum(len(cell.text.split()) > _LONG for cell in texts)
    return paragraphs * 2 <= len(texts) and not is_prose(table)


def is_prose(table: Table) -> bool:
    """Return whether the text is not tabular: columns of a page or an index, a list, or lines across the columns."""
    columns: dict[int, list[Cell]] = {}
    texts = [cell.text for cell in table.cells if cell.text]
    if sum(text.endswith(",") for text in texts) > 0.4 * len(texts):
        return True
    for cell in sorted(table.cells, key=lambda cell: cell.row):
        if cell.text:
            columns.setdefault(cell.column, []).append(cell)
    if sum(len(cells) > 1 for cells in columns.values()) < 2:
        return True
    first = [cell for cell in columns[min(columns)] if cell.colspan == 1]
    if table.columns == 2 and sum(_MARK.fullmatch(cell.text) is not None for cell in first) > 0.6 * len(first):
        return True
    return _across(table) > 0.5 or _has_paragraphs(columns.values()) or _runs_on(columns.values())


def _across(table: Table) -> float:
    """Return the share of the words in cells of sentence length over most columns."""
    words = [(len(cell.text.split()), cell.colspan) for cell in table.cells if cell.text]
    across = sum(count for count, span in words if count >= _SENTENCE and span > 1 and span * 2 > table.columns)
    return across / max(sum(count for count, _ in words), 1)


def _has_paragraphs(columns: Iterable[Sequence[Cell]]) -> bool:
    """Return whether each column has nearly all words in one or two paragraphs, as a page has below its heading."""
    counts = [[len(cell.text.split()) for cell in cells] for cells in columns if len(cells) > 1]
    long = [[count for count in words if count > _LONG] for words in counts]
    return all(0 < len(some) <= 2 and sum(some) > 0.8 * sum(words) for some, words in zip(long, counts, strict=True))


def _runs_on(columns: Iterable[Sequence[Cell]]) -> bool:
    """Return whether most sentences go on from a full row to the row below: the rows are the lines of a text."""
    pairs = going = 0
    for cells in columns:
        ends = [max((piece.box.x1 for piece in cell.pieces), default=0.0) for cell in cells]
        left = min((piece.box.x0 for cell in cells for piece in cell.pieces), default=0.0)
        full = left + 0.75 * (max(ends) - left)
        for upper, lower, end in zip(cells[:-1], cells[1:], ends[:-1], strict=True):
            if min(len(upper.text.split()), len(lower.text.split())) >= 3:
                pairs += 1
                wrapped = upper.text[-1] == "-" or (upper.text[-1] not in _ENDS and lower.text[0].islower())
                going += end >= full and wrapped
    return going >= 3 and going > 0.4 * pairs


#: Share of the page's area from which a table must have nearly all its cells: a frame may enclose a whole page.
_COVERING = 0.6


def is_page(table: Table, share: float) -> bool:
    """Return whether a grid over the share of a page is its layout: few places have text, or most text is prose."""
    texts = [cell for cell in table.cells if cell.text]
    words = [len(cell.text.split()) for cell in texts]
    if share < _COVERING or not sum(words):
        return False
    filled = sum(cell.rowspan * cell.colspan for cell in texts)
    long = sum(count for count in words if count > _LONG)
    keys = [len(cell.text.split()) for cell in texts if cell.column == 0]
    keyed = len(keys) > 2 and sum(keys) <= 8 * len(keys)
    return filled < 0.5 * table.rows * table.columns or _across(table) > 0.25 or (long * 2 > sum(words) and not keyed)


def _cuts_lines(cells: Sequence[Cell]) -> bool:
    """Return whether many lines of words cross cells: the grid is unrelated to the text."""
    cells_of: dict[int, set[int]] = {}
    worded: set[int] = set()
    for number, cell in enumerate(cells):
        for piece in cell.pieces:
            cells_of.setdefault(piece.line, set()).add(number)
            if any(map(str.isalpha, piece.text)):
                worded.add(piece.line)
    cut = sum(len(owners) > 1 for line, owners in cells_of.items() if line in worded)
    return cut > max(2, 0.3 * len(worded))


def is_plain_table(table: Table) -> bool:
    """Return whether a grid without rules is certain: most places are filled, and a column has numbers."""
    texts = [cell for cell in table.cells if cell.text]
    if len(texts) < 0.6 * table.rows * table.columns:
        return False
    for column in range(1, table.columns):
        values = [cell.text for cell in texts if cell.column == column and cell.colspan == 1 and cell.row > 0]
        if len(values) >= 3 and sum(map(is_number, values)) >= 0.75 * len(values):
            return True
    return False


def is_filled_table(table: Table) -> bool:
    """Return whether most places of a grid below a caption have short texts."""
    words = sorted(len(cell.text.split()) for cell in table.cells if cell.text)
    return len(words) >= 0.7 * table.rows * table.columns and words[len(words) // 2] <= 5
