"""What is asked of figures, and the form that answers are to have.

Prompts of DeepSeek-OCR are the strings that it was trained on (its README), but for `classify`, which it never learnt:
there only a server that forces one of the names makes its answer useful. The others are ours.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from llm_ocr.models.profile import Profile

#: Into what `classify` sorts figures when the user names no classes.
CLASSES = ("photo", "chart", "diagram", "logo", "table", "map", "screenshot", "drawing", "formula", "other")

_PLACE = "{classes}"
_CLASSIFY = f"What kind of picture is this? Answer with one of these names and nothing else: {_PLACE}."

DEEPSEEK_PROMPTS: Mapping[str, str] = MappingProxyType(
    {
        "describe": "Describe this image in detail.",
        "parse": "Parse the figure.",
        "classify": _CLASSIFY,
    }
)

CHAT_PROMPTS: Mapping[str, str] = MappingProxyType(
    {
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
)

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


#: JSON schema that `parse` asks for. All values are strings, as they are printed in the figure.
PARSE_SCHEMA: Mapping[str, Any] = MappingProxyType(
    {
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
)


def classify_prompt(prompt: str, classes: Sequence[str] = CLASSES) -> str:
    """The prompt of mode `classify` with the names of the classes at their place (`{classes}`)."""
    return prompt.replace(_PLACE, ", ".join(classes))


def structured_outputs(
    profile: Profile, mode: str, classes: Sequence[str] = CLASSES, *, own_prompt: bool = False
) -> Mapping[str, Any]:
    """Settings of a request by which vLLM forces the form of an answer; empty where the mode or model needs none.

    With `own_prompt` the user's prompt decides the form of JSON. vLLM takes the settings at the top level of the
    request (0.32.0; older versions ignored other spellings in silence).
    """
    if mode not in profile.structured or (mode == "parse" and own_prompt):
        return {}
    if mode == "parse":
        return {"structured_outputs": {"json": dict(PARSE_SCHEMA)}}
    return {"structured_outputs": {"choice": list(classes)}} if mode == "classify" else {}
