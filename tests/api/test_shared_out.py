"""Which units a worker takes: what was asked for, leases, the platform's share, or all; and what its start costs."""

import asyncio

import pytest
from running import FRUGALLY, Told

import llm_ocr
from llm_ocr.cli import main
from llm_ocr.config.models import DescribeSettings, ExtractSettings, RunSettings
from llm_ocr.errors import UsageError, WorkspaceError
from llm_ocr.scheduling.leases import LeaseOptions, Leases
from llm_ocr.scheduling.shards import Shard, Split
from llm_ocr.stages import sharing
from llm_ocr.stages.extract import extract, extract_claim
from llm_ocr.stages.job import Job
from llm_ocr.stages.rendering import Remote
from llm_ocr.stages.servers import Engines
from llm_ocr.stages.sharing import split_of
from llm_ocr.storage import Capabilities
from llm_ocr.storage.hf.dataset import MOST_FILES, DatasetStore
from llm_ocr.storage.local import LocalStore
from llm_ocr.types import Counts
from llm_ocr.workspace import Workspace
from llm_ocr.workspace.generations import generations, read_units
from llm_ocr.workspace.keys import EXTRACT
from llm_ocr.workspace.plan import PlannedDocument
from llm_ocr.workspace.publish import publish
from llm_ocr.workspace.summaries import Summary
from tests.fakes.memory_store import MemoryStore
from tests.fakes.planning import plan_documents

CLOUD_RUN = {"CLOUD_RUN_TASK_INDEX": "1", "CLOUD_RUN_TASK_COUNT": "3"}


class Telling(Told):
    def __init__(self):
        super().__init__()
        self.begun = []
        self.corrected = 0

    def begin(self, stage, expected, done, estimated=False):
        self.begun.append((stage, expected, done))

    def correct(self, change, *, exact):
        self.corrected += change


class Scarce(MemoryStore):
    """A store without conditional writes, whose workers divide something among themselves."""

    most_files = 30

    def __init__(self):
        super().__init__()
        self.workers = []

    def share(self, workers):
        self.workers.append(workers)

    def capabilities(self):
        return Capabilities(False, False, "commits are few.")


@pytest.fixture(autouse=True)
def no_platform(monkeypatch):
    for name in CLOUD_RUN:
        monkeypatch.delenv(name, raising=False)


def on(monkeypatch, platform):
    for name, value in platform.items():
        monkeypatch.setenv(name, value)


def job_on(store, progress=None, model=ExtractSettings, given=None, **settings):
    chosen = model(workspace="-", engine="embedded", **settings)
    workspace = Workspace.on(store, create=True)
    progress = progress or Telling()
    engines = Engines("embedded", chosen, workspace.spool, progress.say)
    return Job(workspace, chosen, progress, engines, Remote(chosen), given)


def split(job, stage=EXTRACT):
    return asyncio.run(split_of(job, stage))


def planned(workspace, units):
    documents = (
        PlannedDocument(f"/data/{number}.pdf", f"{number}.pdf", f"v{number}", None, (1, 2), 2)
        for number in range(units)
    )
    plan_documents(workspace, documents, pages_per_unit=2)


def test_in_a_folder_the_platforms_share_is_taken_and_said(tmp_path, monkeypatch):
    on(monkeypatch, CLOUD_RUN)
    job = job_on(LocalStore(tmp_path / "w"))
    assert split(job) == Split(Shard(1, 3))
    (line,) = job.progress.lines
    assert "shard 1 of 3" in line
    assert "CLOUD_RUN_TASK_INDEX" in line


def test_leases_are_better_than_the_platforms_share(monkeypatch):
    on(monkeypatch, CLOUD_RUN)
    job = job_on(MemoryStore())
    assert split(job) == Split(leases=True)
    assert job.progress.lines == []


def test_store_without_conditional_writes_uses_platform_share(monkeypatch):
    on(monkeypatch, CLOUD_RUN)
    job = job_on(Scarce())
    assert split(job) == Split(Shard(1, 3))
    assert job.workspace.store.workers == [3]


