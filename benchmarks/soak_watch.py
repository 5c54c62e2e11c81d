"""Memory, descriptors and threads of processes over their lives, from /proc, and the lines through them (Linux)."""

import contextlib
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

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
