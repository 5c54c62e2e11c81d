"""Find tables in order of certainty; each pass sees only what earlier passes left."""

import math
import re
from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np

from llm_ocr.engines.descriptions import FIGURE_CAPTION, TABLE_CAPTION
from llm_ocr.engines.trace import note, relative, tracing
from llm_ocr.types import Box, Line, PageContent
from llm_ocr_cpu.regions import Region
from llm_ocr_cpu.tables.cells import (
    Piece,
    Table,
    is_code,
    is_number,
    is_upright,
    line_pieces,
    markup,
    rows_of,
)
from llm_ocr_cpu.tables.plain import aligned_tables, plain_areas, word_areas
from llm_ocr_cpu.tables.ruled import (
    Floats,
    Lattice,
    Rules,
    components,
    find_rules,
    is_filled_table,
    is_page,
    is_plain_table,
    is_table,
    lattice_of,
    page_shapes,
    ruled_table,
)
from llm_ocr_cpu.tables.spaced import (
    Area,
    fill_cuts,
    rule_chains,
    single_bands,
    spaced_table,
    with_rows_around,
)
from llm_ocr_cpu.tables.tagged import tagged_tables

# Captions of tables: a line beginning with "Table 3" next to the table, and its continuation lines.


_LABEL = re.compile(r"\w+\s+[A-Z]?\d*(?:\.\d+)*\.?")
#: Maximum distance of a caption from the table in letter sizes.
_NEAR = 9
#: Lines per place of a grid below which a figure's caption makes it a drawing on graph paper.
_SPARSE = 0.5


def caption_beside(
    lines: Sequence[Line],
    box: Box,
    taken: Collection[int],
    pattern: re.Pattern[str] = TABLE_CAPTION,
    *,
    sides: tuple[bool, ...] = (True, False),
) -> frozenset[int]:
    """Return the indices of the caption's lines; empty without one.

    `sides` is in order of preference: True is above the box, False below it.
    """
    for above in sides:
        found = _caption(lines, box, taken, pattern, above=above)
        if found:
            return found
    return frozenset()


def _caption(
    lines: Sequence[Line], box: Box, taken: Collection[int], pattern: re.Pattern[str], *, above: bool
) -> frozenset[int]:
    beside = {i: _distance(line, box, above=above) for i, line in enumerate(lines) if i not in taken}
    beside = {i: distance for i, distance in beside.items() if distance >= -0.6 * lines[i].size}
    starts = [i for i, distance in beside.items() if distance <= _NEAR * lines[i].size and pattern.match(lines[i].text)]
    if not starts:
        return frozenset()
    start = max(starts, key=lambda i: lines[i].box.y0) if above else min(starts, key=lambda i: lines[i].box.y0)
    return frozenset(caption_lines(lines, list(beside), start))


def caption_lines(lines: Sequence[Line], candidates: Sequence[int], start: int) -> list[int]:
    """Return the lines of the caption that begins with the line `start`, top to bottom; `candidates` in any order."""
    first = lines[start]
    below = [i for i in candidates if i != start and lines[i].box.y0 >= first.box.y0 - 0.4 * first.size]
    rows = _rows(lines, [start, *below])
    chosen = next((run for row in rows[:1] for run in _runs(lines, row) if start in run), [start])
    chosen = chosen[chosen.index(start) :]
    last, step = _around(lines, chosen), 0.0
    titled = any(_is_title_below(first, lines[index]) for index in (rows[1] if len(rows) > 1 else ()))
    for row in rows[1:]:
        fitting = [run for run in _runs(lines, row) if _goes_on(lines, chosen, last, run)]
        box = _around(lines, fitting[0]) if fitting else _around(lines, row)
        down = box.y0 - last.y0
        limit = 1.2 * step if step else (2.6 if titled else 1.8) * max(last.height, lines[chosen[-1]].size)
        if down > limit:
            break
        if fitting:
            chosen += fitting[0]
            step, last = step or down, box
    return chosen


