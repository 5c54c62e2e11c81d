"""Publishing: a unit is published once, whole, whoever does it and whatever fails."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from leasing import claimed

from llm_ocr.errors import StorageError, UsageError, WorkspaceError
from llm_ocr.scheduling.scanner import PlannedUnits
from llm_ocr.scheduling.shards import Shard
from llm_ocr.storage.local import LocalStore
from llm_ocr.types import Counts
from llm_ocr.workspace.generations import read_units
from llm_ocr.workspace.keys import EXTRACT
from llm_ocr.workspace.publish import (
    DataDamaged,
    NotConserved,
    done_units,
    find_marker,
    marker_key,
    markers,
    publish,
    read_data,
    settle,
)
from llm_ocr.workspace.summaries import Example, Extra, Summary

KEY = "0123456789ab"
ONE_OK = Summary(counts=Counts(1, 1, 0, 0))


def data_objects(workspace):
    return [info.key for info in workspace.store.list(f"{EXTRACT}/") if info.key.endswith(".parquet")]


def test_marker_holds_the_summary_and_names_the_data(workspace):
    example = Example("d-p00001", "/data/a,b.pdf", 1, "render timeout", "after 60 s")
    extra = Extra(retries=3, undescribed={"d-p00002": 1})
    summary = Summary(Counts(4, 2, 1, 1), Counts(3), 10, 20, 1.25, {"render timeout": 1}, (example,), 2, extra)
    made = publish(workspace, EXTRACT, KEY, "0001-000000", b"rows", summary)
    assert find_marker(workspace, EXTRACT, KEY, "0001-000000") == made
    assert made.summary == summary
    assert (made.size, made.counts.ok, made.figures.expected) == (4, 2, 3)
    assert read_data(workspace, made) == b"rows"
    assert made.object.startswith(f"{EXTRACT}/{KEY}/") and made.object.count("/") == 4
    assert marker_key(EXTRACT, KEY, "0001-000000").rpartition("/")[0] == made.object.rsplit("/", 2)[0]


def test_a_marker_shows_five_failures_at_most(workspace):
    examples = tuple(Example(f"{number}", "s", number, "unreadable") for number in range(9))
    made = publish(workspace, EXTRACT, KEY, "u", b"", Summary(Counts(9, 0, 0, 9), examples=examples))
    assert len(find_marker(workspace, EXTRACT, KEY, "u").summary.examples) == 5
    assert made.unit == "u"


def test_a_lost_row_is_an_error_before_any_write(workspace):
    with pytest.raises(NotConserved, match="expected 3 pages"):
        publish(workspace, EXTRACT, KEY, "u", b"", Summary(Counts(3, 2, 0, 0)))
    with pytest.raises(NotConserved, match="figures"):
        publish(workspace, "describe", KEY, "u", b"", Summary(figures=Counts(3, 2, 0, 0)))
    assert [info.key for info in workspace.store.list()] == ["run.json"]


def test_one_of_many_attempts_at_a_unit_counts_and_its_data_stay(made):
    def attempt(number):
        return publish(made.workspace(), EXTRACT, KEY, "u", b"%d" % number * 100, ONE_OK)

    with ThreadPoolExecutor(12) as pool:
        published = list(pool.map(attempt, range(12)))
    workspace = made.workspace()
    assert len({marker.attempt for marker in published}) == 1
    assert data_objects(workspace) == [published[0].object]
    assert len(read_data(workspace, published[0])) in (100, 200)


def test_the_first_marker_counts_permanently(workspace):
    first = publish(workspace, EXTRACT, KEY, "u", b"first", ONE_OK)
    second = publish(workspace, EXTRACT, KEY, "u", b"second", ONE_OK)
    assert second == first == find_marker(workspace, EXTRACT, KEY, "u")
    assert read_data(workspace, second) == b"first"


class Ambiguous(LocalStore):
    """Its create answers with an error, after writing or without."""

    def __init__(self, root, writes):
        super().__init__(root)
        self.writes, self.broken = writes, False

    def create(self, key, data):
        if self.writes or not self.broken:
            super().create(key, data)
        if self.broken:
            raise StorageError("the connection was lost")


def test_an_error_after_the_marker_was_written_is_success(made):
    store = Ambiguous(made.root, writes=True)
    workspace = made.workspace(store)
    store.broken = True
    marker = publish(workspace, EXTRACT, KEY, "u", b"rows", ONE_OK)
    assert read_data(workspace, marker) == b"rows"


def test_an_error_before_the_marker_was_written_is_an_error(made):
    store = Ambiguous(made.root, writes=False)
    workspace = made.workspace(store)
    store.broken = True
    with pytest.raises(StorageError, match="connection was lost"):
        publish(workspace, EXTRACT, KEY, "u", b"rows", ONE_OK)
    assert done_units(workspace, EXTRACT, KEY) == set()


def test_a_save_that_fails_publishes_nothing(made):
    class Full(LocalStore):
        full = False

        def _write_file(self, path, fill):
            if self.full:
                path.write_bytes(b"torn")
                raise OSError(28, "No space left on device")
            super()._write_file(path, fill)

    store = Full(made.root)
    workspace = made.workspace(store)
    store.full = True
    with pytest.raises(StorageError, match="disk is full"):
        publish(workspace, EXTRACT, KEY, "u", b"rows", ONE_OK)
    store.full = False
    assert [info.key for info in store.list()] == ["run.json"]
    publish(workspace, EXTRACT, KEY, "u", b"rows", ONE_OK)


@pytest.mark.parametrize("damage", [lambda path: path.unlink(), lambda path: path.write_bytes(b"rowz")])
def test_damaged_data_name_how_to_repeat_the_unit(workspace, made, damage):
    marker = publish(workspace, EXTRACT, KEY, "u", b"rows", ONE_OK)
    damage(made.root / marker.object)
    with pytest.raises(DataDamaged) as caught:
        read_data(workspace, marker)
    name = marker_key(EXTRACT, KEY, "u")
    assert name in str(caught.value)
    workspace.store.delete(name)
    assert read_data(workspace, publish(workspace, EXTRACT, KEY, "u", b"rows", ONE_OK)) == b"rows"


@pytest.mark.parametrize("content", [b"", b"{", b"{}", b'{"unit": 1}', b'{"a":' * 100_000])
def test_damaged_marker_is_an_error_and_not_a_missing_unit(workspace, made, content):
    publish(workspace, EXTRACT, KEY, "u", b"rows", ONE_OK)
    name = marker_key(EXTRACT, KEY, "u")
    (made.root / name).write_bytes(content)
    with pytest.raises(WorkspaceError, match=f"damaged(?s:.*)Remove the marker {name}"):
        markers(workspace, EXTRACT, KEY)
    workspace.store.delete(name)
    assert markers(workspace, EXTRACT, KEY) == {}


@pytest.mark.parametrize(
    "other",
    [
        {"unit": "v"},
        {"tokens_in": "1"},
        {"object": 3},
        {"seconds": None},
        {"reasons": 3},
        {"counts": {"expected": "1"}},
    ],
)
def test_a_marker_with_wrong_values_is_damaged(workspace, made, other):
    publish(workspace, EXTRACT, KEY, "u", b"rows", ONE_OK)
    place = made.root / marker_key(EXTRACT, KEY, "u")
    place.write_text(json.dumps(json.loads(place.read_text()) | other))
    with pytest.raises(WorkspaceError, match="damaged"):
        markers(workspace, EXTRACT, KEY)


@pytest.mark.parametrize("asleep", ["before the look", "before the marker"])
def test_suspended_process_writes_removed_data_again(workspace, monkeypatch, asleep):
    sleeps = iter([asleep])

    def sleep(now):
        if now == asleep and next(sleeps, ""):
            for name in data_objects(workspace):
                workspace.store.delete(name)

    def put_and_sleep(*data):
        put(*data)
        sleep("before the look")

    def settle_late(*marker):
        assert data_objects(workspace), "the marker would name what is not there"
        sleep("before the marker")
        return settle(*marker)

    monkeypatch.setattr("llm_ocr.workspace.publish.slept_since", lambda begun: True)
    put = workspace.store.put
    monkeypatch.setattr(workspace.store, "put", put_and_sleep)
    monkeypatch.setattr("llm_ocr.workspace.publish.settle", settle_late)
    assert read_data(workspace, publish(workspace, EXTRACT, KEY, "u", b"rows", ONE_OK)) == b"rows"


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_shards_share_all_units_out(count):
    units = list(range(20))
    shares = [list(Shard(index, count).of(units)) for index in range(count)]
    assert sorted(unit for share in shares for unit in share) == units
    assert shares[0] == units[::count]


@pytest.mark.parametrize(("index", "count"), [(1, 1), (-1, 2), (2, 2), (0, 0)])
def test_an_impossible_shard_is_wrong_usage(index, count):
    with pytest.raises(UsageError, match="does not exist"):
        Shard(index, count)


def test_a_shard_keeps_its_units_whatever_is_done(made, workspace):
    made.plan(workspace, [made.document(f"{number}", 4) for number in range(6)])
    units = list(read_units(workspace))
    key = made.key(workspace)
    made.extract(workspace, units[0])
    assert list(claimed(workspace, EXTRACT, key, PlannedUnits(workspace), Shard(0, 2))) == [units[2], units[4]]
    assert list(claimed(workspace, EXTRACT, key, PlannedUnits(workspace), Shard(1, 2))) == [
        units[1],
        units[3],
        units[5],
    ]


def test_units_finished_by_another_worker_are_not_taken(made, workspace):
    made.plan(workspace, [made.document(f"{number}", 4) for number in range(4)])
    units = list(read_units(workspace))
    taken = claimed(workspace, EXTRACT, made.key(workspace), PlannedUnits(workspace))
    assert next(taken) == units[0]
    made.extract(workspace, units[1])
    assert list(taken) == units[2:]
