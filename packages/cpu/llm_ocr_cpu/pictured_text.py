"""Read by OCR what digital pages show and their text layer lacks: pictures of tables or text, outlines, stamps.

The image's pixels decide whether OCR runs, and its reading whether a picture is replaced. In doubt, it is a figure.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING

import numpy as np

from llm_ocr.engines.descriptions import FIGURE_CAPTION
from llm_ocr.types import SCAN, Box, EncodedImage, Line, PageContent
from llm_ocr_cpu.layout.rows import turn_of
from llm_ocr_cpu.page import pixels_of
from llm_ocr_cpu.probe import script_supported
from llm_ocr_cpu.regions import scaled_lines
from llm_ocr_cpu.scan_objects import (
    TEXT_GROUND,
    cut,
    grounds,
    holds_only_text,
    ink_on,
    is_even,
    is_inside,
    scan_objects,
)
from llm_ocr_cpu.tables import find_tables
from llm_ocr_cpu.tables.finder import caption_beside

if TYPE_CHECKING:
    from llm_ocr_cpu.ocr.detect import Pixels
    from llm_ocr_cpu.ocr.page import PageReading

#: Minimum share of the page, and largest number of pictures on a page; more are parts of one picture.
_LEAST, _MOST_PICTURES = 0.015, 12
#: Range of a word's height, and side of a square of ink that is too large for a letter, in 1/1540 of the page's longest
#: side; largest share of such squares.
_LOW, _HIGH, _SOLID, _MOST_SOLID = 5, 45, 26, 0.02
#: Least number of words, and share of the ink in words. Of 138 pictures of other things, 18 reach both.
_LEAST_WORDS, _IN_WORDS = 3, 0.85
#: Least confidence of the reading.
_SURE = 0.95
#: Room around a line of ink in its heights, across for short words beside it, and down.
_AROUND = 1.5, 0.4
#: Fewest letters and digits of a line that is added, and the largest share of it that other lines cover.
_LEAST_SIGNS, _KNOWN = 3, 0.3
#: Shares of the lines in tables, and of the characters in running text.
_IN_TABLES, _IN_TEXT = 0.6, 0.7


def text_pictures(image: EncodedImage, content: PageContent) -> list[Box]:
    """Return the boxes of pictures whose pixels look like text on even ground; takes 30 ms with pictures."""
    page = content.width * content.height
    boxes = [raster.box for raster in content.rasters if _LEAST * page < raster.box.area < SCAN * page]
    boxes = [box for box in boxes if not _is_used(box, content)]
    if not 0 < len(boxes) <= _MOST_PICTURES or turn_of(content):
        return []
    pixels = pixels_of(image, half=True)
    across, down = pixels.shape[1] / content.width, pixels.shape[0] / content.height
    unit = max(pixels.shape[:2]) / 1540
    return [box for box in boxes if _looks_like_text(cut(pixels, box.scaled(across, down)), unit)]


def read_pictures(image: "Pixels", content: PageContent, boxes: Sequence[Box], pages: "PageReading") -> PageContent:
    """Return the content with lines and rules instead of those pictures that are tables or text.

    Args:
        image: Whole page, height x width x 3, RGB.
        content: Content with the text layer.
        boxes: Pictures, in page units.
        pages: Reader of pages.
    """
    if not script_supported("".join(line.text for line in content.lines), pages.reader.scripts):
        return content
    across, down = image.shape[1] / content.width, image.shape[0] / content.height
    read = pages.read(_only(image, [box.scaled(across, down) for box in boxes]))
    left = () if read.turned else read.lines
    for box in sorted(boxes, key=lambda box: box.area):  # a picture may be in the empty margin of a larger one
        area = box.scaled(across, down)
        lines = tuple(line for line in left if is_inside(line.box, area))
        left = tuple(line for line in left if line not in lines)
        shown = _only(image, [area])
        objects = scan_objects(shown, lines)
        rules = [path for path in objects.paths if path.segments <= 5 and path.fill != TEXT_GROUND]  # no drawings
        letters = sum(len(line.text) for line in lines)
        sure = letters > 0 and sum(line.confidence * len(line.text) for line in lines) >= _SURE * letters
        if not sure or objects.rasters or not holds_only_text(shown, area, lines, rules):
            continue
        found = scaled_lines(lines, 1 / across, 1 / down)
        paths = tuple(replace(path, box=path.box.scaled(1 / across, 1 / down)) for path in rules)
        tables = find_tables(PageContent(content.width, content.height, found, (), paths))
        in_tables = sum(len(table.lines) for table in tables)
        if in_tables > _IN_TABLES * len(found) or _is_running_text(found, box):
            rasters = tuple(raster for raster in content.rasters if raster.box != box)
            content = replace(content, lines=content.lines + found, rasters=rasters, paths=content.paths + paths)
        else:  # labels of a drawing, or a letterhead
            content = replace(content, lines=content.lines + found)
    return content


def read_outside(image: "Pixels", content: PageContent, areas: Sequence[Box], pages: "PageReading") -> PageContent:
    """Return the content with the text in areas where it has none: letters as outlines, small pictures, and stamps.

    Args:
        image: Whole page, height x width x 3, RGB.
        content: Content with the text layer.
        areas: Lines of ink, in page units.
        pages: Reader of pages.
    """
    across, down = image.shape[1] / content.width, image.shape[0] / content.height
    known = [line.box for line in content.lines]
    places = []
    for area in areas:
        x, y = (share * min(area.width, area.height) for share in _AROUND)
        places.append(Box(area.x0 - x, area.y0 - y, area.x1 + x, area.y1 + y).scaled(across, down))
    shown = _only(image, places)
    for box in known:
        cut(shown, box.scaled(across, down))[:] = 255
    around = reduce(Box.union, places).clipped(image.shape[1], image.shape[0])
    x, y = round(around.x0), round(around.y0)  # the time grows with the area
    read = pages.read(shown[y : round(around.y1), x : round(around.x1)])
    lines = [
        line
        for line in scaled_lines(() if read.turned else _moved(read.lines, x, y), 1 / across, 1 / down)
        if line.confidence >= _SURE and sum(map(str.isalnum, line.text)) >= _LEAST_SIGNS
    ]
    added = tuple(line for line in lines if not any(line.box.covered_by(box) > _KNOWN for box in known))
    return replace(content, lines=content.lines + added)


def _moved(lines: Sequence[Line], x: float, y: float) -> list[Line]:
    def moved(box: Box) -> Box:
        return Box(box.x0 + x, box.y0 + y, box.x1 + x, box.y1 + y)

    return [
        replace(line, box=moved(line.box), words=tuple(replace(word, box=moved(word.box)) for word in line.words))
        for line in lines
    ]


def _is_used(box: Box, content: PageContent) -> bool:
    """Return whether words are on the picture, or a figure's caption is next to it."""
    on_it = any(is_inside(word.box, box) for line in content.lines for word in line.words or (line,))
    return on_it or bool(caption_beside(content.lines, box, (), FIGURE_CAPTION))


