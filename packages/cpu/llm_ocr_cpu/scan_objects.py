"""Find rules, table heading bars, and pictures in the pixels of a scan."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from llm_ocr.types import Box, Line, Path, Raster
from llm_ocr_cpu.regions import ScanObjects

# Heading bars of tables on a scan: adjacent dark cells with light text, similar to a PDF's filled rectangles. OCR reads
# their text, but a dark bar is neither a rule nor paper. Without this detection, a table loses its headings, and rules
# that end at the bar are missed.


Pixels = npt.NDArray[np.uint8]

#: Maximum height of a bar in text lines, and minimum width as a share of the page.
_MOST_LINES, _LEAST_WIDTH = 5, 0.12
#: Dark share of a cell's box, including its letters.
_SOLID = 0.85


@dataclass(frozen=True, slots=True)
class Bar:
    """Adjacent dark cells at one height, left to right, with at least two texts. Boxes in pixels."""

    box: Box
    cells: tuple[Box, ...]
    texts: tuple[Box, ...]


def heading_bars(dark: Pixels, lines: Sequence[Line]) -> list[Bar]:
    """Return the bars of a page.

    Args:
        dark: 1 for pixels that are darker than paper.
        lines: Lines from OCR, in the same pixels.
    """
    if not lines:
        return []
    texts = [line.box for line in lines]
    high = float(np.median([box.height for box in texts]))
    light = [box for box in texts if _is_on_dark(dark, box)]
    if not light:
        return []
    cells = [box for box in _solid(dark, light, high) if 0.6 * high <= box.height <= _MOST_LINES * high]
    bars = [_bar(row, texts, high) for row in _rows(cells)]
    return [bar for bar in bars if bar is not None and bar.box.width >= _LEAST_WIDTH * dark.shape[1]]


def _solid(dark: Pixels, texts: Sequence[Box], high: float) -> list[Box]:
    """Return rectangles that are dark except for their letters, which are in the boxes `texts`."""
    import cv2

    filled = dark.copy()
    height, width = dark.shape
    for box in texts:
        inner = box.grown(-1).clipped(width, height)
        filled[round(inner.y0) : round(inner.y1), round(inner.x0) : round(inner.x1)] = 1
    size = max(5, round(0.4 * high))
    solid = cv2.morphologyEx(filled, cv2.MORPH_OPEN, np.ones((size, size), np.uint8))
    _, _, stats, _ = cv2.connectedComponentsWithStats(solid, connectivity=4)
    found = []
    for x, y, w, h, area in stats[1:].tolist():
        if area >= _SOLID * w * h:
            found.append(Box(x, y, x + w, y + h))
    return found


def _is_on_dark(dark: Pixels, box: Box) -> bool:
    """Return whether ink is directly above and below, or in most of the box.

    Light letters on a dark cell leave the dark between them.
    """
    x0, x1 = max(0, round(box.x0)), round(box.x1)
    y0, y1 = max(0, round(box.y0)), round(box.y1)
    inside = dark[y0:y1, x0:x1]
    return bool(inside.size) and float(inside.mean()) > 0.5


def _rows(cells: Sequence[Box]) -> list[list[Box]]:
    """Return adjacent cells of the same height with at most a rule between them."""
    rows: list[list[Box]] = []
    for cell in sorted(cells, key=lambda box: box.x0):
        for row in rows:
            last = row[-1]
            slack = 0.25 * min(cell.height, last.height)
            level = abs(cell.y0 - last.y0) <= slack and abs(cell.y1 - last.y1) <= slack
            if level and -slack <= cell.x0 - last.x1 <= 0.5 * last.height:
                row.append(cell)
                break
        else:
            rows.append([cell])
    return rows


def _bar(row: Sequence[Box], texts: Sequence[Box], high: float) -> Bar | None:
    box = row[0]
    for cell in row[1:]:
        box = box.union(cell)
    inside = tuple(text for text in texts if text.covered_by(box) > 0.6)
    columns = sum(
        not any(other.x0 < text.x0 and other.x1 > text.x0 for other in inside if other is not text) for text in inside
    )
    apart = max((text.x0 for text in inside), default=0.0) - min((text.x1 for text in inside), default=0.0)
    return Bar(box, tuple(row), inside) if columns >= 2 and apart > 0.5 * high else None


def without_bars(mask: Pixels, bars: Sequence[Bar], scale: float = 1.0) -> Pixels:
    """Return the mask, at `scale`, without the bars, so that touching objects are separate."""
    free = mask.copy()
    height, width = mask.shape
    for bar in bars:
        box = bar.box.scaled(scale, scale).grown(2).clipped(width, height)
        free[int(box.y0) : round(box.y1) + 1, int(box.x0) : round(box.x1) + 1] = 0
    return free


def edged(bars: Sequence[Bar], horizontal: Sequence[Box], reach: float) -> list[Bar]:
    """Return all cells with the height of their bar, which ends at a nearby rule."""
    placed = []
    for bar in bars:
        y0, y1 = (_at_rule(y, bar.box, horizontal, reach) for y in (bar.box.y0, bar.box.y1))
        cells = tuple(Box(cell.x0, y0, cell.x1, y1) for cell in bar.cells)
        placed.append(Bar(Box(bar.box.x0, y0, bar.box.x1, y1), cells, bar.texts))
    return placed


def _at_rule(y: float, box: Box, horizontal: Sequence[Box], reach: float) -> float:
    beside = [rule.centre[1] for rule in horizontal if min(rule.x1, box.x1) - max(rule.x0, box.x0) > 0.3 * box.width]
    near = min(beside, key=lambda at: abs(at - y), default=y)
    return near if abs(near - y) <= reach else y


def through_bars(upright: Sequence[Box], bars: Sequence[Bar], reach: float) -> list[Box]:
    """Extend vertical rules that end at a bar through the bar, unless text in the bar blocks them."""
    longer = list(upright)
    for bar in bars:
        for number, rule in enumerate(longer):
            x = rule.centre[0]
            meets = -reach <= rule.y0 - bar.box.y1 <= reach or -reach <= bar.box.y0 - rule.y1 <= reach
            if meets and bar.box.x0 - reach <= x <= bar.box.x1 + reach and not any(t.x0 < x < t.x1 for t in bar.texts):
                longer[number] = Box(rule.x0, min(rule.y0, bar.box.y0), rule.x1, max(rule.y1, bar.box.y1))
    return longer


# Rules and pictures in the pixels of a scan, in the form of a PDF's objects. Ink is darker than the surrounding paper,
# or colored. Long thin ink is a rule. The remaining ink without text is closed into areas. Solid areas are pictures
# (`Raster`). Areas of thin strokes are drawings (a `Path` of many segments), which are figures only with a caption,
# because handwriting looks the same. OpenCV is part of the OCR package, so it is imported locally.


#: Longest side in pixels for rules, whose thickness in pixels the search knows, and for the picture search.
_SIDE, _SMALL = 1540, 1000
#: Ink is darker than this share of the paper's brightness, or exceeds the paper's color by this much (0..255).
_DARK, _COLOURED = 0.74, 42
#: Difference in gray levels between a light rule and the paper on both sides.
_CONTRAST = 18
#: Minimum length of a rule as a share of the page's width.
_RULE = 0.03
#: Minimum size of a picture as a share of the page, and of each side.
_LEAST_AREA, _LEAST_SIDE = 0.008, 0.04
#: Number of segments in a drawing's path: many, as in a curve.
_STROKES = 40
#: Distance from the page's edge within which a ground is a shadow, or a column of its own color.
_EDGE = 0.02
#: Fill of a path that is the colored or shaded ground of text.
TEXT_GROUND = (128, 128, 128)


def scan_objects(image: Pixels, lines: tuple[Line, ...]) -> ScanObjects:
    """Return ruling lines and picture-like areas of an upright page, with boxes in pixels of the image.

    Args:
        image: Height x width x 3, RGB.
        lines: Lines from OCR, in pixels of the image.
    """
    import cv2

    shrink = _SIDE / max(image.shape[:2])
    if shrink >= 1:
        return _objects(image, lines)
    small = cv2.resize(image, None, fx=shrink, fy=shrink, interpolation=cv2.INTER_AREA)
    found = _objects(small, tuple(replace(line, box=line.box.scaled(shrink, shrink)) for line in lines))
    rasters = (Raster(raster.box.scaled(1 / shrink, 1 / shrink)) for raster in found.rasters)
    paths = (replace(path, box=path.box.scaled(1 / shrink, 1 / shrink)) for path in found.paths)
    return ScanObjects(tuple(rasters), tuple(paths))


def _objects(image: Pixels, lines: tuple[Line, ...]) -> ScanObjects:
    import cv2

    height, width = image.shape[:2]
    if min(height, width) < 40:
        return ScanObjects()
    grey = cv2.cvtColor(image, cv2.COLOR_RGB2GRAY)
    paper = _paper(grey)
    # Thin rules are often printed light; the contrast to both sides detects them.
    contrast = cv2.morphologyEx(grey, cv2.MORPH_BLACKHAT, np.ones((11, 11), np.uint8))
    below_paper = grey < _at_size(paper, grey.shape)
    bars = heading_bars(_without_margin(below_paper.astype(np.uint8)), lines)
    dark = without_bars(_without_margin((below_paper | (contrast > _CONTRAST)).astype(np.uint8)), bars)
    horizontal = [box for box in _rules(dark, upright=False) if not _is_lettering(box, lines)]
    vertical = [box for box in _rules(dark, upright=True) if not _is_lettering(box, lines)]
    reach = 0.006 * max(height, width)
    bars = edged(bars, horizontal, reach)
    vertical = through_bars(vertical, bars, reach)
    scale = min(1.0, _SMALL / max(height, width))
    ink = _small_ink(image, grey, paper, scale)
    rules = np.zeros_like(ink)
    for box in (*horizontal, *vertical):
        _fill(rules, box.scaled(scale, scale).grown(1), 1)
    free = without_bars(_without_text(ink, lines, scale), bars, scale)
    areas, drawings = _areas(free, rules, scale)
    shades = [box for box in areas if _is_text_ground(image, box, lines)]
    rasters = [box for box in areas if box not in shades]
    outside = [box for box in (*horizontal, *vertical) if not any(box.covered_by(area) > 0.9 for area in rasters)]
    paths = [Path(box, None, (0, 0, 0), 5) for box in outside]  # thin filled rectangles
    paths += [Path(cell, (0, 0, 0), (64, 64, 64), 5) for bar in bars for cell in bar.cells]
    whole = Box(0, 0, width, height).grown(-_EDGE * max(width, height))
    paths += [Path(box, None, TEXT_GROUND, 5) for box in shades if box.covered_by(whole) == 1]  # shadows have no frame
    paths += [Path(box, (0, 0, 0), None, _STROKES) for box in drawings]
    return ScanObjects(tuple(Raster(box) for box in rasters), tuple(paths))


def _paper(grey: Pixels) -> npt.NDArray[np.float32]:
    """Return the limit of ink in 48 x 48 tiles: below a smooth surface through bright tiles, unaffected by pictures."""
    import cv2

    tiles = cv2.dilate(cv2.resize(grey, (48, 48), interpolation=cv2.INTER_AREA), np.ones((3, 3), np.uint8))
    bright = tiles.astype(np.float64).ravel()
    y, x = (axis.ravel() / 47 - 0.5 for axis in np.mgrid[0:48, 0:48])
    terms = np.stack((np.ones_like(x), x, y, x * x, y * y, x * y), axis=1)
    used = bright >= np.percentile(bright, 40)
    surface = np.full_like(bright, np.percentile(bright, 60))
    for _ in range(4):
        if used.sum() < 200:
            break
        surface = terms @ np.linalg.lstsq(terms[used], bright[used], rcond=None)[0]
        used = np.abs(bright - surface) < 18
    limit: npt.NDArray[np.float32] = _DARK * np.clip(surface, 0.55 * surface.max(), 255).astype(np.float32)
    return limit.reshape(48, 48)


def _at_size(paper: npt.NDArray[np.float32], shape: tuple[int, ...]) -> npt.NDArray[np.float32]:
    import cv2

    pixels: npt.NDArray[np.float32] = cv2.resize(paper, (shape[1], shape[0]), interpolation=cv2.INTER_LINEAR)
    return pixels


def _without_margin(mask: Pixels) -> Pixels:
    """Return the mask without the outermost pixels, where scanners leave dark edges."""
    y, x = max(2, round(0.008 * mask.shape[0])), max(2, round(0.008 * mask.shape[1]))
    mask[:y], mask[-y:], mask[:, :x], mask[:, -x:] = 0, 0, 0, 0
    return mask


def _rules(dark: Pixels, *, upright: bool) -> list[Box]:
    """Return straight thin ink as boxes in pixels; small breaks and a slight slope are tolerated."""
    import cv2

    mask = cv2.transpose(dark) if upright else dark
    length = max(20, round(_RULE * min(dark.shape)))
    thick = max(4, round(0.0035 * max(dark.shape)))
    joined = cv2.dilate(mask, np.ones((3, 1), np.uint8))
    opened = cv2.morphologyEx(joined, cv2.MORPH_OPEN, np.ones((1, length), np.uint8))
    opened = cv2.morphologyEx(opened, cv2.MORPH_CLOSE, np.ones((1, length // 3), np.uint8))
    found = []
    for x, y, w, h in _extents(opened):
        if (
            w >= length
            and h <= thick + _bend(mask, x, y, w, h, thick) + 0.012 * w
            and h <= 3 * thick
            and w > 6 * h
            and _is_thin(mask, x, y, w, h, thick)
        ):
            middle, half = y + h / 2, 1.0  # the thickness has no meaning, and a thick shape would count as a fill
            box = Box(x, middle - half, x + w, middle + half)
            found.append(Box(box.y0, box.x0, box.y1, box.x1) if upright else box)
    return found


def _bend(mask: Pixels, x: int, y: int, w: int, h: int, thick: int) -> int:
    """Return the additional height of a rule: 1 if each column has the ink of a rule, not of letters or dark areas."""
    return int(mask[y : y + h, x : x + w].mean() * h <= 1.05 * thick)


def _is_thin(mask: Pixels, x: int, y: int, w: int, h: int, thick: int) -> bool:
    """Return whether paper is above and below; excludes edges of dark areas and rows of letters."""
    above = mask[max(0, y - thick - 2) : max(0, y - 2), x : x + w]
    below = mask[y + h + 2 : y + h + thick + 2, x : x + w]
    sides = [float(side.mean()) for side in (above, below) if side.size]
    return bool(sides) and max(sides) < 0.5 and sum(sides) / len(sides) < 0.3


def _is_lettering(rule: Box, lines: tuple[Line, ...]) -> bool:
    """Return whether the rule is part of letters: within a line's height, and not longer than the line."""
    x, y = rule.centre
    for line in lines:
        box = line.box
        if box.x0 <= x <= box.x1 and box.y0 <= y <= box.y1:
            if rule.height > rule.width:
                return rule.height < 1.3 * box.height
            return rule.width < 1.02 * box.width and box.y0 + 0.12 * box.height < y < box.y1 - 0.12 * box.height
    return False


