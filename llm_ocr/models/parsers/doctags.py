"""DocTags (Granite-Docling, SmolDocling) to blocks: `<text><loc_44><loc_30><loc_300><loc_41>words</text>`.

docling-core is unsuitable: it requires whole answers and the page's image, but a cut or malformed answer must keep its
sound parts. Coordinates count 0 to 500, tables are OTSL.
"""

import re
from dataclasses import dataclass, field

from llm_ocr.models.parsers.coordinates import WHOLE_PAGE, from_500
from llm_ocr.models.parsers.html import bare_formula, fenced, list_item
from llm_ocr.models.parsers.labels import (
    described,
    kind_of,
    labelled,
    unlabelled,
    unreadable,
    with_captions,
    without_copies,
)
from llm_ocr.models.parsers.otsl import split_otsl
from llm_ocr.models.parsers.plain import parse_plain, without_special
from llm_ocr.models.profile import NO_FRAME, Frame, Parsed
from llm_ocr.types import Block, BlockKind

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
    text = without_special(text)
    cut = _CUT.search(text, max(0, len(text) - _LONGEST_TAG))
    begun = cut.group().strip("</") if cut else ""
    if cut and (any(name.startswith(begun) for name in (*_LABELS, *_GROUPS)) or _PLACE.fullmatch(begun)):
        text = text[: cut.start()]
    found = _Reader().read(text)
    lost: list[str] = []
    if not any(element.name for element in found):
        plain = parse_plain("".join(part for element in found for part in element.parts))
        return Parsed(plain.blocks, ("text without a place on the page",) if plain.blocks else ())
    blocks: list[Block] = []
    for element in without_copies(found, _key, lost):
        made = _blocks(element, lost)
        above = element.within and blocks and made and made[0].box.y1 <= blocks[-1].box.y0
        blocks[len(blocks) - int(bool(above)) :] = [*made, blocks[-1]] if above else made
    return Parsed(with_captions(blocks), tuple(lost))


def _key(element: _Element) -> tuple[str, tuple[float, ...], str] | None:
    """Return what `without_copies` compares; None for an element without a place or text."""
    text = "".join(element.parts).strip()
    return (element.name, tuple(element.places), text) if element.places and text else None


class _Reader:
    """Reader that proceeds from tag to tag, with the open elements and lists."""

    def __init__(self) -> None:
        self._found = [_Element("")]
        self._open: list[_Element] = []
        self._lists: list[int] = []  # next number of each open list; 0 without numbers

    def read(self, text: str) -> list[_Element]:
        at = 0
        for tag in _TAG.finditer(text):
            if tag["name"] and tag["name"] not in _LABELS and tag["name"] not in _GROUPS:
                continue
            top = self._keep(text[at : tag.start()])
            at = tag.end()
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
