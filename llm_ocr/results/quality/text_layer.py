"""Compare an answer with the page's text layer."""

import html
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from operator import not_

from llm_ocr.documents.text_layer import LIE, suspicious
from llm_ocr.types import HTML_ELEMENTS, SCAN, Attempt, Block, BlockKind, Box, Evidence, Line, PageContent

# Texts cut into chunks of about a line, to compare two readings of a page despite different line breaks. Only letters
# and digits are compared: spaces, hyphens, marks, and case differ between correct readings.


#: Letters of a chunk: about a line of a column. Shorter chunks match by chance, longer ones hide losses.
LETTERS = 40
#: Letters of a run, the shortest passage that is matched in a part of a word: five distinguish texts of one language.
RUN = 5
#: Fewest letters of a passage that is matched as a whole: two words.
PASSAGE = 12
#: Whether another text has a word: no; yes; yes, in a passage of `PASSAGE` letters; not comparable.
LACKING, FOUND, IN_PASSAGE, UNVERIFIABLE = range(4)
#: Most places of a passage that are compared.
_REPEATED = 40
#: Fewest letters of a passage that is a loss or an invention, and most letters between two parts of one.
SHORTEST, _BRIDGED = 30, 4
#: Share of the letters from which shorter passages are one, too, if all are taken together.
MISREAD = 0.05

#: Tags, images, and targets of links, beside escaped characters and code, which are text of the page.
_MARKUP = re.compile(
    r"\\[!-/:-@\[-`{-~]|(?<!`)(?P<ticks>`+)(?!`)[^\n]{1,300}?(?<!`)(?P=ticks)(?!`)"
    rf"|(?P<markup></?(?:{'|'.join(sorted(HTML_ELEMENTS, reverse=True))})"
    r"(?:\s{1,9}[a-zA-Z:-]{1,40}=(?:\"[^\"<>]{0,300}\"|'[^'<>]{0,300}'|[^\s\"'<>]{1,300}))*\s?/?>"
    r"|!\[[^\]]{0,300}\]\([^)]{0,300}\)|\]\([^)\s]{1,300}\))",
    re.IGNORECASE,
)
_ENTITY = re.compile(r"&#?\w{1,30};")
_COMMAND = re.compile(r"\\(?:begin|end)\{[a-zA-Z]{1,20}\*?\}|\\[a-zA-Z]+")
#: Formulas in text, with their delimiters, and letters of formulas. `$5 and $10` are amounts of money. Outside of
#: formulas, `\newcommand` is text of the page, as in a manual of LaTeX.
FORMULA = re.compile(
    r"\$\$[^$]{1,2000}\$\$?|\$[^$]{1,2000}\$(?!\d)|\\\([^$]{1,2000}?\\\)|\\\[[^$]{1,2000}?\\\]|[\U0001d400-\U0001d7ff]+"
)
#: Words of prose. Symbols of formulas are shorter, and most names of functions.
_PROSE = re.compile(r"[^\W\d_]{4,}")
#: Combining accents, and accents that stand alone.
_ACCENTS = re.compile("[\u0300-\u036f\u02b0-\u02ff]")
#: Letters and digits, with the accents of decomposed letters.
_TOKEN = re.compile(r"[^\W_]+(?:[\u0300-\u036f]+[^\W_]*)*")


@dataclass(frozen=True, slots=True)
class Chunk:
    """Consecutive words of a text in one case; `places`: of the words."""

    words: tuple[str, ...]
    letters: str
    places: tuple[tuple[int, int], ...]

    @property
    def start(self) -> int:
        return self.places[0][0]

    @property
    def end(self) -> int:
        return self.places[-1][1]


def plain(text: str, *, formula: bool = False) -> str:
    """Blank the markup of Markdown and HTML, and of LaTeX in formulas; `formula`: the text is one.

    The result is as long as the text, so that places in it are places in the text.
    """
    if "<!--" in text:
        text = _without_comments(text)
    if "<" in text or "](" in text:
        text = _MARKUP.sub(lambda found: _spaces(found) if found["markup"] else found[0], text)
    if "&" in text:
        text = _ENTITY.sub(lambda found: html.unescape(found[0]).ljust(len(found[0])), text)
    if "\\" not in text:
        return text
    return _COMMAND.sub(_spaces, text) if formula else FORMULA.sub(lambda found: _COMMAND.sub(_spaces, found[0]), text)


