"""Tables whose columns are parted by white space: rows from baselines, columns from common gaps."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from llm_ocr.engines.embedded.tables.cells import Cell, Table, with_text
from llm_ocr.engines.embedded.tables.columns import free_intervals, most_parted
from llm_ocr.engines.embedded.tables.pieces import Piece, Row, Segment, is_number, rows_of, segment
from llm_ocr.types import Box

Rule = tuple[float, float, float]  # y, x0, x1


@dataclass(frozen=True, slots=True)
class Area:
    """Where a table is looked for: its box, its full rules (y, from top to bottom) and the shorter ones inside."""

    box: Box
    bands: tuple[float, ...]
    short: tuple[Rule, ...]


@dataclass(slots=True)
class Entry:
    """A segment with the columns `first` to `last` that it stands in."""

    first: int
    last: int
    segment: Segment


@dataclass(slots=True)
class Record:
    """A row while it is built: its entries, its band between full rules."""

    y: float
    size: float
    band: int
    entries: list[Entry]

    def at(self, column: int) -> Entry | None:
        return next((entry for entry in self.entries if entry.first <= column <= entry.last), None)


def spaced_table(area: Area, pieces: Sequence[Piece]) -> Table | None:
    """The table in an area, None when its rows show no columns or its columns are running text."""
    rows = rows_of(pieces)
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


def column_bounds(area: Area, rows: Sequence[Row]) -> list[tuple[float, float]]:
    """Left and right end of each column's text, from left to right."""
    several = [row for row in rows if len(row.segments) > 1]
    below = [row for row in several if len(area.bands) >= 3 and row.y > area.bands[1]]
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
            if entries and first <= entries[-1].last:
                merged = (*entries[-1].segment.pieces, *part.pieces)
                entries[-1] = Entry(entries[-1].first, max(last, entries[-1].last), segment(merged))
            else:
                entries.append(Entry(first, last, part))
    return Record(row.y, row.size, sum(y < row.y for y in area.bands), entries)


def _parted(whole: Segment, bounds: Sequence[tuple[float, float]], size: float) -> list[Segment]:
    """A segment cut where a gap between two of its words lies on the gap between two columns."""
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
    return [segment(run) for run in runs]


def _columns_of(part: Segment, bounds: Sequence[tuple[float, float]], size: float) -> tuple[int, int]:
    slack = 0.2 * size
    over = [i for i, (left, right) in enumerate(bounds) if min(right, part.x1) - max(left, part.x0) > slack]
    if over:
        return over[0], over[-1]
    centre = (part.x0 + part.x1) / 2
    nearest = min(range(len(bounds)), key=lambda i: max(bounds[i][0] - centre, centre - bounds[i][1]))
    return nearest, nearest


def _headings(area: Area, records: Sequence[Record]) -> int:
    """Rows above the second full rule are headings, when there are rows of values below; else the first row is."""
    if len(area.bands) >= 3:
        first = records[0].band
        above = sum(record.band == first for record in records)
        if 0 < above <= 5 and above < len(records):
            return above
    return 1


def _span_headings(area: Area, head: Sequence[Record], bounds: Sequence[tuple[float, float]]) -> None:
    """Headings over several columns: as a short rule below them shows, or by their place in the middle."""
    for number, record in enumerate(head):
        below = head[number + 1].y if number + 1 < len(head) else None
        for entry in record.entries:
            span = _ruled_span(area.short, entry, record, below, bounds)
            if span is None and number + 1 < len(head) and entry.first == entry.last:
                span = _centred_span(entry, record, head[number + 1], bounds)
            if span and not any(other is not entry and _meets(other, span) for other in record.entries):
                entry.first, entry.last = min(span[0], entry.first), max(span[1], entry.last)


def _meets(entry: Entry, span: tuple[int, int]) -> bool:
    return entry.first <= span[1] and entry.last >= span[0]


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
    while left > 0 and record.at(left - 1) is None and below.at(left - 1):
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
    """Whether the columns are those of a page: most of their lines fill them, and hold words."""
    running = 0
    for column, (left, right) in enumerate(bounds):
        lines = [r.entries for r in records]
        own = [e.segment for entries in lines for e in entries if e.first == e.last == column]
        full = sum(s.x1 - s.x0 >= 0.8 * (right - left) and len(s.text.split()) >= 4 for s in own)
        running += len(own) >= 3 and full >= 0.6 * len(own)
    return running == len(bounds) or (running >= 2 and running >= len(bounds) - 1)


def _joined_headings(head: list[Record]) -> list[Record]:
    """Headings of one column on several lines become one row; where a heading spans columns, rows stay."""
    joined: list[Record] = []
    for record in head:
        above = joined[-1] if joined else None
        if above is None or any(entry.last > entry.first for entry in above.entries):
            joined.append(record)
        else:
            _append(above, record)
    return joined


def _joined(area: Area, body: list[Record], columns: int) -> list[Record]:
    """Lines that go on with the text of the row above are joined to it."""
    banded = _is_banded(area, body)
    spacing = _spacing(body)
    joined: list[Record] = []
    last_y = 0.0
    for record in body:
        above = joined[-1] if joined else None
        if above and (
            (banded and record.band == above.band)
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


def _is_banded(area: Area, body: Sequence[Record]) -> bool:
    """Whether each stretch between two full rules is one row: none has two keys, and cells are words."""
    bands: dict[int, list[Record]] = {}
    for record in body:
        bands.setdefault(record.band, []).append(record)
    if len(bands) < 3 or all(len(records) == 1 for records in bands.values()):
        return False
    keys = [sum(record.at(0) is not None for record in records) for records in bands.values()]
    values = [e.segment.text for r in body for e in r.entries if e.first > 0]
    return max(keys) <= 1 and sum(map(is_number, values)) * 2 <= len(values)


def _goes_on(above: Record, record: Record, columns: int) -> bool:
    """Whether every entry continues words in the same column of the row above, and the key is not set anew."""
    if len(record.entries) == columns:
        return False
    for entry in record.entries:
        upper = above.at(entry.first)
        text = entry.segment.text
        if upper is None or (upper.first, upper.last) != (entry.first, entry.last) or is_number(text):
            return False
        if entry.first == 0 and not _continues_key(upper.segment, entry.segment, record.size):
            return False
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
            upper.segment = segment([*upper.segment.pieces, *entry.segment.pieces])
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
    return Table(len(records), columns, tuple(with_text(cells)), headings)
