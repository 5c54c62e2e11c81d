"""Find running headers, footers, and page numbers by comparing the margins of neighboring pages."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from llm_ocr.types import Line, PageContent

#: Depth of the margin as a share of the page's height, or of its width for text along the side.
MARGIN = 0.12
#: Number of compared pages before and after: two, because left and right pages may differ.
REACH = 2
#: Tolerance for the place of a recurring line, as a share of width and height.
_ACROSS, _DOWN = 0.03, 0.015
_NUMBER = re.compile(r"[0-9]+|\b[ivxlcIVXLC]{1,7}\b")
#: Numbers that may count the pages in a line with words: after a word for a page, or set apart from the words. Other
#: numbers are content: invoices, dates, and questions count as well.
_PAGE_NUMBER = re.compile(
    r"(?:\b(?:page|pag|pg|p|seite|p[áa]gina|p[áa]g|sheet|blatt|folio|side|sida|sivu|strona|str|стр|страница)\b\.?|第)"
    r"\s*(?P<after_word>[0-9]{1,4}|[ivxlc]{1,7})(?!\w|[.,:-]\w)"
    r"|^[^\w]*(?P<first>[0-9]{1,4}|[ivxlc]{1,7})\s*[\t|•·–—]"
    r"|[\t|•·–—]\s*(?P<last>[0-9]{1,4}|[ivxlc]{1,7})[^\w]*$",
    re.IGNORECASE,
)
#: Numbers from this one on count no pages.
_MOST_PAGES = 10_000
#: Gap between two words, in font sizes, that sets a number apart.
_APART = 1.0
_ROMAN = {"i": 1, "v": 5, "x": 10, "l": 50, "c": 100}


@dataclass(frozen=True, slots=True)
class EdgeLine:
    """Line near a page's edge: its text with `#` for possible page numbers, these numbers, and its relative place."""

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

    Lines that differ in anything but a page number that counts are content. A line without letters must count up.
    Otherwise, cells of a table over several pages, which are numbers at the same place, would match.

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
        has_words = sum(character.isalpha() for character in here.text) >= 2
        for distance, other in others.get(here.text, ()):
            left, right = here.left - other.left, here.right - other.right
            across = min(abs(left), abs(right), abs(left + right) / 2)
            if across > _ACROSS or abs(here.middle - other.middle) > _DOWN:
                continue
            steps = [theirs - ours for ours, theirs in zip(here.numbers, other.numbers, strict=False)]
            counts = len(steps) <= 2 and distance in steps and max(here.numbers) < _MOST_PAGES
            if all(step in (0, distance) for step in steps) if has_words else counts:
                return True
        return False

    return replace(content, lines=tuple(replace(line, recurs=True) if recurs(line) else line for line in content.lines))


def _near_edge(line: Line, content: PageContent) -> bool:
    x, y = line.box.centre
    if line.box.height > 2 * max(line.box.width, line.size):  # runs along the side
        return not MARGIN * content.width <= x <= (1 - MARGIN) * content.width
    return not MARGIN * content.height <= y <= (1 - MARGIN) * content.height


def _edge_line(line: Line, content: PageContent) -> EdgeLine:
    text = line.text
    if line.words:  # with a tab at each wide gap between words
        text = line.words[0].text
        for before, word in pairwise(line.words):
            text += ("\t" if word.box.x0 - before.box.x1 > _APART * line.size else " ") + word.text
    text, numbers = without_page_numbers(text)
    width, height = content.width, content.height
    return EdgeLine(
        "".join(text.split()), numbers, line.box.x0 / width, line.box.x1 / width, line.box.centre[1] / height
    )


def without_page_numbers(text: str) -> tuple[str, tuple[int, ...]]:
    """Return the text with `#` for each number that may be a page number, and these numbers."""
    if sum(character.isalpha() for character in _NUMBER.sub("", text)) < 2:
        found = [match.span() for match in _NUMBER.finditer(text)]
    else:
        found = [match.span(match.lastgroup or 0) for match in _PAGE_NUMBER.finditer(text)]
    numbers = []
    for start, end in found:
        number = text[start:end]
        if number[0] in "0123456789":
            numbers.append(int(number[:9]))
        else:
            values = [_ROMAN[letter] for letter in number.lower()]
            signed = (-value if value < after else value for value, after in zip(values, [*values[1:], 0], strict=True))
            numbers.append(sum(signed))
    for start, end in reversed(found):
        text = f"{text[:start]}#{text[end:]}"
    return text, tuple(numbers)
