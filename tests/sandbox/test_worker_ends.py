"""What a worker may not outlive, and how much it may leave on the disk."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from llm_ocr.sandbox import Limits, WorkerPool

#: Worker processes are what is tested here.
OWN_WORKERS = True

MODULE = "tests.fakes.misbehaving_worker"
#: A pool of two workers: one works for ten minutes, the other waits for work.
CLIENT = """
import asyncio, json
from llm_ocr.sandbox import Limits, WorkerPool

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


def alive(process: int) -> bool:
    """Whether it runs; a zombie does not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a process that works when its parent has died")
def test_kill_of_the_program_ends_its_workers_the_busy_one_too():
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
