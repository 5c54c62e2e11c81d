"""The ledger of a page: what became of each mark of ink, and what supports each part of the text.

    ink of the page  = text + tables + formulas + figures + furniture + rules and specks + unread
    text of the page = supported by ink, and by a true text layer or OCR + unsupported

The ink comes from the image that was read (`documents.ink`). A page without any is blank.
"""

import math
import re
import unicodedata
import zlib
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from itertools import accumulate, compress
from operator import ne, not_
from typing import TYPE_CHECKING, Literal, NamedTuple

from llm_ocr.results.balance import MOST
from llm_ocr.results.quality.text_layer import (
    ENOUGH_LETTERS,
    FORMULA,
    LETTERS,
    MISREAD,
    SHORTEST,
    UNVERIFIABLE,
    BlockText,
    Chunk,
    aligned,
    chunks_of,
    folded,
    formulas_in,
    in_margin,
    is_true,
    passages,
    size_lacking,
    size_of,
)
from llm_ocr.types import FURNITURE, Attempt, Block, BlockKind, Box, Evidence, InkMap, Ledger, OcrLine, OcrText, Span

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Mask = npt.NDArray[np.bool_]
    Integers = npt.NDArray[np.int64]

#: Fewest pixels of ink of a legible character in an ink map. Of 5,500 blocks of real pages, 0.1 % have fewer than 2.5,
#: and no page as a whole has fewer than 7.
_LEAST_PIXELS, _LEAST_PIXELS_OF_PAGE = 2.5, 6.0
#: Letters and digits of a page divided by those that the sizes of its lines suggest. Of 448 real pages, 1 % have fewer;
#: of 104 damaged scans with dense lines, none has more than 2.25.
_FEWEST, _MOST = 0.55, 2.3
#: Share of the ink outside of figures that must be in lines for this comparison: small print has none.
_IN_LINES = 0.9

#: Share of a straight line's box that letters fill at least.
_FILLED = 0.3

#: Growth of boxes, relative to the page: boxes of letters are tight.
_ROOM = 0.008
#: Pixels by which ink is widened on both sides, so that the letters of a line touch and columns do not.
_WIDER = 4
#: Heights in pixels of lines of text in an ink map: lower ones are rules, higher ones pictures.
_LOWEST, _HIGHEST = 3, 40
#: Least width of a line in its heights, and in pixels.
_WIDE, _WIDEST_SPECK = 1.5, 8
#: Share of a line's box that its letters fill.
_THIN, _SOLID = 0.12, 0.9
#: Length of unbroken ink that is a rule or the edge of a picture: pixels, and share of the page's width.
_RULE, _RULE_SHARE = 45, 0.12

#: Fewest letters of a chunk that is unsupported on its own: shorter ones differ by a space.
_TELLING = 10
#: Numbers with their separators, and least digits of a number that is compared: shorter ones are on every page.
_NUMBER = re.compile(r"\d(?:[\d.,:/’'\u00a0\u202f\u2010-\u2015\u2212-]*\d)?")
_DIGITS = 2
#: Words of at least four letters. Those with a capital are compared as names.
_NAME = re.compile(r"(?<![^\W_])[^\W\d_][^\W\d_]{3,}")
#: Height from the edges of the page, relative, in which a running head or foot may be, and its most characters.
_EDGE, _HEAD = 0.12, 200
#: Names that a layer may lack until it is taken for a layer with broken words.
_ENOUGH_NAMES = 0.1


#: Least confidence of a line of OCR that an answer must have, and of a word or number that contradicts the answer. Of
#: the numbers that OCR reads on 60 damaged scans, 96 % reach the second value, and none of its errors.
_SURE, _SURE_WORD = 0.9, 0.995
#: Similarity of two words from which one may be the other, misread.
_ALIKE = 0.6
#: Letters or digits beside a number or word that tell its place, and the characters among which they are.
_SIDE, _NEAR = 4, 24
#: Most numbers of an answer that are compared with numbers of other digits, and most columns that a line may continue.
_MOST_NUMBERS, _COLUMNS = 100, 100
#: A word, which is longer than the symbols of a formula, such as `x12` and `sin`.
_WORD = re.compile(r"[^\W_]{4}")
#: Letters of an answer that may stand where OCR read one letter without confidence.
_ROOM_OF_OCR = 1.5
#: Share of a chunk's letters that the recognizer must be able to read.
_KNOWN_SCRIPT = 0.5

#: Evidence for the text of a page: the ink, also a true text layer, or also OCR on pages without one.
Verify = Literal["ink", "layer", "ocr"]


