"""Damage done to good answers, as models do it: what `quality.py` lets the score look for. Everything from a seed."""

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from llm_ocr.types import FURNITURE, Block, BlockKind

Blocks = tuple[Block, ...]
#: Characters of what is taken for a line.
LINE = 80
#: Repetitions of a loop that nobody has cut, and its share of a page where another text is slipped in.
LOOPS, INVENTED = 15, 0.2
#: Least share of a page's text in each of two columns.
COLUMN = 0.25

_ROW = re.compile(r"\n|(?<=\|)\s*\n")


def told(block: Block) -> bool:
    """Whether the block is text of the page's body."""
    return block.kind is not BlockKind.FIGURE and block.kind not in FURNITURE and bool(block.text)


def size(blocks: Sequence[Block]) -> int:
    """Characters of the body."""
    return sum(len(block.text) for block in blocks if told(block))


def lines_of(text: str) -> list[str]:
    """Pieces of about a line; rows of tables stay whole."""
    if "\n" in text:
        return text.split("\n")
    lines, line = [], ""
    for word in text.split(" "):
        line = f"{line} {word}" if line else word
        if len(line) >= LINE:
            lines.append(line)
            line = ""
    return [*lines, line] if line else lines


def dropped_lines(share: float) -> Callable[[Blocks, random.Random, str], Blocks | None]:
    """Lines left out here and there; their boxes stay, as of a model that finds a piece and skips lines of it."""

    def damage(blocks: Blocks, rng: random.Random, other: str) -> Blocks | None:
        places = [
            (number, row) for number, one in enumerate(blocks) if told(one) for row in range(len(lines_of(one.text)))
        ]
        if len(places) * share < 1:
            return None
        gone = set(rng.sample(places, round(len(places) * share)))
        return tuple(
            replace(
                one,
                text=_joined(
                    one.text, [line for row, line in enumerate(lines_of(one.text)) if (number, row) not in gone]
                ),
            )
            if told(one)
            else one
            for number, one in enumerate(blocks)
        )

    return damage


def dropped_blocks(blocks: Blocks, rng: random.Random, other: str) -> Blocks | None:
    """Whole pieces left out, boxes and all, until 30 % of the text is gone."""
    order = [number for number, block in enumerate(blocks) if told(block)]
    if len(order) < 4:
        return None
    rng.shuffle(order)
    gone: set[int] = set()
    left = 0.3 * size(blocks)
    for number in order:
        if left > 0 and len(blocks[number].text) <= 2 * left:
            gone.add(number)
            left -= len(blocks[number].text)
    return tuple(block for number, block in enumerate(blocks) if number not in gone) if gone else None


def cut_end(blocks: Blocks, rng: random.Random, other: str) -> Blocks | None:
    """The last 30 % of the text missing, with the boxes of what is wholly gone."""
    left = round(0.7 * size(blocks))
    kept: list[Block] = []
    for block in blocks:
        if not told(block):
            kept.append(block)
            continue
        kept.append(replace(block, text=block.text[:left]))
        left -= len(block.text)
        if left <= 0:
            return tuple(kept)
    return None


def loop(blocks: Blocks, rng: random.Random, other: str) -> Blocks | None:
    """A line of the page said again and again in the middle of the answer."""
    places = [number for number, block in enumerate(blocks) if told(block) and len(block.text) > 30]
    if not places:
        return None
    number = rng.choice(places)
    line = rng.choice([line for line in lines_of(blocks[number].text) if len(line) > 15] or [blocks[number].text])
    text = f"{blocks[number].text} {' '.join([line] * LOOPS)}"
    return (*blocks[:number], replace(blocks[number], text=text), *blocks[number + 1 :])


def invented(blocks: Blocks, rng: random.Random, other: str) -> Blocks | None:
    """Text of another document in place of as much of the page's own: a fifth of it."""
    lines = dropped_lines(INVENTED)(blocks, rng, other)
    if lines is None:
        return None
    return _slipped_in(lines, rng, other, size(blocks))


def added(blocks: Blocks, rng: random.Random, other: str) -> Blocks | None:
    """Text of another document beside all of the page's own."""
    return _slipped_in(blocks, rng, other, size(blocks))


def swapped_columns(blocks: Blocks, rng: random.Random, other: str) -> Blocks | None:
    """The right column before the left one; None for a page without two."""
    sides = _columns(blocks)
    if sides is None:
        return None
    left, right = sides
    moved = [*right, *left]
    places = sorted(moved)
    changed = list(blocks)
    for place, number in zip(places, moved, strict=True):
        changed[place] = blocks[number]
    return tuple(changed)


def read_across(blocks: Blocks, rng: random.Random, other: str) -> Blocks | None:
    """Lines of two columns taken in turns, as one who does not see the gutter reads; None for a page without two."""
    sides = _columns(blocks)
    if sides is None:
        return None
    left, right = ([line for number in side for line in lines_of(blocks[number].text)] for side in sides)
    mixed = [line for pair in zip(left, right, strict=False) for line in pair]
    mixed += left[len(right) :] + right[len(left) :]
    members = sorted((*sides[0], *sides[1]))
    box = blocks[members[0]].box
    for number in members:
        box = box.union(blocks[number].box)
    one = replace(blocks[members[0]], text=" ".join(mixed), box=box, continued=(), kind=BlockKind.TEXT)
    rest = [block for number, block in enumerate(blocks) if number not in set(members)]
    return tuple([*rest[: members[0]], one, *rest[members[0] :]])


DAMAGES: dict[str, Callable[[Blocks, random.Random, str], Blocks | None]] = {
    "10 % of the lines dropped": dropped_lines(0.1),
    "30 % of the lines dropped": dropped_lines(0.3),
    "30 % of the text dropped in blocks": dropped_blocks,
    "end cut, 30 %": cut_end,
    "loop": loop,
    "20 % replaced by invented text": invented,
    "20 % invented text added": added,
    "columns swapped": swapped_columns,
    "read across columns": read_across,
}


def _joined(text: str, lines: Sequence[str]) -> str:
    return ("\n" if "\n" in text else " ").join(lines)


def _slipped_in(blocks: Blocks, rng: random.Random, other: str, whole: int) -> Blocks | None:
    places = [number for number, block in enumerate(blocks) if told(block) and block.kind is not BlockKind.TABLE]
    wanted = round(INVENTED * whole)
    if not places or len(other) < wanted or wanted < LINE:
        return None
    begin = rng.randrange(len(other) - wanted + 1)
    number = rng.choice(places)
    text = f"{blocks[number].text} {other[begin : begin + wanted]}"
    return (*blocks[:number], replace(blocks[number], text=text), *blocks[number + 1 :])


def _columns(blocks: Blocks) -> tuple[list[int], list[int]] | None:
    left = [number for number, block in enumerate(blocks) if told(block) and block.box.x1 < 0.55]
    right = [number for number, block in enumerate(blocks) if told(block) and block.box.x0 > 0.45]
    least = COLUMN * size(blocks)
    if any(sum(len(blocks[number].text) for number in side) < least for side in (left, right)):
        return None
    return left, right
