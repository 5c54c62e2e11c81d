"""The HTML of a page: what it shows, and what it can never hold."""

import json
import random
import re
import sqlite3
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_ocr.types import Block, BlockKind, Box
from llm_ocr_outputs.places import MARK, Unsupported, lines_of_blocks
from llm_ocr_outputs.viewer.comparing import compare, equal_words
from llm_ocr_outputs.viewer.index import SearchIndex, script, terms, visible_text
from llm_ocr_outputs.viewer.rendering import LONGEST, UNSUPPORTED, Places, render, render_unsupported

NOTHING = Places({}, {})


TAG = re.compile(r"<(/?)([a-z0-9]+)((?: [a-z-]+=\"[^\"<>]*\")*)>")


ATTRIBUTES = {"data-b", "data-f", "class", "colspan", "rowspan", "align", "start", "href", "target", "rel"}


FRAGMENTS = (
    *("<script>", "</script>", "<img src=x onerror=a()>", "<svg/onload=a()>", "<table onclick='a()'>"),
    *("<td style=x>", "</table>", "[a](javascript:a())", "[b](//evil)", "![c](http://evil)", "![d](figure:f1)"),
    *("$x$", "$$\n", "\\(", "\\)", "\\[\n", "\\]\n", "<a href='javascript:a()'>", "<!--", "-->", "```\n", "\n\n"),
    *("\n> ", "\n- ", "|", "\n|-|-|\n", "<style>", "<iframe srcdoc='", "'>", '">', "&lt;script&gt;"),
    *("&#x6a;avascript:", "**", "`", "\x00", "\\begin{align}\n", "\\end{align}\n", "<math><mtext>", "<noscript>"),
    "<template>",
)


def test_text_in_and_behind_nested_lists_is_shown():
    clauses = [f"{'  ' * level}- Clause {level} of the contract." for level in range(24)]
    html = render("\n".join([*clauses, "", "The last paragraph."]), NOTHING)
    assert all(f"Clause {level} of" in html for level in range(24))
    assert "<p>The last paragraph.</p>" in html


def test_tables_of_pipes_and_of_html_are_tables():
    html = render("| a | b |\n|:-:|--:|\n| 1 | 2 |\n\n<table><tr><td colspan=2>x\n\ny</td></tr></table>", NOTHING)
    assert '<th align="center">a</th>' in html
    assert '<td align="right">2</td>' in html
    assert '<td colspan="2">x' in html
    assert html.count("<table>") == 2


@pytest.mark.parametrize(
    ("markdown", "shown"),
    [
        ("so $a<b$ is", '<span class="math">a&lt;b</span>'),
        ("so \\(a_1\\) is", '<span class="math">a_1</span>'),
        ("$$\na = b\n$$", '<div class="math">a = b</div>'),
        ("\\[\na\n= b\n\\]", '<div class="math">a\n= b</div>'),
        ("\\begin{align}\na &= b\n\\end{align}", '<div class="math">\\begin{align}\na &amp;= b\n\\end{align}</div>'),
        ("it costs $5 and then $6", "it costs $5 and then $6"),
        ("an open \\( stays", "an open ( stays"),
    ],
)
def test_formulas_are_kept_as_latex_and_prices_are_none(markdown, shown):
    assert shown in render(markdown, NOTHING)


def test_figures_are_places_and_no_other_image_is():
    html = render(
        "![x](figure:f1)\n\n> **Figure description:** a view of the weir\n\n![y](https://example.org/y.png)",
        Places({}, {"f1": 0}),
    )
    assert '<span class="figure" data-f="0"></span>' in html
    assert "<blockquote>\n<p><strong>Figure description:</strong> a view of the weir</p>" in html
    assert '<span class="unshown">y</span>' in html
    assert "example.org" not in html


def test_links_lead_out_or_nowhere():
    html = render("[a](https://example.org/x) [b](../../secret) [c](javascript:x) <https://example.org>", NOTHING)
    assert re.findall(r'href="([^"]*)"', html) == ["https://example.org/x", "https://example.org"]
    assert html.count('rel="noopener noreferrer nofollow"') == html.count("<a")


def test_tags_other_than_table_tags_are_shown_as_written():
    assert "<script>x</script>" in visible_text(render("see <script>x</script>\n\n<script>y</script>", NOTHING))


