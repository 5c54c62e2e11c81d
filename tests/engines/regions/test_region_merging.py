"""Answers about regions as the blocks of a page."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from region_parts import GLM, PADDLE, region

from llm_ocr.engines.regions.answers import Read, merged
from llm_ocr.engines.regions.detection import LABELS, Assigned, task_of, tasks_with
from llm_ocr.results.markdown import blocks_to_markdown
from llm_ocr.types import Block, BlockKind, Box

TASKS = tasks_with(())


def answered(label: str, text: str | None, *sides: float, profile=GLM) -> Read:
    task = task_of(label, TASKS, profile.region_tasks)
    mode = profile.region_tasks.get(task, "")
    parse = profile.parsers.get(mode) or profile.parsers[""]
    blocks = None if text is None else parse(text, None).blocks
    return Read(Assigned(region(label, *(sides or (0.1, 0.1, 0.9, 0.2))), task), blocks)


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


def test_bullets_of_any_kind_become_those_of_markdown():
    assert markdown(answered("text", "• one\n• two")) == "- one\n- two"


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


def test_a_region_without_an_answer_leaves_nothing_and_a_picture_its_place():
    assert made(answered("text", None), answered("table", None)) == []
    (figure,) = merged([answered("image", None, 0.2, 0.2, 0.4, 0.4)])
    assert (figure.kind, figure.box, figure.label) == (BlockKind.FIGURE, Box(0.2, 0.2, 0.4, 0.4), "image")


def test_boxes_of_an_answer_are_those_of_its_region():
    half = Block(BlockKind.TABLE, Box(0, 0.5, 1, 1), "| a |\n| - |", "table")
    (block,) = merged([Read(Assigned(region("table", 0.25, 0.5, 0.75, 1.0), "table"), (half,))])
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
        task = task_of(label, TASKS, GLM.region_tasks)
        if task in ("text", "table"):
            read.append(answered(label, " ".join(said), 0.1, number / 10, 0.9, number / 10 + 0.1))
    wanted = [word for one in read for block in one.blocks or () for word in words(block.text)]
    assert words(" ".join(block.text for block in merged(read))) == wanted
