"""Descriptions stand at their figures, as the text that they are, whatever they hold."""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from made import ANY_TEXT
from markdown_it import MarkdownIt
from markdown_it.token import Token

from llm_ocr.results.figure_text import ALT_LENGTH, LONGEST_DATA, enrich, figure_words, short
from llm_ocr.results.markdown import one_line
from llm_ocr.types import FigureRecord, Status

ID = "0123456789abcdef-p00001-f01"


LINK = f"![{ID}](figure:{ID})"


NASTY = st.text("![](){}<>*_`~#+-.&;:\"'\\/|$=\n\t a1é", max_size=60)


PARSER = MarkdownIt("gfm-like", {"html": True, "linkify": False})


def inline(markdown: str) -> list[Token]:
    return [token for block in PARSER.parse(markdown) if block.type == "inline" for token in block.children or ()]


def plain(tokens: list[Token]) -> str:
    return "".join(token.content for token in tokens if token.type in ("text", "text_special", "softbreak"))


def alt(image: Token) -> str:
    return plain(image.children or [])


def test_alt_text_and_paragraph_stand_at_the_figure():
    text = f"Before.\n\n{LINK}\n\nAfter."
    assert enrich(text, {ID: "A bar chart. It has two bars."}) == (
        f"Before.\n\n![{ID}: A bar chart.](figure:{ID})\n\n*Figure {ID}: A bar chart. It has two bars.*\n\nAfter."
    )


def test_figures_without_a_description_stay_as_they_are():
    text = f"{LINK}\n\n![other](figure:other)"
    assert enrich(text, {ID: "", "other": " \n ", "unknown": "x"}) == text
    assert enrich(text, {}) == text


def test_the_paragraph_follows_the_first_link_only():
    text = enrich(f"{LINK}\n\nagain {LINK}", {ID: "A map."})
    assert text == f"![{ID}: A map.](figure:{ID})\n\n*Figure {ID}: A map.*\n\nagain ![{ID}: A map.](figure:{ID})"


def test_a_link_inside_a_table_or_list_leaves_it_whole():
    table = f"| a | b |\n| --- | --- |\n| {LINK} | x |\n| y | z |"
    shown = PARSER.render(enrich(table + "\n\nAfter", {ID: "a | b"}))
    assert shown.count("<tr>") == 3
    assert shown.index("</table>") < shown.index("<em>Figure")
    listed = enrich(f"- {LINK}\n- second", {ID: "A map."})
    assert listed == f"- ![{ID}: A map.](figure:{ID})\n- second\n\n*Figure {ID}: A map.*"


def test_two_figures_in_one_paragraph_are_described_in_order():
    text = enrich("![a](figure:a) ![b](figure:b)", {"b": "Two.", "a": "One."})
    assert text.endswith("\n\n*Figure a: One.*\n\n*Figure b: Two.*")
    assert enrich(text, {"b": "Two.", "a": "One."}) == text


def test_code_is_left_alone():
    text = f"```\n{LINK}\n```\n\nA figure {LINK}\n```\ncode\n```"
    assert enrich(text, {ID: "A map."}) == (
        f"```\n{LINK}\n```\n\nA figure ![{ID}: A map.](figure:{ID})\n\n*Figure {ID}: A map.*\n\n```\ncode\n```"
    )


def test_the_form_of_older_data_sets_is_recognised():
    text = "![Figure sample_00001_fig01](images/a b.png)\n\n![Figure 3](elsewhere.png)"
    descriptions = {"sample_00001_fig01": "A dog."}
    once = enrich(text, descriptions)
    assert once == (
        "![sample_00001_fig01: A dog.](images/a b.png)\n\n*Figure sample_00001_fig01: A dog.*\n\n"
        "![Figure 3](elsewhere.png)"
    )
    assert enrich(once, descriptions) == once


def test_a_new_description_takes_the_place_of_the_old():
    old = enrich(f"{LINK}\n\nAfter.", {ID: "A *dog*."})
    assert enrich(old, {ID: "A cat."}) == enrich(f"{LINK}\n\nAfter.", {ID: "A cat."})


@pytest.mark.parametrize(
    ("description", "expected"),
    [
        ("A chart. It rises.", "A chart."),
        ("See Fig. 3 for the rest. More.", "See Fig. 3 for the rest."),
        ('Caption: "Fig. 2. Sales by year." Text inside the figure: "2019"', 'Caption: "Fig. 2. Sales by year."'),
        ("Is it 3.5 m? Yes.", "Is it 3.5 m?"),
        ("图表。第二句。", "图表。"),
        ("no end", "no end"),
        ("word " * 40, ("word " * 24).strip() + "..."),
        ("x" * 200, "x" * ALT_LENGTH + "..."),
        ("x" * ALT_LENGTH, "x" * ALT_LENGTH),
    ],
)
def test_the_alt_text_is_the_first_sentence_or_its_beginning(description, expected):
    assert short(description) == expected


@given(NASTY | ANY_TEXT)
@example("](javascript:alert(1)) <script>x</script> **b** `c` &amp; \\")
@example("- item\n\n# heading\n\n```\ncode\n```\n---\n| a |\n|---|")
@example("*")
@example("trailing \\")
@example("http://www.example.org a@b.org ~~x~~ $y$")
def test_any_description_is_shown_as_its_text(description):
    text = enrich(f"Before\n\n{LINK}\n\nAfter", {ID: description})
    wanted = one_line(description)
    tokens = inline(text)
    assert not [token for token in [*tokens, *PARSER.parse(text)] if token.type.startswith("html")]
    [image] = [token for token in tokens if token.type == "image"]
    assert image.attrs["src"] == f"figure:{ID}"
    if not wanted:
        assert alt(image) == ID
        return
    assert alt(image) == f"{ID}: {short(description)}"
    blocks = [block for block in PARSER.parse(text) if block.type == "inline"]
    assert len(blocks) == 4
    paragraph = blocks[2].children or []
    kinds = [token.type for token in paragraph if token.content or token.type.startswith("em")]
    assert kinds[0] == "em_open" and kinds[-1] == "em_close"
    assert set(kinds[1:-1]) <= {"text", "text_special"}
    assert plain(paragraph) == f"Figure {ID}: {wanted}"


IDS = st.sampled_from(["a", "b-1", "c_d", "e f", "]", "x(1)", "*", "Figure a", "a: b", "<i>", "%41", "\\"])


PIECES = st.one_of(
    st.sampled_from(["text", "", " ", "```", "- item", "> quote", "| a |\n| - |", "# h", "***", "---"]),
    IDS.map(lambda figure: f"![{figure}](figure:{figure})"),
    IDS.map(lambda figure: f"![Figure {figure}](old/path.png)"),
    IDS.map(lambda figure: f"![x](figure:{figure}) and more"),
    NASTY,
)


@given(st.lists(PIECES, max_size=8), st.sampled_from(["\n", "\n\n", " "]), st.dictionaries(IDS, NASTY))
def test_enriching_twice_changes_nothing(pieces, between, descriptions):
    once = enrich(between.join(pieces), descriptions)
    assert enrich(once, descriptions) == once


@given(st.lists(PIECES, max_size=8).map("\n\n".join))
def test_nothing_else_in_the_page_changes(text):
    shown = enrich(text, {"a": "A dog."})
    rest = [line for line in shown.split("\n") if "A dog." not in line and line.strip()]
    kept = iter(line for line in text.split("\n") if line.strip())
    assert all(line in kept for line in rest)
    assert [line for line in text.split("\n") if line.strip() and "![" not in line] == [
        line for line in rest if "![" not in line
    ]


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
