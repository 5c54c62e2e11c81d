"""Labels of all models mapped to block kinds; labeled pieces of answers to blocks."""

import re
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby, pairwise
from math import hypot
from typing import TypeVar

from llm_ocr.models.parsers.coordinates import WHOLE_PAGE, Scale
from llm_ocr.models.parsers.pieces import closed_table, heading, markdown_pieces
from llm_ocr.types import Block, BlockKind, Box

# Map from labels of all models to block kinds. The labels are from answers of DeepSeek-OCR, dots.ocr, LightOnOCR,
# MinerU, PaddleOCR-VL, Granite-Docling, Chandra, and Surya. Case, and `-`, `_`, or space are ignored.


_LABELS: dict[BlockKind, str] = {
    BlockKind.FIGURE: (
        "image figure picture photo diagram chart image_block header_image footer_image seal stamp logo chemical_block"
    ),
    BlockKind.TABLE: "table",
    BlockKind.FORMULA: "formula equation equation_block display_formula inline_formula isolate_formula",
    BlockKind.TITLE: "title doc_title",
    BlockKind.HEADING: "heading section section_header sub_title subtitle paragraph_title",
    BlockKind.CAPTION: "caption figure_title table_title chart_title",
    BlockKind.HEADER: "header page_header",
    BlockKind.FOOTER: "footer page_footer",
    BlockKind.PAGE_NUMBER: "page_number number",
    BlockKind.FOOTNOTE: "footnote",
    BlockKind.CODE: "code code_block algorithm",
    BlockKind.LIST_ITEM: "list list_item list_group bibliography table_of_contents reference_content",
    BlockKind.TEXT: "text paragraph plain_text other abstract aside_text reference formula_number handwriting",
}
_KINDS = {label: kind for kind, labels in _LABELS.items() for label in labels.split()}
#: Labels of figures, for profiles whose models may use any of them.
FIGURE_LABELS = frozenset(_LABELS[BlockKind.FIGURE].split())
_SPACES = str.maketrans("- ", "__")
_SECTION_LEVEL = "section_header_level_"
_ENDINGS = {"_caption": BlockKind.CAPTION, "_footnote": BlockKind.FOOTNOTE}


def normal(label: str) -> str:
    """Return the label in the spelling of this map: lower case, words joined by `_`."""
    return label.strip().casefold().translate(_SPACES)


def known_kind(label: str) -> BlockKind | None:
    """Return the kind for a label; None for a label that no known model uses."""
    name = normal(label)
    if name.startswith(_SECTION_LEVEL):
        return BlockKind.HEADING
    for ending, kind in _ENDINGS.items():
        if name.endswith(ending):
            return kind
    return _KINDS.get(name)


def kind_of(label: str) -> BlockKind:
    """Return the kind for a label; TEXT for an unknown label, so that its text stays on the page."""
    return known_kind(label) or BlockKind.TEXT


def level_of(label: str) -> int:
    """Return the heading level in a label (`section_header_level_2`), or 0."""
    digits = normal(label).removeprefix(_SECTION_LEVEL)
    return int(digits) if digits.isascii() and digits.isdecimal() and len(digits) == 1 else 0


# Splitter for answers with markers: a label and a box in a model's own notation, and the related text. A `MarkerSpec`
# describes each format. Linear in the length; only text of markers is lost.


#: Characters at the end of an answer that are searched for an incomplete marker.
_LONGEST_CUT = 400
_NUMBER = re.compile(r"-?(?:\d{1,9}(?:\.\d{0,9})?|\.\d{1,9})")
_BETWEEN = re.compile(r"[\s,]+")


@dataclass(frozen=True, slots=True)
class MarkerSpec:
    """Notation by which a model marks the pieces of a page.

    `marker` has the groups `label` and `box` (four numbers), and may have `more` (the piece continues an earlier one)
    and `turn`. The text follows the marker and ends at the next. With `inside`, the text is between two marks with one
    corner each (groups `x`, `y`), and the second one has the label. Quantifiers must be bounded or possessive, so that
    the time stays linear.
    """

    marker: re.Pattern[str]
    cut: re.Pattern[str]  # incomplete marker at the end of an answer; ends with \Z
    stray: re.Pattern[str] | None = None  # remains of markers, which are not text of the page
    inside: bool = False
    #: Whether a match is a marker, by its label and box (None: unreadable). Other matches are text. None: all are.
    accepts: Callable[[str, Box | None], bool] | None = None


