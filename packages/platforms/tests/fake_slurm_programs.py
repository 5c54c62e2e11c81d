"""A Slurm of this machine: sbatch, squeue, sacct, scancel and sinfo as programs on PATH; tasks run as containers.

The programs send their arguments to a controller in the test's process over a Unix socket, and print what it answers.
"""

import contextlib
import json
import re
import shlex
import socketserver
import stat
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.fakes.container import Container

# A shell finds Python: the first line of a script must not contain spaces, nor have more than 127 bytes.
_PROGRAM = """#!/bin/sh
''':'
exec {python} -S "$0" "$@"
'''
import json, os, socket, sys
asked = {{"program": {name!r}, "arguments": sys.argv[1:], "cwd": os.getcwd(), "environment": dict(os.environ),
         "stdin": sys.stdin.read() if {name!r} == "sbatch" else ""}}
with socket.socket(socket.AF_UNIX) as end:
    end.connect({socket!r})
    file = end.makefile("rw")
    file.write(json.dumps(asked) + "\\n"); file.flush()
    code, out, error = json.loads(file.readline())
sys.stdout.write(out); sys.stderr.write(error); sys.exit(code)
"""
_ENDED = {"TIMEOUT", "PREEMPTED", "NODE_FAIL", "OUT_OF_MEMORY", "CANCELLED"}


@dataclass
class Task:
    """One of an array."""

    id: str
    name: str
    limit: int  # minutes
    container: Container | None
    state: str = ""  # set from outside; else the container's
    log: Path | None = None
    memory: str = ""  # as it was asked for: `mem=32G`
    begun: float = field(default_factory=time.time)

    def shown(self) -> tuple[str, str]:
        """State and exit code."""
        code = self.container.exit_code if self.container else None
        if self.state:
            return self.state, "0:15" if self.state in _ENDED else "0:0"
        if self.container is None:
            return "PENDING", "0:0"
        return ("RUNNING", "0:0") if code is None else ("COMPLETED" if code == 0 else "FAILED", f"{code}:0")


