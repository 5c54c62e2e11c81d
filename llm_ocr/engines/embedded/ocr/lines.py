"""Lines and words from what was read and measured of one crop."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import inf
from statistics import median

from llm_ocr.engines.embedded.ocr.detect import Quad
from llm_ocr.engines.embedded.ocr.ink import Ink
from llm_ocr.engines.embedded.ocr.recognise import Reading
from llm_ocr.types import Box, Line, Word

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
    y0, y1 = _rows(ink, quad, size, top)
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


def _rows(ink: Ink | None, quad: Quad, size: float, top: float) -> tuple[float, float]:
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
