"""Words of a text layer that the page does not show are left out and counted."""

import pypdfium2
import pytest
from pdf_writing import pages, text
from PIL import Image

import llm_ocr
from llm_ocr.documents.page_wire import from_wire, to_wire
from llm_ocr.types import PageContent
from llm_ocr_cpu.pdf_text import page_content

SEEN, SECRET = "The harbour opens at nine", "Secret order seven"
#: An image of letters: black and white columns, as wide as the letters of the invisible text above it.
COLUMNS = b"<</Type/XObject/Subtype/Image/Width 8/Height 1/ColorSpace/DeviceGray/BitsPerComponent 1/Length 1>>"
SCAN = COLUMNS + b"stream\n\xaa\nendstream"


def content(*drawn, extra=()):
    page = pypdfium2.PdfDocument(pages(b"\n".join(drawn), extra=extra))[0]
    picture: Image.Image = page.render(scale=2).to_pil()
    return page_content(page, picture=picture)


def texts(found):
    return [line.text for line in found.lines]


SECRET_LINE = text(SECRET, y=600)
HIDDEN = {
    "white on white": b"1 g " + SECRET_LINE + b" 0 g",
    "pale yellow": b"1 1 .9 rg " + SECRET_LINE + b" 0 g",
    "almost white": b".985 g " + SECRET_LINE + b" 0 g",
    "drawn invisibly": b"3 Tr " + SECRET_LINE + b" 0 Tr",
    "tiny": text(SECRET, y=600, size=1),
    "clipped": b"q 0 0 10 10 re W n " + SECRET_LINE + b" Q",
    "below a black bar": SECRET_LINE + b" 0 g 60 590 300 30 re f",
    "below a tight bar": SECRET_LINE + b" 0 g 70 598 130 11 re f",
    "below a white bar": SECRET_LINE + b" 1 g 60 590 300 30 re f 0 g",
    "black on black": b"0 g 60 590 300 30 re f " + SECRET_LINE,
    "turned and white": b"1 g " + text(SECRET, matrix="0 1 -1 0 60 300") + b" 0 g",
}


@pytest.mark.parametrize("way", HIDDEN)
def test_invisible_words_are_left_out_and_counted(way):
    found = from_wire(PageContent, to_wire(content(text(SEEN), HIDDEN[way])))
    assert (texts(found), found.invisible) == ([SEEN], len("Secretorderseven"))


@pytest.mark.parametrize(
    "drawn",
    [
        b"0 0 .4 rg 0 590 612 40 re f 1 g " + SECRET_LINE,
        b".8 g " + text(SECRET, y=600, size=6),
        text("I l 1 - i", y=600, size=9),
        text(SECRET, matrix="0 1 -1 0 60 300"),
        text(SECRET, matrix="0.9 0.4 -0.4 0.9 60 300"),
        SECRET_LINE + b" 1 0 0 RG 60 590 300 30 re S",
        b"0 .5 0 rg 60 590 300 30 re f .98 0 0 rg " + SECRET_LINE,  # as bright as the ground
    ],
)
def test_small_pale_and_white_print_that_is_seen_stays(drawn):
    found = content(text(SEEN), drawn)
    assert (len(found.lines), found.invisible) == (2, 0)


def test_letters_far_below_each_other_are_seen():
    corners = [("a", 36, 745), ("c", 36, 40), ("b", 570, 745), ("d", 570, 40)]
    found = content(*(text(letter, x, y, 14.7) for letter, x, y in corners))
    assert (sorted(texts(found)), found.invisible) == (["a", "b", "c", "d"], 0)


def test_invisible_text_over_the_scan_of_its_words_stays():
    scan = b"q 120 0 0 14 70 597 cm /X Do Q"
    found = content(scan, b"3 Tr " + SECRET_LINE, extra=(SCAN,))
    assert (texts(found), found.invisible) == ([SECRET], 0)


def test_only_the_words_below_a_bar_are_left_out():
    found = content(text("Name of the witness: Arlo Finch"), b"0 g 183 695 80 15 re f")
    assert (texts(found), found.invisible) == (["Name of the witness:"], len("ArloFinch"))


@pytest.mark.parametrize("shift", [0, 0.1, 0.2, 0.3, 0.4])  # pixels of the picture that the bar covers in part
def test_a_bar_as_wide_as_its_words_hides_them(shift):
    line = text("Witness: Arlo Finch, aged 41", x=72 + shift)
    letters = pypdfium2.PdfDocument(pages(line))[0].get_textpage()
    left, right = letters.get_charbox(9, loose=True)[0], letters.get_charbox(18, loose=True)[2]
    found = content(line, f"0 g {left} 695 {right - left} 15 re f".encode())
    assert ("".join(texts(found)).replace(" ", ""), found.invisible) == ("Witness:,aged41", len("ArloFinch"))


@pytest.mark.parametrize(
    ("shown", "setting", "markdown", "count"),
    [
        (b"1 g " + SECRET_LINE, "drop", SEEN, 16),
        (b"1 g " + SECRET_LINE, "keep", f"{SEEN}\n\n{SECRET}", 16),
        (SECRET_LINE + b" 0 g 60 590 300 30 re f", "keep", f"{SEEN}\n\n{SECRET}", 16),
        (SECRET_LINE, "keep", f"{SEEN}\n\n{SECRET}", 0),
    ],
)
def test_invisible_text_is_dropped_or_kept_and_always_counted(tmp_path, shown, setting, markdown, count):
    file = tmp_path / "order.pdf"
    file.write_bytes(pages(text(SEEN) + shown))
    few = {"render_workers": 1, "ocr_workers": 1}
    run = llm_ocr.extract(file, workspace=tmp_path / "w", engine="embedded", invisible_text=setting, **few)
    (page,) = run.pages()
    assert (page.markdown, page.invisible_chars, page.status) == (markdown, count, "ok")
    assert ("invisible" in page.detail) == (count > 0)
    again = llm_ocr.extract(workspace=tmp_path / "w", **few)  # the setting is remembered
    assert again.status.stages["extract"].finished
    assert [row.markdown for row in again.pages()] == [markdown]
