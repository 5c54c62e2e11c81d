"""A run that goes on has its servers started while its documents are planned again, if a unit is left to be read."""

import asyncio
import threading
from types import SimpleNamespace

import pytest

from llm_ocr.config.loading import settings_from
from llm_ocr.config.models import ExtractSettings
from llm_ocr.scheduling.leases import lease_key
from llm_ocr.scheduling.scanner import PlannedUnits
from llm_ocr.scheduling.shards import Shard, has_unclaimed
from llm_ocr.stages import Silent, extract
from llm_ocr.stages.job import Job
from llm_ocr.types import Counts
from llm_ocr.workspace import Workspace
from llm_ocr.workspace.keys import EXTRACT, claim_key
from llm_ocr.workspace.plan import PlannedDocument
from llm_ocr.workspace.publish import publish
from llm_ocr.workspace.summaries import Summary
from tests.fakes.planning import plan_documents

UNITS = 3


@pytest.fixture
def workspace(tmp_path):
    with Workspace.open(str(tmp_path / "w"), create=True) as opened:
        names = [f"{number}.pdf" for number in range(UNITS)]
        documents = [PlannedDocument(f"/{one}", one, f"v{one}", None, (1,), page_total=1) for one in names]
        plan_documents(opened, documents, pages_per_unit=1)
        yield opened


@pytest.fixture
def key(workspace):
    return claim_key(workspace, EXTRACT, {"reader": {"model": "m"}})


def do(workspace, key, *places):
    units = PlannedUnits(workspace)
    for place in places:
        publish(workspace, EXTRACT, key, units.name(place), b"rows", Summary(counts=Counts(1, 1, 0, 0)))


def test_a_unit_is_free_that_has_neither_marker_nor_lease(workspace, key):
    assert has_unclaimed(workspace, EXTRACT, None)
    assert has_unclaimed(workspace, EXTRACT, key)
    do(workspace, key, 0, 1)
    assert has_unclaimed(workspace, EXTRACT, key)
    workspace.store.create(lease_key(EXTRACT, key, PlannedUnits(workspace).name(2)), b"{}")
    assert not has_unclaimed(workspace, EXTRACT, key)


def test_only_units_of_the_worker_s_share_count(workspace, key):
    do(workspace, key, 0, 2)
    assert has_unclaimed(workspace, EXTRACT, key, Shard(1, 2))
    assert not has_unclaimed(workspace, EXTRACT, key, Shard(0, 2))
    assert not has_unclaimed(workspace, EXTRACT, None, Shard(4, 5))


class Engines:
    """Counts what is begun."""

    uses_models = True

    def __init__(self):
        self.begun, self.checking, self.checked = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.checked.set()
        self.checks = 0

    async def pool(self, profile, *, model, revision):
        return SimpleNamespace(begin=self.begun.set)

    async def check(self):
        self.checks += 1
        self.checking.set()
        await self.checked.wait()


@pytest.fixture
def warmed(workspace, monkeypatch):
    """Runs a block, given the engines, while the servers may be warmed up; whether they were."""

    async def model(*_):
        return SimpleNamespace(profile=None, name="m", revision=None)

    monkeypatch.setattr(extract, "page_model", model)
    settings = settings_from(ExtractSettings, "extract", {"workspace": workspace.url, "engine": "vllm"})

    def run(block):
        async def whole():
            engines = Engines()
            try:
                async with extract.warming_up(Job(workspace, settings, Silent(), engines, None), "extract"):
                    await block(engines)
            finally:
                assert asyncio.all_tasks() == {asyncio.current_task()}, "something is left that starts servers"
            return engines.begun.is_set()

        return asyncio.run(whole())

    return run


async def until_begun(engines):
    async with asyncio.timeout(30):
        await engines.begun.wait()


def test_servers_start_beside_the_plan_where_something_is_left(warmed, workspace, key):
    do(workspace, key, 0)
    assert warmed(until_begun)


def test_no_server_starts_where_nothing_is_left(warmed, workspace, key, monkeypatch):
    do(workspace, key, *range(UNITS))
    looked = threading.Event()

    def look(*arguments):
        looked.set()
        return has_unclaimed(*arguments)

    monkeypatch.setattr(extract, "has_unclaimed", look)

    async def until_looked(engines):
        assert await asyncio.to_thread(looked.wait, 30)
        await asyncio.sleep(0.1)  # for what must not come

    assert not warmed(until_looked)


def test_a_plan_that_fails_ends_what_starts_the_servers(warmed, key):
    async def fails(engines):
        engines.checked.clear()  # the servers are being started
        async with asyncio.timeout(30):
            await engines.checking.wait()
        raise OSError("no such bucket")

    with pytest.raises(OSError, match="no such bucket"):
        warmed(fails)


def test_before_the_first_plan_servers_start_at_once(warmed, monkeypatch):
    monkeypatch.setattr(extract, "generations", lambda workspace: [])

    async def nothing(engines):
        assert engines.begun.is_set()
        assert engines.checks == 1

    assert warmed(nothing)