@pytest.mark.parametrize("settings", [{"shard_count": 1}, {"shard_index": 0, "shard_count": 1}])
def test_who_asks_for_all_units_gets_them(tmp_path, monkeypatch, settings):
    on(monkeypatch, CLOUD_RUN)
    job = job_on(LocalStore(tmp_path / "w"), **settings)
    assert split(job) == Split()
    assert split(job).alone


def test_explicit_share_overrides_store_and_platform(monkeypatch):
    on(monkeypatch, CLOUD_RUN)
    job = job_on(MemoryStore(), shard_index=4, shard_count=7)
    assert split(job) == Split(Shard(4, 7))
    assert job.progress.lines == []


def test_a_count_alone_takes_its_index_from_the_platform(monkeypatch):
    """Launchers of Kubernetes give the count, which pods cannot know otherwise."""
    monkeypatch.setenv("JOB_COMPLETION_INDEX", "2")
    assert split(job_on(Scarce(), shard_count=3)) == Split(Shard(2, 3))
    assert split(job_on(Scarce(), shard_index=1, shard_count=3)) == Split(Shard(1, 3))
    assert split(job_on(Scarce(), shard_count=1)) == Split()
    with pytest.raises(UsageError, match="number of shares is unknown"):
        split(job_on(Scarce()))


def test_a_run_of_all_stages_does_all_units(tmp_path, monkeypatch):
    on(monkeypatch, CLOUD_RUN)
    job = job_on(LocalStore(tmp_path / "w"), model=RunSettings)
    assert split(job) == Split()


@pytest.mark.parametrize("model", [ExtractSettings, DescribeSettings, RunSettings])
def test_without_conditional_writes_one_worker_runs_and_notes_it(model):
    job = job_on(Scarce(), model=model)
    assert split(job).alone
    (line,) = job.progress.lines
    assert "`shard_index`" in line
    assert "commits are few" in line
    if model is RunSettings:
        split(job, "describe")
        assert len(job.progress.lines) == 1


def test_leases_that_a_folder_cannot_have_are_said(tmp_path, monkeypatch):
    store = LocalStore(tmp_path / "w")
    monkeypatch.setattr(store, "capabilities", lambda: Capabilities(True, False, "no locks here"))
    job = job_on(store, lease_seconds=60)
    assert split(job).alone
    assert "no locks here" in job.progress.lines[0]


def test_tasks_of_a_platform_read_each_unit_once(small_examples, tmp_path, monkeypatch):
    url = tmp_path / "w"
    llm_ocr.plan(
        [small_examples / "paper.pdf", small_examples / "fax.tiff"], workspace=url, pages_per_unit=1, engine="embedded"
    )
    total = llm_ocr.open(url).status.stages["extract"].total
    done, pages = [], Counts()
    for index in range(3):
        on(monkeypatch, {**CLOUD_RUN, "CLOUD_RUN_TASK_INDEX": str(index)})
        run = llm_ocr.extract(workspace=url, **FRUGALLY)
        done.append(run.status.stages["extract"].done)
        pages += run.processed["extract"]
        assert run.known_status == run.status
    monkeypatch.setattr("llm_ocr.workspace.status._FEW", 0)
    assert run.known_status is None
    assert pages == run.status.pages
    assert done[0] == len(range(0, total, 3))
    assert done[1] == done[0] + len(range(1, total, 3))
    assert done[2] == total
    assert len(list((url / "extract").rglob("*.parquet"))) == total


def test_second_command_in_a_folder_is_told_how_to_share(small_examples, tmp_path):
    url = tmp_path / "w"
    llm_ocr.plan(small_examples / "fax.tiff", workspace=url, pages_per_unit=1, engine="embedded")
    key = llm_ocr.extract(workspace=url, **FRUGALLY).status.stages["extract"].key
    with LocalStore(url).held(f"extract-{key}", shared=False):
        for settings in ({}, {"lease_seconds": 300}):
            with pytest.raises(
                WorkspaceError, match=r"(?s)another command \(process \d+ on .+`lease_seconds=300`"
            ) as told:
                llm_ocr.extract(workspace=url, **FRUGALLY, **settings)
            assert told.value.exit_code == 1
    with LocalStore(url).held(f"extract-{key}", shared=True):
        llm_ocr.extract(workspace=url, **FRUGALLY, lease_seconds=300)
        with pytest.raises(WorkspaceError, match="another command"):
            llm_ocr.extract(workspace=url, **FRUGALLY)
    llm_ocr.extract(workspace=url, **FRUGALLY)


