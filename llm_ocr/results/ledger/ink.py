"""Compare the answer with the ink of the page."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple
from unicodedata import east_asian_width

from llm_ocr.documents.ink import ROOM, letters_in, lines_of_text, place_of
from llm_ocr.results.quality.text_layer import ENOUGH_LETTERS, BlockText, Chunk, in_margin
from llm_ocr.types import Attempt, Block, BlockKind, Box, Span

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Mask = npt.NDArray[np.bool_]

#: Fewest pixels of ink of a legible character in an ink map. Of 5,500 blocks of real pages, 0.1 % have fewer than 2.5,
#: and no page as a whole has fewer than 7.
_LEAST_PIXELS, _LEAST_PIXELS_OF_PAGE = 2.5, 6.0
#: Letters and digits of a page divided by those that the sizes of its lines suggest. Of 448 real pages, 1 % have fewer;
#: of 104 damaged scans with dense lines, none has more than 2.25.
FEWEST, _MOST = 0.55, 2.3
#: Letters of Tamil and Malayalam. On three pages in each of 30 languages, theirs are 0.46 to 0.57 of those that the
#: sizes of lines suggest, and 0.92 or more with two for each. Of the other 84 pages, one, in Burmese, has below 0.59.
_WIDE = re.compile("[\u0b80-\u0bff\u0d00-\u0d7f]")
#: Share of the ink outside of figures that must be in lines for this comparison: small print has none.
_IN_LINES = 0.9
#: Share of the letters in a place, below which the answer has only their beginning, and letters of a picture of text.
_BEGUN, _PICTURE_OF_TEXT = 0.25, 300
#: Share of a straight line's box that letters fill at least.
_FILLED = 0.3


class Unread(NamedTuple):
    """Share of what was not read, and relative boxes in the answer's orientation."""

    share: float = 0.0
    boxes: Sequence[Box] = ()


class Unsupported(NamedTuple):
    """Share of the text without support, and its places."""

    share: float = 0.0
    spans: Sequence[Span] = ()


def compare_with_ink(
    black: "Mask", attempt: Attempt, texts: Sequence[BlockText], known: Sequence[Box], *, amount: bool
) -> tuple[Unread, Unsupported]:
    """Compare the answer with the ink of the page in the answer's orientation, and the amount of text if asked.

    The ink of `known` lines, whose words are compared, is not unread. Text of OCR is always supported, because OCR sees
    more ink than the map shows: dotted, faint, and shaded letters. How sure it was tells more (`quality.CONFIDENT`).
    """
    import numpy as np

    height, width = black.shape
    total = int(np.count_nonzero(black))
    placed = bool(texts) and all(entry.block.box.area < 1 for entry in texts)
    figures = [entry.block for entry in texts if entry.block.kind is BlockKind.FIGURE]
    own = [(number, entry) for number, entry in enumerate(texts) if entry.block.kind is not BlockKind.FIGURE]
    letters = _width_of([chunk for _, entry in own for chunk in entry.chunks])
    spans = []
    unread, without = Unread(), 0
    # Many models leave out running heads and feet on purpose.
    aside = in_margin if attempt.source == "model" else _is_shadow
    # Where words are compared, only pictures may hide text that was not read.
    every = lines_of_text(black) if (placed and figures) or (amount and (placed or not figures)) else []
    if placed:
        free = black & ~cover_of((height, width), attempt.blocks)
        for box in known:
            free[place_of(box, height, width)] = False
        lines = lines_of_text(free)
        boxes = [box.scaled(1 / width, 1 / height) for box, _ in lines]
        shares = [pixels / total for _, pixels in lines]
        shares = [0.0 if aside(box) else share for box, share in zip(boxes, shares, strict=True)]
        unread = Unread(sum(shares), [box for box, share in zip(boxes, shares, strict=True) if share])
        for number, entry in own:
            places = [place_of(box, height, width) for box in (entry.block.box, *entry.block.continued)]
            if _width_of(entry.chunks) * _LEAST_PIXELS > sum(int(np.count_nonzero(black[place])) for place in places):
                spans.append(Span(number, 0, len(entry.text)))
                without += _width_of(entry.chunks)
        begun = _begun(black, every, texts)
        share = sum(pixels for _, pixels in begun) / total
        unread = Unread(unread.share + share, [*unread.boxes, *(box for box, _ in begun)])
    most = total / _LEAST_PIXELS_OF_PAGE
    if amount and all(block.box.area < 1 for block in figures):
        lines = lines_of_text(black & ~cover_of((height, width), figures)) if figures else every
        lines = [line for line in lines if not _is_shadow(line[0].scaled(1 / width, 1 / height))]
        demanded = [box for box, _ in lines if not aside(box.scaled(1 / width, 1 / height))]
        expected = sum(map(letters_in, demanded))
        lost = 1.0 if not texts else 1 - letters / (FEWEST * expected) if expected >= ENOUGH_LETTERS else 0.0
        if lost > unread.share:
            unread = Unread(lost, unread.boxes if placed else [box.scaled(1 / width, 1 / height) for box in demanded])
        if not placed and sum(pixels for _, pixels in lines) >= _IN_LINES * total:
            # The ink of a line shows its height also if it is curved or oblique, as on scans.
            sizes = [(max(box.width, box.height), min(box.width, box.height), pixels) for box, pixels in lines]
            fitting = sum(2 * long / min(high, max(1.0, pixels / (_FILLED * long))) for long, high, pixels in sizes)
            most = min(most, _MOST * fitting)
    if attempt.source == "ocr":
        return unread, Unsupported()
    most = max(most, ENOUGH_LETTERS)  # the letters of a few words are uncertain
    share = max(without, letters - most) / letters if letters > most or without else 0.0
    return unread, Unsupported(share, spans)


