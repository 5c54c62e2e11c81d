"""Judge an answer's tables: text columns and forms read as tables, and cells in wrong places, are defects."""

import html
import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from llm_ocr.results.quality import TABULAR
from llm_ocr.results.quality.text_layer import BlockText, in_rows, plain, size_of, words_of
from llm_ocr.types import BlockKind, Box, Span

_ROW = re.compile(r"<tr[^>]{0,300}>", re.IGNORECASE)
_CELL = re.compile(r"<t[dh]\b([^>]{0,300})>([^<]*(?:<(?!/?t[dhr]\b)[^<]*)*)", re.IGNORECASE)
_SPAN = re.compile(r"(col|row)span\s*=\s*[\"']?(\d{1,3})", re.IGNORECASE)
_TAG = re.compile(r"<[^<>]{1,300}>")
_BAR = re.compile(r"(?<!\\)\|")
_RULER = re.compile(r"[\s|:-]+")

#: Words of a paragraph, of a key, of a part of a sentence, and of the smallest part in a column of running text.
_PARAGRAPH, _KEY, _PART, _SCRAP = 40, 8, 3, 2
#: A column of running text: minimum number and share of cells that go on in the next row, and minimum share of cells
#: in which a sentence begins. The tables of `benchmarks/quality.py` reach no such column.
_RUNNING, _GOING, _BEGUN = 4, 0.4, 0.1
_SENTENCE = re.compile(r"[a-z\d)][.!?][\"”’)]?\s+[\"“(]?[A-Z]")
#: Share of empty cells up to which a table is ordinary: many have a column of marks.
_EMPTY = 0.5
#: Largest defect of a grid alone, with empty cells or uneven rows: its cells still have their text.
_GRID = 0.3
#: Share of the page from which a table is likely to be the page's layout, and the weight of its defects then.
_COVERING, _WEIGHT = 0.6, 2.0
#: Fewest letters of a cell that is looked up in other rows.
_LEAST_CELL = 2
#: Maximum cells that are judged.
_MOST = 20_000


@dataclass(frozen=True, slots=True)
class _Cell:
    text: str
    columns: int
    rows: int


def table_parts(texts: Sequence[BlockText]) -> dict[str, float]:
    """Return the share of the answer's text outside of defective tables; empty for an answer without tables."""
    total = sum(size_of(entry.chunks) for entry in texts)
    tables = [entry for entry in texts if entry.block.kind is BlockKind.TABLE]
    if not tables or not total:
        return {}
    lost = sum(size_of(entry.chunks) * _defect(entry.block.text, entry.block.box.area) for entry in tables)
    return {TABULAR: max(0.0, 1 - lost / total)}


def _defect(text: str, area: float) -> float:
    """Return the defective share of a table; `area` is its share of the page."""
    rows = [row for _, row in _placed_rows(text)]
    cells = [cell for row in rows for cell in row]
    words = sum(len(cell.text.split()) for cell in cells)
    if not words or len(cells) > _MOST:
        return 0.0
    empty = sum(not cell.text for cell in cells) / len(cells)
    weight = _WEIGHT if _COVERING <= area < 1 else 1.0
    grid = min(_GRID, weight * (max(0.0, empty - _EMPTY) / (1 - _EMPTY) + _ragged(rows)))
    return min(1.0, weight * _prose(rows) / words + grid)


def _placed_rows(text: str) -> list[tuple[tuple[int, int], list[_Cell]]]:
    """Return the places and cells of the rows of a table."""
    rows: list[tuple[tuple[int, int], list[_Cell]]] = []
    if "<t" in text.lower():
        starts = [found.start() for found in _ROW.finditer(text)]
        for place in pairwise([*starts, len(text)]):
            cells = []
            for attributes, inner in _CELL.findall(text[slice(*place)]):
                spans = {name.lower(): max(1, int(number)) for name, number in _SPAN.findall(attributes)}
                words = html.unescape(_TAG.sub(" ", inner)).strip()
                cells.append(_Cell(words, spans.get("col", 1), spans.get("row", 1)))
            rows.append((place, cells))
        return rows
    start = 0
    for whole in text.split("\n"):
        line = whole.strip()
        if "|" in line and not _RULER.fullmatch(line):
            parts = _BAR.split(line.removeprefix("|"))[:-1]
            place = start, start + len(whole)
            rows.append((place, [_Cell(part.replace("<br>", " ").strip(), 1, 1) for part in parts]))
        start += len(whole) + 1
    return rows


