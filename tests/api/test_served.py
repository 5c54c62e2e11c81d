"""The three stages with a model on a running server: what a user of --server-url is promised."""

import asyncio
import json
import shutil
import socket
from pathlib import Path

import pytest

import llm_ocr
from llm_ocr.errors import LlmOcrError, UsageError
from llm_ocr.types import BlockKind, Status
from llm_ocr_simulator import running
from llm_ocr_simulator.answers import data_url, image_hash

QUICK = {"preset": "h100", "speed": 50, "mean_tokens": 300}


@pytest.fixture(scope="module")
def server():
    with running(**QUICK) as simulator:
        yield simulator


@pytest.fixture(scope="module")
def done(server, examples, tmp_path_factory):
    """The examples through all three stages."""
    return llm_ocr.run(
        examples,
        workspace=tmp_path_factory.mktemp("served") / "w",
        server_url=server.url,
        batch_id="march",
        price_in=1.0,
        price_out=2.0,
        render_workers=1,
    )


def test_every_page_holds_the_answer_to_its_own_image(done):
    pages = list(done.pages())
    assert done.status.pages.ok == len(pages) == 9
    for page in pages:
        assert f"page-{image_hash(data_url(page.image).decode())[:12]}" in page.markdown
        assert (page.engine, page.text_source) == ("deepseek-ocr", "model")
        assert 1500 < max(page.image.width, page.image.height) <= 1684


def test_figures_are_cropped_described_and_put_in_the_documents(done):
    figures = [figure for page in done.pages() for figure in page.figures]
    assert done.status.figures.ok == len(figures) > 0
    texts = "".join(document.markdown for document in done.documents())
    assert all(figure.id in texts for figure in figures)
    described = {image_hash(data_url(figure.image).decode())[:12] for figure in figures}
    assert all(f"page-{name}" in texts for name in described)


def test_status_tells_tokens_cost_and_batch(done):
    status = done.status.to_json()
    spent = status["tokens"]
    assert spent["in"] > 0 and spent["out"] > 0
    assert status["cost"] == pytest.approx((spent["in"] + 2 * spent["out"]) / 1e6)
    stages = {worker["stage"]: worker for worker in status["workers"]}
    assert {worker["batch_id"] for worker in status["workers"]} == {"march"}
    assert (stages["extract"]["items"], stages["describe"]["items"]) == (9, done.status.figures.ok)
    assert stages["extract"]["engine"]["window"] > 0


def test_the_same_command_again_asks_nothing(done, server, examples):
    before = len(server.log()["requests"])
    again = llm_ocr.run(examples, workspace=done.url, server_url=server.url, render_workers=1)
    assert len(server.log()["requests"]) == before
    assert again.status.pages.ok == 9


def test_finished_run_sends_no_request_to_a_missing_server(done, examples):
    llm_ocr.run(examples, workspace=done.url, server_url="http://127.0.0.1:9/v1", render_workers=1)


def test_descriptions_of_several_kinds_stand_side_by_side(done, server, tmp_path):
    workspace = Path(shutil.copytree(done.url, tmp_path / "w"))
    served = {"workspace": workspace, "server_url": server.url}
    described = llm_ocr.describe(describe_mode="classify", describe_classes=("photo", "chart"), **served)
    assert described.status.figure_reasons == {}
    run = llm_ocr.assemble(workspace=workspace)
    row = next(row for row in run.to_dataset() if row["extracted_figures_metadata"])
    assert json.loads(row["extracted_figures_metadata"][0])["class"] in ("photo", "chart")
    llm_ocr.describe(describe_mode="colours", describe_prompt="Which colours are there?", **served)
    assert len(list((workspace / "describe").iterdir())) == 3


def test_tables_are_cut_out_too_where_that_is_asked_for(examples, tmp_path):
    with running(**{**QUICK, "mean_tokens": 1500}) as simulator:
        run = llm_ocr.extract(
            examples, workspace=tmp_path / "w", server_url=simulator.url, crop="image,table", render_workers=1
        )
    pages = list(run.pages())
    tables = [block for page in pages for block in page.blocks if block.kind is BlockKind.TABLE]
    assert len(tables) > 0
    assert sum(figure.label == "table" for page in pages for figure in page.figures) == len(tables)
    assert all(page.markdown.count("<table>") for page in pages if any(f.label == "table" for f in page.figures))


def test_one_page_without_a_workspace(server, examples):
    page = asyncio.run(llm_ocr.read_page(examples / "invoice.png", server_url=server.url))
    assert page.status is Status.OK
    assert page.engine == "deepseek-ocr"


def test_caps_on_requests_are_kept(examples, tmp_path):
    with running(**{**QUICK, "speed": 20}) as simulator:
        llm_ocr.extract(examples, workspace=tmp_path / "w", server_url=simulator.url, max_inflight_requests=2)
        spans = [(one["arrival"], one["end"]) for one in simulator.log()["requests"]]
    assert max(sum(start <= moment < end for start, end in spans) for moment, _ in spans) <= 2


@pytest.mark.parametrize(
    ("settings", "error", "said"),
    [
        ({"engine": "server"}, UsageError, "`engine=server` needs a server"),
        (
            {"server_url": "http://127.0.0.1:9", "engine": "embedded"},
            UsageError,
            "`server_url` has no effect with `engine=embedded`",
        ),
        ({"server_url": "http://127.0.0.1:9", "model": "deepseek-oc"}, UsageError, "Did you mean deepseek-ocr"),
        ({"server_url": "http://127.0.0.1:9", "mode": "sonnet"}, UsageError, "has no mode"),
        ({"server_url": "ftp://h"}, UsageError, "ftp://h"),
    ],
)
def test_what_cannot_be_meant_is_said_before_anything_is_asked(examples, tmp_path, settings, error, said):
    with pytest.raises(error, match=said):
        llm_ocr.extract(examples / "invoice.png", workspace=tmp_path / "w", **settings)


def test_a_stage_of_its_own_is_not_done_on_the_cpu_unasked(examples, tmp_path):
    with pytest.raises(LlmOcrError, match="no engine is chosen"):
        llm_ocr.extract(examples / "invoice.png", workspace=tmp_path / "w", vllm_command="no-such-program")


@pytest.mark.parametrize("listens", [False, True])
def test_silent_server_ends_the_run_with_what_to_check(examples, tmp_path, monkeypatch, listens):
    monkeypatch.setattr("llm_ocr.engines.client.endpoint._PROBE_SECONDS", 1.0)
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        if listens:
            mute.listen()
        url = f"http://127.0.0.1:{mute.getsockname()[1]}"
        with pytest.raises(LlmOcrError, match="did not answer") as caught:
            llm_ocr.extract(examples / "invoice.png", workspace=tmp_path / "w", server_url=url, server_timeout=1)
    assert "`server_url`" in caught.value.hint


def test_wrong_model_name_is_reported_with_the_served_names(server, examples, tmp_path):
    with pytest.raises(LlmOcrError, match="deepseek-ocr"):
        llm_ocr.extract(
            examples / "invoice.png", workspace=tmp_path / "w", server_url=server.url, server_model="gpt-nonsense"
        )


def test_server_with_shorter_context_gets_a_shorter_answer_limit(examples, tmp_path):
    with running(**QUICK, max_model_len=4096, kv_tokens=100_000) as simulator:
        run = llm_ocr.extract(examples / "paper.pdf", workspace=tmp_path / "w", server_url=simulator.url)
        assert run.status.pages.ok == run.status.pages.expected
        assert len(simulator.log()["requests"]) == run.status.pages.expected
