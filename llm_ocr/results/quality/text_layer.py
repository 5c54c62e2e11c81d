"""Compare an answer with the page's text layer."""

import html
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from llm_ocr.engines.embedded.page import LIE, SCAN
from llm_ocr.engines.embedded.probe import suspicious
from llm_ocr.results.quality import BACKED, FOUND
from llm_ocr.types import FURNITURE, Attempt, Block, BlockKind, Box, Evidence, Line, PageContent

# Texts cut into chunks of about a line, so that two readings of a page can be compared whatever their line ends.
# Compared are letters and digits alone: spaces, hyphens, marks and case differ between readings that are both right.


#: Letters of a chunk: about a line of a column. Shorter ones are found by chance, longer ones hide what is lost.
LETTERS = 40
#: Letters of a run: five tell texts of one language apart, and an OCR error spoils no more than five of a chunk's.
RUN = 5
#: Chunks of which less than this share is on the other side are missing there.
_SAME = 0.5

_TAGS = re.compile(r"<[^<>]{1,300}>|!\[[^\]]{0,300}\]\([^)]{0,300}\)|\]\([^)\s]{1,300}\)")
_COMMAND = re.compile(r"\\[a-zA-Z]+")
_TOKEN = re.compile(r"[^\W_]+")


@dataclass(frozen=True, slots=True)
class Chunk:
    """Consecutive words of a text in one case, and all runs of `RUN` letters in them."""

    words: tuple[str, ...]
    letters: str
    runs: tuple[str, ...]


def plain(text: str) -> str:
    """Markdown, HTML and LaTeX without their marks."""
    if "<" in text or "](" in text:
        text = _TAGS.sub(" ", text)
    if "&" in text:
        text = html.unescape(text)
    return _COMMAND.sub(" ", text) if "\\" in text else text


@dataclass(frozen=True, slots=True)
class Said:
    """A block, what it says that stands on the page without marks, and that in chunks.

    What a model says about a figure does not stand on the page; what it reads in one does.
    """

    block: Block
    text: str
    chunks: tuple[Chunk, ...]


def said_by(blocks: Iterable[Block]) -> list[Said]:
    """The blocks with their texts."""
    found = []
    for block in blocks:
        parts = (block.text, block.inside, block.caption) if block.kind is BlockKind.FIGURE else (block.text,)
        text = plain("\n".join(filter(None, parts)))
        found.append(Said(block, text, tuple(chunks_of(text))))
    return found


def chunks_of(text: str) -> list[Chunk]:
    """The text's words in chunks of at least `LETTERS`, the last one shorter."""
    chunks: list[Chunk] = []
    words: list[str] = []
    size = 0
    for word in _words(text):
        words.append(word)
        size += len(word)
        if size >= LETTERS:
            chunks.append(_chunk(words))
            words, size = [], 0
    return [*chunks, _chunk(words)] if words else chunks


def _chunk(words: Sequence[str]) -> Chunk:
    letters = "".join(words)
    return Chunk(tuple(words), letters, runs(letters))


def _words(text: str) -> Iterator[str]:
    """Words without marks; what is written without spaces in pieces."""
    for word in _TOKEN.findall((text if text.isascii() else unicodedata.normalize("NFKC", text)).casefold()):
        if len(word) <= LETTERS:
            yield word
        else:
            yield from (word[at : at + LETTERS] for at in range(0, len(word), LETTERS))


def runs(letters: str) -> tuple[str, ...]:
    """All runs of `RUN` letters."""
    return tuple([letters[at : at + RUN] for at in range(len(letters) - RUN + 1)])


def size_of(chunks: Sequence[Chunk]) -> int:
    """Letters of the chunks."""
    return sum(len(chunk.letters) for chunk in chunks)


