"""Buckets: what happens when the Hub fails, or others write too."""

import pytest

from llm_ocr.errors import ObjectExists, StorageError
from llm_ocr.storage import waiting
from llm_ocr.storage.hf import client
from tests.fakes.hub import Fault, How


@pytest.fixture
def store(making, monkeypatch):
    monkeypatch.setattr("huggingface_hub.utils._http.time.sleep", lambda _: None)
    return making.store_at(making.new_place("bucket"))


def test_a_creator_whose_object_was_replaced_meanwhile_has_lost(making, store, monkeypatch):
    other = making.store_at(store._place)
    write = store._write

    def write_and_be_overtaken(key, data):
        write(key, data)
        other.put(key, b"the other's")

    monkeypatch.setattr(store, "_write", write_and_be_overtaken)
    with pytest.raises(ObjectExists):
        store.create("k", b"mine")
    assert store.get("k") == b"the other's"


@pytest.mark.parametrize("how", [How.REFUSE, How.LOSE, How.DROP, How.CUT])
@pytest.mark.parametrize("operation", ["bucket_batch", "xet_token", "bucket_resolve", "bucket_paths_info", ""])
def test_one_failure_of_the_hub_is_not_noticed(making, store, how, operation):
    making.hub().faults.add(Fault(operation, store._place.id, how, status=503))
    store.put("k", b"data")
    assert store.get("k") == b"data"
    assert store.create("made", b"1") == store.stat("made").version
    assert [info.key for info in store.list()] == ["k", "made"]
    assert making.hub().faults.listed() == []


def test_a_hub_that_stays_away_is_an_error_that_may_pass(making, store):
    making.hub().faults.add(Fault("bucket_batch", store._place.id, status=500, times=1000))
    with pytest.raises(StorageError, match="the Hub failed with 500") as caught:
        store.put("k", b"data")
    assert caught.value.retryable
    making.hub().faults.clear()
    assert store.stat("k") is None


def test_long_pause_for_the_hub_is_a_warning(making, store, monkeypatch, caplog):
    monkeypatch.setattr(waiting, "_LONG", 1.0)
    monkeypatch.setattr(client, "NOTICES", waiting.Notices())
    pauses: list[float] = []
    store.put("k", b"data")
    making.hub().faults.add(Fault(status=429, times=2, headers={"Retry-After": "2"}))
    monkeypatch.setattr(store._client, "pause", pauses.append)
    assert store.get("k") == b"data"
    (warning,) = [record.getMessage() for record in caplog.records if record.name.startswith("llm_ocr")]
    assert (len(pauses), store.url in warning, "exceeded (injected); trying again in 2 s" in warning) == (2, True, True)


def test_a_file_that_the_hub_refuses_is_named(making, store):
    place = store._place
    body = '{"success": false, "failed": [{"path": "k", "error": "the quota of the account is used up"}]}'
    making.hub().faults.add(Fault("bucket_batch", place.id, status=422, times=5, body=body))
    with pytest.raises(StorageError, match="quota of the account") as caught:
        store.put("k", b"data")
    assert store._client.where("k") in str(caught.value)
    assert not caught.value.retryable


def test_what_another_removes_at_the_same_moment_is_removed(making, store):
    store.put("k", b"1")
    making.hub().faults.add(Fault("bucket_batch", store._place.id, How.LOSE, status=400))
    store.delete("k")
    assert store.stat("k") is None


def test_stores_of_the_same_bucket_do_not_see_each_other(making, store):
    place = store._place
    beside = making.store_at(type(place)("bucket", place.id, place.prefix + "-two"))
    whole = making.store_at(type(place)("bucket", place.id))
    store.put("k", b"1")
    beside.put("k", b"2")
    assert [info.key for info in store.list()] == ["k"]
    assert store.get("k") == b"1"
    assert [info.key for info in whole.list()] == ["runs/one-two/k", "runs/one/k"]


def test_without_conditions_it_says_so_and_what_to_do(store):
    found = store.capabilities()
    assert not found.create and not found.swap
    assert "last" in found.note and "`shard_index`" in found.note and "s3://" in found.note
