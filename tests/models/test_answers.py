"""Answers about figures are read whatever the model puts around them."""

import json

import pytest

from llm_ocr.models.parsers.figure_answers import read_class, read_description, read_parse
from llm_ocr.models.profiles.shared import (
    CHAT_PROMPTS,
    CLASSES,
    PARSE_SCHEMA,
)

ANSWER = {
    "type": "bar chart",
    "title": "Tides",
    "axes": [{"name": "height", "unit": "m"}],
    "columns": ["place", "m"],
    "rows": [["harbour", "1.2"], ["river", "0.8"]],
    "text": "",
}
TEXT = json.dumps(ANSWER)


@pytest.mark.parametrize(
    "wrap",
    [
        "{}",
        "```json\n{}\n```",
        "Here is the data:\n{}\nI hope {{this}} helps.",
        "A set {{1}} first. {}",
        "{}<|im_end|>",
        "{{}} {}",
        "{0}\n{0}",
        "[{}]",
    ],
)
def test_json_is_found_in_prose_and_fences(wrap: str):
    data, complaint = read_parse(wrap.format(TEXT))
    assert (json.loads(data or ""), complaint) == (ANSWER, "")


def parsed(value: object, *, as_asked: bool = True) -> object:
    data, complaint = read_parse(json.dumps(value), as_asked=as_asked)
    assert complaint == ""
    return json.loads(data or "")


@pytest.mark.parametrize(
    "said",
    [
        {"type": "flow chart", "nodes": ["start", "end"], "edges": [{"from": "start", "to": "end", "weight": 2}]},
        {"chart_type": "bar", "values": {"a": 1, "b": [2.5, None, True]}},
        {"type": "bar chart", "axes": ["year", {"name": "t", "unit": "s", "min": 0}], "source": "own"},
        {"title": {"de": "Umsatz"}, "rows": 5},
        {"rows": [5, {"a": [1]}]},
        {"rows": [{"a": "1"}, {"b": "2"}]},
    ],
)
def test_data_hold_all_that_the_model_said_and_nothing_else(said: object):
    assert parsed(said) == said


def test_rows_take_the_form_that_was_asked_for():
    rows = [["a", 12.5], ["b", True], [None, "c"]]
    assert parsed({"type": "pie chart", "rows": rows}) == {
        "type": "pie chart",
        "rows": [["a", "12.5"], ["b", "true"], ["", "c"]],
    }
    assert parsed({"rows": [{"x": 1, "y": 2}, {"y": 4, "x": 3}]}) == {
        "columns": ["x", "y"],
        "rows": [["1", "2"], ["3", "4"]],
    }


@pytest.mark.parametrize("said", [{"rows": [{"x": 1}]}, [{"name": "a", "n": 1.5}], {"a": [1, None, {"b": False}]}])
def test_with_a_prompt_of_the_users_own_the_json_stays_as_it_is(said: object):
    assert parsed(said, as_asked=False) == said


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "empty"),
        ("I see a boat.", "no JSON"),
        (TEXT[:-30], "ends early"),
        ("{}", "empty"),
        ("[1, 2]", "no JSON object"),
        ('{"a": 1e999}', "too large"),
        ('{"a": ' * 60 + "1" + "}" * 60, "deeply"),
        ('{"title": NaN}', "NaN"),
        ('{"rows": ' + "[" * 100_000, "deeply"),
        ('{"type": null, "title": "", "rows": [], "axes": [{"name": ""}]}', "empty"),
        ('{"rows": [["1"]], "rows": [["2"]]}', "twice"),
        ('{"type": "chart", "axes": [{"name": "x"}], "rows": [["1"],],}', "no valid JSON"),
        ('{type: "chart", axes: [{"name": "x"}]}', "no valid JSON"),
        ('{"type": "chart"}\n{"type": "map"}', "2 JSON objects"),
        ('[{"type": "chart"}, {"type": "map"}]', "2 JSON objects"),
        ('{"text": "I\'m sorry, I can\'t help with that."}', "refused"),
        ('{"rows": [' + ", ".join(['["a", "1"]'] * 60) + "]}", "60 times"),
        ("| a |\n|---|\n| 1 |\n\nOr:\n\n| b |\n|---|\n| 2 |", "2 tables"),
        ('{"title": ' + "9" * 5000 + "}", "no valid JSON"),
    ],
)
def test_what_is_no_answer_is_complained_about(text: str, complaint: str):
    data, said = read_parse(text)
    assert data is None
    assert complaint in said


