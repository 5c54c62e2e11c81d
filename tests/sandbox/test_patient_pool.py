"""A pool that waits a while for a busy worker before it starts another, and workers that let others go first."""

import asyncio
import contextlib
import os

import pytest

from llm_ocr.errors import WorkerDied
from llm_ocr.sandbox import Limits, WorkerPool

#: Worker processes are what is tested here.
OWN_WORKERS = True

MODULE = "tests.fakes.misbehaving_worker"
LONG = 60.0


def with_pool(steps, *, patience, workers=3, **limits):
    async def main():
        pool = WorkerPool(MODULE, workers=workers, limits=Limits(memory=1 << 30, **limits), patience=patience)
        async with pool:
            return await asyncio.wait_for(steps(pool), 40)

    return asyncio.run(main())


async def process_of(pool, value="", **options):
    return (await pool.call("echo", {"value": value}, deadline=30, **options))["process"]


def hanging(pool, seconds):
    return asyncio.create_task(pool.call("hang", {"seconds": seconds}, deadline=2 * LONG))


@contextlib.asynccontextmanager
async def busy(pool):
    """Its one worker, whose process is given, works until the end."""
    process = await process_of(pool)
    task = hanging(pool, LONG)
    await asyncio.sleep(0.05)
    yield process
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def test_short_work_is_done_by_one_worker_though_more_may_be_started():
    async def steps(pool):
        return await asyncio.gather(*(process_of(pool) for _ in range(12)))

    assert len(set(with_pool(steps, patience=LONG))) == 1


def test_a_worker_that_is_busy_for_long_gets_help():
    async def steps(pool):
        async with busy(pool) as process:
            return process, await process_of(pool)

    first, helper = with_pool(steps, patience=0.1)
    assert first != helper


def test_the_place_of_a_request_that_was_given_up_goes_to_the_next():
    async def steps(pool):
        first = await process_of(pool)
        work = hanging(pool, 0.5)
        await asyncio.sleep(0.05)
        given_up, waiting = asyncio.create_task(process_of(pool)), asyncio.create_task(process_of(pool))
        await asyncio.sleep(0.05)
        given_up.cancel()
        await work
        assert await waiting == first
        assert await process_of(pool) == first

    with_pool(steps, patience=LONG)


def test_a_request_given_up_at_the_moment_of_its_turn_loses_no_worker():
    async def steps(pool):
        first = await process_of(pool)
        for _ in range(30):
            work, waiting = hanging(pool, 0.01), asyncio.create_task(process_of(pool))
            await work
            waiting.cancel()  # its turn has come, and it has not noticed
            await asyncio.gather(waiting, return_exceptions=True)
        return first, await process_of(pool)

    first, last = with_pool(steps, patience=LONG)
    assert last == first


def test_when_the_only_worker_dies_those_that_wait_get_another():
    async def steps(pool):
        first = await process_of(pool)
        dying = asyncio.create_task(pool.call("die", {"code": 3}, deadline=30))
        after = await asyncio.gather(*(process_of(pool) for _ in range(3)))
        with pytest.raises(WorkerDied):
            await dying
        return first, set(after)

    first, after = with_pool(steps, patience=0.2)
    assert first not in after


def test_a_pool_that_closes_lets_nobody_wait():
    async def main():
        pool = WorkerPool(MODULE, workers=3, limits=Limits(memory=1 << 30), patience=LONG)
        async with pool:
            await process_of(pool)
            waiting = [hanging(pool, LONG), *(asyncio.create_task(process_of(pool)) for _ in range(2))]
            await asyncio.sleep(0.05)
        results = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), LONG / 2)
        return [type(result) for result in results]  # before their patience has ended

    assert asyncio.run(main()) == [WorkerDied] * 3


def test_workers_let_others_go_first_where_that_was_asked_for():
    async def steps(pool):
        return os.getpriority(os.PRIO_PROCESS, await process_of(pool)) - os.getpriority(os.PRIO_PROCESS, 0)

    assert with_pool(steps, patience=0.0, niceness=3) == min(3, 19 - os.getpriority(os.PRIO_PROCESS, 0))
    assert with_pool(steps, patience=0.0) == 0
