"""kill -9 of ours leaves no server behind."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from running import alive
from supervised import FAKE, end, scattered, wait_for

CLIENT = """
import asyncio, sys
sys.path.insert(0, sys.argv[3])
from pathlib import Path
from supervised import PACE, made_profile
from llm_ocr.engines.vllm.command import ServeOptions
from llm_ocr.engines.vllm.server import VllmServer

async def main():
    args = (*sys.argv[4:], "--fake-record=" + sys.argv[2])
    options = ServeOptions(command=(sys.executable, sys.argv[1]), args=args)
    server = VllmServer(made_profile(), options, pace=PACE)
    await server.start()
    Path(sys.argv[2] + ".ready").touch()
    await asyncio.sleep(600)

asyncio.run(main())
"""


@pytest.fixture
def client(tmp_path):
    """A process of ours with a server; its record once it is ready."""
    started = []

    def start(*args: str, ready: bool = True):
        record = tmp_path / "record.json"
        process = subprocess.Popen([sys.executable, "-c", CLIENT, FAKE, record, FAKE.parent, *args])
        started.append((process, record))
        wait_for(Path(f"{record}.ready").exists if ready else record.exists)
        return process, json.loads(record.read_text())

    yield start
    for process, record in started:
        process.kill()
        process.wait()
        if record.exists():
            told = json.loads(record.read_text())
            wait_for(lambda told=told: not alive(told["pid"]) and not alive(told["engine"]))


def test_kill_of_the_client_while_the_server_loads_ends_it(client):
    process, told = client("--fake-slow=600", ready=False)
    process.send_signal(signal.SIGKILL)
    wait_for(lambda: not alive(told["pid"]) and not alive(told["engine"]))


def test_kill_of_client_and_launcher_at_once_ends_the_server(client):
    if sys.platform != "linux":
        pytest.skip("only Linux tells a process that its parent has died")
    process, told = client()
    launcher = int(Path(f"/proc/{told['pid']}/stat").read_text().rpartition(")")[2].split()[1])
    process.send_signal(signal.SIGKILL)
    os.kill(launcher, signal.SIGKILL)
    wait_for(lambda: not alive(told["pid"]))
    os.kill(told["engine"], signal.SIGKILL)  # a real server takes it along in its own shutdown


@pytest.mark.parametrize("stubborn", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_kill_of_the_client_ends_all_processes_of_the_server(client, tmp_path, stubborn):
    """On Linux, which lists and adopts them, also those in other sessions."""
    path, adopts = tmp_path / "scattered", sys.platform == "linux"
    words = [f"--fake-scatter={path}"] * adopts + ["--fake-stubborn=1"] * stubborn
    process, told = client(*words)
    pids = [told["pid"], told["engine"], *(scattered(path) if adopts else ())]
    try:
        assert len(pids) == 2 + 2 * adopts and all(alive(pid) for pid in pids)
        process.send_signal(signal.SIGKILL)
        wait_for(lambda: not any(alive(pid) for pid in pids))
    finally:
        end(pids)
