"""Words whose fonts do not name their glyphs are read by OCR, and stay as they are where OCR does not fit them."""

from dataclasses import replace

import numpy as np
import pytest
from ocr_pages import content, needs_ocr, page, pixels, recogniser
from test_reading import Ocr
from test_reading import page as read_from

from llm_ocr.engines.embedded import ocr
from llm_ocr.engines.embedded.ocr.languages import SCRIPTS
from llm_ocr.engines.embedded.ocr.recognise import Reading
from llm_ocr.engines.embedded.page import read_page
from llm_ocr.engines.embedded.rereading import corrected, doubtful_words, reread
from llm_ocr.types import Box, Line, PageContent, Script, Word

BOX = Box(50, 100, 80, 110)


@pytest.mark.parametrize(
    ("text", "doubtful", "reading", "expected"),
    [
        ("12.5\ufffdM", (4,), "12.5µM", "12.5µM"),
        ("EO0.7", (1,), "E>0.7", "E>0.7"),
        ("de\ufffdne", (2,), "define", "define"),
        ("de\ufffdnition", (2,), "definiti0n", "definition"),
        ("\ufffd\ufffd", (0, 1), "≤3", "≤3"),
        ("12.5\ufffdM", (4,), "other", ""),
        ("12.5\ufffdM", (4,), "", ""),
        ("a\ufffd" * 30, tuple(range(1, 60, 2)), "a" * 90, ""),
    ],
)
def test_a_reading_replaces_only_the_doubtful_characters(text, doubtful, reading, expected):
    assert corrected(Word(text, BOX, doubtful), reading) == expected


def test_a_list_marker_without_a_meaning_stays_one():
    marker, word = Word("\ufffd", BOX, (0,)), Word("\ufffd20", BOX, (0,))
    lines = (Line("\ufffd \ufffd20", BOX, 10.0, (marker, word)), Line("fine", BOX, 10.0, (Word("fine", BOX),)))
    assert doubtful_words(PageContent(300, 400, lines)) == [(0, 1)]


@needs_ocr
def test_words_with_unknown_glyphs_are_read_from_the_image():
    pdf = page(("a share of <20% in all", 40, 200, 12, "Helvetica"), ("defined x", 40, 100, 12, "Helvetica"))
    layer = content(pdf)
    first, second = layer.lines
    broken = tuple(Word("!20%", word.box, (0,)) if word.text == "<20%" else word for word in first.words)
    torn = (Word("de\ufffdned", second.words[0].box, (2,)), second.words[1])
    first = replace(first, words=broken, text="a share of !20% in all")
    second = replace(second, words=torn, text="de\ufffdned x", scripts=(Script(7, 8),))
    read = recogniser().reread(pixels(pdf), replace(layer, lines=(first, second)))
    assert [line.text for line in read.lines] == ["a share of <20% in all", "defined x"]
    assert read.lines[1].scripts == (Script(8, 9),)
    assert doubtful_words(read) == []


def test_a_word_that_occurs_again_is_read_once():
    class Reader:
        scripts = SCRIPTS

        def __init__(self):
            self.readings = 0

        def read(self, crop):
            self.readings += 1
            return Reading("speech", (), (0.99,) * 6)

    word = Word("spee\ufffdh", BOX, (4,))
    lines = tuple(Line("spee\ufffdh", BOX, 10.0, (word,)) for _ in range(200))
    reader = Reader()
    read = reread(np.zeros((400, 300, 3), np.uint8), PageContent(300, 400, lines), reader)
    assert {line.text for line in read.lines} == {"speech"}
    assert reader.readings == 1


@pytest.mark.parametrize(("installed", "expected"), [(True, "12.5µM of it"), (False, "12.5\ufffdM of it")])
def test_without_ocr_the_present_text_stays(monkeypatch, installed, expected):
    class Rereading(Ocr):
        def reread(self, pixels, content):
            self.asked.append("reread")
            return PageContent(300, 400, (Line("12.5µM of it", BOX, 10.0),))

    monkeypatch.setattr(ocr, "available", lambda: installed)
    words = (Word("12.5\ufffdM", BOX, (4,)), Word("of", BOX), Word("it", BOX))
    more = Line("and words enough to trust the layer of this page at once", Box(50, 300, 250, 310), 10.0)
    layer = PageContent(300, 400, (Line("12.5\ufffdM of it", BOX, 10.0, words), more))
    reader = Rereading()
    attempt = read_page(read_from(layer), reader, text_layer=True)
    assert (reader.asked, attempt.blocks[0].text) == (["reread"] if installed else [], expected)
