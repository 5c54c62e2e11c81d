"""Immutable values shared by all parts of the library. No I/O."""

import base64
import html
import math
import operator
import pathlib
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field
from enum import StrEnum
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class Box:
    """Axis-parallel rectangle, `x0 <= x1` and `y0 <= y1`, in the unit of its containing field."""

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
        """Return the area covered by both, in this box's squared unit."""
        width = min(self.x1, other.x1) - max(self.x0, other.x0)
        height = min(self.y1, other.y1) - max(self.y0, other.y0)
        return max(0.0, width) * max(0.0, height)

    def covered_by(self, other: "Box") -> float:
        """Return the share 0..1 of this box that `other` covers; 0 for an empty box."""
        return self.intersection(other) / self.area if self.area > 0 else 0.0

    def iou(self, other: "Box") -> float:
        """Return intersection over union, 0..1."""
        shared = self.intersection(other)
        total = self.area + other.area - shared
        return shared / total if total > 0 else 0.0

    def scaled(self, x: float, y: float) -> "Box":
        return Box(self.x0 * x, self.y0 * y, self.x1 * x, self.y1 * y)

    def turned(self, degrees: int) -> "Box":
        """Return a relative box after the page is rotated clockwise by a multiple of 90 degrees."""
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
        """Return the part inside 0..width, 0..height, with its corners in order."""
        if 0 <= self.x0 <= self.x1 <= width and 0 <= self.y0 <= self.y1 <= height:
            return self
        xs, ys = sorted((self.x0, self.x1)), sorted((self.y0, self.y1))
        return Box(
            min(max(xs[0], 0.0), width),
            min(max(ys[0], 0.0), height),
            min(max(xs[1], 0.0), width),
            min(max(ys[1], 0.0), height),
        )


class Status(StrEnum):
    """Outcome of a page or a figure."""

    OK = "ok"
    DEGRADED = "degraded"
    FAILED = "failed"


class Reason(StrEnum):
    """Reason why a page or a figure is not `ok`; stored in rows and shown to users verbatim."""

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
    LOW_QUALITY = "low quality"
    UNREAD = "unread"
    UNSUPPORTED = "unsupported"
    MODEL_LOST = "model lost"  # its servers ended for good; the text is the CPU engine's
    PLACEHOLDER = "placeholder page"
    NOT_DRAWN = "text not drawn"
    GIVEN_UP = "given up"  # a repair ended before it read the page, or another reading of a figure's page counts
    STAGE_ERROR = "stage error"  # a user-defined stage raised
    FIELD_MISSING = "field missing"  # a required field of a document has no value
    FIELD_INVALID = "field invalid"  # the schema does not allow a document's values
    NOT_QUOTED = "not quoted"  # the verified text has no quote that states a value


class BlockKind(StrEnum):
    """Kind of a block, independent of the model's label."""

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


#: Names of the HTML tags that models write. Other text in angle brackets is text of the page.
HTML_ELEMENTS = frozenset(
    {
        *("br", "hr", "img", "input", "col", "wbr"),
        *("a", "abbr", "b", "big", "code", "del", "em", "font", "i", "ins", "kbd", "label", "mark", "s", "samp"),
        *("small", "span", "strike", "strong", "sub", "sup", "tt", "u", "var", "math", "chem", "script", "style"),
        *("h1", "h2", "h3", "h4", "h5", "h6", "p", "pre", "div", "blockquote", "center", "section", "article", "aside"),
        *("main", "nav", "header", "footer", "figure", "figcaption", "details", "summary", "html", "head", "body"),
        *("ul", "ol", "li", "dl", "dt", "dd", "form", "select", "option", "textarea", "title", "svg"),
        *("table", "caption", "colgroup", "thead", "tbody", "tfoot", "tr", "td", "th"),
    }
)

