"""Detect answers that repeat themselves, while they stream and afterward."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

from llm_ocr.models.parsers.tokens import without_end

# Text that repeats: how long its end goes on with one period, and when that is more than a page would print. The least
# number of repetitions is Chandra's (int(4 * (1 + 3 / L)) of a period L). The least lengths are ours, and generous: a
# page that is cut by mistake is lost, a loop that runs on costs some hundred tokens.


#: Longest period that is looked for, in characters: half a page of text.
LONGEST_PERIOD = 2500
#: How much of the end of a text is enough to see any loop: the longest limit and a period.
WINDOW = 16_384
#: As many characters must be equal before two places are compared further.
_NEEDLE = 24
_STRADDLE = 12  # characters on each side of the place where a shorter period begins

# Least lengths in characters of all repetitions together.
_PROSE = 800
_LONG_PERIODS = 2000  # periods longer than _LONG
_DIGITS = 4000  # numbers and the like: columns of zeros set as plain text
_RULED = 6000  # dots, underscores and dashes: leaders, lines to write on; 60 rows of 100 characters
_TABLE_WORDS = 3000  # table rows with words in them
_TABLE = 12_000  # empty cells, zeros, "N/A": a table of 50 rows and 20 columns of `<td></td>` has 10,000

_LONG = 250  # characters
_SEVERAL, _FEW = 8, 5  # repetitions of short and of long periods
#: A finished answer needs a little less, as white space at its end is not counted: what was cut while it streamed must
#: be found again.
_FINISHED = 0.95
_LETTERS, _CELL_LETTERS = 3, 12  # a period with fewer has no words in it

_TABLE_MARKS = ("<td", "</td", "<tr", "</tr", "<th", "</th", "|", "&")
_MARKUP = re.compile(
    r"<\|(?:ref|det)\|>[^<>|]{0,60}<\|/(?:ref|det)\|>|\w{1,24}\[\[\]\]|!\[\w{1,24}\+?\]\(\)"
    r'|\{"bbox": ?\[\], ?"category": ?"[\w-]{1,24}"\}|<[^<>]*>|\\[A-Za-z]{1,20}'
)


@dataclass(frozen=True, slots=True)
class Run:
    """The last `length` characters of a text repeat the `period` characters before each of them (or begin it)."""

    period: int
    length: int


def loop_at_end(text: str, *, finished: bool = False) -> Run | None:
    """The loop in which a text ends; None where it ends in none, or in a repetition that a page may hold.

    Only the last `WINDOW` characters are looked at. In a `finished` answer all that one that still
    goes on is cut for is found again.
    """
    tail = text[-WINDOW:]
    short = _run_before(tail, len(tail) - _NEEDLE, len(tail))
    if short is None:
        return None
    if is_loop(tail[-short.period :], short.length, finished=finished):
        return short
    # Rows of empty cells: the cells repeat within a row, and the rows repeat. The longer period is seen where the
    # shorter one breaks off.
    start = len(tail) - short.length
    long = _run_before(tail, start - _STRADDLE, start + _STRADDLE)
    if long is not None and is_loop(tail[-long.period :], long.length, finished=finished):
        return long
    return None


def whole_run(text: str, period: int) -> int:
    """How many characters at the end of `text` stand in a run of this period, the first of it included."""
    return _equal_back(text, period) + period


def is_loop(unit: str, length: int, *, finished: bool = False) -> bool:
    """Whether `length` characters of repetitions of `unit` are more than a page would print."""
    period = len(unit)
    least = max(_SEVERAL, int(4 * (1 + 3 / period)) + 1) if period <= _LONG else _FEW
    share = _FINISHED if finished else 1.0
    if length < share * max(least * period, _PROSE):
        return False  # the cheap test first: what the unit is made of is looked at for few of them
    return length >= share * least_length(unit)


def least_length(unit: str) -> int:
    """From how many characters on repetitions of `unit` are a loop; depends on what it is made of."""
    # Where the unit begins is chance, and marks may be cut through there. They are whole where it stands several times,
    # and of two such texts the longer has the marks and characters of just one unit more.
    more, less = _shown(unit * 3), _shown(unit * 2)
    letters = _count(str.isalpha, more) - _count(str.isalpha, less)
    if any(mark in unit * 2 for mark in _TABLE_MARKS):
        return _TABLE_WORDS if letters >= _CELL_LETTERS else _TABLE
    written = _count(str.isalnum, more) - _count(str.isalnum, less)
    spaces = _count(str.isspace, more) - _count(str.isspace, less)
    blank = len(more) - len(less) - written - spaces
    if written <= 0 or blank > written:
        return _RULED
    if letters < _LETTERS:
        return _DIGITS
    return _PROSE if len(unit) <= _LONG else _LONG_PERIODS


def _count(test: Callable[[str], bool], text: str) -> int:
    return sum(map(test, text))


def _shown(text: str) -> str:
    """What a reader of the page sees of it; parts of tags at its ends left out."""
    close, opened = text.find(">"), text.rfind("<")
    if close >= 0 and "<" not in text[:close]:
        text = text[close + 1 :]
        opened = text.rfind("<")
    if opened >= 0 and ">" not in text[opened:]:
        text = text[:opened]
    return _MARKUP.sub("", text)


def _run_before(text: str, start: int, end: int) -> Run | None:
    """The run at the end of `text` whose period is the way from text[start:end] back to where it stood before."""
    if start < 0 or end > len(text):
        return None
    before = text.rfind(text[start:end], max(0, start - LONGEST_PERIOD), end - 1)
    if before < 0:
        return None
    period = start - before
    return Run(period, _equal_back(text, period) + period)


def _equal_back(text: str, period: int) -> int:
    """How many characters at the end of `text` equal those `period` before. Linear: steps double, then halve."""
    size = len(text)
    known, step = 0, 64
    while step:
        step = min(step, size - period - known)
        if step <= 0:
            return known
        if not _equal(text, size - known - step, size - known, period):
            break
        known += step
        step *= 2
    while step > 1:
        half = step // 2
        if _equal(text, size - known - half, size - known, period):
            known += half
            step -= half
        else:
            step = half
    return known


def _equal(text: str, start: int, end: int, period: int) -> bool:
    return text[start:end] == text[start - period : end - period]


# Answers that repeat themselves: seen while they stream, and found afterwards. Boxes are left out of the comparison: a
# model that repeats a paragraph counts their coordinates on.


#: The watch looks after so many new characters.
_STEP = 64
#: White space, or tokens that end answers, at the end of an answer: more than this is a loop.
_BLANKS = 2000
#: What boxes stand between, in the formats of all models: DeepSeek; LightOn; layout JSON; HTML blocks; MinerU.
_CLOSERS = {
    "[[": "]]",
    **{f"]({digit}": ")" for digit in range(10)},
    '"bbox":[': "]",
    '"bbox": [': "]",
    'data-bbox="': '"',
    "<|box_start|>": "<",
}
_OPENER = re.compile("|".join(map(re.escape, _CLOSERS)))
_BEGINNINGS = frozenset(opener[:size] for opener in _CLOSERS for size in range(1, len(opener)))
_LONGEST_BEGINNING = max(map(len, _BEGINNINGS))
#: Longest text in there that is taken for boxes.
_LONGEST_BOX = 200
_LONGEST_LINE = 2000
#: GLM-OCR's rule for lines: at least ten, of which four fifths are one and the same. The lengths are ours: twice those
#: of exact repetitions.
_LINES, _SAME, _LINE_FACTOR = 10, 0.8, 2


class RepetitionWatch:
    """Watches one answer. Each character costs a constant amount of work, whatever stands in the answer."""

    __slots__ = ("_cut", "_folder", "_fresh", "_lines", "_size", "_text")

    def __init__(self) -> None:
        self._text = ""
        self._fresh: list[str] = []
        self._size = 0
        self._folder = _Folder()
        self._lines = _SameLines()
        self._cut = False

    def feed(self, piece: str) -> bool:
        """The next piece of the answer; True from when on it is certain to repeat itself."""
        if self._cut:
            return True
        self._fresh.append(piece)
        self._size += len(piece)
        if self._size >= _STEP:
            fresh = self._folder.fold("".join(self._fresh))
            self._fresh, self._size = [], 0
            self._cut = any(self._look(fresh[at : at + _STEP]) for at in range(0, len(fresh), _STEP))
        return self._cut

    def _look(self, fresh: str) -> bool:
        self._text = (self._text + fresh)[-WINDOW:]
        return self._lines.feed(fresh) or loop_at_end(self._text) is not None


def sound_length(text: str) -> int | None:
    """How many characters of a finished answer stand before its loop; None for one that does not end in a loop.

    The first of the repetitions belongs to the sound part, as it is what the page says; of white space nothing does.
    Linear in the length.
    """
    body = without_end(text)
    if len(text) - len(body) > _BLANKS:
        return len(body)
    folder = _Folder()
    folded = folder.fold(body)
    run = loop_at_end(folded, finished=True)
    if run is not None:
        return folder.place(len(folded) - whole_run(folded, run.period) + run.period)
    lines = _SameLines()
    lines.feed(folded + "\n")
    return folder.place(lines.start) if lines.looping else None


@dataclass(slots=True)
class _Folder:
    """Leaves out the numbers of boxes, and knows where the rest stood."""

    _inside: int = -1  # characters since the boxes began; negative outside of them
    _closer: str = ""
    _half: str = ""  # the end of the text, where it may begin an opener or a closer
    _raw: int = 0  # characters taken in
    _made: int = 0  # characters given out
    _cuts: list[tuple[int, int]] = field(default_factory=list)  # (place in what was given out, place in the text)

    def fold(self, text: str) -> str:
        """The next part of the text without the contents of boxes."""
        text, self._half = self._half + text, ""
        parts: list[str] = []
        at = 0
        while at < len(text):
            at = self._outside(text, at, parts) if self._inside < 0 else self._skip(text, at)
        return "".join(parts)

    def place(self, made: int) -> int:
        """Where in the text the character stands that is number `made` in what was given out."""
        before = next(((out, raw) for out, raw in reversed(self._cuts) if out <= made), (0, 0))
        return before[1] + made - before[0]

    def _outside(self, text: str, at: int, parts: list[str]) -> int:
        found = _OPENER.search(text, at)
        if found is None:
            self._half = _beginning(text[at:])
            end = len(text) - len(self._half)
        else:
            end = found.end() - found.group()[-1].isdigit()
            self._inside, self._closer = 0, _CLOSERS[found.group()]
        parts.append(text[at:end])
        self._made += end - at
        self._raw += end - at
        return len(text) if found is None else end

    def _skip(self, text: str, at: int) -> int:
        end = text.find(self._closer, at, at + _LONGEST_BOX)
        if end < 0:
            half = self._closer[:-1]
            held = len(half) if half and text.endswith(half) and len(text) - at < _LONGEST_BOX else 0
            end = min(len(text) - held, at + _LONGEST_BOX)
            self._half = half if held else ""
            self._inside += end - at
            over = self._inside >= _LONGEST_BOX
        else:
            held, over = False, True
        self._raw += end - at
        if over:
            self._inside = -1
            self._cuts.append((self._made, self._raw))
        return len(text) if held else end


def _beginning(text: str) -> str:
    """The end of the text that an opener may begin with."""
    tail = text[-_LONGEST_BEGINNING:]
    return next((tail[at:] for at in range(len(tail)) if tail[at:] in _BEGINNINGS), "")


class _SameLines:
    """Whether most of the last lines are the same one, with others between them."""

    __slots__ = ("_hits", "_line", "_open", "_place", "_total", "looping", "start")

    def __init__(self) -> None:
        self.looping = False
        self.start = 0  # behind the first of the lines, once they loop
        self._open = ""  # the line that has not ended
        self._place = 0
        self._line, self._hits, self._total = "", 0, 0

    def feed(self, text: str) -> bool:
        """The next part of the text; True when it ends in a loop of lines."""
        parts = (self._open + text).split("\n")
        place = self._place - len(self._open)
        for line, _ in pairwise(parts):
            place += len(line) + 1
            self._take(line.strip(), place)
        self._open = parts[-1][-_LONGEST_LINE:]
        self._place += len(text)
        return self.looping

    def _take(self, line: str, place: int) -> None:
        if not line or line.endswith(("]]", "<|/det|>")):
            return
        self._total += 1
        if line == self._line:
            self._hits += 1
        elif self._hits < _SAME * self._total:
            self._line, self._hits, self._total, self.start = line, 1, 1, place
        length = self._hits * len(self._line)
        enough = self._hits >= _LINES and self._hits >= _SAME * self._total
        # The cheap test first: most lines are followed by other ones.
        self.looping = enough and length >= _LINE_FACTOR * least_length(self._line) and is_loop(self._line, length)
