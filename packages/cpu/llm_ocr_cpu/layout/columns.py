"""Find the columns and the reading order of a page."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from llm_ocr.engines.trace import note, tracing
from llm_ocr.types import BlockKind, Box, Line, PageContent, Path, Tag
from llm_ocr_cpu.layout.groups import ends_sentence, group_rows, has_bullet, is_contents_entry, may_go_on
from llm_ocr_cpu.layout.kinds import Entry, mark_kinds
from llm_ocr_cpu.layout.measures import Measures
from llm_ocr_cpu.layout.rows import Row, make_rows
from llm_ocr_cpu.regions import FORMULA, Region

# Gutters: white strips between texts on a coarse grid. The grid limits the cost by area, not by the number of lines. A
# page with 20,000 words costs no more than others.


Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

#: Size of the grid's cells in line heights, and their maximum numbers.
_CELL_X, _CELL_Y, _MOST_X, _MOST_Y = 0.15, 0.4, 480, 320
#: Minimum width of a gutter in cells (0.6 line heights minus rounding), and minimum number of adjacent rows.
_WINDOW, _LEAST_ROWS = 3, 2.5
#: Minimum number of adjacent rows of texts that the file draws one after the other, their mean characters, and the
#: distance of a lower row in line heights.
_DRAWN_ROWS, _DRAWN_CHARS, _LOWER = 0.8, 13, 0.5
#: Limits for newspapers and padded OCR boxes, which leave less space; only a long gutter between many lines counts.
_NARROW_WINDOW, _NARROW_LEAST_ROWS, _NARROW_LINES = 2, 10.0, 40
#: Least number of rows relative to lines of a text whose rows have one piece each.
_WHOLE = 0.8
#: Share of a row covered by its pieces from which they are running text, not cells.
_DENSE = 0.82
_TRIES = 6
#: Rows beside a gutter, and share of lines that continue the previous one, from which worn text is in columns. Poor OCR
#: splits lines into words, which look like the short cells of a table.
_MANY_ROWS, _RUNNING = 10, 0.35
#: Share of monospaced lines, some of which are line numbers in another face, from which a column is a program.
_MONOSPACED = 0.45
#: Notes beside a text: least ratio of the sizes, which OCR does not know well enough; largest width in widths of the
#: text; least mean characters, as signs of items and numbers of verses are shorter; largest share of its height; and
#: least number of rows of the text beside them.
_SMALLER, _NARROW, _NOTE_CHARS, _SPARSE, _LEAST_NOTES = 1.15, 0.5, 4, 0.5, 1.5


@dataclass(frozen=True, slots=True)
class Sheet:
    """All elements of a page as arrays of the same length. `chars` is -1 for regions and -2 for ruling lines."""

    boxes: Floats  # n x 4, page units
    size: Floats
    chars: Ints
    lower: Bools  # begins in lower case: continues the previous line
    listed: Bools  # begins with the sign of a list item, or is an entry of contents or an index
    mono: Bools  # monospaced, and no address of the web
    drawn: Ints  # places in the drawing order of the file; -1: unknown
    rtl: bool
    narrow: Floats  # the boxes without the padding of OCR
    worn: bool = False  # boxes are from poor OCR

    def lines(self, ids: Ints) -> Ints:
        """Return the elements among `ids` that are lines of text."""
        return ids[self.chars[ids] >= 0]


@dataclass(frozen=True, slots=True)
class Gutter:
    """White strip at `x` from `top` to `bottom`; `left` and `right` are the elements next to it.

    With `notes`, the side with fewer elements is notes on the other side. They are read with its paragraphs.
    """

    x: float
    top: float
    bottom: float
    left: Ints
    right: Ints
    notes: bool = False


@dataclass(frozen=True, slots=True)
class _Grid:
    ink: Ints  # cumulative sums of occupied cells along x, one column more than the grid
    x0: float
    y0: float
    cell_x: float
    cell_y: float


def _grid(boxes: Floats, height: float) -> _Grid:
    x0, y0 = boxes[:, 0].min(), boxes[:, 1].min()
    x1, y1 = boxes[:, 2].max(), boxes[:, 3].max()
    cell_x = max(_CELL_X * height, (x1 - x0) / _MOST_X, 1e-6)
    cell_y = max(_CELL_Y * height, (y1 - y0) / _MOST_Y, 1e-6)
    left = ((boxes[:, 0] - x0) / cell_x).astype(np.int64)
    right = np.maximum(np.ceil((boxes[:, 2] - x0) / cell_x).astype(np.int64), left + 1)
    top = ((boxes[:, 1] - y0) / cell_y).astype(np.int64)
    bottom = np.maximum(np.floor((boxes[:, 3] - y0) / cell_y).astype(np.int64), top + 1)
    shape = (int(bottom.max()) + 1, int(right.max()) + 1)
    marks = np.zeros(shape, dtype=np.int64)
    np.add.at(marks, (top, left), 1)
    np.add.at(marks, (bottom, left), -1)
    np.add.at(marks, (top, right), -1)
    np.add.at(marks, (bottom, right), 1)
    filled = (marks.cumsum(axis=0).cumsum(axis=1) > 0)[:-1, :-1]
    ink = np.zeros((filled.shape[0], filled.shape[1] + 1), dtype=np.int64)
    np.cumsum(filled, axis=1, out=ink[:, 1:])
    return _Grid(ink, float(x0), float(y0), float(cell_x), float(cell_y))


def _strips(ink: Ints, window: int) -> tuple[Bools, Ints]:
    """Return for each row and strip of `window` cells whether it is white, and the rows with text on both sides."""
    white = ink[:, window:] == ink[:, :-window]
    both = white & (ink[:, :-window] > 0) & (ink[:, -1:] > ink[:, window:])
    total = both.cumsum(axis=0)
    before = np.maximum.accumulate(np.where(white, 0, total), axis=0)
    return white, total - before


def _extent(white: Bools, row: int) -> tuple[int, int]:
    """Return the first and last white row around `row` in one strip."""
    dark = np.flatnonzero(~white)
    at = int(np.searchsorted(dark, row))
    first = int(dark[at - 1]) + 1 if at else 0
    last = int(dark[at]) - 1 if at < len(dark) else len(white) - 1
    return first, last


def find_gutter(sheet: Sheet, ids: Ints) -> Gutter | None:
    """Return the white strip that separates most text of `ids` into columns; None for text that is read across."""
    lines = sheet.lines(ids)
    if len(ids) < 2 or not len(lines):
        return None
    boxes = sheet.boxes[ids]
    height = float(np.median(sheet.size[lines]))
    grid = _grid(boxes, height)
    narrow = replace(sheet, boxes=sheet.narrow)
    fine = grid if sheet.narrow is sheet.boxes else _grid(sheet.narrow[ids], height)
    found = _search(narrow, ids, fine, height, _NARROW_WINDOW, _LEAST_NOTES, _are_notes)
    if found is not None:
        return replace(found, notes=True)
    search = partial(_search, sheet, ids, grid, height)
    found = search(_WINDOW, _LEAST_ROWS, _are_columns)
    if found is None and len(lines) >= _NARROW_LINES:
        found = search(_NARROW_WINDOW, _NARROW_LEAST_ROWS, _are_columns)
        if found is None and sheet.worn:
            found = search(_NARROW_WINDOW, _NARROW_LEAST_ROWS, _are_running)
    if found is None and (sheet.drawn[lines] >= 0).all():
        found = search(_WINDOW, _DRAWN_ROWS, _are_drawn_apart)
    return found


def _search(
    sheet: Sheet,
    ids: Ints,
    grid: _Grid,
    height: float,
    window: int,
    least_rows: float,
    parts: Callable[[Sheet, Gutter, float], bool],
) -> Gutter | None:
    """Return the longest strip of white that parts two texts, according to `parts`."""
    if grid.ink.shape[1] <= window + 1:
        return None
    white, score = _strips(grid.ink, window)
    best = score.max(axis=0)
    least = least_rows * height / grid.cell_y * 0.5
    edges = sheet.boxes[ids, 2 if sheet.rtl else 0]
    starts = np.bincount(((edges - grid.x0) / grid.cell_x).astype(np.int64), minlength=len(best) + window + 2)
    for _ in range(_TRIES):
        top_score = int(best.max())
        if top_score < least:
            return None
        low, high = _plateau(best, top_score, starts, 0 if sheet.rtl else window)
        middle = (low + high) // 2
        first, last = _extent(white[:, middle], int(score[:, middle].argmax()))
        gutter = _cut(sheet, ids, grid, middle + window / 2, first, last)
        if parts(sheet, gutter, height):
            return gutter
        margin = int(0.5 * height / grid.cell_x)
        best[max(0, low - margin) : high + margin + 1] = 0
    return None


def _plateau(best: Ints, top_score: int, starts: Ints, ahead: int) -> tuple[int, int]:
    """Return the first and last of the strips that together are the gutter.

    Of several equally good places, one is between the columns, and others are between words of stretched lines. Most
    lines begin at the gutter. `starts` counts the beginnings of lines by cell; they are `ahead` of the gutter's last
    strip, or at its first one in right-to-left text.
    """
    good = np.flatnonzero(best >= 0.97 * top_score)
    places = np.split(good, np.flatnonzero(np.diff(good) > 1) + 1)

    def beginning(place: Ints) -> tuple[int, int]:
        at = int(place[-1]) + ahead if ahead else int(place[0])
        return int(starts[max(0, at - 1) : at + 2].sum()), int(best[place].max())

    place = max(places, key=beginning)
    return int(place[0]), int(place[-1])


def _cut(sheet: Sheet, ids: Ints, grid: _Grid, cell: float, first: int, last: int) -> Gutter:
    boxes = sheet.boxes[ids]
    x = grid.x0 + cell * grid.cell_x
    top, bottom = grid.y0 + first * grid.cell_y, grid.y0 + (last + 1) * grid.cell_y
    middle = (boxes[:, 1] + boxes[:, 3]) / 2
    inside = (middle >= top) & (middle <= bottom) & ((boxes[:, 2] <= x + 1e-6) | (boxes[:, 0] >= x - 1e-6))
    on_left = (boxes[:, 0] + boxes[:, 2]) / 2 < x
    return Gutter(x, top, bottom, ids[inside & on_left], ids[inside & ~on_left])


def _aligned(fewer: Floats, more: Floats, tolerance: float) -> float:
    """Return the share of heights in `fewer` with a match in `more` (sorted) within `tolerance`."""
    at = np.searchsorted(more, fewer)
    below = np.abs(more[np.minimum(at, len(more) - 1)] - fewer)
    above = np.abs(more[np.maximum(at - 1, 0)] - fewer)
    return float((np.minimum(below, above) < tolerance).mean())


@dataclass(frozen=True, slots=True)
class _Texture:
    chars: float  # mean per line
    rows: int  # lines at one height count as one
    full: float  # share of lines about as wide as the widest
    running: float  # share of lines that continue the previous one


def _texture(sheet: Sheet, lines: Ints, height: float) -> _Texture:
    boxes = sheet.boxes[lines]
    widths, chars = boxes[:, 2] - boxes[:, 0], sheet.chars[lines].astype(np.float64)
    rows, row_of = np.unique(np.floor((boxes[:, 1] + boxes[:, 3]) / 2 / height), return_inverse=True)
    if len(rows) < _WHOLE * len(lines):  # several pieces per row: cells, or one text that OCR has split
        extents = np.full(len(rows), -np.inf)
        np.maximum.at(extents, row_of, boxes[:, 2])
        starts = np.full(len(rows), np.inf)
        np.minimum.at(starts, row_of, boxes[:, 0])
        extents -= starts
        if widths.sum() > _DENSE * extents.sum():
            widths, chars = extents, np.bincount(row_of, weights=chars).astype(np.float64)
    wide = float(np.percentile(widths, 90)) or 1.0
    full = float((widths > 0.7 * wide).mean())
    return _Texture(float(chars.mean()), len(rows), full, float(sheet.lower[lines].mean()))


def _are_columns(sheet: Sheet, gutter: Gutter, height: float) -> bool:
    """Return whether two neighbors are separate texts, not the cells of a table, form, or list.

    Cells share their baselines and are short. Columns of text have full lines, or their lines do not share baselines.
    """
    left, right = gutter.left, gutter.right
    one, other = sheet.lines(left), sheet.lines(right)
    if not len(one) or not len(other):  # a figure or table next to text
        solid = [bool((sheet.chars[side] > -2).any()) for side in (left, right)]
        return all(solid) and max(len(one), len(other)) > 1
    if min(len(one), len(other)) < 2:
        return False
    if min(sheet.listed[lines].sum() for lines in (one, other)) > 1:  # two lists
        return True
    base = [np.sort(sheet.boxes[lines, 3]) for lines in (one, other)]
    fewer, more = sorted(base, key=len)
    textures = [_texture(sheet, lines, height) for lines in (one, other)]
    aligned = _aligned(fewer, more, 0.22 * height)
    chars = min(texture.chars for texture in textures)
    if aligned < 0.6:
        if aligned < 0.34 and textures[0].chars >= 9 and _is_output(sheet, one, other):
            return True
        return chars >= 9 and (aligned < 0.34 or chars >= 16)
    if min(texture.rows for texture in textures) < 3:  # two rows of stretched words also have a gap in common
        return False
    full = min(texture.full for texture in textures)
    running = min(texture.running for texture in textures)
    return (chars >= 20 and full >= 0.5) or (chars >= 13 and running >= 0.3) or (chars >= 28 and running >= 0.15)


def _are_notes(sheet: Sheet, gutter: Gutter, height: float) -> bool:
    """Return whether one side is running text, and the other side is narrow, smaller text beside few of its rows."""
    notes, text = _notes_and_text(gutter)
    lines = sheet.lines(text)
    if min(len(notes), len(lines)) < 2 or (sheet.chars[notes] < 0).any() or sheet.chars[notes].mean() < _NOTE_CHARS:
        return False
    size, larger = (float(np.median(sheet.size[side])) for side in (notes, lines))
    texture = _texture(sheet, lines, height)
    if (larger < size or texture.rows < _MANY_ROWS) if sheet.worn else larger < _SMALLER * size:
        return False
    across, down = np.ptp(sheet.boxes[lines][:, (0, 2)]), np.ptp(sheet.boxes[lines][:, (1, 3)])
    is_narrow = np.ptp(sheet.boxes[notes][:, (0, 2)]) < _NARROW * across
    is_sparse = _texture(sheet, notes, size).rows * size < _SPARSE * down
    return bool(is_narrow and is_sparse) and texture.full >= 0.5 and texture.running >= 0.5


def _notes_and_text(gutter: Gutter) -> list[Ints]:
    """Return the elements beside a gutter, the side with fewer elements first."""
    return sorted((gutter.left, gutter.right), key=len)


def _is_output(sheet: Sheet, program: Ints, output: Ints) -> bool:
    """Return whether the left side is a program, and the right side has no monospaced line."""
    return not sheet.mono[output].any() and float(sheet.mono[program].mean()) > _MONOSPACED


def _are_running(sheet: Sheet, gutter: Gutter, height: float) -> bool:
    """Return whether both sides of a long gutter are running text, even if OCR has split its lines into words."""
    sides = [sheet.lines(side) for side in (gutter.left, gutter.right)]
    if not all(len(side) for side in sides):
        return False
    textures = [_texture(sheet, side, height) for side in sides]
    return all(texture.rows >= _MANY_ROWS and texture.running >= _RUNNING for texture in textures)


def _are_drawn_apart(sheet: Sheet, gutter: Gutter, height: float) -> bool:
    """Return whether both sides are text, and the file draws one of them, down to a lower row, before the other.

    The cells of a table and the words of a stretched line are drawn row by row.
    """
    sides = [sheet.lines(side) for side in (gutter.left, gutter.right)]
    if not all(map(len, sides)):
        return False
    first, second = reversed(sides) if sheet.rtl else sides
    lowest, highest = sheet.boxes[first, 3].max(), sheet.boxes[second, 3].min()
    if sheet.drawn[first].max() >= sheet.drawn[second].min() or lowest < highest + _LOWER * height:
        return False
    textures = [_texture(sheet, side, height) for side in sides]
    whole = all(texture.rows >= _WHOLE * len(side) for texture, side in zip(textures, sides, strict=True))
    return whole and min(texture.chars for texture in textures) >= _DRAWN_CHARS


# Reading order: a page is split at its gutters repeatedly until every part is read from top to bottom. A gutter ends at
# an element that crosses it. So a heading, figure, or table over several columns separates the content above from the
# content below. Within a gutter's height, columns are read in sequence.


#: Maximum number of splits per page; the rest is read across. Ordinary pages need fewer than 20.
_MOST_CUTS = 150
_RULE_HEIGHT = 4.0
_MOST_RULES = 200
#: Width to remove at both ends of a line of OCR, in font sizes: boxes are padded, and narrow gutters become visible.
_PADDING = 0.35
#: Maximum shift of a leaning column from the top of the page to the bottom, in page widths, and number of shifts tried.
_LEANING, _LEANING_STEPS = 0.02, 17
#: Distance of aligned edges in line heights, and the gain in aligned edges that proves that a page leans.
_ALIGNED_WITHIN, _MORE_ALIGNED = 0.25, 1.1
#: Maximum number of places of edges, which limits the memory for boxes far outside of the page.
_MOST_PLACES = 4000


def make_sheet(lines: Sequence[Line], regions: Sequence[Box], rules: Sequence[Box], measures: Measures) -> Sheet:
    """Return the elements in the order lines, regions, rules."""
    boxes = [(line.box.x0, line.box.y0, line.box.x1, line.box.y1) for line in lines]
    boxes += [(box.x0, box.y0, box.x1, box.y1) for box in (*regions, *rules)]
    size = [line.size for line in lines] + [measures.body] * (len(regions) + len(rules))
    chars = [_weight(line.text) for line in lines] + [-1] * len(regions) + [-2] * len(rules)
    edges = np.array(boxes, dtype=np.float64).reshape(-1, 4)
    narrow = edges
    if measures.noisy:
        large = len(lines) >= 2 * _NARROW_LINES
        edges = _upright(edges, len(lines), measures.body) if large else edges
        narrow = edges.copy()
        texts = narrow[: len(lines)]
        margin = np.minimum(_PADDING * np.array(size[: len(lines)]), (texts[:, 2] - texts[:, 0]) / 4)
        texts[:, 0] += margin
        texts[:, 2] -= margin
        edges = narrow if large else edges
    others = [False] * (len(regions) + len(rules))
    lower = [line.text[:1].islower() for line in lines] + others
    listed = [has_bullet(line.text) or _is_entry(line.text) for line in lines] + others
    mono = [line.mono and "://" not in line.text for line in lines] + others
    drawn = [line.drawn for line in lines] + [-1] * len(others)
    return Sheet(
        edges,
        np.maximum(np.array(size, dtype=np.float64), 0.1),
        np.array(chars, dtype=np.int64),
        np.array(lower, dtype=np.bool_),
        np.array(listed, dtype=np.bool_),
        np.array(mono, dtype=np.bool_),
        np.array(drawn, dtype=np.int64),
        measures.rtl,
        narrow,
        measures.noisy,
    )


def _is_entry(text: str) -> bool:
    """Return whether a line is an entry of contents or an index with its page number."""
    return text[-1:].isalnum() and is_contents_entry(text)


def _upright(boxes: Floats, lines: int, height: float) -> Floats:
    """Return the boxes with the columns of a leaning or wedge-shaped page made vertical.

    In a photograph of a newspaper, a column moves by twice the width of a gutter from top to bottom. The shift of an
    edge is proportional to its height on the page, and varies with its place across the page. The shift that aligns the
    most lines wins.
    """
    left, top, right, bottom = boxes[:, 0].min(), boxes[:, 1].min(), boxes[:, 2].max(), boxes[:, 3].max()
    width = max(right - left, 1e-6)
    down = (((boxes[:, 1] + boxes[:, 3]) / 2 - top) / max(bottom - top, 1e-6) - 0.5)[:, None]
    edges = boxes[:, ::2]
    across = (edges - left) / width - 0.5
    steps = np.linspace(-_LEANING, _LEANING, _LEANING_STEPS) * width
    unit = max(_ALIGNED_WITHIN * height, width / _MOST_PLACES)
    shifts = [(lean, wedge) for lean in steps for wedge in 2 * steps]

    def aligned(shift: tuple[float, float]) -> float:
        moved = (edges - down * (shift[0] + shift[1] * across))[:lines]
        places = ((moved - moved.min()) / unit).astype(np.int64)
        counts = [np.bincount(places[:, side]) for side in (0, 1)]
        return float(sum((np.convolve(count, (1, 1)) ** 2).sum() for count in counts))

    lean, wedge = max(shifts, key=aligned)
    if aligned((lean, wedge)) < _MORE_ALIGNED * aligned((0.0, 0.0)):
        return boxes
    upright = boxes.copy()
    upright[:, ::2] = edges - down * (lean + wedge * across)
    return upright


def _weight(text: str) -> int:
    """Return the number of characters; CJK characters count twice, because they are twice as wide."""
    return len(text) + (sum(character > "\u2e80" for character in text) if not text.isascii() else 0)


def ruling_lines(paths: Sequence[Path], width: float, covered: Sequence[Box]) -> list[Box]:
    """Return horizontal rules outside tables and figures that are long enough to divide the page."""
    found = []
    for path in paths:
        box = path.box
        painted = path.stroke is not None or (path.fill is not None and path.fill != (255, 255, 255))
        if painted and box.height < _RULE_HEIGHT and box.width > 0.4 * width and path.segments <= 6:
            grown = Box(box.x0, box.y0 - 1, box.x1, box.y1 + 1)
            if not any(grown.covered_by(other) > 0.3 for other in covered):
                found.append(grown)
    return found[:_MOST_RULES]


@dataclass(frozen=True, slots=True)
class Part:
    """Elements that are read from top to bottom, and the lines of notes beside them."""

    ids: Ints
    notes: Ints


def reading_order(sheet: Sheet) -> list[Part]:
    """Return the parts of the page in reading order, without ruling lines."""
    parts: list[Part] = []
    waiting = [Part(np.arange(len(sheet.chars)), np.zeros(0, dtype=np.int64))]
    cuts = 0
    while waiting:
        part = waiting.pop()
        ids = part.ids
        if not len(ids):
            continue
        gutter = find_gutter(sheet, ids) if cuts < _MOST_CUTS else None
        if gutter is None:
            parts.append(Part(ids[sheet.chars[ids] > -2], part.notes))
            continue
        cuts += 1
        if tracing():
            sides = f"{len(gutter.left)} lines and objects on the left, {len(gutter.right)} on the right"
            place = {"x": round(gutter.x, 1), "top": round(gutter.top, 1), "bottom": round(gutter.bottom, 1)}
            height = f"from {gutter.top:.0f} to {gutter.bottom:.0f}"
            what = ", notes on one side" if gutter.notes else ""
            note("gutter", f"at {gutter.x:.0f}, {height} in page units: {sides}{what}", **place)
        if gutter.notes:
            notes, _ = _notes_and_text(gutter)
            waiting.append(Part(ids[~np.isin(ids, notes)], np.concatenate((part.notes, notes))))
        else:
            waiting += reversed(_with_notes(sheet, part.notes, _parts(sheet, ids, _trimmed(sheet, ids, gutter))))
    return [part for part in parts if len(part.ids)]


def _with_notes(sheet: Sheet, notes: Ints, parts: Sequence[Ints]) -> list[Part]:
    """Return the parts, each with the notes that are nearest to it."""
    parts = [ids for ids in parts if (sheet.chars[ids] > -2).any()]  # ruling lines alone are no text
    boxes = sheet.boxes[notes]
    distances = []
    for ids in parts:
        low, high = sheet.boxes[ids, :2].min(axis=0), sheet.boxes[ids, 2:].max(axis=0)
        away = np.maximum(0, np.maximum(low - boxes[:, 2:], boxes[:, :2] - high))
        distances.append(away.sum(axis=1))
    nearest = np.argmin(distances, axis=0)
    return [Part(ids, notes[nearest == index]) for index, ids in enumerate(parts)]


def _parts(sheet: Sheet, ids: Ints, gutter: Gutter) -> list[Ints]:
    """Return the part before the columns, the columns, and the part after them."""
    beside = np.concatenate((gutter.left, gutter.right))
    rest = ids[~np.isin(ids, beside)]
    middle = (sheet.boxes[rest, 1] + sheet.boxes[rest, 3]) / 2
    centre = (gutter.top + gutter.bottom) / 2
    columns = [gutter.right, gutter.left] if sheet.rtl else [gutter.left, gutter.right]
    return [rest[middle < centre], *columns, rest[middle >= centre]]


def _without(gutter: Gutter, keep_left: Bools, keep_right: Bools, top: float, bottom: float) -> Gutter:
    return Gutter(gutter.x, top, bottom, gutter.left[keep_left], gutter.right[keep_right])


def _trimmed(sheet: Sheet, ids: Ints, gutter: Gutter) -> Gutter:
    """End the gutter above a heading over both columns that does not cross it; begin it at a figure beside a text."""
    if not len(sheet.lines(gutter.left)) or not len(sheet.lines(gutter.right)):
        top = max(float(sheet.boxes[side, 1].min()) for side in (gutter.left, gutter.right))
        kept = [sheet.boxes[side, 3] > top for side in (gutter.left, gutter.right)]
        return _without(gutter, kept[0], kept[1], top, gutter.bottom)
    left, right = sheet.boxes[gutter.left], sheet.boxes[gutter.right]
    if sheet.rtl:
        left, right = right, left
    first = gutter.right if sheet.rtl else gutter.left
    unit = float(np.median(sheet.size[sheet.lines(np.concatenate((gutter.left, gutter.right)))]))
    large = np.flatnonzero((sheet.size[first] > 1.15 * unit) & (sheet.chars[first] >= 0))
    for index in large[np.argsort(left[large, 1])][:30]:
        y0, y1 = float(left[index, 1]), float(left[index, 3])
        white = not ((right[:, 1] < y1 + 0.3 * unit) & (right[:, 3] > y0 - 0.5 * unit)).any()
        above = bool((right[:, 3] <= y0).any() and (left[:, 3] <= y0 + 0.2 * unit).any())
        rest = sheet.boxes[ids[~np.isin(ids, np.concatenate((gutter.left, gutter.right)))], 1]
        over = not (left[:, 1] >= y1).any() and ((rest >= y1) & (rest < y1 + 2 * unit)).any()
        below = bool((right[:, 1] >= y1).any() or over)
        if white and above and below:
            end = y0 - 0.1 * unit
            sides = [(sheet.boxes[side, 1] + sheet.boxes[side, 3]) / 2 < end for side in (gutter.left, gutter.right)]
            return _without(gutter, sides[0], sides[1], gutter.top, end)
    return gutter


# Frames: painted boxes with text, such as a box of facts inside an article. The text of a frame is read as a whole.


#: Largest number of drawing operators of a frame, and its largest share of the page.
_FRAME_SEGMENTS, _LARGEST_FRAME = 16, 0.7
_MOST_FRAMES = 40
#: Share of lines with a neighbor on the same baseline from which a painted box is a part of a table.
_SHARED = 0.5


def find_frames(content: PageContent, lines: Sequence[Line], measures: Measures) -> list[Box]:
    """Return the painted boxes that hold several rows of `lines` and have other text at their side."""
    least = 2.5 * measures.body
    largest = _LARGEST_FRAME * content.width * content.height
    boxes = {
        path.box
        for path in content.paths
        if path.segments <= _FRAME_SEGMENTS
        and (path.stroke is not None or (path.fill is not None and path.fill != (255, 255, 255)))
        and min(path.box.height, path.box.width / 2) > least
        and path.box.area < largest
    }
    if not boxes or len(lines) < 2:
        return []
    places = np.array([(line.box.x0, line.box.y0, line.box.x1, line.box.y1) for line in lines])
    ordered = sorted(boxes, key=lambda box: -box.area)[:_MOST_FRAMES]
    return [box for box in ordered if _is_frame(box, places, measures.body)]


def _is_frame(box: Box, lines: Floats, size: float) -> bool:
    """Return whether a box cuts no line, and the lines inside do not continue as rows beside it."""
    x0, y0, x1, y1 = lines.T
    slack = 0.3 * size
    high = ((y0 + y1) / 2 > box.y0) & ((y0 + y1) / 2 < box.y1)
    inside = high & (x0 > box.x0 - slack) & (x1 < box.x1 + slack)
    beside = high & ((x1 < box.x0 + slack) | (x0 > box.x1 - slack))
    if not np.array_equal(inside | beside, high) or inside.sum() < 2 or beside.sum() < 2:
        return False
    return _aligned(y1[inside], np.sort(y1[beside]), 0.1 * size) < _SHARED


# Groups of rows, tables, and figures in reading order, with paragraphs joined across columns.


#: Minimum characters of a text that continues with an equal width, and of a text cut off by a column's end.
_SHORT, _BROKEN_OFF = 30, 150


def column_entries(column: int, lines: Sequence[Line], regions: Sequence[Region], measures: Measures) -> list[Entry]:
    """Return one column from top to bottom: a table or figure separates the rows above it from those below."""
    rows = make_rows(lines, measures)
    entries: list[Entry] = []
    start = 0
    for region in sorted(regions, key=lambda region: region.box.y0):
        end = start
        while end < len(rows) and _is_above(rows[end], region.box):
            end += 1
        entries += [Entry(column, group) for group in group_rows(rows[start:end], measures)]
        entries.append(Entry(column, region=region))
        start = end
    return entries + [Entry(column, group) for group in group_rows(rows[start:], measures)]


def _is_above(row: Row, box: Box) -> bool:
    return row.middle < box.y0 or (row.y0 < box.y0 and row.middle < (box.y0 + box.y1) / 2)


def arrange(
    entries: list[Entry], footnote_rules: Sequence[Box], measures: Measures, tags: Sequence[Tag]
) -> list[Entry]:
    """Return the entries with their kinds, split paragraphs joined, and footnotes at the end."""
    mark_kinds(entries, footnote_rules, measures, tags)
    body = [entry for entry in entries if entry.kind is not BlockKind.FOOTNOTE]
    return _joined(body) + [entry for entry in entries if entry.kind is BlockKind.FOOTNOTE]


def _joined(entries: Sequence[Entry]) -> list[Entry]:
    joiner = _Joiner()
    for entry in entries:
        joiner.add(entry)
    return joiner.entries


class _Joiner:
    """Joiner of entries in reading order: joins texts that continue after a column's end, a figure, or a table."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self._last: Entry | None = None  # the text that may continue
        self._parted = False  # a figure or table interrupted the text
        self._waiting: Entry | None = None  # a text interrupted by a box or side column

    def add(self, entry: Entry) -> None:
        if entry.note:
            self.entries.append(entry)
        elif entry.group is None or entry.kind is BlockKind.CAPTION:
            self._parted = True
            self.entries.append(entry)
            if entry.region is not None and entry.region.kind == FORMULA:  # part of its sentence
                self._last = self._waiting = None
        elif not (self._joins_code(entry) or self._joins_text(entry)):
            self.entries.append(entry)
            self._last = entry if entry.kind in (BlockKind.TEXT, BlockKind.LIST_ITEM) else None
            self._parted = False

    def _joins_code(self, entry: Entry) -> bool:
        before = self.entries[-1] if self.entries else None
        if before is None or before.column != entry.column or not before.kind is entry.kind is BlockKind.CODE:
            return False
        _append(before, entry)
        return True

    def _joins_text(self, entry: Entry) -> bool:
        last = self._last
        if last is None or not (self._parted or last.column != entry.column):
            return False
        if _continues(last, entry):
            _append(last, entry)
            self._parted = False
            return True
        if last.column == entry.column:
            return False
        waiting = self._waiting
        if waiting is not None and _continues(waiting, entry) and _same_margins(waiting, entry):
            _append(waiting, entry)
            self._last, self._waiting, self._parted = waiting, None, False
            return True
        self._waiting = last if _is_broken_off(last) else waiting
        return False


