"""Requests as a profile asks for them, and what of it changes the answers."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from llm_ocr.engines.asking import Question
from llm_ocr.engines.model.tries import Step
from llm_ocr.models.profile import Profile
from llm_ocr.models.repetition import RepetitionWatch
from llm_ocr.types import EncodedImage

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
) -> Question:
    """A step's request. `about`: the page's or figure's id; `beside`: tokens that the prompt takes beside the usual.

    `vllm_settings`: those beside the ones that all requests of the profile have.
    """
    return Question(
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