def missing(chunks: Sequence[Chunk], other: Sequence[Chunk]) -> int:
    """Letters of the chunks that `other` does not hold; what is said twice must stand there twice.

    What fits best is taken out of `other` first: a chunk that is missing would find its commoner runs and words in the
    places of those that are there.
    """
    stock = Counter(runs("".join([chunk.letters for chunk in other])))
    words = Counter([word for chunk in other for word in chunk.words])
    ranked = sorted(chunks, key=lambda chunk: _share(stock, chunk), reverse=True)
    return sum(
        len(chunk.letters) for chunk in ranked if max(_used(stock, chunk.runs), _used(words, chunk.words)) < _SAME
    )


def _share(stock: Counter[str], chunk: Chunk) -> float:
    return sum(map(stock.__contains__, chunk.runs)) / len(chunk.runs) if chunk.runs else 0.0


def _used(stock: Counter[str], wanted: Sequence[str]) -> float:
    """The share that is still there; it is used up."""
    found = 0
    for one in wanted:
        left = stock.get(one, 0)
        if left:
            stock[one] = left - 1
            found += 1
    return found / len(wanted) if wanted else 0.0


# Whether an answer goes down its columns, and from the left one to the right one: from the places of its pieces.


if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Reals = npt.NDArray[np.float64]

#: What may stand anywhere in an answer, wherever it is on the page; tables are read row by row.
ASIDE = FURNITURE | {BlockKind.FIGURE, BlockKind.TABLE, BlockKind.CAPTION, BlockKind.FOOTNOTE}
#: Pieces that are compared, each with each; of more every second, third … is looked at.
_MOST = 150
#: Two pieces stand side by side, or above one another, when they share so much of the smaller one's height or width.
_SHARED = 0.5
#: Fewer pairs than this say nothing.
_ENOUGH_BOXES = 6


