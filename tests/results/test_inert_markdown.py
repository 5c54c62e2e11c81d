"""Markdown of documents and exports does nothing by itself in a browser, and says all that the model wrote."""

import time

import pytest
from hostile import FENCE, HOSTILE, Findings
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from llm_ocr.results.sanitizing import inert_markdown, inert_page, safe_markdown
from llm_ocr.types import Block, BlockKind, Box, PageRecord, Status

TRUSTING = MarkdownIt("commonmark", {"html": True}).enable("table")
TRUSTING.validateLink = lambda url: True


class Document(Findings):
    """As in notebooks; images of the document itself are shown, too."""

    def handle_starttag(self, tag, attrs):
        before = len(self.bad)
        super().handle_starttag(tag, attrs)
        src = dict(attrs).get("src") or ""
        if tag == "img" and (src.startswith("figure:") or not (":" in src or src.startswith("/"))):
            del self.bad[before:]


def findings(markdown: str) -> list[str]:
    return Document(TRUSTING.render(inert_markdown(markdown))).bad


@pytest.mark.parametrize(
    "text",
    [
        "plain *text* and [a link](https://example.org/?a=1&b=2) <https://example.org>",
        "a < b, <10 %, p<0.05, x<y and 1 > 0",
        "$a<b$ and $x<y $ or $z > 1$ and $$\nu <v\n$$",
        "say `<script>` and ``a ` <img src=x>``",
        f"{FENCE}html\n<script>alert(1)</script>\n\n[x](javascript:alert(1))\n{FENCE}",
        f"- item\n\n  {FENCE}\n  a < b\n  {FENCE}",
        "    indented < code",
        "the onset = 3 days, p<0.05 and style = 1",
        '<table><tr><td colspan="2" rowspan="3">H<sub>2</sub>O<br/>x<sup>2</sup></td></tr></table>',
        "![a \\[b\\]](figure:d-p1-f1)\n\n![Figure 1](doc.figures/f1.png)",
        "[1]: https://example.org\n\n[note]: see page 3",
        "<!-- image -->\n\ntext",
        "AT&T &lt;b&gt; &amp;",
    ],
)
def test_text_tables_code_and_formulas_stay_as_they_are(text: str):
    assert inert_markdown(text) == text


def test_no_word_in_angle_brackets_is_lost():
    """`<b and c>` is no tag with attributes: only its `<` is written in another way, in text and in tables."""
    said = "a<b and c>d, i<p or q>r, see <Table 1>"
    for before, behind in (("", ""), ("<table><tr><td>", "</td></tr></table>"), ("<p align=left>", "</p>")):
        for clean in (inert_markdown, safe_markdown):
            shown = clean(f"{before}{said}{behind}").replace("&lt;", "<")
            assert said in shown
    assert "<Table" not in inert_markdown("see <Table 1>")


@pytest.mark.parametrize(
    ("text", "becomes"),
    [
        ("<script>alert(1)</script>", "&lt;script>alert(1)&lt;/script>"),
        ('<td onclick="x()" colspan=2 style="x">1</td>', '<td colspan="2">1</td>'),
        ("a <img src=x onerror=alert(1)> b", "a &lt;img src=x onerror=alert(1)> b"),
        ("[x](javascript:alert(1))", "[x&#93;(javascript:alert(1))"),
        ("![x](http://tracker.example/p.png)", "!&#91;x](http://tracker.example/p.png)"),
        ("<!-- page 7 failed: render timeout -->", "&lt;!-- page 7 failed: render timeout -->"),
        ("<table><tr><td>$a<b$</td></tr></table>", "<table><tr><td>$a&lt;b$</td></tr></table>"),
        # Other renderers than CommonMark's complete these tags.
        ("<p/tabindex='1'/autofocus/onfocus=x>a</p>", "&lt;p/tabindex='1'/autofocus/onfocus=x>a</p>"),
        ("<x 1 onfocus=alert(1)>", "<x 1 onfocus&#61;alert(1)>"),
        ("a\\<img src=x onerror=alert(1)>", "a&lt;img src=x onerror=alert(1)>"),
        ("# T {onclick=alert(1)}", "# T {onclick&#61;alert(1)}"),
        ("[x] (javascript:alert(1))", "[x&#93; (javascript:alert(1))"),
        ("[x](java\nscript:alert(1))", "[x&#93;(java\nscript:alert(1))"),
        ("![a](../../etc/passwd) ![b](x/%2E%2e/y)", "!&#91;a](../../etc/passwd) !&#91;b](x/%2E%2e/y)"),
        # Code that other renderers do not see as code, or with another end.
        (f"{FENCE}\n<script>", f"{FENCE}\n<script>\n{FENCE}"),
        (f"{FENCE} a b\n<script>\n{FENCE}", f"{FENCE}a\n<script>\n{FENCE}"),
        (f"{FENCE}\n{FENCE}x\n<script>\n{FENCE}", f"{FENCE}`\n{FENCE}x\n<script>\n{FENCE}`"),
        (f"{FENCE}\n{FENCE}\nb", "b"),
        ("    <script>", f"{FENCE}\n<script>\n{FENCE}"),
        (f"> {FENCE}\n> <script>\n> {FENCE}", f"> {FENCE}\n> &lt;script>\n> {FENCE}"),
        ("`a\n\n`<script>`", "`a\n\n<code>&#60;script&#62;</code>"),
    ],
)
def test_what_is_active_is_shown_as_text(text: str, becomes: str):
    assert inert_markdown(text) == becomes


