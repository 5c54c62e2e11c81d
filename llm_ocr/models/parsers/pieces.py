"""Split Markdown into headings, tables, code, formulas, lists, and text."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from llm_ocr.models.parsers.html import unescape
from llm_ocr.types import IS_TAG, BlockKind

# One pass over fences, one over HTML tables, one over lines: time linear in the length, for any text.


_TABLE_TAG = re.compile(rf"<(?P<close>/?){IS_TAG}table\b[^<>]*>?", re.IGNORECASE)
_FENCE = re.compile(r" {0,3}(?P<marks>`{3,}|~{3,})(?P<info>[^`]*)")
_HEADING = re.compile(r" {0,3}(?P<marks>#{1,6})(?:[ \t]+(?P<text>.*))?")
_ITEM = re.compile(r"(?P<indent>[ \t]*)(?P<mark>[-*+•‣▪◦·●○]|\d{1,9}[.)])[ \t]+(?=\S)")
_OPENERS = {"$$": "$$", "\\[": "\\]"}
_ENVIRONMENT = re.compile(r"\\begin\{(?P<name>(?:equation|align|gather|multline|eqnarray|displaymath)\*?)\}")
_TAB = 4  # columns
_BAR = re.compile(r"(?<!\\)\|")
# Entity that a model has escaped a second time, or code, whose entities are literal.
_TWICE_ESCAPED = re.compile(r"(?P<code>`[^`\n]*+`)|&(?:amp;)+(?=(?:lt|gt|amp|quot|apos|nbsp|#\d{1,6});)")


@dataclass(frozen=True, slots=True)
class Piece:
    """Piece of Markdown. `level` as in `Block`; headings have no marks."""

    kind: BlockKind
    text: str
    level: int = 0


def markdown_pieces(text: str, *, headings: bool = True) -> list[Piece]:
    """Return the pieces of Markdown in order, without white space between them. Never raises.

    Without `headings`, lines that begin with `#` are ordinary text.
    """
    found: list[Piece] = []
    for fenced, part in _fences(text):
        if fenced:
            found.append(Piece(BlockKind.CODE, part))
            continue
        for table, rest in _tables(escaped_once(part)):
            found += [Piece(BlockKind.TABLE, closed_table(rest.strip()))] if table else _Lines(rest, headings).pieces()
    return found


def heading(line: str) -> tuple[int, str] | None:
    """Return the number of `#` in a heading line, and its text without them; None for another line."""
    found = _HEADING.fullmatch(line.rstrip())
    if found is None:
        return None
    words = (found["text"] or "").rstrip()
    bare = words.rstrip("#")
    return len(found["marks"]), bare.rstrip() if not bare or bare[-1] in " \t" else words


def closed_table(text: str) -> str:
    """Return an HTML table, closed if a cut answer left it open: an open table would absorb the following content."""
    text = escaped_once(text)
    opened = sum(-1 if tag["close"] else 1 for tag in _TABLE_TAG.finditer(text))
    if opened <= 0:
        return text
    start = text.rfind("<")
    if start > text.rfind(">"):
        text = text[:start]  # a tag that was cut in the middle
    return text.rstrip() + "</td></tr></table>" * opened


def escaped_once(text: str) -> str:
    """Return the text with entities that a model has escaped again, such as `&amp;lt;`, escaped once; not in code."""
    return _TWICE_ESCAPED.sub(lambda found: found["code"] or "&", text) if "&amp;" in text else text


def _fences(text: str) -> Iterator[tuple[bool, str]]:
    """Yield prose and fenced code in turn; an open fence extends to the end of the text."""
    lines: list[str] = []
    marks = ""
    for line in text.split("\n"):
        opening = _FENCE.fullmatch(line)
        if marks:
            lines.append(line)
            if opening and opening["marks"].startswith(marks) and not opening["info"].strip():
                yield True, "\n".join(lines)
                lines, marks = [], ""
        elif opening:
            yield False, "\n".join(lines)
            lines, marks = [line], opening["marks"]
        else:
            lines.append(line)
    if marks:
        yield True, "\n".join(lines[1:])
    else:
        yield False, "\n".join(lines)


def _tables(text: str) -> Iterator[tuple[bool, str]]:
    """Yield prose and HTML tables in turn; an open table extends to the end."""
    depth = start = done = 0
    for tag in _TABLE_TAG.finditer(text):
        if not tag["close"]:
            if not depth:
                start = tag.start()
            depth += 1
        elif depth:
            depth -= 1
            if not depth:
                yield False, text[done:start]
                yield True, text[start : tag.end()]
                done = tag.end()
    if depth:
        yield False, text[done:start]
        yield True, text[start:]
    else:
        yield False, text[done:]


def _even(rows: list[str]) -> str:
    """Return a pipe table whose head and rule are as wide as its widest row: renderers hide cells beyond them."""
    closed = [row.endswith("|") and not row.endswith("\\|") for row in rows]
    widths = [len(_BAR.findall(row)) + 1 - row.startswith("|") - ends for row, ends in zip(rows, closed, strict=True)]
    for number, cell in ((0, "  |"), (1, " --- |")):
        if lacking := max(widths) - widths[number]:
            rows[number] += ("" if closed[number] else " |") + cell * lacking
    return "\n".join(rows)


class _Lines:
    """Line-by-line reader of prose without code and HTML tables."""

    def __init__(self, text: str, headings: bool) -> None:
        self._lines = text.split("\n")
        self._headings = headings
        # Last position of each closing mark. A later opening mark has no end, so the search to the end of the text is
        # skipped.
        self._last: dict[str, int] = {}
        for number, line in enumerate(self._lines):
            for mark in _OPENERS.values():
                if mark in line:
                    self._last[mark] = number
            if "\\end{" in line:
                self._last["\\end{"] = number
        self._found: list[Piece] = []
        self._paragraph: list[str] = []
        self._indents: list[int] = []  # indents of the open list items, outermost first
        self._in_item = False
        self._column = 0  # column of the open item's text

    def pieces(self) -> list[Piece]:
        at = 0
        while at < len(self._lines):
            at = self._step(at)
        self._flush()
        return self._found

    def _step(self, at: int) -> int:
        """Read what begins at a line, and return the number of the next line."""
        lines, line = self._lines, self._lines[at]
        if not line.strip():
            self._flush()
            return at + 1
        if self._headings and (titled := heading(line)) is not None:
            self._end_list()
            marks, words = titled
            if words:
                self._found.append(Piece(BlockKind.HEADING if marks > 1 else BlockKind.TITLE, words, marks - 1))
            return at + 1
        characters = set(line) - {" ", "\t"}
        if len(characters) == 1 and characters <= {"-", "*", "_"} and line.count(next(iter(characters))) >= 3:
            self._end_list()
            self._found.append(Piece(BlockKind.TEXT, line.strip()))
            return at + 1
        if (item := _ITEM.match(line)) is not None:
            self._flush()
            indent = len(item["indent"].expandtabs(_TAB))
            while self._indents and indent < self._indents[-1]:
                self._indents.pop()
            if not self._indents or indent > self._indents[-1] + 1:
                self._indents.append(indent)
            mark = item["mark"] if item["mark"].isascii() else "-"
            self._column = item.end()
            self._paragraph, self._in_item = [f"{mark} {line[item.end() :]}"], True
            return at + 1
        rule = lines[at + 1] if "|" in line and at + 1 < len(lines) else ""
        if "|" in rule and "-" in rule and set(rule) <= set("|:- \t\r"):
            end = next((number for number in range(at + 2, len(lines)) if "|" not in lines[number]), len(lines))
            self._end_list()
            self._found.append(Piece(BlockKind.TABLE, _even([row.strip() for row in lines[at:end]])))
            return end
        if end := self._formula_end(at):
            return end
        self._paragraph.append(line)
        return at + 1

    def _flush(self) -> None:
        """End the open paragraph or list item."""
        if self._paragraph:
            first, *rest = self._paragraph
            if self._in_item:
                kind = BlockKind.LIST_ITEM
                column = self._column
                rest = [line[:column].lstrip(" \t") + line[column:] for line in rest]
            else:
                kind = BlockKind.TEXT
                self._indents = []
            text = "\n".join([first, *rest]).strip()
            self._found.append(Piece(kind, text, max(len(self._indents) - 1, 0)))
        self._paragraph, self._in_item = [], False

    def _end_list(self) -> None:
        self._flush()
        self._indents = []

    def _formula_end(self, at: int) -> int:
        """Return the end of a formula on its own lines, and add it as a piece; 0 without a formula.

        Lines that begin like a formula, and have no end alone, are part of the paragraph.
        """
        first = self._lines[at].strip()
        close = searched = _OPENERS.get(first[:2], "")
        if environment := _ENVIRONMENT.match(first):
            close, searched = f"\\end{{{environment['name']}}}", "\\end{"
        if not close or self._last.get(searched, -1) < at:
            return 0
        end = at
        rest = first[2:]
        while close not in rest and end < self._last[searched]:
            end += 1
            rest = self._lines[end]
        end += 1
        if close in rest and rest.rstrip(" \t.,;").endswith(close):
            self._end_list()
            self._found.append(Piece(BlockKind.FORMULA, "\n".join(self._lines[at:end]).strip()))
        else:
            self._paragraph += self._lines[at:end]
        return end


_TAG = re.compile(r"<(?P<close>/?)(?P<name>tr|td|th)\b[^<>]*>|<[^<>]*>", re.IGNORECASE)


def read_table(text: str) -> tuple[list[str], list[list[str]]] | None:
    """Return the first row and the other rows of the first table in a text, or None. Linear; never raises."""
    table = next((piece.text for piece in markdown_pieces(text) if piece.kind is BlockKind.TABLE), None)
    if table is None:
        return None
    rows: list[list[str]] = []
    if not table.startswith("<"):
        for number, line in enumerate(table.split("\n")):
            line = line.strip().removeprefix("|")
            line = line[:-1] if line.endswith("|") and not line.endswith("\\|") else line
            if number != 1:  # the second line is only the rule
                rows.append([cell.strip().replace("\\|", "|") for cell in _BAR.split(line)])
        return rows[0], rows[1:]
    cell: list[str] | None = None
    at = 0
    for tag in _TAG.finditer(table):
        if cell is not None:
            cell.append(table[at : tag.start()])
        at = tag.end()
        name = (tag["name"] or "").lower()
        if not name:
            continue
        if cell is not None:
            rows[-1].append(" ".join(unescape("".join(cell)).split()))
            cell = None
        if not tag["close"]:
            if name == "tr" or not rows:
                rows.append([])
            cell = [] if name != "tr" else None
    rows = [row for row in rows if row]
    return (rows[0], rows[1:]) if rows else None
