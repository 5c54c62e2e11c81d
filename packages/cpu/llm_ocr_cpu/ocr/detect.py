"""Detect text lines on a page image."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import pairwise
from statistics import median

import cv2
import numpy as np
from numpy.typing import NDArray

from llm_ocr.types import Box, Line, Word
from llm_ocr_cpu.ocr.models import open_network, require_models

# Parts of a page image with content; the detector skips the other parts.


Pixels = NDArray[np.uint8]
#: Rows and columns from, to.
Part = tuple[int, int, int, int]

#: Side of the examined squares in pixels.
_SQUARE = 16
#: Maximum range of a color in an empty square (of 255). The value is half of the minimum for a page with text, and
#: exceeds JPEG's noise on paper.
_PLAIN = 12
#: Empty squares kept around content: the network uses the surroundings of text, and its strides are 32.
_MARGIN = 2
#: Number of empty rows of squares beyond the margins that split a page into two parts.
_GAP = 4


def filled_parts(image: Pixels) -> list[Part]:
    """Return disjoint rectangles (top, bottom, left, right) of the image, from the top down.

    The area outside is plain. The result is empty for a plain image.
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
    """Return the squares that are not plain in each color."""
    height, width, _ = image.shape
    below, beside = -height % _SQUARE, -width % _SQUARE
    if below or beside:
        image = np.pad(image, ((0, below), (0, beside), (0, 0)), mode="edge")
    rows = image.reshape(image.shape[0] // _SQUARE, _SQUARE, -1)  # whole rows first, the fast axis in numpy
    highest, lowest = (_by_columns(edge) for edge in (rows.max(axis=1), rows.min(axis=1)))
    found: NDArray[np.bool_] = (highest.max(axis=2) - lowest.min(axis=2) > _PLAIN).any(axis=2)
    return found


def _by_columns(rows: Pixels) -> Pixels:
    return rows.reshape(rows.shape[0], -1, _SQUARE, 3)


def _runs(busy: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Return ranges of rows with busy squares; ranges within the gap plus both margins are merged."""
    rows = np.flatnonzero(busy.any(axis=1))
    if not len(rows):
        return []
    cuts = np.flatnonzero(np.diff(rows) > _GAP + 2 * _MARGIN)
    starts = [int(rows[0]), *(int(rows[cut + 1]) for cut in cuts)]
    ends = [*(int(rows[cut]) + 1 for cut in cuts), int(rows[-1]) + 1]
    return list(zip(starts, ends, strict=True))


# Split of lines that the detector drew across the gutter between two columns. A gutter narrower than a separating gap
# is identified by other lines. Several lines end on its left edge, several begin on its right edge, and hardly any
# cross it.


#: Width of the narrowest gutter in font sizes: between few lines, and between `_MANY`. A space is 0.25 to 0.5 wide.
_NARROWEST, _NARROWEST_SURE = 0.8, 0.25
#: Tolerance between an edge and another line's edge, in font sizes.
_ALIGNED = 0.6
#: Number of other lines that must end before the gap, and begin after it.
_ENDING, _BEGINNING = 3, 4
#: Narrowest gap between a text and the notes beside it in font sizes, and number of lines of the text.
_NARROWEST_MARGIN, _MARGIN_LINES = 0.6, 10
#: Lines that end, and lines that begin, at a gutter as narrow as a space, and the most others that cross it, as a share
#: of those that begin. Headings in larger print cross gutters.
_MANY, _CROSSING, _LARGER = 20, 0.15, 1.6
#: Minimum words of a relevant line: shorter lines are labels or cells and do not indicate columns.
_WORDS = 3


def parted_at_gutters(lines: Sequence[Line]) -> list[Line]:
    """Return the lines; lines across a gutter are split into two or more."""
    page = _Edges(lines)
    return [part for line in lines for part in _parts(line, page)]


class _Edges:
    """Beginnings and ends of the lines of a page."""

    def __init__(self, lines: Sequence[Line]) -> None:
        telling = [line for line in lines if len(line.words) >= _WORDS]
        self._starts = sorted(line.box.x0 for line in telling)
        self._ends = sorted(line.box.x1 for line in telling)
        self._lines = telling
        self._size = median(line.size for line in telling) if telling else 0.0

    def is_gutter(self, left: float, right: float, size: float) -> bool:
        """Return whether lines end at `left` or begin at `right`, and few cross the gap."""
        gap = (right - left) / size
        wide = gap >= _NARROWEST
        if not wide and (gap < _NARROWEST_SURE or size > _LARGER * self._size):
            return False
        reach = _ALIGNED * size
        beginning = _between(self._starts, right - reach, right + reach)
        ending = _between(self._ends, left - reach, left + reach)
        most = 0.0  # lines that may cross the gap
        if gap >= _NARROWEST_MARGIN and max(beginning, ending) >= _MARGIN_LINES:
            most = _CROSSING * max(beginning, ending)
        if beginning >= (_BEGINNING if wide else _MANY) and ending >= (_ENDING if wide else _MANY):
            most = max(most, (0.5 if wide else _CROSSING) * beginning)
        return most > 0 and sum(_runs_through(line, left, right) for line in self._lines) <= most


def _between(values: Sequence[float], low: float, high: float) -> int:
    return bisect_right(values, high) - bisect_left(values, low)


def _runs_through(line: Line, left: float, right: float) -> bool:
    """Return whether a word of the line is in the gap, not only next to it."""
    if line.box.x1 <= right or line.box.x0 >= left:
        return False
    middle = (left + right) / 2
    return any(word.box.x0 < middle < word.box.x1 for word in line.words)


def _parts(line: Line, page: _Edges) -> list[Line]:
    words = line.words
    if len(words) < 2 or line.text != " ".join(word.text for word in words):
        return [line]
    cuts = [
        index
        for index in range(1, len(words))
        if page.is_gutter(words[index - 1].box.x1, words[index].box.x0, line.size)
    ]
    if not cuts:
        return [line]
    edges = [0, *cuts, len(words)]
    return [_of_words(line, words[begin:end]) for begin, end in pairwise(edges)]


def _of_words(line: Line, words: Sequence[Word]) -> Line:
    across = reduce(Box.union, (word.box for word in words))
    box = Box(across.x0, line.box.y0, across.x1, line.box.y1)
    return replace(line, text=" ".join(word.text for word in words), box=box, words=tuple(words))


# Text areas: the detector's probability map, and rectangles around its connected parts.


Floats = NDArray[np.float32]

#: The network halves its input five times.
_STRIDE = 32
#: Multiple to which sides are padded for a network that compiles code for each shape: 240 parts of any size take 1.4 GB
#: of memory, and 1.75 GB with 64.
_COARSE = 128
#: Overlap of neighboring tiles in pixels; half of it is used from each tile.
_OVERLAP = 128
#: Minimum map value of text; rapidocr 3.10's config.yaml (Det.thresh).
_TEXT = 0.3
#: Minimum mean map value of a rectangle; rapidocr 3.10's config.yaml (Det.box_thresh).
_SURE = 0.5
#: The same for an area itself, where paper does not lower the mean.
_SURE_CURVED = 0.7
#: The network was trained on rectangles shrunk by their area over their perimeter; this reverses it (Det.unclip_ratio).
_GROW = 1.6
#: Minimum width of a line whose middle is measured: in heights, or as a share of the page. Number of its points.
_LONG, _LONG_SIDE, _POINTS = 6.0, 0.25, 12
#: Minimum height of a readable rectangle in map pixels.
_LEAST = 3


@dataclass(frozen=True, slots=True)
class Quad:
    """Rectangle around text in pixels: center, size, angle in degrees clockwise (within 45 of horizontal).

    `middle`: points (x, y) halfway between the top and the bottom of a long line's letters, from left to right.
    """

    x: float
    y: float
    width: float
    height: float
    angle: float
    core: float  # height before the expansion
    middle: tuple[tuple[float, float], ...] = ()

    @property
    def tall(self) -> bool:
        """Whether the text runs up or down the page."""
        return self.height > 1.5 * self.width

    @property
    def box(self) -> Box:
        """The rectangle as if it were level."""
        across, down = self.width / 2, self.height / 2
        return Box(self.x - across, self.y - down, self.x + across, self.y + down)


class Detector:
    """Detector of text in RGB images."""

    def __init__(self) -> None:
        self._network = open_network(require_models().detector)

    def find(self, image: Pixels, *, side: int, tile: int) -> list[Quad]:
        """Return rectangles in pixels of `image`, unordered.

        The image is scaled down to `side` on its longest side. Only parts with content pass through the network, in
        tiles of at most `tile` pixels per side, which limits the memory.
        """
        height, width = image.shape[:2]
        scale = min(1.0, side / max(height, width))
        small = (
            cv2.resize(
                image, (max(1, round(width * scale)), max(1, round(height * scale))), interpolation=cv2.INTER_AREA
            )
            if scale < 1
            else image
        )
        return _rectangles(self._map(small, tile), width / small.shape[1], height / small.shape[0])

    def rest(self) -> None:
        """Release memory to the level before the first page."""
        self._network.rest()

    def _map(self, image: Pixels, tile: int) -> Floats:
        result = np.zeros(image.shape[:2], np.float32)
        for top, bottom, left, right in filled_parts(image):
            result[top:bottom, left:right] = self._in_tiles(image[top:bottom, left:right], tile)
        return result

    def _in_tiles(self, image: Pixels, tile: int) -> Floats:
        height, width = image.shape[:2]
        result = np.zeros((height, width), np.float32)
        for top, bottom in _spans(height, tile):
            for left, right in _spans(width, tile):
                part = self._run(image[top:bottom, left:right])
                y0, y1 = _trusted(top, bottom, height)
                x0, x1 = _trusted(left, right, width)
                result[y0:y1, x0:x1] = part[y0 - top : y1 - top, x0 - left : x1 - left]
        return result

    def _run(self, image: Pixels) -> Floats:
        height, width = image.shape[:2]
        step = _COARSE if self._network.compiles_shapes else _STRIDE
        below, beside = -height % step, -width % step
        padded = cv2.copyMakeBorder(image, 0, below, 0, beside, cv2.BORDER_REPLICATE)
        values = cv2.dnn.blobFromImage(padded, 1 / 127.5, mean=(127.5, 127.5, 127.5), swapRB=True)
        return self._network.run(values)[0][0, 0, :height, :width]


def _spans(length: int, tile: int) -> list[tuple[int, int]]:
    """Return overlapping ranges of at most `tile` that cover 0..length, of equal size."""
    if length <= tile:
        return [(0, length)]
    count = -(-(length - _OVERLAP) // (tile - _OVERLAP))
    size = -(-(length + (count - 1) * _OVERLAP) // count)
    starts = [min(index * (size - _OVERLAP), length - size) for index in range(count)]
    return [(start, start + size) for start in starts]


def _trusted(start: int, end: int, length: int) -> tuple[int, int]:
    margin = _OVERLAP // 2
    return (start + margin if start else 0), (end - margin if end < length else length)


def _rectangles(found: Floats, across: float, down: float) -> list[Quad]:
    mask = cv2.dilate((found > _TEXT).astype(np.uint8), np.ones((2, 2), np.uint8))
    contours, _ = cv2.findContours(mask, cv2.RETR_LIST, cv2.CHAIN_APPROX_SIMPLE)
    quads = (_quad(contour, found, across, down) for contour in contours)
    return [quad for quad in quads if quad is not None]


def _quad(contour: NDArray[np.int32], found: Floats, across: float, down: float) -> Quad | None:
    (x, y), (width, height), angle = cv2.minAreaRect(contour)
    if min(width, height) < _LEAST:
        return None
    corners = cv2.boxPoints(((x, y), (width, height), angle))
    # The rectangle around a curved line is mostly paper, so that the area itself decides.
    if _mean_inside(found, corners) < _SURE and _mean_inside(found, contour[:, 0].astype(np.float32)) < _SURE_CURVED:
        return None
    while angle > 45:
        width, height, angle = height, width, angle - 90
    while angle <= -45:
        width, height, angle = height, width, angle + 90
    grow = width * height * _GROW / (width + height)
    core = min(width, height) * down
    middle: tuple[tuple[float, float], ...] = ()
    if width > _LONG * height or width > _LONG_SIDE * found.shape[1]:
        middle = tuple((px * across, py * down) for px, py in _middle(contour))
    return Quad(x * across, y * down, (width + grow) * across, (height + grow) * down, angle, core, middle)


def _middle(contour: NDArray[np.int32]) -> list[tuple[float, float]]:
    """Return points halfway between the area's upper and lower edge, without its rounded ends."""
    x0, y0, width, height = cv2.boundingRect(contour)
    inside = np.zeros((height, width), np.uint8)
    cv2.drawContours(inside, [contour - (x0, y0)], -1, 1, cv2.FILLED)
    top = inside.argmax(axis=0)
    bottom = height - 1 - inside[::-1].argmax(axis=0)
    columns = np.linspace(0.03 * width, 0.97 * width - 1, _POINTS).astype(int)
    return [(x0 + int(column), y0 + float(top[column] + bottom[column]) / 2) for column in columns]


def _mean_inside(found: Floats, corners: NDArray[np.float32]) -> float:
    height, width = found.shape
    x0, y0 = np.floor(corners.min(axis=0)).astype(int).clip(0, (width - 1, height - 1))
    x1, y1 = np.ceil(corners.max(axis=0)).astype(int).clip(0, (width - 1, height - 1))
    inside = np.zeros((y1 - y0 + 1, x1 - x0 + 1), np.uint8)
    cv2.fillPoly(inside, [(corners - (x0, y0)).astype(np.int32)], 1)
    return float(cv2.mean(found[y0 : y1 + 1, x0 : x1 + 1], inside)[0])
