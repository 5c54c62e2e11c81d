"""Create-if-absent and compare-and-swap when answers are lost, writers meet, and services do not know them."""

import pytest

from llm_ocr.errors import ObjectChanged, ObjectExists, StorageError
from tests.storage.proxy import Fault
from tests.storage.s3 import making


@pytest.mark.parametrize("lost", ["before", "after"])
def test_a_write_whose_answer_was_lost_knows_its_own_object(behind, proxy, lost):
    proxy.add(method="PUT", lost=lost)
    version = behind.create("k", b"ours")
    assert behind.fetch("k") == (b"ours", version)
    behind.capabilities()
    proxy.add(method="PUT", lost=lost)
    now = behind.swap("k", b"again", version)
    assert behind.fetch("k") == (b"again", now)


def test_create_done_by_its_last_try_without_answer_succeeds(place, proxy):
    store = making.store_at(place, proxy.url, making.Limits(retries=0))
    proxy.add(method="PUT", lost="after")
    assert store.create("k", b"ours") == store.stat("k").version


def test_create_that_times_out_reads_the_existing_object(place, proxy):
    store = making.store_at(place, proxy.url, making.Limits(retries=0, read_timeout=0.3))
    proxy.add(method="PUT", wait=1.0, lost="before")
    with pytest.raises(StorageError, match="connection failed") as caught:
        store.create("k", b"ours")
    assert caught.value.retryable
    assert not isinstance(caught.value, ObjectExists)
    retrying = making.store_at(place, proxy.url)
    assert retrying.create("k", b"ours") == retrying.stat("k").version


def test_a_create_whose_answer_was_lost_and_that_lost_says_so(place, proxy):
    store = making.store_at(place, proxy.url, making.Limits(retries=0))
    store.put("k", b"theirs")
    proxy.add(method="PUT", lost="before")
    with pytest.raises(ObjectExists):
        store.create("k", b"ours")
    assert store.get("k") == b"theirs"


def test_conflict_of_two_creators_is_retried_until_one_wins(behind, proxy):
    proxy.add(method="PUT", status=409, code="ConditionalRequestConflict", times=2)
    version = behind.create("k", b"ours")
    assert behind.fetch("k") == (b"ours", version)


def test_one_of_many_creators_wins_despite_lost_answers(place, proxy, race):
    store = making.store_at(place, proxy.url, making.Limits(retries=8))
    proxy.add(method="PUT", lost="after", times=6)
    proxy.add(method="PUT", lost="before", times=6)
    ((winner, version),) = race(lambda number: store.create("k", b"%d" % number), 12)
    assert store.fetch("k") == (b"%d" % winner, version)


def test_object_removed_during_create_does_not_stop_the_creator(behind, proxy, place, raw):
    behind.put("k", b"theirs")

    def remove(method: str, path: str) -> None:
        if method == "GET":
            raw.delete_object(Bucket=place.bucket, Key=f"{place.root}k")

    proxy.before = remove
    behind.create("k", b"ours")
    proxy.before = lambda method, path: None
    assert behind.get("k") == b"ours"


def test_a_swap_that_met_another_writer_says_that_it_has_changed(behind, proxy, place, raw):
    version = behind.create("k", b"0")
    behind.capabilities()
    raw.put_object(Bucket=place.bucket, Key=f"{place.root}k", Body=b"theirs")
    proxy.add(method="PUT", status=409, code="ConditionalRequestConflict")
    with pytest.raises(ObjectChanged):
        behind.swap("k", b"ours", version)
    assert behind.get("k") == b"theirs"


def test_swap_with_conflict_and_unchanged_object_is_retried(behind, proxy):
    version = behind.create("k", b"0")
    behind.capabilities()
    proxy.add(method="PUT", status=409, code="ConditionalRequestConflict", times=2)
    assert behind.swap("k", b"ours", version) == behind.stat("k").version


def test_a_swap_that_could_not_be_sent_is_no_lost_race(place, proxy):
    store = making.store_at(place, proxy.url, making.Limits(retries=0))
    version = store.create("k", b"0")
    store.capabilities()
    proxy.add(method="PUT", lost="before")
    with pytest.raises(StorageError) as caught:
        store.swap("k", b"ours", version)
    assert caught.value.retryable
    assert not isinstance(caught.value, ObjectChanged)
    assert store.fetch("k") == (b"0", version)


def test_create_that_cannot_be_read_back_is_not_reported_done(place, proxy):
    store = making.store_at(place, proxy.url, making.Limits(retries=0))
    proxy.add(method="PUT", lost="after")
    proxy.add(method="GET", status=500, code="InternalError", times=9)
    with pytest.raises(StorageError, match="connection failed") as caught:
        store.create("k", b"ours")
    assert caught.value.retryable


def test_conditions_are_found_where_they_are_honoured(store):
    found = store.capabilities()
    assert (found.create, found.swap, found.note) == (True, True, "")


@pytest.mark.parametrize(
    ("hidden", "create", "swap"),
    [
        ({"If-None-Match"}, False, True),
        ({"If-Match"}, True, False),
        ({"If-None-Match", "If-Match"}, False, False),
    ],
)
def test_conditions_ignored_by_a_service_are_found_and_reported(behind, proxy, hidden, create, swap):
    proxy.hidden = hidden
    found = behind.capabilities()
    assert (found.create, found.swap) == (create, swap)
    assert all(header in found.note for header in hidden)
    assert proxy.url in found.note
    assert [*behind.list(), *behind.unfinished()] == []


def test_conditions_that_a_service_refuses_are_found_out(behind, proxy, monkeypatch):
    refuse_conditions(proxy, monkeypatch)
    found = behind.capabilities()
    assert (found.create, found.swap) == (False, False)


def test_the_answer_is_asked_for_once(behind, proxy):
    behind.capabilities()
    proxy.seen.clear()
    behind.capabilities()
    assert proxy.seen == []


@pytest.mark.parametrize("known", [False, True])
def test_create_without_conditions_never_replaces_earlier_object(behind, proxy, monkeypatch, known):
    refuse_conditions(proxy, monkeypatch)
    if known:
        behind.check()
    behind.create("k", b"first")
    with pytest.raises(ObjectExists):
        behind.create("k", b"second")
    assert behind.get("k") == b"first"


def test_swap_a_service_would_ignore_is_refused_before_writing(behind, proxy):
    proxy.hidden = {"If-Match"}
    behind.put("k", b"0")
    with pytest.raises(StorageError, match="If-Match") as caught:
        behind.swap("k", b"1", behind.stat("k").version)
    assert not isinstance(caught.value, ObjectChanged)
    assert behind.get("k") == b"0"


def refuse_conditions(proxy, monkeypatch) -> None:
    """The service answers 501 to every conditional write."""
    take = proxy.take

    def refuse(method, path, headers):
        if "If-Match" in headers or "If-None-Match" in headers:
            return Fault(status=501, code="NotImplemented")
        return take(method, path, headers)

    monkeypatch.setattr(proxy, "take", refuse)
