"""Requests that a profile describes, page images in the sizes it asks for, and reader options."""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol

from llm_ocr.engines import Completion, CompletionRequest
from llm_ocr.engines.embedded.regions import Inspection
from llm_ocr.models.parsers.repetition import RepetitionWatch
from llm_ocr.models.profile import Frame, Profile
from llm_ocr.types import Attempt, EncodedImage, Page, Quality, Reason, Status

# What users choose about the model readers.


#: Tries at a page or figure before it is given up.
MAX_ATTEMPTS = 8
#: Seconds before the same request is sent again after it was lost; doubled each time, up to `LONGEST_BACKOFF`.
BACKOFF = 0.5
LONGEST_BACKOFF = 8.0


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How pages are asked for; None: as the profile says. `backoff` in seconds, as `BACKOFF`.

    `rotate`: auto turns a page whose model says that it does not stand upright, probe looks at it before, too.
    `figures_from`: the model's boxes, what is seen on the page, none; auto: the model's where its answers have places.
    `anchor` characters of the text layer go into the prompt. `guided`: vLLM forces the form of the answers.
    """

    mode: str | None = None  # which of the profile's prompts
    prompt: str | None = None  # the user's own instead
    max_tokens: int | None = None  # of an answer
    temperature: float | None = None  # of the first try
    max_attempts: int = MAX_ATTEMPTS
    figure_labels: frozenset[str] | None = None  # of blocks that are cut out as figures
    model: str | None = None  # the weights, where they are not the profile's
    revision: str | None = None
    backoff: float = BACKOFF
    rotate: str = "auto"  # "never" or "probe"
    figures_from: str = "auto"  # "model", "page" or "none"
    anchor: int = 0
    guided: bool = False
    chosen: Mapping[str, Any] = field(default_factory=dict)  # what else changes results, for the key


@dataclass(frozen=True, slots=True)
class DescribeOptions:
    """What is asked of figures; None: as the profile says.

    `mode` is describe, parse, classify, or the name of a `prompt` of the user's own. Such a prompt may also stand in
    for one of the three: then its answers must have that mode's form, and `{classes}` in it is filled in for classify.
    """

    mode: str = "describe"
    prompt: str | None = None
    classes: tuple[str, ...] = ()  # for classify; empty: the usual ones
    max_tokens: int | None = None
    temperature: float | None = None
    max_attempts: int = MAX_ATTEMPTS
    model: str | None = None
    revision: str | None = None
    backoff: float = BACKOFF
    chosen: Mapping[str, Any] = field(default_factory=dict)  # what else changes results, for the key


# What the model readers need done with images and documents, away from the event loop.


class ImageTools(Protocol):
    """Work that takes processor time, done in other processes. All raise `PageFailure` when it cannot be done."""

    async def resized(self, image: EncodedImage, scale: float) -> EncodedImage:
        """The image with its sides multiplied by `scale`."""

    async def turned(self, image: EncodedImage, degrees: int) -> EncodedImage:
        """The image turned clockwise by 90, 180 or 270 degrees."""

    async def blank(self, image: EncodedImage) -> bool:
        """Whether nothing is to be seen on it."""

    async def content(self, page: Page) -> Page:
        """The page with its text layer read; as it is where it has none."""


class PageInspector(Protocol):
    """What is seen on pages without a model, on processors of our own. All raise `PageFailure`."""

    def identity(self) -> Mapping[str, Any]:
        """What changes what is seen, as JSON values."""

    async def see(self, page: Page, *, hinted: bool) -> Inspection:
        """Where figures are; `hinted`: the page's text speaks of some."""

    async def text(self, page: Page) -> str:
        """The text layer in reading order; "" without one that can be believed."""

    async def orientation(self, page: Page) -> int:
        """Degrees clockwise by which the page must be turned to be upright: 0, 90, 180 or 270."""

    async def close(self) -> None:
        """End its processes."""


