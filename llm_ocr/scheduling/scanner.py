"""Find units that this worker can lease."""

import random
from array import array
from bisect import bisect_right
from collections import OrderedDict, defaultdict, deque
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from llm_ocr.scheduling.leases import LEASE, Claim, Holder, Leases
from llm_ocr.types import Unit
from llm_ocr.workspace import Workspace, codec
from llm_ocr.workspace.codec import item_name
from llm_ocr.workspace.generations import Generation, planned_generations, units_of
from llm_ocr.workspace.items import Item, items
from llm_ocr.workspace.publish import done_units, marker_key

#: Plans up to these sizes have 1 or 16 groups; larger plans have 256. A finished unit has a marker and data, and stores
#: list 1,000 objects per request. A look therefore takes few requests, and so does a look at all groups of a small
#: plan.
_ONE_GROUP = 1_000

#: Parts of the plan in memory, of at most 1,000 units each.
_PARTS_KEPT = 2

#: Length of `<xx>`.
_DIGITS = 2

T_co = TypeVar("T_co", covariant=True)


class Units(Protocol[T_co]):
    """Units by their place in the plan. Names need no request; the content of a unit is read on access."""

    def __len__(self) -> int: ...

    def name(self, place: int) -> str:
        """Return the id in the keys of the unit's marker and lease."""

    def __getitem__(self, place: int) -> T_co: ...


class PlannedUnits:
    """Stored plan of all generations, or of those `among`, with only the parts in use in memory.

    `generations` are the included generations. Later generations are not included.

    Raises:
        StageMissing: there is no plan.
    """

    def __init__(self, workspace: Workspace, among: Sequence[Generation] | None = None) -> None:
        self.generations = tuple(planned_generations(workspace) if among is None else among)
        self._workspace = workspace
        self._first: dict[int, int] = {}  # place of each generation's first unit
        self._parts: list[tuple[Generation, int]] = []  # a generation with this part alone, and its first unit's index
        self._starts: list[int] = []
        self._kept: OrderedDict[int, Sequence[Unit]] = OrderedDict()
        start = 0
        for generation in self.generations:
            index = 0
            self._first[generation.number] = start
            for part in generation.parts:
                self._parts.append((replace(generation, parts=(part,)), index))
                self._starts.append(start)
                start, index = start + part.units, index + part.units
        self._length = start

    def __len__(self) -> int:
        return self._length

    def name(self, place: int) -> str:
        """Return the unit's id in the form of `generations.filled_generation`."""
        number = self._part_of(place)
        generation, index = self._parts[number]
        return f"{generation.number:04d}-{index + place - self._starts[number]:06d}"

    def without_marker(self, stage: str, key: str) -> list[int]:
        """Return the places of the units that a stage has not published. Only object names are read."""
        done = done_units(self._workspace, stage, key)
        return [place for place in range(self._length) if self.name(place) not in done]

    def place(self, unit: Unit) -> int:
        """Return the place of a unit of an included generation."""
        return self._first[unit.generation] + unit.index

    def __getitem__(self, place: int) -> Unit:
        number = self._part_of(place)
        if number not in self._kept:
            generation, _ = self._parts[number]
            part = generation.parts[0]
            units = list(units_of(self._workspace, generation))
            if len(units) != part.units:
                raise codec.damaged(f"{self._workspace.url}: {part.object}", f"it has {len(units)} units")
            self._kept[number] = units
            while len(self._kept) > _PARTS_KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(number)
        unit = self._kept[number][place - self._starts[number]]
        if unit.id != self.name(place):
            raise codec.damaged(f"{self._workspace.url}: the plan", f"{self.name(place)} is called {unit.id}")
        return unit

    def _part_of(self, place: int) -> int:
        if not 0 <= place < self._length:
            raise IndexError(place)
        return bisect_right(self._starts, place) - 1


