"""On each store a worker is killed at its writes, one after the other, and a new one finishes: no page is lost.

The worker is a process of its own, and dies as by kill -9. `kill_loop.py --every-write` goes through all writes of all
stores, before and after each; here are all of a folder, one of each kind of a folder with leases, and one of each
operation of a server.
"""

from pathlib import PurePosixPath

import pytest
from fault_checking import attempts, problems
from fault_engine import make_documents
from fault_places import KINDS, needed, new_place
from fault_running import boundaries, dies_at, pipeline
from kill_loop import loop

from tests.fakes.crash import When

#: One document of two pages, each a unit.
PAGES = 2


@pytest.fixture(scope="module")
def documents(tmp_path_factory):
    return make_documents(tmp_path_factory.mktemp("every write") / "documents", [PAGES])


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_killed_at_any_write_a_new_worker_finishes(kind, documents, tmp_path):
    needed(kind)
    writes = boundaries(new_place(kind, tmp_path), documents)
    assert len(writes) > 20
    for at in range(len(writes)) if kind == "local" else some_of(writes, each_suffix=kind == "local-leases"):
        place = new_place(kind, tmp_path)
        assert dies_at(place, documents, at, When.BEFORE)
        assert after_the_death(place, documents) == [], f"killed before {writes[at]}"


def test_killed_after_the_last_write_nothing_is_left_to_do(documents, tmp_path):
    last = len(boundaries(new_place("local", tmp_path), documents)) - 1
    place = new_place("local", tmp_path)
    assert dies_at(place, documents, last, When.AFTER)
    before = attempts(place.store())
    pipeline(place, documents)
    assert attempts(place.store()) == before


def after_the_death(place, documents):
    """What is wrong when another worker has come."""
    with place.entered():
        store = place.store()
        before = attempts(store)
        pipeline(place, documents, lambda _: store)
        return problems(store, pages=PAGES, before=before)


def some_of(writes, each_suffix):
    """The place of a write of each kind: `create extract/…/0001-000000.done` is a `create`, or a `create .done`."""
    places = {}
    for at, write in enumerate(writes):
        kind = write.partition(" ")[0], PurePosixPath(write).suffix if each_suffix else ""
        places.setdefault(kind, []).append(at)
    return sorted(found[len(found) // 2] for found in places.values())


@pytest.mark.slow
def test_commands_killed_at_random_lose_and_double_nothing(tmp_path):
    result = loop("hub-bucket", kills=2, units=6, seed=1, folder=tmp_path, workers=1)
    assert (result.problems, result.kills) == ([], 2)