def _extents(mask: Pixels) -> list[tuple[int, int, int, int]]:
    """Return x, y, width, and height of each connected set of pixels; faster than `_components`."""
    import cv2

    outlines, levels = cv2.findContours(mask, cv2.RETR_CCOMP, cv2.CHAIN_APPROX_SIMPLE)
    if levels is None:
        return []
    return [cv2.boundingRect(line) for line, level in zip(outlines, levels[0], strict=True) if level[3] < 0]  # no holes


def _components(mask: Pixels) -> list[tuple[int, int, int, int, int]]:
    """Return x, y, width, height, and area of each connected set of pixels."""
    import cv2

    _, _, stats, _ = cv2.connectedComponentsWithStats(mask, connectivity=8)
    return [(int(x), int(y), int(w), int(h), int(area)) for x, y, w, h, area in stats[1:]]


def _small_ink(image: Pixels, grey: Pixels, paper: npt.NDArray[np.float32], scale: float) -> Pixels:
    import cv2

    size = (max(1, round(grey.shape[1] * scale)), max(1, round(grey.shape[0] * scale)))
    small = cv2.resize(image, size, interpolation=cv2.INTER_AREA)
    red, green, blue = cv2.split(small)
    colour = cv2.subtract(cv2.max(cv2.max(red, green), blue), cv2.min(cv2.min(red, green), blue))
    usual = float(np.median(colour))  # old paper is colored as well
    ink = (cv2.cvtColor(small, cv2.COLOR_RGB2GRAY) < _at_size(paper, small.shape)) | (colour > usual + _COLOURED)
    return _without_margin(ink.astype(np.uint8))


