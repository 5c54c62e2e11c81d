"""Words whose fonts do not name their glyphs are read by OCR, and stay as they are where OCR does not fit them."""

import io
from dataclasses import replace

import numpy as np
import pytest
from ocr_pages import content, needs_ocr, page, pixels, prose, recogniser
from PIL import Image
from test_reading import Ocr
from test_reading import page as read_from

from llm_ocr.documents.ink import ink_of
from llm_ocr.results.quality.scoring import FITTED
from llm_ocr.results.quality.worker import rate, rating_from_wire, rating_to_wire
from llm_ocr.types import (
    BlockKind,
    Box,
    EncodedImage,
    Evidence,
    Line,
    Page,
    PageContent,
    Raster,
    Reason,
    Script,
    Status,
    Word,
)
from llm_ocr_cpu import ocr
from llm_ocr_cpu.ocr.languages import SCRIPTS
from llm_ocr_cpu.ocr.recognise import Reading
from llm_ocr_cpu.page import read_page
from llm_ocr_cpu.rereading import corrected, doubtful_words, fonts_to_check, reread, with_doubtful_signs

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
    read = recogniser().reread(pixels(pdf), replace(layer, lines=(first, second)), {})
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
    read = reread(np.zeros((400, 300, 3), np.uint8), PageContent(300, 400, lines), reader, {})
    assert {line.text for line in read.lines} == {"speech"}
    assert reader.readings == 1


def shifted(content, font):
    """The layer, with the next letter or digit for each one of a font."""

    def lie(word):
        return replace(word, text="".join(chr(ord(c) + 1) if c.isalnum() else c for c in word.text))

    lines = []
    for line in content.lines:
        words = tuple(lie(word) if word.font == font else word for word in line.words)
        lines.append(replace(line, words=words, text=" ".join(word.text for word in words)))
    return replace(content, lines=tuple(lines))


@needs_ocr
@pytest.mark.parametrize("words", ["What is the purpose of the list", "4821.50"])
def test_words_of_a_font_that_lies_are_read_from_the_image(words):
    pdf = page(*prose(), (words, 40, 280, 14, "Helvetica-Bold"))
    layer = content(pdf)
    (line,) = (line for line in layer.lines if line.text == words)
    lying = shifted(layer, line.words[0].font)
    assert words not in {line.text for line in lying.lines}
    read = recogniser().reread(pixels(pdf), lying, fonts_to_check(lying, probed=True))
    assert {line.text for line in read.lines} == {line.text for line in layer.lines}


@needs_ocr
@pytest.mark.parametrize("mapped", [False, True])
def test_words_read_by_ocr_are_not_compared_with_a_false_layer(mapped):
    words = "The purpose of the list of 4821 visitors is unknown"
    pdf = page(*prose(), (words, 40, 280, 12, "Helvetica-Bold"))
    layer = content(pdf)
    font = next(line for line in layer.lines if line.text == words).words[0].font
    false = shifted(layer, font)
    size = 1 / layer.width, 1 / layer.height
    # Glyphs without a mapping are not in the lines of the evidence.
    lines = [(line.text, line.box.scaled(*size)) for line in false.lines if mapped or line.words[0].font != font]
    image, out = Image.fromarray(pixels(pdf, 1540)), io.BytesIO()
    image.save(out, "PNG")
    encoded = EncodedImage(out.getvalue(), "image/png", *image.size)
    paper = Page("d-p1", "d", 1, encoded, false, evidence=Evidence(ink_of(image), tuple(lines)))
    attempt = read_page(paper, recogniser, text_layer=True)
    assert words in " ".join(block.text for block in attempt.blocks)
    rated = rate(rating_to_wire(paper, attempt, FITTED, transcribed=True))
    judged, _, ledger = rating_from_wire(attempt, rated)
    assert ledger is not None
    assert (judged.status, ledger.unsupported, ledger.unread) == (Status.OK, (), ())


def test_later_pages_compare_only_fonts_without_a_language():
    words = [Word(text, BOX, font=1 + at % 2) for at, text in enumerate(["harbour", "QVSQPTF"] * 5)]
    layer = PageContent(300, 400, (Line(" ".join(word.text for word in words), BOX, 10.0, tuple(words)),))
    assert fonts_to_check(layer, probed=False) == {2: False}
    assert fonts_to_check(layer, probed=True) == {1: False, 2: False}


