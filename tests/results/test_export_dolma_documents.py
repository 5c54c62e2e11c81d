"""Documents of Dolma: attributes of pages as the model told them, spans in characters."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from made import ANY_TEXT, record

from llm_ocr.exports.dolma import Origin, dolma_document, page_text
from llm_ocr.results.dataset import DatasetRow
from llm_ocr.results.markdown import clean
from llm_ocr.types import Status

ORIGIN = Origin("2026-03-01", "olmocr-2", "0.1.0")


def row(number, text="Page.", **more):
    return DatasetRow(record(number, figures=0, blocks=(), markdown=text, **more), text)


def document(*rows):
    return dolma_document("doc", "/in/a.pdf", len(rows), rows, ORIGIN)


def test_what_the_model_says_of_pages_stands_beside_their_spans():
    notes = {"primary_language": "en", "is_rotation_valid": True, "rotation_correction": 0, "is_table": True}
    attributes = document(row(1, notes=notes), row(2))["attributes"]
    assert attributes["primary_language"] == ["en", None]
    assert attributes["is_rotation_valid"] == [True, None]
    assert attributes["rotation_correction"] == [0, None]
    assert attributes["is_table"] == [True, None]
    assert "is_diagram" not in attributes


def test_pages_that_were_read_by_another_are_counted():
    read = row(1, tokens_in=5, tokens_out=7)
    fallback = row(2, text_source="text-layer", attempts=({"server": "a"},))
    failed = row(3, "", status=Status.FAILED)
    found = document(read, fallback, failed)["metadata"]
    assert (found["total-input-tokens"], found["total-output-tokens"]) == (5, 7)
    assert (found["total-fallback-pages"], found["total-failed-pages"], found["pdf-total-pages"]) == (1, 1, 3)


def test_without_a_date_there_is_none():
    found = dolma_document("doc", "/in/a.pdf", 1, [row(1)], replace(ORIGIN, added=""))
    assert "added" not in found and "created" not in found


@given(st.lists(ANY_TEXT, max_size=5))
def test_spans_are_the_pages_whatever_they_hold(texts):
    rows = [row(number, text) for number, text in enumerate(texts, 1)]
    found = document(*rows)
    spans = found["attributes"]["pdf_page_numbers"]
    assert [page for _, _, page in spans] == list(range(1, len(texts) + 1))
    assert [found["text"][start:end] for start, end, _ in spans] == [page_text(one) for one in rows]
    assert clean(found["text"]) == found["text"]