class _Unread(NamedTuple):
    """Share of what was not read, and relative boxes in the answer's orientation."""

    share: float = 0.0
    boxes: Sequence[Box] = ()


class _Unsupported(NamedTuple):
    """Share of the text without support, and its places."""

    share: float = 0.0
    spans: Sequence[Span] = ()


def account(
    evidence: Evidence, attempt: Attempt, texts: Sequence[BlockText], verify: Verify = "layer"
) -> Ledger | None:
    """Return the ledger of a page. Takes about 6 ms of a core.

    Args:
        evidence: Ink, text layer, and OCR of the page.
        attempt: The answer. Blocks without a place, which cover the page, are compared with the page as a whole.
        texts: The texts of its blocks.
        verify: Which evidence is used for the text.

    Returns:
        The ledger; None if the ink is unknown.
    """
    if evidence.ink is None:
        return None
    black = _pixels(evidence.ink, attempt.rotation)
    total = int(black.sum())
    letters = size_of([chunk for entry in texts for chunk in entry.chunks])
    if not total and not evidence.no_ink:  # a picture, whose ink cannot be told from its paper
        return Ledger(0.0)
    if not total and not evidence.undrawn:
        whole = [Span(number, 0, len(entry.text)) for number, entry in enumerate(texts) if entry.chunks]
        return Ledger(0.0, unsupported_share=float(letters > 0), unsupported=_joined(whole, texts))
    unread, unsupported = _Unread(), _Unsupported()
    by_layer = verify != "ink" and is_true(evidence, attempt)
    ocr = evidence.ocr if verify == "ocr" and not by_layer else None
    if ocr and not _is_readable("".join(chunk.letters for entry in texts for chunk in entry.chunks), ocr.scripts):
        ocr = None  # not verifiable
    if not evidence.undrawn:
        known = [line.box for line in ocr.lines] if ocr else [box for _, box in evidence.lines if by_layer]
        known = [box.turned(attempt.rotation) for box in known]
        unread, unsupported = _by_ink(black, attempt, texts, known, amount=not (by_layer or ocr) or not texts)
    if by_layer or ocr:
        compared = _by_ocr(ocr, black, attempt, texts) if ocr else _by_layer(evidence, black, attempt, texts)
        lacking, foreign = compared
        # The limits of ink are wider, because it is less certain.
        if unread.share <= MOST["ink"]:
            unread = _Unread(0.0, unread.boxes)
        if unsupported.share <= MOST["ink"]:
            unsupported = _Unsupported()
        unread = _Unread(max(unread.share, lacking.share), [*lacking.boxes, *unread.boxes])
        unsupported = _Unsupported(max(unsupported.share, foreign.share), [*unsupported.spans, *foreign.spans])
    furniture = _cover(black.shape, [block for block in attempt.blocks if block.kind in FURNITURE])
    return Ledger(
        ink=round(total / black.size, 5),
        unread_share=round(float(unread.share), 4),
        unsupported_share=round(float(unsupported.share), 4),
        furniture_share=round(float((black & furniture).sum() / max(1, total)), 4),
        unread=tuple(Box(*(round(side, 4) for side in (box.x0, box.y0, box.x1, box.y1))) for box in unread.boxes),
        unsupported=_joined(unsupported.spans, texts),
        verified_by="layer" if by_layer else "ocr" if ocr else "ink",
    )


def contradicted(ledger: Ledger, blocks: Sequence[Block]) -> list[str]:
    """Return the answer's numbers that a true text layer lacks: one wrong digit is a loss that no share shows."""
    if ledger.verified_by == "ink":
        return []
    texts = [blocks[span.block].inside or blocks[span.block].text for span in ledger.unsupported]
    found = [text[span.start : span.end] for text, span in zip(texts, ledger.unsupported, strict=True)]
    return [text for text in found if _NUMBER.fullmatch(text) and sum(map(str.isdecimal, text)) >= _DIGITS]


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
        if last is not None and last.block == span.block and span.start <= last.end + 2:
            found[-1] = Span(last.block, last.start, max(last.end, span.end))
        else:
            found.append(span)
    return tuple(found)


# Ink.


