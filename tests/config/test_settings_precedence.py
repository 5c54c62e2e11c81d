"""Which of several places a value is taken from, and how names of files arrive."""

import itertools
import json
import os
import tempfile
from pathlib import Path

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from llm_ocr.config.fields import command_models
from llm_ocr.config.groups import split_list
from llm_ocr.config.loading import load, settings_from
from llm_ocr.config.models import RunSettings, StatusSettings
from llm_ocr.documents.rendering import Renderer
from llm_ocr.stages.readers import embedded_reader
from llm_ocr.stages.rendering import render_options

#: Places by rank, the strongest first; each gives image_size another value.
PLACES = {
    "flag --image-size": {"flags": {"image_size": "101"}},
    "environment LLM_OCR_IMAGE_SIZE": {"environ": {"LLM_OCR_IMAGE_SIZE": "102"}},
    ".env LLM_OCR_IMAGE_SIZE": {"dotenv": "LLM_OCR_IMAGE_SIZE=103\n"},
    "conf.toml": {"config": "image_size = 104\n"},
    "workspace": {"stored": {"image_size": 105}},
}


VALUES = dict(zip(PLACES, range(101, 106), strict=True))


@pytest.mark.parametrize("chosen", [c for n in range(1, 6) for c in itertools.combinations(PLACES, n)])
def test_the_strongest_place_that_has_a_value_wins(loaded, chosen):
    given = {key: value for place in chosen for key, value in PLACES[place].items()}
    result = loaded(**given)
    assert result.settings.image_size == VALUES[chosen[0]]
    assert result.settings.origins["image_size"].endswith(chosen[0])


def test_a_launch_outranks_the_dotenv_file_in_its_jobs(loaded):
    launched = {"environ": {"LLM_OCR_LAUNCH": "20260101-000000-abcd@00"}, "stored": {"image_size": 105}}
    assert loaded(**launched, dotenv="LLM_OCR_IMAGE_SIZE=103\n").settings.image_size == 105


def test_without_any_place_the_default_counts(loaded):
    result = loaded()
    assert result.settings == RunSettings()
    assert set(result.settings.origins.values()) == {"default"}


def test_our_variable_wins_over_the_predecessors_bare_name(loaded):
    result = loaded(environ={"MAX_SAMPLES": "5", "LLM_OCR_MAX_SAMPLES": "7"})
    assert (result.settings.max_samples, result.settings.origins["max_samples"]) == (
        7,
        "environment LLM_OCR_MAX_SAMPLES",
    )


def test_an_empty_variable_counts_as_unset(loaded):
    result = loaded(
        environ={"LLM_OCR_MAX_SAMPLES": "", "MAX_SAMPLES": "", "LLM_OCR_IMAGE_SIZE": ""}, dotenv="LLM_OCR_PAGES=\n"
    )
    assert result.settings == RunSettings()


def test_the_configuration_file_may_be_named_by_a_variable(loaded, tmp_path):
    path = tmp_path / "other.yaml"
    path.write_text("max-samples: 3\n", encoding="utf-8")
    result = loaded(environ={"LLM_OCR_CONFIG": str(path)})
    assert (result.settings.max_samples, result.warnings) == (3, ())


def test_yaml_and_toml_say_the_same(loaded):
    toml = loaded(config='only = ["a, b.pdf"]\npages = "3"\nquiet = true\n').settings
    yaml = loaded(config="only: ['a, b.pdf']\npages: 3\nquiet: true\nlog_file: null\n", suffix=".yaml").settings
    assert toml == yaml == RunSettings(only=("a, b.pdf",), pages="3", quiet=True)


def test_one_configuration_file_serves_all_commands(loaded):
    assert loaded(StatusSettings, config='workspace = "w"\nimage_size = 900\n').settings.workspace == "w"


def test_values_in_python_come_from_keywords_alone(monkeypatch):
    monkeypatch.setenv("LLM_OCR_MAX_SAMPLES", "3")
    monkeypatch.setenv("MAX_SAMPLES", "3")
    assert RunSettings().max_samples is None


def test_dotenv_holds_only_our_names_and_takes_text_as_it_stands(loaded):
    result = loaded(dotenv="PATH=/nowhere\nMAX_SAMPLES=4\nLLM_OCR_ONLY='${HOME} $x.pdf'\nPYTHONPATH=x\n")
    assert (result.settings.max_samples, result.settings.only) == (4, ("${HOME} $x.pdf",))
    assert result.warnings == ()


