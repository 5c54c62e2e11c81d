"""Read the text layer of a PDF page as words and lines."""

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise, takewhile
from statistics import median
from typing import TYPE_CHECKING

import numpy as np
import pypdfium2

from llm_ocr.documents.pdf_objects import Objects, page_frame, page_links, page_objects
from llm_ocr.documents.text_layer import without_lookalikes
from llm_ocr.types import SCAN, Box, Line, PageContent, Script, Tag, Word
from llm_ocr_cpu.pdf_glyphs import ASCENT, DESCENT, RTL_SPACE, Bools, Floats, Glyphs, Ints, glyphs_of, read_chars
from llm_ocr_cpu.pdf_tags import CELLS, MOST_LINES, enclosing, fit_page, read_tags
from llm_ocr_cpu.visibility import levels_of

if TYPE_CHECKING:
    from PIL import Image

# Words from glyphs, and runs from words: consecutive words without a wide gap.


#: Gap between two words of a line, in font sizes, that needs no further evidence. Word spaces are 0.25 to 0.35,
#: justified spaces up to about 0.7; the narrowest gutters in print are 1.2.
NEAR = 0.75
_ROOT = "√"
#: Number of gaps between glyphs from which it is known whether their producer places each alone.
_LEAST_ALONE = 20
#: Narrowest space in font sizes in such text, which pdfium misses.
_LEAST_SPACE = 0.11
#: Share of glyphs after a space above which words have fewer than 2.5 letters, so that narrow spaces are false.
#: Deviation of false gaps from the usual one in font sizes.
_MOST_SPACED, _UNEVEN_GAP = 0.4, 0.07
#: Narrowest and widest gaps in font sizes between the letters of spaced words, the range of the gaps of one row, and
#: the share of letters of the row.
_LETTER_GAPS, _UNEVEN, _LETTERS = (0.1, 0.5), 0.2, 0.6
#: Share of a line's characters in a monospaced font above which the line is no sentence that names a command.
_MONO = 0.8
#: Share of a word that a link's rectangle covers: rectangles are lower than lines, or end before a comma.
_LINKED = 0.6


@dataclass(frozen=True, slots=True)
class Words:
    """Words in the PDF's order; `first` and `end` are glyph indices, `boxes` (n, 4) as shown."""

    texts: list[str]
    boxes: Floats
    turn: Ints
    u0: Floats
    u1: Floats
    base: Floats
    size: Floats
    first: Ints
    end: Ints
    spaced: Bools
    rtl: Bools
    follows: Bools  # in a row of words with spaced letters, whose word spaces are wide
    tags: Ints


@dataclass(frozen=True, slots=True)
class Runs:
    """Runs of words, `first` to `end`, with the extent of each in its frame."""

    first: Ints
    end: Ints
    turn: Ints
    u0: Floats
    u1: Floats
    base: Floats
    size: Floats
    tags: Ints


def _distance(u0: Floats, u1: Floats) -> Floats:
    """Return the gap between adjacent list entries, whichever is left; negative for an overlap."""
    return np.maximum(u0[1:] - u1[:-1], u0[:-1] - u1[1:])


def _spaces(glyphs: Glyphs) -> Bools:
    """Return the glyphs after a space, as pdfium reports them.

    If the PDF's producer places each glyph alone, the gaps correct them: pdfium misses narrow spaces, or adds so many
    between the letters of words that all words are short.
    """
    alone = np.diff(glyphs.objects) != 0
    if len(alone) < _LEAST_ALONE or alone.mean() < 0.7:
        return glyphs.spaced
    spaced = glyphs.spaced.copy()
    gap = (glyphs.u0[1:] - glyphs.u1[:-1]) / glyphs.size[1:]
    beside = (np.abs(np.diff(glyphs.base)) < 0.05 * glyphs.size[1:]) & (np.abs(gap) < 0.25)
    square = np.array(["\u2e80" <= text < "\ua000" for text in glyphs.texts])  # ideographs have room at their sides
    too_many = spaced.mean() > _MOST_SPACED
    within = beside if too_many else beside & ~spaced[1:]
    usual = float(np.median(gap[within])) if within.any() else 0.0
    spaced[1:] |= beside & (gap > max(_LEAST_SPACE, usual + 0.08)) & ~(square[1:] & square[:-1])
    if too_many and usual < _LEAST_SPACE:  # the letters of words, not single signs with spaces between them
        spaced[1:] &= ~beside | (np.abs(gap - usual) > _UNEVEN_GAP)
    return spaced


def _letterspaced(glyphs: Glyphs, spaced: Bools) -> tuple[Bools, Bools]:
    """Return the spaces without those between the letters of spaced words, and which glyphs continue such a row.

    No two glyphs of a row of spaced words touch. Their gaps are narrower than a word space, or of two widths. Other
    words of the line touch the row's first and last glyph, which belong to them.
    """
    spaced, follows = spaced.copy(), np.zeros(len(spaced), dtype=bool)
    size = np.minimum(glyphs.size[1:], glyphs.size[:-1])
    gaps = (glyphs.u0[1:] - glyphs.u1[:-1]) / size
    beside = (glyphs.turn[1:] == glyphs.turn[:-1]) & (np.abs(np.diff(glyphs.base)) < 0.05 * size)
    touching = beside & (np.abs(gaps) <= _LETTER_GAPS[0])
    beside &= (gaps > _LETTER_GAPS[0]) & (gaps < _WIDEST) & ~glyphs.rtl[1:] & ~glyphs.rtl[:-1]
    for first, end in zip(*_stretches(beside), strict=True):  # of gaps; the row has one more glyph
        around, enough = [], end - first > 5
        if enough and first and touching[first - 1]:
            around.append(gaps[first])
            first += 1
        if enough and end < len(gaps) and touching[end]:
            end -= 1
            around.append(gaps[end])
        row, texts = gaps[first:end], glyphs.texts[first : end + 1]
        if len(texts) < 5 or sum(map(str.isalpha, texts)) < _LETTERS * len(texts):
            continue
        usual = float(np.percentile(row, 40, method="lower"))  # more gaps are between letters than words
        within = row <= 1.5 * usual + 0.05
        even = usual < _LETTER_GAPS[1] and np.ptp(row[within]) < _UNEVEN
        distinct = min(row[~within]) > 2 * usual if not within.all() else re.fullmatch("[A-Z][a-z]{4,}", "".join(texts))
        distinct = distinct or (within.all() and all(map(str.isalpha, texts)) and max(around, default=0) > 1.5 * usual)
        if even and (usual < _SPACE or distinct):
            spaced[first + 1 : end + 1] = ~within
            follows[first + 1 : end + 1] = row < 2 * usual + 0.5
    return spaced, follows


