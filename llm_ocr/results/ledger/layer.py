"""Compare the answer with a true text layer."""

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from difflib import SequenceMatcher
from itertools import accumulate, groupby
from statistics import median_high
from typing import TYPE_CHECKING, NamedTuple

from llm_ocr.documents.ink import ink_without
from llm_ocr.results.ledger.ink import FEWEST, Unread, Unsupported
from llm_ocr.results.quality.text_layer import (
    ENOUGH_LETTERS,
    FORMULA,
    LETTERS,
    MISREAD,
    SHORTEST,
    UNVERIFIABLE,
    BlockText,
    Chunk,
    aligned,
    chunks_of,
    folded,
    formulas_in,
    in_margin,
    is_prose,
    passages,
    size_lacking,
    size_of,
    without_formulas,
)
from llm_ocr.types import Attempt, BlockKind, Box, Evidence, Span

if TYPE_CHECKING:
    from llm_ocr.results.ledger.ink import Mask

#: Numbers with their separators, and least digits of a number that is compared: shorter ones are on every page.
NUMBER = re.compile(r"\d(?:[\d.,:/’'\u00a0\u202f\u2010-\u2015\u2212-]*\d)?")
DIGITS = 2
#: A dash within a number, or between two.
_DASH = re.compile(r"(?<=\d)[\u2010-\u2015\u2212-](?=\d)")
#: Words of at least four letters. Those with a capital are compared as names.
NAME = re.compile(r"(?<![^\W_])[^\W\d_][^\W\d_]{3,}")
#: Signs of negative numbers, and the digits of a group.
_MINUS, _GROUP = ("-", "\u2010", "\u2011", "\u2013", "\u2212"), 3
#: Height from the edges of the page, relative, in which a running head or foot may be, and its most characters.
_EDGE, _HEAD = 0.12, 200
#: Height of a line, in heights of most lines, from which it is a title, and no running head; its letters are as wide.
_TITLE = 1.4
#: Names that a layer may lack until it is taken for a layer with broken words.
_ENOUGH_NAMES = 0.1
#: Fewest letters of lines that the answer lacks as a whole, and the share that it lacks of each.
_LEAST_LINE, _MOSTLY = 10, 0.75
#: Fewest letters of a word that stands for another, and similarity from which it is the same word, misread.
_REPLACED, _SIMILAR = 4, 0.5
#: Units in lower case. Those of one quantity differ in one letter.
_UNIT = re.compile("[mkcdn\u03bch]?(?:g|m|l|s|mol|w|v)|h|min|t")
#: Least share of a page with a lost or wrong word, above the limit of a page that balances.
_LEAST_SHARE = 0.002
#: A word, which is longer than the symbols of a formula, such as `x12` and `sin`.
_WORD = re.compile(r"[^\W_]{4}")


