"""Find the characters of a page's text layer that its picture does not show.

Such text is white on white, transparent, clipped, below a bar, or too small. Text of a scan's OCR is drawn invisibly,
but the scan below it shows the same words. So the picture decides, not the way in which the text is drawn.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from PIL import Image

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Pixels = npt.NDArray[np.uint8]  # height x width, gray; height x width x 4, RGB and gray, for a picture in color

#: Largest difference of gray values, of 255, that is not visible, and of the values of a color: pale yellow on white is
#: not visible, red on a green that is as bright is.
_UNSEEN, _UNSEEN_COLOR = 8, 64
#: Largest font size that is too small to read, in points and as a share of the page's longer side.
_TINY, _TINY_SHARE = 2.0, 0.0024
#: Height of text in pixels below which the picture does not show what is visible.
_LEAST_PIXELS = 3.0
#: Part of a line's box, from its top, where letters have ink and gaps.
_BAND = (0.35, 0.72)
#: Distance in font sizes from which two characters are of different words; that of letters in a word is below 1.
_WORDS_APART = 2.0
#: Share of a word's height at each side that is not compared, because a bar may end there.
_EDGE = 0.1
_SPACES = (9, 10, 13, 32, 0xA0)


def unseen(
    codes: Ints,
    boxes: Floats,
    sizes: Floats,
    angles: Ints,
    picture: Pixels,
    scale: tuple[float, float],
    inked: Callable[[int, int], tuple[float, float, float, float] | None],
) -> Bools:
    """Return which characters are not visible; white space is not among them.

    Args:
        codes: Code points, shape (n,); white space separates words.
        boxes: Nominal boxes in points as shown, shape (n, 4).
        sizes: Font sizes in points, shape (n,).
        angles: Directions of the text in degrees, shape (n,).
        picture: Picture of the page.
        scale: Pixels of the picture per point, across and down.
        inked: Returns the box of the outlines of the characters from the first to the second index, in points as shown;
            None if the picture may lack the glyphs.
    """
    hidden = np.zeros(len(codes), dtype=bool)
    letters = ~np.isin(codes, _SPACES)
    # pdfium reports no white space between lines of one letter. Characters with an empty box end no word.
    placed = (boxes[:, 2] > boxes[:, 0]) & (boxes[:, 3] > boxes[:, 1])
    gaps = np.maximum(boxes[1:, :2] - boxes[:-1, 2:], boxes[:-1, :2] - boxes[1:, 2:]).max(1)
    joined = letters[1:] & letters[:-1] & ((gaps < _WORDS_APART * sizes[1:]) | ~placed[1:] | ~placed[:-1])
    starts = np.nonzero(letters & ~np.concatenate(([False], joined)))[0]
    ends = np.nonzero(letters & ~np.concatenate((joined, [False])))[0] + 1
    if not len(starts):
        return hidden
    # Even entries are the words; one at the end of the text lacks its last character. Odd entries are what follows, or
    # one ignored character if the next word follows.
    cuts = np.column_stack((starts, np.minimum(ends, len(codes) - 1))).reshape(-1)
    low = np.minimum.reduceat(boxes[:, :2], cuts)[::2]
    high = np.maximum.reduceat(boxes[:, 2:], cuts)[::2]
    tiny = min(_TINY, _TINY_SHARE * max(picture.shape[1] / scale[0], picture.shape[0] / scale[1]))
    small = (sizes[starts] < tiny) & (np.minimum(*(high - low).T) < 2 * tiny)
    judged = small | (sizes[starts] * min(scale) >= _LEAST_PIXELS)
    words = np.column_stack((low, high)).tolist()
    for at, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
        if not judged[at]:
            continue
        if small[at]:
            hidden[start:end] = True
            continue
        signs = [chr(code).isalnum() for code in codes[start:end].tolist()]
        if not any(signs):
            continue
        parts = [(start, end, words[at])]
        if not (signs[0] and signs[-1]):  # a bar may end before a comma
            first, last = start + signs.index(True), end - signs[::-1].index(True)
            parts.append(
                (first, last, [*boxes[first:last, :2].min(0).tolist(), *boxes[first:last, 2:].max(0).tolist()])
            )
        for first, last, box in parts:
            if not _is_plain(picture, scale, _band(box, int(angles[start]), sum(signs))):
                continue
            ink = inked(first, last)
            if ink is None or not _is_plain(picture, scale, ink if sum(signs) == 1 else _inner(ink)):
                continue
            if sum(signs) > 1 or _is_plain(picture, scale, box):  # one letter may fill its own box
                hidden[first:last] = True
                break
    return hidden


def _band(box: list[float], angle: int, signs: int) -> tuple[float, float, float, float]:
    """Return the part of a word's box in which letters alternate with gaps; one sign may be anywhere in the box."""
    x0, y0, x1, y1 = box
    if signs > 1 and angle == 0:
        left, _, right, _ = _inner((x0, y0, x1, y1))
        return left, y0 + _BAND[0] * (y1 - y0), right, y0 + _BAND[1] * (y1 - y0)
    if signs > 1 and angle % 90 == 0:
        return _inner((x0, y0, x1, y1))
    return x0, y0, x1, y1


def _inner(box: tuple[float, float, float, float]) -> tuple[float, float, float, float]:
    x0, y0, x1, y1 = box
    across, down = _EDGE * min(x1 - x0, y1 - y0), _EDGE * (y1 - y0)
    return x0 + across, y0 + down, x1 - across, y1 - down


def _is_plain(picture: Pixels, scale: tuple[float, float], box: tuple[float, float, float, float]) -> bool:
    """Return whether the pixels in the box have one color; a box outside of the page has none."""
    left, right = int(box[0] * scale[0]), int(box[2] * scale[0]) + 1
    top, bottom = int(box[1] * scale[1]), int(box[3] * scale[1]) + 1
    part = picture[max(top, 0) : max(bottom, 0), max(left, 0) : max(right, 0)]
    if part.size == 0:
        return True
    gray = part if part.ndim == 2 else part[..., 3]
    if int(gray.max()) - int(gray.min()) > _UNSEEN:
        return False
    return part.ndim == 2 or int(np.ptp(part[..., :3], axis=(0, 1)).max()) <= _UNSEEN_COLOR


def levels_of(picture: "Image.Image") -> Pixels:
    """Return the pixels of a picture for `unseen`."""
    gray = picture.convert("L")
    if picture.mode == "L":
        return np.asarray(gray)
    levels = picture.convert("RGB")
    levels.putalpha(gray)
    return np.asarray(levels)