class _Found(NamedTuple):
    """Row of a table that the page has: the words of its cells, and the words of the page at its height.

    `height`: number of the height; None if another height has the same cells.
    """

    cells: list[list[str]]
    words: list[str]
    height: int | None


def misplaced_rows(lines: Sequence[tuple[str, Box]], texts: Sequence[BlockText], *, level: bool) -> list[Span]:
    """Return the places of table rows whose cells are in the wrong columns or rows.

    The cells of a row must be in one height of the page, in their order. A cell is in the wrong row if the height of
    its row lacks it, and that of the row above or below has it without a cell for it there. A row is in the wrong
    place if it is above the row before it.

    Args:
        lines: Texts and relative boxes of the page's lines, in the answer's orientation.
        texts: The texts of the answer's blocks.
        level: Whether the lines of a row have one height. On scans, which may be skewed, only columns are compared.
    """
    tables = [(number, entry.block.text) for number, entry in enumerate(texts) if entry.block.kind is BlockKind.TABLE]
    if not tables:
        return []
    heights = _heights(lines)
    having: dict[str, list[int]] = {}
    for number, words in enumerate(heights):
        for word in dict.fromkeys(words):
            having.setdefault(word, []).append(number)
    found = []
    for block, text in tables:
        rows = _placed_rows(text)
        if sum(len(row) for _, row in rows) > _MOST:
            continue
        placed = [_place_of(row, heights, having) for _, row in rows]
        for number, ((start, end), row) in enumerate(zip((place for place, _ in rows), placed, strict=True)):
            others = (*placed[max(0, number - 1) : number], *placed[number + 1 : number + 2]) if level else ()
            if row and (
                not _is_in_order(row.cells, row.words)
                or any(other and _is_from(other, row) for other in others)
                or (level and _is_above(placed[max(0, number - 2) : number + 1]))
            ):
                found.append(Span(block, start, end))
    return found


def _heights(lines: Sequence[tuple[str, Box]]) -> list[list[str]]:
    """Return the words of the page at each height, from left to right; none that are written to the left."""
    rows = in_rows([box for _, box in lines])
    words = [[word for number in row for word in words_of(lines[number][0])] for row in rows]
    return [row for row in words if not any(unicodedata.bidirectional(word[0]) in ("R", "AL") for word in row)]


def _place_of(row: Sequence[_Cell], heights: Sequence[list[str]], having: Mapping[str, list[int]]) -> _Found | None:
    """Return the height that has most letters of a row, and more than half; preferably with its cells in order."""
    cells = [words for cell in row if (words := words_of(plain(cell.text)))]
    best: tuple[int, bool] = (0, False)
    chosen: list[int] = []
    for number in sorted({number for cell in cells for number in having.get(cell[0], ())}):
        words = heights[number]
        here = [cell for cell in cells if _starts(cell, words)]
        rank = sum(len("".join(cell)) for cell in here), _is_in_order(cells, words)
        if len(here) > 1 and rank >= best:
            chosen = [*chosen, number] if rank == best else [number]
            best = rank
    if not chosen or 2 * best[0] <= sum(len("".join(cell)) for cell in cells):
        return None
    return _Found(cells, heights[chosen[0]], chosen[0] if len(chosen) == 1 else None)


def _starts(cell: Sequence[str], words: Sequence[str]) -> list[int]:
    """Return where the words of a cell are in words of the page."""
    size = len(cell)
    return [at for at in range(len(words) - size + 1) if words[at] == cell[0] and words[at : at + size] == cell]


