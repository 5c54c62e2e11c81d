"""`export --format fields`: the same values as JSON lines, Parquet, and CSV, which no spreadsheet executes."""

import csv
import io
import json

import pyarrow.parquet
import pytest

import llm_ocr
from llm_ocr.errors import StageMissing
from llm_ocr.results.field_schema import read_schema
from llm_ocr.types import FieldsRecord, Status
from llm_ocr_outputs.exports.fields import csv_bytes
from llm_ocr_simulator import running

SCHEMA = {
    "type": "object",
    "properties": {
        "title": {"type": "string"},
        "pages": {"type": "integer"},
        "by": {"type": "object", "properties": {"name": {"type": "string"}}},
        "words": {"type": "array", "items": {"type": "string"}},
    },
}
#: An answer for each page, which is a passage of its own.
ANSWERS = {
    "[page 1]": {
        "title": {"quote": "Page 1 of", "value": "=1+1"},
        "pages": {"quote": "not there", "value": -3},
        "by": {"name": {"quote": "", "value": None}},
    },
    "[page 2]": {
        "title": {"quote": "Page 2 of", "value": "Page 2"},
        "words": [{"quote": "Page 2", "value": "Page, 2"}],
    },
}


@pytest.fixture
def found(workspace, tmp_path):
    """The workspace with the fields of its documents."""
    forced = {page: json.dumps(answer) for page, answer in ANSWERS.items()} | {"[page 3]": "{}"}
    (tmp_path / "forced.json").write_text(json.dumps(forced))
    with running(forced=tmp_path / "forced.json", served_model_name="qwen3-vl-8b", preset="h100", speed=50) as server:
        llm_ocr.fields(workspace=workspace, schema=SCHEMA, server_url=server.url, passage_tokens=10, progress=None)
    return workspace


@pytest.mark.slow
def test_all_three_forms_have_every_document(found, tmp_path):
    done = llm_ocr.export(workspace=found, output=tmp_path / "o", format="fields", progress=None)
    assert (done.rows, done.unit, done.files) == (6, "documents", 3)
    (lines,), (table,), (cells,) = ((tmp_path / "o/fields").glob(f"*.{kind}") for kind in ("jsonl", "parquet", "csv"))
    documents = [json.loads(line) for line in lines.open()]
    assert [one["status"] for one in documents] == 4 * ["degraded"] + ["failed", "degraded"]
    first = documents[0]
    assert first["values"] == {"title": "=1+1", "pages": -3, "words": ["Page, 2"]}
    assert [(one["path"], one["quoted"], one["page"]) for one in first["fields"]] == [
        ("title", True, 1),
        ("pages", False, None),
        ("words[0]", True, 2),
    ]
    rows = pyarrow.parquet.read_table(table).to_pylist()
    assert [row["document_id"] for row in rows] == [one["document_id"] for one in documents]
    assert [json.loads(row["values"]) for row in rows] == [one["values"] for one in documents]
    assert json.loads(rows[0]["fields"][2]["value"]) == "Page, 2"
    assert [json.loads(other["value"]) for other in rows[0]["fields"][0]["others"]] == ["Page 2"]
    wide = list(csv.DictReader(cells.open(encoding="utf-8", newline="")))
    assert list(wide[0]) == [
        *("document_id", "source", "status", "reason", "not_quoted", "title", "pages", "by.name", "words")
    ]
    assert [wide[0][name] for name in ("title", "pages", "by.name", "words", "not_quoted")] == [
        *("'=1+1", "-3", "", '["Page, 2"]', "pages")
    ]
    again = llm_ocr.export(workspace=found, output=tmp_path / "o", format="fields", progress=None)
    assert again.written == 0


@pytest.mark.parametrize("begin", ["=", "+", "-", "@", "\t", "\r", "\n"])
def test_no_cell_of_the_csv_begins_like_a_formula(begin):
    schema = read_schema({"type": "object", "properties": {f"{begin}a": {"type": "string"}, "status": {}}})
    values = {f"{begin}a": f'{begin}HYPERLINK("x")', "status": "s"}
    record = FieldsRecord("d", f"{begin}a.pdf", Status.OK, values=values)
    data = csv_bytes(schema, [(record, record.source)]).decode()
    head, row = csv.reader(io.StringIO(data, newline=""))
    assert not any(cell.startswith(begin) for cell in (*head, *row))
    assert row[-2] == f"'{values[f'{begin}a']}" and head[-2:] == [f"'{begin}a", "value.status"]


def test_fields_that_are_not_finished_are_not_exported(workspace, tmp_path):
    with pytest.raises(StageMissing, match="fields has not started"):
        llm_ocr.export(workspace=workspace, output=tmp_path / "o", format="fields", progress=None)
