"""Immutable values that all parts of the library share. No I/O."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

__all__ = [
    "ALL_PAGES",
    "FURNITURE",
    "RESERVED",
    "Attempt",
    "Block",
    "BlockKind",
    "Box",
    "Counts",
    "DocumentPart",
    "EncodedImage",
    "Evidence",
    "Figure",
    "FigureRecord",
    "Ink",
    "Line",
    "Page",
    "PageContent",
    "PageRecord",
    "PageSelection",
    "Path",
    "Quality",
    "Raster",
    "Reason",
    "Repeated",
    "Status",
    "Unit",
    "Word",
    "figure_id",
    "page_id",
]


# Rectangles.


@dataclass(frozen=True, slots=True)
class Box:
    """An axis-parallel rectangle, `x0 <= x1` and `y0 <= y1`; the unit is that of the field that holds it."""

    x0: float
    y0: float
    x1: float
    y1: float

    @property
    def width(self) -> float:
        return self.x1 - self.x0

    @property
    def height(self) -> float:
        return self.y1 - self.y0

    @property
    def area(self) -> float:
        return max(0.0, self.width) * max(0.0, self.height)

    @property
    def centre(self) -> tuple[float, float]:
        return (self.x0 + self.x1) / 2, (self.y0 + self.y1) / 2

    def union(self, other: "Box") -> "Box":
        return Box(min(self.x0, other.x0), min(self.y0, other.y0), max(self.x1, other.x1), max(self.y1, other.y1))

    def intersection(self, other: "Box") -> float:
        """The area that both cover, in this box's squared unit."""
        width = min(self.x1, other.x1) - max(self.x0, other.x0)
        height = min(self.y1, other.y1) - max(self.y0, other.y0)
        return max(0.0, width) * max(0.0, height)

    def covered_by(self, other: "Box") -> float:
        """The share 0..1 of this box that `other` covers; 0 for an empty box."""
        return self.intersection(other) / self.area if self.area > 0 else 0.0

    def iou(self, other: "Box") -> float:
        """Intersection over union, 0..1."""
        shared = self.intersection(other)
        total = self.area + other.area - shared
        return shared / total if total > 0 else 0.0

    def scaled(self, x: float, y: float) -> "Box":
        return Box(self.x0 * x, self.y0 * y, self.x1 * x, self.y1 * y)

    def turned(self, degrees: int) -> "Box":
        """A relative box after the page was turned clockwise by a multiple of 90 degrees."""
        match degrees % 360:
            case 90:
                return Box(1 - self.y1, self.x0, 1 - self.y0, self.x1)
            case 180:
                return Box(1 - self.x1, 1 - self.y1, 1 - self.x0, 1 - self.y0)
            case 270:
                return Box(self.y0, 1 - self.x1, self.y1, 1 - self.x0)
        return self

    def grown(self, by: float) -> "Box":
        return Box(self.x0 - by, self.y0 - by, self.x1 + by, self.y1 + by)

    def clipped(self, width: float = 1.0, height: float = 1.0) -> "Box":
        """The part inside 0..width, 0..height; corners out of order are put in order."""
        xs, ys = sorted((self.x0, self.x1)), sorted((self.y0, self.y1))
        return Box(
            min(max(xs[0], 0.0), width),
            min(max(ys[0], 0.0), height),
            min(max(xs[1], 0.0), width),
            min(max(ys[1], 0.0), height),
        )


# How things end, and what blocks are.


class Status(StrEnum):
    """How a page or a figure ended."""

    OK = "ok"
    DEGRADED = "degraded"
    FAILED = "failed"


class Reason(StrEnum):
    """Why a page or a figure is not `ok`; stored in rows and shown to users as it stands here."""

    UNREADABLE = "unreadable"
    ENCRYPTED = "encrypted"
    NOT_FOUND = "not found"
    UNKNOWN_TYPE = "unknown type"
    SOURCE_CHANGED = "source changed"
    RENDER_TIMEOUT = "render timeout"
    RENDER_LIMIT = "render limit"
    RENDER_CRASHED = "render crashed"
    OCR_NOT_INSTALLED = "OCR not installed"
    SCRIPT_NOT_SUPPORTED = "script not supported"
    ENGINE_TIMEOUT = "engine timeout"
    ENGINE_LIMIT = "engine limit"
    ENGINE_ERROR = "engine error"
    NO_SUCH_PAGE = "no such page"
    LOOP = "repetition loop"
    TRUNCATED = "truncated"
    EMPTY = "empty answer"
    MALFORMED = "malformed answer"
    TOO_LONG = "prompt too long"
    REFUSED = "request refused"
    SERVER_ERROR = "server error"
    QUARANTINED = "quarantined"