@dataclass(slots=True)
class Marked:
    """Piece of an answer. `label` is None for text outside of markers."""

    label: str | None
    boxes: list[Box] = field(default_factory=list)
    parts: list[str] = field(default_factory=list)  # its text, and that of its continuations
    more: bool = False
    turn: str = ""

    @property
    def text(self) -> str:
        return "".join(self.parts)


@dataclass(slots=True)
class Split:
    """All pieces of an answer in order, and its losses. Pieces without a marker are present only if they have text."""

    pieces: list[Marked] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)

    @property
    def marked(self) -> bool:
        """Return whether there was any marker."""
        return any(piece.label is not None for piece in self.pieces)


_PieceT = TypeVar("_PieceT")


def without_copies(
    pieces: Sequence[_PieceT], signs: Callable[[_PieceT], Sequence[Hashable]], lost: list[str]
) -> list[_PieceT]:
    """Return the pieces without copies of others, which models repeat. Copies add a sentence to `lost`.

    A piece is a copy if it has one of the `signs` of a piece before it, such as its label, place, and text together.
    """
    seen: set[Hashable] = set()
    kept: list[_PieceT] = []
    for piece in pieces:
        own = signs(piece)
        if seen.isdisjoint(own):
            kept.append(piece)
        seen.update(own)
    if len(kept) < len(pieces):
        lost.append(f"{len(pieces) - len(kept)} blocks that repeat another were left out")
    return kept


def signs_of(label: str | None, place: Sequence[Hashable], text: str) -> Sequence[Hashable]:
    """Return the sign of a piece for `without_copies`: its label, place, and text; none without a place or text."""
    return [(label, tuple(place), text.strip())] if place and text.strip() else []


def split_by_marker(text: str, spec: MarkerSpec, scale: Scale) -> Split:
    """Return the pieces of an answer. Never raises."""
    text, cut = without_cut(text, spec.cut)
    split = Split()
    for piece in _inside(text, spec, scale, split.lost) if spec.inside else _behind(text, spec, scale, split.lost):
        if spec.stray is not None:
            piece.parts = [spec.stray.sub("", part) for part in piece.parts]
        if piece.label is not None or piece.text.strip():
            split.pieces.append(piece)
    split.pieces = without_copies(
        split.pieces, lambda piece: signs_of(piece.label, piece.boxes, piece.text), split.lost
    )
    if cut:
        split.lost.append("the answer ends within a marker")
    return split


def without_cut(text: str, cut: re.Pattern[str]) -> tuple[str, bool]:
    """Return the text without an incomplete marker at its end, and whether there was one."""
    found = cut.search(text, max(0, len(text) - _LONGEST_CUT))
    return (text[: found.start()], True) if found else (text, False)


def read_box(written: str, scale: Scale) -> Box | None:
    """Return the box of four numbers separated by commas or spaces, or None."""
    numbers = _BETWEEN.split(written.strip())
    if len(numbers) != 4 or not all(map(_NUMBER.fullmatch, numbers)):
        return None
    x0, y0, x1, y1 = map(float, numbers)
    return scale(x0, y0, x1, y1)


def unreadable(label: str) -> str:
    """Return the message in `lost` for an unreadable box."""
    return f"{label or 'a piece'}: a box that cannot be read"


def _behind(text: str, spec: MarkerSpec, scale: Scale, lost: list[str]) -> Iterator[Marked]:
    piece = Marked(None)
    done = 0
    for mark in spec.marker.finditer(text):
        groups = mark.groupdict()
        label = mark["label"].strip()
        box = read_box(mark["box"], scale)
        if spec.accepts is not None and not spec.accepts(label, box):
            continue
        piece.parts.append(text[done : mark.start()])
        yield piece
        done = mark.end()
        if box is None and kind_of(label) is not BlockKind.FIGURE:  # `described` names a figure without a box
            lost.append(unreadable(label))
        piece = Marked(label, [box] if box else [], more=bool(groups.get("more")), turn=groups.get("turn") or "")
    piece.parts.append(text[done:])
    yield piece