def _without_comments(text: str) -> str:
    """Blank comments, which may hide text of any length."""
    parts, at = [], 0
    while (start := text.find("<!--", at)) >= 0 and (end := text.find("-->", start)) >= 0:
        parts += [text[at:start], " " * (end + len("-->") - start)]
        at = end + len("-->")
    return "".join([*parts, text[at:]])


def _spaces(found: re.Match[str]) -> str:
    return " " * len(found[0])


@dataclass(frozen=True, slots=True)
class BlockText:
    """Block with its text on the page, with spaces for markup, and that text in chunks.

    A model's description of a figure is not text of the page; text read in a figure, which is first, is.
    """

    block: Block
    text: str
    chunks: tuple[Chunk, ...]


def texts_of(blocks: Iterable[Block]) -> list[BlockText]:
    """Return the blocks with their texts."""
    found = []
    for block in blocks:
        parts = (block.inside, block.caption, block.text) if block.kind is BlockKind.FIGURE else (block.text,)
        text = "\n".join(filter(None, parts))
        if block.kind is not BlockKind.CODE:  # there, tags and commands are text of the page
            text = plain(text, formula=block.kind is BlockKind.FORMULA)
        found.append(BlockText(block, text, tuple(chunks_of(text))))
    return found


def formulas_in(entry: BlockText) -> list[tuple[int, int]]:
    """Return the places of formulas in a block's text, which no text layer or OCR can verify.

    Prose is none: between two amounts in dollars, or in a block that a model calls a formula.
    """
    if entry.block.kind is BlockKind.FORMULA:
        places = [(0, len(entry.text))]
    else:
        places = [found.span() for found in FORMULA.finditer(entry.text)]
    return [(start, end) for start, end in places if not is_prose(entry.text[start:end])]


def is_prose(text: str) -> bool:
    """Return whether most letters and digits of a text are in words, unlike those of a formula."""
    return 2 * sum(map(len, _PROSE.findall(text))) > sum(map(str.isalnum, text))


def without_formulas(entry: BlockText) -> str:
    """Return a block's text with spaces in place of its formulas."""
    text = entry.text
    for start, end in formulas_in(entry):
        text = text[:start] + " " * (end - start) + text[end:]
    return text


def folded(text: str) -> str:
    """Return the text in one case and without accents, with ligatures and letters of full width as ordinary letters.

    Some text layers have an accent beside its letter, and OCR confuses accents.
    """
    if text.isascii():
        return text.lower()
    apart = unicodedata.normalize("NFD", unicodedata.normalize("NFKC", text).casefold())
    return unicodedata.normalize("NFC", _ACCENTS.sub("", apart))


def chunks_of(text: str) -> list[Chunk]:
    """Return the text's words in chunks of at least `LETTERS`; the last chunk may be shorter."""
    chunks: list[Chunk] = []
    words: list[str] = []
    places: list[tuple[int, int]] = []
    size = 0
    for found in _TOKEN.finditer(text):
        word, (start, end) = folded(found[0]), found.span()
        for at in range(0, len(word), LETTERS):  # text written without spaces, in segments
            words.append(word[at : at + LETTERS])
            places.append((min(start + at, end), min(start + at + LETTERS, end)))
            size += len(words[-1])
            if size >= LETTERS:
                chunks.append(Chunk(tuple(words), "".join(words), tuple(places)))
                words, places, size = [], [], 0
    return [*chunks, Chunk(tuple(words), "".join(words), tuple(places))] if words else chunks


def words_of(text: str) -> list[str]:
    """Return the words of the chunks of a text."""
    words = map(folded, _TOKEN.findall(text))
    return [word[at : at + LETTERS] for word in words for at in range(0, len(word), LETTERS)]


