"""From a PDF's characters to glyphs with a meaning: ligatures resolved, overprints removed.

A glyph stands in the frame of its writing direction: `u` runs along the text and `v` down from one line to the next, so
that text turned on the page is handled like any other.
"""

import unicodedata
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from llm_ocr.documents.pdf_chars import Chars, Floats, Ints, Style

Bools = npt.NDArray[np.bool_]

#: A glyph's nominal extent above and below its baseline, in parts of the font size (Latin text fonts).
ASCENT, DESCENT = 0.8, 0.22

_SPACES = (9, 10, 13, 32, 0x85, 0xA0, *range(0x2000, 0x200C), 0x2028, 0x2029, 0x202F, 0x205F, 0x2060, 0x3000, 0xFEFF)
#: Bullets of the fonts Symbol and Wingdings, which have no code points of their own.
_BULLETS = {0xF0B7: "•", 0xF0A7: "▪", 0xF0A8: "▫", 0xF06E: "■", 0xF071: "❑", 0xF0D8: "➢", 0xF0FC: "✓", 0xF02D: "-"}
#: Ligatures and Arabic presentation forms: compatibility characters that readers of Markdown do not search for.
_FORMS = ((0xFB00, 0xFB18), (0xFB1D, 0xFDFF), (0xFE70, 0xFEFD))
_RTL_MARKS = ((0x591, 0x5BD), (0x610, 0x61A), (0x64B, 0x65F), (0x670, 0x670), (0x6D6, 0x6DC))
_RTL = ((0x590, 0x8FF), (0xFB1D, 0xFDFF), (0xFE70, 0xFEFD), (0x10800, 0x10FFF), (0x1E800, 0x1EFFF))


@dataclass(frozen=True, slots=True)
class Glyphs:
    """Glyphs in the PDF's order. Arrays of length n but `texts`, `styles` and `thick`."""

    texts: list[str]
    boxes: Floats  # (n, 4) as shown
    turn: Ints  # degrees clockwise of the frame
    u0: Floats
    u1: Floats
    base: Floats  # v of the baseline
    size: Floats
    style: Ints
    spaced: Bools  # whitespace stands before it
    rtl: Bools
    thick: Bools  # printed more than once: a poor man's bold
    objects: Ints
    styles: tuple[Style, ...]
    unmapped: int


def _within(codes: Ints, ranges: tuple[tuple[int, int], ...]) -> Bools:
    found = np.zeros(len(codes), dtype=bool)
    for first, last in ranges:
        found |= (codes >= first) & (codes <= last)
    return found


def glyphs_of(chars: Chars, width: float, height: float) -> Glyphs:
    """The glyphs that lie on a page of this size."""
    codes = _with_pairs_joined(chars.codes)
    space = np.isin(codes, _SPACES) | (codes < 0)
    unmapped = _unmapped(codes)
    boxes = _placed(chars.boxes)
    x, y = (boxes[:, 0] + boxes[:, 2]) / 2, (boxes[:, 1] + boxes[:, 3]) / 2
    kept = ~space & (chars.style >= 0) & (x >= 0) & (y >= 0) & (x <= width) & (y <= height)
    sizes = np.array([style.size for style in chars.styles] or [0.0])
    size = sizes[np.maximum(chars.style, 0)]
    kept &= size > 0
    again, thick = _overprints(chars, codes, size, kept)
    kept &= ~again
    index = np.nonzero(kept)[0]
    gaps = np.cumsum(space)
    texts = _texts(codes, unmapped)
    index = _ligatures_in_order(index, codes, boxes)
    spaced = np.diff(gaps[index], prepend=-1) > 0
    index, spaced = _marks_after_letters(index, spaced, codes, boxes, size)
    turn, u0, u1, base = _framed(chars, boxes, size, index)
    return Glyphs(
        [texts[i] for i in index.tolist()],
        boxes[index],
        turn,
        u0,
        u1,
        base,
        size[index],
        chars.style[index],
        spaced,
        _within(codes[index], _RTL),
        thick[index],
        chars.objects[index],
        chars.styles,
        int(unmapped.sum()),
    )


def _with_pairs_joined(codes: Ints) -> Ints:
    """Surrogate pairs as one code point at the first half's place; -1 at the second's."""
    high = (codes >= 0xD800) & (codes < 0xDC00)
    if not high.any():
        return codes
    codes = codes.copy()
    for at in np.nonzero(high[:-1])[0].tolist():
        low = int(codes[at + 1])
        if 0xDC00 <= low < 0xE000:
            codes[at] = 0x10000 + ((int(codes[at]) - 0xD800) << 10) + low - 0xDC00
            codes[at + 1] = -1
    return codes


def _unmapped(codes: Ints) -> Bools:
    control = ((codes >= 0) & (codes < 32) & (codes != 10) & (codes != 13)) | ((codes > 0x7E) & (codes < 0xA0))
    private = ((codes >= 0xD800) & (codes < 0xF900)) | (codes >= 0xF0000)
    known = np.isin(codes, list(_BULLETS)) | (codes == 0x85)
    nothing = (codes == 0xFFFD) | (codes >= 0x110000) | (codes & 0xFFFE == 0xFFFE)
    found: Bools = (control | private | nothing) & ~known & (codes >= 0)
    return found


def _texts(codes: Ints, unmapped: Bools) -> list[str]:
    texts = [chr(code) if 0 <= code < 0x110000 else "" for code in codes.tolist()]
    for at in np.nonzero(unmapped)[0].tolist():
        texts[at] = "\ufffd"
    for at in np.nonzero(_within(codes, _FORMS))[0].tolist():
        texts[at] = unicodedata.normalize("NFKC", texts[at]).strip()
    for at in np.nonzero(np.isin(codes, list(_BULLETS)))[0].tolist():
        texts[at] = _BULLETS[int(codes[at])]
    return texts


