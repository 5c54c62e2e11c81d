"""Scores of one page's result against hand-made truth: text normalised, cells related, boxes matched."""

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from html.parser import HTMLParser
from typing import Any

_SAME = str.maketrans({"‘": "'", "’": "'", "“": '"', "”": '"', "–": "-", "—": "-", "−": "-", "\u00ad": None, "‐": "-"})
_TAG = re.compile(r"<[^>]+>")
_LINK = re.compile(r"(?<!!)\[((?:\\.|[^\\\[\]\n])+)\]\((?:https?://|mailto:)[^()\s]*\)")
_MARKS = re.compile(r"\\([\\`*_{}\[\]()#+\-.!<>|~$&])|[*`]|^#+\s|!\[[^\]]*\]\([^)]*\)", re.MULTILINE)


def plain(text: str) -> str:
    """Case, white space, quotes, dashes, Markdown marks and leader dots out of the way."""
    text = unicodedata.normalize("NFKC", text).translate(_SAME)
    text = _LINK.sub(r"\1", text)
    text = _MARKS.sub(lambda match: match.group(1) or "", text)
    text = re.sub(r"\.{4,}|(?: \.){3,}", " ", text)
    return " ".join(text.lower().split())


def body(markdown: str) -> str:
    """The page's text as one normalised string, tables included."""
    return plain(_TAG.sub(" ", markdown).replace("|", " "))


