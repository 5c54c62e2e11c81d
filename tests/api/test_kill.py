"""kill -9 at any moment, then the same command: it completes, nothing is lost, nothing twice, finished units stay."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import llm_ocr
from llm_ocr.types import Status
from llm_ocr.work.keys import EXTRACT, required_key
from llm_ocr.work.publish import markers
from llm_ocr.work.workspace import Workspace

COPIES = 6


@pytest.fixture(scope="module")
def corpus(tmp_path_factory, examples: Path) -> Path:
    """Documents of different content, so that none is an alias of another."""
    folder = tmp_path_factory.mktemp("corpus")
    for number in range(COPIES):
        copy = folder / f"paper {number}.pdf"
        shutil.copy(examples / "paper.pdf", copy)
        with copy.open("ab") as file:
            file.write(f"\n% copy {number}\n".encode())
    return folder


def command(corpus: Path, workspace: Path) -> list[str]:
    run = [sys.executable, "-m", "llm_ocr", "run", str(corpus), "-w", str(workspace)]
    return [*run, "--pages-per-unit", "2", "--engine", "embedded", "--quiet"]


def attempts(workspace: Path) -> dict[str, str]:
    """Which attempt each finished unit of Extract is of."""
    if not (workspace / "extract" / "key.json").exists():
        return {}
    opened = Workspace.open(str(workspace))
    return {unit: marker.attempt for unit, marker in markers(opened, EXTRACT, required_key(opened, EXTRACT)).items()}


def texts(workspace: Path) -> list[tuple[str, str]]:
    return [(page.page_id, page.markdown) for page in llm_ocr.open(str(workspace)).pages(images=False)]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_killed_runs_lose_nothing_and_redo_no_finished_unit(corpus, tmp_path, seed):
    quiet = subprocess.run(command(corpus, tmp_path / "quiet"), capture_output=True, text=True, timeout=120)
    assert quiet.returncode == 0, quiet.stderr
    chance = random.Random(seed)
    workspace = tmp_path / "killed"
    before: dict[str, str] = {}
    for _ in range(4):
        process = subprocess.Popen(command(corpus, workspace), stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        time.sleep(chance.uniform(0.3, 3.0))
        process.send_signal(signal.SIGKILL)
        process.wait()
        after = attempts(workspace)
        assert before.items() <= after.items()
        before = after
    done = subprocess.run(command(corpus, workspace), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert before.items() <= attempts(workspace).items()
    assert texts(workspace) == texts(tmp_path / "quiet")
    status = llm_ocr.open(str(workspace)).status
    assert (status.pages.expected, status.pages.ok) == (3 * COPIES, 3 * COPIES)
    dataset = llm_ocr.open(str(workspace)).to_dataset()
    assert sorted(dataset["sample_id"]) == sorted(page for page, _ in texts(workspace))


@pytest.mark.slow
def test_two_processes_on_one_workspace_do_no_harm(corpus, tmp_path):
    workspace = tmp_path / "shared"
    both = [subprocess.Popen(command(corpus, workspace), stderr=subprocess.PIPE, text=True) for _ in range(2)]
    for process in both:
        _, errors = process.communicate(timeout=180)
        assert process.returncode == 0, errors
    pages = texts(workspace)
    assert len(pages) == len({page for page, _ in pages}) == 3 * COPIES
    assert all(page.status is Status.OK for page in llm_ocr.open(str(workspace)).pages(images=False))


@pytest.mark.slow
def test_sigterm_ends_with_exit_code_4_and_leaves_no_process(corpus, tmp_path):
    process = subprocess.Popen(command(corpus, tmp_path / "w"), stderr=subprocess.PIPE, text=True)
    time.sleep(1.5)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=30)
    assert process.returncode in (0, 4), errors  # 0: it was quicker than the signal
    time.sleep(0.5)
    assert not [line for line in _processes() if f"{tmp_path}" in line]


def _processes() -> list[str]:
    listed = subprocess.run(["ps", "-eo", "pid,args"], capture_output=True, text=True, check=True)
    return [line for line in listed.stdout.splitlines() if str(os.getpid()) not in line]


def test_markers_are_json_that_a_person_can_read(corpus, tmp_path):
    llm_ocr.plan(str(corpus), workspace=tmp_path / "w")
    marker = json.loads((tmp_path / "w" / "plan" / "0001.done").read_text())
    assert marker["expected"] == 3 * COPIES
