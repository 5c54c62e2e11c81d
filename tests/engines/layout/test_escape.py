import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_ocr.engines.embedded.layout import escape, unescape


@pytest.mark.parametrize(
    "text",
    [
        "a snake_case name and file_name.txt",
        "5 * 3 = 15",
        "Price: 3 < 4 & 5 > 2",
        "It is 1.5 m wide, not 2. So",
        "AT&T - well",
        "see [12] and (3)",
        "`lonely",
        "C# and #1",
    ],
)
def test_ordinary_text_stays_as_it_is(text: str):
    assert escape(text) == text


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("# not a heading", r"\# not a heading"),
        ("1. not a list", r"1\. not a list"),
        ("12) not a list", r"12\) not a list"),
        ("- not a list", r"\- not a list"),
        ("> not a quote", r"\> not a quote"),
        ("first\n+ second", "first\n\\+ second"),
        ("---", r"\---"),
        ("*this* is starred", r"\*this\* is starred"),
        ("__init__ runs", r"\_\_init__ runs"),
        ("`a` and `b`", r"\`a\` and \`b\`"),
        ("<b>bold</b>", r"\<b>bold\</b>"),
        ("a [link](target)", r"a \[link](target)"),
        ("![image](x)", r"!\[image](x)"),
        ("[1]: http://example.org", r"\[1]: http://example.org"),
        ("&amp; co", r"\&amp; co"),
        (r"a \* b", r"a \\* b"),
    ],
)
def test_what_markdown_would_read_is_escaped(text: str, escaped: str):
    assert escape(text) == escaped


@given(st.text(alphabet=st.sampled_from("ab1 #>-+*_`~<[](!)&;.:\\\n"), max_size=40))
def test_escaping_can_be_undone(text: str):
    assert unescape(escape(text)) == text