NOWHERE = Path("/nowhere/.env")


#: Names as the system has them: any bytes but NUL, those that are not UTF-8 as surrogates.
SYSTEM_NAMES = st.binary(min_size=1, max_size=40).filter(lambda raw: b"\0" not in raw).map(os.fsdecode)


#: Names that a UTF-8 file can hold.
TEXT_NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=40)


def one_a_line(name: str) -> bool:
    """Whether a name can stand on a line of its own: no line end, and not itself a JSON list of texts."""
    return "\n" not in name and not name.lstrip().startswith("[")


def toml_text(name: str) -> str:
    return '"' + "".join(f"\\U{ord(character):08x}" for character in name) + '"'


@given(st.lists(SYSTEM_NAMES, min_size=1, max_size=4))
@example(["a,b [1].pdf", "-dash.pdf", "[x]", '["a"]', "日本.pdf", "caf\udce9.pdf", "{a}", " lead", "trail ", "a\nb"])
def test_a_name_given_as_an_argument_arrives_unchanged(names):
    result = load(RunSettings, {"sources": names, "only": names}, config=None, environ={}, dotenv=NOWHERE)
    assert result.settings.sources == result.settings.only == tuple(names)


@given(st.lists(SYSTEM_NAMES.filter(one_a_line), min_size=1, max_size=4))
@example(["a,b [1].pdf", "-dash.pdf", "日本.pdf", "caf\udce9.pdf"])
def test_a_name_on_a_line_of_a_variable_arrives_unchanged(names):
    environ = {"LLM_OCR_SOURCES": "\n".join(names)}
    assert load(RunSettings, {}, config=None, environ=environ, dotenv=NOWHERE).settings.sources == tuple(names)


@given(st.lists(TEXT_NAMES, min_size=1, max_size=4))
@example(["a\nb", '["a"]', "[x"])
def test_a_name_in_a_json_list_of_a_variable_arrives_unchanged(names):
    environ = {"LLM_OCR_SOURCES": json.dumps(names)}
    assert load(RunSettings, {}, config=None, environ=environ, dotenv=NOWHERE).settings.sources == tuple(names)


@given(st.lists(TEXT_NAMES, min_size=1, max_size=4))
def test_a_name_in_a_configuration_file_arrives_unchanged(names):
    with tempfile.TemporaryDirectory() as folder:
        toml, yml = Path(folder, "c.toml"), Path(folder, "c.yaml")
        toml.write_text(f"sources = [{', '.join(toml_text(name) for name in names)}]", encoding="utf-8")
        yml.write_text(yaml.safe_dump({"sources": names}), encoding="utf-8")
        for path in (toml, yml):
            assert load(RunSettings, {}, config=path, environ={}, dotenv=NOWHERE).settings.sources == tuple(names)


def test_a_bracketed_name_in_a_variable_is_a_name():
    assert split_list("[draft] a, b.pdf") == ("[draft] a, b.pdf",)
    assert split_list("[1]") == ("[1]",)
    assert split_list('["a.pdf", "b,c.pdf"]') == ("a.pdf", "b,c.pdf")
    assert split_list("a,b.pdf\n\nc.pdf\n") == ("a,b.pdf", "c.pdf")


def test_one_source_stands_for_a_list_of_one(tmp_path):
    assert RunSettings(sources=tmp_path / "a,b.pdf").sources == (str(tmp_path / "a,b.pdf"),)
    assert RunSettings(sources=["a", tmp_path]).sources == ("a", str(tmp_path))


def test_the_setting_reaches_the_workers_and_is_in_no_key(monkeypatch):
    limits, keys = [], []
    for value in ("auto", "off"):
        monkeypatch.setenv("LLM_OCR_CONFINEMENT", value)
        settings = settings_from(RunSettings, "run", {"sources": ("a.pdf",)})
        renderer, reader = Renderer(render_options(settings, ())), embedded_reader(settings)
        limits.append([part._pool.limits.confined for part in (renderer, reader)])
        keys.append((renderer.identity(), reader.identity()))
    assert limits == [[True, True], [False, False]]
    assert keys[0] == keys[1]


def test_every_command_that_opens_documents_has_the_setting():
    having = {model.__name__.removesuffix("Settings").lower() for model in command_models().values()
              if "confinement" in model.model_fields}  # fmt: skip
    assert {"run", "planonly", "extract", "describe", "retry", "estimate", "launch", "doctor"} <= having