@given(st.lists(st.one_of(st.sampled_from(FRAGMENTS), st.text(max_size=8)), max_size=40).map("".join))
def test_no_text_makes_html_that_could_do_anything(markdown):
    html = render(markdown.encode("utf-8", "replace").decode(), Places({0: 0, 2: 1}, {"f1": 0}))
    assert "<" not in TAG.sub("", html)
    for _, name, attributes in TAG.findall(html):
        assert name not in {"script", "img", "svg", "style", "iframe", "object", "form", "input", "math", "template"}
        assert set(re.findall(r" ([a-z-]+)=", attributes)) <= ATTRIBUTES
    assert all(re.match(r"https?://|mailto:", link) for link in re.findall(r'href="([^"]*)"', html))


@pytest.mark.parametrize("text", ["\\( ", "$a ", "<table", "<!--", "\\begin{align}\n", "**a ", "[a](", "\\[\na\n"])
def test_text_that_opens_and_never_closes_is_read_to_its_end(text):
    assert "last words" in visible_text(render(f"{text * 3000} last words", NOTHING))


def test_a_text_of_no_pages_length_is_shown_as_it_is():
    assert render("<b>" * LONGEST, NOTHING).startswith("<pre>&lt;b&gt;")


def test_lines_know_their_blocks_whatever_stands_between():
    box = Box(0, 0, 1, 1)
    blocks = [
        Block(BlockKind.HEADER, box, "AVRG"),
        Block(BlockKind.HEADING, box, "Levels"),
        Block(BlockKind.TEXT, box, "Same text"),
        Block(BlockKind.FIGURE, box, figure_id="f1"),
        Block(BlockKind.LIST_ITEM, box, "- one"),
        Block(BlockKind.LIST_ITEM, box, "- two", level=1),
        Block(BlockKind.TEXT, box, "Same text"),
        Block(BlockKind.TEXT, box, "not there"),
    ]
    figure = "![a view](figure:f1)\n\n> **Figure description:** a view"
    markdown = f"## Levels\n\nSame text\n\n{figure}\n\n- one\n  - two\n\nSame text"
    lines = markdown.split("\n")
    found = {lines[line]: block for line, block in lines_of_blocks(markdown, blocks).items() if lines[line]}
    assert found == {
        "## Levels": 1,
        "![a view](figure:f1)": 3,
        "> **Figure description:** a view": 3,
        "- one": 4,
        "  - two": 5,
        "Same text": 6,
    }
    html = render(markdown, Places(lines_of_blocks(markdown, blocks), {"f1": 0}))
    marked = re.findall(r'<(\w+) data-b="(\d)"', html)
    assert [name + block for name, block in marked] == ["h21", "p2", "p3", "blockquote3", "li4", "li5", "p6"]


MARKUP = [
    "# ",
    "- ",
    "1. ",
    "**",
    "*",
    "\n",
    "\n\n",
    " ",
    "| a | b |\n|---|---|\n",
    "$x$",
    "\\",
    "```\n",
    "<!--",
    "<td>",
    "&amp;",
]


@given(
    st.lists(st.sampled_from([*MARKUP, "gold", "tin ", "<table><tr><td>zinc</td></tr></table>"]), max_size=14),
    st.data(),
)
def test_underlines_change_no_word_of_a_page(parts, data):
    markdown = "".join(parts)
    ranges = data.draw(st.lists(st.tuples(st.integers(0, len(markdown)), st.integers(0, len(markdown))), max_size=4))
    texts = [Unsupported(0, "", *sorted(one)) for one in ranges if one[0] != one[1]]
    places = Places({line: 0 for line in range(markdown.count("\n") + 1)}, {})
    html = render_unsupported(markdown, places, texts)
    assert not MARK.search(html)
    added = rf' ?class="unsupported"| unsupported(?=")| title="{UNSUPPORTED}"'
    assert visible_text(html) == visible_text(render(markdown, places))
    assert re.sub(added, "", html).replace("<u>", "").replace("</u>", "") == render(markdown, places)


def test_underlines_are_exact_in_prose_and_whole_in_formulas():
    def shown(markdown: str, *words: str) -> str:
        texts = [Unsupported(0, one, markdown.index(one), markdown.index(one) + len(one)) for one in words]
        html = render_unsupported(markdown, Places({0: 0}, {}), texts)
        return html.replace(f' title="{UNSUPPORTED}"', "").strip()

    assert shown("The mine **gave gold** in 1870.", "gold** in") == (
        '<p data-b="0">The mine <strong>gave <u class="unsupported">gold</u></strong>'
        '<u class="unsupported"> in</u> 1870.</p>'
    )
    assert '<td>12</td>\n<td><u class="unsupported">27</u></td>' in shown("| a | b |\n|---|---|\n| 12 | 27 |", "27")
    assert '<span class="math unsupported">x = 27</span>' in shown("where $x = 27$ holds", "27")
    assert '<li data-b="0" class="unsupported">' in shown("- gold", "- gold")


