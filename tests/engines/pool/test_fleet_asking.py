"""What a caller of a fleet is promised, over real HTTP servers in this process."""

import asyncio
import itertools
from dataclasses import replace

import pytest
from aiohttp import web
from fleet_asking import QUICK, VLLM, answered, ask_all, failing, fleet_of, names, until, until_window_follows
from scripted_server import Scripted, request_for

from llm_ocr.engines import Completion, ServerFacts
from llm_ocr.errors import RequestLost, RequestRefused, ServerError


async def test_each_request_gets_its_own_answer_within_the_window() -> None:
    server = Scripted(facts=VLLM, seconds=0.01)
    said: list[str] = []
    async with fleet_of([server], QUICK, said) as fleet:
        found = await ask_all(fleet, names(300))
        assert answered(found) == names(300)
        load = fleet.load()
        assert (load.answers, load.tokens_in, load.tokens_out) == (300, 900, 1500)
        assert (load.in_flight, load.queued, load.lost, load.servers) == (0, 0, 0, 1)
        assert said == [
            "scripted 0 (vLLM 0.32.0) is ready: 64,000 KV tokens; "
            "window 20: KV for 32 pages of 2,000 tokens, 16 sequences at once + 4 waiting"
        ]
    assert set(server.asked.values()) == {1}
    assert server.stops == 1


async def test_the_users_cap_holds_over_all_servers() -> None:
    servers = [Scripted(f"scripted {number}", seconds=0.02) for number in range(2)]
    most: list[int] = []
    async with fleet_of(servers, replace(QUICK, max_inflight=5)) as fleet:
        asking = asyncio.create_task(ask_all(fleet, names(60)))
        await until(lambda: asking.done() or most.append(sum(one.running + one.waiting for one in servers)))
        assert len(answered(asking.result())) == 60
    assert max(most) == 5


async def test_oldest_request_goes_first_with_notice_when_sent() -> None:
    order: list[str] = []
    async with fleet_of([Scripted()], replace(QUICK, max_inflight=2)) as fleet:
        await asyncio.gather(
            *(fleet.complete(request_for(name), lambda name=name: order.append(name)) for name in names(40))
        )
    assert order == names(40)


async def test_an_answer_says_how_long_its_question_waited() -> None:
    async with fleet_of([Scripted(seconds=0.2)], replace(QUICK, max_inflight=1)) as fleet:
        first, second = await asyncio.gather(fleet.complete(request_for("a")), fleet.complete(request_for("b")))
        assert second.waited - first.waited >= 0.19
        assert second.server.startswith("http://127.0.0.1:")


async def test_requests_go_to_the_least_loaded_server() -> None:
    servers = [Scripted("slow", seconds=1.0), Scripted("quick", seconds=0.01)]
    async with fleet_of(servers, QUICK) as fleet:
        fleet.begin()
        await until(lambda: fleet.load().servers == 2)
        assert len(answered(await ask_all(fleet, names(200)))) == 200
    slow, quick = (sum(server.asked.values()) for server in servers)
    assert quick > slow > 0


async def test_first_ready_server_serves_and_failed_start_is_left_out() -> None:
    servers = [Scripted("late", starts_after=30), Scripted("good"), Scripted("bad", fails_to_start="no GPU")]
    said: list[str] = []
    async with fleet_of(servers, QUICK, said) as fleet:
        assert len(answered(await ask_all(fleet, names(20)))) == 20
        assert [line for line in said if "bad is no longer used: no GPU" in line]
    assert sum(servers[1].asked.values()) == 20
    assert [server.stops for server in servers] == [1, 1, 1]


async def test_when_no_server_starts_all_get_the_reason() -> None:
    servers = [Scripted("a", fails_to_start="no GPU here"), Scripted("b", fails_to_start="no GPU there")]
    async with fleet_of(servers, QUICK) as fleet:
        found = await ask_all(fleet, names(3))
        assert all(isinstance(one, ServerError) and "no GPU" in str(one) for one in found.values())
        assert all(getattr(one, "hint", "") == "Look at its log." for one in found.values())
        with pytest.raises(ServerError, match="no GPU"):
            await fleet.complete(request_for("later"))


async def test_without_servers_there_is_an_error() -> None:
    async with fleet_of([], QUICK) as fleet:
        with pytest.raises(ServerError, match="no server"):
            await fleet.complete(request_for("a"))


@pytest.mark.parametrize("status", [429, 503])
async def test_busy_server_costs_no_attempt_and_gets_no_request_flood(status: int) -> None:
    busy = failing(5, lambda: web.Response(status=status, headers={"Retry-After": "1"}))
    server = Scripted(behave=busy, seconds=0.01)
    async with fleet_of([server], QUICK) as fleet:
        assert len(answered(await ask_all(fleet, names(50)))) == 50
        assert fleet.load().busy == 5
        assert fleet.load().lost == 0
    began = server.arrived[0][0]
    assert len([at for at, _ in server.arrived if at < began + 0.95]) <= 16  # the first window
    assert server.asked.total() == 55


