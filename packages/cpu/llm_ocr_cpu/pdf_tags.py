"""Read the structure of a tagged PDF page: the blocks of its text in reading order, as the author's program wrote them.

Word processors, spreadsheets, and browsers write these tags (ISO 32000-1, 14.7 and 14.8): paragraphs, headings, lists,
and the rows and cells of tables. Tags may be wrong, so they are compared with the places of the text before their use.
"""

import ctypes
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pypdfium2
import pypdfium2.raw as pdfium

from llm_ocr.types import Line, Tag

Ints = npt.NDArray[np.int64]

#: Standard types that are parts of the block around them.
_INLINE = frozenset(
    {
        *("Span", "Link", "NonStruct", "Private", "Quote", "Reference", "BibEntry", "Code", "Annot", "Form", "Formula"),
        *("Em", "Strong", "Sub", "Lbl", "LBody", "Ruby", "RB", "RT", "RP", "Warichu", "WT", "WP"),
    }
)
#: Standard types whose paragraphs are parts of them. Figures and tables of contents hold all that is in them.
_WHOLE, _CLOSED = frozenset(("LI", "TD", "TH", "Caption", "Note", "FENote")), frozenset(("Figure", "TOC"))
#: Standard types of cells.
CELLS = ("TD", "TH")
#: Standard types of parts that hold blocks; text directly in them is no block.
_CONTAINERS = frozenset(("Document", "Part", "Art", "Sect", "Index", "L", "Table", "TR", "THead", "TBody", "TFoot"))
#: Limits that bound the time: elements of a page with their parts, their depth, and lines that tags arrange.
_MOST_ELEMENTS, _DEEPEST, MOST_LINES = 20_000, 100, 1500
#: Most rows and columns of a cell.
_MOST_SPANNED = 100
#: Least share of a page's characters that are tagged.
_TAGGED = 0.8
#: Largest shares of wrong borders between consecutive blocks: within a sentence or a row, and upward in a column.
_MOST_CUT, _MOST_UPWARD = 0.03, 0.1
#: Least width of a full row, as a share of the widest row of the page.
_FULL = 0.8
#: Gap in font sizes below which two texts of a row are one block, and least overlap of two texts in one column.
_TOUCHING, _SAME_COLUMN = 0.5, 0.5


def read_tags(page: pypdfium2.PdfPage, objects: Ints) -> tuple[tuple[Tag, ...], Ints]:
    """Return the tags of a page in reading order, and the place of its tag for each text object, -1 without one.

    Args:
        page: Page in pdfium.
        objects: Addresses of text objects, (n,). Objects inside of forms have no tag: their marks are the form's own.
    """
    of_objects = np.full(len(objects), -1, dtype=np.int64)
    tree = pdfium.FPDF_StructTree_GetForPage(page.raw)
    if not tree:
        return (), of_objects
    try:
        tags, by_mark = _walk(tree)
    finally:
        pdfium.FPDF_StructTree_Close(tree)
    if not by_mark:
        return (), of_objects
    handles = {}
    for index in range(pdfium.FPDFPage_CountObjects(page.raw)):
        handle = pdfium.FPDFPage_GetObject(page.raw, index)
        handles[ctypes.cast(handle, ctypes.c_void_p).value] = handle
    distinct, where = np.unique(objects, return_inverse=True)
    marks = [pdfium.FPDFPageObj_GetMarkedContentID(handles[at]) if at in handles else -1 for at in distinct.tolist()]
    return tuple(tags), np.array([by_mark.get(mark, -1) for mark in marks], dtype=np.int64)[where]


def _walk(tree: pdfium.FPDF_STRUCTTREE) -> tuple[list[Tag], dict[int, int]]:
    """Return the tags of a page, and the place of the tag of each marked content by its identifier."""
    tags: list[Tag] = []
    claims: dict[int, list[tuple[bool, bool, int]]] = {}
    seen = 0

    def add(element: pdfium.FPDF_STRUCTELEMENT, block: int, depth: int) -> None:
        nonlocal seen
        kids = range(max(0, pdfium.FPDF_StructElement_CountChildren(element)))
        seen += 1 + len(kids)  # a damaged tree may hold an element many times
        if depth > _DEEPEST or seen > _MOST_ELEMENTS:
            return
        kind = _kind(element)
        around = tags[block].kind if block >= 0 else ""
        part = (around in _WHOLE and kind in ("P", "Div")) or around in _CLOSED
        if kind not in _INLINE and not part:
            spans = (_span(element, "RowSpan"), _span(element, "ColSpan")) if kind in CELLS else (1, 1)
            tags.append(Tag(kind, block, *spans))
            block = len(tags) - 1
        marks = [pdfium.FPDF_StructElement_GetChildMarkedContentID(element, index) for index in kids]
        own = [mark for mark in marks if mark >= 0]
        # pdfium also gives marks on other pages, and in forms, which figures have. The numbers of a page grow.
        spread = any(one > other for one, other in pairwise(own))
        for mark in own if block >= 0 and tags[block].kind not in _CONTAINERS else ():
            claims.setdefault(mark, []).append((tags[block].kind == "Figure", spread, block))
        for index in kids:
            if child := pdfium.FPDF_StructElement_GetChildAtIndex(element, index):
                add(child, block, depth + 1)
            elif kind == "TR" and not part and marks[index] < 0:  # pdfium leaves out cells without content
                tags.append(Tag("TD", block))

    for index in range(pdfium.FPDF_StructTree_CountChildren(tree)):
        if child := pdfium.FPDF_StructTree_GetChildAtIndex(tree, index):
            add(child, -1, 0)
    return tags, {mark: min(blocks)[-1] for mark, blocks in claims.items()}


