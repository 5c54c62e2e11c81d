"""What a stage has published by now, learnt from few listings while it works: for the stage that follows it."""

import random
from array import array
from collections import deque
from collections.abc import Iterator
from typing import Protocol

from llm_ocr.storage import ObjectStore
from llm_ocr.work.lease_groups import Groups, Units
from llm_ocr.work.planned_items import PlannedItems

#: Groups that one look lists when it finds nothing.
_MOST_LISTED = 8

_DONE = ".done"


class Ready(Protocol):
    """Places of what may be done now, because the stage before has published it."""

    @property
    def stage(self) -> str:
        """The stage before."""

    @property
    def total(self) -> int:
        """How many units it has in all."""

    @property
    def missing(self) -> int:
        """How many of them it had not published when they were looked at last."""

    def __contains__(self, place: object) -> bool: ...

    def look(self) -> list[int]:
        """The places that have become ready since the last look, or some of them. Raises `StorageError`."""


class Published:
    """The units of a plan that a stage has published.

    A look goes on where the last one ended, and stops at the first group in which something is new; groups whose units
    are all published are listed no more.
    """

    def __init__(
        self,
        store: ObjectStore,
        units: Units[object],
        stage: str,
        key: str,
        *,
        randomness: random.Random | None = None,
    ) -> None:
        self.stage = stage
        self.missing = self.total = len(units)
        self._store = store
        self._units = units
        self._groups = Groups(units, stage, key)
        self._ready = bytearray(len(units))
        self._left = [len(members) for members in self._groups.members]
        turns = [group for group, left in enumerate(self._left) if left]
        (randomness or random.Random()).shuffle(turns)  # so that many workers do not all begin at the same units
        self._turns = deque(turns)

    def __contains__(self, place: object) -> bool:
        return isinstance(place, int) and bool(self._ready[place])

    def look(self) -> list[int]:
        """See `Ready`."""
        for _ in range(min(_MOST_LISTED, len(self._turns))):
            group = self._turns.popleft()
            found = self._list(group)
            if self._left[group]:
                self._turns.append(group)
            if found:
                return found
        return []

    def _list(self, group: int) -> list[int]:
        names = {
            info.key.rpartition("/")[2].removesuffix(_DONE)
            for info in self._store.list(self._groups.prefixes[group])
            if info.key.endswith(_DONE)
        }
        found = [
            place
            for place in self._groups.members[group]
            if not self._ready[place] and self._units.name(place) in names
        ]
        for place in found:
            self._ready[place] = 1
        self._left[group] -= len(found)
        self.missing -= len(found)
        return found


class ReadyItems:
    """Assemble's items whose units are all published, retries of their pages included."""

    def __init__(self, items: PlannedItems, published: Published) -> None:
        self.stage = published.stage
        self.total = published.total
        self._items = items
        self._published = published
        self._waits = array("I", map(items.units_of, range(len(items))))

    @property
    def missing(self) -> int:
        """Units that are to be published still."""
        return self._published.missing

    def __contains__(self, place: object) -> bool:
        return isinstance(place, int) and not self._waits[place]

    def look(self) -> list[int]:
        """See `Ready`."""
        while fresh := self._published.look():
            if found := list(self._ended(fresh)):
                return found
        return []

    def _ended(self, units: list[int]) -> Iterator[int]:
        for unit in units:
            for item in self._items.of_unit(unit):
                self._waits[item] -= 1
                if not self._waits[item]:
                    yield item
