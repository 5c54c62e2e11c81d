"""Pages as HTML with boxes to blocks: Chandra, Surya, and the HTML mode of Qwen-VL.

Chandra and Surya write a row of `<div data-bbox="x0 y0 x1 y1" data-label="...">` with HTML inside. Qwen-VL adds
`data-bbox` to any element, and a class with its kind.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from llm_ocr.models.parsers.coordinates import WHOLE_PAGE, Scale, from_1000, from_1024
from llm_ocr.models.parsers.html import VOID, HtmlTag, html_to_markdown, html_tokens
from llm_ocr.models.parsers.labels import described, kind_of, known_kind, labelled, normal, unlabelled, with_captions
from llm_ocr.models.parsers.pieces import Piece, markdown_pieces
from llm_ocr.models.parsers.plain import parse_plain, unwrapped, without_special
from llm_ocr.models.profile import NO_FRAME, Frame, Parsed
from llm_ocr.types import Block, BlockKind, Box

_NUMBER = re.compile(r"-?\d{1,9}(?:\.\d{0,9})?")
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
_INLINE_FORMULA = re.compile(r"\$([^$]+)\$\Z")
_CONTAINERS = frozenset({"div", "section", "article", "main", "aside", "form", "center"})
#: Labels of Qwen-VL's elements without a class.
_ELEMENTS = {
    "table": "table",
    "img": "image",
    "figure": "image",
    "figcaption": "caption",
    "ul": "list",
    "ol": "list",
    "li": "list",
    "pre": "code",
    "header": "header",
    "footer": "footer",
    **{f"h{level}": "heading" for level in range(1, 7)},
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


def parse_html(text: str, frame: Frame = NO_FRAME) -> Parsed:
    """Return the blocks of HTML without boxes: each has the whole page as its place. Markdown is read as such."""
    tokens = list(html_tokens(_body(text)))
    if not any(isinstance(token, HtmlTag) for token in tokens):
        return parse_plain(text)
    return Parsed(tuple(unlabelled(html_to_markdown(tokens), "", (WHOLE_PAGE,), headings=True)))


def _parsed(text: str, scale: Scale, label: _Label) -> Parsed:
    found = _split(html_tokens(_body(text)), label)
    if not any(piece.place for piece in found):
        plain = parse_html(text)
        return replace(plain, lost=(_NO_PLACE,) if plain.blocks else ())
    lost: list[str] = []
    blocks: list[Block] = []
    outside = False
    for piece in found:
        made = _blocks(piece, scale, lost) if piece.place else _around(piece)
        outside = outside or bool(made and not piece.place)
        blocks += made
    lost += [_NO_PLACE] if outside else []
    return Parsed(with_captions(blocks), tuple(lost))


def _body(text: str) -> str:
    body = unwrapped(without_special(text).strip())
    return body.partition("\n")[2].removesuffix("```") if body.startswith("```") else body


def _split(tokens: Iterable[HtmlTag | str], label: _Label) -> list[_Piece]:
    """Return the labeled elements and the content between them, in order of their beginnings."""
    found = [_Piece("", "", place=False)]
    open_pieces: list[_Piece] = []
    for token in tokens:
        name = label(token, open_pieces) if isinstance(token, HtmlTag) and not token.close else None
        if isinstance(token, HtmlTag) and name is not None:
            _begin(found, open_pieces, token, name)
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


def _begin(found: list[_Piece], open_pieces: list[_Piece], tag: HtmlTag, label: str) -> None:
    if open_pieces:
        open_pieces[-1].tokens.append(HtmlTag("p"))  # the text before and after is two paragraphs
    piece = _Piece(" ".join(label.split())[:_LONGEST_LABEL], tag.attributes.get("data-bbox", ""), tag.name)
    found.append(piece)
    if tag.name not in VOID:
        open_pieces.append(piece)
    piece.tokens.append(tag)


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


def _around(piece: _Piece) -> list[Block]:
    return unlabelled(html_to_markdown(piece.tokens), "", (WHOLE_PAGE,), headings=True)


def _blocks(piece: _Piece, scale: Scale, lost: list[str]) -> list[Block]:
    label = piece.label
    if normal(label) == _BLANK:
        return []
    box = _box(piece.box, scale)
    boxes = (box,) if box else ()
    kind = kind_of(label)
    text = html_to_markdown(piece.tokens)
    if kind is BlockKind.FIGURE:
        return _figure(label, boxes, text, lost)
    if box is None:
        lost.append(f"{label or 'a block'}: a box that cannot be read")
    place = boxes or (WHOLE_PAGE,)
    match kind:
        case BlockKind.LIST_ITEM:
            return list(_items(text, label, place[0]))
        case BlockKind.TEXT | BlockKind.TABLE if text:
            return unlabelled(text, label, place, headings=True)
        case BlockKind.HEADING if _BOLD.match(text):
            text = text[2:-2]
        case BlockKind.HEADING if _TOP_HEADING.match(text):
            return [replace(block, label=label) for block in labelled("title", boxes, text, lost)]
        case BlockKind.FORMULA:
            text = _INLINE_FORMULA.sub(r"$$\n\1\n$$", text)
    return labelled(label, boxes, text, lost)


def _items(text: str, label: str, box: Box) -> Iterator[Block]:
    """Yield the entries of a list, a bibliography, or a table of contents: one per paragraph."""
    for one in markdown_pieces(text):
        kind = BlockKind.LIST_ITEM if one.kind is BlockKind.TEXT else one.kind
        yield Block(kind, box, one.text, label, one.level)


def _figure(label: str, boxes: Sequence[Box], text: str, lost: list[str]) -> list[Block]:
    """Return a figure with its description, and the content of the page inside it: headings, captions, tables.

    A table inside a chart is the model's reading of the chart.
    """
    pieces = markdown_pieces(text)
    alt = next((one.text for one in pieces if _is_alt(one.text)), "")
    is_chart = "```mermaid" in text or _CHART.search(f"{label} {alt}") is not None
    printed = [
        Block(kind, (*boxes, WHOLE_PAGE)[0], one.text, kind.value, one.level)
        for one in pieces
        if _is_printed(one, is_chart)
        for kind in [BlockKind.CAPTION if one.kind is BlockKind.TEXT else one.kind]
    ]
    if not printed:
        return described(label, boxes, _figure_words(text), lost)
    words = "\n\n".join(one.text for one in pieces if not _is_printed(one, is_chart))
    figure = described(label, boxes, _figure_words(words), lost)
    return [*printed, *figure] if _is_printed(pieces[0], is_chart) else [*figure, *printed]


def _is_printed(piece: Piece, is_chart: bool) -> bool:
    match piece.kind:
        case BlockKind.TITLE | BlockKind.HEADING:
            return True
        case BlockKind.TABLE:
            return not is_chart
        case BlockKind.TEXT:
            return _CAPTION.match(piece.text) is not None
    return False


def _figure_words(text: str) -> str:
    """Return the model's description of a figure: the words of its picture, and the text around the picture."""
    paragraphs = [part[1:-1] if _is_alt(part) else part for part in text.split("\n\n")]
    if len(paragraphs) > 1 and paragraphs[0] == paragraphs[1]:
        del paragraphs[0]
    return "\n\n".join(paragraphs)


def _is_alt(text: str) -> bool:
    return len(text) > 2 and text[0] == text[-1] == "*" and "*" not in text[1:-1]


def _box(written: str, scale: Scale) -> Box | None:
    if not _BOX.match(written):
        return None
    numbers = [float(number) for number in _NUMBER.findall(written)]
    return scale(*numbers) if len(numbers) == 4 else None
