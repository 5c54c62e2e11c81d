"""The numbers over time stay small and add up, whatever the files hold."""

import asyncio
import json
from collections import Counter

import pytest

from llm_ocr.engines import Load
from llm_ocr.stages import Silent
from llm_ocr.stages.recording import Recorded, Sampler
from llm_ocr.types import Counts, Status
from llm_ocr.workspace import Workspace
from llm_ocr.workspace.metrics import (
    COUNTS,
    MOST,
    Records,
    Sample,
    Series,
    Spending,
    all_series,
    merged,
    thinned,
    write_series,
    write_spending,
)
from tests.fakes.memory_store import MemoryStore


@pytest.fixture
def workspace():
    return Workspace.on(MemoryStore(), create=True)


class Ticking:
    """A clock and an engine whose numbers grow with it."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now

    def load(self):
        return Load(servers=1, window=64, in_flight=60, answers=int(self.now), tokens_out=int(100 * self.now), lost=3)


def test_a_week_fits_into_a_small_file_without_loss_of_sums():
    clock = Ticking()
    sampler = Sampler(clock.load, clock)
    for number in range(6_048):
        clock.now += 100.0
        sampler.count(Status.FAILED if number % 100 == 0 else Status.OK)
        sampler.tick()
    taken = sampler.series("w", "extract", "", 5.0)
    assert MOST // 2 <= len(taken.samples) <= MOST + 1
    assert taken.seconds == pytest.approx(7 * 86400)
    assert (taken.items, sum(one.failed for one in taken.samples)) == (6_048, 61)
    assert sum(one.tokens_out for one in taken.samples) == 100 * 7 * 86400
    assert {one.window for one in taken.samples} == {64.0}
    assert taken.first == 100.0


def test_engine_work_before_the_stage_is_not_counted_again():
    clock = Ticking()
    clock.now = 50.0
    sampler = Sampler(clock.load, clock)
    clock.now = 51.5
    (sample,) = sampler.series("w", "describe", "", 0.0).samples
    assert (sample.tokens_out, sample.retries, sample.seconds) == (150, 0, 1.5)


def test_merging_adds_counts_and_weights_gauges_by_time():
    one, other = Sample(1.0, ok=2, window=10.0), Sample(3.0, ok=1, failed=1, window=30.0, running=4.0)
    assert merged(one, other) == Sample(4.0, ok=3, failed=1, window=25.0, running=4.0)
    many = [Sample(1.0, ok=number, tokens_in=7) for number in range(1001)]
    few = thinned(many, 10)
    assert len(few) <= 10
    assert all(sum(getattr(s, name) for s in few) == sum(getattr(s, name) for s in many) for name in COUNTS)


def test_series_round_trip(workspace):
    series = Series("w", "extract", "b", 100.5, 2.0, 1.25, (Sample(1.0, ok=1, servers=0.0), Sample(2.0, tokens_in=5)))
    write_series(workspace, series)
    (read,) = all_series(workspace)
    assert (read.began, read.before, read.first, read.items) == (100.5, 2.0, 1.25, 1)
    assert [sample.servers for sample in read.samples] == [0.0, None]


@pytest.mark.parametrize(
    "value",
    [
        [],
        {},
        {"worker": "w", "stage": "extract", "began": 1, "samples": {"seconds": [1], "ok": [1, 2]}},
        {"worker": "w", "stage": "extract", "began": 1, "samples": {"seconds": ["<script>"]}},
        {"worker": "w", "stage": "extract", "began": -1, "samples": {"seconds": [1]}},
        {"worker": "w", "stage": "extract", "began": 10**400, "samples": {"seconds": [1]}},
        {"worker": "w", "stage": "extract", "began": True, "samples": {"seconds": [1]}},
        {"worker": "w", "stage": "extract", "began": 1, "samples": {"seconds": [1] * 100_000}},
        {"worker": "w", "stage": "extract", "began": 1, "samples": [1]},
    ],
)
def test_invalid_series_files_are_skipped(workspace, value):
    workspace.store.put("metrics/bad-extract.series.json", json.dumps(value).encode())
    workspace.store.put("metrics/bad-extract.json", json.dumps(value).encode())
    write_series(workspace, Series("good", "extract", began=1.0, samples=(Sample(1.0, ok=1),)))
    write_spending(workspace, Spending("good", "extract", items=1))
    assert [one.worker for one in all_series(workspace)] == ["good"]
    assert sum(one.items for one in Records(workspace).read()) == 1


def test_many_workers_series_are_read_thinned(workspace, monkeypatch):
    monkeypatch.setattr("llm_ocr.workspace.metrics._MOST_HELD", 9_000)
    full = tuple(Sample(1.0, ok=1) for _ in range(MOST))
    for number in range(30):
        write_series(workspace, Series(f"w{number}", "extract", began=1.0, samples=full))
    found = all_series(workspace)
    assert len(found) == 30
    assert max(len(one.samples) for one in found) <= 300
    assert sum(one.items for one in found) == 30 * MOST


class Gathering(MemoryStore):
    """A store whose writes become commits, as a dataset repository of the Hub."""

    gathers = True


class Settings:
    batch_id = price_in = price_out = price_per_hour = None


def _recorded(store, *, engine, begun=lambda puts: True):
    """What was written, by key; the stage goes on at least until `begun`."""
    puts = Counter()
    workspace = Workspace.on(store, create=True)
    write = store.put
    store.put = lambda key, data: (puts.update([key]), write(key, data))[1]

    async def stage():
        recorded = Recorded(Silent(), workspace, "w", Settings())
        async with recorded.kept():
            if engine:
                recorded.measure(lambda: Load(servers=1, window=8))
            recorded.begin("extract", 2, Counts())
            recorded.count(Status.OK)
            await asyncio.sleep(0.3)
            async with asyncio.timeout(60):
                while not begun(puts):  # noqa: ASYNC110 - a thread writes
                    await asyncio.sleep(0.02)
            recorded.count(Status.OK)
            recorded.end()

    asyncio.run(stage())
    return puts, workspace


@pytest.mark.parametrize("engine", [True, False])
def test_metrics_are_written_together_where_writes_are_commits(engine, monkeypatch):
    monkeypatch.setattr("llm_ocr.stages.recording.EVERY", 0.02)
    puts, workspace = _recorded(Gathering(), engine=engine)
    assert puts == {"metrics/w-extract.json": 1, "metrics/w-extract.series.json": 1}
    assert list(puts) == ["metrics/w-extract.series.json", "metrics/w-extract.json"]
    assert [one.items for one in all_series(workspace)] == [2]


def test_elsewhere_both_are_written_while_the_stage_runs(monkeypatch):
    monkeypatch.setattr("llm_ocr.stages.recording.EVERY", 0.02)
    series = "metrics/w-extract.series.json"
    puts, workspace = _recorded(MemoryStore(), engine=True, begun=lambda puts: puts[series])
    assert puts["metrics/w-extract.json"] == puts[series] > 1
    assert [one.items for one in all_series(workspace)] == [2]
    assert [one.items for one in Records(workspace).read()] == [2]