def _is_in_order(cells: Sequence[list[str]], words: Sequence[str]) -> bool:
    """Return whether the cells that both the row and the page have once are in order."""
    places = [_starts(cell, words) for cell in cells if cells.count(cell) == 1]
    once = [some[0] for some in places if len(some) == 1]
    return once == sorted(once)


def _is_from(other: _Found, row: _Found) -> bool:
    """Return whether a row has a cell of another row."""
    return any(
        not _starts(cell, row.words)
        and len("".join(cell)) >= _LEAST_CELL
        and len(_starts(cell, other.words)) > other.cells.count(cell)
        for cell in row.cells
    )


def _is_above(rows: Sequence[_Found | None]) -> bool:
    """Return whether the last row is between the last but one and a row before it.

    Rows that go on in another column of the page begin above all rows before them.
    """
    heights = [row.height for row in rows if row and row.height is not None]
    return len(heights) == len(rows) > 2 and min(heights) < heights[-1] < heights[-2]


def _prose(rows: Sequence[Sequence[_Cell]]) -> int:
    """Return the words of paragraphs without a key in their row, and of sentences that go on in the next row."""
    found = 0
    for row in rows:
        counts = [len(cell.text.split()) for cell in row]
        if not any(0 < count <= _KEY for count in counts):
            found += sum(count for count in counts if count > _PARAGRAPH)
    columns = range(max(map(len, rows), default=0))
    return found + max(sum(_running(rows, column) for column in columns), _divided(rows))


def _divided(rows: Sequence[Sequence[_Cell]]) -> int:
    """Return the words of pairs of cells whose sentence goes on below. A single pair is a row that was divided."""
    pairs = [
        len(above.text.split()) + len(below.text.split())
        for upper, lower in pairwise(rows)
        for above, below in zip(upper, lower, strict=False)
        # A list of phrases in lower case is an ordinary column.
        if above.text[:1].isupper() and _goes_on(above.text, below.text, _PART)
    ]
    return sum(pairs) if len(pairs) > 1 else 0


def _running(rows: Sequence[Sequence[_Cell]], column: int) -> int:
    """Return the words of a column of running text: most cells go on in the next row, and sentences begin in some."""
    texts = [
        row[column].text
        for row in rows
        # A row with one cell continues the row above.
        if column < len(row) and sum(bool(cell.text) for cell in row) > (len(row) > 1) and row[column].text
    ]
    going = sum(_goes_on(upper, lower, _SCRAP) for upper, lower in pairwise(texts))
    begun = sum(bool(_SENTENCE.search(text)) for text in texts)
    begun += sum(
        lower[0].isupper() if upper[-1] in ".!?" else upper[0].isupper() and _goes_on(upper, lower, _SCRAP)
        for upper, lower in pairwise(texts)
    )
    if going < _RUNNING or going < _GOING * (len(texts) - 1) or begun < max(2, _BEGUN * len(texts)):
        return 0
    return sum(len(text.split()) for text in texts)


def _goes_on(upper: str, lower: str, least: int) -> bool:
    """Return whether the lower cell continues a sentence of the upper one; both have `least` words or more."""
    sizes = len(upper.split()), len(lower.split())
    if min(sizes) < least or max(sizes) > _PARAGRAPH:
        return False
    return upper[-1] == "-" or (lower[0].islower() and (upper[-1].isalpha() or upper[-1] == ","))


def _ragged(rows: Sequence[Sequence[_Cell]]) -> float:
    """Return the share of rows whose width is not that of most rows; rows below spans over rows are not judged."""
    widths, below = [], 0
    for row in rows:
        if not below:
            widths.append(sum(cell.columns for cell in row))
        below = max(0, below - 1, *(cell.rows - 1 for cell in row), 0)
    if len(widths) < 3:
        return 0.0
    return 1 - Counter(widths).most_common(1)[0][1] / len(widths)
