"""Descriptions stand at their figures, as the text that they are, whatever they hold."""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from made import ANY_TEXT
from markdown_it import MarkdownIt
from markdown_it.token import Token

from llm_ocr.results import figure_text
from llm_ocr.results.figure_text import ALT_LENGTH, LONGEST_DATA, FigureText, figure_words, short
from llm_ocr.results.markdown import DESCRIPTION, blocks_to_markdown, one_line
from llm_ocr.types import Block, BlockKind, Box, FigureRecord, Status

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


def enrich(markdown: str, descriptions: dict[str, str], caption: str = "", label: str = "") -> str:
    """Enrich a page whose figures have the same caption and label."""
    return figure_text.enrich(markdown, {one: FigureText(words, caption, label) for one, words in descriptions.items()})


TWO = "A bar chart. It has two bars."


def test_alt_text_is_first_sentence_and_quote_below_has_all():
    text = f"Before.\n\n{LINK}\n\nAfter."
    assert enrich(text, {ID: TWO}) == (
        f"Before.\n\n![A bar chart.](figure:{ID})\n\n> **Figure description:** {TWO}\n\nAfter."
    )


@pytest.mark.parametrize(
    ("description", "caption", "alt"),
    [
        ("A map.", "", "A map."),  # the alt text has all
        (
            "The lower Arlen in October",
            "Figure 1: The lower Arlen, in October.",
            "Figure 1: The lower Arlen, in October.",
        ),
        ("figure 1: the lower arlen", "Figure 1: The lower Arlen", "Figure 1: The lower Arlen"),
        ("Before the flood, nobody had a staff gauge.", "", "Image"),  # the page's own text
        ("Text inside the figure: Before the flood, nobody had a staff gauge.", "Fig. 2", "Fig. 2"),
        ("***", "", "Image"),
    ],
)
def test_a_description_that_repeats_is_not_written_below(description, caption, alt):
    text = f"Before the flood, nobody had a *staff* gauge. Then {LINK}\n\nAfter."
    assert enrich(text, {ID: description}, caption, "image") == text.replace(f"![{ID}]", f"![{alt}]")


def test_a_few_words_that_the_page_has_by_chance_stay():
    assert enrich(f"A quay.\n\n{LINK}", {ID: "A quay"}) == f"A quay.\n\n![A quay](figure:{ID})"


@pytest.mark.parametrize(
    ("caption", "label", "alt"),
    [
        ("Figure 3: Level at Hollow Bridge", "chart", "Figure 3: Level at Hollow Bridge"),
        ("Fig. 7-26. Self-locking nuts.", "image", "Fig. 7-26. Self-locking nuts."),
        ("Figure A: The meadows. In May.", "image", "Figure A: The meadows."),
        ("Figure 2a – Detail", "", "Figure 2a – Detail"),
        ("Abb. 4 Pegel", "", "Abb. 4 Pegel"),
        ("Table 1: Gauges", "", "Table 1: Gauges"),
        ("图 2 水位", "", "图 2 水位"),
        ("The lower Arlen in October", "image_block", "The lower Arlen in October"),
        ("", "image_block", "Image block"),
        ("", "chart", "Chart"),
        ("", "<b>", "Figure"),
        ("", "", "Figure"),
    ],
)
def test_alt_text_without_a_description_is_short_without_id(caption, label, alt):
    assert enrich(f"{LINK}\n\n{caption}", {ID: ""}, caption, label) == f"![{alt}](figure:{ID})\n\n{caption}"


def test_links_to_unknown_figures_are_unchanged():
    text = f"{LINK}\n\n![Figure](other.png)"
    assert enrich(text, {"unknown": "x"}) == text
    assert enrich(text, {}) == text


def test_the_quote_follows_the_first_link_only():
    text = enrich(f"{LINK}\n\nagain {LINK}", {ID: TWO})
    image = f"![A bar chart.](figure:{ID})"
    assert text == f"{image}\n\n{DESCRIPTION}{TWO}\n\nagain {image}"


