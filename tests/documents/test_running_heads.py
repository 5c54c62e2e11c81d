"""Lines that recur on neighboring pages are running heads; what differs between pages is content."""

import pytest

from llm_ocr.documents.furniture import edge_lines, marked
from llm_ocr.types import Box, Line, PageContent, Word


def page(head: str, *, x: float = 50.0, gap: float = 0.0) -> PageContent:
    """A page with one line at its top; `gap` is the distance in points before its last word."""
    words, at = [], x
    for index, token in enumerate(head.split()):
        at += gap if index and index == len(head.split()) - 1 else 0.0
        words.append(Word(token, Box(at, 20, at + 5.0 * len(token), 30)))
        at += 5.0 * len(token) + 3
    return PageContent(600, 800, (Line(head, Box(x, 20, at, 30), 10.0, tuple(words)),))


def recurs(first: str, second: str, gap: float = 0.0) -> bool:
    one, other = page(first, gap=gap), page(second, gap=gap)
    return marked(one, {1: edge_lines(other)}).lines[0].recurs


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("Invoice 2026-0017", "Invoice 2026-0018"),
        ("Invoice 17", "Invoice 18"),
        ("Date: 3 May 2026", "Date: 4 May 2026"),
        ("3 May 2026", "4 May 2026"),
        ("4 Mill Lane", "5 Mill Lane"),
        ("Opening balance: 1000.00", "Opening balance: 1001.00"),
        ("Question 5: name the river", "Question 6: name the river"),
        ("Account 4711900000001", "Account 4711900000002"),
        ("20260017", "20260018"),
        ("Page 3 of 5", "Page 3 of 6"),
        ("Page 3", "Page 7"),
    ],
)
def test_numbers_that_differ_between_pages_are_content(first, second):
    assert not recurs(first, second)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("Year book of 2026", "Year book of 2026"),
        ("Page 3 of 5", "Page 4 of 5"),
        ("Seite 3", "Seite 4"),
        ("Harbour guide | 17", "Harbour guide | 18"),
        ("- 12 -", "- 13 -"),
        ("xii", "xiii"),
    ],
)
def test_lines_with_a_page_number_that_counts_recur(first, second):
    assert recurs(first, second)


def test_a_number_set_apart_from_a_head_counts_the_pages():
    assert recurs("Harbour guide 17", "Harbour guide 18", gap=100)
    assert not recurs("Harbour guide 17", "Harbour guide 18")