class Groups:
    """Units grouped by the first zero, one, or two digits of their folder `<xx>`; larger plans use more digits."""

    def __init__(self, units: Units[object], stage: str, key: str, *, one: int = _ONE_GROUP) -> None:
        """Make 1 group for up to `one` units, 16 for up to 32 times as many, else 256."""
        digits = 0 if len(units) <= one else 1 if len(units) <= 32 * one else _DIGITS
        folder = f"{stage}/{key}/"
        self._units = units
        self._digits = digits
        self._folder = folder
        self._stage, self._key = stage, key
        names = [self.digits(number) for number in range(16**digits)]
        self.prefixes = [f"{folder}{name}/" if digits == _DIGITS else folder + name for name in names]
        #: Places of each group's units, ascending; four bytes per unit.
        self.members = [array("I") for _ in self.prefixes]
        for place in range(len(units)):
            self.members[self.of(place)].append(place)

    def digits(self, group: int) -> str:
        """Return the digits with which the folders of a group begin; empty for the only group."""
        return f"{group:0{self._digits}x}" if self._digits else ""

    def of(self, place: int) -> int:
        """Return the number of the unit's group."""
        marker = marker_key(self._stage, self._key, self._units.name(place))
        start = len(self._folder)
        return int(marker[start : start + self._digits] or "0", 16)


class PlannedItems:
    """Items of a plan. Memory holds twelve bytes per item, and all units of retries.

    Exhaust `read` before any other use.

    Raises:
        StageMissing: there is no plan.
    """

    def __init__(self, workspace: Workspace) -> None:
        self.units = PlannedUnits(workspace)
        self._workspace = workspace
        self._first = array("Q")  # place of the first unit
        self._count = array("I")
        self._newer: dict[int, tuple[Unit, ...]] = {}
        self._of_retry: defaultdict[int, list[int]] = defaultdict(list)

    def read(self) -> Iterator[Item]:
        """Yield all items in order, once. Reads the whole plan, one part at a time."""
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
        """Return the item's name in the keys of its marker and lease (`Item.name`)."""
        first = self.units.name(self._first[place])
        newer = self._newer.get(place)
        return item_name(first, newer[-1].generation if newer else int(first.partition("-")[0]))

    def __getitem__(self, place: int) -> Item:
        first = self._first[place]
        units = tuple(self.units[number] for number in range(first, first + self._count[place]))
        return Item(units[0].id, units, self._newer.get(place, ()))

    def units_of(self, place: int) -> int:
        """Return the number of units to publish before the item can be assembled."""
        return self._count[place] + len(self._newer.get(place, ()))

    def of_unit(self, unit: int) -> list[int]:
        """Return the places of the items with pages of the unit at this place of the plan."""
        if unit in self._of_retry:
            return self._of_retry[unit]
        return [bisect_right(self._first, unit) - 1]


_DONE = ".done"

#: A holder is alive if its lease appeared or changed since a look at most this number of beats ago. A lease is renewed
#: every 1 to 1.25 beats, and looks are about one beat apart.
_ALIVE = 2.5

#: Among many active workers, a worker that finds nothing free looks at a sample: 10 of 256 groups, 8 of 16. The worker
#: leaves if others hold `_MANY` units of the sample and all of these are alive. The other workers look at their own
#: random groups in the end, and the last ones look at all groups.
_SHARE = 25
_LEAST_SAMPLE = 8
_MANY = 4

