"""A paragraph that goes on in the next column has a box in each, and none that covers both."""

from llm_ocr.engines.embedded.layout import page_blocks
from llm_ocr.types import Box, Line, PageContent


def column(x: float, texts: list[str], top: float = 100.0) -> list[Line]:
    return [Line(text, Box(x, top + 14 * i, x + 200, top + 14 * i + 10), 10.0) for i, text in enumerate(texts)]


def test_a_paragraph_over_a_column_break_has_one_box_in_each_column():
    first = [
        "The water of the river rises in the night and falls in",
        "the day, as it has done for as long as anyone knows,",
    ]
    second = [
        "while the people who live beside it sleep and wake by",
        "its sound, and think nothing of it until it is gone.",
    ]
    filler = ["Every sentence of this column fills its line to the end." for _ in range(20)]
    left = column(50, [*filler, *first])
    right = column(310, [*second, *filler])
    blocks = page_blocks(PageContent(560, 800, (*left, *right)), [])
    joined = next(block for block in blocks if "as anyone knows, while the people" in block.text)
    boxes = [joined.box, *joined.continued]
    assert len(boxes) == 2
    assert all(box.width < 0.5 for box in boxes)
    assert boxes[0].x1 < boxes[1].x0
