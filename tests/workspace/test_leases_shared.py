"""Many workers on one plan: every unit is done, none twice unless its holder fell silent, and few requests are made."""

import contextlib
import json
import os
import random
import shutil
import subprocess
import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest
from leasing import BEAT, KEY, SECONDS, STAGE, Clock, done, leased, leases_left, named, publish, search, worker

from llm_ocr.scheduling.leases import Holder, Leases, lease_key
from llm_ocr.scheduling.scanner import Exhausted, Groups, PlannedUnits, UnitScanner, Wait
from llm_ocr.storage import open_store
from llm_ocr.workspace import generations
from llm_ocr.workspace.generations import read_units
from tests.fakes.memory_store import Fault, MemoryStore


class Brisk(Leases):
    """Its pauses take as long as its clock says, in which ten seconds are 100 ms."""

    def wait(self, seconds):
        super().wait(seconds / 100)


def all_found(searching, leases, store, units):
    """Does all that is found, until nothing is free; the places, and the step that ended it."""
    places = []
    while isinstance(step := searching.step(), int):
        places.append(step)
        assert publish(store, units.name(step), "1")
        leases.release(units.name(step))
    return places, step


def work(store, units, leases, taken, seed):
    with leases:
        for unit in leased(leases, units, seed):
            taken[unit] += 1
            if leases.holds(unit):
                publish(store, unit, str(seed))
                leases.release(unit)


def test_a_single_worker_needs_few_requests_per_unit(clock):
    store, units = MemoryStore(), named(2500)
    leases, searching = search(store, clock, units)
    places, step = all_found(searching, leases, store, units)
    assert step == Exhausted(0)
    assert sorted(places) == list(range(2500))
    assert done(store) == {units.name(place) for place in places}
    assert leases_left(store) == []
    assert store.calls.total() / 2500 < 4.2
    assert store.calls["list"] < 100


def test_workers_start_at_different_places_and_follow_the_plan(clock):
    units = named(5000)
    begins = set()
    for seed in range(10):
        _, searching = search(MemoryStore(), clock, units, seed)
        places = [searching.step() for _ in range(5)]
        assert places == list(range(places[0], places[0] + 5))
        begins.add(places[0])
    assert len(begins) == 10


@pytest.fixture
def ticking(clock):
    """The clock goes on by itself, 100 times as fast as real ones."""
    finished = threading.Event()

    def tick():
        while not finished.wait(0.01):
            clock.advance(1.0)

    thread = threading.Thread(target=tick)
    thread.start()
    yield clock
    finished.set()
    thread.join()


@pytest.mark.parametrize("faults", [0.0, 0.02])
def test_24_workers_process_200_units_once_each(ticking, faults):
    units = named(200)
    chance = random.Random(5)
    lock = threading.Lock()

    def fault(name, key):
        """Answers that are lost: what was asked for has happened all the same."""
        with lock:
            lost = name in ("create", "swap", "delete") and chance.random() < faults
        return Fault.AFTER if lost else None

    store, taken, start = MemoryStore(fault), Counter(), threading.Barrier(24)
    workers = [worker(store, ticking, str(seed), kind=Brisk) for seed in range(24)]

    def one(seed):
        start.wait()
        work(store, units, workers[seed], taken, seed)

    with ThreadPoolExecutor(24) as threads:
        list(threads.map(one, range(24)))
    assert done(store) == {units.name(place) for place in range(200)}
    assert taken.total() == 200 + sum(one.stolen for one in workers)
    assert leases_left(store) == []


def test_workers_share_a_folder(ticking, tmp_path):
    store, units, taken = open_store(str(tmp_path / "store")), named(40), Counter()
    workers = [worker(store, ticking, str(seed), kind=Brisk) for seed in range(4)]
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda seed: work(store, units, workers[seed], taken, seed), range(4)))
    assert done(store) == {units.name(place) for place in range(40)}
    assert taken.total() == 40 + sum(one.stolen for one in workers)
    assert leases_left(store) == []


def test_units_of_dead_workers_are_processed_in_the_same_run(clock):
    store, units = MemoryStore(), named(60)
    dead, dying = search(store, clock, units, 1)
    held = {dying.step() for _ in range(5)}
    leases, searching = search(store, clock, units, 2)
    places, step = all_found(searching, leases, store, units)
    assert sorted({*places, *held}) == list(range(60))
    waited = 0.0
    while isinstance(step, Wait):
        assert step.seconds <= 1.25 * BEAT
        waited += step.seconds
        clock.advance(step.seconds)
        more, step = all_found(searching, leases, store, units)
        places += more
    assert SECONDS <= waited <= SECONDS + 2 * BEAT
    assert (sorted(places), step) == (list(range(60)), Exhausted(0))
    assert leases.stolen == 5
    dead.beat()
    assert dead.lost == 5


