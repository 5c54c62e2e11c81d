"""The workers of the soak: real commands that are killed, told to stop, put to sleep, and started again."""

import contextlib
import os
import random
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# Memory, descriptors and threads of processes over their lives, from /proc, and the lines through them (Linux).


MIB = 1 << 20
#: A life is judged from this share of it on, and after so many seconds: before, caches fill, the window opens, and
#: followers wait for their first unit.
_LATER, _WARM = 0.4, 240.0
#: Rises over the later part of a life that are called flat: descriptors and threads follow requests and uploads.
#: Connections follow the window of requests: of them the floor is judged, which what leaks would lift.
FLAT_BYTES, FLAT_SHARE = 16 * MIB, 0.10
FLAT_DESCRIPTORS, FLAT_CONNECTIONS, FLAT_THREADS = 12, 64, 6
_FEWEST = 8  # samples in the later part
#: Seconds; a shorter life is all beginning, and only told.
_JUDGED_FROM = 420.0


@dataclass(frozen=True, slots=True)
class Sample:
    """At one moment, in seconds. `pss`: the process itself; `tree`: with its descendants; bytes.

    `anonymous` is what it has of its own. Its PSS rises when others end that shared the libraries' pages.
    """

    at: float
    pss: int
    anonymous: int
    tree: int
    descriptors: int  # without connections
    connections: int
    threads: int
    processes: int


@dataclass(slots=True)
class Track:
    """The samples of one process's life."""

    pid: int
    samples: list[Sample] = field(default_factory=list)

    def look(self, now: float, tree: Sequence[int]) -> None:
        """`tree`: the process's descendants, itself left out."""
        own = pss(self.pid)
        if own:
            whole, ours = own + sum(map(pss, tree)), rollup(self.pid, "Anonymous")
            files = descriptors(self.pid)
            self.samples.append(Sample(now, own, ours, whole, *files, threads(self.pid), 1 + len(tree)))

    def summary(self) -> dict[str, float]:
        """Highest values, and the rise of the fitted line over the later part of the life."""
        if not self.samples:
            return {"seconds": 0.0, "samples": 0}
        begin, end = self.samples[0].at, self.samples[-1].at
        since = begin + max(_LATER * (end - begin), min(_WARM, end - begin))
        later = [one for one in self.samples if one.at >= since]
        told: dict[str, float] = {
            "seconds": round(end - begin, 1),
            "samples": len(self.samples),
            "pss_max_mib": round(max(one.pss for one in self.samples) / MIB, 1),
            "tree_max_mib": round(max(one.tree for one in self.samples) / MIB, 1),
            "anonymous_max_mib": round(max(one.anonymous for one in self.samples) / MIB, 1),
            "descriptors_max": max(one.descriptors for one in self.samples),
            "connections_max": max(one.connections for one in self.samples),
            "threads_max": max(one.threads for one in self.samples),
            "processes_max": max(one.processes for one in self.samples),
        }
        if len(later) >= _FEWEST:
            times = [one.at for one in later]
            told |= {
                "pss_mib_per_hour": round(slope(times, [one.pss / MIB for one in later]) * 3600, 1),
                "anonymous_rise_mib": round(rise(times, [one.anonymous / MIB for one in later]), 2),
                "pss_rise_mib": round(rise(times, [one.pss / MIB for one in later]), 2),
                "tree_rise_mib": round(rise(times, [one.tree / MIB for one in later]), 2),
                "descriptors_rise": round(rise(times, [one.descriptors for one in later]), 1),
                "connections_floor_rise": floor_rise([one.connections for one in later]),
                "threads_rise": round(rise(times, [one.threads for one in later]), 1),
                "anonymous_mean_mib": round(statistics.fmean(one.anonymous / MIB for one in later), 1),
                "pss_mean_mib": round(statistics.fmean(one.pss / MIB for one in later), 1),
            }
        return told


def not_flat(told: dict[str, float]) -> list[str]:
    """What grew in a life, in words; nothing for lives too short to say."""
    if "anonymous_rise_mib" not in told or told["seconds"] < _JUDGED_FROM:
        return []
    found = []
    if told["anonymous_rise_mib"] > max(FLAT_BYTES / MIB, FLAT_SHARE * told["anonymous_mean_mib"]):
        found.append(
            f"its memory rose by {told['anonymous_rise_mib']} MiB, of {told['anonymous_mean_mib']} in the mean"
        )
    if told["descriptors_rise"] > FLAT_DESCRIPTORS:
        found.append(f"its open files rose by {told['descriptors_rise']}")
    if told["connections_floor_rise"] > FLAT_CONNECTIONS:
        found.append(f"the fewest connections that it had rose by {told['connections_floor_rise']}")
    if told["threads_rise"] > FLAT_THREADS:
        found.append(f"its threads rose by {told['threads_rise']}")
    return found


def slope(times: Sequence[float], values: Sequence[float]) -> float:
    """By least squares, per second."""
    return statistics.linear_regression(times, values).slope if times[-1] > times[0] else 0.0


