"""Places of a page's words: the stored text, word by word, on the lines that were found in its picture.

A row has blocks with boxes, and models give no places of words. Formats that lay text over a page (PDF, hOCR, ALTO)
need them. `placed_words` aligns the words of the blocks with lines found on the page, by a text layer or by OCR:

    blocks in reading order ─┐
                             ├─▶ PlacedBlock ─▶ PlacedLine ─▶ PlacedWord
    lines found on the page ─┘

The text is always that of the blocks, and complete; the found lines give only places. All boxes are relative, 0..1 of
the page as it was read, with the origin at the top left. No I/O.
"""

import re
import unicodedata
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial, reduce
from html import unescape
from itertools import accumulate, groupby, pairwise
from typing import Literal

from llm_ocr.results.markdown import blocks_to_markdown, clean
from llm_ocr.results.quality.text_layer import PASSAGE, folded, matched_passages
from llm_ocr.types import Block, BlockKind, Box, OcrText, PageContent, PageRecord, Span
from llm_ocr_outputs.places import MARK, joined_ranges, with_marks
from llm_ocr_outputs.viewer.index import PIECES
from llm_ocr_outputs.viewer.rendering import Places, render

#: Direction in which the words of a line follow each other on the page.
Direction = Literal["right", "left", "down", "up"]


@dataclass(frozen=True, slots=True)
class PlacedWord:
    """Word of a block, or its part on one line.

    Attributes:
        text: The word with its punctuation, without spaces, in NFC.
        box: Its relative box; at least an estimate.
        aligned: Whether the box is that of a word found on the page; otherwise the word shares the room of others.
        continues: Whether the next line begins with the rest of the word, which the page breaks here. The hyphen that
            the page shows is not part of `text`.
        unsupported: Whether nothing on the page supports the word, by the page's ledger.
    """

    text: str
    box: Box
    aligned: bool
    continues: bool = False
    unsupported: bool = False


@dataclass(frozen=True, slots=True)
class PlacedLine:
    """Consecutive words of a block on one line of the page, in reading order; `box` is around them."""

    words: tuple[PlacedWord, ...]
    box: Box
    direction: Direction = "right"

    def extent(self, word: PlacedWord) -> tuple[float, float]:
        """Return where a word starts and ends, as shares of the line's length.

        The length is measured from left to right, also in a line of right-to-left words, or in the direction of a
        vertical line.
        """
        box, inner = self.box, word.box
        if self.direction in ("right", "left"):
            start, end, length = inner.x0 - box.x0, inner.x1 - box.x0, box.width
        elif self.direction == "down":
            start, end, length = inner.y0 - box.y0, inner.y1 - box.y0, box.height
        else:
            start, end, length = box.y1 - inner.y1, box.y1 - inner.y0, box.height
        return (round(start / length, 4), round(end / length, 4)) if length > 0 else (0.0, 1.0)


@dataclass(frozen=True, slots=True)
class PlacedBlock:
    """Block of the page with its words; a figure without text has no lines."""

    block: Block
    lines: tuple[PlacedLine, ...]


@dataclass(frozen=True, slots=True)
class PlacedPage:
    """Page with the places of its words, as it was read: after `record.rotation`.

    Attributes:
        record: The stored row.
        blocks: All blocks in reading order; none if the page could not be read.
        width: Width of the page's image in pixels.
        height: Its height in pixels.
        dpi: Its pixels per inch; 0 if unknown.
        text_is_credible: Whether the source has text for the page that is not wrong as far as known, visible or not.
    """

    record: PageRecord
    blocks: Sequence[PlacedBlock]
    width: int
    height: int
    dpi: int = 0
    text_is_credible: bool = False


@dataclass(frozen=True, slots=True)
class FoundLine:
    """Line found on the page: its words in reading order with their relative boxes, and its relative box."""

    words: tuple[tuple[str, Box], ...]
    box: Box
    direction: Direction = "right"


#: Ratio of a line's height to its width from which its words follow each other down or up, and the least letters of it.
_TALL, _LEAST_LETTERS = 1.8, 3
_WIDTHS = {**dict.fromkeys("ijl|!.,:;'`’‘", 0.28), **dict.fromkeys('frt()[]{}/\\-"“” ', 0.36)}
_WIDTHS |= {**dict.fromkeys("mwMW@%&—…", 0.86), **dict.fromkeys("ABCDEFGHIJKLNOPQRSTUVXYZ", 0.68), "I": 0.3, "J": 0.42}