#: Pattern behind the `<` of a tag. In `a<b and c>d` and `<Table 1>`, the words behind the name are no attributes. The
#: elements named first have no words of a page as attributes, and models write faulty ones in them.
IS_TAG = (
    r"(?i:(?!(?!(?:t[dhr]|thead|tbody|tfoot|col|img|input|br|hr|div|span|math)\b)[A-Za-z][A-Za-z0-9]*+\s++"
    r"(?!(?:async|border|checked|compact|defer|disabled|hidden|multiple|noshade|nowrap|open|readonly|required"
    r"|reversed|selected)[\s/>]"
    r"|/?\s*>)[^<>=]*>))"
)

#: Kept in the layout, excluded from the Markdown body.
FURNITURE = frozenset({BlockKind.HEADER, BlockKind.FOOTER, BlockKind.PAGE_NUMBER})


_SHOWN_TYPES = frozenset({"image/png", "image/jpeg", "image/webp"})
_MOST_SHOWN = 4_000_000  # maximum bytes of an image in a notebook


@dataclass(frozen=True, slots=True)
class EncodedImage:
    """Image as stored and sent: encoded once, never decoded in between. Sizes in pixels."""

    data: bytes = field(repr=False)
    media_type: str  # image/png, image/jpeg, image/webp
    width: int
    height: int

    def _repr_html_(self) -> str:
        """Return the image for notebooks, without its pixels if it is large."""
        size = f"{self.width:,} x {self.height:,} pixels"
        if not 0 < len(self.data) <= _MOST_SHOWN or self.media_type not in _SHOWN_TYPES:
            return f"<p>image of {size}</p>"
        url = f"data:{self.media_type};base64,{base64.b64encode(self.data).decode()}"
        return f'<img src="{url}" alt="{size}" style="max-width: 100%; max-height: 40em">'


@dataclass(frozen=True, slots=True)
class Word:
    """Run of characters without a space. `box` in page units.

    `doubtful` are the places of characters whose font has no Unicode mapping for their glyph. `bold` and `italic` are
    those of a PDF's font for most characters. `font` numbers the PDF's fonts of the page from 1; 0: unknown.
    """

    text: str
    box: Box
    doubtful: tuple[int, ...] = ()
    bold: bool = False
    italic: bool = False
    link: int = 0  # number of its link in `PageContent.links`, from 1; 0: none
    font: int = 0
    confidence: float = 1.0  # OCR only: the least of its characters, 0..1


@dataclass(frozen=True, slots=True)
class Script:
    """Superscript, or subscript if `lowered`: characters `start` to `end` of a line's text."""

    start: int
    end: int
    lowered: bool = False


@dataclass(frozen=True, slots=True)
class Line:
    """Words on one baseline without a wide gap: table cells and columns at the same height are separate lines.

    `box` in page units; `size` is the font's height in page units (for OCR the height of the line's box).
    """

    text: str
    box: Box
    size: float
    words: tuple[Word, ...] = ()
    bold: bool = False
    italic: bool = False
    mono: bool = False
    stacked: bool = False  # vertical Chinese or Japanese: upright letters, one below the other
    recurs: bool = False  # the same text, without digits, is at the same place on an adjacent page
    confidence: float = 1.0  # OCR only, 0..1
    scripts: tuple[Script, ...] = ()  # from left to right
    parts: tuple[Word, ...] = ()  # the words' parts of one size and baseline, if a word has several; from left to right
    drawn: int = -1  # place in the order in which the file draws its text; -1: unknown, as in OCR
    tag: int = -1  # place of its block in `PageContent.tags`; -1: none
    watermark: bool = False  # large text at an angle to the page and to the lines that it crosses


@dataclass(frozen=True, slots=True)
class Raster:
    """Image object of a PDF page. `box` in page units."""

    box: Box


@dataclass(frozen=True, slots=True)
class Path:
    """Vector object of a PDF page. `box` in page units; colors are `(r, g, b)` 0..255, None if not painted."""

    box: Box
    stroke: tuple[int, int, int] | None
    fill: tuple[int, int, int] | None
    segments: int  # drawing operators in the path: few in a rule or rectangle, many in a chart's curve
    slant: float = 0.0  # share 0..1 of its length, at most 60 points, that is along neither axis; 0 if not measured


