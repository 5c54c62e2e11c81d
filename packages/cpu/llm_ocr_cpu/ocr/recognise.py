"""Read the crop of one line: characters, words, spacing, and weight."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import inf
from statistics import median

import cv2
import numpy as np
from numpy.typing import NDArray

from llm_ocr.results.joining import is_cjk
from llm_ocr.types import Box, Line, Word
from llm_ocr_cpu.ocr.detect import Pixels, Quad
from llm_ocr_cpu.ocr.languages import SCRIPTS, UNKNOWN, logical, scripts_of
from llm_ocr_cpu.ocr.models import (
    RecogniserModel,
    alphabet_of,
    open_network,
    require_models,
)

# Result of a crop of one line: characters, their positions, and confidence.


#: Input height of the network (its input shape is 3 x 48 x any width).
_HEIGHT = 48
#: Input columns per step of the network's output.
_STEP = 8
#: Multiple to which widths are padded for a network that compiles code for each shape.
_COARSE = 64
#: Width above which crops are read in parts, because memory grows with the width. Lines are at most about 60 times as
#: long as high.
_WIDEST = 4096
#: Minimum confidence of each character in a line that only the tiny recognizer reads. Measured on 1,126 lines of 12
#: pages: it reads 11 % of the characters of damaged scans differently; of lines that reach 0.7, 0.17 %, and of clean
#: pages 0.08 %. The other recognizer, which takes five times as long, reads 34 % and 6 % of the lines again.
_CLEAR = 0.7


@dataclass(frozen=True, slots=True)
class Reading:
    """Reading of one line, from left to right.

    `centres` are the characters' centers in pixels of the crop, `sure` is 0..1 each.
    """

    text: str
    centres: tuple[float, ...]
    sure: tuple[float, ...]

    @property
    def confidence(self) -> float:
        """Mean over the characters; 0 for no characters."""
        return sum(self.sure) / len(self.sure) if self.sure else 0.0

    @property
    def logical(self) -> str:
        """Words in the order of reading."""
        return " ".join(word for _, word in logical(self.text.split()))


NOTHING = Reading("", (), ())


class Reader:
    """Reader of RGB crops with one line of upright text each.

    If the tiny recognizer is installed, it reads each line first, and the other one reads the lines that are not clear.
    `language` replaces both. `scripts` are the supported scripts as first words of their characters' Unicode names.
    """

    def __init__(self, language: RecogniserModel | None = None) -> None:
        models = require_models()
        self._full = _LineReader(language or models.recogniser)
        self._tiny = _LineReader(models.tiny) if models.tiny and not language else None
        self.scripts = scripts_of(self._full.alphabet) if language else SCRIPTS

    def read(self, crop: Pixels) -> Reading:
        """Return the text of one crop."""
        if self._tiny:
            reading = self._tiny.read(crop)
            if reading.sure and min(reading.sure) >= _CLEAR:
                return reading
        return self._full.read(crop)

    def rest(self) -> None:
        """Release memory to the level before the first crop."""
        for reader in filter(None, (self._tiny, self._full)):
            reader.rest()


class _LineReader:
    """One recognizer."""

    def __init__(self, files: RecogniserModel) -> None:
        self._network = open_network(files.model)
        self.alphabet = alphabet_of(self._network, files.characters)

    def read(self, crop: Pixels) -> Reading:
        """Return the text of one crop.

        Single crops are faster than batches, which are padded to the widest (measured).
        """
        height, width = crop.shape[:2]
        if not height or not width:
            return NOTHING
        scale = _HEIGHT / height
        columns = max(_STEP, math.ceil(width * scale))
        if columns > _WIDEST:
            return self._read_parts(crop, parts=-(-columns // _WIDEST))
        step = _COARSE if self._network.compiles_shapes else _STEP
        values = np.zeros((1, 3, _HEIGHT, -(-columns // step) * step), np.float32)
        how = cv2.INTER_AREA if scale < 1 else cv2.INTER_LINEAR
        pixels = cv2.resize(crop, (columns, _HEIGHT), interpolation=how)[:, :, ::-1]  # the network's input is BGR
        np.subtract(
            pixels.transpose(2, 0, 1) * np.float32(1 / 127.5), 1, out=values[0, :, :, :columns], casting="same_kind"
        )
        return self._decode(self._network.run(values)[0][0], width / columns)

    def rest(self) -> None:
        """Release memory to the level before the first crop."""
        self._network.rest()

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
        """Return the best character of each step; repeats without a blank between them are one character."""
        best = scores.argmax(axis=1)
        starts = np.flatnonzero(np.concatenate(([True], best[1:] != best[:-1])))
        ends = np.concatenate((starts[1:], [len(best)]))
        kept = best[starts] != 0
        starts, ends = starts[kept], ends[kept]
        text = [self.alphabet[index] for index in best[starts]]
        middles = (starts + ends) / 2 * _STEP * stretch
        sure = [float(scores[start:end, best[start]].max()) for start, end in zip(starts, ends, strict=True)]
        return Reading("".join(text), tuple(middles.tolist()), tuple(sure))


def cut_out(image: Pixels, quad: Quad) -> Pixels:
    """Return the quad's part of the image, leveled. Without a slant, the crop is a view, not a copy."""
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


