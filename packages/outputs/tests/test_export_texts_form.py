"""What exports of texts make of rows: JSON that every reader takes, whatever is in names and answers."""

import json
from dataclasses import replace
from importlib import resources

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made import ANY_TEXT, record

import llm_ocr
from llm_ocr.errors import UsageError
from llm_ocr.results.dataset import DatasetRow
from llm_ocr.results.markdown import clean
from llm_ocr.types import (
    Block,
    BlockKind,
    Box,
    DocumentPart,
    EncodedImage,
    Figure,
    FigureRecord,
    PageRecord,
    Reason,
    Status,
)
from llm_ocr_outputs.exports.documents import document_json, page_line
from llm_ocr_outputs.exports.dolma import Origin, dolma_document, page_text
from llm_ocr_outputs.files import json_document, json_line, json_value
from llm_ocr_outputs.source import Document

SCHEMA = json.loads(resources.files("llm_ocr_outputs.exports").joinpath("document.schema.json").read_text("utf-8"))


ANY_CHARACTERS = st.text(st.characters(codec=None, exclude_categories=()))


PAGE = PageRecord("d-p00001", "d", "/in/a.pdf", 1, 0, Status.OK, engine="m", seconds=1.25, tokens_in=7, tokens_out=3)


PROVENANCE = {
    "workspace": "0123",
    "version": "1",
    "extract": {"key": "a", "engine": "model", "model": "m", "revision": None},
    "describe": {"key": "b", "engine": "embedded", "model": None, "revision": None, "mode": "parse"},
    "assemble": {"key": "c"},
    "transform": {"stage": "mine", "key": "d"},
}


def document_of(*rows: DatasetRow, source: str = "/in/a.pdf", names: tuple[str, ...] = ("a.pdf",)) -> Document:
    part = DocumentPart("d", source, names[0], "", tuple(range(1, len(rows) + 1)), len(rows), 0)
    return Document("d", source, names, len(rows), rows, part)


def line(record: PageRecord, markdown: str = "text") -> dict:
    return page_line(DatasetRow(record, markdown), index=1, model="asked", batch_id="march")


@given(ANY_CHARACTERS)
def test_a_record_is_one_line_of_utf_8_whatever_is_in_it(text):
    data = json_line(line(replace(PAGE, source=text), text))
    assert len(data.decode().splitlines()) == 1
    assert json.loads(data)["content"] == text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


@given(ANY_CHARACTERS)
def test_a_document_is_valid_whatever_is_in_it(text):
    image = EncodedImage(b"", "image/png", 10, 20)
    figure = Figure("d-p00001-f01", text, Box(-0.1, 0, 1.2, 1), image, caption=text)
    blocks = (
        Block(BlockKind.TEXT, Box(0, 0, 1, 1 / 3), text, text),
        Block(BlockKind.FIGURE, figure.box, figure_id=figure.id),
    )
    page = replace(PAGE, source=text, image=image, blocks=blocks, figures=(figure,), notes={"primary_language": text})
    described = FigureRecord(figure.id, page.page_id, "d", Status.OK, "parse", description=text, data=text, label=text)
    row = DatasetRow(page, text, {figure.id: described})
    value = json.loads(json_document(document_json(document_of(row, source=text, names=(text, "b")), PROVENANCE)))
    jsonschema.Draft202012Validator(SCHEMA).validate(value)
    assert value["pages"][0]["figures"][0]["box"] == {"x0": 0, "y0": 0, "x1": 1, "y1": 1}


def test_every_field_of_a_document_stands_in_the_schema():
    schema = SCHEMA
    jsonschema.Draft202012Validator.check_schema(schema)
    figure = Figure("f", "chart", Box(0, 0, 1, 1), EncodedImage(b"", "image/png", 1, 1))
    page = replace(PAGE, blocks=(Block(BlockKind.TEXT, Box(0, 0, 1, 1)),), figures=(figure,), quality=0.5)
    value = document_json(document_of(DatasetRow(page, "")), PROVENANCE)
    kinds = schema["$defs"]
    for shown, told in (
        (value, schema),
        (value["document"], schema["properties"]["document"]),
        (value["pages"][0], kinds["page"]),
        (value["pages"][0]["notes"], kinds["page"]["properties"]["notes"]),
        (value["pages"][0]["blocks"][0], kinds["block"]),
        (value["pages"][0]["figures"][0], kinds["figure"]),
    ):
        assert shown.keys() == told["properties"].keys() == set(told["required"])


