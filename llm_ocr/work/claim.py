"""Which units are this worker's."""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

from llm_ocr.errors import UsageError
from llm_ocr.work.lease_groups import Units
from llm_ocr.work.leased import Found, Over
from llm_ocr.work.publish import done_units, is_done
from llm_ocr.work.workspace import Workspace

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Shard:
    """Every `count`-th of the units, beginning with `index` (from 0). Raises `UsageError` for an impossible one."""

    index: int = 0
    count: int = 1

    def __post_init__(self) -> None:
        if self.count < 1 or not 0 <= self.index < self.count:
            last = max(self.count, 1) - 1
            raise UsageError(
                f"shard {self.index} of {self.count} does not exist",
                hint=f"The index counts from 0: with --shard-count {last + 1} it is 0 to {last}.",
            )

    def of(self, units: Iterable[T]) -> Iterator[T]:
        """`units[index::count]`: counted over the whole plan, done or not, so that no unit changes hands."""
        return islice(units, self.index, None, self.count)

    def __contains__(self, place: int) -> bool:
        """Whether the unit at this place of the plan is among them."""
        return place % self.count == self.index


WHOLE = Shard()


def claim(workspace: Workspace, stage: str, key: str, units: Units[T], shard: Shard = WHOLE) -> Iterator[T]:
    """This worker's units that have no marker.

    The marker is looked for again when a unit is taken: what another worker has finished since is left out. Two workers
    that take the same unit do no harm, for only one of them publishes it.
    """
    taking = Sharded(workspace, stage, key, units, shard, done_units(workspace, stage, key))
    taking.freshen(range(len(units)))
    while isinstance(step := taking.step(), Found):
        yield units[step.place]


class Sharded:
    """The units of a share one by one as they become ready: `work.leased.Search` for a worker that needs no leases.

    `done` are the names of those that are done or taken; what is found is added to it.
    """

    def __init__(
        self, workspace: Workspace, stage: str, key: str, units: Units[object], shard: Shard, done: set[str]
    ) -> None:
        self._workspace = workspace
        self._stage, self._key = stage, key
        self._units = units
        self._shard = shard
        self._done = done
        self._free: deque[int] = deque()

    def freshen(self, places: Iterable[int]) -> None:
        """These places are ready now."""
        self._free.extend(place for place in places if place in self._shard)

    def step(self) -> Found | Over:
        """The next thing to do."""
        while self._free:
            place = self._free.popleft()
            name = self._units.name(place)
            if name in self._done:
                continue
            self._done.add(name)
            if not is_done(self._workspace, self._stage, self._key, name):
                return Found(place)
        return Over(0)
