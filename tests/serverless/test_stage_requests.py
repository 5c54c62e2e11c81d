"""A stage of a workspace as a request: the second form of input."""

import asyncio
import hashlib
import json
import logging

import pytest
from serverless_running import asked, b64, with_worker

import llm_ocr
from llm_ocr.config.environment import environment
from llm_ocr.config.models import WorkerSettings
from llm_ocr.errors import LlmOcrError
from llm_ocr.serverless.inputs import InputError
from llm_ocr.serverless.stage_job import StageFailed
from llm_ocr.serverless.worker import Worker

FRUGAL = {"LLM_OCR_ENGINE": "embedded", "LLM_OCR_RENDER_WORKERS": "1", "LLM_OCR_OCR_WORKERS": "1"}


@pytest.fixture
def planned(examples, small_examples, tmp_path):
    sources = [examples / "paper.pdf", small_examples / "invoice.png"]
    llm_ocr.plan(sources, workspace=tmp_path / "w", engine="embedded", pages_per_unit=1)
    return str(tmp_path / "w")


def stage_worker(allowed="/", **variables):
    held = {name: value for name, value in environment().items() if not name.startswith("LLM_OCR_")}
    settings = WorkerSettings(engine="embedded", render_workers=1, ocr_workers=1, allowed_workspaces=allowed)
    return Worker(settings, {**held, **FRUGAL, **variables}, lambda job, told: None)


def carried_out(*inputs, **variables):
    async def main():
        worker = stage_worker(**variables)
        return [await worker.handle({"id": str(number), "input": one}) for number, one in enumerate(inputs)]

    return asyncio.run(main())


@pytest.mark.slow
def test_shards_do_their_units_and_stages_follow_each_other(planned):
    shards = [{"stage": "extract", "workspace": planned, "shard": {"index": n, "count": 2}} for n in range(2)]
    rest = [{"stage": stage, "workspace": planned, "name": f"my-{stage}"} for stage in ("describe", "assemble")]
    first, second, described, assembled = carried_out(*shards, *rest)
    assert 0 < first["units"]["done"] < first["units"]["total"] == 4
    assert second["pages"] == {"expected": 4, "ok": 4, "degraded": 0, "failed": 0}
    assert described["figures"]["ok"] == described["figures"]["expected"] > 0
    assert (assembled["name"], assembled["shard"]) == ("my-assemble", {"index": 0, "count": 1})
    assert llm_ocr.open(planned).status.finished


def test_a_stage_that_fails_fails_the_job_with_its_words(tmp_path):
    with pytest.raises(StageFailed, match=r"describe ended with exit code 1: .*") as caught:
        carried_out({"stage": "describe", "workspace": str(tmp_path / "nothing")})
    assert "no workspace" in str(caught.value)


def test_a_workspace_that_cannot_be_one_names_the_field():
    with pytest.raises(InputError, match=r"^workspace: s4://"):
        carried_out({"stage": "extract", "workspace": "s4://bucket/run"}, allowed="s4://bucket")


def test_a_launch_in_the_workspace_starts_no_program(planned, tmp_path):
    program = tmp_path / "vllm"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/started\nexit 1\n")
    program.chmod(0o755)
    launch = tmp_path / "w" / "launches" / "20260101-000000-abcd" / "launch.json"
    launch.parent.mkdir(parents=True)
    settings = {"extract": {"engine": "vllm", "vllm_command": str(program)}}
    launch.write_text(json.dumps({"id": launch.parent.name, "settings": settings}))
    digest = hashlib.sha256(launch.read_bytes()).hexdigest()
    for reference in (launch.parent.name, f"{launch.parent.name}@{digest}"):
        with pytest.raises(LlmOcrError, match="vllm_command"):
            carried_out({"stage": "extract", "workspace": planned, "launch": reference})
    assert not (tmp_path / "started").exists()


def test_lines_of_the_stage_are_in_the_workers_log(planned, caplog):
    with caplog.at_level(logging.INFO, logger="llm_ocr.serverless"):
        carried_out({"stage": "extract", "workspace": planned})
    assert any("4 ok" in record.getMessage() for record in caplog.records)


@pytest.mark.slow
def test_a_job_that_is_stopped_publishes_what_is_whole_and_the_next_one_goes_on(examples, tmp_path):
    workspace = str(tmp_path / "w")
    llm_ocr.plan([examples], workspace=workspace, engine="embedded", pages_per_unit=1)
    given = {"stage": "extract", "workspace": workspace}

    async def stopped():
        worker = stage_worker(LLM_OCR_WORKERS="1")
        task = asyncio.create_task(worker.handle({"id": "1", "input": given}))
        while not await asyncio.to_thread(lambda: list((tmp_path / "w").rglob("*.done"))[1:]):  # the plan's is one
            assert not task.done(), task.exception()
            await asyncio.sleep(0.02)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled()

    asyncio.run(stopped())
    before = llm_ocr.open(workspace).status.stages["extract"]
    assert 0 < before.done < before.total
    [counts] = carried_out(given)
    assert counts["units"] == {"done": before.total, "total": before.total}


@pytest.mark.slow
def test_a_stage_waits_for_the_requests_and_closes_their_model(planned, examples):
    image = {"images_base64": [b64(examples / "invoice.png")]}

    async def use(worker):
        worker._variables = {**environment(), **FRUGAL}
        request = asyncio.create_task(worker.handle({"id": "1", "input": image}))
        await asyncio.sleep(0)
        counts = await worker.handle({"id": "2", "input": {"stage": "extract", "workspace": planned}})
        assert request.done()
        assert worker._session is None
        again = await worker.handle({"id": "3", "input": image})
        return counts, request.result() == again

    counts, same = with_worker(use, allowed_workspaces="/")
    assert counts["pages"]["ok"] == 4
    assert same


def test_documents_are_answered_with_the_workers_workspace_left_alone(small_examples, tmp_path):
    asked({"images_base64": [b64(small_examples / "invoice.png")]}, workspace=str(tmp_path / "w"))
    assert not (tmp_path / "w").exists()
