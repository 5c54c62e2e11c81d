"""Take units one by one, also as soon as the preceding stage has published them."""

import math
import random
import time
from array import array
from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass, field

from llm_ocr.scheduling.scanner import Groups, PlannedItems, Units, UnitScanner, Wait
from llm_ocr.scheduling.shards import Sharded
from llm_ocr.storage import ObjectStore

#: Upper limit of groups to list in a look without new units.
_MOST_LISTED = 8

_DONE = ".done"


class Published:
    """Units of a plan that the preceding stage has published, and that can be processed now, by their places.

    `stage` is the name of that stage, `total` the number of its units, and `missing` the number of units that were
    unpublished at the last look.

    Each look continues after the last one, and stops at the first group with new units. Groups whose units are all
    published are not listed again.
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
        (randomness or random.Random()).shuffle(turns)  # so that workers do not all start at the same units
        self._turns = deque(turns)

    def __contains__(self, place: object) -> bool:
        return isinstance(place, int) and bool(self._ready[place])

    def look(self) -> list[int]:
        """Return places that became ready since the last look, possibly not all of them.

        Raises:
            StorageError: the store could not be listed.
        """
        for _ in range(min(_MOST_LISTED, len(self._turns))):
            group = self._turns.popleft()
            keys = (info.key for info in self._store.list(self._groups.prefixes[group]) if info.key.endswith(_DONE))
            names = {key.rpartition("/")[2].removesuffix(_DONE) for key in keys}
            waiting = (place for place in self._groups.members[group] if not self._ready[place])
            found = [place for place in waiting if self._units.name(place) in names]
            for place in found:
                self._ready[place] = 1
            self._left[group] -= len(found)
            self.missing -= len(found)
            if self._left[group]:
                self._turns.append(group)
            if found:
                return found
        return []


class ReadyItems:
    """Items of Assemble whose units are all published, including retries of their pages, by their places.

    `stage`, `total`, and `missing` are of the units (see `Published`).
    """

    def __init__(self, items: PlannedItems, published: Published) -> None:
        self.stage = published.stage
        self.total = published.total
        self._items = items
        self._published = published
        self._waits = array("I", map(items.units_of, range(len(items))))

    @property
    def missing(self) -> int:
        """Number of unpublished units."""
        return self._published.missing

    def __contains__(self, place: object) -> bool:
        return isinstance(place, int) and not self._waits[place]

    def look(self) -> list[int]:
        """Return places of newly complete items, possibly not all of them.

        Raises:
            StorageError: the store could not be listed.
        """
        found: list[int] = []
        while not found and (fresh := self._published.look()):
            for item in (item for unit in fresh for item in self._items.of_unit(unit)):
                self._waits[item] -= 1
                if not self._waits[item]:
                    found.append(item)
        return found


#: Places that can be processed now, because the preceding stage has published their units.
Ready = Published | ReadyItems


@dataclass(slots=True)
class Pauses:
    """Pauses between two looks, in seconds, and the messages during them.

    Pauses grow from `first` to `longest`. `say` receives a message at the first pause, and again after each `remind`
    seconds without new units.
    """

    say: Callable[[str], None]
    first: float = 2.0
    longest: float = 30.0
    remind: float = 300.0
    clock: Callable[[], float] = time.monotonic
    _pause: float = field(init=False, default=0.0)
    _since: float | None = field(init=False, default=None)  # time of the last new unit
    _messaged: float | None = field(init=False, default=None)

    def came(self) -> None:
        """Reset the pause after new work."""
        self._pause, self._since = 0.0, self.clock()

    def pause(self, what: str, nothing: str = "nothing came") -> float:
        """Return the seconds of the next pause.

        Args:
            what: object of the wait, for messages.
            nothing: event that did not happen, for messages.
        """
        now = self.clock()
        if self._since is None:
            self._since = now
        if self._messaged is None:
            self.say(f"waiting for {what}")
            self._messaged = now
        elif now - max(self._messaged, self._since) >= self.remind:
            self.say(f"waiting for {what} ({nothing} for {round((now - self._since) / 60)} min)")
            self._messaged = now
        self._pause = min(self.longest, 1.5 * self._pause) or self.first
        return self._pause


def followed(
    taking: UnitScanner | Sharded,
    ready: Ready | None,
    pauses: Pauses,
    wait: Callable[[float], bool],
    grown: Callable[[], bool] = lambda: False,
) -> Generator[int, None, int | None]:
    """Yield places of units until this worker has taken its units, and the preceding stage has published all.

    Args:
        taking: claims units.
        ready: units that the preceding stage has published; None if all units can be processed.
        pauses: the pauses, and the messages during them.
        wait: sleeps for a number of seconds; returns true to stop.
        grown: returns whether the plan has new units.

    Returns:
        The number of units that other workers hold at the end. None: the plan has grown before, and the caller follows
        the new units and the remaining ones.

    Raises:
        StorageError: the store could not be read.
    """
    while True:
        step = taking.step()
        if isinstance(step, int):
            yield step
        elif ready and ready.missing and (fresh := ready.look()):
            taking.freshen(fresh)
            pauses.came()
        elif ready and grown():
            return None
        elif (ready and ready.missing) or isinstance(step, Wait):
            for message in step.messages if isinstance(step, Wait) else ():
                pauses.say(message)
            seconds = step.seconds if isinstance(step, Wait) else math.inf
            if ready and ready.missing:
                waited = pauses.pause(f"{ready.missing} of {ready.total} units of {ready.stage}", "none published")
                seconds = min(seconds, waited)
            elif ready:
                seconds = min(seconds, pauses.pause("units of other workers", "none released"))
            if wait(seconds):
                return 0
        else:
            if step.held:
                pauses.say(str(step))
            return step.held
