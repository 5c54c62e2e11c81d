"""Servers of other kinds with gauges: the window works there as with vLLM."""

import pytest
from fleet_asking import QUICK, fleet_of, until_window_follows
from scripted_server import METRICS, Scripted

from llm_ocr.engines.client.endpoint import Endpoint
from llm_ocr.engines.vllm.external import ExternalServer

KINDS = sorted(set(METRICS) - {"vLLM"})


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
async def test_window_grows_and_settles_by_gauges_of(kind: str) -> None:
    server = Scripted(gauges=True, kind=kind, slots=40, seconds=0.05)
    address, _ = await server.start()
    said: list[str] = []
    async with fleet_of([ExternalServer(address)], QUICK, said) as fleet:
        await until_window_follows(fleet, server)
    await server.stop()
    assert f"({kind}) is ready: window 16: follows the gauges of {kind}" in said[0]


@pytest.mark.parametrize("kind", KINDS)
async def test_gauges_are_read_and_make_no_server_a_vllm(kind: str) -> None:
    server = Scripted(gauges=True, kind=kind)
    address, _ = await server.start()
    endpoint = Endpoint(address)
    facts = await endpoint.probe()
    server.running, server.waiting = 7, 3
    gauges = await endpoint.gauges()
    server.running = server.waiting = 0
    await endpoint.close()
    await server.stop()
    assert facts is not None and gauges is not None
    assert (gauges.running, gauges.waiting) == (7, 3)
    assert (facts.vllm, facts.gauges, facts.kv_tokens) == (False, kind, None)