@cache
def _width_of(character: str) -> float:
    """Return the usual width of a character in ems."""
    if unicodedata.combining(character) or unicodedata.category(character) in ("Cf", "Mn"):
        return 0.0
    return _WIDTHS.get(character) or (1.0 if unicodedata.east_asian_width(character) in "WF" else 0.53)


def _width(text: str) -> float:
    return sum(map(_width_of, text))


def found_in_layer(content: PageContent, rotation: int = 0) -> list[FoundLine]:
    """Return the lines of a text layer.

    Args:
        content: The page, whose boxes are in its units. Lines without words are divided by the widths of characters.
        rotation: Degrees clockwise by which the page was turned before it was read.

    Returns:
        The lines in the order of the layer.
    """
    width, height = max(content.width, 1e-6), max(content.height, 1e-6)
    aspect = width / height if rotation % 180 == 0 else height / width

    def turned(box: Box) -> Box:
        return box.scaled(1 / width, 1 / height).clipped().turned(rotation)

    found = []
    for line in content.lines:
        words = [(word.text, turned(word.box)) for word in line.words]
        found.append(_found(line.text, turned(line.box), words, aspect, stacked=line.stacked))
    return found


def found_by_ocr(ocr: OcrText, aspect: float) -> list[FoundLine]:
    """Return the lines that OCR found.

    Args:
        ocr: The text of the page; lines that it could not read give places, too.
        aspect: Width of the page divided by its height.

    Returns:
        The lines in the order of OCR.
    """
    found = []
    for line in ocr.lines:
        texts = line.text.split()
        words = list(zip(texts, line.boxes, strict=True)) if len(texts) == len(line.boxes) else []
        if words and line.box.width * aspect > line.box.height:  # a word ends in the middle of its last character
            ends = sorted(range(len(words)), key=lambda index: words[index][1].x0)
            words[ends[0]] = texts[ends[0]], replace(line.boxes[ends[0]], x0=line.box.x0)
            words[ends[-1]] = texts[ends[-1]], replace(words[ends[-1]][1], x1=line.box.x1)
        found.append(_found(line.text, line.box, words, aspect))
    return found


def _found(text: str, box: Box, words: list[tuple[str, Box]], aspect: float, *, stacked: bool = False) -> FoundLine:
    boxes = [one for _, one in words]
    direction = _direction(text, box, boxes, aspect, stacked=stacked)
    if not words:
        words = list(zip(text.split(), _divided(text.split(), box, direction), strict=True))
    return FoundLine(tuple(words), box, direction)


def _direction(text: str, box: Box, words: Sequence[Box], aspect: float, *, stacked: bool) -> Direction:
    if stacked:
        return "down"
    if box.height > _TALL * box.width * aspect and len(text.strip()) >= _LEAST_LETTERS:
        return "down" if len(words) > 1 and words[0].centre[1] < words[-1].centre[1] else "up"
    sides = [unicodedata.bidirectional(letter) for letter in text if letter.isalpha()]
    return "left" if 2 * sum(side in ("R", "AL") for side in sides) > len(sides) else "right"


def _part(box: Box, direction: Direction, start: float, end: float) -> Box:
    """Return the part of a box between two shares 0..1 of its length in a direction."""
    match direction:
        case "right":
            return Box(box.x0 + start * box.width, box.y0, box.x0 + end * box.width, box.y1)
        case "left":
            return Box(box.x1 - end * box.width, box.y0, box.x1 - start * box.width, box.y1)
        case "down":
            return Box(box.x0, box.y0 + start * box.height, box.x1, box.y0 + end * box.height)
        case "up":
            return Box(box.x0, box.y1 - end * box.height, box.x1, box.y1 - start * box.height)


def _divided(words: Sequence[str], box: Box, direction: Direction) -> list[Box]:
    """Return the boxes of the words of a line by the widths of their characters, with spaces between them."""
    if not words:
        return []
    space = _width_of(" ")
    total = sum(map(_width, words)) + space * (len(words) - 1) or 1.0
    boxes, at = [], 0.0
    for word in words:
        end = at + _width(word)
        boxes.append(_part(box, direction, at / total, end / total))
        at = end + space
    return boxes


# Words of a block: its Markdown as the viewer shows it, without marks; LaTeX without commands.