def compare_with_layer(
    evidence: Evidence, black: "Mask", attempt: Attempt, texts: Sequence[BlockText], skipped: Mapping[int, int]
) -> tuple[Unread, Unsupported]:
    """Compare the answer with a true text layer, both ways, in chunks of about a line, and by numbers and names.

    `skipped`: letters of the lines that are known to be lost, by their numbers in the layer.
    """
    lines = [(text, box.turned(attempt.rotation)) for text, box in evidence.lines]
    is_optional = optional_lines(lines, attempt, texts)
    demanded, optional = (
        [line for line, free in zip(lines, is_optional, strict=True) if free is which] for which in (False, True)
    )
    printed = "\n".join(text for text, _ in demanded)
    wanted, allowed = chunks_of(printed), chunks_of("\n".join(text for text, _ in optional))
    layer = [*wanted, *allowed]
    # A figure may repeat a caption that is a block of its own, and a manual of LaTeX prints the commands of formulas.
    aside = [chunk for entry in texts if entry.block.kind is BlockKind.FIGURE for chunk in entry.chunks]
    sources = [entry.block.text for entry in texts if "\\" in entry.block.text]
    aside += chunks_of("\n".join(formula for text in sources for formula in FORMULA.findall(text)))
    own = _beside_pictures(evidence, attempt, texts, [box for _, box in lines])
    numbers = {number for number, _ in own}
    every = [(number, chunk) for number, entry in own for chunk in entry.chunks]
    pictured = [
        (number, chunk)
        for number, entry in enumerate(texts)
        if number not in numbers and entry.block.kind is not BlockKind.FIGURE
        for chunk in entry.chunks
    ]
    # Pictures apart, because one may repeat the text of the page, whose letters are matched once.
    in_layer, in_answer = aligned([chunk for _, chunk in every], layer)
    in_picture, in_aside = aligned([*(chunk for _, chunk in pictured), *aside], layer)
    in_answer = [list(map(max, *pair)) for pair in zip(in_answer, in_aside, strict=True)]
    found = [*in_layer, *in_picture[: len(pictured)]]
    _without_formulas(texts, [*every, *pictured], found)
    unread = Unread()
    # What one side lacks and the other has instead is misread.
    read = [chunk for _, chunk in (*every, *pictured)]
    misread = size_lacking(read, found) + max(ENOUGH_LETTERS, MISREAD * size_of(wanted))
    lacking = passages(wanted, in_answer[: len(wanted)], misread)
    starts = [0, *accumulate(len(text) + 1 for text, _ in demanded)]
    lost = _lost_lines(starts, wanted, in_answer[: len(wanted)], _longest_run(read, found))
    place = dict(zip((number for number, free in enumerate(is_optional) if not free), starts, strict=False))
    lost = {place[number]: letters for number, letters in skipped.items() if number in place} | lost
    layer_words, own_words = _words([(0, chunk) for chunk in layer], in_answer), _words(every, in_layer)
    words = layer_words[: sum(len(chunk.words) for chunk in wanted)]
    # A word at the start of a line may be the end of a divided one.
    gone = [word for word, _, _ in _only_in(words, own_words) if not _begins_line(printed, word.place[0])]
    if lacking or lost or gone:
        parts = [(first, last) for _, first, last, _ in lacking] + [word.place for word in gone]
        boxes = [
            box
            for (_, box), start, end in zip(demanded, starts, starts[1:], strict=False)
            if start in lost or any(first < end and last > start for first, last in parts)
        ]
        size = max(sum(part[3] for part in lacking), sum(lost.values()), sum(len(word.text) for word in gone))
        unread = Unread(max(_LEAST_SHARE, size / size_of(wanted)), boxes)
    letters = size_of([chunk for _, chunk in every])
    if letters < ENOUGH_LETTERS or size_of(wanted) + size_of(allowed) < ENOUGH_LETTERS:
        return unread, Unsupported()
    # The answer may have words of the page more often than the layer has them, in whatever pieces.
    foreign = passages([chunk for _, chunk in every], in_layer, size_lacking(layer, in_answer) + SHORTEST)
    spans = [Span(every[at][0], start, end) for at, start, end, _ in foreign]
    invented = sum(part[3] for part in foreign)
    if invented and evidence.pictured and any(entry.block.box.area >= 1 for entry in texts):
        # Text of pictures is in no layer: as many letters as fit in the lines of ink that the layer lacks.
        unseen = ink_without([box for _, box in lines], black)
        invented -= round(sum(letters for _, letters in unseen) / FEWEST)
    # A symbol, which is no word, may be written as one.
    added = [word for word, end, start in _only_in(own_words, words) if not printed[end:start].strip()]
    alone = _replaced(own_words, layer_words) + [Span(word.block, *word.place) for word in added]
    least = _LEAST_SHARE if alone else 0.0
    share = max(least, invented / letters, sum(span.end - span.start for span in alone) / letters)
    unknown = {(word.block, word.place[0]) for word in own_words if not word.found}
    left = {word.text for word in layer_words if not word.found}
    return unread, Unsupported(share, [*spans, *alone, *_unknown_facts(lines, own, unknown, left)])


def _without_formulas(
    texts: Sequence[BlockText], every: Sequence[tuple[int, Chunk]], in_layer: Sequence[list[int]]
) -> None:
    """Set the flags of words in formulas that were not found: they are not verifiable."""
    formulas = [formulas_in(entry) for entry in texts]
    for (number, chunk), found in zip(every, in_layer, strict=True):
        for at, (start, end) in enumerate(chunk.places if formulas[number] else ()):
            if any(first <= start and end <= last for first, last in formulas[number]):
                found[at] = found[at] or UNVERIFIABLE


