"""What is shown in a notebook runs no scripts, opens no odd links and fetches nothing, and still looks right."""

import pytest
from hostile import HOSTILE, PIXEL, Findings
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from llm_ocr.results.sanitizing import safe_markdown

TRUSTING = MarkdownIt("commonmark", {"html": True}).enable("table")
TRUSTING.validateLink = lambda url: True


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


@pytest.mark.parametrize("text", [*HOSTILE, "<https://onmouseover=alert(1)//>"])
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
