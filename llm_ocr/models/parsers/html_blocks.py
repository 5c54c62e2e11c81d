"""Pages as HTML with boxes to blocks: Chandra, Surya, and the HTML mode of Qwen-VL.

Chandra and Surya write a row of `<div data-bbox="x0 y0 x1 y1" data-label="...">` with HTML inside. Qwen-VL adds
`data-bbox` to any element, and a class with its kind.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from llm_ocr.models.parsers.coordinates import NUMBER, WHOLE_PAGE, Scale, from_1000, from_1024
from llm_ocr.models.parsers.html import VOID, HtmlTag, html_to_markdown, html_tokens
from llm_ocr.models.parsers.labels import (
    described,
    kind_of,
    known_kind,
    labelled,
    normal,
    signs_of,
    unlabelled,
    unreadable,
    with_captions,
    without_copies,
)
from llm_ocr.models.parsers.layout_json import parse_json
from llm_ocr.models.parsers.pieces import Piece, markdown_pieces
from llm_ocr.models.parsers.plain import parse_plain, without_special
from llm_ocr.models.parsers.talk import unwrapped
from llm_ocr.models.profile import NO_FRAME, Frame, Parsed
from llm_ocr.types import Block, BlockKind, Box

_BOX = re.compile(r"[\s\[\](),;\d.-]{1,200}\Z")
_LONGEST_LABEL = 80
_BLANK = "blank_page"
_TOP_HEADING = re.compile(r"# (?=\S)")
_NO_PLACE = "text without a box: its place on the page is not known"
_BOLD = re.compile(r"\*\*([^*]+)\*\*\Z")
_CHART = re.compile(r"\b(?:chart|graph|plot|diagram|histogram|curve|infographic)s?\b", re.IGNORECASE)
_CAPTION = re.compile(
    r"[*_]{0,3}(?:fig(?:ure|ura)?|abb(?:ildung)?|tab(?:le|elle)?|plate|map|scheme|图|圖|図|表)\.?\s{0,2}\d",
    re.IGNORECASE,
)
_WORD = re.compile(r"(?<!\\)\b[^\W\d_]{4}")
_INLINE_FORMULA = re.compile(r"\$([^$]+)\$\Z")
_CONTAINERS = frozenset({"div", "section", "article", "main", "aside", "form", "center"})
#: Labels of Qwen-VL's elements without a class.
_ELEMENTS = {
    **{name: name for name in ("table", "header", "footer")},
    **dict.fromkeys(("img", "figure"), "image"),
    **dict.fromkeys(("ul", "ol", "li"), "list"),
    **dict.fromkeys(("h1", "h2", "h3", "h4", "h5", "h6"), "heading"),
    "figcaption": "caption",
    "pre": "code",
}


@dataclass(slots=True)
class _Piece:
    """Labeled element: its own tags and text, without those of inner labeled elements.

    An element without a `place` holds the content between such elements.
    """

    label: str
    box: str  # as written
    element: str = ""
    place: bool = True
    tokens: list[HtmlTag | str] = field(default_factory=list)
    inner: int = 0  # number of inner open elements with the same name


#: Label of an element that begins a piece, given the open ones; None for an element that is part of them.
_Label = Callable[[HtmlTag, Sequence[_Piece]], str | None]


def _parsed(text: str, scale: Scale, label: _Label) -> Parsed:
    """Return the blocks of an answer, descriptions of figures in `Block.described`. Never raises; linear."""
    body = unwrapped(without_special(text).strip())
    if body.startswith("```"):
        body = body.partition("\n")[2].removesuffix("```")
    tokens = list(html_tokens(body))
    found = _split(tokens, label)
    if not any(piece.place for piece in found):
        if body.startswith(("[", "{")) and (layout := parse_json(body)).blocks and layout.blocks[0].box != WHOLE_PAGE:
            return layout
        plain = parse_plain(text).blocks
        if any(isinstance(token, HtmlTag) for token in tokens):
            plain = tuple(unlabelled(html_to_markdown(tokens), "", (WHOLE_PAGE,), headings=True))
        return Parsed(plain, (_NO_PLACE,) if plain else ())
    lost: list[str] = []
    blocks: list[Block] = []
    outside = False
    for piece in without_copies(
        found, lambda piece: signs_of(piece.label, piece.box, html_to_markdown(piece.tokens) if piece.box else ""), lost
    ):
        made = _blocks(piece, scale, lost)
        outside = outside or bool(made and not piece.place)
        blocks += made
    lost += [_NO_PLACE] if outside else []
    return Parsed(with_captions(blocks), tuple(lost))


def _split(tokens: Iterable[HtmlTag | str], label_of: _Label) -> list[_Piece]:
    """Return the labeled elements and the content between them, in order of their beginnings."""
    found = [_Piece("", "", place=False)]
    open_pieces: list[_Piece] = []
    for token in tokens:
        if isinstance(token, HtmlTag) and not token.close and (label := label_of(token, open_pieces)) is not None:
            if open_pieces:
                open_pieces[-1].tokens.append(HtmlTag("p"))  # the text before and after is two paragraphs
            label = " ".join(label.split())[:_LONGEST_LABEL]
            found.append(_Piece(label, token.attributes.get("data-bbox", ""), token.name, tokens=[token]))
            if token.name not in VOID:
                open_pieces.append(found[-1])
            continue
        if not open_pieces and found[-1].place:
            found.append(_Piece("", "", place=False))
        top = open_pieces[-1] if open_pieces else found[-1]
        if open_pieces and isinstance(token, HtmlTag) and token.name == top.element:
            top.inner += -1 if token.close else 1
            if top.inner < 0:
                open_pieces.pop()
        top.tokens.append(token)
    return found


def _div_label(tag: HtmlTag, above: Sequence[_Piece]) -> str | None:
    if tag.name != "div" or not ("data-label" in tag.attributes or "data-bbox" in tag.attributes):
        return None
    return tag.attributes.get("data-label", "").strip()


def _qwen_label(tag: HtmlTag, above: Sequence[_Piece]) -> str | None:
    """Return the label of a box, or of a figure's caption; None inside of another box, except of a mere container."""
    if "data-bbox" not in tag.attributes or tag.name in ("body", "html"):
        return None
    if above and not (above[-1].element in _CONTAINERS and known_kind(above[-1].label) is None):
        in_figure = kind_of(above[-1].label) is BlockKind.FIGURE
        return "caption" if in_figure and tag.name in ("p", "figcaption") else None
    names = tag.attributes.get("data-label") or tag.attributes.get("class", "")
    known = (name for name in (*names.split()[:8], names) if known_kind(name))
    return next(known, "") or _ELEMENTS.get(tag.name, names.strip())


