"""A piece of a page that a model labelled -> blocks: what every format with labels and boxes has in common."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from llm_ocr.models.coordinates import WHOLE_PAGE
from llm_ocr.models.labels import kind_of, level_of
from llm_ocr.models.pieces import closed_table, heading, pieces
from llm_ocr.types import Block, BlockKind, Box

_CENTRE = re.compile(r"</?center>", re.IGNORECASE)
_MARKS = re.compile(r"^( {0,3})(#{1,6})(?=\s|$)", re.MULTILINE)
_DELIMITERS = ("$", "\\[", "\\(", "\\begin{")


def labelled(label: str, found: Sequence[Box], text: str, lost: list[str]) -> list[Block]:
    """The blocks of one label, its boxes (none: the text has the whole page) and its text in Markdown. Linear.

    A figure with several boxes is one block for each, and text at it follows it; a figure without a box is lost. Text
    with several boxes goes on in the others (`Block.continued`). Each loss adds a sentence to `lost`.
    """
    kind = kind_of(label)
    boxes = tuple(found) or (WHOLE_PAGE,)
    text = text.strip()
    if kind is BlockKind.FIGURE:
        if not found:
            lost.append(f"{label}: cannot be cut out without a box")
        figures = [Block(kind, box, label=label) for box in found]
        return figures + unlabelled(text, label, boxes[:1], headings=False)
    if not text:
        if kind is BlockKind.TABLE:
            lost.append(f"{label}: no text")
        return []
    if kind in (BlockKind.TITLE, BlockKind.HEADING):
        return _headed(kind, text, label, boxes)
    if kind in (BlockKind.TEXT, BlockKind.LIST_ITEM):
        return _as_items(kind, unlabelled(text, label, boxes, headings=False))
    return [Block(kind, boxes[0], _written(kind, text), label, continued=boxes[1:])]


def described(label: str, found: Sequence[Box], text: str, lost: list[str]) -> list[Block]:
    """The blocks of a figure of which the model says something itself; without a box that is kept as text."""
    words = text.strip()
    if not found:
        lost.append(f"{label}: cannot be cut out without a box")
        return [Block(BlockKind.TEXT, WHOLE_PAGE, words, label)] if words else []
    first, *others = found
    figure = Block(BlockKind.FIGURE, first, label=label, described=words)
    return [figure, *(Block(BlockKind.FIGURE, box, label=label) for box in others)]


def _written(kind: BlockKind, text: str) -> str:
    match kind:
        case BlockKind.TABLE:
            return closed_table(text)
        case BlockKind.CAPTION:
            return " ".join(_CENTRE.sub(" ", text).split())
        case BlockKind.FORMULA if not any(mark in text for mark in _DELIMITERS):
            return f"$$\n{text}\n$$"
        case _:
            return text


def _headed(kind: BlockKind, text: str, label: str, boxes: Sequence[Box]) -> list[Block]:
    """A title or heading: the text's own marks give its level, and are taken off; what follows it is text."""
    first, _, rest = text.partition("\n\n")
    line = " ".join(first.split())
    marks, words = heading(line) or (0, line)
    if kind is BlockKind.TITLE and marks > 1:
        kind = BlockKind.HEADING
    level = level_of(label) or max(marks - 1, min(marks, 1)) if kind is BlockKind.HEADING else 0
    head = [Block(kind, boxes[0], words, label, level, continued=tuple(boxes[1:]))] if words else []
    return head + unlabelled(rest, label, boxes, headings=False)


def unlabelled(text: str, label: str, boxes: Sequence[Box], *, headings: bool) -> list[Block]:
    """Text in Markdown at these boxes, parted into lists, tables, formulas and paragraphs.

    Paragraphs in a row stay one block. Without `headings`, `#` begins a comment of a program far rather than a heading:
    it is kept from being read as one, unless the line stands alone.
    """
    alone = heading(text.strip()) if "\n" not in text.strip() else None
    found = pieces(text, headings=headings or bool(alone and alone[1]))
    more = tuple(boxes[1:])
    blocks = (Block(one.kind, boxes[0], one.text, label, one.level, continued=more) for one in found)
    return [_literal(block) for block in _joined(blocks)]


def _literal(block: Block) -> Block:
    return replace(block, text=_MARKS.sub(r"\1\\\2", block.text)) if block.kind is BlockKind.TEXT else block


def _joined(blocks: Iterator[Block]) -> Iterator[Block]:
    run: list[Block] = []
    for block in blocks:
        if run and block.kind is not BlockKind.TEXT:
            yield _one(run)
            run = []
        if block.kind is BlockKind.TEXT:
            run.append(block)
        else:
            yield block
    if run:
        yield _one(run)


def _one(run: Sequence[Block]) -> Block:
    return replace(run[0], text="\n\n".join(block.text for block in run))


def _as_items(kind: BlockKind, blocks: list[Block]) -> list[Block]:
    if kind is BlockKind.TEXT:
        return blocks
    return [replace(block, kind=kind) if block.kind is BlockKind.TEXT else block for block in blocks]