def _rows(lines: Sequence[Line], members: Sequence[int]) -> list[list[int]]:
    """Return the lines by height, from top to bottom; a row from left to right."""
    rows: list[list[int]] = []
    reach = 0.0
    for index in sorted(members, key=lambda i: lines[i].box.centre[1]):
        box = lines[index].box
        if rows and box.centre[1] < reach:
            rows[-1].append(index)
        else:
            rows.append([index])
            reach = box.centre[1] + 0.4 * max(box.height, lines[index].size)
    return [sorted(row, key=lambda i: lines[i].box.x0) for row in rows]


def _runs(lines: Sequence[Line], row: Sequence[int]) -> list[list[int]]:
    """Return the parts of a row in which no line is more than a wide space from its predecessor."""
    runs: list[list[int]] = []
    end, size = 0.0, 0.0
    for index in row:
        line = lines[index]
        if runs and line.box.x0 - end < 1.3 * max(size, line.size):
            runs[-1].append(index)
        else:
            runs.append([index])
            end, size = line.box.x1, line.size
        end, size = max(end, line.box.x1), max(size, line.size)
    return runs


def _around(lines: Sequence[Line], members: Sequence[int]) -> Box:
    box = lines[members[0]].box
    for index in members[1:]:
        box = box.union(lines[index].box)
    return box


def _goes_on(lines: Sequence[Line], caption: Sequence[int], last: Box, run: Sequence[int]) -> bool:
    """Return whether a part of a row continues the caption, by position and style, whatever the distance."""
    first, box = lines[caption[0]], _around(lines, run)
    if not any(_alike(lines[index], lines[other]) for index in run for other in caption):
        return False
    if first.italic and len(first.text) > 20 and not lines[run[0]].italic:
        return False
    if box.x0 >= last.x1 or box.x1 <= first.box.x0:
        return False
    if len(caption) == 1 and _is_title_below(first, lines[run[0]]):
        return True
    # A full line wraps; a line that ends well before the next line's end has ended the caption.
    ended = abs(box.x0 - last.x0) < first.size and last.x1 < box.x1 - 0.2 * box.width
    return not ended


def _is_title_below(first: Line, line: Line) -> bool:
    """Return whether an italic title is below a caption that is only a number, as in the style of the APA."""
    return line.italic and not first.italic and _LABEL.fullmatch(first.text.strip()) is not None


def _alike(one: Line, other: Line) -> bool:
    """Return whether both may have the same print: measured sizes, such as OCR's, are comparable only within bounds."""
    if 0.8 < one.size / max(other.size, 1e-6) < 1.25:
        return True
    return 0.85 < one.box.height / max(other.box.height, 1e-6) < 1.18


def _distance(line: Line, box: Box, *, above: bool) -> float:
    """Return the distance of the line above (or below) the box; minus infinity for a line at its side."""
    if line.box.x0 > box.x1 or line.box.x1 < box.x0:
        return -math.inf
    return box.y0 - line.box.y1 if above else line.box.y0 - box.y1


# Passes in order of certainty; each pass sees only free lines.


#: Maximum lines of a table on one page, and of a cell without rules on average; more are a map or a page of type.
_MOST_LINES, _MOST_PER_CELL = 4000, 8
#: Minimum characters of a line of running text, and overlap of two parts below each other in page units.
_PROSE, _LAPPED = 30, 0.5


