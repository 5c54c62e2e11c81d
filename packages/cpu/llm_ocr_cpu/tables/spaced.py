"""Find tables whose columns are separated by white space or horizontal rules."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise, takewhile
from math import inf
from typing import TYPE_CHECKING

import numpy as np

from llm_ocr.engines.descriptions import TABLE_CAPTION
from llm_ocr.types import Box, Line
from llm_ocr_cpu.tables.cells import (
    Cell,
    Piece,
    Row,
    Segment,
    Table,
    free_intervals,
    is_code,
    is_number,
    most_parted,
    row_segment,
    rows_of,
    with_text,
)
from llm_ocr_cpu.tables.ruled import Floats

if TYPE_CHECKING:
    from llm_ocr_cpu.tables.finder import Finder


# Tables with columns separated by white space: rows from baselines, columns from common gaps.


Rule = tuple[float, float, float]  # y, x0, x1
#: Signs that are part of the value on their right or left, whatever the gap: accounts align them on their own.
_BEFORE_VALUES = frozenset({"$", "€", "£", "¥", "(", "$ (", "$(", "€ (", "£ (", "US$"})
_AFTER_VALUES = frozenset({")", "%", ")%", ") %"})
#: End of an amount: a number after it is another value.
_AMOUNT = re.compile(r"\d[.,]\d\d$")
MOST_HEADINGS = 5  # rows
_ROW_JUMP = 1.2  # least ratio of the distance of rows to that of the lines in a cell
_CLEAR_JUMP = 1.4  # the same ratio if only labels have several lines
_HIGHEST_BAND = 0.7  # of the page, without a heading above it
_MOST_PARTED = 12  # columns above one rule: the time grows exponentially with them


@dataclass(frozen=True, slots=True)
class Area:
    """Search area of a table: its box, its full rules (y, from top to bottom), and the shorter rules inside.

    `cuts` are the places (x) where the fills of several rows meet. `exact`: the cuts are all gaps between columns.
    """

    box: Box
    bands: tuple[float, ...]
    short: tuple[Rule, ...]
    cuts: tuple[float, ...] = ()
    exact: bool = False


def with_rows_around(finder: "Finder", area: Area, *, below: bool = True) -> Area:
    """Extend the area of colored or ruled rows to the rows above and, if `below`, below: headings and the last row."""
    rows = [_cut(row, area.cuts) for row in rows_of(finder.pieces(finder.inside(area.box)))]
    bounds = column_bounds(area, rows)
    if len(bounds) < 2 or len(rows) < 2:
        return area
    size = float(np.median([row.size for row in rows]))
    around = Box(area.box.x0, area.box.y0 - 12 * size, area.box.x1, area.box.y1 + 12 * size)
    pieces = finder.pieces(finder.inside(around))
    step = 1.2 * max(below.y - above.y for above, below in pairwise(rows))
    others = [_cut(row, area.cuts) for row in rows_of(pieces) if not area.box.y0 <= row.y <= area.box.y1]
    top, bottom = rows[0], rows[-1]
    for row in reversed([row for row in others if row.y < area.box.y0]):
        named = below or all(piece.bold for piece in row.pieces)  # rows of a form's fields are also above rules
        if top.y - row.y > step or not named or not _fits_columns(finder, row, area, bounds):
            break
        top = row
    for row in (row for row in others if row.y > area.box.y1):
        total = top is not rows[0] and bottom is rows[-1] and all(piece.bold for piece in row.pieces)
        if not below and not total:
            break
        goes_on = bottom is not rows[-1] and row.y - bottom.y < 1.5 * size and len(row.segments) == 1
        if row.y - bottom.y > step or not (_fits_columns(finder, row, area, bounds) or goes_on):
            break
        bottom = row
    bands = area.bands
    if top is not rows[0]:
        bands = (min(piece.box.y0 for piece in top.pieces) - 0.2 * size, *bands)
    if bottom is not rows[-1]:
        bands = (*bands, max(piece.box.y1 for piece in bottom.pieces) + 0.2 * size)
    return Area(Box(area.box.x0, bands[0], area.box.x1, bands[-1]), bands, area.short, area.cuts)


def _fits_columns(finder: "Finder", row: Row, area: Area, bounds: Sequence[tuple[float, float]]) -> bool:
    """Return whether a row has cells in several columns of an area, and no line across its sides."""
    lines = [finder.content.lines[index].box for index in {piece.line for piece in row.pieces}]
    slack = 0.5 * row.size
    if any(box.x0 < area.box.x0 - slack or box.x1 > area.box.x1 + slack for box in lines):
        return False
    places = [_columns_of(segment, bounds, row.size) for segment in row.segments]
    apart = all(before[1] < after[0] for before, after in pairwise(places))
    return len(places) > 1 and apart and not any(len(segment.text.split()) > 8 for segment in row.segments)


@dataclass(slots=True)
class Entry:
    """Segment with its columns `first` to `last`."""

    first: int
    last: int
    segment: Segment


@dataclass(slots=True)
class Record:
    """Row during construction: its entries, and its band between full rules."""

    y: float
    size: float
    band: int
    entries: list[Entry]

    def at(self, column: int) -> Entry | None:
        return next((entry for entry in self.entries if entry.first <= column <= entry.last), None)


def spaced_table(area: Area, pieces: Sequence[Piece]) -> Table | None:
    """Return the table in an area; None without columns, or for columns of running text."""
    rows = [_with_signs(_cut(row, area.cuts)) for row in rows_of(pieces, inf if area.exact else 0.7)]
    bounds = column_bounds(area, rows)
    if len(bounds) < 2 or len(rows) < 2:
        return None
    records = [_record(area, row, bounds) for row in rows]
    headings = _headings(area, records)
    _span_headings(area, records[:headings], bounds)
    if is_running_text(records[headings:], bounds):
        return None
    head = _joined_headings(records[:headings])
    body = _joined(area, records[headings:], len(bounds))
    return _table([*head, *body], len(bounds), len(head))


def _cut(row: Row, cuts: Sequence[float]) -> Row:
    """Split the segments of a row at cuts between their words, and between two amounts."""
    runs: list[list[Piece]] = []
    for segment in row.segments:
        runs.append([segment.pieces[0]])
        for before, after in pairwise(segment.pieces):
            amounts = _AMOUNT.search(before.text) and is_number(after.text) and any(map(str.isdigit, after.text))
            if amounts or any(before.box.x1 <= cut <= after.box.x0 for cut in cuts):
                runs.append([after])
            else:
                runs[-1].append(after)
    return Row(row.y, row.size, tuple(row_segment(run) for run in runs))


def fill_cuts(vertical: Floats, box: Box) -> tuple[float, ...]:
    """Return the places inside an area where edges of fills are as high together as a third of it."""
    heights: dict[int, float] = {}
    for x, y0, y1 in vertical.tolist():
        inside = min(y1, box.y1) - max(y0, box.y0)
        if inside > 0 and box.x0 + 1 < x < box.x1 - 1:
            heights[round(x)] = heights.get(round(x), 0.0) + inside
    return tuple(float(x) for x, height in sorted(heights.items()) if height > box.height / 3)


def _with_signs(row: Row) -> Row:
    """Join currency signs, parentheses, and percent signs with their values; the extent remains that of the value."""
    joined: list[Segment] = []
    for segment in row.segments:
        before = joined[-1] if joined else None
        pieces = (*(before.pieces if before else ()), *segment.pieces)
        if before and before.text in _BEFORE_VALUES and is_number(segment.text):
            joined[-1] = Segment(segment.x0, segment.x1, pieces)
        elif before and segment.text in _AFTER_VALUES and is_number(before.text.strip("$€£¥( ")):
            joined[-1] = Segment(before.x0, before.x1, pieces)
        else:
            joined.append(segment)
    return Row(row.y, row.size, tuple(joined))


def column_bounds(area: Area, rows: Sequence[Row]) -> list[tuple[float, float]]:
    """Return left and right end of each column's text, from left to right."""
    several = [row for row in rows if len(row.segments) > 1]
    head = _heading_rule(area, [row.y for row in rows], lambda number: [s.text for s in rows[number].segments])
    below = [row for row in several if head is not None and row.y > head]
    if len(below) >= 3:
        several = below
    if len(several) < 2:
        return []
    several = most_parted(several)
    size = float(np.median([row.size for row in several]))
    gaps = [gap for gap in free_intervals(several, 0.15) if gap[1] - gap[0] >= 0.4 * size]
    cuts = [(low + high) / 2 for low, high in gaps]
    edges = [area.box.x0, *cuts, area.box.x1]
    bounds = []
    for left, right in pairwise(edges):
        inside = [s for row in several for s in row.segments if left <= (s.x0 + s.x1) / 2 <= right]
        inside = [s for s in inside if s.x0 >= left - size and s.x1 <= right + size]
        if inside:
            bounds.append((min(s.x0 for s in inside), max(s.x1 for s in inside)))
    return bounds