class BlockKind(StrEnum):
    """What a block is, whatever label the model gave it."""

    TITLE = "title"
    HEADING = "heading"
    TEXT = "text"
    LIST_ITEM = "list_item"
    TABLE = "table"
    FORMULA = "formula"
    CODE = "code"
    FIGURE = "figure"
    CAPTION = "caption"
    FOOTNOTE = "footnote"
    HEADER = "header"
    FOOTER = "footer"
    PAGE_NUMBER = "page_number"


#: Kept in the layout, left out of the Markdown body.
FURNITURE = frozenset({BlockKind.HEADER, BlockKind.FOOTER, BlockKind.PAGE_NUMBER})


# A page as a reader gets it: its image, and what a PDF holds beside it.


@dataclass(frozen=True, slots=True)
class EncodedImage:
    """An image as it is stored and sent: encoded once, never decoded on the way. Sizes in pixels."""

    data: bytes = field(repr=False)
    media_type: str  # image/png, image/jpeg, image/webp
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class Word:
    """A run of characters without a space. `box` in page units."""

    text: str
    box: Box


@dataclass(frozen=True, slots=True)
class Line:
    """Words on one baseline without a wide gap: table cells and columns on the same height are lines of their own.

    `box` in page units; `size` is the font's height in page units (for OCR the height of the line's box).
    """

    text: str
    box: Box
    size: float
    words: tuple[Word, ...] = ()
    bold: bool = False
    italic: bool = False
    mono: bool = False
    recurs: bool = False  # the same text, digits aside, stands at the same place on a neighbouring page
    confidence: float = 1.0  # OCR only, 0..1


@dataclass(frozen=True, slots=True)
class Raster:
    """An image object of a PDF page. `box` in page units."""

    box: Box


@dataclass(frozen=True, slots=True)
class Path:
    """A vector object of a PDF page. `box` in page units; colours are `(r, g, b)` 0..255, None where not painted."""

    box: Box
    stroke: tuple[int, int, int] | None
    fill: tuple[int, int, int] | None
    segments: int  # drawing operators in the path: a rule or rectangle has few, a curve of a chart many


@dataclass(frozen=True, slots=True)
class PageContent:
    """What a page holds beside its pixels: text lines and objects in page units (`width` x `height`) as shown."""

    width: float
    height: float
    lines: tuple[Line, ...] = ()
    rasters: tuple[Raster, ...] = ()
    paths: tuple[Path, ...] = ()
    unmapped: int = 0  # characters of the text layer without a meaning: control codes, private use, U+FFFD
    unread: int = 0  # characters of the text layer beyond those that are read


@dataclass(frozen=True, slots=True)
class Ink:
    """Where a page image is not paper, coarsely: one bit a pixel, rows padded to whole bytes, first pixel highest.

    `packed` is compressed by zlib: pages wait in memory.
    """

    width: int
    height: int
    packed: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a page holds, known before anybody has read it: what answers are judged by.

    `lines`: the text layer in the file's own order, boxes relative; empty without one, and for one that is not all of
    the page's text. `pictured`: share 0..1 of the page that its images cover; 0 for image files.
    """

    ink: Ink | None
    lines: tuple[tuple[str, Box], ...] = ()
    pictured: float = 0.0


@dataclass(frozen=True, slots=True)
class Page:
    """One page as a reader gets it. `number` counts from 1; `content` is None for images."""

    id: str
    document_id: str
    number: int
    image: EncodedImage
    content: PageContent | None = None
    source: str = ""  # for messages only
    evidence: Evidence | None = field(default=None, repr=False)
    again: bool = False  # it was read before, and is to be read in another way
    version: str = ""  # of the document that it was made of; empty: not known


# What is made of a page and of a figure.


@dataclass(frozen=True, slots=True)
class Block:
    """A piece of a page in reading order. `box` is relative; `text` is Markdown (tables: pipe table or HTML)."""

    kind: BlockKind
    box: Box
    text: str = ""
    label: str = ""  # as the model or engine named it
    level: int = 0  # headings: 1 is the highest; list items: depth from 0
    figure_id: str = ""  # figures only, set when the crop is made
    inside: str = ""  # figures only: text read inside the figure, one line a row
    caption: str = ""  # figures only: the document's own caption
    described: str = ""  # figures only: what the model that read the page says of it, data read from charts too
    continued: tuple[Box, ...] = ()  # where the text goes on, in the next column or behind a figure


@dataclass(frozen=True, slots=True)
class Quality:
    """How good the answer for a page is, 0..1, judged without knowing the truth; see `results.quality`.

    `parts` are the shares that were measured, by name; what could not be measured is missing.
    """

    score: float
    parts: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try at a page, and what came of it."""

    engine: str  # "embedded", or the served model's name
    source: str  # "text-layer", "ocr" or "model"
    status: Status
    blocks: tuple[Block, ...] = ()
    reason: Reason | None = None
    detail: str = ""
    raw: str = ""  # the model's answer as it came; empty for the embedded engine
    rotation: int = 0  # degrees clockwise by which the page was turned to be upright
    image: EncodedImage | None = None  # the upright page, when it was turned
    probe: float | None = None  # disagreement 0..1 of the text layer with OCR of sample lines; None: not probed
    notes: Mapping[str, Any] = field(default_factory=dict)  # what the model says of the page; see `PageRecord.notes`
    tokens_in: int = 0
    tokens_out: int = 0
    seconds: float = 0.0
    tries: tuple[Mapping[str, Any], ...] = ()  # each request that led here, as JSON values; empty when there was one
    confidence: float | None = None  # of OCR, 0..1, over its characters; None for text that it did not read


