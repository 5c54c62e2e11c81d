"""Many workers that share units by leases: how near to ideal they come, and what they ask of the store.

    python benchmarks/scale.py [--workers 64,1000] [--units 100000] [--output benchmarks/results/scale.json]

The library's own search and leases, on a clock of its own: nothing sleeps. The store is in memory and counts requests,
service times and deaths are drawn. See README.md.
"""

import argparse
import heapq
import itertools
import math
import random
import sys
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from reporting import keep

from llm_ocr.scheduling.leases import LeaseOptions, Leases
from llm_ocr.scheduling.scanner import Claimed, Exhausted, Groups, UnitScanner, Wait
from llm_ocr.workspace.marker import settle
from llm_ocr.workspace.publish import marker_key
from tests.fakes.memory_store import MemoryStore

STAGE, KEY = "extract", "0123456789ab"
UNITS_A_PART = 1000  # as the plan is stored
PARTS_KEPT = 2

#: About what S3 and GCS ask for 1,000 requests, in US dollars, not looked up anew: 0.005 for what writes or lists,
#: 0.0004 for what reads; removing is free.
PRICE = {"create": 0.005, "swap": 0.005, "list": 0.005, "delete": 0.0}
PRICE_OF_READING = 0.0004


@dataclass(frozen=True, slots=True)
class Given:
    """What is simulated; times in seconds."""

    units: int
    service: float  # mean of a unit; lognormal
    sigma: float
    latency: float  # of a request to the store
    lead: float  # the next unit is asked for so long before the last one ends
    deaths: float  # of a worker, per hour
    restart: float  # from a death to the next worker in its place
    ramp: float  # workers start within this time
    lease: float
    seed: int


@dataclass(slots=True)
class Tally:
    """Seconds of workers, and events."""

    useful: float = 0.0
    again: float = 0.0  # work that died with its worker or that another had published
    claims: float = 0.0  # idle before a unit that did come
    deaths: int = 0
    stolen: int = 0
    dropped: int = 0
    plan_parts: int = 0
    left_exact: int = 0
    left_by_sample: int = 0


@dataclass(frozen=True, slots=True)
class Names:
    """Units that have names and nothing else."""

    count: int

    def __len__(self) -> int:
        return self.count

    def name(self, place: int) -> str:
        return f"0001-{place:06d}"

    def __getitem__(self, place: int) -> str:
        return self.name(place)


class Clock:
    """Virtual time: what is due, in order."""

    def __init__(self) -> None:
        self.now = 0.0
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()

    def at(self, when: float, do: Callable[[], None]) -> None:
        heapq.heappush(self._due, (when, next(self._order), do))

    def run(self, more: Callable[[], bool]) -> None:
        while self._due and more():
            self.now, _, do = heapq.heappop(self._due)
            do()