_NO_PLACES = Places({}, {})
_INLINE = re.compile(r"</?(?:b|i|em|strong|u|s|del|sub|sup|code|a|mark|span)[\s>]")
_OPENS_MATH = re.compile(r'<(?:span|div) class="math')
_ENVIRONMENT = re.compile(r"\\(?:begin|end)\{[a-zA-Z]{1,20}\*?\}(?:\{[lcr|@ ]{1,60}\})?")
_COMMAND = re.compile(r"\\(?P<name>[a-zA-Z]+|.)|(?P<space>&|\}\{)|[\^_{}$]")
_SIGNS = {
    **{"times": "×", "cdot": "·", "leq": "≤", "le": "≤", "geq": "≥", "ge": "≥", "neq": "≠", "ne": "≠", "pm": "±"},
    **{"approx": "≈", "infty": "∞", "sum": "∑", "prod": "∏", "int": "∫", "partial": "∂", "to": "→", "rightarrow": "→"},
    **{"in": "∈", "sqrt": "√", "ldots": "…", "dots": "…", "cdots": "⋯", "nabla": "∇", "sim": "∼", "equiv": "≡"},
    **{
        name: name
        for name in ("sin", "cos", "tan", "log", "ln", "exp", "lim", "max", "min", "sup", "inf", "det", "arg")
    },
    **{sign: sign for sign in "%$#&_{}"},
}


def formula_text(latex: str) -> str:
    """Return the characters that a formula shows, without LaTeX commands; layout such as fractions is lost."""

    def shown(command: re.Match[str]) -> str:
        name = command["name"]
        if name is None:
            return " " if command["space"] else ""
        if name in _SIGNS:
            return _SIGNS[name]
        try:
            size = "CAPITAL" if name[0].isupper() else "SMALL"
            return unicodedata.lookup(f"GREEK {size} LETTER {name.removeprefix('var').upper()}")
        except KeyError:
            return " "

    return " ".join(_COMMAND.sub(shown, _ENVIRONMENT.sub(" ", latex)).split())


def block_text(block: Block, spans: Sequence[tuple[int, int]] = ()) -> str:
    """Return the text of a block that its page shows: words with single spaces, without marks of Markdown.

    Args:
        block: The block. Of a figure, the text read in it is text of the page. Its description is not, and its caption
            has a block of its own.
        spans: Ranges of characters of its text, or of the text inside a figure; in order, and not overlapping.

    Returns:
        The text, with a character of `places.MARK` at both ends of each span.
    """
    if block.kind is BlockKind.FIGURE:
        inside = with_marks(block.inside, spans) if spans else block.inside
        return " ".join(clean("\n".join(filter(None, (inside, block.text)))).split())
    marked = with_marks(block.text, spans) if spans else block.text
    changed = Block(block.kind, block.box, marked, block.label, block.level)
    parts: list[str] = []
    formula = False
    for piece in PIECES.findall(render(blocks_to_markdown([changed], furniture=True), _NO_PLACES)):
        if piece[0] == "<":
            formula = bool(_OPENS_MATH.match(piece))
            parts.append("" if _INLINE.match(piece) else " ")
        else:
            parts.append(formula_text(unescape(piece)) if formula else unescape(piece))
    return " ".join("".join(parts).split())


@dataclass(slots=True)
class _Piece:
    """Part of a word from character `start` on, at a place: `line` is its index among all lines."""

    start: int
    box: Box
    line: int
    aligned: bool


@dataclass(slots=True)
class _Word:
    """Word to place. `letters` are compared, or the text without any; they come from the characters `at`.

    `first` and `last` are found words.
    """

    text: str
    block: int
    unsupported: bool
    letters: str = ""
    at: tuple[int, ...] = ()
    pieces: list[_Piece] = field(default_factory=list)
    first: int = -1
    last: int = -1

    @property
    def key(self) -> str:
        return self.letters or self.text


@dataclass(slots=True)
class _Found:
    """Found word. `used`: whether words were placed on it."""

    text: str
    box: Box
    line: int
    letters: str
    at: tuple[int, ...]
    used: bool = False

    @property
    def key(self) -> str:
        return self.letters or self.text


def _letters(text: str) -> tuple[str, tuple[int, ...]]:
    """Return the letters and digits of a word in one case, and the character that each comes from.

    Without any, the characters are those of the text itself.
    """
    if text.isascii() and text.isalnum():
        return text.lower(), tuple(range(len(text)))
    letters, at = [], []
    for index, character in enumerate(text):
        for letter in folded(character):
            if letter.isalnum():
                letters.append(letter)
                at.append(index)
    return "".join(letters), tuple(at or range(len(text)))


