"""Which blocks of a page are cut out as figures."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from llm_ocr.models.coordinates import WHOLE_PAGE
from llm_ocr.models.labels import normal
from llm_ocr.types import Block, BlockKind


def with_crops(blocks: Sequence[Block], labels: Iterable[str]) -> tuple[Block, ...]:
    """The blocks, with a figure block for each that is to be cut out by its label, and for no other.

    A figure with another label keeps its place in the layout and its text, without a crop. A block of text with one of
    the labels (`table`) stays, and the figure block of its crop stands right after it, unless its place is not known.
    """
    wanted = frozenset(map(normal, labels))
    return tuple(made for block in blocks for made in _made(block, wanted))


def _made(block: Block, wanted: frozenset[str]) -> Iterator[Block]:
    names = [name for name in (block.label, block.kind.value) if name]
    if block.kind is BlockKind.FIGURE:
        yield block if normal(names[0]) in wanted else _without_crop(block)
        return
    yield block
    label = next((name for name in names if normal(name) in wanted), "")
    if label and block.box.area > 0 and block.box != WHOLE_PAGE:
        yield Block(BlockKind.FIGURE, block.box, label=label, caption=block.caption)


def _without_crop(block: Block) -> Block:
    text = "\n\n".join(part for part in (block.text.strip(), block.inside.strip()) if part)
    return replace(block, kind=BlockKind.TEXT, text=text, inside="", caption="")
