"""DeepSeek-OCR's answers with grounding tags to blocks."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from llm_ocr.models.parsers.coordinates import WHOLE_PAGE, Scale, from_bins
from llm_ocr.models.parsers.labels import Marked, known_kind, labelled, unlabelled, with_captions, with_own_tables
from llm_ocr.models.parsers.plain import without_special
from llm_ocr.models.profile import NO_FRAME, Frame, Parsed
from llm_ocr.types import Block, BlockKind, Box

# DeepSeek's grounding tags: `<|ref|>label<|/ref|><|det|>[[x1, y1, x2, y2], ...]<|/det|>`, each followed by its text.
# Servers that strip special tokens leave `label[[x1, y1, x2, y2]]`, which is a tag only on a line of its own.


_MARK = re.compile(r"<\|(?P<close>/?)(?P<name>ref|det)\|>")
_BOXES = re.compile(r"[\s\[\]\d.,;+-]*")
_NUMBER = re.compile(r"-?\d{1,9}(?:\.\d{0,9})?")
_BOX_CHARACTERS = frozenset("[]0123456789., -\t")
_LONGEST_LABEL = 80
_LONGEST_BOX = 200  # characters
_LONGEST_BOXES = 4000  # between <|det|> and <|/det|>; longer content is text


@dataclass(slots=True)
class Tags:
    """All tags of an answer, the first without a label, and unreadable parts."""

    tags: list[Marked]
    lost: list[str] = field(default_factory=list)


def read_tags(text: str, scale: Scale) -> Tags:
    """Return the tags of an answer. Never raises; linear. Only text of tags cut off at the end is lost."""
    return _Reader(text, scale).read() if _MARK.search(text) else _read_lines(text, scale)


def read_boxes(text: str, scale: Scale) -> tuple[tuple[Box, ...], int]:
    """Return the boxes in brackets, and the number of unreadable boxes; a missing box counts as unreadable."""
    boxes: list[Box] = []
    bad = 0
    for group in text.split("]"):
        numbers = group.rpartition("[")[2]
        if not numbers.strip(" \t\r\n,;"):
            continue
        box = _box(numbers, scale)
        if box is None:
            bad += 1
        else:
            boxes.append(box)
    return tuple(boxes), bad or int(not boxes)


def _box(numbers: str, scale: Scale) -> Box | None:
    values = numbers.split(",") if len(numbers) <= _LONGEST_BOX else []
    if len(values) != 4 or not all(_NUMBER.fullmatch(value.strip()) for value in values):
        return None
    x0, y0, x1, y1 = map(float, values)
    return scale(x0, y0, x1, y1)


class _Reader:
    """Reader that proceeds from mark to mark; `behind` is the text between a mark and the next."""

    def __init__(self, text: str, scale: Scale) -> None:
        self._text, self._scale = text, scale
        self._marks = list(_MARK.finditer(text))
        self._found = Tags([Marked(None)])
        self._label: str | None = None  # label that was read, before its boxes
        self._closed = False  # the end of the label was read

    def read(self) -> Tags:
        self._keep(self._text[: self._start(0)])
        for at, mark in enumerate(self._marks):
            behind = self._text[mark.end() : self._start(at + 1)]
            match mark["close"] + mark["name"]:
                case "ref":
                    self._ref(behind)
                case "/ref":
                    self._ref_end(behind)
                case "det":
                    self._det(behind, at)
                case _:
                    self._keep(behind)
        # A final label without boxes was cut off at the end of the answer.
        return self._found

    def _ref(self, behind: str) -> None:
        self._without_box()
        if len(behind) > _LONGEST_LABEL or "\n" in behind.strip():
            self._found.lost.append("a tag without an end")
            self._keep(behind)
        else:
            self._label, self._closed = behind, False

    def _ref_end(self, behind: str) -> None:
        self._closed = self._label is not None
        if behind.strip():
            self._without_box()
        if self._label is None:
            self._keep(behind)

    def _without_box(self) -> None:
        """Handle text in the place of the last label's boxes."""
        if self._label is None:
            return
        if self._closed:
            self._begin(self._label.strip(), (), 1)
        else:
            self._found.lost.append("a tag without an end")
            self._keep(self._label)
        self._label = None

    def _det(self, behind: str, at: int) -> None:
        label, self._label = (self._label or "").strip(), None
        closed = at + 1 < len(self._marks) and self._marks[at + 1].group() == "<|/det|>"
        found = _BOXES.match(behind)
        end = len(behind) if closed and len(behind) <= _LONGEST_BOXES else found.end() if found else 0
        if at + 1 == len(self._marks) and "<|/det|>".startswith(behind[end:]):
            return  # the answer was cut off within the boxes or their end
        self._begin(label, *read_boxes(behind[:end], self._scale))
        self._keep(behind[end:])

    def _begin(self, label: str, boxes: tuple[Box, ...], bad: int) -> None:
        self._found.lost += [f"{label or 'a tag'}: a box that cannot be read"] * bad
        self._found.tags.append(Marked(label, list(boxes)))

    def _keep(self, text: str) -> None:
        if text:
            self._found.tags[-1].parts.append(text)

    def _start(self, at: int) -> int:
        return self._marks[at].start() if at < len(self._marks) else len(self._text)


