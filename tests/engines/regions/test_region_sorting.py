"""Which of a detector's regions count, and in which order they are read."""

from hypothesis import given
from hypothesis import strategies as st
from region_parts import GLM, region

from llm_ocr.engines.regions.detection import LABELS, Region, assigned, by_columns, task_of, tasks_with
from llm_ocr.types import Box

TASKS = tasks_with(())


def kept(*found: Region) -> list[str]:
    return [one.region.label for one in assigned(found, lambda label: task_of(label, TASKS, GLM.region_tasks))]


def test_of_two_boxes_for_one_thing_the_surer_one_stands():
    assert kept(region("text", 0.1, 0.1, 0.9, 0.2, score=0.5), region("text", 0.1, 0.1, 0.9, 0.21, score=0.8)) == [
        "text"
    ]
    same = (0.1, 0.1, 0.9, 0.2)
    assert kept(region("table", *same, score=0.5), region("text", *same, score=0.8)) == ["text"]
    beside = region("table", 0.1, 0.1, 0.9, 0.25, score=0.5)
    assert len(kept(beside, region("text", *same, score=0.8))) == 1  # a part of it


def test_what_is_read_with_its_surroundings_is_not_read_twice():
    paragraph, formula = region("text", 0.1, 0.1, 0.9, 0.5), region("inline_formula", 0.3, 0.2, 0.4, 0.25)
    assert kept(paragraph, formula) == ["text"]
    assert kept(region("image", 0.1, 0.1, 0.9, 0.5), region("text", 0.3, 0.2, 0.4, 0.25)) == ["image"]
    assert kept(region("table", 0.1, 0.1, 0.9, 0.5), region("image", 0.3, 0.2, 0.4, 0.25)) == ["table"]


def test_a_picture_in_a_text_stays_a_picture():
    assert kept(region("text", 0.1, 0.1, 0.9, 0.5), region("image", 0.3, 0.2, 0.4, 0.25)) == ["text", "image"]


def test_what_is_left_out_takes_no_text_along():
    assert kept(region("header", 0, 0, 1, 0.2), region("text", 0.1, 0.05, 0.9, 0.15)) == ["text"]
    assert kept(region("header", 0, 0, 1, 0.2), region("number", 0.9, 0.05, 0.95, 0.1)) == []


def test_a_box_around_entries_stands_only_where_it_is_empty():
    around = region("reference", 0.1, 0.1, 0.9, 0.5)
    assert kept(around) == ["reference"]
    entries = [region("reference_content", 0.1, 0.1 + i / 10, 0.9, 0.2 + i / 10) for i in range(4)]
    assert kept(around, *entries) == ["reference_content"] * 4


def test_a_picture_of_the_paper_is_no_picture_where_something_stands_on_it():
    paper = region("image", 0, 0, 1, 1)
    assert kept(paper, region("text", 0.1, 0.1, 0.9, 0.2)) == ["text"]
    assert kept(paper) == ["image"]


def test_specks_and_boxes_beside_the_page_are_nothing():
    assert kept(region("text", 0.5, 0.5, 0.5, 0.9), region("text", 1.1, 0.1, 1.5, 0.2)) == []


def test_the_order_of_the_detector_is_kept():
    found = [region("text", 0.1, 0.8, 0.9, 0.9, order=0), region("doc_title", 0.1, 0.1, 0.9, 0.2, order=1)]
    assert kept(*found) == ["text", "doc_title"]


def test_without_an_order_columns_are_read_one_after_the_other():
    boxes = [
        Box(0.55, 0.45, 0.9, 0.6),  # right, below
        Box(0.1, 0.05, 0.9, 0.1),  # title over both
        Box(0.1, 0.2, 0.45, 0.4),  # left, above
        Box(0.55, 0.2, 0.9, 0.35),  # right, above
        Box(0.1, 0.42, 0.45, 0.44),  # left, below, beside nothing
        Box(0.1, 0.8, 0.9, 0.9),  # table over both
        Box(0.1, 0.92, 0.45, 0.95),  # left, below the table
        Box(0.55, 0.92, 0.9, 0.95),
    ]
    assert by_columns(boxes) == [1, 2, 4, 3, 0, 5, 6, 7]


def test_a_letter_is_read_from_top_to_bottom():
    sender, recipient, date, body = (
        Box(0.6, 0.05, 0.9, 0.1),
        Box(0.1, 0.15, 0.4, 0.25),
        Box(0.6, 0.3, 0.9, 0.32),
        Box(0.1, 0.4, 0.9, 0.8),
    )
    assert by_columns([body, date, recipient, sender]) == [3, 2, 1, 0]


BOXES = st.builds(Box, *[st.floats(0, 1, width=16)] * 4).map(Box.clipped)
REGIONS = st.builds(Region, st.sampled_from(LABELS), BOXES, st.floats(0, 1), st.none() | st.integers(0, 300))


@given(st.lists(BOXES, max_size=40))
def test_every_box_has_its_turn_once(boxes):
    assert sorted(by_columns(boxes)) == list(range(len(boxes)))


@given(st.lists(REGIONS, max_size=30))
def test_whatever_a_detector_says_what_is_not_read_stands_in_something_else(found):
    def task(label: str) -> str:
        return task_of(label, TASKS, GLM.region_tasks)

    result = assigned(found, task)
    for one in result:
        box = one.region.box
        assert 0 <= box.x0 < box.x1 <= 1 and 0 <= box.y0 < box.y1 <= 1
        assert one.task == task(one.region.label) != "abandon"
    kept_boxes = [one.region.box for one in result]
    for number, one in enumerate(found):
        reads = task(one.label) in ("text", "table", "formula") and one.label != "reference"
        if reads and min(one.box.width, one.box.height) > 0.001 and one.box not in kept_boxes:
            others = [other.box for place, other in enumerate(found) if place != number]
            assert any(one.box.covered_by(other) >= 0.6 for other in others)