# Measurements of a line's pixels: gaps between characters, and size and weight of the letters.


#: Minimum range of pixel values (of 255) in a crop with letters.
_CONTRAST = 24
#: Rows of a tall rectangle in its widths: the least gap between two, and the maximum height. The letters of a standing
#: line have smaller gaps, or none. Ratio of a row's height to its ink's.
_ROW_GAP, _ROW_HEIGHT, _ROW_ROOM = 0.2, 2.0, 1.5
#: Share of the contrast from which a pixel is ink; low, so that gray edges of small letters close no gap.
_INK = 0.4
#: Ratio of the darkest to the brightest paper of a line above which the light is even.
_EVEN_LIGHT = 0.85
#: Filled share of a row from which it is a rule or underline, not letters. Filled share and maximum width in pixels of
#: a vertical rule of a table or gutter; no letter is as high as its crop.
_RULE, _WALL, _WALL_WIDTH = 0.85, 0.95, 4
#: Heights above and depths below the baseline, in em, of a plain book face: capitals and ascenders, small letters,
#: descenders, and the full square of an ideograph.
_ASCENDER, _X_HEIGHT, _DESCENDER, _SQUARE = 0.72, 0.5, 0.21, 0.92
_DESCENDING = frozenset("gjpqyQ,;()[]{}|/ç")
_SMALL = frozenset("acegmnopqrsuvwxyzæœø")
_BARS = frozenset("|｜丨")
#: Least width of a glyph, gap between words in heights of the line's ink, tolerance of the characters' centers in
#: heights of the crop, and fewest glyphs of a word without a character.
_GLYPH, _APART, _NEAR, _WORD = 0.25, 0.2, 0.1, 4
#: Least height of a glyph that the recognizer leaves out, and width in widths of the letters that it reads: all of 122
#: glyphs in Vietnamese are as wide, and 3 of 105 parts of small English letters with a break, such as an m.
_TALL, _LEFT_OUT = 0.45, 0.85
#: Characters of scripts whose letters may have several parts: Indic and others, and ideographs and all after them.
_PARTED, _IDEOGRAPHS = (0x900, 0x1E00), 0x2E80
_FLAT = frozenset(".,;:-–—_~=+<>·•'\"’‘“”´`*^°…")