class Finder:
    """Table search on one page. Lines are identified by their index; `free` are those outside found tables."""

    def __init__(self, content: PageContent) -> None:
        self.content = content
        self.boxes: Floats = np.array(
            [(line.box.x0, line.box.y0, line.box.x1, line.box.y1) for line in content.lines], dtype=np.float64
        ).reshape(-1, 4)
        self.centres = (self.boxes[:, :2] + self.boxes[:, 2:]) / 2
        self.drawn = np.array([line.drawn for line in content.lines], dtype=np.int64)
        self.prose = np.array([len(line.text) >= _PROSE for line in content.lines], dtype=np.bool_)
        self.free = np.ones(len(content.lines), dtype=np.bool_)
        self.found: list[Region] = []
        self.fields: list[Box] = []
        self.curves: Floats = np.zeros((0, 4))

    def tables(self) -> list[Region]:
        """Run all passes, then find captions."""
        shapes = page_shapes(self.content)
        self.curves = shapes.boxes[~shapes.simple | shapes.slanted]
        rules = find_rules(self.content, shapes)
        edges = find_rules(self.content, shapes, fills=True) if bool(shapes.filled.any()) else rules
        self.fields = self._empty_boxes(rules)
        rest = self._ruled(rules, edges)
        self._tagged()
        self._between_rules(rest)
        if edges is not rules:
            self._filled(edges)
        self._plain(rules)
        return self._captioned()

    def _ruled(self, rules: Rules, edges: Rules) -> Floats:
        """Find the ruled grids; return the horizontal rules outside grids. `edges`: rules and edges of fills."""
        left = np.ones(len(rules.horizontal), dtype=np.bool_)
        grids = []
        for horizontal, vertical in components(rules):
            box = _outline(rules.horizontal[horizontal], rules.vertical[vertical])
            left[horizontal] &= not any(box.covered_by(field) > 0.9 for field in self.fields)
            own, upright = rules.horizontal[horizontal], rules.vertical[vertical]
            own = np.concatenate((own, _wide_edges(edges.horizontal, own, upright, rules.unit)))
            lattice = lattice_of(own, upright, rules.unit)
            if lattice is not None:
                grids.append((lattice, horizontal))
        for lattice, horizontal in sorted(grids, key=lambda grid: grid[0].box.area):
            if self._take_ruled(lattice):
                left[horizontal] = False
        return rules.horizontal[left]

    def _take_ruled(self, lattice: Lattice) -> bool:
        """Take the grid's table; return whether a table, a form, or a picture uses up the grid's rules."""
        members = self.inside(lattice.box)
        if len(members) < 2:
            return False
        sparse = len(members) < _SPARSE * lattice.rows * lattice.columns
        if self._is_other(lattice.box, members) or (sparse and self._is_captioned_figure(lattice.box, members)):
            return True
        table = ruled_table(lattice, self.pieces(members))
        return table is not None and self._take(table, lattice.box, members, "ruled")

    def _tagged(self) -> None:
        """Take the tables of the page's tags, unless one ruled table has more text, or has spans that the tags lack."""
        for table, members in tagged_tables(self.content):
            held = [region for region in self.found if not region.lines.isdisjoint(members)]
            if len(held) == 1 and held[0].lines.issuperset(members):
                spans = any(cell.rowspan > 1 or cell.colspan > 1 for cell in table.cells)
                lacks = "span=" in held[0].text and not spans and not all(cell.text for cell in table.cells)
                if lacks or len(held[0].lines) > len(members):
                    continue
            box = self.content.lines[members[0]].box
            for region in held:
                self.found.remove(region)
                self.free[list(region.lines)] = True
                box = box.union(region.box)
            self._take(table, box, members, "tagged")

    def _between_rules(self, horizontal: Floats) -> None:
        for area in rule_chains(self, horizontal):
            # A rule below each row, or a colored heading, leaves the headings above the first rule.
            wide = with_rows_around(self, area, below=False) if len(area.bands) > 2 else area
            if not self._take_spaced(wide, "booktabs") and len(area.bands) > 2:
                for band in single_bands(self, area, horizontal):
                    self._take_spaced(band, "booktabs")

    def _filled(self, rules: Rules) -> None:
        for horizontal, vertical in components(rules):
            lattice = lattice_of(rules.horizontal[horizontal], rules.vertical[vertical], rules.unit)
            if lattice is not None and lattice.rows > 1:
                members = self.inside(lattice.box)
                lines = [self.content.lines[index] for index in members]
                if len(members) >= 4 and not self._is_other(lattice.box, members) and not is_code(lines):
                    table = ruled_table(lattice, self.pieces(members))
                    if table is not None:
                        self._take(table, lattice.box, members, "filled")
        for area in rule_chains(self, rules.horizontal):
            area = replace(area, cuts=fill_cuts(rules.vertical, area.box))
            self._take_spaced(with_rows_around(self, area), "filled")

    def _plain(self, rules: Rules) -> None:
        for area, label in plain_areas(self, rules):
            self._take_spaced(area, label)
        for box, table in aligned_tables(self):
            members = self.inside(box)
            code = is_code([self.content.lines[index] for index in members])
            other = code or self._is_other(box, members, pictures=0.08) or self._is_captioned_figure(box, members)
            if not other:
                self._take(table, box, members, "aligned")
        for area in word_areas(self):
            self._take_spaced(area, "words")

    def _take_spaced(self, area: Area, label: str) -> bool:
        members = self.inside(area.box)
        lines = [self.content.lines[index] for index in members]
        if len(members) < 3 or self._is_other(area.box, members, pictures=0.08) or is_code(lines):
            return False
        table = spaced_table(area, self.pieces(members))
        if table is None or not is_table(table) or (label == "plain" and not is_plain_table(table)):
            return False
        full = len(members) > _MOST_PER_CELL * table.rows * table.columns
        if full or (label == "captioned" and not is_filled_table(table)):
            return False
        if self._is_captioned_figure(area.box, members) or self._lacks_labels(area.box, members):
            return False
        return self._take(table, area.box, members, label)

    def _lacks_labels(self, box: Box, members: Sequence[int]) -> bool:
        """Return whether most rows begin with a value and have words on the left: accounts rule only their values."""
        rows = rows_of(self.pieces(members))
        lines = self.content.lines
        free = [lines[index] for index in np.nonzero(self.free)[0] if lines[index].box.x1 < box.x0]
        labels = 0
        for row in rows:
            beside = any(line.box.y0 < row.y < line.box.y1 and any(map(str.isalpha, line.text)) for line in free)
            labels += beside and is_number(row.segments[0].text.lstrip("$€£¥( "))
        return labels > 0.6 * len(rows)

    def _take(self, table: Table, box: Box, members: Sequence[int], label: str) -> bool:
        for index in members:
            box = box.union(self.content.lines[index].box)
        if label != "tagged" and is_page(table, box.area / max(self.content.width * self.content.height, 1e-6)):
            return False
        if label not in ("ruled", "tagged") and self._are_apart(members):
            return False
        self.free[list(members)] = False
        if tracing():
            about = {"finder": label, "rows": table.rows, "columns": table.columns, "lines": len(members)}
            place = relative(box, self.content.width, self.content.height)
            note("table", f"{label}, {table.rows} x {table.columns}", box=place, **about)
        self.found.append(Region("table", box, frozenset(members), markup(table), label))
        return True

    def _is_other(self, box: Box, members: Sequence[int], pictures: float = 0.2) -> bool:
        """Return whether the area is a picture, a drawing, a form, or part of a sideways page.

        `pictures`: maximum share of the area that images cover.
        """
        lines = [self.content.lines[index] for index in members]
        covered = sum(box.covered_by(raster.box) for raster in self.content.rasters if raster.box.area < 4 * box.area)
        fields = sum(field.covered_by(box) > 0.9 and field.area < 0.5 * box.area for field in self.fields)
        upright = sum(is_upright(line) for line in lines)
        if len(members) > _MOST_LINES or self._drawn_in(box) > max(40, len(lines)):
            return True
        return covered > pictures or fields >= 2 or upright * 2 < len(lines)

    def _are_apart(self, members: Sequence[int]) -> bool:
        """Return whether the file draws text outside of the area between the lines of its upper and its lower part."""
        if (self.drawn[members] < 0).any():
            return False
        order = np.argsort(self.drawn)
        own = np.isin(order, members)
        lines = self.boxes[order[own]]
        others = (~own & self.prose[order]).cumsum()[own]  # number of other lines of text drawn before
        places = np.flatnonzero(np.diff(others)) + 1
        places = places[(places > 1) & (places < len(lines) - 1)]
        ends, starts = np.maximum.accumulate(lines[:, 3]), np.minimum.accumulate(lines[::-1, 1])[::-1]
        return bool((ends[places - 1] <= starts[places] + _LAPPED).any())

    def _drawn_in(self, box: Box) -> int:
        """Return the number of curves and other complex shapes in the area: a chart or map has many."""
        x0, y0, x1, y1 = self.curves.T
        return int(((x0 >= box.x0) & (y0 >= box.y0) & (x1 <= box.x1) & (y1 <= box.y1)).sum())

    def _is_captioned_figure(self, box: Box, members: Sequence[int]) -> bool:
        """Return whether a figure's caption is directly below, and no table's caption is next to the area."""
        lines = self.content.lines
        below = caption_beside(lines, box, members, FIGURE_CAPTION, sides=(False,))
        if not below:
            return False
        near = min(lines[index].box.y0 - box.y1 for index in below) < 3 * lines[min(below)].size
        return near and not caption_beside(lines, box, members, TABLE_CAPTION)

    def _empty_boxes(self, rules: Rules) -> list[Box]:
        """Return isolated closed boxes without text: the fields of a form."""
        boxes = []
        for horizontal, vertical in components(rules):
            if 2 <= len(horizontal) <= 4 and 2 <= len(vertical) <= 6:
                box = _outline(rules.horizontal[horizontal], rules.vertical[vertical])
                if box.height > 6 * rules.unit and not self.inside(box):
                    boxes.append(box)
        return boxes

    def inside(self, box: Box) -> list[int]:
        """Return free lines with their center in the box."""
        x, y = self.centres[:, 0], self.centres[:, 1]
        within = (x >= box.x0) & (x <= box.x1) & (y >= box.y0) & (y <= box.y1)
        return [int(index) for index in np.nonzero(within & self.free)[0]]

    def pieces(self, members: Sequence[int]) -> list[Piece]:
        """Return the words of the lines."""
        lines = self.content.lines
        return [piece for index in members for piece in line_pieces(index, lines[index])]

    def _captioned(self) -> list[Region]:
        """Return the tables with their captions: each caption belongs to the nearest table, above or below."""
        lines = self.content.lines
        taken = {index for region in self.found for index in region.lines}
        found = sorted(self.found, key=lambda item: (item.box.y0, item.box.x0))
        options = []
        for number, region in enumerate(found):
            for above in (True, False):
                if caption := caption_beside(lines, region.box, taken, TABLE_CAPTION, sides=(above,)):
                    near = min(_distance(lines[index], region.box, above=above) for index in caption)
                    options.append((near, not above, number, caption))
        captions: dict[int, frozenset[int]] = {}
        for _, _, number, caption in sorted(options, key=lambda option: option[:3]):
            if number not in captions and not any(caption & other for other in captions.values()):
                captions[number] = caption
        return [replace(region, caption=captions.get(number, frozenset())) for number, region in enumerate(found)]


def _outline(horizontal: Floats, vertical: Floats) -> Box:
    return Box(float(vertical[0, 0]), float(horizontal[0, 0]), float(vertical[-1, 0]), float(horizontal[-1, 0]))


def _wide_edges(edges: Floats, horizontal: Floats, vertical: Floats, unit: float) -> Floats:
    """Return edges of fills across a whole grid at places without a rule: the end of a colored heading."""
    left, right = float(horizontal[:, 1].min()), float(horizontal[:, 2].max())
    top, bottom = float(vertical[:, 1].min()), float(vertical[:, 2].max())
    y, x0, x1 = edges.T
    inside = (y > top) & (y < bottom) & (x0 > left - 5 * unit) & (x1 < right + 5 * unit)
    new = (np.abs(y[:, None] - horizontal[None, :, 0]) > 4 * unit).all(1)
    chosen: Floats = edges[inside & new & (x1 - x0 >= 0.9 * (right - left))]
    return chosen
