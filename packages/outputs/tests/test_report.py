"""`llm-ocr report`: an honest page at any time of a run, in which no name does anything."""

import json
import shutil
import subprocess
from unittest import mock

import pytest
import running
from bad_documents import good_pages, text_pdf
from report_reading import report_of, words_of
from view_workspaces import make, text
from viewer_browser import FLAGS

import llm_ocr
from llm_ocr.errors import StorageError, UsageError, WorkspaceError
from llm_ocr.types import Counts, Ledger
from llm_ocr.workspace import Workspace
from llm_ocr.workspace.keys import EXTRACT, claim_key
from llm_ocr.workspace.metrics import all_series
from llm_ocr.workspace.plan import PlannedDocument
from llm_ocr.workspace.publish import publish
from llm_ocr.workspace.summaries import Example, Summary
from llm_ocr_simulator import running as simulated
from tests.fakes.planning import plan_documents

EVIL = '/in/<script>document.title="hit"</script><img src=x onerror="document.title=\'hit\'">.pdf'


def test_a_plan_alone_gives_an_honest_page(examples, tmp_path):
    llm_ocr.plan(examples / "paper.pdf", workspace=tmp_path / "w")
    words = words_of(report_of(tmp_path / "w", tmp_path / "r.html"))
    assert "Extract has not started." in words and "Assemble has not started." in words
    assert "No values over time exist yet" in words
    assert "Failures" not in words


def test_an_empty_workspace_gives_an_honest_page(tmp_path):
    Workspace.open(str(tmp_path / "w"), create=True).close()
    assert "This workspace has no plan yet" in words_of(report_of(tmp_path / "w", tmp_path / "r.html"))


def test_a_workspace_of_an_older_version_gives_a_page(standing, tmp_path):
    text = report_of(standing, tmp_path / "r.html")
    assert "engine timeout: /in/4.pdf, page 1 (too slow)" in words_of(text)
    assert "No values over time exist yet" in words_of(text)


def test_the_ledger_names_the_worst_pages(tmp_path):
    ledgers = {1: Ledger(0.1), 2: Ledger(0.1, 0.5), 3: Ledger(0.2, 0.03, 0.4)}
    pages = {"a.pdf": 3, "b.pdf": 1}
    workspace = make(str(tmp_path / "w"), pages, lambda name, n: text("words", ledger=ledgers[n]), assemble=False)
    words = words_of(report_of(workspace, tmp_path / "r.html"))
    assert "Ink accounted for: 88.8 %; 2 pages with unread ink, 1 with unsupported text." in words
    assert words.index("50 % unread: /in/a.pdf, page 2") < words.index("3.0 % unread: /in/a.pdf, page 3")
    assert "40 % unsupported: /in/a.pdf, page 3" in words


def test_no_row_is_read(workspace, tmp_path):
    for file in (workspace / "extract").rglob("*.parquet"):
        file.unlink()
    assert "15  ok" in words_of(report_of(workspace, tmp_path / "r.html"))


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """A workspace whose names and numbers are somebody else's."""
    url = str(tmp_path_factory.mktemp("hostile") / "w<script>")
    with Workspace.open(url, create=True) as workspace:
        documents = [PlannedDocument(f"{EVIL}{n}", f"{EVIL}{n}", f"v{n}", None, (1, 2), 2) for n in range(2)]
        plan_documents(workspace, documents, pages_per_unit=64)
        key = claim_key(workspace, EXTRACT, {"reader": {"engine": "model", "model": EVIL, "revision": EVIL}})
        summary = Summary(Counts(4, 2, 1, 1), reasons={EVIL: 2}, examples=(Example("x-p1", EVIL, 1, EVIL, EVIL),))
        publish(workspace, EXTRACT, key, "0001-000000", b"", summary)
        series = {
            "worker": EVIL, "stage": "extract", "batch_id": EVIL, "began": 1e9, "first": 1,
            "samples": {"seconds": [2, 2], "ok": [1, 1], "window": [3, 3], "in_flight": [1, 3]},
        }  # fmt: skip
        workspace.store.put("metrics/a-extract.series.json", json.dumps(series).encode())
    return url