def _record(area: Area, row: Row, bounds: Sequence[tuple[float, float]]) -> Record:
    entries: list[Entry] = []
    for whole in row.segments:
        for part in _parted(whole, bounds, row.size):
            first, last = _columns_of(part, bounds, row.size)
            above = entries[-1] if entries else None
            if above is not None and first <= above.last:
                # A long label reaches into the next column: the column belongs to the text that has no other.
                if first < last:
                    first = min(above.last + 1, last)
                if first <= above.last and above.first < above.last:
                    above.last = max(above.first, first - 1)
            if above is not None and first <= above.last:
                above.segment = row_segment((*above.segment.pieces, *part.pieces))
                above.last = max(last, above.last)
            else:
                entries.append(Entry(first, last, part))
    return Record(row.y, row.size, sum(y < row.y for y in area.bands), entries)


def _parted(whole: Segment, bounds: Sequence[tuple[float, float]], size: float) -> list[Segment]:
    """Split a segment where a gap between two of its words is in the gap between two columns."""
    cuts = [i for i in range(len(bounds) - 1) if whole.x0 < bounds[i][1] and whole.x1 > bounds[i + 1][0]]
    if not cuts:
        return [whole]
    runs: list[list[Piece]] = [[whole.pieces[0]]]
    for before, after in zip(whole.pieces[:-1], whole.pieces[1:], strict=True):
        low, high = before.box.x1, after.box.x0
        wide = high - low >= 0.3 * size
        on_gap = any(low <= bounds[i][1] + 0.3 * size and high >= bounds[i + 1][0] - 0.3 * size for i in cuts)
        if wide and on_gap:
            runs.append([after])
        else:
            runs[-1].append(after)
    return [row_segment(run) for run in runs]


