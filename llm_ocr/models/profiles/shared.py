"""Server arguments, image sizes, retry ladders, and figure prompts that profiles share."""

from collections.abc import Mapping, Sequence
from math import ceil, sqrt
from typing import Any

from llm_ocr.models.profile import Profile, Rung

# Caches only cost memory and copies if each image is used once (vLLM's recipes for most of these models).
CACHES_OFF = ("--no-enable-prefix-caching", "--mm-processor-cache-gb", "0")
# Saves memory when the server measures its own use.
ONE_IMAGE = ("--limit-mm-per-prompt", '{"image": 1}')
USUAL_ARGS = (*CACHES_OFF, *ONE_IMAGE)

#: Source of the scores for "historical pages (Elo)".
BOARD = "davanstrien/ocr-board-historical-v0, independent: 338 old pages judged by a model"

#: Tokens of the answer for a typical page, for throughput estimates.
ANSWER = 1000
_A4_LONG_SIDE = 297 / 25.4  # inches

# The temperatures of olmOCR's pipeline are between 0.1 and 1.0. Above 0.8, models without its front matter drift.
_WARMTH = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8)
_RESIZED = 0.3  # temperature of the step that changes the image
_PLAINER = 0.6  # temperature of the step that changes the prompt


def side_at(dpi: int) -> int:
    """Return the long side in pixels of an A4 page at a resolution."""
    return round(_A4_LONG_SIDE * dpi)


def a4_tokens(longest_side: int, per_side: int) -> int:
    """Return the image tokens of an A4 page: `longest_side` in pixels, one token per square of `per_side` pixels."""
    return ceil(longest_side / per_side) * ceil(longest_side / sqrt(2) / per_side)


def prompt_tokens(prompt: str) -> int:
    """Return the approximate tokens of a prompt and its chat template."""
    return len(prompt) // 4 + 20


def page_tokens(longest_side: int, per_side: int, prompt: str) -> int:
    """Return the tokens of an A4 page (see `a4_tokens`), its prompt, and its answer."""
    return a4_tokens(longest_side, per_side) + prompt_tokens(prompt) + ANSWER


def warmer(above: float = 0.0, *, scale: float = 0.8, plainer: str | None = None) -> tuple[Rung, ...]:
    """Return the default ladder from the first step that is warmer than `above`.

    Args:
        above: Temperature of the first request.
        scale: Factor for the sides of the smaller image, an early step.
        plainer: Mode of the other prompt, a late step, since it mostly gives text without places.
    """
    return tuple(
        Rung(
            temperature=value,
            mode=plainer if value == _PLAINER else None,
            scale=scale if value == _RESIZED else 1.0,
        )
        for value in _WARMTH
        if value > above
    )


# Prompts for figures, and the form of their answers. Prompts of DeepSeek-OCR are the trained strings (its README),
# except `classify`, which was not trained: its answer is useful only if a server enforces one of the names. The other
# prompts are those of llm_ocr.


#: Default classes of `classify`.
CLASSES = ("photo", "chart", "diagram", "logo", "table", "map", "screenshot", "drawing", "formula", "other")

_PLACE = "{classes}"
_CLASSIFY = f"What kind of picture is this? Answer with one of these names and nothing else: {_PLACE}."

DEEPSEEK_PROMPTS: Mapping[str, str] = {
    "describe": "Describe this image in detail.",
    "parse": "Parse the figure.",
    "classify": _CLASSIFY,
}

CHAT_PROMPTS: Mapping[str, str] = {
    "describe": (
        "Describe this figure from a document for someone who cannot see it. Begin with what kind of figure it is. "
        "Say what it shows: its parts and how they belong together, for a chart its axes with units, its series "
        "and what they tell, and quote the text that can be read in it. State only what is visible. "
        "Answer with one paragraph of plain text, in the language of the figure's own text, else in English."
    ),
    "parse": (
        "Read this figure from a document. Answer with one JSON object and nothing else. Its keys:\n"
        '"type": the kind of figure, such as "bar chart", "line chart", "table", "flow chart", "photo";\n'
        '"title": its title;\n'
        '"axes": a list of objects with "name" and "unit";\n'
        '"columns": the names of the data\'s columns;\n'
        '"rows": the data, a list of rows, each a list with one string for every column, numbers as they are '
        "printed, or as close as the figure allows to read them;\n"
        '"nodes": the texts of a diagram\'s boxes;\n'
        '"edges": a list of objects with "from", "to" and "label" for the lines between them;\n'
        '"text": all other text in the figure, one line for each piece.\n'
        "Leave out keys for which the figure has nothing. Invent nothing: what cannot be read is an empty string."
    ),
    "classify": _CLASSIFY,
}

_STRING: dict[str, Any] = {"type": "string"}
_STRINGS: dict[str, Any] = {"type": "array", "items": _STRING}


def _objects_of(*required: str, optional: str) -> dict[str, Any]:
    item = {
        "type": "object",
        "properties": dict.fromkeys((*required, optional), _STRING),
        "required": list(required),
        "additionalProperties": False,
    }
    return {"type": "array", "items": item}


#: JSON schema of `parse`. All values are strings, as printed in the figure.
PARSE_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "type": _STRING,
        "title": _STRING,
        "axes": _objects_of("name", optional="unit"),
        "columns": _STRINGS,
        "rows": {"type": "array", "items": _STRINGS},
        "nodes": _STRINGS,
        "edges": _objects_of("from", "to", optional="label"),
        "text": _STRING,
    },
    "required": ["type"],
    "additionalProperties": False,
}


def classify_prompt(prompt: str, classes: Sequence[str] = CLASSES) -> str:
    """Return the prompt of mode `classify` with the class names in place of `{classes}`."""
    return prompt.replace(_PLACE, ", ".join(classes))


def follows_instructions(profile: Profile) -> bool:
    """Return whether the model follows any prompt. A model that was trained on one prompt supports no other."""
    return profile.prompts.get("describe") == CHAT_PROMPTS["describe"]


def structured_outputs(
    profile: Profile, mode: str, classes: Sequence[str] = CLASSES, *, own_prompt: bool = False
) -> Mapping[str, Any]:
    """Return request settings by which vLLM enforces the form of an answer; empty if mode or model needs none.

    With `own_prompt`, the user's prompt decides the form of the JSON. vLLM expects the settings at the top level of the
    request (0.32.0; older versions silently ignored other spellings).
    """
    if mode not in profile.structured or (mode == "parse" and own_prompt):
        return {}
    if mode == "parse":
        return {"structured_outputs": {"json": dict(PARSE_SCHEMA)}}
    return {"structured_outputs": {"choice": list(classes)}} if mode == "classify" else {}
