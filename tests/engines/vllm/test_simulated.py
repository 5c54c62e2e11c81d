"""A server of our own over the simulator that ships: vLLM's log, pages and way to die."""

import asyncio
import sys

import pytest
from supervised import PACE, made_profile

from llm_ocr.engines import CompletionRequest
from llm_ocr.engines.client.endpoint import Endpoint
from llm_ocr.engines.vllm.command import ServeOptions
from llm_ocr.engines.vllm.server import VllmServer
from llm_ocr.errors import RequestLost
from llm_ocr.types import EncodedImage

SIMULATOR = (sys.executable, "-m", "llm_ocr_simulator")


@pytest.fixture
def simulated():
    def make(*args: str) -> tuple[VllmServer, list[str]]:
        said: list[str] = []
        options = ServeOptions(command=SIMULATOR, args=args, startup_timeout=300.0)
        return VllmServer(made_profile(), options, say=said.append, pace=PACE), said

    return make


def test_facts_of_the_log_and_of_the_pages_are_put_together(simulated):
    server, _ = simulated("--kv-tokens=100000", "--max-num-seqs=16")

    async def check():
        try:
            return await server.start()
        finally:
            await server.stop()

    address, facts = asyncio.run(check())
    assert address.model == "maker/tiny"
    assert facts.vllm and facts.version and facts.max_model_len == 8192
    assert 90_000 <= facts.kv_tokens <= 100_000
    assert facts.max_concurrency == pytest.approx(facts.kv_tokens / 8192, abs=0.01)
    assert facts.max_num_seqs == 16


@pytest.mark.slow
def test_model_too_large_for_device_runs_with_fewer_sequences(simulated):
    server, said = simulated("--oom-above=128", "--max-num-seqs=256")

    async def check():
        try:
            return (await server.start())[1]
        finally:
            await server.stop()

    assert asyncio.run(check()).max_num_seqs == 128
    assert sum("trying with" in line for line in said) == 1


@pytest.mark.parametrize(
    ("fault", "how", "sequences"),
    [("die-after=1", "SIGKILL", 64), pytest.param("oom-after=1", "OutOfMemoryError", 32, marks=pytest.mark.slow)],
)
def test_server_dies_during_a_request_and_answers_after_restart(simulated, tmp_path, fault, how, sequences):
    server, _ = simulated(
        f"--fault={fault}",
        "--fault=only-starts=1",
        f"--state-file={tmp_path / 'state'}",
        "--max-num-seqs=64",
        "--speed=50",
    )
    request = CompletionRequest("page-1", EncodedImage(b"page", "image/png", 1, 1), "Read.", {"max_tokens": 50})

    async def complete(address):
        endpoint = Endpoint(address, vllm=True)
        try:
            return await endpoint.complete(request)
        finally:
            await endpoint.close()

    async def check():
        try:
            address, _ = await server.start()
            ended = asyncio.create_task(server.ended())
            with pytest.raises(RequestLost):
                for _ in range(5):
                    await complete(address)
            assert how in await ended
            again, facts = await server.restart("it died")
            assert again.key == address.key and facts.max_num_seqs == sequences
            return await complete(again)
        finally:
            await server.stop()

    assert asyncio.run(check()).tokens_out > 0
