"""Tables as OTSL (`<fcel> <ecel> <lcel> <ucel> <xcel> <nl>`) to HTML, and PaddleOCR-VL's answers about regions.

OTSL writes a table row by row. Each cell begins with its token. `<lcel>` belongs to the cell at its left, `<ucel>` to
the one above, `<xcel>` to both, and `<nl>` ends a row. PaddleOCR-VL, MinerU, and DocTags use OTSL.
"""

import html
import re
from dataclasses import dataclass
from itertools import pairwise

from llm_ocr.models.parsers.coordinates import WHOLE_PAGE, from_1000
from llm_ocr.models.parsers.html import bare_formula, cell_html, unescape
from llm_ocr.models.parsers.labels import unlabelled
from llm_ocr.models.parsers.pieces import escaped_once
from llm_ocr.models.parsers.plain import parse_plain, without_divs, without_special
from llm_ocr.models.profile import NO_FRAME, Frame, Parsed
from llm_ocr.types import Block, BlockKind

_TOKEN = re.compile(r"<(?P<name>[fleux]cel|ched|rhed|corn|srow|nl)>")
_CUT = re.compile(
    r"<(?:[felux](?:c(?:el?)?)?|[cr](?:h(?:ed?)?)?|co(?:rn?)?|s(?:r(?:ow?)?)?|nl?)?\Z"
)  # incomplete token
#: Corners behind a line of text: `<|LOC_BEGIN|>`, two numbers for each corner, `<|LOC_END|>`.
_SPOT = re.compile(r"(?:<\|LOC_(?:BEGIN|\d{1,4})\|>\s{0,4}){1,17}+(?:<\|LOC_END\|>)?")
_SPOT_TOKEN = re.compile(r"<\|(?:TEXT|LOC)_\w{1,5}\|>")
_SPOT_CUT = re.compile(r"<\|[A-Z_0-9]{0,12}\|?\Z")
_DIGITS = re.compile(r"\d+")
_FORMULA = re.compile(r"\$\$(?P<dollars>[^$]++)\$\$|\\\[(?P<brackets>(?:(?!\\[\[\]]|\$\$).)++)\\\]", re.DOTALL)
_HEADERS = frozenset({"ched", "rhed", "corn", "srow"})
_SPANS = frozenset({"lcel", "ucel", "xcel"})
_SPARE = 1000  # maximum added empty cells, in addition to as many as exist; beyond it, rows stay uneven


@dataclass(slots=True)
class _Cell:
    name: str  # name of its token
    text: str = ""
    covered: bool = False  # covered by a cell at its left or above
    columns: int = 1
    rows: int = 1


def split_otsl(text: str) -> tuple[str, str]:
    """Return the words before the first token, and the table after them as HTML; ("...", "") without a cell."""
    first = _TOKEN.search(text)
    return (text[: first.start()].strip(), otsl_to_html(text)) if first else (text.strip(), "")


def otsl_to_html(text: str) -> str:
    """Return the table as HTML with rowspan and colspan, or "" without any cell. Never raises; linear in the length.

    Short rows are filled with empty cells. A token that continues no cell is an empty cell. Words before the first
    token are not part of the table.
    """
    rows: list[list[_Cell]] = [[]]
    for token, following in pairwise([*_TOKEN.finditer(text), None]):
        assert token is not None  # only the second half of the last pair is None
        behind = text[token.end() : following.start()] if following else _CUT.sub("", text[token.end() :])
        words = " ".join(behind.split())
        if token["name"] == "nl":
            rows.append([_Cell("fcel", words)] if words else [])  # text whose token is missing
        else:
            rows[-1].append(_Cell(token["name"], words))
    rows = [row for row in rows if row]
    for number, row in enumerate(rows):
        for place, cell in enumerate(row):
            if not cell.covered and (cell.name not in _SPANS or cell.text):
                _span(rows, number, place)
    width = max(map(len, rows), default=0)
    if width * len(rows) <= 2 * sum(map(len, rows)) + _SPARE:
        for row in rows:
            row += [_Cell("ecel") for _ in range(width - len(row))]
    lines = ("".join(_written(cell) for cell in row if not cell.covered) for row in rows)
    return f"<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>" if rows else ""


def _written(cell: _Cell) -> str:
    text = html.escape(unescape(escaped_once(cell.text)), quote=False)
    return cell_html("th" if cell.name in _HEADERS else "td", text, cell.rows, cell.columns)