def size_of(chunks: Sequence[Chunk]) -> int:
    """Return the number of letters of the chunks."""
    return sum(len(chunk.letters) for chunk in chunks)


def aligned(own: Sequence[Chunk], other: Sequence[Chunk]) -> tuple[list[list[int]], list[list[int]]]:
    """Return for each word of two texts whether the other text has it, too, and as often.

    Passages are matched first, in any order, the longest ones first: those of `PASSAGE` letters, then those of `RUN`
    letters in what is left, then single words. Each letter is matched once, so that what one text has more often than
    the other is never found, whatever its place.

    Returns:
        For each chunk of `own`, then of `other`, one value per word: `LACKING`, `FOUND`, or `IN_PASSAGE`. A word with a
        digit is found only as a whole.
    """
    texts = ["".join([chunk.letters for chunk in some]) for some in (own, other)]
    words = [[word for chunk in some for word in chunk.words] for some in (own, other)]
    sizes = [list(map(len, some)) for some in words]
    same = bytearray(len(texts[0])), bytearray(len(texts[1]))
    matched_passages(texts, sizes, PASSAGE, same)
    similar = bytearray(same[0]), bytearray(same[1])
    matched_passages(texts, sizes, RUN, similar)
    flags = [_found(*sides) for sides in zip(words, same, similar, strict=True)]
    left = [Counter(compress(some, map(not_, found))) for some, found in zip(words, flags, strict=True)]
    both = left[0] & left[1]
    result: list[list[list[int]]] = [[], []]
    for some, found, rows in zip((own, other), flags, result, strict=True):
        once, at = both.copy(), 0
        for chunk in some:
            row = found[at : at + len(chunk.words)]
            at += len(row)
            for number, word in enumerate(chunk.words):
                if row[number] == LACKING and once[word]:
                    once[word] -= 1
                    row[number] = FOUND
            rows.append(row)
    return result[0], result[1]


def _found(words: Sequence[str], same: bytearray, similar: bytearray) -> list[int]:
    """Return for each word whether it is in long passages of both texts, or in shorter ones."""
    import numpy as np

    sizes = np.array(list(map(len, words)), np.int64)
    ends = np.cumsum(sizes)
    sums = (np.cumsum(np.frombuffer(b"\0" + flags, np.uint8), dtype=np.int64) for flags in (same, similar))
    in_same, in_similar = (some[ends] - some[ends - sizes] for some in sums)
    least = np.where(list(map(str.isalpha, words)), sizes, 2 * sizes)  # half of a word, all of a number
    found = np.where((2 * in_similar >= sizes) & (least == sizes), FOUND, LACKING)
    result: list[int] = np.where(2 * in_same >= least, IN_PASSAGE, found).tolist()
    return result


