"""What a user meets every day: a second run in the same folder, advice, and names."""

import shutil

import pytest
from running import FRUGAL, cli


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
