"""A real vLLM under our supervisor: it is ended, dies, comes back, and never outlives us."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from processes import descendants, still_alive
from tiny_questions import endless, grounded, literal, request
from tiny_server import PROFILE, TinyServer, serve_options

from llm_ocr.engines import Completion
from llm_ocr.engines.client.endpoint import Endpoint
from llm_ocr.engines.vllm.server import VllmServer
from llm_ocr.errors import RequestLost, ServerError
from llm_ocr.models.profiles.shared import CLASSES

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


async def asked(server: TinyServer, client: Endpoint, count: int) -> list[asyncio.Task]:
    """Questions under way, one of which is being answered: on a busy machine it may end before the last is begun."""
    tasks = [asyncio.create_task(client.complete(endless(f"page {number}"))) for number in range(count)]
    await server.gauges_when(lambda now: now.running > 0)
    return tasks


def test_an_engine_that_is_killed_is_noticed_and_brought_back(server, run):
    async def kill():
        engine = next(process for process in descendants(os.getpid()) if process.name.startswith("VLLM::Engine"))
        async with server.endpoint() as client:
            tasks = await asked(server, client, 3)
            os.kill(engine.pid, signal.SIGKILL)
            ends = await asyncio.gather(*tasks, return_exceptions=True)
            reason = await asyncio.wait_for(server.ended(), 30)
        await server.follow(server.supervisor.restart("its engine was killed"))
        async with server.endpoint() as client:
            return ends, reason, await client.complete(request("page", literal(grounded(3))))

    ends, reason, answer = run(kill())
    assert RequestLost in map(type, ends)
    assert {type(end) for end in ends} <= {RequestLost, Completion}  # on a busy machine one may end before the kill
    assert reason
    assert answer.text == grounded(3)


def test_server_stops_during_requests_and_leaves_nothing(server, run):
    async def stop():
        processes = descendants(os.getpid())
        client = Endpoint(server.address, vllm=True)
        tasks = await asked(server, client, 4)
        await client.close()
        ends = await asyncio.gather(*tasks, return_exceptions=True)
        await server.supervisor.stop()
        await server.ended()
        return processes, ends

    processes, ends = run(stop())
    assert [type(end) for end in ends] == [RequestLost] * 4
    assert any(process.name.startswith("VLLM::") for process in processes)
    assert still_alive([process for process in processes if process.name.startswith("VLLM")], 0) == []


CLIENT = """
import asyncio, sys
from pathlib import Path
sys.path.insert(0, sys.argv.pop(1))
from tiny_questions import request
from tiny_server import serve_options
from llm_ocr.engines.client.endpoint import Endpoint
from llm_ocr.engines.vllm.server import VllmServer
from llm_ocr.models.profiles.shared import CLASSES, classify_prompt, structured_outputs
from llm_ocr.models.registry import find_profile

async def main():
    vllm, model, logs = sys.argv[1:]
    profile = find_profile("qwen3-vl")
    # A command of several words, as for a container.
    options = serve_options(("nice", "-n", "1", vllm), Path(model), Path(logs))
    address, _ = await VllmServer(profile, options).start()
    settings = {**profile.vllm_settings, **structured_outputs(profile, "classify", CLASSES)}
    prompt = classify_prompt(profile.prompts["classify"], CLASSES)
    answer = await Endpoint(address, vllm=True).complete(request("figure", settings, prompt=prompt))
    print(answer.text, flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


def test_a_client_that_is_killed_leaves_no_server(vllm, tiny_models, tmp_path):
    """The server is one of Qwen3-VL, as its profile starts it; it sorts a figure before the client is killed."""
    words = [sys.executable, "-c", CLIENT, *map(str, (Path(__file__).parent, vllm, tiny_models / "qwen3-vl", tmp_path))]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as client:
        try:
            said = client.stdout.readline().strip()
            processes = descendants(client.pid)
        finally:
            client.kill()
    assert said in CLASSES
    assert any(process.name.startswith("VLLM::") for process in processes)
    assert still_alive(processes, 30) == []


def test_a_server_that_cannot_start_says_why(vllm, tiny_models, run, tmp_path):
    options = serve_options((str(vllm),), tmp_path / "no-model", tmp_path)
    with pytest.raises(ServerError) as caught:
        run(VllmServer(PROFILE, options).start())
    assert "no-model" in str(caught.value)
    assert caught.value.hint
