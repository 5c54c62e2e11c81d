"""Exports of texts that are run again: after a retry or new documents; and what they do not replace."""

from pathlib import Path

import pytest
from export_workspaces import PAGES, files_of, make, noted_batches, read, retry
from store_servers import gcs

import llm_ocr
from llm_ocr.errors import StageMissing, StorageError, WorkspaceError, WorkspaceMismatch
from llm_ocr.exporting import Exported
from llm_ocr.storage import StoreOptions, open_store
from llm_ocr.workspace import Workspace
from llm_ocr.workspace.plan import PlannedDocument
from llm_ocr_outputs import files
from tests.fakes.planning import plan_documents

FORMATS = ("jsonl", "json", "markdown", "dolma", "html", "chunks", "olmocr-bench")


@pytest.fixture(autouse=True)
def small(monkeypatch) -> None:
    """Batches of two documents, groups of two files."""
    monkeypatch.setattr(files, "PAGES", 2 * PAGES)
    monkeypatch.setattr(files, "_FILES", 2)


def export(workspace: Path, output: Path | str, form: str, **settings) -> Exported:
    return llm_ocr.export(workspace=workspace, output=output, format=form, **settings)


def add(workspace: Path, name: str) -> None:
    """Plan, read and assemble one more document."""
    with Workspace.open(str(workspace)) as opened:
        plan_documents(opened, [PlannedDocument(f"/in/{name}", name, name, None, (1, 2), 2)], pages_per_unit=PAGES)
        read(opened)
    llm_ocr.assemble(workspace=workspace)


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMATS)
def test_second_export_is_empty_and_a_retry_replaces_its_batch(form, workspace, tmp_path):
    first = export(workspace, tmp_path / "o", form)
    times = {path: path.stat().st_mtime_ns for path in (tmp_path / "o").rglob("*")}
    again = export(workspace, tmp_path / "o", form)
    assert first.written == first.files
    assert (again.written, again.files, again.rows, again.size) == (0, first.files, first.rows, first.size)
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "o").rglob("*")} == times
    (tmp_path / "o/of-others.txt").write_text("stays")
    before = noted_batches(tmp_path / "o")
    retry(str(workspace))
    export(workspace, tmp_path / "o", form)
    after = noted_batches(tmp_path / "o")
    assert (len(before), len(after), len(before.keys() & after.keys())) == (3, 3, 2)
    assert all(after[note] == before[note] for note in before.keys() & after.keys())
    (tmp_path / "o/of-others.txt").unlink()  # raises unless it stayed
    export(workspace, tmp_path / "fresh", form)
    assert files_of(tmp_path / "o") == files_of(tmp_path / "fresh")


def test_new_documents_touch_the_last_batch_at_most(workspace, tmp_path):
    add(workspace, "7.pdf")
    export(workspace, tmp_path / "o", "jsonl")
    before = noted_batches(tmp_path / "o")
    add(workspace, "8.pdf")
    assert export(workspace, tmp_path / "o", "jsonl").written == 1
    after = noted_batches(tmp_path / "o")
    assert (len(before), len(after), len(before.keys() & after.keys())) == (4, 4, 3)
    assert len(list((tmp_path / "o/successes").iterdir())) == 4


def test_export_of_another_workspace_or_format_is_not_replaced(standing, tmp_path):
    other = make(str(tmp_path / "other"), 1)
    export(standing, tmp_path / "o", "json")
    before = files_of(tmp_path / "o")
    with pytest.raises(WorkspaceMismatch, match="another workspace"):
        export(other, tmp_path / "o", "json")
    with pytest.raises(WorkspaceMismatch, match="the format json"):
        export(standing, tmp_path / "o", "markdown")
    assert files_of(tmp_path / "o") == before


def test_files_of_others_and_a_dataset_are_not_mixed_with(standing, tmp_path):
    (tmp_path / "notes/documents").mkdir(parents=True)
    (tmp_path / "notes/documents/0.pdf.md").write_text("mine")
    with pytest.raises(WorkspaceMismatch, match=r"documents/0\.pdf\.md"):
        export(standing, tmp_path / "notes", "markdown")
    assert (tmp_path / "notes/documents/0.pdf.md").read_text() == "mine"
    export(standing, tmp_path / "dataset", "dataset")
    with pytest.raises(WorkspaceMismatch, match="data/train"):
        export(standing, tmp_path / "dataset", "jsonl")
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts/.DS_Store").write_bytes(b"x")  # a folder that looks empty
    export(standing, tmp_path / "texts", "jsonl")
    with pytest.raises(WorkspaceMismatch, match="in another format"):
        export(standing, tmp_path / "texts", "dataset")


def test_a_note_that_is_damaged_is_told(standing, tmp_path):
    export(standing, tmp_path / "o", "jsonl")
    note = sorted((tmp_path / "o/_llm-ocr/batches").iterdir())[0]
    note.write_text('{"other": 1}')
    with pytest.raises(WorkspaceError, match="not a note of an export"):
        export(standing, tmp_path / "o", "jsonl")


def test_nothing_is_written_for_what_is_not_assembled(workspace, tmp_path):
    next((workspace / "assemble").rglob("*.done")).unlink()
    with pytest.raises(StageMissing, match="1 of 6 items are not assembled"):
        export(workspace, tmp_path / "o", "json")
    empty = tmp_path / "empty"
    Workspace.open(str(empty), create=True).close()
    with pytest.raises(StageMissing, match="no plan"):
        export(empty, tmp_path / "o", "json")
    assert not (tmp_path / "o").exists()


def test_a_file_of_the_tree_that_is_gone_is_told(workspace, tmp_path):
    (workspace / "documents/3.pdf.md").unlink()
    with pytest.raises(StorageError, match=r"3\.pdf\.md is missing") as caught:
        export(workspace, tmp_path / "o", "markdown")
    assert "Run Assemble again" in caught.value.hint


@pytest.mark.slow
def test_a_bucket_gets_the_same_files(standing, tmp_path):
    form = "json"
    with gcs() as (url, settings):
        endpoint = settings["workspace_endpoint"]
        first = export(standing, url, form, output_endpoint=endpoint)
        again = export(standing, url, form, output_endpoint=endpoint)
        assert (first.written, again.written) == (first.files, 0)
        store = open_store(url, StoreOptions(endpoint=endpoint))
        there = {info.key: store.get(info.key) for info in store.list()}
    export(standing, tmp_path / "o", form)
    assert there == files_of(tmp_path / "o")
    assert f"{url}/" in first.load


def test_a_workspace_in_a_bucket_gives_the_same_files(bucket_workspace, tmp_path):
    with gcs() as (url, settings):
        bucket_workspace(url, settings)
        export(url, tmp_path / "markdown", "markdown", **settings)
        export(url, tmp_path / "json", "json", **settings)
        store = open_store(url, StoreOptions(endpoint=settings["workspace_endpoint"]))
        keys = {info.key for info in store.list("documents/")}
    assert keys == {name for name in files_of(tmp_path / "markdown") if name.startswith("documents/")}
    assert len(files_of(tmp_path / "json/documents")) == 3
