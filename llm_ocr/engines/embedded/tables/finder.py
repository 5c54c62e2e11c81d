"""Looks for tables in order of certainty; what one pass takes, the next does not see."""

from collections.abc import Sequence

import numpy as np

from llm_ocr.engines.embedded.caption_words import FIGURE_CAPTION, TABLE_CAPTION
from llm_ocr.engines.embedded.regions import Region
from llm_ocr.engines.embedded.tables.aligned import aligned_tables
from llm_ocr.engines.embedded.tables.captions import caption_beside
from llm_ocr.engines.embedded.tables.cells import Table, markup
from llm_ocr.engines.embedded.tables.chains import rule_chains
from llm_ocr.engines.embedded.tables.lattice import Lattice, components, lattice_of
from llm_ocr.engines.embedded.tables.pieces import Piece, is_code, is_upright, line_pieces
from llm_ocr.engines.embedded.tables.plain import plain_areas
from llm_ocr.engines.embedded.tables.ruled import is_plain_table, is_table, ruled_table
from llm_ocr.engines.embedded.tables.rules import Floats, Rules, find_rules, page_shapes
from llm_ocr.engines.embedded.tables.spaced import Area, spaced_table
from llm_ocr.types import Box, PageContent

#: A table on one page has fewer lines: what has more is a map or a page of type.
_MOST_LINES = 4000


