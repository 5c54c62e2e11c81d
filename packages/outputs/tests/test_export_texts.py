"""`export` as jsonl, json and markdown: what is in the files, and that the usual readers take them."""

import json
import shutil
import sys
from importlib import resources
from pathlib import Path

import jsonschema
import pytest
from export_workspaces import files_of, make, retry
from test_export_hub import commits, making, new_name  # noqa: F401 - fixtures

import llm_ocr
from llm_ocr import exporting
from llm_ocr.errors import StorageError
from llm_ocr.storage import StoreOptions, open_store
from llm_ocr_outputs import files

SCHEMA = json.loads(resources.files("llm_ocr_outputs.exports").joinpath("document.schema.json").read_text("utf-8"))


LINUX = int(sys.platform == "linux")  # has a document more, see the fixture `real`


@pytest.fixture(scope="module")
def made(golden) -> Path:
    """Two documents of 7 pages, each read in three units."""
    return golden("long", lambda folder: make(str(folder / "w"), 2, pages=7)) / "w"


def lines(folder: Path) -> list[dict]:
    return [json.loads(line) for path in sorted(folder.iterdir()) for line in path.read_text().splitlines()]


def test_pages_are_lines_with_the_fields_of_dots_ocr(real, tmp_path):
    done = llm_ocr.export(workspace=real, output=tmp_path / "o", format="jsonl")
    assert (done.rows, done.unit, done.files, done.dropped) == (5 + LINUX, "pages", 2, 0)
    good, bad = lines(tmp_path / "o/successes"), lines(tmp_path / "o/errors")
    fields = {
        *("document_id", "page", "page_index", "pdf_path", "model", "success", "latency", "usage", "content"),
        "error",
    }
    assert all(fields <= record.keys() for record in (*good, *bad))
    paper = [record for record in good if record["pdf_path"].endswith("a.pdf")]
    assert [(record["page"], record["page_index"]) for record in paper] == [(1, 1), (2, 2), (3, 3)]
    assert all(record["success"] and record["error"] is None and record["model"] == "embedded" for record in good)
    assert "First comes a, sheet 1." in paper[0]["content"]
    assert paper[0]["usage"] == {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
    broken, *others = bad
    assert len(others) == LINUX
    assert (broken["success"], broken["content"], broken["page"], broken["status"]) == (False, None, 0, "failed")
    assert broken["error"].startswith("unreadable")
    assert broken["model"] == "embedded"
    assert {record["batch_id"] for record in (*good, *bad)} == {json.loads(claim(tmp_path / "o"))["workspace"]}


def claim(folder: Path) -> str:
    return (folder / "_llm-ocr/export.json").read_text()


def test_lines_are_opened_by_pandas_and_by_the_line_that_is_told(real, tmp_path, monkeypatch):
    import datasets
    import pandas

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    done = llm_ocr.export(workspace=real, output=tmp_path / "o", format="jsonl")
    rows = eval(done.load, {"load_dataset": datasets.load_dataset})
    assert len(rows) == 4
    assert set(rows["status"]) == {"ok"}
    (file,) = (tmp_path / "o/errors").iterdir()
    assert set(pandas.read_json(file, lines=True)["success"]) == {False}


@pytest.mark.slow
def test_the_batch_id_of_the_workspace_stands_in_every_line(made, tmp_path):
    file = Path(shutil.copytree(made, tmp_path / "w"), "run.json")
    run = json.loads(file.read_text())
    file.write_text(json.dumps({**run, "settings": {**run["settings"], "batch_id": "march"}}))
    llm_ocr.export(workspace=file.parent, output=tmp_path / "o", format="jsonl")
    assert {record["batch_id"] for record in lines(tmp_path / "o/successes")} == {"march"}


def test_a_long_document_is_whole_and_in_order(made, tmp_path):
    llm_ocr.export(workspace=made, output=tmp_path / "l", format="jsonl")
    assert [record["page"] for record in lines(tmp_path / "l/successes")] == [*range(1, 8)] * 2
    llm_ocr.export(workspace=made, output=tmp_path / "j", format="json")
    value = json.loads((tmp_path / "j/documents/0.pdf.json").read_text())
    assert [page["number"] for page in value["pages"]] == [*range(1, 8)]
    assert value["document"]["counts"] == {"pages": 7, "ok": 7, "degraded": 0, "failed": 0}


def test_documents_are_json_that_their_schema_describes(real, tmp_path):
    done = llm_ocr.export(workspace=real, output=tmp_path / "o", format="json")
    names = {path.relative_to(tmp_path / "o/documents").as_posix() for path in (tmp_path / "o/documents").rglob("*")}
    assert {"a.pdf.json", "broken.pdf.json", "日本 #1.pdf.json"} <= names
    assert len(names) == 3 + LINUX
    assert (done.rows, done.files, done.unit) == (3 + LINUX, 3 + LINUX, "documents")
    validator = jsonschema.Draft202012Validator(SCHEMA)
    assert done.load == f"the .json files in {tmp_path}/o/documents"
    values = [json.loads(path.read_text()) for path in sorted((tmp_path / "o/documents").rglob("*.json"))]
    for value in values:
        validator.validate(value)
    paper, broken = values[0], values[1]
    assert paper["document"]["names"] == ["a.pdf", "sub/copy.pdf"]
    assert paper["document"]["page_total"] == 3
    assert "First comes a, sheet 1." in paper["pages"][0]["markdown"]
    assert paper["pages"][0]["width"] > 100
    assert paper["pages"][0]["blocks"][0]["box"]["x0"] > 0
    assert (broken["pages"][0]["number"], broken["pages"][0]["reason"]) == (None, "unreadable")
    assert broken["document"]["page_total"] == 0


def test_figures_and_provenance_are_told(made, tmp_path):
    llm_ocr.export(workspace=made, output=tmp_path / "o", format="json")
    value = json.loads((tmp_path / "o/documents/1.pdf.json").read_text())
    jsonschema.Draft202012Validator(SCHEMA).validate(value)
    (figure,) = value["pages"][1]["figures"]
    assert figure["description"] == f"a chart on {value['pages'][1]['id']}"
    assert figure["box"] == {"x0": 0.1, "y0": 0.5, "x1": 0.9, "y1": 0.9}
    assert (made / figure["file"]).is_file()
    assert value["provenance"]["extract"]["model"] == "deepseek-ai/DeepSeek-OCR"
    assert value["provenance"]["extract"]["revision"] == "0123abcd"
    assert value["provenance"]["describe"]["mode"] == "describe"
    assert value["provenance"]["transform"] is None


def test_the_tree_of_markdown_is_copied_byte_for_byte(real, made, tmp_path):
    for workspace, documents in ((real, 3 + LINUX), (made, 2)):
        output = tmp_path / workspace.parent.name
        done = llm_ocr.export(workspace=workspace, output=output, format="markdown")
        assert done.rows == documents
        assert files_of(output / "documents") == files_of(workspace / "documents")
        assert done.files == len(files_of(workspace / "documents"))


@pytest.mark.slow
def test_documents_with_many_bad_pages_are_dropped_and_listed(tmp_path):
    workspace = make(str(tmp_path / "w"), 4, fails=frozenset({"2.pdf"}))
    for kind, folder in (("markdown", "documents/2.pdf.md"), ("json", "documents/2.pdf.json")):
        output = tmp_path / kind
        assert llm_ocr.export(workspace=workspace, output=output, format=kind).dropped == 0
        assert (output / folder).exists()
        done = llm_ocr.export(workspace=workspace, output=output, format=kind, drop_over_error_rate=True)
        assert (done.rows, done.dropped) == (3, 1)
        assert not (output / folder).exists()
        (left,) = [json.loads(line) for line in (output / "dropped-documents.jsonl").read_text().splitlines()]
        assert (Path(left["source"]).name, left["pages"], left["failed"], left["error_rate"]) == ("2.pdf", 3, 3, 1.0)
        assert left["reasons"] == ["engine timeout"]
        again = llm_ocr.export(workspace=workspace, output=output, format=kind, drop_over_error_rate=True)
        assert (again.written, again.dropped) == (0, 1)
        all_in = {"drop_over_error_rate": True, "max_page_error_rate": 1.0}
        assert llm_ocr.export(workspace=workspace, output=output, format=kind, **all_in).dropped == 0
        assert (output / folder).exists()
        assert not (output / "dropped-documents.jsonl").exists()


def test_pages_of_many_batches_are_those_of_one(made, tmp_path, monkeypatch):
    llm_ocr.export(workspace=made, output=tmp_path / "one", format="jsonl")
    monkeypatch.setattr(files, "PAGES", 6)
    done = llm_ocr.export(workspace=made, output=tmp_path / "many", format="jsonl")
    assert done.files == 2
    assert lines(tmp_path / "many/successes") == lines(tmp_path / "one/successes")


def test_one_file_name_for_two_batches_is_an_error(made, tmp_path, monkeypatch):
    form = files.Form("one", 1, lambda batch, documents: iter([files.File("all.json")] * any(documents)), str)
    monkeypatch.setattr(files, "PAGES", 6)
    monkeypatch.setattr(exporting.EXPORTS, "get", lambda name: lambda job: files.export_files(job, form))
    for _ in range(2):  # the first batch has its note the second time
        with pytest.raises(StorageError, match=r"two batches have the same file name, all\.json") as caught:
            llm_ocr.export(workspace=made, output=tmp_path / "o", format="jsonl")
        assert "batch.name" in caught.value.hint


@pytest.mark.parametrize("form", ["jsonl", "json"])
def test_a_repository_gets_the_same_files_in_few_commits(form, making, standing, tmp_path):  # noqa: F811
    name = new_name()
    given = {"output": f"hf://datasets/{name}", "output_endpoint": making.hub().url, "format": form}
    first = llm_ocr.export(workspace=standing, **given)
    assert commits(making, name) <= 4
    again = llm_ocr.export(workspace=standing, **given)
    assert (first.written, again.written) == (first.files, 0)
    llm_ocr.export(workspace=standing, output=tmp_path / "o", format=form)
    store = open_store(given["output"], StoreOptions(endpoint=given["output_endpoint"]))
    assert {info.key: store.get(info.key) for info in store.list()} == files_of(tmp_path / "o")
    assert name in first.load


def test_after_a_retry_the_repository_is_that_of_the_new_state(making, standing, tmp_path):  # noqa: F811
    workspace = tmp_path / "w"
    given = {"output": f"hf://datasets/{new_name()}", "output_endpoint": making.hub().url, "format": "jsonl"}
    shutil.copytree(standing, workspace)
    llm_ocr.export(workspace=workspace, **given)
    retry(str(workspace))
    assert llm_ocr.export(workspace=workspace, **given).written == 1
    store = open_store(given["output"], StoreOptions(endpoint=given["output_endpoint"]))
    keys = [info.key for info in store.list()]
    (successes,) = [key for key in keys if key.startswith("successes/")]
    assert len([json.loads(line) for line in store.get(successes).splitlines()]) == 18
    assert not [key for key in keys if key.startswith(("errors/", "_llm-ocr/begun/"))]
