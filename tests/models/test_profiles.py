"""Models are found by any of their names, and each profile holds together."""

import json
import re
import sys
import tomllib
from dataclasses import replace
from typing import Any

import pytest
import yaml
from family_answers import answer_of
from make_snapshots import FOLDER, path_of, snapshot

from llm_ocr.engines.vlm.requests import MAX_ATTEMPTS
from llm_ocr.errors import UsageError
from llm_ocr.models.parsers import PARSERS, PLACED, parser_named
from llm_ocr.models.parsers.labels import kind_of, known_kind
from llm_ocr.models.parsers.layout_json import parse_dots, parse_json
from llm_ocr.models.parsers.markdown import parse_front_matter
from llm_ocr.models.parsers.markers import parse_grounding
from llm_ocr.models.parsers.plain import parse_plain
from llm_ocr.models.profile import NO_FRAME, ImageRule, Profile, Rung, Score, complaints
from llm_ocr.models.profiles.chat import generic
from llm_ocr.models.profiles.shared import ANSWER
from llm_ocr.models.registry import DEFAULT, PROFILES, all_profiles, find_profile, profile_from
from llm_ocr.types import BlockKind

ALL = [*PROFILES, generic("some/model")]


def olmocr_head(language: str, turn: str) -> str:
    return (
        f"---\nprimary_language: {language}\nis_rotation_valid: True\nrotation_correction: {turn}\n"
        "is_table: False\nis_diagram: False\n---"
    )


@pytest.mark.parametrize(
    ("name", "found"),
    [
        *((name, "deepseek-ocr") for name in ("deepseek-ocr", "DeepSeek-OCR", "deepseek-ai/DeepSeek-OCR", "deepseek")),
        (" DEEPSEEK-AI/deepseek-ocr ", "deepseek-ocr"),
        ("qwen3-vl", "qwen3-vl-8b"),  # the usual size of the family
        ("Qwen3-VL-2B-Instruct", "qwen3-vl-2b"),
        ("chandra", "chandra-2"),  # the newest of the family
        ("datalab-to/chandra", "chandra-1"),
    ],
)
def test_a_profile_is_found_by_all_its_names(name: str, found: str):
    assert find_profile(name).name == found


def test_the_default_is_deepseek_ocr():
    assert DEFAULT == PROFILES[0].name == "deepseek-ocr"


def test_an_unknown_model_is_answered_with_close_names():
    with pytest.raises(UsageError, match="no profile for model 'deepsek-ocr'") as error:
        find_profile("deepsek-ocr")
    assert "Did you mean deepseek-ocr or deepseek-ocr-2?" in error.value.hint
    with pytest.raises(UsageError) as error:
        find_profile("zzzz")
    assert "Did you mean" not in error.value.hint
    assert error.value.hint == "All models with a profile: llm-ocr models"


def test_no_two_profiles_share_a_name():
    names = [one.casefold() for profile in PROFILES for one in {profile.name, profile.model, *profile.aliases}]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("profile", ALL, ids=lambda profile: profile.name)
def test_a_profile_holds_together(profile: Profile):
    assert complaints(profile) == []
    assert profile.page_tokens < profile.context
    assert profile.page_tokens - ANSWER + profile.max_tokens <= profile.context, "a full page and the longest answer"
    assert set(profile.parsers.values()) <= set(PARSERS.values())
    json.dumps([dict(profile.settings), dict(profile.vllm_settings), dict(profile.page_settings), dict(profile.guides)])


@pytest.mark.parametrize("profile", ALL, ids=lambda profile: profile.name)
def test_figures_are_cut_out_only_where_an_answer_has_places(profile: Profile):
    placed = not PLACED.isdisjoint(profile.parsers.values())
    assert placed == bool(profile.figure_labels)
    assert all(known_kind(label) is BlockKind.FIGURE for label in profile.figure_labels)


@pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: profile.name)
def test_what_people_choose_by_is_there(profile: Profile):
    assert profile.licence
    assert profile.parameters > 0
    assert profile.model.count("/") == 1
    assert all(score.benchmark and score.value > 0 and score.source for score in profile.scores)
    assert profile.revision in (None, "untied") or len(profile.revision) == 40
    assert all(part.isdecimal() for part in profile.min_vllm.split(".") if profile.min_vllm)


def test_only_models_that_were_made_for_it_describe_figures():
    names = {profile.name.partition("-")[0] for profile in PROFILES if "describe" in profile.prompts}
    assert names == {"deepseek", "qwen3", "internvl3.5", "mineru2.5"}
    for profile in ALL:
        if {"parse", "classify"} & set(profile.prompts):
            assert {"describe", "parse", "classify"} <= set(profile.prompts)


def test_licences_that_restrict_use_say_so():
    for name in ("chandra-2", "chandra-1", "hunyuanocr", "nanonets-ocr2", "surya-ocr-2", "surya-ocr-2.5", "dots.mocr"):
        assert name in find_profile(name).notice
    assert "whole" in find_profile("paddleocr-vl-1.6").notice
    assert not find_profile("lightonocr-3").notice


@pytest.mark.parametrize("profile", ALL, ids=lambda profile: profile.name)
def test_the_ladder_grows_warmer(profile: Profile):
    warmth = [rung.temperature or 0 for rung in profile.ladder]
    assert warmth == sorted(set(warmth))
    assert warmth[0] >= profile.temperature
    assert warmth[-1] >= 0.8
    assert 1 < len(profile.ladder) < MAX_ATTEMPTS
    # A plainer prompt comes late, another size early.
    changed = [number for number, rung in enumerate(profile.ladder) if rung.mode]
    assert all(number >= len(profile.ladder) - 2 for number in changed)
    resized = [number for number, rung in enumerate(profile.ladder) if rung.scale != 1]
    assert all(number <= 2 for number in resized)