async def test_without_retry_after_the_pauses_grow() -> None:
    server = Scripted(behave=failing(3, lambda: web.Response(status=503)))
    async with fleet_of([server], QUICK) as fleet:
        assert (await fleet.complete(request_for("a"))).text == "answer to a"
    times = [at for at, _ in server.arrived]
    pauses = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert len(pauses) == 3
    assert pauses[0] >= 0.37
    assert pauses[1] >= 0.75
    assert pauses[2] >= 1.5


async def test_server_busy_for_ever_is_reported_once_then_an_error() -> None:
    server = Scripted(behave=lambda _: web.Response(status=429, headers={"Retry-After": "0"}))
    said: list[str] = []
    async with fleet_of([server], replace(QUICK, busy_timeout=0.5), said) as fleet:
        found = await ask_all(fleet, names(40))
        assert all(isinstance(one, ServerError) and "429" in str(one) for one in found.values())
    assert [text.partition("; ")[2] for text in said if "429" in text] == [
        "no request succeeds; trying again for at most 0.5 s"
    ]


async def test_server_that_refused_a_request_was_not_busy_all_along() -> None:
    replies = iter([web.Response(status=429, headers={"Retry-After": "0"}), web.Response(status=400)])
    again = web.Response(status=429, headers={"Retry-After": "0"})
    server = Scripted(behave=lambda _: next(replies, None))
    async with fleet_of([server], replace(QUICK, busy_timeout=1.0)) as fleet:
        with pytest.raises(RequestRefused):
            await fleet.complete(request_for("a"))
        await asyncio.sleep(1.1)
        replies = iter([again])
        assert (await fleet.complete(request_for("b"))).text == "answer to b"


async def test_another_server_takes_over_while_one_is_busy() -> None:
    busy = Scripted("busy", behave=lambda _: web.Response(status=429, headers={"Retry-After": "100"}))
    async with fleet_of([busy, Scripted("free")], QUICK) as fleet:
        fleet.begin()
        await until(lambda: fleet.load().servers == 2)
        assert len(answered(await ask_all(fleet, names(50)))) == 50
    assert busy.asked


async def test_lost_request_of_live_server_is_left_to_caller_to_retry() -> None:
    server = Scripted(behave=failing(1, lambda: web.Response(status=500)))
    async with fleet_of([server], QUICK) as fleet:
        with pytest.raises(RequestLost) as lost:
            await fleet.complete(request_for("a"))
        assert lost.value.status == 500
        assert (await fleet.complete(request_for("a"))).text == "answer to a"
        assert (fleet.load().lost, fleet.load().restarts) == (1, 0)


async def test_server_that_refuses_every_request_ends_the_run() -> None:
    async with fleet_of([Scripted(behave=lambda _: web.Response(status=400))], QUICK) as fleet:
        found = await ask_all(fleet, names(150))
        assert sum(isinstance(one, RequestRefused) for one in found.values()) >= 100
        with pytest.raises(ServerError, match=r"answered none of 1\d\d requests"):
            await fleet.complete(request_for("more"))


async def test_refused_pages_among_others_do_not_end_the_run() -> None:
    server = Scripted(behave=lambda name: None if "good" in str(name) else web.Response(status=400))
    async with fleet_of([server], QUICK) as fleet:
        assert (await fleet.complete(request_for("good"))).text == "answer to good"
        found = await ask_all(fleet, names(150))
        assert all(isinstance(one, RequestRefused) for one in found.values())
        assert (await fleet.complete(request_for("good"))).text == "answer to good"


async def test_a_wrong_key_ends_in_an_error() -> None:
    async with fleet_of([Scripted(behave=lambda _: web.Response(status=401))], QUICK) as fleet:
        with pytest.raises(ServerError, match="401"):
            await fleet.complete(request_for("a"))


async def test_the_window_is_steered_by_the_servers_gauges() -> None:
    facts = ServerFacts(vllm=True, kv_tokens=20_000, max_num_seqs=4)
    server = Scripted(facts=facts, gauges=True, slots=40, seconds=0.2)
    async with fleet_of([server], QUICK) as fleet:
        await until_window_follows(fleet, server)


async def test_a_cancelled_question_gives_its_place_back() -> None:
    async with fleet_of([Scripted(seconds=0.05)], replace(QUICK, max_inflight=2)) as fleet:
        asking = [asyncio.create_task(fleet.complete(request_for(name))) for name in names(10)]
        await until(lambda: fleet.load().in_flight == 2)
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
        assert all(task.cancelled() for task in asking)
        assert (fleet.load().in_flight, fleet.load().queued) == (0, 0)
        assert (await fleet.complete(request_for("a"))).text == "answer to a"


async def test_caller_cancelled_during_server_death_stays_cancelled() -> None:
    server = Scripted(seconds=60)
    async with fleet_of([server], QUICK) as fleet:
        asking = [asyncio.create_task(fleet.complete(request_for(name))) for name in names(8)]
        await until(lambda: len(server.arrived) == 8)
        server.seconds = 0.01
        dying = asyncio.create_task(server.die())
        for task in asking[::2]:
            await asyncio.sleep(0)
            task.cancel()
        await dying
        found = await asyncio.gather(*asking, return_exceptions=True)
        assert all(isinstance(one, asyncio.CancelledError) for one in found[::2])
        assert all(isinstance(one, Completion) for one in found[1::2])