@dataclass(frozen=True, slots=True)
class LineExtent:
    """Measurements of one crop in its pixels.

    `reading` is the text without vertical rules that were read as bars. `gaps[i]` is the empty range of columns between
    its characters i and i + 1, ignoring spaces, and `(x, x)` if they touch. `walls[i]` is whether a rule is between
    them. `size` is the font's height, `top` and `bottom` are the rows of the letters, `stroke` is the thickness of
    their strokes.
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


def measure(crop: Pixels, reading: Reading, *, marks: bool = True) -> LineExtent | None:
    """Return the measurements; None for a crop without contrast. `marks`: mark letters that the reading leaves out."""
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
    if marks:
        reading = _with_unread(reading, dark, crop.shape[0])
    characters = [(c, x) for c, x in zip(reading.text, reading.centres, strict=True) if not c.isspace()]
    edges = np.flatnonzero(np.diff(np.concatenate(([1], filled.astype(np.int8), [1]))))
    empty = edges.reshape(-1, 2)
    between = [(left, right) for (_, left), (_, right) in pairwise(characters)]
    gaps = tuple(_widest(empty, left, right) for left, right in between)
    parted = tuple(any(left < wall < right for wall in walls) for left, right in between)
    size = (bottom - top) / _share_of_em("".join(c for c, _ in characters))
    # Ink beyond a gap as wide as between columns is of another column.
    wide = empty[empty[:, 1] - empty[:, 0] > _COLUMN * size]
    first, last = (characters[0][1], characters[-1][1]) if characters else (0.0, float(crop.shape[1]))
    left = float(max(columns[0], wide[wide[:, 1] <= first, 1].max(initial=0)))
    right = float(min(columns[-1] + 1, wide[wide[:, 0] >= last, 0].min(initial=crop.shape[1])))
    return LineExtent(reading, left, right, float(top), float(bottom), gaps, parted, size, _stroke(dark))


def _darkness(crop: Pixels) -> NDArray[np.float32] | None:
    """Return the ink share of each pixel, 0..1, for dark letters on light ground and the reverse."""
    grey = _evenly_lit(cv2.cvtColor(crop, cv2.COLOR_RGB2GRAY))
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


def _evenly_lit(grey: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return a line of dark letters as if all of its paper were as bright; unchanged in even light."""
    height, width = grey.shape
    if width < 2 * height:
        return grey
    smooth = cv2.blur(grey, (3, 3))
    paper = cv2.blur(smooth.max(axis=0)[None, :].astype(np.float32), (2 * height + 1, 1))
    if paper.min() > _EVEN_LIGHT * paper.max():
        return grey
    darker, brighter = np.percentile(smooth - cv2.blur(smooth.astype(np.float32), (height, height)), (2, 98))
    if brighter > -darker:  # bright letters
        return grey
    lit: NDArray[np.uint8] = (grey * (paper.max() / paper.clip(1))).clip(0, 255).astype(np.uint8)
    return lit


def _without_walls(dark: NDArray[np.float32]) -> list[float]:
    """Erase vertical rules from `dark` and return their positions."""
    full = ((dark > _INK).mean(axis=0) > _WALL).astype(np.int8)
    walls = []
    for start, end in np.flatnonzero(np.diff(np.concatenate(([0], full, [0])))).reshape(-1, 2):
        if end - start <= _WALL_WIDTH:
            dark[:, max(0, start - 1) : end + 1] = 0  # including the gray edges
            walls.append((start + end) / 2)
    return walls


def _without_bars(reading: Reading, walls: list[float], near: float) -> Reading:
    """Return the reading without vertical rules that were read as bars."""
    read = zip(reading.text, reading.centres, reading.sure, strict=True)
    kept = [one for one in read if one[0] not in _BARS or all(abs(one[1] - wall) > near for wall in walls)]
    if len(kept) == len(reading.text):
        return reading
    return Reading("".join(c for c, _, _ in kept), tuple(x for _, x, _ in kept), tuple(sure for _, _, sure in kept))