def _blocks(piece: _Piece, scale: Scale, lost: list[str]) -> list[Block]:
    label, text = piece.label, html_to_markdown(piece.tokens)
    if not piece.place:
        return unlabelled(text, "", (WHOLE_PAGE,), headings=True)
    if normal(label) == _BLANK:
        return []
    numbers = [float(number) for number in NUMBER.findall(piece.box)] if _BOX.match(piece.box) else []
    box = scale(*numbers) if len(numbers) == 4 else None
    boxes = (box,) if box else ()
    kind = kind_of(label)
    if kind is BlockKind.FIGURE:
        return _figure(label, boxes, text, lost)
    if box is None:
        lost.append(unreadable(label or "a block"))
    place = box or WHOLE_PAGE
    match kind:
        case BlockKind.LIST_ITEM:  # entries of a list, a bibliography, or a table of contents: one per paragraph
            return [
                Block(kind if entry.kind is BlockKind.TEXT else entry.kind, place, entry.text, label, entry.level)
                for entry in markdown_pieces(text)
            ]
        case BlockKind.TEXT | BlockKind.TABLE if text:
            return unlabelled(text, label, (place,), headings=True)
        case BlockKind.HEADING if _BOLD.match(text):
            text = text[2:-2]
        case BlockKind.HEADING if _TOP_HEADING.match(text):
            return [replace(block, label=label) for block in labelled("title", boxes, text, lost)]
        case BlockKind.FORMULA:
            text = _INLINE_FORMULA.sub(r"$$\n\1\n$$", text)
            parts = markdown_pieces(text, headings=False)
            if sum(part.kind is BlockKind.FORMULA for part in parts) > 1 or any(_is_prose(part) for part in parts):
                return unlabelled(text, label, (place,), headings=False)
    return labelled(label, boxes, text, lost)


def _is_prose(piece: Piece) -> bool:
    return piece.kind is BlockKind.TEXT and _WORD.search(piece.text) is not None


def _figure(label: str, boxes: Sequence[Box], text: str, lost: list[str]) -> list[Block]:
    """Return a figure with its description, and the content of the page inside it: headings, captions, tables.

    A table inside a chart is the model's reading of the chart.
    """
    pieces = markdown_pieces(text)
    alt = next((piece.text for piece in pieces if _is_alt(piece.text)), "")
    is_chart = "```mermaid" in text or _CHART.search(f"{label} {alt}") is not None

    def is_printed(piece: Piece) -> bool:
        if piece.kind is BlockKind.TEXT:
            return _CAPTION.match(piece.text) is not None
        return piece.kind in (BlockKind.TITLE, BlockKind.HEADING) or (piece.kind is BlockKind.TABLE and not is_chart)

    printed = [
        Block(kind, (*boxes, WHOLE_PAGE)[0], piece.text, kind.value, piece.level)
        for piece in filter(is_printed, pieces)
        for kind in [BlockKind.CAPTION if piece.kind is BlockKind.TEXT else piece.kind]
    ]
    if printed:
        text = "\n\n".join(piece.text for piece in pieces if not is_printed(piece))
    # The description is the words of the picture, and the text around the picture.
    paragraphs = [part[1:-1] if _is_alt(part) else part for part in text.split("\n\n")]
    if len(paragraphs) > 1 and paragraphs[0] == paragraphs[1]:
        del paragraphs[0]
    figure = described(label, boxes, "\n\n".join(paragraphs), lost)
    return [*printed, *figure] if printed and is_printed(pieces[0]) else [*figure, *printed]


def _is_alt(text: str) -> bool:
    return len(text) > 2 and text[0] == text[-1] == "*" and "*" not in text[1:-1]


def parse_chandra(text: str, frame: Frame = NO_FRAME) -> Parsed:
    """Return the blocks of Chandra 2's answer, boxes in 0..1000. Never raises; linear in the length.

    Descriptions of figures, including chart data and Mermaid diagrams, are in `Block.described`.
    """
    return _parsed(text, from_1000, _div_label)


def parse_chandra1(text: str, frame: Frame = NO_FRAME) -> Parsed:
    """Return the blocks of Chandra 1's answer: boxes in 0..1024, mostly as a list in brackets."""
    return _parsed(text, from_1024, _div_label)


def parse_surya(text: str, frame: Frame = NO_FRAME) -> Parsed:
    """Return the blocks of Surya's full page, boxes in 0..1000."""
    return _parsed(text, from_1000, _div_label)


def parse_qwen_html(text: str, frame: Frame = NO_FRAME) -> Parsed:
    """Return the blocks of Qwen-VL's answer to `qwenvl html`, boxes in 0..1000."""
    return _parsed(text, from_1000, _qwen_label)
