"""Compare an answer with the ink of the page image: coverage by boxes, and expected amount of text."""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from llm_ocr.types import Box, Ink

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


#: Pixels by which ink is widened on both sides, so that the letters of a word touch and columns do not.
_WIDER = 3
#: Heights in pixels of possible lines of text; lower ones are rules, higher ones pictures.
_LOWEST, _HIGHEST = 3, 40
#: Runs lower than this part of the usual height are strokes of larger letters, not lines.
_FLAT = 0.5
#: Share of the image's sides that is ignored at each edge, because scans have shadows there.
_EDGE = 0.015
#: Growth of boxes, relative to the page: boxes of letters are tight.
_ROOM = 0.008
#: Cells across and down of the grid of boxes.
_GRID = 512


@dataclass(frozen=True, slots=True)
class Strokes:
    """Vertical runs of widened ink with the height of text lines.

    `x` and `y` are relative positions of their centers; `height` is in pixels of the ink's image.
    """

    x: "npt.NDArray[np.float64]"
    y: "npt.NDArray[np.float64]"
    height: "npt.NDArray[np.float64]"

    def inside(self, boxes: Sequence[Box]) -> "npt.NDArray[np.bool_]":
        """Return which strokes are in any of the relative boxes."""
        import numpy as np

        grid = np.zeros((_GRID, _GRID), np.bool_)
        for box in boxes:
            room = box.grown(_ROOM).clipped()
            grid[round(room.y0 * _GRID) : round(room.y1 * _GRID), round(room.x0 * _GRID) : round(room.x1 * _GRID)] = (
                True
            )
        found: npt.NDArray[np.bool_] = grid[(self.y * _GRID).astype(np.intp), (self.x * _GRID).astype(np.intp)]
        return found

    def text(self, chosen: "npt.NDArray[np.bool_] | None" = None) -> float:
        """Return the approximate number of characters in the chosen strokes: a line of height h has one per h/2 px."""
        return float((2.0 / (self.height if chosen is None else self.height[chosen])).sum())


def strokes_of(ink: Ink) -> Strokes:
    """Return the page's strokes. Takes 2 ms."""
    import numpy as np

    packed = np.frombuffer(zlib.decompress(ink.packed), np.uint8).reshape(ink.height, -1)
    black = np.unpackbits(packed, axis=1)[:, : ink.width]
    across, down = int(_EDGE * ink.width), int(_EDGE * ink.height)
    wide = black.copy()
    for step in range(1, _WIDER + 1):
        wide[:, step:] |= black[:, :-step]
        wide[:, :-step] |= black[:, step:]
    wide[:down], wide[ink.height - down :] = 0, 0
    wide[:, :across], wide[:, ink.width - across :] = 0, 0
    columns = np.zeros((ink.width, ink.height + 2), np.bool_)
    columns[:, 1:-1] = wide.T
    flat = columns.ravel()
    ends = np.flatnonzero(flat[1:] != flat[:-1])  # starts and ends of ink, alternating: each column ends white
    x, top = np.divmod(ends[0::2], ink.height + 2)
    height = ends[1::2] - ends[0::2]
    fit = (height >= _LOWEST) & (height <= _HIGHEST)
    if fit.any():
        fit &= height >= _FLAT * _usual(height[fit])
    return Strokes(
        (x[fit] + 0.5) / ink.width, (top[fit] + height[fit] / 2) / ink.height, height[fit].astype(np.float64)
    )


def _usual(heights: "npt.NDArray[np.int64]") -> float:
    """Return the height whose runs contain the median of the ink."""
    import numpy as np

    ordered = np.sort(heights)
    area = np.cumsum(ordered)
    return float(ordered[np.searchsorted(area, area[-1] / 2)])
