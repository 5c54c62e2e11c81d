"""A text layer is believed when it says what is seen."""

from dataclasses import replace

import pytest
from ocr_pages import PROSE, content, needs_ocr, page, pixels, prose, recogniser

from llm_ocr.documents.text_layer import suspicious
from llm_ocr.types import Box, Line, PageContent
from llm_ocr_cpu.probe import edit_distance, samples, script_supported


def shifted(text, by=1):
    """Every letter `by` further in the alphabet, as fonts with a wrong code table have it."""
    return "".join(
        chr((ord(c) - ord("a") + by) % 26 + ord("a")) if "a" <= c <= "z" else c for c in text
    )  # fmt: skip


def changed(layer, change):
    """The layer with other characters at the same places."""
    lines = [
        replace(
            line,
            text=change(line.text),
            words=tuple(replace(word, text=change(word.text)) for word in line.words),
        )
        for line in layer.lines
    ]
    return replace(layer, lines=tuple(lines))


def layer_of(*texts):
    """A text layer of lines below each other."""
    lines = [Line(text, Box(50, 50 + 20 * row, 350, 62 + 20 * row), 12.0) for row, text in enumerate(texts)]
    return PageContent(600, 800, tuple(lines))


@pytest.fixture(scope="module")
def drawn():
    pdf = page(*prose())
    return pixels(pdf), content(pdf)


@needs_ocr
def test_a_true_layer_does_not_disagree(drawn):
    assert recogniser().probe(*drawn) == pytest.approx(0.0, abs=0.05)


@needs_ocr
@pytest.mark.parametrize("change", [shifted, lambda text: "\ufffd" * len(text)], ids=["shifted", "without meaning"])
def test_a_lying_layer_disagrees(drawn, change):
    image, layer = drawn
    assert recogniser().probe(image, changed(layer, change)) > 0.8


@needs_ocr
def test_a_layer_that_lies_in_one_of_its_fonts_disagrees(drawn):
    image, layer = drawn
    lines = [
        replace(line, text="\ufffd" * 30, words=()) if row % 3 == 0 else line for row, line in enumerate(layer.lines)
    ]
    assert recogniser().probe(image, replace(layer, lines=tuple(lines))) > 0.8


@needs_ocr
def test_older_ocr_of_a_scan_is_judged_by_any_of_its_lines(drawn):
    image, layer = drawn
    assert recogniser().probe(image, layer, scan=True) < 0.02
    lines = [
        replace(line, text="cl.'ii nvrn t", words=()) if row % 4 == 1 else line for row, line in enumerate(layer.lines)
    ]
    assert recogniser().probe(image, replace(layer, lines=tuple(lines)), scan=True) > 0.1
    assert recogniser().probe(image, replace(layer, lines=tuple(lines))) < 0.1


@needs_ocr
def test_quotes_dashes_case_and_spaces_do_not_count(drawn):
    image, layer = drawn
    other = changed(layer, lambda text: text.upper().replace(":", "\u2014").replace("(", "\u201c"))
    assert recogniser().probe(image, other) == pytest.approx(0.0, abs=0.05)


@needs_ocr
@pytest.mark.parametrize(
    "text", ["Библиотека стоит на холме", "도서관은 언덕 위에 있다", "المكتبة على تل", "ห้องสมุดบนเนินเขา"]
)
def test_a_script_that_cannot_be_read_is_not_judged(drawn, text):
    assert recogniser().probe(drawn[0], layer_of(*[text] * 5)) is None


@needs_ocr
def test_lines_that_the_picture_lacks_are_not_judged(drawn):
    image, layer = drawn
    white = image * 0 + 255
    assert recogniser().probe(white, layer) == 1.0
    assert recogniser().probe(white, replace(layer, undrawn=1.0)) is None
    half = white.copy()
    half[: image.shape[0] * 3 // 8] = image[: image.shape[0] * 3 // 8]
    assert recogniser().probe(half, replace(layer, undrawn=0.5)) == pytest.approx(0.0, abs=0.05)
    assert recogniser().probe(half, replace(changed(layer, shifted), undrawn=0.5)) > 0.8


@needs_ocr
def test_a_page_without_lines_is_not_judged(drawn):
    assert recogniser().probe(drawn[0], PageContent(612, 792)) is None


def test_samples_are_short_and_spread_over_the_page():
    chosen = samples(layer_of(*PROSE), 5.0)
    assert len(chosen) == 3
    assert all(10 <= len(text) <= 40 for _, text in chosen)
    assert [box.y0 for box, _ in chosen] == sorted({box.y0 for box, _ in chosen})


@pytest.mark.parametrize("by", range(1, 26))
def test_shifted_letters_are_suspicious(by):
    assert suspicious(layer_of(*(shifted(line.lower(), by) for line in PROSE)))


@pytest.mark.parametrize(
    "text",
    [
        " ".join(PROSE),
        "Die Bibliothek wurde auf einem Hügel über dem Hafen gebaut, und aus ihren Fenstern sahen die Leser Schiffe",
        "La bibliothèque fut bâtie sur une colline au-dessus du port, et de ses fenêtres on voyait les navires",
        "Biblioteka została zbudowana na wzgórzu nad portem, a z jej okien czytelnicy patrzyli na odpływające statki",
        "Knihovna byla postavena na kopci nad přístavem a z jejích oken mohli čtenáři pozorovat odplouvající lodě",
        "Kütüphane limanın üzerindeki bir tepede kuruldu ve okurlar pencerelerinden adalara giden gemileri izlerdi",
        "Kirjasto rakennettiin kukkulalle sataman yläpuolelle, ja sen ikkunoista lukijat katselivat lähteviä laivoja",
        "Библиотека была построена на холме над гаванью, и из её окон читатели смотрели на корабли",
        "図書館は港を見下ろす丘の上に建てられ、窓からは島々へ向かう船が見えた",
        "2041 1877 3302 9914 x y z",
        "",
    ],
)
def test_natural_text_is_not_suspicious(text):
    assert not suspicious(layer_of(text))


def test_characters_without_meaning_are_suspicious():
    assert suspicious(replace(layer_of(*PROSE), unmapped=40))
    assert suspicious(layer_of(*PROSE, "\ue001\ue002\ue003" * 10))
    assert not suspicious(replace(layer_of(*PROSE), unmapped=1))


def test_supported_scripts_are_those_that_the_recogniser_knows():
    assert all(map(script_supported, ["plain", "Ærøskøbing", "図書館のカタカナ", "12 + 3 = 15", ""]))
    assert not any(
        map(script_supported, ["ἀρχή και τέλος", "привет", "도서관", "مكتبة", "ספרייה", "पुस्तकालय", "ห้องสมุด"])
    )


@pytest.mark.parametrize(
    ("one", "other", "expected"), [("", "", 0), ("abc", "", 3), ("kitten", "sitting", 3), ("same", "same", 0)]
)
def test_the_edit_distance_is_levenshteins(one, other, expected):
    assert edit_distance(one, other) == edit_distance(other, one) == expected
