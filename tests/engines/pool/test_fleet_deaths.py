"""Servers that die or hang under a fleet, over real HTTP servers in this process."""

import asyncio
import contextlib
import math
import random
from dataclasses import replace

import pytest
from aiohttp import web
from fleet_asking import QUICK, VLLM, answered, ask_all, fleet_of, names, until
from scripted_server import Scripted, request_for

from llm_ocr.engines import Completion
from llm_ocr.engines.pool.pool import ServerPool
from llm_ocr.errors import PageFailure, RequestLost, ServerError
from llm_ocr.types import Reason


@pytest.mark.parametrize("managed", [True, False])
async def test_server_death_resends_open_requests_and_costs_no_attempt(managed: bool) -> None:
    server = Scripted(seconds=0.05, facts=VLLM, managed=managed)
    said: list[str] = []
    async with fleet_of([server], QUICK, said) as fleet:
        asking = asyncio.create_task(ask_all(fleet, names(100)))
        await until(lambda: fleet.load().answers >= 30)
        server.seconds = 60
        await until(lambda: server.running == 20)
        server.seconds = 0.05
        await server.die("killed by signal 9")
        assert len(answered(await asking)) == 100
        assert fleet.load().restarts == 1
        [line] = [line for line in said if "its requests are sent again" in line]
        assert ("restart 1 of 5" if managed else "waiting until it answers again") in line
        assert managed or "restart" not in line
        assert "killed by signal 9" in line or not managed
    assert server.starts == 2
    assert max(server.asked.values()) == 2
    assert 0 < list(server.asked.values()).count(2) <= 20  # fewer where answers still came while it died


async def test_other_servers_go_on_while_one_is_restarted() -> None:
    servers = [Scripted("a", seconds=0.02), Scripted("b", seconds=0.02)]
    said: list[str] = []
    async with fleet_of(servers, QUICK, said) as fleet:
        asking = asyncio.create_task(ask_all(fleet, names(300)))
        await until(lambda: fleet.load().answers >= 50)
        servers[0].fails_to_restart = "the GPU fell off"
        await servers[0].die()
        assert len(answered(await asking)) == 300
        assert [line for line in said if "a is no longer used: the GPU fell off" in line]
        assert fleet.load().servers == 1


async def test_server_that_keeps_dying_gives_error_within_budget() -> None:
    server = Scripted(seconds=0.01, killers=frozenset(names(100)), facts=VLLM)
    async with fleet_of([server], QUICK) as fleet:
        found = await ask_all(fleet, names(100))
        errors = [one for one in found.values() if isinstance(one, ServerError)]
        assert len(errors) == 100  # no page is blamed for it
        assert "died 6 times" in str(errors[0])
    assert server.starts == 6


async def test_restarts_are_forgotten_after_enough_answers() -> None:
    server = Scripted(seconds=0.001, facts=VLLM)
    async with fleet_of([server], replace(QUICK, max_restarts=1)) as fleet:
        for _ in range(4):
            assert len(answered(await ask_all(fleet, names(110)))) == 110
            await server.die()
        assert len(answered(await ask_all(fleet, names(110)))) == 110


@pytest.mark.parametrize("count", [1, 3])
async def test_killer_requests_are_quarantined_and_others_are_answered(count: int) -> None:
    killers = frozenset(f"page-{number}" for number in (40, 47, 90)[:count])
    server = Scripted(seconds=0.03, killers=killers, facts=VLLM)
    said: list[str] = []
    async with fleet_of([server], QUICK, said) as fleet:
        found = await ask_all(fleet, names(120))
        assert sorted(answered(found)) == sorted(set(names(120)) - killers)
        for name in killers:
            failure = found[name]
            assert isinstance(failure, PageFailure)
            assert failure.reason is Reason.QUARANTINED
            assert "4 times" in failure.detail
            assert [line for line in said if f"{name} is quarantined" in line]
    for name in killers:
        assert server.neighbours[name][-1] == 0
        assert all(there < math.ceil(math.sqrt(20)) for there in server.neighbours[name][2:])
        assert server.asked[name] <= 4  # less where another killer was quicker, before this one had arrived
    assert count > 1 or server.asked["page-40"] == 4


async def test_killer_is_found_although_its_server_exits_later() -> None:
    server = Scripted(seconds=0.01, facts=VLLM)
    exits: list[asyncio.Task[None]] = []

    async def exit_later() -> None:  # vLLM: 500 when its engine is dead, and the exit within 5 s
        await asyncio.sleep(4 * QUICK.grace)
        await server.die()

    def behave(prompt: str) -> web.Response | None:
        if prompt != "killer":
            return None
        exits.append(asyncio.create_task(exit_later()))
        return web.Response(status=500)

    async with fleet_of([server], QUICK) as fleet:
        assert len(answered(await ask_all(fleet, names(5)))) == 5
        server.behave = behave
        with pytest.raises(PageFailure, match="4 times"):
            await fleet.complete(request_for("killer"))
    assert len(exits) == 4


async def test_error_500_of_a_live_server_is_no_hang() -> None:
    server = Scripted(behave=lambda prompt: web.Response(status=500) if prompt == "bad" else None, facts=VLLM)
    async with fleet_of([server], replace(QUICK, stall=3 * QUICK.grace)) as fleet:
        for _ in range(2):
            with pytest.raises(RequestLost):
                await fleet.complete(request_for("bad"))
        assert (await fleet.complete(request_for("good"))).text
    assert server.starts == 1