def _fill(mask: Pixels, box: Box, value: int) -> None:
    x0, y0 = max(0, int(box.x0)), max(0, int(box.y0))
    mask[y0 : max(0, round(box.y1)) + 1, x0 : max(0, round(box.x1)) + 1] = value


def _without_text(ink: Pixels, lines: tuple[Line, ...], scale: float) -> Pixels:
    """Return ink without the lines on paper; text inside a picture, surrounded by ink, stays."""
    import cv2

    free = ink.copy()
    sums = cv2.integral(ink)
    height, width = ink.shape
    for line in lines:
        box = line.box.scaled(scale, scale)
        ring = max(2.0, 0.2 * min(box.height, box.width))
        outer, inner = box.grown(ring).clipped(width, height), box.clipped(width, height)
        space = outer.area - inner.area
        around = _count(sums, outer) - _count(sums, inner)
        if space > 0 and around < 0.3 * space:
            _fill(free, box.grown(min(ring, 3.0)), 0)
    return free


def _count(sums: Any, box: Box) -> float:
    x0, y0, x1, y1 = int(box.x0), int(box.y0), int(box.x1), int(box.y1)
    return float(sums[y1, x1] - sums[y0, x1] - sums[y1, x0] + sums[y0, x0])


def _areas(free: Pixels, rules: Pixels, scale: float) -> tuple[list[Box], list[Box]]:
    """Return the boxes, in full-size pixels, of solid areas and of areas of strokes."""
    import cv2

    height, width = free.shape
    strokes = free & (1 - rules)
    solid = cv2.morphologyEx(strokes, cv2.MORPH_OPEN, np.ones((3, 3), np.uint8))
    core = cv2.morphologyEx(cv2.morphologyEx(solid, cv2.MORPH_CLOSE, _disc(7)), cv2.MORPH_OPEN, _disc(15))
    rasters: list[Box] = []
    drawings: list[Box] = []
    # First without the rules: a frame would join a picture and its surroundings. Then with the rules: axes join the
    # bars of a chart. In between, only the solid parts, because on a dense page OCR misses text.
    for mask in (strokes, core, free):
        if not mask.any():
            continue
        reach = 29 if mask is core else 17
        closed = cv2.morphologyEx(mask, cv2.MORPH_CLOSE, _disc(reach))
        # A bright sky splits a picture. The largest part has the box of the whole, so parts inside it are skipped.
        for x, y, w, h, area in sorted(_components(closed), key=lambda one: -one[4]):
            box = Box(x, y, x + w, y + h)
            big = box.area >= _LEAST_AREA * width * height and w >= _LEAST_SIDE * width and h >= _LEAST_SIDE * height
            if not big or _is_edge(x, y, w, h, width, height) or any(_same(box, other) for other in rasters):
                continue
            window = (slice(y, y + h), slice(x, x + w))
            if core[window].mean() > 0.3 and area > 0.4 * w * h:
                rasters.append(box)
            elif mask is free and strokes[window].mean() > 0.006 and box.area < 0.5 * width * height:
                drawings.append(box)
    return [box.scaled(1 / scale, 1 / scale) for box in rasters], [box.scaled(1 / scale, 1 / scale) for box in drawings]


