"""kill -9 at any moment, then the same command: it completes, nothing is lost, nothing twice, finished units stay."""

import json
import random
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from running import alive, assert_markers_name_whole_data, cli, environment, program, said, unfinished, when

import llm_ocr
from llm_ocr.workspace import Workspace
from llm_ocr.workspace.keys import EXTRACT, required_key
from llm_ocr.workspace.publish import markers
from llm_ocr_simulator import running

COPIES = 4
PAGES = 3 * COPIES


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


@pytest.fixture(scope="module")
def undisturbed(corpus: Path, tmp_path_factory) -> list[tuple[str, str]]:
    """What a run gives that nobody disturbs."""
    folder = tmp_path_factory.mktemp("undisturbed")
    run = cli(*arguments(corpus, folder / "out"), cwd=folder)
    assert run.returncode == 0, said(run)
    return texts(folder / "out")


def arguments(corpus: Path, workspace: Path) -> list[str]:
    run = ["run", str(corpus), "-w", str(workspace)]
    return [*run, "--pages-per-unit", "2", "--engine", "embedded", "--quiet"]


def started(corpus: Path, workspace: Path) -> "subprocess.Popen[str]":
    command = program(*arguments(corpus, workspace))
    return subprocess.Popen(command, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def kill_often(command: list[str], workspace: Path, times: int, least: float, most: float) -> None:
    """Kill the command so many times, each after `least` to `most` seconds, and then let it finish."""
    chance = random.Random(1)
    before = attempts(workspace)
    for _ in range(times):
        process = subprocess.Popen(
            program(*command), env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        time.sleep(chance.uniform(least, most))
        process.kill()
        process.communicate()
        assert_markers_name_whole_data(workspace)
        after = attempts(workspace)
        assert before.items() <= after.items()
        before = after
    done = cli(*command, cwd=workspace.parent)
    assert done.returncode == 0, said(done)
    assert before.items() <= attempts(workspace).items()


def attempts(workspace: Path) -> dict[str, str]:
    """Which attempt each finished unit of Extract is of."""
    if not (workspace / "extract" / "key.json").exists():
        return {}
    opened = Workspace.open(str(workspace))
    return {unit: marker.attempt for unit, marker in markers(opened, EXTRACT, required_key(opened, EXTRACT)).items()}


def texts(workspace: Path) -> list[tuple[str, str]]:
    return [(page.page_id, page.markdown) for page in llm_ocr.open(str(workspace)).pages(images=False)]


@pytest.mark.slow
def test_killed_runs_lose_nothing_and_redo_no_finished_unit(corpus, undisturbed, tmp_path):
    workspace = tmp_path / "killed"
    kill_often(arguments(corpus, workspace), workspace, 4, 0.3, 3.0)
    assert texts(workspace) == undisturbed
    status = llm_ocr.open(str(workspace)).status
    assert (status.pages.expected, status.pages.ok) == (PAGES, PAGES)
    assert dataset_pages(workspace) == sorted(page for page, _ in undisturbed)
    documents = sorted(path.name for path in (workspace / "documents").glob("*.md"))
    assert documents == [f"paper {number}.pdf.md" for number in range(COPIES)]

    cleaned = cli("clean", "-w", workspace, "--older-than", "0", cwd=tmp_path)
    assert cleaned.returncode == 0, said(cleaned)
    assert unfinished(workspace) == []
    assert texts(workspace) == undisturbed


@pytest.mark.slow
def test_killed_retries_of_figures_count_each_figure_once(corpus, tmp_path):
    workspace = tmp_path / "killed"
    model = ["--engine", "server", "--model", "qwen3-vl-8b", "--fallback", "none", "--server-url"]
    with running(served_model_name="qwen3-vl-8b", preset="h100", speed=50, mean_tokens=300) as server:
        read = ["extract", str(corpus), "-w", str(workspace), "--pages-per-unit", "2", *model, server.url]
        assert cli(*read, cwd=tmp_path).returncode == 0
    with running(served_model_name="qwen3-vl-8b", fault={"400": 1.0}) as server:
        assert cli("run", "-w", workspace, *model, server.url, cwd=tmp_path).returncode == 1
    refused, pages = llm_ocr.open(workspace).status.figures, texts(workspace)
    assert refused.failed == refused.expected > 0
    with running(served_model_name="qwen3-vl-8b", preset="h100", speed=5, mean_tokens=300) as server:
        kill_often(["repair", "-w", str(workspace), *model, server.url], workspace, 4, 0.5, 4.0)
    status = llm_ocr.open(workspace).status
    assert (status.figures.expected, status.figures.ok) == (refused.expected, refused.expected)
    assert (status.pages.expected, status.pages.failed, status.finished) == (PAGES, 0, True)
    assert [page for page, _ in texts(workspace)] == [page for page, _ in pages]


@pytest.mark.slow
def test_killed_repairs_lose_nothing_and_count_nothing_twice(corpus, undisturbed, tmp_path):
    workspace = tmp_path / "killed"
    assert cli(*arguments(corpus, workspace), cwd=tmp_path).returncode == 0
    (tmp_path / "list.txt").write_text("\n".join(page for page, _ in undisturbed))
    listed = ["--pages-from", str(tmp_path / "list.txt"), "--image-size", "700"]
    command = ["repair", "-w", str(workspace), "--engine", "embedded", *listed]
    kill_often(command, workspace, 3, 0.5, 4.0)
    status = llm_ocr.open(str(workspace)).status
    assert (status.pages.expected, status.pages.ok + status.pages.degraded) == (PAGES, PAGES)
    (repaired,) = status.repairs
    assert (repaired.pages, repaired.read) == (PAGES, PAGES)
    assert status.finished
    assert [page for page, _ in texts(workspace)] == [page for page, _ in undisturbed]
    assert dataset_pages(workspace) == sorted(page for page, _ in undisturbed)


@pytest.mark.slow
def test_killed_hybrid_runs_send_no_page_beyond_the_share(corpus, undisturbed, tmp_path):
    workspace = tmp_path / "killed"
    with running(preset="h100", mean_tokens=300) as server:
        command = ["run", str(corpus), "-w", str(workspace), "--pages-per-unit", "2", "--engine", "hybrid"]
        command += ["--server-url", server.url, "--model-threshold", "0", "--model-share", "0.5", "--quiet"]
        kill_often(command, workspace, 3, 1.0, 6.0)
    assert [page for page, _ in texts(workspace)] == [page for page, _ in undisturbed]
    status = llm_ocr.open(str(workspace)).status
    assert (status.pages.expected, status.pages.ok + status.pages.degraded) == (PAGES, PAGES)
    assert status.stages["extract"].sent == (PAGES // 2, PAGES // 2)
    by_model = [page.text_source == "model" for page in llm_ocr.open(str(workspace)).pages(images=False)]
    assert sum(by_model) == PAGES // 2
    assert dataset_pages(workspace) == sorted(page for page, _ in undisturbed)


@pytest.mark.slow
def test_killed_runs_that_verify_by_ocr_lose_nothing(examples, tmp_path):
    workspace = tmp_path / "killed"
    with running(preset="h100", mean_tokens=300) as server:
        command = ["run", str(examples / "fax.tiff"), "-w", str(workspace)]
        command += ["--pages-per-unit", "1", "--server-url", server.url, "--verify", "ocr", "--quiet"]
        kill_often(command, workspace, 2, 2.0, 6.0)
    pages = list(llm_ocr.open(str(workspace)).pages(images=False))
    assert {page.ledger.verified_by for page in pages if page.ledger} == {"ocr"}
    status = llm_ocr.open(str(workspace)).status.pages
    assert status.expected == status.ok + status.degraded == len(pages) == len(dataset_pages(workspace))


def dataset_pages(workspace: Path) -> list[str]:
    import pyarrow.dataset

    table = pyarrow.dataset.dataset(workspace / "dataset").to_table(columns=["sample_id"])
    return sorted(row["sample_id"] for row in table.to_pylist())


@pytest.mark.slow
@pytest.mark.parametrize(("number", "codes"), [(signal.SIGINT, (0, 4)), (signal.SIGKILL, (-9,))])
def test_a_run_that_is_stopped_leaves_no_process_behind(corpus, undisturbed, tmp_path, number, codes):
    workspace = tmp_path / "w"
    process = started(corpus, workspace)
    workers = when(lambda: children(process.pid))
    process.send_signal(number)
    _, errors = process.communicate(timeout=180)
    assert process.returncode in codes, errors  # 0: it was quicker than the signal
    if process.returncode == 4:
        assert "Run the same command again" in errors
        assert "Traceback" not in errors
    assert when(lambda: not [worker for worker in workers if alive(worker)])
    done = cli(*arguments(corpus, workspace), cwd=tmp_path)
    assert done.returncode == 0, said(done)
    assert texts(workspace) == undisturbed


def children(parent: int) -> list[int]:
    listed = subprocess.run(["ps", "-eo", "pid=,ppid="], capture_output=True, text=True, check=True)
    pairs = [line.split() for line in listed.stdout.splitlines()]
    return [int(pid) for pid, ppid in pairs if int(ppid) == parent]


@pytest.mark.slow
def test_killed_fields_count_every_document_once(examples, tmp_path):
    """Killed 10 times, each at a random moment after the next request, or after the next document or two."""
    documents, chance = 15, random.Random(1)
    sources = [tmp_path / f"{number}.pdf" for number in range(documents)]
    for number, source in enumerate(sources):
        source.write_bytes((examples / "paper.pdf").read_bytes() + f"\n% copy {number}\n".encode())
    workspace = tmp_path / "killed"
    llm_ocr.run(sources, workspace=workspace, engine="embedded", pages="1", pages_per_unit=1, progress=None)
    schema = json.dumps({"type": "object", "properties": {"title": {"type": "string"}}})

    def published() -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in workspace.glob("fields/*/*/*.done")}

    with running(preset="h100", served_model_name="qwen3-vl-8b", speed=0.5, max_num_seqs=2) as server:
        command = ["fields", "-w", str(workspace), "--schema", schema, "--server-url", server.url, "--quiet"]
        command += ["--max-inflight-requests", "2"]
        for _ in range(10):
            before, asked, more = published(), len(server.log()["requests"]), chance.randrange(3)
            process = subprocess.Popen(
                program(*command), env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            when(
                lambda before=before, asked=asked, more=more, process=process: (
                    (len(server.log()["requests"]) > asked and len(published()) >= len(before) + more)
                    or process.poll() is not None
                )
            )
            time.sleep(chance.uniform(0, 0.3))
            process.kill()
            process.communicate()
            assert before.items() <= published().items()
            assert_markers_name_whole_data(workspace)
        done = cli(*command, cwd=tmp_path)
        assert done.returncode == 0, said(done)
        asked = len(server.log()["requests"])
        assert cli(*command, cwd=tmp_path).returncode == 0
        assert len(server.log()["requests"]) == asked
    run = llm_ocr.open(str(workspace))
    counts = run.status.fields
    assert (counts.expected, counts.ok + counts.degraded, counts.failed) == (documents, documents, 0)
    rows = [row.document_id for row in run.fields()]
    assert len(rows) == len(set(rows)) == documents
    cleaned = cli("clean", "-w", workspace, "--older-than", "0", cwd=tmp_path)
    assert cleaned.returncode == 0, said(cleaned)
    assert [row.document_id for row in run.fields()] == rows
