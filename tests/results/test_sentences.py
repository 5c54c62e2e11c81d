"""Where sentences end."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made import ANY_TEXT

from llm_ocr.exports.chunk_text import sentences, words


@pytest.mark.parametrize(
    "parts",
    [
        ["It rose. ", "Nobody saw it! ", "Why? ", '"So." ', "End"],
        ["See Fig. 3 and Dr. Vik, e.g. Table 2. ", "Next one."],
        ["The level was 1.80 m. ", "It fell."],
        ["At 10 p.m. it rained. ", "Then not."],
        ["Er kam z.B. Montag. ", "Dann ging er."],
        ["川は増水した。", "誰も見なかった！", "本当？"],
        ["هل جاء؟ ", "نعم."],
        ["नदी बढ़ी। ", "किसी ने नहीं देखा।"],
        ["... and so on . . . . 4"],
    ],
)
def test_sentences_are_parted_where_they_end(parts):
    assert list(sentences("".join(parts))) == parts


@given(ANY_TEXT)
def test_nothing_is_lost(text):
    assert "".join(sentences(text)) == text
    assert "".join(words(text)) == text


@given(st.text("ab 川\n", max_size=80))
def test_words_hold_no_white_space_within(text):
    assert all(len(word.split()) <= 1 for word in words(text))


def test_long_texts_of_one_mark_take_no_longer_than_others():
    for text in ("." * 200_000, ". " * 100_000, "a" * 200_000, " " * 200_000):
        assert "".join(sentences(text)) == text
        assert "".join(words(text)) == text
