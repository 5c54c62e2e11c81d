"""Places of unsupported text in exported texts."""

import json
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made import described, record
from test_export_texts_form import document_of

from llm_ocr.results.dataset import DatasetRow
from llm_ocr.results.figure_text import enriched_page
from llm_ocr.results.markdown import blocks_to_markdown
from llm_ocr.types import FURNITURE, Block, BlockKind, Box, Ledger, Span, Status
from llm_ocr_outputs.exports.documents import document_json, page_line
from llm_ocr_outputs.exports.dolma import Origin, dolma_document
from llm_ocr_outputs.places import unsupported_texts

BOX = Box(0.1, 0.1, 0.9, 0.2)
MARKUP = ["# ", "- ", "1. ", "**iron**", "\n", " ", "|", "$x$", "\\", "```", "<!--", "<td>zinc</td>", "&amp;"]
WORDS = st.lists(st.sampled_from([*MARKUP, "gold", "tin ", "é"]), min_size=1, max_size=12).map("".join)
BLOCKS = st.lists(
    st.builds(Block, st.sampled_from(BlockKind), st.just(BOX), WORDS, level=st.integers(0, 3)), min_size=1, max_size=6
)


def page(*blocks, spans=(), finish=lambda record: record.markdown, furniture=False, **more):
    read = record(
        figures=0,
        blocks=blocks,
        markdown=blocks_to_markdown(blocks, furniture=furniture),
        ledger=Ledger(0.1, 0.25, 0.5, 0.0, (BOX,), tuple(Span(*span) for span in spans)),
        **more,
    )
    return DatasetRow(read, finish(read))


def letters(text):
    return re.sub(r"[\W_]+", "", text)


@given(BLOCKS, st.data())
def test_the_place_contains_the_unsupported_words(blocks, data):
    furniture = data.draw(st.booleans())
    spans = []
    for number, block in enumerate(blocks):
        start = data.draw(st.integers(0, len(block.text) - 1))
        spans.append((number, start, data.draw(st.integers(start + 1, len(block.text)))))
    row = page(*blocks, spans=spans, furniture=furniture)
    found = unsupported_texts(row, row.final_markdown)
    words = {number: block.text[start:end].strip() for block, (number, start, end) in zip(blocks, spans, strict=True)}
    assert [(one.block, one.text) for one in found] == [(number, text) for number, text in words.items() if text]
    for one in found:
        if one.start is not None:
            assert letters(one.text) in letters(row.final_markdown[one.start : one.end])
        elif letters(one.text):
            shown = blocks_to_markdown([blocks[one.block]], furniture=furniture)
            assert blocks[one.block].kind in FURNITURE or letters(one.text) not in letters(shown)


@pytest.mark.parametrize(
    ("block", "words", "shown"),
    [
        (Block(BlockKind.TEXT, BOX, "The mine gave gold\nin 1870."), "gold\nin", "gold\nin"),
        (Block(BlockKind.HEADING, BOX, "Gold  and\nsilver", level=1), "and\nsilver", "and silver"),
        (Block(BlockKind.LIST_ITEM, BOX, "- first\nsecond"), "first\nsecond", "first\n  second"),
        (Block(BlockKind.LIST_ITEM, BOX, "- first\nsecond"), "- first", "- first\n  second"),  # the whole item
        (Block(BlockKind.TABLE, BOX, "| a | b |\n|---|---|\n| 1 | 27 |"), "27", "27"),
        (Block(BlockKind.TABLE, BOX, "<table><tr><td>27 &amp; 3</td></tr></table>"), "27 &amp; 3", "27 &amp; 3"),
        (Block(BlockKind.CODE, BOX, "a = 1\nb = 2"), "b = 2", "b = 2"),
        (Block(BlockKind.FORMULA, BOX, "x = 3", "latex"), "3", "3"),
        (Block(BlockKind.FIGURE, BOX, inside="Sales 2027"), "2027", "2027"),
        (Block(BlockKind.FOOTER, BOX, "Page 3 of 9"), "of 9", None),
        (Block(BlockKind.FIGURE, BOX, inside="Sales 2027", figure_id="f"), "2027", None),
    ],
)  # fmt: skip
def test_each_kind_of_block_has_exact_places(block, words, shown):
    text = block.text or block.inside
    start = text.index(words)
    before, after = Block(BlockKind.TEXT, BOX, f"Before {words}"), Block(BlockKind.TEXT, BOX, f"{words} after")
    row = page(before, block, after, spans=[(1, start, start + len(words))])
    [found] = unsupported_texts(row, row.final_markdown)
    assert found.text == words
    if shown is None:
        assert (found.start, found.end) == (None, None)
    else:
        assert row.final_markdown[found.start : found.end] == shown
        assert found.start > len(f"Before {words}")


