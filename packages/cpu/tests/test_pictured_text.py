"""Pictures of tables and text on a digital page are read by OCR; charts, photos, and drawings stay figures."""

import io

import pytest
from ocr_pages import PROSE, content, needs_ocr, page, pixels, recogniser
from test_reading import Ocr

from llm_ocr.documents.images import encoded
from llm_ocr.engines.trace import collected
from llm_ocr.types import BlockKind, EncodedImage, Page
from llm_ocr_cpu import ocr
from llm_ocr_cpu.page import read_page
from llm_ocr_cpu.pictured_text import text_pictures

ROWS = [("Office", "Rent", "Staff"), ("Harbour", "1,250", "14"), ("Station", "980", "9"), ("Old mill", "2,310", "31")]
ROWS += [("Museum", "640", "5"), ("Library", "1,875", "22")]
WIDTH, HEIGHT = 300, 130


def drawing(*drawn, decorate=None):
    """A picture of a small page, 3 pixels per point."""
    from PIL import Image

    pdf = page(*drawn, width=WIDTH, height=HEIGHT, decorate=decorate)
    return Image.fromarray(pixels(pdf, longest=3 * WIDTH))


def table(decorate=None):
    cells = [
        (text, 10 + 110 * column, 110 - 20 * row, 11, "Helvetica")
        for row, texts in enumerate(ROWS)
        for column, text in enumerate(texts)
    ]
    return drawing(*cells, decorate=decorate)


def chart():
    def bars(canvas):
        canvas.line(30, 20, 290, 20)
        canvas.line(30, 20, 30, 125)
        canvas.setFillColorRGB(0.2, 0.3, 0.8)
        for number in range(6):
            canvas.rect(45 + 40 * number, 20, 22, 20 + 17 * ((number * 5) % 6), fill=1)

    labels = [(text, 42 + 40 * number, 8, 9, "Helvetica") for number, (text, *_) in enumerate(ROWS)]
    return drawing(*labels, *((str(20 * n), 10, 20 + 20 * n, 9, "Helvetica") for n in range(5)), decorate=bars)


def curve():
    """A chart that is only thin lines, as light as text."""

    def lines(canvas):
        canvas.rect(30, 20, 260, 105)
        for lift in (0, 15, 30):
            canvas.bezier(30, 25 + lift, 120, 30 + lift, 160, 160 - lift, 290, 60 + lift)

    marks = [(str(20 * n), 10, 20 + 20 * n, 9, "Helvetica") for n in range(5)]
    return drawing(*marks, *((str(n), 40 + 40 * n, 8, 9, "Helvetica") for n in range(6)), decorate=lines)


def photo():
    import numpy as np
    from PIL import Image

    rough = np.random.default_rng(1).integers(20, 220, (13, 30, 3)).astype(np.uint8)
    return Image.fromarray(rough).resize((3 * WIDTH, 3 * HEIGHT))


def read(picture, caption="", reader=recogniser):
    """The attempt for a page of text with this picture and caption below, and the messages about it."""
    from PIL import Image
    from reportlab.lib.utils import ImageReader

    def decorate(canvas):
        canvas.drawImage(ImageReader(picture), 40, 380, WIDTH, HEIGHT)

    words = [(text, 40, 640 - 17 * row, 12, "Helvetica") for row, text in enumerate(PROSE[:4])]
    pdf = page(*words, (caption, 40, 360, 12, "Helvetica"), width=500, height=700, decorate=decorate)
    shown, out = Image.fromarray(pixels(pdf, longest=1540)), io.BytesIO()
    shown.save(out, "JPEG", quality=90)
    image = EncodedImage(out.getvalue(), "image/jpeg", shown.width, shown.height)
    with collected() as decisions:
        attempt = read_page(Page("d-p2", "d", 2, image, content(pdf)), reader, text_layer=True)
    return attempt, [str(decision) for decision in decisions]


def kinds(attempt):
    return [block.kind for block in attempt.blocks]


@needs_ocr
def test_a_picture_of_a_table_becomes_a_table_at_its_place():
    attempt, messages = read(table())
    assert kinds(attempt) == [BlockKind.TEXT, BlockKind.TABLE]
    assert attempt.source == "text-layer"
    rows = [[cell.strip() for cell in row.strip("|").split("|")] for row in attempt.blocks[-1].text.splitlines()]
    assert [rows[0], *rows[2:]] == [list(row) for row in ROWS]
    assert "text: OCR read 18 lines in 1 of 1 pictures that look like text" in messages


