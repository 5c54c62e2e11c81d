"""Tables set with spaces only: rows that follow one another with the same short cells, each under the one above."""

from collections.abc import Iterator, Sequence
from functools import reduce
from typing import TYPE_CHECKING

import numpy as np

from llm_ocr.engines.embedded.tables.cells import Cell, Table, with_text
from llm_ocr.engines.embedded.tables.pieces import Row, is_number
from llm_ocr.engines.embedded.tables.plain import is_counting, line_rows
from llm_ocr.types import Box

if TYPE_CHECKING:
    from llm_ocr.engines.embedded.tables.finder import Finder

#: Rows, the heading among them, and columns of the smallest table that is found by its alignment alone.
_LEAST_ROWS, _LEAST_COLUMNS = 4, 3
#: Words of the longest cell: what has more may be text in the columns of a page.
_MOST_WORDS = 5
#: White space between two columns, in sizes of the letters.
_APART = 1.2


def aligned_tables(finder: "Finder") -> Iterator[tuple[Box, Table]]:
    """Such tables, the certain ones only: three columns, one of them of values in all rows but the first."""
    for block in _blocks(line_rows(finder)):
        if _has_apart_columns(block) and _has_values(block):
            boxes = [piece.box for row in block for piece in row.pieces]
            box = reduce(Box.union, boxes)
            cells = [
                Cell(number, column, pieces=list(segment.pieces))
                for number, row in enumerate(block)
                for column, segment in enumerate(row.segments)
            ]
            yield box, Table(len(block), len(block[0].segments), tuple(with_text(cells)))


def _blocks(rows: Sequence[Row]) -> Iterator[list[Row]]:
    """Runs of rows with as many cells, aligned with those above, at an even distance."""
    block: list[Row] = []
    for row in rows:
        if block and not _follows(block, row):
            if len(block) >= _LEAST_ROWS:
                yield block
            # The last row may be the heading of the next block.
            block = block[-1:] if _follows(block[-1:], row) else []
        if len(row.segments) >= _LEAST_COLUMNS and all(_is_short(segment.text) for segment in row.segments):
            block.append(row)
        else:
            block = []
    if len(block) >= _LEAST_ROWS:
        yield block


def _is_short(text: str) -> bool:
    return 0 < len(text.split()) <= _MOST_WORDS


def _follows(block: Sequence[Row], row: Row) -> bool:
    last = block[-1]
    if len(last.segments) != len(row.segments) or not 0.7 < row.size / max(last.size, 1e-6) < 1.43:
        return False
    if not all(_is_short(segment.text) for segment in row.segments):
        return False
    step = last.y - block[-2].y if len(block) > 1 else 1.7 * last.size
    if row.y - last.y > 1.5 * step:
        return False
    aligned = sum(
        abs(a.x0 - b.x0) < 0.6 * row.size
        or abs(a.x1 - b.x1) < 0.6 * row.size
        or abs(a.x0 + a.x1 - b.x0 - b.x1) < 0.8 * row.size
        for a, b in zip(last.segments, row.segments, strict=True)
    )
    return aligned == len(row.segments)


def _has_apart_columns(block: Sequence[Row]) -> bool:
    size = float(np.median([row.size for row in block]))
    for column in range(len(block[0].segments) - 1):
        end = max(row.segments[column].x1 for row in block)
        start = min(row.segments[column + 1].x0 for row in block)
        if start - end < _APART * size:
            return False
    return True


def _has_values(block: Sequence[Row]) -> bool:
    """Whether headings without digits stand over a column of values; a table of contents has only its page numbers."""
    heads = [segment.text for segment in block[0].segments]
    if any(_has_digit(head) for head in heads) or any(is_number(head) for head in heads):
        return False
    columns = [[row.segments[number].text for row in block[1:]] for number in range(len(heads))]
    valued = [column for column in columns if all(map(_has_digit, column))]
    return any(not is_counting(column) for column in valued)


def _has_digit(text: str) -> bool:
    return any(map(str.isdigit, text))
