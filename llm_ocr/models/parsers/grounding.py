"""DeepSeek-OCR's answers with grounding tags to blocks."""

import re
from collections.abc import Sequence
from itertools import pairwise

from llm_ocr.models.parsers.coordinates import NUMBER, WHOLE_PAGE, from_bins
from llm_ocr.models.parsers.labels import (
    Marked,
    Split,
    key_of,
    known_kind,
    labelled,
    unlabelled,
    unreadable,
    with_captions,
    with_own_tables,
    without_copies,
)
from llm_ocr.models.parsers.plain import without_special
from llm_ocr.models.profile import NO_FRAME, Frame, Parsed
from llm_ocr.types import Block, BlockKind, Box

# DeepSeek's grounding tags: `<|ref|>label<|/ref|><|det|>[[x1, y1, x2, y2], ...]<|/det|>`, each followed by its text.
# Servers that strip special tokens leave `label[[x1, y1, x2, y2]]`, which is a tag only on a line of its own.


_MARK = re.compile(r"<\|(?P<close>/?)(?P<name>ref|det)\|>")
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
            found.lost += [unreadable(tag or "")] * bad
            found.pieces.append(Marked(tag, read))
        elif number < len(lines):
            found.pieces[-1].parts.append(f"{line}\n")
        elif not is_tag:  # otherwise the answer was cut within the boxes
            found.pieces[-1].parts.append(line)
    return found


# Each piece of the page is a tag with a label and boxes, followed by its text in Markdown: tables as HTML, formulas in
# `\[ \]`, captions in `<center>`, titles with their `#`. Coordinates count 0 to 999 over each side.


def parse_grounding(text: str, frame: Frame = NO_FRAME) -> Parsed:
    """Return the blocks of an answer to the page prompt. Never raises; linear in the length.

    A figure with several boxes is one block per box. Text with several boxes continues in the others
    (`Block.continued`). Text without a tag, or with unreadable boxes, has the whole page as its box. A figure without a
    box is lost.
    """
    return _parsed(text, labels_are_text=False)


def parse_spotting(text: str, frame: Frame = NO_FRAME) -> Parsed:
    """Return the blocks of an answer to `OCR this image`: each tag contains a line of text instead of a label."""
    return _parsed(text, labels_are_text=True)


def _parsed(text: str, *, labels_are_text: bool) -> Parsed:
    text = without_special(text).replace("\r\n", "\n")
    # As in DeepSeek's own script: KaTeX and MathJax lack these two commands.
    text = text.replace(r"\coloneqq", ":=").replace(r"\eqqcolon", "=:")
    marks = list(_MARK.finditer(text))
    found = _read_marks(text, marks) if marks else _read_lines(text)
    lost = found.lost
    blocks: list[Block] = []
    untagged, *tags = without_copies(found.pieces, key_of, lost)
    if untagged.text.strip():
        lost.append("text without a tag: its place on the page is not known")
        blocks += unlabelled(untagged.text, "", (WHOLE_PAGE,), headings=True)
    for tag in tags if labels_are_text else with_own_tables(tags):
        if labels_are_text:
            line = " ".join(f"{tag.label} {tag.text}".split())
            blocks += [Block(BlockKind.TEXT, tag.boxes[0] if tag.boxes else WHOLE_PAGE, line)] if line else []
        else:
            words = _ITEM.sub(lambda item: _ITEM_END.sub("\n", item[0]), tag.text)
            blocks += labelled(tag.label or "", tag.boxes, words, lost)
    return Parsed(with_captions(blocks), tuple(lost))
