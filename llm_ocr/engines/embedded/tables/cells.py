"""Cells with their text, and the table as Markdown or HTML."""

import html
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from llm_ocr.engines.embedded.layout.escape import escape
from llm_ocr.engines.embedded.layout.joining import join
from llm_ocr.engines.embedded.tables.pieces import Piece, is_number, rows_of, spoken, without_leaders

_BULLET = re.compile(r"^\s*[•‣◦▪●○■□◆►▸✓✔–-]\s+\S")


@dataclass(slots=True)
class Cell:
    """A cell at `row`, `column` (both from 0) that covers `rowspan` x `colspan` places of the grid."""

    row: int
    column: int
    rowspan: int = 1
    colspan: int = 1
    pieces: list[Piece] = field(default_factory=list)
    text: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """Cells in reading order, and how many rows at the top are headings."""

    rows: int
    columns: int
    cells: tuple[Cell, ...]
    headings: int = 1


def cell_text(pieces: Sequence[Piece]) -> str:
    """The pieces of a cell read line by line; items of a list inside the cell on lines of their own."""
    upward = [piece for piece in pieces if piece.box.height > 1.8 * piece.size and len(piece.text) > 2]
    if len(upward) * 2 > len(pieces):
        return " ".join(piece.text for piece in sorted(pieces, key=lambda item: item.box.x0))
    lines = [spoken(list(row.pieces)) for row in rows_of(pieces)]
    text = ""
    for line in lines:
        text = f"{text}\n{line}" if text and _BULLET.match(line) else join(text, line)
    return "\n".join(without_leaders(line) for line in text.split("\n"))


def with_text(cells: Iterable[Cell]) -> list[Cell]:
    """The same cells, their text read."""
    chosen = list(cells)
    for cell in chosen:
        cell.text = cell_text(cell.pieces)
    return chosen


def heading_rows(cells: Sequence[Cell], rows: int) -> int:
    """How many rows at the top hold headings: those that a spanning cell of the first rows joins, at least one."""
    count = 1
    while count < min(rows - 1, 4):
        spanned = any(
            cell.text
            and cell.row < count
            and (cell.row + cell.rowspan > count or (cell.colspan > 1 and cell.row == count - 1))
            for cell in cells
        )
        below = [cell.text for cell in cells if cell.row == count and cell.text]
        if not spanned or sum(map(is_number, below)) * 2 > len(below):
            break
        count += 1
    return count


def markup(table: Table) -> str:
    """A pipe table, or HTML where cells span."""
    table = replace(table, cells=tuple(part for cell in table.cells for part in _places_of(cell)))
    if any(cell.rowspan > 1 or cell.colspan > 1 for cell in table.cells):
        return _html(table)
    grid = [["" for _ in range(table.columns)] for _ in range(table.rows)]
    for cell in table.cells:
        grid[cell.row][cell.column] = _pipe(cell.text)
    lines = [f"| {' | '.join(row)} |" for row in grid]
    return "\n".join([lines[0], f"|{' --- |' * table.columns}", *lines[1:]])


def _places_of(cell: Cell) -> Iterator[Cell]:
    """The cell, or the single places of an empty one: that it spans says nothing."""
    if cell.text:
        yield cell
        return
    for row in range(cell.row, cell.row + cell.rowspan):
        for column in range(cell.column, cell.column + cell.colspan):
            yield Cell(row, column)


def _pipe(text: str) -> str:
    shown = escape(text) if text else ""
    return shown.replace("|", "\\|").replace("\n", "<br>")


def _html(table: Table) -> str:
    by_row: list[list[Cell]] = [[] for _ in range(table.rows)]
    for cell in sorted(table.cells, key=lambda item: (item.row, item.column)):
        by_row[cell.row].append(cell)
    rows = []
    for number, cells in enumerate(by_row):
        tag = "th" if number < table.headings else "td"
        rows.append("<tr>" + "".join(_element(cell, tag) for cell in cells) + "</tr>")
    return "<table>\n" + "\n".join(rows) + "\n</table>"


def _element(cell: Cell, tag: str) -> str:
    spans = (f' rowspan="{cell.rowspan}"' if cell.rowspan > 1 else "") + (
        f' colspan="{cell.colspan}"' if cell.colspan > 1 else ""
    )
    return f"<{tag}{spans}>{html.escape(cell.text, quote=False).replace(chr(10), '<br>')}</{tag}>"


def compacted(cells: Sequence[Cell], rows: Sequence[bool], columns: Sequence[bool]) -> list[Cell]:
    """Without the rows and columns that are not to be kept; cells that lose all their places are dropped."""
    row_at, column_at = _places(rows), _places(columns)
    kept = []
    for cell in cells:
        top, bottom = row_at[cell.row], row_at[cell.row + cell.rowspan]
        left, right = column_at[cell.column], column_at[cell.column + cell.colspan]
        if bottom > top and right > left:
            kept.append(Cell(top, left, bottom - top, right - left, cell.pieces, cell.text))
    return kept


def _places(keep: Sequence[bool]) -> list[int]:
    places = [0]
    for kept in keep:
        places.append(places[-1] + kept)
    return places