#: Texts that only other renderers than CommonMark's make active.
ELSEWHERE = [
    '<p/tabindex="1"/autofocus/onfocus=alert(1)>',
    "\\<img src=x onerror=alert(1)>",
    f"{FENCE}\n<img src=x onerror=alert(1)>",
    "<div/style='x'/onclick=alert(1)>x",
    "</p/onclick=x>",
    "<p\n1\nonclick=alert(1)>",
    "<x 1 onfocus=alert(1) autofocus tabindex=1>",
    "<q\\ onclick=alert(1)>",
    "<b onclick=alert(1)",
    "<p title='>' onclick=alert(1)>",
    "<<script>alert(1)</script>",
    "- item\n\n  ```\n  x\n  ````a\n1. `<img src=x onerror=alert(1)>`",
    "1. a\n\n       b`a\n1. `<img src=x onerror=alert(1)>`",
    "<&lt;script>alert(1)</script>",
    "<mailto:x/onfocus=alert(1)/tabindex=1>",
    "<details/open/ontoggle=alert(1)>",
    "$a<b$ onclick=alert(1) x>",
    "| a |\n|---|\n| <b/onclick=alert(1)> |<p\n1\nonclick=alert(1)>",
    "# T {onclick=alert(1)}",
    "# T {: onclick='alert(1)' }",
    "\\\\`<img src=x onerror=alert(1)>`",
    "`a\n1. `<img src=x onerror=alert(1)>`",
    f"{FENCE}\n{FENCE}\n\ntext\n\n{FENCE}\n<img src=x onerror=alert(1)>\n{FENCE}",
    f"{FENCE}\n{FENCE}foo\n<img src=x onerror=alert(1)>\n{FENCE}",
    f"{FENCE} a b\n<img src=x onerror=alert(1)>\n{FENCE}",
    f"- {FENCE}\n  code\n  {FENCE}\n\n{FENCE}\n<img src=x onerror=alert(1)>\n{FENCE}",
    f"- item\n\n  {FENCE}\n  <iframe src=x></iframe>\n  {FENCE}",
    f"> {FENCE}\n> <script>alert(1)</script>\n> {FENCE}",
    f"<table>\n{FENCE}\n</table>\n\n{FENCE}\n<img src=x onerror=alert(1)>\n{FENCE}",
    "-\n\n    <img src=x onerror=alert(1)>",
    "1. a\n\n       ![x](http://tracker.example/p.png)<img src=x onerror=alert(1)>",
    "[x] (javascript:alert(1))",
    "[x](java\nscript:alert(1))",
    "![[x](http://tracker.example/p.png)](y)",
    "![a](../../../../etc/passwd)",
    "<plaintext>",
    "<table>\n\n`<img src=x onerror=alert(1)>`",
    f"{FENCE}\\| a |\n|---|\n\n{FENCE}\n<iframe src=x></iframe>\n{FENCE}",
    "<p>`<img src=x onerror=alert(1)>` | a |\n|---|---|",
    f"<p> | a |\n|---|---|\n{FENCE}\n<img src=x onerror=alert(1)>\n{FENCE}",
    f"<b>\n|---|\n{FENCE}\n<img src=x onerror=alert(1)>\n{FENCE}",
    "http://a.example/`b`<img src=x onerror=alert(1)>`",
]


@pytest.mark.parametrize("text", [*HOSTILE, *ELSEWHERE])
def test_nothing_active_is_left(text: str):
    assert findings(text) == []
    assert inert_markdown(inert_markdown(text)) == inert_markdown(text)


PARTS = [
    *HOSTILE,
    *ELSEWHERE,
    "\n",
    "\n\n",
    FENCE,
    "`",
    "``",
    "    ",
    "> ",
    "- ",
    "<table>",
    "</table>",
    "\\",
    "<!--",
    "-->",
    "$",
    "<",
]


@given(st.lists(st.sampled_from(PARTS) | st.text("<>`[]()!\\\n ab:", max_size=6), max_size=12))
def test_nothing_active_is_left_in_any_order(parts: list[str]):
    assert findings("".join(parts)) == []


@pytest.mark.parametrize(
    "unit", ["](", "![", "[", "`a``", "<b", "<!--", "<td ", "<a b=", '<a b="', "<table>\n\n", "![a](", "]:", "<x:"]
)
def test_hostile_text_takes_linear_time(unit: str):
    begun = time.process_time()
    inert_markdown((unit * 10_000)[:10_000])
    inert_markdown((unit * 60_000)[:60_000])  # too long to be parsed
    assert time.process_time() - begun < 2


def test_a_page_loses_its_active_content_and_keeps_its_code():
    bad = "<script>x</script>"
    block, code = Block(BlockKind.TEXT, Box(0, 0, 1, 1), bad), Block(BlockKind.CODE, Box(0, 0, 1, 1), bad)
    record = PageRecord("d-p1", "d", "d.pdf", 1, 0, Status.OK, markdown=bad, blocks=(block, code))
    page = inert_page(record)
    assert page.markdown == page.blocks[0].text == "&lt;script>x&lt;/script>"
    assert page.blocks[1].text == bad
