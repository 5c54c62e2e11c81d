"""Lay out a tagged page: its blocks in the order of their tags, instead of columns found by white strips."""

from collections import Counter
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, field, replace
from math import inf

from llm_ocr.types import Box, Line, PageContent, Tag
from llm_ocr_cpu.pdf_tags import CELLS, enclosing, row_and_table
from llm_ocr_cpu.regions import Region

#: Overlap in font sizes of two blocks below each other.
_LAPPED = 0.3
#: Most characters of a label, whose row a value without a tag belongs to.
_LABEL = 40
#: Most points that a text above a box may reach into it: half a line.
_HALF_LINE = 6.0
#: Largest gap in font sizes between a label and its value.
_NEAR = 8.0
#: Most characters of a row of cells in a table that is read row by row.
_SHORT_ROW = 200
#: Largest gap in font sizes between two lines of one text.
_LEADING = 1.0
#: Step upward in font sizes from which a text goes on at the top of another column.
_UPWARD = 1.5


@dataclass(slots=True)
class Item:
    """Lines of one tag in one column, or a table or figure.

    `place` is its place in reading order: that of the tag, half a step later for what follows it, and the column.
    """

    place: tuple[float, int]
    lines: list[Line] = field(default_factory=list)
    regions: list[Region] = field(default_factory=list)

    @property
    def boxes(self) -> list[Box]:
        return [*(line.box for line in self.lines), *(region.box for region in self.regions)]

    @property
    def top(self) -> float:
        return min(box.y0 for box in self.boxes)

    @property
    def bottom(self) -> float:
        return max(box.y1 for box in self.boxes)


def tagged_parts(
    lines: Sequence[Line], regions: Sequence[Region], content: PageContent
) -> Iterator[tuple[list[Line], list[Region]]]:
    """Yield the parts of a page in the order of their tags; each is read from top to bottom.

    A single line without a tag belongs to the row of the label beside it; other texts without tags, tables, and figures
    follow the text above them.

    Args:
        lines: Lines outside of tables and figures.
        regions: Tables, figures, and formulas.
        content: The page, to whose lines `regions` refer.
    """
    taken = {content.lines[index].tag for region in regions for index in region.lines}
    tagged = list(_items(_with_rows([line for line in lines if line.tag >= 0], content.tags, taken)))
    items = list(tagged)
    for region in regions:
        tags = [content.lines[index].tag for index in region.lines or region.caption if content.lines[index].tag >= 0]
        tag = min(tags, default=-1)
        same = (item for item in tagged if item.place[0] == tag and item.top < region.box.y1 < item.bottom)
        if (block := next(same, None)) is not None:
            block.regions.append(region)
        else:
            items.append(Item((float(tag), -1) if tags else _place_after(region.box, tagged), [], [region]))
    for text in _columns([line for line in lines if line.tag < 0]):
        around = next((item for item in tagged if _is_inside(text, item)), None)
        if around is None and len(text) == 1:
            around = _label_of(text[0], tagged)
        if around is None:
            items.append(Item(_place_after(text[0].box, tagged), text))
        else:
            around.lines += text
    part: list[Item] = []
    for item in sorted(items, key=lambda item: (item.place, item.top)):
        slack = _LAPPED * min((line.size for line in item.lines), default=0.0)
        if part and item.top < max(other.bottom for other in part) - slack:
            yield [line for one in part for line in one.lines], [region for one in part for region in one.regions]
            part = []
        part.append(item)
    if part:
        yield [line for one in part for line in one.lines], [region for one in part for region in one.regions]


