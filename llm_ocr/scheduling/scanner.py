"""Find units that this worker can lease."""

import random
from array import array
from bisect import bisect_right
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from llm_ocr.errors import StageMissing
from llm_ocr.scheduling.leases import LEASE, Claim, Leases
from llm_ocr.types import Unit
from llm_ocr.workspace import Workspace, codec
from llm_ocr.workspace.generations import Generation, generations, units_of
from llm_ocr.workspace.items import Item, item_name, items
from llm_ocr.workspace.publish import marker_key

# The units that workers share, named without reading them, in groups whose state one listing tells.


#: Plans up to so many units are one group, or 16; larger ones are 256. A done unit is a marker and its data, and stores
#: list 1,000 objects at a time: a look takes few requests, and looking at all of a small plan few as well.
_ONE_GROUP = 1_000
_SIXTEEN_GROUPS = 32_000

#: Parts of the plan in memory, of at most 1,000 units each.
_PARTS_KEPT = 2

#: Of `<xx>`.
_DIGITS = 2

T_co = TypeVar("T_co", covariant=True)


class Units(Protocol[T_co]):
    """Units by their place in the plan. Names cost nothing; what they stand for is read when it is asked for."""

    def __len__(self) -> int: ...

    def name(self, place: int) -> str:
        """The id under which the unit's marker and lease stand."""

    def __getitem__(self, place: int) -> T_co: ...


class PlannedUnits:
    """The stored plan, all generations, in memory only where it is worked on. New generations are not seen.

    `generations` are those that it holds. Raises `StageMissing` when there is no plan.
    """

    def __init__(self, workspace: Workspace) -> None:
        found = generations(workspace)
        if not found:
            raise StageMissing(f"no plan in {workspace.url}", hint=f"Run first: llm-ocr plan SOURCE -w {workspace.url}")
        self.generations = tuple(found)
        self._workspace = workspace
        self._first: dict[int, int] = {}  # place of each generation's first unit
        self._parts: list[_Part] = []
        self._starts: list[int] = []
        self._kept: OrderedDict[int, Sequence[Unit]] = OrderedDict()
        start = 0
        for generation in found:
            index = 0
            self._first[generation.number] = start
            for number, part in enumerate(generation.parts):
                self._parts.append(_Part(generation, number, index))
                self._starts.append(start)
                start, index = start + part.units, index + part.units
        self._length = start

    def __len__(self) -> int:
        return self._length

    def name(self, place: int) -> str:
        """As `work.units.cut_units` makes it."""
        number = self._part_of(place)
        part = self._parts[number]
        return f"{part.generation.number:04d}-{part.first_index + place - self._starts[number]:06d}"

    def place(self, unit: Unit) -> int:
        """The inverse of `[place]`, for a unit of one of its generations."""
        return self._first[unit.generation] + unit.index

    def __getitem__(self, place: int) -> Unit:
        number = self._part_of(place)
        units = self._read(number)
        unit = units[place - self._starts[number]]
        if unit.id != self.name(place):
            raise codec.damaged(f"{self._workspace.url}: the plan", f"{self.name(place)} is called {unit.id}")
        return unit

    def _part_of(self, place: int) -> int:
        if not 0 <= place < self._length:
            raise IndexError(place)
        return bisect_right(self._starts, place) - 1

    def _read(self, number: int) -> Sequence[Unit]:
        if number not in self._kept:
            generation, part = self._parts[number].generation, self._parts[number].number
            alone = replace(generation, parts=generation.parts[part : part + 1])
            self._kept[number] = list(units_of(self._workspace, alone))
            while len(self._kept) > _PARTS_KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(number)
        return self._kept[number]


@dataclass(frozen=True, slots=True)
class _Part:
    generation: Generation
    number: int  # among the generation's parts
    first_index: int  # of its first unit


