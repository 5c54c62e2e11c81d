"""The processes of a machine, from Linux's /proc."""

import time
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Process:
    """One process. `started` in ticks since boot tells it from a later one with the same number."""

    pid: int
    name: str
    parent: int
    started: int

    @property
    def alive(self) -> bool:
        now = _read(Path("/proc", str(self.pid)))
        return now is not None and now.started == self.started


def is_alive(pid: int) -> bool:
    """Whether there is such a process; one that only waits to be taken off the list is none."""
    return _read(Path("/proc", str(pid))) is not None


def descendants(pid: int) -> list[Process]:
    """The living processes below one, without it."""
    everyone = [found for folder in Path("/proc").glob("[0-9]*") if (found := _read(folder)) is not None]
    below, level = [], {pid}
    while level:
        level_now = [process for process in everyone if process.parent in level]
        below += level_now
        level = {process.pid for process in level_now}
    return below


def still_alive(processes: list[Process], timeout: float) -> list[Process]:
    """Those that have not ended after `timeout` seconds; returns as soon as all have."""
    deadline = time.monotonic() + timeout
    while (left := [process for process in processes if process.alive]) and time.monotonic() < deadline:
        time.sleep(0.1)
    return left


def _read(folder: Path) -> Process | None:
    try:
        head, _, tail = (folder / "stat").read_text(errors="replace").rpartition(")")
    except OSError:
        return None
    fields = tail.split()
    if fields[0] in "ZX":
        return None
    return Process(int(folder.name), head.partition("(")[2], int(fields[1]), int(fields[19]))
