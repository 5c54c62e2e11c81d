"""Which figure a caption belongs to."""

from collections.abc import Sequence
from dataclasses import replace
from math import hypot

from llm_ocr.models.coordinates import WHOLE_PAGE
from llm_ocr.models.labels import normal
from llm_ocr.types import Block, BlockKind, Box

#: Captions are looked for among so many figures and tables before and behind: more stand on no page, and the time
#: stays linear.
_NEIGHBOURS = 12
_FAR = 2.0  # more than any gap on a page
_OTHERS = ("table", "code", "algorithm")


def with_captions(blocks: Sequence[Block]) -> tuple[Block, ...]:
    """The blocks, each figure with the document's own caption of it, which stays a block of its own.

    A caption belongs to the nearest figure on the page, unless its label or a nearer table says otherwise; where boxes
    are missing, to the figure before it, or else behind it.
    """
    places = [index for index, block in enumerate(blocks) if block.kind in (BlockKind.FIGURE, BlockKind.TABLE)]
    captions: dict[int, list[str]] = {}
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
            nearest = min(near, key=lambda place: _distance(blocks, place, index))
            captions.setdefault(nearest, []).append(block.text)
    return tuple(_captioned(block, captions.get(index)) for index, block in enumerate(blocks))


def _captioned(block: Block, found: list[str] | None) -> Block:
    return replace(block, caption=" ".join(found)) if found and block.kind is BlockKind.FIGURE else block


def _distance(blocks: Sequence[Block], place: int, caption: int) -> tuple[float, int, bool]:
    if blocks[caption].box == WHOLE_PAGE:
        apart = 0.0
    elif blocks[place].box == WHOLE_PAGE:
        apart = _FAR  # its place is not known
    else:
        apart = _gap(blocks[place].box, blocks[caption].box)
    return apart, abs(place - caption), place > caption


def _gap(one: Box, other: Box) -> float:
    """The way from one box to the other; 0 where they touch."""
    across = max(one.x0 - other.x1, other.x0 - one.x1, 0.0)
    down = max(one.y0 - other.y1, other.y0 - one.y1, 0.0)
    return hypot(across, down)
