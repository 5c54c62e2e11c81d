"""Judge the text layer of a page: whether its characters are wrong, and which lines recur on neighboring pages."""

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from llm_ocr.types import Line, PageContent

#: Share of differing characters between text layer and OCR above which the layer is false (embedded_engine.md: false
#: layers score above 0.9, true layers 0.0).
LIE = 0.3
#: Share of unmapped characters from which a text layer is doubtful. Formulas of a true page cause up to 0.013.
_UNMAPPED = 0.02
#: Most frequent letters of languages in Latin script: 57 to 68 % of the letters on 60 pages, most of them English. The
#: same pages with every letter shifted by 1 to 25 have 46 % at most.
_COMMON = frozenset("aeinorst")
_COMMON_SHARE = 0.47
#: Minimum number of letters for statistics.
_ENOUGH_LETTERS = 60
#: Share of letters with accents that no language has: 0.35 are usual in Vietnamese.
_ACCENTED = 0.6
#: Minimum number of letters, and share of the common ones, of the text of one font.
_LETTERS_OF_FONT, _COMMON_OF_FONT = 20, 0.42


def suspicious(content: PageContent) -> bool:
    """Return whether a text layer looks wrong: many unmapped characters, or Latin letters of no language."""
    text = "".join(line.text for line in content.lines)
    if not text:
        return False
    if max(meaningless(text), content.unmapped) > _UNMAPPED * len(text):
        return True
    return has_odd_letters(text, _ENOUGH_LETTERS, _COMMON_SHARE)


def has_odd_letters(text: str, least: int = _LETTERS_OF_FONT, share: float = _COMMON_OF_FONT) -> bool:
    """Return whether a text with `least` Latin letters may be of no language: fewer than `share` are common letters.

    With the limits for the text of one font, 3 % of the fonts of true pages have such letters.
    """
    accented = sum("\u00c0" <= c <= "\u00ff" for c in text)
    if accented >= least and accented > _ACCENTED * sum(map(str.isalpha, text)):
        return True  # Cyrillic, Greek, or Hebrew letters by the codes of a single-byte encoding
    letters = [c for c in unicodedata.normalize("NFD", text).lower() if c.isalpha()]
    latin = [c for c in letters if "a" <= c <= "z"]
    if len(latin) < least or 2 * len(latin) < len(letters):
        return False
    return sum(c in _COMMON for c in latin) < share * len(latin)


def meaningless(text: str) -> int:
    """Return the number of characters that no text has: control codes, and codes without a character."""
    return sum(c == "\ufffd" or unicodedata.category(c) in ("Cc", "Co", "Cn") for c in text)


# Running headers, footers, and page numbers, found by comparing the margins of neighboring pages.

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