def _inside(text: str, spec: MarkerSpec, scale: Scale, lost: list[str]) -> Iterator[Marked]:
    """Yield pieces: a mark opens a piece or ends the open one, by its label, or if no text precedes the next mark."""
    marks = list(spec.marker.finditer(text))
    yield Marked(None, parts=[text[: marks[0].start()] if marks else text])
    opened: re.Match[str] | None = None
    kept = ""  # text of the open piece
    for mark, following in pairwise([*marks, None]):
        assert mark is not None  # only the second half of the last pair is None
        behind = text[mark.end() : following.start() if following else len(text)]
        ends = mark["label"] is not None or (opened is not None and kept.strip() and not behind.strip())
        if ends:
            label = (mark["label"] or "").strip()
            box = read_box(f"{opened['x']},{opened['y']},{mark['x']},{mark['y']}", scale) if opened else None
            if box is None and kind_of(label) is not BlockKind.FIGURE:
                lost.append(unreadable(label))
            yield Marked(label, [box] if box else [], [kept])
            opened, kept = None, ""
            yield Marked(None, parts=[behind])
        else:
            if opened is not None and kept.strip():
                lost.append("a piece without an end")
                yield Marked(None, parts=[kept])
            opened, kept = mark, behind
    if opened is not None:
        yield Marked(None, parts=[kept])


#: Number of figures and tables before and after a figure that are searched for captions. Pages have fewer, and the
#: limit keeps the time linear.
_NEIGHBOURS = 12
_FAR = 2.0  # more than any gap on a page
_OTHERS = ("table", "code", "algorithm")


def with_captions(blocks: Sequence[Block]) -> tuple[Block, ...]:
    """Return the blocks, each figure with its caption in the document, which also stays a separate block.

    A caption belongs to the nearest figure on the page, unless its label or a nearer table contradicts. Without boxes,
    the caption belongs to the preceding figure, otherwise to the following one.
    """
    places = [index for index, block in enumerate(blocks) if block.kind in (BlockKind.FIGURE, BlockKind.TABLE)]
    captions: dict[int, list[str]] = {}

    def distance(place: int, caption: int) -> tuple[float, int, bool]:
        box, other = blocks[place].box, blocks[caption].box
        if other == WHOLE_PAGE:
            apart = 0.0
        elif box == WHOLE_PAGE:
            apart = _FAR  # unknown place
        else:
            across = max(box.x0 - other.x1, other.x0 - box.x1, 0.0)
            apart = hypot(across, max(box.y0 - other.y1, other.y0 - box.y1, 0.0))
        return apart, abs(place - caption), place > caption

    passed = 0
    for index, block in enumerate(blocks):
        while passed < len(places) and places[passed] < index:
            passed += 1
        if block.kind is not BlockKind.CAPTION or normal(block.label).startswith(_OTHERS):
            continue
        near = places[max(0, passed - _NEIGHBOURS) : passed + _NEIGHBOURS]
        if normal(block.label) != "caption":
            near = [place for place in near if blocks[place].kind is BlockKind.FIGURE]
        if near:
            nearest = min(near, key=partial(distance, caption=index))
            captions.setdefault(nearest, []).append(block.text)
    return tuple(
        replace(block, caption=" ".join(captions[index]))
        if index in captions and block.kind is BlockKind.FIGURE
        else block
        for index, block in enumerate(blocks)
    )


