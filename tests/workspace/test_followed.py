"""A worker that follows the stage before: what it takes, when it leaves, what its waiting costs."""

import itertools
import random

import pytest
from leasing import BEAT, KEY, SECONDS, STAGE, done, leases_left, named, publish, worker

from llm_ocr.scheduling.follow import Pauses, Published, ReadyItems, followed
from llm_ocr.scheduling.leases import Claim
from llm_ocr.scheduling.scanner import Groups, PlannedItems, UnitScanner
from llm_ocr.scheduling.shards import WHOLE, Sharded
from llm_ocr.workspace import Workspace
from llm_ocr.workspace.generations import read_units
from llm_ocr.workspace.keys import EXTRACT
from llm_ocr.workspace.publish import marker_key, settle
from tests.fakes.memory_store import MemoryStore
from tests.fakes.planning import plan_documents

BEFORE, ITS_KEY = "extract-before", "ba9876543210"


@pytest.fixture
def store():
    return MemoryStore()


class Follower:
    """A worker that follows; `run` is told what happens at each of its pauses."""

    def __init__(self, store, units, clock, *, shard=None, seed=0):
        self.store, self.units, self.clock = store, units, clock
        self.said, self.pauses, self.taken = [], [], []
        self.leases = None if shard else worker(store, clock, str(seed))
        self.ready = Published(store, units, BEFORE, ITS_KEY, randomness=random.Random(seed))
        if shard:
            self.taking = Sharded(Workspace(store, {}), STAGE, KEY, units, shard, set())
        else:
            self.taking = UnitScanner(self.leases, units, ready=self.ready, randomness=random.Random(seed))

    def run(self, meanwhile=lambda pauses: False, grown=lambda: False):
        def wait(seconds):
            self.pauses.append(seconds)
            self.clock.advance(seconds)
            return meanwhile(len(self.pauses))

        pauses = Pauses(self.said.append, clock=self.clock)
        places = followed(self.taking, self.ready, pauses, wait, grown)
        while True:
            try:
                place = next(places)
            except StopIteration as end:
                return end.value
            name = self.units.name(place)
            self.taken.append(name)
            assert before_is_done(self.store, name)
            publish(self.store, name, "1")
            if self.leases:
                self.leases.release(name)


def extracted(store, units, places):
    for place in places:
        settle(store, marker_key(BEFORE, ITS_KEY, units.name(place)), b"1")


def before_is_done(store, name):
    return store.stat(marker_key(BEFORE, ITS_KEY, name)) is not None


@pytest.mark.parametrize("shard", [None, WHOLE], ids=["leases", "alone"])
@pytest.mark.parametrize("count", [7, 2500])
def test_followers_process_units_as_they_are_published(store, clock, shard, count):
    units = named(count)
    extracted(store, units, range(0, count, 3))

    def meanwhile(pauses):
        extracted(store, units, range(pauses % 3, count, 3))

    follower = Follower(store, units, clock, shard=shard)
    assert follower.run(meanwhile) == 0
    assert sorted(follower.taken) == [units.name(place) for place in range(count)]
    assert follower.said[0].startswith(f"waiting for {count - len(range(0, count, 3))} of {count} units of {BEFORE}")
    assert len(follower.said) == 1
    assert leases_left(store) == []


def test_units_of_an_earlier_run_are_not_repeated(store, clock):
    units = named(40)
    extracted(store, units, range(40))
    for place in range(0, 40, 2):
        publish(store, units.name(place), "earlier")
    follower = Follower(store, units, clock)
    follower.run()
    assert sorted(follower.taken) == [units.name(place) for place in range(1, 40, 2)]


def test_waiting_costs_few_requests_and_rounds_become_rare(store, clock):
    units = named(40_000)  # 256 groups
    follower = Follower(store, units, clock)
    calls = store.calls.total()
    follower.run(lambda pauses: pauses == 200)
    assert follower.pauses[:3] == [2.0, 3.0, 4.5]
    assert set(follower.pauses[10:]) == {30.0}
    assert (store.calls.total() - calls) / 200 <= 8


