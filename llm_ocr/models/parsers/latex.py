"""LaTeX tables in answers to HTML tables, and formulas between dollars. Linear in the length; never raises.

`tabular` and similar environments with rows, cells, rules, joined cells, and simple fonts are converted. Other tables
become code, so that their `&`, `_`, and `<` are not read as Markdown.
"""

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from llm_ocr.models.parsers.html import cell_html
from llm_ocr.models.parsers.plain import by_fences
from llm_ocr.types import Block, BlockKind

_ENVIRONMENT = re.compile(r"\\(?P<what>begin|end)\{(?P<name>table\*?|tabular[*xy]?|longtable|tabulary)\}")
_WITH_WIDTH = ("tabular*", "tabularx", "tabulary")
_SECTION = re.compile(r"^[ \t]{0,3}\\(?P<sub>(?:sub){0,2})section\*?\{(?P<title>[^{}\n]{1,300})\}[ \t]*$", re.MULTILINE)
_FENCE_BEGIN = re.compile(r"```(?P<tex>(?:la)?tex)?[ \t]{0,4}\n[ \t]{0,8}\Z", re.IGNORECASE)
_FENCE_END = re.compile(r"[ \t]{0,8}\n?[ \t]{0,8}```(?=[ \t]{0,8}(?:\n|\Z))")
_LONGEST_FENCE = 40
_BLANK_LINE = re.compile(r"\n[ \t]{0,80}\n")
_RULES = re.compile(
    r"\\(?:hline|toprule|midrule|bottomrule|endhead|endfirsthead|endfoot|endlastfoot|centering|noalign"
    r"|cline|cmidrule(?:\([lrLR]{0,2}\))?)(?![A-Za-z])\s{0,4}(?:\{[\d, -]{0,40}\})?"
)
_OPTION = re.compile(r"\s{0,4}\[[^\[\]\n]{0,40}\]")
_SPECIFICATION = re.compile(r"\s{0,4}\{(?:[^{}]|\{[^{}]{0,200}\}){0,400}\}")
_ANY_WIDTH = re.compile(r"\s{0,4}\*")
_WRAPPER = re.compile(r"\\(?:begin|end)\{[a-z]{1,12}\*?\}|\\(?:centering|small|footnotesize|label\{[^{}]{0,200}\})")
_CAPTION = re.compile(r"\\caption\*?\{")
_BRACES = re.compile(r"\\.|[{}]", re.DOTALL)
_JOINED = re.compile(
    r"\s*+\\(?P<how>multicolumn|multirow)\*?(?:\[[^\[\]]{0,20}\])?\{\s{0,4}(?P<count>\d{1,3})\s{0,4}\}"
)
_TOKEN = re.compile(
    r"\\\\(?:\*?\[[^\[\]]{0,20}\])?"  # the end of a row, or of a line within a cell
    r"|\\(?P<command>[A-Za-z]{1,40})\*?(?P<opens>[ ]?\{)?"
    r"|\\(?P<escaped>.)|(?P<math>\$[^$]*+\$)|(?P<mark>[{}&~])|[^\\${}&~]++|[\\$]",
    re.DOTALL,
)
_FONTS = {
    "textbf": ("<b>", "</b>"),
    **dict.fromkeys(("textit", "emph"), ("<i>", "</i>")),
    "textsuperscript": ("<sup>", "</sup>"),
    "textsubscript": ("<sub>", "</sub>"),
    **dict.fromkeys(("text", "textrm", "texttt", "textsc", "textsf", "underline", "makecell", "shortstack"), ("", "")),
}
_PARENTHESES = re.compile(r"\\\\|\\[()]")
_KEPT = ("\\$", "\\[", "\\]")
_ESCAPED = {**{whole: whole for whole in _KEPT}, **dict.fromkeys(("\\,", "\\;", "\\:"), " "), "\\!": ""}
_MOST_SPAN = 100
_LINE = "<br>"


class _NotSimpleError(ValueError):
    """Table with content that the HTML tables here cannot show."""


def with_html_tables(text: str) -> str:
    """Return the text with each LaTeX table as an HTML table, or as code if the table is not simple.

    A LaTeX fence around a table is removed. In any other fence, the table is part of a program and stays.
    """
    if "\\begin{" not in text:
        return text
    parts: list[str] = []
    done = 0
    for start, end in _regions(text):
        source = text[start:end]
        if opening := _FENCE_BEGIN.search(text, max(done, start - _LONGEST_FENCE), start):
            closing = _FENCE_END.match(text, end)
            if not opening["tex"] or closing is None:
                continue
            start, end = opening.start(), closing.end()
        try:
            table = _html(source)
        except _NotSimpleError:
            table = f"```latex\n{source.strip()}\n```"
        parts += [text[done:start].rstrip(" \t"), "\n\n" if start else "", table, "\n\n"]
        done = end
    return "".join([*parts, text[done:]])


def with_markdown_headings(text: str) -> str:
    r"""Return the text with `\section{...}` and its parts on lines of their own as headings in Markdown."""
    return _SECTION.sub(lambda found: f"{'#' * (2 + len(found['sub']) // 3)} {found['title'].strip()}", text)