def _width_of(chunks: Sequence[Chunk]) -> int:
    """Return the width of the chunks in Latin letters: an ideograph, for example, has that of two."""
    letters = "".join(chunk.letters for chunk in chunks)
    if letters.isascii():
        return len(letters)
    return len(letters) + len(_WIDE.findall(letters)) + sum(east_asian_width(letter) in "WF" for letter in letters)


def _begun(black: "Mask", found: Sequence[tuple[Box, int]], texts: Sequence[BlockText]) -> list[tuple[Box, int]]:
    """Return the lines, as relative boxes with their pixels, in places where the answer has far fewer letters.

    `found` are the lines of the page, as from `lines_of_text`. The places are those of tables and paragraphs of which
    the model wrote only the beginning, and of pictures that have nothing but text. Lines in the places of several
    texts, of formulas, and of continued text are not judged.
    """
    import numpy as np

    height, width = black.shape
    letters: dict[tuple[Box, bool], int] = {}  # by place, and whether it is that of a picture
    aside: list[Box] = []
    for entry in texts:
        block = entry.block
        if block.kind is BlockKind.FORMULA or block.continued:
            aside += (block.box, *block.continued)
        else:
            key = block.box, block.kind is BlockKind.FIGURE
            letters[key] = letters.get(key, 0) + _width_of(entry.chunks) + len(block.described)
    if not letters or not found:
        return []
    lines = [box.scaled(1 / width, 1 / height) for box, _ in found]
    covered = _is_covered(lines, [box for box, _ in letters])
    by_text = covered & ~np.array([is_picture for _, is_picture in letters])
    covered = np.where(by_text.any(1, keepdims=True), by_text, covered)
    covered[(covered.sum(1) != 1) | _is_covered(lines, aside).any(1)] = False
    begun = []
    for place, ((box, is_picture), size) in enumerate(letters.items()):
        some = [(lines[at], found[at][1]) for at in np.flatnonzero(covered[:, place]).tolist()]
        expected = sum(letters_in(line.scaled(width, height)) for line, _ in some)
        if expected < (_PICTURE_OF_TEXT if is_picture else ENOUGH_LETTERS) or size >= _BEGUN * expected:
            continue
        ink = int(np.count_nonzero(black[place_of(box, height, width)]))
        if not is_picture or sum(pixels for _, pixels in some) >= _IN_LINES * ink:
            begun += some
    return begun


def _is_covered(lines: Sequence[Box], places: Sequence[Box]) -> "Mask":
    """Return for each line and place whether most of the line is in the place, with some room."""
    import numpy as np

    inner = np.array([(line.x0, line.y0, line.x1, line.y1) for line in lines]).reshape(-1, 1, 4)
    grown = [place.grown(ROOM) for place in places]
    outer = np.array([(place.x0, place.y0, place.x1, place.y1) for place in grown]).reshape(1, -1, 4)
    shared = np.minimum(inner[..., 2:], outer[..., 2:]) - np.maximum(inner[..., :2], outer[..., :2])
    sides = inner[..., 2:] - inner[..., :2]
    covered: Mask = shared.clip(0).prod(-1) > 0.5 * sides.prod(-1)
    return covered


def _is_shadow(box: Box) -> bool:
    """Return whether a relative box is a tall strip in the margin: the shadow of a scan, or a stamp."""
    return in_margin(box) and box.height > 3 * box.width


def cover_of(shape: tuple[int, int], blocks: Sequence[Block]) -> "Mask":
    """Return the pixels within the boxes of blocks with a place."""
    import numpy as np

    cover = np.zeros(shape, np.bool_)
    for block in blocks:
        for box in (block.box, *block.continued) if block.box.area < 1 else ():
            cover[place_of(box, *shape)] = True
    return cover
