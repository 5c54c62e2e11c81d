"""Columns of worn newspapers are read one after the other, even if OCR splits their lines into words."""

from random import Random

from llm_ocr.types import Box, Line, PageContent, Word
from llm_ocr_cpu.page import laid_out

ROWS, WIDTH, LEADING = 44, 150.0, 11.0


def leaning_page(columns=4, shift=12.0, gutter=6.0):
    """Return justified columns that move by twice the width of their gutter; OCR boxes have unequal sizes and ends."""
    rng = Random(3)
    lines = []
    for column in range(columns):
        for row in range(ROWS):
            x, size = 20 + column * (WIDTH + gutter) + shift * row / ROWS + rng.uniform(-1, 1), rng.uniform(6, 11)
            y = 25 + row * LEADING
            box = Box(x, y - size / 2, x + WIDTH + rng.uniform(-1, 1), y + size / 2)
            text = f"running{column}{row:02} text of the column"
            lines.append(Line(text, box, size, (Word(text, box),)))
    return PageContent(60 + columns * (WIDTH + gutter), 40 + ROWS * LEADING, tuple(lines))


def test_columns_of_a_leaning_page_are_read_one_after_the_other():
    text = text_of(leaning_page())
    places = [text.index(f"running{column}{row:02}") for column in range(4) for row in range(ROWS)]
    assert places == sorted(places)


def worn_page(words, gutter=5.0):
    """Return two columns whose lines lost a word in the middle, with sizes as unsteady as those of poor OCR."""
    rng = Random(7)
    lines = []
    for row in range(ROWS):
        for column in range(2):
            x, y = 20 + column * (WIDTH + gutter), 20 + row * LEADING
            lost = x + WIDTH * rng.uniform(0.1, 0.6)
            for left, right, part in ((x, lost, "a"), (lost + 0.3 * WIDTH, x + WIDTH, "b")):
                text, size = f"{words[column]}{row:02}{part}", rng.uniform(6, 11)
                box = Box(left, y + 5 - size / 2, right, y + 5 + size / 2)
                lines.append(Line(text, box, size, (Word(text, box),)))
    return PageContent(400.0, 40 + ROWS * LEADING, tuple(lines))


def text_of(page):
    return "\n".join(block.text for block in laid_out(page))


def test_split_lines_of_narrow_columns_are_read_column_by_column():
    text = text_of(worn_page(("left", "right")))
    assert text.rindex("left43b") < text.index("right00a")


def test_split_lines_that_are_no_running_text_are_read_across():
    text = text_of(worn_page(("Left", "Right")))
    assert text.index("Right00a") < text.rindex("Left43b")


def test_boxes_far_off_page_or_without_extent_cost_no_memory():
    far = Box(1e9, 30, 1e9 + 50, 40)
    for box in (far, Box(20, 20, 20, 20)):
        lines = [Line(f"word{row}", box, 6 + row % 7, (Word(f"word{row}", box),)) for row in range(100)]
        lines += leaning_page().lines if box is far else ()
        assert "word7" in text_of(PageContent(700, 540, tuple(lines)))