def _partners(own: str, other: str) -> list[int]:
    """Return for each letter of a text its partner in another text, in order, or -1: the most, in the longest runs."""
    import numpy as np

    own_cut = own[: _MOST_CELLS // max(1, len(other))]
    here, there = (np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32) for text in (own_cut, other))
    rows, columns = len(here), len(there)
    best = np.zeros(columns + 1, np.int32)
    up, left = (np.zeros((rows + 1, columns + 1), np.bool_) for _ in range(2))
    equal = np.zeros((3, columns + 2), np.int32)  # of the letter before, this letter, and the next one
    equal[2, 1:-1] = there == here[0] if rows else 0
    for row in range(rows):
        equal[:2] = equal[1:]
        equal[2, 1:-1] = there == here[row + 1] if row + 1 < rows else 0
        weight = equal[1, 1:-1] * (1 + equal[0, :-2] + equal[2, 2:])
        before, best = best, best.copy()
        np.maximum(before[1:], before[:-1] + weight, out=best[1:])
        np.maximum.accumulate(best, out=best)
        up[row + 1], left[row + 1, 1:] = best == before, best[1:] == best[:-1]
    partners = [-1] * len(own)
    row, column = rows, columns
    while row and column:
        if up[row, column]:
            row -= 1
        elif left[row, column]:
            column -= 1
        else:
            row, column = row - 1, column - 1
            partners[row] = column
    return partners


#: Limit of found words that are candidates for a word: between aligned words, and equal ones.
_MOST_BETWEEN = 400
#: Limit of the letters of two texts that are compared with each other, as a product.
_MOST_CELLS = 30_000_000
#: How much more than a distance along lines a distance across lines counts.
_LINES = 4.0
#: Share of the page's height without a known word that separates a table from words elsewhere.
_GAP = 0.12
#: Share of the page by which a found word may be outside of its block's box.
_OUTSIDE = 0.01
#: Share of the page from which a box says nothing about a block's place.
_WHOLE_PAGE = 0.95
#: Height of a line in ems, and the largest share of the page's height that a line takes.
_LEADING, _HIGHEST = 1.25, 0.04


def _unplaced(words: Sequence[_Word]) -> list[tuple[int, int]]:
    """Return the ranges of consecutive words without a place."""
    ends = [at for at, word in enumerate(words) if word.pieces]
    return [(first + 1, last) for first, last in pairwise([-1, *ends, len(words)]) if last - first > 1]


