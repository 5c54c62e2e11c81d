"""What a user meets every day: a second run in the same folder, advice, and names."""

import importlib.util
import shutil
import sys
import textwrap
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from bad_documents import text_pdf
from running import FRUGAL, cli, finished

import llm_ocr


@pytest.fixture
def folder(golden, examples, tmp_path):
    """A folder with a document, its workspace, an export, and a site."""

    def make(made):
        shutil.copy(examples / "paper.pdf", made)
        cli("run", ".", "-w", "out", *FRUGAL, cwd=made)
        cli("export", "-w", "out", "--output", "corpus", "--format", "markdown", cwd=made)
        cli("view", "-w", "out", "--output", "site", cwd=made)

    return shutil.copytree(golden("everyday", make), tmp_path / "folder")


def test_second_run_reads_no_results_of_the_first(folder):
    again = cli("run", ".", "-w", "out", *FRUGAL, cwd=folder)
    assert again.stdout.splitlines()[-1] == "3 ok"
    assert "corpus (export)" in again.stderr
    assert "out (workspace)" in again.stderr
    assert "site (site)" in again.stderr


def test_foreign_run_json_hides_no_documents(examples, tmp_path):
    shutil.copy(examples / "paper.pdf", tmp_path)
    (tmp_path / "run.json").write_text('{"format": "A4"}')
    assert "1 document, 3 pages" in cli("plan", tmp_path, "-w", "none", "--dry-run", cwd=tmp_path).stdout


def test_workspace_named_as_source_is_explained(folder):
    refused = cli("run", "out", "-w", "other", *FRUGAL, cwd=folder)
    assert refused.returncode == 2
    assert "skipped results of llm-ocr" in refused.stderr


def test_figures_without_a_description_are_not_called_ok(folder):
    first = cli("run", ".", "-w", "out", *FRUGAL, cwd=folder).stdout
    assert first.startswith("4 figures: 0 described (the CPU engine cannot; a model can: llm-ocr describe --server-url")
    assert "4 ok, 4 without a description" in cli("status", "-w", "out", cwd=folder).stdout


def test_caption_is_the_alternative_text_of_its_figure(folder):
    text = (folder / "out/documents/paper.pdf.md").read_text()
    assert (
        "![Figure 3: Level at Hollow Bridge over ten days in January: as read, and as forecast twelve hours earlier.]("
        in text
    )


def test_replaced_document_owns_its_name(tmp_path):
    (tmp_path / "letter.pdf").write_bytes(text_pdf(["The old text of this letter."]))
    cli("run", "letter.pdf", "-w", "out", *FRUGAL, cwd=tmp_path)
    (tmp_path / "letter.pdf").write_bytes(text_pdf(["A new text replaces the letter."]))
    again = cli("run", "letter.pdf", "-w", "out", *FRUGAL, cwd=tmp_path)
    assert "1 document changed" in again.stderr
    assert "A new text" in (tmp_path / "out/documents/letter.pdf.md").read_text()
    [older] = (tmp_path / "out/documents").glob("letter-*.pdf.md")
    assert "The old text" in older.read_text()
    texts = {document.path: document.markdown for document in llm_ocr.open(tmp_path / "out").documents()}
    assert "A new text" in texts["documents/letter.pdf.md"]
    assert "changed" not in cli("run", "letter.pdf", "-w", "out", *FRUGAL, cwd=tmp_path).stderr


@pytest.mark.skipif(sys.platform != "linux", reason="threads are counted in /proc")
def test_reading_pages_leaves_no_thread_behind(paper_workspace):
    script = """
        import os, sys
        import pyarrow.parquet, llm_ocr
        before = len(os.listdir("/proc/self/task"))
        pages = list(llm_ocr.open(sys.argv[1]).pages())
        print(len(pages), len(os.listdir("/proc/self/task")) - before)
    """
    program = [sys.executable, "-c", textwrap.dedent(script), str(paper_workspace)]
    assert finished(program, cwd=paper_workspace).stdout == "3 0\n"