class Groups:
    """Units by the first digits of their folder `<xx>`: none, one or two of them, the more the larger the plan."""

    def __init__(self, units: Units[object], stage: str, key: str) -> None:
        digits = 0 if len(units) <= _ONE_GROUP else 1 if len(units) <= _SIXTEEN_GROUPS else _DIGITS
        folder = f"{stage}/{key}/"
        self._units = units
        self._digits = digits
        self._folder = folder
        self._stage, self._key = stage, key
        names = [f"{number:0{digits}x}" if digits else "" for number in range(16**digits)]
        self.prefixes = [f"{folder}{name}/" if digits == _DIGITS else folder + name for name in names]
        #: The places of each group's units, ascending; four bytes a unit.
        self.members = [array("I") for _ in self.prefixes]
        for place in range(len(units)):
            self.members[self.of(place)].append(place)

    def of(self, place: int) -> int:
        """The number of the group that the unit is in."""
        marker = marker_key(self._stage, self._key, self._units.name(place))
        start = len(self._folder)
        return int(marker[start : start + self._digits] or "0", 16)


# Assemble's items by their place in the plan, named without reading their units: for workers that share them.


class PlannedItems:
    """The items of a plan; in memory twelve bytes for each, and all units of retries.

    `read` must have come to its end before anything else is asked. Raises `StageMissing` when there is no plan.
    """

    def __init__(self, workspace: Workspace) -> None:
        self.units = PlannedUnits(workspace)
        self._workspace = workspace
        self._first = array("Q")  # place of the first unit
        self._count = array("I")
        self._newer: dict[int, tuple[Unit, ...]] = {}
        self._of_retry: defaultdict[int, list[int]] = defaultdict(list)

    def read(self) -> Iterator[Item]:
        """All items in order, once: the whole plan is read, one part at a time."""
        for place, item in enumerate(items(self._workspace, self.units.generations)):
            self._first.append(self.units.place(item.units[0]))
            self._count.append(len(item.units))
            if item.newer:
                self._newer[place] = item.newer
                for unit in item.newer:
                    self._of_retry[self.units.place(unit)].append(place)
            yield item

    def __len__(self) -> int:
        return len(self._first)

    def name(self, place: int) -> str:
        """`Item.name`: the name of its marker and lease."""
        first = self.units.name(self._first[place])
        newer = self._newer.get(place)
        return item_name(first, newer[-1].generation if newer else int(first.partition("-")[0]))

    def __getitem__(self, place: int) -> Item:
        first = self._first[place]
        units = tuple(self.units[number] for number in range(first, first + self._count[place]))
        return Item(units[0].id, units, self._newer.get(place, ()))

    def units_of(self, place: int) -> int:
        """How many units must be published before the item can be assembled."""
        return self._count[place] + len(self._newer.get(place, ()))

    def of_unit(self, unit: int) -> list[int]:
        """The places of the items that have pages of the unit at this place of the plan."""
        if unit in self._of_retry:
            return self._of_retry[unit]
        return [bisect_right(self._first, unit) - 1]


# Units one by one for a worker that shares them with others: the search for one that is free, and when to leave. A
# worker begins at a free unit of a random place and goes on from there in the plan's order, taking each unit by
# creating its lease, until it meets one that is held or done; then it looks for another place. A look lists one group
# of units (see `work.lease_groups`): markers and leases of hundreds of units by one request. So a unit costs few
# requests, and nobody has to list the whole workspace as long as there is work.


T = TypeVar("T")

_DONE = ".done"

#: A holder is alive when its lease changed, or came, since a look that is no more than so many beats ago. It beats once
#: in 1 to 1.25, and looks are about one beat apart.
_ALIVE = 2.5

#: Where many others are at work, a worker that finds nothing free looks at a sample: of 256 groups 10, of 16 groups 8.
#: If others hold `_MANY` units in it, and all of these have shown a sign of life, it leaves: each of those others looks
#: at groups of its own choice when it comes to its end, and the last ones look at all.
_SHARE = 25
_LEAST_SAMPLE = 8
_MANY = 4

#: The next unit of the plan is tried unless this failed too often of late: weight of the last try, and least success.
_WEIGHT = 0.3
_LEAST_LUCK = 0.4
_LUCK_OF_A_LOOK = 0.45  # one more try


@dataclass(frozen=True, slots=True)
class Claimed:
    """A unit that is ours now."""

    place: int


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing is free; a held one may be, after so many seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Exhausted:
    """All units are done or in live hands: `held` of others. Not `exact`: estimated from a sample."""

    held: int
    exact: bool = True


