"""Passages for retrieval: a document cut along its headings and blocks into texts of a limited size.

- A heading begins a passage, unless the one before it is small (less than a quarter of the limit) and belongs to the
  same section or to the one above; it stays with what follows it. A caption stays with its table or figure.
- A paragraph, list item, table, figure (its description, and caption), formula or listing that fits the limit is never
  cut. A longer paragraph or description is cut between sentences, a longer sentence between words; a longer table
  between rows, its header repeated; a longer listing between lines.
- Only a word or a row that is larger than the limit makes a passage that is larger.
- A paragraph that goes on over a page is one. Running heads, feet and page numbers are left out.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

from llm_ocr.results.chunk_packing import Measure
from llm_ocr.results.chunk_parts import FigureNote, Part, document_parts
from llm_ocr.results.chunk_pieces import Piece, document_pieces, joined
from llm_ocr.results.dataset import DatasetRow
from llm_ocr.results.sentences import sentences
from llm_ocr.results.text import clean
from llm_ocr.types import Box

#: A passage that is smaller than this share of the limit goes on with the next section.
SMALL = 0.25


@dataclass(frozen=True, slots=True)
class Limits:
    """`size` is the most that a passage may hold, `overlap` how much of the one before may be repeated in it."""

    size: int = 2000
    overlap: int = 0
    measure: Measure = len


@dataclass(frozen=True, slots=True)
class Chunk:
    """A passage. `id` is made of what it says: it stays the same as long as the passage does, wherever it moves to.

    `index` counts the document's passages from 0. `heading_path`: the headings that all of it stands under, the highest
    first. `boxes`: page and place of each block, relative. `size` as the limit is measured; the first `overlap`
    characters of the text repeat the end of the passage before.
    """

    id: str
    document_id: str
    source: str
    index: int
    text: str
    heading_path: tuple[str, ...]
    page_first: int
    page_last: int
    boxes: tuple[tuple[int, Box], ...]
    kinds: tuple[str, ...]
    figures: tuple[FigureNote, ...]
    size: int
    overlap: int = 0


def document_chunks(
    document_id: str, source: str, name: str, rows: Sequence[DatasetRow], limits: Limits
) -> Iterator[Chunk]:
    """The passages of a document from its rows in page order; `name` is that in the Markdown tree."""
    seen: Counter[str] = Counter()
    for index, (pieces, repeated) in enumerate(cut(document_parts(rows, name), limits)):
        whole = joined(pieces)
        text = whole.text.rstrip()
        about = json.dumps([whole.path, text], ensure_ascii=False)
        digest = hashlib.sha256(f"{about}{seen[about] or ''}".encode()).hexdigest()[:16]
        seen[about] += 1
        pages = [place.page for place in whole.places]
        yield Chunk(
            f"{clean(document_id)}-c{digest}",
            clean(document_id),
            clean(source),
            index,
            text,
            whole.path,
            min(pages),
            max(pages),
            tuple(dict.fromkeys((place.page, box) for place in whole.places for box in place.boxes)),
            whole.kinds,
            tuple(dict.fromkeys(whole.figures)),
            limits.measure(text),
            repeated,
        )


def cut(parts: Sequence[Part], limits: Limits) -> Iterator[tuple[list[Piece], int]]:
    """The pieces of each passage, and how many characters of the first one repeat the passage before."""
    return _Cutter(limits).run(document_pieces(parts, limits.size, limits.measure))


class _Cutter:
    """Fills one passage after the other."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._pieces: list[Piece] = []
        self._size = 0
        self._repeated = 0

    def run(self, pieces: Iterator[Piece]) -> Iterator[tuple[list[Piece], int]]:
        for piece in pieces:
            if self._pieces and self._begins_section(piece):
                yield from self._end()
            elif self._pieces and not self._fits(piece):
                tail = self._tail(piece)
                yield from self._end()
                if tail is not None:
                    self._add(tail)
                    self._repeated = len(tail.text) + len(piece.separator)
            self._add(piece)
        yield from self._end()

    def _begins_section(self, piece: Piece) -> bool:
        if not piece.section:
            return False
        here = self._pieces[-1].path
        related = len(here) <= len(piece.path) and here[: len(piece.path) - 1] == piece.path[:-1]
        return not related or self._size >= SMALL * self._limits.size

    def _fits(self, piece: Piece) -> bool:
        most, measure = self._limits.size, self._limits.measure
        if self._size + measure(piece.separator) + piece.size > most:
            return False
        # tokens of a whole may be more than those of its parts
        return measure is len or measure(joined([*self._pieces, piece]).text) <= most

    def _add(self, piece: Piece) -> None:
        self._size += piece.size + (self._limits.measure(piece.separator) if self._pieces else 0)
        self._pieces.append(piece)

    def _end(self) -> Iterator[tuple[list[Piece], int]]:
        if any(piece.text.strip() for piece in self._pieces):
            yield self._pieces, self._repeated
        self._pieces, self._size, self._repeated = [], 0, 0

    def _tail(self, follows: Piece) -> Piece | None:
        """The last sentences of the passage, as many as may be repeated before what follows; None for none."""
        most, measure = self._limits.overlap, self._limits.measure
        alike = takewhile(lambda piece: piece.prose and piece.path == follows.path, reversed(self._pieces))
        run = list(alike)[::-1] if most and follows.prose else []
        if not run:
            return None
        last = joined(run)
        begin, total = len(last.text), 0
        room = min(most, self._limits.size - follows.size - measure(follows.separator))
        for sentence in reversed(list(sentences(last.text))[1 if last.section else 0 :]):
            total += measure(sentence)
            if total > room:
                break
            begin -= len(sentence)
        tail = last.text[begin:]
        # tokens of a whole may be more than those of its parts
        whole = measure(tail) <= most and measure(f"{tail}{follows.separator}{follows.text}") <= self._limits.size
        return last.since(begin, measure) if tail and whole else None