def in_order(boxes: Sequence[Box]) -> float | None:
    """The share of the pieces' pairs that are read in their order; None where there are too few.

    `boxes` in the order of the answer. The worst of three shares: of the pairs above one another that are read
    downwards, of those side by side that are read from one side to the other, whichever side most begin with, and of
    the steps from piece to piece that do not jump over a gutter to the same height and back again.
    """
    import numpy as np

    step = -(-len(boxes) // _MOST) or 1
    sides = np.array([(box.x0, box.y0, box.x1, box.y1) for box in boxes[::step]]).reshape(-1, 4)
    left, top, right, bottom = (sides[:, None, index] for index in range(4))
    later = np.triu(np.ones((len(sides), len(sides)), np.bool_), 1)
    across, wide = _overlap(left, right)
    down, high = _overlap(top, bottom)
    beside = later & (down > _SHARED * high) & (across <= 0)
    above = later & (across > _SHARED * wide) & (down <= 0)
    shares = [
        1 - float(wrong.sum()) / float(every.sum())
        for wrong, every in ((beside & (left > left.T), beside), (above & (top > top.T), above))
        if every.sum() >= _ENOUGH_BOXES
    ]
    if len(sides) > _ENOUGH_BOXES and step == 1:
        shares.append(1 - float(np.diagonal(beside, 1).mean()))
    return min(shares) if shares else None


def _overlap(low: "Reals", high: "Reals") -> tuple["Reals", "Reals"]:
    """How much each shares with each, and the smaller one's size."""
    import numpy as np

    size = high - low
    return np.minimum(high, high.T) - np.maximum(low, low.T), np.minimum(size, size.T)


# An answer beside the page's text layer, where that is true: what is missing, and what is invented.


#: Characters of a layer, about, by which its language is judged.
_SAMPLE = 1500
#: Letters below which a text is too short to be judged.
_ENOUGH_LETTERS = 60
#: What lies within this share of the page's height or width from an edge may be left out: heads, feet and stamps.
_MARGIN = 0.07
#: Runs that must stand in one line only to say where a chunk is.
_ENOUGH_RUNS = 5


def is_true(evidence: Evidence, attempt: Attempt) -> bool:
    """Whether the text layer is the page's text: drawn by the file itself, or found true by OCR of sample lines."""
    if not evidence.lines or (attempt.probe is not None and attempt.probe > LIE):
        return False
    if evidence.pictured > SCAN and attempt.probe is None:
        return False
    step = -(-sum(len(text) for text, _ in evidence.lines) // _SAMPLE)
    some = tuple(Line(text, box, 0.0) for text, box in evidence.lines[::step])
    return not suspicious(PageContent(1.0, 1.0, some))


def agreement(evidence: Evidence, attempt: Attempt, answer: Sequence[Chunk]) -> dict[str, float]:
    """The parts that compare answer and layer; without those for which one of them is too short."""
    demanded, optional = _layer_chunks(evidence, attempt)
    parts: dict[str, float] = {}
    wanted = size_of(demanded)
    if wanted >= _ENOUGH_LETTERS:
        parts[FOUND] = 1 - missing(demanded, answer) / wanted
    said = size_of(answer)
    if said >= _ENOUGH_LETTERS and wanted + size_of(optional) >= _ENOUGH_LETTERS:
        foreign = missing(answer, [*demanded, *optional]) / said
        # What stands in pictures is in no layer.
        parts[BACKED] = min(1.0, 1 - foreign + min(evidence.pictured, SCAN))
    return parts


def layer_order(evidence: Evidence, said: Sequence[Said]) -> float | None:
    """Whether the answer's text goes down the columns of the layer; None where they are too few, or stand on end."""
    lying = sum(len(text) for text, box in evidence.lines if box.width > box.height)
    if 2 * lying < sum(len(text) for text, _ in evidence.lines):
        return None
    return in_order(_places(evidence, said))


def _layer_chunks(evidence: Evidence, attempt: Attempt) -> tuple[list[Chunk], list[Chunk]]:
    """Chunks that the answer must have, and those that it may have: in the margins, in figures and formulas."""
    pictures = [
        box
        for block in attempt.blocks
        if block.kind in (BlockKind.FIGURE, BlockKind.FORMULA)
        for box in shown(block, attempt.rotation)
    ]
    placeless = any(block.kind is BlockKind.FIGURE and block.box.area >= 1 for block in attempt.blocks)
    texts: dict[bool, list[str]] = {True: [], False: []}
    for text, box in evidence.lines:
        free = _in_margin(box) or any(box.covered_by(picture) > 0.5 for picture in pictures)
        free = free or (placeless and len(text) < LETTERS)
        texts[not free].append(text)
    return chunks_of("\n".join(texts[True])), chunks_of("\n".join(texts[False]))


def shown(block: Block, rotation: int) -> list[Box]:
    """A block's boxes on the page as it came; without those whose place is not known."""
    if block.box.area >= 1:
        return []
    return [box.turned(-rotation).grown(0.01) for box in (block.box, *block.continued)]


def _in_margin(box: Box) -> bool:
    across, down = box.centre
    if down < _MARGIN or down > 1 - _MARGIN:
        return True
    return (across < _MARGIN or across > 1 - _MARGIN) and box.height > 3 * box.width


def _places(evidence: Evidence, said: Sequence[Said]) -> list[Box]:
    """Where the answer's chunks stand on the page, in its order: by the line of the layer that says most of each."""
    where: dict[str, int] = {}
    often: set[str] = set()
    for number, (text, _) in enumerate(evidence.lines):
        here = {run for chunk in chunks_of(text) for run in chunk.runs}
        often |= here & where.keys()
        where.update(dict.fromkeys(here, number))
    for run in often:
        del where[run]
    found = []
    for one in said:
        if one.block.kind in ASIDE:
            continue
        for chunk in one.chunks:
            known = Counter([where[run] for run in chunk.runs if run in where])
            if known.total() >= _ENOUGH_RUNS:
                found.append(evidence.lines[known.most_common(1)[0][0]][1])
    return found
