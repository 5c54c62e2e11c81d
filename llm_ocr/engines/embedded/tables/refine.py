"""Grids with too few rules: rows and columns that only the text shows are added to the lattice."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from llm_ocr.engines.embedded.tables.columns import free_intervals, most_parted
from llm_ocr.engines.embedded.tables.lattice import Bools, Lattice
from llm_ocr.engines.embedded.tables.pieces import Piece, Row, is_number, rows_of

#: A column added by text may be parted from the next by little more than a space, in font sizes: rules show the table.
_GAP = 0.45


def placed(lattice: Lattice, piece: Piece) -> tuple[int, int] | None:
    """Row and column of the place that holds the centre of a piece."""
    x, y = piece.box.centre
    row = int(np.searchsorted(lattice.ys, y)) - 1
    column = int(np.searchsorted(lattice.xs, x)) - 1
    inside = 0 <= row < lattice.rows and 0 <= column < lattice.columns
    return (row, column) if inside else None


def with_text_columns(lattice: Lattice, pieces: Sequence[Piece]) -> Lattice:
    """Columns parted where the rows of a wide column have a gap in common."""
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
    cuts = []
    for low, high in free_intervals(several, 0.0):
        before = [s for row in several for s in row.segments if s.x1 <= low + 0.1]
        after = [s for row in several for s in row.segments if s.x0 >= high - 0.1]
        marks = sum(len(s.text) <= 2 and not is_number(s.text) for s in before)
        numbers = sum(is_number(s.text) for s in (*before, *after))
        least = 0.5 * size if numbers * 2 > len(before) + len(after) else size
        if high - low >= least and len(before) >= 3 and len(after) >= 3 and marks * 2 < len(before):
            cuts.append((low + high) / 2)
    return cuts


def _headings_parted(lattice: Lattice, cuts: Sequence[float], pieces: Sequence[Piece]) -> Lattice:
    """The first row in two where a line over several of the new columns stands above one that keeps to them."""
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
    """The first row cut at `y`, in the columns that are to be cut."""
    inside = [any(left < cut < right for cut in cuts) for left, right in pairwise(lattice.xs.tolist())]
    ys = np.insert(lattice.ys, 1, y)
    beside = np.concatenate((lattice.beside[:1], lattice.beside))
    below = np.concatenate((np.array([inside], dtype=np.bool_), lattice.below))
    return Lattice(lattice.xs, ys, beside, below)


def _column_added(lattice: Lattice, cut: float, wide: tuple[float, float], pieces: Sequence[Piece]) -> Lattice:
    """The column `wide` cut, but for rows with a text across the cut and a heading that stands alone in it."""
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
    """Rows parted where the columns of a high row hold values on the same baselines."""
    by_row: list[list[Piece]] = [[] for _ in range(lattice.rows)]
    for piece in pieces:
        place = placed(lattice, piece)
        if place:
            by_row[place[0]].append(piece)
    parts = [_row_parts(lattice, row, inside) for row, inside in enumerate(by_row)]
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


def _row_parts(lattice: Lattice, row: int, inside: list[Piece]) -> tuple[list[float], Bools]:
    """Where the row is cut, and in which columns: the others hold one cell that stands beside all parts."""
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
    if len(full) < 2 or len(stacked) < 2 or len(stacked) * 2 < len(used):
        return whole
    values = [text[column] for text in full for column in stacked if column in text]
    numbers = sum(map(is_number, values))
    aligned = len(full) == len(lines) and len(lines) >= 3 and all(len(t) == len(used) for t in texts)
    if numbers * 2 < len(values) and not aligned:
        return whole
    return _cuts(lines, texts, len(used)), _mask(stacked, lattice.columns)


def _mask(chosen: Sequence[int], count: int) -> Bools:
    mask = np.zeros(count, dtype=np.bool_)
    mask[list(chosen)] = True
    return mask


def _cuts(lines: list[Row], texts: list[dict[int, str]], used: int) -> list[float]:
    full = [line.y for line, text in zip(lines, texts, strict=True) if len(text) * 2 >= used]
    return [(upper + lower) / 2 for upper, lower in pairwise(full)]
