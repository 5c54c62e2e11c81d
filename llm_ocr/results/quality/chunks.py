"""Texts cut into chunks of about a line, so that two readings of a page can be compared whatever their line ends.

Compared are letters and digits alone: spaces, hyphens, marks and case differ between readings that are both right.
"""

import html
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from llm_ocr.types import Block, BlockKind

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
