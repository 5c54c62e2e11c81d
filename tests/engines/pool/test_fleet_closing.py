"""A fleet that asks no more, or ends: nobody waits for ever, and nothing is left behind."""

import asyncio

import pytest
from fleet_asking import QUICK, VLLM, names, until
from scripted_server import Scripted, request_for

from llm_ocr.engines import Address, Completion
from llm_ocr.engines.client.endpoint import Endpoint
from llm_ocr.engines.pool.pool import ServerPool
from llm_ocr.engines.pool.session import ServerSession, Window
from llm_ocr.errors import ServerError


async def test_closing_ends_waits_and_connections_before_servers() -> None:
    class Waiting(Scripted):
        async def stop(self) -> None:
            await asyncio.wait_for(until(lambda: self.running + self.waiting == 0), 20)
            await super().stop()

    server = Waiting(seconds=60, facts=VLLM)
    fleet = ServerPool("model", [server], QUICK)
    asking = [asyncio.create_task(fleet.complete(request_for(name))) for name in names(100)]
    await until(lambda: len(server.arrived) == 20)
    await asyncio.gather(fleet.close(), fleet.close())
    found = await asyncio.gather(*asking, return_exceptions=True)
    assert all(isinstance(one, ServerError) and "closed" in str(one) for one in found)
    await fleet.close()
    with pytest.raises(ServerError, match="closed"):
        await fleet.complete(request_for("late"))
    assert server.stops == 1


async def test_hold_answers_sent_requests_and_sends_no_others() -> None:
    server = Scripted(seconds=1.0, facts=VLLM)
    fleet = ServerPool("model", [server], QUICK)
    asking = [asyncio.create_task(fleet.complete(request_for(name))) for name in names(50)]
    await until(lambda: len(server.arrived) == 20)
    fleet.hold()
    await until(lambda: sum(task.done() for task in asking) == 20)
    late = asyncio.create_task(fleet.complete(request_for("late")))
    await asyncio.sleep(0.1)
    assert (fleet.load().in_flight, fleet.load().queued, late.done()) == (0, 31, False)
    await fleet.close()
    found = await asyncio.gather(*asking, late, return_exceptions=True)
    assert [type(one) for one in found] == [Completion] * 20 + [ServerError] * 31
    assert server.asked.total() == 20


async def test_closing_is_safe_while_servers_start_and_before() -> None:
    servers = [Scripted("a", starts_after=600), Scripted("b", starts_after=600)]
    fleet = ServerPool("model", servers, QUICK)
    asking = asyncio.create_task(fleet.complete(request_for("a")))
    await asyncio.sleep(0.02)
    await fleet.close()
    with pytest.raises(ServerError, match="closed"):
        await asking
    assert [server.stops for server in servers] == [1, 1]
    unused = ServerPool("model", [Scripted()], QUICK)
    await unused.close()
    unused.begin()


async def test_closing_cancels_no_request_that_waits_for_the_probe(monkeypatch) -> None:
    endpoint = Endpoint(Address("http://127.0.0.1:9/v1", "model"))
    monkeypatch.setattr(endpoint, "probe", asyncio.get_running_loop().create_future)
    session = ServerSession(0, "server", endpoint, VLLM, Window(4))
    waiting = asyncio.create_task(session.answers())
    await asyncio.sleep(0.01)
    await session.close()
    assert await waiting is False
