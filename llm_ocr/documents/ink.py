"""Measure the ink of a page: a coarse black-and-white picture, to find blank pages and what was not read."""

import math
import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from llm_ocr.types import Box, InkMap

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from PIL import Image

    Mask = npt.NDArray[np.bool_]
    Integers = npt.NDArray[np.int64]
    Floats = npt.NDArray[np.float32]

#: Approximate longest side in pixels: a line of 10 points on A4 is 8 pixels high, and its gaps are visible.
LONGEST = 700
#: Ratio of the sides from which the shorter side determines the size.
_TALL = 2.5
#: Least difference of 255 between ink and paper; thin strokes become gray when scaled down.
_CONTRAST = 40
#: The same in the red or blue channel alone.
_COLORED = 128
#: The same on a page without such ink, for pencil and faded print, and its minimum as a multiple of the paper's noise.
_FAINT, _NOISE = 12, 6.0
#: Lines of text on a page without any ink are found by the mean of this many rows and columns, and the paper by that of
#: the square. The lines are darker than it by this multiple of the deviation on quiet paper, and by more levels than
#: JPEG rounds away.
_LINE, _SQUARE = (3, 25), (25, 25)
_DARKER, _LEAST_DARKER = 6.5, 1.8
#: Share of the page's tiles that are quieter than quiet paper, and the levels by which the paper between lines is at
#: least brighter than its surroundings: areas of one value, which JPEG leaves, tell nothing about its noise.
_QUIET, _FLAT = 0.05, 0.05
#: Least growth of the squared differences between neighbors in these lines against those between the lines: letters
#: have sharp edges, while stains, folds, and blurred ink have none. Least width of all lines in pixels times this
#: growth (at most 1): fibers of paper are short.
_SHARPER, _LEAST_WIDTH = 0.3, 250
#: Multiple of the deviation of the pixels, and the levels, from which a pixel of these lines is ink.
_STROKE, _LEAST_STROKE = 2.0, 2.0
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


def reduction_of(image: "Image.Image") -> int:
    """Return the number by which `ink_of` divides the sides of an image."""
    longest = min(max(image.size), _TALL * min(image.size))
    return max(1, round(longest / LONGEST))


def ink_of(image: "Image.Image") -> InkMap:
    """Return the ink of an image of mode L, RGB, or RGBX; about 6 ms for 1540 pixels.

    Ink differs from the paper around it: light is ink on dark pages, and a shadow is none. Specks and the dark borders
    of scans are left out.
    """
    import numpy as np
    from PIL import ImageChops

    part = reduction_of(image)
    color = image.reduce(part) if part > 1 else image
    gray = color.convert("L")
    paper, is_picture = _paper_of(gray)
    difference = np.asarray(ImageChops.difference(gray, paper))
    ink = _without_specks(_without_borders(difference > _CONTRAST))
    if not (is_picture and not ink.any()) and not _has_edges(gray, ink):  # shadows have none
        ink = _faint(gray, difference)
    if color.mode != "L":
        ink = _with_colors(color, gray, ink)
    if has_no_clear_ink := not is_picture and not ink.any():
        ink = _pale_lines(np.asarray(gray, dtype=np.float32), difference)
    found = bool(ink.any())
    packed = zlib.compress(np.packbits(ink, axis=1).tobytes(), 1)
    blank, pale = has_no_clear_ink and not found, has_no_clear_ink and found
    return InkMap(gray.width, gray.height, packed, blank=blank, pale=pale)