_HEADINGS = (BlockKind.TITLE, BlockKind.HEADING)
_TABLE = re.compile(r"<table\b[^<>]{0,200}>", re.IGNORECASE)
_TABLE_END = "</table>"
#: Beginnings of a Markdown construct, as opposed to the next line of a paragraph.
_CONSTRUCT = re.compile(
    r"[ \t]{0,8}(?:[-*+•][ \t]|\d{1,9}[.)][ \t]|#{1,6}[ \t]|\||\$\$|\\\[|<table|```)", re.IGNORECASE
)
# Scripts without spaces between words: Han, Kana, full-width forms. Hangul has spaces.
_NO_SPACES = re.compile("[\u2e80-\u312f\u3190-\uabff\uf900-\ufaff\uff00-\uffef]")
_HYPHENS = ("-", "\u00ad", "\u2010")


def with_continued(pieces: Iterable[Marked]) -> list[Marked]:
    """Return the pieces, with those marked `more` joined to the preceding piece of the same label.

    Figures, tables, and furniture may be between the two pieces. A heading may not: no text continues after a heading.
    A continuation without a predecessor (from another page) stays separate.
    """
    kept: list[Marked] = []
    last: dict[str, Marked] = {}
    joined: dict[int, Marked] = {}
    for piece in pieces:
        kind = kind_of(piece.label or "")
        if kind in _HEADINGS:
            last.clear()
        before = last.get(normal(piece.label or "")) if piece.more else None
        if before is not None:
            before.boxes += piece.boxes
            before.parts.append(piece.text)
            joined[id(before)] = before
            continue
        kept.append(piece)
        if piece.label is not None and kind is not BlockKind.FIGURE:
            piece.parts = [piece.text]
            last[normal(piece.label)] = piece
    for piece in joined.values():
        piece.parts = [_whole(kind_of(piece.label or ""), [part.strip() for part in piece.parts])]
    return kept


def _whole(kind: BlockKind, parts: Sequence[str]) -> str:
    """Return the parts as one text; the rows of HTML tables become one table."""
    made: list[str] = []
    for part in filter(None, parts):
        begin = _TABLE.match(part) if kind is BlockKind.TABLE else None
        if made and begin and made[-1].lower().endswith(_TABLE_END):
            made[-1] = made[-1][: -len(_TABLE_END)]
            part = part[begin.end() :]
        elif made:
            made[-1], between = _seam(kind, made[-1], part)
            made.append(between)
        made.append(part)
    return "".join(made)


def _seam(kind: BlockKind, before: str, after: str) -> tuple[str, str]:
    """Return the preceding text without a hyphen that splits a word, and the separator between the two parts."""
    if kind is BlockKind.TABLE:
        return before, "\n\n"
    if kind in (BlockKind.CODE, BlockKind.FORMULA):
        return before, "\n"
    if _CONSTRUCT.match(after):
        return before, "\n" if kind is BlockKind.LIST_ITEM else "\n\n"
    if before.endswith(_HYPHENS) and before[-2:-1].isalpha() and after[0].islower():
        return before[:-1], ""
    apart = not (_NO_SPACES.match(before[-1]) and _NO_SPACES.match(after[0]))
    return before, " " if apart else ""


def with_own_tables(pieces: Iterable[Marked]) -> list[Marked]:
    """Return the pieces, each empty table with the first table in the text of a later piece, and behind that piece.

    DeepSeek-OCR writes the marker of a table, then the marker of its caption, the caption, and the table itself.
    """
    kept = list(pieces)
    empty: deque[Marked] = deque()  # tables without text so far
    behind: dict[int, list[Marked]] = {}  # tables by the piece that they follow
    for piece in kept:
        is_table = piece.label is not None and kind_of(piece.label) is BlockKind.TABLE
        if is_table and not piece.text.strip():
            empty.append(piece)
        found = [] if is_table or not empty else markdown_pieces(piece.text, headings=False)
        starts = [number for number, part in enumerate(found) if part.kind is BlockKind.TABLE][: len(empty)]
        if starts:
            texts = ["\n\n".join(part.text for part in found[a:b]) for a, b in pairwise([0, *starts, None])]
            piece.parts = texts[:1]
            tables = behind[id(piece)] = [empty.popleft() for _ in starts]
            for table, text in zip(tables, texts[1:], strict=True):
                table.parts = [text]
    moved = {id(table) for tables in behind.values() for table in tables}
    return [part for piece in kept if id(piece) not in moved for part in (piece, *behind.get(id(piece), ()))]


