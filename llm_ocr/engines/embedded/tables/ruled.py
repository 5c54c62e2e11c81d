"""Tables whose cells are parted by rules."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from llm_ocr.engines.embedded.tables.cells import Cell, Table, compacted, heading_rows, with_text
from llm_ocr.engines.embedded.tables.lattice import Lattice
from llm_ocr.engines.embedded.tables.pieces import Piece, is_number
from llm_ocr.engines.embedded.tables.refine import placed, with_text_columns, with_text_rows

_LONG = 40  # words; a cell with more is a paragraph or several


def ruled_table(lattice: Lattice, pieces: Sequence[Piece]) -> Table | None:
    """The table in a grid of rules; None when the grid is a frame, a form, a chart or a page's layout."""
    lattice = with_text_columns(lattice, pieces)
    if lattice.columns < 2:
        return None
    lattice = with_text_rows(lattice, pieces)
    cells = _cells(lattice, pieces)
    if cells is None:
        return None
    size = float(np.median([piece.size for piece in pieces]))
    table = _compact(lattice, with_text(cells), size)
    return table if is_table(table) else None


def _cells(lattice: Lattice, pieces: Sequence[Piece]) -> list[Cell] | None:
    owner = np.zeros((lattice.rows, lattice.columns), dtype=np.int64)
    cells = []
    for number, (row, column, rowspan, colspan) in enumerate(lattice.spans()):
        owner[row : row + rowspan, column : column + colspan] = number
        cells.append(Cell(row, column, rowspan, colspan))
    outside = 0
    for piece in pieces:
        place = placed(lattice, piece)
        if place is None:
            outside += 1
        else:
            cells[owner[place]].pieces.append(piece)
    return cells if outside * 5 <= len(pieces) else None


def _compact(lattice: Lattice, cells: list[Cell], size: float) -> Table:
    """Without the rows and columns that only double rules make, and those in which no cell begins."""
    filled_rows, filled_columns = np.zeros(lattice.rows, np.bool_), np.zeros(lattice.columns, np.bool_)
    begin_rows, begin_columns = filled_rows.copy(), filled_columns.copy()
    for cell in cells:
        begin_rows[cell.row], begin_columns[cell.column] = True, True
        if cell.pieces:
            filled_rows[cell.row : cell.row + cell.rowspan] = True
            filled_columns[cell.column : cell.column + cell.colspan] = True
    rows = begin_rows & (filled_rows | (np.diff(lattice.ys) > 0.9 * size))
    columns = begin_columns & (filled_columns | (np.diff(lattice.xs) > 1.2 * size))
    kept = compacted(cells, rows.tolist(), columns.tolist())
    count = int(rows.sum())
    return Table(count, int(columns.sum()), tuple(kept), heading_rows(kept, count))


def is_table(table: Table) -> bool:
    """Whether cells with text make a table of at least two rows and columns, not a frame around text or a form."""
    texts = [cell for cell in table.cells if cell.text]
    if table.rows < 2 or table.columns < 2 or len(texts) < 4:
        return False
    per_row = Counter(cell.row for cell in texts)
    if len(per_row) < 2 or len({cell.column for cell in texts}) < 2:
        return False
    if sum(count > 1 for count in per_row.values()) < max(2, 0.34 * len(per_row)) or _cuts_lines(texts):
        return False
    covered = sum(cell.rowspan * cell.colspan for cell in texts)
    if covered < 0.35 * table.rows * table.columns or len(texts) < 0.3 * len(table.cells):
        return False
    paragraphs = sum(len(cell.text.split()) > _LONG for cell in texts)
    return paragraphs * 2 <= len(texts)


def _cuts_lines(cells: Sequence[Cell]) -> bool:
    """Whether many lines of words lie in several cells: a grid that has nothing to do with the text."""
    cells_of: dict[int, set[int]] = {}
    worded: set[int] = set()
    for number, cell in enumerate(cells):
        for piece in cell.pieces:
            cells_of.setdefault(piece.line, set()).add(number)
            if any(map(str.isalpha, piece.text)):
                worded.add(piece.line)
    cut = sum(len(owners) > 1 for line, owners in cells_of.items() if line in worded)
    return cut > max(2, 0.3 * len(worded))


def is_plain_table(table: Table) -> bool:
    """Whether a grid without rules is certain: most places filled, and a column of numbers."""
    texts = [cell for cell in table.cells if cell.text]
    if len(texts) < 0.6 * table.rows * table.columns:
        return False
    for column in range(1, table.columns):
        values = [cell.text for cell in texts if cell.column == column and cell.colspan == 1 and cell.row > 0]
        if len(values) >= 4 and sum(map(is_number, values)) >= 0.75 * len(values):
            return True
    return False
