"""Text that repeats: how long its end goes on with one period, and when that is more than a page would print.

The least number of repetitions is Chandra's (int(4 * (1 + 3 / L)) of a period L). The least lengths are ours, and
generous: a page that is cut by mistake is lost, a loop that runs on costs some hundred tokens.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

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