def parse_paddle_table(text: str, frame: Frame = NO_FRAME) -> Parsed:
    """Return the table of an answer to `Table Recognition:`, for the whole image; other text is read as Markdown."""
    before, table = split_otsl(without_special(text))
    if not table:
        return parse_plain(text)
    above = unlabelled(before, "", (WHOLE_PAGE,), headings=True)
    return Parsed((*above, Block(BlockKind.TABLE, WHOLE_PAGE, table, "table")))


def parse_paddle_text(text: str, frame: Frame = NO_FRAME) -> Parsed:
    r"""Return the text of a region, with formulas in `\( \)` and `\[ \]` unchanged; `#` does not begin a heading."""
    body = without_divs(without_special(text).replace("\r\n", "\n"))
    return Parsed(tuple(unlabelled(body, "", (WHOLE_PAGE,), headings=False)))


def parse_paddle_spotting(text: str, frame: Frame = NO_FRAME) -> Parsed:
    """Return the lines of an answer to `Spotting:`, each a text with the box of its four corners, 0 to 1000."""
    body = _SPOT_CUT.sub("", without_special(text))
    if not _SPOT.search(body):
        return parse_plain(_SPOT_TOKEN.sub(" ", body))
    blocks: list[Block] = []
    done = 0
    for spot in _SPOT.finditer(body):
        words = " ".join(_SPOT_TOKEN.sub(" ", body[done : spot.start()]).split())
        done = spot.end()
        numbers = [float(number) for number in _DIGITS.findall(spot[0])]
        xs, ys = numbers[::2], numbers[1::2]
        box = from_1000(min(xs), min(ys), max(xs), max(ys)) if ys else None
        if words:
            blocks.append(Block(BlockKind.TEXT, box or WHOLE_PAGE, words, "text"))
    rest = " ".join(_SPOT_TOKEN.sub(" ", body[done:]).split())
    return Parsed((*blocks, *unlabelled(rest, "", (WHOLE_PAGE,), headings=False)))


def parse_formula(text: str, frame: Frame = NO_FRAME) -> Parsed:
    """Return the LaTeX of one formula in `$$`, for the whole image; also of several, and the text between them."""
    body = without_special(text).strip()
    formula = bare_formula(body)
    blocks: list[Block] = []
    done = 0
    for found in _FORMULA.finditer(body if "$" in formula or "\\[" in formula else ""):
        blocks += unlabelled(body[done : found.start()], "formula", (WHOLE_PAGE,), headings=False)
        inner = (found["dollars"] or found["brackets"]).strip()
        blocks += [Block(BlockKind.FORMULA, WHOLE_PAGE, f"$$\n{inner}\n$$", "formula")] if inner else []
        done = found.end()
    if blocks:
        return Parsed((*blocks, *unlabelled(body[done:], "formula", (WHOLE_PAGE,), headings=False)))
    return Parsed((Block(BlockKind.FORMULA, WHOLE_PAGE, f"$$\n{formula}\n$$", "formula"),) if formula else ())


def parse_paddle_chart(text: str, frame: Frame = NO_FRAME) -> Parsed:
    """Return the data of a chart, a table with `|`: a figure of the whole image, with the table in `described`."""
    lines = [line.strip() for line in without_special(text).replace("\r\n", "\n").split("\n")]
    first = next((number for number, line in enumerate(lines) if "|" in line), None)
    if first is not None:
        below = lines[first + 1] if first + 1 < len(lines) else ""
        if not below or not set(below) <= set("|:- "):  # the model omitted the rule that a pipe table needs
            lines.insert(first + 1, "|".join(["---"] * (lines[first].strip("|").count("|") + 1)))
            if first and lines[first - 1]:
                lines.insert(first, "")
    table = "\n".join(lines).strip()
    return Parsed((Block(BlockKind.FIGURE, WHOLE_PAGE, label="chart", described=table),) if table else ())


def _span(rows: list[list[_Cell]], number: int, place: int) -> None:
    """Let a cell cover the free cells at its right and below that belong to it: always a rectangle.

    Each cell is covered once, and checked without success once per cell above: linear.
    """
    cell, row = rows[number][place], rows[number]
    while place + cell.columns < len(row) and _free(row[place + cell.columns], "lcel"):
        row[place + cell.columns].covered = True
        cell.columns += 1
    for below in range(number + 1, len(rows)):
        covered = rows[below][place : place + cell.columns]
        if len(covered) < cell.columns or not _free(covered[0], "ucel"):
            return
        if not all(_free(below_cell, "ucel", "xcel", "lcel") for below_cell in covered):
            return
        for below_cell in covered:
            below_cell.covered = True
        cell.rows += 1


def _free(cell: _Cell, *names: str) -> bool:
    return cell.name in names and not cell.covered and not cell.text