@pytest.mark.parametrize(
    ("words", "checked"),
    [
        (["4821.50", "917.36"], True),
        (["&*$#!'", "+#)!%("], True),
        (["Äîãîâîð", "àðåíäû", "ïðè÷àëà", "è", "ëîäêè"], True),
        (["harbour", "4821.50", "opens"], "numbers"),
        (["harbour", "4", "opens"], False),
        (["......", "......"], False),
    ],
)
def test_later_pages_compare_fonts_of_numbers_signs_and_accents(words, checked):
    line = Line(" ".join(words), BOX, 10.0, tuple(Word(word, BOX, font=1) for word in words))
    fonts = fonts_to_check(PageContent(300, 400, (line,)), probed=False)
    assert fonts == ({1: checked == "numbers"} if checked else {})


@needs_ocr
@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        ("Account 482 of 5150", {"482": "715", "5150": "8483"}),
        ("The boats pay 48 and 21 for 50 nights", {"48": "71", "21": "54", "50": "83"}),
        ("Total due 4821.50 crowns", {"4821.50": "7151.50"}),
    ],
)
@pytest.mark.parametrize("probed", [True, False])
def test_wrong_digits_of_a_font_with_true_letters_are_read(words, wrong, probed):
    pdf = page(*prose(), (words, 40, 280, 14, "Helvetica-Bold"))
    layer = content(pdf)
    lines = tuple(
        replace(line, words=words, text=" ".join(word.text for word in words))
        for line in layer.lines
        for words in [tuple(replace(word, text=wrong.get(word.text, word.text)) for word in line.words)]
    )
    lying = replace(layer, lines=lines)
    read = recogniser().reread(pixels(pdf), lying, fonts_to_check(lying, probed=probed))
    assert {line.text for line in read.lines} == {line.text for line in layer.lines}


def test_letter_that_ocr_takes_for_a_digit_shows_no_wrong_font():
    class Reader:
        scripts = SCRIPTS

        def __init__(self):
            self.answers = iter(["-02,", "-03,", "-01"])

        def read(self, crop):
            return Reading(next(self.answers), (), (0.99,) * 4)

    words = [Word(text, BOX, font=1) for text in ["-O2,", "-O3,", "-O1"]]
    layer = PageContent(300, 400, (Line(" ".join(word.text for word in words), BOX, 10.0, tuple(words)),))
    assert reread(np.zeros((400, 300, 3), np.uint8), layer, Reader(), {1: True}) == layer


def test_font_of_no_language_that_ocr_reads_otherwise_is_unknown():
    class Reader:
        scripts = SCRIPTS

        def read(self, crop):
            return Reading("", (), ())

    words = [Word(text, BOX, font=1) for text in ["QVSQPTF", "XWZQVK", "KQXJVZW", "PQ"]]
    layer = PageContent(300, 400, (Line(" ".join(word.text for word in words), BOX, 10.0, tuple(words)),))
    read = reread(np.zeros((800, 600, 3), np.uint8), layer, Reader(), {1: False})
    assert set(read.lines[0].text) == {"\ufffd", " "}


def test_a_wrong_word_that_ocr_cannot_read_is_unknown_and_told(monkeypatch):
    class Reader:
        scripts = SCRIPTS

        def read(self, crop):
            # The sample, which is the longest word, is clear; the other word is not.
            return Reading("total", (), (0.99,) * 5) if crop.shape[1] > 50 else Reading("xyz", (), (0.5,) * 3)

    class Rereading(Ocr):
        def reread(self, pixels, content, fonts):
            return reread(np.asarray(pixels), content, Reader(), fonts)

    monkeypatch.setattr(ocr, "available", lambda: True)
    wrong = Word("upubm", Box(50, 100, 120, 110), font=2), Word("715", Box(130, 100, 160, 110), font=2)
    true = tuple(
        Word(word, BOX, font=1)
        for word in ["words", "enough", "to", "trust", "the", "layer", "of", "this", "page", "at", "once"]
    )
    more = Line(" ".join(word.text for word in true), Box(50, 300, 250, 310), 10.0, true)
    layer = PageContent(300, 400, (Line("upubm 715", Box(50, 100, 160, 110), 10.0, wrong), more))
    attempt = read_page(replace(read_from(layer), number=1), Rereading(), text_layer=True)
    assert attempt.blocks[0].text == "total \ufffd\ufffd\ufffd"
    assert (attempt.status, attempt.reason) == (Status.DEGRADED, Reason.LOW_QUALITY)