def _has_edges(image: "Image.Image", ink: "Mask") -> bool:
    """Return whether some of the ink has sharp edges."""
    import numpy as np
    from PIL import ImageChops

    across = ImageChops.difference(image, ImageChops.offset(image, _EDGE, 0))
    down = ImageChops.difference(image, ImageChops.offset(image, 0, _EDGE))
    return bool((ink & (np.asarray(ImageChops.lighter(across, down)) > _CONTRAST // 2)).any())


def _with_colors(color: "Image.Image", gray: "Image.Image", ink: "Mask") -> "Mask":
    """Return the ink with that of the red and blue channels, if the gray values lack it; most pages have few colors."""
    import numpy as np
    from PIL import ImageChops

    elsewhere = None  # the places without ink
    for channel in map(color.getchannel, (0, 2)):
        beside = np.asarray(ImageChops.subtract(channel, gray, 1, 128))
        if np.ptp(beside) <= _COLORED - _CONTRAST:
            continue
        if elsewhere is None:
            elsewhere = _around(ink, _EDGE) == 0
        if elsewhere.any() and np.ptp(beside[elsewhere]) > _COLORED - _CONTRAST:
            ink, elsewhere = ink | _colored(channel), None
    return ink


def _colored(channel: "Image.Image") -> "Mask":
    """Return the ink of the red or blue channel that is clear to see, such as red on a green that is as bright."""
    import numpy as np
    from PIL import ImageChops

    paper, is_picture = _paper_of(channel)
    ink = _without_specks(_without_borders(np.asarray(ImageChops.difference(channel, paper)) > _COLORED))
    return ink if not is_picture and _has_edges(channel, ink) else np.zeros_like(ink)


def _faint(image: "Image.Image", difference: "npt.NDArray[np.uint8]") -> "Mask":
    """Return the ink of a page without clear strokes; clear differences are borders, shadows, and specks."""
    import numpy as np
    from PIL import ImageChops, ImageFilter

    relief = ImageChops.difference(image, image.filter(ImageFilter.BoxBlur(_AROUND)))
    # The standard deviation of the paper, from the median of the differences.
    half, seen, noise = relief.width * relief.height / 2, 0, 0.0
    for value, count in enumerate(relief.histogram()):
        if seen + count >= half:
            noise = max(0.0, 1.48 * (value + (half - seen) / count - 0.5))
            break
        seen += count
    ink = np.asarray(relief) > max(_FAINT, round(_NOISE * noise))
    ink &= _around(difference > _CONTRAST, _AROUND) == 0
    # Evenly scattered specks of this number are no text.
    scattered = (2 * _REACH + 1) ** 2 * float(ink.mean())
    return _without_specks(ink, max(_LEAST, round(scattered + 6 * scattered**0.5 + 1)))


def _pale_lines(gray: "Floats", difference: "npt.NDArray[np.uint8]") -> "Mask":
    """Return the ink of lines of text, lying or standing, whose strokes are as pale as the noise of the paper."""
    gray = gray - gray.mean()  # sums of smaller values are more exact
    relief = _mean(gray, _SQUARE) - gray
    paper = _around(difference > _CONTRAST, _AROUND) == 0  # without borders and specks
    ink = _pale_lying_lines(gray, relief, paper)
    return ink if ink.any() else _pale_lying_lines(gray.T, relief.T, paper.T).T


def _pale_lying_lines(gray: "Floats", relief: "Floats", paper: "Mask") -> "Mask":
    """Return the same for lying lines. `relief`: how much darker each pixel is than its surroundings."""
    import numpy as np

    darker = _mean(relief, _LINE)
    down, across = gray.shape[0] // _TILE, gray.shape[1] // _TILE
    if min(down, across) < 2:
        return np.zeros(gray.shape, np.bool_)
    tiles = darker[: down * _TILE, : across * _TILE].reshape(down, _TILE, across, _TILE)
    quiet = float(np.quantile(tiles.std(axis=(1, 3)), _QUIET))
    lines = paper & (darker > max(_DARKER * quiet, _LEAST_DARKER))
    between = paper & (darker < -_FLAT)
    if not (lines.any() and between.any()):
        return np.zeros_like(lines)
    steps = np.square(np.diff(gray, axis=1, prepend=gray[:, :1]))
    noise = float(steps[between].mean())
    strokes = relief > max(_STROKE * math.sqrt(noise / 2), _LEAST_STROKE)
    sharper = float(steps[lines].mean()) / max(noise, 1e-6) - 1
    width = sum(line.width for line, _ in lines_of_text(lines & strokes))
    if sharper < _SHARPER or min(1.0, sharper) * width < _LEAST_WIDTH:
        return np.zeros_like(lines)
    ink: Mask = paper & strokes & (_around(lines, _REACH) > 0)  # with the upper and lower ends of letters
    return ink


def _mean(values: "Floats", window: tuple[int, int]) -> "Floats":
    """Return the mean of the odd number of rows and columns around each pixel; the edges continue outward.

    Pillow's BoxBlur rounds to whole levels, which hides such lines.
    """
    import numpy as np

    for axis, length in enumerate(window):
        room = [(length // 2 + 1, length // 2) if axis == padded else (0, 0) for padded in (0, 1)]
        sums = np.cumsum(np.pad(values, room, "edge"), axis)
        ahead, behind = (sums[length:], sums[:-length]) if axis == 0 else (sums[:, length:], sums[:, :-length])
        values = (ahead - behind) / np.float32(length)
    return values


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


def _around(ink: "Mask", reach: int) -> "npt.NDArray[np.uint8 | np.uint16]":
    """Return the number of pixels of ink in the square of `reach` pixels around each pixel."""
    import numpy as np

    height, width = ink.shape
    framed = np.pad(ink, reach).view(np.uint8)
    rows, counts = framed[:height].copy(), np.zeros(ink.shape, np.uint8 if (2 * reach + 1) ** 2 < 256 else np.uint16)
    for start in range(1, 2 * reach + 1):
        rows += framed[start : start + height]
    for start in range(2 * reach + 1):
        counts += rows[:, start : start + width]
    return counts


def _without_specks(ink: "Mask", least: int = _LEAST) -> "Mask":
    """Return the pixels with at least as many pixels of ink around them."""
    return ink & (_around(ink, _REACH) >= least)


def _without_borders(ink: "Mask") -> "Mask":
    """Return the ink without unbroken ink from an edge of the page inward."""
    import numpy as np

    result = ink.copy()
    for turn in range(4):
        inward, rest = np.rot90(ink, turn), np.rot90(result, turn)
        row = inward[0]
        for y in range(round(_BORDER * len(inward))):
            row = row & inward[y]
            if not row.any():
                break
            rest[y] &= ~row
    return result


# Lines of text in the ink: what a reading of the page should cover.


#: Growth of boxes, relative to the page: boxes of letters are tight.
ROOM = 0.008
#: Pixels by which ink is widened on both sides, so that the letters of a line touch and columns do not.
_WIDER = 4
#: Heights in pixels of lines of text in an ink map: lower ones are rules, higher ones pictures.
_LOWEST, _HIGHEST = 3, 40
#: Least width of a line in its heights, and in pixels.
_WIDE, _WIDEST_SPECK = 1.5, 8
#: Share of a line's box that its letters fill.
_THIN, _SOLID = 0.12, 0.9
#: Least mean number of strokes that a row of pixels of a line crosses, and pixels of its length for one. The letters of
#: a blurred word are one stroke, as are the edges of discs, bars, and other shapes.
_LEAST_STROKES, _STROKES_APART = 1.3, 50
#: Length of unbroken ink that is a rule or the edge of a picture: pixels, and share of the page's width.
_RULE, _RULE_SHARE = 45, 0.12


def pixels_of(ink: InkMap, rotation: int = 0) -> "Mask":
    """Return the ink of the page turned clockwise by `rotation` degrees, one value per pixel."""
    import numpy as np

    packed = np.frombuffer(zlib.decompress(ink.packed), np.uint8).reshape(ink.height, -1)
    black: Mask = np.unpackbits(packed, axis=1)[:, : ink.width].view(np.bool_)
    return np.ascontiguousarray(np.rot90(black, -rotation // 90)) if rotation % 360 else black


def place_of(box: Box, height: int, width: int) -> tuple[slice, slice]:
    """Return the rows and columns of a relative box with some room."""
    place = box.grown(ROOM).clipped()
    rows = slice(int(place.y0 * height), math.ceil(place.y1 * height))
    return rows, slice(int(place.x0 * width), math.ceil(place.x1 * width))


def ink_without(boxes: Sequence[Box], black: "Mask") -> list[tuple[Box, float]]:
    """Return what looks like lines of text outside of relative boxes, and the letters that fit in."""
    height, width = black.shape
    left = black.copy()
    for box in boxes:
        left[place_of(box, height, width)] = False
    return [(box.scaled(1 / width, 1 / height), letters_in(box)) for box, _ in lines_of_text(left)]


def letters_in(line: Box) -> float:
    """Return the letters that fit into a line, lying or standing, whose box is in pixels."""
    return 2 * max(line.width / line.height, line.height / line.width)


def lines_of_text(free: "Mask") -> list[tuple[Box, int]]:
    """Return the boxes in pixels of what looks like lines of text, lying or standing, and its pixels."""
    import numpy as np

    across = _without_runs(free.T, max(_RULE, round(_RULE_SHARE * free.shape[1]))).T
    free = _without_runs(across, _RULE)
    rows, columns = np.flatnonzero(free.any(1)), np.flatnonzero(free.any(0))
    if not len(rows):
        return []
    # Most pages have no ink but in a few places. Paper around them has room for the widening.
    top, left = max(0, int(rows[0]) - _WIDER), max(0, int(columns[0]) - _WIDER)
    part = free[top : rows[-1] + 1 + _WIDER, left : columns[-1] + 1 + _WIDER]
    found = _connected(part)
    pixels_of_found = sum(pixels for _, pixels in found)
    if 2 * pixels_of_found < np.count_nonzero(part):  # otherwise the text lies, and half of the time is saved
        standing = [(Box(box.y0, box.x0, box.y1, box.x1), pixels) for box, pixels in _connected(part.T)]
        found = standing if sum(pixels for _, pixels in standing) > pixels_of_found else found
    return [(Box(box.x0 + left, box.y0 + top, box.x1 + left, box.y1 + top), pixels) for box, pixels in found]


def _runs(mask: "Mask") -> tuple["Integers", "Integers", "Integers"]:
    """Return the row, start, and end of each run of a mask, from top to bottom and from left to right."""
    import numpy as np

    height, width = mask.shape
    framed = np.zeros(1 + height * (width + 1), np.bool_)  # a column of paper separates the rows
    framed[1:].reshape(height, width + 1)[:, :width] = mask
    edges = np.flatnonzero(framed[1:] != framed[:-1]).reshape(-1, 2)
    rows, starts = np.divmod(edges[:, 0], width + 1)
    return rows, starts, edges[:, 1] - rows * (width + 1)


def _without_runs(mask: "Mask", length: int) -> "Mask":
    """Return the mask without its runs down the columns of at least `length` pixels."""
    import numpy as np

    # The first pixels of `reach` that are ink, then all pixels of these runs; eight columns in a byte.
    runs, reach = np.packbits(np.ascontiguousarray(mask), axis=1), 1
    while reach < length:
        step = min(reach, length - reach)
        runs, reach = runs[step:] & runs[:-step], reach + step
    if not runs.any():
        return mask
    runs, reach = np.pad(runs, ((length - 1, 0), (0, 0))), 1
    while reach < length:
        step = min(reach, length - reach)
        runs[:-step] |= runs[step:]
        reach += step
    return mask & ~np.unpackbits(runs, axis=1, count=mask.shape[1]).view(np.bool_)


def _connected(mask: "Mask") -> list[tuple[Box, int]]:
    """Return the boxes in pixels of the connected ink that has the shape of a line of text, and its pixels."""
    import numpy as np

    height, width = mask.shape
    rows, starts, ends = _runs(mask)
    if not len(rows):
        return []
    # Strokes of a row that touch when both are widened are one run.
    heads = np.flatnonzero(np.append(True, (rows[1:] != rows[:-1]) | (starts[1:] - ends[:-1] > 2 * _WIDER)))
    pixels_of_runs, strokes_of_runs = np.add.reduceat(ends - starts, heads), np.diff(heads, append=len(rows))
    rows, starts, ends = rows[heads], starts[heads] - _WIDER, ends[heads + strokes_of_runs - 1] + _WIDER
    starts, ends = np.maximum(starts, 0), np.minimum(ends, width)
    # Runs in neighboring rows that overlap belong together. Keys order places by row and column.
    first, last = rows * (width + 1) + starts, rows * (width + 1) + ends
    low = np.searchsorted(last, first + width + 1, "right")
    count = np.maximum(np.searchsorted(first, last + width + 1, "left") - low, 0)
    upper = np.repeat(np.arange(len(rows)), count)
    lower = np.arange(len(upper)) - np.repeat(np.cumsum(count) - count, count) + np.repeat(low, count)
    root = np.arange(len(rows))
    while (differ := root[upper] != root[lower]).any():
        upper, lower = upper[differ], lower[differ]
        np.minimum.at(root, np.maximum(root[upper], root[lower]), np.minimum(root[upper], root[lower]))
        while (root[root] != root).any():
            root = root[root]
    _, part = np.unique(root, return_inverse=True)
    pixels, strokes = (np.bincount(part, some).astype(np.int64) for some in (pixels_of_runs, strokes_of_runs))
    left, top, right, bottom = (np.full(len(pixels), limit) for limit in (width, height, 0, 0))
    np.minimum.at(left, part, starts)
    np.minimum.at(top, part, rows)
    np.maximum.at(right, part, ends)
    np.maximum.at(bottom, part, rows + 1)
    left, right = left + _WIDER, right - _WIDER
    high, long = bottom - top, right - left
    filled = pixels / np.maximum(1, high * long)
    fit = (high >= _LOWEST) & (high <= _HIGHEST) & (long >= np.maximum(_WIDEST_SPECK, _WIDE * high))
    fit &= (filled >= _THIN) & (filled < _SOLID)
    fit &= strokes >= high * np.maximum(_LEAST_STROKES, long / _STROKES_APART)
    return [(Box(left[at], top[at], right[at], bottom[at]), int(pixels[at])) for at in np.flatnonzero(fit).tolist()]