def _regions(text: str) -> Iterator[tuple[int, int]]:
    """Yield the ranges of tables, `table` around `tabular` as one; an open `tabular` ends at the next blank line."""
    depth = start = inner_end = 0
    wrapped = False
    for tag in _ENVIRONMENT.finditer(text):
        begins, wrapper = tag["what"] == "begin", tag["name"].startswith("table")
        if depth:
            depth += (1 if begins else -1) if not wrapper else 0
            if not depth:
                inner_end = tag.end()
                if not wrapped:
                    yield start, inner_end
        elif begins:
            if wrapper and wrapped and inner_end > start:
                yield start, inner_end
            start = start if wrapped and not wrapper else tag.start()
            wrapped, depth = wrapped or wrapper, 0 if wrapper else 1
        elif wrapper and wrapped:
            yield start, tag.end()
            wrapped = False
    if depth:
        blank = _BLANK_LINE.search(text, max(start, inner_end))
        yield start, blank.start() if blank else len(text)
    elif wrapped and inner_end > start:
        yield start, inner_end


def _html(source: str) -> str:
    inner = [tag for tag in _ENVIRONMENT.finditer(source) if not tag["name"].startswith("table")]
    begins = [tag for tag in inner if tag["what"] == "begin"]
    ends = [tag for tag in inner if tag["what"] == "end"]
    if len(begins) != 1 or len(ends) > 1:
        raise _NotSimpleError
    [begin] = begins
    at = begin.end()
    if option := _OPTION.match(source, at):
        at = option.end()
    for _ in range(2 if begin["name"] in _WITH_WIDTH else 1):
        if specification := _SPECIFICATION.match(source, at):
            at = specification.end()
    end = ends[0].start() if ends else len(source)
    above, below = _around(source[: begin.start()]), _around(source[ends[0].end() :] if ends else "")
    rows = _Rows(_RULES.sub("", source[at:end])).rows()
    table = f"<table>{''.join(f'<tr>{row}</tr>' for row in rows)}</table>"
    return "\n\n".join(filter(None, (above, table, below)))


def _around(text: str) -> str:
    """Return the words around the table itself: its caption."""
    text = _WRAPPER.sub("", text).strip()
    if option := _OPTION.match(text):
        text = text[option.end() :]
    if caption := _CAPTION.search(text):
        depth, end = 1, len(text)
        for brace in _BRACES.finditer(text, caption.end()):
            depth += {"{": 1, "}": -1}.get(brace[0], 0)
            if not depth:
                end = brace.start()
                break
        text = " ".join((text[: caption.start()], text[caption.end() : end], text[end + 1 :]))
    return " ".join(text.split())


@dataclass(slots=True)
class _Cell:
    parts: list[str] = field(default_factory=list)
    columns: int = 1
    rows: int = 1

    @property
    def text(self) -> str:
        return " ".join("".join(self.parts).split())


class _Rows:
    """Body of a table, read token by token."""

    def __init__(self, body: str) -> None:
        # A single notation for formulas, whose ends are found in one pass.
        self._body = _PARENTHESES.sub(lambda found: found[0] if found[0] == "\\\\" else "$", body)
        self._at = 0
        self._closers: list[str] = []  # closers of the open braces, outermost first
        self._raw_end = -1  # position after the last argument of a command that is kept unchanged
        self._rows: list[list[_Cell]] = [[]]
        self._begin_cell()

    def rows(self) -> list[str]:
        """Return each row's cells in HTML, or raise `_NotSimpleError`."""
        while self._at < len(self._body):
            token = _TOKEN.match(self._body, self._at)
            assert token is not None  # the pattern matches any character
            self._at = token.end()
            self._take(token)
        if self._closers and _LINE in self._cell.parts:
            raise _NotSimpleError  # a brace without an end would join all following rows into one cell
        self._cell.parts += reversed(self._closers)
        if not any(cell.text for cell in self._rows[-1]):
            self._rows.pop()
        if not self._rows:
            raise _NotSimpleError
        return _shown(self._rows)

    def _begin_cell(self) -> None:
        self._cell = _Cell()
        self._rows[-1].append(self._cell)
        while joined := _JOINED.match(self._body, self._at):
            self._at = joined.end()
            count = min(max(int(joined["count"]), 1), _MOST_SPAN)
            if joined["how"] == "multicolumn":
                self._cell.columns = count
            else:
                self._cell.rows = count
            specification = _SPECIFICATION.match(self._body, self._at) or _ANY_WIDTH.match(self._body, self._at)
            opening = self._body.find("{", specification.end(), specification.end() + 4) if specification else -1
            if opening < 0:
                raise _NotSimpleError
            self._at = opening + 1
            self._closers.append("")

    def _take(self, token: re.Match[str]) -> None:
        whole, command, opens = token[0], token["command"], token["opens"] is not None
        if whole.startswith("\\\\") and self._closers:
            self._cell.parts.append(_LINE)
        elif whole.startswith("\\\\"):
            self._rows.append([])
            self._begin_cell()
        elif command in ("begin", "end", "multicolumn", "multirow"):
            raise _NotSimpleError
        elif command and opens and command in _FONTS:
            before, behind = _FONTS[command]
            self._cell.parts.append(before)
            self._closers.append(behind)
        elif command:
            self._write(whole)
            self._closers += ["}"] if opens else []
        elif token["escaped"] is not None:
            self._write(_ESCAPED.get(whole, token["escaped"]))
        elif whole == "&" and not self._closers:
            self._begin_cell()
        elif whole == "{":
            raw = self._at - 1 == self._raw_end  # another argument of a kept command
            self._cell.parts.append(whole if raw else "")
            self._closers.append("}" if raw else "")
        elif whole == "}":
            closer = self._closers.pop() if self._closers else ""
            self._cell.parts.append(closer)
            self._raw_end = self._at if closer == "}" else -1
        else:
            self._write(" " if whole == "~" else whole)

    def _write(self, text: str) -> None:
        self._cell.parts.append(html.escape(text, quote=False))