@pytest.mark.parametrize(
    ("text", "doubtful"),
    [
        ("di!culties e!ect #ag", [(2,), (1,), (0,)]),
        ("di!culties then", [(2,), ()]),
        ("Stop! #one a&b", [(), (), (1,)]),
        ("Stop! #one", [(), ()]),
    ],
)
def test_signs_within_words_are_doubtful_as_ligatures(text, doubtful):
    line = Line(text, BOX, 10.0, tuple(Word(word, BOX) for word in text.split()))
    (marked,) = with_doubtful_signs(PageContent(300, 400, (line,))).lines
    assert [word.doubtful for word in marked.words] == doubtful
    program = replace(line, mono=True)
    assert with_doubtful_signs(PageContent(300, 400, (program,))).lines == (program,)


@needs_ocr
@pytest.mark.parametrize(("known", "source"), [(20, "text-layer"), (2, "ocr")])  # lines of 20 that the layer has
def test_clear_ocr_replaces_a_mostly_unreadable_layer(known, source):
    words = "harbour office keeps lists"
    lines = tuple(
        Line(text, Box(20, 10 + 15 * row, 280, 20 + 15 * row), 10.0, tuple(Word(word, BOX) for word in text.split()))
        for row, text in enumerate(
            [words] * known + [words.translate(str.maketrans("aeiou", "\ufffd" * 5))] * (20 - known)
        )
    )
    seen = tuple(replace(line, text=words, words=tuple(Word(word, BOX) for word in words.split())) for line in lines)
    stand_in = Ocr(probe=None, lines=seen)
    attempt = read_page(read_from(PageContent(300, 400, lines)), stand_in, text_layer=True, layout_model=False)
    assert attempt.source == source
    assert ("\ufffd" in "".join(block.text for block in attempt.blocks)) is False


@needs_ocr
def test_ocr_of_the_letters_in_a_figure_does_not_replace_it():
    head, label = "harbour office keeps lists", "B\ufffd7"
    corners = [(30 + 53 * at % 210, 110 + 11 * at) for at in range(24)]
    places = [Box(left, top, left + 36, top + 7) for left, top in corners]
    labels = tuple(Line(label, box, 8.0, (Word(label, box),)) for box in places)
    top = Line(head, Box(20, 30, 280, 40), 10.0, tuple(Word(word, BOX) for word in head.split()))
    seen = (top, *(Line("B17", box, 8.0, (Word("B17", box),)) for box in places[::2]))
    layer = PageContent(300, 400, (top, *labels), (Raster(Box(20, 100, 280, 380)),))
    attempt = read_page(read_from(layer), Ocr(probe=None, lines=seen), text_layer=True, layout_model=False)
    assert attempt.source == "text-layer"
    assert [block.text for block in attempt.blocks if block.kind is not BlockKind.FIGURE] == [head]


@pytest.mark.parametrize(("installed", "expected"), [(True, "12.5µM of it"), (False, "12.5\ufffdM of it")])
def test_without_ocr_the_present_text_stays(monkeypatch, installed, expected):
    class Rereading(Ocr):
        def reread(self, pixels, content, fonts):
            self.asked.append("reread")
            words = (Word("12.5µM", BOX), *content.lines[0].words[1:])
            return replace(content, lines=(Line("12.5µM of it", BOX, 10.0, words), *content.lines[1:]))

    monkeypatch.setattr(ocr, "available", lambda: installed)
    words = (Word("12.5\ufffdM", BOX, (4,)), Word("of", BOX), Word("it", BOX))
    more = Line("and words enough to trust the layer of this page at once", Box(50, 300, 250, 310), 10.0)
    layer = PageContent(300, 400, (Line("12.5\ufffdM of it", BOX, 10.0, words), more))
    reader = Rereading()
    attempt = read_page(read_from(layer), reader, text_layer=True)
    assert (reader.asked, attempt.blocks[0].text) == (["reread"] if installed else [], expected)
