"""Detect answers that repeat themselves, while they stream and afterward."""

import re
from dataclasses import dataclass, field
from itertools import pairwise

from llm_ocr.models.parsers.plain import without_end

# Repetition at the end of a text, and its limits. The minimum number of repetitions is Chandra's (int(4 * (1 + 3 / L))
# for a period L). The minimum lengths are llm_ocr's own and generous. A page that is cut by mistake is lost, but a
# continued loop costs only some hundred tokens.


#: Maximum period in characters: half a page of text.
LONGEST_PERIOD = 2500
#: Length of the end of a text that is sufficient to detect any loop: the longest limit and a period.
WINDOW = 16_384
#: Minimum number of equal characters before two places are compared further.
_NEEDLE = 24
_EARLIER, _EARLIEST = 8, 512  # distances in characters of the earlier ends of a finished answer
_STRADDLE = 12  # characters on each side of the place where a shorter period begins

# Minimum lengths in characters of all repetitions together.
_PROSE = 800
_ONE_LETTER = 1000  # fewer than _LETTERS letters and no digits: "k k k", "la la la"
_LONG_PERIODS = 2000  # periods longer than _LONG
_DIGITS = 4000  # numbers and similar text: columns of zeros as plain text
_RULED = 6000  # dots, underscores, and dashes: leaders, blank lines of forms; 60 rows of 100 characters
_TABLE_WORDS = 3000  # table rows with words
_TABLE = 12_000  # empty cells, zeros, "N/A": a table of 50 rows and 20 columns of `<td></td>` has 10,000

_LEAST = 400  # of any unit
_LONG = 250  # characters
_SEVERAL, _FEW = 8, 5  # repetitions of short and of long periods
#: Factor for finished answers, whose final white space is not counted: a loop that was cut while streaming must be
#: detected again.
_FINISHED = 0.95
_LETTERS, _CELL_LETTERS = 3, 12  # a period with fewer letters has no words

_TABLE_MARKS = ("<td", "</td", "<tr", "</tr", "<th", "</th", "|", "&")
_MARKUP = re.compile(
    r"<\|(?:ref|det)\|>[^<>|]{0,60}<\|/(?:ref|det)\|>|\w{1,24}\[\[\]\]|!\[\w{1,24}\+?\]\(\)"
    r'|\{"bbox": ?\[\], ?"category": ?"[\w-]{1,24}"\}|<[^<>]*>|\\[A-Za-z]{1,20}'
)


def loop_at_end(text: str, *, finished: bool = False) -> int:
    """Return the period of the loop at the end of a text; 0 without one, or for a repetition that a page may contain.

    Only the last `WINDOW` characters are considered. For a `finished` answer, every loop that would cut a streaming
    answer is found again.
    """
    tail = text[-WINDOW:]
    short, length = _run_before(tail, len(tail) - _NEEDLE, len(tail))
    if not short:
        return 0
    if is_loop(tail[-short:], length, finished=finished):
        return short
    # Rows of empty cells: the cells repeat within a row, and the rows repeat. The longer period begins where the
    # shorter one ends.
    start = len(tail) - length
    long, length = _run_before(tail, start - _STRADDLE, start + _STRADDLE)
    if long and is_loop(tail[-long:], length, finished=finished):
        return long
    # The period cannot be read at some ends of a long unit with short repetitions inside. A streaming answer is checked
    # at other ends than a finished one, so earlier ends of a finished answer are tried.
    for back in range(_EARLIER, min(_EARLIEST, len(tail) - _NEEDLE), _EARLIER) if finished else ():
        period = loop_at_end(tail[:-back])
        if period and is_loop(tail[-period:], whole_run(tail, period), finished=True):
            return period
    return 0


def whole_run(text: str, period: int) -> int:
    """Return the number of characters at the end of `text` in a run of this period, the first unit included.

    Linear: steps double, then halve.
    """
    start, step = len(text), 64  # text[start:] equals the text one period before

    def repeats(size: int) -> bool:
        return text[start - size : start] == text[start - size - period : start - period]

    while (step := min(step, start - period)) > 0 and repeats(step):
        start -= step
        step *= 2
    while step > 1:
        half = step // 2
        if repeats(half):
            start -= half
            step -= half
        else:
            step = half
    return len(text) - start + period


def is_loop(unit: str, length: int, *, finished: bool = False) -> bool:
    """Return whether `length` characters of repetitions of `unit` are more than a page would print."""
    period = len(unit)
    least = max(_SEVERAL, int(4 * (1 + 3 / period)) + 1) if period <= _LONG else _FEW
    share = _FINISHED if finished else 1.0
    if length < share * max(least * period, _LEAST):
        return False  # cheap test first: the content of the unit is rarely needed
    return length >= share * least_length(unit)


