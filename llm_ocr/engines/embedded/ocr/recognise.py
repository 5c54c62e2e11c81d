"""Read the crop of one line: characters, words, spacing, and weight."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import inf
from statistics import median
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from llm_ocr.engines.embedded.ocr.detect import Pixels, Quad
from llm_ocr.engines.embedded.ocr.models import alphabet_of, give_back_arena, open_session, require_models
from llm_ocr.types import Box, Line, Word

# What a crop of one line says: characters, where they stand, and how sure that is.


#: The height that the network reads (its input shape is 3 x 48 x any width).
_HEIGHT = 48
#: One step of the network's output stands for this many input columns.
_STEP = 8
#: Crops wider than this are read in parts: memory grows with the width, and no line is longer than about 60 times its
#: height.
_WIDEST = 4096


@dataclass(frozen=True, slots=True)
class Reading:
    """One line as it was read. `centres` are the characters' middles in pixels of the crop, `sure` 0..1 each."""

    text: str
    centres: tuple[float, ...]
    sure: tuple[float, ...]

    @property
    def confidence(self) -> float:
        """The mean over the characters, 0 for nothing read."""
        return sum(self.sure) / len(self.sure) if self.sure else 0.0


NOTHING = Reading("", (), ())


class Reader:
    """Reads RGB crops that hold one line of upright text each."""

    def __init__(self) -> None:
        self._session = open_session(require_models().recogniser)
        self._alphabet = alphabet_of(self._session)

    def read(self, crop: Pixels) -> Reading:
        """The text of one crop. One at a time: a batch is padded to its widest, and costs more per line (measured)."""
        height, width = crop.shape[:2]
        if not height or not width:
            return NOTHING
        scale = _HEIGHT / height
        columns = max(_STEP, math.ceil(width * scale))
        if columns > _WIDEST:
            return self._read_parts(crop, parts=-(-columns // _WIDEST))
        values = np.zeros((1, 3, _HEIGHT, -(-columns // _STEP) * _STEP), np.float32)
        how = cv2.INTER_AREA if scale < 1 else cv2.INTER_LINEAR
        pixels = cv2.resize(crop, (columns, _HEIGHT), interpolation=how)[:, :, ::-1]  # the network takes BGR
        np.subtract(
            pixels.transpose(2, 0, 1) * np.float32(1 / 127.5), 1, out=values[0, :, :, :columns], casting="same_kind"
        )
        scores: Any = self._session.run(None, {self._session.get_inputs()[0].name: values})[0]
        return self._decode(scores[0], width / columns)

    def rest(self) -> None:
        """Hold no more memory than before the first crop."""
        give_back_arena(self._session, (1, 3, _HEIGHT, _STEP))

    def _read_parts(self, crop: Pixels, parts: int) -> Reading:
        edges = [round(crop.shape[1] * index / parts) for index in range(parts + 1)]
        texts = ""
        centres: list[float] = []
        sure: list[float] = []
        for left, right in pairwise(edges):
            part = self.read(crop[:, left:right])
            texts += part.text
            centres += [left + centre for centre in part.centres]
            sure += part.sure
        return Reading(texts, tuple(centres), tuple(sure))

    def _decode(self, scores: NDArray[np.float32], stretch: float) -> Reading:
        """Best character of each step; repeats without a blank between them are one character."""
        best = scores.argmax(axis=1)
        starts = np.flatnonzero(np.concatenate(([True], best[1:] != best[:-1])))
        ends = np.concatenate((starts[1:], [len(best)]))
        kept = best[starts] != 0
        starts, ends = starts[kept], ends[kept]
        text = [self._alphabet[index] for index in best[starts]]
        middles = (starts + ends) / 2 * _STEP * stretch
        sure = [float(scores[start:end, best[start]].max()) for start, end in zip(starts, ends, strict=True)]
        return Reading("".join(text), tuple(middles.tolist()), tuple(sure))


def cut_out(image: Pixels, quad: Quad) -> Pixels:
    """The quad's part of the image, levelled. A crop of a quad that is not slanted is a view, not a copy."""
    height, width = image.shape[:2]
    if abs(math.radians(quad.angle)) * quad.width < 2:
        x0, x1 = max(0, round(quad.x - quad.width / 2)), min(width, round(quad.x + quad.width / 2))
        y0, y1 = max(0, round(quad.y - quad.height / 2)), min(height, round(quad.y + quad.height / 2))
        return image[y0:y1, x0:x1]
    size = (max(1, round(quad.width)), max(1, round(quad.height)))
    turn = cv2.getRotationMatrix2D((quad.x, quad.y), quad.angle, 1)
    turn[:, 2] += (size[0] / 2 - quad.x, size[1] / 2 - quad.y)
    levelled: Pixels = cv2.warpAffine(image, turn, size, flags=cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
    return levelled


# What the pixels of a line's crop say beside its text: gaps between characters, size and weight of the letters.


#: Lightest and darkest pixel of a crop with letters differ by at least this (of 255).
_CONTRAST = 24
#: A pixel counts as ink from this share of the contrast on; low, so that grey edges of small letters close no gap.
_INK = 0.4
#: A row filled to this share is a rule or an underline, not letters; so is a column that is filled from edge to edge
#: (no letter is as high as its crop) and at most this many pixels wide: a table's or a gutter's rule.
_RULE, _WALL, _WALL_WIDTH = 0.85, 0.95, 4
#: Heights above and depths below the baseline, in em, of a plain book face: capitals and ascenders, small letters,
#: descenders, and the full square of an ideograph.
_ASCENDER, _X_HEIGHT, _DESCENDER, _SQUARE = 0.72, 0.5, 0.21, 0.92
_DESCENDING = frozenset("gjpqyQ,;()[]{}|/ç")
_SMALL = frozenset("acegmnopqrsuvwxyzæœø")
_BARS = frozenset("|｜丨")
_FLAT = frozenset(".,;:-–—_~=+<>·•'\"’‘“”´`*^°…")


@dataclass(frozen=True, slots=True)
class Ink:
    """Measures of one crop, in its pixels.

    `reading` is the text without vertical rules that were read as bars. `gaps[i]` is the empty range of columns between
    its characters i and i + 1, spaces not counted, `(x, x)` where they touch; `walls[i]` whether a rule stands between
    them. `size` is the font's height, `top` and `bottom` the rows of the letters, `stroke` their strokes' thickness.
    """

    reading: Reading
    left: float
    right: float
    top: float
    bottom: float
    gaps: tuple[tuple[float, float], ...]
    walls: tuple[bool, ...]
    size: float
    stroke: float


def measure(crop: Pixels, reading: Reading) -> Ink | None:
    """None for a crop in which nothing stands out from the ground."""
    dark = _darkness(crop)
    if dark is None:
        return None
    walls = _without_walls(dark)
    top, bottom = _ink_rows(dark)
    dark = dark[top:bottom]
    filled = (dark > _INK).any(axis=0)
    columns = np.flatnonzero(filled)
    if not len(columns):
        return None
    reading = _without_bars(reading, walls, 0.4 * len(crop))
    characters = [(c, x) for c, x in zip(reading.text, reading.centres, strict=True) if not c.isspace()]
    edges = np.flatnonzero(np.diff(np.concatenate(([1], filled.astype(np.int8), [1]))))
    empty = edges.reshape(-1, 2)
    between = [(left, right) for (_, left), (_, right) in pairwise(characters)]
    gaps = tuple(_widest(empty, left, right) for left, right in between)
    parted = tuple(any(left < wall < right for wall in walls) for left, right in between)
    size = (bottom - top) / _share_of_em("".join(c for c, _ in characters))
    left, right = float(columns[0]), float(columns[-1] + 1)
    return Ink(reading, left, right, float(top), float(bottom), gaps, parted, size, _stroke(dark))


def _darkness(crop: Pixels) -> NDArray[np.float32] | None:
    """How much of each pixel is ink, 0..1, whichever of letters and ground is the lighter."""
    grey = cv2.cvtColor(crop, cv2.COLOR_RGB2GRAY)
    low, ground, high = (float(value) for value in np.percentile(grey, (1, 50, 99)))
    if high - low < _CONTRAST:
        return None
    share = (grey.astype(np.float32) - low) / (high - low)
    dark: NDArray[np.float32] = 1 - share if high - ground <= ground - low else share
    dark = dark.clip(0, 1)
    rules = (dark > _INK).mean(axis=1) > _RULE
    if crop.shape[1] > 3 * crop.shape[0]:
        dark[rules] = 0
    return dark


def _without_walls(dark: NDArray[np.float32]) -> list[float]:
    """Erases vertical rules from `dark`, and says where they stood."""
    full = ((dark > _INK).mean(axis=0) > _WALL).astype(np.int8)
    walls = []
    for start, end in np.flatnonzero(np.diff(np.concatenate(([0], full, [0])))).reshape(-1, 2):
        if end - start <= _WALL_WIDTH:
            dark[:, max(0, start - 1) : end + 1] = 0  # with its grey edges
            walls.append((start + end) / 2)
    return walls


def _without_bars(reading: Reading, walls: list[float], near: float) -> Reading:
    """The reading without vertical rules that were read as bars."""
    read = zip(reading.text, reading.centres, reading.sure, strict=True)
    kept = [one for one in read if one[0] not in _BARS or all(abs(one[1] - wall) > near for wall in walls)]
    if len(kept) == len(reading.text):
        return reading
    return Reading("".join(c for c, _, _ in kept), tuple(x for _, x, _ in kept), tuple(sure for _, _, sure in kept))


def _ink_rows(dark: NDArray[np.float32]) -> tuple[int, int]:
    """The rows of the line's letters: those with ink around the middle, without parts of the neighbouring lines."""
    height = len(dark)
    profile = (dark > 0.5).sum(axis=1)
    busy = profile > max(0, 0.02 * int(profile.max()))
    if not busy.any():
        return 0, height
    middle = int(np.average(np.arange(height), weights=profile.astype(np.float64)))
    reach = max(1, height // 8)  # the dot of an i stands apart from its stem
    top = bottom = middle
    while top > 0 and busy[max(0, top - reach) : top].any():
        top -= 1
    while bottom < height and busy[bottom : bottom + reach].any():
        bottom += 1
    rows = np.flatnonzero(busy[top:bottom])
    return (top + int(rows[0]), top + int(rows[-1]) + 1) if len(rows) else (0, height)


def _widest(empty: NDArray[np.intp], left: float, right: float) -> tuple[float, float]:
    """The widest empty range that touches left..right, cut to it."""
    first = int(np.searchsorted(empty[:, 1], left))
    best = ((left + right) / 2, (left + right) / 2)
    for start, end in empty[first:]:
        if start >= right:
            break
        x0, x1 = max(float(start), left), min(float(end), right)
        if x1 - x0 > best[1] - best[0]:
            best = (x0, x1)
    return best


def _share_of_em(text: str) -> float:
    """The height of a line's ink in em, from which letters it holds."""
    letters = [c for c in text if c not in _FLAT]
    if not letters:
        return _X_HEIGHT
    if sum(ord(c) >= 0x2E80 for c in letters) * 3 > len(letters):
        return _SQUARE
    tall = any(c not in _SMALL for c in letters)
    deep = any(c in _DESCENDING for c in letters)
    return (_ASCENDER if tall else _X_HEIGHT) + (_DESCENDER if deep else 0.0)


def _stroke(dark: NDArray[np.float32]) -> float:
    """Twice the area over the length of the outline; grey edges count in both: small letters compare with large."""
    across = np.abs(np.diff(dark, axis=1))[1:, :]
    down = np.abs(np.diff(dark, axis=0))[:, 1:]
    outline = float(np.hypot(across, down).sum()) if min(dark.shape) > 1 else 0.0
    return 2 * float(dark.sum()) / outline if outline else 0.0


# Lines and words from what was read and measured of one crop.


#: Gaps in em. Wider than the first: two columns or cells in one rectangle. Measured on 47,000 gaps between letters of
#: a word (99 % under 0.25, none over 0.61) and 8,500 between words (99 % over 0.19): wider than the second is a space
#: that was not read, also at the third where the line's own spaces are no wider.
_COLUMN, _SPACE, _NARROW_SPACE = 1.5, 0.62, 0.33
#: A crop is this many em high (measured: 1.12 to 1.57, the more the smaller the letters).
_BOX_HEIGHT = 1.29
#: How far the size by the ink may be from that by the crop before it is cut: the ink of a neighbouring line, or a
#: line of signs only.
_TRUST = 1.3
#: Height of a line's box in em: ascent and descent, as text layers give it.
_LINE_HEIGHT = 1.15
#: Signs that belong to the word before, or after: no space is missing there, nor between digits, ones stand far apart.
_CLOSING = frozenset(".,;:!?)]}%'’”\"")
_OPENING = frozenset("([{'‘“\"#$€£")
#: A reading below the first confidence is a guess. One or two characters, or signs without a letter or digit, need the
#: second: specks and marks in pictures are read as such (0.18 to 0.7 on pages with photos, maps and charts; the labels
#: of axes 0.98 up).
_GUESS, _STRAY = 0.5, 0.75


@dataclass(frozen=True, slots=True)
class Piece:
    """A line before sizes are compared over the page."""

    line: Line
    stroke: float  # thickness of the letters' strokes over their size; 0: not known


@dataclass(frozen=True, slots=True)
class _Glyph:
    text: str
    x0: float
    x1: float
    sure: float
    space: bool  # one precedes it
    gap: float  # pixels between it and the one before; endless where a rule stands between


def is_text(reading: Reading) -> bool:
    """Whether a reading is more than a guess at something that is no text."""
    text = reading.text.strip()
    if not text or reading.confidence < _GUESS:
        return False
    letters = sum(c.isalnum() for c in text)
    return reading.confidence >= _STRAY or (letters > 0 and len(text) > 2)


def pieces(reading: Reading, ink: Ink | None, quad: Quad, crop_width: float) -> list[Piece]:
    """Lines of one rectangle of lying text: several where wide gaps part it."""
    reading = ink.reading if ink else reading
    size = _size(ink, quad)
    left, top = max(0.0, quad.x - quad.width / 2), max(0.0, quad.y - quad.height / 2)
    glyphs = _glyphs(reading, ink, crop_width, size)
    y0, y1 = _line_rows(ink, quad, size, top)
    stroke = ink.stroke / size if ink else 0.0
    return [Piece(_line(run, size, left, y0, y1), stroke) for run in _runs(glyphs, size)]


def standing_line(reading: Reading, quad: Quad) -> Line:
    """A line of text that runs up or down the page; its one word has its box."""
    half_width, half_height = quad.width / 2, quad.height / 2
    box = Box(quad.x - half_width, quad.y - half_height, quad.x + half_width, quad.y + half_height)
    text = " ".join(reading.text.split())
    return Line(text, box, quad.width / _BOX_HEIGHT, (Word(text, box),), confidence=reading.confidence)


def _size(ink: Ink | None, quad: Quad) -> float:
    by_box = quad.height / _BOX_HEIGHT
    if ink is None or ink.size <= 0:
        return by_box
    by_ink: float = min(max(ink.size, by_box / _TRUST), by_box * _TRUST)
    return float((by_ink * by_box) ** 0.5)


def _line_rows(ink: Ink | None, quad: Quad, size: float, top: float) -> tuple[float, float]:
    """The line's top and bottom: its rectangle without what the detector added, but with all its ink."""
    y0, y1 = quad.y - _LINE_HEIGHT * size / 2, quad.y + _LINE_HEIGHT * size / 2
    if ink is not None:
        y0, y1 = min(y0, top + ink.top), max(y1, top + ink.bottom)
    return max(y0, top), min(y1, top + quad.height)


def _glyphs(reading: Reading, ink: Ink | None, width: float, size: float) -> list[_Glyph]:
    placed: list[tuple[str, float, float, bool]] = []
    space = False
    for character, centre, sure in zip(reading.text, reading.centres, reading.sure, strict=True):
        if character.isspace():
            space = True
            continue
        placed.append((character, centre, sure, space))
        space = False
    gaps = ink.gaps if ink else tuple(_halfway(a[1], b[1]) for a, b in pairwise(placed))
    starts = [ink.left if ink else 0.0, *(gap[1] for gap in gaps)]
    ends = [*(gap[0] for gap in gaps), ink.right if ink else width]
    walls = ink.walls if ink else (False,) * len(gaps)
    between = [0.0, *(inf if wall else gap[1] - gap[0] for gap, wall in zip(gaps, walls, strict=True))]
    usual = [gap for gap, (_, _, _, space) in zip(between, placed, strict=True) if space]
    enough = _missing_space(usual, size)
    glyphs = []
    for index, (character, _, sure, space) in enumerate(placed):
        missing = index > 0 and between[index] > enough and _may_part(placed[index - 1][0], character)
        glyphs.append(_Glyph(character, starts[index], ends[index], sure, space or missing, between[index]))
    return glyphs


def _halfway(left: float, right: float) -> tuple[float, float]:
    return (left + right) / 2, (left + right) / 2


def _missing_space(usual: Sequence[float], size: float) -> float:
    """The gap from which a space was overlooked: as wide as the line's others, where it has some."""
    if len(usual) < 2:
        return _SPACE * size
    return min(_SPACE * size, max(_NARROW_SPACE * size, 0.9 * median(usual)))


def _may_part(left: str, right: str) -> bool:
    if ord(left) >= 0x2E80 or ord(right) >= 0x2E80 or (left.isdigit() and right.isdigit()):
        return False
    return right not in _CLOSING and left not in _OPENING


def _runs(glyphs: Sequence[_Glyph], size: float) -> list[list[_Glyph]]:
    runs: list[list[_Glyph]] = []
    for glyph in glyphs:
        if not runs or glyph.gap > _COLUMN * size:
            runs.append([])
        runs[-1].append(glyph)
    return runs


def _line(run: Sequence[_Glyph], size: float, left: float, y0: float, y1: float) -> Line:
    words: list[list[_Glyph]] = []
    for glyph in run:
        if not words or glyph.space:
            words.append([])
        words[-1].append(glyph)
    boxed = tuple(
        Word("".join(g.text for g in word), Box(left + word[0].x0, y0, left + word[-1].x1, y1)) for word in words
    )
    box = Box(boxed[0].box.x0, y0, boxed[-1].box.x1, y1)
    confidence = sum(glyph.sure for glyph in run) / len(run)
    return Line(" ".join(word.text for word in boxed), box, size, boxed, confidence=confidence)


#: Sizes this near to the page's usual one are it: measuring is no surer (standard deviation 0.06 on 19 pages).
_SAME_SIZE = 0.1
#: Strokes thicker than the page's usual ones by this factor are bold (measured: 1.35 to 1.7, regular text mostly under
#: 1.2), on letters large enough to tell, in pixels.
_BOLD, _TELLING = 1.3, 14.0


def compared(found: Sequence[Piece]) -> list[Line]:
    """Lines with sizes levelled to the page's usual one, and bold ones marked."""
    usual_size = _usual([(piece.line.size, len(piece.line.text)) for piece in found])
    usual_stroke = _usual([(piece.stroke, len(piece.line.text)) for piece in found if piece.stroke > 0])
    lines = []
    for piece in found:
        line = piece.line
        size = usual_size if abs(line.size - usual_size) <= _SAME_SIZE * usual_size else line.size
        letters = sum(c.isalpha() for c in line.text)
        bold = letters >= 3 and line.size >= _TELLING and piece.stroke > _BOLD * usual_stroke > 0
        lines.append(replace(line, size=size, bold=bold))
    return lines


def _usual(values: Sequence[tuple[float, int]]) -> float:
    """The median, each value counted as often as the line has characters."""
    half = sum(weight for _, weight in values) / 2
    for value, weight in sorted(values):
        half -= weight
        if half <= 0:
            return value
    return 0.0