@pytest.mark.slow
def test_run_leaves_the_end_to_the_worker_that_is_last(small_examples, tmp_path, capsys):
    url = tmp_path / "w"
    command = ["run", "-w", str(url), "--lease-seconds", "5", "--engine", "embedded", "--pages-per-unit", "1"]
    assert main([*command, str(small_examples / "paper.pdf")]) == 0
    key = llm_ocr.open(url).status.stages["extract"].key
    llm_ocr.plan(small_examples / "fax.tiff", workspace=url, pages_per_unit=1, engine="embedded")
    with Workspace.on(LocalStore(url)) as workspace:
        *_, unit = read_units(workspace)
    capsys.readouterr()
    with Leases(LocalStore(url), EXTRACT, key, LeaseOptions(5.0, "another", str(url))) as other:
        other.claim(unit.id)
        assert main(command) == 0
        shown = capsys.readouterr()
        assert "1 of 4 units not extracted: the worker that finishes last continues with describe" in shown.err
        assert "Result:" not in shown.out
        assert "1 not done yet" in shown.out
    assert main(command) == 0
    assert llm_ocr.open(url).status.stages["assemble"].finished


def test_a_dataset_repository_refuses_a_plan_for_too_many_files():
    workspace = Workspace.on(Scarce(), create=True)
    planned(workspace, 3)  # 27 files
    with pytest.raises(WorkspaceError, match="4 documents in 4 units need at least 36 files") as refused:
        planned(workspace, 4)
    assert "hf://buckets/" in str(refused.value)
    assert len(generations(workspace)) == 1
    assert not [info for info in workspace.store.list("plan/0002")]
    assert DatasetStore.most_files == MOST_FILES


UNITS = 1200


@pytest.fixture
def finished():
    """A store with a plan of many units, all of them done."""
    store = MemoryStore()
    with Workspace.on(store, create=True) as workspace:
        planned(workspace, UNITS)
    key = asyncio.run(extract_claim(job_on(store))).key
    with Workspace.on(store) as workspace:
        for unit in read_units(workspace):
            publish(workspace, EXTRACT, key, unit.id, b"", Summary(Counts(2, 2)))
    return store


def calls_of(job):
    before = job.workspace.store.calls.copy()
    asyncio.run(extract(job))
    return job.workspace.store.calls - before


@pytest.mark.parametrize(
    ("settings", "given"),
    [({}, None), ({"shard_index": 1, "shard_count": 3}, None), ({}, Split(leases=True))],
    ids=["leases", "shard", "given"],
)
def test_one_of_many_workers_starts_without_reading_results(finished, settings, given):
    job = job_on(finished, given=given, **settings)
    calls = calls_of(job)
    assert calls["get"] < 30
    assert calls.total() < 60
    assert job.progress.begun == [(EXTRACT, 0, Counts())]
    assert job.progress.corrected == 0
    assert bool(job.progress.lines) is (given is None)


def test_a_worker_alone_shows_what_was_done_before(finished):
    job = job_on(finished, given=None)
    job.workspace.store.capabilities = lambda: Capabilities(False, False)
    calls = calls_of(job)
    assert job.progress.begun == [(EXTRACT, 2 * UNITS, Counts(2 * UNITS, 2 * UNITS))]
    assert calls["get"] < UNITS + 30


def test_the_share_of_a_small_plan_shows_what_was_done_before(finished, monkeypatch):
    monkeypatch.setattr(sharing, "SMALL", UNITS)
    job = job_on(finished, shard_index=1, shard_count=300)
    calls = calls_of(job)
    assert job.progress.begun == [(EXTRACT, 8, Counts(8, 8))]
    assert calls["get"] < 30