def _beside_pictures(
    evidence: Evidence, attempt: Attempt, texts: Sequence[BlockText], lines: Sequence[Box]
) -> list[tuple[int, BlockText]]:
    """Return the blocks that were not read in a picture, with their numbers.

    Text read in a drawing or picture is in no layer: drawings often have letters as curves. A block was read from a
    picture if the page has pictures of its size, and no line is in its box. Without a model, any such block was.
    """
    own = []
    for number, entry in enumerate(texts):
        places = [box.grown(0.01) for box in (entry.block.box, *entry.block.continued) if entry.block.box.area < 1]
        pictured = places and (attempt.source == "text-layer" or entry.block.box.area <= evidence.pictured)
        if entry.block.kind is BlockKind.FIGURE or (
            pictured and not any(line.covered_by(box) > 0.5 for line in lines for box in places)
        ):
            continue
        own.append((number, entry))
    return own


def _longest_run(chunks: Sequence[Chunk], found: Sequence[Sequence[int]]) -> int:
    """Return the letters of the longest run of words that were not found."""
    longest = letters = 0
    for chunk, flags in zip(chunks, found, strict=True):
        for word, flag in zip(chunk.words, flags, strict=True):
            letters = 0 if flag else letters + len(word)
            longest = max(longest, letters)
    return longest


def _lost_lines(
    starts: Sequence[int], wanted: Sequence[Chunk], found: Sequence[Sequence[int]], strange: int
) -> dict[int, int]:
    """Return the starts of short lines of the layer that the answer lacks as a whole, with their letters.

    The lines before and after are found, so that the lines were left out, and are no part of something else that the
    answer lacks. Lines are misread if the answer has as many letters in one place that the layer lacks: `strange`.
    """
    sizes = [[0, 0, 0, 0] for _ in starts]  # letters and those not found, words and those of letters not found
    line = 0
    for chunk, flags in zip(wanted, found, strict=True):
        for word, (at, _), flag in zip(chunk.words, chunk.places, flags, strict=True):
            while line + 1 < len(starts) and at >= starts[line + 1]:
                line += 1
            letters, lacking, words, lost_words = sizes[line]
            lost_words += not flag and word.isalpha()
            sizes[line] = [letters + len(word), lacking + len(word) * (not flag), words + 1, lost_words]
    shown = [number for number, (letters, *_) in enumerate(sizes) if letters]
    is_lost = {number: _MOSTLY * sizes[number][0] <= sizes[number][1] for number in shown}
    lost: dict[int, int] = {}
    for whole, group in groupby(enumerate(shown), key=lambda item: is_lost[item[1]]):
        (first, _), *_ = some = list(group)
        rows = [sizes[number] for _, number in some]
        letters, lacking = (sum(row[of] for row in rows) for of in (0, 1))
        # Numbers and labels of a chart, which are in no text, are lines without words.
        is_text = max(row[3] for row in rows) > 1 or (len(rows) == 1 and lacking == letters and rows[0][2] > 1)
        around = (*shown[max(0, first - 1) : first], *shown[first + len(rows) : first + len(rows) + 1])
        beside = all(2 * sizes[other][1] <= sizes[other][0] for other in around)
        if whole and is_text and letters >= max(_LEAST_LINE, strange + 1) and beside:
            lost |= {starts[number]: sizes[number][1] for _, number in some}
    return lost


class _Word(NamedTuple):
    """Word of a text: its block and place there, and whether the other text has it."""

    block: int
    text: str
    place: tuple[int, int]
    found: int


def _words(chunks: Sequence[tuple[int, Chunk]], found: Sequence[Sequence[int]]) -> list[_Word]:
    """Return the words of the chunks of blocks with their flags from `aligned`."""
    return [
        _Word(block, *word)
        for (block, chunk), flags in zip(chunks, found, strict=True)
        for word in zip(chunk.words, chunk.places, flags, strict=True)
    ]


def _begins_line(text: str, start: int) -> bool:
    return not text[text.rfind("\n", 0, start) + 1 : start].strip()


