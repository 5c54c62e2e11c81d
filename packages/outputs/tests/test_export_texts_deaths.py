"""Exports of texts that die at any of their writes or by kill -9, and the same command after it."""

import shutil
import signal
import subprocess
import sys
from itertools import count
from pathlib import Path

import pytest
from export_workspaces import PAGES, exported_with, files_of, make, noted_batches, retry
from running import environment

import llm_ocr
from llm_ocr.exporting import Exported
from llm_ocr_outputs import files
from tests.fakes.crash import CrashPoint, When

FAILS = frozenset({"2.pdf"})


@pytest.fixture(scope="module")
def standing(tmp_path_factory) -> Path:
    """An assembled workspace of 3 documents of 3 pages, one of them failed; each is a batch."""
    return Path(make(str(tmp_path_factory.mktemp("deaths") / "w"), 3, fails=FAILS))


@pytest.fixture(scope="module")
def retried(standing, tmp_path_factory) -> Path:
    """The same after a retry."""
    workspace = Path(shutil.copytree(standing, tmp_path_factory.mktemp("retried") / "w"))
    retry(str(workspace))
    return workspace


@pytest.fixture(autouse=True)
def small(monkeypatch) -> None:
    """Batches of one document, groups of two files."""
    monkeypatch.setattr(files, "PAGES", PAGES)
    monkeypatch.setattr(files, "_FILES", 2)


@pytest.mark.slow
@pytest.mark.parametrize(("form", "first"), [("jsonl", False), ("json", False), ("markdown", True)])
def test_rerun_completes_the_export_after_a_crash_at_any_write(form, first, standing, retried, tmp_path, monkeypatch):
    export(retried, tmp_path / "undisturbed", form)
    wanted = files_of(tmp_path / "undisturbed")
    if not first:
        export(standing, tmp_path / "before", form)
    for at in count():
        output = tmp_path / f"o{at}"
        if not first:
            shutil.copytree(tmp_path / "before", output)
        point = CrashPoint(at, (When.BEFORE, When.AFTER)[at % 2])
        ended = exported_with(point, monkeypatch, retried, output, format=form)
        before = noted_batches(output)
        if not ended:
            export(retried, output, form)
        assert files_of(output) == wanted
        after = noted_batches(output)
        assert all(after[note] == files for note, files in before.items() if note in after)
        if ended:
            assert at > 6
            return


@pytest.mark.slow
def test_older_state_is_exported_right_after_crash_at_any_write(standing, retried, tmp_path, monkeypatch):
    export(standing, tmp_path / "before", "json")
    for at in count():
        output = shutil.copytree(tmp_path / "before", tmp_path / f"o{at}")
        ended = exported_with(CrashPoint(at), monkeypatch, retried, output, format="json")
        export(standing, output, "json")
        assert files_of(output) == files_of(tmp_path / "before")
        if ended:
            assert at > 6
            return


def export(workspace: Path, output: Path, form: str) -> Exported:
    return llm_ocr.export(workspace=workspace, output=output, format=form)


_KILLED = """
import os, signal, sys
from llm_ocr_outputs import files
files.PAGES = 3
end, ended = files.Notes.end, []
def counted(self, *arguments):
    end(self, *arguments)
    ended.append(arguments)
    if len(ended) == 2:
        os.kill(os.getpid(), signal.SIGKILL)
files.Notes.end = counted
from llm_ocr.cli import main
sys.exit(main(["export", "-w", sys.argv[1], "--output", "o", "--format", "json"]))
"""


def test_after_a_kill_finished_batches_are_not_written_again(standing, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # sources are relative to the current folder
    program = [sys.executable, "-c", _KILLED, str(standing)]
    ended = subprocess.run(program, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=180)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    before = noted_batches(tmp_path / "o")
    assert len(before) == 2
    assert export(standing, tmp_path / "o", "json").written == 1
    assert before.items() <= noted_batches(tmp_path / "o").items()
    export(standing, tmp_path / "undisturbed", "json")
    assert files_of(tmp_path / "o") == files_of(tmp_path / "undisturbed")
