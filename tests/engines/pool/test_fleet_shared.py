"""Servers that others ask, too: what their questions do to it is not held against ours."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from aiohttp import web
from fleet_asking import QUICK, VLLM, answered, ask_all, fleet_of, names, until
from scripted_server import Scripted

from llm_ocr.engines import Address, Completion, ServerFacts
from llm_ocr.engines.pool.pool import ServerPool
from llm_ocr.engines.vllm.external import ExternalServer
from llm_ocr.errors import PageFailure, RequestLost, ServerError
from llm_ocr.types import Reason

OPTIONS = replace(QUICK, scatter=20.0)


class Shared:
    """A server that somebody else keeps up, for many guests."""

    def __init__(self, **options) -> None:
        self.server = Scripted(facts=VLLM, managed=False, **options)
        self.up = asyncio.Event()
        self.address: tuple[Address, ServerFacts] | None = None

    async def keep(self) -> None:
        self.address = await self.server.start()
        while True:
            self.up.set()
            await asyncio.shield(self.server._end)
            self.up.clear()
            await asyncio.sleep(0.05)
            self.address = await self.server.restart("died")


class Guest:
    """One fleet's view of it: a `serving.Server` that is not ours."""

    name = "theirs"
    managed = False

    def __init__(self, shared: Shared) -> None:
        self.shared = shared

    async def start(self) -> tuple[Address, ServerFacts]:
        await self.shared.up.wait()
        return self.shared.address

    async def restart(self, why: str) -> tuple[Address, ServerFacts]:
        return await self.start()

    async def ended(self) -> str:
        await asyncio.get_running_loop().create_future()
        return ""

    async def stop(self) -> None: ...


class Place:
    """An address at which one model's server follows another's; each answers for any model, and says which it is."""

    def __init__(self) -> None:
        self.model = "first"
        self.asked = self.answered = 0
        self.absent = False  # a gateway is there, and no server behind it
        self._runner: web.AppRunner | None = None

    async def open(self) -> Address:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_get("/v1/models", self._models)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.01)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        return Address(f"http://127.0.0.1:{self._runner.addresses[0][1]}/v1", "first")

    def replace(self, model: str) -> None:
        """End the server and start another one at once, as a kill and a restart would."""
        assert self._runner is not None and self._runner.server is not None
        self.model = model
        for handler in list(self._runner.server.connections):
            if handler.transport is not None:
                handler.transport.abort()

    async def close(self) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    async def _models(self, request: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": self.model}]}, status=404 if self.absent else 200)

    async def _chat(self, request: web.Request) -> web.Response:
        await request.read()
        self.asked += 1
        await asyncio.sleep(0.03 + 0.01 * (self.asked % 7))  # not all at once: some are always under way
        if self.absent:
            return web.json_response({"error": "no backend"}, status=404)
        self.answered += 1
        choice = {"message": {"content": f"answer of {self.model}"}, "finish_reason": "stop"}
        return web.json_response({"choices": [choice]})


@contextlib.asynccontextmanager
async def at_a_place(stall: float = 60.0) -> AsyncIterator[tuple[Place, ServerPool]]:
    place = Place()
    server = ExternalServer(await place.open(), timeout=20, poll=0.05)
    try:
        async with fleet_of([server], replace(QUICK, stall=stall)) as fleet:
            yield place, fleet
    finally:
        await place.close()


@pytest.mark.parametrize("quiet", [False, True])
async def test_answer_of_another_model_at_same_address_is_not_trusted(quiet: bool) -> None:
    async with at_a_place() as (place, fleet):
        first = asyncio.create_task(ask_all(fleet, names(100)))
        await until(lambda: place.answered >= 30)
        if quiet:
            await first
            await asyncio.sleep(2.2)
        place.replace("second")
        found = [*(await first).values(), *(await ask_all(fleet, names(20))).values()]
        assert {one.text for one in found if isinstance(one, Completion)} == {"answer of first"}
        errors = [one for one in found if not isinstance(one, Completion | RequestLost)]
        assert {type(one) for one in errors} == {ServerError}
        assert "served first before and now serves second" in str(errors[0])


async def test_the_same_model_that_came_back_to_its_address_goes_on() -> None:
    async with at_a_place() as (place, fleet):
        asking = asyncio.create_task(ask_all(fleet, names(100)))
        await until(lambda: place.answered >= 30)
        place.replace("first")
        found = [one for one in (await asking).values() if not isinstance(one, RequestLost)]
        assert all(isinstance(one, Completion) for one in found) and len(found) > 50


async def test_a_404_of_a_server_that_has_answered_is_waited_through() -> None:
    async with at_a_place() as (place, fleet):
        asking = asyncio.create_task(ask_all(fleet, names(60)))
        await until(lambda: place.answered >= 10)
        place.absent = True
        await asyncio.sleep(0.5)
        place.absent = False
        assert all(isinstance(one, Completion) for one in (await asking).values())


async def test_lasting_404_is_an_error_after_the_time_of_one_request() -> None:
    async with at_a_place(stall=1.0) as (place, fleet):
        asking = asyncio.create_task(ask_all(fleet, names(60)))
        await until(lambda: place.answered >= 10)
        place.absent = True
        errors = [one for one in (await asking).values() if not isinstance(one, Completion)]
        assert {type(one) for one in errors} == {ServerError}
        assert "answered 404: no backend; no request succeeded for 1 s" in str(errors[0])


@pytest.mark.slow
async def test_request_that_kills_shared_server_is_quarantined_alone() -> None:
    shared = Shared(seconds=0.1)

    def behave(prompt: str) -> None:
        if prompt == "killer":  # before those are answered that came with it
            shared.server._hung = True
            asyncio.get_running_loop().call_later(0.02, lambda: asyncio.ensure_future(shared.server.die()))

    shared.server.behave = behave
    keeping = asyncio.create_task(shared.keep())
    fleets = [ServerPool("model", [Guest(shared)], OPTIONS) for _ in range(3)]
    asked = [[f"{number} {name}" for name in names(100)] for number in range(3)]
    asked[0].insert(40, "killer")
    found = await asyncio.gather(*(ask_all(fleet, mine) for fleet, mine in zip(fleets, asked, strict=True)))
    failure = found[0].pop("killer")
    assert isinstance(failure, PageFailure)
    assert failure.reason is Reason.QUARANTINED
    assert shared.server.asked["killer"] <= 6  # deaths of what others use
    for one in found:
        assert {name: one[name] for name in set(one) - set(answered(one))} == {}
    for fleet in fleets:
        await fleet.close()
    keeping.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await keeping
    await shared.server.stop()