def _stretches(flags: Bools) -> tuple[list[int], list[int]]:
    """Return the starts and ends of the stretches of true flags."""
    changes = np.diff(flags.astype(np.int8), prepend=0, append=0)
    return np.nonzero(changes == 1)[0].tolist(), np.nonzero(changes == -1)[0].tolist()


def words_of(glyphs: Glyphs) -> Words:
    """Split glyphs at whitespace, at gaps, and at changes of the line."""
    size, base, u0, u1, rtl = glyphs.size, glyphs.base, glyphs.u0, glyphs.u1, glyphs.rtl
    spaced, follows = _letterspaced(glyphs, _spaces(glyphs))
    smaller = np.minimum(size[1:], size[:-1])
    cut = spaced[1:] | (glyphs.turn[1:] != glyphs.turn[:-1]) | (rtl[1:] != rtl[:-1])
    cut |= np.abs(np.diff(base)) > 0.15 * smaller
    cut |= np.maximum(size[1:], size[:-1]) > 1.3 * smaller
    cut |= (_distance(u0, u1) > 0.25 * smaller) & ~follows[1:]
    backwards = np.where(rtl[1:], u1[1:] - u1[:-1], u0[:-1] - u0[1:])
    cut |= backwards > 0.3 * smaller
    if rtl.any():  # signs are words of their own: the order of both directions places them
        signs = np.array([not text.isalpha() and (not text.isdigit() or text > "9") for text in glyphs.texts]) & ~rtl
        cut |= signs[1:] | signs[:-1]
    if _ROOT in glyphs.texts:  # a rule begins behind the sign
        root = np.array([text == _ROOT for text in glyphs.texts])
        cut |= root[1:] | root[:-1]
    cut |= glyphs.large[1:] | glyphs.large[:-1]
    cut |= glyphs.tags[1:] != glyphs.tags[:-1]
    if glyphs.letters.any():  # variables of a formula beside its functions
        kinds = _kinds(glyphs)
        cut |= kinds[1:] != kinds[:-1]
    first = np.concatenate(([0], np.nonzero(cut)[0] + 1)).astype(np.int64)
    end = np.append(first[1:], len(size))
    low, high = np.minimum.reduceat(glyphs.u0, first), np.maximum.reduceat(glyphs.u1, first)
    level, em = np.add.reduceat(base, first) / (end - first), np.maximum.reduceat(size, first)
    turn = glyphs.turn[first]
    texts = ["".join(glyphs.texts[a:b]) for a, b in zip(first.tolist(), end.tolist(), strict=True)]
    boxes = _as_shown(glyphs, first, turn, low, high, level, em)
    flags = spaced[first], rtl[first], follows[first]
    return Words(texts, boxes, turn, low, high, level, em, first, end, *flags, glyphs.tags[first])


def _kinds(glyphs: Glyphs) -> Ints:
    """Return a number for the kind of each glyph: large symbols, and on pages with TeX's formulas italic and bold."""
    kinds = glyphs.large.astype(np.int64)
    if glyphs.letters.any():
        faces = np.array([2 * style.italic + 4 * style.bold for style in glyphs.styles], dtype=np.int64)
        kinds = kinds + np.where(glyphs.letters, 2, faces[glyphs.style])
    return kinds


def _as_shown(glyphs: Glyphs, first: Ints, turn: Ints, low: Floats, high: Floats, base: Floats, size: Floats) -> Floats:
    """Return nominal boxes for text along the axes, and the glyphs' own boxes otherwise."""
    top, bottom = base - ASCENT * size, base + DESCENT * size
    shown = np.column_stack(
        (
            np.minimum.reduceat(glyphs.boxes[:, 0], first),
            np.minimum.reduceat(glyphs.boxes[:, 1], first),
            np.maximum.reduceat(glyphs.boxes[:, 2], first),
            np.maximum.reduceat(glyphs.boxes[:, 3], first),
        )
    )
    nominal = {  # positions of the page's x and y in the frame
        0: (low, top, high, bottom),
        90: (-bottom, low, -top, high),
        180: (-high, -bottom, -low, -top),
        270: (top, -high, bottom, -low),
    }
    for angle, sides in nominal.items():
        here = turn == angle
        if here.any():
            shown[here] = np.column_stack(sides)[here]
    return shown


def runs_of(words: Words) -> Runs:
    """Split where the next word does not follow on the same baseline."""
    smaller = np.minimum(words.size[1:], words.size[:-1])
    distance = _distance(words.u0, words.u1)
    cut = (words.turn[1:] != words.turn[:-1]) | (np.abs(np.diff(words.base)) > 0.15 * smaller)
    cut |= np.maximum(words.size[1:], words.size[:-1]) > 1.25 * smaller
    cut |= ((distance > NEAR * smaller) & ~words.follows[1:]) | (distance < -0.3 * smaller)
    cut |= words.tags[1:] != words.tags[:-1]
    first = np.concatenate(([0], np.nonzero(cut)[0] + 1)).astype(np.int64)
    end = np.append(first[1:], len(words.size))
    return Runs(
        first,
        end,
        words.turn[first],
        np.minimum.reduceat(words.u0, first),
        np.maximum.reduceat(words.u1, first),
        np.add.reduceat(words.base, first) / (end - first),
        np.maximum.reduceat(words.size, first),
        words.tags[first],
    )


# Segments from runs: text on one baseline without a wide gap, including scripts and unordered runs.


#: Limit of compared pairs of runs, in steps through the runs sorted by height; bounds the work on extreme pages.
_MAX_STEPS = 1000


@dataclass(slots=True)
class Segment:
    """Word indices of one line in their order from left to right in the frame."""

    words: list[int]
    turn: int
    u0: float
    u1: float
    base: float
    size: float
    tag: int

    @property
    def top(self) -> float:
        return self.base - ASCENT * self.size


