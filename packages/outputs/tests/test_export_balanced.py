"""`export --only balanced`: pages that are ok and whose ledger balances."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from view_workspaces import Wanted, make, text

import llm_ocr
from llm_ocr.cli import main
from llm_ocr.errors import UsageError
from llm_ocr.exporting import NothingLeft
from llm_ocr.types import Ledger, Reason, Status

GOOD = Ledger(0.1)


def page(name: str, number: int) -> Wanted:
    words = f"Page {number} of {name}"
    match name, number:
        case "a.pdf", 2:
            return text(words, status=Status.DEGRADED, reason=Reason.UNREAD, ledger=Ledger(0.1, 0.5))
        case "a.pdf", 3:
            return text(words, ledger=Ledger(0.1, 0.0, 0.9))
        case "b.pdf", _:
            return Wanted(status=Status.FAILED, reason=Reason.ENGINE_TIMEOUT)
        case "c.pdf", 2:
            return text(words)  # of an older version
        case "old.pdf", _:
            return text(words)
    return text(words, ledger=GOOD)


@pytest.fixture(scope="module")
def workspace(tmp_path_factory) -> str:
    return make(str(tmp_path_factory.mktemp("balanced") / "w"), {"a.pdf": 4, "b.pdf": 1, "c.pdf": 2, "d.pdf": 1}, page)


BALANCED = [("a.pdf", 1), ("a.pdf", 4), ("c.pdf", 1), ("d.pdf", 1)]


def test_the_dataset_has_only_balanced_pages(workspace, tmp_path):
    done = llm_ocr.export(workspace=workspace, output=tmp_path / "o", only="balanced")
    assert (done.rows, done.left_out, done.dropped) == (4, 4, 0)
    tables = [pq.read_table(path) for path in sorted((tmp_path / "o/data").iterdir())]
    rows = [row for table in tables for row in table.select(["source", "page_number"]).to_pylist()]
    assert [(Path(row["source"]).name, row["page_number"]) for row in rows] == BALANCED
    assert "4 pages failed, or had ink or text" in (tmp_path / "o/README.md").read_text()
    assert llm_ocr.export(workspace=workspace, output=tmp_path / "o", only="balanced").written == 0
    assert llm_ocr.export(workspace=workspace, output=tmp_path / "o").rows == 8


def test_dropped_documents_and_left_out_pages_count_apart(workspace, tmp_path):
    for form in ("dataset", "jsonl"):
        given = {"output": tmp_path / form, "format": form, "drop_over_error_rate": True}
        done = llm_ocr.export(workspace=workspace, only="balanced", **given)
        assert (done.rows, done.left_out, done.dropped) == (4, 3, 1), form


@pytest.mark.parametrize("form", ["jsonl", "json", "dolma", "html", "chunks", "markdown"])
def test_texts_have_only_balanced_pages(workspace, tmp_path, form):
    whole = llm_ocr.export(workspace=workspace, output=tmp_path / "o", format=form)
    done = llm_ocr.export(workspace=workspace, output=tmp_path / "o", format=form, only="balanced")
    assert (whole.left_out, done.left_out) == (0, 4)
    again = llm_ocr.export(workspace=workspace, output=tmp_path / "o", format=form, only="balanced")
    assert (again.written, again.left_out) == (0, 4)
    if form == "jsonl":
        lines = [json.loads(line) for path in (tmp_path / "o/successes").iterdir() for line in path.open()]
        assert [(Path(one["pdf_path"]).name, one["page"]) for one in lines] == BALANCED
        assert not list((tmp_path / "o/errors").glob("*"))
    if form in ("json", "markdown"):
        left = sorted(path.name for path in (tmp_path / "o/documents").iterdir())
        assert [name.partition(".pdf")[0] for name in left] == ["a", "c", "d"]
    if form == "json":
        value = json.loads((tmp_path / "o/documents/a.pdf.json").read_text())
        assert [one["number"] for one in value["pages"]] == [1, 4]
    if form == "markdown":
        words = (tmp_path / "o/documents/a.pdf.md").read_text()
        assert words == "<!-- page 1 -->\n\nPage 1 of a.pdf\n\n<!-- page 4 -->\n\nPage 4 of a.pdf\n"


def test_the_command_says_how_many_pages_are_left_out(workspace, tmp_path, capsys):
    given = ["export", "-w", workspace, "--format", "jsonl", "--output", str(tmp_path / "o"), "--quiet"]
    assert main([*given, "--only", "balanced"]) == 0
    assert "4 pages left out (not balanced)" in capsys.readouterr().out


def test_a_workspace_without_ledgers_is_an_error(tmp_path):
    workspace = make(str(tmp_path / "w"), {"old.pdf": 2}, page)
    for form in ("dataset", "jsonl", "markdown"):
        llm_ocr.export(workspace=workspace, output=tmp_path / form, format=form)
        before = {path for path in (tmp_path / form).rglob("*") if "_llm-ocr" not in path.parts}
        with pytest.raises(NothingLeft, match="none of 2 pages is balanced") as caught:
            llm_ocr.export(workspace=workspace, output=tmp_path / form, format=form, only="balanced")
        assert "older version" in caught.value.hint
        assert before <= set((tmp_path / form).rglob("*"))  # the export before it is intact


@pytest.mark.parametrize("form", ["olmocr-bench", "fields"])
def test_formats_that_need_every_page_refuse_only(workspace, tmp_path, form):
    with pytest.raises(UsageError, match="`only` is not possible"):
        llm_ocr.export(workspace=workspace, output=tmp_path / "o", format=form, only="balanced")
