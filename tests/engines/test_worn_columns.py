"""Columns of worn newspapers are read one after the other, even if OCR splits their lines into words."""

from random import Random

from llm_ocr.engines.embedded.page import laid_out
from llm_ocr.types import Box, Line, PageContent, Word

ROWS, WIDTH, LEADING = 44, 150.0, 11.0


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