def test_compared_readings_keep_their_underlines():
    markdown = "The mine gave gold in 1870."
    html = render_unsupported(markdown, NOTHING, [Unsupported(0, "gold", 14, 18)])
    compared = compare(html, render("The mine gave tin in 1870.", NOTHING))
    assert f'<u class="unsupported" title="{UNSUPPORTED}"><mark>gold</mark></u>' in compared.left


def test_data_files_hold_nothing_that_ends_a_script():
    text = script("pages/0", ["</script><script>x</script><!--", "\u2028\u2029", "\ud800", "__proto__"])
    assert "</" not in text
    assert "<!--" not in text
    assert not re.search("[\u2028\u2029\ud800]", text)


WORDS = st.lists(st.sampled_from(["a", "b", "c", "d", "e"]), max_size=30)


@given(WORDS, WORDS)
def test_equal_words_are_equal_and_ascend_on_both_sides(left, right):
    pairs = equal_words(left, right)
    assert all(left[one] == right[other] for one, other in pairs)
    assert all(one < two and other < another for (one, other), (two, another) in pairwise(pairs))


@given(WORDS)
def test_a_text_equals_itself(words):
    assert len(equal_words(words, words)) == len(words)


def test_few_changes_of_a_long_page_are_found_in_repeated_words():
    chance = random.Random(1)
    words = [str(chance.randrange(300)) for _ in range(20_000)]
    other = list(words)
    for place in chance.sample(range(len(words)), 200):
        other[place] = "changed"
    assert len(equal_words(words, other)) >= 19_500


def test_differences_are_marked_in_tags_and_formula_is_one_word():
    left = '<p data-b="1">The <b>level is</b> 187</p><div data-b="2" class="math">a+b</div>'
    right = '<p>The <b>mark was</b> 187</p><div class="math">a+b</div>'
    done = compare(left, right)
    assert done.left == left.replace("level is", "<mark>level is</mark>")
    assert done.right == right.replace("mark was", "<mark>mark was</mark>")
    assert done.share == 6 / 10
    other = compare('<div class="math">a+b</div>', '<div class="math">a-b</div>')
    assert other.left == '<mark><div class="math">a+b</div></mark>'
    assert compare("", "").share == 1


def test_text_without_spaces_differs_by_characters():
    assert compare("<p>文書管理</p>", "<p>文書修理</p>").left == "<p>文書<mark>管</mark>理</p>"


def test_visible_text_reads_as_the_page_does():
    assert visible_text("<h1>A</h1><p>x <b>bo</b>ld &lt;y&gt;</p><table><tr><td>1</td><td>2</td></tr></table>") == (
        "A x bold <y> 1 2"
    )


def test_terms_are_unaccented_words_or_pairs_without_spaces():
    assert list(terms("Café, NAÏVE x_1 文書管理")) == ["cafe", "naive", "x", "1", "文書", "書管", "管理"]


def test_index_finds_all_pages_of_each_term_in_bounded_files(tmp_path, monkeypatch):
    monkeypatch.setattr("llm_ocr_outputs.viewer.index._HELD", 50)
    monkeypatch.setattr("llm_ocr_outputs.viewer.index._FILE", 200)
    index = SearchIndex(sqlite3.connect(":memory:"))
    texts = [f"common word{page % 7} only{page}" for page in range(100)]
    for page, text in enumerate(texts):
        index.add(page, text)
    index.add(3, "late")
    count = index.write(tmp_path)
    assert count > 5
    found: dict[str, list[int]] = {}
    firsts = []
    for number in range(count):
        entries = json.loads((tmp_path / f"terms/{number}.js").read_text().partition(",")[2].rstrip(");\n"))
        firsts.append(entries[0][0])
        for term, steps in entries:
            found[term] = [sum(steps[: at + 1]) for at in range(len(steps))]
    assert firsts == sorted(firsts)
    assert firsts == json.loads((tmp_path / "directory.js").read_text().partition(",")[2].rstrip(");\n"))
    assert found["common"] == list(range(100))
    assert found["only42"] == [42]
    assert found["late"] == [3]
    assert found["word3"] == [page for page in range(100) if page % 7 == 3]