def _columns_of(part: Segment, bounds: Sequence[tuple[float, float]], size: float) -> tuple[int, int]:
    slack = 0.2 * size
    shared = [min(right, part.x1) - max(left, part.x0) for left, right in bounds]
    over = [i for i, width in enumerate(shared) if width > slack]
    if len(over) > 1 and is_number(part.text):  # a number is one value
        over = [max(over, key=shared.__getitem__)]
    if over:
        return over[0], over[-1]
    centre = (part.x0 + part.x1) / 2
    nearest = min(range(len(bounds)), key=lambda i: max(bounds[i][0] - centre, centre - bounds[i][1]))
    return nearest, nearest


#: Numbers that headings have.
_YEAR = re.compile(r"\b(?:19|20)\d\d\b")


def _headings(area: Area, records: Sequence[Record]) -> int:
    """Return the number of heading rows: those above the rule below them, or without rules, above values; or one.

    A row of words without a label continues the headings.
    """
    if not area.bands:
        worded = list(takewhile(lambda record: len(record.entries) > 1 and _is_worded(record), records[:4]))
        valued = sum(not _is_worded(record) for record in records)
        count = len(worded) if 0 < len(worded) < 4 and valued >= 0.6 * (len(records) - len(worded)) > 0 else 1
        more = takewhile(lambda record: record.at(0) is None and _is_worded(record), records[count:MOST_HEADINGS])
        return count + sum(1 for _ in more)
    ys = [record.y for record in records]
    rule = _heading_rule(area, ys, lambda number: [entry.segment.text for entry in records[number].entries])
    if rule is None:
        return 1
    above = [record for record in records if record.y < rule]
    # The first stripe begins below the first record.
    while len(above) > 1 and above[-1].at(0) and not _is_worded(above[-1]) and not _has_years(above[-1]):
        above.pop()
    return len(above)


