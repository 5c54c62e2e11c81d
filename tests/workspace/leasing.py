"""Workers on one store and a clock that the test moves."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from llm_ocr.scheduling.follow import Pauses, followed
from llm_ocr.scheduling.leases import LeaseOptions, Leases
from llm_ocr.scheduling.scanner import UnitScanner
from llm_ocr.scheduling.shards import WHOLE, Sharded
from llm_ocr.workspace.publish import done_units, marker_key, settle
from tests.fakes.memory_store import MemoryStore

STAGE, KEY = "extract", "0123456789ab"
SECONDS = 100.0
BEAT = SECONDS / 5


@dataclass
class Clock:
    """Seconds, from `start` on and so much faster than the others'."""

    start: float = 0.0
    rate: float = 1.0
    now: float = field(init=False, default=0.0)

    def __call__(self) -> float:
        return self.start + self.rate * self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


@dataclass(frozen=True)
class Named:
    """Units that are their names."""

    names: Sequence[str]

    def __len__(self) -> int:
        return len(self.names)

    def name(self, place: int) -> str:
        return self.names[place]

    def __getitem__(self, place: int) -> str:
        return self.names[place]


def named(count: int) -> Named:
    return Named([f"0001-{place:06d}" for place in range(count)])


def worker(store, clock, name="", seconds=SECONDS, kind=Leases) -> Leases:
    return kind(store, STAGE, KEY, LeaseOptions(seconds, name), clock=clock)


def search(store, clock, units, seed=0, seconds=SECONDS):
    leases = worker(store, clock, str(seed), seconds)
    return leases, UnitScanner(leases, units, randomness=random.Random(seed))


def leased(leases, units, seed=0, say=print):
    """The units that a worker takes by leases."""

    def wait(seconds):
        leases.wait(seconds)
        return leases.closed

    taking = UnitScanner(leases, units, randomness=random.Random(seed))
    return (units[place] for place in followed(taking, None, Pauses(say), wait))


def claimed(workspace, stage, key, units, shard=WHOLE):
    """The units that a worker takes of its share."""
    taking = Sharded(workspace, stage, key, units, shard, done_units(workspace, stage, key))
    taking.freshen(range(len(units)))
    return (units[place] for place in followed(taking, None, Pauses(print), lambda seconds: False))


def publish(store: MemoryStore, unit: str, attempt: str) -> bool:
    """Whether this attempt is the one that counts."""
    return settle(store, marker_key(STAGE, KEY, unit), attempt.encode()) == attempt.encode()


def done(store) -> set[str]:
    keys = [info.key for info in store.list(f"{STAGE}/")]
    return {key.rpartition("/")[2].removesuffix(".done") for key in keys if key.endswith(".done")}


def leases_left(store) -> list[str]:
    return [info.key for info in store.list(f"{STAGE}/") if info.key.endswith(".lease")]
