"""Answers about the regions of a page -> its blocks in reading order. Pure."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from llm_ocr.engines.layout.sorting import Assigned
from llm_ocr.engines.layout.tasks import CHART, FORMULA, SKIP, TEXT
from llm_ocr.models.captions import with_captions
from llm_ocr.models.coordinates import WHOLE_PAGE
from llm_ocr.models.labelled import labelled
from llm_ocr.models.labels import kind_of, normal
from llm_ocr.types import Block, BlockKind, Box

_NUMBER = re.compile(r"[(\[（【]?\s*(?P<number>[\w.\-–'*]{1,12})\s*[)\]）】]?")
_END = "\n$$"
#: Least share of a number's height that it has in common with its formula.
_BESIDE = 0.5
#: Kinds that a region's label decides, whatever its answer looks like.
_BY_LABEL = frozenset(
    {
        BlockKind.TITLE,
        BlockKind.HEADING,
        BlockKind.CAPTION,
        BlockKind.FOOTNOTE,
        BlockKind.CODE,
        BlockKind.HEADER,
        BlockKind.FOOTER,
        BlockKind.PAGE_NUMBER,
    }
)


@dataclass(frozen=True, slots=True)
class Read:
    """A region and the blocks of its answer, their boxes relative to the region; None where it has no answer."""

    assigned: Assigned
    blocks: tuple[Block, ...] | None = None


def merged(read: Sequence[Read]) -> tuple[Block, ...]:
    """The page's blocks: by their regions' labels, numbers at their formulas, captions at their figures."""
    numbered = _with_numbers([(one.assigned, list(_placed(one))) for one in read])
    return with_captions(tuple(block for _, blocks in numbered for block in blocks))


def _placed(one: Read) -> Iterator[Block]:
    region, task = one.assigned.region, one.assigned.task
    if task == SKIP:
        yield Block(BlockKind.FIGURE, region.box, label=region.label)
        return
    blocks = one.blocks or ()
    if task == CHART:
        yield Block(BlockKind.FIGURE, region.box, label=region.label, described=_words(blocks))
    elif task == TEXT and kind_of(region.label) in _BY_LABEL:
        yield from _by_label(region.label, region.box, blocks)
    elif task == TEXT:
        yield from _texts(region.label, region.box, blocks)
    else:
        for block in blocks:
            yield replace(block, box=_within(block.box, region.box), label=region.label)


def _by_label(label: str, box: Box, blocks: Sequence[Block]) -> Iterator[Block]:
    """A title, heading, caption ...: one block, of the level that the label has and not of the answer's marks."""
    for block in labelled(label, (box,), _words(blocks), []):
        yield replace(block, level=1) if block.kind is BlockKind.HEADING and not block.level else block


def _texts(label: str, box: Box, blocks: Iterable[Block]) -> Iterator[Block]:
    """Text and lists; what looks like a heading in a region of text is text. Paragraphs in a row are one block."""
    plain = BlockKind.LIST_ITEM if kind_of(label) is BlockKind.LIST_ITEM else BlockKind.TEXT
    run: Block | None = None
    for block in blocks:
        placed = replace(block, box=_within(block.box, box), label=label)
        if block.kind not in (BlockKind.TEXT, BlockKind.TITLE, BlockKind.HEADING):
            if run is not None:
                yield run
            run = None
            yield placed
            continue
        said = replace(placed, kind=plain, level=0)
        run = _joined(run, said) if run else said
    if run is not None:
        yield run


def _joined(one: Block, other: Block) -> Block:
    return replace(one, text=f"{one.text}\n\n{other.text}", box=one.box.union(other.box))


def _words(blocks: Iterable[Block]) -> str:
    """All that the blocks say, as Markdown without heading marks."""
    said = (block.text.strip() or block.described.strip() for block in blocks)
    return "\n\n".join(text for text in said if text)


def _within(box: Box, region: Box) -> Box:
    """A box relative to the region, as one relative to the page."""
    if box == WHOLE_PAGE:
        return region
    width, height = region.width, region.height
    return Box(
        region.x0 + box.x0 * width, region.y0 + box.y0 * height, region.x0 + box.x1 * width, region.y0 + box.y1 * height
    )


_Placed = list[tuple[Assigned, list[Block]]]


def _with_numbers(placed: _Placed) -> _Placed:
    """Numbers of formulas go into the formula beside them; one without a formula stays as it is."""
    formulas = [place for place, (one, _) in enumerate(placed) if one.task == FORMULA]
    made = dict(enumerate(blocks for _, blocks in placed))
    for place, (one, blocks) in enumerate(placed):
        if normal(one.region.label) != "formula_number":
            continue
        number = _NUMBER.fullmatch(_words(blocks))
        near = _beside(one.region.box, [(at, placed[at][0].region.box) for at in formulas])
        if number and near is not None and (tagged := _tagged(made[near], number["number"])):
            made[near], made[place] = tagged, []
    return [(one, made[place]) for place, (one, _) in enumerate(placed)]


def _beside(number: Box, formulas: Sequence[tuple[int, Box]]) -> int | None:
    """The nearest formula on the number's height."""
    best, least = None, 2.0
    for place, box in formulas:
        common = min(number.y1, box.y1) - max(number.y0, box.y0)
        apart = max(number.x0 - box.x1, box.x0 - number.x1, 0.0)
        if common >= _BESIDE * number.height and apart < least:
            best, least = place, apart
    return best


def _tagged(blocks: Sequence[Block], number: str) -> list[Block] | None:
    r"""The blocks with `\tag{}` in the last formula; None where none can take it."""
    last = blocks[-1] if blocks else None
    if last is None or last.kind is not BlockKind.FORMULA or not last.text.endswith(_END):
        return None
    if "\\tag" in last.text:
        return list(blocks)
    return [*blocks[:-1], replace(last, text=f"{last.text.removesuffix(_END)} \\tag{{{number}}}{_END}")]