def _has_years(record: Record) -> bool:
    return any(_YEAR.search(entry.segment.text) for entry in record.entries)


def _is_worded(record: Record) -> bool:
    return not any(is_number(entry.segment.text) for entry in record.entries)


def _heading_rule(area: Area, ys: Sequence[float], texts: Callable[[int], list[str]]) -> float | None:
    """Return the place of the rule below the headings: the second full rule, or a wide one below rows of words.

    A heading over all rows of headings leaves a gap in the rules of the other columns.

    Args:
        area: Area of the table.
        ys: Places of its rows.
        texts: Returns the texts of a row by its number.
    """
    if len(area.bands) >= 3:
        band = sum(y < ys[0] for y in area.bands)
        rules = [
            y for y in area.bands[band : band + 1] if not _has_values([texts(i) for i, at in enumerate(ys) if at < y])
        ]
    else:
        first = range(min(len(ys), MOST_HEADINGS + 1))
        wide = [y for y, x0, x1 in area.short if x1 - x0 >= 0.5 * area.box.width]
        worded = len(list(takewhile(lambda number: not any(map(is_number, texts(number))), first))) if wide else 0
        rules = [y for y in reversed(wide) if sum(row < y for row in ys) <= worded]
    fitting = (y for y in rules if 0 < sum(row < y for row in ys) <= min(MOST_HEADINGS, len(ys) - 1))
    return next(fitting, None)


def _has_values(rows: Sequence[list[str]]) -> bool:
    """Return whether most of several rows have values after a label: the rule below them is that of a sum."""
    return len(rows) > 2 and sum(any(map(is_number, texts[1:])) for texts in rows) * 2 > len(rows)


def _span_headings(area: Area, head: Sequence[Record], bounds: Sequence[tuple[float, float]]) -> None:
    """Set the span of headings over several columns, by a short rule below them or by their central position."""
    for number, record in enumerate(head):
        below = head[number + 1].y if number + 1 < len(head) else None
        if below is not None:
            _part_shared_rules(area.short, record, below, bounds)
        for entry in record.entries:
            span = _ruled_span(area.short, entry, record, below, bounds)
            if span is None and number + 1 < len(head) and entry.first == entry.last:
                span = _centred_span(entry, record, head[number + 1], bounds)
            if span and not _meets_other(record, entry, span):
                entry.first, entry.last = min(span[0], entry.first), max(span[1], entry.last)


