"""Words with their places: rows on one baseline, and segments of a row between wide gaps."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from llm_ocr.types import Box, Line

_NUMBER = re.compile(
    r"^[\s(\[<>≤≥~≈±+\-−–—*†‡$€£¥#]*(?:\d[\d\s.,:/×x±^()%\-−–+]*\s?[kKMB%°†‡*]{0,2}|[-–—−]+|n/?a|N/?A|[✓✗×✔✘xX])[\s)\]*†‡%]*$"
)
_DOTS = ".․…·_"
_SPECKS = ("_", "·", ".", "․")
_DOTTED = re.compile(r"(?<=[-–—])[.․…·]+(?=\w)")
_LEADERS = re.compile(r"(?:[.․…·_]\s?){4,}")


@dataclass(frozen=True, slots=True)
class Piece:
    """A word, or a whole line where it has no words or is written upwards. `line` is its index on the page."""

    text: str
    box: Box
    line: int
    size: float
    bold: bool = False


@dataclass(frozen=True, slots=True)
class Segment:
    """Neighbouring pieces of a row without a wide gap between them."""

    x0: float
    x1: float
    pieces: tuple[Piece, ...]

    @property
    def text(self) -> str:
        return without_leaders(spoken(self.pieces))


@dataclass(frozen=True, slots=True)
class Row:
    """Segments on one baseline, left to right. `y` is the mean of the vertical centres."""

    y: float
    size: float
    segments: tuple[Segment, ...]

    @property
    def pieces(self) -> Iterable[Piece]:
        return (piece for segment in self.segments for piece in segment.pieces)


def is_number(text: str) -> bool:
    """Whether a cell holds a value rather than words: digits with signs and units, a dash, a tick."""
    return _NUMBER.match(text) is not None


def without_leaders(text: str) -> str:
    """Without the dots that lead the eye to the next column, and without a lone one: a speck that OCR has read."""
    parts = _LEADERS.sub(" ", text).split()
    while len(parts) > 1 and parts[-1] in _SPECKS:
        parts.pop()
    return " ".join(parts)


def is_code(lines: Sequence[Line]) -> bool:
    """Whether the lines are set in a font of one width, as code is: code stands in columns without being a table."""
    if sum(line.mono for line in lines) > 0.4 * len(lines):
        return True
    worded = {line.text.strip("0123456789 "): line for line in lines if sum(map(str.isalpha, line.text)) >= 4}
    wordy = sum(sum(map(str.isalpha, line.text)) >= 4 for line in lines)
    if len(worded) < 4 or wordy * 2 < len(lines):  # the digits of most fonts have one width
        return False
    widths = sorted(line.box.width / len(line.text) for line in worded.values())
    middle = widths[len(widths) // 2]
    return sum(abs(width - middle) < 0.01 * middle for width in widths) > 0.6 * len(worded)


def is_upright(line: Line) -> bool:
    """False for lines written upwards or downwards."""
    return line.box.height <= 1.8 * max(line.size, 1e-6) or line.box.width >= line.box.height or len(line.text) < 3


def line_pieces(index: int, line: Line) -> list[Piece]:
    """The words of a line as pieces, leader dots dropped; a line that is not upright stays whole."""
    if not line.words or not is_upright(line):
        return [Piece(line.text, line.box, index, line.size, line.bold)]
    pieces = [Piece(word.text, word.box, index, line.size, line.bold) for word in line.words]
    dots = [piece.text for piece in pieces if not piece.text.strip(_DOTS)]
    if len(dots) < 4 and not any(len(text) >= 3 for text in dots):
        return pieces
    # Print often runs the leaders through the words: what is left of them beside the words goes too.
    bare = [replace(piece, text=_DOTTED.sub(" ", piece.text.strip(_DOTS))) for piece in pieces]
    return [piece for piece in bare if piece.text] or pieces


def spoken(pieces: Sequence[Piece]) -> str:
    """The words of one row in reading order, a space where there is a gap."""
    right_to_left = sum(_is_right_to_left(piece.text) for piece in pieces) * 2 > len(pieces)
    text = ""
    last: Piece | None = None
    for piece in sorted(pieces, key=lambda item: item.box.x0, reverse=right_to_left):
        gap = piece.size
        if last is not None and last.line != piece.line:  # words of one line are parted in any case
            gap = last.box.x0 - piece.box.x1 if right_to_left else piece.box.x0 - last.box.x1
        text += f" {piece.text}" if gap > 0.1 * piece.size or not text else piece.text
        last = piece
    return text.strip()


def _is_right_to_left(text: str) -> bool:
    return any("\u0590" <= character <= "\u08ff" or "\ufb1d" <= character <= "\ufefc" for character in text)


def rows_of(pieces: Iterable[Piece], gap: float = 0.7) -> list[Row]:
    """Rows from top to bottom; a segment ends where the next piece is more than `gap` font sizes away."""
    groups: list[list[Piece]] = []
    means: list[float] = []
    for piece in sorted(pieces, key=lambda item: item.box.y0 + item.box.y1):
        centre = (piece.box.y0 + piece.box.y1) / 2
        if groups and centre - means[-1] <= 0.45 * max(piece.size, groups[-1][0].size):
            groups[-1].append(piece)
            means[-1] += (centre - means[-1]) / len(groups[-1])
        else:
            groups.append([piece])
            means.append(centre)
    return [_row(group, mean, gap) for group, mean in zip(groups, means, strict=True)]


def _row(group: list[Piece], mean: float, gap: float) -> Row:
    group.sort(key=lambda item: item.box.x0)
    size = max(piece.size for piece in group)
    runs: list[list[Piece]] = []
    reach = 0.0
    for piece in group:
        # Lines that the text layer or the OCR has parted are cells more often than not.
        allowed = gap if runs and runs[-1][-1].line == piece.line else min(gap, 0.25)
        if runs and piece.box.x0 - reach <= allowed * size:
            runs[-1].append(piece)
            reach = max(reach, piece.box.x1)
        else:
            runs.append([piece])
            reach = piece.box.x1
    return Row(mean, size, tuple(segment(run) for run in runs))


def segment(run: Sequence[Piece]) -> Segment:
    """Pieces, left to right, as one segment."""
    return Segment(min(piece.box.x0 for piece in run), max(piece.box.x1 for piece in run), tuple(run))