def _kind(element: pdfium.FPDF_STRUCTELEMENT) -> str:
    """Return the standard type of an element; pdfium resolves the file's own types."""
    buffer = ctypes.create_string_buffer(128)
    length = pdfium.FPDF_StructElement_GetType(element, buffer, len(buffer))
    return buffer.raw[: max(0, min(length, len(buffer)) - 2)].decode("utf-16-le", "replace")


def _span(element: pdfium.FPDF_STRUCTELEMENT, name: str) -> int:
    """Return the number of rows or columns of a cell, by its attributes."""
    number = ctypes.c_float()
    for index in range(max(0, pdfium.FPDF_StructElement_GetAttributeCount(element))):
        attributes = pdfium.FPDF_StructElement_GetAttributeAtIndex(element, index)
        value = pdfium.FPDF_StructElement_Attr_GetValue(attributes, name.encode()) if attributes else None
        if value and pdfium.FPDF_StructElement_Attr_GetNumberValue(value, number):
            return min(max(1, int(number.value)), _MOST_SPANNED)
    return 1


def enclosing(tags: Sequence[Tag], place: int, kinds: Sequence[str]) -> int:
    """Return the place of the innermost tag of one of the kinds: that at `place`, or one around it; -1 without any."""
    while place >= 0 and tags[place].kind not in kinds:
        place = tags[place].parent
    return place


def row_and_table(tags: Sequence[Tag], cell: int) -> tuple[int, int]:
    """Return the places of the row and of the table of a cell, -1 for none. Some programs write rows in a section."""
    row = enclosing(tags, tags[cell].parent, ("TR",))
    table = tags[row].parent if row >= 0 else -1
    while table >= 0 and tags[table].kind in ("THead", "TBody", "TFoot"):
        table = tags[table].parent
    return row, table if table >= 0 and tags[table].kind != "Document" else -1


def fit_page(lines: Sequence[Line], tags: Sequence[Tag]) -> bool:
    """Return whether tags fit the places of the text: most text has one, and their borders are between blocks.

    Args:
        lines: Lines of the page, none of which has text of two tags.
        tags: Tags of the page.
    """
    tagged = [line for line in lines if line.tag >= 0]
    if sum(len(line.text) for line in tagged) < _TAGGED * sum(len(line.text) for line in lines):
        return False
    if sum(line.box.height > line.box.width for line in tagged if len(line.text) > 2) * 2 > len(tagged):
        return False  # a page on its side
    flowing = [line for line in tagged if tags[line.tag].kind not in (*CELLS, "Figure")]
    flowing.sort(key=lambda line: (line.tag, line.drawn))
    borders = [(one, other) for one, other in pairwise(flowing) if one.tag != other.tag]
    widest = max((line.box.width for line in flowing), default=0.0)
    cut = sum(_is_cut(one, other, _FULL * widest) for one, other in borders)
    upward = sum(_is_upward(one, other) for one, other in borders)
    return cut <= max(1, _MOST_CUT * len(borders)) and upward <= _MOST_UPWARD * len(borders)


def _is_cut(one: Line, other: Line, full: float) -> bool:
    """Return whether a border is between words of one row, or after a full row of a sentence that goes on."""
    level = abs(one.box.y1 - other.box.y1) < 0.3 * min(one.size, other.size)
    if level and 0 <= max(other.box.x0 - one.box.x1, one.box.x0 - other.box.x1) < _TOUCHING * one.size:
        return True
    below = 0 < other.box.y1 - one.box.y1 < 2 * one.size
    return below and one.box.width > full and other.text[:1].islower() and one.text[-1:].isalnum()


def _is_upward(one: Line, other: Line) -> bool:
    """Return whether the second text is above the first one in the same column."""
    across = min(one.box.x1, other.box.x1) - max(one.box.x0, other.box.x0)
    return other.box.y1 < one.box.y0 and across > _SAME_COLUMN * min(one.box.width, other.box.width)