class FakeSlurm:
    """What the programs talk to."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tasks: dict[str, Task] = {}
        self.submitted: list[dict] = []  # what sbatch was called with
        self.refusal = ""  # what sbatch says instead of submitting
        self.accounts = True  # whether sacct keeps any
        self.forgets = False  # whether squeue has purged what is over
        self.hold = False  # tasks wait
        self._next = 100
        self._lock = threading.Lock()

    def answer(self, asked: dict) -> tuple[int, str, str]:
        with self._lock:
            flags = dict(one.lstrip("-").partition("=")[::2] for one in asked["arguments"])
            return getattr(self, f"_{asked['program']}")(flags, asked)

    def end(self, task: str, state: str) -> None:
        """Slurm ends it for a reason of its own."""
        self.tasks[task].state = state
        if self.tasks[task].container:
            self.tasks[task].container.stop()

    def remove(self) -> None:
        for task in self.tasks.values():
            if task.container:
                task.container.remove()

    def _sbatch(self, flags: dict, asked: dict) -> tuple[int, str, str]:
        if self.refusal:
            return 1, "", f"sbatch: error: {self.refusal}\n"
        said = dict(re.findall(r"^#SBATCH --([\w-]+)=?(.*)$", asked["stdin"], re.MULTILINE))
        memory = [name for name in ("mem", "mem-per-cpu", "mem-per-gpu") if name in said]
        if len(memory) > 1:  # as sbatch(1) says
            return 1, "", "sbatch: fatal: --mem, --mem-per-cpu, and --mem-per-gpu are mutually exclusive.\n"
        if "test-only" in flags:
            return 0, "", "sbatch: Job 99 to start at 2026-01-01T00:00:00\n"
        self.submitted.append(asked)
        first, last = map(int, said["array"].split("-"))
        number, self._next = self._next, self._next + 1
        exported = {
            name: asked["environment"][name] for name in flags["export"].split(",") if name in asked["environment"]
        }
        for index in range(first, last + 1):
            numbers = {"ID": index, "MIN": first, "MAX": last, "COUNT": last - first + 1, "STEP": 1}
            variables = {f"SLURM_ARRAY_TASK_{name}": str(value) for name, value in numbers.items()}
            log = Path(asked["cwd"], said["output"].replace("%a", str(index)))
            container = None
            if not self.hold:
                script = self.folder / f"{number}_{index}.sh"
                script.write_text(f"exec >>{shlex.quote(str(log))} 2>&1\n{asked['stdin']}")
                container = Container(["bash", str(script)], {**exported, **variables})
            task = f"{number}_{index}"
            asked_for = ", ".join(f"{name}={said[name]}" for name in memory)
            self.tasks[task] = Task(task, said["job-name"], int(said["time"]), container, log=log, memory=asked_for)
        return 0, f"{number}\n", ""

    def _squeue(self, flags: dict, asked: dict) -> tuple[int, str, str]:
        rows = []
        for task in self._of(flags):
            state, _ = task.shown()
            if not (self.forgets and state not in ("PENDING", "RUNNING")):
                rows.append(f"{task.id}|{state}|{'Resources' if state == 'PENDING' else 'None'}")
        return 0, "".join(f"{row}\n" for row in rows), ""

    def _sacct(self, flags: dict, asked: dict) -> tuple[int, str, str]:
        if not self.accounts:
            return 1, "", "Slurm accounting storage is disabled\n"
        rows = []
        for task in self._of(flags):
            state, code = task.shown()
            if state == "PENDING":
                number, _, index = task.id.partition("_")
                rows.append(f"{number}_[{index}]|PENDING|0:0|Unknown|Unknown|0|{task.limit}")
                continue
            end = task.container.ended if task.container else time.time()
            times = [
                time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(one)) if one else "Unknown"
                for one in (task.begun, end)
            ]
            seconds = int((end or time.time()) - task.begun)
            state = "CANCELLED by 1000" if state == "CANCELLED" else state
            rows.append("|".join((task.id, state, code, *times, str(seconds), str(task.limit))))
        return 0, "".join(f"{row}\n" for row in rows), ""

    def _scancel(self, flags: dict, asked: dict) -> tuple[int, str, str]:
        self.end(asked["arguments"][-1], "CANCELLED")
        return 0, "", ""

    def _sinfo(self, flags: dict, asked: dict) -> tuple[int, str, str]:
        return 0, "gpu   gpu:a100:8\ncpu   (null)\n", ""

    def _of(self, flags: dict) -> list[Task]:
        return [task for task in self.tasks.values() if task.name in flags["name"].split(",")]


class _Handler(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        answer = self.server.slurm.answer(json.loads(self.rfile.readline()))
        self.wfile.write(json.dumps(answer).encode() + b"\n")


@contextlib.contextmanager
def running_slurm() -> Iterator[tuple[FakeSlurm, Path]]:
    """The controller, and the folder of its programs."""
    with tempfile.TemporaryDirectory(prefix="slurm-") as name:  # short: the path of a Unix socket must be
        folder = Path(name)
        slurm = FakeSlurm(folder)
        with socketserver.ThreadingUnixStreamServer(str(folder / "socket"), _Handler) as server:
            server.slurm = slurm
            server.daemon_threads = True
            threading.Thread(target=server.serve_forever, daemon=True).start()
            programs = folder / "bin"
            programs.mkdir()
            for name in ("sbatch", "squeue", "sacct", "scancel", "sinfo"):
                path = programs / name
                path.write_text(
                    _PROGRAM.format(python=shlex.quote(sys.executable), name=name, socket=str(folder / "socket"))
                )
                path.chmod(path.stat().st_mode | stat.S_IXUSR)
            python = programs / "python"
            python.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
            python.chmod(python.stat().st_mode | stat.S_IXUSR)
            try:
                yield slurm, programs
            finally:
                slurm.remove()
                server.shutdown()
