"""What is shown in a notebook runs no scripts, opens no odd links and fetches nothing, and still looks right."""

import re
from html.parser import HTMLParser

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from llm_ocr.results.sanitizing import safe_markdown

TRUSTING = MarkdownIt("commonmark", {"html": True}).enable("table")
TRUSTING.validateLink = lambda url: True
PIXEL = "data:image/png;base64,iVBORw0KGgo="
LIVE = re.compile(
    "a|em|strong|code|pre|p|img|table|thead|tbody|tfoot|tr|th|td|caption|colgroup|col|br|hr|sub|sup|b|i|u|s|div|span|ul|ol"
    "|li|h[1-6]|blockquote"
)


class Findings(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.bad: list[str] = []
        self.text = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        for name, value in attrs:
            link = name == "href" and (value or "").lower().startswith(("http://", "https://", "mailto:", "#"))
            link = link or (name == "href" and ":" not in (value or ""))
            picture = tag == "img" and (name in ("alt", "title") or (name == "src" and value == PIXEL))
            # class and start come from the renderer
            if not (link or picture or name in ("colspan", "rowspan", "align", "class", "start", "title", "style")):
                self.bad.append(f"{tag} {name}={value}")
            if name == "style" and not (value or "").startswith("text-align:"):
                self.bad.append(f"{tag} {name}={value}")
        if not LIVE.fullmatch(tag):
            self.bad.append(tag)

    def handle_data(self, data):
        self.text += data


def findings(markdown: str) -> Findings:
    return Findings(TRUSTING.render(safe_markdown(markdown)))


@pytest.mark.parametrize(
    "text",
    [
        "plain *text* and [a link](https://example.org/?a=1&b=2)",
        "# Heading\n\n- item\n- item\n\n> quote",
        "| a | b |\n| --- | --- |\n| 1 | 2 |",
        '<table><tr><td colspan="2">x</td></tr></table>',
        "1 < 2 and 3 > 2",
        f"![figure]({PIXEL})",
        "<!-- page 3 -->\n\ntext",
        "$$\na < b\n$$",
    ],
)
def test_harmless_text_stays_as_it_is(text):
    assert safe_markdown(text) == text


def test_code_is_shown_as_it_is():
    code = 'if a < b and c > d:\n\n    print("<b>*x*</b>")'
    assert findings(f"```python\n{code}\n```\n\nafter").text.strip().startswith(code)
    assert "<script>" in findings("say `<script>` here").text


def test_attributes_beyond_spans_are_dropped():
    assert safe_markdown('<td onclick="x()" colspan=2 style="x">') == '<td colspan="2">'


@pytest.mark.parametrize(
    "text",
    [
        *("<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "<img src=x onerror=alert(1) //"),
        "<table>\n```\n<img src=x onerror=alert(1)>\n```\n</table>",
        "<table><td>`<img src=x onerror=alert(1)>`</td></table>",
        *("<table><td>\\<img src=x onerror=alert(1)></td></table>", "[x](javascript:alert(1))"),
        *("[x](<java\tscript:alert(1)>)", "[x](javascript&#58;alert(1))", "[x](java\\script:alert(1))"),
        *("[x]\n\n[x]: javascript:alert(1)", "<javascript:alert(1)>", "<https://onmouseover=alert(1)//>"),
        *("![x](http://tracker.example/pixel.png)", "![x][y]\n\n[y]: http://tracker.example/pixel.png"),
        *("![[x](javascript:alert(1))](y)", "![a](data:image/svg+xml;base64,AAAA)"),
        *("<iframe src=https://example.org></iframe>", "<!-- --><script>alert(1)</script> -->"),
        *("<svg/onload=alert(1)>", '<a href="javascript:x">y</a>'),
    ],
)
def test_harmful_text_is_shown_not_done(text):
    assert not findings(text).bad


@given(
    st.lists(
        st.one_of(
            st.sampled_from(
                [
                    *("<table>", "</table>", "<td ", "<img src=x onerror=y>", "<script>", "```", "`", "``", "\n\n"),
                    *("\n", "    "),
                ]
            ),
            st.sampled_from(
                ["![", "](", "]", ")", "[x]", ": ", "javascript:x", "http://h", "<", ">", "\\", "- ", "<!--", "-->"]
            ),
            st.sampled_from(
                ["![a](figure:b)", f"![a]({PIXEL})", "~~~", '"', "'", "&lt;", "&#58;", "onload=x", "/", " ", "> "]
            ),
        ),
        max_size=14,
    ).map("".join)
)
@example("`a\n\n<script>`")
def test_no_combination_comes_alive(text):
    assert not findings(text).bad
