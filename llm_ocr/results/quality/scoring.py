"""The parts of a page's quality, and the score that they make."""

from collections.abc import Sequence

from llm_ocr.results.quality.answer import answer_parts
from llm_ocr.results.quality.chunks import Said, said_by
from llm_ocr.results.quality.ink import strokes_of
from llm_ocr.results.quality.layer import agreement, is_true, layer_order, shown
from llm_ocr.results.quality.places import ASIDE, in_order
from llm_ocr.results.quality.scales import COVERED, FILLED, FITS, FOUND, ORDER, SEQUENCE, on_scale
from llm_ocr.types import Attempt, Block, BlockKind, Evidence, Ink, Page, Quality

#: Letters and digits of an answer over `Strokes.text`: the median of good pages.
_CHARACTERS = 0.6
#: Characters that the ink must be good for, before it is judged by them.
_ENOUGH = 40
#: Characters of a block whose place in the order is judged by its box.
_PARAGRAPH = 40


def score(page: Page, attempt: Attempt) -> Quality:
    """The quality of an answer for the page. Takes some milliseconds of Python: not for the event loop."""
    evidence = page.evidence or Evidence(None)
    said = said_by(attempt.blocks)
    chunks = [chunk for one in said for chunk in one.chunks]
    parts = answer_parts(attempt, "\n".join(one.text for one in said), chunks)
    by_layer = is_true(evidence, attempt)
    if by_layer:
        parts |= agreement(evidence, attempt, chunks)
    order = layer_order(evidence, said) if by_layer else _box_order(attempt.blocks)
    if order is not None:
        parts[ORDER if by_layer else SEQUENCE] = order
    if evidence.ink is not None:
        parts |= _ink_parts(evidence.ink, attempt.rotation, said, guess=FOUND not in parts)
    rounded = {name: round(value, 4) for name, value in parts.items()}
    return Quality(round(min((on_scale(name, value) for name, value in rounded.items()), default=1.0), 4), rounded)


def _ink_parts(ink: Ink, rotation: int, said: Sequence[Said], *, guess: bool) -> dict[str, float]:
    """How much of the ink the boxes cover; and how much of the text that it is good for is there, with `guess`."""
    strokes = strokes_of(ink)
    total = strokes.text()
    parts: dict[str, float] = {}
    if said and total >= _ENOUGH and all(one.block.box.area < 1 for one in said):
        parts[COVERED] = (
            strokes.text(strokes.inside([box for one in said for box in shown(one.block, rotation)])) / total
        )
    figures = [one.block for one in said if one.block.kind is BlockKind.FIGURE]
    pictures = [box for block in figures for box in shown(block, rotation)]
    expected = _CHARACTERS * (total - strokes.text(strokes.inside(pictures)))
    if guess and expected >= _ENOUGH and all(block.box.area < 1 for block in figures):
        texts = (chunk.letters for one in said if one.block.kind is not BlockKind.FIGURE for chunk in one.chunks)
        filled = sum(map(len, texts)) / expected
        parts[FILLED] = min(1.0, filled)
        parts[FITS] = min(1.0, 1 / filled) if filled else 1.0
    return parts


def _box_order(blocks: Sequence[Block]) -> float | None:
    """Of the longer blocks whose place is known."""
    told = [block for block in blocks if block.kind not in ASIDE and len(block.text) >= _PARAGRAPH]
    return in_order([block.box for block in told if block.box.area < 1])