def _shown(rows: list[list[_Cell]]) -> list[str]:
    """Return the rows without the empty cells below a cell that spans several rows."""
    below: dict[int, int] = {}  # column -> remaining rows of a spanning cell above
    made: list[str] = []
    for row in rows:
        cells: list[str] = []
        column = 0
        for cell in row:
            if below.get(column, 0) > 0:
                if cell.text or cell.columns > 1:
                    raise _NotSimpleError
                below[column] -= 1
                column += 1
                continue
            if cell.rows > 1:
                below.update(dict.fromkeys(range(column, column + cell.columns), cell.rows - 1))
            cells.append(cell_html("td", cell.text, cell.rows, cell.columns))
            column += cell.columns
        made.append("".join(cells))
    return made


# Delimiters of formulas: `\( \)`, `\[ \]`, and spaced dollars become `$` and `$$`. Models use different delimiters, and
# many Markdown renderers know only dollars.


_CODE = r"(?P<code>(?P<ticks>`+)[^`]*+(?P=ticks))"
_ROUND = re.compile(rf"{_CODE}|(?<!\\)\\\((?P<inner>(?:(?!\\[()])[^$`\n]|\n(?!\s*\n)){{1,2000}}+)\\\)")
_SQUARE = re.compile(
    rf"{_CODE}|^(?P<indent>[ \t]*)\\\[(?P<inner>(?:(?!\\[\[\]]|\n[ \t]*\n)[^`]){{1,6000}}+)\\\](?=[ \t]*[.,;]?[ \t]*$)",
    re.MULTILINE,
)
_DOLLAR = re.compile(r"(?<![\\$])\$(?!\$)")
_SIGN = re.compile(r"[\\^_={}<>+*/|]")
_NUMBER = re.compile(r"[ \t]*\d")
_WORD = re.compile(r"[^\W\d_]{4}")
_REFERENCE = re.compile(r"[\d\s,;–-]+\Z")


def with_dollar_math(block: Block) -> Block:
    """Return the block with its formulas between dollars; code stays as written."""
    if block.kind is BlockKind.CODE or not any(mark in block.text for mark in ("\\(", "\\[", "$ ")):
        return block
    parts: list[str] = []
    for prose, text in by_fences(block.text):
        if prose and "\\(" in text:
            text = _ROUND.sub(_inline, text)
        if prose and "\\[" in text:
            text = _SQUARE.sub(_display, text)
        parts.append(_tight(text) if prose and "$ " in text else text)
    return replace(block, text="".join(parts))


def _inline(found: re.Match[str]) -> str:
    inner = (found["inner"] or "").strip()
    # `\(see below\)` is an escaped parenthesis of Markdown.
    words = not _SIGN.search(inner) and _WORD.search(inner)
    return found[0] if found["code"] or not inner or words else f"${inner}$"


def _display(found: re.Match[str]) -> str:
    inner = (found["inner"] or "").strip()
    if found["code"] or not inner or _REFERENCE.match(inner):
        return found[0]
    return f"{found['indent']}$$\n{inner}\n$$"


def _tight(text: str) -> str:
    """Return the text with `$ x $` as `$x$`, which renderers require; sums of money stay."""
    marks = [mark.start() for mark in _DOLLAR.finditer(text)]
    parts: list[str] = []
    done = at = 0
    while at + 1 < len(marks):
        start, end = marks[at], marks[at + 1]
        inner = text[start + 1 : end]
        bare = inner.strip(" \t")
        spaced = inner != bare
        symbol = len(bare) <= 3 and bare.isalpha()
        money = _NUMBER.match(text, start + 1) and _NUMBER.match(text, end + 1)
        if spaced and bare and "\n" not in inner and not money and (_SIGN.search(bare) or symbol):
            parts += [text[done:start], f"${bare}$"]
            done = end + 1
            at += 1
        elif not spaced:
            at += 1
        at += 1
    return "".join([*parts, text[done:]])