def least_length(unit: str) -> int:
    """Return the length in characters from which repetitions of `unit` are a loop; depends on its content."""
    # The unit begins at an arbitrary place, which may be within a mark. Several copies contain whole marks. The
    # difference of two such texts is the marks and characters of exactly one unit.
    more, less = _shown(unit * 3), _shown(unit * 2)
    letters, written, spaces = (
        sum(map(test, more)) - sum(map(test, less)) for test in (str.isalpha, str.isalnum, str.isspace)
    )
    if any(mark in unit * 2 for mark in _TABLE_MARKS):
        return _TABLE_WORDS if letters >= _CELL_LETTERS else _TABLE
    blank = len(more) - len(less) - written - spaces
    if written <= 0 or blank > written:
        return _RULED
    if letters < _LETTERS and letters < written:
        return _DIGITS
    if letters < _LETTERS:
        # A character of Chinese or Japanese is as much text as two or three letters of an alphabet.
        return _ONE_LETTER // 2 if any("\u2e80" <= character <= "\uffef" for character in unit) else _ONE_LETTER
    return _PROSE if len(unit) <= _LONG else _LONG_PERIODS


def _shown(text: str) -> str:
    """Return the text that a reader of the page sees, without incomplete tags at its ends."""
    close, opened = text.find(">"), text.rfind("<")
    if close >= 0 and "<" not in text[:close]:
        text = text[close + 1 :]
        opened = text.rfind("<")
    if opened >= 0 and ">" not in text[opened:]:
        text = text[:opened]
    return _MARKUP.sub("", text)


def _run_before(text: str, start: int, end: int) -> tuple[int, int]:
    """Return the distance of text[start:end] to its previous place, and the length of the run with it as period.

    Both are 0 without a previous place.
    """
    if start < 0 or end > len(text):
        return 0, 0
    before = text.rfind(text[start:end], max(0, start - LONGEST_PERIOD), end - 1)
    if before < 0:
        return 0, 0
    period = start - before
    return period, whole_run(text, period)


# Answers that repeat themselves, while they stream and afterward. Boxes are excluded from the comparison: a model that
# repeats a paragraph increments their coordinates.


#: Number of new characters between two checks.
_STEP = 64
#: Maximum white space, or end tokens, at the end of an answer: more is a loop.
_BLANKS = 2000
#: Delimiters of boxes in the formats of all models: DeepSeek; LightOn; layout JSON; HTML blocks; MinerU.
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
#: Maximum length of text between delimiters that counts as boxes.
_LONGEST_BOX = 200
_LONGEST_LINE = 2000
#: Lines in any order are a loop if there are few different ones: at least ten times as many lines, four fifths of them
#: among the last `_VARIANTS` different ones. Their lengths are those of exact repetitions, times a factor.
_LINES, _SAME, _VARIANTS = 10, 0.8, 12
_STRANGE = 4  # more lines without a repetition, at the beginning
_LINE_FACTOR, _VARIANT_FACTOR = 2, 4
#: Consecutive numbers with the same text between them: so many, or fewer with so many characters.
_COUNTED, _FEWER_COUNTED, _COUNTED_LENGTH = 400, 100, 6000
_NUMBER = re.compile(r"(?<![0-9])[0-9]{1,9}+(?=[^0-9])")


class RepetitionWatch:
    """Detector for one streaming answer. Each character costs a constant amount of work, for any answer."""

    __slots__ = ("_counting", "_cut", "_folder", "_fresh", "_lines", "_size", "_text")

    def __init__(self) -> None:
        self._text = ""
        self._fresh: list[str] = []
        self._size = 0
        self._folder = _Folder()
        self._lines = _FewLines()
        self._counting = _Counting()
        self._cut = False

    def feed(self, piece: str) -> bool:
        """Add the next piece of the answer; return True once it is certain to repeat itself."""
        if self._cut:
            return True
        self._fresh.append(piece)
        self._size += len(piece)
        if self._size >= _STEP:
            fresh = self._folder.fold("".join(self._fresh))
            self._fresh, self._size = [], 0
            for at in range(0, len(fresh), _STEP):
                step = fresh[at : at + _STEP]
                self._text = (self._text + step)[-WINDOW:]
                if self._lines.feed(step) or self._counting.feed(step) or loop_at_end(self._text):
                    self._cut = True
                    break
        return self._cut


def sound_length(text: str) -> int | None:
    """Return the number of characters before the loop of a finished answer; None without a loop at the end.

    The first repetition belongs to the sound part, since it is content of the page. White space does not. Linear in the
    length.
    """
    body = without_end(text)
    if len(text) - len(body) > _BLANKS:
        return len(body)
    folder = _Folder()
    folded = folder.fold(body)
    if period := loop_at_end(folded, finished=True):
        return folder.place(len(folded) - whole_run(folded, period) + period)
    lines, counting = _FewLines(), _Counting()
    if lines.feed(folded + "\n"):
        return folder.place(lines.start)
    return folder.place(counting.start) if counting.feed(folded) else None


