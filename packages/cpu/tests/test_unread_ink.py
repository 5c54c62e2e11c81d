"""Text that a page shows outside of its text layer is read: outlines, stamps, and the scan below a library's line."""

import pypdfium2
import pytest
from ocr_pages import PROSE, needs_ocr, recogniser
from pdf_writing import pages, text

import llm_ocr
from llm_ocr.documents.images import encoded
from llm_ocr.documents.ink import ink_of
from llm_ocr.documents.page_wire import from_wire, page_to_wire
from llm_ocr.types import BlockKind, Box, Evidence, Page, Status
from llm_ocr_cpu.page import read_page
from llm_ocr_cpu.pdf_text import page_content

PAID = "Paid 4821.50 crowns"
SHORT, LAYER = (b"".join(text(line, y=700 - 18 * row) for row, line in enumerate(PROSE * times)) for times in (1, 4))
#: A pattern is drawn like outlines: pdfium reads no text of it.
TILE = (
    b"<</Type/Pattern/PatternType 1/PaintType 1/TilingType 1/BBox[0 0 300 40]/XStep 300/YStep 400/Matrix[1 0 0 1 72 40]"
)
TILE += b"/Resources<</Font<</F 3 0 R>>>>/Length %d>>stream\n%s\nendstream"


def read(pdf):
    page = pypdfium2.PdfDocument(pdf)[0]
    picture = page.render(scale=2).to_pil()
    evidence = Evidence(ink_of(picture.convert("RGB")))
    found = Page(
        "p", "d", 1, encoded(picture.convert("RGB"), "png", 90), page_content(page, picture=picture), "x.pdf", evidence
    )
    return read_page(from_wire(Page, page_to_wire(found)), recogniser, text_layer=True)


def lines(attempt):
    return [line for block in attempt.blocks for line in block.text.splitlines()]


@needs_ocr
def test_one_line_drawn_without_text_is_read_on_a_full_page():
    drawn = text(PAID, 4, 10)
    pdf = pages(LAYER + b"/Pattern cs /P scn 72 40 300 40 re f", extra=(TILE % (len(drawn), drawn),))
    pdf = pdf.replace(b"/XObject<</X 4 0 R>>", b"/Pattern<</P 4 0 R>>")
    attempt = read(pdf)
    assert (attempt.status, attempt.source) == (Status.OK, "text-layer")
    assert PAID in lines(attempt)
    assert " ".join(lines(attempt)).count(PROSE[0]) == 4


@pytest.mark.slow
@needs_ocr
@pytest.mark.parametrize("degrees", [5, 9])
def test_a_scan_that_lies_oblique_is_ok(tmp_path, degrees):
    picture = pypdfium2.PdfDocument(pages(LAYER))[0].render(scale=2).to_pil().convert("RGB")
    picture.rotate(degrees, fillcolor="white").save(tmp_path / "sheet.png")
    run = llm_ocr.extract([str(tmp_path / "sheet.png")], workspace=tmp_path / "out", engine="embedded")
    (page,) = run.pages(images=False)
    assert PROSE[0] in " ".join(page.markdown.split())
    assert (page.status, page.ledger.unread) == (Status.OK, ())


#: Marks of a logo in ragged columns, which look like letters.
MARKS = b"".join(b"\xff" * 3 + bytes([0] * (2 + at % 3)) for at in range(40))


@needs_ocr
def test_small_picture_without_readable_text_is_a_figure(monkeypatch):
    width = 160
    row = (MARKS * 2)[:width]
    data = b"".join(row[7 * (y // 3) % 40 :] + row[: 7 * (y // 3) % 40] for y in range(20))
    logo = b"<</Type/XObject/Subtype/Image/Width 160/Height 20/ColorSpace/DeviceGray/BitsPerComponent 8/Length %d>>"
    image = logo % len(data) + b"stream\n" + data + b"\nendstream"
    pdf = pages(LAYER[: len(LAYER) // 4] + b"q 110 0 0 14 250 60 cm /X Do Q", extra=(image,))
    (figure,) = [block for block in read(pdf).blocks if block.kind is BlockKind.FIGURE]
    assert figure.box.iou(Box(250 / 612, 718 / 792, 360 / 612, 732 / 792)) > 0.7
    monkeypatch.setattr("llm_ocr_cpu.ocr.available", lambda: False)
    assert BlockKind.FIGURE not in [block.kind for block in read(pdf).blocks]  # without OCR, it may be text


@needs_ocr
def test_page_with_nothing_but_rules_has_no_figure():
    assert read(pages(b"0 g 72 400 450 1 re f 72 700 450 1 re f")).blocks == ()


@needs_ocr
def test_scan_that_shows_no_text_has_no_figure():
    dot = b"\xff" * 2000 + b"\x00" + b"\xff" * 2095
    scan = b"<</Type/XObject/Subtype/Image/Width 64/Height 64/ColorSpace/DeviceGray/BitsPerComponent 8/Length 4096>>"
    scan += b"stream\n" + dot + b"\nendstream"
    assert read(pages(b"q 612 0 0 792 0 0 cm /X Do Q", extra=(scan,))).blocks == ()


@needs_ocr
def test_page_with_nothing_but_a_drawing_is_a_figure():
    attempt = read(pages(b"1 0 0 rg 300 500 40 30 re f"))
    assert (attempt.status, [block.kind for block in attempt.blocks]) == (Status.OK, [BlockKind.FIGURE])


def scan(strips=1):
    """A page of prose as an image, in strips, below the line that a court prints on its files."""
    page = pypdfium2.PdfDocument(pages(SHORT))[0]
    picture = page.render(scale=2).to_pil().convert("L")
    high = picture.height // strips
    head = (
        b"<</Type/XObject/Subtype/Image/Width %d/Height %d/ColorSpace/DeviceGray/BitsPerComponent 8/Length %d>>stream\n"
    )
    images, drawn = [], b""
    for strip in range(strips):
        data = picture.crop((0, strip * high, picture.width, (strip + 1) * high)).tobytes()
        images.append(head % (picture.width, high, len(data)) + data + b"\nendstream")
        drawn += b"q 612 0 0 %f 0 %f cm /X%d Do Q " % (792 / strips, 792 - 792 * (strip + 1) / strips, strip)
    names = b"".join(b"/X%d %d 0 R" % (strip, 4 + strip) for strip in range(strips))
    pdf = pages(drawn + text("Case 1:26-cv-00417 Document 12 Filed 05/03/26", y=770, size=9), extra=tuple(images))
    return pdf.replace(b"/X 4 0 R", names)


@pytest.mark.slow
@needs_ocr
def test_scan_below_a_printed_line_is_read_by_ocr():
    for strips in (1, 6):
        attempt = read(scan(strips))
        joined = " ".join(lines(attempt))
        assert (attempt.status, attempt.source) == (Status.OK, "ocr")
        assert PROSE[0] in joined and "26-cv-00417" in joined