@pytest.mark.parametrize(
    "table",
    [
        "<table><tr><th>place</th><th>m</th></tr><tr><td>A &amp; B</td><td>1.2</td></tr></table>",
        "| place | m |\n|---|---|\n| A & B | 1.2 |",
        "<table><tr><td>place<td>m<tr><td>A &amp; <b>B</b><td>1.2",
    ],
)
def test_a_table_is_read_where_a_model_gives_no_json(table: str):
    data, complaint = read_parse(f"{table}<｜end▁of▁sentence｜>")
    read = json.loads(data or "")
    assert (read["type"], read["columns"], read["rows"], complaint) == ("table", ["place", "m"], [["A & B", "1.2"]], "")


def test_json_in_a_json_string_is_read():
    assert read_parse(json.dumps(TEXT)) == read_parse(TEXT)


def test_a_prompt_of_the_users_own_may_ask_for_empty_values():
    assert parsed({"logo": None}, as_asked=False) == {"logo": None}


@pytest.mark.parametrize(
    "text",
    [
        "A chart of tides.",
        "<think>Bars.</think>\n\nA chart of tides.",
        "It has bars.</think>A chart of tides.",
        "<answer>A chart of tides.</answer>",
        "```markdown\nA chart of tides.\n```",
        "```\nA chart of tides.\n```",
        '{"description": "A chart of tides."}',
        '```json\n{"caption": "A chart of tides."}\n```',
        "Sure! Here is a detailed description of the image:\n\nA chart of tides.\n\nLet me know if you need more!",
        "<|ref|>chart<|/ref|><|det|>[[10, 20, 900, 800]]<|/det|>\nA chart of tides.",
        "A <|ref|>chart<|/ref|><|det|>[[10, 20, 900, 800]]<|/det|> of tides.<|im_end|>",
    ],
)
def test_a_description_is_found_in_talk_and_wrappers(text: str):
    assert read_description(text) == "A chart of tides."


@pytest.mark.parametrize("text", ["", "...", "-", "!" * 200, "```\n```", "null", "None.", "N/A", "<think>It has bars"])
def test_an_answer_without_words_describes_nothing(text: str):
    assert read_description(text) == ""


@pytest.mark.parametrize("text", ["The image is blank.", "0", "A sign: Here is the description of the sale", "无"])
def test_a_short_description_stays(text: str):
    assert read_description(text) == text


def test_lone_surrogates_do_not_reach_the_store():
    data, _ = read_parse('{"title": "\\ud800"}')
    assert data is not None
    data.encode()


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("chart", "chart"),
        ("Chart.\n", "chart"),
        ('"Chart"', "chart"),
        ("```\nchart\n```", "chart"),
        ("**chart**<|im_end|>", "chart"),
        ("This is a chart of tides.", "chart"),
        ("Charts", "chart"),
        ("chart\n\nExplanation: it has a table and a map.", "chart"),
        ("Chart. It is no photo.", "chart"),
        ("这是一张chart", "chart"),
        ("a chart or a map", None),
        ("chart, map, photo", None),
        ("This is not a chart.", None),
        ("I cannot say whether it is a chart", None),
        ("", None),
        ("chart " + "and much else " * 100, None),
    ],
)
def test_a_class_is_found_by_its_name(text: str, label: str | None):
    assert read_class(text, CLASSES) == label


@pytest.mark.parametrize("name", ["C", "C++", "C#", "照片"])
def test_a_class_is_found_as_it_is_spelled(name: str):
    assert read_class(f" {name.lower()}\n", ("C", "C++", "C#", "照片", "图表")) == name


def test_a_class_is_found_in_a_script_without_spaces():
    assert read_class("这是一张照片。", ("照片", "图表")) == "照片"


def test_a_class_of_two_words_wins_over_one_within_it():
    classes = ("chart", "bar_chart", "Line chart")
    assert read_class("It is a bar chart", classes) == "bar_chart"
    assert read_class("LINE CHART", classes) == "Line chart"


def test_schema_allows_charts_and_diagrams_but_requires_neither():
    assert set(ANSWER) | {"nodes", "edges"} == set(PARSE_SCHEMA["properties"])
    assert PARSE_SCHEMA["required"] == ["type"]
    assert all(f'"{name}"' in CHAT_PROMPTS["parse"] for name in PARSE_SCHEMA["properties"])
