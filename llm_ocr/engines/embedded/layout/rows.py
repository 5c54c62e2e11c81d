"""Lines of one column into rows: what stands on one height is read across."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from llm_ocr.engines.embedded.layout.joining import clean, is_cjk
from llm_ocr.engines.embedded.layout.measures import Measures
from llm_ocr.types import Box, Line

#: A gap within a row from this many font heights on keeps its cells apart.
_CELL_GAP = 1.3
#: A first letter this much higher than the text beside it is a drop capital.
_DROP_CAPITAL = 1.6


@dataclass(frozen=True, slots=True)
class Row:
    """Lines side by side. Coordinates in page units; `size` and faces are those of most characters."""

    lines: tuple[Line, ...]
    text: str
    x0: float
    y0: float
    x1: float
    y1: float
    size: float
    bold: bool
    italic: bool
    mono: bool
    cells: int  # pieces with wide gaps between them

    @property
    def middle(self) -> float:
        return (self.y0 + self.y1) / 2

    @property
    def box(self) -> Box:
        return Box(self.x0, self.y0, self.x1, self.y1)


def make_row(lines: Sequence[Line], rtl: bool = False) -> Row:
    """One row of lines that overlap in height."""
    if len(lines) == 1:
        line, box = lines[0], lines[0].box
        text = clean_end(line.text)
        return Row((line,), text, box.x0, box.y0, box.x1, box.y1, line.size, line.bold, line.italic, line.mono, 1)
    ordered = sorted(lines, key=lambda line: -line.box.x1 if rtl else line.box.x0)
    text, cells = clean_end(ordered[0].text), 1
    for before, line in pairwise(ordered):
        gap = before.box.x0 - line.box.x1 if rtl else line.box.x0 - before.box.x1
        wide = gap > _CELL_GAP * min(before.size, line.size)
        cells += wide
        text += ("\t" if wide else _space(text, line.text, gap / max(line.size, 0.1))) + clean_end(line.text)
    main = max(ordered, key=lambda line: len(line.text))
    total = sum(len(line.text) for line in ordered)
    return Row(
        tuple(ordered),
        text,
        min(line.box.x0 for line in ordered),
        min(line.box.y0 for line in ordered),
        max(line.box.x1 for line in ordered),
        max(line.box.y1 for line in ordered),
        main.size,
        2 * sum(len(line.text) for line in ordered if line.bold) > total,
        2 * sum(len(line.text) for line in ordered if line.italic) > total,
        2 * sum(len(line.text) for line in ordered if line.mono) > total,
        cells,
    )


def clean_end(text: str) -> str:
    """Without soft hyphens but the last, which says that the word goes on."""
    text = text.strip()
    if "\u00ad" not in text:
        return text
    return clean(text) + ("\u00ad" if text.endswith("\u00ad") and len(text) > 1 else "")


def _space(before: str, after: str, gap: float) -> str:
    touching = gap < 0.12 or (gap < 0.6 and before[-1:] and after and is_cjk(before[-1]) and is_cjk(after[0]))
    return "" if touching and gap > -0.5 else " "


def _is_drop_capital(line: Line, body: float) -> bool:
    return len(line.text) <= 2 and line.text[:1].isalpha() and line.box.height > _DROP_CAPITAL * body


def _with_drop_capitals(lines: list[Line], measures: Measures) -> tuple[list[Line], list[tuple[Line, Line]]]:
    """Lines without drop capitals, and pairs (drop capital, the line that it begins)."""
    pairs: list[tuple[Line, Line]] = []
    for capital in [line for line in lines if _is_drop_capital(line, measures.body)][:20]:
        beside = [
            line
            for line in lines
            if line is not capital
            and line.size < capital.size / 1.4
            and -0.6 * line.size < line.box.x0 - capital.box.x1 < 1.5 * capital.size
            and capital.box.y0 - line.size < (line.box.y0 + line.box.y1) / 2 < capital.box.y1
        ]
        if len(beside) > 1:
            pairs.append((capital, min(beside, key=lambda line: line.box.y0)))
    taken = {id(capital) for capital, _ in pairs}
    return [line for line in lines if id(line) not in taken], pairs


def with_level_box(line: Line) -> Line:
    """The line without the depth of a drop capital that it begins with: it stands on the height of its other words."""
    words = line.words
    if len(words) < 2 or len(words[0].text) > 2 or words[0].box.height < _DROP_CAPITAL * words[1].box.height:
        return line
    y0, y1 = min(word.box.y0 for word in words[1:]), max(word.box.y1 for word in words[1:])
    return replace(line, box=Box(line.box.x0, y0, line.box.x1, y1), size=min(line.size, words[1].box.height))


def make_rows(lines: Sequence[Line], measures: Measures) -> list[Row]:
    """Rows from top to bottom; every line is in exactly one."""
    plain, pairs = _with_drop_capitals(list(lines), measures)
    groups: list[list[Line]] = []
    top = bottom = 0.0
    for line in sorted(plain, key=lambda line: line.box.y0 + line.box.y1):
        box = line.box
        shared = min(bottom, box.y1) - max(top, box.y0)
        if groups and shared > 0.5 * min(bottom - top, box.y1 - box.y0):
            groups[-1].append(line)
            if len(groups[-1]) < 4:  # later ones must not pull the row down the page
                top, bottom = min(top, box.y0), min(max(bottom, box.y1), top + 1.6 * max(bottom - top, line.size))
        else:
            groups.append([line])
            top, bottom = box.y0, box.y1
    starts = {id(first): capital for capital, first in pairs}
    return [_row(group, starts, measures.rtl) for group in groups]


def _row(group: list[Line], starts: dict[int, Line], rtl: bool) -> Row:
    row = make_row(group, rtl)
    capital = next((starts[id(line)] for line in group if id(line) in starts), None) if starts else None
    if capital is None:
        return row
    joint = "" if len(capital.text) == 1 and row.text[:1].isalpha() and capital.text.upper() not in "AIO" else " "
    if joint == " " and row.text[:1].islower() and capital.box.x1 + 0.15 * row.size > row.x0:
        joint = ""
    return Row(
        (capital, *row.lines),
        capital.text.strip() + joint + row.text,
        row.x0,
        row.y0,
        row.x1,
        row.y1,
        row.size,
        row.bold,
        row.italic,
        row.mono,
        row.cells,
    )