def test_status_and_view_find_the_default_workspace(paper_workspace, tmp_path):
    shutil.copytree(paper_workspace, tmp_path / "llm-ocr-out")
    assert "3 expected: 3 ok" in cli("status", cwd=tmp_path).stdout
    assert cli("view", "--output", "site", cwd=tmp_path).returncode == 0
    assert (tmp_path / "site/index.html").is_file()


def test_missing_datasets_is_named_with_its_installation(paper_workspace, monkeypatch, tmp_path):
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name, *more: None if name == "datasets" else find_spec(name, *more)
    )
    done = cli("run", "-w", paper_workspace, *FRUGAL, cwd=tmp_path)
    assert "load_dataset: pip install" in done.stdout


def test_encrypted_document_names_the_password_file(tmp_path):
    (tmp_path / "locked.pdf").write_bytes(text_pdf(["The text behind a password."], password="sesame"))
    (tmp_path / "secrets.txt").write_text("sesame\n")
    first = cli("run", "locked.pdf", "-w", "out", *FRUGAL, cwd=tmp_path)
    assert first.stdout.endswith("Retry: llm-ocr retry-failed -w out --password-file FILE\n")
    assert "--password-file FILE" in cli("retry-failed", "-w", "out", cwd=tmp_path).stderr
    again = cli("retry-failed", "-w", "out", "--password-file", "secrets.txt", cwd=tmp_path)
    assert "Next: llm-ocr run -w out --password-file secrets.txt" in again.stdout
    assert cli("run", "-w", "out", "--password-file", "secrets.txt", *FRUGAL, cwd=tmp_path).returncode == 0


def test_small_local_runs_publish_each_page(tmp_path):
    (tmp_path / "long.pdf").write_bytes(text_pdf(*([f"Page {number}"] for number in range(12))))
    assert "12 pages, 12 units" in cli("plan", "long.pdf", "-w", "out", "--engine", "embedded", cwd=tmp_path).stdout


def test_text_file_as_source_is_explained_as_a_list(tmp_path):
    (tmp_path / "notes.txt").write_text("Dear Sir,\nthis is a text.\n")
    refused = cli("run", "notes.txt", "-w", "out", *FRUGAL, cwd=tmp_path)
    assert refused.returncode == 2
    assert "notes.txt is read as a list" in refused.stderr


def test_printed_status_is_one_short_line(paper_workspace):
    text = str(llm_ocr.open(paper_workspace).status)
    assert text == f"{paper_workspace}: 3 pages: 3 ok; 4 figures: 4 ok, 4 without a description"


@pytest.mark.parametrize(
    "form", ["dataset", "json", "jsonl", "dolma", "html", "hocr", "alto", "chunks", "markdown", "pdf"]
)
def test_exports_contain_no_private_path(folder, form):
    cli("export", "-w", "out", "--output", "there", "--format", form, cwd=folder)
    files = [path for path in (folder / "there").rglob("*") if path.is_file()]
    assert files
    private = str(folder.parent.parent.parent).encode()  # the folder of all tests
    for path in files:
        assert private not in readable(path)


def test_exports_name_sources_from_the_folder_unless_told(folder):
    cli("export", "-w", "out", "--output", "relative", cwd=folder)
    cli("export", "-w", "out", "--output", "absolute", "--source-paths", "absolute", cwd=folder)
    relative, absolute = (
        pq.read_table(next((folder / name / "data").glob("*.parquet")), columns=["source"])["source"].to_pylist()
        for name in ("relative", "absolute")
    )
    assert not any(path.startswith("/") for path in relative)
    assert {(folder / path).resolve() for path in relative} == {Path(path).resolve() for path in absolute}
    assert all(path.startswith("/") and path.endswith("/paper.pdf") for path in absolute)


def readable(path):
    """Return the bytes of a file, with the values of compressed Parquet columns."""
    if path.suffix != ".parquet":
        return path.read_bytes()
    return str(pq.read_table(path).drop_columns(["source_image", "document_with_boxes_image"]).to_pylist()).encode()
