"""`--engine hybrid`: the CPU engine reads each page, and a model those that it would read better."""

import shutil
from pathlib import Path

import bad_documents as bad
import pytest
from running import FRUGALLY, cli, said, status_of

import llm_ocr
from llm_ocr.errors import ServerError, UsageError
from llm_ocr.results.routing import GAIN
from llm_ocr.stages.readers import Verifier
from llm_ocr.types import OcrText, Page, Reason, Status
from llm_ocr_cpu.reader import EmbeddedReader
from llm_ocr_simulator import running

#: One process of each kind, and a unit for all pages.
HYBRID = {**FRUGALLY, "engine": "hybrid", "pages_per_unit": 64}


@pytest.fixture(scope="module")
def server():
    with running(preset="h100", speed=50, mean_tokens=300) as simulator:
        yield simulator


@pytest.fixture
def documents(tmp_path) -> Path:
    """Four good pages, and one whose text layer lacks most of what it shows."""
    folder = tmp_path / "documents"
    folder.mkdir()
    (folder / "good.pdf").write_bytes(bad.text_pdf(*bad.good_pages("good", 4)))
    (folder / "outlines.pdf").write_bytes(bad.outlined_pdf("The minutes of May", bad.SENTENCES * 3))
    return folder


def requests(server) -> int:
    return len(server.log()["requests"])


def test_model_reads_only_the_worst_pages(server, documents, tmp_path):
    before = requests(server)
    run = llm_ocr.run(
        documents, workspace=tmp_path / "w", server_url=server.url, model_threshold=0, model_share=0.2, **HYBRID
    )
    assert requests(server) == before + 1
    by_model = {page.source.rpartition("/")[2]: page for page in run.pages(images=False) if page.text_source == "model"}
    assert by_model.keys() == {"outlines.pdf"}
    assert run.status.stages["extract"].sent == (1, 1)
    assert run.status.pages.ok == 5
    first, *rest = by_model["outlines.pdf"].attempts  # both readings are history
    assert (first["source"], first["reason"]) == ("text-layer", Reason.UNREAD)
    assert [attempt["source"] for attempt in rest] == ["model"]
    probabilities = [page.attempts[0][GAIN] for page in run.pages(images=False)]
    assert max(probabilities) == first[GAIN]
    # The same command continues without its flags.
    again = cli("run", "-w", "w", "--server-url", server.url, cwd=tmp_path)
    assert again.returncode == 0, said(again)
    assert requests(server) == before + 1


@pytest.mark.slow
def test_threshold_decides_how_many_pages_the_model_reads(server, documents, tmp_path):
    """And the status counts them."""
    before = requests(server)
    every = llm_ocr.run(documents, workspace=tmp_path / "all", server_url=server.url, model_threshold=0, **HYBRID)
    assert requests(server) == before + 5
    assert every.status.stages["extract"].sent == (5, 5)
    assert status_of(tmp_path / "all")["units"]["extract"]["sent"] == [5, 5]
    assert "hybrid     5 pages sent to the model: 5 better, 0 kept" in cli("status", "-w", "all", cwd=tmp_path).stdout
    assert {page.text_source for page in every.pages(images=False)} == {"model"}
    none = llm_ocr.run(documents, workspace=tmp_path / "none", server_url=server.url, model_threshold=1, **HYBRID)
    assert requests(server) == before + 5
    assert none.status.stages["extract"].sent == (0, 0)
    assert {page.text_source for page in none.pages(images=False)} == {"text-layer"}


def test_pages_that_cannot_be_rendered_are_not_sent(server, tmp_path):
    documents = tmp_path / "documents"
    documents.mkdir()
    (documents / "broken.pdf").write_bytes(bad.garbage())
    (documents / "good.pdf").write_bytes(bad.text_pdf(*bad.good_pages("good", 1)))
    before = requests(server)
    run = llm_ocr.run(
        documents, workspace=tmp_path / "w", server_url=server.url, model_threshold=0, model_share=1.0, **HYBRID
    )
    assert (run.status.pages.ok, run.status.pages.failed) == (1, 1)
    assert requests(server) == before + 1