def test_a_document_is_a_line_a_page():
    rows = [DatasetRow(replace(PAGE, page_number=number), "a\nb") for number in (1, 2, 3)]
    lines = json_document(document_json(document_of(*rows), PROVENANCE)).decode().splitlines()
    assert sum('"number":' in text for text in lines) == 3


@pytest.mark.parametrize(
    ("text", "value"),
    [("", None), ('{"a": 1}', {"a": 1}), ("no JSON", "no JSON"), ("NaN", "NaN"), ("[" * 100_000, "[" * 100_000)],
)
def test_data_of_figures_is_json_where_it_is_any(text, value):
    assert json_value(text) == value


def test_a_degraded_page_is_a_success_with_its_reason():
    record = line(replace(PAGE, status=Status.DEGRADED, reason=Reason.LOOP, detail="cut"))
    assert (record["success"], record["error"], record["content"]) == (True, None, "text")
    assert (record["status"], record["reason"], record["detail"]) == ("degraded", "repetition loop", "cut")


def test_a_failed_page_has_its_error_and_no_content():
    record = line(replace(PAGE, status=Status.FAILED, reason=Reason.ENGINE_TIMEOUT, detail="too slow", engine=""))
    assert (record["success"], record["error"], record["content"]) == (False, "engine timeout: too slow", None)
    assert record["model"] == "asked"
    assert record["usage"] == {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}


ORIGIN = Origin("2026-03-01", "olmocr-2", "0.1.0")


def row(number, text="Page.", **more):
    return DatasetRow(record(number, figures=0, blocks=(), markdown=text, **more), text)


def document(*rows):
    return dolma_document(document_of(*rows), ORIGIN)


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
    found = dolma_document(document_of(row(1)), replace(ORIGIN, added=""))
    assert "added" not in found and "created" not in found


@pytest.mark.parametrize(
    ("description", "text"),
    [
        ("A map with three gauges.", "The weir.\n\nA map with three gauges.\n\nFigure 1: The river."),
        ("Figure 1: The river", "The weir.\n\nFigure 1: The river."),
        ("", "The weir.\n\nFigure 1: The river."),
    ],
)
def test_the_words_of_a_figure_and_its_caption_are_text_once(description, text):
    figure = Figure("f1", "image", Box(0, 0, 1, 1), EncodedImage(b"", "image/png", 1, 1), "Figure 1: The river.")
    markdown = "The weir.\n\n![f1](figure:f1)\n\nFigure 1: The river."
    told = FigureRecord("f1", "p", "d", Status.OK, "describe", description=description)
    assert page_text(DatasetRow(replace(PAGE, markdown=markdown, figures=(figure,)), "", {"f1": told})) == text


@given(st.lists(ANY_TEXT, max_size=5))
def test_spans_are_the_pages_whatever_they_hold(texts):
    rows = [row(number, text) for number, text in enumerate(texts, 1)]
    found = document(*rows)
    spans = found["attributes"]["pdf_page_numbers"]
    assert [page for _, _, page in spans] == list(range(1, len(texts) + 1))
    assert [found["text"][start:end] for start, end, _ in spans] == [page_text(one) for one in rows]
    assert clean(found["text"]) == found["text"]


@pytest.mark.parametrize(
    ("form", "settings"), [("pdf", {"chunk_size": 9}), ("json", {"password": "x"}), ("chunks", {"shard_size": 9})]
)
def test_a_setting_of_another_format_is_an_error(tmp_path, form, settings):
    with pytest.raises(UsageError, match=f"{next(iter(settings))}.* has no effect with `format={form}`"):
        llm_ocr.export(workspace=tmp_path / "w", output=tmp_path / "o", format=form, **settings)
