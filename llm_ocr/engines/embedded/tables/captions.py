"""Captions of tables: a line that begins with "Table 3" beside the table, and the lines that go on with it."""

import re
from collections.abc import Collection, Sequence

from llm_ocr.types import Box, Line

_NUMBER = r"(?:[A-Z]{0,2}[\s.\-]?\d+(?:[.\-–]\d+)*[a-z]?|[IVXL]+\b|[A-Z]\b)"
TABLE_CAPTION = re.compile(
    rf"^\W{{0,2}}(?:table|tab\.|tabelle|tableau|tabla|tabela|tabella|表|표)\s*{_NUMBER}", re.IGNORECASE
)

FIGURE_CAPTION = re.compile(
    rf"^\W{{0,2}}(?:(?:figure|fig\.?|figura|abbildung|abb\.?|chart|exhibit|plate|scheme|diagram|photo|graph|illustration|map|bild)"
    rf"\s*{_NUMBER}|[图圖図그림]{{1,2}}\s*[\d一二三四五六七八九十]+)\s*(?:[.:|,)–—-]|\s|$)",
    re.IGNORECASE,
)


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
    near = [i for i, line in enumerate(lines) if i not in taken and _near(line, box, above=above)]
    starts = [i for i in near if pattern.match(lines[i].text)]
    if not starts:
        return frozenset()
    start = max(starts, key=lambda i: lines[i].box.y0) if above else min(starts, key=lambda i: lines[i].box.y0)
    near.sort(key=lambda i: (lines[i].box.y0, lines[i].box.x0))
    return frozenset(caption_lines(lines, near, start))


def caption_lines(lines: Sequence[Line], candidates: Sequence[int], start: int) -> list[int]:
    """The caption that begins with the line `start`; `candidates` are indices from top to bottom."""
    first, chosen, last = lines[start], [start], lines[start]
    end, step = last.box.x1, 0.0
    for index in candidates:
        line = lines[index]
        down = line.box.y0 - last.box.y0
        if index in chosen or down < -0.4 * first.size or not 0.8 < line.size / max(first.size, 1e-6) < 1.25:
            continue
        if down <= 0.4 * max(last.size, line.size):
            if line.box.x0 > first.box.x0 and line.box.x0 - end < 1.3 * first.size:
                chosen.append(index)
                end = max(end, line.box.x1)
            continue
        limit = 1.2 * step if step else 1.8 * max(last.box.height, last.size)
        beneath = line.box.x0 < end and line.box.x1 > first.box.x0
        # A line that was full has been wrapped; one that ends well before the next does has ended the caption.
        ended = abs(line.box.x0 - last.box.x0) < first.size and end < line.box.x1 - 0.2 * line.box.width
        if down > limit or not beneath or ended or (first.italic and not line.italic and len(first.text) > 20):
            if down > limit:
                break
            continue
        chosen.append(index)
        step, last, end = step or down, line, line.box.x1
    return chosen


def _near(line: Line, box: Box, *, above: bool) -> bool:
    if line.box.x0 > box.x1 or line.box.x1 < box.x0:
        return False
    distance = box.y0 - line.box.y1 if above else line.box.y0 - box.y1
    return -0.6 * line.size <= distance <= 9 * line.size