def _append(text: Entry, entry: Entry) -> None:
    if text.group is not None and entry.group is not None:
        if tracing():
            texts = {"before": text.group.rows[-1].text, "after": entry.group.first.text}
            same = text.column == entry.column
            where = "behind an object or a line end" if same else f"in part {entry.column + 1}"
            note("join", f"text of part {text.column + 1} continues {where}", **texts)
        text.group.rows += entry.group.rows
        text.group.breaks += [False, *entry.group.breaks[1:]]
        text.column = entry.column


def _is_broken_off(entry: Entry) -> bool:
    group = entry.group
    return group is not None and group.length > _BROKEN_OFF and not ends_sentence(group.rows[-1].text)


def _same_margins(text: Entry, entry: Entry) -> bool:
    """Return whether both begin at the same margin, so that the content between them is set aside from the text."""
    if text.group is None or entry.group is None:
        return False
    before, after = text.group.rows[-1], entry.group.first
    return abs(before.x0 - after.x0) < before.size


def _continues(last: Entry, entry: Entry) -> bool:
    before, after = last.group, entry.group
    if before is None or after is None or entry.kind is not BlockKind.TEXT or after.marker is not None:
        return False
    one, other = before.rows[-1], after.first
    if min(one.tag, other.tag) >= 0 and one.tag != other.tag:
        return False
    ratio = max(before.size, after.size) / max(min(before.size, after.size), 0.1)
    alike = ratio < 1.15 and one.cells == other.cells == 1 and before.length > _SHORT
    return alike and last.frame == entry.frame and may_go_on(one.text, other.text) and not ends_sentence(one.text)
