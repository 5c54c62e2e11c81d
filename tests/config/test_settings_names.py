"""File names arrive as they are, whatever they hold and wherever they are given."""

import json
import os
import tempfile
from pathlib import Path

import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from llm_ocr.config.groups import split_list
from llm_ocr.config.loading import load
from llm_ocr.config.models import RunSettings

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
