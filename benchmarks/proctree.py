"""What a command costs: wall time, CPU time and peak memory of its whole process tree (Linux, from /proc)."""

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

RSS_EVERY = 0.05  # seconds between samples of the resident sizes
TREE_EVERY = 0.25  # seconds between looks for new processes, and between samples of their CPU times
PSS_EVERY = 0.25  # at least; the kernel walks the page tables for a PSS, so it is also held to this share of the time:
PSS_SHARE = 0.02

_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICK = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Usage:
    """Times in seconds, memory in bytes."""

    wall: float
    cpu: float
    rss: int  # highest sum of resident sizes: pages that processes share count in each
    pss: int  # highest sum of proportional sizes: shared pages count once, over those who share them
    processes: int  # most processes at one time
    elsewhere: float  # cores that the rest of the machine used meanwhile, on average
    code: int  # exit code, negative: the signal
    timed_out: bool
    tail: str  # the last lines that the command printed
    began: float = 0.0  # on the system's monotonic clock
    series: tuple[tuple[float, int], ...] = ()  # seconds since the start, and the sum of proportional sizes then


def measure(
    command: Sequence[str],
    *,
    folder: Path,
    environment: Mapping[str, str],
    timeout: float,
    log: Path,
    started: Callable[[int], None] | None = None,
) -> Usage:
    """Run the command in a session of its own until it ends; past `timeout` seconds its tree is killed.

    `started` is told its process as soon as there is one.
    """
    busy, own, began = _machine_cpu(), time.process_time(), time.monotonic()
    with log.open("wb") as out:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    if started is not None:
        started(process.pid)
    sampler = _Sampler(process.pid, timeout)
    sampler.start()
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.monotonic() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    sampler.stop()
    # Each is a lower bound: the kernel's figure lacks processes that nobody waited for, the samples the last moments.
    cpu = max(usage.ru_utime + usage.ru_stime, sampler.cpu)
    return Usage(
        wall=wall,
        cpu=cpu,
        rss=sampler.rss,
        pss=sampler.pss,
        processes=sampler.processes,
        elsewhere=max(0.0, (_machine_cpu() - busy - cpu - (time.process_time() - own)) / wall),
        code=process.returncode,
        timed_out=sampler.timed_out,
        tail=log.read_text(errors="replace")[-1000:].strip(),
        began=began,
        series=tuple(sampler.series),
    )


class _Sampler(threading.Thread):
    """Follows a process and its descendants until it is stopped."""

    def __init__(self, root: int, timeout: float) -> None:
        super().__init__(daemon=True)
        self.rss = self.pss = self.processes = 0
        self.series: list[tuple[float, int]] = []
        self._began = time.monotonic()
        self.timed_out = False
        self._root = root
        self._deadline = time.monotonic() + timeout
        self._over = threading.Event()
        self._tree = {root}
        self._cpu: dict[int, float] = {}

    @property
    def cpu(self) -> float:
        return sum(self._cpu.values())

    def run(self) -> None:
        next_tree = next_pss = 0.0
        while not self._over.is_set():
            now = time.monotonic()
            if now >= next_tree:
                self._look()
                next_tree = now + TREE_EVERY
            self.rss = max(self.rss, sum(map(_rss, self._tree)))
            if now >= next_pss:
                pss = sum(map(_pss, self._tree))
                self.pss = max(self.pss, pss)
                self.series.append((now - self._began, pss))
                next_pss = now + max(PSS_EVERY, (time.monotonic() - now) / PSS_SHARE)
            if now > self._deadline and not self.timed_out:
                self._kill()
            self._over.wait(max(0.001, RSS_EVERY - (time.monotonic() - now)))

    def stop(self) -> None:
        self._over.set()
        self.join()

    def _look(self) -> None:
        parents: dict[int, int] = {}
        for pid, parent, cpu in _processes():
            parents[pid] = parent
            if pid in self._tree:
                self._cpu[pid] = cpu
        alive = {pid for pid in self._tree if pid in parents}
        grown = True
        while grown:
            more = {pid for pid, parent in parents.items() if parent in alive and pid not in alive}
            alive |= more
            grown = bool(more)
        self._tree = alive or {self._root}
        self.processes = max(self.processes, len(alive))

    def _kill(self) -> None:
        self.timed_out = True
        self._look()
        for pid in self._tree:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _processes() -> Iterator[tuple[int, int, float]]:
    """Number, parent and CPU seconds of every process."""
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                # The name in brackets may hold spaces and brackets itself.
                fields = Path(entry.path, "stat").read_text().rpartition(")")[2].split()
                yield int(entry.name), int(fields[1]), (int(fields[11]) + int(fields[12])) / _TICK


def _rss(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
    except OSError:
        return 0


def _pss(pid: int) -> int:
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except OSError:
        return 0
    return 0


def _machine_cpu() -> float:
    """CPU seconds used by everything on this machine since it started."""
    fields = [int(value) for value in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    user, nice, system, _idle, _iowait, irq, softirq, _steal = fields
    return (user + nice + system + irq + softirq) / _TICK


def machine() -> dict[str, object]:
    """What the figures were taken on."""
    model = next((line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if "model name" in line), "")
    memory = next((int(line.split()[1]) for line in _lines("/proc/meminfo") if line.startswith("MemTotal")), 0)
    return {
        "cores": len(os.sched_getaffinity(0)),
        "cpu": model,
        "memory_gib": round(memory / 2**20, 1),
        "kernel": f"{os.uname().sysname} {os.uname().release}",
        "load_average_at_start": round(os.getloadavg()[0], 2),
    }


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines()