def _same(box: Box, raster: Box) -> bool:
    return box.intersection(raster) > 0.3 * min(box.area, raster.area)


def _disc(size: int) -> Any:
    import cv2

    return cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (size, size))


def _is_edge(x: int, y: int, w: int, h: int, width: int, height: int) -> bool:
    """Return whether a box is a dark edge of the scan: at the border, long and narrow, or around the whole page."""
    near = 0.02
    at_side = x < near * width or x + w > (1 - near) * width
    at_end = y < near * height or y + h > (1 - near) * height
    if at_side and at_end and w > 0.9 * width and h > 0.9 * height:
        return True
    return (at_side and w < 0.12 * width and h > 2 * w) or (at_end and h < 0.12 * height and w > 2 * h)


# Text on a colored, shaded, or shadowed ground. The ground is solid as a picture is, but nearly all ink on it is text.


#: Difference of ink from the ground in one channel; side of the square whose median is the ground, in 1/1540 of the
#: page's longest side: letters fill less than half of it, and rows of a table more.
_INK, _GROUND = 40, 32
#: Interval of the pixels and rows whose median is taken.
_SPARSE = 4
#: Difference of the grounds near a pixel up to which they are one, and least share of such pixels: photos have fewer.
_EVEN, _MOSTLY_EVEN = 24, 0.5
#: Largest share of ink outside of lines and rules, and its largest mark in lines. On 70 areas with tables, marks are up
#: to 1.4 lines large; drawings between words have marks of 2.0 lines and more.
_MOST_LEFT, _LARGEST_LEFT = 0.05, 1.7
#: Least thickness of a mark, and width of the edge of a ground, in 1/1540 of the page's longest side.
_THICK, _BLURRED = 5, 3