def _part_shared_rules(
    short: Sequence[Rule], record: Record, below: float, bounds: Sequence[tuple[float, float]]
) -> None:
    """Set the spans of headings above one rule: adjacent rules below headings are often drawn as one.

    The headings are centered above their columns.
    """
    for y, x0, x1 in short:
        if not record.y < y < below:
            continue
        over = [i for i, (left, right) in enumerate(bounds) if x0 <= (left + right) / 2 <= x1]
        named = [entry for entry in record.entries if x0 <= (entry.segment.x0 + entry.segment.x1) / 2 <= x1]
        if not 2 <= len(named) < len(over) <= _MOST_PARTED:
            continue
        edges = [x0, *((bounds[i][1] + bounds[i + 1][0]) / 2 for i in over[:-1]), x1]
        centres = [(entry.segment.x0 + entry.segment.x1) / 2 for entry in named]
        parts = [(0, *cuts, len(over)) for cuts in combinations(range(1, len(over)), len(named) - 1)]
        best = min(parts, key=lambda cuts: _off_centre(cuts, edges, centres))
        for entry, (first, after) in zip(named, pairwise(best), strict=True):
            entry.first, entry.last = over[first], over[after - 1]


def _off_centre(cuts: Sequence[int], edges: Sequence[float], centres: Sequence[float]) -> float:
    middles = [(edges[first] + edges[after]) / 2 for first, after in pairwise(cuts)]
    return sum(abs(middle - centre) for middle, centre in zip(middles, centres, strict=True))


def _meets_other(record: Record, entry: Entry, span: tuple[int, int]) -> bool:
    return any(other is not entry and other.first <= span[1] and other.last >= span[0] for other in record.entries)


def _ruled_span(
    short: Sequence[Rule], entry: Entry, record: Record, below: float | None, bounds: Sequence[tuple[float, float]]
) -> tuple[int, int] | None:
    centre = (entry.segment.x0 + entry.segment.x1) / 2
    for y, x0, x1 in short:
        under = record.y < y < (below if below is not None else record.y + 1.5 * record.size)
        if under and x0 <= centre <= x1:
            over = [i for i, (left, right) in enumerate(bounds) if x0 <= (left + right) / 2 <= x1]
            if over:
                return over[0], over[-1]
    return None


def _centred_span(
    entry: Entry, record: Record, below: Record, bounds: Sequence[tuple[float, float]]
) -> tuple[int, int] | None:
    centre = (entry.segment.x0 + entry.segment.x1) / 2
    left = right = entry.first
    best: tuple[int, int] | None = None
    # The first column is the heading of the rows, which no heading of the columns covers.
    while left > 1 and record.at(left - 1) is None and below.at(left - 1):
        left -= 1
    while right + 1 < len(bounds) and record.at(right + 1) is None and below.at(right + 1):
        right += 1
    for first in range(left, entry.first + 1):
        for last in range(entry.first, right + 1):
            middle = (bounds[first][0] + bounds[last][1]) / 2
            wider = best is None or last - first > best[1] - best[0]
            if last > first and wider and abs(middle - centre) <= 0.8 * record.size:
                best = (first, last)
    return best


def is_running_text(records: Sequence[Record], bounds: Sequence[tuple[float, float]]) -> bool:
    """Return whether the columns are those of a page: most of their lines are full and have words."""
    running = 0
    for column, (left, right) in enumerate(bounds):
        lines = [r.entries for r in records]
        own = [e.segment for entries in lines for e in entries if e.first == e.last == column]
        full = sum(s.x1 - s.x0 >= 0.8 * (right - left) and len(s.text.split()) >= 4 for s in own)
        running += len(own) >= 3 and full >= 0.6 * len(own)
    return running == len(bounds) or (running >= 2 and running >= len(bounds) - 1)


def _joined_headings(head: list[Record]) -> list[Record]:
    """Join headings of one column on several lines to one row; rows stay if a heading spans columns."""
    joined: list[Record] = []
    for record in head:
        above = joined[-1] if joined else None
        if above is None or any(entry.last > entry.first for entry in above.entries):
            joined.append(record)
        else:
            _append(above, record)
    return joined


def _joined(area: Area, body: list[Record], columns: int) -> list[Record]:
    """Join lines that continue the text of the row above to that row."""
    banded = _is_banded(area, body)
    spacing, apart = _spacing(body), _row_distance(body)
    joined: list[Record] = []
    last_y = 0.0
    for record in body:
        above = joined[-1] if joined else None
        if above and (
            (banded and record.band == above.band)
            or (record.band == above.band and record.y - last_y < apart)
            or (record.band == above.band and record.y - last_y <= 1.4 * spacing and _goes_on(above, record, columns))
        ):
            _append(above, record)
        else:
            joined.append(record)
        last_y = record.y
    return joined