def find(phrase: str, text: str, *, tolerance: float) -> int:
    """Where the phrase begins in the text, -1 if nowhere; `tolerance` is the share of characters that may differ."""
    phrase = plain(phrase)
    place = text.find(phrase)
    if place >= 0 or not tolerance:
        return place
    tight, spaces = _without_spaces(text)
    wanted = phrase.replace(" ", "")
    place = tight.find(wanted)
    if place >= 0:
        return spaces[place]
    best, where = 0.0, -1
    matcher = SequenceMatcher(None, autojunk=False)
    matcher.set_seq2(wanted)
    step = max(1, len(wanted) // 6)
    for start in range(0, max(1, len(tight) - len(wanted) + 1), step):
        matcher.set_seq1(tight[start : start + len(wanted)])
        if matcher.real_quick_ratio() > best and matcher.quick_ratio() > best and (ratio := matcher.ratio()) > best:
            best, where = ratio, start
    return spaces[where] if best >= 1 - tolerance - step / max(1, len(wanted)) and where >= 0 else -1


def _without_spaces(text: str) -> tuple[str, list[int]]:
    places = [index for index, character in enumerate(text) if character != " "]
    return "".join(text[index] for index in places), places or [0]


def absent(phrase: str, markdown: str, *, tolerance: float) -> bool:
    """A short phrase (page number) counts only as a line of its own."""
    if len(phrase) >= 12:
        return find(phrase, body(markdown), tolerance=tolerance) < 0
    return plain(phrase) not in {plain(line) for line in markdown.splitlines()}


def _span(value: str | None) -> int:
    """As browsers read it: digits at the start count, 1 to 1000, and anything else is 1."""
    digits = re.match(r"\s*\+?(\d{1,9})", value or "", re.ASCII)
    return min(1000, max(1, int(digits[1]))) if digits else 1


class _Grid(HTMLParser):
    """Cells of one HTML table, spans spread over the grid."""

    def __init__(self) -> None:
        super().__init__()
        self.cells: dict[tuple[int, int], str] = {}
        self.row, self.column, self.open, self.span = -1, 0, False, (1, 1)
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "tr":
            self.row, self.column = self.row + 1, 0
        elif tag in ("td", "th"):
            found = dict(attrs)
            self.open, self.text = True, []
            self.span = (_span(found.get("rowspan")), _span(found.get("colspan")))
        elif tag == "br":
            self.text.append(" ")

    def handle_data(self, data: str) -> None:
        if self.open:
            self.text.append(data)

    def handle_endtag(self, tag: str) -> None:
        if tag not in ("td", "th") or not self.open:
            return
        while (self.row, self.column) in self.cells:
            self.column += 1
        for down in range(self.span[0]):
            for right in range(self.span[1]):
                self.cells[self.row + down, self.column + right] = plain("".join(self.text))
        self.column += self.span[1]
        self.open = False


def grids(markdown: str) -> list[dict[tuple[int, int], str]]:
    """Every table of a page as (row, column) -> normalised text."""
    found = []
    for table in re.findall(r"<table.*?</table>", markdown, re.DOTALL):
        grid = _Grid()
        grid.feed(table)
        found.append(grid.cells)
    rows: list[list[str]] = []
    for line in [*markdown.splitlines(), ""]:
        if line.lstrip().startswith("|"):
            rows.append([plain(cell.replace("<br>", " ")) for cell in re.split(r"(?<!\\)\|", line.strip())[1:-1]])
        elif rows:
            rows = [
                row for row in rows if not all(re.fullmatch(r":?-+:?", cell or "-") for cell in row) or not any(row)
            ]
            found.append({(r, c): cell for r, row in enumerate(rows) for c, cell in enumerate(row)})
            rows = []
    return found


def related(relation: Mapping[str, str], tables: Iterable[Mapping[tuple[int, int], str]], *, tolerance: float) -> bool:
    """Whether one cell of one table has the text and all the neighbours and headings that the relation names."""
    return any(
        same(text, relation["cell"], tolerance) and _fits(relation, table, place, tolerance)
        for table in tables
        for place, text in table.items()
    )


def same(got: str, wanted: str, tolerance: float) -> bool:
    wanted = plain(wanted)
    if got == wanted or got.replace(" ", "") == wanted.replace(" ", ""):
        return True
    return bool(tolerance) and SequenceMatcher(None, got, wanted, autojunk=False).ratio() >= 1 - tolerance


def _fits(
    relation: Mapping[str, str], table: Mapping[tuple[int, int], str], place: tuple[int, int], tolerance: float
) -> bool:
    row, column = place
    looks = {
        "right": [table.get((row, _next(table, place, 0, 1)), "")],
        "below": [table.get((_next(table, place, 1, 0), column), "")],
        "left_heading": [table.get((row, left), "") for left in range(column)],
        "top_heading": [table.get((above, column), "") for above in range(row)],
    }
    return all(
        any(same(cell, wanted, tolerance) for cell in looks[key]) for key, wanted in relation.items() if key in looks
    )


def _next(table: Mapping[tuple[int, int], str], place: tuple[int, int], down: int, right: int) -> int:
    """The neighbouring row or column, past the cells over which this one spans."""
    row, column = place[0] + down, place[1] + right
    while table.get((row, column)) == table[place] and (row, column) in table:
        row, column = row + down, column + right
    return row if down else column


@dataclass(frozen=True, slots=True)
class BoxScore:
    """Figures of a page: truth, how many were found, and boxes that match none."""

    truth: int
    found: int
    false: int


def match_boxes(truth: Sequence[Sequence[float]], found: Sequence[Sequence[float]], *, iou: float = 0.5) -> BoxScore:
    """Greedy one-to-one matching by overlap."""
    pairs = sorted(((_iou(t, f), i, j) for i, t in enumerate(truth) for j, f in enumerate(found)), reverse=True)
    used_truth: set[int] = set()
    used_found: set[int] = set()
    for overlap, i, j in pairs:
        if overlap >= iou and i not in used_truth and j not in used_found:
            used_truth.add(i)
            used_found.add(j)
    return BoxScore(len(truth), len(used_truth), len(found) - len(used_found))


def _iou(a: Sequence[float], b: Sequence[float]) -> float:
    width = min(a[2], b[2]) - max(a[0], b[0])
    height = min(a[3], b[3]) - max(a[1], b[1])
    shared = max(0.0, width) * max(0.0, height)
    total = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - shared
    return shared / total if total else 0.0


def share(passed: int, total: int) -> dict[str, Any]:
    return {"passed": passed, "of": total, "share": round(passed / total, 4) if total else None}