def test_a_lease_since_an_old_look_is_no_sign_of_life(clock):
    store, units = MemoryStore(), named(2)
    leases, searching = search(store, clock, units, 1)
    place = searching.step()
    _, dying = search(store, clock, units, 2)
    assert dying.step() == 1 - place
    for _ in range(4):
        clock.advance(BEAT)
        leases.beat()
    publish(store, units.name(place), "1")
    leases.release(units.name(place))
    waited = 0.0
    while isinstance(step := searching.step(), Wait):
        waited += step.seconds
        clock.advance(step.seconds)
    assert step == 1 - place
    assert waited >= SECONDS


def test_a_dead_fleet_is_not_taken_for_a_live_one(clock):
    store, units = MemoryStore(), named(3_300)
    for place in range(3_300):
        if place % 10:
            publish(store, units.name(place), "1")
    fleet, dying = search(store, clock, units, 1)
    while isinstance(dying.step(), int):
        pass
    leases, searching = search(store, clock, units, 2)
    places, step = all_found(searching, leases, store, units)
    while isinstance(step, Wait):
        clock.advance(step.seconds)
        more, step = all_found(searching, leases, store, units)
        places += more
    assert (sorted(places), step) == (list(range(0, 3_300, 10)), Exhausted(0))
    assert leases.stolen == 330
    fleet.close()
    assert leases_left(store) == []


def test_worker_leaves_and_gives_count_when_others_hold_all(clock):
    store, units = MemoryStore(), named(10)
    holder, holding = search(store, clock, units, 1)
    while isinstance(holding.step(), int):
        pass

    class Watching(Leases):
        def wait(self, seconds):
            clock.advance(seconds)
            holder.beat()

    said = []
    leases = worker(store, clock, kind=Watching)
    assert list(leased(leases, units, say=said.append)) == []
    assert said[0].startswith("10 units are held by worker 1 on ")
    assert said[0].endswith(f"(process {os.getpid()}), free in 100 s unless it goes on")
    assert [line.partition(";")[0] for line in said[1:]] == ["10 units are claimed by other workers"]
    assert clock() <= 3 * BEAT


KILLED = """
import sys, time
from llm_ocr.scheduling.leases import LeaseOptions, Leases
from llm_ocr.storage import open_store
leases = Leases(open_store(sys.argv[1]), sys.argv[2], sys.argv[3], LeaseOptions(100.0, "killed"))
for unit in sys.argv[4:]:
    leases.claim(unit)
print("held", flush=True)
time.sleep(600)
"""


@contextlib.contextmanager
def two_held(url, units):
    """Run a worker that holds the first two units."""
    command = [sys.executable, "-c", KILLED, url, STAGE, KEY, *units.names[:2]]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout.readline() == b"held\n"
            yield
        finally:
            process.kill()


@pytest.fixture(scope="module")
def left(tmp_path_factory):
    """Return the folder of a store with three units, of which a worker that was killed held two."""
    folder = tmp_path_factory.mktemp("killed") / "store"
    with two_held(str(folder), named(3)):
        pass
    return folder


@pytest.fixture
def killed(left, tmp_path):
    """Return a copy of that store, and its units."""
    shutil.copytree(left, tmp_path / "store")
    return open_store(str(tmp_path / "store")), named(3)


def test_units_of_a_process_killed_during_the_wait_are_taken(tmp_path, clock):
    store, units = open_store(str(tmp_path)), named(3)
    with two_held(str(tmp_path), units):
        leases, searching = search(store, clock, units)
        places, step = all_found(searching, leases, store, units)
        assert (places, step.seconds, searching.step()) == ([2], 5.0, Wait(5.0))
    clock.advance(step.seconds)
    places, step = all_found(searching, leases, store, units)
    assert (sorted(places), step, leases.stolen) == ([0, 1], Exhausted(0), 2)


def test_units_of_a_killed_process_are_taken_at_once(killed, clock):
    store, units = killed
    leases, searching = search(store, clock, units)
    places, step = all_found(searching, leases, store, units)
    assert (sorted(places), step) == ([0, 1, 2], Exhausted(0))
    assert (clock(), leases.stolen, leases_left(store)) == (0.0, 2, [])


@pytest.mark.parametrize(
    "other", [{"place": "other"}, {"place": ""}, {"started": ""}, {"pid": os.getpid(), "same": True}]
)
def test_units_of_other_processes_are_taken_only_when_silent(killed, clock, other):
    store, units = killed
    own = Leases(MemoryStore(), STAGE, KEY, clock=clock)
    own.claim("u")
    mine = json.loads(own.store.get(lease_key(STAGE, KEY, "u")))
    for unit in units.names[:2]:
        key = lease_key(STAGE, KEY, unit)
        body = json.loads(store.get(key)) | other
        if body.pop("same", False):
            body |= {"started": mine["started"]}
        store.put(key, json.dumps(body).encode())
    leases, searching = search(store, clock, units)
    places, step = all_found(searching, leases, store, units)
    assert places == [2]
    assert isinstance(step, Wait)
    assert [message.partition(" on ")[0] for message in step.messages] == ["2 units are held by worker killed"]


