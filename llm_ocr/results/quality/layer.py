"""An answer beside the page's text layer, where that is true: what is missing, and what is invented."""

from collections import Counter
from collections.abc import Sequence

from llm_ocr.engines.embedded.probe import suspicious
from llm_ocr.engines.embedded.reading import LIE, SCAN
from llm_ocr.results.quality.chunks import LETTERS, Chunk, Said, chunks_of, missing, size_of
from llm_ocr.results.quality.places import ASIDE, in_order
from llm_ocr.results.quality.scales import BACKED, FOUND
from llm_ocr.types import Attempt, Block, BlockKind, Box, Evidence, Line, PageContent

#: Characters of a layer, about, by which its language is judged.
_SAMPLE = 1500
#: Letters below which a text is too short to be judged.
_ENOUGH = 60
#: What lies within this share of the page's height or width from an edge may be left out: heads, feet and stamps.
_MARGIN = 0.07
#: Runs that must stand in one line only to say where a chunk is.
_ENOUGH_RUNS = 5


def is_true(evidence: Evidence, attempt: Attempt) -> bool:
    """Whether the text layer is the page's text: drawn by the file itself, or found true by OCR of sample lines."""
    if not evidence.lines or (attempt.probe is not None and attempt.probe > LIE):
        return False
    if evidence.pictured > SCAN and attempt.probe is None:
        return False
    step = -(-sum(len(text) for text, _ in evidence.lines) // _SAMPLE)
    some = tuple(Line(text, box, 0.0) for text, box in evidence.lines[::step])
    return not suspicious(PageContent(1.0, 1.0, some))


def agreement(evidence: Evidence, attempt: Attempt, answer: Sequence[Chunk]) -> dict[str, float]:
    """The parts that compare answer and layer; without those for which one of them is too short."""
    demanded, optional = _layer_chunks(evidence, attempt)
    parts: dict[str, float] = {}
    wanted = size_of(demanded)
    if wanted >= _ENOUGH:
        parts[FOUND] = 1 - missing(demanded, answer) / wanted
    said = size_of(answer)
    if said >= _ENOUGH and wanted + size_of(optional) >= _ENOUGH:
        foreign = missing(answer, [*demanded, *optional]) / said
        # What stands in pictures is in no layer.
        parts[BACKED] = min(1.0, 1 - foreign + min(evidence.pictured, SCAN))
    return parts


def layer_order(evidence: Evidence, said: Sequence[Said]) -> float | None:
    """Whether the answer's text goes down the columns of the layer; None where they are too few, or stand on end."""
    lying = sum(len(text) for text, box in evidence.lines if box.width > box.height)
    if 2 * lying < sum(len(text) for text, _ in evidence.lines):
        return None
    return in_order(_places(evidence, said))


def _layer_chunks(evidence: Evidence, attempt: Attempt) -> tuple[list[Chunk], list[Chunk]]:
    """Chunks that the answer must have, and those that it may have: in the margins, in figures and formulas."""
    pictures = [
        box
        for block in attempt.blocks
        if block.kind in (BlockKind.FIGURE, BlockKind.FORMULA)
        for box in shown(block, attempt.rotation)
    ]
    placeless = any(block.kind is BlockKind.FIGURE and block.box.area >= 1 for block in attempt.blocks)
    texts: dict[bool, list[str]] = {True: [], False: []}
    for text, box in evidence.lines:
        free = _in_margin(box) or any(box.covered_by(picture) > 0.5 for picture in pictures)
        free = free or (placeless and len(text) < LETTERS)
        texts[not free].append(text)
    return chunks_of("\n".join(texts[True])), chunks_of("\n".join(texts[False]))


def shown(block: Block, rotation: int) -> list[Box]:
    """A block's boxes on the page as it came; without those whose place is not known."""
    if block.box.area >= 1:
        return []
    return [box.turned(-rotation).grown(0.01) for box in (block.box, *block.continued)]


def _in_margin(box: Box) -> bool:
    across, down = box.centre
    if down < _MARGIN or down > 1 - _MARGIN:
        return True
    return (across < _MARGIN or across > 1 - _MARGIN) and box.height > 3 * box.width


def _places(evidence: Evidence, said: Sequence[Said]) -> list[Box]:
    """Where the answer's chunks stand on the page, in its order: by the line of the layer that says most of each."""
    where: dict[str, int] = {}
    often: set[str] = set()
    for number, (text, _) in enumerate(evidence.lines):
        here = {run for chunk in chunks_of(text) for run in chunk.runs}
        often |= here & where.keys()
        where.update(dict.fromkeys(here, number))
    for run in often:
        del where[run]
    found = []
    for one in said:
        if one.block.kind in ASIDE:
            continue
        for chunk in one.chunks:
            known = Counter([where[run] for run in chunk.runs if run in where])
            if known.total() >= _ENOUGH_RUNS:
                found.append(evidence.lines[known.most_common(1)[0][0]][1])
    return found
