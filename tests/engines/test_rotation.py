"""Scans that lie on a side or on their head are turned; whatever is upright stays so."""

import pytest
from ocr_pages import PROSE, downwards, needs_ocr, page, pixels, prose, recogniser

pytestmark = needs_ocr


@pytest.fixture(scope="module")
def upright():
    return pixels(page(*prose()))


@pytest.mark.parametrize("quarters", [0, 1, 2, 3])
def test_a_page_turned_in_any_way_gives_the_same_text(upright, quarters):
    import numpy

    read = recogniser().read(numpy.ascontiguousarray(numpy.rot90(upright, quarters)))  # counterclockwise
    assert read.rotation == 90 * quarters
    assert read.turned is (quarters != 0)
    assert read.image.shape == upright.shape
    assert downwards(read.lines) == PROSE


def test_the_upright_image_holds_the_same_pixels(upright):
    import numpy

    read = recogniser().read(numpy.ascontiguousarray(numpy.rot90(upright)))
    assert numpy.array_equal(read.image, upright)


@pytest.mark.parametrize(
    "drawn",
    [
        [("Preface", 150, 200, 24, "Helvetica")],
        [("17", 190, 20, 10, "Helvetica")],
        [
            (str(number), 40 + 60 * column, 260 - 20 * number, 10, "Helvetica")
            for number in range(9)
            for column in (0, 3)
        ],
        [("NOON", 60, 200, 30, "Helvetica"), ("SOS", 200, 100, 30, "Helvetica")],
    ],
    ids=["one word", "a page number", "columns of digits", "words that read both ways"],
)
def test_an_upright_page_with_little_text_is_not_turned(drawn):
    assert recogniser().read(pixels(page(*drawn))).rotation == 0


def test_a_chart_with_standing_labels_does_not_turn_its_page():
    labels = ["January", "February", "March", "April", "August", "September", "October", "November"]

    def chart(canvas):
        canvas.rect(30, 80, 320, 170)
        canvas.saveState()
        canvas.rotate(90)
        canvas.setFont("Helvetica", 11)
        for index, label in enumerate(labels):
            canvas.drawString(90, -50 - 36 * index, f"{label} of the year")
        canvas.restoreState()

    title = [("Visitors by month", 60, 265, 12, "Helvetica"), ("Figure 3: the year", 60, 50, 10, "Helvetica")]
    read = recogniser().read(pixels(page(*title, decorate=chart)))
    assert read.rotation == 0
    assert {"Visitors by month", "Figure 3: the year"} <= {line.text for line in read.lines}
