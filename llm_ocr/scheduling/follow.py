"""Follow the preceding stage: process units as soon as they are published."""

import random
import time
from array import array
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from llm_ocr.scheduling.scanner import Claimed, Exhausted, Groups, PlannedItems, Units, Wait, told
from llm_ocr.storage import ObjectStore

# What a stage has published by now, learnt from few listings while it works: for the stage that follows it.


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


# Units one by one for a worker that follows the stage before: as soon as that one has published them.


class Taking(Protocol):
    """Finds units for this worker among those that are ready: `work.leased.Search` or `work.claim.Sharded`."""

    def freshen(self, places: Iterable[int]) -> None:
        """These places are ready now."""

    def step(self) -> Claimed | Wait | Exhausted:
        """The next thing to do."""


@dataclass(slots=True)
class Patience:
    """How long a worker pauses between two looks (seconds), and what it says meanwhile.

    Pauses grow from `first` to `longest`. `say` is told at the first one what is waited for, and every `remind` seconds
    in which nothing came that it still is.
    """

    say: Callable[[str], None]
    first: float = 2.0
    longest: float = 30.0
    remind: float = 300.0
    clock: Callable[[], float] = time.monotonic
    _pause: float = field(init=False, default=0.0)
    _since: float | None = field(init=False, default=None)  # when something came last
    _said: float | None = field(init=False, default=None)

    def came(self) -> None:
        """There is something to do: the next pause is short again."""
        self._pause, self._since = 0.0, self.clock()

    def pause(self, what: str, nothing: str = "nothing came") -> float:
        """The next pause; `what` is waited for, and `nothing` is what happened meanwhile."""
        now = self.clock()
        if self._since is None:
            self._since = now
        if self._said is None:
            self.say(f"waiting for {what}")
            self._said = now
        elif now - max(self._said, self._since) >= self.remind:
            self.say(f"waiting for {what} ({nothing} for {round((now - self._since) / 60)} min)")
            self._said = now
        self._pause = min(self.longest, 1.5 * self._pause) or self.first
        return self._pause


def followed(
    taking: Taking,
    ready: Ready,
    patience: Patience,
    wait: Callable[[float], bool],
    grown: Callable[[], bool] = lambda: False,
) -> Generator[int, None, bool]:
    """Places of units, until the stage before has published all and this worker's are taken, or `wait` says stop.

    Ends with true when the plan has `grown` before that: then its new units, and what was left, are to be followed.
    Raises `StorageError`.
    """
    while True:
        step = taking.step()
        if isinstance(step, Claimed):
            yield step.place
        elif fresh := ready.look() if ready.missing else []:
            taking.freshen(fresh)
            patience.came()
        elif grown():
            return True
        elif ready.missing or isinstance(step, Wait):
            seconds = patience.pause(*_what(ready))
            if wait(min(seconds, step.seconds) if isinstance(step, Wait) else seconds):
                return False
        else:
            if step.held:
                patience.say(told(step))
            return False


def _what(ready: Ready) -> tuple[str, str]:
    if ready.missing:
        return f"{ready.missing} of {ready.total} units of {ready.stage}", "none published"
    return "units that other workers hold", "none given up"
