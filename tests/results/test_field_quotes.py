"""Quotes: their places, and whether the text there is verified; passages of documents, and their rows."""

from dataclasses import replace

import pytest

from llm_ocr.results.field_schema import Found, read_schema
from llm_ocr.results.fields import Answer, PageText, document_record, passages
from llm_ocr.types import Block, BlockKind, Box, Ledger, PageRecord, Reason, Span, Status

LEFT, RIGHT = Box(0.1, 0.1, 0.4, 0.2), Box(0.5, 0.1, 0.9, 0.3)
SCHEMA = read_schema(
    {"type": "object", "properties": {"n": {"type": "string"}, "m": {"type": "string"}}, "required": ["n"]}
)


def page(*texts, number=1, boxes=(LEFT, RIGHT), unsupported=(), status=Status.OK):
    blocks = tuple(Block(BlockKind.TEXT, box, text) for text, box in zip(texts, boxes, strict=False))
    ledger = Ledger(0.1, unsupported=unsupported) if unsupported else None
    record = PageRecord(f"p{number}", "doc", "a.pdf", number, number, status, blocks=blocks, ledger=ledger)
    return PageText(record, "\n\n".join(texts))


def found(quote, *pages):
    (passage,) = passages("doc", pages, 10_000)
    return passage.located({"n": Found("x", quote, named=True)})["n"]


@pytest.mark.parametrize(
    "quote",
    [
        *("Invoice number 1847", "invoice  NUMBER: 1847", "in-\nvoice number", "**Invoice** number", "number"),
        *("“invoice number” 1847", "inv\u00adoice nu\u2011mber", "invoice\u00a0number\u20091847", "(INVOICE NUMBER)"),
    ],
)
def test_a_quote_stands_in_text_with_other_spaces_and_marks(quote):
    place = found(quote, page("Quarrel & Finch", "The invoice num-\nber 1847 of today"))
    assert (place.quoted, place.page, place.box) == (True, 1, RIGHT)


@pytest.mark.parametrize("quote", ["Invoice number 1848", "voice number", "18", "", "€"])
def test_other_words_and_parts_of_words_are_no_quote(quote):
    place = found(quote, page("The invoice number 1847"))
    assert (place.value, place.quoted, place.page, place.box) == ("x", False, None, None)


@pytest.mark.parametrize(
    ("quote", "value", "quoted"),
    [
        ("Total 1234.50", 1234.5, True),
        ("Total 1234.50", 1243.5, False),
        ("Total 12.34.50", 12.345, False),  # the marks of the page count, not those of the quote
        ("Total", 1234.5, False),
        ("Balance 12", -12.5, True),  # the number continues after the quote, and has a sign before it
        ("Balance 12", 12, False),
        ("Finch and Quarrel", "Finch and Quarrel", True),
    ],
)
def test_the_text_of_the_page_states_the_value(quote, value, quoted):
    pages = page("Total 1,234.50", "Balance -12.50 of Finch"), page("and Quarrel", number=2)
    (passage,) = passages("doc", pages, 10_000)
    assert passage.located(Found(value, quote)).quoted is quoted


def test_values_that_the_schema_names_have_other_words():
    schema = {"type": "object", "properties": {"s": {"anyOf": [{"enum": ["paid"]}, {"type": "null"}]}}}
    (passage,) = passages("doc", [page("Settled in full")], 10_000)
    tree = read_schema(schema).read({"s": {"quote": "Settled in full", "value": "paid"}}, [])
    assert passage.located(tree)["s"].quoted


def test_a_quote_in_two_blocks_has_the_box_of_both():
    assert found("Finch total", page("Quarrel & Finch", "Total 212")).box == Box(0.1, 0.1, 0.9, 0.3)


def test_a_quote_continues_on_the_next_page():
    foot = replace(page("Invoice of the com-", "Page 1"), markdown="")
    blocks = (foot.record.blocks[0], replace(foot.record.blocks[1], kind=BlockKind.PAGE_NUMBER))
    first = PageText(replace(foot.record, blocks=blocks), "Invoice of the com-")
    second = page("pany Quarrel", number=2)
    place = found("the company Quarrel", first, second)
    assert (place.quoted, place.page, place.box) == (True, 1, LEFT)
    assert not found("the company Quarrel", second, first).quoted
    assert not found("the company Quarr", first, second).quoted


def test_a_quote_across_pages_is_verified_on_both():
    second = page("Quarrel", number=2, unsupported=(Span(0, 0, 7),))
    place = found("of Quarrel", page("Invoice of"), second)
    assert (place.quoted, place.page, place.box) == (False, 1, LEFT)


