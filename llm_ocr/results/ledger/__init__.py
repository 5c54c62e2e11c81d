"""The ledger of a page: what became of each mark of ink, and what supports each part of the text.

    ink of the page  = text + tables + formulas + figures + furniture + rules and specks + unread
    text of the page = supported by ink, and by a true text layer or OCR + unsupported

The ink comes from the image that was read (`documents.ink`). A page without any is blank.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

from llm_ocr.documents.ink import pixels_of
from llm_ocr.results.balance import MOST
from llm_ocr.results.ledger.ink import Unread, Unsupported, compare_with_ink, cover_of
from llm_ocr.results.ledger.layer import DIGITS, NUMBER, compare_with_layer
from llm_ocr.results.ledger.ocr import compare_with_ocr, is_readable
from llm_ocr.results.quality.text_layer import BlockText, is_true, size_of
from llm_ocr.types import FURNITURE, Attempt, Block, BlockKind, Box, Evidence, Ledger, Span

#: Evidence for the text of a page: the ink, also a true text layer, or also OCR on pages without one.
Verify = Literal["ink", "layer", "ocr"]


def account(
    evidence: Evidence,
    attempt: Attempt,
    texts: Sequence[BlockText],
    verify: Verify,
    moved: Sequence[Span],
    skipped: Mapping[int, int],
) -> Ledger | None:
    """Return the ledger of a page. Takes about 14 ms of a core.

    Args:
        evidence: Ink, text layer, and OCR of the page.
        attempt: The answer. Blocks without a place, which cover the page, are compared with the page as a whole.
        texts: The texts of its blocks.
        verify: Which evidence is used for the text.
        moved: Places of text where the page has other text. They are unsupported there, but in no share.
        skipped: Letters of the lines that the answer skips, by their numbers in the text layer or in OCR.

    Returns:
        The ledger; None if the ink is unknown.
    """
    import numpy as np

    if evidence.ink is None:
        return None
    if evidence.pale and not attempt.blocks:
        return Ledger(0.0)  # the ink may be that of the sheet's other side
    black = pixels_of(attempt.ink) if attempt.ink else pixels_of(evidence.ink, attempt.rotation)
    total = int(np.count_nonzero(black))
    letters = size_of([chunk for entry in texts for chunk in entry.chunks])
    if not total and not evidence.no_ink:  # a picture, whose ink cannot be told from its paper
        return Ledger(0.0)
    if not total and not evidence.undrawn:
        whole = [Span(number, 0, len(entry.text)) for number, entry in enumerate(texts) if entry.chunks]
        return Ledger(0.0, unsupported_share=float(letters > 0), unsupported=_joined(whole, texts))
    unread, unsupported = Unread(), Unsupported()
    by_layer = verify != "ink" and is_true(evidence, attempt)
    ocr = evidence.ocr if verify == "ocr" and not by_layer else None
    if ocr and not is_readable("".join(chunk.letters for entry in texts for chunk in entry.chunks), ocr.scripts):
        ocr = None  # not verifiable
    if not evidence.undrawn:
        known = [line.box for line in ocr.lines] if ocr else [box for _, box in evidence.lines if by_layer]
        known = [box.turned(attempt.rotation) for box in known]
        unread, unsupported = compare_with_ink(black, attempt, texts, known, amount=not (by_layer or ocr) or not texts)
    if by_layer or ocr:
        compared = (
            compare_with_ocr(ocr, black, attempt, texts, skipped)
            if ocr
            else compare_with_layer(evidence, black, attempt, texts, skipped)
        )
        lacking, foreign = compared
        # The limits of ink are wider, because it is less certain.
        if unread.share <= MOST["ink"]:
            unread = Unread(0.0, unread.boxes)
        if by_layer or unsupported.share <= MOST["ink"]:  # a true layer has only words that the picture shows
            unsupported = Unsupported()
        unread = Unread(max(unread.share, lacking.share), [*lacking.boxes, *unread.boxes])
        unsupported = Unsupported(max(unsupported.share, foreign.share), [*unsupported.spans, *foreign.spans])
    furniture = cover_of(black.shape, [block for block in attempt.blocks if block.kind in FURNITURE])
    return Ledger(
        ink=round(total / black.size, 5),
        unread_share=round(float(unread.share), 4),
        unsupported_share=round(float(unsupported.share), 4),
        furniture_share=round(float(np.count_nonzero(black & furniture) / max(1, total)), 4),
        unread=tuple(Box(*(round(side, 4) for side in (box.x0, box.y0, box.x1, box.y1))) for box in unread.boxes),
        unsupported=_joined([*unsupported.spans, *moved], texts),
        verified_by="layer" if by_layer else "ocr" if ocr else "ink",
    )


def contradicted(ledger: Ledger, blocks: Sequence[Block]) -> list[str]:
    """Return the answer's numbers that a true text layer lacks: one wrong digit is a loss that no share shows."""
    if ledger.verified_by == "ink":
        return []
    texts = [blocks[span.block].inside or blocks[span.block].text for span in ledger.unsupported]
    found = [text[span.start : span.end] for text, span in zip(texts, ledger.unsupported, strict=True)]
    return [text for text in found if NUMBER.fullmatch(text) and sum(map(str.isdecimal, text)) >= DIGITS]


def _joined(spans: Sequence[Span], texts: Sequence[BlockText]) -> tuple[Span, ...]:
    """Return the spans in order, with those that touch or overlap as one, without captions, which have own blocks."""
    found: list[Span] = []
    for span in sorted(spans, key=lambda span: (span.block, span.start)):
        block = texts[span.block].block
        if block.kind is BlockKind.FIGURE:
            span = Span(span.block, span.start, min(span.end, len(block.inside)))
        if span.start >= span.end:
            continue
        last = found[-1] if found else None
        # A number that the page lacks has a place of its own (`contradicted`).
        both = (texts[some.block].text[some.start : some.end] for some in (last, span) if some)
        room = 0 if any(map(NUMBER.fullmatch, both)) else 2
        if last is not None and last.block == span.block and span.start <= last.end + room:
            found[-1] = Span(last.block, last.start, max(last.end, span.end))
        else:
            found.append(span)
    return tuple(found)
