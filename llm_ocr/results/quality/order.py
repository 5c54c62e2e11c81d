"""Judge the order of an answer: that of its blocks by their boxes, and that of its text by the lines of the page."""

import unicodedata
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, combinations, groupby, pairwise
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from llm_ocr.results.quality.text_layer import (
    ENOUGH_LETTERS,
    PASSAGE,
    BlockText,
    in_margin,
    matched_passages,
    words_of,
)
from llm_ocr.types import FURNITURE, BlockKind, Box, Evidence, Span

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Reals = npt.NDArray[np.float64]

#: Kinds that may be anywhere in an answer, whatever their position on the page; tables are read row by row.
ASIDE = FURNITURE | {BlockKind.FIGURE, BlockKind.TABLE, BlockKind.CAPTION, BlockKind.FOOTNOTE}
#: Upper limit of parts to compare pairwise; of more, every second, third … is used.
_MOST = 150
#: Two parts are side by side, or above each other, if they share this much of the smaller height or width.
_SHARED = 0.5
#: Fewer pairs than this are not judged.
_ENOUGH_BOXES = 6


def in_order(parts: Sequence[tuple[str, Box]]) -> float | None:
    """Return the share of pairs of parts that are read in order; None if there are too few.

    `parts` are texts and boxes in the order of the answer. The result is the worst of three shares. The first is of
    pairs above each other that are read downward. The second is of pairs side by side that are read in the direction of
    the page's script. The third is of steps between parts that do not jump over a gutter to the same height and back.
    Tall parts of wide letters, as in Chinese and Japanese, may be vertical writing; the better direction counts.
    """
    import numpy as np

    step = -(-len(parts) // _MOST) or 1
    sides = np.array([(box.x0, box.y0, box.x1, box.y1) for _, box in parts[::step]]).reshape(-1, 4)
    counts: Counter[str] = Counter()
    for letter, count in Counter("".join(text for text, _ in parts)).items():  # few distinct letters occur
        counts["wide" if unicodedata.east_asian_width(letter) == "W" else unicodedata.bidirectional(letter)] += count
    left, top, right, bottom = sides.T
    if counts["R"] + counts["AL"] > counts["L"] + counts["wide"]:  # as in Hebrew or Arabic (UAX 9)
        left, right = -right, -left
    level = _in_order(left, top, right, bottom, every=step == 1)
    tall = sum(len(text) * (box.height > box.width) for text, box in parts)
    if level is None or counts["wide"] <= counts["L"] or 2 * tall < sum(len(text) for text, _ in parts):
        return level
    return max(level, _in_order(top, -right, bottom, -left, every=step == 1) or 0.0)


def _in_order(left: "Reals", top: "Reals", right: "Reals", bottom: "Reals", *, every: bool) -> float | None:
    """Return the worst of the three shares of `in_order`, for parts read to the right and downward."""
    import numpy as np

    left, top, right, bottom = (side[:, None] for side in (left, top, right, bottom))
    later = np.triu(np.ones((len(left), len(left)), np.bool_), 1)
    across, wide = _overlap(left, right)
    down, high = _overlap(top, bottom)
    side_by_side = later & (down > _SHARED * high) & (across <= 0)
    above = later & (across > _SHARED * wide) & (down <= 0)
    shares = [
        1 - float(wrong.sum()) / float(pairs.sum())
        for wrong, pairs in ((side_by_side & (left > left.T), side_by_side), (above & (top > top.T), above))
        if pairs.sum() >= _ENOUGH_BOXES
    ]
    if len(left) > _ENOUGH_BOXES and every:
        shares.append(1 - float(np.diagonal(side_by_side, 1).mean()))
    return min(shares) if shares else None


def _overlap(low: "Reals", high: "Reals") -> tuple["Reals", "Reals"]:
    """Return the pairwise overlap, and the smaller size of each pair."""
    import numpy as np

    size = high - low
    return np.minimum(high, high.T) - np.maximum(low, low.T), np.minimum(size, size.T)


#: Kinds whose text may repeat that of other blocks.
_UNVISITED = FURNITURE | {BlockKind.FIGURE}
#: Fewest letters of a line whose place in the answer is compared, and share of them that the answer has in one place.
_LEAST_LINE, _MOST_OF_LINE = 20, 0.5


@dataclass(frozen=True, slots=True)
class Matches:
    """Passages that an answer has in common with the lines of a page, both as letters without spaces.

    `words`: number of the block, word, and place in the block's text, for each word of the answer; `ends`: of the lines
    in the letters of the page; `passages`: start in the answer, start on the page, and length, as from
    `matched_passages`; `taken`: 1 for each letter of the page that is in a passage.
    """

    answer: str
    page: str
    words: Sequence[tuple[int, str, tuple[int, int]]]
    ends: Sequence[int]
    passages: Sequence[tuple[int, int, int]]
    taken: bytearray


def matches_of(lines: Sequence[tuple[str, Box]], texts: Sequence[BlockText]) -> Matches:
    """Return the passages that the answer and the lines of the page have in common; none of too few letters."""
    own = [
        (number, word, place)
        for number, entry in enumerate(texts)
        for chunk in entry.chunks
        for word, place in zip(chunk.words, chunk.places, strict=True)
    ]
    printed = [words_of(text) for text, _ in lines]
    answer, page = "".join([word for _, word, _ in own]), "".join(map("".join, printed))
    ends = list(accumulate(sum(map(len, words)) for words in printed))
    sizes = [len(word) for _, word, _ in own], [len(word) for words in printed for word in words]
    taken = bytearray(len(answer)), bytearray(len(page))
    is_enough = min(len(answer), len(page)) >= ENOUGH_LETTERS
    passages = sorted(matched_passages((answer, page), sizes, PASSAGE, taken)) if is_enough else []
    return Matches(answer, page, own, ends, passages, taken[1])


class Visit(NamedTuple):
    """Place of a line of the page in an answer: the number of the block, and the start and end in its text."""

    line: int
    block: int
    start: int
    end: int


def visits_of(matches: Matches, texts: Sequence[BlockText]) -> list[Visit]:
    """Return the lines of which the answer has most, in the order of the answer; none that the page repeats.

    A shorter line is one if it is the whole text of a block, such as a heading.
    """
    answer, page, own, ends = matches.answer, matches.page, matches.words, matches.ends
    word_starts = list(accumulate((len(word) for _, word, _ in own), initial=0))
    parts = []

    def is_repeated(start: int, place: int, length: int) -> bool:
        own, printed = answer[start : start + length], page[place : place + length]
        return answer.find(own) != answer.rfind(own) or page.find(printed) != page.rfind(printed)

    for start, place, length in matches.passages:
        while length > 0:
            line = bisect_right(ends, place)
            size = min(length, ends[line] - place)
            if not is_repeated(start, place, size):
                parts.append((start, size, line))
            start, place, length = start + size, place + size, length - size
    found: list[tuple[Visit, int]] = []
    for start, size, line in parts:
        (block, _, first), (last_block, _, last) = (
            own[bisect_right(word_starts, at) - 1] for at in (start, start + size - 1)
        )
        if last_block != block or texts[block].block.kind in _UNVISITED:  # the former: the same letters by chance
            continue
        visit = Visit(line, block, first[0], last[1])
        if found and found[-1][0][:2] == visit[:2]:
            earlier, letters = found.pop()
            visit, size = visit._replace(start=earlier.start), letters + size
        found.append((visit, size))
    result = []
    for visit, size in found:
        start, end = ends[visit.line - 1] if visit.line else 0, ends[visit.line]
        is_whole = end - start == size == sum(len(chunk.letters) for chunk in texts[visit.block].chunks)
        if (end - start >= _LEAST_LINE or is_whole) and size >= _MOST_OF_LINE * (end - start):
            text = page[start:end]
            if page.find(text) == page.rfind(text):
                result.append(visit)
    return result


#: Largest distance of two lines of a column, in heights of a line, and least distance of their centers.
_APART, _BELOW = 2.5, 0.6
#: Largest difference of the heights of lines of one text. Captions are often smaller than the text beside them.
_SAME_HEIGHT = 0.1
#: Characters after which another sentence begins, and hyphens, after which a word goes on.
_ENDS, _HYPHENS = ".!?:;|", "-\u2010\u00ad"
#: Fewest lines of a column that go on in the next line: columns of a form have fewer.
_PROSE = 2


def misplaced(
    lines: Sequence[tuple[str, Box]], texts: Sequence[BlockText], visits: Sequence[Visit], *, drawn: bool
) -> list[Span]:
    """Return the places of an answer's text where the page has other text.

    A line of the page follows another one if it is below it in a column, and if the file draws it next. The answer is
    wrong in three cases: it has other text in the middle of a sentence that goes on in the next line; it has the next
    line first; it changes between two columns for the third time. Text that models move, such as captions, footnotes,
    and tables, is not compared.

    Args:
        lines: Texts and relative boxes of the page's lines, in the answer's orientation.
        texts: The texts of the answer's blocks.
        visits: The lines in the order of the answer.
        drawn: Whether the lines are in the order in which the file draws them.

    Returns:
        The places in the order of the answer.
    """
    counts = Counter(visit.line for visit in visits)
    at = {visit.line: number for number, visit in enumerate(visits) if counts[visit.line] == 1}
    below = lines_below(lines, drawn=drawn)
    following: dict[int, int] = {}
    for upper in below:
        lower = below[upper]
        if lower not in at and below.get(lower) in at:  # the short last line of a paragraph
            lower = below[lower]
        if upper in at and lower in at:
            following[upper] = lower
    preceding = {lower: upper for upper, lower in following.items()}
    body = {line for line, number in at.items() if texts[visits[number].block].block.kind not in ASIDE}
    block = {line: visits[number].block for line, number in at.items()}

    def rest_of_block(line: int, step: Mapping[int, int]) -> tuple[list[int], bool]:
        """Return the lines of a block from one line on, and whether running text follows."""
        some = [line]
        while step.get(some[-1], -1) in at and block[step[some[-1]]] == block[line]:
            some.append(step[some[-1]])
        return some, step.get(some[-1], -1) in body

    def is_one_text(upper: int, lower: int) -> bool:
        """Return whether both lines are running text, and none is a caption that a model may move."""
        if upper not in body or lower not in body:
            return False
        (above, is_before), (below, is_after) = rest_of_block(upper, preceding), rest_of_block(lower, following)
        if block[upper] == block[lower]:
            return True
        if min(len(above), len(below)) == 1:  # the height of a single line depends on its letters
            return is_before and is_after
        first, second = (median(lines[line][1].height for line in some) for some in (above, below))
        return abs(first - second) < _SAME_HEIGHT * max(first, second)

    found = set(_in_turns(lines, visits, following, body))
    for upper, lower in following.items():
        first, second = at[upper], at[lower]
        if second == first + 1:
            continue
        next_is_inside = first + 1 < len(visits) and visits[first + 1].block == block[upper]
        last_is_inside = second > 0 and visits[second - 1].block == block[lower]
        # A caption without a period may be above a text that goes on from another column.
        is_direct = below[upper] == lower
        if is_direct and next_is_inside is last_is_inside and _goes_on(lines[upper][0], lines[lower][0]):
            found.add(first + 1 if first + 1 < len(visits) else second)
        elif second < first and is_one_text(upper, lower):
            found.add(second)
    return [Span(*visits[number][1:]) for number in sorted(found)]


def _in_turns(
    lines: Sequence[tuple[str, Box]], visits: Sequence[Visit], following: Mapping[int, int], body: set[int]
) -> list[int]:
    """Return the numbers of the visits where the answer changes between two columns of prose for the third time."""
    column: dict[int, int] = {}
    sentences: Counter[int] = Counter()
    for upper, lower in following.items():  # from top to bottom
        column[lower] = column.setdefault(upper, upper)
        sentences[column[upper]] += _goes_on(lines[upper][0], lines[lower][0])
    prose = [number for number, visit in enumerate(visits) if visit.line in body and visit.line in column]
    steps: list[tuple[int, int]] = []  # columns, and the numbers of the first visits
    for own, group in groupby(prose, lambda number: column[visits[number].line]):
        first, *more = group
        if more and sentences[own] >= _PROSE:  # a single line may be a running foot
            steps.append((own, first))
    counts = Counter(own for own, _ in steps)
    steps = [step for step in steps if counts[step[0]] > 1]
    found = []
    for pair in combinations({own for own, _ in steps}, 2):
        turns = [step for step in steps if step[0] in pair]
        found += [number for _, number in [b for a, b in pairwise(turns) if a[0] != b[0]][2:]]
    return found


def lines_below(lines: Sequence[tuple[str, Box]], *, drawn: bool) -> dict[int, int]:
    """Return the lines below others in a column, by the number of the line above, from top to bottom."""
    chosen = [number for number, (_, box) in enumerate(lines) if not in_margin(box) and box.width > box.height]
    if drawn:
        pairs = [(upper, lower) for upper, lower in pairwise(chosen) if lower == upper + 1]
        return {upper: lower for upper, lower in pairs if _is_below(lines[lower][1], lines[upper][1])}
    chosen.sort(key=lambda number: lines[number][1].centre[1])
    nearest = {}
    for at, upper in enumerate(chosen):
        box = lines[upper][1]
        for lower in chosen[at + 1 :]:
            if lines[lower][1].centre[1] > box.y1 + (_APART + 1) * box.height:
                break
            if _is_over(box, lines[lower][1]):
                if _is_below(lines[lower][1], box):
                    nearest[upper] = lower
                break
    counts = Counter(nearest.values())
    return {upper: lower for upper, lower in nearest.items() if counts[lower] == 1}


def _is_over(upper: Box, lower: Box) -> bool:
    """Return whether two lines share most of the width of the shorter one."""
    return min(upper.x1, lower.x1) - max(upper.x0, lower.x0) > _SHARED * min(upper.width, lower.width)


def _is_below(lower: Box, upper: Box) -> bool:
    """Return whether a line is below another one in a column."""
    height = min(upper.height, lower.height)
    is_near = -_SHARED * height < lower.y0 - upper.y1 < _APART * height
    return is_near and lower.centre[1] - upper.centre[1] > _BELOW * height and _is_over(upper, lower)


def _goes_on(upper: str, lower: str) -> bool:
    """Return whether a sentence or a word goes on in the lower line."""
    upper, lower = upper.rstrip(), lower.lstrip()
    if not upper or not lower:
        return False
    return (lower[0].islower() and upper[-1] not in _ENDS) or (upper[-1] in _HYPHENS and lower[0].isalpha())


#: Minimum steps from line to line for judging their direction.
_ENOUGH_STEPS = 4
#: The same for steps between columns, and the minimum width of a column's line. Good answers of `benchmarks/quality.py`
#: have at most 0.1 of their steps between columns; if read across the columns, 0.2 to 0.6.
_ENOUGH_CROSSED, _COLUMN = 7, 0.15


def layer_order(evidence: Evidence, texts: Sequence[BlockText], visits: Sequence[Visit]) -> float | None:
    """Return whether the answer's text follows the columns of the layer; None for too little or vertical text.

    `visits` are those of the layer's lines as displayed.
    """
    lying = sum(len(text) for text, box in evidence.lines if box.width > box.height)
    if 2 * lying < sum(len(text) for text, _ in evidence.lines):
        return None
    # A head, a foot, or a vertical stamp in the margin has no place in the order of the columns.
    aside = {number for number, (_, box) in enumerate(evidence.lines) if in_margin(box) or box.height > box.width}
    places = [at.line for at in visits if at.line not in aside and texts[at.block].block.kind not in ASIDE]
    moves = [(before, after) for before, after in pairwise(places) if after != before]
    if len(moves) >= _ENOUGH_STEPS and sum(after > before for before, after in moves) <= 0.1 * len(moves):
        # The lines are read from last to first. Lines of upside-down text go upward. Files of the opposite order also
        # exist, and their sentences flow upward.
        lines = [text.strip() for text, _ in evidence.lines if len(text.strip()) > 1]
        if _flow(lines) > _flow(lines[::-1]):
            return 0.0
    shares = [in_order([evidence.lines[number] for number in places])]
    if len(moves) >= _ENOUGH_CROSSED:
        # Steps to another column within sentences. At the end of each column, a sentence goes on in the next one: only
        # steps there and back are errors.
        steps = [(evidence.lines[before], evidence.lines[after]) for before, after in moves]
        sides = Counter(
            before.x0 < after.x0
            for (upper, before), (lower, after) in steps
            if min(before.width, after.width) > _COLUMN
            and min(before.x1, after.x1) <= max(before.x0, after.x0)
            and (lower.lstrip()[:1].islower() or upper.rstrip()[-1:] == "-")
        )
        shares.append(1 - 2 * min(sides[True], sides[False]) / len(steps))
    return min((share for share in shares if share is not None), default=None)


def _flow(lines: Sequence[str]) -> int:
    """Return the number of lines in lower case after a line that ends no sentence."""
    return sum(lower[0].islower() and upper[-1] not in ".!?:;" for upper, lower in pairwise(lines)) - sum(
        lower[0].islower() and upper[-1] in ".!?" for upper, lower in pairwise(lines)
    )


#: Kinds of blocks whose text runs on.
_RUNNING = (BlockKind.TEXT, BlockKind.LIST_ITEM, BlockKind.FOOTNOTE)
#: Most lines from one passage of an answer to its next one, and most letters between the two passages.
_CHAIN, _BETWEEN = 6, 8
#: Fewest letters that an answer skips, and their share of the page's letters between the passages.
_SKIPPED, _MOSTLY = 26, 0.8


def skipped_lines(
    lines: Sequence[tuple[str, Box]], texts: Sequence[BlockText], matches: Matches, *, drawn: bool
) -> dict[int, int]:
    """Return the letters of the lines that an answer skips: it has what is before and after them in a column.

    The words of a lost line are often elsewhere on the page, too, and left over there: words alone do not show it.

    Args:
        lines: Texts and relative boxes of the page's lines, in the answer's orientation.
        texts: The texts of the answer's blocks.
        matches: What both have in common.
        drawn: Whether the lines are in the order in which the file draws them.

    Returns:
        The letters by the number of the line.
    """
    blocks = [number for number, word, _ in matches.words for _ in word]
    below, ends = lines_below(lines, drawn=drawn), matches.ends
    lost: dict[int, int] = {}
    for (start, place, length), (next_start, next_place, _) in pairwise(matches.passages):
        between, block = next_start - start - length, blocks[next_start]
        if between > _BETWEEN or blocks[start + length - 1] != block or texts[block].block.kind not in _RUNNING:
            continue
        chain, last = [bisect_right(ends, place + length - 1)], bisect_right(ends, next_place)
        while chain[-1] != last and chain[-1] in below and len(chain) < _CHAIN:
            chain.append(below[chain[-1]])
        if chain[-1] != last:
            continue
        size, free = 0, {}
        for number in chain:
            first = place + length if number == chain[0] else ends[number - 1]
            part = matches.taken[first : next_place if number == last else ends[number]]
            size, free[number] = size + len(part), part.count(0)
        if sum(free.values()) - between >= _SKIPPED and sum(free.values()) > _MOSTLY * size:
            lost |= {number: letters for number, letters in free.items() if letters >= PASSAGE}
    return lost