def test_text_after_a_described_figure_keeps_its_place():
    figure = record().figures[0]
    blocks = (
        Block(BlockKind.FIGURE, BOX, figure_id=figure.id),
        Block(BlockKind.TEXT, BOX, "It rained on 31 May."),
    )
    figures = {figure.id: described(figure.id, "A chart of rain. It has two axes and many bars.")}
    row = page(*blocks, spans=[(1, 13, 19)], finish=lambda read: enriched_page(read, figures))
    row = replace(row, record=replace(row.record, figures=(figure,)), figures=figures)
    row = replace(row, final_markdown=enriched_page(row.record, figures))
    assert "two axes" in row.final_markdown
    [found] = unsupported_texts(row, row.final_markdown)
    assert row.final_markdown[found.start : found.end] == "31 May"


def test_a_page_changed_by_a_stage_gives_the_place_of_the_block():
    row = page(Block(BlockKind.TEXT, BOX, "It rained on 31 May."), spans=[(0, 13, 19), (7, 0, 3), (0, 90, 99)])
    changed = replace(row.record, markdown="# New\n\nIt rained on 31 May.")
    [found] = unsupported_texts(DatasetRow(changed, changed.markdown), changed.markdown)
    assert changed.markdown[found.start : found.end] == "It rained on 31 May."


def test_exports_give_ink_boxes_and_places_of_the_ledger():
    blocks = (Block(BlockKind.HEADING, BOX, "Weather"), Block(BlockKind.TEXT, BOX, "It rained on 31 May."))
    rows = [page(*blocks, spans=[(1, 13, 19)]), DatasetRow(record(2, figures=0, blocks=(), markdown="Dry."), "Dry.")]
    value = document_json(document_of(*rows), {})
    assert value["document"]["ink_accounted"] == 0.75
    first, second = value["pages"]
    lines = [page_line(row, index=1, model="m", batch_id="b") for row in rows]
    for line in lines:  # texts, because types of lists cannot be inferred from pages without any
        line |= {name: json.loads(line[name]) for name in ("unread", "unsupported")}
    for shown, text in ((first, first["markdown"]), (lines[0], lines[0]["content"])):
        assert shown["ink_accounted"] == 0.75
        assert shown["unread"] == [{"x0": 0.1, "y0": 0.1, "x1": 0.9, "y1": 0.2}]
        [span] = shown["unsupported"]
        assert (span["block"], span["text"], text[span["start"] : span["end"]]) == (1, "31 May", "31 May")
    for shown in (second, lines[1]):
        assert (shown["ink_accounted"], shown["unread"], shown["unsupported"]) == (None, [], [])


def test_dolma_has_unsupported_text_as_spans():
    text = page(Block(BlockKind.TEXT, BOX, "It rained on 31 May."), spans=[(0, 13, 19)])
    failed = DatasetRow(replace(record(3), status=Status.FAILED, markdown="", blocks=()), "")
    dry = DatasetRow(record(2, figures=0, blocks=(), markdown="Dry."), "Dry.")
    value = dolma_document(document_of(dry, text, failed), Origin("2026-03-01", "m", "1"))
    [(start, end, score)] = value["attributes"]["unsupported_text"]
    assert (value["text"][start:end], score) == ("31 May", 1.0)
    assert value["attributes"]["ink_accounted"] == [None, 0.75, None]
    without = dolma_document(document_of(dry), Origin("2026-03-01", "m", "1"))
    assert without["attributes"].keys() == {"pdf_page_numbers"}


def test_lines_with_and_without_places_have_the_same_types():
    rows = [page(Block(BlockKind.TEXT, BOX, "It rained on 31 May."), spans=spans) for spans in ((), [(0, 13, 19)])]
    rows[0] = replace(rows[0], record=replace(rows[0].record, ledger=Ledger(0.1)))
    first, last = (page_line(row, index=1, model="m", batch_id="b") for row in rows)
    assert {name: type(value) for name, value in first.items()} == {name: type(value) for name, value in last.items()}
