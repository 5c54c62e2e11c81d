"""Answers with markers to blocks: DeepSeek-OCR, LightOnOCR-3, Unlimited-OCR, MinerU's layout, Nemotron Parse.

LightOnOCR-3 writes `![label](x1,y1,x2,y2) text`, Unlimited-OCR `<|det|>label [x1, y1, x2, y2]<|/det|>text`, MinerU
`<|box_start|>x1 y1 x2 y2<|box_end|><|ref_start|>label<|ref_end|><|rotate_up|>`, all of them 0 to 1000 over each side.
Nemotron Parse writes `<x_0.1><y_0.1>text<x_0.9><y_0.2><class_Text>`, fractions of a canvas.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from llm_ocr.models.parsers.coordinates import NUMBER, WHOLE_PAGE, from_1000, from_bins, from_canvas
from llm_ocr.models.parsers.figure_answers import read_chart
from llm_ocr.models.parsers.labels import (
    Marked,
    MarkerSpec,
    Split,
    described,
    kind_of,
    known_kind,
    labelled,
    level_of,
    normal,
    signs_of,
    split_by_marker,
    unlabelled,
    unreadable,
    with_captions,
    with_continued,
    with_own_tables,
    without_copies,
)
from llm_ocr.models.parsers.latex import with_html_tables
from llm_ocr.models.parsers.markdown import parse_lighton2
from llm_ocr.models.parsers.otsl import table_text
from llm_ocr.models.parsers.plain import parse_plain, plain_body, without_special
from llm_ocr.models.parsers.talk import is_announcement
from llm_ocr.models.profile import NO_FRAME, Frame, PageNotes, Parsed
from llm_ocr.types import FURNITURE, Block, BlockKind, Box

# DeepSeek's grounding tags: `<|ref|>label<|/ref|><|det|>[[x1, y1, x2, y2], ...]<|/det|>`, each followed by its text.
# Servers that strip special tokens leave `label[[x1, y1, x2, y2]]`, which is a tag only on a line of its own.


_MARK = re.compile(r"<\|(?P<close>/?)(?P<name>ref|det)\|>")
_TAG = re.compile(r"<\|ref\|>[^<>\n]{0,80}<\|/ref\|>\s{0,4}<\|det\|>\s{0,4}\[")
_BOXES = re.compile(r"[\s\[\]\d.,;+-]*")
_BOX_CHARACTERS = frozenset("[]0123456789., -\t")
_LONGEST_LABEL = 80
# The model often omits the line ends of a list: `- one- Two`.
_ITEM = re.compile(r"^- [^\n]+", re.MULTILINE)
_ITEM_END = re.compile(r"(?<=[a-z.,;:)])(?=- [A-Z][a-z])")
_LONGEST_BOX = 200  # characters
_LONGEST_BOXES = 4000  # between <|det|> and <|/det|>; longer content is text


def _read_boxes(text: str) -> tuple[list[Box], int]:
    """Return the boxes in brackets, and the number of unreadable boxes; a missing box counts as unreadable."""
    boxes: list[Box] = []
    bad = 0
    for group in text.split("]"):
        numbers = group.rpartition("[")[2]
        if not numbers.strip(" \t\r\n,;"):
            continue
        sides = [side.strip() for side in numbers.split(",")] if len(numbers) <= _LONGEST_BOX else []
        if len(sides) == 4 and all(map(NUMBER.fullmatch, sides)) and (box := from_bins(*map(float, sides))) is not None:
            boxes.append(box)
        else:
            bad += 1
    return boxes, bad or int(not boxes)


def _read_marks(text: str, marks: Sequence[re.Match[str]]) -> Split:
    """Read from mark to mark; `behind` is the text between a mark and the next."""
    found = Split([Marked(None, parts=[text[: marks[0].start()]])])
    label: str | None = None  # label that was read, before its boxes
    label_ended = False

    def begin(name: str, boxes: list[Box], bad: int) -> None:
        if boxes or kind_of(name) is not BlockKind.FIGURE:  # `described` names a figure without a box
            found.lost.extend([unreadable(name or "a tag")] * bad)
        found.pieces.append(Marked(name, boxes))

    for mark, following in pairwise([*marks, None]):
        assert mark is not None  # only the second half of the last pair is None
        behind = text[mark.end() : following.start() if following else len(text)]
        kind = mark["close"] + mark["name"]
        if kind == "/ref":
            label_ended = label is not None
        if label is not None and (kind == "ref" or (kind == "/ref" and behind.strip())):
            # Text is in the place of the label's boxes.
            if label_ended:
                begin(label.strip(), [], 1)
            else:
                found.lost.append("a tag without an end")
                found.pieces[-1].parts.append(label)
            label = None
        match kind:
            case "ref" if len(behind) <= _LONGEST_LABEL and "\n" not in behind.strip():
                label, label_ended = behind, False
                continue
            case "ref":
                found.lost.append("a tag without an end")
            case "/ref" if label is not None:
                continue
            case "det":
                boxes = _BOXES.match(behind)
                closed = following is not None and following.group() == "<|/det|>"
                end = len(behind) if closed and len(behind) <= _LONGEST_BOXES else boxes.end() if boxes else 0
                if following is None and "<|/det|>".startswith(behind[end:]):
                    continue  # the answer was cut off within the boxes or their end
                begin((label or "").strip(), *_read_boxes(behind[:end]))
                label, behind = None, behind[end:]
        found.pieces[-1].parts.append(behind)
    # A final label without boxes was cut off at the end of the answer.
    return found


def _read_lines(text: str) -> Split:
    """Read the form without special tokens. Unknown labels count only in an answer that begins with a tag."""
    lines: list[tuple[str | None, str, str]] = []  # possible label and its boxes, or None; the whole line
    for line in text.split("\n"):
        label, bracket, rest = line.strip().partition("[[")
        label = label.rstrip()
        words = label.replace("_", "").replace("-", "").replace(" ", "")
        fits = bracket and len(label) <= _LONGEST_LABEL and words.isalnum() and _BOX_CHARACTERS.issuperset(rest)
        lines.append((label, bracket + rest, line) if fits else (None, "", line))
    first = next((label for label, _, line in lines if line.strip()), None)
    any_label = first is not None and known_kind(first) is not None
    found = Split([Marked(None)])
    for number, (tag, boxes, line) in enumerate(lines, start=1):
        is_tag = tag is not None and (any_label or known_kind(tag))
        if is_tag and boxes.endswith("]]"):
            read, bad = _read_boxes(boxes)
            found.lost += [unreadable(tag or "")] * bad if read or kind_of(tag or "") is not BlockKind.FIGURE else []
            found.pieces.append(Marked(tag, read))
        elif number < len(lines):
            found.pieces[-1].parts.append(f"{line}\n")
        elif not is_tag:  # otherwise the answer was cut within the boxes
            found.pieces[-1].parts.append(line)
    return found


# Each piece of the page is a tag with a label and boxes, followed by its text in Markdown: tables as HTML, formulas in
# `\[ \]`, captions in `<center>`, titles with their `#`. Coordinates count 0 to 999 over each side.


def _tagged(text: str, *, labels_are_text: bool) -> Parsed:
    """Return the blocks of an answer. Never raises; linear in the length.

    A figure with several boxes is one block per box. Text with several boxes continues in the others
    (`Block.continued`). Text without a tag, or with unreadable boxes, has the whole page as its box. A figure without a
    box is lost.
    """
    text = without_special(text).replace("\r\n", "\n")
    # As in DeepSeek's own script: KaTeX and MathJax lack these two commands.
    text = text.replace(r"\coloneqq", ":=").replace(r"\eqqcolon", "=:")
    marks = list(_MARK.finditer(text))
    found = _read_marks(text, marks) if marks else _read_lines(text)
    lost = found.lost
    blocks: list[Block] = []
    untagged, *tags = without_copies(found.pieces, lambda piece: signs_of(piece.label, piece.boxes, piece.text), lost)
    if untagged.text.strip() and not (tags and is_announcement(untagged.text.strip())):
        lost.append("text without a tag: its place on the page is not known")
        blocks += unlabelled(untagged.text, "", (WHOLE_PAGE,), headings=True)
    for tag in tags if labels_are_text else with_own_tables(tags):
        if labels_are_text:
            line = " ".join(f"{tag.label} {tag.text}".split())
            blocks += [Block(BlockKind.TEXT, tag.boxes[0] if tag.boxes else WHOLE_PAGE, line)] if line else []
        else:
            words = _ITEM.sub(lambda item: _ITEM_END.sub("\n", item[0]), tag.text)
            if kind_of(tag.label or "") is BlockKind.TABLE:
                words = table_text(words)
            blocks += labelled(tag.label or "", tag.boxes, words, lost)
    return Parsed(with_captions(blocks), tuple(lost))


def parse_grounding(text: str, frame: Frame = NO_FRAME) -> Parsed:
    """Return the blocks of an answer to the page prompt. Never raises; linear in the length."""
    return _tagged(text, labels_are_text=False)


def parse_free(text: str, frame: Frame = NO_FRAME) -> Parsed:
    """Return the blocks of an answer to a prompt without places, which may have the tags of the page prompt."""
    return parse_grounding(text) if _TAG.search(text) else parse_plain(text)


def parse_spotting(text: str, frame: Frame = NO_FRAME) -> Parsed:
    """Return the blocks of an answer to `OCR this image`: each tag contains a line of text instead of a label."""
    return _tagged(text, labels_are_text=True)


_NUMBERS = r"[-\d.,\s]"


LIGHTON3 = MarkerSpec(
    re.compile(rf"!\[(?P<label>\w[\w-]{{0,60}})(?P<more>\+)?\]\((?P<box>{_NUMBERS}{{0,120}})\)[ \t]*+"),
    cut=re.compile(rf"!\[(?:\w[\w-]{{0,60}}\+?(?:\](?:\({_NUMBERS}{{0,120}})?)?)?\Z"),
    # `![photo](2)` is a link of the page itself.
    accepts=lambda label, box: box is not None or known_kind(label) is not None,
)
UNLIMITED = MarkerSpec(
    re.compile(
        # With both pairs of tokens, with one, or with the end of one at the beginning of an answer.
        r"(?:<\|(?:det|ref)\|>|^(?=[ \t]{0,4}[a-z][a-z_]{0,40} ?\[{1,2}[\d., ]{1,80}\]{1,2}<\|/det\|>))\s{0,4}"
        r"(?P<label>[^\[\]<>|\n]{1,80}?)\s{0,4}(?:<\|/ref\|>\s{0,4}<\|det\|>\s{0,4})?"
        rf"\[{{1,2}}(?P<box>{_NUMBERS}{{0,120}})\]{{1,2}}\s{{0,4}}(?:<\|/det\|>)?",
        re.MULTILINE,
    ),
    cut=re.compile(
        rf"<\|(?:det|ref)\|>[^\[\]<>|\n]{{0,80}}(?:<\|/ref\|>\s{{0,4}}(?:<\|det\|>)?\s{{0,4}})?(?:\[{{1,2}}{_NUMBERS}{{0,120}})?\Z"
    ),
    stray=re.compile(r"<\|/?(?:det|ref)\|>"),
)
#: Form of the markers after servers strip special tokens.
_UNLIMITED_BARE = MarkerSpec(
    re.compile(r"^[ \t]{0,4}(?P<label>[a-z][a-z_]{0,40}) ?\[(?P<box>[\d., ]{1,80})\]", re.MULTILINE),
    cut=re.compile(r"^[a-z][a-z_]{0,40} ?\[[\d., ]{0,80}\Z", re.MULTILINE),
    accepts=lambda label, box: box is not None and known_kind(label) is not None,
)
MINERU = MarkerSpec(
    re.compile(
        r"<\|box_start\|>(?P<box>[^<>|]{0,120})<\|box_end\|>\s{0,4}<\|ref_start\|>(?P<label>[^<>|\n]{1,60})<\|ref_end\|>"
        r"(?:\s{0,4}<\|rotate_(?P<turn>up|right|down|left)\|>)?(?P<more>[^\n<>]{0,4}(?:<\|)?txt_contd_tgt)?"
    ),
    # A box that begins a whole marker does not end in an incomplete one.
    cut=re.compile(r"<\|b(?:(?!<\|ref_end\|>)[^\n]){0,240}\Z"),
)
NEMOTRON = MarkerSpec(
    re.compile(r"<x_(?P<x>[\d.]{1,12})><y_(?P<y>[\d.]{1,12})>(?:<class_(?P<label>[^<>]{1,60})>)?"),
    cut=re.compile(r"<(?:[xy](?:_[\d.]{0,12}>?)?|c|cl|cla|clas|class(?:_[^<>]{0,60})?)\Z"),
    stray=re.compile(r"<(?:[xy]_[\d.]{0,12}|class_[^<>]{0,60}|/?s|(?:predict|output)_[a-z_]{1,40})>"),
    inside=True,
)
#: Degrees clockwise by which a region must be turned to be upright, by the direction of the tops of its letters.
_TURNS = {"": 0, "up": 0, "right": 270, "down": 180, "left": 90}
_NO_TEXT = FURNITURE | {BlockKind.FIGURE}
# As in MinerU's own client.
_MINERU_LABELS = {"unknown": "image"}


def parse_lighton3(text: str, frame: Frame = NO_FRAME) -> Parsed:
    """Return the blocks of a LightOnOCR-3 answer, with markers or in plain Markdown. Never raises; linear.

    The text after a figure's marker is the model's description, for a chart a table of estimates. Both go to
    `described`. `label+` continues the last piece of that label.
    """
    split = split_by_marker(plain_body(text), LIGHTON3, from_1000)
    if not split.marked:
        return parse_lighton2(with_dollars(text), frame)
    lost = split.lost
    blocks: list[Block] = []
    for piece in with_continued(split.pieces):
        written = piece.text
        if normal(piece.label or "") not in ("code", "code_block", "algorithm"):
            written = with_dollars(written)
        if kind_of(piece.label or "") is BlockKind.FIGURE:
            words = read_chart(written) if normal(piece.label or "") == "chart" else written
            blocks += described(piece.label or "", piece.boxes, words, lost)
        else:
            blocks += _blocks(piece, written, lost)
    return Parsed(with_captions(blocks), tuple(lost))


def parse_unlimited(text: str, frame: Frame = NO_FRAME) -> Parsed:
    """Return the blocks of an Unlimited-OCR answer, with or without special tokens. Never raises; linear."""
    spec = UNLIMITED if "det|>" in text else _UNLIMITED_BARE
    split = split_by_marker(plain_body(text), spec, from_1000)
    for piece in split.pieces:
        if piece.label and " " in piece.label and known_kind(piece.label) is None:
            piece.parts.insert(0, f"{piece.label}\n\n")  # words of the page in the place of a label
    return _parsed(split)


def parse_nemotron(text: str, frame: Frame = NO_FRAME) -> Parsed:
    """Return the blocks of a Nemotron Parse answer. Never raises; linear in the length.

    Boxes need the size of the image. LaTeX tables become HTML, or code if they cannot be converted.
    """
    split = split_by_marker(plain_body(text), NEMOTRON, from_canvas(frame))
    for piece in split.pieces:
        piece.parts = [with_html_tables(_ESCAPED_MARK.sub(r"\1 ", piece.text))]
    parsed = _parsed(split)
    blocks = (
        replace(block, kind=BlockKind.CODE) if block.kind is BlockKind.TABLE and block.text.startswith("```") else block
        for block in parsed.blocks
    )
    return replace(parsed, blocks=tuple(blocks))


def parse_mineru_layout(text: str, frame: Frame = NO_FRAME) -> Parsed:
    """Return the blocks of MinerU's layout without text. Never raises; linear.

    `continued` has the later boxes of a text. If all regions with text have the same rotation, `notes` has the
    rotation, too.
    """
    regions, lost = mineru_regions(text)
    blocks = []
    for region in with_continued(regions):
        label = region.label or ""
        box, *others = region.boxes
        blocks.append(Block(kind_of(label), box, label=label, level=level_of(label), continued=tuple(others)))
    turns = {region_turn(region) for region in regions if kind_of(region.label or "") not in _NO_TEXT}
    notes = PageNotes(is_rotation_valid=turns == {0}, rotation_correction=turns.pop()) if len(turns) == 1 else None
    return Parsed(tuple(blocks), tuple(lost), notes)


def mineru_regions(text: str) -> tuple[list[Marked], list[str]]:
    """Return the regions of MinerU's layout in reading order, each with one box, and the losses.

    `region_turn` returns the rotation that a region needs before it is read.
    """
    split = split_by_marker(plain_body(text), MINERU, from_1000)
    found = [piece for piece in split.pieces if piece.label is not None and piece.boxes]
    figures = [piece for piece in split.pieces if not piece.boxes and kind_of(piece.label or "") is BlockKind.FIGURE]
    split.lost += [unreadable(piece.label or "") for piece in figures]
    regions: dict[tuple[str, Box], Marked] = {}
    for piece in found:
        piece.label = _MINERU_LABELS.get((piece.label or "").casefold(), piece.label or "")
        piece.parts = []
        regions.setdefault((piece.label, piece.boxes[0]), piece)
    if len(found) > len(regions):
        split.lost.append(f"{len(found) - len(regions)} regions that repeat another were left out")
    if not split.marked and split.pieces:
        split.lost.append("no layout in the answer")
    return list(regions.values()), split.lost


def region_turn(region: Marked) -> int:
    """Return the degrees clockwise, 0, 90, 180, or 270, by which a region must be turned to be upright."""
    return _TURNS[region.turn]


def _parsed(split: Split) -> Parsed:
    if not split.marked:
        return parse_plain("".join(piece.text for piece in split.pieces))
    blocks: list[Block] = []
    for piece in with_own_tables(split.pieces):
        blocks += _blocks(piece, piece.text, split.lost)
    return Parsed(with_captions(blocks), tuple(split.lost))


def _blocks(piece: Marked, text: str, lost: list[str]) -> list[Block]:
    if piece.label:
        text = table_text(text) if kind_of(piece.label) is BlockKind.TABLE else text
        return labelled(piece.label, piece.boxes, text, lost)
    if piece.label is None and text.strip():
        lost.append("text without a marker: its place on the page is not known")
    return unlabelled(text, "", piece.boxes or (WHOLE_PAGE,), headings=True)


_ESCAPED_MARK = re.compile(r"(?<![^\n])\\([-+*])[ \t]")  # of a list item
_DOLLARS = re.compile(r"\\\$")
_MATH = re.compile(r"[\\^_={}]")


def with_dollars(text: str) -> str:
    r"""Return the text with `\$x\$` restored to `$x$`, as LightOnOCR writes formulas; sums of money keep their `\$`.

    The two dollar signs of a formula are on one line without inner white space, or have LaTeX between them.
    """
    if text.count(r"\$\$") % 2 == 0:
        text = text.replace(r"\$\$", "$$")
    parts: list[str] = []
    done = 0
    opened: re.Match[str] | None = None
    for mark in _DOLLARS.finditer(text):
        inner = text[opened.end() : mark.start()] if opened else ""
        behind = text[mark.end() : mark.end() + 1]
        tight = inner == inner.strip() and not behind.isdigit()
        if opened and inner.strip() and "\n" not in inner and (tight or _MATH.search(inner)):
            parts += [text[done : opened.start()], "$", inner, "$"]
            done, opened = mark.end(), None
        else:
            opened = mark
    return "".join([*parts, text[done:]])
