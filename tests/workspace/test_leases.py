"""A unit's lease: one holder, kept alive, taken over when its holder is silent, whatever clocks and answers do."""

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from leasing import BEAT, KEY, SECONDS, STAGE, Clock, done, leases_left, publish, worker

from llm_ocr.errors import ObjectChanged, ObjectExists, StorageError, UsageError
from llm_ocr.scheduling.leases import Claim, LeaseOptions, is_lease, lease_key
from llm_ocr.storage import open_store
from tests.fakes.memory_store import Fault, MemoryStore

UNIT = "0001-000007"
LEASE = lease_key(STAGE, KEY, UNIT)


@pytest.fixture(params=["memory", "local"])
def store(request, tmp_path):
    return MemoryStore() if request.param == "memory" else open_store(str(tmp_path / "store"))


def version(store):
    return store.stat(LEASE).version


def silent(store, clock, seconds=SECONDS):
    """The lease's version, after so many seconds without a change."""
    seen = version(store)
    clock.advance(seconds)
    return seen


def failing(store, name, fault, times=1):
    left = [times]

    def fails(called, key):
        if called != name or not left[0]:
            return None
        left[0] -= 1
        return fault

    store.fault = fails


def test_of_many_claimers_one_gets_the_unit(store, clock):
    workers = [worker(store, clock, str(number)) for number in range(24)]
    start = threading.Barrier(len(workers))

    def claim(one):
        start.wait()
        return one.claim(UNIT)

    with ThreadPoolExecutor(len(workers)) as threads:
        outcomes = list(threads.map(claim, workers))
    assert sorted(outcome.value for outcome in outcomes) == ["held"] * 23 + ["ours"]
    assert [one.holds(UNIT) for one in workers].count(True) == 1


def test_the_lease_is_next_to_the_marker_and_names_its_worker(clock):
    store = MemoryStore()
    worker(store, clock, "host-1").claim(UNIT)
    (info,) = store.list()
    assert info.key == LEASE == f"{STAGE}/{KEY}/{LEASE.split('/')[2]}/{UNIT}.lease"
    assert is_lease(info.key)
    assert not is_lease(f"{LEASE}/1.parquet")
    body = json.loads(store.get(LEASE))
    assert (body["worker"], body["beat"], body["seconds"]) == ("host-1", 0, SECONDS)


def test_done_unit_is_not_claimed_and_its_lease_is_removed(store, clock):
    publish(store, UNIT, "1")
    assert worker(store, clock).claim(UNIT) is Claim.DONE
    assert leases_left(store) == []


def test_a_unit_is_free_again_when_its_holder_stops(store, clock):
    first, second = worker(store, clock), worker(store, clock)
    first.claim(UNIT)
    first.close()
    assert not first.holds(UNIT)
    assert second.claim(UNIT) is Claim.OURS
    assert first.claim("0001-000008") is Claim.HELD  # it has stopped
    assert leases_left(store) == [LEASE]


def test_silent_worker_loses_its_unit_only_after_its_time(store, clock):
    zombie, thief = worker(store, clock), worker(store, clock)
    zombie.claim(UNIT)
    assert thief.steal(UNIT, version(store), SECONDS - 1) is Claim.HELD
    assert thief.steal(UNIT, silent(store, clock), SECONDS) is Claim.OURS
    assert (thief.stolen, thief.holds(UNIT)) == (1, True)


def test_zombie_detects_its_lost_unit_and_keeps_the_new_lease(store, clock):
    zombie, thief = worker(store, clock), worker(store, clock)
    zombie.claim(UNIT)
    thief.steal(UNIT, silent(store, clock), SECONDS)
    stolen = version(store)
    zombie.beat()
    assert not zombie.holds(UNIT)
    assert zombie.lost == 1
    zombie.release(UNIT)
    zombie.close()
    assert version(store) == stolen
    clock.advance(BEAT)
    thief.beat()
    assert thief.holds(UNIT)


def test_a_worker_unaware_of_its_loss_does_not_publish_twice(store, clock):
    zombie, thief = worker(store, clock), worker(store, clock)
    zombie.claim(UNIT)
    thief.steal(UNIT, silent(store, clock), SECONDS)
    assert zombie.holds(UNIT)  # no beat since
    assert publish(store, UNIT, "zombie")
    zombie.release(UNIT)
    assert worker(store, clock).claim(UNIT) is Claim.DONE
    assert not publish(store, UNIT, "thief")
    clock.advance(BEAT)
    thief.beat()
    thief.close()
    assert leases_left(store) == []
    assert done(store) == {UNIT}


def test_stopping_worker_does_not_remove_a_new_holders_lease(store, clock):
    zombie, thief = worker(store, clock), worker(store, clock)
    zombie.claim(UNIT)
    thief.steal(UNIT, silent(store, clock), SECONDS)
    zombie.close()
    assert leases_left(store) == [LEASE]


def test_beats_keep_a_lease_alive(store, clock):
    holder, other = worker(store, clock), worker(store, clock)
    holder.claim(UNIT)
    for _ in range(12):
        seen = silent(store, clock, BEAT)
        holder.beat()
        assert other.steal(UNIT, seen, SECONDS) is Claim.HELD
    assert holder.holds(UNIT)


def test_a_beat_is_written_only_when_it_is_due(clock):
    store = MemoryStore()
    holder = worker(store, clock)
    holder.claim(UNIT)
    for _ in range(100):
        clock.advance(BEAT / 10)
        holder.beat()
    assert store.calls["swap"] == pytest.approx(10, abs=1)


