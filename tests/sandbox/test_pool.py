"""Workers may hang, exhaust memory, crash, or print: the caller gets a typed error, and the next request an answer."""

import asyncio
import contextlib
import gc
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from running import alive

from llm_ocr.errors import PageFailure, WorkerDied, WorkerError
from llm_ocr.sandbox.pool import Limits, WorkerPool
from llm_ocr.types import Reason

#: Worker processes are what is tested here.
OWN_WORKERS = True


MODULE = "tests.fakes.misbehaving_worker"


def pool_of(workers: int = 1, start_delay: float = 0.0, **limits: int) -> WorkerPool:
    limits = {"memory": 1 << 30, **limits}
    return WorkerPool(MODULE, workers=workers, limits=Limits(**limits), start_delay=start_delay)


def with_pool(steps, **options):
    async def main():
        async with pool_of(**options) as workers:
            return await asyncio.wait_for(steps(workers), 60)

    return asyncio.run(main())


async def echo(workers, value="x"):
    return await workers.call("echo", {"value": value}, deadline=30)


async def test_values_and_bytes_arrive_as_they_were_sent():
    async with pool_of() as workers:
        for value in (b"", b"\x00\xff" * 300_000, ["ä", {"b": b"1"}, None], {"$blob": 0, "x": 1}):
            assert (await echo(workers, value))["got"] == value


async def test_a_worker_that_dies_is_named_and_replaced():
    async with pool_of() as workers:
        for operation, payload, deadline, signs in (
            ("hang", {"seconds": 60}, 0.3, (True, False)),
            ("eat", {"bytes": 4 << 30}, 30, (False, True)),
            ("die", {"code": 3}, 30, (False, False)),
        ):
            assert (await echo(workers))["got"] == "x"  # started: the deadline is for the operation alone
            with pytest.raises(WorkerDied) as death:
                await workers.call(operation, payload, deadline=deadline)
            assert (death.value.timed_out, death.value.out_of_memory) == signs
        assert (await echo(workers))["got"] == "x"


async def test_page_failures_and_other_errors_have_own_types():
    async with pool_of() as workers:
        with pytest.raises(PageFailure) as failure:
            await workers.call("refuse", {"detail": "broken xref"}, deadline=30)
        with pytest.raises(WorkerError, match="KeyError: 'k'"):
            await workers.call("raise", {"key": "k"}, deadline=30)
    assert (failure.value.reason, failure.value.detail) == (Reason.UNREADABLE, "broken xref")


async def test_native_output_does_not_reach_the_answers():
    async with pool_of() as workers:
        await workers.call("print", {}, deadline=30)
        assert (await echo(workers))["got"] == "x"


def test_workers_see_no_secret(monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s3cret")
    monkeypatch.setenv("HF_TOKEN", "hf_x")
    names = with_pool(lambda workers: workers.call("names", {}, deadline=30))["environment"]
    assert not {"AWS_SECRET_ACCESS_KEY", "HF_TOKEN"} & set(names)


async def test_request_does_not_wait_for_another_with_two_workers():
    async with pool_of(workers=2) as workers:
        busy = asyncio.create_task(workers.call("hang", {"seconds": 60}, deadline=90))
        await asyncio.sleep(0)  # its turn comes first
        answer = await echo(workers)
        still_busy = not busy.done()
        busy.cancel()
        await asyncio.gather(busy, return_exceptions=True)
        assert (answer["got"], still_busy) == ("x", True)


@pytest.mark.slow
async def test_each_request_gets_its_answer_and_workers_are_recycled():
    async with pool_of(workers=2, requests=3) as workers:
        answers = await asyncio.gather(*(echo(workers, number) for number in range(12)))
        values, processes = [answer["got"] for answer in answers], Counter(answer["process"] for answer in answers)
    assert values == list(range(12))
    assert max(processes.values()) == 3


async def test_a_cancelled_request_frees_its_place():
    async with pool_of() as workers:
        await echo(workers)  # started: it is the work that is given up
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(workers.call("hang", {"seconds": 60}, deadline=60), 0.5)
        assert (await echo(workers))["got"] == "x"


@pytest.mark.parametrize("options", [{}, {"workers": 3, "start_delay": 60.0}])
def test_waiting_requests_end_without_a_worker_when_pool_closes(options):
    async def main():
        async with pool_of(**options) as workers:
            await echo(workers)
            busy = workers.call("hang", {"seconds": 60}, deadline=90)
            waiting = [asyncio.create_task(busy), *(asyncio.create_task(echo(workers)) for _ in range(3))]
            await asyncio.sleep(0.05)
        async with asyncio.timeout(30):  # before the delay has ended
            results = await asyncio.gather(*waiting, echo(workers), return_exceptions=True)
        await workers.close()
        return [type(result) for result in results]

    assert asyncio.run(main()) == [WorkerDied] * 5


def test_pool_closed_while_a_worker_starts_leaves_no_worker():
    async def main():
        async with pool_of() as workers:
            first = asyncio.create_task(echo(workers))
            await asyncio.sleep(0)
        return await asyncio.gather(first, return_exceptions=True)

    (result,) = asyncio.run(main())
    assert isinstance(result, WorkerDied)
    assert not left_behind()


def test_workers_do_not_import_modules_of_the_pool():
    code = "import sys, llm_ocr.documents.renderer; print(sorted({'asyncio', 'numpy', 'PIL'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_files_of_the_working_folder_are_not_imported(tmp_path, monkeypatch):
    (tmp_path / "json.py").write_text("raise SystemExit('imported')")
    monkeypatch.chdir(tmp_path)
    assert with_pool(echo)["got"] == "x"


async def test_call_canceled_while_a_worker_starts_leaves_no_worker():
    """Whenever it gives up: what is half made complains when it is collected, which fails a test here."""

    async with pool_of() as workers:
        for turns in range(12):
            call = asyncio.create_task(echo(workers))
            for _ in range(turns):
                await asyncio.sleep(0)
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)
        assert (await echo(workers))["got"] == "x"
    gc.collect()
    assert not left_behind()


