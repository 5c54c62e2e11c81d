"""Build pieces of text, columns, and cells, and write tables as Markdown or HTML."""

import html
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from llm_ocr.results.joining import join
from llm_ocr.types import Box, Line
from llm_ocr_cpu.layout.blocks import escape_inline
from llm_ocr_cpu.layout.marks import marked_words, tagged, unmarked

# Words with their positions: rows on one baseline, and segments of a row between wide gaps.


_NUMBER = re.compile(
    r"^[\s(\[<>≤≥~≈±+\-−–—*†‡$€£¥#]*(?:\d[\d\s.,:/×x±^()%\-−–+]*\s?[kKMB%°†‡*]{0,2}|[-–—−]+|n/?a|N/?A|[✓✗×✔✘xX])[\s)\]*†‡%]*$"
)
_DOTS = ".․…·_"
_SPECKS = ("_", "·", ".", "․")
_DOTTED = re.compile(r"(?<=[-–—])[.․…·]+(?=\w)")
_LEADERS = re.compile(r"(?:[.․…·_]\s?){4,}")
#: Least number of characters of a line that is only leader dots.
_SHORTEST_LEADER = 8


@dataclass(frozen=True, slots=True)
class Piece:
    """Word, or whole line without words or with vertical text. `line` is its index on the page.

    `marked` is the text with marks around superscripts and subscripts; empty without any.
    """

    text: str
    box: Box
    line: int
    size: float
    bold: bool = False
    marked: str = ""


@dataclass(frozen=True, slots=True)
class Segment:
    """Adjacent pieces of a row without a wide gap."""

    x0: float
    x1: float
    pieces: tuple[Piece, ...]

    @property
    def text(self) -> str:
        return without_leaders(reading_order(self.pieces))


@dataclass(frozen=True, slots=True)
class Row:
    """Segments on one baseline, left to right. `y` is the mean of the vertical centers."""

    y: float
    size: float
    segments: tuple[Segment, ...]

    @property
    def pieces(self) -> Iterable[Piece]:
        return (piece for segment in self.segments for piece in segment.pieces)


def is_number(text: str) -> bool:
    """Return whether a cell has a value instead of words: digits with signs and units, a dash, a check mark."""
    return _NUMBER.match(text) is not None


def without_leaders(text: str) -> str:
    """Return the text without leader dots, and without a single dot, which is a speck read by OCR."""
    parts = _LEADERS.sub(" ", text).split()
    while len(parts) > 1 and parts[-1] in _SPECKS:
        parts.pop()
    return " ".join(parts)


