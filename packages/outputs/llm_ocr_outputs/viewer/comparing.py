"""Compare two readings of a page by words, in linear time for any length and similarity.

Words that occur once in each text are anchors (patience diff). Text between anchors is anchored by runs of two, four,
and eight words, and small rests by their longest common subsequence. A large rest without any anchor counts as
different.
"""

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from llm_ocr_outputs.viewer.index import PIECES, UNSPACED

#: Upper limit of word pairs of a rest that are compared individually.
_SMALL = 40_000
#: Lengths of word runs used as anchors, in order.
_RUNS = (1, 2, 4, 8)

_FORMULA = re.compile(r'<(?:div|span)\b[^>]*class="math')
_WORDS = re.compile(rf"\s+|[{UNSPACED}]|[^\s{UNSPACED}]+")

_Pair = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Compared:
    """Two readings of a page as HTML, with differences in `<mark>`.

    `share` of equal words is 0..1; 1 for two empty texts.
    """

    left: str
    right: str
    share: float


def compare(left: str, right: str) -> Compared:
    """Compare the HTML of two readings, as written by `rendering`; a formula is one word."""
    pieces_left, pieces_right = _pieces(left), _pieces(right)
    words_left = [piece.word for piece in pieces_left if piece.word]
    words_right = [piece.word for piece in pieces_right if piece.word]
    pairs = equal_words(words_left, words_right)
    total = len(words_left) + len(words_right)
    return Compared(
        _marked(pieces_left, {one for one, _ in pairs}),
        _marked(pieces_right, {one for _, one in pairs}),
        2 * len(pairs) / total if total else 1.0,
    )


def equal_words(left: Sequence[str], right: Sequence[str]) -> list[_Pair]:
    """Return the positions of words that are equal in both, ascending in both."""
    found: list[_Pair] = []
    waiting = [(0, len(left), 0, len(right), 0)]
    while waiting:
        low, high, other_low, other_high, run = waiting.pop()
        while low < high and other_low < other_high and left[low] == right[other_low]:
            found.append((low, other_low))
            low, other_low = low + 1, other_low + 1
        while low < high and other_low < other_high and left[high - 1] == right[other_high - 1]:
            high, other_high = high - 1, other_high - 1
            found.append((high, other_high))
        if low == high or other_low == other_high:
            continue
        if (high - low) * (other_high - other_low) <= _SMALL:
            found += _subsequence(left, right, (low, high), (other_low, other_high))
        elif run < len(_RUNS):
            # Anchors: the first words of runs that occur once in each range, as many as ascend in both.
            ours = _unique(left, (low, high), _RUNS[run])
            theirs = _unique(right, (other_low, other_high), _RUNS[run])
            shared = [(place, theirs[words]) for words, place in ours.items() if words in theirs]
            anchors = _ascending(sorted(shared))
            found += anchors
            for place, other_place in [*anchors, (high, other_high)]:
                if place > low and other_place > other_low:  # words between anchors are searched for longer runs
                    waiting.append((low, place, other_low, other_place, run + 1))
                low, other_low = place + 1, other_place + 1
    return sorted(found)


def _unique(words: Sequence[str], stretch: _Pair, run: int) -> dict[tuple[str, ...], int]:
    runs = [tuple(words[place : place + run]) for place in range(stretch[0], stretch[1] - run + 1)]
    counted = Counter(runs)
    return {one: stretch[0] + place for place, one in enumerate(runs) if counted[one] == 1}


def _ascending(pairs: Sequence[_Pair]) -> list[_Pair]:
    """Return the longest selection of pairs whose second numbers ascend; the first numbers do."""
    ends: list[int] = []  # smallest second number at the end of a selection of this length
    last: list[int] = []  # the pair at its end
    before: list[int] = []
    for at, (_, other) in enumerate(pairs):
        length = bisect_left(ends, other)
        if length == len(ends):
            ends.append(other)
            last.append(at)
        else:
            ends[length], last[length] = other, at
        before.append(last[length - 1] if length else -1)
    chosen: list[_Pair] = []
    at = last[-1] if last else -1
    while at >= 0:
        chosen.append(pairs[at])
        at = before[at]
    return chosen[::-1]


def _subsequence(left: Sequence[str], right: Sequence[str], own: _Pair, other: _Pair) -> Iterator[_Pair]:
    """Yield the longest common subsequence of two small ranges."""
    ours, theirs = left[own[0] : own[1]], right[other[0] : other[1]]
    table = [[0] * (len(theirs) + 1)]
    for word in reversed(ours):
        below, row = table[-1], [0]
        for at, one in enumerate(reversed(theirs)):
            row.append(below[at] + 1 if word == one else max(below[at + 1], row[at]))
        table.append(row)
    table.reverse()
    table = [row[::-1] for row in table]
    at, there = 0, 0
    while at < len(ours) and there < len(theirs):
        if ours[at] == theirs[there]:
            yield own[0] + at, other[0] + there
            at, there = at + 1, there + 1
        elif table[at + 1][there] >= table[at][there + 1]:
            at += 1
        else:
            there += 1


@dataclass(frozen=True, slots=True)
class _Piece:
    """Tag, white space, or word with its key for comparison."""

    text: str
    word: str = ""


def _pieces(html: str) -> list[_Piece]:
    """Split the HTML into tags, white space, and words; a formula with its tags is one word."""
    pieces: list[_Piece] = []
    formula: list[str] = []
    for text in PIECES.findall(html):
        if formula or _FORMULA.match(text):
            formula.append(text)
            if text[:2] == "</":
                pieces.append(_Piece("".join(formula), "".join(formula[1:-1]) or " "))
                formula = []
        elif text[0] == "<":
            pieces.append(_Piece(text))
        else:
            pieces += [_Piece(one, "" if one.isspace() else one) for one in _WORDS.findall(text)]
    return [*pieces, *(_Piece(text) for text in formula)]


def _marked(pieces: Sequence[_Piece], equal: set[int]) -> str:
    """Return the HTML with unequal words in `<mark>`, which never spans a tag."""
    parts: list[str] = []
    number, is_open = 0, False
    for at, piece in enumerate(pieces):
        other = bool(piece.word) and number not in equal
        number += bool(piece.word)
        # White space between two words that differ is marked with them.
        goes_on = at + 1 < len(pieces) and pieces[at + 1].word != "" and number not in equal
        closes = is_open and (piece.word or piece.text[0] == "<" or not goes_on)
        if closes and not other:
            parts.append("</mark>")
            is_open = False
        if other and not is_open:
            parts.append("<mark>")
            is_open = True
        parts.append(piece.text)
    return "".join([*parts, "</mark>"] if is_open else parts)