def _by_ink(
    black: "Mask", attempt: Attempt, texts: Sequence[BlockText], known: Sequence[Box], *, amount: bool
) -> tuple[_Unread, _Unsupported]:
    """Compare the answer with the ink of the page in the answer's orientation, and the amount of text if asked.

    The ink of `known` lines, whose words are compared, is not unread.
    """
    import numpy as np

    height, width = black.shape
    total = int(black.sum())
    placed = bool(texts) and all(entry.block.box.area < 1 for entry in texts)
    figures = [entry.block for entry in texts if entry.block.kind is BlockKind.FIGURE]
    own = [(number, entry) for number, entry in enumerate(texts) if entry.block.kind is not BlockKind.FIGURE]
    letters = size_of([chunk for _, entry in own for chunk in entry.chunks])
    spans = []
    unread, without = _Unread(), 0
    if placed:
        free = black & ~_cover((height, width), attempt.blocks)
        for box in known:
            free[_place(box, height, width)] = False
        lines = _lines_of_text(free)
        boxes = [box.scaled(1 / width, 1 / height) for box, _ in lines]
        shares = [pixels / total for _, pixels in lines]
        # Many models leave out running heads and feet on purpose.
        aside = in_margin if attempt.source == "model" else _is_shadow
        shares = [0.0 if aside(box) else share for box, share in zip(boxes, shares, strict=True)]
        unread = _Unread(sum(shares), [box for box, share in zip(boxes, shares, strict=True) if share])
        for number, entry in own:
            places = [_place(box, height, width) for box in (entry.block.box, *entry.block.continued)]
            if size_of(entry.chunks) * _LEAST_PIXELS > sum(int(np.count_nonzero(black[place])) for place in places):
                spans.append(Span(number, 0, len(entry.text)))
                without += size_of(entry.chunks)
    most = total / _LEAST_PIXELS_OF_PAGE
    if amount and all(block.box.area < 1 for block in figures):
        lines = _lines_of_text(black & ~_cover((height, width), figures))
        lines = [line for line in lines if not _is_shadow(line[0].scaled(1 / width, 1 / height))]
        expected = sum(2 * max(box.width / box.height, box.height / box.width) for box, _ in lines)
        lost = 1.0 if not texts else 1 - letters / (_FEWEST * expected) if expected >= ENOUGH_LETTERS else 0.0
        if lost > unread.share:
            unread = _Unread(lost, unread.boxes if placed else [box.scaled(1 / width, 1 / height) for box, _ in lines])
        if not placed and sum(pixels for _, pixels in lines) >= _IN_LINES * total:
            # The ink of a line shows its height also if it is curved or oblique, as on scans.
            sizes = [(max(box.width, box.height), min(box.width, box.height), pixels) for box, pixels in lines]
            fitting = sum(2 * long / min(high, max(1.0, pixels / (_FILLED * long))) for long, high, pixels in sizes)
            most = min(most, _MOST * fitting)
    most = max(most, ENOUGH_LETTERS)  # the letters of a few words are uncertain
    share = max(without, letters - most) / letters if letters > most or without else 0.0
    return unread, _Unsupported(share, spans)


def _is_shadow(box: Box) -> bool:
    """Return whether a relative box is a tall strip in the margin: the shadow of a scan, or a stamp."""
    return in_margin(box) and box.height > 3 * box.width