def _spacing(body: Sequence[Record]) -> float:
    steps = [below.y - above.y for above, below in pairwise(body)]
    return float(np.percentile(steps, 25)) if steps else 0.0


def _row_distance(body: Sequence[Record]) -> float:
    """Return the least distance of two rows if it tells them from the lines of a cell; otherwise 0."""
    steps = sorted(below.y - above.y for above, below in pairwise(body))
    if len(steps) < 4 or steps[0] <= 0:
        return 0.0
    jump, low, high = max((after / before, before, after) for before, after in pairwise(steps))
    distance = (low + high) / 2
    rows = [True, *(below.y - above.y > distance for above, below in pairwise(body))]
    going = [record for record, is_row in zip(body, rows, strict=True) if not is_row]
    if jump < _ROW_JUMP or any(is_row and not record.at(0) for record, is_row in zip(body, rows, strict=True)):
        return 0.0
    texts = [entry.segment.text for record in going for entry in record.entries]
    wrapped = sum(text[:1].islower() for text in texts)
    sentences = sum(len(entry.segment.text.split()) >= SENTENCE for record in body for entry in record.entries)
    certain = wrapped >= 0.5 * len(texts) and sentences * 3 >= len(body) and sum(map(is_number, texts)) * 5 < len(texts)
    labels = all(len(record.entries) == 1 and record.at(0) for record in going) and not any(map(is_number, texts))
    return distance if certain or (labels and jump >= _CLEAR_JUMP) else 0.0


def _is_banded(area: Area, body: Sequence[Record]) -> bool:
    """Return whether each stretch between two full rules is one row: at most one key, and no stacked values."""
    bands: dict[int, list[Record]] = {}
    for record in body:
        bands.setdefault(record.band, []).append(record)
    if len(bands) < 3 or all(len(records) == 1 for records in bands.values()):
        return False
    keys = [sum(record.at(0) is not None for record in records) for records in bands.values()]
    values = [(r.band, e.first, is_number(e.segment.text)) for r in body for e in r.entries if e.first > 0]
    numbers = [place for *place, is_value in values if is_value]
    apart = len({tuple(place) for place in numbers}) == len(numbers)
    return max(keys) <= 1 and (apart or len(numbers) * 2 <= len(values))


def _goes_on(above: Record, record: Record, columns: int) -> bool:
    """Return whether every entry continues words in the same column of the row above, without a new key."""
    if len(record.entries) == columns:
        return False
    for entry in record.entries:
        upper = above.at(entry.first)
        text = entry.segment.text
        if upper is None or (upper.first, upper.last) != (entry.first, entry.last):
            return False
        key = entry.first == 0 and _continues_key(upper.segment, entry.segment, record.size)
        if not key and (entry.first == 0 or not any(map(str.isalpha, text))):
            return False  # a value, such as "/25", begins a row
    return True


def _continues_key(upper: Segment, lower: Segment, size: float) -> bool:
    indented = lower.x0 - min(piece.box.x0 for piece in upper.pieces) > 0.4 * size
    return lower.text[:1].islower() or upper.text.endswith(("-", ",", "/", "(")) or (indented and lower.text[:1] == "(")


def _append(above: Record, record: Record) -> None:
    for entry in record.entries:
        upper = above.at(entry.first)
        if upper is None:
            above.entries.append(entry)
        else:
            upper.first, upper.last = min(upper.first, entry.first), max(upper.last, entry.last)
            upper.segment = row_segment([*upper.segment.pieces, *entry.segment.pieces])
    above.entries.sort(key=lambda entry: entry.first)


