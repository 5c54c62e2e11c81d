"""Text that other text or a picture covers is no text of the page, although the picture has ink at its place."""

import pypdfium2
import pytest
from pdf_writing import PAPER, pages, stream, text

from llm_ocr.documents.hidden_text import hide_covered_text
from llm_ocr.documents.pdf_objects import page_frame, page_objects
from llm_ocr_cpu.pdf_text import page_content

OLD, NEW = text("The fee is 7154.83 crowns", y=600), text("The fee is 4821.50 crowns", y=600)
BAR = b"0 g 70 594 300 18 re f 1 g "
WHITE = b"1 g 70 594 300 18 re f 0 g "
#: Black and white columns, which have as much ink as letters.
PHOTO = b"<</Type/XObject/Subtype/Image/Width 128/Height 1/ColorSpace/DeviceGray/BitsPerComponent 1/Length 16>>"
PHOTO += b"stream\n" + 16 * b"\xaa" + b"\nendstream"
SEEN = text("The harbour opens at nine")


def read(drawn, *extra, **attributes):
    page = pypdfium2.PdfDocument(pages(SEEN + drawn, extra=(PHOTO, *extra), **attributes))[0]
    frame = page_frame(page)
    objects = page_objects(page, frame)
    hide_covered_text(page, frame, objects)
    content = page_content(page, objects, page.render(scale=2).to_pil())
    return [line.text for line in content.lines][1:], objects.covered_characters + content.invisible


@pytest.mark.parametrize(
    ("drawn", "expected"),
    [
        (OLD + WHITE + NEW, (["The fee is 4821.50 crowns"], 21)),
        (OLD + b"1 g 128 594 47 18 re f 0 g " + text("4821.50", x=129, y=600), (["The fee is 4821.50 crowns"], 7)),
        (OLD + b"q 300 0 0 30 70 590 cm /X Do Q", ([], 21)),
        (b"q 300 0 0 30 70 590 cm /X Do Q 3 Tr " + NEW, (["The fee is 4821.50 crowns"], 0)),  # OCR of the picture
        (b"q 612 0 0 580 0 0 cm /X Do Q " + OLD + WHITE + NEW, (["The fee is 4821.50 crowns"], 21)),  # on a background
        (NEW + text("The fee is 4821.50 crowns", x=72.3, y=600), (["The fee is 4821.50 crowns"], 0)),  # looks bold
        (OLD + text("7154.83", x=300, y=600), (["The fee is 7154.83 crowns", "7154.83"], 0)),
        (OLD + BAR + text("REDACTED BY COURT", x=90, y=605), (["REDACTED BY COURT"], 21)),
        (OLD + b"14 w 70 604 m 370 604 l S 1 g " + text("(b)(6)", x=200, y=600), (["(b)(6)"], 21)),
        (OLD + b"0 g 128 594 90 18 re f 1 g " + text("(b)(6)", x=140, y=600), (["The fee is (b)(6)"], 13)),
        (b"q 7 Tr " + NEW + b"300 0 0 30 70 590 cm /X Do Q ", (["The fee is 4821.50 crowns"], 0)),  # filled with it
        (b"q 7 Tr " + OLD + b"Q " + NEW, (["The fee is 4821.50 crowns"], 21)),  # a clip that shows nothing
    ],
)
def test_only_the_text_on_top_is_read(drawn, expected):
    assert read(drawn) == expected


def test_text_below_a_mark_of_redaction_is_not_read():
    about = b"/Type/XObject/Subtype/Form/BBox[0 0 300 40]/Resources<</Font<</F 3 0 R>>>>"
    label = stream(b"0 g 0 0 300 40 re f 1 g " + text("REDACTED BY COURT", x=20, y=16), about)
    note = b"/Annots[<</Type/Annot/Subtype/Redact/Rect[70 585 370 625]/F 4/AP<</N 5 0 R>>>>]"
    assert read(OLD, label, attributes=PAPER + note) == ([], 21)


@pytest.mark.parametrize(
    "drawn",
    [
        WHITE + NEW,  # a cell
        NEW + b"/H gs 1 1 0 rg 70 594 300 18 re f ",  # a highlight
        NEW + b"70 602 300 4 re f ",  # struck through
        NEW + text("I", y=500, size=48) + b"75 499 8 36 re f ",  # the letter again as a shape
    ],
)
def test_text_that_shapes_leave_visible_is_read(drawn):
    pdf = pages(SEEN + drawn, extra=(PHOTO, b"<</ca .4>>"))
    page = pypdfium2.PdfDocument(pdf.replace(b"/XObject<<", b"/ExtGState<</H 5 0 R>>/XObject<<"))[0]
    frame = page_frame(page)
    objects = page_objects(page, frame)
    hide_covered_text(page, frame, objects)
    assert not objects.covered


def test_layer_that_is_off_gives_no_text_between_visible_words():
    layers = b"/OC /L BDC " + OLD + b"EMC " + NEW
    pdf = pages(SEEN + layers, extra=(PHOTO, b"<</Type/OCG/Name(old)>>"))
    pdf = pdf.replace(b"/XObject<</X 4 0 R>>", b"/Properties<</L 5 0 R>>")
    off = b"<</Type/Catalog/OCProperties<</OCGs[5 0 R]/D<</OFF[5 0 R]>>>>"
    page = pypdfium2.PdfDocument(pdf.replace(b"<</Type/Catalog", off, 1))[0]
    frame = page_frame(page)
    objects = page_objects(page, frame)
    hide_covered_text(page, frame, objects)
    content = page_content(page, objects, page.render(scale=2).to_pil())
    assert [line.text for line in content.lines] == ["The harbour opens at nine", "The fee is 4821.50 crowns"]
