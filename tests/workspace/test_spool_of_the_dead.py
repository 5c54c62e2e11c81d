"""What killed workers had on the disk goes, what living ones have stays."""

import asyncio
import os
import signal
import subprocess
import sys

from llm_ocr.stages.flow import RowFiles, Spool
from llm_ocr.workspace import Workspace
from tests.fakes.memory_store import MemoryStore

PROGRAM = """
import asyncio, sys
from llm_ocr.stages.flow import RowFiles, Spool
from tests.fakes.memory_store import MemoryStore
from llm_ocr.workspace import Workspace

workspace = Workspace.on(MemoryStore(), create=True)
(workspace.spool / "half an upload").write_bytes(b"x" * 1000)
files = RowFiles(split=lambda row: (b"", row), join=lambda light, heavy: heavy, size=len)
spool = Spool(files)
asyncio.run(spool.keep(b"a row"))
print("ready", flush=True)
sys.stdin.read()
"""


def test_what_a_killed_worker_had_on_the_disk_is_removed_by_the_next_and_a_living_ones_stays(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    dead, living = (
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        )
        for _ in range(2)
    )
    assert [process.stdout.readline() for process in (dead, living)] == [b"ready\n"] * 2
    dead.send_signal(signal.SIGKILL)
    dead.communicate()
    assert kinds(tmp_path) == ["spool", "spool", "workspace", "workspace"]
    with Workspace.on(MemoryStore(), create=True) as workspace:
        assert workspace.spool.exists()
        assert kinds(tmp_path) == ["spool", "spool", "workspace", "workspace"]  # one's own, in the dead one's place
        spool_a_row()
        assert kinds(tmp_path) == ["spool", "workspace", "workspace"]
    living.communicate()
    assert kinds(tmp_path) == []


def kinds(folder):
    return sorted(path.name.split("-")[2] for path in folder.iterdir())


def spool_a_row():
    spool = Spool(RowFiles(split=lambda row: (b"", row), join=lambda light, heavy: heavy, size=len))
    asyncio.run(spool.keep(b"a row"))
    spool.close()