def _read_lines(text: str, scale: Scale) -> Tags:
    """Read the form without special tokens. Unknown labels count only in an answer that begins with a tag."""
    found = Tags([Marked(None)])
    lines = list(_with_tags(text))
    first = next((label for label, _, line in lines if line.strip()), None)
    any_label = first is not None and known_kind(first) is not None
    last = len(lines) - 1
    for number, (label, boxes, line) in enumerate(lines):
        if label is None or not (any_label or known_kind(label)):
            found.tags[-1].parts.append(line if number == last else f"{line}\n")
            continue
        if not boxes.endswith("]]"):
            if number < last:
                found.tags[-1].parts.append(f"{line}\n")
            continue  # otherwise the answer was cut within the boxes
        read, bad = read_boxes(boxes, scale)
        found.lost += [f"{label}: a box that cannot be read"] * bad
        found.tags.append(Marked(label, list(read)))
    return found


def _with_tags(text: str) -> Iterator[tuple[str | None, str, str]]:
    """Yield each line with its possible label and boxes; the label is None for a line that cannot be a tag."""
    for line in text.split("\n"):
        bare = line.strip()
        label, bracket, rest = bare.partition("[[")
        label = label.rstrip()
        words = label.replace("_", "").replace("-", "").replace(" ", "")
        fits = bracket and len(label) <= _LONGEST_LABEL and words.isalnum() and _BOX_CHARACTERS.issuperset(rest)
        yield (label, bracket + rest, line) if fits else (None, "", line)


# Each piece of the page is a tag with a label and boxes, followed by its text in Markdown: tables as HTML, formulas in
# `\[ \]`, captions in `<center>`, titles with their `#`. Coordinates count 0 to 999 over each side.


# Replacements of DeepSeek's own script: KaTeX and MathJax lack these two commands.
_SYMBOLS = ((r"\coloneqq", ":="), (r"\eqqcolon", "=:"))


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
    found = read_tags(_tidy(text), from_bins)
    lost = found.lost
    blocks: list[Block] = []
    untagged, *tags = found.tags
    if untagged.text.strip():
        lost.append("text without a tag: its place on the page is not known")
        blocks += unlabelled(untagged.text, "", (WHOLE_PAGE,), headings=True)
    for tag in tags if labels_are_text else with_own_tables(tags):
        if labels_are_text:
            line = " ".join(f"{tag.label} {tag.text}".split())
            blocks += [Block(BlockKind.TEXT, tag.boxes[0] if tag.boxes else WHOLE_PAGE, line)] if line else []
        else:
            blocks += labelled(tag.label or "", tag.boxes, tag.text, lost)
    return Parsed(with_captions(blocks), tuple(lost))


def _tidy(text: str) -> str:
    text = without_special(text).replace("\r\n", "\n")
    for symbol, written in _SYMBOLS:
        text = text.replace(symbol, written)
    return text
