"""An answer beside the ink of the page image: how much of it the boxes cover, how much text it should hold."""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from llm_ocr.types import Box, Ink

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


#: Pixels to either side by which ink is widened, so that the letters of a word touch and its columns do not.
_WIDER = 3
#: Heights in pixels of what may be a line of text; flatter are rules, higher are pictures.
_LOWEST, _HIGHEST = 3, 40
#: Runs flatter than this part of the usual one are the strokes of larger letters, not lines.
_FLAT = 0.5
#: Share of the sides of the image that is left out at each edge: scans have shadows there.
_EDGE = 0.015
#: Boxes are taken this much larger, in parts of the page: those of letters are tight.
_ROOM = 0.008
#: Fields across and down in which boxes are drawn to see what lies in them.
_GRID = 512


@dataclass(frozen=True, slots=True)
class Strokes:
    """Vertical runs of widened ink as high as lines of text may be: relative places of their centres, and heights in
    pixels of the ink's image."""

    x: "npt.NDArray[np.float64]"
    y: "npt.NDArray[np.float64]"
    height: "npt.NDArray[np.float64]"

    def inside(self, boxes: Sequence[Box]) -> "npt.NDArray[np.bool_]":
        """Which of them lie in any of the relative boxes."""
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
        """About the characters that they are, or those chosen: a line of height h has one every h/2 pixels or so."""
        return float((2.0 / (self.height if chosen is None else self.height[chosen])).sum())


def strokes_of(ink: Ink) -> Strokes:
    """The page's strokes. Takes 2 ms."""
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
    ends = np.flatnonzero(flat[1:] != flat[:-1])  # where ink begins and ends, in turns: each column ends white
    x, top = np.divmod(ends[0::2], ink.height + 2)
    height = ends[1::2] - ends[0::2]
    fit = (height >= _LOWEST) & (height <= _HIGHEST)
    if fit.any():
        fit &= height >= _FLAT * _usual(height[fit])
    return Strokes(
        (x[fit] + 0.5) / ink.width, (top[fit] + height[fit] / 2) / ink.height, height[fit].astype(np.float64)
    )


def _usual(heights: "npt.NDArray[np.int64]") -> float:
    """The height in whose runs half of the ink lies."""
    import numpy as np

    ordered = np.sort(heights)
    area = np.cumsum(ordered)
    return float(ordered[np.searchsorted(area, area[-1] / 2)])