def _ink_rows(dark: NDArray[np.float32]) -> tuple[int, int]:
    """Return the rows of the line's letters: rows with ink around the middle, without parts of neighboring lines."""
    height = len(dark)
    profile = (dark > 0.5).sum(axis=1)
    busy = profile > max(0, 0.02 * int(profile.max()))
    if not busy.any():
        return 0, height
    middle = int(np.average(np.arange(height), weights=profile.astype(np.float64)))
    reach = max(1, height // 8)  # the dot of an i is separate from its stem
    top = bottom = middle
    while top > 0 and busy[max(0, top - reach) : top].any():
        top -= 1
    while bottom < height and busy[bottom : bottom + reach].any():
        bottom += 1
    rows = np.flatnonzero(busy[top:bottom])
    return (top + int(rows[0]), top + int(rows[-1]) + 1) if len(rows) else (0, height)


def _with_unread(reading: Reading, dark: NDArray[np.float32], height: int) -> Reading:
    """Return the reading with `UNKNOWN` for glyphs that the recognizer leaves out.

    It has no character for some letters, such as those of Vietnamese, and then sees nothing there. A word has such a
    glyph if its ink has more parts than its reading has characters; letters that touch are one part. Characters of some
    scripts have several parts.
    """
    if any(_PARTED[0] <= ord(c) < _PARTED[1] or ord(c) >= _IDEOGRAPHS for c in reading.text):
        return reading
    ink = dark > _INK
    high, near = len(ink), _NEAR * height
    edges = np.flatnonzero(np.diff(np.concatenate(([0], ink.any(axis=0).astype(np.int8), [0])))).reshape(-1, 2)
    apart = np.flatnonzero(edges[1:, 0] - edges[:-1, 1] >= _APART * high) + 1
    read = list(zip(reading.text, reading.centres, reading.sure, strict=True))
    centres = np.sort([x for c, x, _ in read if not c.isspace()])
    count = np.searchsorted(centres, edges[:, 1] + near, "right") - np.searchsorted(centres, edges[:, 0] - near)
    widths = np.diff(edges, axis=1)[count == 1]
    widths = widths[widths >= _GLYPH * high]
    least = _LEFT_OUT * float(np.median(widths)) if len(widths) else 0.0
    for word in np.split(edges, apart):
        known = sum(word[0, 0] - near <= x <= word[-1, 1] + near for c, x, _ in read if not c.isspace())
        glyphs = [(start, end) for start, end in word.tolist() if end - start >= _GLYPH * high]
        lacking = len(glyphs) - known
        if lacking <= 0 or not (known or len(glyphs) >= _WORD):
            continue
        for start, end in glyphs:
            rows = np.flatnonzero(ink[:, start:end].any(axis=1))
            free = not any(start - near <= x <= end + near for x in reading.centres)
            if lacking and free and end - start >= least and rows[-1] - rows[0] >= _TALL * high:
                read.append((UNKNOWN, (start + end) / 2, 0.0))
                lacking -= 1
    if len(read) == len(reading.text):
        return reading
    read.sort(key=lambda one: one[1])
    return Reading("".join(c for c, _, _ in read), tuple(x for _, x, _ in read), tuple(sure for _, _, sure in read))


def _widest(empty: NDArray[np.intp], left: float, right: float) -> tuple[float, float]:
    """Return the widest empty range that touches left..right, clipped to it."""
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
    """Return the height of a line's ink in em, by the letters in the line."""
    letters = [c for c in text if c not in _FLAT]
    if not letters:
        return _X_HEIGHT
    if sum(ord(c) >= _IDEOGRAPHS for c in letters) * 3 > len(letters):
        return _SQUARE
    tall = any(c not in _SMALL for c in letters)
    deep = any(c in _DESCENDING for c in letters)
    return (_ASCENDER if tall else _X_HEIGHT) + (_DESCENDER if deep else 0.0)


def _stroke(dark: NDArray[np.float32]) -> float:
    """Return twice the area over the outline's length.

    Gray edges count in both, so that small letters are comparable with large ones.
    """
    across = np.abs(np.diff(dark, axis=1))[1:, :]
    down = np.abs(np.diff(dark, axis=0))[:, 1:]
    outline = float(np.hypot(across, down).sum()) if min(dark.shape) > 1 else 0.0
    return 2 * float(dark.sum()) / outline if outline else 0.0


# Lines and words from the reading and measurements of one crop.


#: Gaps in em. Above the first: two columns or cells in one rectangle. Measured on 47,000 gaps between letters of a word
#: (99 % below 0.25, none above 0.61) and 8,500 between words (99 % above 0.19). Above the second, a gap is a missed
#: space in a line with at most one space. Above the third, it is one if the line's own spaces are hardly wider.
_COLUMN, _SPACE, _NARROW_SPACE = 1.5, 0.62, 0.33
#: Height of a crop in em (measured: 1.12 to 1.57, larger for smaller letters).
_BOX_HEIGHT = 1.29
#: Maximum ratio between the size by ink and the size by crop. A larger ratio is limited: the ink is from a neighboring
#: line, or the line has signs only.
_TRUST = 1.3
#: Height of a line's box in em: ascent and descent, as in text layers.
_LINE_HEIGHT = 1.15
#: Signs that belong to the previous or next word: no space is missing there, nor between digits, as ones have wide
#: gaps.
_CLOSING = frozenset(".,;:!?)]}%'’”\"")
_OPENING = frozenset("([{'‘“\"#$€£")
#: Confidence below which a reading is a guess. Readings of one or two characters, or of signs without letters and
#: digits, need the second value. Specks and marks in pictures produce them (0.18 to 0.7 on pages with photos, maps, and
#: charts; labels of axes 0.98 or more).
_GUESS, _STRAY = 0.5, 0.75


@dataclass(frozen=True, slots=True)
class Piece:
    """Line before the comparison of sizes over the page."""

    line: Line
    stroke: float  # stroke thickness divided by the size; 0: unknown
    steps: tuple[float, ...] = ()  # pixels between the centers of a word's adjacent characters, except of two digits


@dataclass(frozen=True, slots=True)
class _Glyph:
    text: str
    x0: float
    x1: float
    sure: float
    space: bool  # preceded by a space
    gap: float  # pixels to the previous character; infinite across a rule


def stacked(crop: Pixels, quad: Quad) -> list[Quad]:
    """Return the rows of a tall rectangle: short lines above each other, or one character; empty for one long line."""
    dark = _darkness(crop)
    if dark is None:
        return []
    inked = (dark > _INK).any(axis=1).astype(np.int8)
    rows: list[tuple[int, int]] = []
    for top, bottom in np.flatnonzero(np.diff(np.concatenate(([0], inked, [0])))).reshape(-1, 2).tolist():
        if rows and top - rows[-1][1] < _ROW_GAP * quad.width:
            rows[-1] = (rows[-1][0], bottom)
        else:
            rows.append((top, bottom))
    if any(bottom - top > _ROW_HEIGHT * quad.width for top, bottom in rows):
        return []
    first = quad.y - len(crop) / 2
    found = []
    for top, bottom in rows:
        height = _ROW_ROOM * (bottom - top)
        width = max(quad.width, height / 1.5)
        found.append(Quad(quad.x, first + (top + bottom) / 2, width, height, quad.angle, bottom - top))
    return found


def is_text(reading: Reading) -> bool:
    """Return whether a reading is more than a guess at non-text content."""
    text = reading.text.strip()
    if not text or reading.confidence < _GUESS:
        return False
    letters = sum(c.isalnum() for c in text)
    return reading.confidence >= _STRAY or (letters > 0 and len(text) > 2)


def pieces(reading: Reading, ink: LineExtent | None, quad: Quad, crop_width: float) -> list[Piece]:
    """Return the lines of one rectangle of horizontal text: several if wide gaps split it."""
    reading = ink.reading if ink else reading
    size = _size(ink, quad)
    left, top = max(0.0, quad.x - quad.width / 2), max(0.0, quad.y - quad.height / 2)
    glyphs = _glyphs(reading, ink, crop_width, size)
    y0, y1 = _line_rows(ink, quad, size, top)
    stroke = ink.stroke / size if ink else 0.0
    return [Piece(_line(run, size, left, y0, y1), stroke, _steps(run)) for run in _runs(glyphs, size)]


def standing_line(reading: Reading, quad: Quad) -> Line:
    """Return a line of text that runs up or down the page; its only word has its box.

    Ideographs are those of vertical writing, because the page is upright.
    """
    half_width, half_height = quad.width / 2, quad.height / 2
    box = Box(quad.x - half_width, quad.y - half_height, quad.x + half_width, quad.y + half_height)
    text = reading.logical
    stacked = 2 * sum(map(is_cjk, text)) > len(text)
    word = Word(text, box, confidence=min(reading.sure))
    return Line(text, box, quad.width / _BOX_HEIGHT, (word,), stacked=stacked, confidence=reading.confidence)


def _size(ink: LineExtent | None, quad: Quad) -> float:
    by_box = quad.height / _BOX_HEIGHT
    if ink is None or ink.size <= 0:
        return by_box
    by_ink: float = min(max(ink.size, by_box / _TRUST), by_box * _TRUST)
    return float((by_ink * by_box) ** 0.5)


def _line_rows(ink: LineExtent | None, quad: Quad, size: float, top: float) -> tuple[float, float]:
    """Return the line's top and bottom: its rectangle without the detector's margin, but with all its ink."""
    y0, y1 = quad.y - _LINE_HEIGHT * size / 2, quad.y + _LINE_HEIGHT * size / 2
    if ink is not None:
        y0, y1 = min(y0, top + ink.top), max(y1, top + ink.bottom)
    return max(y0, top), min(y1, top + quad.height)


#: Words of one letter, which may have a space on both sides.
_WORDS_OF_ONE = "aAI"


def _glyphs(reading: Reading, ink: LineExtent | None, width: float, size: float) -> list[_Glyph]:
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
    letters = [character for character, _, _, _ in placed]
    missing = [False] * len(placed)
    for index in range(1, len(placed)):
        parts = between[index] > enough and _may_part(letters[index - 1], letters[index])
        missing[index] = parts and not placed[index][3]
    _keep_spaced_words(letters, missing)
    glyphs = []
    for index, (character, _, sure, space) in enumerate(placed):
        glyphs.append(_Glyph(character, starts[index], ends[index], sure, space or missing[index], between[index]))
    return glyphs


def _keep_spaced_words(letters: Sequence[str], missing: list[bool]) -> None:
    """Remove spaces around single letters, which are a word in a wide or pale face: `n a m e`."""
    index = 1
    while index < len(letters):
        end = index
        while end < len(letters) and missing[end]:
            end += 1
        single = letters[index : end - 1]  # between two gaps
        if single and all(map(str.isalpha, single)) and (len(single) > 1 or single[0] not in _WORDS_OF_ONE):
            missing[index:end] = [False] * (end - index)
        index = end + 1


def _halfway(left: float, right: float) -> tuple[float, float]:
    return (left + right) / 2, (left + right) / 2


def _missing_space(usual: Sequence[float], size: float) -> float:
    """Return the gap from which a space was missed: as wide as the line's other spaces, if there are any."""
    if len(usual) < 2:
        return _SPACE * size
    return max(_NARROW_SPACE * size, 0.9 * median(usual))


def _may_part(left: str, right: str) -> bool:
    if ord(left) >= _IDEOGRAPHS or ord(right) >= _IDEOGRAPHS or (left.isdigit() and right.isdigit()):
        return False
    return right not in _CLOSING and left not in _OPENING


def _runs(glyphs: Sequence[_Glyph], size: float) -> list[list[_Glyph]]:
    runs: list[list[_Glyph]] = []
    for glyph in glyphs:
        if not runs or glyph.gap > _COLUMN * size:
            runs.append([])
        runs[-1].append(glyph)
    return runs


def _steps(run: Sequence[_Glyph]) -> tuple[float, ...]:
    return tuple(
        (b.x0 + b.x1 - a.x0 - a.x1) / 2
        for a, b in pairwise(run)
        if not (b.space or (a.text.isdecimal() and b.text.isdecimal()))
    )


def _line(run: Sequence[_Glyph], size: float, left: float, y0: float, y1: float) -> Line:
    words: list[list[_Glyph]] = []
    for glyph in run:
        if not words or glyph.space:
            words.append([])
        words[-1].append(glyph)
    boxes = [Box(left + word[0].x0, y0, left + word[-1].x1, y1) for word in words]
    texts = logical(["".join(g.text for g in word) for word in words])
    least = [min(glyph.sure for glyph in word) for word in words]
    boxed = tuple(Word(text, boxes[index], confidence=least[index]) for index, text in texts)
    box = Box(boxes[0].x0, y0, boxes[-1].x1, y1)
    confidence = sum(glyph.sure for glyph in run) / len(run)
    return Line(" ".join(word.text for word in boxed), box, size, boxed, confidence=confidence)


#: Tolerance for the page's usual size: two standard deviations of the measurements (0.06 on 19 pages).
_SAME_SIZE = 0.12
#: Ratio to the page's usual stroke thickness from which strokes are bold (measured: 1.35 to 1.7, regular text mostly
#: below 1.2), and minimum letter size in pixels for the test.
_BOLD, _TELLING = 1.3, 14.0
#: Largest mean deviation of a monospaced line's steps from their median, and its increase per step that a short line
#: lacks. On 2,200 lines of 45 scans, the deviation of 98 % of the monospaced lines is below 0.075. In other faces, it
#: is above 0.1 in 98 % of the lines from 25 letters on, and above 0.06 in shorter ones.
_EVEN, _LACKING = 0.09, 0.5
#: Fewest steps that tell the face, and range of the steps in em, which excludes Chinese.
_TELLING_STEPS, _MONO_STEP = 8, (0.42, 0.72)
#: Largest difference of the steps of two monospaced lines, and fewest steps of a line with a face of its own.
_SAME_STEP, _FEW_STEPS = 0.08, 3
#: Distance in font sizes to a monospaced line at which such a line has the same face.
_REACH = 1.5


def compared(found: Sequence[Piece]) -> list[Line]:
    """Return lines with sizes adjusted to the page's usual size, and bold and monospaced lines marked."""
    usual_size = _usual([(piece.line.size, len(piece.line.text)) for piece in found])
    usual_stroke = _usual([(piece.stroke, len(piece.line.text)) for piece in found if piece.stroke > 0])
    lines = []
    for piece, mono in zip(found, _monospaced(found), strict=True):
        line = piece.line
        size = usual_size if abs(line.size - usual_size) <= _SAME_SIZE * usual_size else line.size
        letters = sum(c.isalpha() for c in line.text)
        bold = letters >= 3 and line.size >= _TELLING and piece.stroke > _BOLD * usual_stroke > 0
        lines.append(replace(line, size=size, bold=bold, mono=mono))
    return lines


def _monospaced(found: Sequence[Piece]) -> list[bool]:
    """Return for each line whether it is monospaced: with equal steps, or short and near such a line."""
    even: dict[int, float] = {}
    sure: list[float] = []
    for index, piece in enumerate(found):
        count, (step, deviation) = len(piece.steps), _evenness(piece.steps)
        if count < _FEW_STEPS or deviation > _EVEN:
            continue
        even[index] = step
        usual = _MONO_STEP[0] < step / piece.line.size < _MONO_STEP[1]
        if usual and count >= _TELLING_STEPS and deviation + _LACKING / count < _EVEN:
            sure.append(step)
    mono = {index for index, step in even.items() if any(abs(step - other) < _SAME_STEP * other for other in sure)}
    boxes = [found[index].line.box for index in mono]
    return [
        index in mono or (len(piece.steps) < _FEW_STEPS and any(_is_near(piece.line, box) for box in boxes))
        for index, piece in enumerate(found)
    ]


def _is_near(line: Line, box: Box) -> bool:
    reach, own = _REACH * line.size, line.box
    beside = own.x0 - reach < box.x1 and box.x0 < own.x1 + reach
    return beside and own.y0 - reach < box.y1 and box.y0 < own.y1 + reach


def _evenness(steps: Sequence[float]) -> tuple[float, float]:
    """Return the median of the steps, and their mean deviation from it as a share."""
    if not steps:
        return 0.0, inf
    usual = max(median(steps), 0.1)
    return usual, sum(abs(step - usual) for step in steps) / len(steps) / usual


def _usual(values: Sequence[tuple[float, int]]) -> float:
    """Return the median, weighted by the characters of the lines."""
    half = sum(weight for _, weight in values) / 2
    for value, weight in sorted(values):
        half -= weight
        if half <= 0:
            return value
    return 0.0