def holds_only_text(image: Pixels, area: Box, lines: Sequence[Line], rules: Sequence[Path] = ()) -> bool:
    """Return whether an area is mostly even, and nearly all ink on its ground belongs to its lines and rules.

    Args:
        image: Whole page, height x width x 3, RGB.
        area: The area, in pixels.
        lines: The lines in the area, at least one, and perhaps others.
        rules: Its rules.
    """
    import cv2

    picture, unit = cut(image, area), max(image.shape[:2]) / _SIDE
    low, high = grounds(picture, unit)
    if not is_even(low, high):
        return False
    ink = np.zeros(image.shape[:2], np.uint8)
    cut(ink, area)[:] = ink_on(picture, low, high)
    total = ink.sum()
    largest = _LARGEST_LEFT * float(np.median([line.box.height for line in lines]))
    known = [line.box.grown(0.15 * line.box.height) for line in lines]
    known += [rule.box.grown(3) for rule in rules if max(rule.box.width, rule.box.height) > largest]
    for box in known:
        cut(ink, box)[:] = 0
    _, _, stats, _ = cv2.connectedComponentsWithStats(ink)
    marks = stats[1:, [cv2.CC_STAT_WIDTH, cv2.CC_STAT_HEIGHT]]
    drawn = (marks.max(axis=1) > largest) & (marks.min(axis=1) > _THICK * unit)  # not the side of a frame
    return bool(ink.sum() < _MOST_LEFT * total) and not drawn.any()


