"""Tables as OTSL (`<fcel> <ecel> <lcel> <ucel> <xcel> <nl>`) to HTML, PaddleOCR-VL's answers, and DocTags.

OTSL writes a table row by row. Each cell begins with its token. `<lcel>` belongs to the cell at its left, `<ucel>` to
the one above, `<xcel>` to both, and `<nl>` ends a row. PaddleOCR-VL, MinerU, and DocTags use OTSL.
"""

import html
import re
from dataclasses import dataclass, field
from itertools import pairwise

from llm_ocr.models.parsers.coordinates import WHOLE_PAGE, from_500, from_1000
from llm_ocr.models.parsers.html import bare_formula, cell_html, fenced, list_item, unescape
from llm_ocr.models.parsers.labels import (
    described,
    kind_of,
    labelled,
    signs_of,
    unlabelled,
    unreadable,
    with_captions,
    without_copies,
)
from llm_ocr.models.parsers.latex import with_html_tables
from llm_ocr.models.parsers.pieces import escaped_once
from llm_ocr.models.parsers.plain import parse_plain, without_divs, without_special
from llm_ocr.models.profile import NO_FRAME, Frame, Parsed
from llm_ocr.types import Block, BlockKind

_TOKEN = re.compile(r"<(?P<name>[fleux]cel|ched|rhed|corn|srow|nl)>")
#: Tags that models write instead of the tokens.
_CELL = re.compile(r"</?(?:row|cell)>")
_CELLS = {"<cell>": "<fcel>", "</row>": "<nl>"}
#: Incomplete token.
_CUT = re.compile(r"<(?:[felux](?:c(?:el?)?)?|[cr](?:h(?:ed?)?)?|co(?:rn?)?|s(?:r(?:ow?)?)?|nl?)?\Z")
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
    if "<cell>" in text:
        text = _CELL.sub(lambda tag: _CELLS.get(tag[0], ""), text)
    first = _TOKEN.search(text)
    return (text[: first.start()].strip(), otsl_to_html(text)) if first else (text.strip(), "")


def table_text(text: str) -> str:
    """Return a table in OTSL or LaTeX as HTML, with the words around it; other text is returned unchanged."""
    if "\\begin{" in text:
        return with_html_tables(text)
    words, table = split_otsl(text)
    return "\n\n".join(filter(None, (words, table))) if table else text


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
    parts: list[str] = []
    for row in rows:
        parts.append("<tr>")
        for cell in row:
            if not cell.covered:
                text = html.escape(unescape(escaped_once(cell.text)), quote=False)
                parts.append(cell_html("th" if cell.name in _HEADERS else "td", text, cell.rows, cell.columns))
        parts.append("</tr>")
    return f"<table>{''.join(parts)}</table>" if rows else ""


def parse_paddle_table(text: str, frame: Frame = NO_FRAME) -> Parsed:
    """Return the table of an answer to `Table Recognition:`, for the whole image; other text is read as Markdown."""
    before, table = split_otsl(without_special(text))
    if not table:
        return parse_plain(table_text(text))
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


# DocTags (Granite-Docling, SmolDocling) to blocks: `<text><loc_44><loc_30><loc_300><loc_41>words</text>`. docling-core
# is unsuitable: it requires whole answers and the page's image, but a cut or malformed answer must keep its sound
# parts. Coordinates count 0 to 500, tables are OTSL.


_TABLES = frozenset({"otsl", "document_index"})
_FIGURES = frozenset({"picture", "chart"})
_LISTS = frozenset({"ordered_list", "unordered_list"})
#: Elements that become blocks, and their labels.
_LABELS = {
    **{name: name for name in ("title", "text", "paragraph", "page_header", "page_footer", "formula", "caption")},
    **{name: name for name in ("picture", "chart", "list_item", "footnote", "code", "document_index")},
    **{name: name for name in ("section_header", *(f"section_header_level_{level}" for level in range(1, 7)))},
    **dict.fromkeys(("inline", "key", "value", "checkbox_selected", "checkbox_unselected"), "text"),
    "otsl": "table",
    "heading": "section_header",
}
_GROUPS = _LISTS | frozenset(
    {"doctag", "doctags", "group", "key_value_region", "key_value_map", "form", "page_break", "smiles", "location"}
)
#: Marks of the text, and their forms in Markdown.
_INLINE = {
    "bold": ("**", "**"),
    "italic": ("*", "*"),
    "strikethrough": ("~~", "~~"),
    "subscript": ("<sub>", "</sub>"),
    "superscript": ("<sup>", "</sup>"),
}
_BOXES = {"checkbox_selected": "☑ ", "checkbox_unselected": "☐ "}
_TAG = re.compile(
    r"""<loc_(?P<place>\d{1,5})> | <_(?P<language>[^<>]{1,30})_> | <(?P<close>/?)(?P<pair>key|value|link)_\d{1,5}>
        | <(?P<close_other>/?)(?P<name>[a-z][a-z_]{1,30}(?:_[1-6])?)(?:\ [a-z_]{1,20}="[^"<>]{0,40}")?>""",
    re.VERBOSE,
)
_TAG_CUT = re.compile(r"</?[A-Za-z_0-9]*+\Z")
_PLACE = re.compile(r"l(?:o(?:c(?:_\d*)?)?)?|_\w*")
_LONGEST_TAG = 40
_BLANKS = re.compile(" +")
_CLASS = re.compile(r"<[a-z_]{1,40}>")