def _pixels(ink: InkMap, rotation: int) -> "Mask":
    """Return the ink of the page turned clockwise by `rotation` degrees, one value per pixel."""
    import numpy as np

    packed = np.frombuffer(zlib.decompress(ink.packed), np.uint8).reshape(ink.height, -1)
    black: Mask = np.unpackbits(packed, axis=1)[:, : ink.width].view(np.bool_)
    return np.ascontiguousarray(np.rot90(black, -rotation // 90)) if rotation % 360 else black


def _cover(shape: tuple[int, int], blocks: Sequence[Block]) -> "Mask":
    """Return the pixels within the boxes of blocks with a place."""
    import numpy as np

    cover = np.zeros(shape, np.bool_)
    for block in blocks:
        for box in (block.box, *block.continued) if block.box.area < 1 else ():
            cover[_place(box, *shape)] = True
    return cover


def _place(box: Box, height: int, width: int) -> tuple[slice, slice]:
    """Return the rows and columns of a relative box with some room."""
    place = box.grown(_ROOM).clipped()
    rows = slice(int(place.y0 * height), math.ceil(place.y1 * height))
    return rows, slice(int(place.x0 * width), math.ceil(place.x1 * width))


def _lines_of_text(free: "Mask") -> list[tuple[Box, int]]:
    """Return the boxes in pixels of what looks like lines of text, lying or standing, and its pixels."""
    import numpy as np

    across = _without_runs(free, max(_RULE, round(_RULE_SHARE * free.shape[1])))
    free = _without_runs(across.T, _RULE).T
    rows, columns = np.flatnonzero(free.any(1)), np.flatnonzero(free.any(0))
    if not len(rows):
        return []
    # Most pages have no ink but in a few places. Paper around them has room for the widening.
    top, left = max(0, int(rows[0]) - _WIDER), max(0, int(columns[0]) - _WIDER)
    part = free[top : rows[-1] + 1 + _WIDER, left : columns[-1] + 1 + _WIDER]
    lying = _connected(part)
    standing = [(Box(box.y0, box.x0, box.y1, box.x1), pixels) for box, pixels in _connected(part.T)]
    found = max(lying, standing, key=lambda lines: sum(pixels for _, pixels in lines))
    return [(Box(box.x0 + left, box.y0 + top, box.x1 + left, box.y1 + top), pixels) for box, pixels in found]


def _runs(mask: "Mask") -> tuple["Integers", "Integers", "Integers"]:
    """Return the row, start, and end of each run of a mask, from top to bottom and from left to right."""
    import numpy as np

    height, width = mask.shape
    framed = np.zeros((height, width + 1), np.int8)  # a column of paper separates the rows
    framed[:, :width] = mask
    edges = np.flatnonzero(np.diff(framed.ravel(), prepend=np.int8(0))).reshape(-1, 2)
    rows, starts = np.divmod(edges[:, 0], width + 1)
    return rows, starts, edges[:, 1] - rows * (width + 1)


def _without_runs(mask: "Mask", length: int) -> "Mask":
    """Return the mask without its runs of at least `length` pixels."""
    rows, starts, ends = _runs(mask)
    result = mask.copy()
    for number in (ends - starts >= length).nonzero()[0].tolist():
        result[rows[number], starts[number] : ends[number]] = False
    return result


def _connected(mask: "Mask") -> list[tuple[Box, int]]:
    """Return the boxes in pixels of the connected ink that has the shape of a line of text, and its pixels."""
    import numpy as np

    height, width = mask.shape
    wide = mask.copy()
    for step in range(1, _WIDER + 1):
        wide[:, step:] |= mask[:, :-step]
        wide[:, :-step] |= mask[:, step:]
    rows, starts, ends = _runs(wide)
    if not len(rows):
        return []
    # Runs in neighboring rows that overlap belong together. Keys order places by row and column.
    first, last = rows * (width + 1) + starts, rows * (width + 1) + ends
    low = np.searchsorted(last, first + width + 1, "right")
    count = np.maximum(np.searchsorted(first, last + width + 1, "left") - low, 0)
    upper = np.repeat(np.arange(len(rows)), count)
    lower = np.arange(len(upper)) - np.repeat(np.cumsum(count) - count, count) + np.repeat(low, count)
    root = np.arange(len(rows))
    while (differ := root[upper] != root[lower]).any():
        upper, lower = upper[differ], lower[differ]
        np.minimum.at(root, np.maximum(root[upper], root[lower]), np.minimum(root[upper], root[lower]))
        while (root[root] != root).any():
            root = root[root]
    _, part = np.unique(root, return_inverse=True)
    sums = np.zeros(height * width + 1, np.int32)
    np.cumsum(mask.ravel(), out=sums[1:])
    pixels = np.bincount(part, sums[rows * width + ends] - sums[rows * width + starts])
    left, top, right, bottom = (np.full(len(pixels), limit) for limit in (width, height, 0, 0))
    np.minimum.at(left, part, starts)
    np.minimum.at(top, part, rows)
    np.maximum.at(right, part, ends)
    np.maximum.at(bottom, part, rows + 1)
    left, right = left + _WIDER, right - _WIDER
    high, long = bottom - top, right - left
    filled = pixels / np.maximum(1, high * long)
    fit = (high >= _LOWEST) & (high <= _HIGHEST) & (long >= np.maximum(_WIDEST_SPECK, _WIDE * high))
    fit &= (filled >= _THIN) & (filled < _SOLID)
    return [(Box(left[at], top[at], right[at], bottom[at]), int(pixels[at])) for at in np.flatnonzero(fit).tolist()]


# Text layer, and OCR.


def _by_layer(
    evidence: Evidence, black: "Mask", attempt: Attempt, texts: Sequence[BlockText]
) -> tuple[_Unread, _Unsupported]:
    """Compare the answer with a true text layer, both ways, in chunks of about a line, and by numbers and names."""
    lines = [(text, box.turned(attempt.rotation)) for text, box in evidence.lines]
    is_optional = _optional(lines, attempt, texts)
    demanded, optional = (
        [line for line, free in zip(lines, is_optional, strict=True) if free is which] for which in (False, True)
    )
    wanted, allowed = (chunks_of("\n".join(text for text, _ in some)) for some in (demanded, optional))
    layer = [*wanted, *allowed]
    # A figure may repeat a caption that is a block of its own, and a manual of LaTeX prints the commands of formulas.
    aside = [chunk for entry in texts if entry.block.kind is BlockKind.FIGURE for chunk in entry.chunks]
    sources = [entry.block.text for entry in texts if "\\" in entry.block.text]
    aside += chunks_of("\n".join(formula for text in sources for formula in FORMULA.findall(text)))
    every = [
        (n, chunk)
        for n, entry in enumerate(texts)
        if entry.block.kind is not BlockKind.FIGURE
        for chunk in entry.chunks
    ]
    in_layer, in_answer = aligned([chunk for _, chunk in every], layer)
    if aside:
        _, in_aside = aligned(aside, layer)
        in_answer = [list(map(max, *pair)) for pair in zip(in_answer, in_aside, strict=True)]
    formulas = [formulas_in(entry) for entry in texts]
    for (number, chunk), found in zip(every, in_layer, strict=True):
        for at, (start, end) in enumerate(chunk.places if formulas[number] else ()):
            if any(first <= start and end <= last for first, last in formulas[number]):
                found[at] = found[at] or UNVERIFIABLE
    unread = _Unread()
    # What one side lacks and the other has instead is misread.
    misread = size_lacking([chunk for _, chunk in every], in_layer) + max(ENOUGH_LETTERS, MISREAD * size_of(wanted))
    if lacking := passages(wanted, in_answer[: len(wanted)], misread):
        starts = [0, *accumulate(len(text) + 1 for text, _ in demanded)]
        boxes = [
            box
            for (_, box), start, end in zip(demanded, starts, starts[1:], strict=False)
            if any(first < end and last > start for _, first, last, _ in lacking)
        ]
        unread = _Unread(sum(part[3] for part in lacking) / size_of(wanted), boxes)
    # Text read in a drawing or picture is in no layer: drawings often have letters as curves. A block was read from a
    # picture if the page has pictures of its size, and no line is in its box.
    own = []
    for number, entry in enumerate(texts):
        places = [box.grown(0.01) for box in (entry.block.box, *entry.block.continued) if entry.block.box.area < 1]
        pictured = places and entry.block.box.area <= evidence.pictured
        if entry.block.kind is BlockKind.FIGURE or (
            pictured and not any(line.covered_by(box) > 0.5 for _, line in lines for box in places)
        ):
            continue
        own.append((number, entry))
    numbers = {number for number, _ in own}
    chosen = [at for at, (number, _) in enumerate(every) if number in numbers]
    chunks, flags = [every[at][1] for at in chosen], [in_layer[at] for at in chosen]
    letters = size_of(chunks)
    if letters < ENOUGH_LETTERS or size_of(wanted) + size_of(allowed) < ENOUGH_LETTERS:
        return unread, _Unsupported()
    # Words of the page that stand once more in the answer are what it has more than the layer, in whatever pieces.
    foreign = passages(chunks, flags, size_lacking(layer, in_answer) + SHORTEST)
    spans = [Span(every[chosen[at]][0], start, end) for at, start, end, _ in foreign]
    invented = sum(part[3] for part in foreign)
    if invented and evidence.pictured and any(entry.block.box.area >= 1 for entry in texts):
        # Text of pictures is in no layer: as many letters as fit in the lines of ink that the layer lacks.
        unseen = _ink_without([box for _, box in lines], black)
        invented -= round(sum(letters for _, letters in unseen) / _FEWEST)
    share = max(0, invented) / letters
    unknown = {
        (number, place[0])
        for (number, chunk), found in zip(every, in_layer, strict=True)
        for place, flag in zip(chunk.places, found, strict=True)
        if not flag
    }
    left = {
        word
        for chunk, found in zip(layer, in_answer, strict=True)
        for word, flag in zip(chunk.words, found, strict=True)
        if not flag
    }
    return unread, _Unsupported(share, [*spans, *_unknown_facts(lines, own, unknown, left)])


def _optional(lines: Sequence[tuple[str, Box]], attempt: Attempt, texts: Sequence[BlockText]) -> list[bool]:
    """Return which lines of the page an answer may lack: running heads, and those in a picture or formula.

    Lines without a word are also optional, with as many letters as the formulas of the answer have: a layer has the
    symbols of a formula in any order, with the numbers of formulas between them.
    """
    pictures = [
        box.grown(0.01)
        for block in attempt.blocks
        if block.kind in (BlockKind.FIGURE, BlockKind.FORMULA) and block.box.area < 1
        for box in (block.box, *block.continued)
    ]
    without_position = any(block.kind is BlockKind.FIGURE and block.box.area >= 1 for block in attempt.blocks)
    heads = _heads(lines)
    formulas = "".join(entry.text[start:end] for entry in texts for start, end in formulas_in(entry))
    symbols = sum(map(str.isalnum, formulas))
    found = []
    for text, box in lines:
        optional = (
            box in heads
            or any(box.covered_by(picture) > 0.5 for picture in pictures)
            or (without_position and len(text) < LETTERS)
        )
        letters = sum(map(str.isalnum, text))
        if not optional and letters <= symbols and not _WORD.search(text):
            symbols -= letters
            optional = True
        found.append(optional)
    return found


def _heads(lines: Sequence[tuple[str, Box]]) -> set[Box]:
    """Return the lines in the margin, and short ones near the upper and lower edge apart from all others.

    Models leave out running heads and feet on purpose.
    """
    found = {box for _, box in lines if in_margin(box)}
    gap = sorted(box.height for _, box in lines)[len(lines) // 2] if lines else 0.0
    for turned in (False, True):
        sides = [
            (1 - box.y1, 1 - box.y0, len(text), box) if turned else (box.y0, box.y1, len(text), box)
            for text, box in lines
        ]
        sides.sort(key=lambda side: side[0])
        end, letters = 0.0, 0
        for number, (begin, last, size, _) in enumerate(sides):
            if number and begin > end + gap:
                found.update(side[3] for side in sides[:number])
            end, letters = max(end, last), letters + size
            if end > _EDGE or letters > _HEAD:
                break
    return found


def _by_ocr(ocr: OcrText, black: "Mask", attempt: Attempt, texts: Sequence[BlockText]) -> tuple[_Unread, _Unsupported]:
    """Compare the answer with OCR of the page, both ways, in passages and by numbers.

    OCR errs, and reads neither handwriting nor formulas. Only lines that it reads with confidence are demanded. A
    passage that it lacks is unsupported unless lines that it could not read with confidence have room for it, or ink in
    the passage's block that it did not find.
    """
    lines = _in_rows(replace(line, box=line.box.turned(attempt.rotation)) for line in ocr.lines)
    answer = []
    for number, entry in enumerate(texts):
        if entry.block.kind is not BlockKind.FORMULA:
            # A figure may repeat a caption that is a block of its own.
            own = entry.text[: len(entry.block.inside)] if entry.block.kind is BlockKind.FIGURE else entry.text
            answer.append((number, FORMULA.sub(lambda found: " " * len(found[0]), own)))
    said = [(number, chunk) for number, text in answer for chunk in chunks_of(text)]
    read = [(number, chunk) for number, line in enumerate(lines) for chunk in chunks_of(line.text)]
    in_ocr, in_answer = aligned([chunk for _, chunk in said], [chunk for _, chunk in read])

    optional = _optional([(line.text, line.box) for line in lines], attempt, texts)
    demanded, room = [], [float(line.text.count("\ufffd")) for line in lines]
    for (number, chunk), found in zip(read, in_answer, strict=True):
        if lines[number].confidence < _SURE:
            room[number] += _ROOM_OF_OCR * sum(map(len, compress(chunk.words, map(not_, found))))
        elif not optional[number]:
            demanded.append(_Part(number, chunk, found))
    lacking = {}
    for parts in (demanded, _in_columns(demanded, lines)):  # a lost row of a table, and a lost line of a column
        for part, start, _, letters in _passages(parts):
            lacking[part.number, start] = letters
    lost = sum(lacking.values()) / size_of([part.chunk for part in demanded]) if lacking else 0.0
    unread = _Unread(lost, [lines[number].box for number in dict.fromkeys(number for number, _ in lacking)])

    compared = [
        _Part(number, chunk, found)
        for (number, chunk), found in zip(said, in_ocr, strict=True)
        if texts[number].block.kind is not BlockKind.FIGURE and _is_readable(chunk.letters, ocr.scripts)
    ]
    spans, invented = [], 0
    enough = size_of([chunk for _, chunk in read]) >= ENOUGH_LETTERS  # else OCR may have failed
    lacked = _passages(compared) if enough else []
    rooms = [(line.box, letters) for line, letters in zip(lines, room, strict=True) if letters]
    ink = _ink_without([line.box for line in lines], black) if lacked else []
    for part, start, end, letters in lacked:
        block, left = texts[part.number].block, float(letters)
        places = [box.grown(_ROOM) for box in (block.box, *block.continued)]
        for free in (rooms, ink) if block.box.area < 1 else (rooms,):
            for at, (box, letters_free) in enumerate(free):
                if left and letters_free and any(box.covered_by(place) > 0.5 for place in places):
                    used = min(letters_free, left)
                    free[at] = box, letters_free - used
                    left -= used
        if left > letters / 2:
            invented += letters
            spans.append(Span(part.number, start, end))
    share = invented / size_of([part.chunk for part in compared]) if invented else 0.0
    return unread, _Unsupported(share, [*spans, *_contradicted_by_ocr(answer, lines), *_other_names(answer, lines)])


def _ink_without(boxes: Sequence[Box], black: "Mask") -> list[tuple[Box, float]]:
    """Return what looks like lines of text outside of relative boxes, and the letters that fit in."""
    height, width = black.shape
    left = black.copy()
    for box in boxes:
        left[_place(box, height, width)] = False
    return [
        (box.scaled(1 / width, 1 / height), 2 * max(box.width / box.height, box.height / box.width))
        for box, _ in _lines_of_text(left)
    ]


class _Part(NamedTuple):
    """Chunk of a block of the answer, or of a line of OCR, with its number, and which words the other side has."""

    number: int
    chunk: Chunk
    found: Sequence[int]


def _passages(parts: Sequence[_Part]) -> list[tuple[_Part, int, int, int]]:
    """Return the passages that were not found: their part, the start and end in its text, and their letters."""
    found = passages([part.chunk for part in parts], [part.found for part in parts])
    return [(parts[at], start, end, letters) for at, start, end, letters in found]


def _in_rows(lines: Iterable[OcrLine]) -> list[OcrLine]:
    """Return the lines from top to bottom, and those of one height, such as cells of a table, from left to right."""
    rows: list[list[OcrLine]] = []
    for line in sorted(lines, key=lambda line: line.box.centre[1]):
        first = rows[-1][0].box if rows else line.box
        if rows and line.box.centre[1] < first.centre[1] + first.height / 2:
            rows[-1].append(line)
        else:
            rows.append([line])
    return [line for row in rows for line in sorted(row, key=lambda line: line.box.x0)]


def _in_columns(parts: Sequence[_Part], lines: Sequence[OcrLine]) -> list[_Part]:
    """Return parts of lines, which are in rows, so that each line follows the one above it in its column."""
    columns: list[list[_Part]] = []
    for part in parts:
        box = lines[part.number].box
        for column in columns[-_COLUMNS:]:
            last = lines[column[-1].number].box
            shared = min(box.x1, last.x1) - max(box.x0, last.x0)
            below = box.centre[1] - last.y1
            if last == box or (shared > min(box.width, last.width) / 2 and 0 < below < 2 * last.height):
                column.append(part)
                break
        else:
            columns.append([part])
    return [part for column in columns for part in column]


class _Fact(NamedTuple):
    """Number or word in a text: its block and place, its digits or letters, and what is on both sides (`_facts_in`)."""

    block: int
    start: int
    end: int
    text: str
    around: tuple[str, str]

    def stands_at(self, other: "_Fact") -> int:
        """Return on how many sides the neighbors are those of another number."""
        return sum(own == their != "" for own, their in zip(self.around, other.around, strict=True))


def _facts_in(
    texts: Sequence[tuple[int, str]], find: Callable[[str], list[tuple[tuple[int, int], str]]]
) -> list[_Fact]:
    """Return what `find` finds in consecutive texts, with four letters or digits on both sides, or "" for fewer."""
    whole = "\n".join(text for _, text in texts)
    found, first = [], 0
    for block, text in texts:
        for (start, end), own in find(text):
            before = "".join(filter(str.isalnum, folded(whole[max(0, first + start - _NEAR) : first + start])))[-_SIDE:]
            after = "".join(filter(str.isalnum, folded(whole[first + end : first + end + _NEAR])))[:_SIDE]
            around = tuple(side if len(side) == _SIDE else "" for side in (before, after))
            found.append(_Fact(block, start, end, own, (around[0], around[1])))
        first += len(text) + 1
    return found


def _contradicted_by_ocr(answer: Sequence[tuple[int, str]], lines: Sequence[OcrLine]) -> list[Span]:
    """Return the places of numbers for which OCR reads another number with confidence.

    Most numbers that OCR lacks are its own errors. A number is contradicted if OCR has another one between the same
    letters, or one that differs in few digits, that the answer lacks.

    Args:
        answer: Numbers and texts of the blocks.
        lines: The lines of OCR, in order.
    """
    printed: dict[str, list[_Fact]] = {}
    for number in _facts_in([(at, line.text) for at, line in enumerate(lines)], _numbers):
        printed.setdefault(number.text, []).append(number)
    lacking = _facts_in(answer, _numbers)
    for sides in (2, 1, 0):  # numbers that agree, those between the same letters first
        left = []
        for number in lacking:
            others = printed.get(number.text, [])
            if same := next((other for other in others if number.stands_at(other) >= sides), None):
                others.remove(same)
            else:
                left.append(number)
        lacking = left
    sure = [other for others in printed.values() for other in others if _is_sure(other, lines)]
    spans = []
    for number in lacking[:_MOST_NUMBERS]:
        for other in sure:
            sides = number.stands_at(other)
            changed = sum(map(ne, number.text, other.text))
            close = len(number.text) == len(other.text) and changed <= max(1, len(number.text) // 3)
            if sides == 2 or (close and (sides or len(number.text) > _DIGITS)):
                sure.remove(other)
                spans.append(Span(number.block, number.start, number.end))
                break
    return spans


def _other_names(answer: Sequence[tuple[int, str]], lines: Sequence[OcrLine]) -> list[Span]:
    """Return the places of names that OCR lacks, and for which it reads another word between the same letters."""
    letters = "".join(filter(str.isalnum, folded("".join(line.text for line in lines))))
    read = _facts_in([(at, line.text) for at, line in enumerate(lines)], _words)
    between = {word.around: word.text for word in read if all(word.around) and _is_sure(word, lines)}
    texts = dict(answer)
    return [
        Span(name.block, name.start, name.end)
        for name in _facts_in(answer, _words)
        if texts[name.block][name.start].isupper()
        and name.text not in letters
        and SequenceMatcher(None, name.text, between.get(name.around, name.text)).ratio() < _ALIKE
    ]


def _is_sure(fact: _Fact, lines: Sequence[OcrLine]) -> bool:
    """Return whether OCR reads each character of a number or word of its lines with confidence."""
    line = lines[fact.block]
    words = line.words[line.text.count(" ", 0, fact.start) : line.text.count(" ", 0, fact.end) + 1]
    return min(words, default=0.0) >= _SURE_WORD


def _words(text: str) -> list[tuple[tuple[int, int], str]]:
    """Return the place and the letters of each word with at least four letters."""
    return [(found.span(), folded(found[0])) for found in _NAME.finditer(text)]


def _is_readable(letters: str, scripts: frozenset[str]) -> bool:
    """Return whether most letters are of scripts that OCR reads."""
    if letters.isascii():
        return True
    known = sum(not c.isalpha() or unicodedata.name(c, "?").split(" ", 1)[0] in scripts for c in letters)
    return known > _KNOWN_SCRIPT * len(letters)


def _unknown_facts(
    lines: Sequence[tuple[str, Box]],
    own: Sequence[tuple[int, BlockText]],
    unknown: Collection[tuple[int, int]],
    left: Collection[str],
) -> list[Span]:
    """Return the places of numbers and names that the text layer lacks.

    Args:
        lines: The text layer.
        own: The blocks that are compared with it, with their numbers.
        unknown: Blocks and starts of the words that the layer lacks.
        left: Words of the layer that the answer lacks: a number may be joined there with its neighbor.
    """
    letters = "".join(filter(str.isalnum, folded("".join(text for text, _ in lines))))
    numbers, names, count = [], [], 0
    for block, entry in own:
        if entry.block.kind is BlockKind.FORMULA:
            continue
        text = FORMULA.sub(lambda found: " " * len(found[0]), entry.text)
        for start, digits in _numbers(text):
            if any((block, at) in unknown for at in range(*start)) and not any(digits in word for word in left):
                numbers.append(Span(block, start[0], start[1]))
        for found in _NAME.finditer(text):
            if found[0][0].isupper():
                count += 1
                if "".join(filter(str.isalnum, folded(found[0]))) not in letters:
                    names.append(Span(block, found.start(), found.end()))
    return [*numbers, *(names if len(names) <= _ENOUGH_NAMES * count else ())]


def _numbers(text: str) -> list[tuple[tuple[int, int], str]]:
    """Return the place and the digits of each number with at least `_DIGITS` digits."""
    found = [(number.span(), "".join(filter(str.isdecimal, number[0]))) for number in _NUMBER.finditer(text)]
    return [(place, digits) for place, digits in found if len(digits) >= _DIGITS]
