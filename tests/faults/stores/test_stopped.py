"""A worker that is told to stop, one whose disk is full, and workers whose clocks are wrong."""

import asyncio
import os
import signal
import time
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from unittest import mock

import pytest
from fault_checking import attempts, problems
from fault_engine import make_documents
from fault_places import KINDS, needed, new_place
from fault_running import context, ended, pipeline, plan_and_extract, started
from fault_wraps import FullDisk, around_markers

from llm_ocr.cli import main
from llm_ocr.errors import StorageError
from llm_ocr.scheduling.leases import is_lease
from llm_ocr.stages.clean import clean
from llm_ocr.workspace import Workspace
from llm_ocr.workspace.keys import DESCRIBE, claim_key, newest_key
from llm_ocr_cpu.reader import EmbeddedReader

#: More than anything here takes.
SECONDS = 120.0
HOUR = 3600.0


@pytest.fixture(scope="module")
def documents(tmp_path_factory):
    return make_documents(tmp_path_factory.mktemp("stopped") / "documents", [3])


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_told_to_stop_it_keeps_what_is_done_and_goes_on_later(kind, documents, tmp_path):
    needed(kind)
    place, published = new_place(kind, tmp_path), context().Event()
    worker = started(stuck_at_the_second_page, place, documents, published)
    assert published.wait(SECONDS)
    with place.entered():
        store = place.store()
        with Workspace.on(store) as workspace:  # a cleaner whose clock is wrong leaves the living alone
            assert clean(workspace, now=time.time() + 12 * HOUR).objects == ()
        os.kill(worker.pid, signal.SIGTERM)
        assert ended(worker) == 4
        assert not [info.key for info in store.list("extract/") if is_lease(info.key)]
        before = attempts(store)
        assert len(before) == 1
        pipeline(place, documents)
        assert problems(store, pages=3, before=before) == []


def stuck_at_the_second_page(place, documents, published):
    """The command's exit code. All pages but the first take for ever."""
    pages = []

    async def read(self, page, on_dispatched=lambda: None):
        pages.append(page)
        if len(pages) > 1:
            await asyncio.Event().wait()
        return await quick(self, page)

    with plan_and_extract(place, documents, lambda store: around_markers(store, created=lambda _: published.set())):
        quick = EmbeddedReader.read
        with mock.patch.object(EmbeddedReader, "read", read):
            leases = ["--lease-seconds", "300"] if place.sharing else []
            return main(["extract", *place.flags, *leases, "--engine", "embedded", "--quiet"])


@pytest.mark.slow
def test_full_disk_is_reported_and_work_resumes_with_free_space(documents, tmp_path):
    said = []
    for at in range(0, 100, 3):
        place = new_place("local-leases", tmp_path)
        disk = FullDisk(Path(place.url), at)
        try:
            pipeline(place, documents, partial(instead, disk))
        except StorageError as error:
            said.append(str(error))
        else:
            break  # so many files were enough
        before = attempts(place.store())
        pipeline(place, documents)
        assert problems(place.store(), pages=3, before=before) == []
    assert len(said) > 6
    assert all("No space left on device" in one and "The disk is full" in one for one in said)


def instead(disk, store):
    return disk


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["local-leases", "s3", "gcs"])
def test_workers_whose_clocks_differ_by_hours_share_the_units(kind, documents, tmp_path):
    needed(kind)
    place = new_place(kind, tmp_path)
    workers = [started(extract_with_clock, place, documents, hours * HOUR) for hours in (-11, 0, 11)]
    assert [ended(worker) for worker in workers] == [0, 0, 0]
    with place.entered():
        store = place.store()
        before = attempts(store)
        assert {stage for stage, _ in before} == {"extract"}
        pipeline(place, documents)
        assert problems(store, pages=3, before=before) == []


def extract_with_clock(place, documents, ahead):
    now = time.time
    with mock.patch("time.time", lambda: now() + ahead), plan_and_extract(place, documents) as extract:
        extract()
        with Workspace.on(place.store()) as workspace:
            clean(workspace)


def test_newest_key_is_the_last_one_made_despite_wrong_clocks(tmp_path):
    """Else Assemble would take older descriptions, and say nothing."""
    with Workspace.open(str(tmp_path / "w"), create=True) as workspace:
        with mock.patch("llm_ocr.workspace.keys.datetime", Ahead):
            claim_key(workspace, DESCRIBE, {"model": "first"})
        last = claim_key(workspace, DESCRIBE, {"model": "second"})
        assert newest_key(workspace, DESCRIBE) == last


class Ahead(datetime):
    """A clock that is two hours ahead."""

    @classmethod
    def now(cls, tz=None):
        return datetime.now(tz) + timedelta(hours=2)