def _table(records: Sequence[Record], columns: int, headings: int) -> Table:
    cells = []
    for row, record in enumerate(records):
        taken = -1
        for entry in record.entries:
            first = max(entry.first, taken + 1)
            if entry.last >= first:
                cells.append(Cell(row, first, 1, entry.last - first + 1, list(entry.segment.pieces)))
                taken = entry.last
        used = {c for cell in cells if cell.row == row for c in range(cell.column, cell.column + cell.colspan)}
        cells.extend(Cell(row, column) for column in range(columns) if column not in used)
    cells = _reaching_down(cells, headings)
    return Table(len(records), columns, tuple(with_text(cells)), headings)


def _reaching_down(cells: Sequence[Cell], headings: int) -> list[Cell]:
    """Extend each heading of one column over the empty places below it in the heading rows."""
    empty = {(cell.row, cell.column) for cell in cells if not cell.pieces and cell.row < headings}
    for cell in cells:
        if cell.pieces and cell.row < headings and cell.colspan == 1:
            while (cell.row + cell.rowspan, cell.column) in empty:
                empty.remove((cell.row + cell.rowspan, cell.column))
                cell.rowspan += 1
    return [cell for cell in cells if cell.pieces or cell.row >= headings or (cell.row, cell.column) in empty]


# Parallel horizontal rules of equal extent with tabular text between them.


SENTENCE = 4  # words of a line of running text in a narrow column
_MAX_RULES = 200  # per page; more are graph paper or a map


def rule_chains(finder: "Finder", horizontal: Floats) -> Iterator[Area]:
    """Yield areas between rules of equal extent without running text in any band, from top to bottom of each chain."""
    content = finder.content
    long = horizontal[horizontal[:, 2] - horizontal[:, 1] >= 0.1 * content.width]
    for table in finder.found:  # its rules are used up
        box = table.box.grown(0.003 * content.height)
        y, x0, x1 = long.T
        long = long[(y < box.y0) | (y > box.y1) | (x0 > box.x1) | (x1 < box.x0)]
    if len(long) < 2 or len(long) > _MAX_RULES:
        return
    for group in _equal_extents(long, 0.012 * content.width):
        y, x0, x1 = group[:, 0], float(group[:, 1].min()), float(group[:, 2].max())
        run: list[float] = []
        for top, bottom in zip(y[:-1].tolist(), y[1:].tolist(), strict=True):
            above = Box(x0, run[-2], x1, run[-1]) if run else None
            if _is_band(finder, Box(x0, top, x1, bottom), above):
                run = [*run, bottom] if run else [top, bottom]
            elif run:
                yield from _area(finder, run, x0, x1, horizontal)
                run = []
        if run:
            yield from _area(finder, run, x0, x1, horizontal)


def _equal_extents(rules: Floats, slack: float) -> list[Floats]:
    groups: list[list[list[float]]] = []
    for rule in rules.tolist():
        for group in groups:
            if abs(group[0][1] - rule[1]) <= slack and abs(group[0][2] - rule[2]) <= slack:
                group.append(rule)
                break
        else:
            groups.append([rule])
    return [np.array(group) for group in groups if len(group) > 1]


def _is_band(finder: "Finder", box: Box, above: Box | None) -> bool:
    """Return whether a band between two rules has rows of a table; `above` is the table's band above it."""
    if any(table.box.covered_by(box) > 0.5 for table in finder.found):
        return False  # rules of the page around a table, not of a table
    if above is None and box.height > _HIGHEST_BAND * finder.content.height:
        return False  # rules of the header and footer
    members = finder.inside(box)
    lines = finder.content.lines
    if not members:
        return box.height < 0.04 * finder.content.height
    if any(TABLE_CAPTION.match(lines[index].text) for index in members):
        return False
    if is_code([lines[index] for index in members]):
        return False
    rows = rows_of(finder.pieces(members))
    if not _is_text(rows, box) and not _has_paragraphs([lines[index] for index in members]):
        return True
    return above is not None and _has_columns_of(rows, rows_of(finder.pieces(finder.inside(above))))


