"""A profile given as names and values: inherited, checked, and refused with the key that is wrong."""

import tomllib
from dataclasses import replace
from typing import Any

import pytest
import yaml

from llm_ocr.errors import UsageError
from llm_ocr.models.parsers.grounding import parse_grounding
from llm_ocr.models.parsers.layout_json import parse_dots, parse_json
from llm_ocr.models.parsers.plain import parse_plain
from llm_ocr.models.profile import ImageRule, Rung, Score
from llm_ocr.models.profile_file import profile_from
from llm_ocr.models.profiles.chat import generic
from llm_ocr.models.registry import find_profile

FILE = "my.toml"
WHOLE = """
name = "my-ocr"
model = "me/my-ocr"
licence = "MIT"
parser = "layout-json"
mode = "layout"
max_tokens = 4000
context = 8000
page_tokens = 3000
temperature = 0.2
image_first = false
system = ""
figure_labels = ["image", "chart"]
server_args = ["--dtype", "bfloat16"]
parameters = 2
[image]
longest_side = 1000
format = "jpeg"
[prompts]
layout = "Give me JSON."
table = "Give me the table."
[parsers]
table = "plain"
[settings]
top_p = 0.9
[[ladder]]
temperature = 0.4
scale = 0.5
[[ladder]]
mode = "table"
[[scores]]
benchmark = "mine"
value = 80
source = "me"
"""


def made(**values: Any):
    return profile_from(values, FILE)


def refused(**values: Any) -> str:
    with pytest.raises(UsageError) as error:
        made(**values)
    assert str(error.value).startswith(f"{FILE}: ")
    return str(error.value)


def test_a_whole_profile_in_toml():
    profile = profile_from(tomllib.loads(WHOLE), FILE)
    assert (profile.name, profile.model, profile.licence) == ("my-ocr", "me/my-ocr", "MIT")
    assert (profile.max_tokens, profile.context, profile.page_tokens) == (4000, 8000, 3000)
    assert profile.image == ImageRule(1000, "jpeg")
    assert profile.prompts["layout"] == "Give me JSON."
    assert profile.parsers == {"": parse_json, "table": parse_plain}
    assert profile.settings == {"top_p": 0.9}
    assert profile.ladder == (Rung(0.4, scale=0.5), Rung(mode="table"))
    assert profile.scores == (Score("mine", 80.0, "me"),)
    assert profile.figure_labels == {"image", "chart"}
    assert profile.server_args == ("--dtype", "bfloat16")
    assert (profile.image_first, profile.system, profile.parameters) == (False, "", 2.0)


def test_the_same_values_in_yaml_are_the_same_profile():
    values = tomllib.loads(WHOLE)
    assert profile_from(yaml.safe_load(yaml.safe_dump(values)), FILE) == profile_from(values, FILE)


def test_a_model_alone_is_a_chat_model_with_our_prompts():
    assert made(model="me/sees") == replace(generic("me/sees"), name="sees")


def test_all_that_is_not_said_is_the_bases():
    base = find_profile("dots.ocr")
    assert made(base="dots-ocr") == base
    profile = made(base="dots.ocr", max_tokens=2000, prompts={"text": "Read."}, image={"longest_side": 999})
    assert profile.max_tokens == 2000
    assert profile.prompts == {**base.prompts, "text": "Read."}
    assert profile.image == ImageRule(999, base.image.format)
    assert profile.parsers["layout"] is parse_dots


def test_a_fine_tune_inherits_how_it_is_asked_and_not_what_was_measured():
    base = find_profile("glm-ocr")
    profile = made(base="glm-ocr", model="me/my-glm")
    assert profile.name == "my-glm"
    assert (profile.prompts, profile.server_args, profile.min_vllm) == (base.prompts, base.server_args, base.min_vllm)
    assert (profile.revision, profile.scores, profile.aliases) == (None, (), ())
    assert made(base="glm-ocr", model="me/my-glm", revision="abc").revision == "abc"


def test_a_parser_for_all_modes_replaces_those_of_the_base():
    assert made(base="dots.ocr", parser="grounding").parsers == {"": parse_grounding}
    profile = made(base="dots.ocr", parsers={"text": "grounding"})
    assert (profile.parsers["text"], profile.parsers["layout"]) == (parse_grounding, parse_dots)


@pytest.mark.parametrize(
    ("values", "key", "hint"),
    [
        ({"base": "glm-ocr", "promts": {}}, "unknown key 'promts'", "Did you mean prompts?"),
        ({"base": "glm-ocr", "image": {"longest": 3}}, "image: unknown key 'longest'", "longest_side"),
        ({"base": "glm-ocr", "ladder": [{"temprature": 1}]}, "ladder: unknown key 'temprature'", "temperature"),
        ({"base": "glm-ocrr"}, "base: no profile for model 'glm-ocrr'", "Did you mean glm-ocr"),
        ({"base": "glm-ocr", "parser": "layout_jsn"}, "parser: no parser is named", "layout-json"),
        ({"base": "glm-ocr", "parsers": {"text": "plane"}}, "parsers.text: no parser is named", "plain"),
        ({"name": "x"}, "both model and base are missing", "model: OWNER/NAME"),
        ({"base": "glm-ocr", "max_tokens": "many"}, "max_tokens: input should be a valid integer", ""),
        ({"base": "glm-ocr", "max_tokens": True}, "max_tokens: input should be a valid integer", ""),
        ({"base": "glm-ocr", "context": "8192"}, "context: input should be a valid integer", ""),
        ({"base": "glm-ocr", "prompts": "Read."}, "prompts: input should be an object", ""),
        ({"base": "glm-ocr", "prompts": {"text": 3}}, "prompts.text: input should be a valid string", ""),
        ({"base": "glm-ocr", "server_args": "--a b"}, "server_args: input should be a valid array", ""),
        ({"base": "glm-ocr", "ladder": [{"temperature": "hot"}]}, "ladder.0.temperature: input should be", ""),
        ({"model": 3}, "model: input should be a valid string", ""),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(values: dict[str, Any], key: str, hint: str):
    said = refused(**values)
    assert said.startswith(f"{FILE}: {key}")
    assert hint in said


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"mode": "layout"}, "mode is 'layout', which has no prompt for pages"),
        ({"mode": "describe"}, "which has no prompt for pages"),
        ({"parsers": {"nothing": "plain"}}, "parsers names the mode 'nothing', which has no prompt"),
        ({"ladder": [{"mode": "nothing"}]}, "ladder names the mode 'nothing'"),
        ({"region_tasks": {"table": "nothing"}}, "region_tasks names the mode 'nothing'"),
        ({"max_tokens": 20_000}, "max_tokens (20000) leaves no space for the prompt in a context of"),
        ({"max_tokens": 0}, "max_tokens must be at least 1"),
        ({"image": {"longest_side": 0}}, "image.longest_side must be at least 1"),
        ({"image": {"format": "gif"}}, "image.format is 'gif'"),
        ({"anchor": "Read this."}, "anchor lacks {text}"),
        ({"vllm_settings": {"top_k": 1}}, "with top_k 1 or a small top_p"),
        ({"temperature": -1}, "temperatures must not be negative"),
    ],
)
def test_a_profile_that_does_not_hold_together_is_refused(values: dict[str, Any], said: str):
    assert said in refused(model="me/sees", **values)
