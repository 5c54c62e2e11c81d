"""Combine lines of a column to rows, and turn sideways pages."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from llm_ocr.results.joining import clean, is_cjk
from llm_ocr.types import Block, Box, Line, PageContent, Path, Word
from llm_ocr_cpu.layout.marks import is_marked, marked_text
from llm_ocr_cpu.layout.measures import RTL, Measures, is_vertical
from llm_ocr_cpu.regions import Region

Floats = NDArray[np.float64]

#: Minimum gap in font heights that separates the cells of a row.
_CELL_GAP = 1.3
#: Minimum gap in font heights that is assumed between two lines of OCR.
_OCR_GAP = 0.2
#: Minimum ratio of heights between a drop capital and the adjacent text.
_DROP_CAPITAL = 1.6


@dataclass(frozen=True, slots=True)
class Row:
    """Adjacent lines. Coordinates in page units; `size` and faces are those of most characters."""

    lines: tuple[Line, ...]
    text: str
    x0: float
    y0: float
    x1: float
    y1: float
    size: float
    bold: bool
    italic: bool
    mono: bool
    cells: int  # pieces with wide gaps between them
    marked: str  # `text` with marks of scripts and of bold and italic words

    @property
    def middle(self) -> float:
        return (self.y0 + self.y1) / 2

    @property
    def tag(self) -> int:
        """Return the place of the tag of its first line with one, -1 without any."""
        return next((line.tag for line in self.lines if line.tag >= 0), -1)

    @property
    def box(self) -> Box:
        return Box(self.x0, self.y0, self.x1, self.y1)


def _is_mono(lines: Sequence[Line]) -> bool:
    """Return whether most of a row is monospaced, including its beginning and its end."""
    mono = [line.mono for line in lines]
    return (
        mono[0]
        and mono[-1]
        and 2 * sum(len(line.text) for line in lines if line.mono) > sum(len(line.text) for line in lines)
    )


def make_row(lines: Sequence[Line], rtl: bool = False) -> Row:
    """Return one row of lines that overlap in height."""
    if len(lines) == 1:
        line, box = lines[0], lines[0].box
        text = clean_end(line.text)
        marked = clean_end(marked_text(line)) if is_marked(line) else text
        faces = _is_bold(line), line.italic, line.mono
        return Row((line,), text, box.x0, box.y0, box.x1, box.y1, line.size, *faces, 1, marked)
    ordered = _across(sorted(lines, key=lambda line: -line.box.x1 if rtl else line.box.x0))
    text, cells = clean_end(ordered[0].text), 1
    marked = clean_end(marked_text(ordered[0]))
    for before, line in pairwise(ordered):
        gap = before.box.x0 - line.box.x1 if rtl else line.box.x0 - before.box.x1
        wide = gap > _CELL_GAP * min(before.size, line.size)
        cells += wide
        if line.confidence < 1.0:  # boxes of OCR may overlap, and OCR parts lines between words
            gap = max(gap, _OCR_GAP * line.size)
        space = "\t" if wide else _space(text, line.text, gap / max(line.size, 0.1))
        text += space + clean_end(line.text)
        marked += space + clean_end(marked_text(line))
    total = sum(len(line.text) for line in ordered)
    return Row(
        tuple(ordered),
        text,
        min(line.box.x0 for line in ordered),
        min(line.box.y0 for line in ordered),
        max(line.box.x1 for line in ordered),
        max(line.box.y1 for line in ordered),
        _main_size(ordered, total),
        2 * sum(len(line.text) for line in ordered if _is_bold(line)) > total,
        2 * sum(len(line.text) for line in ordered if line.italic) > total,
        _is_mono(ordered[ordered[0].text.isdecimal() :]),
        cells,
        marked,
    )


def _is_bold(line: Line) -> bool:
    """Return whether a line is bold to its end: a value after a long bold label is not."""
    if not line.bold or not any(word.bold for word in line.words):
        return line.bold
    return next((word.bold for word in reversed(line.words) if sum(map(str.isalnum, word.text)) > 1), True)


def _across(ordered: list[Line]) -> list[Line]:
    """Return the lines of a row, with lines below each other, such as small print beside a large line, downward."""
    stacks: list[list[Line]] = []
    for line in ordered:
        last = stacks[-1][-1].box if stacks else line.box
        shared = min(last.x1, line.box.x1) - max(last.x0, line.box.x0)
        level = min(last.y1, line.box.y1) - max(last.y0, line.box.y0) > 0.3 * min(last.height, line.box.height)
        if stacks and shared > 0.5 * min(last.width, line.box.width) and not level:
            stacks[-1].append(line)
        else:
            stacks.append([line])
    return [line for stack in stacks for line in sorted(stack, key=lambda line: line.box.y0)]


def _main_size(lines: Sequence[Line], total: int) -> float:
    """Return the median size of the characters."""
    passed = 0
    for line in sorted(lines, key=lambda line: line.size):
        passed += len(line.text)
        if 2 * passed >= total:
            return line.size
    return lines[0].size


def clean_end(text: str) -> str:
    """Return the text without soft hyphens except the last, which shows that the word continues."""
    text = text.strip()
    if "\u00ad" not in text:
        return text
    return clean(text) + ("\u00ad" if text.endswith("\u00ad") and len(text) > 1 else "")


def _space(before: str, after: str, gap: float) -> str:
    touching = gap < 0.12 or (gap < 0.6 and before[-1:] and after and is_cjk(before[-1]) and is_cjk(after[0]))
    return "" if touching and gap > -0.5 else " "


def _is_drop_capital(line: Line, body: float) -> bool:
    return len(line.text) <= 2 and line.text[:1].isalpha() and line.box.height > _DROP_CAPITAL * body


def has_drop_capital(row: Row) -> bool:
    """Return whether the row begins with a letter or word that is several rows high."""
    first = row.lines[0]
    box = first.words[0].box if first.words else first.box
    return box.height > _DROP_CAPITAL * row.size


def _with_drop_capitals(lines: list[Line], measures: Measures) -> tuple[list[Line], list[tuple[Line, Line]]]:
    """Return lines without drop capitals, and pairs (drop capital, the line that it begins)."""
    pairs: list[tuple[Line, Line]] = []
    for capital in [line for line in lines if _is_drop_capital(line, measures.body)][:20]:
        beside = [
            line
            for line in lines
            if line is not capital
            and line.size < capital.size / 1.4
            and -0.6 * line.size < line.box.x0 - capital.box.x1 < 1.5 * capital.size
            and capital.box.y0 - line.size < (line.box.y0 + line.box.y1) / 2 < capital.box.y1
        ]
        if len(beside) > 1:
            pairs.append((capital, min(beside, key=lambda line: line.box.y0)))
    taken = {id(capital) for capital, _ in pairs}
    return [line for line in lines if id(line) not in taken], pairs


#: Width and height of a bullet drawn as a shape, and its distance from the text, in font heights. Chromium draws discs
#: of 0.27 font heights at a distance of 0.55, and checkboxes are larger.
_BULLET_SIZE, _BULLET_GAP = (0.12, 0.55), (0.15, 2.0)
_BULLET = "\N{BULLET} "
#: Number of small shapes from which a page has a drawing, such as a map.
_MOST_SHAPES = 400


def with_bullets(lines: Sequence[Line], paths: Sequence[Path]) -> list[Line]:
    """Return the lines with signs for bullets that are drawn as shapes: two or more small shapes below each other."""
    shapes = [path.box for path in paths if _may_be_bullet(path)]
    if not lines or not 2 <= len(shapes) <= _MOST_SHAPES:
        return list(lines)
    below: defaultdict[tuple[int, int], list[Box]] = defaultdict(list)
    for box in shapes:
        below[round(box.x0), round(box.width)].append(box)
    boxes = np.array([(line.box.x0, line.box.y0, line.box.y1, line.size) for line in lines])
    found: dict[int, Box] = {}
    for column in below.values():
        starts = {index: box for box in column if (index := _begun_by(box, boxes)) is not None}
        if len(starts) > 1 and len(starts) == len(column):
            found.update(starts)
    return [_with_bullet(line, found[index]) if index in found else line for index, line in enumerate(lines)]


def _may_be_bullet(path: Path) -> bool:
    box = path.box
    if box.width > 20 or not 0.7 * box.width < box.height < 1.4 * box.width:
        return False
    return any(color is not None and min(color) < 200 for color in (path.fill, path.stroke))


def _begun_by(shape: Box, boxes: Floats) -> int | None:
    """Return the index of the line that begins right of a shape of a bullet's size, at the height of its letters."""
    x0, y0, y1, size = boxes.T
    middle, gap, height = (shape.y0 + shape.y1) / 2, x0 - shape.x1, y1 - y0
    level = (y0 + 0.25 * height < middle) & (middle < y1 - 0.1 * height)
    beside = np.flatnonzero(level & (_BULLET_GAP[0] * size < gap) & (gap < _BULLET_GAP[1] * size))
    fits = [index for index in beside.tolist() if _BULLET_SIZE[0] < shape.width / size[index] < _BULLET_SIZE[1]]
    return fits[0] if fits else None


