"""What is known of a page before anybody reads it: its text layer in short, and where its ink is."""

import zlib

from making import pages, text, written
from PIL import Image, ImageDraw
from test_rendering import outcome, with_renderer

from llm_ocr.documents.images import ink_of
from llm_ocr.documents.page_wire import evidence_from_wire, evidence_to_wire
from llm_ocr.types import Ink


def black(ink: Ink) -> Image.Image:
    return Image.frombytes("1", (ink.width, ink.height), zlib.decompress(ink.packed))


def seen(source, **options):
    async def steps(renderer):
        return await outcome(renderer, str(source), 1)

    return with_renderer(steps, **options)


def test_lines_of_a_pdf_come_with_their_places_whether_or_not_its_text_layer_is_read(tmp_path):
    source = written(tmp_path / "a.pdf", pages(text("Above all", y=700) + text("Below it", y=100)))
    for wanted in (True, False):
        page = seen(source, text_layer=wanted)
        assert [line for line, _ in page.evidence.lines] == ["Above all", "Below it"]
        above, below = (box for _, box in page.evidence.lines)
        assert 0 < above.y0 < above.y1 < 0.3 < 0.7 < below.y0 < below.y1 < 1
        assert (page.content is None) is not wanted


def test_ink_is_where_text_is(tmp_path):
    page = seen(written(tmp_path / "a.pdf", pages(text("Above all", y=700))))
    box = page.evidence.lines[0][1]
    ink = black(page.evidence.ink)
    left, top, right, bottom = ink.getbbox()
    assert abs(left / ink.width - box.x0) < 0.02 and abs(right / ink.width - box.x1) < 0.02
    assert abs(top / ink.height - box.y0) < 0.03 and abs(bottom / ink.height - box.y1) < 0.03


def test_image_files_have_ink_and_no_lines(tmp_path):
    image = Image.new("RGB", (400, 300), "white")
    ImageDraw.Draw(image).rectangle((100, 150, 300, 200), fill="black")
    for name in ("a.png", "a.jpg"):
        image.save(tmp_path / name)
        evidence = seen(tmp_path / name).evidence
        assert (evidence.lines, evidence.pictured) == ((), 0.0)
        left, top, right, bottom = black(evidence.ink).getbbox()
        assert (round(left, -1), round(top, -1), round(right, -1), round(bottom, -1)) == (100, 150, 300, 200)


def test_on_dark_paper_ink_is_what_is_light():
    image = Image.new("L", (200, 100), 20)
    ImageDraw.Draw(image).rectangle((50, 40, 80, 60), fill=230)
    assert black(ink_of(image)).getbbox() == (50, 40, 81, 61)
    assert black(ink_of(Image.new("RGB", (50, 50), "pink"))).getbbox() is None


def test_evidence_comes_from_the_worker_as_it_was(tmp_path):
    evidence = seen(written(tmp_path / "a.pdf", pages(text("Above all", y=700)))).evidence
    assert evidence_from_wire(evidence_to_wire(evidence)) == evidence


def test_a_form_that_was_filled_in_has_no_lines_as_they_are_not_all(tmp_path):
    from reportlab.pdfgen.canvas import Canvas

    canvas = Canvas(str(tmp_path / "form.pdf"))
    canvas.drawString(72, 700, "Your name, please")
    canvas.acroForm.textfield(name="name", value="Ada Lovelace", x=72, y=600, width=200, height=24)
    canvas.save()
    page = seen(tmp_path / "form.pdf")
    assert page.evidence.lines == ()
    assert black(page.evidence.ink).getbbox() is not None
