"""Documents cut into units, and ids."""

from dataclasses import dataclass

from llm_ocr.types.outcome import Reason


@dataclass(frozen=True, slots=True)
class DocumentPart:
    """The pages of one document that belong to a unit. `pages` is empty when the document could not be opened."""

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

    @property
    def expected(self) -> int:
        """Rows that this part gives: a document that cannot be opened is one expected page."""
        return len(self.pages) or 1


@dataclass(frozen=True, slots=True)
class Unit:
    """What one worker does at a time and publishes whole or not at all."""

    id: str  # "<generation>-<index>", for example 0001-000042
    generation: int
    index: int
    parts: tuple[DocumentPart, ...]
    replaces: int = 0  # rows of older generations that this unit's rows stand for

    @property
    def expected(self) -> int:
        return sum(part.expected for part in self.parts)


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


def page_id(document_id: str, number: int | None) -> str:
    """`<document_id>-p00012`; number 0 stands for a document that could not be opened."""
    return f"{document_id}-p{number or 0:05d}"


def figure_id(page: str, index: int) -> str:
    """`<page_id>-f02`; figures count from 1 in reading order."""
    return f"{page}-f{index:02d}"