def test_names_with_markup_do_nothing_in_a_browser(hostile, tmp_path, require):
    require("chromium")
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    report_of(hostile, tmp_path / "r.html")
    flags = [flag for flag in FLAGS if "debugging" not in flag]
    loud = subprocess.run(
        [browser, *flags, f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", f"file://{tmp_path / 'r.html'}"],
        capture_output=True, text=True, encoding="utf-8", timeout=180, check=True,
    ).stdout  # fmt: skip
    assert "<title>OCR run: w&lt;script&gt;</title>" in loud
    assert "<script" not in loud and "<img" not in loud
    assert loud.count("&lt;script&gt;") > 5
    assert loud.count("<svg") >= 5


def test_the_command_writes_the_file_and_says_where(standing, tmp_path):
    run = running.cli("report", "-w", standing, "--output", tmp_path / "new" / "r.html", cwd=tmp_path)
    assert run.returncode == 0, running.said(run)
    assert str(tmp_path / "new" / "r.html") in run.stdout
    assert (tmp_path / "new" / "r.html").read_text().startswith("<!DOCTYPE html>")
    report_of(standing, tmp_path / "new" / "r.html")
    assert [one.name for one in (tmp_path / "new").iterdir()] == ["r.html"]


@pytest.mark.parametrize("command", ["report", "view"])
def test_url_as_the_output_writes_nothing(command, standing, tmp_path):
    run = running.cli(command, "-w", standing, "--output", "s3://bucket/run", cwd=tmp_path)
    assert run.returncode == 2, running.said(run)
    assert "s3://bucket/run is a URL" in run.stderr and "--output" in run.stderr
    assert not list(tmp_path.iterdir())


def test_wrong_places_are_said(tmp_path):
    Workspace.open(str(tmp_path / "w"), create=True).close()
    with pytest.raises(UsageError, match="is a folder"):
        llm_ocr.open(str(tmp_path / "w")).report(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot write"):
        llm_ocr.open(str(tmp_path / "w")).report(tmp_path / "file" / "r.html")
    with pytest.raises(WorkspaceError, match="no workspace"):
        llm_ocr.open(str(tmp_path / "nothing"))


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """Two workers that share the units of a folder and one server."""
    folder = tmp_path_factory.mktemp("report")
    for number in range(4):
        (folder / f"{number}.pdf").write_bytes(text_pdf(*good_pages(str(number), 3)))
    (folder / "broken.pdf").write_bytes(b"%PDF-1.7 and nothing else")
    workspace = folder / "w"
    llm_ocr.plan(folder, workspace=workspace, pages_per_unit=3)
    with simulated(preset="h100", speed=10, mean_tokens=300) as server:
        flags = ("--server-url", server.url, "--shard-count", "2", "--render-workers", "1", "--image-size", "256")
        prices = ("--price-in", "1", "--price-out", "2", "--max-failed-rate", "1", "--batch-id", "march")
        for index in range(2):
            with mock.patch("socket.gethostname", lambda index=index: f"host-{index}"):
                words = ("extract", "-w", workspace, "--shard-index", str(index), *flags, *prices)
                ended = running.cli(*words, cwd=folder)
            assert ended.returncode == 0, running.said(ended)
    return workspace


def test_report_covers_all_workers_and_series_match_markers(served, tmp_path):
    run = llm_ocr.open(str(served))
    words = words_of(report_of(served, tmp_path / "r.html"))
    pages = run.status.pages
    assert pages.failed == 1
    assert f"{pages.ok:,}  ok" in words
    assert "Describe has not started." in words
    assert f"{pages.expected} pages by 2 workers" in words
    for title in ("Tokens per second", "Requests at the servers", "Cost"):
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


def test_the_embedded_engine_is_on_record_too(paper_workspace, tmp_path):
    workers = {worker.stage: worker for worker in llm_ocr.open(paper_workspace).status.workers}
    assert workers["extract"].items == 3 and workers["extract"].seconds > 0
    words = words_of(report_of(paper_workspace, tmp_path / "r.html"))
    assert "embedded: text layer and OCR on the CPU" in words
    assert "Extract: pages per second" in words
    assert "Requests at the servers" not in words
    assert "No price is known" in words
