"""Tables in HTML as grids: one reader for both sides of `agreement.py`, neither's own. Standard library only."""

import re
from html.parser import HTMLParser

_TABLE = re.compile(r"<table\b.*?(?:</table\s*>|\Z)", re.DOTALL | re.IGNORECASE)
_MOST_SPAN = 50

Grid = list[list[str]]


def parted(text: str) -> tuple[str, list[Grid]]:
    """The text without its tables, and the tables; one without an end goes to the end of the text."""
    return _TABLE.sub("\n", text), [grid(found.group()) for found in _TABLE.finditer(text)]


def grid(html: str) -> Grid:
    """Rows of texts; a cell that covers several places stands in each of them. Rows are filled up to the longest."""
    reader = _Reader()
    reader.feed(html)
    reader.close()
    reader.end_cell()
    width = max((x + 1 for _, x in reader.cells), default=0)
    height = max((y + 1 for y, _ in reader.cells), default=0)
    return [[reader.cells.get((y, x), "") for x in range(width)] for y in range(height)]


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.cells: dict[tuple[int, int], str] = {}
        self._row = -1
        self._spans = (1, 1)
        self._words: list[str] | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("td", "th", "tr"):
            self.end_cell()
        if tag == "tr":
            self._row += 1
        elif tag in ("td", "th"):
            self._row = max(self._row, 0)
            given = dict(attrs)
            self._spans = (_count(given.get("colspan")), _count(given.get("rowspan")))
            self._words = []
        elif tag == "br" and self._words is not None:
            self._words.append(" ")

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th", "tr", "table"):
            self.end_cell()

    def handle_data(self, data: str) -> None:
        if self._words is not None:
            self._words.append(data)

    def end_cell(self) -> None:
        if self._words is None:
            return
        said, self._words = " ".join("".join(self._words).split()), None
        x = 0
        while (self._row, x) in self.cells:
            x += 1
        columns, rows = self._spans
        for down in range(rows):
            for across in range(columns):
                self.cells[self._row + down, x + across] = said


def _count(written: str | None) -> int:
    return min(int(written), _MOST_SPAN) if written and written.isdecimal() and int(written) else 1
