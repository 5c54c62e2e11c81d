r"""LaTeX tables in answers become HTML tables, or code."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_ocr.models.parsers.latex import with_html_tables


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
def test_a_table_that_is_not_simple_is_code_and_keeps_all_its_text(body: str):
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
    *(
        "\\begin{tabular}",
        "{lr}",
        "\\end{tabular}",
        "\\begin{table}",
        "\\end{table}",
        " & ",
        "\\\\",
        "\\hline",
        "\\cline{1-",
    ),
    *(
        "\\multirow{2}{*}{",
        "\\multicolumn{3}{c}{",
        "}",
        "{",
        "$",
        "\\(",
        "\\)",
        "\\$",
        "words",
        "\n",
        "\n\n",
        "```latex\n",
    ),
    *("```", "\\caption{", "\\textbf{", "[2pt]", "~", "\\", "\x00", "\ud800"),
]


@given(st.lists(st.sampled_from(PIECES), max_size=60).map("".join))
def test_no_word_is_lost_whatever_comes(text: str):
    assert with_html_tables(text).count("words") == text.count("words")
