"""Regions of a page: which count, in which order, what each is asked, and the blocks of their answers."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from region_parts import GLM, PADDLE, region

from llm_ocr.engines.regions.answers import merged
from llm_ocr.engines.regions.detection import (
    DEFAULT_TASKS,
    LABELS,
    TASKS,
    Region,
    assigned,
    by_columns,
    task_of,
    tasks_with,
)
from llm_ocr.errors import UsageError
from llm_ocr.results.markdown import blocks_to_markdown
from llm_ocr.types import Block, BlockKind, Box

USUAL = tasks_with(())


Read = tuple[Region, tuple[Block, ...]]


def answered(label: str, text: str | None, *sides: float, profile=GLM) -> Read:
    task = task_of(label, USUAL, profile.region_tasks)
    mode = profile.region_tasks.get(task, "")
    parse = profile.parsers.get(mode) or profile.parsers[""]
    blocks = () if text is None else parse(text, None).blocks
    return replace(region(label, *(sides or (0.1, 0.1, 0.9, 0.2))), task=task), blocks


def made(*read: Read) -> list[tuple[str, str, int]]:
    return [(block.kind.value, block.text, block.level) for block in merged(read)]


def markdown(*read: Read) -> str:
    return blocks_to_markdown(merged(read))


@pytest.mark.parametrize("text", ["The Rhine", "# The Rhine", "### The Rhine"])
def test_titles_and_headings_have_the_level_of_their_label(text):
    assert made(answered("doc_title", text)) == [("title", "The Rhine", 0)]
    assert made(answered("paragraph_title", text)) == [("heading", "The Rhine", 1)]
    assert markdown(answered("doc_title", text), answered("paragraph_title", text)) == "# The Rhine\n\n## The Rhine"


def test_what_looks_like_a_heading_in_a_text_is_text():
    assert made(answered("text", "# Not a title\n\nmore")) == [("text", "Not a title\n\nmore", 0)]


def test_lists_formulas_and_tables_in_a_text_are_what_they_are():
    kinds = [
        kind for kind, _, _ in made(answered("text", "Three:\n\n- one\n- two\n\n$$\nx\n$$\n\n| a |\n| - |\n| 1 |"))
    ]
    assert kinds == ["text", "list_item", "list_item", "formula", "table"]


def test_tables_are_those_of_the_models_form():
    assert made(answered("table", "<fcel>Item<fcel>Qty<nl><fcel>Bolt<fcel>12<nl>", profile=PADDLE)) == [
        ("table", "<table><tr><td>Item</td><td>Qty</td></tr><tr><td>Bolt</td><td>12</td></tr></table>", 0)
    ]
    html = "<table><tr><td>1</td></tr></table>"
    assert made(answered("table", html)) == [("table", html, 0)]


def test_a_formulas_number_goes_into_the_formula_beside_it():
    first = answered("display_formula", "a = b", 0.3, 0.1, 0.7, 0.2)
    second = answered("display_formula", "$$c = d$$", 0.3, 0.3, 0.7, 0.4)
    number = answered("formula_number", "(2.1)", 0.8, 0.33, 0.85, 0.36)
    assert made(first, second, number) == [("formula", "$$\na = b\n$$", 0), ("formula", "$$\nc = d \\tag{2.1}\n$$", 0)]


@pytest.mark.parametrize(("formula", "number"), [("a = b \\tag{1}", "(1)"), ("a = b", "[1]"), ("a = b", "1")])
def test_a_number_is_written_once(formula, number):
    read = [
        answered("formula_number", number, 0.8, 0.1, 0.85, 0.2),
        answered("display_formula", formula, 0.3, 0.1, 0.7, 0.2),
    ]
    assert made(*read) == [("formula", "$$\na = b \\tag{1}\n$$", 0)]


def test_a_number_without_a_formula_stays_as_text():
    alone = answered("formula_number", "(1)", 0.8, 0.5, 0.85, 0.6)
    assert made(alone) == [("text", "(1)", 0)]
    far = answered("display_formula", "a = b", 0.3, 0.1, 0.7, 0.2)
    unread = answered("display_formula", None, 0.3, 0.5, 0.7, 0.6)
    assert made(far, unread, alone)[-1] == ("text", "(1)", 0)


def test_captions_belong_to_the_figures_beside_them():
    figure = answered("image", None, 0.1, 0.1, 0.9, 0.4)
    caption = answered("figure_title", "# Figure 1.\nSales", 0.1, 0.42, 0.9, 0.45)
    blocks = merged([figure, caption])
    assert [(block.kind, block.caption) for block in blocks] == [
        (BlockKind.FIGURE, "Figure 1. Sales"),
        (BlockKind.CAPTION, ""),
    ]


def test_unanswered_region_leaves_nothing_and_picture_its_place():
    assert made(answered("text", None), answered("table", None)) == []
    (figure,) = merged([answered("image", None, 0.2, 0.2, 0.4, 0.4)])
    assert (figure.kind, figure.box, figure.label) == (BlockKind.FIGURE, Box(0.2, 0.2, 0.4, 0.4), "image")


def test_boxes_of_an_answer_are_those_of_its_region():
    half = Block(BlockKind.TABLE, Box(0, 0.5, 1, 1), "| a |\n| - |", "table")
    (block,) = merged([(replace(region("table", 0.25, 0.5, 0.75, 1.0), task="table"), (half,))])
    assert block.box == Box(0.25, 0.75, 0.75, 1.0)


def words(text: str) -> Sequence[str]:
    return [word for word in text.split() if word.isalnum()]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(LABELS), st.lists(st.sampled_from(["alpha", "beta", "gamma"]), min_size=1, max_size=5)
        ),
        max_size=8,
    )
)
def test_no_word_of_an_answer_is_lost(answers):
    read = []
    for number, (label, said) in enumerate(answers):
        task = task_of(label, USUAL, GLM.region_tasks)
        if task in ("text", "table"):
            read.append(answered(label, " ".join(said), 0.1, number / 10, 0.9, number / 10 + 0.1))
    wanted = [word for _, blocks in read for block in blocks for word in words(block.text)]
    assert words(" ".join(block.text for block in merged(read))) == wanted


def kept(*found: Region) -> list[str]:
    return [one.label for one in assigned(found, lambda label: task_of(label, USUAL, GLM.region_tasks))]


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


def test_picture_of_the_paper_is_dropped_if_it_has_content_on_it():
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
def test_any_unread_detected_region_is_covered_by_another(found):
    def task(label: str) -> str:
        return task_of(label, USUAL, GLM.region_tasks)

    result = assigned(found, task)
    for one in result:
        box = one.box
        assert 0 <= box.x0 < box.x1 <= 1 and 0 <= box.y0 < box.y1 <= 1
        assert one.task == task(one.label) != "abandon"
    kept_boxes = [one.box for one in result]
    for number, one in enumerate(found):
        reads = task(one.label) in ("text", "table", "formula") and one.label != "reference"
        if reads and min(one.box.width, one.box.height) > 0.001 and one.box not in kept_boxes:
            others = [other.box for place, other in enumerate(found) if place != number]
            assert any(one.box.covered_by(other) >= 0.6 for other in others)


def task(label: str, *changes: str, profile=GLM) -> str:
    return task_of(label, tasks_with(changes, any_label=True), profile.region_tasks)


def test_every_label_of_the_detector_has_a_task():
    assert len(LABELS) == 25
    assert set(LABELS) == set(DEFAULT_TASKS)
    assert set(DEFAULT_TASKS.values()) <= set(TASKS)


@pytest.mark.parametrize(
    ("label", "wanted"),
    [
        ("text", "text"),
        ("doc_title", "text"),
        ("table", "table"),
        ("inline_formula", "formula"),
        ("image", "skip"),
        ("chart", "skip"),
        ("header", "abandon"),
        ("number", "abandon"),
        ("footnote", "text"),
        # Labels of other detectors go by their meaning.
        ("Section-header", "text"),
        ("Picture", "skip"),
        ("Page-footer", "abandon"),
        ("Formula", "formula"),
        ("odd", "text"),
    ],
)
def test_the_usual_tasks(label, wanted):
    assert task(label) == wanted


def test_users_changes_come_first():
    assert task("header", "Header = Text") == "text"
    assert task("chart", "chart=abandon", "chart=table") == "table"


def test_labels_without_prompt_are_text_and_charts_stay_pictures():
    assert task("chart", "chart=chart", profile=PADDLE) == "chart"
    assert task("chart", "chart=chart", profile=GLM) == "skip"
    assert task_of("table", tasks_with(()), {"text": "text"}) == "text"
    assert task_of("table", tasks_with(()), {"table": "table"}) == "table"
    assert task_of("text", tasks_with(()), {"table": "table"}) == "skip"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("header", "is not LABEL=TASK"),
        ("=text", "is not LABEL=TASK"),
        ("header=read", r"unknown task 'read'(.|\n)*skip, abandon"),
        ("heeder=text", r"unknown label 'heeder'(.|\n)*Did you mean header"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_what_can(change, says):
    with pytest.raises(UsageError, match=says):
        tasks_with((change,))


def test_another_detectors_labels_are_free():
    assert tasks_with(("stain=abandon",), any_label=True)["stain"] == "abandon"
