"""Compare the answer with the ink of the page."""

import math
import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from llm_ocr.results.quality.text_layer import (
    ENOUGH_LETTERS,
    BlockText,
    in_margin,
    size_of,
)
from llm_ocr.types import Attempt, Block, BlockKind, Box, InkMap, Span

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
FEWEST, _MOST = 0.55, 2.3
#: Share of the ink outside of figures that must be in lines for this comparison: small print has none.
_IN_LINES = 0.9
#: Share of the letters in a place, below which the answer has only their beginning, and letters of a picture of text.
_BEGUN, _PICTURE_OF_TEXT = 0.25, 300
#: Share of a straight line's box that letters fill at least.
_FILLED = 0.3
#: Growth of boxes, relative to the page: boxes of letters are tight.
ROOM = 0.008
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
    unread, without = Unread(), 0
    # Many models leave out running heads and feet on purpose.
    aside = in_margin if attempt.source == "model" else _is_shadow
    if placed:
        free = black & ~cover_of((height, width), attempt.blocks)
        for box in known:
            free[_place(box, height, width)] = False
        lines = _lines_of_text(free)
        boxes = [box.scaled(1 / width, 1 / height) for box, _ in lines]
        shares = [pixels / total for _, pixels in lines]
        shares = [0.0 if aside(box) else share for box, share in zip(boxes, shares, strict=True)]
        unread = Unread(sum(shares), [box for box, share in zip(boxes, shares, strict=True) if share])
        for number, entry in own:
            places = [_place(box, height, width) for box in (entry.block.box, *entry.block.continued)]
            if size_of(entry.chunks) * _LEAST_PIXELS > sum(int(np.count_nonzero(black[place])) for place in places):
                spans.append(Span(number, 0, len(entry.text)))
                without += size_of(entry.chunks)
        begun = _begun(black, texts)
        share = sum(pixels for _, pixels in begun) / total
        unread = Unread(unread.share + share, [*unread.boxes, *(box for box, _ in begun)])
    most = total / _LEAST_PIXELS_OF_PAGE
    if amount and all(block.box.area < 1 for block in figures):
        lines = _lines_of_text(black & ~cover_of((height, width), figures))
        lines = [line for line in lines if not _is_shadow(line[0].scaled(1 / width, 1 / height))]
        demanded = [box for box, _ in lines if not aside(box.scaled(1 / width, 1 / height))]
        expected = _letters_in(demanded)
        lost = 1.0 if not texts else 1 - letters / (FEWEST * expected) if expected >= ENOUGH_LETTERS else 0.0
        if lost > unread.share:
            unread = Unread(lost, unread.boxes if placed else [box.scaled(1 / width, 1 / height) for box in demanded])
        if not placed and sum(pixels for _, pixels in lines) >= _IN_LINES * total:
            # The ink of a line shows its height also if it is curved or oblique, as on scans.
            sizes = [(max(box.width, box.height), min(box.width, box.height), pixels) for box, pixels in lines]
            fitting = sum(2 * long / min(high, max(1.0, pixels / (_FILLED * long))) for long, high, pixels in sizes)
            most = min(most, _MOST * fitting)
    most = max(most, ENOUGH_LETTERS)  # the letters of a few words are uncertain
    share = max(without, letters - most) / letters if letters > most or without else 0.0
    return unread, Unsupported(share, spans)


def _begun(black: "Mask", texts: Sequence[BlockText]) -> list[tuple[Box, int]]:
    """Return the lines, as relative boxes with their pixels, in places where the answer has far fewer letters.

    These are the places of tables and paragraphs of which the model wrote only the beginning, and of pictures that have
    nothing but text. Lines in the places of several texts, of formulas, and of continued text are not judged.
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
            letters[key] = letters.get(key, 0) + size_of(entry.chunks) + len(block.described)
    found = _lines_of_text(black)
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
        expected = _letters_in([line.scaled(width, height) for line, _ in some])
        if expected < (_PICTURE_OF_TEXT if is_picture else ENOUGH_LETTERS) or size >= _BEGUN * expected:
            continue
        ink = int(np.count_nonzero(black[_place(box, height, width)]))
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


def _letters_in(lines: Sequence[Box]) -> float:
    """Return the letters that lines of these boxes in pixels suggest."""
    return sum(2 * max(box.width / box.height, box.height / box.width) for box in lines)


def _is_shadow(box: Box) -> bool:
    """Return whether a relative box is a tall strip in the margin: the shadow of a scan, or a stamp."""
    return in_margin(box) and box.height > 3 * box.width


def pixels_of(ink: InkMap, rotation: int) -> "Mask":
    """Return the ink of the page turned clockwise by `rotation` degrees, one value per pixel."""
    import numpy as np

    packed = np.frombuffer(zlib.decompress(ink.packed), np.uint8).reshape(ink.height, -1)
    black: Mask = np.unpackbits(packed, axis=1)[:, : ink.width].view(np.bool_)
    return np.ascontiguousarray(np.rot90(black, -rotation // 90)) if rotation % 360 else black


def cover_of(shape: tuple[int, int], blocks: Sequence[Block]) -> "Mask":
    """Return the pixels within the boxes of blocks with a place."""
    import numpy as np

    cover = np.zeros(shape, np.bool_)
    for block in blocks:
        for box in (block.box, *block.continued) if block.box.area < 1 else ():
            cover[_place(box, *shape)] = True
    return cover


def _place(box: Box, height: int, width: int) -> tuple[slice, slice]:
    """Return the rows and columns of a relative box with some room."""
    place = box.grown(ROOM).clipped()
    rows = slice(int(place.y0 * height), math.ceil(place.y1 * height))
    return rows, slice(int(place.x0 * width), math.ceil(place.x1 * width))


def ink_without(boxes: Sequence[Box], black: "Mask") -> list[tuple[Box, float]]:
    """Return what looks like lines of text outside of relative boxes, and the letters that fit in."""
    height, width = black.shape
    left = black.copy()
    for box in boxes:
        left[_place(box, height, width)] = False
    return [
        (box.scaled(1 / width, 1 / height), 2 * max(box.width / box.height, box.height / box.width))
        for box, _ in _lines_of_text(left)
    ]


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