@dataclass(slots=True)
class _Element:
    name: str
    places: list[float] = field(default_factory=list)
    parts: list[str] = field(default_factory=list)
    level: int = 0  # number of enclosing lists, minus one
    marker: str = ""
    language: str = ""
    within: str = ""  # element of the caption


def parse_doctags(text: str, frame: Frame = NO_FRAME) -> Parsed:
    """Return the blocks of a page in DocTags.

    Never raises; linear in the length. Other text is read as Markdown.
    """
    text = without_special(text)
    cut = _TAG_CUT.search(text, max(0, len(text) - _LONGEST_TAG))
    begun = cut.group().strip("</") if cut else ""
    if cut and (any(name.startswith(begun) for name in (*_LABELS, *_GROUPS)) or _PLACE.fullmatch(begun)):
        text = text[: cut.start()]
    found = _Reader().read(text)
    lost: list[str] = []
    if not any(element.name for element in found):
        plain = parse_plain("".join(part for element in found for part in element.parts))
        return Parsed(plain.blocks, ("text without a place on the page",) if plain.blocks else ())
    blocks: list[Block] = []
    for element in without_copies(
        found, lambda element: signs_of(element.name, element.places, "".join(element.parts)), lost
    ):
        made = _blocks(element, lost)
        above = element.within and blocks and made and made[0].box.y1 <= blocks[-1].box.y0
        blocks[len(blocks) - int(bool(above)) :] = [*made, blocks[-1]] if above else made
    return Parsed(with_captions(blocks), tuple(lost))


class _Reader:
    """Reader that proceeds from tag to tag, with the open elements and lists."""

    def __init__(self) -> None:
        self._found = [_Element("")]
        self._open: list[_Element] = []
        self._lists: list[int] = []  # next number of each open list; 0 without numbers

    def read(self, text: str) -> list[_Element]:
        at = 0
        for tag in _TAG.finditer(text):
            marks = _INLINE.get(tag["name"] or "")
            if tag["name"] and not marks and tag["name"] not in _LABELS and tag["name"] not in _GROUPS:
                continue
            top = self._keep(text[at : tag.start()])
            at = tag.end()
            if marks:
                top.parts.append(marks[bool(tag["close_other"])])
                continue
            if tag["place"]:
                if len(top.places) < 4:
                    top.places.append(float(tag["place"]))
            elif tag["language"]:
                top.language = top.language or tag["language"]
            elif tag["pair"] == "link":
                continue
            elif tag["close"] or tag["close_other"]:
                self._end(tag["pair"] or tag["name"])
            else:
                self._begin(tag["pair"] or tag["name"])
        self._keep(text[at:])
        return self._found

    def _keep(self, text: str) -> _Element:
        """Add text to the innermost element, and return this element."""
        if not self._open and self._found[-1].name and text.strip():
            self._found.append(_Element(""))
        top = self._open[-1] if self._open else self._found[-1]
        top.parts.append(text)
        return top

    def _begin(self, name: str) -> None:
        if name in _LISTS:
            self._lists.append(int(name == "ordered_list"))
        if name in _GROUPS:
            return
        inside = self._open[-1].name if self._open else ""
        if inside and name == "formula" and inside not in _FIGURES | _TABLES:
            self._open[-1].parts.append(" $")
            return
        if inside == "inline" or (name in _TABLES and inside in _FIGURES):
            return
        if not (name == "caption" and inside in _FIGURES | _TABLES | {"code"}):
            self._open.clear()  # the others hold no elements: an end is missing
            inside = ""
        element = _Element(name, within=inside, level=max(len(self._lists) - 1, 0))
        if name == "list_item":
            number = self._lists[-1] if self._lists else 0
            element.marker = f"{number}." if number else "-"
            if number:
                self._lists[-1] += 1
        self._found.append(element)
        self._open.append(element)

    def _end(self, name: str) -> None:
        if name in _LISTS:
            self._open.clear()
            if self._lists:
                self._lists.pop()
        if self._open and name == "formula" and self._open[-1].name != "formula":
            self._open[-1].parts.append("$ ")
        while any(element.name == name for element in self._open):  # at most two
            self._open.pop()


def _blocks(element: _Element, lost: list[str]) -> list[Block]:
    text = "".join(element.parts).strip()
    name = element.name
    if not name:
        if text:
            lost.append("text without a place on the page")
        return unlabelled(text, "", (WHOLE_PAGE,), headings=True)
    label = _LABELS[name]
    if name == "caption" and element.within:
        label = f"{'table' if element.within in _TABLES else element.within}_caption"
    box = from_500(*element.places) if len(element.places) == 4 else None
    boxes = (box,) if box else ()
    words, table = split_otsl(text)
    if name in _FIGURES:
        description = "\n\n".join(filter(None, (_CLASS.sub("", words).strip(), table)))
        return described(label, boxes, description, lost)
    if box is None:
        lost.append(unreadable(label))
    place = box or WHOLE_PAGE
    if name in _TABLES or table:
        tables = [Block(BlockKind.TABLE, place, table, label)] if table else []
        return [*unlabelled(words, label, (place,), headings=False), *tables]
    if name == "list_item":
        item = list_item(words, element.marker)
        return [Block(BlockKind.LIST_ITEM, place, item, label, element.level)] if words else []
    match kind_of(label):
        case BlockKind.CODE if words:
            words = fenced(words, element.language.lower())
        case BlockKind.FORMULA if words:
            words = f"$$\n{bare_formula(words)}\n$$"
        case _:
            words = _BLANKS.sub(" ", _BOXES.get(name, "") + words)
    return labelled(label, boxes, words, lost)
