"""Page selections mean what they say, and a bad one is named."""

import pytest

from llm_ocr.documents.manifests import parse_pages
from llm_ocr.errors import UsageError


@pytest.mark.parametrize(
    ("text", "total", "pages"),
    [
        ("1-5,9,12-", 14, (1, 2, 3, 4, 5, 9, 12, 13, 14)),
        ("1-5,9,12-", 4, (1, 2, 3, 4)),
        ("-2", 9, (1, 2)),
        (" 3 , 1 - 2,3 ", 9, (1, 2, 3)),
        ("7", 5, ()),
    ],
)
def test_ranges_select_pages_in_order_and_once(text, total, pages):
    assert parse_pages(text).select(total) == pages


@pytest.mark.parametrize(
    ("text", "part"), [("1-5,x", "'x'"), ("0", "'0'"), ("5-2", "'5-2'"), ("1,,2", "''"), ("-", "'-'"), ("", "no page")]
)
def test_the_wrong_part_is_named(text, part):
    with pytest.raises(UsageError, match=part):
        parse_pages(text)