def _with_bullet(line: Line, shape: Box) -> Line:
    scripts = tuple(
        replace(script, start=script.start + len(_BULLET), end=script.end + len(_BULLET)) for script in line.scripts
    )
    words = (Word(_BULLET.strip(), shape), *line.words)
    return replace(line, text=_BULLET + line.text, box=line.box.union(shape), words=words, scripts=scripts)


def with_level_box(line: Line) -> Line:
    """Return the line without the depth of its leading drop capital, at the height of its other words."""
    words = line.words
    if len(words) < 2 or len(words[0].text) > 2 or words[0].box.height < _DROP_CAPITAL * words[1].box.height:
        return line
    y0, y1 = min(word.box.y0 for word in words[1:]), max(word.box.y1 for word in words[1:])
    return replace(line, box=Box(line.box.x0, y0, line.box.x1, y1), size=min(line.size, words[1].box.height))


def make_rows(lines: Sequence[Line], measures: Measures) -> list[Row]:
    """Return rows from top to bottom; every line is in exactly one."""
    plain, pairs = _with_drop_capitals(list(lines), measures)
    groups: list[list[Line]] = []
    top = bottom = 0.0
    for line in sorted(plain, key=lambda line: line.box.y0 + line.box.y1):
        box = line.box
        shared = min(bottom, box.y1) - max(top, box.y0)
        if groups and shared > 0.5 * min(bottom - top, box.y1 - box.y0):
            groups[-1].append(line)
            if len(groups[-1]) < 4:  # later lines must not move the row down the page
                top, bottom = min(top, box.y0), min(max(bottom, box.y1), top + 1.6 * max(bottom - top, line.size))
        else:
            groups.append([line])
            top, bottom = box.y0, box.y1
    starts = {id(first): capital for capital, first in pairs}
    rows = [_row(group, starts, measures.rtl) for group in groups]
    return [_unstretched(rows, number) if row.cells > 1 else row for number, row in enumerate(rows)]