def _is_text_ground(image: Pixels, area: Box, lines: Sequence[Line]) -> bool:
    """Return whether a solid area is not a picture but the even ground of lines."""
    inner = area.grown(-_BLURRED * max(image.shape[:2]) / _SIDE)
    return any(is_inside(line.box, inner) for line in lines) and holds_only_text(image, inner, lines)


def grounds(pixels: Pixels, unit: float) -> tuple[Pixels, Pixels]:
    """Return the darkest and the brightest ground near each pixel; they differ at the edge between two grounds."""
    import cv2

    few = np.ascontiguousarray(pixels[::_SPARSE, ::_SPARSE])
    ground = cv2.medianBlur(few, 2 * round(_GROUND * unit / _SPARSE / 2) + 1)
    size, near = (pixels.shape[1], pixels.shape[0]), np.ones((3, 3), np.uint8)
    low, high = (
        cv2.resize(side(ground, near), size, interpolation=cv2.INTER_NEAREST) for side in (cv2.erode, cv2.dilate)
    )
    return low, high


def is_even(low: Pixels, high: Pixels) -> bool:
    """Return whether most of an area with these grounds has one ground, or changes slowly."""
    import cv2

    return bool((cv2.subtract(high, low).max(axis=2) <= _EVEN).mean() >= _MOSTLY_EVEN)


def ink_on(pixels: Pixels, low: Pixels, high: Pixels) -> Pixels:
    """Return 1 for pixels that differ from the grounds near them, such as letters on colored or dark rows."""
    import cv2

    beyond = cv2.max(cv2.subtract(low, pixels), cv2.subtract(pixels, high))
    ink: Pixels = (beyond.max(axis=2) > _INK).astype(np.uint8)
    return ink


def is_inside(box: Box, area: Box) -> bool:
    """Return whether the center of a box is in an area."""
    x, y = box.centre
    return area.x0 <= x <= area.x1 and area.y0 <= y <= area.y1


def cut(pixels: Pixels, box: Box) -> Pixels:
    """Return the part of the pixels in a box, as a view."""
    box = box.clipped(pixels.shape[1], pixels.shape[0])
    return pixels[round(box.y0) : round(box.y1), round(box.x0) : round(box.x1)]