def matched_passages(
    texts: Sequence[str], words: Sequence[Sequence[int]], least: int, taken: tuple[bytearray, bytearray]
) -> list[tuple[int, int, int]]:
    """Return the passages that two texts have in common, each letter used once, the longest ones first.

    Passages do not end within the first or last two letters of a word: these are often the same by chance.

    Args:
        texts: The two texts, letters only.
        words: The lengths of their words in letters, at least 1.
        least: Letters of the shortest passage.
        taken: 1 for each letter of both texts that is matched already; the letters of the result are set.

    Returns:
        The start of each passage in the first text, its start in the second text, and its length.
    """
    import numpy as np

    found: list[tuple[int, int, int]] = []
    matched, used = taken
    free_parts = re.compile(rb"\x00{%d,}" % max(RUN, least - 2))
    keys, free = [], []
    for text, flags in zip(texts, taken, strict=True):
        sums = np.concatenate(([0], np.cumsum(np.frombuffer(flags, np.uint8), dtype=np.int64)))
        free.append(np.flatnonzero(sums[least:] == sums[:-least]))
        codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32).astype(np.uint64)
        key = np.zeros(max(0, len(codes) - least + 1), np.uint64)
        for at in range(least):
            key = key * np.uint64(0x100000001B3) + codes[at : at + len(key)]
        keys.append(key[free[-1]])
    if not min(map(len, free)):
        return found
    order = np.argsort(keys[1], kind="stable")
    ranked = keys[1][order]
    low = np.searchsorted(ranked, keys[0], "left")
    count = np.minimum(np.searchsorted(ranked, keys[0], "right") - low, _REPEATED)
    starts = np.repeat(free[0], count)
    places = free[1][order[np.arange(len(starts)) - np.repeat(np.cumsum(count) - count, count) + np.repeat(low, count)]]
    by_distance = np.lexsort((starts, places - starts))
    starts, places = starts[by_distance], places[by_distance]
    first = np.ones(len(starts), np.bool_)
    first[1:] = (np.diff(starts) != 1) | (np.diff(places) != 1)
    begins = np.flatnonzero(first)
    lengths = np.diff(np.append(begins, len(starts))) + least - 1
    starts, places = starts[begins], places[begins]
    cuts = np.zeros((2, len(starts)), np.int64)
    for sizes, firsts in zip(words, (starts, places), strict=True):
        borders = np.cumsum([0, *sizes])
        after = borders[np.searchsorted(borders, firsts)] - firsts
        begun = firsts + lengths - borders[np.searchsorted(borders, firsts + lengths, "right") - 1]
        cuts = np.maximum(cuts, np.where(np.array([after, begun]) <= 2, [after, begun], 0))
    starts, places, lengths = starts + cuts[0], places + cuts[0], lengths - cuts.sum(0)
    for number in np.argsort(-lengths, kind="stable").tolist():
        start, place, length = int(starts[number]), int(places[number]), int(lengths[number])
        here, there = matched[start : start + length], used[place : place + length]
        overlaps = 1 in here or 1 in there
        both = bytes(a | b for a, b in zip(here, there, strict=True)) if overlaps else bytes(length)
        for piece in free_parts.finditer(both):
            begin, end = piece.span()
            matched[start + begin : start + end] = used[place + begin : place + end] = b"\1" * (end - begin)
            found.append((start + begin, place + begin, end - begin))
    return found


def size_lacking(chunks: Sequence[Chunk], found: Sequence[Sequence[int]]) -> int:
    """Return the number of letters in words that were not found."""
    words = [word for chunk in chunks for word in chunk.words]
    flags = [flag for row in found for flag in row]
    return sum(len(word) for word, flag in zip(words, flags, strict=True) if not flag)


def passages(
    chunks: Sequence[Chunk], found: Sequence[Sequence[int]], together: float | None = None
) -> list[tuple[int, int, int, int]]:
    """Return the passages of at least `SHORTEST` letters that were not found, one of several chunks in parts.

    Args:
        chunks: The text.
        found: Its words that were found, from `aligned`.
        together: Letters from which shorter passages count, if all are taken together. By default `MISREAD` of the
            text: so much may be misread.

    Returns:
        The number of the chunk, the start and end of the part in its text, and its letters.
    """
    result: list[tuple[int, int, int, int]] = []
    every: list[tuple[int, int, int, int]] = []
    parts: list[tuple[int, int, int, int]] = []
    letters, between = 0, 0.0
    for number, (chunk, flags) in enumerate(zip(chunks, found, strict=True)):
        for word, place, flag in zip(chunk.words, chunk.places, flags, strict=True):
            if len(word) == 1 or flag == UNVERIFIABLE:  # symbols of formulas
                continue
            if flag:
                between += len(word) if flag == IN_PASSAGE else len(word) / 4
                continue
            if between > _BRIDGED:
                result += parts if letters >= SHORTEST else ()
                every += parts
                parts, letters = [], 0
            between = 0.0
            letters += len(word)
            if parts and parts[-1][0] == number:
                _, start, _, size = parts[-1]
                parts[-1] = number, start, place[1], size + len(word)
            else:
                parts.append((number, *place, len(word)))
    result += parts if letters >= SHORTEST else ()
    every += parts
    if together is None:
        together = max(ENOUGH_LETTERS, MISREAD * size_of(chunks))
    return every if sum(part[3] for part in every) >= together else result