def _only_in(words: Sequence[_Word], others: Sequence[_Word]) -> list[tuple[_Word, int, int]]:
    """Return the words that the other text lacks between two words on each side that follow each other there.

    Returns:
        Each word, and the end and start of its neighbors in the other text.
    """
    lacking = {}
    for at, word in enumerate(words[2:-2], 2):
        if not word.found and word.text.isalpha() and len(word.text) > 1:
            before, after = words[at - 2 : at], words[at + 1 : at + 3]
            if before[0].block == after[1].block and all(near.found for near in (*before, *after)):
                lacking[at] = before[0].text, before[1].text, after[0].text, after[1].text
    if not lacking:
        return []
    texts, blocks = [word.text for word in others], [word.block for word in others]
    together = {
        four: at
        for at, four in enumerate(zip(texts, texts[1:], texts[2:], texts[3:], strict=False), 2)
        if blocks[at - 2] == blocks[at + 1]
    }
    # There, the other text has this word, which was found in another place, or another one.
    apart = {*zip(texts, texts[1:], texts[3:], texts[4:], strict=False)}
    places = ((at, together.get(beside, 0)) for at, beside in lacking.items() if beside not in apart)
    return [(words[at], others[there - 1].place[1], others[there].place[0]) for at, there in places if there]


def _replaced(words: Sequence[_Word], others: Sequence[_Word]) -> list[Span]:
    """Return the places of words that stand for another word of the other text, which lacks them.

    Both have the same two words on each side.
    """
    between = {}
    for at, other in enumerate(others[2:-2], 2):
        if other.found:
            continue
        around = (*others[at - 2 : at], *others[at + 1 : at + 3])
        if all(word.found for word in around):
            between[tuple(word.text for word in around)] = other.text
    spans = []
    for at, word in enumerate(words[2:-2], 2):
        if word.found:
            continue
        around = (*words[at - 2 : at], *words[at + 1 : at + 3])
        instead = between.get(tuple(near.text for near in around), "")
        if instead and _is_other(word.text, instead, after_number=around[1].text[-1].isdecimal()):
            spans.append(Span(word.block, *word.place))
    return spans


def _is_other(word: str, instead: str, *, after_number: bool) -> bool:
    """Return whether two words differ by more than a misread letter: also two numbers, and two units."""
    if word.isdecimal() and instead.isdecimal():
        return len(word) < DIGITS  # longer ones are compared apart
    if after_number and _UNIT.fullmatch(word) and _UNIT.fullmatch(instead):
        return True
    is_long = word.isalpha() and instead.isalpha() and min(len(word), len(instead)) >= _REPLACED
    return is_long and SequenceMatcher(None, word, instead, autojunk=False).ratio() < _SIMILAR


def optional_lines(lines: Sequence[tuple[str, Box]], attempt: Attempt, texts: Sequence[BlockText]) -> list[bool]:
    """Return which lines of the page an answer may lack: running heads, and those in a picture or formula.

    Lines without a word are also optional, with as many letters as the formulas of the answer have: a layer has the
    symbols of a formula in any order, with the numbers of formulas between them.
    """
    places = [
        (block.kind, box.grown(0.01))
        for block in attempt.blocks
        if block.kind in (BlockKind.FIGURE, BlockKind.FORMULA) and block.box.area < 1
        for box in (block.box, *block.continued)
    ]
    without_position = any(block.kind is BlockKind.FIGURE and block.box.area >= 1 for block in attempt.blocks)
    heads = _heads(lines)
    formulas = "".join(entry.text[start:end] for entry in texts for start, end in formulas_in(entry))
    symbols = sum(map(str.isalnum, formulas))
    found = []
    for text, box in lines:
        optional = (
            box in heads
            or any(
                box.covered_by(place) > 0.5 and (kind is BlockKind.FIGURE or not is_prose(text))
                for kind, place in places
            )
            or (without_position and len(text) < LETTERS)
        )
        letters = sum(map(str.isalnum, text))
        if not optional and letters <= symbols and not _WORD.search(text):
            symbols -= letters
            optional = True
        found.append(optional)
    return found


def _heads(lines: Sequence[tuple[str, Box]]) -> set[Box]:
    """Return the lines in the margin, and short ones near the upper and lower edge apart from all others.

    Models leave out running heads and feet on purpose.
    """
    if not lines:
        return set()
    gap = median_high(box.height for _, box in lines)
    wide = median_high(box.width / max(1, len(text)) for text, box in lines)
    found = {box for _, box in lines if in_margin(box)}
    for turned in (False, True):
        sides = [
            (1 - box.y1, 1 - box.y0, len(text), box) if turned else (box.y0, box.y1, len(text), box)
            for text, box in lines
        ]
        sides.sort(key=lambda side: side[0])
        end, letters = 0.0, 0
        for number, (begin, last, size, _) in enumerate(sides):
            if number and begin > end + gap:
                found.update(side[3] for side in sides[:number])
            end, letters = max(end, last), letters + size
            if end > _EDGE or letters > _HEAD:
                break
    # The box of a long line of a skewed scan is high, too.
    titles = {box for text, box in lines if box.height >= _TITLE * gap and box.width >= _TITLE * wide * len(text)}
    return {box for box in found if box not in titles or box.height > box.width}


