"""Whether an answer goes down its columns, and from the left one to the right one: from the places of its pieces."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from llm_ocr.types import FURNITURE, BlockKind, Box

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Reals = npt.NDArray[np.float64]

#: What may stand anywhere in an answer, wherever it is on the page; tables are read row by row.
ASIDE = FURNITURE | {BlockKind.FIGURE, BlockKind.TABLE, BlockKind.CAPTION, BlockKind.FOOTNOTE}
#: Pieces that are compared, each with each; of more every second, third … is looked at.
_MOST = 150
#: Two pieces stand side by side, or above one another, when they share so much of the smaller one's height or width.
_SHARED = 0.5
#: Fewer pairs than this say nothing.
_ENOUGH = 6


def in_order(boxes: Sequence[Box]) -> float | None:
    """The share of the pieces' pairs that are read in their order; None where there are too few.

    `boxes` in the order of the answer. The worst of three shares: of the pairs above one another that are read
    downwards, of those side by side that are read from one side to the other, whichever side most begin with, and of
    the steps from piece to piece that do not jump over a gutter to the same height and back again.
    """
    import numpy as np

    step = -(-len(boxes) // _MOST) or 1
    sides = np.array([(box.x0, box.y0, box.x1, box.y1) for box in boxes[::step]]).reshape(-1, 4)
    left, top, right, bottom = (sides[:, None, index] for index in range(4))
    later = np.triu(np.ones((len(sides), len(sides)), np.bool_), 1)
    across, wide = _overlap(left, right)
    down, high = _overlap(top, bottom)
    beside = later & (down > _SHARED * high) & (across <= 0)
    above = later & (across > _SHARED * wide) & (down <= 0)
    shares = [
        1 - float(wrong.sum()) / float(every.sum())
        for wrong, every in ((beside & (left > left.T), beside), (above & (top > top.T), above))
        if every.sum() >= _ENOUGH
    ]
    if len(sides) > _ENOUGH and step == 1:
        shares.append(1 - float(np.diagonal(beside, 1).mean()))
    return min(shares) if shares else None


def _overlap(low: "Reals", high: "Reals") -> tuple["Reals", "Reals"]:
    """How much each shares with each, and the smaller one's size."""
    import numpy as np

    size = high - low
    return np.minimum(high, high.T) - np.maximum(low, low.T), np.minimum(size, size.T)
