"""What the pixels of a line's crop say beside its text: gaps between characters, size and weight of the letters."""

from dataclasses import dataclass
from itertools import pairwise

import cv2
import numpy as np
from numpy.typing import NDArray

from llm_ocr.engines.embedded.ocr.detect import Pixels
from llm_ocr.engines.embedded.ocr.recognise import Reading

#: Lightest and darkest pixel of a crop with letters differ by at least this (of 255).
_CONTRAST = 24
#: A pixel counts as ink from this share of the contrast on; low, so that grey edges of small letters close no gap.
_INK = 0.4
#: A row filled to this share is a rule or an underline, not letters; so is a column that is filled from edge to edge
#: (no letter is as high as its crop) and at most this many pixels wide: a table's or a gutter's rule.
_RULE, _WALL, _WALL_WIDTH = 0.85, 0.95, 4
#: Heights above and depths below the baseline, in em, of a plain book face: capitals and ascenders, small letters,
#: descenders, and the full square of an ideograph.
_ASCENDER, _X_HEIGHT, _DESCENDER, _SQUARE = 0.72, 0.5, 0.21, 0.92
_DESCENDING = frozenset("gjpqyQ,;()[]{}|/ç")
_SMALL = frozenset("acegmnopqrsuvwxyzæœø")
_BARS = frozenset("|｜丨")
_FLAT = frozenset(".,;:-–—_~=+<>·•'\"’‘“”´`*^°…")


@dataclass(frozen=True, slots=True)
class Ink:
    """Measures of one crop, in its pixels.

    `reading` is the text without vertical rules that were read as bars. `gaps[i]` is the empty range of columns between
    its characters i and i + 1, spaces not counted, `(x, x)` where they touch; `walls[i]` whether a rule stands between
    them. `size` is the font's height, `top` and `bottom` the rows of the letters, `stroke` their strokes' thickness.
    """

    reading: Reading
    left: float
    right: float
    top: float
    bottom: float
    gaps: tuple[tuple[float, float], ...]
    walls: tuple[bool, ...]
    size: float
    stroke: float


def measure(crop: Pixels, reading: Reading) -> Ink | None:
    """None for a crop in which nothing stands out from the ground."""
    dark = _darkness(crop)
    if dark is None:
        return None
    walls = _without_walls(dark)
    top, bottom = _rows(dark)
    dark = dark[top:bottom]
    filled = (dark > _INK).any(axis=0)
    columns = np.flatnonzero(filled)
    if not len(columns):
        return None
    reading = _without_bars(reading, walls, 0.4 * len(crop))
    characters = [(c, x) for c, x in zip(reading.text, reading.centres, strict=True) if not c.isspace()]
    edges = np.flatnonzero(np.diff(np.concatenate(([1], filled.astype(np.int8), [1]))))
    empty = edges.reshape(-1, 2)
    between = [(left, right) for (_, left), (_, right) in pairwise(characters)]
    gaps = tuple(_widest(empty, left, right) for left, right in between)
    parted = tuple(any(left < wall < right for wall in walls) for left, right in between)
    size = (bottom - top) / _share_of_em("".join(c for c, _ in characters))
    left, right = float(columns[0]), float(columns[-1] + 1)
    return Ink(reading, left, right, float(top), float(bottom), gaps, parted, size, _stroke(dark))


def _darkness(crop: Pixels) -> NDArray[np.float32] | None:
    """How much of each pixel is ink, 0..1, whichever of letters and ground is the lighter."""
    grey = cv2.cvtColor(crop, cv2.COLOR_RGB2GRAY)
    low, ground, high = (float(value) for value in np.percentile(grey, (1, 50, 99)))
    if high - low < _CONTRAST:
        return None
    share = (grey.astype(np.float32) - low) / (high - low)
    dark: NDArray[np.float32] = 1 - share if high - ground <= ground - low else share
    dark = dark.clip(0, 1)
    rules = (dark > _INK).mean(axis=1) > _RULE
    if crop.shape[1] > 3 * crop.shape[0]:
        dark[rules] = 0
    return dark


def _without_walls(dark: NDArray[np.float32]) -> list[float]:
    """Erases vertical rules from `dark`, and says where they stood."""
    full = ((dark > _INK).mean(axis=0) > _WALL).astype(np.int8)
    walls = []
    for start, end in np.flatnonzero(np.diff(np.concatenate(([0], full, [0])))).reshape(-1, 2):
        if end - start <= _WALL_WIDTH:
            dark[:, max(0, start - 1) : end + 1] = 0  # with its grey edges
            walls.append((start + end) / 2)
    return walls


def _without_bars(reading: Reading, walls: list[float], near: float) -> Reading:
    """The reading without vertical rules that were read as bars."""
    read = zip(reading.text, reading.centres, reading.sure, strict=True)
    kept = [one for one in read if one[0] not in _BARS or all(abs(one[1] - wall) > near for wall in walls)]
    if len(kept) == len(reading.text):
        return reading
    return Reading("".join(c for c, _, _ in kept), tuple(x for _, x, _ in kept), tuple(sure for _, _, sure in kept))


def _rows(dark: NDArray[np.float32]) -> tuple[int, int]:
    """The rows of the line's letters: those with ink around the middle, without parts of the neighbouring lines."""
    height = len(dark)
    profile = (dark > 0.5).sum(axis=1)
    busy = profile > max(0, 0.02 * int(profile.max()))
    if not busy.any():
        return 0, height
    middle = int(np.average(np.arange(height), weights=profile.astype(np.float64)))
    reach = max(1, height // 8)  # the dot of an i stands apart from its stem
    top = bottom = middle
    while top > 0 and busy[max(0, top - reach) : top].any():
        top -= 1
    while bottom < height and busy[bottom : bottom + reach].any():
        bottom += 1
    rows = np.flatnonzero(busy[top:bottom])
    return (top + int(rows[0]), top + int(rows[-1]) + 1) if len(rows) else (0, height)


def _widest(empty: NDArray[np.intp], left: float, right: float) -> tuple[float, float]:
    """The widest empty range that touches left..right, cut to it."""
    first = int(np.searchsorted(empty[:, 1], left))
    best = ((left + right) / 2, (left + right) / 2)
    for start, end in empty[first:]:
        if start >= right:
            break
        x0, x1 = max(float(start), left), min(float(end), right)
        if x1 - x0 > best[1] - best[0]:
            best = (x0, x1)
    return best


def _share_of_em(text: str) -> float:
    """The height of a line's ink in em, from which letters it holds."""
    letters = [c for c in text if c not in _FLAT]
    if not letters:
        return _X_HEIGHT
    if sum(ord(c) >= 0x2E80 for c in letters) * 3 > len(letters):
        return _SQUARE
    tall = any(c not in _SMALL for c in letters)
    deep = any(c in _DESCENDING for c in letters)
    return (_ASCENDER if tall else _X_HEIGHT) + (_DESCENDER if deep else 0.0)


def _stroke(dark: NDArray[np.float32]) -> float:
    """Twice the area over the length of the outline; grey edges count in both: small letters compare with large."""
    across = np.abs(np.diff(dark, axis=1))[1:, :]
    down = np.abs(np.diff(dark, axis=0))[:, 1:]
    outline = float(np.hypot(across, down).sum()) if min(dark.shape) > 1 else 0.0
    return 2 * float(dark.sum()) / outline if outline else 0.0