def test_text_without_spaces_between_words_has_quotes():
    assert found("発行日", page("請求書発行日2026")).quoted


def test_text_that_nothing_supports_is_not_verified():
    doubtful = page("Total 212", unsupported=(Span(0, 6, 9),))
    place = found("Total 212", doubtful)
    assert (place.quoted, place.page, place.box) == (False, 1, LEFT)
    assert found("Total", doubtful).quoted
    later = found("Total 212", doubtful, page("x", "Total 212", number=2))
    assert (later.quoted, later.page, later.box) == (True, 2, RIGHT)


def test_pages_without_blocks_have_quotes_without_a_box():
    bare = PageText(PageRecord("p", "doc", "a.pdf", 3, 0, Status.OK, markdown="Total **212**"), "Total **212**")
    place = found("Total 212", bare)
    assert (place.quoted, place.page, place.box) == (True, 3, None)


def test_passages_contain_whole_pages_within_the_limit():
    pages = [page("word " * 50, number=number) for number in range(1, 6)]
    cut = passages("doc", pages, 300)
    assert [[one.number for one in passage.pages] for passage in cut] == [[1, 2], [3, 4], [5]]
    assert all(len(passage.text) <= 600 + 2 for passage in cut)
    assert "[page 3]" in cut[1].text


def test_a_page_beyond_the_limit_is_cut_between_words():
    long = page(" ".join(f"word{number}" for number in range(500)), number=7)
    cut = passages("doc", [long, page("end", number=8)], 500)
    words = [word for passage in cut for word in passage.text.split() if word.startswith("word")]
    assert words == [f"word{number}" for number in range(500)]
    assert all(len(passage.text) <= 1000 + 2 for passage in cut) and len(cut) > 3


def record(trees, *pages, reason=None):
    cut = passages("doc", pages, 10_000)
    answers = [Answer(cut[0], tree, reason, "cut") for tree in trees]
    return document_record(SCHEMA, "doc", [page.record for page in pages], answers, "model")


GOOD = page("number 17")
QUOTED = Found("17", "number 17", 1, LEFT, True)


def test_a_document_is_ok_with_quoted_values():
    row = record([{"n": QUOTED, "m": None}], GOOD)
    assert (row.status, row.values, row.source) == (Status.OK, {"n": "17"}, "a.pdf")
    assert row.fields[0] == {
        "path": "n",
        "value": "17",
        "page": 1,
        "box": {"x0": 0.1, "y0": 0.1, "x1": 0.4, "y1": 0.2},
        "quote": "number 17",
        "quoted": True,
    }


@pytest.mark.parametrize(
    ("trees", "reason", "why"),
    [
        ([{"n": Found("17"), "m": None}], Reason.NOT_QUOTED, "for n"),
        ([{"n": QUOTED, "m": Found("y")}], Reason.NOT_QUOTED, "for m"),
        ([{"n": None, "m": QUOTED}], Reason.FIELD_MISSING, "no value for n"),
    ],
)
def test_a_document_is_degraded_with_a_reason(trees, reason, why):
    row = record(trees, GOOD)
    assert (row.status, row.reason) == (Status.DEGRADED, reason) and why in row.detail


def test_a_passage_without_a_sound_answer_degrades_the_document():
    row = record([{"n": QUOTED, "m": None}], GOOD, reason=Reason.TRUNCATED)
    assert (row.status, row.reason, row.detail) == (Status.DEGRADED, Reason.TRUNCATED, "page 1: cut")
    row = record([None], GOOD, reason=Reason.MALFORMED)
    assert (row.status, row.values) == (Status.FAILED, {})


def test_failed_pages_degrade_or_fail_the_document():
    failed = PageRecord("p2", "doc", "a.pdf", 2, 2, Status.FAILED, Reason.RENDER_TIMEOUT, "60 s")
    row = document_record(
        SCHEMA, "doc", [GOOD.record, failed], [Answer(passages("doc", [GOOD], 999)[0], {"n": QUOTED})], "model"
    )
    assert (row.status, row.reason) == (Status.DEGRADED, Reason.RENDER_TIMEOUT) and "page 2" in row.detail
    row = document_record(SCHEMA, "doc", [failed], [], "model")
    assert (row.status, row.reason, row.pages) == (Status.FAILED, Reason.RENDER_TIMEOUT, 1)


def test_a_document_without_text_lacks_its_required_fields():
    blank = PageRecord("p", "doc", "a.pdf", 1, 0, Status.OK, blank=True)
    row = document_record(SCHEMA, "doc", [blank], [], "model")
    assert (row.status, row.reason) == (Status.DEGRADED, Reason.FIELD_MISSING)
