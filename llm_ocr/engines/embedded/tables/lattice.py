"""Ruled grids: which rules belong together, and the cells between them."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from llm_ocr.engines.embedded.tables.rules import Floats, Rules
from llm_ocr.types import Box

Bools = npt.NDArray[np.bool_]
#: Places of a grid; more is graph paper.
MAX_PLACES = 12_000


@dataclass(frozen=True, slots=True)
class Lattice:
    """A grid of `len(ys) - 1` rows and `len(xs) - 1` columns.

    `beside` (rows, columns - 1): a rule parts the place from its right neighbour; `below` (rows - 1, columns): from the
    lower one.
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
        """Row, column, rowspan and colspan of each cell: rectangles of places without a rule between them."""
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
    """Sets of horizontal and vertical rules (their indices) that cross or touch one another."""
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
    while True:  # the lowest index in reach, until nothing changes
        columns = np.where(meet, rows[:, None], big).min(0)
        lower = np.minimum(rows, np.where(meet, columns[None, :], big).min(1))
        if (lower == rows).all():
            break
        rows = lower
    for label in np.unique(rows[meet.any(1)]):
        yield np.nonzero((rows == label) & meet.any(1))[0], np.nonzero(columns == label)[0]


def lattice_of(horizontal: Floats, vertical: Floats, unit: float) -> Lattice | None:
    """The grid of rules that belong together; open sides are closed where the rules end. None when it is none."""
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
    """With the two ends of the rules that run across, where they reach beyond the first or last position."""
    low, high = float(across[:, 1].min()), float(across[:, 2].max())
    before = [low] if low < positions[0] - 5 * unit else []
    after = [high] if high > positions[-1] + 5 * unit else []
    return np.array([*before, *positions.tolist(), *after])


def _separators(inner: Floats, stops: Floats, rules: Floats, unit: float) -> Bools:
    """(len(inner), len(stops) - 1): whether a rule at the inner position covers most of a stretch between stops."""
    covered = np.zeros((len(inner), len(stops) - 1))
    for where, start, end in rules.tolist():
        near = np.nonzero(np.abs(inner - where) <= 2.5 * unit)[0]
        if len(near):
            shared = np.minimum(stops[1:], end) - np.maximum(stops[:-1], start)
            covered[near[np.argmin(np.abs(inner[near] - where))]] += np.maximum(shared, 0)
    return covered >= 0.6 * np.diff(stops)[None, :]
