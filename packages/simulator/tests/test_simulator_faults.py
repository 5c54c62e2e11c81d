"""Faults of the simulator: each is what it says, repeatable, and written into the log."""

import asyncio
import urllib.error
import urllib.request

import aiohttp
import pytest
from simulator_client import ask, ask_all, asked, body_of, until, url_of

from llm_ocr_simulator import running
from llm_ocr_simulator.answers import image_hash
from llm_ocr_simulator.faults import faults_of

FAST = {"speed": 300, "preprocess_seconds": 0}


def status_of(url):
    try:
        with urllib.request.urlopen(url) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


def test_draws_repeat_and_have_the_asked_shares():
    faults = faults_of({"429": 0.1, "reset": "0.2"})
    drawn = [faults.drawn(0, f"{number:x}", 0) for number in range(5000)]
    assert drawn == [faults.drawn(0, f"{number:x}", 0) for number in range(5000)]
    assert drawn.count("429") == pytest.approx(500, rel=0.2)
    assert drawn.count("reset") == pytest.approx(1000, rel=0.2)
    again = [faults.drawn(0, f"{number:x}", 1) for number in range(5000)]
    assert sum(one == other != "" for one, other in zip(drawn, again, strict=True)) < 500


@pytest.mark.parametrize("settings", [{"unknown": 1}, {"429": 1.5}, {"429": 0.6, "503": 0.6}, {"die-after": "x"}])
def test_faults_that_make_no_sense_are_refused(settings):
    with pytest.raises(ValueError, match=r"fault|invalid literal"):
        faults_of(settings)


@pytest.fixture(scope="module")
def simulator():
    with running(**FAST) as one:
        yield one


def faulty(simulator, faults, *bodies):
    """The answers under these faults, which are gone afterwards."""
    simulator.set_faults(faults)
    try:
        return asked(simulator.url, *bodies)
    finally:
        simulator.set_faults({})


@pytest.mark.parametrize("status", [429, 503, 500])
def test_busy_servers_say_when_to_come_back(simulator, status):
    (got,) = faulty(simulator, {str(status): 1, "retry-after": 3}, body_of(url_of(status)))
    assert (got.status, got.headers.get("Retry-After")) == (status, "3" if status != 500 else None)
    assert bool(got.error) and simulator.log()["requests"][-1]["fault"] == str(status)


@pytest.mark.parametrize("stream", [True, False])
def test_connections_are_reset_before_and_within_answers(simulator, stream):
    for fault in ("reset", "reset-within"):
        (got,) = faulty(simulator, {fault: 1}, body_of(url_of(fault), stream=stream))
        assert isinstance(got, aiohttp.ClientConnectionError | aiohttp.ClientPayloadError)
        entry = simulator.log()["requests"][-1]
        assert (entry["fault"], entry["finish"]) == (fault, "error")
        assert (entry["output_tokens"] > 0) == (fault == "reset-within")


def test_a_truncated_stream_ends_without_a_finish_reason(simulator):
    body = body_of(url_of("truncated"))
    (whole,) = asked(simulator.url, body)
    (got,) = faulty(simulator, {"truncated": 1}, body)
    assert (got.status, got.finish, got.done, got.usage) == (200, None, False, None)
    assert whole.text.startswith(got.text)
    assert 0 < len(got.text) < len(whole.text)


def test_an_error_comes_in_the_middle_of_a_stream(simulator):
    (got,) = faulty(simulator, {"stream-error": 1}, body_of(url_of("stream-error")))
    assert got.finish is None
    assert "EngineCore encountered an issue" in got.error


async def test_one_request_hangs_and_others_do_not(simulator):
    simulator.reset()
    simulator.set_faults({"hang": 1})
    async with aiohttp.ClientSession() as session:
        hanging = asyncio.create_task(ask(session, simulator.url, body_of(url_of("hang"))))
        await until(lambda: [one["fault"] for one in simulator.log()["requests"]] == ["hang"])
        await asyncio.to_thread(simulator.set_faults, {})
        other = await asyncio.wait_for(ask(session, simulator.url, body_of(url_of("hang"))), 60)
        over = hanging.done()
        hanging.cancel()
        assert (other.finish, over) == ("stop", False)


def test_a_too_long_prompt_is_one_with_a_large_image(simulator):
    small, large = body_of(url_of("s")), body_of(url_of("large" * 100))
    fine, refused = faulty(simulator, {"too-long": 3000}, small, large)
    assert fine.finish == "stop"
    assert (refused.status, "maximum context length" in refused.error) == (400, True)


async def test_a_provider_refuses_more_than_so_many_requests_at_a_time(simulator):
    """The engine stands still until all have come, so that none is over before the next one begins."""
    simulator.reset()
    simulator.set_faults({"max-inflight": 5, "hang-after": 0})
    bodies = [body_of(url_of(f"at once {number}")) for number in range(20)]
    asking = asyncio.create_task(ask_all(simulator.url, bodies))
    await until(lambda: len(simulator.log()["requests"]) == 20)
    await asyncio.to_thread(simulator.set_faults, {})
    answers = await asking
    assert sorted(got.status for got in answers) == [200] * 5 + [429] * 15


async def test_hanging_engine_stays_healthy_and_resumes_after_fault(simulator):
    simulator.set_faults({"hang-image": image_hash(url_of("h1"))[:12]})
    asking = asyncio.create_task(ask_all(simulator.url, [body_of(url_of(f"h{number}")) for number in range(3)]))
    done, _ = await asyncio.wait([asking], timeout=0.5)
    health = await asyncio.to_thread(status_of, simulator.root + "/health")
    await asyncio.to_thread(simulator.set_faults, {})
    assert (done, health, [got.finish for got in await asking]) == (set(), 200, ["stop"] * 3)


@pytest.mark.slow
def test_a_slow_start_is_busy_first(simulator):
    simulator.set_faults({"slow-start": 3600})
    assert status_of(simulator.root + "/health") == 503
    assert asked(simulator.url, body_of(url_of(1)))[0].status == 503
    simulator.set_faults({})
    assert status_of(simulator.root + "/health") == 200
    assert asked(simulator.url, body_of(url_of(1)))[0].finish == "stop"


@pytest.mark.parametrize("faults", [{"die-after-seconds": 2}, {"die-image": image_hash(url_of("killer"))[:16]}])
def test_it_dies_when_it_is_told_to(faults):
    with running(**FAST, fault=faults) as simulator:
        bodies = [body_of(url_of(name), max_tokens=4000) for name in ("a", "b", "killer")]
        asked(simulator.url, *bodies)
        assert simulator.wait(300) == 137


def test_a_dead_engine_answers_500_and_takes_the_server_with_it():
    with running(speed=1, fault={"die-after": 1, "engine-death": 1}) as simulator:
        for got in asked(simulator.url, *(body_of(url_of(number), stream=False) for number in range(2))):
            assert got.status == 500
            assert "EngineCore encountered an issue" in got.error
        assert simulator.wait(300) == 137


def test_deaths_can_be_limited_to_the_first_starts(tmp_path):
    options = {**FAST, "state_file": tmp_path / "state", "fault": {"die-after": 0, "only-starts": 1}}
    with running(**options) as simulator:
        asked(simulator.url, body_of(url_of(1)))
        assert simulator.wait(300) == 137
    with running(**options) as simulator:
        assert asked(simulator.url, body_of(url_of(1)))[0].finish == "stop"
        assert simulator.log()["requests"][0]["asked"] == 1