def left_behind() -> list[str]:
    """Processes of this one that run the module."""
    words = ["ps", "-ww", "--ppid", str(os.getpid()), "-o", "args="]  # whole lines, however wide a terminal is
    shown = subprocess.run(words, capture_output=True, text=True)
    return [line for line in shown.stdout.splitlines() if MODULE in line]


LONG = 60.0  # seconds


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


async def test_short_work_starts_a_single_worker():
    async with pool_of(workers=3, start_delay=LONG) as pool:
        processes = await asyncio.gather(*(process_of(pool) for _ in range(12)))
    assert len(set(processes)) == 1


async def test_a_worker_that_is_busy_for_long_gets_help():
    async with pool_of(workers=3, start_delay=0.1) as pool, busy(pool) as first:
        helper = await process_of(pool)
    assert first != helper


async def test_place_of_a_canceled_request_goes_to_the_next():
    async with pool_of(workers=3, start_delay=LONG) as pool:
        first = await process_of(pool)
        work = hanging(pool, 0.5)
        await asyncio.sleep(0.05)
        given_up, waiting = asyncio.create_task(process_of(pool)), asyncio.create_task(process_of(pool))
        await asyncio.sleep(0.05)
        given_up.cancel()
        await work
        assert await waiting == first
        assert await process_of(pool) == first


async def test_request_canceled_while_it_waits_loses_no_worker():
    async with pool_of(workers=3, start_delay=LONG) as pool:
        first = await process_of(pool)
        for _ in range(30):
            work, waiting = hanging(pool, 0.01), asyncio.create_task(process_of(pool))
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.gather(work, waiting, return_exceptions=True)
        last = await process_of(pool)
    assert last == first


async def test_when_the_only_worker_dies_those_that_wait_get_another():
    async with pool_of(workers=3, start_delay=0.2) as pool:
        first = await process_of(pool)
        dying = asyncio.create_task(pool.call("die", {"code": 3}, deadline=30))
        after = await asyncio.gather(*(process_of(pool) for _ in range(3)))
        with pytest.raises(WorkerDied):
            await dying
    assert first not in after


def test_workers_let_others_go_first_where_that_was_asked_for():
    async def steps(pool):
        return os.getpriority(os.PRIO_PROCESS, await process_of(pool)) - os.getpriority(os.PRIO_PROCESS, 0)

    assert with_pool(steps, niceness=3) == min(3, 19 - os.getpriority(os.PRIO_PROCESS, 0))
    assert with_pool(steps) == 0


LARGE = 96 << 20


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

    assert with_pool(steps)


async def test_sequential_requests_use_the_same_worker():
    async with pool_of(workers=2) as pool:
        await both_awake(pool)
        assert len({await process_of(pool) for _ in range(6)}) == 1


async def test_worker_keeps_its_document_despite_other_work_between():
    async with pool_of(workers=2) as pool:
        await both_awake(pool)
        first = await process_of(pool, affinity="a.pdf")
        crop = await process_of(pool)  # the document is still open there
        again = await process_of(pool, affinity="a.pdf")
        other = await process_of(pool, affinity="b.pdf")
    assert first == crop == again != other


#: A pool of two workers: one works for ten minutes, the other waits for work.
CLIENT = """
import asyncio, json
from llm_ocr.sandbox.pool import Limits, WorkerPool

async def main():
    async with WorkerPool("tests.fakes.misbehaving_worker", workers=2, limits=Limits(memory=1 << 30)) as pool:
        first = await pool.call("echo", {"value": ""}, deadline=60)
        busy = asyncio.create_task(pool.call("hang", {"seconds": 600}, deadline=900))
        await asyncio.sleep(0)
        second = await pool.call("echo", {"value": ""}, deadline=60)
        print(json.dumps([first["process"], second["process"]]), flush=True)
        await busy

asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a process that works when its parent has died")
def test_killed_program_leaves_no_worker():
    client = subprocess.Popen([sys.executable, "-c", CLIENT], stdout=subprocess.PIPE, text=True)
    workers: list[int] = []
    try:
        assert client.stdout is not None
        workers = json.loads(client.stdout.readline())
        assert len(set(workers)) == 2 and all(map(alive, workers))
        client.send_signal(signal.SIGKILL)
        deadline = time.monotonic() + 30
        while any(map(alive, workers)):
            assert time.monotonic() < deadline, "a worker has outlived the program"
            time.sleep(0.02)
    finally:
        client.kill()
        client.communicate()
        for worker in filter(alive, workers):
            os.kill(worker, signal.SIGKILL)


def test_a_worker_that_may_write_fills_no_disk(tmp_path):
    limits = Limits(memory=1 << 30, file_size=1 << 20, confined=False)

    async def written(size: int) -> str:
        attack = {"how": "fill", "target": json.dumps([str(tmp_path / "file"), size])}
        async with WorkerPool(MODULE, workers=1, limits=limits) as pool:
            return (await pool.call("attack", attack, deadline=30))["refused"]

    assert asyncio.run(written(1 << 20)) == ""
    assert asyncio.run(written((1 << 20) + 1)) == "OSError"
    assert (tmp_path / "file").stat().st_size <= 1 << 20
