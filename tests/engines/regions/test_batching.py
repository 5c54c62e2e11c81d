"""Pages put together for a GPU: as many as wait, in order, each with its own answer."""

import asyncio
from collections.abc import Sequence

import pytest

from llm_ocr.engines.regions.doclayout import Batches


async def test_items_that_wait_during_a_batch_form_the_next_batch():
    sizes: list[int] = []
    turn = asyncio.Event()

    async def run(items: Sequence[int]) -> list[int]:
        sizes.append(len(items))
        await turn.wait()
        return [10 * item for item in items]

    batches = Batches(run, size=4, parallel=1)
    first = asyncio.create_task(batches.submit(0))
    while not sizes:  # noqa: ASYNC110 - the batch is begun by another task
        await asyncio.sleep(0)
    asking = [asyncio.create_task(batches.submit(item)) for item in range(1, 7)]
    await asyncio.sleep(0)
    turn.set()
    assert await asyncio.gather(first, *asking) == [0, 10, 20, 30, 40, 50, 60]
    assert sizes == [1, 4, 2]


async def test_so_many_batches_run_at_the_same_time():
    meet = asyncio.Barrier(3)

    async def run(items: Sequence[int]) -> Sequence[int]:
        await meet.wait()
        return items

    batches = Batches(run, size=1, parallel=3)
    assert await asyncio.gather(*(batches.submit(item) for item in range(6))) == list(range(6))


async def test_batch_error_reaches_all_its_items_and_next_batch_runs():
    async def run(items: Sequence[int]) -> Sequence[int]:
        if 1 in items:
            raise RuntimeError("no")
        return items

    batches = Batches(run, size=2, parallel=1)
    answers = await asyncio.gather(*(batches.submit(item) for item in range(4)), return_exceptions=True)
    assert [type(one) for one in answers] == [RuntimeError, RuntimeError, int, int]


async def test_who_left_is_not_worked_for_and_closing_ends_the_rest():
    seen: list[int] = []
    begun, never = asyncio.Event(), asyncio.Event()

    async def run(items: Sequence[int]) -> Sequence[int]:
        seen.extend(items)
        begun.set()
        await never.wait()
        return items

    batches = Batches(run, size=1, parallel=1)
    first, second = (asyncio.create_task(batches.submit(item)) for item in (1, 2))
    await begun.wait()
    second.cancel()
    await batches.close()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert seen == [1]
