"""The worker's model: by regions or whole, one server for all requests, gone with the worker."""

import asyncio
import json
import shlex
import sys

import pytest
from running import alive, when
from serverless_running import asked, b64, with_worker

from llm_ocr.errors import ServerError
from llm_ocr.models.profiles.regions import GLM_OCR
from llm_ocr_platforms.runpod.inputs import InputError
from llm_ocr_simulator import running
from tests.fakes.container import Container

WORDS, TABLE = "Words of a region.", "<table><tr><td>Cell of a region</td></tr></table>"
WARM_UP = '{"input": {"warmup": true}}'
SAID = {"Text Recognition:": WORDS, "Table Recognition:": TABLE, "Formula Recognition:": "E = mc^2"}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    file = tmp_path_factory.mktemp("said") / "said.json"
    file.write_text(json.dumps(SAID))
    with running(said=file, model=GLM_OCR.model, max_model_len=65_536, preset="h100", speed=100) as simulator:
        yield simulator


@pytest.fixture
def by_regions(server):
    """Settings of a worker that reads pages by the embedded engine's layout."""
    server.reset()
    regions = {"layout_first": "always", "detector": "embedded"}
    return {"engine": "server", "server_url": (server.url,), "model": "glm-ocr", **regions}


@pytest.fixture
def paper(examples):
    return {"pdf_base64": b64(examples / "paper.pdf"), "end_page": 2}


def test_pages_are_read_by_region_and_reply_names_model_commit(by_regions, server, paper):
    reply = asked(paper, **by_regions)
    regions = [region for page in reply["json_result"] for region in page]
    assert len(server.log()["requests"]) > 10
    assert {region["label"] for region in regions} > {"table"}
    assert TABLE in [region["content"] for region in regions]
    assert (reply["model"], reply["model_revision"]) == (GLM_OCR.model, GLM_OCR.revision)


def test_a_request_without_layout_is_read_in_whole_pages(by_regions, server, paper):
    reply = asked({**paper, "layout": False}, **by_regions)
    assert len(server.log()["requests"]) == 2
    assert reply["markdown_result"].count(WORDS) == 2


def test_label_tasks_change_for_one_request_only(by_regions, paper):
    async def use(worker):
        given = [{**paper, "label_task_mapping": {"skip": ["table"], "abandon": ["text"]}}, paper]
        return [await worker.handle({"id": "1", "input": one}) for one in given]

    changed, usual = with_worker(use, **by_regions)
    labels, usually = ([region["label"] for page in one["json_result"] for region in page] for one in (changed, usual))
    assert "text" not in labels and "text" in usually
    tables = [region for page in changed["json_result"] for region in page if region["label"] == "table"]
    assert tables and all("image_path" in region for region in tables)
    assert TABLE in [region["content"] for page in usual["json_result"] for region in page]


def test_a_mapping_that_cannot_be_names_its_field(by_regions, paper, server):
    with pytest.raises(InputError, match=r"^label_task_mapping: .*unknown label 'tabel'"):
        asked({**paper, "label_task_mapping": {"skip": ["tabel"]}}, **by_regions)
    whole = {**by_regions, "layout_first": "never"}
    with pytest.raises(InputError, match=r"^label_task_mapping: this session reads whole pages"):
        asked({**paper, "label_task_mapping": {"skip": ["table"]}}, **whole)


def own_server(folder):
    """A server of the worker's own, which writes down each of its starts."""
    wrapper = folder / "serve.py"
    wrapper.write_text(
        "import os, runpy, sys\n"
        "if 'serve' in sys.argv:\n"  # and not only its version is asked for
        f"    open({str(folder / 'starts')!r}, 'a').write(f'{{os.getpid()}}\\n')\n"
        "runpy.run_module('llm_ocr_simulator', run_name='__main__', alter_sys=True)\n"
    )
    arguments = ("--preset=h100", "--speed=100")
    command = shlex.join([sys.executable, str(wrapper)])
    return {"engine": "vllm", "vllm_command": command, "vllm_arg": arguments, "model": "glm-ocr", "offline": True}


def starts(folder):
    file = folder / "starts"
    return [int(line) for line in file.read_text().split()] if file.is_file() else []


@pytest.mark.slow
def test_one_server_lives_as_long_as_the_worker(tmp_path, paper):
    async def use(worker):
        assert starts(tmp_path) == []
        await worker.handle({"id": "1", "input": {"warmup": True}})
        await asyncio.gather(*(worker.handle({"id": str(n), "input": paper}) for n in range(3)))
        await worker.handle({"id": "5", "input": paper})
        return [alive(pid) for pid in starts(tmp_path)]

    assert with_worker(use, **own_server(tmp_path)) == [True]
    assert not alive(starts(tmp_path)[0])


@pytest.mark.slow
def test_the_server_ends_with_the_worker_however_that_ends(tmp_path):
    settings = {f"LLM_OCR_{name.upper()}": value for name, value in own_server(tmp_path).items() if name != "vllm_arg"}
    variables = {**settings, "LLM_OCR_OFFLINE": "true", "LLM_OCR_VLLM_ARG": "--preset=h100\n--speed=100"}
    handler = Container(["python", "-m", "llm_ocr_platforms.runpod", "--test_input", WARM_UP], variables)
    try:
        assert handler.wait(120) == 0, handler.lines()
        assert any("'warmup': True" in line for line in handler.lines())
        when(lambda: not alive(starts(tmp_path)[0]))
    finally:
        handler.remove()


@pytest.mark.slow
def test_request_after_a_failed_server_start_starts_it_again(tmp_path, paper):
    settings = own_server(tmp_path)
    stop = tmp_path / "stop"
    stop.touch()
    wrapper = tmp_path / "serve.py"
    broken = f"import os, sys\nif 'serve' in sys.argv and os.path.exists({str(stop)!r}):\n    raise SystemExit(3)\n"
    wrapper.write_text(broken + wrapper.read_text())

    async def use(worker):
        with pytest.raises(ServerError):
            await worker.handle({"id": "1", "input": paper})
        stop.unlink()
        return await worker.handle({"id": "2", "input": paper})

    reply = with_worker(use, **settings, max_server_restarts=0)
    assert [page["status"] for page in reply["pages"]] == ["ok", "ok"]