@pytest.mark.parametrize(("answer", "gone"), [(None, False), (PermissionError(), False), (ProcessLookupError(), True)])
def test_live_process_that_proc_hides_keeps_its_lease(monkeypatch, answer, gone):
    def kill(pid, number):
        assert number == 0
        if answer:
            raise answer

    monkeypatch.setattr("llm_ocr.scheduling.leases._place", lambda: "here")
    monkeypatch.setattr("llm_ocr.scheduling.leases.os.kill", kill)
    holder = Holder("w", "host", 2**30, "here", "1")  # Linux has no ids as large
    assert holder.is_gone is gone


def test_leases_of_older_versions_are_read(clock):
    store, units = MemoryStore(), named(1)
    old = {"worker": "w", "nonce": "n", "beat": 0, "seconds": SECONDS}
    store.put(lease_key(STAGE, KEY, units.names[0]), json.dumps(old).encode())
    leases, searching = search(store, clock, units)
    places, step = all_found(searching, leases, store, units)
    assert (places, step.messages) == ([], ("1 unit is held by worker w, free in 100 s unless it goes on",))


def test_one_of_many_workers_leaves_without_checking_all_units(clock):
    store, units = MemoryStore(), named(33_000)
    others = worker(store, clock)
    for place in range(33_000):
        publish(store, units.name(place), "1") if place % 30 else others.claim(units.name(place))
    _, searching = search(store, clock, units)
    store.calls.clear()
    while not isinstance(step := searching.step(), Exhausted):
        clock.advance(step.seconds)
        before = store.calls["swap"]
        others.beat()
        store.calls["swap"] = before
    assert not step.exact
    assert step.held == pytest.approx(1100, rel=0.3)
    assert store.calls.total() < 80


def test_released_unit_is_taken_at_the_next_check(clock):
    store, units = MemoryStore(), named(3)
    first, stopping = search(store, clock, units, 1)
    stopping.step()
    leases, searching = search(store, clock, units, 2)
    places, step = all_found(searching, leases, store, units)
    assert (len(places), type(step)) == (2, Wait)
    first.close()
    while isinstance(step, Wait) and clock() < SECONDS:
        clock.advance(step.seconds)
        more, step = all_found(searching, leases, store, units)
        places += more
    assert sorted(places) == [0, 1, 2]
    assert clock() < SECONDS / 2


def test_a_waiting_worker_stops_on_request(clock):
    store, units = MemoryStore(), named(1)
    worker(store, clock).claim(units.name(0))
    leases = worker(store, clock)
    waits = threading.Event()

    def wait(seconds, inner=leases.wait):
        waits.set()
        inner(3600)

    leases.wait = wait
    with ThreadPoolExecutor(1) as threads:
        ends = threads.submit(list, leased(leases, units))
        waits.wait()
        leases.close()
        assert ends.result() == []


def test_a_finished_worker_sends_no_requests(clock):
    store = MemoryStore()
    leases, searching = search(store, clock, named(100))
    searching.step()
    leases.close()
    store.calls.clear()
    assert isinstance(searching.step(), Wait)
    assert not store.calls


def test_with_no_units_there_is_nothing_to_do(clock):
    assert search(MemoryStore(), clock, named(0))[1].step() == Exhausted(0)


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
        if len(member.units) < 3 and isinstance(step := member.searching.step(), int):
            member.units.append(self.units.name(step))

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


def test_changing_fleet_loses_no_unit_and_publishes_none_twice():
    twice = 0
    for seed in range(8):
        fleet = Fleet(seed)
        while len(fleet.published) < len(fleet.units):
            fleet.step()
        assert fleet.published == Counter({fleet.units.name(place): 1 for place in range(100)})
        assert done(fleet.store) == set(fleet.published)
        twice += fleet.twice
    assert twice > 0  # units that two had in hand, one of them a zombie: only one attempt counted


def test_only_the_parts_of_the_plan_in_use_are_read(made, workspace, monkeypatch):
    monkeypatch.setattr(generations, "_UNITS_A_PART", 3)
    made.plan(workspace, [made.document(f"a{number}", 4) for number in range(10)])
    made.plan(workspace, [made.document(f"b{number}", 4) for number in range(5)])
    units, expected = PlannedUnits(workspace), list(read_units(workspace))
    assert len(units) == len(expected) == 15
    assert [units.name(place) for place in range(15)] == [unit.id for unit in expected]
    assert [units[place] for place in (14, 0, 7, 8, 3)] == [expected[place] for place in (14, 0, 7, 8, 3)]
    with pytest.raises(IndexError):
        units[15]


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