@dataclass(frozen=True, slots=True)
class Figure:
    """A crop of a page. `box` is relative."""

    id: str
    label: str
    box: Box
    image: EncodedImage
    caption: str = ""
    inside: str = ""
    described: str = ""  # as in `Block`


@dataclass(frozen=True, slots=True)
class PageRecord:
    """One row of Extract: every expected page has exactly one, a failed one too."""

    page_id: str
    document_id: str
    source: str  # path or URL of the document, nothing appended
    page_number: int | None  # None: the document could not be opened
    dataset_index: int
    status: Status
    reason: Reason | None = None
    detail: str = ""
    engine: str = ""
    text_source: str = ""  # Attempt.source of the attempt that counts
    rotation: int = 0
    blank: bool = False
    image: EncodedImage | None = None
    markdown: str = ""
    blocks: tuple[Block, ...] = ()
    figures: tuple[Figure, ...] = ()
    tokens_in: int = 0
    tokens_out: int = 0
    seconds: float = 0.0
    probe: float | None = None
    attempts: tuple[Mapping[str, Any], ...] = ()  # status, reason, tokens, seconds of each try; JSON values only
    #: What the model says of the page beside its text, as JSON values: primary_language, is_rotation_valid,
    #: rotation_correction (degrees clockwise), is_table, is_diagram; what it does not say is missing.
    notes: Mapping[str, Any] = field(default_factory=dict)
    quality: float | None = None  # `Quality.score`; None for failed pages, and for those read before there was one
    quality_parts: Mapping[str, float] = field(default_factory=dict)

    @property
    def is_fallback(self) -> bool:
        """Whether another reader than the model that was asked read the page."""
        return self.text_source in ("text-layer", "ocr") and any("server" in attempt for attempt in self.attempts)


@dataclass(frozen=True, slots=True)
class FigureRecord:
    """One row of Describe: every figure of the unit has exactly one."""

    figure_id: str
    page_id: str
    document_id: str
    status: Status
    mode: str  # describe, parse, classify, or the name of a user's prompt
    reason: Reason | None = None
    detail: str = ""
    description: str = ""
    data: str = ""  # JSON, mode parse
    label: str = ""  # mode classify
    engine: str = ""
    tokens_in: int = 0
    tokens_out: int = 0
    seconds: float = 0.0


# Documents cut into units, and ids.


#: Dataset indices that a document gets which is counted only when it is read; a later document begins behind them.
RESERVED = 1_000_000
#: Where the pages of such a document go that are more than that; each of its pages has an index of its own up to a
#: thousand times as many.
_BEYOND = 1 << 62


@dataclass(frozen=True, slots=True)
class PageSelection:
    """Which pages of a document are wanted, for when it is counted: those of a manifest, of them the ones in ranges.

    Texts such as `1-5,9`, ranges also `9-`; empty: all pages.
    """

    named: str = ""
    ranges: str = ""
    most: int = 0  # the first so many; 0: all


ALL_PAGES = PageSelection()


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
    wanted: PageSelection = ALL_PAGES  # of a document that is still to be opened, or opened again
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