class Groups:
    """Disjoint sets of 0..n-1."""

    def __init__(self, count: int) -> None:
        self._parent = list(range(count))

    def find(self, member: int) -> int:
        parent = self._parent
        while parent[member] != member:
            parent[member] = parent[parent[member]]
            member = parent[member]
        return member

    def join(self, one: int, other: int) -> None:
        self._parent[self.find(one)] = self.find(other)

    def lists(self) -> list[list[int]]:
        found: dict[int, list[int]] = {}
        for member in range(len(self._parent)):
            found.setdefault(self.find(member), []).append(member)
        return list(found.values())


def segments_of(words: Words, runs: Runs) -> list[Segment]:
    """Join runs to lines by position, independent of the order in the PDF."""
    groups = Groups(len(runs.first))
    beside, scripts = _neighbours(runs)
    for one, other in beside.tolist():
        groups.join(one, other)
    for script, host in _hosts(runs, scripts):
        groups.join(script, host)
    return [_segment(words, runs, members) for members in groups.lists()]


def _neighbours(runs: Runs) -> tuple[Ints, Ints]:
    """Return pairs of adjacent runs on one baseline, and pairs (script, run that may own it)."""
    order = np.lexsort((runs.base, runs.turn))
    turn, base, size, tags = runs.turn[order], runs.base[order], runs.size[order], runs.tags[order]
    beside, scripts = [], []
    reach = 1.1 * float(size.max()) if len(size) else 0.0
    for step in range(1, min(len(order), _MAX_STEPS)):
        here = np.nonzero((turn[step:] == turn[:-step]) & (base[step:] - base[:-step] < reach))[0]
        if not len(here):
            break
        here = here[tags[here] == tags[here + step]]
        one, other = order[here], order[here + step]
        level, script = _compared(runs, one, other)
        beside.append(np.column_stack((one, other))[level])
        narrow = np.where(runs.u1[one] - runs.u0[one] < runs.u1[other] - runs.u0[other], one, other)
        scripts.append(np.column_stack((narrow, one + other - narrow))[script])
    none = np.zeros((0, 2), dtype=np.int64)
    return np.concatenate([*beside, none]), np.concatenate([*scripts, none])


def _compared(runs: Runs, one: Ints, other: Ints) -> tuple[Bools, Bools]:
    """Return for each pair whether the runs are adjacent on one baseline, and whether one may be the other's script."""
    small, large = np.minimum(runs.size[one], runs.size[other]), np.maximum(runs.size[one], runs.size[other])
    lift = np.abs(runs.base[one] - runs.base[other])
    gap = np.maximum(runs.u0[one], runs.u0[other]) - np.minimum(runs.u1[one], runs.u1[other])
    top = np.maximum(runs.base[one] - ASCENT * runs.size[one], runs.base[other] - ASCENT * runs.size[other])
    bottom = np.minimum(runs.base[one] + DESCENT * runs.size[one], runs.base[other] + DESCENT * runs.size[other])
    level = (lift <= 0.2 * small) & (large <= 1.6 * small) & (gap <= NEAR * small) & (gap >= -0.5 * small)
    width, across = runs.u1[one] - runs.u0[one], runs.u1[other] - runs.u0[other]
    alike = small > 0.9 * large  # a raised or lowered glyph of the same size: a few letters with a small offset
    larger_is_narrow = (runs.size[one] > runs.size[other]) == (width < across)  # a large operator, not an initial
    script = ~level & (bottom - top >= np.where(alike, 0.5, 0.4) * small)
    script &= (np.minimum(width, across) <= 2 * small) | ~alike
    script &= large <= np.where(larger_is_narrow, 1.9, 2.5) * small
    smaller = runs.size[one] < runs.size[other]  # behind a text and raised, as the mark of a footnote
    mark = (smaller == (runs.base[one] < runs.base[other])) & (smaller == (runs.u0[one] > runs.u0[other]))
    script &= (gap <= np.where(mark, 0.35, 0.3) * large) & (gap >= -0.4 * large)
    return level, script


def _hosts(runs: Runs, pairs: Ints) -> list[tuple[int, int]]:
    """Return each script with its best host, and with other hosts only on the same baseline as the best host."""
    options: dict[int, list[tuple[float, int]]] = {}
    for script, host in pairs.tolist():
        lift = abs(float(runs.base[script] - runs.base[host]))
        gap = max(0.0, float(max(runs.u0[script], runs.u0[host]) - min(runs.u1[script], runs.u1[host])))
        options.setdefault(script, []).append((lift + gap, host))
    joined = []
    for script, hosts in options.items():
        best = min(hosts)[1]
        level, reach = float(runs.base[best]), 0.2 * float(runs.size[best])
        joined += [(script, host) for _, host in hosts if abs(float(runs.base[host]) - level) <= reach]
        size = float(runs.size[script])
        larger = [option for option in hosts if runs.size[option[1]] > 1.1 * size and option[0] < 0.5 * size]
        if larger and runs.size[best] < 0.9 * size:  # the best host is a script of the script
            joined.append((script, min(larger)[1]))
    return joined


def _segment(words: Words, runs: Runs, members: list[int]) -> Segment:
    indices = [word for run in members for word in range(int(runs.first[run]), int(runs.end[run]))]
    if len(members) == 1:
        run = members[0]
        ordered = _sorted(words, indices)
        return Segment(
            ordered,
            int(runs.turn[run]),
            float(runs.u0[run]),
            float(runs.u1[run]),
            float(runs.base[run]),
            _main(words, ordered),
            int(runs.tags[run]),
        )
    main = _main(words, indices)
    body = max(members, key=lambda run: (abs(runs.size[run] - main) < 0.1 * main, runs.u1[run] - runs.u0[run]))
    low, high = min(float(runs.u0[run]) for run in members), max(float(runs.u1[run]) for run in members)
    turn, tag = int(runs.turn[members[0]]), int(runs.tags[members[0]])
    return Segment(_sorted(words, indices), turn, low, high, float(runs.base[body]), main, tag)


def _sorted(words: Words, indices: list[int]) -> list[int]:
    starts = words.u0[indices].tolist()
    return [indices[place] for place in sorted(range(len(indices)), key=starts.__getitem__)]


