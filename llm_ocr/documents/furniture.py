"""Detect running headers, footers, and page numbers by comparing the margins of neighboring pages."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from llm_ocr.types import Line, PageContent

# Lines near the edge that recur at the same place on neighboring pages.


#: Depth of the margin as a share of the page's height, or of its width for text along the side.
MARGIN = 0.12
#: Number of compared pages before and after: two, because left and right pages may differ.
REACH = 2
#: Tolerance for the place of a recurring line, as a share of width and height.
_ACROSS, _DOWN = 0.03, 0.015
_NUMBER = re.compile(r"[0-9]+|\b[ivxlcIVXLC]{1,7}\b")
_ROMAN = {"i": 1, "v": 5, "x": 10, "l": 50, "c": 100}


@dataclass(frozen=True, slots=True)
class EdgeLine:
    """Line near a page's edge: its text with `#` for numbers, the numbers, and its relative place."""

    text: str
    numbers: tuple[int, ...]
    left: float
    right: float
    middle: float


def edge_lines(content: PageContent) -> list[EdgeLine]:
    """Return the lines near the page's edges."""
    return [_edge_line(line, content) for line in content.lines if _near_edge(line, content)]


def marked(content: PageContent, neighbours: Mapping[int, Sequence[EdgeLine]]) -> PageContent:
    """Return the content with `recurs` set on lines that a neighbor has at the same place.

    A line without letters must count up with the pages. Otherwise, cells of a table over several pages, which are
    numbers at the same place, would match.

    Args:
        content: Content of the page.
        neighbours: Lines by distance in pages, negative for earlier pages.
    """
    others: dict[str, list[tuple[int, EdgeLine]]] = {}
    for distance, lines in neighbours.items():
        for edge in lines:
            others.setdefault(edge.text, []).append((distance, edge))
    if not others:
        return content

    def recurs(line: Line) -> bool:
        if not _near_edge(line, content):
            return False
        here = _edge_line(line, content)
        return any(
            _same_place(here, other) and _same_matter(here, other, distance)
            for distance, other in others.get(here.text, ())
        )

    return replace(content, lines=tuple(replace(line, recurs=True) if recurs(line) else line for line in content.lines))


def _near_edge(line: Line, content: PageContent) -> bool:
    x, y = line.box.centre
    if line.box.height > 2 * max(line.box.width, line.size):  # runs along the side
        return not MARGIN * content.width <= x <= (1 - MARGIN) * content.width
    return not MARGIN * content.height <= y <= (1 - MARGIN) * content.height


def _edge_line(line: Line, content: PageContent) -> EdgeLine:
    text = _NUMBER.sub("#", line.text).replace(" ", "")
    numbers = tuple(_value(found) for found in _NUMBER.findall(line.text))
    width, height = content.width, content.height
    return EdgeLine(text, numbers, line.box.x0 / width, line.box.x1 / width, line.box.centre[1] / height)


def _value(number: str) -> int:
    if number[0] in "0123456789":
        return int(number[:9])
    values = [_ROMAN[letter] for letter in number.lower()]
    return sum(-one if one < after else one for one, after in zip(values, [*values[1:], 0], strict=True))


def _same_matter(one: EdgeLine, other: EdgeLine, distance: int) -> bool:
    if sum(character.isalpha() for character in one.text) >= 2:
        return True
    return len(one.numbers) <= 2 and any(
        theirs - ours == distance for ours, theirs in zip(one.numbers, other.numbers, strict=False)
    )


def _same_place(one: EdgeLine, other: EdgeLine) -> bool:
    across = min(
        abs(one.left - other.left),
        abs(one.right - other.right),
        abs(one.left + one.right - other.left - other.right) / 2,
    )
    return across <= _ACROSS and abs(one.middle - other.middle) <= _DOWN
