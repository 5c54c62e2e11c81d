"""A fleet over the simulator: answers are those of a run without faults, whatever the servers do."""

import asyncio
from dataclasses import replace

import pytest
from fleet_asking import until
from simulated_server import Simulated, page

from llm_ocr.engines import Completion
from llm_ocr.engines.pool.pool import PoolOptions, ServerPool
from llm_ocr.errors import PageFailure, RequestLost

QUICK = PoolOptions(grace=0.2, interval=0.1, stall=3.0)
FAST = {"preset": "a100", "speed": 200, "preprocess_seconds": 0.0, "mean_tokens": 300, "max_num_seqs": 16}
PAGES = [f"page-{number:03}" for number in range(200)]


async def read(fleet: ServerPool, name: str) -> Completion | PageFailure:
    """As a reader does: a lost answer is asked for again, up to eight times."""
    for _ in range(8):
        try:
            return await fleet.complete(page(name))
        except RequestLost:
            await asyncio.sleep(0.05)
        except PageFailure as failure:
            return failure
    raise AssertionError(f"{name} was lost eight times")


async def read_all(
    servers: list[Simulated], options: PoolOptions = QUICK
) -> tuple[dict[str, Completion | PageFailure], ServerPool]:
    fleet = ServerPool("model", servers, options)
    try:
        async with asyncio.timeout(120):
            found = await asyncio.gather(*(read(fleet, name) for name in PAGES))
    finally:
        await fleet.close()
    return dict(zip(PAGES, found, strict=True)), fleet


@pytest.fixture(scope="module")
def expected() -> dict[str, str]:
    found, fleet = asyncio.run(read_all([Simulated(**FAST)]))
    assert fleet.load().answers == len(PAGES)
    assert len(set(texts(found).values())) == len(PAGES)  # else a mix-up would not be seen
    return texts(found)


def texts(found: dict[str, Completion | PageFailure]) -> dict[str, str]:
    return {name: one.text for name, one in found.items() if isinstance(one, Completion)}


@pytest.mark.slow
@pytest.mark.parametrize(
    "fault",
    [
        {
            "429": 0.04,
            "503": 0.04,
            "500": 0.04,
            "reset": 0.04,
            "reset-within": 0.04,
            "truncated": 0.04,
            "retry-after": 0.2,
        },
        {
            "429": 0.03,
            "500": 0.03,
            "reset": 0.03,
            "truncated": 0.03,
            "retry-after": 0.1,
            "die-after": 60,
            "only-starts": 1,
        },
        {"die-after": 80, "only-starts": 2},
        {"hang-after": 80, "only-starts": 1},
        {"hang": 0.02},
        {"engine-death": 1, "die-after": 50, "only-starts": 1},
        {"max-inflight": 10, "retry-after": 0.1},
    ],
    ids=lambda fault: " ".join(f"{kind}={value}" for kind, value in fault.items()),
)
def test_every_page_has_the_answer_of_a_run_without_faults(fault: dict[str, float], expected: dict[str, str]) -> None:
    found, fleet = asyncio.run(read_all([Simulated(fault=fault, **FAST)]))
    assert texts(found) == expected
    load = fleet.load()
    assert load.answers == len(PAGES)
    assert load.restarts <= 2


@pytest.mark.slow
def test_page_that_kills_each_server_is_the_only_one_unanswered(expected: dict[str, str]) -> None:
    servers = [Simulated(f"simulator {number}", fault={"die-prompt": "page-057"}, **FAST) for number in range(2)]
    found, fleet = asyncio.run(read_all(servers))
    assert isinstance(found.pop("page-057"), PageFailure)
    assert texts(found) == {name: text for name, text in expected.items() if name != "page-057"}
    assert fleet.load().restarts in (3, 4)  # the last one may still be coming when all is answered


@pytest.mark.slow
def test_a_server_without_gauges_that_is_killed_loses_nothing(expected: dict[str, str]) -> None:
    server = Simulated(no_metrics=True, **{**FAST, "speed": 20})

    async def killed() -> tuple[dict[str, Completion | PageFailure], ServerPool]:
        fleet = ServerPool("model", [server], replace(QUICK, max_inflight=40))
        try:
            async with asyncio.timeout(120):
                reading = asyncio.gather(*(read(fleet, name) for name in PAGES))
                await until(lambda: fleet.load().answers >= 20)
                assert server.now is not None
                server.now.kill()
                return dict(zip(PAGES, await reading, strict=True)), fleet
        finally:
            await fleet.close()

    found, fleet = asyncio.run(killed())
    assert texts(found) == expected
    assert fleet.load().restarts == 1
