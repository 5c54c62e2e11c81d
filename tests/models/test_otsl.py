"""Tables in OTSL and in LaTeX."""

from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_ocr.models.parsers.latex import with_html_tables
from llm_ocr.models.parsers.otsl import (
    otsl_to_html,
    parse_formula,
    parse_paddle_chart,
    parse_paddle_spotting,
    parse_paddle_table,
    parse_paddle_text,
    split_otsl,
    table_text,
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


def test_wide_row_among_many_short_ones_does_not_fill_memory():
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


def rows(*cells: str) -> str:
    return f"<table>{''.join(f'<tr>{row}</tr>' for row in cells)}</table>"


def td(*cells: str) -> str:
    return "".join(f"<td>{cell}</td>" for cell in cells)


def tabular(body: str, columns: str = "{lr}") -> str:
    return f"\\begin{{tabular}}{columns}{body}\\end{{tabular}}"


def converted(text: str) -> str:
    return with_html_tables(text).strip()


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (r"a & b \\ c & d \\", rows(td("a", "b"), td("c", "d"))),
        (r"a & b \\ c & d", rows(td("a", "b"), td("c", "d"))),
        (r"\hline a & b \\[2pt] \cline{1-2} c & \\ \bottomrule", rows(td("a", "b"), td("c", ""))),
        (r"5\,\% \& more & \_x\# \\", rows(td("5 % &amp; more", "_x#"))),
        (r"\textbf{a \textit{b}} & \emph{c} \\", rows(td("<b>a <i>b</i></b>", "<i>c</i>"))),
        (r"$a & b$ & \(x < y\) \\", rows(td("$a &amp; b$", "$x &lt; y$"))),
        (r"\$5 & a~b \\", rows(td(r"\$5", "a b"))),
        (r"\alpha & \frac{1}{2} \\", rows(td(r"\alpha", r"\frac{1}{2}"))),
        (r"\makecell{a \\ b} & c \\", rows(td("a <br> b", "c"))),
        (r"<script> & b \\", rows(td("&lt;script&gt;", "b"))),
        (r"\multicolumn{2}{|c|}{both} \\ a & b \\", rows('<td colspan="2">both</td>', td("a", "b"))),
        (r"\multirow{2}{*}{tall} & b \\ & c \\", rows('<td rowspan="2">tall</td>' + td("b"), td("c"))),
        (r"\multirow{2}*{tall} & b \\ & c \\", rows('<td rowspan="2">tall</td>' + td("b"), td("c"))),
        (
            r"\multicolumn{2}{c}{\multirow{2}{*}{X}} & 1 \\ & & 2 \\",
            rows('<td rowspan="2" colspan="2">X</td>' + td("1"), td("2")),
        ),
    ],
)
def test_rows_and_cells_are_those_of_html(body: str, expected: str):
    assert converted(tabular(body)) == expected


@pytest.mark.parametrize("begin", ["{tabularx}{\\textwidth}{lX}", "{tabular*}{5cm}{@{}ll@{}}", "{longtable}[c]{l|r}"])
def test_other_environments_of_tables_are_read_as_well(begin: str):
    name = begin[1 : begin.index("}")]
    assert converted(f"\\begin{begin}a & b \\\\ \\end{{{name}}}") == rows(td("a", "b"))


def test_captions_stand_where_they_stood():
    table = tabular(r"a & b \\")
    above = f"\\begin{{table}}[ht]\n\\centering\n\\caption{{Heights \\label{{t}} in {{m}}}}\n{table}\n\\end{{table}}"
    below = f"\\begin{{table}}\n{table}\n\\caption{{Heights}}\n\\end{{table}}"
    assert converted(above) == f"Heights in {{m}}\n\n{rows(td('a', 'b'))}"
    assert converted(below) == f"{rows(td('a', 'b'))}\n\nHeights"


def test_text_around_stays_and_tables_stand_apart():
    text = f"Before {tabular('a')} between\n{tabular('b')}\nafter"
    parts = [part.strip() for part in converted(text).split("\n\n") if part.strip()]
    assert parts == ["Before", rows(td("a")), "between", rows(td("b")), "after"]