@pytest.mark.slow
def test_lost_model_leaves_the_text_of_the_cpu_engine(documents, tmp_path):
    with running(preset="h100", speed=50, mean_tokens=300, fault={"die-after": 2}) as server:
        run = llm_ocr.run(
            documents,
            workspace=tmp_path / "w",
            server_url=server.url,
            model_threshold=0,
            server_timeout=1,
            max_inflight_requests=1,
            **HYBRID,
        )
    pages = list(run.pages(images=False))
    lost = [page for page in pages if page.reason is Reason.MODEL_LOST]
    assert len(pages) == 5
    assert len(lost) >= 2
    assert all(page.status is Status.DEGRADED and page.text_source == "text-layer" for page in lost)
    assert all(page.markdown and "the model was to read it: " in page.detail for page in lost)
    assert run.status.pages.ok + run.status.pages.degraded == 5
    with running(preset="h100", speed=50, mean_tokens=300) as server:
        mended = llm_ocr.repair(workspace=tmp_path / "w", server_url=server.url, render_workers=1, ocr_workers=1)
    assert mended.status.pages.ok == 5
    assert {page.text_source for page in mended.pages(images=False)} == {"model"}


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--engine", "hybrid"), "--server-url"),
        (("--engine", "embedded", "--model-share", "0.4"), "--engine hybrid"),
        (("--engine", "hybrid", "--server-url", "http://127.0.0.1:1", "--fallback", "none"), "Leave out --fallback"),
        (("--engine", "hybrid", "--server-url", "http://127.0.0.1:1", "--model-share", "0"), "--model-share"),
    ],
)
def test_missing_model_and_settings_without_effect_are_refused(flags, message, documents, tmp_path):
    done = cli("run", documents, "-w", "w", *flags, cwd=tmp_path)
    assert done.returncode == 2, said(done)
    assert message in done.stderr
    assert not (tmp_path / "w").exists()


async def test_session_reads_with_both(server, documents):
    settings = {**FRUGALLY, "engine": "hybrid", "server_url": server.url}
    async with llm_ocr.Session(model_threshold=0, **settings) as session:
        page = await session.read_page(documents / "good.pdf")
    assert (page.text_source, [attempt["source"] for attempt in page.attempts]) == ("model", ["text-layer", "model"])


def test_share_of_the_pages_of_a_session_is_an_error(server):
    with pytest.raises(UsageError, match="`model_share` has no effect in a session"):
        llm_ocr.Session(engine="hybrid", server_url=server.url, model_share=0.5)


def test_blank_page_does_not_hide_a_server_that_never_answers(tmp_path):
    (tmp_path / "blank.pdf").write_bytes(bad.text_pdf([]))
    (tmp_path / "good.pdf").write_bytes(bad.text_pdf(*bad.good_pages("good", 3)))
    sources = (tmp_path / "blank.pdf", tmp_path / "good.pdf")
    with pytest.raises(ServerError, match=r"http://127\.0\.0\.1:1/v1 did not answer"):
        llm_ocr.run(
            sources,
            workspace=tmp_path / "w",
            server_url="http://127.0.0.1:1",
            server_wait=0.2,
            model_threshold=0,
            workers=1,
            **{**HYBRID, "pages_per_unit": 1},
        )


@pytest.mark.parametrize(
    ("pages", "share"),
    [("2", {}), pytest.param("2-3", {"model_share": 0.5}, marks=pytest.mark.slow)],
    ids=["threshold", "share"],
)
def test_a_scan_is_read_by_ocr_once(server, examples, tmp_path, monkeypatch, pages, share):
    """The text that the CPU engine read is the evidence for that of the model."""

    evidence = []
    verified = Verifier.verified

    async def again(reader: EmbeddedReader, page: Page) -> OcrText:
        raise AssertionError("OCR again")

    async def seen(verifier: Verifier, page: Page) -> tuple[Page, str]:
        evidence.append(page.evidence is not None and page.evidence.ocr is not None)
        return await verified(verifier, page)

    monkeypatch.setattr(EmbeddedReader, "ocr_text", again)
    monkeypatch.setattr(Verifier, "verified", seen)
    llm_ocr.run(
        examples / "scan.pdf", workspace=tmp_path / "w", server_url=server.url, model_threshold=0, verify="ocr",
        pages=pages, **share, **HYBRID,
    )  # fmt: skip
    assert evidence == [True]


@pytest.mark.slow
def test_plan_of_a_hybrid_run_needs_no_model(documents, tmp_path):
    assert cli("plan", documents, "-w", "w", "--engine", "hybrid", cwd=tmp_path).returncode == 0
    missing = cli("extract", "-w", "w", cwd=tmp_path)
    assert missing.returncode == 2, said(missing)
    shutil.rmtree(tmp_path / "w")
    with pytest.raises(UsageError, match="must be one of"):
        llm_ocr.plan(documents, workspace=tmp_path / "w", engine="hybird")
