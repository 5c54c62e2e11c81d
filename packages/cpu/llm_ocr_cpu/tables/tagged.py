"""Read the tables of a tagged page from the tags of their rows and cells."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import median

from llm_ocr.types import PageContent, Tag
from llm_ocr_cpu.pdf_tags import CELLS, enclosing, row_and_table
from llm_ocr_cpu.tables.cells import Cell, Table, compacted, heading_rows, line_pieces, with_text

#: Longest cell and mean of all cells, in characters, of a table; others are the layout of a page.
_LONGEST, _MEAN = 800, 200
#: Least share of cells that are on the right of the cell before, and of rows that are below the row before.
_IN_ORDER = 0.9
#: Largest share of pairs of texts in adjacent columns that are in the wrong order: some cells overflow.
_MOST_ASTRAY = 0.05
#: Largest distance in points of a cell's left edge from that of its column.
_FLUSH = 2.0
#: Least columns of a table without heads, and most places of a table.
_LEAST_COLUMNS, _MOST_PLACES = 3, 20_000

TaggedRow = list[tuple[int, list[int]]]  # place of the cell's tag, and its lines


def tagged_tables(content: PageContent) -> Iterator[tuple[Table, list[int]]]:
    """Yield the tables with the indices of their lines. Tables of one row or one column are text in a frame."""
    tags = content.tags
    lines_of: dict[int, list[int]] = {}
    for index, line in enumerate(content.lines):
        if (cell := enclosing(tags, line.tag, CELLS)) >= 0 and line.text.strip():
            lines_of.setdefault(cell, []).append(index)
    tables: dict[int, dict[int, TaggedRow]] = {}
    for place, tag in enumerate(tags):
        row, table = row_and_table(tags, place) if tag.kind in CELLS else (-1, -1)
        if table >= 0:
            tables.setdefault(table, {}).setdefault(row, []).append((place, lines_of.get(place, [])))
    for owned in tables.values():
        rows = list(owned.values())
        while rows and not _is_filled(rows[0]):
            del rows[0]
        while rows and not _is_filled(rows[-1]):
            del rows[-1]
        read = _table(rows, content) if _is_table(rows, content) else None
        if read is not None:
            yield read, [index for row in rows for _, members in row for index in members]


def _is_filled(row: TaggedRow) -> bool:
    """Return whether a row has text, in more than its only cell: the title and the notes of a table are text."""
    return len(row) > 1 and any(members for _, members in row)


def _is_table(rows: Sequence[TaggedRow], content: PageContent) -> bool:
    """Return whether the rows are a table, not the layout of texts, and its cells are where their tags say."""
    lines = content.lines
    texts = [[members for _, members in row if members] for row in rows]
    heads = any(content.tags[place].kind == "TH" for row in rows for place, _ in row)
    if len(rows) < 2 or max(map(len, texts)) < 2 or max(map(len, rows)) < (2 if heads else _LEAST_COLUMNS):
        return False
    lengths = [sum(len(lines[index].text) for index in members) for row in texts for members in row]
    if max(lengths) > _LONGEST or sum(lengths) > _MEAN * len(lengths):
        return False
    lefts = [[min(lines[index].box.x0 for index in members) for members in row] for row in texts]
    across = [one < other for row in lefts for one, other in pairwise(row)]
    middles = [median(lines[index].box.centre[1] for members in row for index in members) for row in texts if row]
    down = [one < other for one, other in pairwise(middles)]
    return all(sum(right) >= _IN_ORDER * len(right) for right in (across, down))


def _table(rows: Sequence[TaggedRow], content: PageContent) -> Table | None:
    """Return the table; None if two cells are at one place, or the columns are not beside each other."""
    placed = _placed(rows, content.tags)
    width = max((cell.column + cell.colspan for cell, _ in placed), default=0)
    if not placed or len(rows) * width > _MOST_PLACES:
        return None
    boxes = [[content.lines[index].box for index in members] for _, members in placed]
    extents = {
        number: (min(box.x0 for box in own), max(box.x1 for box in own)) for number, own in enumerate(boxes) if own
    }
    cells = _moved([cell for cell, _ in placed], extents, width)
    places = Counter(place for cell in cells for place in _places(cell))
    if max(places.values()) > 1 or not _are_apart([cell for cell, _ in placed], extents):
        return None
    for number, (cell, members) in enumerate(placed):
        if number in extents:
            cell.pieces = [piece for index in members for piece in line_pieces(index, content.lines[index])]
    empty = (Cell(row, column) for row in range(len(rows)) for column in range(width) if not places[row, column])
    kept = [any(members for _, members in row) for row in rows]
    begun = {cell.column for cell in cells}
    made = with_text(compacted([*cells, *empty], kept, [column in begun for column in range(width)]))
    heads = 0
    filled = [row for row, has_text in zip(rows, kept, strict=True) if has_text]
    while heads < len(filled) - 1 and all(content.tags[at].kind == "TH" for at, members in filled[heads] if members):
        heads += 1
    return Table(len(filled), len(begun), tuple(made), heads or heading_rows(made, len(filled)))


def _places(cell: Cell) -> Iterator[tuple[int, int]]:
    for row in range(cell.row, cell.row + cell.rowspan):
        for column in range(cell.column, cell.column + cell.colspan):
            yield row, column


def _placed(rows: Sequence[TaggedRow], tags: Sequence[Tag]) -> list[tuple[Cell, list[int]]]:
    """Return the cells in their grid, in which a cell takes the places of its spans, with their lines.

    A table with too many places has none.
    """
    taken: set[tuple[int, int]] = set()
    cells: list[tuple[Cell, list[int]]] = []
    for number, row in enumerate(rows):
        column = 0
        for place, members in row:
            while (number, column) in taken:
                column += 1
            cell = Cell(number, column, min(tags[place].rows, len(rows) - number), tags[place].columns)
            cells.append((cell, members))
            taken.update(_places(cell))
            column += cell.colspan
            if len(taken) > _MOST_PLACES:
                return []
    return cells


def _moved(cells: Sequence[Cell], extents: Mapping[int, tuple[float, float]], width: int) -> list[Cell]:
    """Place the cells of rows with fewer cells than others by the columns of the longest rows: programs omit spans.

    A head without spans above those rows covers as many columns as have their middle at its own, up to the next head.
    Empty cells of these rows are left out. `extents` are left and right of the cells with text.
    """
    counts = Counter(row for cell in cells for row, _ in _places(cell))
    columns: dict[int, list[tuple[float, float]]] = {}
    short: dict[int, list[tuple[Cell, float, float]]] = {}
    for number, (left, right) in extents.items():
        cell = cells[number]
        if counts[cell.row] < width:
            short.setdefault(cell.row, []).append((cell, left, (left + right) / 2))
        elif cell.colspan == 1:
            columns.setdefault(cell.column, []).append((left, (left + right) / 2))
    if len(columns) < width:
        return list(cells)
    edges = [median(left for left, _ in columns[column]) for column in range(width)]
    at = [median(middle for _, middle in columns[column]) for column in range(width)]
    first_full = min(row for row, count in counts.items() if count >= width)
    for number, row in short.items():
        starts = [
            cell.column if abs(left - edges[cell.column]) < _FLUSH else _start(at, cell.colspan, middle)
            for cell, left, middle in row
        ]
        heads = number < first_full and all(cell.colspan == cell.rowspan == 1 for cell, _, _ in row)
        end = 0
        for (cell, _, middle), start, after in zip(row, starts, [*starts[1:], width], strict=True):
            cell.column = start
            if heads and end <= start < after:
                spans = [(a, b) for a in range(end, start + 1) for b in range(start, after)]
                away = {(a, b): abs((at[a] + at[b]) / 2 - middle) for a, b in spans}
                cell.column, last = min(spans, key=lambda span: (round(away[span]), span[0] - span[1]))
                cell.colspan = last - cell.column + 1
            end = cell.column + cell.colspan
    return [cell for number, cell in enumerate(cells) if number in extents or cell.row not in short]


def _are_apart(cells: Sequence[Cell], extents: Mapping[int, tuple[float, float]]) -> bool:
    """Return whether the texts of a column are on the left of those of the next one; if not, the tags lack cells."""
    middles: dict[int, list[float]] = {}
    for number, (left, right) in extents.items():
        if cells[number].colspan == 1:
            middles.setdefault(cells[number].column, []).append((left + right) / 2)
    for column, own in middles.items():
        following = sorted(middles.get(column + 1, []))
        wrong = sum(bisect_right(following, middle) for middle in own)
        if wrong > _MOST_ASTRAY * len(own) * len(following):
            return False
    return True


def _start(at: Sequence[float], wide: int, middle: float) -> int:
    """Return the first of `wide` adjacent columns whose common middle is the nearest to `middle`."""
    away = [abs((at[first] + at[first + wide - 1]) / 2 - middle) for first in range(len(at) - wide + 1)]
    return away.index(min(away))