def rise(times: Sequence[float], values: Sequence[float]) -> float:
    """Of the fitted line, from the first moment to the last."""
    return slope(times, values) * (times[-1] - times[0])


def floor_rise(values: Sequence[int]) -> int:
    """From the least of the first third to the least of the last."""
    third = max(1, len(values) // 3)
    return min(values[-third:]) - min(values[:third])


def pss(pid: int) -> int:
    """Proportional size in bytes, 0 for a process that is gone."""
    return rollup(pid, "Pss")


def rollup(pid: int, name: str) -> int:
    """A line of /proc/PID/smaps_rollup in bytes, 0 for a process that is gone."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * 1024
    return 0


def descriptors(pid: int) -> tuple[int, int]:
    """How many it has open: connections left out, and connections."""
    others = connections = 0
    with contextlib.suppress(OSError):
        for path in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):  # it was closed meanwhile
                is_socket = path.readlink().name.startswith("socket:")
                connections, others = connections + is_socket, others + (not is_socket)
    return others, connections


def threads(pid: int) -> int:
    """How many it has."""
    with contextlib.suppress(OSError):
        return len(list(Path(f"/proc/{pid}/task").iterdir()))
    return 0


@dataclass(frozen=True, slots=True)
class Process:
    """A process that no other is taken for: numbers come again, start times do not."""

    pid: int
    began: int  # clock ticks since the machine's start

    def alive(self) -> bool:
        """Whether it runs; a zombie does not."""
        found = stat(self.pid)
        return found is not None and found[0] != "Z" and int(found[19]) == self.began


def stat(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat after the name, the state first."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return None


def children() -> dict[int, list[Process]]:
    """The living children of each process of this machine."""
    found: dict[int, list[Process]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (fields := stat(int(entry.name))) and fields[0] != "Z":
            found.setdefault(int(fields[1]), []).append(Process(int(entry.name), int(fields[19])))
    return found


def descendants(root: int, known: dict[int, list[Process]]) -> list[Process]:
    """All below it, itself left out."""
    found: list[Process] = []
    wanted = [root]
    while wanted:
        below = known.get(wanted.pop(), [])
        found += below
        wanted += [one.pid for one in below]
    return found


# The workers of a round.


#: Seconds after which another worker takes a unit over: short beside the kills, long beside what a pause costs.
LEASE = 20
#: Seconds in which a worker that was told to stop has to be gone: --grace is 20.
_TERM_PATIENCE = 60.0
#: Seconds in which what a dead worker had started has to be gone.
_ORPHAN_PATIENCE = 15.0
#: A worker so young may not yet hear SIGTERM: the interpreter dies of it.
_DEAF = 8.0
_INTERRUPTED = 4  # the command's exit code


@dataclass(slots=True)
class Life:
    """One process of a worker, from its start to its end."""

    process: "subprocess.Popen[bytes]"
    track: Track
    began: float
    below: set[Process] = field(default_factory=set)  # whatever it or its children have started
    sent: str = ""  # what was done to it: kill, kill machine, term
    sent_at: float = 0.0
    ended: float = 0.0

    @property
    def running(self) -> bool:
        return self.process.poll() is None


@dataclass(slots=True)
class Worker:
    """A place in the crew; `life` is None between a death and the next start."""

    name: str
    words: Sequence[str]
    life: Life | None = None
    again_at: float = 0.0  # when it is started again; 0: not
    asleep_until: float = 0.0
    done: bool = False
    lives: int = 0

    @property
    def stage(self) -> str:
        return self.words[0]


class Crew:
    """The workers of one round. Everything that is not as promised is a line in `problems`."""

    def __init__(self, workers: Mapping[str, Sequence[str]], environment: Mapping[str, str], folder: Path) -> None:
        self.workers = [Worker(name, words) for name, words in workers.items()]
        self.problems: list[str] = []
        self.events: Counter[str] = Counter()
        self.tracks: list[dict[str, Any]] = []
        self.killed: set[int] = set()  # processes that could not release their leases
        self._environment = environment
        self._folder = folder
        self._dead: list[Life] = []

    def __enter__(self) -> "Crew":
        for worker in self.workers:
            self.start(worker)
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing that we started is left."""
        for worker in self.workers:
            if worker.life is not None and worker.life.running:
                _kill_tree(worker.life)
                worker.life.process.wait()

    def start(self, worker: Worker) -> None:
        """Begin a life."""
        worker.lives += 1
        self.temporary(worker).mkdir(exist_ok=True)
        with self.log(worker).open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "llm_ocr", *worker.words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._folder,  # Python looks there first
                env={**self._environment, "TMPDIR": str(self.temporary(worker))},
                start_new_session=True,  # Ctrl-C is for the soak, which then ends them
            )
        worker.life = Life(process, Track(process.pid), time.monotonic())
        worker.again_at, worker.done = 0.0, False

    def log(self, worker: Worker) -> Path:
        return self._folder / f"{worker.name}.log"

    def temporary(self, worker: Worker) -> Path:
        """Its TMPDIR, the same for all its lives: what a killed one leaves, the next one has to remove."""
        return self._folder / f"{worker.name}.tmp"

    def alive(self, seconds: float = 0.0) -> list[Worker]:
        """Those that run, for so long at least."""
        youngest = time.monotonic() - seconds
        return [one for one in self.workers if one.life is not None and one.life.running and one.life.began <= youngest]

    def idle(self) -> bool:
        """Whether all have ended by themselves and none is to be started again."""
        return all(worker.life is None and not worker.again_at for worker in self.workers)

    # -- what is done to them -------------------------------------------------------------------------------------

    def hurt(self, worker: Worker, how: str, chance: random.Random) -> None:
        """kill: SIGKILL; kill machine: its children too; term: SIGTERM; pause: asleep for longer than its leases."""
        life = worker.life
        if life is None or not life.running or life.sent or (worker.asleep_until and not how.startswith("kill")):
            return  # who sleeps hears nothing else
        self.events[f"{how} {worker.stage}"] += 1
        if how == "pause":
            worker.asleep_until = time.monotonic() + LEASE * chance.uniform(1.2, 2.0)
            life.process.send_signal(signal.SIGSTOP)
            return
        life.sent, life.sent_at = how, time.monotonic()
        if how == "kill machine":
            self._follow(life, children())
            _kill_tree(life)
        else:
            life.process.send_signal(signal.SIGKILL if how == "kill" else signal.SIGTERM)
        worker.asleep_until = 0.0

    def tick(self, chance: random.Random) -> None:
        """See who has ended, wake and start those whose time it is."""
        now = time.monotonic()
        for worker in self.workers:
            life = worker.life
            if worker.asleep_until and now >= worker.asleep_until:
                worker.asleep_until = 0.0
                if life is not None and life.running:
                    life.process.send_signal(signal.SIGCONT)
            if life is not None and not life.running:
                self._ended(worker, life, now, chance)
            elif life is not None and life.sent == "term" and now > life.sent_at + _TERM_PATIENCE:
                self.problems.append(f"{worker.name} does not end after SIGTERM")
                life.sent = "kill"
                _kill_tree(life)
            if worker.again_at and now >= worker.again_at:
                self.start(worker)
        self._bury(now)

    def wake(self) -> None:
        """All that sleep, now."""
        for worker in self.workers:
            worker.asleep_until = min(worker.asleep_until, time.monotonic()) if worker.asleep_until else 0.0

    def sample(self) -> None:
        """Measure all, and see what they have started."""
        now, known = time.monotonic(), children()
        for worker in self.alive():
            if worker.life is not None:
                tree = self._follow(worker.life, known)
                worker.life.track.look(now, [one.pid for one in tree])

    def _follow(self, life: Life, known: dict[int, list[Process]]) -> list[Process]:
        tree = descendants(life.process.pid, known)
        life.below.update(tree)
        return tree

    # -- how they end ---------------------------------------------------------------------------------------------

    def _ended(self, worker: Worker, life: Life, now: float, chance: random.Random) -> None:
        worker.life, life.ended, code = None, now, life.process.returncode
        self._dead.append(life)
        told = {"worker": worker.name, "life": worker.lives, "end": life.sent or "done", "exit": code}
        self.tracks.append(told | life.track.summary())
        self.problems += [f"{worker.name}, life {worker.lives}: {line}" for line in not_flat(self.tracks[-1])]
        if not self._as_expected(life, code):
            self.problems.append(f"{worker.name} ended with {code} ({life.sent or 'by itself'}): {self._last(worker)}")
        self.killed |= {life.process.pid} if code == -signal.SIGKILL else set()
        worker.done = code == 0
        if worker.done and (files := sorted(path.name for path in self.temporary(worker).iterdir())):
            self.problems.append(f"{worker.name}, life {worker.lives}, ended and left in its TMPDIR: {files[:5]}")
        if code != 0:
            worker.again_at = now + chance.uniform(2.0, 8.0)

    def _as_expected(self, life: Life, code: int) -> bool:
        if life.sent == "term":
            deaf = life.sent_at - life.began < _DEAF and code == -signal.SIGTERM
            return code in (0, _INTERRUPTED) or deaf
        return code == 0 or (code == -signal.SIGKILL and bool(life.sent))

    def _last(self, worker: Worker) -> str:
        return " / ".join(self.log(worker).read_text(errors="replace").strip().splitlines()[-4:])[-800:]

    def _bury(self, now: float) -> None:
        """What the dead have started is to be gone."""
        for life in list(self._dead):
            left = [one for one in life.below if one.alive()]
            if left and now < life.ended + _ORPHAN_PATIENCE:
                continue
            self._dead.remove(life)
            for one in left:
                self.problems.append(f"process {one.pid} outlived its worker {life.process.pid} ({life.sent})")
                with contextlib.suppress(ProcessLookupError):
                    os.kill(one.pid, signal.SIGKILL)


def _kill_tree(life: Life) -> None:
    """As when the machine is gone: the worker first, so that it starts nothing more."""
    with contextlib.suppress(ProcessLookupError):
        life.process.kill()
    for one in life.below:
        if one.alive():
            with contextlib.suppress(ProcessLookupError):
                os.kill(one.pid, signal.SIGKILL)
