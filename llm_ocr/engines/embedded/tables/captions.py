"""Captions of tables: a line that begins with "Table 3" beside the table, and the lines that go on with it."""

import math
import re
from collections.abc import Collection, Sequence

from llm_ocr.engines.embedded.caption_words import TABLE_CAPTION
from llm_ocr.types import Box, Line

#: A caption begins within so many sizes of its letters from the table.
_NEAR = 9


def caption_beside(
    lines: Sequence[Line],
    box: Box,
    taken: Collection[int],
    pattern: re.Pattern[str] = TABLE_CAPTION,
    *,
    sides: tuple[bool, ...] = (True, False),
) -> frozenset[int]:
    """Indices of the caption's lines, empty without one. `sides`, in order: True is above the box, False below it."""
    for above in sides:
        found = _caption(lines, box, taken, pattern, above=above)
        if found:
            return found
    return frozenset()


def _caption(
    lines: Sequence[Line], box: Box, taken: Collection[int], pattern: re.Pattern[str], *, above: bool
) -> frozenset[int]:
    beside = {i: _distance(line, box, above=above) for i, line in enumerate(lines) if i not in taken}
    beside = {i: distance for i, distance in beside.items() if distance >= -0.6 * lines[i].size}
    starts = [i for i, distance in beside.items() if distance <= _NEAR * lines[i].size and pattern.match(lines[i].text)]
    if not starts:
        return frozenset()
    start = max(starts, key=lambda i: lines[i].box.y0) if above else min(starts, key=lambda i: lines[i].box.y0)
    return frozenset(caption_lines(lines, list(beside), start))


def caption_lines(lines: Sequence[Line], candidates: Sequence[int], start: int) -> list[int]:
    """The caption that begins with the line `start`, its lines from top to bottom; `candidates` in any order."""
    first = lines[start]
    below = [i for i in candidates if i != start and lines[i].box.y0 >= first.box.y0 - 0.4 * first.size]
    rows = _rows(lines, [start, *below])
    chosen = next((run for row in rows[:1] for run in _runs(lines, row) if start in run), [start])
    chosen = chosen[chosen.index(start) :]
    last, step = _around(lines, chosen), 0.0
    for row in rows[1:]:
        fitting = [run for run in _runs(lines, row) if _goes_on(lines, chosen, last, run)]
        box = _around(lines, fitting[0]) if fitting else _around(lines, row)
        down = box.y0 - last.y0
        limit = 1.2 * step if step else 1.8 * max(last.height, lines[chosen[-1]].size)
        if down > limit:
            break
        if fitting:
            chosen += fitting[0]
            step, last = step or down, box
    return chosen


def _rows(lines: Sequence[Line], members: Sequence[int]) -> list[list[int]]:
    """The lines by the height at which they stand, from top to bottom; a row from left to right."""
    rows: list[list[int]] = []
    reach = 0.0
    for index in sorted(members, key=lambda i: lines[i].box.centre[1]):
        box = lines[index].box
        if rows and box.centre[1] < reach:
            rows[-1].append(index)
        else:
            rows.append([index])
            reach = box.centre[1] + 0.4 * max(box.height, lines[index].size)
    return [sorted(row, key=lambda i: lines[i].box.x0) for row in rows]


def _runs(lines: Sequence[Line], row: Sequence[int]) -> list[list[int]]:
    """The stretches of a row in which no line is more than a wide space from the one before it."""
    runs: list[list[int]] = []
    end, size = 0.0, 0.0
    for index in row:
        line = lines[index]
        if runs and line.box.x0 - end < 1.3 * max(size, line.size):
            runs[-1].append(index)
        else:
            runs.append([index])
            end, size = line.box.x1, line.size
        end, size = max(end, line.box.x1), max(size, line.size)
    return runs


def _around(lines: Sequence[Line], members: Sequence[int]) -> Box:
    box = lines[members[0]].box
    for index in members[1:]:
        box = box.union(lines[index].box)
    return box


def _goes_on(lines: Sequence[Line], caption: Sequence[int], last: Box, run: Sequence[int]) -> bool:
    """Whether a row's stretch goes on with the caption, by its place and look; the distance is not asked."""
    first, box = lines[caption[0]], _around(lines, run)
    if not any(_alike(lines[index], lines[other]) for index in run for other in caption):
        return False
    if first.italic and len(first.text) > 20 and not lines[run[0]].italic:
        return False
    if box.x0 >= last.x1 or box.x1 <= first.box.x0:
        return False
    # A line that was full has been wrapped; one that ends well before the next does has ended the caption.
    ended = abs(box.x0 - last.x0) < first.size and last.x1 < box.x1 - 0.2 * box.width
    return not ended


def _alike(one: Line, other: Line) -> bool:
    """Whether both may be of one print: sizes that are measured, as OCR's are, say so only within bounds."""
    if 0.8 < one.size / max(other.size, 1e-6) < 1.25:
        return True
    return 0.85 < one.box.height / max(other.box.height, 1e-6) < 1.18


def _distance(line: Line, box: Box, *, above: bool) -> float:
    """How far above (or below) the box the line stands; minus infinity for one that is beside it."""
    if line.box.x0 > box.x1 or line.box.x1 < box.x0:
        return -math.inf
    return box.y0 - line.box.y1 if above else line.box.y0 - box.y1