def test_vendors_rules_for_retries_are_kept():
    assert [rung.temperature for rung in find_profile("olmocr-2").ladder] == [0.1, 0.2, 0.3, 0.5, 0.8, 0.9, 1.0]
    assert [rung.temperature for rung in find_profile("chandra-2").ladder] == [0.2, 0.4, 0.6, 0.8]
    assert {rung.scale for rung in find_profile("dots.ocr").ladder} == {1.0, 0.95}
    for name in ("lightonocr-3", "lightonocr-2", "lightonocr-2-bbox"):
        assert find_profile(name).temperature > 0, "greedy decoding loops"


@pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: profile.name)
def test_requests_and_servers_are_as_written_down(profile: Profile):
    written_down = json.loads(path_of(profile).read_text(encoding="utf-8"))
    assert snapshot(profile) == written_down, "if this is meant: python tests/models/make_snapshots.py"


def test_no_snapshot_is_left_of_a_profile_that_is_gone():
    assert {path.name for path in FOLDER.iterdir()} == {path_of(profile).name for profile in PROFILES}


def test_olmocrs_forced_form_is_what_its_parser_reads():
    grammar = find_profile("olmocr-2").guides["markdown"]["structured_outputs"]["regex"]
    for fits in (olmocr_head("en", "0"), olmocr_head("null", "270") + "\nwords\nand more"):
        assert re.fullmatch(grammar, fits)
        assert parse_front_matter(fits).notes is not None
    for unfit in (olmocr_head("English", "0"), olmocr_head("en", "45"), "words"):
        assert not re.fullmatch(grammar, unfit)


def test_dots_forced_form_is_that_of_its_answers():
    profile = find_profile("dots.ocr")
    schema = profile.guides["layout"]["structured_outputs"]["json"]
    for piece in json.loads(answer_of(profile)):
        assert set(schema["items"]["required"]) <= set(piece) <= set(schema["items"]["properties"])
        assert piece["category"] in schema["items"]["properties"]["category"]["enum"]


def test_a_model_that_is_not_known_may_have_any_parser():
    assert generic("some/model").parsers == {"": parse_plain}
    assert not generic("some/model").figure_labels
    placed = generic("some/model", parser="layout_json")
    assert placed.parsers == {"": parse_json}
    assert "chart" in placed.figure_labels
    with pytest.raises(UsageError, match="no parser is named 'layout-jsn'") as error:
        generic("some/model", parser="layout-jsn")
    assert "Did you mean layout-json" in error.value.hint


@pytest.mark.parametrize("name", PARSERS)
def test_every_named_parser_reads_a_sentence(name: str):
    """Or says what it could not read."""
    parsed = parser_named(name)("The tide rose by two metres.", NO_FRAME)
    assert parsed.blocks or parsed.lost
    assert parser_named(name.upper().replace("-", "_")) is parser_named(name)


def test_a_layer_of_text_is_put_where_the_prompt_says():
    for name in ("qwen3-vl", "internvl"):
        assert find_profile(name).anchor.count("{text}") == 1
    assert not find_profile("deepseek-ocr").anchor


@pytest.mark.parametrize(
    ("label", "kind"),
    [
        ("image", BlockKind.FIGURE),
        ("Chart", BlockKind.FIGURE),
        ("chemical-block", BlockKind.FIGURE),
        ("Page-Header", BlockKind.HEADER),
        ("page footer", BlockKind.FOOTER),
        ("section_header_level_3", BlockKind.HEADING),
        ("image_caption", BlockKind.CAPTION),
        ("Table Footnote", BlockKind.FOOTNOTE),
        ("display_formula", BlockKind.FORMULA),
        ("list-item", BlockKind.LIST_ITEM),
        ("something else", BlockKind.TEXT),
    ],
)
def test_labels_of_all_models_have_a_kind(label: str, kind: BlockKind):
    assert kind_of(label) is kind
    assert known_kind(label) is (None if label == "something else" else kind)


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


def test_fine_tune_inherits_request_settings_and_no_measurements():
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


def install_profile(monkeypatch, folder, module):
    about = folder / "our_models-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: our-models\nVersion: 1\n")
    (about / "entry_points.txt").write_text("[llm_ocr.profiles]\nours = our_models:OURS\n")
    (folder / "our_models.py").write_text(module)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "our_models", raising=False)


OURS = """
from dataclasses import replace
from llm_ocr.models.registry import PROFILES
OURS = replace(PROFILES[0], name="ours", model="example/Ours-OCR", aliases=("our-ocr",){more})
"""


def test_package_adds_a_model_profile(monkeypatch, tmp_path):
    install_profile(monkeypatch, tmp_path, OURS.format(more=""))
    assert find_profile("our-ocr") is find_profile("example/Ours-OCR") is all_profiles()[-1]
    assert all_profiles()[:-1] == PROFILES


def test_unusable_profile_of_a_package_is_an_error(monkeypatch, tmp_path):
    install_profile(monkeypatch, tmp_path, OURS.format(more=", max_tokens=0"))
    with pytest.raises(UsageError, match="'ours' of an installed package is not usable: max_tokens must be"):
        find_profile("deepseek-ocr")
