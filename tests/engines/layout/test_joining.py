import pytest

from llm_ocr.engines.embedded.layout.rows import join, vocabulary


@pytest.mark.parametrize(
    ("first", "second", "joined"),
    [
        ("the water", "level", "the water level"),
        ("the archi-", "tecture of", "the architecture of"),
        ("the archi\u00ad", "tecture of", "the architecture of"),
        ("archi\u2010", "tecture", "architecture"),
        ("a self-", "locking nut", "a self-locking nut"),
        ("a non-", "trivial case", "a non-trivial case"),
        ("state-of-the-", "art", "state-of-the-art"),
        ("Anglo-", "Saxon", "Anglo-Saxon"),
        ("GPT-", "4", "GPT-4"),
        ("x -", "y", "x - y"),
        ("pages 12–", "14", "pages 12–14"),
        ("see https://example.org/", "path", "see https://example.org/path"),
        ("either/", "or", "either/ or"),
        ("今日は", "天気", "今日は天気"),
        ("한국어", "문장", "한국어 문장"),
        ("", "alone", "alone"),
    ],
)
def test_lines_are_joined_as_they_are_read(first: str, second: str, joined: str):
    assert join(first, second) == joined


def test_the_page_itself_decides_about_a_hyphen():
    words = vocabulary(["the built-in test and the nonlinear case"])
    assert join("a built-", "in test", words) == "a built-in test"
    assert join("a non-", "linear one", words) == "a nonlinear one"
