"""DocTags (Granite-Docling, SmolDocling) to blocks: `<text><loc_44><loc_30><loc_300><loc_41>words</text>`.

docling-core is unsuitable: it requires whole answers and the page's image, but a cut or malformed answer must keep its
sound parts. Coordinates count 0 to 500, tables are OTSL.
"""

import re
from dataclasses import dataclass, field

from llm_ocr.models.parsers.coordinates import WHOLE_PAGE, from_500
from llm_ocr.models.parsers.html import bare_formula, fenced, list_item
from llm_ocr.models.parsers.labels import described, kind_of, labelled, unlabelled, with_captions
from llm_ocr.models.parsers.otsl import split_otsl
from llm_ocr.models.parsers.plain import parse_plain, without_special
from llm_ocr.models.profile import NO_FRAME, Frame, Parsed
from llm_ocr.types import Block, BlockKind, Box

_TABLES = frozenset({"otsl", "document_index"})
_FIGURES = frozenset({"picture", "chart"})
_LISTS = frozenset({"ordered_list", "unordered_list"})
#: Elements that become blocks, and their labels.
_LABELS = {
    **{name: name for name in ("title", "text", "paragraph", "page_header", "page_footer", "formula", "caption")},
    **{name: name for name in ("picture", "chart", "list_item", "footnote", "code", "document_index")},
    **{f"section_header_level_{level}": f"section_header_level_{level}" for level in range(1, 7)},
    "section_header": "section_header",
    "otsl": "table",
    "inline": "text",
    "key": "text",
    "value": "text",
    "checkbox_selected": "text",
    "checkbox_unselected": "text",
}
_GROUPS = _LISTS | frozenset(
    {"doctag", "doctags", "group", "key_value_region", "key_value_map", "form", "page_break", "smiles"}
)
_BOXES = {"checkbox_selected": "☑ ", "checkbox_unselected": "☐ "}
_TAG = re.compile(
    r"""<loc_(?P<place>\d{1,5})> | <_(?P<language>[^<>]{1,30})_> | <(?P<close>/?)(?P<pair>key|value|link)_\d{1,5}>
        | <(?P<close_other>/?)(?P<name>[a-z][a-z_]{1,30}(?:_[1-6])?)>""",
    re.VERBOSE,
)
_CUT = re.compile(r"</?[A-Za-z_0-9]*+\Z")
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
    found = _Reader().read(_without_part(without_special(text)))
    lost: list[str] = []
    if not any(element.name for element in found):
        plain = parse_plain("".join(part for element in found for part in element.parts))
        return Parsed(plain.blocks, ("text without a place on the page",) if plain.blocks else ())
    blocks: list[Block] = []
    for element in found:
        made = _blocks(element, lost)
        above = element.within and blocks and made and made[0].box.y1 <= blocks[-1].box.y0
        blocks[len(blocks) - int(bool(above)) :] = [*made, blocks[-1]] if above else made
    return Parsed(with_captions(blocks), tuple(lost))


def _without_part(text: str) -> str:
    """Return the text without an incomplete tag at its end."""
    cut = _CUT.search(text, max(0, len(text) - _LONGEST_TAG))
    begun = cut.group().strip("</") if cut else ""
    known = any(name.startswith(begun) for name in (*_LABELS, *_GROUPS)) or _PLACE.fullmatch(begun)
    return text[: cut.start()] if cut and known else text


class _Reader:
    def __init__(self) -> None:
        self._found = [_Element("")]
        self._open: list[_Element] = []
        self._lists: list[int] = []  # next number of each open list; 0 without numbers

    def read(self, text: str) -> list[_Element]:
        at = 0
        for tag in _TAG.finditer(text):
            if not self._known(tag):
                continue
            self._keep(text[at : tag.start()])
            at = tag.end()
            if tag["place"]:
                self._place(float(tag["place"]))
            elif tag["language"]:
                self._top().language = self._top().language or tag["language"]
            elif tag["pair"] == "link":
                continue
            elif tag["close"] or tag["close_other"]:
                self._end(tag["pair"] or tag["name"])
            else:
                self._begin(tag["pair"] or tag["name"])
        self._keep(text[at:])
        return self._found

    def _known(self, tag: re.Match[str]) -> bool:
        name = tag["name"]
        return name is None or name in _LABELS or name in _GROUPS

    def _top(self) -> _Element:
        return self._open[-1] if self._open else self._found[-1]

    def _keep(self, text: str) -> None:
        if not self._open and self._found[-1].name and text.strip():
            self._found.append(_Element(""))
        self._top().parts.append(text)

    def _place(self, place: float) -> None:
        if len(self._top().places) < 4:
            self._top().places.append(place)

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
            element.marker = self._marker()
        self._found.append(element)
        self._open.append(element)

    def _marker(self) -> str:
        number = self._lists[-1] if self._lists else 0
        if not number:
            return "- "
        self._lists[-1] += 1
        return f"{number}. "

    def _end(self, name: str) -> None:
        if name in _LISTS and self._lists:
            self._lists.pop()
        if name in _LISTS:
            self._open.clear()
        if self._open and name == "formula" and self._open[-1].name != "formula":
            self._open[-1].parts.append("$ ")
        while any(one.name == name for one in self._open):  # at most two
            self._open.pop()


def _blocks(element: _Element, lost: list[str]) -> list[Block]:
    text = "".join(element.parts).strip()
    if not element.name:
        if text:
            lost.append("text without a place on the page")
        return unlabelled(text, "", (WHOLE_PAGE,), headings=True)
    label = _LABELS[element.name]
    if element.name == "caption" and element.within:
        label = f"{'table' if element.within in _TABLES else element.within}_caption"
    box = from_500(*element.places) if len(element.places) == 4 else None
    boxes: tuple[Box, ...] = (box,) if box else ()
    words, table = split_otsl(text)
    if element.name in _FIGURES:
        said = "\n\n".join(filter(None, (_CLASS.sub("", words).strip(), table)))
        return described(label, boxes, said, lost)
    if box is None:
        lost.append(f"{label}: a box that cannot be read")
    if element.name in _TABLES or table:
        place = boxes or (WHOLE_PAGE,)
        tables = [Block(BlockKind.TABLE, place[0], table, label)] if table else []
        return [*unlabelled(words, label, place, headings=False), *tables]
    return _shaped(element, label, boxes, words, lost)


def _shaped(element: _Element, label: str, boxes: tuple[Box, ...], text: str, lost: list[str]) -> list[Block]:
    if element.name == "list_item":
        place = boxes[0] if boxes else WHOLE_PAGE
        item = list_item(text, element.marker.strip())
        return [Block(BlockKind.LIST_ITEM, place, item, label, element.level)] if text else []
    match kind_of(label):
        case BlockKind.CODE if text:
            text = fenced(text, element.language.lower())
        case BlockKind.FORMULA if text:
            text = f"$$\n{bare_formula(text)}\n$$"
        case _:
            text = _BLANKS.sub(" ", _BOXES.get(element.name, "") + text)
    return labelled(label, boxes, text, lost)
