"""The detector looks only at what is not plain on a page, and loses nothing by it."""

import pytest
from ocr_pages import PROSE, downwards, needs_ocr, page, pixels, prose, recogniser

pytestmark = needs_ocr


def parts_of(image):
    from llm_ocr.engines.embedded.ocr.detect import filled_parts

    return filled_parts(image)


def paper(height=1600, width=1200, value=255):
    import numpy

    return numpy.full((height, width, 3), value, numpy.uint8)


def inside(parts, y, x):
    return any(top <= y < bottom and left <= x < right for top, bottom, left, right in parts)


def test_a_plain_page_has_no_parts_whatever_its_colour():
    assert parts_of(paper()) == parts_of(paper(value=90)) == []


def test_text_far_apart_lies_in_parts_of_its_own_and_what_is_near_in_one():
    image = paper()
    for row in (200, 230, 260, 1400):
        image[row : row + 16, 300:700] = 0
    parts = parts_of(image)
    assert len(parts) == 2
    assert all(inside(parts, y, x) for y in (200, 275, 1400, 1415) for x in (300, 699))
    assert sum((bottom - top) * (right - left) for top, bottom, left, right in parts) < 0.1 * image.shape[0] * 1200


@pytest.mark.parametrize("y, x", [(0, 0), (1598, 0), (0, 1197), (1598, 1197), (700, 16)])
def test_a_faint_mark_anywhere_is_in_a_part_with_paper_around_it(y, x):
    image = paper(1600, 1199)
    image[y : y + 2, x : x + 2] = (255, 255, 231)  # the least contrast that a page with text has, in one colour
    ((top, bottom, left, right),) = parts_of(image)
    assert top <= max(0, y - 16) and bottom >= min(1600, y + 18)
    assert left <= max(0, x - 16) and right >= min(1199, x + 18)


def test_the_paper_grain_of_a_jpeg_is_plain():
    import numpy

    grain = numpy.random.default_rng(3).integers(-5, 6, (800, 600, 3))
    assert parts_of((240 + grain).astype(numpy.uint8)) == []


def test_the_same_lines_are_read_at_both_ends_of_a_long_page_and_where_they_were():
    lines = [*prose(top=1500), *prose(top=150)]
    image = pixels(page(*lines, width=1130, height=1540), longest=1540)
    read = recogniser().read(image).lines
    assert downwards(read) == PROSE * 2
    tops = sorted(line.box.y0 for line in read if line.text == PROSE[0])
    assert tops[0] == pytest.approx(1540 - 1500 - 9, abs=6)
    assert tops[1] == pytest.approx(1540 - 150 - 9, abs=6)


def test_grey_text_on_grey_paper_is_read():
    image = pixels(page(*prose()))
    faint = (200 + image.astype("float32") * 40 / 255).astype("uint8")
    assert downwards(recogniser().read(faint).lines) == PROSE