@dataclass(frozen=True, slots=True)
class QualityRule:
    """Sound answers whose quality is `below` this are asked for again; `score` says what it is. `version` of that."""

    below: float
    score: Callable[[Page, Attempt], Quality]
    version: int

    def identity(self) -> Mapping[str, Any]:
        """What changes which answer is taken, as JSON values."""
        return {"below": self.below, "version": self.version}

    async def quality(self, page: Page, attempt: Attempt) -> float:
        """The score, made beside the event loop."""
        return (await asyncio.to_thread(self.score, page, attempt)).score


# One image in several sizes, turned where it must be; each made when it is asked for, the newest kept.


class Images:
    """A page's image, or a region's, as it is asked about."""

    def __init__(self, image: EncodedImage, tools: ImageTools) -> None:
        self._given = image
        self._tools = tools
        self._upright: dict[int, EncodedImage] = {0: image}
        self._resized: tuple[int, float, EncodedImage] | None = None  # of which rotation, and by what
        self.rotation = 0  # degrees clockwise

    def turn(self, degrees: int) -> None:
        """From now on the image is turned clockwise by so many degrees more."""
        self.rotation = (self.rotation + degrees) % 360

    def upright(self, rotation: int) -> EncodedImage | None:
        """The image as it was sent with that rotation; None where it is as it was given."""
        return self._upright.get(rotation) if rotation else None

    async def sized(self, scale: float) -> EncodedImage:
        """The image with its sides multiplied by `scale`. Raises `PageFailure`."""
        if self.rotation not in self._upright:
            self._upright[self.rotation] = await self._tools.turned(self._given, self.rotation)
        image = self._upright[self.rotation]
        if scale == 1.0:
            return image
        if self._resized is None or self._resized[:2] != (self.rotation, scale):
            self._resized = (self.rotation, scale, await self._tools.resized(image, scale))
        return self._resized[2]

    def frame(self, scale: float) -> Frame:
        """The size in pixels of the image that was asked for last, at that scale."""
        image = self._resized[2] if scale != 1.0 and self._resized else self._upright[self.rotation]
        return Frame(image.width, image.height)


# The text layer of a page as help for the model that reads it.


#: The place of the text in a prompt.
PLACE = "{text}"
#: Characters of a token, at the least, in ordinary script.
_CHARACTERS = 2
_GAP = "\n[...]\n"


def fitted(text: str, most: int) -> str:
    """The text in at most `most` characters: what is too much is left out of its middle, between words if possible."""
    if len(text) <= most:
        return text
    half = max(0, most - len(_GAP)) // 2
    if not half:
        return text[:most]
    return f"{_first(text[: half + 1], half)}{_GAP}{_first(text[: -half - 2 : -1], half)[::-1]}"


