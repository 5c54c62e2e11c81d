"""Passages of any blocks: nothing is lost, nothing is too large, and the same comes out again."""

import re

from chunk_pages import block, chunks, page
from hypothesis import given
from hypothesis import strategies as st

from llm_ocr.exports.chunks import document_parts
from llm_ocr.results.markdown import blocks_to_markdown
from llm_ocr.types import FURNITURE, BlockKind

WORDS = st.text("abcdefgh .!?:é川|<>#*\n", min_size=1, max_size=120)
PROSE_KINDS = ["title", "heading", "text", "list_item", "footnote", "formula", "code", "header", "page_number"]
BLOCKS = st.builds(block, st.sampled_from(PROSE_KINDS), WORDS, st.integers(0, 3))
TABLES = st.integers(1, 12).flatmap(
    lambda count: st.just("\n".join(["| a | b |", "| --- | --- |", *(f"| row{n} | {'x' * n} |" for n in range(count))]))
)
SOME_BLOCKS = st.one_of(BLOCKS, st.builds(block, st.just("table"), TABLES), st.builds(block, st.just("caption"), WORDS))
PAGES = st.lists(st.lists(SOME_BLOCKS, max_size=6), min_size=1, max_size=3)
LIMITS = st.tuples(st.integers(40, 400), st.integers(0, 40))


def marks(text):
    """What must not be lost: all but white space, fences, and the hyphens of lists and of words that go on."""
    return [mark for mark in text if not (mark.isspace() or mark in "`-")]


def is_one_thing(text):
    """A word, in a fence perhaps, or a row, of which a header is one with the rule below it."""
    body = text.removeprefix("```\n").removesuffix("\n```").removesuffix("\n| --- | --- |")
    return len(body.split()) == 1 or (body.startswith("|") and "\n" not in body)


def rows_of(pages):
    return [page(number, *blocks) for number, blocks in enumerate(pages, 1)]


@given(st.lists(st.lists(BLOCKS, max_size=6), min_size=1, max_size=3))
def test_every_character_that_is_no_furniture_is_in_a_part(pages):
    kept = [[one for one in blocks if one.kind not in FURNITURE] for blocks in pages]
    whole = "\n".join(blocks_to_markdown([one]) for blocks in kept for one in blocks)
    parts = document_parts(rows_of(pages), "a.pdf")
    assert sorted(marks("".join(part.text for part in parts))) == sorted(marks(whole))


@given(st.lists(st.lists(BLOCKS, max_size=6), min_size=1, max_size=3), LIMITS)
def test_every_character_is_in_a_passage_in_order_and_once(pages, limits):
    rows = rows_of(pages)
    whole = "".join(part.text for part in document_parts(rows, "a.pdf"))
    found = chunks(*rows, size=limits[0], overlap=limits[1])
    assert marks("".join(chunk.text[chunk.overlap :] for chunk in found)) == marks(whole)


@given(PAGES, LIMITS)
def test_only_a_word_or_a_row_makes_a_passage_larger_than_the_limit(pages, limits):
    for chunk in chunks(*rows_of(pages), size=limits[0], overlap=limits[1]):
        assert chunk.size == len(chunk.text)
        if chunk.size > limits[0]:
            assert is_one_thing(chunk.text)


@given(PAGES, LIMITS)
def test_every_row_of_a_table_is_in_a_passage_in_order(pages, limits):
    wanted = [
        line
        for blocks in pages for one in blocks if one.kind is BlockKind.TABLE
        for line in one.text.split("\n")[2:]
    ]  # fmt: skip
    found = chunks(*rows_of(pages), size=limits[0], overlap=limits[1])
    lines = [line for chunk in found for line in chunk.text.split("\n") if line.startswith("| row")]
    assert lines == wanted


@given(PAGES, LIMITS)
def test_the_same_rows_give_the_same_passages_with_ids_of_their_own(pages, limits):
    first, second = (chunks(*rows_of(pages), size=limits[0], overlap=limits[1]) for _ in range(2))
    assert first == second
    assert len({chunk.id for chunk in first}) == len(first)


@given(PAGES, st.integers(12, 60))
def test_sizes_are_those_of_any_measure(pages, size):
    def measure(text):
        return len(re.findall(r"\w{1,3}|[^\w\s]", text)) + text.count("\n\n")

    for chunk in chunks(*rows_of(pages), size=size, measure=measure):
        assert chunk.size == measure(chunk.text)
        if chunk.size > size:
            assert is_one_thing(chunk.text)