def _placed(boxes: Floats) -> Floats:
    """Characters without a place (joiners, marks) stand where the one before them ends."""
    empty = (boxes[:, 2] <= boxes[:, 0]) & (boxes[:, 3] <= boxes[:, 1])
    if not empty.any():
        return boxes
    last = np.maximum.accumulate(np.where(empty, 0, np.arange(len(boxes))))
    boxes = boxes.copy()
    before = boxes[last[empty]]
    boxes[empty] = np.column_stack((before[:, 2], before[:, 1], before[:, 2], before[:, 3]))
    return boxes


def _overprints(chars: Chars, codes: Ints, size: Floats, kept: Bools) -> tuple[Bools, Bools]:
    """Which characters repeat one at the same place, and which are repeated."""
    boxes = chars.boxes
    again, repeated = np.zeros(len(codes), dtype=bool), np.zeros(len(codes), dtype=bool)
    index = np.nonzero(kept & (boxes[:, 2] > boxes[:, 0]))[0]
    for shift in (0.0, 0.5):  # two near neighbours share a cell of one of two grids
        rows = np.floor(boxes[index, 1] / np.maximum(size[index], 1) + shift)
        order = index[np.lexsort((boxes[index, 0], rows, codes[index]))]
        first, second = order[:-1], order[1:]
        near = (codes[first] == codes[second]) & (size[first] == size[second])
        near &= np.abs(boxes[second, 0] - boxes[first, 0]) < 0.1 * size[first]
        near &= np.abs(boxes[second, 1] - boxes[first, 1]) < 0.1 * size[first]
        near &= (second - first != 1) | (chars.objects[first] != chars.objects[second])  # not the letters of a ligature
        again[second[near]] = True
        repeated[first[near]] = True
    return again, repeated


def _ligatures_in_order(index: Ints, codes: Ints, boxes: Floats) -> Ints:
    """pdfium reverses right-to-left text glyph by glyph, the letters of a ligature (one box) with it: put them back."""
    rtl = _within(codes[index], _RTL)
    if not rtl.any():
        return index
    index = index.copy()
    same = np.all(boxes[index[1:]] == boxes[index[:-1]], axis=1) & rtl[1:] & rtl[:-1] & (np.diff(index) == 1)
    at = 0
    while at < len(same):
        end = at
        while end < len(same) and same[end]:
            end += 1
        if end > at:
            index[at : end + 1] = index[at : end + 1][::-1]
        at = end + 1
    return index


def _marks_after_letters(index: Ints, spaced: Bools, codes: Ints, boxes: Floats, size: Floats) -> tuple[Ints, Bools]:
    """Right-to-left vowel marks behind their letter again, without the spaces that pdfium sees at them."""
    marks = _within(codes[index], _RTL_MARKS)
    if not marks.any():
        return index, spaced
    index, spaced = index.copy(), spaced.copy()
    for at in np.nonzero(marks[:-1])[0].tolist():
        mark, letter = boxes[index[at]], boxes[index[at + 1]]
        middle = (mark[0] + mark[2]) / 2
        before = boxes[index[at - 1]] if at else None
        if letter[0] <= middle <= letter[2] and not (before is not None and before[0] <= middle <= before[2]):
            index[at], index[at + 1] = index[at + 1], index[at]
            far = before is None or before[0] - letter[2] > 0.15 * size[index[at]]
            spaced[at], spaced[at + 1] = spaced[at] and far, False
        else:
            spaced[at] = False
    return index, spaced


def _framed(chars: Chars, boxes: Floats, size: Floats, index: Ints) -> tuple[Ints, Floats, Floats, Floats]:
    """The frame's turn, and u0, u1 and the baseline's v in it."""
    angles = np.array([style.angle for style in chars.styles] or [0])
    angle = angles[np.maximum(chars.style[index], 0)]
    right = (np.round(angle / 90).astype(np.int64) * 90) % 360
    tilt = (angle - right + 180) % 360 - 180
    turn = np.where(np.abs(tilt) <= 5, right, angle)  # a scan's text is a little askew: neighbours still line up
    tilt = np.where(np.abs(tilt) <= 5, tilt, 0)
    cos, sin = np.cos(np.radians(turn)), np.sin(np.radians(turn))
    box, em = boxes[index], size[index]
    x, y = (box[:, 0] + box[:, 2]) / 2, (box[:, 1] + box[:, 3]) / 2
    wide, high = box[:, 2] - box[:, 0], box[:, 3] - box[:, 1]
    middle, level = x * cos + y * sin, y * cos - x * sin
    flat = np.abs(cos) >= np.abs(sin)
    slanted = np.minimum(np.abs(cos), np.abs(sin)) > 1e-6
    lean = np.where(slanted, em, 0)
    across = np.where(flat, wide - lean * np.abs(sin), high - lean * np.abs(cos))
    across = np.maximum(across / np.maximum(np.abs(cos), np.abs(sin)), 0)
    origin = chars.origins[index]
    along = origin[:, 0] * cos + origin[:, 1] * sin
    base = origin[:, 1] * cos - origin[:, 0] * sin + np.tan(np.radians(tilt)) * (middle - along)
    height = np.where(flat, high, wide)
    low = level + height / 2
    shared = np.minimum(base + DESCENT * em, low) - np.maximum(base - ASCENT * em, level - height / 2)
    base = np.where((shared < 0.5 * np.minimum(em, height)) & ~slanted, low - DESCENT * em, base)  # a font that lies
    return turn, middle - across / 2, middle + across / 2, base
