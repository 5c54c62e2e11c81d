"""The three stages with a model on a running server: what a user of --server-url is promised."""

import json
import shutil
import socket
from pathlib import Path

import pytest

import llm_ocr
from llm_ocr.errors import LlmOcrError
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


def test_a_finished_run_asks_nothing_also_of_a_missing_server(done, server, examples):
    before = len(server.log()["requests"])
    for url in (server.url, "http://127.0.0.1:9/v1"):
        again = llm_ocr.run(examples, workspace=done.url, server_url=url, render_workers=1)
        assert again.status.pages.ok == 9
    assert len(server.log()["requests"]) == before


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


NOBODY = {"server_url": "http://127.0.0.1:9"}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"engine": "server"}, "`engine=server` needs a server"),
        ({**NOBODY, "engine": "embedded"}, "`server_url` has no effect with `engine=embedded`"),
        ({**NOBODY, "model": "deepseek-oc"}, "Did you mean deepseek-ocr"),
        ({**NOBODY, "mode": "sonnet"}, "has no mode"),
        ({"server_url": "ftp://h"}, "ftp://h"),
        ({"vllm_command": "no-such-program"}, "no engine is chosen"),  # a stage does not choose the CPU
    ],
)
def test_what_cannot_be_meant_is_refused_before_any_request(examples, tmp_path, settings, message):
    with pytest.raises(LlmOcrError, match=message):
        llm_ocr.extract(examples / "invoice.png", workspace=tmp_path / "w", **settings)


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
