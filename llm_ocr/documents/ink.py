"""Measure the ink of a page: a coarse black-and-white picture, used to judge answers and to find blank pages."""

import zlib
from typing import TYPE_CHECKING

from llm_ocr.types import InkMap

if TYPE_CHECKING:
    from PIL import Image

#: Approximate longest side in pixels: a line of 10 points on A4 is 8 pixels high, and its gaps are visible.
LONGEST = 700
#: Ratio of the sides from which the shorter side determines the size.
_TALL = 2.5
#: Least difference of 255 between ink and paper; thin strokes become gray when scaled down.
_CONTRAST = 40
#: The same on a page without such ink, for pencil and faded print, and its minimum as a multiple of the paper's noise.
_FAINT, _NOISE = 12, 6.0
#: Width of the histogram bins for the most frequent value.
_BAND = 8
#: Side in pixels of the tiles whose most frequent value is the local paper, and the difference from the page's paper up
#: to which a tile has the page's paper.
_TILE, _ALIKE = 48, 8
#: Least share of a tile that is within this range of its most frequent value, if that is far from the page's paper:
#: otherwise the edge of a dark area would lie in a tile of dark paper.
_MOSTLY, _EVEN = 0.75, 12
#: Range of the tiles' paper, and difference between neighbors, from which a page without strokes is a picture, not a
#: blank sheet in uneven light.
_PICTURE, _STEP = 96, 24
#: Share of the neighbors with such a difference from which the page is a photo.
_PHOTO = 0.12
#: Pixels within which a stroke ends, and those around a faint stroke whose mean is the paper; shadows are wider.
_EDGE, _AROUND = 2, 8
#: Reach in pixels around a pixel, and the pixels of ink in this square below which it is a speck.
_REACH, _LEAST = 3, 7
#: Share of each side from its edges in which unbroken ink from the edge is the border of a scan.
_BORDER = 0.1