def tokens(text: str) -> int:
    """The most tokens that the text takes of the context."""
    return -(-len(text) // _CHARACTERS)


def _first(text: str, most: int) -> str:
    """The first words in so many characters; all of these where they are one word."""
    cut = max(text.rfind(" "), text.rfind("\n"))
    return (text[:cut] if cut > most // 2 else text[:most]).rstrip()


# The requests made for one page or figure: each as a row of JSON values, and their sums.


@dataclass(frozen=True, slots=True)
class Step:
    """What one request asks with. `scale` is of the image's sides; `max_tokens` of the answer."""

    mode: str
    temperature: float
    max_tokens: int
    scale: float = 1.0


@dataclass(slots=True)
class Clock:
    """When a request was handed over and when it went out, by the engine's call of `admitted`; in seconds.

    Passes that call on, the first time only: a page leaves the queue once, however often it is asked for.
    """

    admitted: Callable[[], None]
    _asked: float = 0.0
    _out: float | None = None
    _told: bool = False

    def start(self) -> None:
        """A request is handed to the engine now."""
        self._asked, self._out = time.monotonic(), None

    def went_out(self) -> None:
        """For the engine: the request goes out now."""
        self._out = time.monotonic()
        if not self._told:
            self._told = True
            self.admitted()

    def spent(self) -> tuple[float, float]:
        """Seconds under way and seconds waited before, until now."""
        now = time.monotonic()
        out = now if self._out is None else self._out
        return now - out, out - self._asked


@dataclass(slots=True)
class Tries:
    """At most `limit` requests, beside those that do not count."""

    limit: int
    rows: list[Mapping[str, Any]] = field(default_factory=list)
    tokens_in: int = 0
    tokens_out: int = 0
    seconds: float = 0.0
    uncounted: int = 0

    @property
    def left(self) -> bool:
        return len(self.rows) - self.uncounted < self.limit

    def answered(
        self,
        step: Step,
        answer: Completion,
        reason: Reason | None,
        detail: str,
        *,
        counts: bool = True,
        quality: float | None = None,
    ) -> None:
        """A request that was answered; `reason` says why the answer is no good."""
        self.uncounted += not counts
        self.tokens_in += answer.tokens_in
        self.tokens_out += answer.tokens_out
        self._add(step, reason, detail, answer.seconds, answer.waited, answer)
        if quality is not None:
            self.rows[-1] = {**self.rows[-1], "quality": quality}

    def failed(self, step: Step, reason: Reason, detail: str, spent: tuple[float, float]) -> None:
        """A request without an answer; `spent` as `Clock.spent` says."""
        self._add(step, reason, detail, *spent, None)

    def _add(
        self, step: Step, reason: Reason | None, detail: str, seconds: float, waited: float, answer: Completion | None
    ) -> None:
        self.seconds += seconds
        self.rows.append(
            {
                "status": (Status.FAILED if reason else Status.OK).value,
                "reason": reason.value if reason else None,
                "temperature": step.temperature,
                "mode": step.mode,
                "scale": round(step.scale, 4),
                "tokens_in": answer.tokens_in if answer else 0,
                "tokens_out": answer.tokens_out if answer else 0,
                "seconds": round(seconds, 4),
                "waited": round(waited, 4),
                "server": answer.server if answer else "",
                "detail": detail,
                **({"tokens_estimated": True} if answer and answer.estimated else {}),
            }
        )


# Requests as a profile asks for them, and what of it changes the answers.


_NONE: Mapping[str, Any] = MappingProxyType({})


def question_of(
    profile: Profile,
    step: Step,
    about: str,
    image: EncodedImage,
    prompt: str,
    *,
    vllm_settings: Mapping[str, Any] = _NONE,
    beside: int = 0,
) -> CompletionRequest:
    """A step's request. `about`: the page's or figure's id; `beside`: tokens that the prompt takes beside the usual.

    `vllm_settings`: those beside the ones that all requests of the profile have.
    """
    return CompletionRequest(
        id=about,
        image=image,
        prompt=prompt,
        settings={**profile.settings, "temperature": step.temperature, "max_tokens": step.max_tokens},
        vllm_settings={**profile.vllm_settings, **vllm_settings},
        image_first=profile.image_first,
        system=profile.system,
        watch=RepetitionWatch,
        reserve=max(0, profile.context - profile.max_tokens) + beside,
    )


def answer_room(profile: Profile) -> int:
    """Tokens of the context that a full page's prompt leaves for its answer."""
    return profile.context - min(profile.page_tokens, profile.context // 2)


def what_fits(profile: Profile, wanted: int | None) -> int:
    """Tokens of an answer: the profile's, or as many as `wanted` where they fit beside a full page's prompt."""
    if wanted is None:
        return profile.max_tokens
    return max(1, min(wanted, max(profile.max_tokens, answer_room(profile))))


def profile_as_json(profile: Profile, *, model: str | None, revision: str | None) -> dict[str, Any]:
    """What of a profile changes answers, whatever is asked."""
    return {
        "model": model or profile.model,
        "revision": revision or (None if model else profile.revision),
        "system": profile.system,
        "image_first": profile.image_first,
        "settings": json_values(profile.settings),
        "vllm_settings": json_values(profile.vllm_settings),
    }


def json_values(value: Any) -> Any:
    """Mappings and sequences as dicts and lists."""
    if isinstance(value, Mapping):
        return {str(key): json_values(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [json_values(inner) for inner in value]
    return value