@pytest.mark.parametrize(
    "body",
    [
        r"\begin{matrix} a \end{matrix} & b \\",
        r"a & \multirow{2}{*}{b} \\ c & d \\",  # something stands where the tall cell is
        r"{a & b \\ c & d \\ e",
        tabular("a"),
        "",
    ],
)
def test_complex_table_becomes_code_and_keeps_all_its_text(body: str):
    assert converted(tabular(body)) == f"```latex\n{tabular(body)}\n```"


def test_a_fence_around_it_goes_with_it():
    assert converted(f"```latex\n{tabular('a')}\n```\n\nwords") == f"{rows(td('a'))}\n\n\n\nwords"
    listing = f"```\n{tabular('a')}\n```"
    assert converted(listing) == listing


@pytest.mark.parametrize("end", ["\n\nMore words", ""])
def test_a_cut_table_ends_with_its_paragraph(end: str):
    begun = r"\begin{table} \begin{tabular}{ll} a & b \\ c"
    assert converted(begun + end).replace("\n", "") == rows(td("a", "b"), td("c")) + end.replace("\n", "")


def test_a_table_without_its_outer_end_does_not_swallow_the_next():
    first, second = tabular("a"), tabular("b")
    text = converted(f"\\begin{{table}}{first}\n\nwords\n\n\\begin{{table}}{second}\\end{{table}}")
    assert [part.strip() for part in text.split("\n\n") if part.strip()] == [rows(td("a")), "words", rows(td("b"))]


def test_text_without_tables_is_untouched():
    text = "  \\begin{align} a & b \\\\ \\end{align} \n"
    assert with_html_tables(text) == text


PIECES = [
    "\\begin{tabular}", "{lr}", "\\end{tabular}", "\\begin{table}", "\\end{table}", " & ", "\\\\", "\\hline",
    "\\cline{1-", "\\multirow{2}{*}{", "\\multicolumn{3}{c}{", "}", "{", "$", "\\(", "\\)", "\\$", "words", "\n",
    "\n\n", "```latex\n", "```", "\\caption{", "\\textbf{", "[2pt]", "~", "\\", "\x00", "\ud800",
]  # fmt: skip


@given(st.lists(st.sampled_from(PIECES), max_size=60).map("".join))
def test_no_word_is_lost_whatever_comes(text: str):
    assert with_html_tables(text).count("words") == text.count("words")


def test_spotted_lines_have_their_corners_and_no_tokens():
    corners = "".join(f"<|LOC_{number}|>" for number in (100, 120, 320, 120, 320, 180, 100, 180))
    answer = f"<|TEXT_START|>QUAY 4<|TEXT_END|><|LOC_BEGIN|>{corners}<|LOC_END|>"
    (block,) = parse_paddle_spotting(answer).blocks
    assert (block.text, block.box) == ("QUAY 4", Box(0.1, 0.12, 0.32, 0.18))
    for end in range(len(answer)):
        assert "<|" not in "".join(block.text for block in parse_paddle_spotting(answer[:end]).blocks)


def test_several_formulas_of_a_region_are_apart():
    blocks = parse_formula("$$ a = 2b $$\n$$ c = d \\tag{7} $$ where $m$ is the mass").blocks
    assert [block.text for block in blocks] == ["$$\na = 2b\n$$", "$$\nc = d \\tag{7}\n$$", "where $m$ is the mass"]
    numbered = [block.text for block in parse_formula("\\[ p = \\rho g h \\] (4.2)").blocks]
    assert numbered == ["$$\np = \\rho g h\n$$", "(4.2)"]


def test_entities_that_were_escaped_again_are_cells():
    html = otsl_to_html("<corn><ched>d &amp;amp;lt; 2<nl>")
    assert html == "<table><tr><th></th><th>d &lt; 2</th></tr></table>"


def test_rows_and_cells_in_place_of_tokens_are_a_table():
    html = "<table><tr><td>Rye</td><td>9</td></tr><tr><td>Oats</td><td>6</td></tr></table>"
    text = "<row><cell>Rye</cell><cell>9</cell></row><row><cell>Oats</cell><cell>6</cell></row>"
    assert split_otsl(f"Prices{text}") == ("Prices", html)
    assert table_text("<table><tr><td>Rye</td></tr></table>") == "<table><tr><td>Rye</td></tr></table>"
