"""Documents cut into units, and ids."""

from dataclasses import dataclass

from llm_ocr.types.outcome import Reason, Status

#: Dataset indices that a document gets which is counted only when it is read; a later document begins behind them.
RESERVED = 1_000_000
#: Where the pages of such a document go that are more than that; each of its pages has an index of its own up to a
#: thousand times as many.
_BEYOND = 1 << 62


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which pages of a document are wanted, for when it is counted: those of a manifest, of them the ones in ranges.

    Texts such as `1-5,9`, ranges also `9-`; empty: all pages.
    """

    named: str = ""
    ranges: str = ""
    most: int = 0  # the first so many; 0: all


ALL_PAGES = Wanted()


@dataclass(frozen=True, slots=True)
class DocumentPart:
    """The pages of one document that belong to a unit. `pages` is empty when the document could not be opened.

    With an `estimate` it was not opened when it was planned: `pages` is empty in the plan, and filled when it is read.
    """

    document_id: str
    source: str  # as the user can open it: absolute path or URL
    relative: str  # path below the source root, for the Markdown tree
    version: str
    pages: tuple[int, ...]
    page_total: int  # pages of the whole document; 0 when it could not be opened
    first_index: int  # dataset_index of the first of `pages`
    aliases: tuple[str, ...] = ()  # relative paths of documents with the same content and page selection
    reason: Reason | None = None  # why it could not be opened
    detail: str = ""
    estimate: int = 0  # pages that the plan expects of a document that it did not open; 0: it was counted
    wanted: Wanted = ALL_PAGES  # of a document that is still to be opened, or opened again
    again: bool = False  # its pages were read, and are read again in another way: their quality was low

    @property
    def counted(self) -> bool:
        """Whether its rows are known."""
        return bool(self.pages) or self.reason is not None or not self.estimate

    @property
    def expected(self) -> int:
        """Rows that this part gives, as far as it is known: a document that cannot be opened is one expected page."""
        return len(self.pages) or (1 if self.counted else self.estimate)

    @property
    def planned(self) -> int:
        """What the plan has counted this part as."""
        return self.estimate or self.expected

    @property
    def reserved(self) -> int:
        """Dataset indices that are this part's."""
        return RESERVED if self.estimate else self.expected

    def index_of(self, position: int) -> int:
        """The dataset index of the row at this place among the part's rows."""
        if position < RESERVED or not self.estimate:
            return self.first_index + position
        return _BEYOND + 1000 * self.first_index + position


@dataclass(frozen=True, slots=True)
class Repeated:
    """The row that counts for a page, ok or degraded, when it is planned once more for its quality.

    `unit` published it; both it and the number of `figures` are unknown ("" and 0) in plans of older versions.
    """

    page_id: str
    status: Status
    reason: Reason | None = None
    quality: float | None = None
    figures: int = 0
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Unit:
    """What one worker does at a time and publishes whole or not at all."""

    id: str  # "<generation>-<index>", for example 0001-000042
    generation: int
    index: int
    parts: tuple[DocumentPart, ...]
    replaces: int = 0  # rows of older generations that this unit's rows stand for
    repeats: tuple[Repeated, ...] = ()  # those of them that were not failed

    @property
    def expected(self) -> int:
        return sum(part.expected for part in self.parts)

    @property
    def planned(self) -> int:
        """What the plan has counted the unit as."""
        return sum(part.planned for part in self.parts)

    @property
    def estimated(self) -> int:
        """Documents that the plan did not count."""
        return sum(part.estimate > 0 for part in self.parts)


@dataclass(frozen=True, slots=True)
class Counts:
    """Conservation: `expected == ok + degraded + failed` for a finished stage."""

    expected: int = 0
    ok: int = 0
    degraded: int = 0
    failed: int = 0

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(
            self.expected + other.expected,
            self.ok + other.ok,
            self.degraded + other.degraded,
            self.failed + other.failed,
        )

    def __sub__(self, other: "Counts") -> "Counts":
        return Counts(
            self.expected - other.expected,
            self.ok - other.ok,
            self.degraded - other.degraded,
            self.failed - other.failed,
        )


def page_id(document_id: str, number: int | None) -> str:
    """`<document_id>-p00012`; number 0 stands for a document that could not be opened."""
    return f"{document_id}-p{number or 0:05d}"


def figure_id(page: str, index: int) -> str:
    """`<page_id>-f02`; figures count from 1 in reading order."""
    return f"{page}-f{index:02d}"
