"""Which parts of a page image hold anything: the detector has nothing to look for in the others."""

import numpy as np
from numpy.typing import NDArray

Pixels = NDArray[np.uint8]
#: Rows and columns from, to.
Part = tuple[int, int, int, int]

#: Side of the squares that are looked at, in pixels.
_SQUARE = 16
#: Lightest and darkest value of a colour in an empty square differ by at most this (of 255): half of what a page with
#: text needs, and more than JPEG's noise on paper.
_PLAIN = 12
#: Empty squares kept around what is filled: the network sees text with its surroundings, and its strides are 32.
_MARGIN = 2
#: So many empty rows of squares beyond the margins part a page into two parts.
_GAP = 4


def filled_parts(image: Pixels) -> list[Part]:
    """Rectangles (top, bottom, left, right) of the image, from the top down, apart from each other.

    What lies outside is plain. Empty for a plain image.
    """
    busy = _busy(image)
    height, width = image.shape[:2]
    parts = []
    for first, last in _runs(busy):
        columns = np.flatnonzero(busy[first:last].any(axis=0))
        left, right = max(0, int(columns[0]) - _MARGIN), int(columns[-1]) + 1 + _MARGIN
        top, bottom = max(0, first - _MARGIN), last + _MARGIN
        parts.append((top * _SQUARE, min(height, bottom * _SQUARE), left * _SQUARE, min(width, right * _SQUARE)))
    return parts


def _busy(image: Pixels) -> NDArray[np.bool_]:
    """Which squares are not plain in each colour."""
    height, width, _ = image.shape
    below, beside = -height % _SQUARE, -width % _SQUARE
    if below or beside:
        image = np.pad(image, ((0, below), (0, beside), (0, 0)), mode="edge")
    rows = image.reshape(image.shape[0] // _SQUARE, _SQUARE, -1)  # over whole rows first: numpy is quick there
    highest, lowest = (_by_columns(edge) for edge in (rows.max(axis=1), rows.min(axis=1)))
    found: NDArray[np.bool_] = (highest.max(axis=2) - lowest.min(axis=2) > _PLAIN).any(axis=2)
    return found


def _by_columns(rows: Pixels) -> Pixels:
    return rows.reshape(rows.shape[0], -1, _SQUARE, 3)


def _runs(busy: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Ranges of rows with busy squares; those with less than the gap and both margins between them are one."""
    rows = np.flatnonzero(busy.any(axis=1))
    if not len(rows):
        return []
    cuts = np.flatnonzero(np.diff(rows) > _GAP + 2 * _MARGIN)
    starts = [int(rows[0]), *(int(rows[cut + 1]) for cut in cuts)]
    ends = [*(int(rows[cut]) + 1 for cut in cuts), int(rows[-1]) + 1]
    return list(zip(starts, ends, strict=True))
