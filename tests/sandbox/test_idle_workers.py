"""Workers without work hold little memory, and few of them are kept awake."""

import asyncio
import resource
import sys
from pathlib import Path

import pytest

from llm_ocr.sandbox import Limits, WorkerPool

#: Worker processes are what is tested here.
OWN_WORKERS = True

MODULE = "tests.fakes.misbehaving_worker"
LARGE = 96 << 20


def with_pool(steps, workers):
    async def main():
        async with WorkerPool(MODULE, workers=workers, limits=Limits(memory=1 << 30)) as pool:
            return await steps(pool)

    return asyncio.run(main())


async def process_of(pool, value="", **options):
    return (await pool.call("echo", {"value": value}, deadline=30, **options))["process"]


async def both_awake(pool):
    await asyncio.gather(*(pool.call("hang", {"seconds": 0.2}, deadline=30) for _ in range(2)))


def resident(process: int) -> int:
    """Bytes."""
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * resource.getpagesize()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_worker_without_work_holds_nothing_of_its_last_request():
    async def steps(pool):
        process = await process_of(pool, b"\x01" * LARGE)
        for _ in range(600):
            if resident(process) < LARGE:
                return True
            await asyncio.sleep(0.05)
        return False

    assert with_pool(steps, workers=1)


def test_one_request_after_the_other_goes_to_the_same_worker():
    async def steps(pool):
        await both_awake(pool)
        return {await process_of(pool) for _ in range(6)}

    assert len(with_pool(steps, workers=2)) == 1


def test_a_worker_stays_with_its_document_when_it_does_something_else_between():
    async def steps(pool):
        await both_awake(pool)
        first = await process_of(pool, affinity="a.pdf")
        crop = await process_of(pool)  # the document is still open there
        again = await process_of(pool, affinity="a.pdf")
        return first, crop, again, await process_of(pool, affinity="b.pdf")

    first, crop, again, other = with_pool(steps, workers=2)
    assert first == crop == again != other