@dataclass(frozen=True, slots=True)
class Tag:
    """Element of a tagged PDF's structure: its standard type, such as "P", "H2", or "TD" (ISO 32000-1, 14.8.4)."""

    kind: str
    parent: int = -1  # place of the element around it in `PageContent.tags`; -1: none
    rows: int = 1  # of a cell
    columns: int = 1


@dataclass(frozen=True, slots=True)
class PageContent:
    """Content of a page apart from pixels: text lines and objects in page units (`width` x `height`) as displayed."""

    width: float
    height: float
    lines: tuple[Line, ...] = ()
    rasters: tuple[Raster, ...] = ()
    paths: tuple[Path, ...] = ()
    unmapped: int = 0  # characters of the text layer without a meaning: control codes, private use, U+FFFD
    unread: int = 0  # characters of the text layer above the read limit
    links: tuple[str, ...] = ()  # addresses of the words' links: http, https, and mailto
    invisible: int = 0  # characters, without spaces, of the text layer's words that the page's picture does not show
    undrawn: float = 0.0  # as in `Evidence`
    with_invisible: bool = False  # whether `lines` has these words
    tags: tuple[Tag, ...] = ()  # of a page whose tags are credible, in reading order


#: Share of the page that an image covers above which the page is a scan; its text layer, if any, is older OCR.
SCAN = 0.6
#: Code points that change the direction of the text after them. They are not visible, and not part of a page's text.
DIRECTIONS = (*range(0x202A, 0x202F), *range(0x2066, 0x206A))
#: Characters below which a scan's text layer is a stamp or a page number, not the page's text.
_STAMP = 30


@dataclass(frozen=True, slots=True)
class InkMap:
    """Coarse map of the non-paper pixels of a page image: one bit per pixel, rows padded to bytes, first pixel highest.

    `packed` is compressed by zlib, because pages wait in memory. `blank`: there is no ink but specks and borders.
    `pale`: all ink is so pale that it may shine through from the other side of the sheet.
    """

    width: int
    height: int
    packed: bytes = field(repr=False)
    blank: bool = False
    pale: bool = False

    def covers(self, boxes: Sequence[Box]) -> list[bool]:
        """Return for each relative box whether there is ink in it."""
        row = (self.width + 7) // 8
        bits = zlib.decompress(self.packed) if boxes else b""
        found = []
        for box in boxes:
            left, right = max(0, int(box.x0 * self.width)) // 8, min(row, -(-int(box.x1 * self.width) // 8) + 1)
            top, bottom = max(0, int(box.y0 * self.height)), min(self.height, int(box.y1 * self.height) + 1)
            found.append(any(any(bits[y * row + left : y * row + right]) for y in range(top, bottom)))
        return found


@dataclass(frozen=True, slots=True)
class OcrLine:
    """Line of text that OCR found in a page image.

    An area that it cannot read has U+FFFD instead of about each character, and the confidence 0. `box` is relative.
    `confidence` is the mean over the characters, 0..1. Each word has the least of its characters in `words`, and its
    relative box in `boxes`.
    """

    text: str
    box: Box
    confidence: float
    words: tuple[float, ...] = ()
    boxes: tuple[Box, ...] = ()


@dataclass(frozen=True, slots=True)
class OcrText:
    """Text that OCR found in a page image.

    `scripts` are those that the recognizer reads, as the first words of their characters' Unicode names (`LATIN`).
    `skew`: degrees by which lines fall to the right; negative: they rise.
    """

    lines: tuple[OcrLine, ...]
    scripts: frozenset[str]
    skew: float = 0.0


