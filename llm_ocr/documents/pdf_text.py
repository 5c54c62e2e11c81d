"""The text layer of a PDF page as lines and words."""

from collections import Counter

import numpy as np
import pypdfium2

from llm_ocr.documents.pdf_chars import Ints, read_chars
from llm_ocr.documents.pdf_frame import page_frame
from llm_ocr.documents.pdf_gaps import joined_over_gaps, with_drop_capitals
from llm_ocr.documents.pdf_glyphs import Glyphs, glyphs_of
from llm_ocr.documents.pdf_objects import Objects, page_objects
from llm_ocr.documents.pdf_runs import Words, runs_of, words_of
from llm_ocr.documents.pdf_segments import Segment, segments_of
from llm_ocr.types import Box, Line, PageContent, Word

#: A gap between glyphs that do not follow each other in the PDF is a space from here, in parts of the font size.
_SPACE = 0.17
#: Between glyphs that do, pdfium has already said where spaces are; only a gap this wide is one nevertheless.
_MISSED_SPACE = 0.5


def page_content(page: pypdfium2.PdfPage, objects: Objects | None = None) -> PageContent:
    """What the page holds beside its pixels. Invisible text counts: it is the OCR of a scan.

    `objects` are those of `page_objects`, when the caller has them. Call it in a worker process: pdfium is not
    thread-safe and may crash on a damaged file.
    """
    frame = page_frame(page)
    chars = read_chars(page, frame)
    lines, unmapped = _lines(glyphs_of(chars, frame.width, frame.height))
    found = objects or page_objects(page, frame)
    return PageContent(
        frame.width, frame.height, lines, tuple(found.rasters), tuple(found.paths), unmapped, chars.unread
    )


def _lines(glyphs: Glyphs) -> tuple[tuple[Line, ...], int]:
    if not glyphs.texts:
        return (), glyphs.unmapped
    words = words_of(glyphs)
    by_turn: dict[int, list[Segment]] = {}
    for segment in segments_of(words, runs_of(words)):
        by_turn.setdefault(segment.turn, []).append(segment)
    compose = _Composer(glyphs, words)
    lines = [
        compose.line(segment)
        for segments in by_turn.values()
        for segment in with_drop_capitals(words, joined_over_gaps(words, segments))
    ]
    lines.sort(key=lambda line: (line.box.y1, line.box.x0))
    return tuple(lines), glyphs.unmapped


class _Composer:
    """Makes lines of segments. Keeps the words' arrays as lists: single values of arrays are slow to reach."""

    def __init__(self, glyphs: Glyphs, words: Words) -> None:
        self._texts = words.texts
        self._boxes: list[list[float]] = words.boxes.tolist()
        self._u0: list[float] = words.u0.tolist()
        self._u1: list[float] = words.u1.tolist()
        self._size: list[float] = words.size.tolist()
        self._spaced: list[bool] = words.spaced.tolist()
        self._rtl: list[bool] = words.rtl.tolist()
        self._counts: list[int] = (words.end - words.first).tolist()
        self._faces: list[list[int]] = _face_counts(glyphs, words).tolist()

    def line(self, segment: Segment) -> Line:
        order = self._logical(segment.words)
        made = [self._word(members) for members in self._joined(order)]
        total = sum(self._counts[index] for index in order)
        bold, italic, mono = (2 * sum(self._faces[index][face] for index in order) > total for face in range(3))
        text = " ".join(word.text for word in made)
        return Line(text, self._around(order), round(segment.size, 2), tuple(made), bold, italic, mono)

    def _logical(self, visual: list[int]) -> list[int]:
        """Word order as read: left to right, or right to left where most of the line is so."""
        rtl = self._rtl
        if not any(rtl[index] for index in visual):
            return visual
        letters = Counter[bool]()
        for index in visual:
            letters[rtl[index]] += sum(character.isalpha() for character in self._texts[index])
        base = letters[True] >= letters[False]
        result: list[int] = []
        stretch: list[int] = []  # of words that run the other way
        for index in visual[::-1] if base else visual:
            if rtl[index] == base or not any(character.isalnum() for character in self._texts[index]):
                result += stretch[::-1]
                stretch = []
                result.append(index)
            else:
                stretch.append(index)
        return result + stretch[::-1]

    def _joined(self, order: list[int]) -> list[list[int]]:
        """Pieces of one word together: cut apart by a change of size, or by the PDF's order, not by a space."""
        groups: list[list[int]] = []
        for index in order:
            if groups and not self._space_between(groups[-1][-1], index):
                groups[-1].append(index)
            else:
                groups.append([index])
        return groups

    def _space_between(self, one: int, other: int) -> bool:
        left, right = (one, other) if self._u0[one] <= self._u0[other] else (other, one)
        gap = (self._u0[right] - self._u1[left]) / min(self._size[one], self._size[other])
        first = self._texts[other][:1]
        if first == "⁄" or (gap < _SPACE and first in ",.;:!?)]"):
            return False  # pdfium sees a space after a raised numerator or footnote mark
        if other != one + 1 or self._rtl[one] != self._rtl[other]:
            return gap > _SPACE
        return self._spaced[other] or gap > _MISSED_SPACE

    def _word(self, members: list[int]) -> Word:
        if len(members) == 1:
            return Word(self._texts[members[0]], Box(*self._boxes[members[0]]))
        return Word("".join(self._texts[index] for index in members), self._around(members))

    def _around(self, members: list[int]) -> Box:
        boxes = [self._boxes[index] for index in members]
        low, high = (min(box[0] for box in boxes), min(box[1] for box in boxes)), max(box[2] for box in boxes)
        return Box(*low, high, max(box[3] for box in boxes))


def _face_counts(glyphs: Glyphs, words: Words) -> Ints:
    """How many glyphs of each word are bold, italic and mono, (n, 3)."""
    styles = np.array([(style.bold, style.italic, style.mono) for style in glyphs.styles], dtype=np.int64)
    faces = styles[glyphs.style]
    faces[:, 0] |= glyphs.thick
    counts: Ints = np.add.reduceat(faces, words.first, axis=0)
    return counts