@pytest.mark.parametrize(("start", "rate"), [(1e9, 1.0), (-1e9, 1.0), (0.0, 1.2), (0.0, 0.8)])
def test_clocks_of_different_machines_are_not_compared(start, rate):
    store, here, there = MemoryStore(), Clock(), Clock(start, rate)
    holder, other = worker(store, there), worker(store, here)
    holder.claim(UNIT)
    seen, since = version(store), here()
    for _ in range(60):
        here.advance(BEAT / 3)
        there.advance(BEAT / 3)
        holder.beat()
        if version(store) != seen:
            seen, since = version(store), here()
        assert here() - since < SECONDS
        assert other.steal(UNIT, seen, here() - since) is Claim.HELD
    assert holder.holds(UNIT)


def test_of_many_thieves_one_gets_the_unit(store, clock):
    worker(store, clock).claim(UNIT)
    seen = silent(store, clock)
    thieves = [worker(store, clock) for _ in range(12)]
    start = threading.Barrier(len(thieves))

    def steal(one):
        start.wait()
        return one.steal(UNIT, seen, SECONDS)

    with ThreadPoolExecutor(len(thieves)) as threads:
        outcomes = list(threads.map(steal, thieves))
    assert outcomes.count(Claim.OURS) == 1
    assert sum(thief.stolen for thief in thieves) == 1


def test_a_longer_lease_is_not_taken_earlier(store, clock):
    worker(store, clock, seconds=10 * SECONDS).claim(UNIT)
    thief = worker(store, clock)
    assert thief.steal(UNIT, version(store), 9 * SECONDS) is Claim.HELD
    assert thief.steal(UNIT, version(store), 10 * SECONDS) is Claim.OURS


def test_an_unreadable_lease_expires_like_any_other(store, clock):
    store.create(LEASE, b"\0 not JSON")
    thief = worker(store, clock)
    assert thief.claim(UNIT) is Claim.HELD
    assert thief.steal(UNIT, version(store), SECONDS) is Claim.OURS


def test_a_claim_with_a_lost_response_is_recognized(clock):
    store = MemoryStore()
    failing(store, "create", Fault.AFTER)
    assert worker(store, clock).claim(UNIT) is Claim.OURS
    assert worker(store, clock).claim(UNIT) is Claim.HELD


def test_a_claim_that_was_not_written_is_an_error(clock):
    store = MemoryStore()
    failing(store, "create", Fault.BEFORE)
    holder = worker(store, clock)
    with pytest.raises(StorageError):
        holder.claim(UNIT)
    assert not holder.holds(UNIT)
    assert worker(store, clock).claim(UNIT) is Claim.OURS


def test_a_create_that_was_sent_twice_succeeds(clock):
    class SendsTwice(MemoryStore):
        def create(self, key, data):
            super().create(key, data)
            raise ObjectExists("412")

        def swap(self, key, data, version):
            super().swap(key, data, version)
            raise ObjectChanged("412")

    store = SendsTwice()
    holder = worker(store, clock)
    assert holder.claim(UNIT) is Claim.OURS
    for _ in range(3):
        clock.advance(BEAT)
        holder.beat()
    assert holder.holds(UNIT)
    assert worker(store, clock).steal(UNIT, version(store), SECONDS) is Claim.OURS


@pytest.mark.parametrize("fault", Fault)
def test_a_beat_that_fails_does_not_lose_the_unit(clock, fault):
    store = MemoryStore()
    holder = worker(store, clock)
    holder.claim(UNIT)
    failing(store, "swap", fault)
    for _ in range(3):
        clock.advance(BEAT)
        holder.beat()
        assert holder.holds(UNIT)
    assert json.loads(store.get(LEASE))["beat"] >= 2


def test_beat_with_lost_answer_and_proof_is_recognized_by_next(clock):
    store = MemoryStore()
    holder = worker(store, clock)
    holder.claim(UNIT)
    faults = iter([Fault.AFTER, Fault.BEFORE])
    store.fault = lambda name, key: next(faults, None)
    clock.advance(BEAT)
    holder.beat()
    for _ in range(2):
        clock.advance(BEAT)
        holder.beat()
        assert holder.holds(UNIT)
    assert worker(store, clock).steal(UNIT, version(store), BEAT) is Claim.HELD


def test_an_error_in_reading_the_marker_releases_the_unit(clock):
    store = MemoryStore()
    failing(store, "stat", Fault.BEFORE)
    with pytest.raises(StorageError):
        worker(store, clock).claim(UNIT)
    assert leases_left(store) == []


def test_leases_are_renewed_by_a_thread_and_released_at_the_end(clock):
    store = MemoryStore()
    with worker(store, clock, seconds=5.0) as leases:
        assert leases.claim(UNIT) is Claim.OURS
        assert leases.claim("0001-000008") is Claim.OURS
        seen = silent(store, clock, 1.0)
        until = time.monotonic() + 30
        while version(store) == seen and time.monotonic() < until:
            time.sleep(0.02)
        assert version(store) != seen
        publish(store, UNIT, "1")
        leases.release(UNIT)
        assert len(leases_left(store)) == 1
    assert leases.closed
    assert leases_left(store) == []


def test_lease_times_too_short_for_beats_are_refused():
    with pytest.raises(UsageError, match="5 or more"):
        LeaseOptions(4.0)
    with pytest.raises(UsageError, match="150 or more"):
        LeaseOptions(100.0, url="gs://bucket/run")
    assert LeaseOptions(150.0, url="gs://bucket/run").beat == 30.0
    assert LeaseOptions(5.0, url="s3://bucket/run").beat == 1.0
