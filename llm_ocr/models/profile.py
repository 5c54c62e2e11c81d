"""What one OCR model needs, as data, and the consistency checks of a profile."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from llm_ocr.types import Block

# What one OCR model needs, as data.


@dataclass(frozen=True, slots=True)
class Frame:
    """The image as it was sent, in pixels: what boxes in pixels are about. 0 by 0 where it is not known."""

    width: int = 0
    height: int = 0


#: For parsers whose boxes do not depend on the image.
NO_FRAME = Frame()


@dataclass(frozen=True, slots=True)
class PageNotes:
    """What a model says about a page beside its text; None where it says nothing.

    The names are those of olmOCR's front matter; `rotation_correction` is in degrees clockwise: 0, 90, 180 or 270.
    """

    primary_language: str | None = None
    is_rotation_valid: bool | None = None
    rotation_correction: int | None = None
    is_table: bool | None = None
    is_diagram: bool | None = None


@dataclass(frozen=True, slots=True)
class Parsed:
    """What a parser made of an answer: blocks in reading order, boxes relative and clipped, and what it had to drop."""

    blocks: tuple[Block, ...]
    lost: tuple[str, ...] = ()  # one short sentence each; empty for an answer that was sound
    notes: PageNotes | None = None


#: From an answer's text to blocks. Never raises, whatever the text; time linear in its length.
Parser = Callable[[str, Frame], Parsed]


@dataclass(frozen=True, slots=True)
class ImageRule:
    """How page images are made for the model."""

    longest_side: int  # pixels
    format: str = "png"  # or "jpeg"


@dataclass(frozen=True, slots=True)
class Rung:
    """One step of the retry ladder: what differs from the first request. `scale` is of the image's sides."""

    temperature: float | None = None
    mode: str | None = None  # another of the profile's prompts
    scale: float = 1.0


@dataclass(frozen=True, slots=True)
class Score:
    """A published result. `source` says where it stands and who ran it."""

    benchmark: str  # "olmOCR-bench", "OmniDocBench v1.5" ...
    value: float
    source: str


@dataclass(frozen=True, slots=True)
class Profile:
    """One model. Prompts are the strings that it was trained on; each figure and string has its source in the file.

    Modes that read pages: `layout` (text and boxes), `layout-only` (boxes), `markdown`, `text`; of regions: `text`,
    `table`, `formula`, `chart`; of figures: `describe`, `parse`, `classify`. A profile has those that its model knows.
    """

    name: str
    model: str  # Hugging Face id
    licence: str
    prompts: Mapping[str, str]  # by mode; reading modes and describing modes; "" sends the image alone
    parsers: Mapping[str, Parser]  # by mode; "" for all others
    image: ImageRule
    max_tokens: int  # of an answer
    context: int  # --max-model-len of our own server
    page_tokens: int  # prompt and answer of a full page, for the first size of the window
    aliases: tuple[str, ...] = ()
    revision: str | None = None
    mode: str = "layout"  # the reading mode when none is chosen
    system: str | None = None
    image_first: bool = True
    temperature: float = 0.0
    settings: Mapping[str, Any] = field(default_factory=dict)  # of every request (top_p, presence_penalty ...)
    vllm_settings: Mapping[str, Any] = field(default_factory=dict)  # of every request to a vLLM server
    page_settings: Mapping[str, Any] = field(default_factory=dict)  # for pages, beside those
    guides: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # by mode: vLLM settings that force its form
    server_args: tuple[str, ...] = ()  # of `vllm serve`
    min_vllm: str = ""
    min_transformers: str = ""
    trust_remote_code: bool = False
    figure_labels: frozenset[str] = field(default_factory=frozenset)  # what --crop means when it is not given
    structured: frozenset[str] = frozenset({"parse", "classify"})  # describing modes whose answers a server may force
    ladder: tuple[Rung, ...] = ()  # after the first request; its last step repeats
    notice: str = ""  # shown when the licence restricts use
    # For people who choose, and for checks before a server starts.
    parameters: float = 0.0  # in thousands of millions; 0: not known
    weight_bytes: float = 2.0  # of one parameter: 2 for BF16, 1 for FP8
    languages: str = ""  # those that it is known to read, in words
    scores: tuple[Score, ...] = ()
    experimental: bool = False  # taken from descriptions alone, or facts about it disagree
    # How its pages are read.
    anchor: str = ""  # prompt of the mode when there is a text layer to lean on, `{text}` its place; "": takes none
    region_tasks: Mapping[str, str] = field(default_factory=dict)  # task of a region (text, table ...) -> mode
    layout_first: bool = False  # its usual way: a detector finds regions, each is asked for by itself


# Whether a profile holds together. Pure.


#: Below it next to nothing but the likeliest token is left, whatever the temperature.
_SMALL_TOP_P = 0.5
_DESCRIBING = frozenset({"describe", "parse", "classify"})


def complaints(profile: Profile) -> list[str]:
    """What is wrong with a profile, one short sentence each; empty for a sound one."""
    return [*_modes(profile), *_numbers(profile)]


def _modes(profile: Profile) -> Iterator[str]:
    prompts = profile.prompts
    known = f"its prompts are {', '.join(prompts) or 'none'}"
    if profile.mode not in prompts or profile.mode in _DESCRIBING:
        yield f"mode is {profile.mode!r}, and no prompt of that name reads pages: {known}"
    if "" not in profile.parsers:
        yield "no parser reads its answers: parser is missing"
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
        yield "anchor has no {text}, the place of the page's own text"


def _numbers(profile: Profile) -> Iterator[str]:
    sizes = {"max_tokens": profile.max_tokens, "context": profile.context, "page_tokens": profile.page_tokens}
    for name, size in sizes.items():
        if size < 1:
            yield f"{name} must be at least 1"
    if profile.image.longest_side < 1:
        yield "image.longest_side must be at least 1"
    if profile.image.format not in ("png", "jpeg"):
        yield f"image.format is {profile.image.format!r}, and must be png or jpeg"
    if profile.max_tokens >= profile.context:
        yield f"max_tokens ({profile.max_tokens}) leaves no room in a context of {profile.context} for the prompt"
    if any(rung.scale <= 0 for rung in profile.ladder):
        yield "a scale of the ladder must be more than 0"
    if any((rung.temperature or 0) < 0 for rung in profile.ladder) or profile.temperature < 0:
        yield "temperatures must not be negative"
    if any(rung.temperature for rung in profile.ladder) and not _warms(profile):
        yield "top_k 1 or a small top_p would give each warmer try of the ladder the same answer again"


def _warms(profile: Profile) -> bool:
    """Whether a higher temperature can give another answer."""
    sampling = {**profile.settings, **profile.vllm_settings}
    top_k, top_p = sampling.get("top_k"), sampling.get("top_p")
    return top_k != 1 and not (isinstance(top_p, int | float) and top_p < _SMALL_TOP_P)
