"""What stands in the Markdown for a figure, whichever mode described it."""

import json

import pytest

from llm_ocr.results.figure_text import LONGEST_DATA, figure_words
from llm_ocr.types import FigureRecord, Status

DATA = {
    "type": "bar chart",
    "title": "Sales",
    "axes": [],
    "columns": ["year", "units"],
    "rows": [["2020", "5"], ["2021", "7"]],
    "text": "Source: own",
}
EDGE = {"from": "a", "to": "b"}


def record(**fields):
    return FigureRecord("f", "p", "d", Status.OK, "any", **fields)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"description": "A bar chart.", "data": "{}"}, "A bar chart."),
        ({"label": "photo"}, "photo"),
        ({"data": json.dumps(DATA)}, "bar chart: Sales. year | units; 2020 | 5; 2021 | 7. Source: own"),
        ({"data": json.dumps({"rows": [["1", "2"]]})}, "1 | 2"),
        ({"data": "[1]"}, ""),
        ({"data": json.dumps({"type": "flow chart", "nodes": ["a", "b"]})}, "flow chart. a; b"),
        (
            {"data": json.dumps({"nodes": ["a"], "edges": [EDGE, {"from": "b", "to": "c", "label": "yes"}, 1]})},
            "a -> b; b -> c (yes)",
        ),
        ({"data": '{"rows": 5, "columns": {"a": 1}, "title": ["x", "y"], "edges": 7, "nodes": 1}'}, "x; y"),
        ({"data": "no JSON", "label": "chart"}, "chart"),
        ({}, ""),
    ],
)
def test_a_figure_is_said_by_what_is_known_of_it(fields, words):
    assert figure_words(record(**fields)) == words


def test_long_data_are_cut_between_rows():
    words = figure_words(record(data=json.dumps({**DATA, "rows": [["2020", "5"]] * 1000})))
    assert len(words) <= LONGEST_DATA + 4
    assert words.endswith("2020 | 5 ...")
