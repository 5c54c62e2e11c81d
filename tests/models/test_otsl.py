"""Tables in OTSL and other answers about one region become blocks."""

from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_ocr.models.parsers.otsl import (
    otsl_to_html,
    parse_formula,
    parse_paddle_chart,
    parse_paddle_table,
    parse_paddle_text,
)
from llm_ocr.results.markdown import blocks_to_markdown
from llm_ocr.types import BlockKind, Box

WHOLE = Box(0, 0, 1, 1)


@pytest.mark.parametrize(
    ("otsl", "rows"),
    [
        ("<fcel>Item<fcel>Qty<nl><fcel>Bolt<fcel>12<nl>", "<td>Item</td><td>Qty</td>|<td>Bolt</td><td>12</td>"),
        ("<fcel>a<ecel><nl>", "<td>a</td><td></td>"),
        ("<fcel>a<lcel><lcel><nl>", '<td colspan="3">a</td>'),
        ("<fcel>a<fcel>b<nl><ucel><fcel>c<nl>", '<td rowspan="2">a</td><td>b</td>|<td>c</td>'),
        ("<fcel>a<lcel><fcel>b<nl><ucel><xcel><fcel>c<nl>", '<td rowspan="2" colspan="2">a</td><td>b</td>|<td>c</td>'),
        ("<ched>a<ched>b<nl><rhed>c<fcel>d<nl><srow>e<lcel><nl>", "<th>a</th><th>b</th>|<th>c</th><td>d</td>|"
         '<th colspan="2">e</th>'),
        ("<fcel> a \n b <fcel>c<nl>", "<td>a b</td><td>c</td>"),
        ("<fcel>x < y & z<fcel>&lt;b&gt;<nl>", "<td>x &lt; y &amp; z</td><td>&lt;b&gt;</td>"),
    ],
)  # fmt: skip
def test_tokens_are_rows_and_cells_with_their_spans(otsl: str, rows: str):
    html = "".join(f"<tr>{row}</tr>" for row in rows.split("|"))
    assert otsl_to_html(otsl) == f"<table>{html}</table>"
    assert otsl_to_html(otsl.removesuffix("<nl>")) == f"<table>{html}</table>"


@pytest.mark.parametrize(
    ("otsl", "rows"),
    [
        ("<fcel>a<nl><fcel>b<fcel>c<nl>", "<td>a</td><td></td>|<td>b</td><td>c</td>"),
        ("<lcel><fcel>a<nl>", "<td></td><td>a</td>"),
        ("<ucel><xcel><nl>", "<td></td><td></td>"),
        ("<fcel>a<lcel>b<nl>", "<td>a</td><td>b</td>"),  # a cell with words of its own continues none
        ("<fcel>a<nl>b<nl>", "<td>a</td>|<td>b</td>"),
        ("<fcel>a<lcel><nl><ucel><fcel>b<nl>", '<td colspan="2">a</td>|<td></td><td>b</td>'),
        ("<nl><nl><fcel>a<nl><nl>", "<td>a</td>"),
        ("<fcel>a<fcel>b<fce", "<td>a</td><td>b</td>"),
    ],
)
def test_malformed_tables_keep_their_words(otsl: str, rows: str):
    html = "".join(f"<tr>{row}</tr>" for row in rows.split("|"))
    assert otsl_to_html(otsl) == f"<table>{html}</table>"


@pytest.mark.parametrize("text", ["", "words", "<nl><nl>", "<fcel"])
def test_no_cells_are_no_table(text: str):
    assert otsl_to_html(text) == ""


class Grid(HTMLParser):
    """The cells of a table as a browser places them: fails where two would cover the same place."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.row, self.taken = -1, set[tuple[int, int]]()
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        if tag == "tr":
            self.row += 1
        elif tag in ("td", "th"):
            spans = dict(attrs)
            column = 0
            while (self.row, column) in self.taken:
                column += 1
            for row in range(self.row, self.row + int(spans.get("rowspan", 1))):
                for place in range(column, column + int(spans.get("colspan", 1))):
                    assert (row, place) not in self.taken
                    self.taken.add((row, place))


TOKENS = ["<fcel>", "<ecel>", "<lcel>", "<ucel>", "<xcel>", "<nl>", "<ched>", "<rhed>", "<srow>", "a", "<", "&"]


@given(st.lists(st.sampled_from(TOKENS), max_size=40).map("".join))
def test_any_tokens_are_a_table_without_overlaps_or_holes(otsl: str):
    html = otsl_to_html(otsl)
    taken = Grid(html).taken
    rows = {row for row, _ in taken}
    width = max((column for _, column in taken), default=-1) + 1
    assert len(taken) == len(rows) * width
    parsed = parse_paddle_table(otsl)
    assert "".join(block.text for block in parsed.blocks).count("a") >= otsl.count("a")


def test_a_wide_row_among_many_short_ones_does_not_fill_the_memory():
    assert len(otsl_to_html("<fcel>" * 20_000 + "<nl>" + "<fcel>x<nl>" * 20_000)) < 2_000_000


def test_paddles_table_is_one_block():
    (block,) = parse_paddle_table("<fcel>a<fcel>b<nl><|im_end|>").blocks
    assert (block.kind, block.box, block.label) == (BlockKind.TABLE, WHOLE, "table")
    assert block.text == "<table><tr><td>a</td><td>b</td></tr></table>"


def test_words_before_a_table_are_kept():
    assert parse_paddle_table("Table 1<fcel>a<nl>").blocks[0].text == "Table 1"


@pytest.mark.parametrize("text", ["<table><tr><td>a</td></tr></table>", "| a |\n|---|\n| b |"])
def test_a_table_in_another_form_stays_one(text: str):
    assert [(block.kind, block.text) for block in parse_paddle_table(text).blocks] == [(BlockKind.TABLE, text)]


def test_paddles_text_keeps_its_formulas_and_has_no_headings():
    parsed = parse_paddle_text("# 12 of \\(a + b\\):\n\n\\[ x = y \\]\n\n- item")
    assert [block.kind for block in parsed.blocks] == [BlockKind.TEXT, BlockKind.FORMULA, BlockKind.LIST_ITEM]
    assert blocks_to_markdown(parsed.blocks) == "\\# 12 of \\(a + b\\):\n\n\\[ x = y \\]\n\n- item"


@pytest.mark.parametrize("text", ["x^2", "$x^2$", "$$ x^2 $$", "\\[x^2\\]", "\\(x^2\\)", "x^2<|im_end|>"])
def test_a_formula_is_set_apart(text: str):
    assert [(block.kind, block.text) for block in parse_formula(text).blocks] == [(BlockKind.FORMULA, "$$\nx^2\n$$")]


def test_two_formulas_keep_their_marks():
    assert parse_formula("$a$ and $b$").blocks[0].text == "$$\n$a$ and $b$\n$$"
    assert parse_formula(" ").blocks == ()


@pytest.mark.parametrize(
    ("text", "table"),
    [
        ("Year | EUR\n2019 | 5", "Year | EUR\n---|---\n2019 | 5"),
        ("| Year | EUR |\n|---|---|\n| 2019 | 5 |", "| Year | EUR |\n|---|---|\n| 2019 | 5 |"),
        ("Sales\nYear | EUR\n2019 | 5", "Sales\n\nYear | EUR\n---|---\n2019 | 5"),
        ("no table", "no table"),
    ],
)
def test_a_chart_is_a_figure_with_its_data(text: str, table: str):
    (block,) = parse_paddle_chart(text).blocks
    assert (block.kind, block.box, block.described, block.text) == (BlockKind.FIGURE, WHOLE, table, "")