def _main(words: Words, indices: list[int]) -> float:
    """Return the font size of most glyphs."""
    weights: dict[float, int] = {}
    for index in indices:
        size = round(float(words.size[index]), 1)
        weights[size] = weights.get(size, 0) + int(words.end[index] - words.first[index])
    return max(weights.items(), key=lambda item: (item[1], item[0]))[0]


def gaps_within(words: Words, segment: Segment) -> list[float]:
    """Return the gaps between a segment's words in font sizes, left to right, without touching words."""
    low, high = words.u0[segment.words], words.u1[segment.words]
    gaps: Floats = (low[1:] - np.maximum.accumulate(high)[:-1]) / max(segment.size, 1e-6)
    return [gap for gap in gaps.tolist() if gap > 0.1]


# Wide gaps on one baseline: gutters, edges of table cells, or wide spaces of a justified line.


#: Least ratio of the sizes of two texts that are one line in spite of a wide gap. Notes beside a text are smaller.
_ALIKE = 0.87
#: Gaps in font sizes: never joined beyond `_WIDEST`; joined up to `_WIDE` without other evidence.
_WIDE, _WIDEST = 1.4, 2.5
#: The left edge of a column has more line beginnings than this. Words of justified lines begin anywhere.
_COLUMN_LINES = 12
#: Limit of drop capitals per page.
_MOST_CAPITALS = 20
#: Least size of a drop capital in sizes of the text.
_DROP_CAPITAL = 1.8
_VOWEL = re.compile("[aeiouyà-ü]")
_MARKER = re.compile(r"[•▪▫●○■□◦‣⁃–—*·➢✓❑-]|\(?\d{1,3}[.)]|\(?[a-zA-Z][.)]|\(?[ivxIVX]{1,5}[.)]|\[\d{1,3}\]")
_SECTION = re.compile(r"\d{1,2}(\.\d{1,2}){1,3}\.?")


class _Row:
    """Gap between two adjacent segments."""

    __slots__ = ("base", "left", "right", "size", "u0", "u1")

    def __init__(self, left: int, right: int, segments: list[Segment]) -> None:
        self.left, self.right = left, right
        self.u0, self.u1 = segments[left].u1, segments[right].u0
        self.base, self.size = segments[left].base, min(segments[left].size, segments[right].size)


def joined_over_gaps(words: Words, segments: list[Segment]) -> list[Segment]:
    """Join adjacent segments whose gap is only a wide space. All segments belong to one frame."""
    segments = sorted(segments, key=lambda segment: segment.base)
    gaps = _gaps(segments)
    edges = _Edges(segments)
    groups = Groups(len(segments))
    inner = {gap.right for gap in gaps}
    for gap in gaps:
        if segments[gap.left].tag != segments[gap.right].tag:
            continue
        wide = (gap.u1 - gap.u0) / max(gap.size, 1e-6)
        marker = wide <= 2.0 and gap.left not in inner and _marks(words, segments[gap.left], segments[gap.right])
        if marker or (wide <= _WIDEST and _is_space(words, segments, gap, wide, gaps, edges)):
            groups.join(gap.right, gap.left)
    return [_merged([segments[i] for i in members]) for members in groups.lists()]


def _gaps(segments: list[Segment]) -> list[_Row]:
    """Return each segment with its next neighbor to the right on the same baseline."""
    bases = [segment.base for segment in segments]
    found = []
    for index, segment in enumerate(segments):
        reach = 0.2 * segment.size
        best = -1
        for other in range(bisect_left(bases, segment.base - reach), len(segments)):
            if bases[other] > segment.base + reach:
                break
            near = segments[other].u0 > segment.u1 and (best < 0 or segments[other].u0 < segments[best].u0)
            if near and _ALIKE * max(segment.size, segments[other].size) <= min(segment.size, segments[other].size):
                best = other
        if best >= 0:
            found.append(_Row(index, best, segments))
    return sorted(found, key=lambda gap: gap.base)


class _Edges:
    """Left edges of segments, for finding common edges."""

    def __init__(self, segments: list[Segment]) -> None:
        self._lefts = sorted((segment.u0, segment.base) for segment in segments)

    def begins_here(self, u: float, base: float, size: float) -> int:
        """Return the number of other lines within four lines above and below that begin at `u`."""
        count = 0
        for index in range(bisect_left(self._lefts, (u - 0.25 * size, -1e9)), len(self._lefts)):
            left, level = self._lefts[index]
            if left > u + 0.25 * size:
                break
            count += 0.5 * size < abs(level - base) < 6 * size
        return count

    def is_column(self, u: float, size: float) -> bool:
        """Return whether `u` is the left edge of a column: more than `_COLUMN_LINES` lines of the page begin there."""
        first = bisect_left(self._lefts, (u - 0.1 * size, -1e9))
        return bisect_left(self._lefts, (u + 0.1 * size, 1e9)) - first > _COLUMN_LINES


def _marks(words: Words, left: Segment, right: Segment) -> bool:
    """Return whether the left segment is a list item's mark or a section's number."""
    if len(left.words) != 1:
        return False
    text = words.texts[left.words[0]]
    return bool(_MARKER.fullmatch(text) or (_SECTION.fullmatch(text) and words.texts[right.words[0]][:1].isalpha()))


def _is_space(words: Words, segments: list[Segment], gap: _Row, wide: float, gaps: list[_Row], edges: _Edges) -> bool:
    left, right = segments[gap.left], segments[gap.right]
    if wide > 0.9 and edges.is_column(right.u0, right.size):
        return False
    others = gaps_within(words, left) + gaps_within(words, right)
    if len(others) >= 2 and median(others) >= 0.4 and wide <= 1.6 * median(others):
        return True  # the whole line is stretched
    if wide > _WIDE or edges.begins_here(right.u0, right.base, right.size) >= 2:
        return False
    return not _continues(gap, gaps)