def _with_rows(lines: Sequence[Line], tags: Sequence[Tag], taken: Set[int]) -> list[Line]:
    """Return the lines, with the tag of the table instead of the cell for tagged tables that became no table.

    Short rows of such tables are read across, as key and value; tables with long rows keep the tags of their cells.
    `taken` are the tags of lines in tables: the titles and notes of these tables keep their places.
    """
    tables: dict[int, int] = {}
    lengths = Counter[tuple[int, int]]()
    for line in lines:
        if (cell := enclosing(tags, line.tag, CELLS)) >= 0:
            row, table = row_and_table(tags, cell)
            tables[line.tag] = table
            lengths[row, table] += len(line.text)
    kept = {-1} | {table for (_, table), length in lengths.items() if length > _SHORT_ROW}
    kept |= {row_and_table(tags, cell)[1] for tag in taken if (cell := enclosing(tags, tag, CELLS)) >= 0}
    return [line if tables.get(line.tag, -1) in kept else replace(line, tag=tables[line.tag]) for line in lines]


def _items(lines: Sequence[Line]) -> Iterator[Item]:
    """Yield the texts of the tags, each parted where it goes on in another column; a label and its value are one."""
    item: Item | None = None
    counts = Counter(line.tag for line in lines)
    for line in sorted(lines, key=lambda line: (line.tag, line.drawn)):
        if item is None:
            item = Item((float(line.tag), 0), [line])
            continue
        last, same = item.lines[-1], line.tag == item.place[0]
        goes_on = same or (counts[line.tag] == 1 and _is_beside(last, line))
        if goes_on and line.box.y1 >= last.box.y1 - _UPWARD * last.size:
            item.lines.append(line)
            continue
        yield item
        item = Item((float(line.tag), item.place[1] + 1 if same else 0), [line])
    if item is not None:
        yield item


def _is_beside(label: Line, value: Line) -> bool:
    """Return whether two short texts are a label, with its colon, and its value on the right."""
    short = max(len(label.text), len(value.text)) <= _LABEL and label.text.endswith(":")
    return short and _is_level(label.box, value.box) and 0 <= value.box.x0 - label.box.x1 < _NEAR * label.size


def _columns(lines: Sequence[Line]) -> list[list[Line]]:
    """Return the lines as texts of one column each, from top to bottom."""
    texts: list[list[Line]] = []
    for line in sorted(lines, key=lambda line: line.box.y0):
        near = (text for text in texts if line.box.y0 - text[-1].box.y1 < _LEADING * line.size)
        above = next((text for text in near if _shares_column(line.box, text[-1].box)), None)
        if above is None:
            texts.append([line])
        else:
            above.append(line)
    return texts


def _is_inside(text: Sequence[Line], item: Item) -> bool:
    """Return whether a text is between the lines of an item."""
    middles = [line.box.centre[1] for line in text]
    return item.top < min(middles) and max(middles) < item.bottom and _shares_column(text[0].box, item.lines[0].box)


def _label_of(line: Line, items: Sequence[Item]) -> Item | None:
    """Return the short text on the left of a line, in its row, that is the nearest one."""
    found = [
        (line.box.x0 - item.lines[-1].box.x1, number)
        for number, item in enumerate(items)
        if sum(len(other.text) for other in item.lines) <= _LABEL and _is_level(line.box, item.lines[-1].box)
    ]
    gap, number = min((pair for pair in found if pair[0] > -line.size), default=(inf, 0))
    return items[number] if gap < _NEAR * line.size else None


def _is_level(one: Box, other: Box) -> bool:
    shared = min(one.y1, other.y1) - max(one.y0, other.y0)
    return shared > 0.5 * min(one.height, other.height)


def _place_after(box: Box, items: Sequence[Item]) -> tuple[float, int]:
    """Return a place behind the text above the box, in the same column if there is any; before all others without."""
    above = [
        (not any(_shares_column(box, each) for each in item.boxes), box.y0 - item.bottom, item.place)
        for item in items
        if item.bottom <= box.y0 + min(0.5 * box.height, _HALF_LINE)
    ]
    tag, piece = min(above, default=(True, 0.0, (-1.0, 0)))[2]
    return tag + 0.5, piece


def _shares_column(one: Box, other: Box) -> bool:
    return min(one.x1, other.x1) > max(one.x0, other.x0)