@dataclass(slots=True)
class _Seen:
    """A lease of another worker: when its version was first seen, and the last look before that, if there was one."""

    version: str
    since: float
    before: float | None
    not_before: float  # when it may be tried to take it over


def leased(
    leases: Leases,
    units: Units[T],
    *,
    say: Callable[[str], None] = lambda message: None,
    randomness: random.Random | None = None,
) -> Iterator[T]:
    """Units that this worker holds, until all are done or in live hands, or `leases` is closed.

    The caller publishes a unit if `leases.holds` it still, and then calls `leases.release`. A step blocks while it
    waits for leases that may run out soon. At the end `say` is told how many units others hold. Raises `StorageError`.
    """
    search = UnitScanner(leases, units, randomness=randomness)
    while not leases.closed:
        step = search.step()
        if isinstance(step, Claimed):
            yield units[step.place]
        elif isinstance(step, Wait):
            leases.wait(step.seconds)
        else:
            if step.held:
                say(told(step))
            return


def told(over: Exhausted) -> str:
    """What a worker says that leaves while others hold units."""
    about = "" if over.exact else "about "
    units = "unit is" if over.held == 1 else "units are"
    return f"{about}{over.held} {units} in the hands of other workers; run the same command again if one of them dies"


class UnitScanner:
    """Looks for units one step at a time, without waiting: for one worker, and not for several threads at once.

    With `ready` only places in it are taken, and only those that `freshen` was told of are looked for.
    """

    def __init__(
        self,
        leases: Leases,
        units: Units[object],
        *,
        groups: Groups | None = None,
        ready: Container[int] | None = None,
        randomness: random.Random | None = None,
    ) -> None:
        self._leases = leases
        self._units = units
        self._groups = groups or Groups(units, leases.stage, leases.key)
        self._ready = ready
        self._random = randomness or random.Random()
        self._done = bytearray(len(units))
        self._taken = bytearray(len(units))  # by this worker, since the last look at the unit's group
        self._seen: dict[int, dict[int, _Seen]] = {}  # by group, then by place
        self._looked: dict[int, float] = {}  # when each group was looked at last
        self._settled: set[int] = set()  # groups in which nothing was free
        all_groups = range(len(self._groups.members)) if ready is None else ()
        self._to_look = deque(self._random.sample(all_groups, len(all_groups)))
        self._pool: list[int] = []
        self._pool_time = 0.0
        self._place: int | None = None  # of the unit that was taken last
        self._luck = 1.0
        self._again: float | None = None
        self._by_sample = False
        self._sample = max(len(self._groups.members) // _SHARE, _LEAST_SAMPLE)

    def step(self) -> Claimed | Wait | Exhausted:
        """The next thing to do."""
        while not self._leases.closed:
            place = self._candidate()
            if place is not None:
                if self._take(place):
                    return Claimed(place)
            elif self._to_look and not self._sampled():
                self._look(self._to_look.popleft())
            else:
                end = self._nothing_free()
                if end is not None:
                    return end
        return Wait(0.0)

    def freshen(self, places: Iterable[int]) -> None:
        """These places are ready now: their groups are looked at next."""
        groups = {self._groups.of(place) for place in places}
        self._settled -= groups
        self._to_look.extendleft(groups.difference(self._to_look))
        self._again = None

    def _candidate(self) -> int | None:
        if self._place is not None:
            after = self._place + 1
            if after < len(self._units) and self._luck >= _LEAST_LUCK and not self._known(after):
                return after
            self._place = None
        if self._leases.clock() - self._pool_time > self._leases.options.beat:
            self._pool.clear()  # others have been at it
        while self._pool:
            place = self._pool.pop()
            if not self._was_ours(place):
                return place
        return None

    def _known(self, place: int) -> bool:
        """Whether it is known that the unit cannot be taken."""
        if not self._is_ready(place) or self._was_ours(place):
            return True
        return place in self._seen.get(self._groups.of(place), {})

    def _was_ours(self, place: int) -> bool:
        """Whether the unit is done, ours, or was ours a moment ago: then it is published, or another has taken it."""
        return bool(self._done[place] or self._taken[place]) or self._leases.holds(self._units.name(place))

    def _is_ready(self, place: int) -> bool:
        return self._ready is None or place in self._ready

    def _take(self, place: int) -> bool:
        seen = self._seen.get(self._groups.of(place), {})
        unit, lease = self._units.name(place), seen.get(place)
        if lease is None:
            outcome = self._leases.claim(unit)
        else:
            outcome = self._leases.steal(unit, lease.version, self._pool_time - lease.since)
            lease.not_before = self._leases.clock() + self._leases.options.seconds
        if self._place is not None:
            self._luck += _WEIGHT * ((outcome is Claim.OURS) - self._luck)
        self._place = None
        if outcome is Claim.HELD:
            return False
        seen.pop(place, None)
        if outcome is Claim.DONE:
            self._done[place] = 1
            return False
        self._place, self._again, self._by_sample = place, None, False
        self._taken[place] = 1
        return True

    def _look(self, group: int) -> None:
        """List a group: what is free in it, in any order, is the new pool."""
        began = self._leases.clock()
        done, versions = self._list(self._groups.prefixes[group])
        ended = self._leases.clock()
        before, last = self._seen.get(group, {}), self._looked.get(group)
        seen, free = dict[int, _Seen](), list[int]()
        for place in self._groups.members[group]:
            unit = self._units.name(place)
            self._taken[place] = 0
            if self._done[place] or unit in done:
                self._done[place] = 1
            elif self._leases.holds(unit) or not self._is_ready(place):
                continue
            elif unit not in versions:
                free.append(place)
            else:
                lease = seen[place] = self._observed(before.get(place), versions[unit], last, ended)
                if began >= lease.not_before:
                    free.append(place)
        self._seen[group], self._looked[group] = seen, began
        self._random.shuffle(free)
        self._pool, self._pool_time = free, began
        self._luck = max(self._luck, _LUCK_OF_A_LOOK)
        if free:
            self._to_look.append(group)
            self._settled.discard(group)
        else:
            self._settled.add(group)

    def _list(self, prefix: str) -> tuple[set[str], dict[str, str]]:
        done, versions = set[str](), dict[str, str]()
        for info in self._leases.store.list(prefix):
            name = info.key.rpartition("/")[2]
            if name.endswith(_DONE):
                done.add(name.removesuffix(_DONE))
            elif name.endswith(LEASE):
                versions[name.removesuffix(LEASE)] = info.version
        return done, versions

    def _observed(self, known: _Seen | None, version: str, last: float | None, now: float) -> _Seen:
        if known is not None and known.version == version:
            return known
        return _Seen(version, now, last, now + self._leases.options.seconds)

    def _held(self) -> list[_Seen]:
        """What others hold in the groups in which nothing was free."""
        return [lease for group in self._settled for lease in self._seen[group].values()]

    def _sampled(self) -> bool:
        """Whether what was looked at is enough; never where units become ready, for the rest is not like the sample."""
        if self._ready is not None:
            return False
        return self._by_sample or (len(self._settled) >= self._sample and len(self._held()) >= _MANY)

    def _nothing_free(self) -> Wait | Exhausted | None:
        """What follows when all groups, or a sample of them, have nothing free; None to go on looking."""
        now, options = self._leases.clock(), self._leases.options
        if self._again is not None:
            if now < self._again:
                return Wait(self._again - now)
            self._again = None
            if self._look_again(now):
                return None
        silent = [lease for lease in self._held() if not self._alive(lease, now)]
        if not silent:
            if not self._to_look:
                return Exhausted(len(self._held()))
            groups = len(self._groups.members)
            return Exhausted(round(len(self._held()) * groups / max(len(self._settled), 1)), exact=False)
        soonest = min(lease.not_before for lease in silent) - now
        shift = self._random.uniform(0.8, 1.2)  # not all at once
        pause = shift * min(options.beat, soonest + 0.25 * options.beat)
        self._again, self._by_sample = now + pause, bool(self._to_look)
        return Wait(pause)

    def _alive(self, lease: _Seen, now: float) -> bool:
        return lease.before is not None and now - lease.before <= _ALIVE * self._leases.options.beat

    def _look_again(self, now: float) -> bool:
        """At the groups with silent leases; whether something is free now."""
        for group in list(self._settled):
            if all(self._alive(lease, now) for lease in self._seen[group].values()):
                continue
            self._look(group)
            if self._pool:
                return True
        return False
