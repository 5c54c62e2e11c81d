"""Where text is: the detector's probability map, and rectangles around its connected parts."""

from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from llm_ocr.engines.embedded.ocr.filled import filled_parts
from llm_ocr.engines.embedded.ocr.models import give_back_arena, open_session, require_models

Pixels = NDArray[np.uint8]
Floats = NDArray[np.float32]

#: The network halves its input five times.
_STRIDE = 32
#: Pixels by which neighbouring tiles overlap; half of it is trusted from each.
_OVERLAP = 128
#: A map value above this is text; rapidocr 3.10's config.yaml (Det.thresh).
_TEXT = 0.3
#: Mean map value that a rectangle needs; rapidocr 3.10's config.yaml (Det.box_thresh).
_SURE = 0.5
#: The network was trained on rectangles shrunk by their area over their perimeter; this undoes it (Det.unclip_ratio).
_GROW = 1.6
#: Rectangles of fewer map pixels than this in height hold nothing that can be read.
_LEAST = 3


@dataclass(frozen=True, slots=True)
class Quad:
    """A rectangle around a piece of text, in pixels: centre, size, angle in degrees clockwise (within 45 of level)."""

    x: float
    y: float
    width: float
    height: float
    angle: float
    core: float  # height before growing

    @property
    def tall(self) -> bool:
        """Text that runs up or down the page."""
        return self.height > 1.5 * self.width


class Detector:
    """Finds text in RGB images."""

    def __init__(self) -> None:
        self._session = open_session(require_models().detector)

    def find(self, image: Pixels, *, side: int, tile: int) -> list[Quad]:
        """Rectangles in pixels of `image`, unordered.

        The image is shrunk until its longest side is `side`; what is not plain of it goes through the network, in
        tiles of at most `tile` pixels a side, which bounds the memory.
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
        """Hold no more memory than before the first page."""
        give_back_arena(self._session, (1, 3, _STRIDE, _STRIDE))

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
        below, beside = -height % _STRIDE, -width % _STRIDE
        padded = cv2.copyMakeBorder(image, 0, below, 0, beside, cv2.BORDER_REPLICATE)
        values = cv2.dnn.blobFromImage(padded, 1 / 127.5, mean=(127.5, 127.5, 127.5), swapRB=True)
        name = self._session.get_inputs()[0].name
        out: Any = self._session.run(None, {name: values})[0]
        found: Floats = out[0, 0, :height, :width]
        return found


def _spans(length: int, tile: int) -> list[tuple[int, int]]:
    """Overlapping ranges of at most `tile` that cover 0..length, of equal size."""
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
    if _mean_inside(found, corners) < _SURE:
        return None
    while angle > 45:
        width, height, angle = height, width, angle - 90
    while angle <= -45:
        width, height, angle = height, width, angle + 90
    grow = width * height * _GROW / (width + height)
    core = min(width, height) * down
    return Quad(x * across, y * down, (width + grow) * across, (height + grow) * down, angle, core)


def _mean_inside(found: Floats, corners: NDArray[np.float32]) -> float:
    height, width = found.shape
    x0, y0 = np.floor(corners.min(axis=0)).astype(int).clip(0, (width - 1, height - 1))
    x1, y1 = np.ceil(corners.max(axis=0)).astype(int).clip(0, (width - 1, height - 1))
    inside = np.zeros((y1 - y0 + 1, x1 - x0 + 1), np.uint8)
    cv2.fillPoly(inside, [(corners - (x0, y0)).astype(np.int32)], 1)
    return float(cv2.mean(found[y0 : y1 + 1, x0 : x1 + 1], inside)[0])