#: Approximate number of characters of a layer for judging its language.
_SAMPLE = 1500
#: Letters below which a text is too short to be judged.
ENOUGH_LETTERS = 60
#: Margin, relative to the page's height or width.
_MARGIN = 0.07
#: Limit of the words that OCR corrected, each of which is searched in a line, and least letters of a part of a word.
_MOST_REREAD, _LEAST_PART = 1000, 4


def is_true(evidence: Evidence, attempt: Attempt) -> bool:
    """Return whether the text layer is reliable: drawn by the file itself, or confirmed by OCR of sample lines."""
    if not evidence.lines or (attempt.probe is not None and (attempt.probe > LIE or attempt.source == "ocr")):
        return False
    if attempt.probe is not None and evidence.pictured <= SCAN:
        return True
    if evidence.pictured > SCAN and attempt.probe is None:
        return False
    step = -(-sum(len(text) for text, _ in evidence.lines) // _SAMPLE)
    some = tuple(Line(text, box, 0.0) for text, box in evidence.lines[::step])
    return not suspicious(PageContent(1.0, 1.0, some))


def with_reread(evidence: Evidence, attempt: Attempt) -> Evidence:
    """Return the evidence with the readings of OCR in place of the words whose fonts name other letters than shown.

    A layer that is not true without them stays as it is, and is no evidence: its other words may be wrong as well.
    """
    if not attempt.reread or not is_true(evidence, attempt):
        return evidence
    lines = list(evidence.lines)
    split: dict[int, tuple[list[str], list[str]]] = {}  # words of a line, and their letters
    for place, word, reading in attempt.reread[:_MOST_REREAD]:
        across, down = place.centre
        inside = (n for n, (_, box) in enumerate(lines) if box.x0 <= across <= box.x1 and box.y0 <= down <= box.y1)
        if (number := next(inside, None)) is None:
            lines.append((reading, place))
            continue
        if number not in split:
            words = lines[number][0].split(" ")
            split[number] = words, list(map(_letters, words))
        words, letters = split[number]
        # Only letters and digits: glyphs without a mapping are other characters, or none, in the lines of pdfium.
        own, told = _letters(word), _letters(reading)
        at = letters.index(own) if own and own in letters else len(words)
        if at == len(words) and own:  # pdfium joins the parts of a word that is divided at the end of a line
            parts = (n for n, whole in enumerate(letters) if whole.startswith(own) or whole.endswith(own))
            if len(own) < _LEAST_PART or (at := next(parts, len(words))) == len(words):
                continue
            rest = letters[at].removeprefix(own)
            reading = f"{told}{rest}" if rest != letters[at] else f"{letters[at].removesuffix(own)}{told}"
        words[at : at + 1], letters[at : at + 1] = [reading], [_letters(reading)]
    for number, (words, _) in split.items():
        lines[number] = " ".join(words), lines[number][1]
    return replace(evidence, lines=tuple(lines))


def _letters(word: str) -> str:
    return "".join(filter(str.isalnum, word))


def in_margin(box: Box) -> bool:
    """Return whether a relative box is in the margin, where running heads, feet, and stamps are."""
    across, down = box.centre
    if down < _MARGIN or down > 1 - _MARGIN:
        return True
    return (across < _MARGIN or across > 1 - _MARGIN) and box.height > 3 * box.width


def in_rows(boxes: Sequence[Box]) -> list[list[int]]:
    """Return the numbers of boxes from top to bottom; those of one height, as cells of a table, from left to right."""
    rows: list[list[int]] = []
    for number in sorted(range(len(boxes)), key=lambda number: boxes[number].centre[1]):
        box, first = boxes[number], boxes[rows[-1][0]] if rows else None
        if first is not None and box.centre[1] < first.centre[1] + min(first.height, box.height) / 2:
            rows[-1].append(number)
        else:
            rows.append([number])
    return [sorted(row, key=lambda number: boxes[number].x0) for row in rows]