@dataclass(frozen=True, slots=True)
class Evidence:
    """Evidence from a page, available before it is read, with which answers are judged.

    `lines`: the text layer in the file's own order, boxes relative. It is empty without a text layer, and for one that
    lacks a part of the page's text. `pictured`: share 0..1 of the page that its images cover; 0 for image files.
    `undrawn`: share 0..1 of the layer's characters that the page image lacks, because neither the file nor the system
    has their font.
    """

    ink: InkMap | None
    lines: tuple[tuple[str, Box], ...] = ()
    pictured: float = 0.0
    undrawn: float = 0.0
    invisible: int = 0  # as in `PageContent`; `lines` is without these words
    ocr: OcrText | None = None  # only to verify the answer of a model

    @property
    def no_ink(self) -> bool:
        """Whether the page image is known to show nothing."""
        return self.ink is not None and self.ink.blank

    @property
    def pale(self) -> bool:
        """Whether the only evidence is pale ink, which may be that of the sheet's other side."""
        return self.ink is not None and self.ink.pale and not (self.lines or (self.ocr and self.ocr.lines))

    @property
    def layer_characters(self) -> int:
        """Characters of the text layer; 0 for the noise of older OCR on a scan, which is shorter than a stamp."""
        characters = sum(len(text.strip()) for text, _ in self.lines)
        return 0 if self.pictured > SCAN and characters < _STAMP else characters


@dataclass(frozen=True, slots=True)
class Page:
    """Page as input of a reader. `number` counts from 1; `content` is None for images."""

    id: str
    document_id: str
    number: int
    image: EncodedImage
    content: PageContent | None = None
    source: str = ""  # for messages only
    evidence: Evidence | None = field(default=None, repr=False)
    again: bool = False  # the page was read before, and is to be read in another way
    version: str = ""  # of the page's document; empty: unknown
    slice_height: int = 0  # pixels of the slices in which a tall page is read; 0: not in slices
    damage: str = ""  # what of the page could not be decoded
    stands_for: str = ""  # why the page is not the document's content, such as an XFA form's "Please wait"

    @property
    def invisible_chars(self) -> int:
        """Characters, without spaces, of the file's text that the page's picture does not show."""
        if self.content is not None:
            return self.content.invisible
        return self.evidence.invisible if self.evidence else 0


@dataclass(frozen=True, slots=True)
class Block:
    """Part of a page in reading order. `box` is relative; `text` is Markdown (tables: pipe table or HTML)."""

    kind: BlockKind
    box: Box
    text: str = ""
    label: str = ""  # label of the model or engine
    level: int = 0  # headings: 1 is the highest; list items: depth from 0
    figure_id: str = ""  # figures only, set when the crop is made
    inside: str = ""  # figures only: text read inside the figure, one line per row
    caption: str = ""  # figures only: the document's own caption
    described: str = ""  # figures only: description by the model that read the page, including data of charts
    continued: tuple[Box, ...] = ()  # boxes of the text's continuation, in the next column or after a figure


@dataclass(frozen=True, slots=True)
class Quality:
    """Quality of a page's answer, 0..1, estimated without a reference; see `results.quality`.

    `parts` are the measured shares by name; shares that could not be measured are missing.
    """

    score: float
    parts: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Span:
    """Characters `start` to `end` of the text of a page's block, counted from 0; of `inside` for figures."""

    block: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Ledger:
    """What became of a page's ink, and what supports its text; see `results.ledger`.

    The shares of ink are of its pixels, those of text of its letters and digits.

    Attributes:
        ink: Share 0..1 of the page image that is ink; 0 for a blank page.
        unread_share: Share 0..1 of the ink that looks like text and that no block contains.
        unsupported_share: Share 0..1 of the text that nothing on the page supports.
        furniture_share: Share 0..1 of the ink in running heads, feet, and page numbers.
        unread: Relative boxes of the unread ink, on the stored image.
        unsupported: Places of the unsupported text.
        verified_by: Evidence that the text was compared with: "ink", "layer" (with ink), or "ocr" (with ink).
    """

    ink: float
    unread_share: float = 0.0
    unsupported_share: float = 0.0
    furniture_share: float = 0.0
    unread: tuple[Box, ...] = ()
    unsupported: tuple[Span, ...] = ()
    verified_by: str = "ink"

    @property
    def imbalance(self) -> float:
        """Return the sum of the shares that are not accounted for."""
        return self.unread_share + self.unsupported_share