def test_completely_published_groups_are_not_listed_again(store, clock):
    units = named(2000)
    extracted(store, units, range(1, 2000))
    follower = Follower(store, units, clock)
    listings = []

    def meanwhile(pauses):
        listings.append(store.calls["list"])
        return pauses == 10

    follower.run(meanwhile)
    assert len(follower.taken) == 1999
    assert all(after - before == 1 for before, after in itertools.pairwise(listings))


def test_waiting_for_the_preceding_stage_is_reported_rarely(store, clock):
    units = named(5)
    extracted(store, units, [0, 1])
    follower = Follower(store, units, clock)
    follower.run(lambda pauses: clock() > 1200)
    assert follower.said[0] == f"waiting for 3 of 5 units of {BEFORE}"
    assert follower.said[1] == f"waiting for 3 of 5 units of {BEFORE} (none published for 5 min)"
    assert len(follower.said) == 4


def test_units_of_dead_workers_are_taken_over_while_following(store, clock):
    units = named(30)
    extracted(store, units, range(10))
    dead = worker(store, clock, "dead")
    assert dead.claim(units.name(3)) is Claim.OURS

    def meanwhile(pauses):
        extracted(store, units, [min(9 + pauses, 29)])

    follower = Follower(store, units, clock, seed=1)
    assert follower.run(meanwhile) == 0
    assert sorted(follower.taken) == [units.name(place) for place in range(30)]
    assert follower.leases.stolen == 1
    assert clock() > SECONDS


def test_followers_leave_units_held_by_live_workers(store, clock):
    units = named(6)
    extracted(store, units, range(6))
    other = worker(store, clock, "other")
    other.claim(units.name(2))

    def meanwhile(pauses):
        other.beat()

    follower = Follower(store, units, clock)
    follower.run(meanwhile)
    assert len(follower.taken) == 5
    assert "1 unit is claimed by other workers" in follower.said[-1]
    assert max(follower.pauses) <= BEAT * 1.5


def test_late_units_are_found_while_others_hold_many(store, clock):
    units = named(2000)
    groups = Groups(units, STAGE, KEY).members
    other = worker(store, clock, "other")
    for group in groups[:10]:
        other.claim(units.name(group[0]))
        extracted(store, units, group)

    def meanwhile(pauses):
        other.beat()
        for group in groups[10:]:
            extracted(store, units, group)

    follower = Follower(store, units, clock)
    follower.run(meanwhile)
    assert len(follower.taken) == 1990
    assert "10 units are claimed by other workers" in follower.said[-1]


def test_two_followers_do_each_unit_once(store, clock):
    units = named(300)
    one, two = Follower(store, units, clock, seed=1), Follower(store, units, clock, seed=2)

    def meanwhile(pauses):
        extracted(store, units, range(50 * pauses, 50 * (pauses + 1)))
        if pauses == 3:
            two.run(lambda pauses: True)  # it is stopped when it would wait
        return False

    extracted(store, units, range(50))
    one.run(meanwhile)
    assert two.taken
    assert sorted(one.taken + two.taken) == [units.name(place) for place in range(300)]
    assert done(store) == set(one.taken + two.taken)


def test_a_grown_plan_is_reported_when_no_work_remains(store, clock):
    units = named(4)
    extracted(store, units, [0])
    follower = Follower(store, units, clock)
    assert follower.run(grown=lambda: True) is None
    assert follower.taken == [units.name(0)]


def test_an_item_is_ready_when_all_its_units_are_published(made, workspace):
    plan_documents(workspace, [made.document("long", 10), made.document("short", 2)], pages_per_unit=4)
    units = list(read_units(workspace))
    items = PlannedItems(workspace)
    names = [item.name for item in items.read()]
    assert [items.name(place) for place in range(len(items))] == names == ["0001-000000.0001", "0001-000003.0001"]
    ready = ReadyItems(items, Published(workspace.store, items.units, EXTRACT, made.key(workspace)))
    for unit in units[:2]:
        made.extract(workspace, unit)
        assert ready.look() == []
    made.extract(workspace, units[2])
    assert ready.look() == [0]
    assert 0 in ready
    assert 1 not in ready
    assert (ready.missing, ready.total) == (1, 4)
    made.extract(workspace, units[3])
    assert ready.look() == [1]
    assert items[0].unit_ids == tuple(unit.id for unit in units[:3])