def _continues(gap: _Row, gaps: list[_Row]) -> bool:
    """Return whether an adjacent line has a gap at the same place, as in a gutter or table."""
    bases = [other.base for other in gaps]
    reach = 2.2 * gap.size
    for index in range(bisect_left(bases, gap.base - reach), len(gaps)):
        other = gaps[index]
        if other.base > gap.base + reach:
            return False
        shared = min(gap.u1, other.u1) - max(gap.u0, other.u0)
        if abs(other.base - gap.base) > 0.5 * gap.size and shared > 0.4 * gap.size:
            return True
    return False


def _merged(members: list[Segment]) -> Segment:
    if len(members) == 1:
        return members[0]
    members.sort(key=lambda segment: segment.u0)
    main = max(members, key=lambda segment: len(segment.words))
    words = [word for segment in members for word in segment.words]
    return Segment(words, main.turn, members[0].u0, max(m.u1 for m in members), main.base, main.size, main.tag)


def is_apart_capital(capital: str, rest: str, words: Container[str]) -> bool:
    """Return whether a drop capital is a word before the rest of its line, as in `A river`, not a part as in `In`."""
    if capital not in "AIO" or not _VOWEL.search(rest):
        return False
    return rest in words or (capital + rest not in words and capital.lower() + rest not in words)


def with_drop_capitals(words: Words, segments: list[Segment]) -> list[Segment]:
    """Join a large first letter to the line with the same top."""
    usual = median([segment.size for segment in segments])
    letters = [
        s
        for s in segments
        if s.size >= _DROP_CAPITAL * usual and len(s.words) == 1 and len(words.texts[s.words[0]]) == 1
    ]
    taken: set[int] = set()
    for capital in letters[:_MOST_CAPITALS]:
        if not words.texts[capital.words[0]].isalpha():
            continue
        top = capital.base - 0.7 * capital.size
        for line in segments:
            beside = -0.3 <= (line.u0 - capital.u1) / line.size <= 1
            larger = line is not capital and capital.size >= _DROP_CAPITAL * line.size
            if larger and beside and abs(line.base - 0.7 * line.size - top) <= 0.6 * line.size:
                line.words.insert(0, capital.words[0])
                line.u0 = capital.u0
                taken.add(id(capital))
                break
    return [segment for segment in segments if id(segment) not in taken]


# Text layer of a PDF page as lines and words.


#: Gap in font sizes from which non-consecutive glyphs of the PDF have a space between them.
_SPACE = 0.17
#: The same for consecutive glyphs: pdfium has already reported their spaces, so that only a wide gap is a space.
_MISSED_SPACE = 0.5
#: Largest gap in font sizes of glyphs that touch.
_TOUCHING = 0.03
#: Size of a script, relative to its line: TeX has 0.7 (0.5 in a script), Word and OpenType fonts 0.58 to 0.7, InDesign
#: and LibreOffice 0.58, browsers 0.83. Small capitals have these sizes too, but the line's baseline. WeasyPrint has 0.8
#: to 0.97, half a size above or below the line: from such a shift on, the third value is the largest.
_SCRIPT_SIZE, _SHIFTED = (0.4, 0.88, 0.98), 0.3
#: Height of a superscript's baseline in font sizes of the line: TeX has 0.29 to 0.41 (0.6 in a script), Word, InDesign,
#: and browsers 0.33, OpenType fonts up to 0.5.
_RAISED = (0.2, 0.75)
#: Depth of a subscript's baseline: LibreOffice has 0.08, OpenType fonts 0.08 to 0.14, TeX 0.15 to 0.25, browsers 0.2,
#: WeasyPrint up to 0.49.
_LOWERED = (0.06, 0.5)
#: Gap in font sizes of the line between a script and the text that it belongs to: at most a word space.
_SCRIPT_GAP = 0.35
#: Least size of a watermark in sizes of the text, and length in widths of all text: labels of an axis or a map, and
#: heads of a table, may be at an angle, too.
_WATERMARK = (2.5, 0.2)
#: Signs that are high, low, or small in every font.
_NO_SCRIPT = frozenset("'’‘\"“”′″°ªº¹²³⁰⁴⁵⁶⁷⁸⁹™®©.,;:…·⁄")


#: Number of a word's last parts among which a sign may have its neighbor, on pages with right-to-left text.
_MOST_PARTS = 20
#: Opening brackets and quotes; both kinds with their counterparts.
_OPENING = "([{«‹"
_MIRRORED = dict(zip("([{«‹)]}»›", ")]}»›([{«‹", strict=True))
#: Signs at the end of a sentence or a part of it.
_ENDS = frozenset(".,;:!?،؛؟")


def page_content(
    page: pypdfium2.PdfPage, objects: Objects | None = None, picture: "Image.Image | None" = None
) -> PageContent:
    """Return the content of the page besides its pixels.

    Call the function in a worker process: pdfium is not thread-safe and may crash on a damaged file.

    Args:
        page: Page in pdfium.
        objects: Result of `page_objects`, if already known.
        picture: Picture of the page. Words that it does not show are left out; without it, all words are included.
    """
    frame = page_frame(page)
    found = objects or page_objects(page, frame)
    chars = read_chars(page, frame, found, None if picture is None else levels_of(picture))
    shown = Box(0, 0, frame.width, frame.height)
    scan = any(shown.covered_by(raster.box) > SCAN for raster in found.rasters)
    glyphs = glyphs_of(chars, frame.width, frame.height)
    lines = _lines(glyphs, scripts=not scan)
    tagged, tags = ((), ()) if scan or len(lines) > MOST_LINES else _tagged_lines(page, glyphs)
    lines = tagged or lines
    places = page_links(page, frame)
    addresses = tuple(dict.fromkeys(address for _, address in places))
    if places:
        numbered = [(box, addresses.index(address) + 1) for box, address in places]
        lines = tuple(_with_links(line, numbered) for line in lines)
    objects_of_page = tuple(found.rasters), tuple(found.paths)
    counts = glyphs.unmapped, chars.unread
    shown_and_hidden = addresses, chars.invisible
    return PageContent(frame.width, frame.height, lines, *objects_of_page, *counts, *shown_and_hidden, tags=tags)