def _only(image: "Pixels", areas: Sequence[Box]) -> "Pixels":
    """Return the image with white outside of the areas."""
    shown = np.full_like(image, 255)
    for area in areas:
        cut(shown, area)[:] = cut(image, area)
    return shown


def _looks_like_text(pixels: "Pixels", unit: float) -> bool:
    """Return whether nearly all ink is words and rules on even grounds, without solid areas."""
    import cv2

    if min(pixels.shape[:2]) < 2 * _LOW:
        return False
    low, high = grounds(pixels, unit)
    if not is_even(low, high):
        return False
    ink = ink_on(pixels, low, high)
    solid = np.ones((round(_SOLID * unit), round(_SOLID * unit)), np.uint8)
    if cv2.morphologyEx(ink, cv2.MORPH_OPEN, solid).mean() > _MOST_SOLID:
        return False
    for shape in ((1, round(1.2 * _HIGH * unit)), (round(1.2 * _HIGH * unit), 1)):
        ink[cv2.morphologyEx(ink, cv2.MORPH_OPEN, np.ones(shape, np.uint8)) > 0] = 0  # rules
    joined = cv2.dilate(ink, np.ones((1, 2 * round(4 * unit) + 1), np.uint8))
    count, labels, stats, _ = cv2.connectedComponentsWithStats(joined)
    amounts = np.bincount(labels[ink > 0], minlength=count)[1:]
    widths, heights = stats[1:, cv2.CC_STAT_WIDTH], stats[1:, cv2.CC_STAT_HEIGHT]
    words = (heights >= _LOW * unit) & (heights <= _HIGH * unit) & (widths > 0.6 * heights)
    return bool(words.sum() >= _LEAST_WORDS and amounts[words].sum() > _IN_WORDS * amounts.sum())


def _is_running_text(lines: Sequence[Line], box: Box) -> bool:
    """Return whether most of the text is a listing, or several lines of words across the picture."""
    mono = [line for line in lines if line.mono]
    if len(mono) >= 3 and sum(len(line.text) for line in mono) > _IN_TEXT * sum(len(line.text) for line in lines):
        return True
    wide = [line for line in lines if line.box.width > 0.5 * box.width and len(line.words) >= 4]
    wide = [line for line in wide if 2 * sum(map(str.isalpha, line.text)) > len(line.text)]  # no labels of an axis
    return len(wide) >= 3 and sum(len(line.text) for line in wide) > _IN_TEXT * sum(len(line.text) for line in lines)
