"""Reports of real runs: several workers behind one server, and the embedded engine."""

import shutil
from unittest import mock

import pytest
import running
from report_reading import report_of, words_of

import llm_ocr
from llm_ocr.simulator import running as simulated
from llm_ocr.workspace import Workspace
from llm_ocr.workspace.metrics import all_series


@pytest.fixture(scope="module")
def served(examples, tmp_path_factory):
    """Three workers that share the units of a folder and one server."""
    folder = tmp_path_factory.mktemp("report")
    for number in range(4):
        shutil.copy(examples / "paper.pdf", folder / f"{number}.pdf")
        with (folder / f"{number}.pdf").open("ab") as file:
            file.write(b"\n%%%d\n" % number)
    (folder / "broken.pdf").write_bytes(b"%PDF-1.7 and nothing else")
    workspace = folder / "w"
    llm_ocr.plan(folder, workspace=workspace, pages_per_unit=3)
    with simulated(preset="h100", speed=10, mean_tokens=300) as server:
        flags = ("--server-url", server.url, "--shard-count", "3", "--render-workers", "1", "--image-size", "256")
        prices = ("--price-in", "1", "--price-out", "2", "--max-failed-rate", "1", "--batch-id", "march")
        for index in range(3):
            with mock.patch("socket.gethostname", lambda index=index: f"host-{index}"):
                words = ("extract", "-w", workspace, "--shard-index", str(index), *flags, *prices)
                ended = running.cli(*words, cwd=folder)
            assert ended.returncode == 0, running.said(ended)
    return workspace


def test_a_run_of_several_workers_is_told_whole_and_its_numbers_over_time_are_those_of_the_markers(served, tmp_path):
    run = llm_ocr.open(str(served))
    words = words_of(report_of(served, tmp_path / "r.html"))
    pages = run.status.pages
    assert pages.failed == 1
    assert f"{pages.ok:,}  ok" in words
    assert "Describe has not started." in words
    assert f"{pages.expected} pages by 3 workers" in words
    for title in ("Tokens per second", "Requests at the servers", "Time of the workers", "Cost"):
        assert title in words
    assert "deepseek-ai/DeepSeek-OCR" in words and "march" in words
    assert "broken.pdf" in words
    assert f"llm-ocr retry-failed -w {served}" in words
    assert f"${run.status.cost:,.4f}" in words
    with Workspace.open(str(served)) as workspace:
        found = all_series(workspace)
    assert sum(one.items for one in found) == run.status.pages.expected
    assert sum(sample.tokens_out for one in found for sample in one.samples) == run.status.tokens_out
    assert any(sample.window for one in found for sample in one.samples)


def test_the_embedded_engine_is_on_record_too(examples, tmp_path):
    run = llm_ocr.run(
        examples / "paper.pdf", workspace=tmp_path / "w", engine="embedded", pages="1", render_workers=1, ocr_workers=1
    )
    workers = {worker.stage: worker for worker in run.status.workers}
    assert workers["extract"].items == 1 and workers["extract"].seconds > 0
    words = words_of(report_of(tmp_path / "w", tmp_path / "r.html"))
    assert "embedded: text layer and OCR on the CPU" in words
    assert "Extract: pages per second" in words
    assert "Requests at the servers" not in words
    assert "No price is known" in words
