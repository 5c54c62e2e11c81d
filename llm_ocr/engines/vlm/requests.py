"""Build a profile's requests and images, and define reader options."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from llm_ocr.engines import CompletionRequest, ContentTools
from llm_ocr.models.parsers.repetition import RepetitionWatch
from llm_ocr.models.profile import Frame, Profile
from llm_ocr.models.profiles.shared import ANSWER
from llm_ocr.types import Attempt, Box, EncodedImage, Page

#: Tries per page or figure.
MAX_ATTEMPTS = 8
#: Seconds before a lost request is repeated; doubled each time, up to `LONGEST_BACKOFF`.
BACKOFF = 0.5
LONGEST_BACKOFF = 8.0


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Options for reading pages; None: as in the profile. `backoff` in seconds, as `BACKOFF`.

    `rotate`: auto turns a page that the model reports as not upright; probe also checks the page before the request.
    `figures_from`: the model's boxes, the detection on the page, or none. auto uses the model's boxes if its answers
    have places. `anchor` characters of the text layer are part of the prompt. `guided`: vLLM enforces the form of the
    answers.
    """

    mode: str | None = None  # name of one of the profile's prompts
    prompt: str | None = None  # custom prompt that replaces the profile's
    max_tokens: int | None = None  # of an answer
    temperature: float | None = None  # of the first try
    max_attempts: int = MAX_ATTEMPTS
    figure_labels: frozenset[str] | None = None  # labels of the blocks that are cut out as figures
    model: str | None = None  # other weights than the profile's
    revision: str | None = None
    backoff: float = BACKOFF
    rotate: str = "auto"  # "never" or "probe"
    figures_from: str = "auto"  # "model", "page" or "none"
    anchor: int = 0
    guided: bool = False
    chosen: Mapping[str, Any] = field(default_factory=dict)  # other settings that change results, for the key


@dataclass(frozen=True, slots=True)
class DescribeOptions:
    """Options for describing figures; None: as in the profile.

    `mode` is describe, parse, classify, or the name of a custom `prompt`. A custom prompt may also replace one of the
    three. Then its answers must have that mode's form, and `{classes}` is filled in for classify.
    """

    mode: str = "describe"
    prompt: str | None = None
    classes: tuple[str, ...] = ()  # for classify; empty: the default classes
    max_tokens: int | None = None
    temperature: float | None = None
    max_attempts: int = MAX_ATTEMPTS
    model: str | None = None
    revision: str | None = None
    backoff: float = BACKOFF
    chosen: Mapping[str, Any] = field(default_factory=dict)  # other settings that change results, for the key


class ImageTools(ContentTools, Protocol):
    """CPU-bound work in other processes. All methods raise `PageFailure` if the work fails."""

    async def resized(self, image: EncodedImage, scale: float) -> EncodedImage:
        """Return the image with its sides multiplied by `scale`."""

    async def turned(self, image: EncodedImage, degrees: int) -> EncodedImage:
        """Return the image turned clockwise by 90, 180, or 270 degrees."""

    async def crop(self, image: EncodedImage, boxes: Sequence[Box]) -> tuple[EncodedImage, ...]:
        """Return the parts of the image under relative boxes."""

    async def blank(self, image: EncodedImage) -> bool:
        """Return whether the image is blank."""


@dataclass(frozen=True, slots=True)
class QualityRule:
    """Rule that repeats sound answers that miss the user's limits.

    Attributes:
        judge: Returns the quality of an answer, and which limits it misses; "" for none.
        limits: The limits and the version of their measures, as JSON values.
        verified: Waits for more evidence and returns the page with it, and the reason if there is none.
    """

    judge: Callable[[Page, Attempt], tuple[float, str]]
    limits: Mapping[str, Any]
    verified: Callable[[Page], Awaitable[tuple[Page, str]]] | None = None

    async def judged(self, page: Page, attempt: Attempt) -> tuple[float, str]:
        """Return the result of `judge`, computed outside the event loop."""
        if self.verified is not None:
            page, _ = await self.verified(page)
        return await asyncio.to_thread(self.judge, page, attempt)


