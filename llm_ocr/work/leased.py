"""Units one by one for a worker that shares them with others: the search for one that is free, and when to leave.

A worker begins at a free unit of a random place and goes on from there in the plan's order, taking each unit by
creating its lease, until it meets one that is held or done; then it looks for another place. A look lists one group of
units (see `work.lease_groups`): markers and leases of hundreds of units by one request. So a unit costs few requests,
and nobody has to list the whole workspace as long as there is work.
"""

import random
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from llm_ocr.work.lease_groups import Groups, Units
from llm_ocr.work.leases import LEASE, Claim, Leases

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
class Found:
    """A unit that is ours now."""

    place: int


@dataclass(frozen=True, slots=True)
class Pause:
    """Nothing is free; a held one may be, after so many seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Over:
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
    search = Search(leases, units, randomness=randomness)
    while not leases.closed:
        step = search.step()
        if isinstance(step, Found):
            yield units[step.place]
        elif isinstance(step, Pause):
            leases.wait(step.seconds)
        else:
            if step.held:
                say(told(step))
            return


def told(over: Over) -> str:
    """What a worker says that leaves while others hold units."""
    about = "" if over.exact else "about "
    units = "unit is" if over.held == 1 else "units are"
    return f"{about}{over.held} {units} in the hands of other workers; run the same command again if one of them dies"


class Search:
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

    def step(self) -> Found | Pause | Over:
        """The next thing to do."""
        while not self._leases.closed:
            place = self._candidate()
            if place is not None:
                if self._take(place):
                    return Found(place)
            elif self._to_look and not self._sampled():
                self._look(self._to_look.popleft())
            else:
                end = self._nothing_free()
                if end is not None:
                    return end
        return Pause(0.0)

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

    def _nothing_free(self) -> Pause | Over | None:
        """What follows when all groups, or a sample of them, have nothing free; None to go on looking."""
        now, options = self._leases.clock(), self._leases.options
        if self._again is not None:
            if now < self._again:
                return Pause(self._again - now)
            self._again = None
            if self._look_again(now):
                return None
        silent = [lease for lease in self._held() if not self._alive(lease, now)]
        if not silent:
            if not self._to_look:
                return Over(len(self._held()))
            groups = len(self._groups.members)
            return Over(round(len(self._held()) * groups / max(len(self._settled), 1)), exact=False)
        soonest = min(lease.not_before for lease in silent) - now
        shift = self._random.uniform(0.8, 1.2)  # not all at once
        pause = shift * min(options.beat, soonest + 0.25 * options.beat)
        self._again, self._by_sample = now + pause, bool(self._to_look)
        return Pause(pause)

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