#: Holders that are asked for at a time: a fleet may hold thousands of units.
_MOST_ASKED = 64
#: Seconds between two looks at the processes of holders on this machine: units are free when these have ended.
_PROCESSES = 5.0
#: Holders that messages name.
_MOST_NAMED = 4


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing is free. A held unit may become free after this number of seconds.

    `messages` name each holder once.
    """

    seconds: float
    messages: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Exhausted:
    """All units are finished or held by live workers, `held` of them. If not `exact`, a sample gave the estimate."""

    held: int
    exact: bool = True

    def __str__(self) -> str:
        """Return the message of a worker that leaves while others hold units."""
        about = "" if self.exact else "about "
        units = "unit is" if self.held == 1 else "units are"
        return f"{about}{self.held} {units} claimed by other workers; run the same command again if such a worker dies"


@dataclass(slots=True)
class _Seen:
    """Lease of another worker: time of the first look at its version, and of the look before, if any."""

    version: str
    since: float
    before: float | None
    not_before: float  # earliest time for an attempt to take it over
    holder: Holder | None = None  # if it was asked for


class UnitScanner:
    """Finds units step by step, without waiting. For one worker, not thread-safe.

    A worker starts at a free unit of a random place and continues in the plan's order, creating a lease for each unit.
    At a held or finished unit, it looks for another place. A look lists one group (`Groups`): markers and leases of
    hundreds of units in one request. A unit therefore costs few requests, and no worker lists the whole workspace while
    there is work.

    With `ready`, only places in it are claimed, and only places passed to `freshen` are searched.
    """

    def __init__(
        self,
        leases: Leases,
        units: Units[object],
        *,
        ready: Container[int] | None = None,
        randomness: random.Random | None = None,
    ) -> None:
        self._leases = leases
        self._units = units
        self._groups = Groups(units, leases.stage, leases.key)
        self._ready = ready
        self._random = randomness or random.Random()
        self._done = bytearray(len(units))
        self._taken = bytearray(len(units))  # by this worker, since the last look at the unit's group
        self._seen: dict[int, dict[int, _Seen]] = {}  # by group, then by place
        self._looked: dict[int, float] = {}  # time of the last look at each group
        self._settled: set[int] = set()  # groups without a free unit
        self._named: set[Holder] = set()
        all_groups = range(len(self._groups.members)) if ready is None else ()
        self._to_look = deque(self._random.sample(all_groups, len(all_groups)))
        self._pool: list[int] = []
        self._pool_time = 0.0
        self._place: int | None = None  # place of the last claimed unit
        self._again: float | None = None
        self._by_sample = False
        self._sample = max(len(self._groups.members) // _SHARE, _LEAST_SAMPLE)

    def step(self) -> int | Wait | Exhausted:
        """Return the place of a unit that this worker holds now, or what to do without one."""
        while not self._leases.closed:
            place = self._candidate()
            if place is not None:
                if self._take(place):
                    return place
            elif self._to_look and not self._sampled():
                self._look(self._to_look.popleft())
            else:
                end = self._nothing_free()
                if end is not None:
                    return end
        return Wait(0.0)

    def _sampled(self) -> bool:
        """Return whether the sample is sufficient. Always false with `ready`: other groups may then differ from it."""
        if self._ready is not None:
            return False
        return self._by_sample or (len(self._settled) >= self._sample and len(self._held()) >= _MANY)

    def freshen(self, places: Iterable[int]) -> None:
        """Note that these places are ready now, and look at their groups next."""
        groups = {self._groups.of(place) for place in places}
        self._settled -= groups
        self._to_look.extendleft(groups.difference(self._to_look))
        self._again = None

    def _candidate(self) -> int | None:
        if self._place is not None:
            after = self._place + 1
            if after < len(self._units):
                is_free = self._is_ready(after) and not self._was_ours(after)
                if is_free and after not in self._seen.get(self._groups.of(after), {}):
                    return after
            self._place = None
        if self._leases.clock() - self._pool_time > self._leases.options.beat:
            self._pool.clear()  # other workers have changed the group since
        while self._pool:
            place = self._pool.pop()
            if not self._was_ours(place):
                return place
        return None

    def _was_ours(self, place: int) -> bool:
        """Return whether the unit is finished, held here, or recently held here, and so published or taken."""
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
        self._place = None
        if outcome is Claim.HELD:
            if lease is not None:
                lease.holder = None  # another one, perhaps
            return False
        seen.pop(place, None)
        if outcome is Claim.DONE:
            self._done[place] = 1
            return False
        self._place, self._again, self._by_sample = place, None, False
        self._taken[place] = 1
        return True

    def _look(self, group: int) -> None:
        """List a group. Its free units, in random order, become the new pool."""
        began = self._leases.clock()
        done, versions = set[str](), dict[str, str]()
        for info in self._leases.store.list(self._groups.prefixes[group]):
            name = info.key.rpartition("/")[2]
            if name.endswith(_DONE):
                done.add(name.removesuffix(_DONE))
            elif name.endswith(LEASE):
                versions[name.removesuffix(LEASE)] = info.version
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
                lease, version = before.get(place), versions[unit]
                if lease is None or lease.version != version:
                    holder = lease.holder if lease is not None else None  # it has probably renewed the lease
                    lease = _Seen(version, ended, last, ended + self._leases.options.seconds, holder)
                seen[place] = lease
                if began >= lease.not_before:
                    free.append(place)
        self._seen[group], self._looked[group] = seen, began
        self._random.shuffle(free)
        self._pool, self._pool_time = free, began
        if free:
            self._to_look.append(group)
            self._settled.discard(group)
        else:
            self._settled.add(group)

    def _held(self) -> list[_Seen]:
        """Return the leases of other workers in the groups without free units."""
        return [lease for group in self._settled for lease in self._seen[group].values()]

    def _nothing_free(self) -> Wait | Exhausted | None:
        """Return the action if all groups, or a sample of them, have nothing free; None to continue looking."""
        now, options = self._leases.clock(), self._leases.options
        if self._found_orphans(now):
            return None
        if self._again is not None:
            if now < self._again:
                return Wait(self._pause(self._again - now))
            self._again = None
            for group in list(self._settled):  # look at the groups with silent leases
                if not all(self._alive(lease, now) for lease in self._seen[group].values()):
                    self._look(group)
                    if self._pool:
                        return None
        silent = [lease for lease in self._held() if not self._alive(lease, now)]
        if not silent:
            if not self._to_look:
                return Exhausted(len(self._held()))
            groups = len(self._groups.members)
            return Exhausted(round(len(self._held()) * groups / max(len(self._settled), 1)), exact=False)
        left = _MOST_ASKED  # ask who holds silent leases: units are free if their process has ended
        for place, lease in (entry for group in self._settled for entry in self._seen[group].items()):
            if lease.holder or not left or self._alive(lease, now):
                continue
            left -= 1
            lease.holder = self._leases.holder(self._units.name(place)) or Holder()
        if self._found_orphans(now):
            return None
        soonest = min(lease.not_before for lease in silent) - now
        shift = self._random.uniform(0.8, 1.2)  # so that workers do not all look at once
        pause = shift * min(options.beat, soonest + 0.25 * options.beat)
        self._again, self._by_sample = now + pause, bool(self._to_look)
        held: defaultdict[Holder, list[float]] = defaultdict(list)  # seconds until each of the holder's units is free
        for lease in silent:
            if lease.holder and lease.holder.worker and lease.holder not in self._named:
                held[lease.holder].append(lease.not_before - now)
        messages: list[str] = []
        for holder, seconds in list(held.items())[: _MOST_NAMED - len(self._named)]:
            self._named.add(holder)
            units = "unit is" if len(seconds) == 1 else "units are"
            messages.append(
                f"{len(seconds)} {units} held by {holder}, free in {max(0, min(seconds)):.0f} s unless it goes on"
            )
        return Wait(self._pause(pause), tuple(messages))

    def _holders(self) -> set[Holder]:
        """Return the known holders of units in the groups without free units."""
        return {lease.holder for lease in self._held() if lease.holder is not None}

    def _found_orphans(self, now: float) -> bool:
        """Return whether known holders on this machine have ended. Their units become the new pool."""
        gone = {holder for holder in self._holders() if holder.is_gone}
        if gone:
            seen = (entry for group in self._settled for entry in self._seen[group].items())
            self._pool, self._pool_time = [place for place, lease in seen if lease.holder in gone], now
        return bool(gone)

    def _pause(self, seconds: float) -> float:
        """Return the seconds until the next look: at the store, or at processes of this machine."""
        return min(seconds, _PROCESSES) if any(holder.is_here for holder in self._holders()) else seconds

    def _alive(self, lease: _Seen, now: float) -> bool:
        return lease.before is not None and now - lease.before <= _ALIVE * self._leases.options.beat