def _tagged_lines(page: pypdfium2.PdfPage, glyphs: Glyphs) -> tuple[tuple[Line, ...], tuple[Tag, ...]]:
    """Return the lines, none of which has text of two tags, and the tags; nothing if the tags do not fit the page."""
    tags, of_glyphs = read_tags(page, glyphs.objects)
    lines = _lines(replace(glyphs, tags=of_glyphs), scripts=True) if tags else ()
    if not fit_page(lines, tags):
        return (), ()
    # The tag of a floating figure is not where the page shows its labels.
    labels = {at for at, tag in enumerate(tags) if tag.kind == "Figure" and enclosing(tags, at, CELLS) < 0}
    return tuple(replace(line, tag=-1) if line.tag in labels else line for line in lines), tags


def _with_links(line: Line, links: Sequence[tuple[Box, int]]) -> Line:
    """Return the line with the links of words that lie in the links' rectangles."""
    near = [(box, number) for box, number in links if box.intersection(line.box) > 0]
    if not near:
        return line
    numbers = [next((n for box, n in near if word.box.covered_by(box) > _LINKED), 0) for word in line.words]
    return replace(line, words=tuple(replace(word, link=n) for word, n in zip(line.words, numbers, strict=True)))


def _lines(glyphs: Glyphs, *, scripts: bool) -> tuple[Line, ...]:
    if not glyphs.texts:
        return ()
    words = words_of(glyphs)
    by_turn: dict[int, list[Segment]] = {}
    for segment in segments_of(words, runs_of(words)):
        by_turn.setdefault(segment.turn, []).append(segment)
    compose = _Composer(glyphs, words, scripts)
    large, long = _WATERMARK[0] * float(np.median(glyphs.size)), _WATERMARK[1] * float(np.ptp(glyphs.boxes[:, ::2]))
    usual = int(np.bincount(glyphs.turn).argmax())  # of a tilted page or a slanted poster not a multiple of 90
    lines: list[Line] = []
    slanted: list[tuple[Line, int]] = []  # candidates for watermarks with their angles
    for segments in by_turn.values():
        for segment in with_drop_capitals(words, joined_over_gaps(words, segments)):
            line = compose.line(segment)
            is_slanted = all(10 < (segment.turn - turn) % 90 < 80 for turn in (usual, 0))
            if is_slanted and segment.size > large and segment.u1 - segment.u0 > long:
                slanted.append((line, segment.turn))
            else:
                lines.append(line)
    others = np.array([(line.box.x0, line.box.x1, line.box.centre[1]) for line in lines]).reshape(-1, 3).T
    lines += [replace(line, watermark=_crosses(line.box, turn, others)) for line, turn in slanted]
    lines.sort(key=lambda line: (line.box.y1, line.box.x0))
    return tuple(lines)


def _crosses(box: Box, turn: int, others: Floats) -> bool:
    """Return whether the diagonal of a slanted line's box crosses other lines; a title or label does not.

    Args:
        box: The line's box.
        turn: Its angle in degrees clockwise.
        others: Left ends, right ends, and middles of the others, of shape (3, lines).
    """
    left, right, middle = others
    place = (middle - box.y0) / max(box.height, 1e-6)  # from the top of the diagonal, 0, to its end, 1
    x = box.x0 + box.width * (place if turn % 180 < 90 else 1 - place)
    return bool(((place > 0) & (place < 1) & (left < x) & (x < right)).any())