def test_a_link_inside_a_table_or_list_leaves_it_whole():
    table = f"| a | b |\n| --- | --- |\n| {LINK} | x |\n| y | z |"
    shown = PARSER.render(enrich(table + "\n\nAfter", {ID: "One. A | b"}))
    assert shown.count("<tr>") == 3
    assert shown.index("</table>") < shown.index("<blockquote>")
    listed = enrich(f"- {LINK}\n- second", {ID: TWO})
    assert listed == f"- ![A bar chart.](figure:{ID})\n- second\n\n{DESCRIPTION}{TWO}"


def test_two_figures_in_one_paragraph_are_described_in_order():
    descriptions = {"b": "Two. Bars.", "a": "One. Line."}
    text = enrich("![a](figure:a) ![b](figure:b)", descriptions)
    assert text.endswith(f"\n\n{DESCRIPTION}One. Line.\n\n{DESCRIPTION}Two. Bars.")


def test_code_is_left_alone():
    text = f"```\n{LINK}\n```\n\nA figure {LINK}\n```\ncode\n```"
    assert enrich(text, {ID: TWO}) == (
        f"```\n{LINK}\n```\n\nA figure ![A bar chart.](figure:{ID})\n\n{DESCRIPTION}{TWO}\n\n```\ncode\n```"
    )


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
    if not any(map(str.isalnum, wanted)):
        return
    assert alt(image) == short(description)
    blocks = [block for block in PARSER.parse(text) if block.type == "inline"]
    assert len(blocks) == 3 + (short(description) != wanted)
    if len(blocks) == 3:
        return
    paragraph = blocks[2].children or []
    kinds = [token.type for token in paragraph if token.content or token.type.startswith("strong")]
    assert kinds[:3] == ["strong_open", "text", "strong_close"]
    assert set(kinds[3:]) <= {"text", "text_special"}
    assert plain(paragraph) == f"Figure description: {wanted}"


IDS = st.sampled_from(["a", "b-1", "c_d", "e f", "]", "x(1)", "*", "Figure a", "a: b", "<i>", "%41", "\\"])


PIECES = st.one_of(
    st.sampled_from(["text", "", " ", "```", "- item", "> quote", "| a |\n| - |", "# h", "***", "---", DESCRIPTION]),
    IDS.map(lambda figure: f"*Figure {figure}: text*"),
    IDS.map(lambda figure: f"![{figure}](figure:{figure})"),
    IDS.map(lambda figure: f"![x](figure:{figure}) and more"),
    NASTY,
)


@given(st.lists(PIECES, max_size=8).map("\n\n".join))
def test_nothing_else_in_the_page_changes(text):
    shown = enrich(text, {"a": TWO})
    rest = [line for line in shown.split("\n") if "A bar chart." not in line and line.strip()]
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


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("As in ![our manual](figure:d-f01).", BlockKind.TEXT),
        ("- ![](figure:d-f01)", BlockKind.LIST_ITEM),
        ("> **Figure description:** Printed.", BlockKind.TEXT),
        ("<table><tr><td>![a]( <figure:d-f01> )</td></tr></table>", BlockKind.TABLE),
        ("![a](figure:d-f01)", BlockKind.CODE),
    ],
)
def test_text_that_looks_like_our_links_stays(text: str, kind: BlockKind):
    figure = Block(BlockKind.FIGURE, Box(0, 0, 1, 0.5), label="image", figure_id="d-f01")
    printed = Block(kind, Box(0, 0.5, 1, 1), text)
    page = blocks_to_markdown([figure, printed])
    enriched = enrich(page, {"d-f01": "A lamp."})
    assert enriched == page.replace("![d-f01](", "![A lamp.](", 1)
    assert "rinted" in enriched or "](figure:d-f01)" in enriched.replace("\\", "").replace(" <", "").replace("> ", "")
