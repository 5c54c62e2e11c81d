"""Coordinate scales of models, as pure functions to relative boxes.

Each function takes four numbers of an answer. The result is None for a box without an area on the page, and for pixels
of an image of unknown size.
"""

import re
from collections.abc import Callable
from math import ceil, floor, sqrt

from llm_ocr.models.profile import Frame
from llm_ocr.types import Box

#: Conversion of the four numbers of a box to a relative box, clipped, with ordered corners; None for an invalid box.
Scale = Callable[[float, float, float, float], Box | None]

#: Number of a box as written, bounded so that reading it stays linear and never fails.
NUMBER = re.compile(r"-?\d{1,9}(?:\.\d{0,9})?")
#: Box for answers without boxes.
WHOLE_PAGE = Box(0.0, 0.0, 1.0, 1.0)
# DeepSeek-OCR counts 0 to 999 over each side of the page: its own script divides by 999 (docling by 1000, a difference
# of less than one pixel in a thousand).
_LAST_BIN = 999.0
# Larger numbers are not on the model's grid at all, for example pixels. Slightly larger ones are clipped.
_BEYOND_GRID = 1.05
# dots.ocr is trained on images with sides in multiples of 28 pixels and areas between these limits.
_FACTOR = 28
_LEAST_PIXELS = 3136
_MOST_PIXELS = 11_289_600
# Nemotron Parse sees each picture in the middle of a canvas of this size (v1.1: 1648 wide).
_CANVAS_WIDTH = 1664
_CANVAS_HEIGHT = 2048


def from_fractions(x0: float, y0: float, x1: float, y1: float) -> Box | None:
    """Return the box for corners in 0..1, of the page or of a stretched image: fractions stay the same."""
    box = Box(x0, y0, x1, y1).clipped()
    return box if box.width > 0 and box.height > 0 else None


def _grid(last: float) -> Scale:
    """Return the scale for corners in 0..`last` over each side."""

    def scale(x0: float, y0: float, x1: float, y1: float) -> Box | None:
        if max(x0, y0, x1, y1) > _BEYOND_GRID * last or min(x0, y0, x1, y1) < (1 - _BEYOND_GRID) * last:
            return None
        return _divided(x0, y0, x1, y1, last, last)

    return scale


#: DeepSeek-OCR; LightOnOCR, Chandra 2, Surya, Qwen3-VL, MinerU, and Unlimited-OCR; Chandra 1; DocTags.
from_bins, from_1000, from_1024, from_500 = map(_grid, (_LAST_BIN, 1000.0, 1024.0, 500.0))


def from_pixel_sizes(frame: Frame) -> Scale:
    """Return the scale for positive left, top, width, and height in pixels of the image as sent (olmOCR)."""

    def scale(x: float, y: float, width: float, height: float) -> Box | None:
        if width <= 0 or height <= 0:
            return None
        return _divided(x, y, x + width, y + height, frame.width, frame.height)

    return scale


def from_resized(frame: Frame) -> Scale:
    """Return the scale for corners in pixels of the image after dots.ocr's resizing (`dots_size`)."""
    width, height = dots_size(frame.width, frame.height)
    return lambda x0, y0, x1, y1: _divided(x0, y0, x1, y1, width, height)


def from_canvas(frame: Frame) -> Scale:
    """Return the scale for corners as fractions of a canvas with the picture in the middle.

    The picture is shrunk to fit and never enlarged. Margins around the picture are clipped.
    """
    width, height = _CANVAS_WIDTH, _CANVAS_HEIGHT
    across, down = frame.width, frame.height
    if across > 0 and down > 0:  # the height is fitted first, as in the model's processor
        shape = across / down
        if down > height:
            across, down = int(height * shape), height
        if across > width:
            across, down = width, int(width / shape)
        across, down = max(across, 1), max(down, 1)
    left, top = (width - across) // 2, (height - down) // 2

    def scale(x0: float, y0: float, x1: float, y1: float) -> Box | None:
        return _divided(x0 * width - left, y0 * height - top, x1 * width - left, y1 * height - top, across, down)

    return scale


def dots_size(width: int, height: int) -> tuple[int, int]:
    """Return the size in pixels after dots.ocr's resizing: both sides multiples of 28, area 3136 to 11,289,600 pixels.

    The result is 0 by 0 for an image without an area.
    """
    if width <= 0 or height <= 0:
        return 0, 0
    across, down = (max(_FACTOR, round(side / _FACTOR) * _FACTOR) for side in (width, height))
    if across * down > _MOST_PIXELS:
        return _shrunk(width, height)
    if across * down < _LEAST_PIXELS:
        grow = sqrt(_LEAST_PIXELS / (width * height))
        across, down = (ceil(side * grow / _FACTOR) * _FACTOR for side in (width, height))
        if across * down > _MOST_PIXELS:  # one side has a single pixel, the other thousands
            return _shrunk(across, down)
    return across, down


def _shrunk(width: int, height: int) -> tuple[int, int]:
    by = sqrt(width * height / _MOST_PIXELS)
    across, down = (max(_FACTOR, floor(side / by / _FACTOR) * _FACTOR) for side in (width, height))
    return across, down


def _divided(x0: float, y0: float, x1: float, y1: float, across: float, down: float) -> Box | None:
    if across <= 0 or down <= 0:
        return None
    return from_fractions(x0 / across, y0 / down, x1 / across, y1 / down)
