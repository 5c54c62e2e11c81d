"""Workers may hang, eat memory, crash or chatter: the caller gets a typed error, and the next request an answer."""

import asyncio
import gc
import os
import subprocess
import sys
from collections import Counter

import pytest

from llm_ocr.errors import PageFailure, WorkerDied, WorkerError
from llm_ocr.sandbox import Limits, WorkerPool
from llm_ocr.types import Reason

#: Worker processes are what is tested here.
OWN_WORKERS = True

MODULE = "tests.fakes.misbehaving_worker"


def pool(workers: int = 1, **limits: int) -> WorkerPool:
    return WorkerPool(MODULE, workers=workers, limits=Limits(**{"memory": 1 << 30, **limits}))


def with_pool(steps, **options):
    async def main():
        async with pool(**options) as workers:
            return await steps(workers)

    return asyncio.run(main())


async def echo(workers, value="x"):
    return await workers.call("echo", {"value": value}, deadline=30)


@pytest.mark.parametrize("value", [b"", b"\x00\xff" * 300_000, ["ä", {"b": b"1"}, None], {"$blob": 0, "x": 1}])
def test_values_and_bytes_arrive_as_they_were_sent(value):
    assert with_pool(lambda workers: echo(workers, value))["got"] == value


@pytest.mark.parametrize(
    ("operation", "payload", "deadline", "sign"),
    [
        ("hang", {"seconds": 60}, 0.3, "timed_out"),
        ("eat", {"bytes": 4 << 30}, 30, "out_of_memory"),
        ("die", {"code": 3}, 30, None),
    ],
)
def test_a_worker_that_dies_is_named_and_replaced(operation, payload, deadline, sign):
    async def steps(workers):
        await echo(workers)  # started: the deadline is for the operation, not for the start
        with pytest.raises(WorkerDied) as death:
            await workers.call(operation, payload, deadline=deadline)
        return death.value, await echo(workers)

    death, after = with_pool(steps)
    assert after["got"] == "x"
    assert [name for name in ("timed_out", "out_of_memory") if getattr(death, name)] == ([sign] if sign else [])


def test_failures_of_a_page_and_unexpected_errors_are_told_apart():
    async def steps(workers):
        with pytest.raises(PageFailure) as failure:
            await workers.call("refuse", {"detail": "broken xref"}, deadline=30)
        with pytest.raises(WorkerError, match="KeyError: 'k'"):
            await workers.call("raise", {"key": "k"}, deadline=30)
        return failure.value

    failure = with_pool(steps)
    assert (failure.reason, failure.detail) == (Reason.UNREADABLE, "broken xref")


def test_what_native_code_prints_does_not_reach_the_answers():
    async def steps(workers):
        await workers.call("print", {}, deadline=30)
        return await echo(workers)

    assert with_pool(steps)["got"] == "x"


def test_workers_see_no_secret(monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s3cret")
    monkeypatch.setenv("HF_TOKEN", "hf_x")
    names = with_pool(lambda workers: workers.call("names", {}, deadline=30))["environment"]
    assert not {"AWS_SECRET_ACCESS_KEY", "HF_TOKEN"} & set(names)


def test_a_request_does_not_wait_for_another_where_there_are_two_workers():
    async def steps(workers):
        busy = asyncio.create_task(workers.call("hang", {"seconds": 60}, deadline=90))
        await asyncio.sleep(0)  # its turn comes first
        answer = await echo(workers)
        still_busy = not busy.done()
        busy.cancel()
        await asyncio.gather(busy, return_exceptions=True)
        return answer["got"], still_busy

    assert with_pool(steps, workers=2) == ("x", True)


def test_each_request_gets_its_own_answer_and_workers_are_recycled():
    async def steps(workers):
        answers = await asyncio.gather(*(echo(workers, number) for number in range(12)))
        return [answer["got"] for answer in answers], Counter(answer["process"] for answer in answers)

    values, processes = with_pool(steps, workers=2, requests=3)
    assert values == list(range(12))
    assert max(processes.values()) == 3


def test_a_cancelled_request_frees_its_place():
    async def steps(workers):
        await echo(workers)  # started: it is the work that is given up
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(workers.call("hang", {"seconds": 60}, deadline=60), 0.5)
        return await echo(workers)

    assert with_pool(steps)["got"] == "x"


def test_requests_that_wait_when_the_pool_closes_end_and_start_no_worker():
    async def main():
        async with pool() as workers:
            await echo(workers)
            busy = workers.call("hang", {"seconds": 60}, deadline=90)
            waiting = [asyncio.create_task(busy), *(asyncio.create_task(echo(workers)) for _ in range(3))]
            await asyncio.sleep(0.05)
        results = await asyncio.gather(*waiting, echo(workers), return_exceptions=True)
        await workers.close()
        return [type(result) for result in results]

    assert asyncio.run(main()) == [WorkerDied] * 5


def test_a_pool_that_closes_while_a_worker_starts_leaves_none_behind():
    async def main():
        async with pool() as workers:
            first = asyncio.create_task(echo(workers))
            await asyncio.sleep(0)
        return await asyncio.gather(first, return_exceptions=True)

    (result,) = asyncio.run(main())
    assert isinstance(result, WorkerDied)
    assert not left_behind()


def test_workers_do_without_what_only_the_pool_needs():
    code = "import sys, llm_ocr.documents.renderer; print(sorted({'asyncio', 'numpy', 'PIL'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_files_of_the_folder_where_the_user_works_are_not_imported(tmp_path, monkeypatch):
    (tmp_path / "json.py").write_text("raise SystemExit('imported')")
    monkeypatch.chdir(tmp_path)
    assert with_pool(echo)["got"] == "x"


def test_a_caller_that_gives_up_while_a_worker_starts_leaves_none_behind():
    """Whenever it gives up: what is half made complains when it is collected, which fails a test here."""

    async def steps(workers):
        for turns in range(12):
            call = asyncio.create_task(echo(workers))
            for _ in range(turns):
                await asyncio.sleep(0)
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)
        return await echo(workers)

    assert with_pool(steps)["got"] == "x"
    gc.collect()
    assert not left_behind()


def left_behind() -> list[str]:
    """Processes of this one that run the module."""
    words = ["ps", "-ww", "--ppid", str(os.getpid()), "-o", "args="]  # whole lines, however wide a terminal is
    shown = subprocess.run(words, capture_output=True, text=True)
    return [line for line in shown.stdout.splitlines() if MODULE in line]
