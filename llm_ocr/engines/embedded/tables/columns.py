"""Columns from the gaps between words that the rows of a table have in common."""

from collections.abc import Sequence

from llm_ocr.engines.embedded.tables.pieces import Row


def most_parted(rows: Sequence[Row]) -> list[Row]:
    """The rows that show the columns: those with nearly as many segments as any."""
    most = max((len(row.segments) for row in rows), default=0)
    return [row for row in rows if len(row.segments) >= 0.6 * most]


def free_intervals(rows: Sequence[Row], tolerance: float) -> list[tuple[float, float]]:
    """Stretches of x, between the outermost segments, that at most the share `tolerance` of the rows covers."""
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
    """Only those that have segments on both sides in some row."""
    inner = []
    for low, high in found:
        both = sum(row.segments[0].x1 <= high and row.segments[-1].x0 >= low and len(row.segments) > 1 for row in rows)
        if both and high > low:
            inner.append((low, high))
    return inner
