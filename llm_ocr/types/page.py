"""A page as a reader gets it: its image, and what a PDF holds beside it."""

from dataclasses import dataclass, field

from llm_ocr.types.geometry import Box


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
