"""Cutting documents into units: either whole documents, or a page range of exactly one long document."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from llm_ocr.types import DocumentPart, Repeated, Unit


@dataclass(frozen=True, slots=True)
class Piece:
    """The pages of one document that go into units.

    `indices` has the dataset index of each expected row (one for a document that could not be opened), or those that
    are reserved for a document that was not counted. `replaced` has, for a retry, the reason of the failed row that
    each row stands for; "" for a row that stands for none. `repeats` has, by page number, the rows among them that were
    not failed.
    """

    part: DocumentPart
    indices: Sequence[int]
    replaced: Sequence[str] = ()
    repeats: Mapping[int, Repeated] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """Expected rows."""
        return self.part.estimate or len(self.indices)

    def cut(self, most: int) -> Iterator["Piece"]:
        """Pieces of nearly the same size, none with more than `most` pages."""
        rows = len(self.indices)
        count = -(-rows // most)
        for number in range(count):
            chosen = slice(rows * number // count, rows * (number + 1) // count)
            part = replace(self.part, pages=self.part.pages[chosen])
            yield Piece(part, self.indices[chosen], self.replaced[chosen], self.repeats)

    def parts(self) -> Iterator[DocumentPart]:
        """One part for each run of indices without a gap: a page's index is `first_index` and its place in the part.

        Pages that are repeated and others are in parts of their own.
        """
        pages = self.part.pages
        if not pages:
            yield replace(self.part, first_index=self.indices[0])
            return
        begin = 0
        for end in range(1, len(self.indices) + 1):
            if end == len(self.indices) or self._parted(end):
                again = pages[begin] in self.repeats
                yield replace(self.part, pages=pages[begin:end], first_index=self.indices[begin], again=again)
                begin = end

    def _parted(self, at: int) -> bool:
        one, other = self.part.pages[at - 1 : at + 1]
        return self.indices[at] != self.indices[at - 1] + 1 or (one in self.repeats) != (other in self.repeats)


@dataclass(frozen=True, slots=True)
class CutUnit:
    """A unit, and what it stands for by reason. `continues`: it is a later range of the unit before it."""

    unit: Unit
    replaced: Mapping[str, int]
    continues: bool = False


def cut_units(pieces: Iterable[Piece], *, generation: int, pages_per_unit: int) -> Iterator[CutUnit]:
    """Units of about `pages_per_unit` pages, in the order of the pieces. The same pieces give the same units."""
    for index, (group, continues) in enumerate(_groups(pieces, pages_per_unit)):
        parts = tuple(part for piece in group for part in piece.parts())
        reasons = Counter(reason for piece in group for reason in piece.replaced if reason)
        repeats = tuple(piece.repeats[page] for piece in group for page in piece.part.pages if page in piece.repeats)
        unit = Unit(f"{generation:04d}-{index:06d}", generation, index, parts, reasons.total(), repeats)
        yield CutUnit(unit, dict(reasons), continues)


def _groups(pieces: Iterable[Piece], most: int) -> Iterator[tuple[list[Piece], bool]]:
    group: list[Piece] = []
    filled = 0
    for piece in pieces:
        rows = piece.rows
        if group and filled + rows > most:
            yield group, False
            group, filled = [], 0
        if rows > most and piece.part.counted:
            for number, cut in enumerate(piece.cut(most)):
                yield [cut], number > 0
        else:
            group.append(piece)
            filled += rows
    if group:
        yield group, False