@needs_ocr
def test_a_picture_of_a_striped_table_becomes_a_table():
    def stripes(canvas):
        for row in range(6):
            color = (0.15, 0.25, 0.45) if row == 0 else (0.88, 0.91, 0.96) if row % 2 else (1, 1, 1)
            canvas.setFillColorRGB(*color)
            canvas.rect(0, 105 - 20 * row, WIDTH, 20, fill=1, stroke=0)
        canvas.setFillColorRGB(1, 1, 1)
        for column, text in enumerate(ROWS[0]):
            canvas.drawString(10 + 110 * column, 110, text)
        canvas.setFillColorRGB(0, 0, 0)
        for row, texts in enumerate(ROWS[1:], 1):
            for column, text in enumerate(texts):
                canvas.drawString(10 + 110 * column, 110 - 20 * row, text)

    attempt, _ = read(drawing(decorate=stripes))
    assert kinds(attempt) == [BlockKind.TEXT, BlockKind.TABLE]
    assert all(cell in attempt.blocks[-1].text for row in ROWS for cell in row)


@pytest.mark.slow
@needs_ocr
@pytest.mark.parametrize("ground", [(0.1, 0.12, 0.2), (0.98, 0.92, 0.7), (1, 1, 1)], ids=["dark", "yellow", "white"])
def test_a_picture_of_text_on_any_ground_becomes_text(ground):
    def notice(canvas):
        canvas.setFillColorRGB(*ground)
        canvas.rect(0, 0, WIDTH, HEIGHT, fill=1, stroke=0)
        canvas.setFillColorRGB(*(1 - value for value in ground))
        for row, text in enumerate(PROSE[:5]):
            canvas.drawString(8, 110 - 16 * row, text)

    attempt, _ = read(drawing(decorate=notice))
    assert set(kinds(attempt)) == {BlockKind.TEXT}
    assert " ".join(PROSE[:5]) in attempt.blocks[-1].text


@needs_ocr
def test_labels_in_a_picture_of_boxes_stay_inside_of_the_figure():
    def boxes(canvas):
        for row in range(3):
            canvas.rect(40, 92 - 40 * row, 200, 30, fill=0)

    steps = ["Skipper signs the list", "Office checks the fee", "Boat leaves the quay"]
    labels = [(text, 60, 103 - 40 * row, 11, "Helvetica") for row, text in enumerate(steps)]
    attempt, _ = read(drawing(*labels, decorate=boxes))
    assert kinds(attempt) == [BlockKind.TEXT, BlockKind.FIGURE]
    assert attempt.blocks[-1].inside.split("\n") == steps


@needs_ocr
def test_a_picture_of_sentences_with_numbers_becomes_text():
    lines = [f"Clause {row} of the lease pays {48 + row}.20 crowns" for row in range(5)]
    picture = drawing(*((text, 8, 110 - 16 * row, 11, "Helvetica") for row, text in enumerate(lines)))
    attempt, _ = read(picture)
    assert set(kinds(attempt)) == {BlockKind.TEXT}
    assert [line.strip() for line in attempt.blocks[-1].text.splitlines()] == lines


@needs_ocr
def test_a_picture_behind_the_start_of_lines_is_not_read():
    from PIL import Image, ImageDraw
    from reportlab.lib.utils import ImageReader

    disc = Image.new("RGB", (400, 400), "white")
    ImageDraw.Draw(disc).ellipse((10, 10, 390, 390), fill=(229, 238, 255))

    def decorate(canvas):
        canvas.drawImage(ImageReader(disc), 30, 560, 90, 90)
        for row, text in enumerate(PROSE[:4]):
            canvas.drawString(40, 630 - 17 * row, text)

    pdf = page(width=500, height=700, decorate=decorate)
    assert text_pictures(encoded(Image.fromarray(pixels(pdf, longest=1540)), "png", 90), content(pdf)) == []


@needs_ocr
@pytest.mark.parametrize("picture", [chart, curve, photo])
def test_charts_and_photos_stay_figures_and_are_not_read(picture):
    loaded = Ocr()
    attempt, _ = read(picture(), reader=loaded)
    assert kinds(attempt) == [BlockKind.TEXT, BlockKind.FIGURE]
    assert loaded.asked == []


@needs_ocr
def test_words_around_a_drawing_stay_a_figure():
    attempt, messages = read(table(lambda canvas: canvas.circle(180, 80, 15)))
    assert BlockKind.FIGURE in kinds(attempt)
    assert "text: OCR read 0 lines in 0 of 1 pictures that look like text" in messages


@needs_ocr
def test_a_picture_with_the_caption_of_a_figure_stays_one():
    loaded = Ocr()
    attempt, _ = read(table(), caption="Figure 1: Offices of the company", reader=loaded)
    assert BlockKind.FIGURE in kinds(attempt)
    assert loaded.asked == []


def test_without_ocr_a_picture_of_a_table_stays_a_figure(monkeypatch):
    monkeypatch.setattr(ocr, "available", lambda: False)
    attempt, _ = read(table())
    assert kinds(attempt) == [BlockKind.TEXT, BlockKind.FIGURE]
