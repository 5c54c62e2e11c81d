"""llm-ocr export: what is said, and the exit codes."""

import shutil
import subprocess
import sys

import pytest


def test_the_result_and_how_it_is_opened_are_the_last_words(llm_ocr, workspace, tmp_path):
    done = llm_ocr("export", "-w", "out", "--output", "scans")
    assert done.returncode == 0, done.stderr
    where, how = done.stdout.splitlines()
    assert where.startswith("2 rows in 1 file (")
    assert where.endswith(f"1 newly written): {tmp_path}/scans")
    assert how == f'Open it: load_dataset("{tmp_path}/scans", split="train")'
    assert "export: 1/1 file," in done.stderr
    assert "MB" in done.stderr


def test_the_second_time_nothing_is_written(llm_ocr, workspace):
    for written in (1, 0):
        done = llm_ocr("export", "-w", "out", "--output", "scans", "--format", "dataset", "--quiet")
        assert (done.returncode, done.stderr) == (0, "")
        assert f"{written} newly written" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["-w", "out"], "--output"),
        (["-w", "out", "--output", "x", "--format", "word"], "dataset"),
        (["-w", "out", "--output", "x", "--shard-size", "0"], "--shard-size"),
        (["-w", "out", "--output", "gcs://bucket/x"], "gs://"),
        (["-w", "out", "--output", "hf://ns/name"], "hf://datasets/ns/name"),
        (["-w", "out", "--output", "hf://datasets/ns/name/folder"], "hf://datasets/ns/name@BRANCH"),
        (["-w", "out", "--output", "out/x"], "is inside the workspace"),
    ],
)
def test_wrong_usage_is_exit_2_and_writes_nothing(llm_ocr, workspace, tmp_path, arguments, said):
    done = llm_ocr("export", *arguments)
    assert done.returncode == 2
    assert said in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_what_is_not_assembled_is_exit_1(llm_ocr, workspace, tmp_path):
    shutil.rmtree(workspace / "assemble")
    done = llm_ocr("export", "-w", "out", "--output", "scans")
    assert done.returncode == 1
    assert "1 of 1 items are not assembled" in done.stderr
    assert "llm-ocr assemble -w" in done.stderr
    assert not (tmp_path / "scans").exists()


def test_no_workspace_is_exit_1(llm_ocr, tmp_path):
    done = llm_ocr("export", "-w", "nowhere", "--output", "scans")
    assert done.returncode == 1
    assert "no workspace" in done.stderr
    assert list(tmp_path.iterdir()) == []


_STOPPED = """
import os, signal, sys
from llm_ocr_outputs.exports import dataset, shards
write = shards.write_shard
def stopped(*arguments):
    os.kill(os.getpid(), signal.SIGTERM)
    return write(*arguments)
dataset.write_shard = stopped
from llm_ocr.cli import main
sys.exit(main(["export", "-w", "out", "--output", "scans"]))
"""


@pytest.mark.slow
def test_a_signal_is_exit_4_and_the_same_command_goes_on(llm_ocr, workspace, repository, tmp_path):
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(repository)}
    program = [sys.executable, "-c", _STOPPED]
    stopped = subprocess.run(program, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=180)
    assert stopped.returncode == 4, stopped.stderr
    assert "Run the same command again" in stopped.stderr
    assert "Traceback" not in stopped.stderr
    done = llm_ocr("export", "-w", "out", "--output", "scans")
    assert done.returncode == 0
    assert sorted(path.name for path in (tmp_path / "scans").iterdir()) == ["README.md", "data"]


@pytest.mark.parametrize(
    ("form", "rows", "opened"),
    [
        ("jsonl", "2 pages in 1 file (", 'load_dataset("json", data_files="{}/successes/*.jsonl", split="train")'),
        ("json", "1 document in 1 file (", "Open it: the .json files in {}/documents"),
        ("markdown", "1 document in ", "Open it: the .md files in {}/documents"),
    ],
)
def test_rows_are_called_what_they_are(llm_ocr, workspace, tmp_path, form, rows, opened):
    done = llm_ocr("export", "-w", "out", "--output", "texts", "--format", form)
    assert done.returncode == 0, done.stderr
    where, how = done.stdout.splitlines()
    assert where.startswith(rows)
    assert where.endswith(f"newly written): {tmp_path}/texts")
    assert opened.format(tmp_path / "texts") in how
    assert f"{form}: 2/2 pages" in done.stderr


def test_another_format_at_the_same_place_is_exit_1(llm_ocr, workspace):
    assert llm_ocr("export", "-w", "out", "--output", "texts", "--format", "json", "--quiet").returncode == 0
    done = llm_ocr("export", "-w", "out", "--output", "texts", "--format", "jsonl", "--quiet")
    assert done.returncode == 1
    assert "the format json" in done.stderr
    assert "--output" in done.stderr