#: Number of rows above and below in which a stretched row has a full row of its column, and the deepest hanging indent.
_NEAR_ROWS, _HANGING = 6, 3


def _unstretched(rows: Sequence[Row], number: int) -> Row:
    """Return the row, without cells if it is a justified row: equal gaps, and the extent of a full row nearby."""
    row = rows[number]
    gaps = [after.box.x0 - before.box.x1 for before, after in pairwise(row.lines)]
    worded = all(line.text.lstrip("<([“‘")[:1].isalpha() and len(line.text.split()) < 4 for line in row.lines)
    goes_on = number + 1 < len(rows) and rows[number + 1].text[:1].islower()
    if not worded or max(gaps) > 1.3 * min(gaps) or (len(gaps) == 1 and not goes_on):
        return row
    slack = 0.3 * row.size
    for other in rows[max(0, number - _NEAR_ROWS) : number + _NEAR_ROWS + 1]:
        full = other.cells == 1 and len(other.text.split()) > 2 and abs(other.x1 - row.x1) < slack
        if full and abs(other.x0 - row.x0) < (slack if len(gaps) < 3 else _HANGING * row.size):
            return replace(row, text=row.text.replace("\t", " "), marked=row.marked.replace("\t", " "), cells=1)
    return row


def _row(group: list[Line], starts: dict[int, Line], rtl: bool) -> Row:
    row = make_row(group, rtl)
    capital = next((starts[id(line)] for line in group if id(line) in starts), None) if starts else None
    if capital is None:
        return row
    joint = "" if len(capital.text) == 1 and row.text[:1].isalpha() and capital.text.upper() not in "AIO" else " "
    if joint == " " and row.text[:1].islower() and capital.box.x1 + 0.15 * row.size > row.x0:
        joint = ""
    return Row(
        (capital, *row.lines),
        capital.text.strip() + joint + row.text,
        row.x0,
        row.y0,
        row.x1,
        row.y1,
        row.size,
        row.bold,
        row.italic,
        row.mono,
        row.cells,
        capital.text.strip() + joint + row.marked,
    )