class _Placing:
    """Placing of one page's words."""

    def __init__(
        self, blocks: Sequence[Block], found: Sequence[FoundLine], aspect: float, spans: Iterable[Span]
    ) -> None:
        self.blocks = list(blocks)
        self.aspect = aspect
        self.lines: list[tuple[Box, Direction]] = [(line.box, line.direction) for line in found]
        self.found = [
            _Found(text, box, number, *_letters(text))
            for number, line in enumerate(found)
            for text, box in ((unicodedata.normalize("NFC", text), box) for text, box in line.words)
            if text.strip()
        ]
        ranges: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for span in spans:
            ranges[span.block].append((span.start, span.end))
        self.words = [
            word
            for number, block in enumerate(blocks)
            for word in _words_of(number, block, joined_ranges(ranges[number]))
        ]

    def place(self) -> None:
        """Give each word at least one piece."""
        self._align_passages()
        self._infer_boxes()
        self._pair_in_blocks(share=False)
        for start, end in _unplaced(self.words):
            words = [word for word in self.words[start:end] if not self._is_table(word.block)]
            self._pair(words, self._between(start, end), share=True)
        self._pair_in_blocks(share=True)
        for run in _unplaced(self.words):
            for _, group in groupby(range(*run), key=lambda at: self.words[at].block):
                places = [*group]
                self._fill(places[0], places[-1] + 1)

    def _infer_boxes(self) -> None:
        """Give tables without a box the rows of their words: answers read rows, and layers often columns.

        The rows are those of the most words that are aligned, or that the page has once, without a large gap.
        """
        where: dict[str, list[Box]] = defaultdict(list)
        for one in self.found:
            where[one.key].append(one.box)
        for number, group in groupby(self.words, key=lambda word: word.block):
            if self.blocks[number].kind is not BlockKind.TABLE or self._is_placed(number):
                continue
            words = list(group)
            boxes = [piece.box for word in words for piece in word.pieces]
            keys = {word.key for word in words if not word.pieces and len(word.letters) >= _LEAST_LETTERS}
            boxes += [where[key][0] for key in keys if len(where[key]) == 1]
            boxes.sort(key=lambda box: box.y0)
            gaps = [at for at, (one, other) in enumerate(pairwise(boxes), 1) if other.y0 - one.y1 > _GAP]
            rows = max((boxes[start:end] for start, end in pairwise([0, *gaps, len(boxes)])), key=len)
            if rows:
                box = Box(0.0, rows[0].y0, 1.0, max(box.y1 for box in rows))
                self.blocks[number] = replace(self.blocks[number], box=box)

    def _pair_in_blocks(self, *, share: bool) -> None:
        """Pair the words of each block with the unused found words in its box."""
        unplaced = [word for word in self.words if not word.pieces]
        for number, words in groupby(unplaced, key=lambda word: word.block):
            inside = [index for index, one in enumerate(self.found) if not one.used and self._holds(number, one.box)]
            if self._is_table(number):  # answers read tables by rows, and layers often by columns
                inside = self._by_rows(inside)
            self._pair(list(words), inside, share=share)

    def _align_passages(self) -> None:
        """Place the words of passages that both texts have."""
        own, other = ("".join(one.letters for one in some) for some in (self.words, self.found))
        lengths = [[len(one.letters) for one in some if one.letters] for some in (self.words, self.found)]
        target = [-1] * len(own)
        for start, place, length in matched_passages(
            (own, other), lengths, PASSAGE, (bytearray(len(own)), bytearray(len(other)))
        ):
            target[start : start + length] = range(place, place + length)
        starts = list(accumulate((len(one.letters) for one in self.found), initial=0))
        self._leave_foreign(target, starts)
        lettered = [index for index, one in enumerate(self.found) if one.letters]
        self._claim([word for word in self.words if word.letters], target, lettered)

    def _claim(self, words: Sequence[_Word], target: Sequence[int], found: Sequence[int]) -> None:
        """Place words on the found words that have their letters.

        Args:
            words: The words.
            target: For each of their letters, its position among the letters of the found words, or -1.
            found: Indices of the found words.
        """
        starts = list(accumulate((len(self.found[index].key) for index in found), initial=0))
        shares: dict[int, list[tuple[_Word, int, int, int]]] = defaultdict(list)  # by found word: first, last, start
        at = 0
        for word in words:
            places = target[at : at + len(word.key)]
            at += len(word.key)
            if 2 * sum(place >= 0 for place in places) < max(1, len(places)):
                continue
            owners = [(index, bisect_right(starts, place) - 1) for index, place in enumerate(places) if place >= 0]
            for owner, group in groupby(owners, key=lambda pair: pair[1]):
                indices = [index for index, _ in group]
                first, last = (places[index] - starts[owner] for index in (indices[0], indices[-1]))
                shares[found[owner]].append((word, first, last, word.at[indices[0]] if word.first >= 0 else 0))
                word.first = found[owner] if word.first < 0 else word.first
                word.last = found[owner]
        for owner, claims in sorted(shares.items()):
            one = self.found[owner]
            one.used = True
            begin = 0.0
            for number, (word, _, last, start) in enumerate(claims):
                whole = number == len(claims) - 1
                end = 1.0 if whole else _width(one.text[: one.at[last] + 1]) / max(_width(one.text), 1e-6)
                self._add(word, start, _part(one.box, self.lines[one.line][1], begin, max(begin, end)), one.line)
                begin = max(begin, end)
        for word in words:
            word.pieces.sort(key=lambda piece: piece.start)

    def _leave_foreign(self, target: list[int], starts: Sequence[int]) -> None:
        """Separate words from equal text outside of their block, if the block's box has them, and most of its words."""
        at = 0
        for number, group in groupby(self.words, key=lambda word: word.block):
            words = list(group)
            first, at = at, at + sum(len(word.letters) for word in words)
            if not self._is_placed(number):
                continue
            inside = {index for index, one in enumerate(self.found) if self._holds(number, one.box)}
            keys = {self.found[index].key for index in inside}
            if 2 * sum(word.key in keys for word in words) < len(words):
                continue
            for word in words:
                end = first + len(word.letters)
                owners = {bisect_right(starts, place) - 1 for place in target[first:end] if place >= 0}
                if word.key in keys and not owners <= inside:
                    target[first:end] = [-1] * len(word.letters)
                first = end

    def _add(self, word: _Word, start: int, box: Box, line: int, *, aligned: bool = True) -> None:
        """Add a place to a word; a place on the line of its last piece extends that piece."""
        last = word.pieces[-1] if word.pieces else None
        if last is not None and last.line == line:
            last.box = last.box.union(box)
        else:
            word.pieces.append(_Piece(start, box, line, aligned))

    def _between(self, start: int, end: int) -> list[int]:
        """Return the unused found words after the word before a run, and before the word after it."""
        chosen: set[int] = set()
        index = self.words[start - 1].last + 1 if start > 0 else 0
        while index < len(self.found) and not self.found[index].used and len(chosen) < _MOST_BETWEEN:
            chosen.add(index)
            index += 1
        index = (self.words[end].first if end < len(self.words) else len(self.found)) - 1
        most = len(chosen) + _MOST_BETWEEN
        while index >= 0 and not self.found[index].used and len(chosen) < most:
            chosen.add(index)
            index -= 1
        return sorted(chosen)

    def _is_placed(self, number: int) -> bool:
        """Return whether a block's box says where it is."""
        return 0 < self.blocks[number].box.area < _WHOLE_PAGE

    def _is_table(self, number: int) -> bool:
        return self.blocks[number].kind is BlockKind.TABLE and self._is_placed(number)

    def _holds(self, number: int, box: Box) -> bool:
        """Return whether the middle of a box is in a block."""
        x, y = box.centre
        block = self.blocks[number]
        grown = [one.grown(_OUTSIDE) for one in (block.box, *block.continued)]
        return self._is_placed(number) and any(one.x0 <= x <= one.x1 and one.y0 <= y <= one.y1 for one in grown)

    def _by_rows(self, indices: Sequence[int]) -> list[int]:
        """Return found words from top to bottom, and in each row from left to right."""
        rows: list[list[int]] = []
        for index in sorted(indices, key=lambda index: self.found[index].box.centre[1]):
            box = self.found[index].box
            if rows and box.y0 < self.found[rows[-1][0]].box.centre[1]:
                rows[-1].append(index)
            else:
                rows.append([index])
        return [index for row in rows for index in sorted(row, key=lambda index: self.found[index].box.x0)]

    def _pair(self, words: Sequence[_Word], candidates: Sequence[int], *, share: bool) -> None:
        """Place words on found words with the same letters, then near their neighbors; let the rest share what is left.

        Args:
            words: Words without a place, in order.
            candidates: Unused found words, in the order in which a reader meets them.
            share: Whether words may take the room of found words with other letters.
        """
        if not candidates:
            return
        own, other = [word.key for word in words], [self.found[index].key for index in candidates]
        partners, end = _partners("".join(own), "".join(other)), 0
        # Letters in a row, and their partners in a row, are a run.
        rows = groupby(enumerate(partners), key=lambda pair: pair[1] - pair[0] if pair[1] >= 0 else None)
        run_of = [run for _, group in rows for run in [[*group]] for _ in run]
        for word in words:  # similar words share a place below, and a few letters are often the same by chance
            start, end = end, end + len(word.key)
            run = run_of[start]
            is_whole = run[0][1] >= 0 and run[-1][0] >= end - 1
            if not is_whole or (len(run) < _LEAST_LETTERS and self._is_placed(word.block)):
                partners[start:end] = [-1] * len(word.key)
        self._claim(words, partners, candidates)
        self._place_near(words, candidates)
        if not share:
            return
        order = {index: place for place, index in enumerate(candidates)}
        for start, end in _unplaced(words):
            first = words[start - 1].last if start else -1
            last = words[end].first if end < len(words) else len(self.found)
            between = candidates[order.get(first, -1) + 1 : order.get(last, len(candidates))]
            for number, group in groupby(words[start:end], key=lambda word: word.block):
                near = [
                    index
                    for index in between
                    if not self.found[index].used
                    and (not self._is_placed(number) or self._holds(number, self.found[index].box))
                ]
                if near:
                    self._share(list(group), near)

    def _place_near(self, words: Sequence[_Word], candidates: Sequence[int]) -> None:
        """Place words on equal found words in any order: on those that are nearest to the word before, or after."""
        free: dict[tuple[int, str], list[int]] = {}
        after: list[_Piece] = []
        following = [after := word.pieces[:1] or after for word in reversed(words)]
        before: list[_Piece] = []
        for word, after in zip(words, reversed(following), strict=True):
            if not word.pieces and word.letters:
                if (kind := (word.block, word.key)) not in free:
                    equal = (index for index in candidates if self.found[index].key == word.key)
                    free[kind] = [index for index in equal if self._holds(word.block, self.found[index].box)]
                unused = [index for index in free[kind] if not self.found[index].used][:_MOST_BETWEEN]
                if unused:
                    nearest = min(unused, key=partial(self._distance, before or after))
                    self._claim([word], range(len(word.key)), [nearest])
            before = word.pieces[-1:] or before

    def _distance(self, pieces: Sequence[_Piece], index: int) -> float:
        """Return the distance of a found word from the first piece, if any; lines count more than columns."""
        x, y = self.found[index].box.centre
        left, top = pieces[0].box.centre if pieces else (x, y)
        return abs(x - left) * self.aspect + _LINES * abs(y - top)

    def _share(self, words: Sequence[_Word], indices: Sequence[int]) -> None:
        """Place words in the room of found words with another text, by their widths."""
        rooms: list[tuple[Box, int]] = []
        for index in indices:
            one = self.found[index]
            one.used = True
            if len(words) != len(indices) and rooms and rooms[-1][1] == one.line:
                rooms[-1] = rooms[-1][0].union(one.box), one.line
            else:
                rooms.append((one.box, one.line))
        if len(rooms) == len(words):
            for word, (box, line) in zip(words, rooms, strict=True):
                self._add(word, 0, box, line, aligned=False)
        else:
            self._spread(words, rooms)
        for word in words:
            word.first, word.last = indices[0], indices[-1]

    def _spread(self, words: Sequence[_Word], rooms: Sequence[tuple[Box, int]]) -> None:
        """Divide the words among rooms on lines in proportion to their lengths, and each room among its words."""
        lengths = [max(self._length(box, self.lines[line][1]), 1e-6) for box, line in rooms]
        ends = list(accumulate(lengths))
        widths = [_width(word.text) + _width_of(" ") for word in words]
        scale = ends[-1] / sum(widths)
        at = 0.0
        shares: dict[int, list[_Word]] = defaultdict(list)
        for word, width in zip(words, widths, strict=True):
            shares[min(bisect_right(ends, (at + width / 2) * scale), len(rooms) - 1)].append(word)
            at += width
        for number, some in shares.items():
            box, line = rooms[number]
            for word, part in zip(some, _divided([word.text for word in some], box, self.lines[line][1]), strict=True):
                self._add(word, 0, part, line, aligned=False)

    def _length(self, box: Box, direction: Direction) -> float:
        """Return the length of a box in a direction, in heights of the page."""
        return box.width * self.aspect if direction in ("right", "left") else box.height

    def _fill(self, start: int, end: int) -> None:
        """Place the words of a run without candidates beside its neighbors in the block, or in the block's box."""
        words = self.words[start:end]
        number = words[0].block
        before = self.words[start - 1] if start > 0 and self.words[start - 1].block == number else None
        after = self.words[end] if end < len(self.words) and self.words[end].block == number else None
        if before is None and after is None:
            self._spread(words, self._new_lines(words, self._room(start, end)))
            return
        neighbor = before or after or words[0]
        piece = neighbor.pieces[-1 if before is not None else 0]
        direction = self.lines[piece.line][1]
        if before is not None and after is not None and after.pieces[0].line == piece.line:
            room = _gap(piece.box, after.pieces[0].box, direction)
        else:
            length = self._length(piece.box, direction)
            em = length / max(_width(neighbor.text[piece.start :]), 0.5)
            needed = em * sum(_width(word.text) + _width_of(" ") for word in words) / max(length, 1e-6)
            ends = (1.0, 1 + needed) if before is not None else (-needed, 0.0)
            room = _part(piece.box, direction, *ends).clipped()  # beside the neighbor, inside of the page
        self._spread(words, [(room, piece.line)])

    def _room(self, start: int, end: int) -> Box:
        """Return the place of a block without aligned words: its box, or what its neighbors leave of the page."""
        number = self.words[start].block
        if self._is_placed(number):
            return self.blocks[number].box.clipped()
        boxes = [word.pieces[-1].box for word in self.words[max(0, start - 1) : start] if word.pieces]
        top = boxes[0].y1 if boxes else 0.0
        later = next((word.pieces[0].box for word in self.words[end:] if word.pieces), None)
        bottom = later.y0 if later is not None else 1.0
        return Box(0.0, top, 1.0, bottom) if bottom - top > _OUTSIDE else Box(0.0, 0.0, 1.0, 1.0)

    def _new_lines(self, words: Sequence[_Word], box: Box) -> list[tuple[Box, int]]:
        """Divide a box into as many lines as the words need at the size that fills it, and add these to the lines."""
        ems = sum(_width(word.text) + _width_of(" ") for word in words)
        width, height = max(box.width * self.aspect, 1e-4), max(box.height, 1e-4)
        text = "".join(word.text for word in words)
        # Most letters are of scripts that are also written from top to bottom.
        is_wide = 2 * sum(unicodedata.east_asian_width(letter) in "WF" for letter in text) > len(text)
        stacked = height > _TALL * width and is_wide
        if stacked:
            width, height = height, width
        count = max(1, round((ems * height / (_LEADING * width)) ** 0.5), -(-height // _HIGHEST) if not stacked else 1)
        count = int(min(count, max(1, len(words) if not stacked else ems)))
        high = min(height / count, _HIGHEST) if not stacked else height / count
        direction: Direction = "down" if stacked else _direction(text, Box(0, 0, 1, 0), (), 1.0, stacked=False)
        rooms = []
        for number in range(count):
            if stacked:  # lines follow each other to the left
                step = box.width / count
                room = Box(box.x1 - (number + 1) * step, box.y0, box.x1 - number * step, box.y1)
            else:
                room = Box(box.x0, box.y0 + number * high, box.x1, box.y0 + (number + 1) * high)
            self.lines.append((room, direction))
            rooms.append((room, len(self.lines) - 1))
        return rooms


def _gap(first: Box, second: Box, direction: Direction) -> Box:
    """Return the room between two boxes on one line; without any, the border of the first."""
    both = first.union(second)
    match direction:
        case "right":
            return Box(first.x1, both.y0, max(first.x1, second.x0), both.y1)
        case "left":
            return Box(min(first.x0, second.x1), both.y0, first.x0, both.y1)
        case "down":
            return Box(both.x0, first.y1, both.x1, max(first.y1, second.y0))
        case "up":
            return Box(both.x0, min(first.y0, second.y1), both.x1, first.y0)


def _words_of(number: int, block: Block, spans: Sequence[tuple[int, int]]) -> list[_Word]:
    text = block_text(block, spans)
    if spans and MARK.sub("", text) != block_text(block):  # a mark changed the Markdown: the whole block is marked
        text = f"{MARK.pattern[1]}{block_text(block)}{MARK.pattern[1]}"
    words, inside = [], False
    for token in text.split():
        unsupported = False
        for place, part in enumerate(MARK.split(token)):
            inside ^= place > 0
            unsupported |= inside and bool(part)
        word = unicodedata.normalize("NFC", MARK.sub("", token))
        if word:
            words.append(_Word(word, number, unsupported, *_letters(word)))
    return words


def placed_words(
    blocks: Sequence[Block], found: Sequence[FoundLine], *, aspect: float = 1.0, unsupported: Iterable[Span] = ()
) -> tuple[PlacedBlock, ...]:
    """Return the text of a page word by word, with places.

    A word takes the box of the found word that it is aligned with, or a part of it. Words between aligned neighbors
    share the room of the found words between them, or the gap. A block that is not aligned is spread over the found
    lines in its box, otherwise over lines that fill its box. Without any box, the page is the box.

    Args:
        blocks: The blocks of the page in reading order; running heads and feet are included.
        found: The lines found on the page, in any order of blocks.
        aspect: Width of the page divided by its height.
        unsupported: Places of unsupported text, as in the page's ledger.

    Returns:
        The blocks in reading order, all of them.
    """
    page = _Placing(blocks, found, aspect, unsupported)
    page.place()
    placed: list[PlacedBlock] = []
    by_block: dict[int, list[_Word]] = defaultdict(list)
    for word in page.words:
        by_block[word.block].append(word)
    for number, block in enumerate(blocks):
        parts: list[tuple[int, PlacedWord]] = []
        for word in by_block[number]:
            ends = [*(piece.start for piece in word.pieces[1:]), len(word.text)]
            for piece, end in zip(word.pieces, ends, strict=True):
                text, more = word.text[piece.start : end], end < len(word.text)
                parts.append((piece.line, PlacedWord(text, piece.box.clipped(), piece.aligned, more, word.unsupported)))
        lines = []
        for line, group in groupby(parts, key=lambda part: part[0]):
            words = tuple(word for _, word in group)
            lines.append(PlacedLine(words, reduce(Box.union, (word.box for word in words)), page.lines[line][1]))
        placed.append(PlacedBlock(block, tuple(lines)))
    return tuple(placed)