def is_code(lines: Sequence[Line]) -> bool:
    """Return whether the lines have a monospaced font like code, which has columns without being a table."""
    mono = [line for line in lines if line.mono]
    if mono:  # the fonts are known
        left = min(line.box.x0 for line in mono)
        numbers = sum(line.text.isdecimal() and line.box.x1 <= left and not line.mono for line in lines)
        return len(mono) > 0.6 * (len(lines) - numbers)
    worded = {line.text.strip("0123456789 "): line for line in lines if sum(map(str.isalpha, line.text)) >= 4}
    wordy = sum(sum(map(str.isalpha, line.text)) >= 4 for line in lines)
    if len(worded) < 4 or wordy * 2 < len(lines):  # the digits of most fonts have the same width
        return False
    widths = sorted(line.box.width / len(line.text) for line in worded.values())
    middle = widths[len(widths) // 2]
    return sum(abs(width - middle) < 0.01 * middle for width in widths) > 0.6 * len(worded)


def is_upright(line: Line) -> bool:
    """Return False for lines written upward or downward."""
    return line.box.height <= 1.8 * max(line.size, 1e-6) or line.box.width >= line.box.height or len(line.text) < 3


def line_pieces(index: int, line: Line) -> list[Piece]:
    """Return the words of a line as pieces without leader dots; a vertical line stays whole."""
    if not line.words or not is_upright(line):
        return [Piece(line.text, line.box, index, line.size, line.bold)]
    marked = marked_words(line) if line.scripts else [""] * len(line.words)
    pieces = [
        Piece(word.text, word.box, index, line.size, line.bold or word.bold, text)
        for word, text in zip(line.words, marked, strict=True)
    ]
    dots = [piece.text for piece in pieces if not piece.text.strip(_DOTS)]
    if len(dots) < 4 and not any(len(text) > 3 for text in dots):  # `...` is an ellipsis
        return pieces
    # Print often runs leaders through the words: the remaining dots next to words are removed as well.
    bare = [replace(piece, text=_DOTTED.sub(" ", piece.text.strip(_DOTS)), marked="") for piece in pieces]
    is_value = len(line.text) < _SHORTEST_LEADER  # some tables have "..." for a missing value
    return [piece for piece in bare if piece.text] or (pieces if is_value else [])


def reading_order(pieces: Sequence[Piece]) -> str:
    """Return the words of one row in reading order, with a space at each gap."""
    right_to_left = sum(_is_right_to_left(piece.text) for piece in pieces) * 2 > len(pieces)
    text = ""
    last: Piece | None = None
    for piece in sorted(pieces, key=lambda item: item.box.x0, reverse=right_to_left):
        gap = piece.size
        if last is not None and last.line != piece.line:  # words of one line are always separated
            gap = last.box.x0 - piece.box.x1 if right_to_left else piece.box.x0 - last.box.x1
        text += f" {piece.text}" if gap > 0.1 * piece.size or not text else piece.text
        last = piece
    return text.strip()


def _is_right_to_left(text: str) -> bool:
    return not text.isascii() and any(
        "\u0590" <= character <= "\u08ff" or "\ufb1d" <= character <= "\ufefc" for character in text
    )


def rows_of(pieces: Iterable[Piece], gap: float = 0.7) -> list[Row]:
    """Return rows from top to bottom; a segment ends at a gap of more than `gap` font sizes."""
    groups: list[list[Piece]] = []
    means: list[float] = []
    for piece in sorted(pieces, key=lambda item: item.box.y0 + item.box.y1):
        centre = (piece.box.y0 + piece.box.y1) / 2
        if groups and centre - means[-1] <= 0.45 * max(piece.size, groups[-1][0].size):
            groups[-1].append(piece)
            means[-1] += (centre - means[-1]) / len(groups[-1])
        else:
            groups.append([piece])
            means.append(centre)
    return [_row(group, mean, gap) for group, mean in zip(groups, means, strict=True)]


def _row(group: list[Piece], mean: float, gap: float) -> Row:
    group.sort(key=lambda item: item.box.x0)
    size = max(piece.size for piece in group)
    runs: list[list[Piece]] = []
    reach = 0.0
    for piece in group:
        # Lines separated by the text layer or OCR are usually cells.
        allowed = gap if runs and runs[-1][-1].line == piece.line else min(gap, 0.25)
        if runs and piece.box.x0 - reach <= allowed * size:
            runs[-1].append(piece)
            reach = max(reach, piece.box.x1)
        else:
            runs.append([piece])
            reach = piece.box.x1
    return Row(mean, size, tuple(row_segment(run) for run in runs))


def row_segment(run: Sequence[Piece]) -> Segment:
    """Return pieces, left to right, as one segment."""
    return Segment(min(piece.box.x0 for piece in run), max(piece.box.x1 for piece in run), tuple(run))


# Columns from common gaps between the words of a table's rows.


def most_parted(rows: Sequence[Row]) -> list[Row]:
    """Return the rows that show the columns: those with nearly the maximum number of segments."""
    most = max((len(row.segments) for row in rows), default=0)
    return [row for row in rows if len(row.segments) >= 0.6 * most]


def free_intervals(rows: Sequence[Row], tolerance: float) -> list[tuple[float, float]]:
    """Return intervals of x, between the outermost segments, that at most the share `tolerance` of the rows covers."""
    events: list[tuple[float, int]] = []
    for row in rows:
        for segment in row.segments:
            events.append((segment.x0, 1))
            events.append((segment.x1, -1))
    events.sort(key=lambda event: (event[0], -event[1]))
    allowed = int(tolerance * len(rows))
    found: list[tuple[float, float]] = []
    depth, opened = 0, None
    for x, change in events:
        depth += change
        if depth <= allowed and opened is None:
            opened = x
        elif depth > allowed and opened is not None:
            found.append((opened, x))
            opened = None
    return _inner(found, rows)


def _inner(found: list[tuple[float, float]], rows: Sequence[Row]) -> list[tuple[float, float]]:
    """Return only intervals with segments on both sides in some row."""
    inner = []
    for low, high in found:
        both = sum(row.segments[0].x1 <= high and row.segments[-1].x0 >= low and len(row.segments) > 1 for row in rows)
        if both and high > low:
            inner.append((low, high))
    return inner


# Cells with their text, and the table as Markdown or HTML.


_BULLET = re.compile(r"^\s*[•‣◦▪●○■□◆►▸✓✔\ufffd–-]\s+\S")


@dataclass(slots=True)
class Cell:
    """Cell at `row`, `column` (both from 0) that covers `rowspan` x `colspan` places of the grid."""

    row: int
    column: int
    rowspan: int = 1
    colspan: int = 1
    pieces: list[Piece] = field(default_factory=list)
    text: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """Cells in reading order, and the number of heading rows at the top."""

    rows: int
    columns: int
    cells: tuple[Cell, ...]
    headings: int = 1


def cell_text(pieces: Sequence[Piece]) -> str:
    """Return the pieces of a cell line by line; list items inside the cell are on separate lines."""
    upward = [piece for piece in pieces if piece.box.height > 1.8 * piece.size and len(piece.text) > 2]
    if len(upward) * 2 > len(pieces):
        return " ".join(piece.text for piece in sorted(pieces, key=lambda item: item.box.x0))
    lines = [reading_order(list(row.pieces)) for row in rows_of(pieces)]
    lines = [line.replace("\ufffd", "•", 1) if _BULLET.match(line) else line for line in lines]  # symbol font
    text = ""
    for line in lines:
        text = f"{text}\n{line}" if text and _BULLET.match(line) else join(text, line)
    return "\n".join(without_leaders(line) for line in text.split("\n"))


def with_text(cells: Iterable[Cell]) -> list[Cell]:
    """Return the same cells with their text."""
    chosen = list(cells)
    for cell in chosen:
        cell.text = cell_text(cell.pieces)
    return chosen


def heading_rows(cells: Sequence[Cell], rows: int) -> int:
    """Return the number of heading rows: rows at the top that a spanning cell of the first rows joins, at least one."""
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


def _marked(cell: Cell) -> str:
    """Return the cell's text with marks around superscripts and subscripts."""
    if not any(piece.marked for piece in cell.pieces):
        return cell.text
    text = cell_text([replace(piece, text=piece.marked or piece.text) for piece in cell.pieces])
    return text if unmarked(text) == cell.text else cell.text


def markup(table: Table) -> str:
    """Return a pipe table, or HTML if cells span."""
    table = replace(table, cells=tuple(part for cell in table.cells for part in _places_of(cell)))
    if any(cell.rowspan > 1 or cell.colspan > 1 for cell in table.cells):
        return _html(table)
    grid = [["" for _ in range(table.columns)] for _ in range(table.rows)]
    for cell in table.cells:
        grid[cell.row][cell.column] = _pipe(_marked(cell))
    lines = [f"| {' | '.join(row)} |" for row in grid]
    return "\n".join([lines[0], f"|{' --- |' * table.columns}", *lines[1:]])


def _places_of(cell: Cell) -> Iterator[Cell]:
    """Yield the cell, or the single places of an empty cell, whose span has no meaning."""
    if cell.text:
        yield cell
        return
    for row in range(cell.row, cell.row + cell.rowspan):
        for column in range(cell.column, cell.column + cell.colspan):
            yield Cell(row, column)


def _pipe(text: str) -> str:
    shown = escape_inline(text) if text else ""
    return tagged(shown).replace("|", "\\|").replace("\n", "<br>")


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
    text = tagged(html.escape(_marked(cell), quote=False)).replace("\n", "<br>")
    return f"<{tag}{spans}>{text}</{tag}>"


def compacted(cells: Sequence[Cell], rows: Sequence[bool], columns: Sequence[bool]) -> list[Cell]:
    """Remove rows and columns that are not kept; cells that lose all their places are dropped."""
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
