"""What is made of a page and of a figure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from llm_ocr.types.geometry import Box
from llm_ocr.types.outcome import BlockKind, Reason, Status
from llm_ocr.types.page import EncodedImage


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