class Images:
    """Image of a page or region as sent in requests.

    Other sizes and rotations are created on request. Of the resized versions, the newest is kept.
    """

    def __init__(self, image: EncodedImage, tools: ImageTools) -> None:
        self._given = image
        self._tools = tools
        self._upright: dict[int, EncodedImage] = {0: image}
        self._resized: tuple[int, float, EncodedImage] | None = None  # rotation, scale, and image
        self.rotation = 0  # degrees clockwise

    def turn(self, degrees: int) -> None:
        """Turn the image clockwise by these degrees, in addition to earlier turns."""
        self.rotation = (self.rotation + degrees) % 360

    def upright(self, rotation: int) -> EncodedImage | None:
        """Return the image as sent with that rotation; None for the original image."""
        return self._upright.get(rotation) if rotation else None

    async def sized(self, scale: float) -> EncodedImage:
        """Return the image with its sides multiplied by `scale`. Raises `PageFailure`."""
        if self.rotation not in self._upright:
            self._upright[self.rotation] = await self._tools.turned(self._given, self.rotation)
        image = self._upright[self.rotation]
        if scale == 1.0:
            return image
        if self._resized is None or self._resized[:2] != (self.rotation, scale):
            self._resized = (self.rotation, scale, await self._tools.resized(image, scale))
        return self._resized[2]

    def frame(self, scale: float) -> Frame:
        """Return the size in pixels of the last requested image at that scale."""
        image = self._resized[2] if scale != 1.0 and self._resized else self._upright[self.rotation]
        return Frame(image.width, image.height)


#: Placeholder of the text in a prompt.
PLACE = "{text}"
#: Minimum characters per token in ordinary script.
_CHARACTERS = 2
_GAP = "\n[...]\n"


def fitted(text: str, most: int) -> str:
    """Return the text in at most `most` characters, shortened in its middle, between words if possible."""
    if len(text) <= most:
        return text
    half = max(0, most - len(_GAP)) // 2
    if not half:
        return text[:most]

    def first_words(part: str) -> str:  # or the first characters of a single long word
        end = max(part.rfind(" "), part.rfind("\n"))
        return (part[:end] if end > half // 2 else part[:half]).rstrip()

    return f"{first_words(text[: half + 1])}{_GAP}{first_words(text[: -half - 2 : -1])[::-1]}"


def tokens(text: str) -> int:
    """Return the maximum number of tokens that the text occupies in the context."""
    return -(-len(text) // _CHARACTERS)


@dataclass(frozen=True, slots=True)
class Step:
    """Settings of one request. `scale` applies to the image's sides, `max_tokens` to the answer."""

    mode: str
    temperature: float
    max_tokens: int
    scale: float = 1.0


def request_of(
    profile: Profile,
    step: Step,
    about: str,
    image: EncodedImage | None,
    prompt: str,
    *,
    vllm_settings: Mapping[str, Any],
    extra_tokens: int = 0,
) -> CompletionRequest:
    """Return the request of a step.

    Args:
        profile: Profile of the model.
        step: Settings of the request.
        about: Id of the page, figure, or passage.
        image: Image in the size of the step; None for a question about text.
        prompt: Prompt of the request.
        vllm_settings: Settings in addition to those of all requests of the profile.
        extra_tokens: Tokens of the prompt in addition to the usual prompt.
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
        reserve=max(0, profile.context - profile.max_tokens) + extra_tokens,
        # Any image counts as a full page, as in `estimate`: a cost limit must not be exceeded by too low a number.
        prompt_tokens=tokens(prompt) + (max(profile.page_tokens - ANSWER, ANSWER) if image else 0),
    )


def answer_room(profile: Profile) -> int:
    """Return the tokens of the context that a full page's prompt leaves for its answer."""
    return profile.context - min(profile.page_tokens, profile.context // 2)


def what_fits(profile: Profile, requested: int | None) -> int:
    """Return the maximum tokens of an answer: the profile's value, or `requested` if it leaves room for the prompt."""
    if requested is None:
        return profile.max_tokens
    return max(1, min(requested, max(profile.max_tokens, answer_room(profile))))


def profile_as_json(profile: Profile, *, model: str | None, revision: str | None) -> dict[str, Any]:
    """Return the profile's settings that change answers in all modes."""
    return {
        "model": model or profile.model,
        "revision": revision or (None if model else profile.revision),
        "system": profile.system,
        "image_first": profile.image_first,
        "settings": json_values(profile.settings),
        "vllm_settings": json_values(profile.vllm_settings),
    }


def json_values(value: Any) -> Any:
    """Convert mappings and sequences to dicts and lists."""
    if isinstance(value, Mapping):
        return {str(key): json_values(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [json_values(inner) for inner in value]
    return value