# Pages with vertical or upside-down text: laid out as if turned upright, with the boxes turned back.


def turn_of(content: PageContent) -> int:
    """Return the clockwise turn in degrees (0, 90, 180, or 270) that makes most of the page's lines upright."""
    vertical = [line for line in content.lines if is_vertical(line)]
    total = sum(len(line.text) for line in content.lines)
    if 2 * sum(len(line.text) for line in vertical) > total:
        return 90 if _runs_up(vertical) else 270
    backwards = sum(len(line.text) for line in content.lines if _is_upside_down(line))
    return 180 if 2 * backwards > total else 0


def _runs_up(lines: Sequence[Line]) -> bool:
    """Return whether most lines are read from bottom to top (the page lies on its left side)."""
    votes = 0
    for line in lines:
        if len(line.words) > 1:
            votes += 1 if line.words[0].box.centre[1] > line.words[-1].box.centre[1] else -1
        elif line.stacked:
            votes -= 1
    return votes >= 0


def _is_upside_down(line: Line) -> bool:
    """Return whether the words of a script from left to right run from right to left."""
    words = line.words
    return len(words) > 1 and words[0].box.x0 > words[-1].box.x1 and not RTL.search(line.text)


def upright(content: PageContent, regions: Sequence[Region], degrees: int) -> tuple[PageContent, list[Region]]:
    """Return the page and its regions turned clockwise."""
    width, height = (content.width, content.height) if degrees == 180 else (content.height, content.width)

    def turn(box: Box) -> Box:
        return box.scaled(1 / content.width, 1 / content.height).turned(degrees).scaled(width, height)

    lines = tuple(
        replace(
            line,
            box=turn(line.box),
            words=tuple(replace(word, box=turn(word.box)) for word in line.words),
            stacked=line.stacked and degrees == 180,
        )
        for line in content.lines
    )
    rasters = tuple(replace(raster, box=turn(raster.box)) for raster in content.rasters)
    paths = tuple(replace(path, box=turn(path.box)) for path in content.paths)
    turned = replace(content, width=width, height=height, lines=lines, rasters=rasters, paths=paths)
    return turned, [replace(region, box=turn(region.box)) for region in regions]


def turned_back(blocks: Sequence[Block], degrees: int) -> tuple[Block, ...]:
    """Return blocks of the upright page with their relative boxes on the page as shown."""
    return tuple(
        replace(
            block,
            box=block.box.turned(-degrees),
            continued=tuple(box.turned(-degrees) for box in block.continued),
        )
        for block in blocks
    )
