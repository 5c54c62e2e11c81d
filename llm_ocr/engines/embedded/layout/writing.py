"""Groups of rows into the Markdown text of blocks."""

from collections.abc import Sequence
from functools import reduce
from itertools import pairwise

from llm_ocr.engines.embedded.layout.escape import escape, escape_inline
from llm_ocr.engines.embedded.layout.groups import Group
from llm_ocr.engines.embedded.layout.joining import clean, join
from llm_ocr.engines.embedded.layout.rows import Row

#: A line break within a paragraph.
_BREAK = "  \n"


def _texts(group: Group) -> list[str]:
    texts = [row.text for row in group.rows]
    if group.marker is not None:
        texts[0] = group.marker.rest
    return texts


def plain_text(group: Group, words: frozenset[str]) -> list[str]:
    """The lines of a group as they are read, unescaped; most groups have one. Hyphens at line ends are resolved."""
    lines: list[str] = []
    for text, own in zip(_texts(group), group.breaks or [False] * len(group.rows), strict=True):
        if lines and not own:
            lines[-1] = join(lines[-1], text, words)
        else:
            lines.append(text)
    return [clean(line) for line in lines]


def heading_text(group: Group, words: frozenset[str]) -> str:
    """All rows on one line, a section number with it; Markdown."""
    return escape_inline(clean(reduce(lambda one, other: join(one, other, words), (row.text for row in group.rows))))


def code_text(group: Group) -> str:
    """Rows of code with their indentation; empty lines where the rows stand apart. Not escaped."""
    rows = group.rows
    width = _character_width(rows)
    left = min(row.x0 for row in rows)
    steps = sorted(lower.middle - upper.middle for upper, lower in pairwise(rows))
    usual = max(steps[len(steps) // 3], 0.5 * rows[0].size) if steps else 1.0
    lines = [_code_row(rows[0], left, width)]
    for upper, lower in pairwise(rows):
        blank = min(max(round((lower.middle - upper.middle) / usual) - 1, 0), 2)
        lines += [""] * blank + [_code_row(lower, left, width)]
    return "\n".join(lines)


def _character_width(rows: Sequence[Row]) -> float:
    lines = [line for row in rows for line in row.lines]
    total = sum(len(line.text) for line in lines)
    return max(sum(line.box.width for line in lines) / max(total, 1), 0.1)


def _code_row(row: Row, left: float, width: float) -> str:
    text = ""
    for line in row.lines:
        column = min(round((line.box.x0 - left) / width), 200)
        text = text.ljust(column) if not text or len(text) < column else text + " "
        text += clean(line.text)
    return text


def markdown(group: Group, words: frozenset[str]) -> str:
    """The text of a paragraph, caption, footnote or list item; Markdown."""
    lines = plain_text(group, words)
    if group.marker is None:
        return _BREAK.join(escape(line) for line in lines)
    return f"{group.marker.mark} " + _BREAK.join(escape(line) for line in lines)
