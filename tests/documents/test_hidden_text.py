"""Text is what a page shows: not what `/ActualText` says of it, and not what a bar covers."""

import pytest
from pdf_writing import pages, text, written
from test_rendering import outcome, with_renderer

from llm_ocr.documents.hidden_text import contradicts


@pytest.mark.parametrize(
    ("told", "drawn", "expected"),
    [
        ("7154.83", "4821.50", True),
        ("9917.36", "917.36", True),
        ("Secret order", "Visible clause", True),
        ("ffi", "\ufb03", False),
        ("ffi", "f", False),  # the font names the first letter of a ligature
        ("\u00e9", "e\u0301", False),
        ("Alma", "ALMA", False),
        ("\u2713", "4", False),  # a sign of a font for signs
        ("4821.50", "\ue004\ue008", False),
        (
            "\u0634\u0631\u0643\u0629",
            "\u0629\u0643\u0631\u0634",
            False,
        ),  # the order of the glyphs is not that of the text
        ("\u00ad", "-", False),
    ],
)
def test_actual_text_must_have_the_glyphs_numbers_and_letters(told, drawn, expected):
    assert contradicts(told, drawn) is expected


def texts_of(tmp_path, *drawn: bytes) -> tuple[str, str]:
    """The text of the last page by its evidence and by its content."""
    file = written(tmp_path / "a.pdf", pages(*drawn))
    read = with_renderer(lambda renderer: outcome(renderer, file, len(drawn)), text_layer=True)
    return " ".join(words for words, _ in read.evidence.lines), " ".join(line.text for line in read.content.lines)


def marked(told: str, drawn: bytes) -> bytes:
    return b"/Span <</ActualText <feff%s>>> BDC %sEMC " % (told.encode("utf-16-be").hex().encode(), drawn)


def test_contradicted_actual_text_is_not_read(tmp_path):
    amount = marked("7154.83", text("4821.50", x=300, y=600))
    parts = text("Opens at ", y=560) + marked(
        "nine o'clock", text("nine o'", x=122, y=560) + text("clock", x=160, y=560)
    )
    page = text("Total due", y=600) + amount + parts
    for found in texts_of(tmp_path, text("Sheet 1", y=600), page):
        assert "4821.50" in found and "7154" not in found
        assert found.count("clock") == 1


def test_glyphs_that_share_an_actual_text_are_read_once(tmp_path):
    ends = (100.0, 108.0, 114.7, 121.4)  # each glyph begins where the one before it ends, as in Thai or Devanagari
    first, second, third, fourth = (text(sign, x=x) for sign, x in zip("boat", ends, strict=True))
    page = marked("bo", first + second) + marked("at", third + fourth) + text("house", x=128)
    layer, lines = texts_of(tmp_path, page)
    assert lines == "boat house"
    assert layer.replace(" ", "") == "boathouse"


@pytest.mark.parametrize("end", ["", ","])
def test_word_below_a_bar_is_not_read(tmp_path, end):
    name = text(f"Kowalski{end}", x=200, y=600)
    bar = b"0 g 199 596 48.5 14 re f\n"  # as wide as the letters, without the comma
    said = text("spoke for a quarter of an hour about the harbor.", x=260, y=600)
    for found in texts_of(tmp_path, text("The witness of the second day", x=30, y=600) + name + said + bar):
        assert "Kowalski" not in found
        assert "second day" in found and "spoke for" in found
