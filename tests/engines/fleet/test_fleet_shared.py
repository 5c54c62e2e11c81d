"""Servers that others ask, too: what their questions do to it is not held against ours."""

import asyncio
import contextlib
from dataclasses import replace

import pytest
from fleet_asking import QUICK, VLLM, answered, ask_all, names, run
from scripted_server import Scripted

from llm_ocr.engines.fleet.fleet import Fleet
from llm_ocr.engines.serving import Address, ServerFacts
from llm_ocr.errors import PageFailure
from llm_ocr.types import Reason

OPTIONS = replace(QUICK, scatter=20.0)


class Shared:
    """A server that somebody else keeps up, for many guests."""

    def __init__(self, **options) -> None:
        self.server = Scripted(facts=VLLM, ours=False, **options)
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
    ours = False

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


@pytest.mark.slow
def test_a_question_that_kills_a_shared_server_is_the_only_one_that_is_set_aside() -> None:
    async def test() -> None:
        shared = Shared(seconds=0.03)

        def behave(prompt: str) -> None:
            if prompt == "killer":  # before those are answered that came with it
                asyncio.get_running_loop().call_later(0.02, lambda: asyncio.ensure_future(shared.server.die()))

        shared.server.behave = behave
        keeping = asyncio.create_task(shared.keep())
        fleets = [Fleet("model", [Guest(shared)], OPTIONS) for _ in range(3)]
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

    run(test())
