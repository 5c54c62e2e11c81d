"""What a user meets every day: a second run in the same folder, advice, and names."""

import shutil
import sys
import textwrap

import pytest
from running import FRUGAL, cli, finished

import llm_ocr


def made_pdf(text):
    """Return a PDF of one page with a line of text."""
    drawn = f"BT /F 14 Tf 72 700 Td ({text}) Tj ET".encode()
    objects = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[4 0 R]/Count 1>>",
        b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]/Contents 5 0 R/Resources<</Font<</F 3 0 R>>>>>>",
        b"<</Length %d>>stream\n%s\nendstream" % (len(drawn), drawn),
    ]
    body = b"".join(b"%d 0 obj\n%s\nendobj\n" % (number, one) for number, one in enumerate(objects, start=1))
    return b"%PDF-1.5\n" + body + b"trailer<</Root 1 0 R/Size 6>>\n%%EOF"


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
    assert first.startswith(
        "4 figures: 0 described (the CPU engine describes no pictures: llm-ocr describe --server-url"
    )
    assert "4 ok, 4 without a description" in cli("status", "-w", "out", cwd=folder).stdout


def test_caption_is_the_alternative_text_of_its_figure(folder):
    text = (folder / "out/documents/paper.pdf.md").read_text()
    assert (
        "![Figure 3: Level at Hollow Bridge over ten days in January: as read, and as forecast twelve hours earlier.]("
        in text
    )


def test_replaced_document_owns_its_name(tmp_path):
    (tmp_path / "letter.pdf").write_bytes(made_pdf("The old text of this letter."))
    cli("run", "letter.pdf", "-w", "out", *FRUGAL, cwd=tmp_path)
    (tmp_path / "letter.pdf").write_bytes(made_pdf("A new text replaces the letter."))
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