@dataclass(slots=True)
class Simulation:
    """One number of workers."""

    given: Given
    workers: int
    clock: Clock = field(default_factory=Clock)
    tally: Tally = field(default_factory=Tally)
    done: int = 0
    makespan: float = 0.0
    waiting: int = 0  # workers that are here or will come
    lives: list[tuple[float, float]] = field(default_factory=list)
    store: MemoryStore = field(init=False)
    names: Names = field(init=False)
    groups: Groups = field(init=False)
    chance: random.Random = field(init=False)
    service: list[float] = field(init=False)

    def __post_init__(self) -> None:
        given = self.given
        self.chance = random.Random(f"{given.seed} {self.workers}")
        self.store = MemoryStore(clock=lambda: self.clock.now)
        self.names = Names(given.units)
        self.groups = Groups(self.names, STAGE, KEY)
        times = random.Random(given.seed)  # the same units for every number of workers
        mu = math.log(given.service) - given.sigma**2 / 2
        self.service = [times.lognormvariate(mu, given.sigma) for _ in range(given.units)]

    def run(self) -> dict[str, Any]:
        for _ in range(self.workers):
            self._begin(self.chance.uniform(0, self.given.ramp))
        began = time.monotonic()
        self.clock.run(lambda: self.waiting > 0)
        if self.done < self.given.units:
            raise SystemExit(f"{self.given.units - self.done} units were left")
        return self._report(time.monotonic() - began)

    def died(self, when: float) -> None:
        """Its place is taken by another worker, as long as there is work."""
        self.tally.deaths += 1
        if self.done < self.given.units:
            self._begin(when + self.given.restart)
        self.waiting -= 1

    def _begin(self, when: float) -> None:
        hours = self.chance.expovariate(self.given.deaths) if self.given.deaths else math.inf
        self.waiting += 1
        self.lives.append((when, when + hours * 3600))
        worker = Worker(self, len(self.lives))
        self.clock.at(when, worker.begin)
        self.clock.at(when + hours * 3600, worker.die)

    def _report(self, took: float) -> dict[str, Any]:
        units, tally = self.given.units, self.tally
        capacity = self._capacity(self.makespan)
        ideal = self._ideal(sum(self.service))
        asked = {name: count for name, count in sorted(self.store.calls.items()) if name != "put"}
        asked["plan_part"] = tally.plan_parts
        dollars = sum(count / 1000 * PRICE.get(name, PRICE_OF_READING) for name, count in asked.items())
        shares = {
            "claims": tally.claims / capacity,
            "work_again": tally.again / capacity,
            "tail": 1 - (tally.useful + tally.again + tally.claims) / capacity,
        }
        return {
            "workers": self.workers,
            "makespan_s": round(self.makespan, 1),
            "ideal_s": round(ideal, 1),
            "of_ideal": round(ideal / self.makespan, 4),
            "lost": {name: round(share, 5) for name, share in shares.items()},
            "requests_per_unit": round(sum(asked.values()) / units, 3),
            "dollars_per_million_units": round(dollars / units * 1e6, 2),
            "requests": {name: round(count / units, 4) for name, count in asked.items()},
            **{name: value for name, value in asdict(tally).items() if isinstance(value, int)},
            "simulated_in_s": round(took, 1),
        }

    def _capacity(self, until: float) -> float:
        return sum(max(min(end, until) - begin, 0.0) for begin, end in self.lives)

    def _ideal(self, work: float) -> float:
        """When the same workers, with the same deaths, would have done the work if it could be cut at will."""
        low, high = 0.0, self.makespan
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if self._capacity(middle) < work else (low, middle)
        return high


class Worker:
    """One server with its claims: it works on one unit after the other and asks for the next a little before."""

    def __init__(self, simulation: Simulation, number: int) -> None:
        self.simulation = simulation
        self.clock = simulation.clock
        options = LeaseOptions(simulation.given.lease, f"worker {number}")
        self.leases = Leases(simulation.store, STAGE, KEY, options, clock=lambda: self.clock.now)
        self.chance = random.Random(f"{simulation.given.seed} {simulation.workers} {number}")
        self.search: UnitScanner | None = None
        self.free_at = 0.0
        self.dead = self.gone = False
        self.running: list[tuple[float, float]] = []  # begin and end of what is claimed
        self.parts: OrderedDict[int, None] = OrderedDict()

    def begin(self) -> None:
        simulation = self.simulation
        self.search = UnitScanner(self.leases, simulation.names, groups=simulation.groups, randomness=self.chance)
        self.free_at = self.clock.now
        self.ask()
        self.beat()

    def beat(self) -> None:
        if not self.dead and not self.gone:
            self.leases.beat()
            self.clock.at(self.clock.now + self.leases.options.beat / 4, self.beat)

    def ask(self) -> None:
        if self.dead or self.search is None:
            return
        given, store = self.simulation.given, self.simulation.store
        before = store.calls.total()
        step = self.search.step()
        ready = self.clock.now + given.latency * (store.calls.total() - before)
        if isinstance(step, Claimed):
            self._start(step.place, ready + given.latency * self._read_plan(step.place))
        elif isinstance(step, Wait):
            self.clock.at(ready + max(step.seconds, 0.001), self.ask)
        else:
            self._leave(step)

    def die(self) -> None:
        if self.dead or self.gone:
            return
        self.dead = True
        now = self.clock.now
        self.simulation.tally.again += sum(max(min(end, now) - begin, 0.0) for begin, end in self.running)
        self.simulation.died(now)

    def _start(self, place: int, ready: float) -> None:
        begin = max(self.free_at, ready)
        end = begin + self.simulation.service[place]
        self.simulation.tally.claims += begin - self.free_at
        self.free_at = end
        self.running.append((begin, end))
        self.clock.at(end, lambda: self._finish(place, begin, end))
        self.clock.at(max(end - self.simulation.given.lead, ready), self.ask)

    def _finish(self, place: int, begin: float, end: float) -> None:
        if self.dead:
            return
        simulation, unit = self.simulation, self.simulation.names.name(place)
        self.running.remove((begin, end))
        ours = False
        if self.leases.holds(unit):
            attempt = f"{id(self)} {end}".encode()
            simulation.store.put(f"{marker_key(STAGE, KEY, unit).rpartition('.')[0]}/{end}.parquet", b"rows")
            ours = settle(simulation.store, marker_key(STAGE, KEY, unit), attempt) == attempt
            self.leases.release(unit)
        if ours:
            simulation.done += 1
            simulation.makespan = self.clock.now
            simulation.tally.useful += end - begin
        else:
            simulation.tally.dropped += 1
            simulation.tally.again += end - begin
        if self.gone and not self.running:
            self._end()

    def _leave(self, over: Exhausted) -> None:
        tally = self.simulation.tally
        tally.left_exact += over.exact
        tally.left_by_sample += not over.exact
        self.gone = True
        if not self.running:
            self._end()

    def _end(self) -> None:
        self.simulation.tally.stolen += self.leases.stolen
        self.leases.close()
        self.simulation.waiting -= 1

    def _read_plan(self, place: int) -> int:
        """Requests for the part of the plan that the unit stands in."""
        part = place // UNITS_A_PART
        new = part not in self.parts
        self.parts[part] = None
        self.parts.move_to_end(part)
        if len(self.parts) > PARTS_KEPT:
            self.parts.popitem(last=False)
        self.simulation.tally.plan_parts += new
        return int(new)


