"""Content of a document's Markdown: single pages, found words, tables as rows of cells."""

import re
from html.parser import HTMLParser

from rapidfuzz import fuzz

_PAGE = re.compile(r"^<!-- page (\d+).*-->$", re.MULTILINE)
_SAME = str.maketrans("‘’“”–—−‐", "''\"\"----")
_ESCAPED = re.compile(r"\\([!-/:-@\[-`{-~])")
#: Share of the characters that must agree after OCR, in percent.
ALIKE = 94.0


def pages(markdown: str) -> dict[int, str]:
    """Return the text of each page, by its number."""
    parts = _PAGE.split(markdown)
    return {int(number): text.strip() for number, text in zip(parts[1::2], parts[2::2], strict=True)}


def plain(text: str) -> str:
    """Return the text without emphasis, tags, and pipes; with uniform quotes, dashes, and white space."""
    text = re.sub(r"<[^>]+>", " ", text.replace("|", " ")).translate(_SAME)
    return " ".join(_ESCAPED.sub(r"\1", text.replace("**", "").replace("*", "")).split())


def place_of(words: str, text: str, *, exact: bool) -> float:
    """Return the position of the words in a page's text, or -1."""
    words, text = plain(words), plain(text)
    place = text.find(words)
    if place >= 0 or exact:
        return place
    found = fuzz.partial_ratio_alignment(words, text, score_cutoff=ALIKE)
    return found.dest_start if found else -1


def lines(text: str) -> list[str]:
    """Return the lines, without marks of headings and lists."""
    return [plain(re.sub(r"^(#+|-|\d+\.) ", "", line)) for line in text.splitlines()]


def headings(text: str) -> list[str]:
    return [plain(line.lstrip("#")) for line in text.splitlines() if line.startswith("#")]


def tables(text: str) -> list[list[list[str]]]:
    """Return the rows of cells of each table, pipe tables and HTML ones."""
    found = [_rows_of_pipes(block) for block in re.findall(r"(?:^\|.*\|\s*$\n?)+", text, re.MULTILINE)]
    for block in re.findall(r"<table>.*?</table>", text, re.DOTALL):
        reader = _Cells()
        reader.feed(block)
        found.append(reader.rows)
    return found


def _rows_of_pipes(block: str) -> list[list[str]]:
    rows = [[plain(cell) for cell in re.split(r"(?<!\\)\|", line.strip()[1:-1])] for line in block.splitlines()]
    return [row for row in rows if not all(re.fullmatch(r":?-+:?", cell) for cell in row)]


class _Cells(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self._inside = False

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")
            self._inside = True

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th"):
            self._inside = False

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.rows[-1][-1] += plain(data)