def _unknown_facts(
    lines: Sequence[tuple[str, Box]],
    own: Sequence[tuple[int, BlockText]],
    unknown: Collection[tuple[int, int]],
    left: Collection[str],
) -> list[Span]:
    """Return the places of numbers and names that the text layer lacks.

    Args:
        lines: The text layer.
        own: The blocks that are compared with it, with their numbers.
        unknown: Blocks and starts of the words that the layer lacks.
        left: Words of the layer that the answer lacks: a number may be joined there with its neighbor.
    """
    letters = "".join(filter(str.isalnum, folded("".join(text for text, _ in lines))))
    numbers, names, count = [], [], 0
    answer = [(block, without_formulas(entry)) for block, entry in own]
    # The numbers of a table of addresses may follow each other otherwise in the layer.
    more = Counter(digits for _, text in answer for _, digits in numbers_in(text))
    printed: dict[str, list[tuple[str, bool]]] = {}
    for text, _ in lines:
        whole = numbers_in(text)
        apart = [number for number in numbers_in(_DASH.sub(" ", text)) if number not in whole]  # such as 10 in 10−7
        for place, digits in (*whole, *apart):
            printed.setdefault(digits, []).append((text[slice(*place)], _is_negative(text, place)))
    more -= Counter({digits: len(same) for digits, same in printed.items()})
    for (block, text), (_, entry) in zip(answer, own, strict=True):
        for place, digits in numbers_in(text):
            is_unknown = (
                digits in more
                and any((block, at) in unknown for at in range(*place))
                and not any(digits in word for word in left)
            )
            same = printed.get(digits, [])
            is_other = same and not any(_is_same_number(text[slice(*place)], other) for other, _ in same)
            is_positive = (
                entry.block.kind is BlockKind.TABLE
                and same
                and all(negative for _, negative in same)
                and text[: place[0]].rstrip("\\ \u00a0\u202f$€£¥")[-1:] not in (*_MINUS, "(")
            )
            if is_unknown or is_other or is_positive:
                numbers.append(Span(block, *place))
        for found in NAME.finditer(text):
            if found[0][0].isupper():
                count += 1
                if "".join(filter(str.isalnum, folded(found[0]))) not in letters:
                    names.append(Span(block, found.start(), found.end()))
    return [*numbers, *(names if len(names) <= _ENOUGH_NAMES * count else ())]


def _marks(number: str) -> dict[int, tuple[str, bool]]:
    """Return the marks of a number by the digits before them, and whether they group three digits."""
    parts = re.split(r"(\D+)", number)
    digits = list(accumulate(map(len, parts[::2])))
    return {
        digits[at]: (parts[2 * at + 1], len(parts[2 * at + 2]) == _GROUP >= len(parts[2 * at]))
        for at in range(len(digits) - 1)
    }


def _is_same_number(own: str, other: str) -> bool:
    """Return whether two numbers of the same digits have no different decimal mark. Marks of groups may be lacking."""
    sides = _marks(own), _marks(other)
    for at in sides[0].keys() | sides[1].keys():
        marks = [side[at] for side in sides if at in side]
        decimal = [mark for mark, is_group in marks if mark in ".," and (len(marks) > 1 or not is_group)]
        if (len(marks) == 1 and decimal) or len(set(decimal)) > 1:
            return False
    return True


def _is_negative(text: str, place: tuple[int, int]) -> bool:
    """Return whether a number of a line has a minus sign, or is in parentheses."""
    before, after = text[: place[0]], text[place[1] :]
    is_minus = before[-1:] in _MINUS and (len(before) == 1 or before[-2] in " (")
    return is_minus or (before[-1:] == "(" and after.lstrip(" %")[:1] == ")")


def numbers_in(text: str) -> list[tuple[tuple[int, int], str]]:
    """Return the place and the digits of each number with at least `DIGITS` digits."""
    found = [(number.span(), "".join(filter(str.isdecimal, number[0]))) for number in NUMBER.finditer(text)]
    return [(place, digits) for place, digits in found if len(digits) >= DIGITS]
