"""HTML becomes the Markdown that shows the same."""

import pytest

from llm_ocr.models.parsers.figure_answers import read_parse
from llm_ocr.models.parsers.html import html_to_markdown


@pytest.mark.parametrize(
    ("html", "markdown"),
    [
        # paragraphs and headings
        ("<p>one</p><p>two</p>", "one\n\ntwo"),
        ("one<br>two<br/> three", "one\ntwo\nthree"),
        ("  a \n b\t c  ", "a b c"),
        ("<div><div>a</div></div>b", "a\n\nb"),
        ("a<hr>b", "a\n\n---\n\nb"),
        ("x &lt; y &amp; z &#233; &eacute;", "x < y & z é é"),
        (f"&#{'9' * 5000}; &#x{'f' * 5000};", f"&#{'9' * 5000}; &#x{'f' * 5000};"),
        ("<h2>A <b>bold</b><br>title</h2>", "## A bold title"),
        ("<h6>Deep</h6>", "###### Deep"),
        # marks within a line
        ("<b>a</b> <strong>b</strong> <i>c</i> <em>d</em> <del>e</del>", "**a** **b** *c* *d* ~~e~~"),
        ("so<b> bold </b>is", "so **bold** is"),
        ("<b></b><i> </i>x", "x"),
        ("if (a<b && c>d) <i >x</i>; u<s then v>w", "if (a\\<b && c>d) *x*; u\\<s then v>w"),
        ("x<sup>2</sup> y<sub>i</sub>", "x<sup>2</sup> y<sub>i</sub>"),
        ("<p>See <Table 1> and <Figure 2></p>", "See \\<Table 1> and \\<Figure 2>"),
        ('<td nowrap>a</td><td "b">b</td>', "<table><tr><td>a</td><td>b</td></tr></table>"),
        ("<u>a</u><span class=x>b</span><small>c</small><big>d</big>", "abcd"),
        ("<code>f  `x`</code>", "`` f `x` ``"),
        ('<a href="https://example.org/(x)">a</a>', "[a](https://example.org/%28x%29)"),
        ('<a href="javascript:go()">a</a> <a>b</a> <a href="#n">c</a>', "a b c"),
        ("<p><b>left open</p><p>next</p>", "**left open**\n\nnext"),
        ("<b><p>one</p><p>two</p></b>", "one\n\ntwo"),
        ("a</b></p></li></td> b", "a\n\nb"),
        ('<img alt="A   seal"> <img>', "*A seal*"),
        # formulas stand between dollars, and molecules in code
        ("<math>x^2</math>", "$x^2$"),
        ("let <math>a < b</math>, <math>b &gt; c</math>", "let $a < b$, $b > c$"),
        ('so <math display="block">\\frac{a}{b}</math> holds', "so\n\n$$\n\\frac{a}{b}\n$$\n\nholds"),
        ("<math>$x$</math> <math>\\(y\\)</math> <math></math>", "$x$ $y$"),
        ("<math>a<p>b</p>", "$a$\n\nb"),
        ("<math>cut", "$cut$"),
        ("<chem>C[C@H](N)C(=O)O</chem>", "`C[C@H](N)C(=O)O`"),
        # lists keep their nesting, their numbers, and their boxes
        ("<ul><li>a</li><li>b</li></ul>", "- a\n- b"),
        ("<ul><li>a<li>b<ol><li>c<li>d</ol><li>e</ul>", "- a\n- b\n  1. c\n  2. d\n- e"),
        ('<ol start="3"><li>a</li><li value="7">b</li><li>c</li></ol>', "3. a\n7. b\n8. c"),
        ("<ul><li>a</li><ul><li>b</li></ul></ul>", "- a\n  - b"),
        ("<ul><li>• a</li><li>2) b</li><li>(c) c</li></ul>", "- a\n2) b\n- (c) c"),
        ("<ul><li><p>a</p><p>b</p></li></ul>", "- a\n\n  b"),
        ("<p>list:</p><ul><li>a</li></ul><ol><li>b</li></ol>", "list:\n- a\n\n1. b"),
        ('<ul><li><input type="checkbox" checked> a</li><li><input type="checkbox"> b</li></ul>', "- ☑ a\n- ☐ b"),
        ("<ul></ul><ul><li></li></ul>x", "x"),
        # code is fenced, and scripts are left out
        ("<pre>a\n  b</pre>", "```\na\n  b\n```"),
        (
            '<pre><code class="language-c">#include &lt;x.h&gt;\n#define A</code></pre>',
            "```c\n#include <x.h>\n#define A\n```",
        ),
        ("<code>a\nb</code>", "```\na\nb\n```"),
        ("<pre>```\nx\n```</pre>", "````\n```\nx\n```\n````"),
        ("<pre>#include <stdio.h></pre>", "```\n#include <stdio.h>\n```"),
        ("<script>alert(1)</script><style>p{}</style>a", "a"),
        # tables stay HTML, and become plain
        (
            '<table class="x" border=1><thead><tr><th colspan="2" align=left>A</th></tr></thead>'
            '<tbody><tr><td rowspan="03" style="y">b</td><td colspan="1">c</td></tr></tbody></table>',
            '<table><tr><th colspan="2">A</th></tr><tr><td rowspan="3">b</td><td>c</td></tr></table>',
        ),
        ("<table><tr><td>a<td>b<tr><td>c", "<table><tr><td>a</td><td>b</td></tr><tr><td>c</td></tr></table>"),
        ("<tr><td>a</td></tr>", "<table><tr><td>a</td></tr></table>"),
        ("<td>a</td><td>b</td>", "<table><tr><td>a</td><td>b</td></tr></table>"),
        (
            "<table><caption>T &lt; 1</caption><tr><td>a</td></tr></table>",
            "T &lt; 1\n\n<table><tr><td>a</td></tr></table>",
        ),
        (
            "<table><tr><td><p>a</p><p>b</p>c<br>d</td></tr></table>",
            "<table><tr><td>a<br>b<br>c<br>d</td></tr></table>",
        ),
        ("<table><tr><td><b>a</b> x<sup>2</sup></td></tr></table>", "<table><tr><td>a x<sup>2</sup></td></tr></table>"),
        ("<table><tr><td><math>a<b</math></td></tr></table>", "<table><tr><td>$a&lt;b$</td></tr></table>"),
        ("<table><tr><td>a &lt; b &amp; c</td></tr></table>", "<table><tr><td>a &lt; b &amp; c</td></tr></table>"),
        ("<table><tr><td><ul><li>a<li>b</ul></td></tr></table>", "<table><tr><td>- a<br>- b</td></tr></table>"),
        (
            "<table><tr><td>a<table><tr><td>b</td></tr></table></td><td>c</td></tr></table>",
            "<table><tr><td>a<br><table><tr><td>b</td></tr></table></td><td>c</td></tr></table>",
        ),
        ("<table>only words</table>", "only words"),
        ('<table><tr><td colspan="99999999999">a</td></tr></table>', "<table><tr><td>a</td></tr></table>"),
        ("<table><tr><td><input type=checkbox checked></td></tr></table>", "<table><tr><td>☑</td></tr></table>"),
        # empty cells and rows keep their place
        *[
            (table, table)
            for table in (
                "<table><tr><td></td><td>a</td></tr><tr><td>b</td><td></td></tr></table>",
                '<table><tr><td rowspan="2">a</td></tr><tr></tr><tr><td>b</td></tr></table>',
            )
        ],
        ("a<table><tr><td></td></tr></table>", "a"),
        # what is text in HTML is text in Markdown
        ("<p># no heading</p>", "\\# no heading"),
        ("<p>a &lt;b&gt; tag</p>", "a \\<b> tag"),
        ("5 < 6 and <unknown> and <mail@example.org>", "5 < 6 and \\<unknown> and \\<mail@example.org>"),
        ("<!-- a note -->a<!-- cut", "a\\<!-- cut"),
    ],
)
def test_html_becomes_the_markdown_that_shows_the_same(html: str, markdown: str):
    assert html_to_markdown(html) == markdown


def test_elements_nested_beyond_all_reason_give_their_words():
    deep = "<ul><li>" * 5000 + "words" + "</li></ul>" * 5000
    assert html_to_markdown(deep + "<p>end</p>").split()[-2:] == ["words", "end"]
    assert "words" in html_to_markdown("<div><b>" * 5000 + "words")
    assert "words" in html_to_markdown("<table><tr><td>" * 5000 + "words")


def test_number_of_thousands_of_digits_breaks_no_figure_table():
    data, complaint = read_parse(f"<table><tr><td>&#{'9' * 5000};</td></tr></table>")
    assert (data is None, complaint) == (False, "")