def _has_paragraphs(lines: Sequence[Line]) -> bool:
    """Return whether nearly all lines are those of paragraphs, in any number of columns."""
    stacked: set[int] = set()
    ordered = sorted(lines, key=lambda line: line.box.y0)
    for number, line in enumerate(ordered):
        if len(line.text.split()) < SENTENCE:
            continue
        for other in range(number + 1, len(ordered)):
            below = ordered[other]
            if below.box.y0 - line.box.y0 > 1.8 * line.size:
                break
            begins = abs(below.box.x0 - line.box.x0) < 2 * line.size and below.box.y0 > line.box.centre[1]
            if begins and len(below.text.split()) >= SENTENCE and abs(below.box.x1 - line.box.x1) < 0.7 * line.size:
                stacked |= {number, other}
    return len(stacked) >= 6 and len(stacked) >= 0.5 * len(lines)


def _has_columns_of(rows: Sequence[Row], above: Sequence[Row]) -> bool:
    """Return whether rows of long cells have the columns of the rows above, as the parts of one table have."""
    starts = [segment.x0 for row in above if len(row.segments) > 1 for segment in row.segments]
    own = [(segment.x0, row.size) for row in rows if len(row.segments) > 1 for segment in row.segments]
    alike = sum(any(abs(x0 - start) < 0.5 * size for start in starts) for x0, size in own)
    return len(own) >= 2 * len(rows) and alike == len(own)


def _is_text(rows: Sequence[Row], box: Box) -> bool:
    """Return whether most rows extend over the whole width, in one column or two."""
    if len(rows) < 2:
        return False
    wide = side_by_side = 0
    for row in rows:
        covered = sum(segment.x1 - segment.x0 for segment in row.segments)
        words = [len(segment.text.split()) for segment in row.segments]
        wide += len(words) == 1 and covered >= 0.75 * box.width and words[0] >= 4
        side_by_side += 2 <= len(words) <= 3 and covered >= 0.72 * box.width and min(words) >= 3
    return wide > 0.5 * len(rows) or (len(rows) >= 5 and wide + side_by_side >= 0.55 * len(rows))


def _area(finder: "Finder", run: list[float], x0: float, x1: float, rules: Floats) -> Iterator[Area]:
    """Yield the area of a run, without bands at its end that contain a note instead of a row."""
    while len(run) > 2 and not _has_columns(finder, Box(x0, run[-2], x1, run[-1])):
        run = run[:-1]
    box = Box(x0, run[0], x1, run[-1])
    rows = rows_of(finder.pieces(finder.inside(box)))
    several = sum(len(row.segments) > 1 for row in rows)
    if several < (2 if len(run) > 2 else 3) or (len(run) == 2 and several < 0.6 * len(rows)):
        return
    yield Area(box, tuple(run), short_rules(rules, box))


def single_bands(finder: "Finder", area: Area, horizontal: Floats) -> Iterator[Area]:
    """Yield the bands of a chain that is no table as a whole: frames of the same width are above or below a table."""
    for top, bottom in pairwise(area.bands):
        yield from _area(finder, [top, bottom], area.box.x0, area.box.x1, horizontal)


def _has_columns(finder: "Finder", box: Box) -> bool:
    return any(len(row.segments) > 1 for row in rows_of(finder.pieces(finder.inside(box))))


def short_rules(rules: Floats, box: Box) -> tuple[Rule, ...]:
    """Return rules inside the box that do not extend over its whole width."""
    found = []
    for y, x0, x1 in rules.tolist():
        inside = box.y0 < y < box.y1 and x0 >= box.x0 - 0.02 * box.width and x1 <= box.x1 + 0.02 * box.width
        if inside and x1 - x0 < 0.9 * box.width:
            found.append((y, x0, x1))
    return tuple(found)