class _Composer:
    """Composer of lines from segments.

    Lists replace the words' arrays, because access to single array values is slow.
    """

    def __init__(self, glyphs: Glyphs, words: Words, scripts: bool) -> None:
        self._scripts = scripts
        self._texts = words.texts
        self._boxes: list[list[float]] = words.boxes.tolist()
        self._u0: list[float] = words.u0.tolist()
        self._u1: list[float] = words.u1.tolist()
        self._size: list[float] = words.size.tolist()
        self._base: list[float] = words.base.tolist()
        self._spaced: list[bool] = words.spaced.tolist()
        self._rtl: list[bool] = words.rtl.tolist()
        self._some_rtl = any(self._rtl)
        self._counts: list[int] = (words.end - words.first).tolist()
        self._glyphs = glyphs
        self._first: list[int] = words.first.tolist()
        self._doubtful: list[bool] = np.logical_or.reduceat(glyphs.doubtful, words.first).tolist()
        self._kinds: list[int] = _kinds(glyphs)[words.first].tolist()
        self._faces: list[list[int]] = _face_counts(glyphs, words).tolist()
        self._fonts: list[int] = glyphs.fonts[words.first].tolist()

    def line(self, segment: Segment) -> Line:
        order = self._logical(segment.words)
        lowered = self._script_words(segment) if self._scripts else {}
        for index in self._logo_letters(order):
            self._texts[index], self._spaced[index] = self._texts[index].lower(), False
            lowered.pop(index, None)
        joined = self._joined(order, lowered)
        self._name_as_shown(joined)
        made = [self._word(members) for members in joined]
        total = sum(self._counts[index] for index in order)
        bold, italic = (2 * sum(self._faces[index][face] for index in order) > total for face in range(2))
        own = order[len(order) > 1 and self._texts[order[0]].isdecimal() :]  # without the number of a program's line
        mono = sum(self._faces[index][2] for index in own) > _MONO * sum(self._counts[index] for index in own)
        text = " ".join(word.text for word in made)
        scripts = self._marked(joined, lowered)
        size = round(segment.size, 2)
        parts: tuple[Word, ...] = ()  # without bold and italics, which would enter the LaTeX of formulas
        if self._is_mixed(joined):
            words = (self._word([index]) for index in segment.words)
            parts = tuple(Word(word.text, word.box, word.doubtful) for word in words)
        stacked = segment.turn == 90 and self._glyphs.styles[self._glyphs.style[self._first[order[0]]]].angle == 0
        around = self._around(order)
        faces = bold, italic, mono, stacked
        look = tuple(made), *faces
        return Line(text, around, size, *look, scripts=scripts, parts=parts, drawn=min(order), tag=segment.tag)

    def _name_as_shown(self, joined: list[list[int]]) -> None:
        """Replace letters of other scripts that look like those of their words."""
        named = " ".join("".join(self._texts[index] for index in members) for members in joined)
        shown = without_lookalikes(named)
        at = 0
        for members in joined if shown != named else ():
            for index in members:
                end = at + len(self._texts[index])
                self._texts[index] = shown[at:end]
                at = end
            at += 1

    def _logo_letters(self, order: list[int]) -> list[int]:
        """Return the letters of the logos of TeX and LaTeX that are small in their names: the `a` and the `e`."""
        found = []
        for at in range(1, len(order) - 1):
            t, e, x = order[at - 1 : at + 2]
            if self._texts[e] != "E" or not (self._texts[t].endswith("T") and self._texts[x].startswith("X")):
                continue
            if self._base[e] - self._base[t] < 0.1 * self._size[t] or self._u0[e] > self._u1[t]:
                continue
            self._spaced[x] = False
            found.append(e)
            if self._texts[t].endswith("LAT"):  # a letter of nearly the same size
                self._texts[t] = f"{self._texts[t][:-2]}aT"
            before, a = order[at - 3 : at - 1] if at > 2 else (t, t)
            if self._texts[a] == "A" and self._texts[before].endswith("L") and self._size[a] < 0.9 * self._size[t]:
                self._spaced[t] = False
                found.append(a)
        return found

    def _is_mixed(self, joined: list[list[int]]) -> bool:
        """Return whether a word has parts of several sizes or baselines, as in formulas."""
        if not self._scripts:
            return False
        return any(
            abs(self._base[index] - self._base[members[0]]) > 0.05 * self._size[index]
            or abs(self._size[index] - self._size[members[0]]) > 0.05 * self._size[index]
            or self._kinds[index] != self._kinds[members[0]]
            or _ROOT in (self._texts[index], self._texts[members[0]])
            for members in joined
            for index in members[1:]
        )

    def _script_words(self, segment: Segment) -> dict[int, bool]:
        """Return the words that are scripts of the line, each with whether it is lowered.

        Most characters of a line are in no script. A script is next to text of the line's size, or to another script.
        """
        visual, size = segment.words, segment.size
        moved = {index: self._lowered(index, segment) for index in visual}
        small = {at for at in visual if moved[at] is not None or self._size[at] <= _SCRIPT_SIZE[1] * size}
        if 2 * sum(self._counts[index] for index in small) >= sum(self._counts[index] for index in visual):
            return {}
        found: dict[int, bool] = {}
        for ordered in (visual, visual[::-1]) if small else ():
            for before, index in pairwise(ordered):
                if index not in small or (before in small and before not in found):
                    continue
                left, right = sorted((before, index), key=self._u0.__getitem__)
                lowered = moved[index]
                if lowered is not None and self._u0[right] - self._u1[left] <= _SCRIPT_GAP * size:
                    found[index] = lowered
        for one, other in pairwise(visual if found else ()):  # numerators and denominators are no scripts
            if "⁄" in self._texts[one] + self._texts[other]:
                found.pop(one, None)
                found.pop(other, None)
        return found

    def _lowered(self, index: int, segment: Segment) -> bool | None:
        """Return whether a word is a subscript; None for a word that is no script."""
        raised = (segment.base - self._base[index]) / segment.size
        largest = _SCRIPT_SIZE[2 if abs(raised) >= _SHIFTED else 1]
        if not _SCRIPT_SIZE[0] <= self._size[index] / segment.size <= largest or self._rtl[index]:
            return None
        if _NO_SCRIPT.issuperset(self._texts[index]):
            return None
        if _RAISED[0] <= raised <= _RAISED[1]:
            return False
        return True if _LOWERED[0] <= -raised <= _LOWERED[1] else None

    def _marked(self, joined: list[list[int]], lowered: dict[int, bool]) -> tuple[Script, ...]:
        """Return the scripts of a line by their places in its text; adjacent ones of the same kind are one."""
        scripts: list[Script] = []
        if not lowered:
            return ()
        at, adjacent = 0, False
        for members in joined:
            for index in members:
                end = at + len(self._texts[index])
                if index in lowered:
                    if adjacent and scripts[-1].lowered == lowered[index]:
                        scripts[-1] = replace(scripts[-1], end=end)
                    else:
                        scripts.append(Script(at, end, lowered[index]))
                adjacent = index in lowered
                at = end
            at += 1
        return tuple(scripts)

    def _logical(self, visual: list[int]) -> list[int]:
        """Return the words in reading order: left to right, or right to left if most of the line runs so."""
        rtl = self._rtl
        if not any(rtl[index] for index in visual):
            return visual
        letters = Counter[bool]()
        for index in visual:
            letters[rtl[index]] += sum(character.isalpha() for character in self._texts[index])
        return self._from_right(visual) if letters[True] >= letters[False] else self._from_left(visual)

    def _from_left(self, visual: list[int]) -> list[int]:
        """Return the words of a line from left to right in reading order."""
        result: list[int] = []
        at = 0
        while at < len(visual):
            end = at + 1
            if self._rtl[visual[at]]:
                latin = (after for after in range(end, len(visual)) if self._is_latin(visual[after]))
                limit = next(latin, len(visual))
                end = max(after for after in range(at, limit) if self._rtl[visual[after]]) + 1
            result += self._from_right(visual[at:end])
            at = end
        return result

    def _from_right(self, visual: list[int]) -> list[int]:
        """Return the words of a line from right to left in reading order."""
        result: list[int] = []
        arabic = any("\u0600" <= self._texts[index][0] < "\u0900" for index in visual)
        for rtl, words in groupby(visual[::-1], key=self._rtl.__getitem__):
            stretch = list(words)
            result += stretch if rtl else self._embedded(stretch[::-1], arabic)
        self._face_brackets(result)
        return result

    def _face_brackets(self, order: list[int]) -> None:
        """Make brackets among right-to-left words face the word that they are beside without a space.

        Such text shows an opening bracket with the glyph of a closing one. Some PDFs store the glyph's character, and
        pdfium exchanges some. A bracket beside two words, or none, is exchanged if most others of the line are.
        """
        latin = [False, *map(self._is_latin, order), False]
        inside = [latin[at] and latin[at + 2] for at in range(len(order))]
        votes, unsure = 0, []
        for at, index in enumerate(order):
            if self._texts[index] not in _MIRRORED or inside[at]:
                continue
            behind = order[at + 1 : at + 1 + _MOST_PARTS]
            # The full stop of a sentence is behind a closing bracket.
            opening = self._touches(index, (part for part in behind if not _ENDS.issuperset(self._texts[part])))
            if opening == self._touches(index, order[max(0, at - _MOST_PARTS) : at]):
                unsure.append(index)
            elif opening == (self._texts[index] in _OPENING):
                votes += 1
            else:
                votes -= 1
                self._texts[index] = _MIRRORED[self._texts[index]]
        for index in unsure if votes < 0 else ():
            self._texts[index] = _MIRRORED[self._texts[index]]

    def _touches(self, index: int, others: Iterable[int]) -> bool:
        """Return whether a word is beside another one without a space: a bracket may be beside a number's last part."""
        return any(not self._space_between(index, other) for other in others)

    def _embedded(self, visual: list[int], arabic: bool) -> list[int]:
        """Return the words between right-to-left words in reading order: Latin words as one part, each number as one.

        By Unicode's bidirectional algorithm (UAX #9), separators between digits belong to the number. Next to Hebrew,
        so do signs such as `%` before or after it.
        """
        words = {at for at, index in enumerate(visual) if any(c.isalnum() for c in self._texts[index])}
        if any(self._is_latin(index) for index in visual):
            first, last = min(words), max(words) + 1
            return visual[last:][::-1] + visual[first:last] + visual[:first][::-1]
        parts: list[list[int]] = []
        inside = False
        for at, index in enumerate(visual):
            between = at - 1 in words and at + 1 in words and self._texts[index] in (".,:/" if arabic else ".,:/+-")
            before, inside = inside, at in words or between or (not arabic and self._texts[index] in "%$€£#°")
            if before and inside and not self._space_between(visual[at - 1], index):
                parts[-1].append(index)
            else:
                parts.append([index])
        return [index for part in parts[::-1] for index in part]

    def _is_latin(self, index: int) -> bool:
        return not self._rtl[index] and any(character.isalpha() for character in self._texts[index])

    def _joined(self, order: list[int], scripts: Mapping[int, bool]) -> list[list[int]]:
        """Join the pieces of one word, split by a change of size or by the PDF's order, not by a space."""
        groups: list[list[int]] = []
        for at, index in enumerate(order):
            before = groups[-1][-1] if groups else index
            if self._some_rtl and groups:  # a sign on the left of a number follows its last digit
                before = min(groups[-1][-_MOST_PARTS:], key=lambda at: self._distance(at, index))
            if index in scripts and scripts.get(before) != scripts[index]:
                near = self._u0[index] - self._u1[before] <= _SPACE * max(self._size[before], self._size[index])
            elif before in scripts and self._distance(before, index) < _TOUCHING * self._size[index]:
                near = True  # pdfium reports a space at a change of the baseline
            else:
                near = not self._space_between(before, index)
            if self._some_rtl and not near and not self._rtl[index] and self._texts[before] in _OPENING:
                parts = takewhile(lambda part: not self._rtl[part], order[at + 1 : at + _MOST_PARTS])
                near = self._touches(before, parts)
            if groups and near:
                groups[-1].append(index)
            else:
                groups.append([index])
        return groups

    def _distance(self, one: int, other: int) -> float:
        return max(self._u0[one] - self._u1[other], self._u0[other] - self._u1[one])

    def _space_between(self, one: int, other: int) -> bool:
        left, right = (one, other) if self._u0[one] <= self._u0[other] else (other, one)
        gap = (self._u0[right] - self._u1[left]) / min(self._size[one], self._size[other])
        first = self._texts[other][:1]
        if first.islower() and self._size[one] >= _DROP_CAPITAL * self._size[other] and self._counts[one] == 1:
            return is_apart_capital(self._texts[one], self._texts[other], self._texts) and gap > _SPACE
        if first == "⁄" or (gap < _SPACE and first in ",.;:!?)]"):
            return False  # pdfium reports a space after a raised numerator or footnote mark
        if first in "-\u2010" and gap < _TOUCHING:
            return False  # and before a hyphen at the end of a line
        if self._some_rtl and abs(one - other) == 1:  # pdfium reports spaces between adjacent letters, too
            letters = self._texts[one][-1].isalnum() and first.isalnum()
            return gap > (RTL_SPACE if letters and self._spaced[max(one, other)] else _SPACE)
        if other != one + 1 or self._rtl[one] != self._rtl[other]:
            return gap > _SPACE
        return self._spaced[other] or gap > _MISSED_SPACE

    def _word(self, members: list[int]) -> Word:
        doubtful = self._doubtful_places(members) if any(self._doubtful[index] for index in members) else ()
        bold, italic = self._face(members) if self._scripts else (False, False)
        if len(members) == 1:
            box = Box(*self._boxes[members[0]])
            return Word(self._texts[members[0]], box, doubtful, bold, italic, font=self._fonts[members[0]])
        text = "".join(self._texts[index] for index in members)
        return Word(text, self._around(members), doubtful, bold, italic, font=self._fonts[members[0]])

    def _face(self, members: list[int]) -> tuple[bool, bool]:
        """Return whether most of a word is bold, and italic."""
        faces, half = [self._faces[index] for index in members], sum(self._counts[index] for index in members) / 2
        return sum(face[0] for face in faces) > half, sum(face[1] for face in faces) > half

    def _doubtful_places(self, members: list[int]) -> tuple[int, ...]:
        places: list[int] = []
        at = 0
        for index in members:
            for glyph in range(self._first[index], self._first[index] + self._counts[index]):
                end = at + len(self._glyphs.texts[glyph])
                if self._glyphs.doubtful[glyph]:
                    places += range(at, end)
                at = end
        return tuple(places)

    def _around(self, members: list[int]) -> Box:
        boxes = [self._boxes[index] for index in members]
        low, high = (min(box[0] for box in boxes), min(box[1] for box in boxes)), max(box[2] for box in boxes)
        return Box(*low, high, max(box[3] for box in boxes))


def _face_counts(glyphs: Glyphs, words: Words) -> Ints:
    """Return the number of bold, italic, and mono glyphs of each word, (n, 3)."""
    styles = np.array([(style.bold, style.italic, style.mono) for style in glyphs.styles], dtype=np.int64)
    faces = styles[glyphs.style]
    faces[:, 0] |= glyphs.thick
    counts: Ints = np.add.reduceat(faces, words.first, axis=0)
    return counts