_CENTRE = re.compile(r"</?center>", re.IGNORECASE)
_MARKS = re.compile(r"^( {0,3})(#{1,6})(?=\s|$)", re.MULTILINE)
_DELIMITERS = ("$", "\\[", "\\(", "\\begin{")


def labelled(label: str, found: Sequence[Box], text: str, lost: list[str]) -> list[Block]:
    """Return the blocks of one label, from its boxes (none: the whole page) and its text in Markdown. Linear.

    A figure with several boxes is one block per box, followed by its text. A figure without a box is lost. Text with
    several boxes continues in the others (`Block.continued`). Each loss adds a sentence to `lost`.
    """
    kind = kind_of(label)
    boxes = tuple(found) or (WHOLE_PAGE,)
    text = text.strip()
    if kind is BlockKind.FIGURE:
        return described(label, found, "", lost) + unlabelled(text, label, boxes[:1], headings=False)
    if not text:
        if kind is BlockKind.TABLE:
            lost.append(f"{label}: no text")
        return []
    if kind in _HEADINGS:
        # The marks of the text itself give the level and are removed. Other text may follow.
        first, _, rest = text.partition("\n\n")
        line = " ".join(first.split())
        marks, words = heading(line) or (0, line)
        if kind is BlockKind.TITLE and marks > 1:
            kind = BlockKind.HEADING
        level = level_of(label) or max(marks - 1, min(marks, 1)) if kind is BlockKind.HEADING else 0
        head = [Block(kind, boxes[0], words, label, level, continued=boxes[1:])] if words else []
        return head + unlabelled(rest, label, boxes, headings=False)
    if kind in (BlockKind.TEXT, BlockKind.LIST_ITEM) or (kind is BlockKind.CAPTION and "<table" in text.lower()):
        parts = unlabelled(text, label, boxes, headings=False)
        if kind is BlockKind.TEXT:
            return parts
        return [replace(part, kind=kind) if part.kind is BlockKind.TEXT else part for part in parts]
    if kind is BlockKind.TABLE:
        text = closed_table(text)
    elif kind is BlockKind.CAPTION:
        text = " ".join(_CENTRE.sub(" ", text).split())
    elif kind is BlockKind.FORMULA and not any(mark in text for mark in _DELIMITERS):
        text = f"$$\n{text}\n$$"
    return [Block(kind, boxes[0], text, label, continued=boxes[1:])]


def described(label: str, found: Sequence[Box], text: str, lost: list[str]) -> list[Block]:
    """Return the blocks of a figure with a description by the model; without a box, the description is kept as text."""
    words = text.strip()
    if not found:
        lost.append(f"{label}: cannot be cut out without a box")
        return [Block(BlockKind.TEXT, WHOLE_PAGE, words, label)] if words else []
    first, *others = found
    figure = Block(BlockKind.FIGURE, first, label=label, described=words)
    return [figure, *(Block(BlockKind.FIGURE, box, label=label) for box in others)]


def unlabelled(text: str, label: str, boxes: Sequence[Box], *, headings: bool) -> list[Block]:
    """Return the blocks of Markdown text at these boxes: lists, tables, formulas, and paragraphs.

    Consecutive paragraphs stay one block. Without `headings`, `#` more likely begins a comment in a program than a
    heading. The `#` is then escaped, unless the line is alone and has several.
    """
    alone = heading(text.strip()) if "\n" not in text.strip() else None
    found = markdown_pieces(text, headings=headings or bool(alone and alone[1] and alone[0] > 1))
    more = tuple(boxes[1:])
    blocks: list[Block] = []
    for is_text, run in groupby(found, lambda piece: piece.kind is BlockKind.TEXT):
        if is_text:
            words = _MARKS.sub(r"\1\\\2", "\n\n".join(piece.text for piece in run))
            blocks.append(Block(BlockKind.TEXT, boxes[0], words, label, continued=more))
        else:
            blocks += [Block(piece.kind, boxes[0], piece.text, label, piece.level, continued=more) for piece in run]
    return blocks