def table(rows: Sequence[dict[str, Any]]) -> str:
    lines = ["workers   makespan      ideal  of ideal   claims   again    tail  asked/unit  $/1M units  deaths  stolen"]
    for row in rows:
        lost = row["lost"]
        lines.append(
            f"{row['workers']:>7}  {row['makespan_s']:>7.0f} s  {row['ideal_s']:>7.0f} s  {row['of_ideal']:>8.1%}  "
            f"{lost['claims']:>7.2%} {lost['work_again']:>7.2%} {lost['tail']:>7.2%}  "
            f"{row['requests_per_unit']:>10.2f}  {row['dollars_per_million_units']:>10.2f}  "
            f"{row['deaths']:>6}  {row['stolen']:>6}"
        )
        lines.append(f"         {', '.join(f'{name} {count:.2f}' for name, count in row['requests'].items())}")
    return "\n".join(lines)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--workers", default="64,1000", metavar="N,N", help="numbers of workers (default 64,1000)")
    add("--units", type=int, default=100_000, metavar="N", help="units of the plan (default 100000)")
    add("--service", type=float, default=45.0, metavar="S", help="mean seconds of a unit, lognormal (default 45)")
    add("--sigma", type=float, default=0.6, metavar="X", help="its sigma (default 0.6)")
    add("--latency", type=float, default=0.05, metavar="S", help="seconds of a request to the store (default 0.05)")
    add("--lead", type=float, default=5.0, metavar="S", help="seconds that the next is asked for early (default 5)")
    add("--deaths", type=float, default=0.05, metavar="N", help="deaths of a worker per hour (default 0.05)")
    add("--restart", type=float, default=180.0, metavar="S", help="seconds until its successor (default 180)")
    add("--ramp", type=float, default=60.0, metavar="S", help="workers start within so many seconds (default 60)")
    add("--lease", type=float, default=300.0, metavar="S", help="lease seconds (default 300)")
    add("--seed", type=int, default=0, metavar="N", help="of all that is drawn (default 0)")
    add("--output", type=Path, metavar="FILE", help="write everything as JSON")
    return parser.parse_args()


def main() -> int:
    arguments = vars(parse())
    output, workers = arguments.pop("output"), arguments.pop("workers")
    given = Given(**arguments)
    rows = [Simulation(given, int(number)).run() for number in workers.split(",")]
    print(table(rows))
    command = "python benchmarks/scale.py " + " ".join(sys.argv[1:])
    keep({"command": command, "given": asdict(given), "rows": rows}, output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