@dataclass(frozen=True, slots=True)
class Attempt:
    """Attempt to read a page, with its result."""

    engine: str  # "embedded", or the served model's name
    source: str  # "text-layer", "ocr" or "model"
    status: Status
    blocks: tuple[Block, ...] = ()
    reason: Reason | None = None
    detail: str = ""
    raw: str = ""  # the unmodified model answer; empty for the embedded engine
    rotation: int = 0  # degrees clockwise by which the page was rotated to be upright
    image: EncodedImage | None = None  # the upright page, if rotated or leveled
    ink: InkMap | None = None  # of `image`, if it was leveled
    probe: float | None = None  # disagreement 0..1 of the text layer with OCR of sample lines; None: not probed
    notes: Mapping[str, Any] = field(default_factory=dict)  # statements about the page; see `PageRecord.notes`
    tokens_in: int = 0
    tokens_out: int = 0
    seconds: float = 0.0
    tries: tuple[Mapping[str, Any], ...] = ()  # all requests of this attempt, as JSON values; empty for a single one
    confidence: float | None = None  # share 0..1 of the words that OCR probably read right; None without OCR
    ocr: OcrText | None = None  # what OCR read, if asked: evidence for the text of another reader
    #: Words of the text layer in whose place OCR read another text: relative box, word, and that text.
    reread: tuple[tuple[Box, str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Figure:
    """Crop of a page. `box` is relative."""

    id: str
    label: str
    box: Box
    image: EncodedImage
    caption: str = ""
    inside: str = ""
    described: str = ""  # as in `Block`

    def _repr_html_(self) -> str:
        """Return the figure as a table and an image, for notebooks."""
        facts = {"figure": self.id, "label": self.label, "caption": self.caption, "description": self.described}
        return facts_html({**facts, "text inside": self.inside}) + self.image._repr_html_()


@dataclass(frozen=True, slots=True)
class PageRecord:
    """Row of Extract: every expected page has exactly one row, failed pages too."""

    page_id: str
    document_id: str
    source: str  # path or URL of the document, without suffix
    page_number: int | None  # None: the document could not be opened
    dataset_index: int
    status: Status
    reason: Reason | None = None
    detail: str = ""
    engine: str = ""
    text_source: str = ""  # Attempt.source of the effective attempt
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
    attempts: tuple[Mapping[str, Any], ...] = ()  # status, reason, tokens, seconds of each attempt; JSON values only
    #: The model's statements about the page apart from its text, as JSON values: primary_language, is_rotation_valid,
    #: rotation_correction (degrees clockwise), is_table, is_diagram. Keys without a statement are missing.
    notes: Mapping[str, Any] = field(default_factory=dict)
    quality: float | None = None  # `Quality.score`; None for failed pages, and for pages read by older versions
    quality_parts: Mapping[str, float] = field(default_factory=dict)
    ledger: Ledger | None = None  # None: as for `quality`, and for pages whose ink is unknown
    invisible_chars: int = 0  # characters, without spaces, of the file's text that the page's picture does not show

    @property
    def is_fallback(self) -> bool:
        """Whether a fallback reader read the page instead of the requested model."""
        return self.text_source in ("text-layer", "ocr") and any("server" in attempt for attempt in self.attempts)

    def _repr_html_(self) -> str:
        """Return the page as a table, an image, and its Markdown source, for notebooks."""
        facts = {
            "document": self.source,
            "page": self.page_number or "all",
            "status": self.status,
            "reason": f"{self.reason or ''}{': ' if self.reason and self.detail else ''}{self.detail}",
            "read by": f"{self.engine} {self.text_source}".strip(),
            "quality": "" if self.quality is None else f"{self.quality:.2f}",
            "figures": len(self.figures) or "",
        }
        image = self.image._repr_html_() if self.image else ""
        text = f'<pre style="white-space: pre-wrap">{html.escape(self.markdown)}</pre>' if self.markdown else ""
        return facts_html(facts) + image + text


@dataclass(frozen=True, slots=True)
class FigureRecord:
    """Row of Describe: every figure of the unit has exactly one row."""

    figure_id: str
    page_id: str
    document_id: str
    status: Status
    mode: str  # describe, parse, classify, or the name of a user's prompt
    reason: Reason | None = None
    detail: str = ""
    description: str = ""
    data: str = ""  # JSON: mode parse; embedded engine: {"inside": text}
    label: str = ""  # mode classify
    engine: str = ""
    tokens_in: int = 0
    tokens_out: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class FieldsRecord:
    """Row of Fields: every document has exactly one row.

    Attributes:
        document_id: Id of the document.
        source: Its path or URL.
        status: See `results.fields.document_record`.
        reason: Reason if it is not `ok`.
        detail: The same in words.
        values: The values in the form of the user's schema, as JSON values.
        fields: All fields with a value, in the order of the schema, as JSON values: `path`, such as `items[0].price`;
            `value`; `page`, from 1; `box`, relative; `quote`; `quoted`, whether the verified text contains the quote
            and it states the value; `others`, other values with a true quote, if there are any.
        pages: Number of its pages.
        passages: Number of passages that the model was asked about.
        engine: Name of the model.
        tokens_in: Tokens of the prompts.
        tokens_out: Tokens of the answers.
        seconds: Seconds of the requests.
    """

    document_id: str
    source: str
    status: Status
    reason: Reason | None = None
    detail: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)
    fields: tuple[Mapping[str, Any], ...] = ()
    pages: int = 0
    passages: int = 0
    engine: str = ""
    tokens_in: int = 0
    tokens_out: int = 0
    seconds: float = 0.0


#: Dataset indices reserved for a document that is counted only when it is read. The next document follows them.
RESERVED = 1_000_000
#: Start of the indices of such a document's pages above `RESERVED`. Indices are unique up to a thousand times as many
#: pages.
_BEYOND = 1 << 62


@dataclass(frozen=True, slots=True)
class PageSelection:
    """Selected pages of a document that is not counted yet: the manifest's pages, limited to ranges.

    Texts such as `1-5,9`, ranges also `9-`; empty: all pages.
    """

    named: str = ""
    ranges: str = ""
    most: int = 0  # limit of pages from the start; 0: all


ALL_PAGES = PageSelection()


@dataclass(frozen=True, slots=True)
class DocumentPart:
    """Pages of a document in a unit. `pages` is empty if the document could not be opened.

    With an `estimate`, planning did not open the document: `pages` is empty in the plan, and set when it is read.
    """

    document_id: str
    source: str  # absolute path or URL that the user can open
    relative: str  # path below the source root, for the Markdown tree
    version: str
    pages: tuple[int, ...]
    page_total: int  # pages of the whole document; 0 if it could not be opened
    first_index: int  # dataset_index of the first of `pages`
    aliases: tuple[str, ...] = ()  # relative paths of documents with the same content and page selection
    reason: Reason | None = None  # why it could not be opened
    detail: str = ""
    estimate: int = 0  # pages that the plan expects of a document that it did not open; 0: it was counted
    wanted: PageSelection = ALL_PAGES  # of a document that is still to be opened, or opened again
    again: bool = False  # pages of low quality, to be read again in another way

    @property
    def counted(self) -> bool:
        """Whether the part's rows are known."""
        return bool(self.pages) or self.reason is not None or not self.estimate

    @property
    def expected(self) -> int:
        """Number of rows of this part, as far as known. A document that cannot be opened is one expected page."""
        return len(self.pages) or (1 if self.counted else self.estimate)

    @property
    def planned(self) -> int:
        """Number of rows that the plan assumed for this part."""
        return self.estimate or self.expected

    @property
    def reserved(self) -> int:
        """Number of dataset indices that belong to this part."""
        return RESERVED if self.estimate else self.expected

    def index_of(self, position: int) -> int:
        """Return the dataset index of the row at this position among the part's rows."""
        if position < RESERVED or not self.estimate:
            return self.first_index + position
        return _BEYOND + 1000 * self.first_index + position


@dataclass(frozen=True, slots=True)
class Repeated:
    """Effective row of a page, ok or degraded, that is planned again because of its quality.

    `unit` published the row. `unit` and `figures` are unknown ("" and 0) in plans of older versions. `ledger` has no
    places.
    """

    page_id: str
    status: Status
    reason: Reason | None = None
    quality: float | None = None
    figures: int = 0
    unit: str = ""
    ledger: Ledger | None = None


@dataclass(frozen=True, slots=True)
class Unit:
    """Amount of work of one worker, published completely or not at all."""

    id: str  # "<generation>-<index>", for example 0001-000042
    generation: int
    index: int
    parts: tuple[DocumentPart, ...]
    replaces: int = 0  # rows of older generations that this unit's rows supersede
    repeats: tuple[Repeated, ...] = ()  # the superseded rows that were not failed

    @property
    def expected(self) -> int:
        return sum(part.expected for part in self.parts)

    @property
    def planned(self) -> int:
        """Number of rows that the plan assumed for the unit."""
        return sum(part.planned for part in self.parts)

    @property
    def estimated(self) -> int:
        """Number of documents that the plan did not count."""
        return sum(part.estimate > 0 for part in self.parts)


@dataclass(frozen=True, slots=True)
class Totals:
    """Numbers that are added and subtracted field by field."""

    def __add__(self, other: Self) -> Self:
        return type(self)(*map(operator.add, astuple(self), astuple(other)))

    def __sub__(self, other: Self) -> Self:
        return type(self)(*map(operator.sub, astuple(self), astuple(other)))


@dataclass(frozen=True, slots=True)
class Counts(Totals):
    """Counts of pages or figures: `expected == ok + degraded + failed` for a finished stage."""

    expected: int = 0
    ok: int = 0
    degraded: int = 0
    failed: int = 0

    @property
    def ended(self) -> int:
        """Number of those that have an outcome."""
        return self.ok + self.degraded + self.failed


@dataclass(frozen=True, slots=True)
class InkTotals(Totals):
    """Totals over the pages that have a ledger.

    Attributes:
        pages: Number of these pages.
        ink: Ink of these pages, in areas of a page.
        unread: Ink that no block contains, in areas of a page.
        unread_pages: Number of pages with more unread ink than a page that balances may have.
        unsupported_pages: Number of pages with more unsupported text than a page that balances may have.
    """

    pages: int = 0
    ink: float = 0.0
    unread: float = 0.0
    unread_pages: int = 0
    unsupported_pages: int = 0

    @property
    def accounted(self) -> float | None:
        """Share 0..1 of the ink that is not unread; 1 without ink, None without pages."""
        if not self.pages:
            return None
        # Sums of a million pages minus superseded ones differ from exact values in their last digits.
        return 1.0 if self.ink <= 0 else min(1.0, max(0.0, 1 - self.unread / self.ink))

    def __str__(self) -> str:
        """Return `ink accounted for: 99.3 %; 4 pages with unread ink, 2 with unsupported text`; "" without pages.

        The percentage is rounded down: 100.0 % means that all ink is accounted for.
        """
        if self.accounted is None:
            return ""
        percent = math.floor(1000 * round(self.accounted, 6)) / 10
        unread = f"{plural(self.unread_pages, 'page')} with unread ink"
        return f"ink accounted for: {percent:.1f} %; {unread}, {self.unsupported_pages:,} with unsupported text"


@dataclass(frozen=True, slots=True)
class Viewed:
    """Written site of results. `index` is the file to open; `pages` is the number of listed pages."""

    index: pathlib.Path
    pages: int

    def __str__(self) -> str:
        return f"{plural(self.pages, 'page')}: open {self.index}"


def page_id(document_id: str, number: int | None) -> str:
    """Return `<document_id>-p00012`; number 0 is a document that could not be opened."""
    return f"{document_id}-p{number or 0:05d}"


def figure_id(page: str, index: int) -> str:
    """Return `<page_id>-f02`; figures count from 1 in reading order."""
    return f"{page}-f{index:02d}"


def facts_html(facts: Mapping[str, object]) -> str:
    """Return names and values as an HTML table with escaped texts; empty values are omitted."""
    rows = ((name, str(value)) for name, value in facts.items())
    cells = "".join(f"<tr><th>{html.escape(name)}</th><td>{html.escape(text)}</td></tr>" for name, text in rows if text)
    return f"<table>{cells}</table>"


def plural(count: int, noun: str) -> str:
    """Return `1 page` or `1,234 pages`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