@pytest.mark.slow
async def test_hang_behind_a_proxy_that_cuts_requests_is_found() -> None:
    server = Scripted(seconds=0.02, facts=VLLM)

    async def page(fleet: ServerPool, number: int) -> str:
        for _ in range(20):
            await asyncio.sleep(0.02 * number)  # some request is always in flight
            with contextlib.suppress(RequestLost):
                return (await fleet.complete(request_for(f"later-{number}"))).text
        return ""

    async with fleet_of([server], replace(QUICK, stall=1.0)) as fleet:
        assert len(answered(await ask_all(fleet, names(20)))) == 20
        server.cut_after = 0.3
        server.hang()
        assert all(await asyncio.gather(*(page(fleet, number) for number in range(20))))
    assert server.starts == 2


async def test_fresh_requests_avoid_the_server_that_runs_suspects() -> None:
    servers = [Scripted("a", seconds=0.02, killers=frozenset({"killer"})), Scripted("b", seconds=0.02)]
    # from the first death on it is suspect; of one that is pardoned once the next server might be the other
    async with fleet_of(servers, replace(QUICK, kills=3)) as fleet:
        fleet.begin()
        await until(lambda: fleet.load().servers == 2)
        found = await ask_all(fleet, ["killer", *names(200)])
        assert len(answered(found)) == 200
        assert isinstance(found["killer"], PageFailure)
    assert servers[1].asked["killer"] == 0
    assert servers[1].starts == 1


@pytest.mark.slow
async def test_hung_server_is_restarted_and_its_request_is_quarantined() -> None:
    server = Scripted(seconds=0.02, hangers=frozenset({"page-30"}), facts=VLLM)
    said: list[str] = []
    async with fleet_of([server], replace(QUICK, stall=2.0), said) as fleet:
        found = await ask_all(fleet, names(60))
        assert len(answered(found)) == 59
        assert isinstance(found["page-30"], PageFailure)
        assert fleet.load().restarts >= 4
        assert [line for line in said if "no answer made progress for 2 s" in line]
    assert server.asked["page-30"] == 4


@pytest.mark.parametrize(("managed", "hangs"), [(True, 1), (True, 2), (False, 2), (False, 3)])
async def test_hangs_are_counted_apart_from_deaths_and_named_so(managed: bool, hangs: int) -> None:
    server = Scripted(seconds=0.02, hangers=frozenset({"page-1"}), managed=managed)
    async with fleet_of([server], replace(QUICK, stall=0.6, hangs=hangs)) as fleet:
        began = asyncio.get_running_loop().time()
        found = await ask_all(fleet, names(4))
        assert len(answered(found)) == 3
        failure = found["page-1"]
        assert isinstance(failure, PageFailure)
        asked = server.asked["page-1"]
        times = {1: "once", 2: "twice"}.get(asked, f"{asked} times")
        assert failure.detail == f"the server hung {times} while it read this page"
        assert asyncio.get_running_loop().time() - began < 60  # no wait is longer than a hang
    # the first hang is not with it alone, and at a server of others each counted one must be
    assert hangs <= server.asked["page-1"] <= hangs + 1 + (not managed)


async def test_server_hung_on_its_only_request_is_reported_as_hung() -> None:
    server = Scripted(hangers=frozenset({"page-0"}), managed=False)
    async with fleet_of([server], replace(QUICK, stall=0.3, hangs=2)) as fleet:
        with pytest.raises(ServerError, match="the server hung twice while it read page-0, before any"):
            await fleet.complete(request_for("page-0"))


@pytest.mark.slow
async def test_single_stalled_answer_is_lost_without_server_restart() -> None:
    class Stalling(Scripted):
        async def _answer(self, request: web.Request, prompt: str) -> web.StreamResponse:
            if prompt == "stuck":
                await asyncio.get_running_loop().create_future()
            return await super()._answer(request, prompt)

    server = Stalling(seconds=0.2)
    async with fleet_of([server], replace(QUICK, stall=2.0)) as fleet:
        stuck = asyncio.create_task(fleet.complete(request_for("stuck")))
        while not stuck.done():
            await ask_all(fleet, names(4))
        with pytest.raises(RequestLost) as lost:
            await stuck
        assert lost.value.stalled
        assert fleet.load().restarts == 0


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
async def test_mixed_deaths_losses_and_cancels_leave_no_caller_waiting(seed: int) -> None:
    chance = random.Random(seed)

    def behave(prompt: str) -> web.Response | None:
        drawn = chance.random()
        if drawn < 0.05:
            return web.Response(status=429, headers={"Retry-After": "0"})
        return web.Response(status=500) if drawn < 0.1 else None

    servers = [Scripted(f"scripted {n}", seconds=0.01, facts=VLLM, behave=behave, managed=n != 1) for n in range(3)]
    async with fleet_of(servers, replace(QUICK, max_restarts=20, kills=50)) as fleet:
        asking = {name: asyncio.create_task(fleet.complete(request_for(name))) for name in names(600)}
        cancelled = chance.sample(names(600), 60)
        for round_ in range(12):
            await asyncio.sleep(chance.uniform(0.01, 0.08))
            await chance.choice(servers).die()
            for name in cancelled[5 * round_ : 5 * round_ + 5]:
                asking[name].cancel()
        found = dict(zip(asking, await asyncio.gather(*asking.values(), return_exceptions=True), strict=True))
        odd = [one for one in found.values() if not isinstance(one, Completion | RequestLost | asyncio.CancelledError)]
        assert not odd
        assert {name for name, one in found.items() if isinstance(one, asyncio.CancelledError)} <= set(cancelled)
        assert len(answered(found)) > 400
        assert (fleet.load().in_flight, fleet.load().queued) == (0, 0)
