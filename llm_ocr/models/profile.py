"""Profile of an OCR model as data, and its consistency checks."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from llm_ocr.types import Block


@dataclass(frozen=True, slots=True)
class Frame:
    """Size in pixels of the image as sent, for boxes in pixels; 0 by 0 if unknown."""

    width: int = 0
    height: int = 0


#: Frame for parsers whose boxes do not depend on the image.
NO_FRAME = Frame()


@dataclass(frozen=True, slots=True)
class PageNotes:
    """Metadata that a model reports about a page; None for values that are not reported.

    The names are those of olmOCR's front matter; `rotation_correction` is in degrees clockwise: 0, 90, 180, or 270.
    """

    primary_language: str | None = None
    is_rotation_valid: bool | None = None
    rotation_correction: int | None = None
    is_table: bool | None = None
    is_diagram: bool | None = None


@dataclass(frozen=True, slots=True)
class Parsed:
    """Parsed answer: blocks in reading order with relative, clipped boxes, and dropped parts."""

    blocks: tuple[Block, ...]
    lost: tuple[str, ...] = ()  # one short sentence each; empty for a sound answer
    notes: PageNotes | None = None


#: Conversion of an answer's text to blocks. A parser never raises, for any text. Its time is linear in the length.
Parser = Callable[[str, Frame], Parsed]


@dataclass(frozen=True, slots=True)
class ImageRule:
    """Format of page images for the model."""

    longest_side: int  # pixels
    format: str = "png"  # or "jpeg"


@dataclass(frozen=True, slots=True)
class Rung:
    """Step of the retry ladder: differences from the first request. `scale` applies to the sides of the image."""

    temperature: float | None = None
    mode: str | None = None  # name of another prompt of the profile
    scale: float = 1.0


@dataclass(frozen=True, slots=True)
class Score:
    """Published result. `source` states the publication and the author of the measurement."""

    benchmark: str  # "olmOCR-bench", "OmniDocBench v1.5" ...
    value: float
    source: str


@dataclass(frozen=True, slots=True)
class Profile:
    """Profile of one model. Prompts are those of its training; sources of figures and strings are in the file.

    Modes that read pages: `layout` (text and boxes), `layout-only` (boxes), `markdown`, `text`. Modes for regions:
    `text`, `table`, `formula`, `chart`. Modes for figures: `describe`, `parse`, `classify`. A profile has the modes
    that its model supports.
    """

    name: str
    model: str  # Hugging Face id
    licence: str
    prompts: Mapping[str, str]  # by mode; reading modes and describing modes; "" sends the image alone
    parsers: Mapping[str, Parser]  # by mode; "" for all other modes
    image: ImageRule
    max_tokens: int  # per answer
    context: int  # maximum length in tokens of a started server
    page_tokens: int  # prompt and answer of a full page, for the initial window
    kv_bytes: int = 0  # of the KV cache per token: 2 x layers x KV heads x head size x 2 bytes; 0: unknown
    aliases: tuple[str, ...] = ()
    revision: str | None = None
    mode: str = "layout"  # default reading mode
    system: str | None = None
    image_first: bool = True
    temperature: float = 0.0
    settings: Mapping[str, Any] = field(default_factory=dict)  # for every request (top_p, presence_penalty ...)
    vllm_settings: Mapping[str, Any] = field(default_factory=dict)  # for every request to a vLLM server
    page_settings: Mapping[str, Any] = field(default_factory=dict)  # additional settings for pages
    guides: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # by mode: vLLM settings for the form
    server_args: tuple[str, ...] = ()  # for `vllm serve`
    min_vllm: str = ""
    min_transformers: str = ""
    trust_remote_code: bool = False
    figure_labels: frozenset[str] = field(default_factory=frozenset)  # default of `crop`
    structured: frozenset[str] = frozenset({"parse", "classify"})  # describing modes whose answers a server may enforce
    ladder: tuple[Rung, ...] = ()  # after the first request; the last step repeats
    notice: str = ""  # shown if the license restricts use
    # Facts for the choice of a model, and for checks before a server starts.
    parameters: float = 0.0  # in billions; 0: unknown
    weight_bytes: float = 2.0  # per parameter: 2 for BF16, 1 for FP8
    languages: str = ""  # known languages, as text
    scores: tuple[Score, ...] = ()
    experimental: bool = False  # based on descriptions only, or with contradictory facts
    # Reading of pages.
    anchor: str = ""  # prompt of the mode for pages with a text layer, with `{text}` as placeholder; "": unsupported
    region_tasks: Mapping[str, str] = field(default_factory=dict)  # task of a region (text, table ...) -> mode
    layout_first: bool = False  # default: a detector finds regions, and each region is one request


#: Below this value, hardly any token but the most likely one remains, at any temperature.
_SMALL_TOP_P = 0.5
_DESCRIBING = frozenset({"describe", "parse", "classify"})


def complaints(profile: Profile) -> list[str]:
    """Return the faults of a profile, one short sentence each; empty for a sound profile."""
    return list(_faults(profile))


def _faults(profile: Profile) -> Iterator[str]:
    prompts = profile.prompts
    known = f"its prompts are {', '.join(prompts) or 'none'}"
    if profile.mode not in prompts or profile.mode in _DESCRIBING:
        yield f"mode is {profile.mode!r}, which has no prompt for pages: {known}"
    if "" not in profile.parsers:
        yield "parser is missing"
    named = {
        "parsers": set(profile.parsers) - {""},
        "guides": set(profile.guides),
        "region_tasks": set(profile.region_tasks.values()),
        "ladder": {rung.mode for rung in profile.ladder if rung.mode},
    }
    for name, modes in named.items():
        for mode in sorted(modes - set(prompts)):
            yield f"{name} names the mode {mode!r}, which has no prompt: {known}"
    if profile.anchor and "{text}" not in profile.anchor:
        yield "anchor lacks {text}, the placeholder for the text of the page"
    sizes = {"max_tokens": profile.max_tokens, "context": profile.context, "page_tokens": profile.page_tokens}
    for name, size in sizes.items():
        if size < 1:
            yield f"{name} must be at least 1"
    if profile.image.longest_side < 1:
        yield "image.longest_side must be at least 1"
    if profile.image.format not in ("png", "jpeg"):
        yield f"image.format is {profile.image.format!r}, but must be png or jpeg"
    if profile.max_tokens >= profile.context:
        yield f"max_tokens ({profile.max_tokens}) leaves no space for the prompt in a context of {profile.context}"
    if any(rung.scale <= 0 for rung in profile.ladder):
        yield "scales of the ladder must be positive"
    if any((rung.temperature or 0) < 0 for rung in profile.ladder) or profile.temperature < 0:
        yield "temperatures must not be negative"
    sampling = {**profile.settings, **profile.vllm_settings}
    top_k, top_p = sampling.get("top_k"), sampling.get("top_p")
    same_answer = top_k == 1 or (isinstance(top_p, int | float) and top_p < _SMALL_TOP_P)
    if same_answer and any(rung.temperature for rung in profile.ladder):
        yield "with top_k 1 or a small top_p, higher temperatures of the ladder repeat the same answer"