class Finder:
    """One page's search. Lines are known by their index; `free` are those that no table has taken."""

    def __init__(self, content: PageContent) -> None:
        self.content = content
        self.boxes: Floats = np.array(
            [(line.box.x0, line.box.y0, line.box.x1, line.box.y1) for line in content.lines], dtype=np.float64
        ).reshape(-1, 4)
        self.centres = (self.boxes[:, :2] + self.boxes[:, 2:]) / 2
        self.free = np.ones(len(content.lines), dtype=np.bool_)
        self.found: list[Region] = []
        self.fields: list[Box] = []
        self.curves: Floats = np.zeros((0, 4))

    def tables(self) -> list[Region]:
        """All passes, then captions."""
        shapes = page_shapes(self.content)
        self.curves = shapes.boxes[~shapes.simple | shapes.slanted]
        rules = find_rules(self.content, shapes)
        edges = find_rules(self.content, shapes, fills=True) if bool(shapes.filled.any()) else rules
        self.fields = self._empty_boxes(rules)
        rest = self._ruled(rules, edges)
        self._between_rules(rest)
        if edges is not rules:
            self._filled(edges)
        self._plain(rules)
        return self._captioned()

    def _ruled(self, rules: Rules, edges: Rules) -> Floats:
        """Takes the ruled grids; gives the horizontal rules of no grid. `edges`: the rules and the edges of fills."""
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
        """Whether the grid's rules are spent: on a table, a form or a picture."""
        members = self.inside(lattice.box)
        if len(members) < 2:
            return False
        if self._is_other(lattice.box, members):
            return True
        table = ruled_table(lattice, self.pieces(members))
        return table is not None and self._take(table, lattice.box, members, "ruled")

    def _between_rules(self, horizontal: Floats) -> None:
        for area in rule_chains(self, horizontal):
            self._take_spaced(area, "booktabs")

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
            self._take_spaced(area, "filled")

    def _plain(self, rules: Rules) -> None:
        for area, label in plain_areas(self, rules):
            self._take_spaced(area, label)
        for box, table in aligned_tables(self):
            members = self.inside(box)
            code = is_code([self.content.lines[index] for index in members])
            other = code or self._is_other(box, members, pictures=0.08) or self._is_captioned_figure(box, members)
            if not other:
                self._take(table, box, members, "aligned")

    def _take_spaced(self, area: Area, label: str) -> bool:
        members = self.inside(area.box)
        lines = [self.content.lines[index] for index in members]
        if len(members) < 3 or self._is_other(area.box, members, pictures=0.08) or is_code(lines):
            return False
        table = spaced_table(area, self.pieces(members))
        if table is None or not is_table(table) or (label == "plain" and not is_plain_table(table)):
            return False
        if self._is_captioned_figure(area.box, members):
            return False
        return self._take(table, area.box, members, label)

    def _take(self, table: Table, box: Box, members: Sequence[int], label: str) -> bool:
        for index in members:
            box = box.union(self.content.lines[index].box)
        self.free[list(members)] = False
        self.found.append(Region("table", box, frozenset(members), markup(table), label))
        return True

    def _is_other(self, box: Box, members: Sequence[int], pictures: float = 0.2) -> bool:
        """Whether the area is a picture, a drawing, a form, or part of a page that lies on its side.

        `pictures`: the share of the area that images may cover.
        """
        lines = [self.content.lines[index] for index in members]
        covered = sum(box.covered_by(raster.box) for raster in self.content.rasters if raster.box.area < 4 * box.area)
        fields = sum(field.covered_by(box) > 0.9 and field.area < 0.5 * box.area for field in self.fields)
        upright = sum(is_upright(line) for line in lines)
        if len(members) > _MOST_LINES or self._drawn_in(box) > max(40, len(lines)):
            return True
        return covered > pictures or fields >= 2 or upright * 2 < len(lines)

    def _drawn_in(self, box: Box) -> int:
        """Curves and other rich shapes in the area: a chart or a map has many."""
        x0, y0, x1, y1 = self.curves.T
        return int(((x0 >= box.x0) & (y0 >= box.y0) & (x1 <= box.x1) & (y1 <= box.y1)).sum())

    def _is_captioned_figure(self, box: Box, members: Sequence[int]) -> bool:
        """Whether the text directly below is a figure's caption, and no table's caption stands beside the area."""
        lines = self.content.lines
        below = caption_beside(lines, box, members, FIGURE_CAPTION, sides=(False,))
        if not below:
            return False
        near = min(lines[index].box.y0 - box.y1 for index in below) < 3 * lines[min(below)].size
        return near and not caption_beside(lines, box, members, TABLE_CAPTION)

    def _empty_boxes(self, rules: Rules) -> list[Box]:
        """Closed boxes without text that stand alone: the fields of a form."""
        boxes = []
        for horizontal, vertical in components(rules):
            if 2 <= len(horizontal) <= 4 and 2 <= len(vertical) <= 6:
                box = _outline(rules.horizontal[horizontal], rules.vertical[vertical])
                if box.height > 6 * rules.unit and not self.inside(box):
                    boxes.append(box)
        return boxes

    def inside(self, box: Box) -> list[int]:
        """Free lines whose centre lies in the box."""
        x, y = self.centres[:, 0], self.centres[:, 1]
        within = (x >= box.x0) & (x <= box.x1) & (y >= box.y0) & (y <= box.y1)
        return [int(index) for index in np.nonzero(within & self.free)[0]]

    def pieces(self, members: Sequence[int]) -> list[Piece]:
        """The words of the lines."""
        lines = self.content.lines
        return [piece for index in members for piece in line_pieces(index, lines[index])]

    def _captioned(self) -> list[Region]:
        taken = {index for region in self.found for index in region.lines}
        finished = []
        for region in sorted(self.found, key=lambda item: (item.box.y0, item.box.x0)):
            caption = caption_beside(self.content.lines, region.box, taken, TABLE_CAPTION)
            taken |= caption
            finished.append(Region("table", region.box, region.lines, region.text, region.label, caption))
        return finished


def _outline(horizontal: Floats, vertical: Floats) -> Box:
    return Box(float(vertical[0, 0]), float(horizontal[0, 0]), float(vertical[-1, 0]), float(horizontal[-1, 0]))


def _wide_edges(edges: Floats, horizontal: Floats, vertical: Floats, unit: float) -> Floats:
    """Edges of fills that run through a grid from side to side, where it has no rule: the end of a coloured heading."""
    left, right = float(horizontal[:, 1].min()), float(horizontal[:, 2].max())
    top, bottom = float(vertical[:, 1].min()), float(vertical[:, 2].max())
    y, x0, x1 = edges.T
    inside = (y > top) & (y < bottom) & (x0 > left - 5 * unit) & (x1 < right + 5 * unit)
    new = (np.abs(y[:, None] - horizontal[None, :, 0]) > 4 * unit).all(1)
    chosen: Floats = edges[inside & new & (x1 - x0 >= 0.9 * (right - left))]
    return chosen