def ink_of(image: "Image.Image") -> InkMap:
    """Return the ink of an image of mode L, RGB, or RGBX; about 6 ms for 1540 pixels.

    Ink differs from the paper around it: light is ink on dark pages, and a shadow is none. Specks and the dark borders
    of scans are left out.
    """
    from PIL import ImageChops

    longest = min(max(image.size), _TALL * min(image.size))
    small = image.reduce(max(1, round(longest / LONGEST))).convert("L")
    paper, is_picture = _paper_of(small)
    difference = ImageChops.difference(small, paper)
    ink = _without_specks(_without_borders(_above(difference, _CONTRAST)))
    if not (is_picture and ink.getbbox() is None):
        across = ImageChops.difference(small, ImageChops.offset(small, _EDGE, 0))
        down = ImageChops.difference(small, ImageChops.offset(small, 0, _EDGE))
        edges = _above(ImageChops.lighter(across, down), _CONTRAST // 2)
        if ImageChops.multiply(ink, edges).getbbox() is None:  # no sharp edges: shadows have none
            ink = _faint(small, difference)
    bits = ink.point([0] * 128 + [255] * 128, "1")
    blank = ink.getbbox() is None and not is_picture
    return InkMap(bits.width, bits.height, zlib.compress(bits.tobytes(), 1), blank)


def _faint(image: "Image.Image", difference: "Image.Image") -> "Image.Image":
    """Return the ink of a page without clear strokes; clear differences are borders, shadows, and specks."""
    from PIL import ImageChops, ImageFilter

    relief = ImageChops.difference(image, image.filter(ImageFilter.BoxBlur(_AROUND)))
    # The standard deviation of the paper, from the median of the differences.
    half, seen, noise = relief.width * relief.height / 2, 0, 0.0
    for value, count in enumerate(relief.histogram()):
        if seen + count >= half:
            noise = max(0.0, 1.48 * (value + (half - seen) / count - 0.5))
            break
        seen += count
    ink = _above(relief, max(_FAINT, round(_NOISE * noise)))
    near = _above(difference, _CONTRAST).filter(ImageFilter.BoxBlur(_AROUND))
    ink = ImageChops.subtract(ink, _above(near, 0))
    # Evenly scattered specks of this number are no text.
    scattered = (2 * _REACH + 1) ** 2 * ink.histogram()[255] / (ink.width * ink.height)
    return _without_specks(ink, max(_LEAST, round(scattered + 6 * scattered**0.5 + 1)))


def _above(image: "Image.Image", least: int) -> "Image.Image":
    return image.point([255 if value > least else 0 for value in range(256)])


def _paper_of(image: "Image.Image") -> tuple["Image.Image", bool]:
    """Return the local paper of a grayscale image, and whether it varies as much as a picture."""
    from PIL import Image, ImageChops

    whole = _most_frequent(image.histogram())
    across, down = -(-image.width // _TILE), -(-image.height // _TILE)
    # The share of each tile that has the page's paper.
    alike = image.point([255 * (abs(value - whole) <= _ALIKE) for value in range(256)])
    shares = alike.resize((across, down), Image.Resampling.BOX).tobytes()
    values = [whole] * len(shares)
    for at, share in enumerate(shares):
        if share > 127:
            continue
        x, y = at % across, at // across
        place = (x * image.width // across, y * image.height // down)
        end = ((x + 1) * image.width // across, (y + 1) * image.height // down)
        counts = image.crop((*place, *end)).histogram()
        value = _most_frequent(counts)
        even = sum(counts[max(0, value - _EVEN) : value + _EVEN + 1]) >= _MOSTLY * sum(counts)
        if abs(value - whole) > _ALIKE and (even or abs(value - whole) < _CONTRAST):
            values[at] = value
    if set(values) == {whole}:
        return Image.new("L", image.size, whole), False
    tiles = Image.frombytes("L", (across, down), bytes(values))
    if min(across, down) > 2:  # the border of a scan may fill the tiles at its edge
        inner = [
            values[min(max(y, 1), down - 2) * across + min(max(x, 1), across - 2)]
            for y in range(down)
            for x in range(across)
        ]
        tiles = Image.frombytes("L", (across, down), bytes(inner))
    values = list(tiles.tobytes())
    beside = ImageChops.difference(tiles, ImageChops.offset(tiles, 1, 0)).crop((1, 0, across, down))
    below = ImageChops.difference(tiles, ImageChops.offset(tiles, 0, 1)).crop((0, 1, across, down))
    neighbors = [*beside.tobytes(), *below.tobytes()]
    steps = sum(step >= _STEP for step in neighbors)
    if steps > _PHOTO * len(neighbors):  # a photo has no local paper
        return Image.new("L", image.size, whole), True
    is_picture = max(values) - min(values) >= _PICTURE or steps > 0
    return tiles.resize(image.size, Image.Resampling.BILINEAR), is_picture


def _most_frequent(counts: list[int]) -> int:
    bands = [sum(counts[start : start + _BAND]) for start in range(0, 256, _BAND)]
    start = _BAND * max(range(len(bands)), key=bands.__getitem__)
    return max(range(start, start + _BAND), key=counts.__getitem__)


def _without_specks(ink: "Image.Image", least: int = _LEAST) -> "Image.Image":
    """Return the pixels with at least as many pixels of ink around them."""
    from PIL import Image, ImageChops, ImageFilter

    if ink.getbbox() is None:
        return ink
    # A frame of paper: the filter repeats the pixels at the edges.
    framed = Image.new("L", (ink.width + 2 * _REACH, ink.height + 2 * _REACH))
    framed.paste(ink, (_REACH, _REACH))
    place = (_REACH, _REACH, _REACH + ink.width, _REACH + ink.height)
    around = framed.filter(ImageFilter.BoxBlur(_REACH)).crop(place)
    return ImageChops.multiply(ink, _above(around, int(255 * (least - 0.5) / (2 * _REACH + 1) ** 2)))


def _without_borders(ink: "Image.Image") -> "Image.Image":
    """Return the ink without unbroken ink from an edge of the page inward."""
    from PIL import Image, ImageChops

    result = ink
    right, bottom = ink.width - 1, ink.height - 1
    edges = ((0, 0, ink.width, 1), (right, 0, ink.width, ink.height), (0, bottom, ink.width, ink.height))
    for turn, edge in enumerate((*edges, (0, 0, 1, ink.height))):
        if ink.crop(edge).getbbox() is None:
            continue
        shown = ink.rotate(90 * turn, expand=True)
        border = Image.new("L", shown.size)
        row = shown.crop((0, 0, shown.width, 1))
        for y in range(round(_BORDER * shown.height)):
            row = ImageChops.darker(row, shown.crop((0, y, shown.width, y + 1)))
            if row.getbbox() is None:
                break
            border.paste(row, (0, y))
        result = ImageChops.subtract(result, border.rotate(-90 * turn, expand=True))
    return result
