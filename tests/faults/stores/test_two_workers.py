"""Two workers on the same units at the same time, and one that wakes when its units have long been another's."""

import asyncio
import contextlib
import json
import os
import signal
import time
from unittest import mock

import pytest
from fault_checking import attempts, problems
from fault_engine import make_documents
from fault_places import needed, new_place
from fault_running import context, ended, pipeline, plan_and_extract, same, started
from fault_wraps import around_markers, without_claims

from llm_ocr.errors import LlmOcrError
from llm_ocr.stages.clean import OLD, clean
from llm_ocr.workspace import Workspace
from llm_ocr_cpu.reader import EmbeddedReader

LEASING = ["local-leases", "s3", "gcs"]

#: More than anything here takes.
SECONDS = 120.0


@pytest.fixture(scope="module")
def documents(tmp_path_factory):
    return make_documents(tmp_path_factory.mktemp("two workers") / "documents", [2])


@pytest.fixture(scope="module")
def one_page(tmp_path_factory):
    return make_documents(tmp_path_factory.mktemp("one page") / "documents", [1])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["local", "s3", "gcs"])
def test_of_two_that_publish_at_the_same_moment_one_counts(kind, one_page, tmp_path):
    needed(kind)
    place = new_place(kind, tmp_path)
    assert wrong(place, publish_at_once(place, one_page)) == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["hub-bucket", "hub-dataset"])
def test_on_the_hub_one_of_two_counts_in_the_end(kind, one_page, tmp_path):
    """There are no conditions there, so a marker may be replaced by the other's: the result is whole all the same."""
    place = new_place(kind, tmp_path)
    publish_at_once(place, one_page)
    # A repository does not say when files were written, so nothing of it is taken for old.
    assert wrong(place, [], tidy=kind == "hub-bucket") == []


def publish_at_once(place, documents, wrap=same):
    """Two workers do all stages and publish each unit at the same moment; the markers that were created."""
    both, results = context().Barrier(2), context().SimpleQueue()
    workers = [started(publish_together, place, documents, both, results, wrap) for _ in range(2)]
    assert [ended(worker) for worker in workers] == [0, 0]
    return [json.loads(results.get()) for _ in iter(results.empty, True)]


def publish_together(place, documents, both, results, wrap):
    def together():
        both.wait(SECONDS)

    pipeline(place, documents, lambda store: without_claims(around_markers(wrap(store), together, results.put)))


def wrong(place, created, tidy=True):
    with place.entered():
        store = place.store()
        standing = attempts(store)
        names = [(marker["stage"], marker["unit"], marker["attempt"]) for marker in created]
        twice = [f"published twice: {name}" for *name, attempt in names if standing[tuple(name)] != attempt]
        return twice + problems(store, pages=1, before=standing, tidy=tidy)


@pytest.mark.slow
@pytest.mark.parametrize("kind", LEASING)
def test_worker_waking_after_its_units_are_done_adds_nothing(kind, documents, tmp_path):
    """It was stopped while it read, and does not know that its leases have passed on."""
    needed(kind)
    place, reading, go_on = new_place(kind, tmp_path), context().Event(), context().Event()
    zombie = started(read_slowly, place, documents, reading, go_on)
    assert reading.wait(SECONDS)
    os.kill(zombie.pid, signal.SIGSTOP)
    pipeline(place, documents)
    with place.entered():
        store = place.store()
        before, keys = attempts(store), results_of(store)
        os.kill(zombie.pid, signal.SIGCONT)  # first: stopped, it may hold the lock of the event
        go_on.set()
        assert ended(zombie) == 0
        assert results_of(store) == keys  # not even leftovers
        assert problems(store, pages=2, before=before) == []


def read_slowly(place, documents, reading, go_on):
    """Plan and extract, but reading takes until `go_on`."""

    async def read(self, page, on_dispatched=lambda: None):
        reading.set()
        await asyncio.to_thread(go_on.wait, SECONDS)
        return await quick(self, page)

    with plan_and_extract(place, documents) as extract:
        quick = EmbeddedReader.read
        with mock.patch.object(EmbeddedReader, "read", read):
            extract()


@pytest.mark.slow
@pytest.mark.parametrize("kind", LEASING)
def test_worker_paused_a_day_before_its_marker_comes_too_late(kind, documents, tmp_path):
    """Meanwhile others have done everything, and `clean` has removed its data."""
    needed(kind)
    assert after_a_day(new_place(kind, tmp_path), documents, meanwhile=pipeline) == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", LEASING)
def test_lone_worker_paused_a_day_marks_no_removed_data_as_done(kind, documents, tmp_path):
    """`clean` has removed its data, and nobody else has done its units."""
    needed(kind)
    assert after_a_day(new_place(kind, tmp_path), documents, meanwhile=lambda place, documents: None) == []


def after_a_day(place, documents, meanwhile):
    """What is wrong after a worker slept between data and marker, `clean` came by, and another worker finished."""
    asleep, wake = context().Event(), context().Event()
    sleeper = started(sleep_before_marker, place, documents, asleep, wake)
    assert asleep.wait(SECONDS)
    meanwhile(place, documents)
    with place.entered():
        store = place.store()
        with Workspace.on(store) as workspace:
            clean(workspace, now=time.time() + OLD + 3600)
        before = attempts(store)
        wake.set()
        assert ended(sleeper) == 0
        with contextlib.suppress(LlmOcrError):
            pipeline(place, documents)
        return problems(store, pages=2, before=before)


def sleep_before_marker(place, documents, asleep, wake):
    now = time.time

    def sleep():
        asleep.set()
        wake.wait(SECONDS)
        mock.patch("time.time", lambda: now() + OLD + 3600).start()

    with plan_and_extract(place, documents, lambda store: around_markers(store, before=sleep)) as extract:
        extract()


def results_of(store):
    """The keys of all objects but those in which workers tell what they spent."""
    return {info.key for info in store.list() if not info.key.startswith("metrics/")}