@dataclass(slots=True)
class _Folder:
    """Filter that removes the numbers of boxes, and maps positions back to the text."""

    _inside: int = -1  # characters since the start of the boxes; negative outside of boxes
    _closer: str = ""
    _half: str = ""  # end of the text that may begin an opener or a closer
    _raw: int = 0  # characters read
    _made: int = 0  # characters returned
    _cuts: list[tuple[int, int]] = field(default_factory=list)  # (position in the output, position in the text)

    def fold(self, text: str) -> str:
        """Return the next part of the text without the contents of boxes."""
        text, self._half = self._half + text, ""
        parts: list[str] = []
        at = 0
        while at < len(text):
            if self._inside >= 0:
                at = self._skip(text, at)
                continue
            found = _OPENER.search(text, at)
            if found is None:
                tail = text[max(at, len(text) - _LONGEST_BEGINNING) :]
                self._half = next((tail[cut:] for cut in range(len(tail)) if tail[cut:] in _BEGINNINGS), "")
                end = len(text) - len(self._half)
            else:
                end = found.end() - found.group()[-1].isdigit()
                self._inside, self._closer = 0, _CLOSERS[found.group()]
            parts.append(text[at:end])
            self._made += end - at
            self._raw += end - at
            at = len(text) if found is None else end
        return "".join(parts)

    def place(self, made: int) -> int:
        """Return the position in the text of character number `made` of the output."""
        before = next(((out, raw) for out, raw in reversed(self._cuts) if out <= made), (0, 0))
        return before[1] + made - before[0]

    def _skip(self, text: str, at: int) -> int:
        """Skip the content of boxes, and return the position after it or after the part that was read."""
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


class _FewLines:
    """Detector for lines in any order of which most repeat one of the last few different lines."""

    __slots__ = ("_hits", "_length", "_open", "_place", "_recent", "_total", "looping", "start")

    def __init__(self) -> None:
        self.looping = False
        self.start = 0  # after the first of the lines, once they loop
        self._open = ""  # the incomplete last line
        self._place = 0
        self._recent: dict[str, tuple[int, int]] = {}  # different lines: first end, uses; the last used at the end
        self._hits = self._total = self._length = 0

    def feed(self, text: str) -> bool:
        """Add the next part of the text; return True if it ends in a loop of lines."""
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
        first, uses = self._recent.pop(line, (place, 0))
        if not uses and self._total - self._hits > _STRANGE + (1 - _SAME) * self._total:
            self._recent.clear()
            self._hits = self._total = self._length = 0
        self._recent[line] = (first, uses + 1)
        if len(self._recent) > _VARIANTS:
            del self._recent[next(iter(self._recent))]
        self._total += 1
        self._hits += uses > 0
        self._length += len(line) * (uses > 0)
        self.looping = False
        if self._hits < max(_LINES, _SAME * self._total):
            return  # cheap test first: most lines are followed by different ones
        repeated = {line: first for line, (first, uses) in self._recent.items() if uses > 1}
        factor = _LINE_FACTOR if len(repeated) == 1 else _VARIANT_FACTOR
        if (
            repeated
            and self._hits >= _LINES * len(repeated)
            and self._length >= factor * max(map(least_length, repeated))
        ):
            self.start = min(repeated.values())
            self.looping = True


class _Counting:
    """Detector for consecutive numbers with the same text between them: "Page 1, Page 2, Page 3 ..."."""

    __slots__ = ("_between", "_first", "_number", "_open", "_place", "_run", "looping", "start")

    def __init__(self) -> None:
        self.looping = False
        self.start = 0  # after the first of the numbers
        self._open = ""  # text after the last complete number
        self._place = 0
        self._between, self._number, self._run = "", 0, 0

    def feed(self, text: str) -> bool:
        """Add the next part of the text; return True if it ends in counting."""
        searched = len(self._open.rstrip("0123456789"))  # the rest may be the beginning of a number
        self._open += text
        at = 0
        for found in _NUMBER.finditer(self._open, searched):
            number, between = int(found.group()), self._open[at : found.start()]
            at = found.end()
            counts = number == self._number + 1 and (between == self._between or self._run < 2)
            self._run = self._run + 1 if counts else 1
            if self._run == 1:
                self.start = self._place + at
            self._between, self._number = between, number
            long = self._place + at - self.start >= _COUNTED_LENGTH
            self.looping = self._run >= _COUNTED or (self._run >= _FEWER_COUNTED and long)
        at = max(at, len(self._open) - _LONGEST_LINE)
        self._open, self._place = self._open[at:], self._place + at
        return self.looping
