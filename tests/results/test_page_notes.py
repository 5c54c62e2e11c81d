"""What the dataset says of a page beside its text: the model's word, else what the blocks show."""

from dataclasses import replace

import pytest
from made import failed, record

from llm_ocr.results.dataset import page_notes
from llm_ocr.types import Block, BlockKind, Box

TALL = Box(0.1, 0.1, 0.9, 0.8)
WHOLE = Box(0, 0, 1, 1)
CELLS = "<table><tr><td>Hollow Bridge</td><td>412</td></tr></table>"


def notes(*blocks: Block, **changes):
    return page_notes(record(blocks=tuple(blocks), **changes))


def block(kind: BlockKind, box: Box, text: str = "", label: str = "") -> Block:
    return Block(kind, box, text, label)


def test_the_models_word_counts():
    said = {
        "primary_language": "de",
        "is_rotation_valid": True,
        "rotation_correction": 0,
        "is_table": True,
        "is_diagram": False,
    }
    shown = notes(block(BlockKind.TEXT, TALL, "Only text."), notes=said, rotation=90)
    assert shown == {**said, "rotation": 90, "is_fallback": False}


def test_what_nobody_said_is_not_known():
    shown = notes(block(BlockKind.TEXT, TALL, "Only text."))
    assert (shown["primary_language"], shown["is_rotation_valid"], shown["rotation_correction"]) == (None, None, None)
    assert (shown["is_table"], shown["is_diagram"], shown["rotation"]) == (False, False, 0)


@pytest.mark.parametrize("box", [TALL, WHOLE])
def test_a_page_of_tables_has_more_than_half_of_its_text_in_them(box):
    table = block(BlockKind.TABLE, box, CELLS * 3)
    assert notes(table, block(BlockKind.TEXT, box, "Levels of the river."))["is_table"] is True
    assert notes(table, block(BlockKind.TEXT, box, "Levels of the river. " * 9))["is_table"] is False


def test_a_page_of_diagrams_shows_charts_on_more_than_half_of_it():
    line = block(BlockKind.TEXT, Box(0.1, 0.9, 0.9, 0.95), "Figure 1: levels.")
    for label, expected in (("chart", True), ("Diagram", True), ("image", False)):
        assert notes(block(BlockKind.FIGURE, TALL, label=label), line)["is_diagram"] is expected
    small = block(BlockKind.FIGURE, Box(0.1, 0.1, 0.3, 0.2), label="chart")
    assert notes(small, block(BlockKind.TEXT, WHOLE, "Text without a place."))["is_diagram"] is False
    assert notes(replace(small, box=TALL), block(BlockKind.TEXT, WHOLE, "Words."))["is_diagram"] is True


def test_a_page_that_failed_is_of_no_kind_and_a_blank_one_of_neither():
    shown = page_notes(failed())
    assert (shown["is_table"], shown["is_diagram"], shown["is_fallback"]) == (None, None, False)
    assert notes(blank=True)["is_table"] is False


@pytest.mark.parametrize(
    ("source", "attempts", "expected"),
    [
        ("text-layer", ({"status": "failed", "server": "http://a"}, {"status": "ok", "source": "text-layer"}), True),
        ("ocr", ({"status": "failed", "server": ""},), True),
        ("text-layer", ({"status": "ok", "source": "text-layer"},), False),  # of the embedded engine
        ("model", ({"status": "failed", "server": "a"}, {"status": "ok", "server": "a"}), False),
    ],
)
def test_a_fallback_is_a_page_that_another_reader_than_the_model_read(source, attempts, expected):
    page = record(text_source=source, attempts=attempts)
    assert page.is_fallback is expected
    assert page_notes(page)["is_fallback"] is expected
