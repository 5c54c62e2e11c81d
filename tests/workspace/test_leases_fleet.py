"""Workers that come, die and freeze at random, and the plan that they share."""

import random
from collections import Counter
from dataclasses import dataclass, field

import pytest
from leasing import KEY, SECONDS, STAGE, Clock, done, named, publish, search

from llm_ocr.errors import StageMissing
from llm_ocr.scheduling.leases import Leases, lease_key
from llm_ocr.scheduling.scanner import Claimed, Groups, PlannedUnits, UnitScanner
from llm_ocr.workspace import generations
from llm_ocr.workspace.generations import read_units
from tests.fakes.memory_store import MemoryStore


class Fleet:
    """Workers on one virtual clock: they come, work, are killed or frozen for a while, and publish what they did."""

    def __init__(self, seed):
        self.chance, self.clock = random.Random(seed), Clock()
        self.units, self.store = named(100), MemoryStore()
        self.alive, self.published = [], Counter()
        self.attempts = self.twice = 0

    def come(self):
        if len(self.alive) < 8:
            self.alive.append(Member(*search(self.store, self.clock, self.units, self.chance.random())))

    def awake(self):
        awake = [member for member in self.alive if member.until <= self.clock()]
        return self.chance.choice(awake) if awake else None

    def die(self, member):
        self.alive.remove(member)

    def freeze(self, member):
        member.until = self.clock() + self.chance.uniform(0, 4 * SECONDS)

    def beat(self, member):
        member.leases.beat()

    def take(self, member):
        if len(member.units) < 3 and isinstance(step := member.searching.step(), Claimed):
            member.units.append(self.units.name(step.place))

    def finish(self, member):
        if not member.units:
            return
        unit, self.attempts = member.units.pop(0), self.attempts + 1
        if member.leases.holds(unit):
            won = publish(self.store, unit, str(self.attempts))
            self.published[unit] += won
            self.twice += not won
            member.leases.release(unit)

    def step(self):
        self.clock.advance(self.chance.expovariate(1.0))
        member = self.awake()
        if member is None:
            self.come()
            self.clock.advance(1.0)
            return
        doings = [lambda _: self.come(), self.die, self.freeze, self.beat, self.take, self.finish]
        (do,) = self.chance.choices(doings, (2, 1, 4, 60, 20, 20))
        do(member)


@dataclass(eq=False)
class Member:
    leases: Leases
    searching: UnitScanner
    units: list[str] = field(default_factory=list)
    until: float = 0.0


def test_workers_that_come_die_and_freeze_lose_nothing_and_publish_nothing_twice():
    twice = 0
    for seed in range(8):
        fleet = Fleet(seed)
        while len(fleet.published) < len(fleet.units):
            fleet.step()
        assert fleet.published == Counter({fleet.units.name(place): 1 for place in range(100)})
        assert done(fleet.store) == set(fleet.published)
        twice += fleet.twice
    assert twice > 0  # units that two had in hand, one of them a zombie: only one attempt counted


def test_the_plan_is_read_where_it_is_worked_on(made, workspace, monkeypatch):
    monkeypatch.setattr(generations, "_UNITS_A_PART", 3)
    made.plan(workspace, [made.document(f"a{number}", 4) for number in range(10)])
    made.plan(workspace, [made.document(f"b{number}", 4) for number in range(5)])
    units, expected = PlannedUnits(workspace), list(read_units(workspace))
    assert len(units) == len(expected) == 15
    assert [units.name(place) for place in range(15)] == [unit.id for unit in expected]
    assert [units[place] for place in (14, 0, 7, 8, 3)] == [expected[place] for place in (14, 0, 7, 8, 3)]
    with pytest.raises(IndexError):
        units[15]


def test_without_a_plan_there_is_nothing_to_share(workspace):
    with pytest.raises(StageMissing):
        PlannedUnits(workspace)


@pytest.mark.parametrize(("count", "groups"), [(0, 1), (1000, 1), (1001, 16), (32_001, 256)])
def test_each_unit_is_in_the_one_group_whose_listing_shows_it(count, groups):
    units = named(count)
    made = Groups(units, STAGE, KEY)
    assert len(made.prefixes) == groups
    places = [place for members in made.members for place in members]
    assert sorted(places) == list(range(count))
    for place in range(0, count, 997):
        found = [prefix for prefix in made.prefixes if lease_key(STAGE, KEY, units.name(place)).startswith(prefix)]
        assert found == [made.prefixes[made.of(place)]]
