"""`--follow`: Describe and Assemble at work beside the stage before, alone, in shards and with leases."""

import json
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from bad_documents import good_pages, text_pdf
from running import FRUGALLY, Told, environment, program
from store_servers import s3

import llm_ocr
from llm_ocr.errors import StageMissing
from llm_ocr.scheduling.follow import Pauses
from llm_ocr.storage.names import TEMPORARY

TIMEOUT = 240.0
EMBEDDED = {"engine": "embedded", "ocr_workers": 1}


class Counting(Told):
    """What a follower says, and what it expects and has counted."""

    def __init__(self) -> None:
        super().__init__()
        self.expected = self.counted = 0

    def begin(self, stage, expected, done, estimated=False):
        self.expected = expected

    def correct(self, change, *, exact):
        self.expected += change

    def count(self, status):
        self.counted += 1


@pytest.fixture
def pool(monkeypatch):
    """Threads for followers, whose pauses are short, and which end with the test."""
    over, pause = threading.Event(), Pauses.pause

    def brisk(self, *what):
        if over.is_set():
            raise AssertionError("the test is over")
        return min(0.1, pause(self, *what))

    monkeypatch.setattr(Pauses, "pause", brisk)
    with ThreadPoolExecutor(4) as made:
        yield made
        over.set()


@pytest.fixture
def sources(digital, examples) -> list[Path]:
    """A document of one page, and one of three pages with figures."""
    return [digital / "one.pdf", examples / "paper.pdf"]


def until(true: Callable[[], object], *followers: Future) -> None:
    """Wait until it is true; what a follower raises meanwhile is raised here."""
    deadline = time.monotonic() + TIMEOUT
    while not true():
        for follower in followers:
            if follower.done():
                raise AssertionError(f"it ended: {follower.exception() or follower.result()!r}")
        assert time.monotonic() < deadline
        time.sleep(0.02)


def counts(status: llm_ocr.Run) -> dict[str, int]:
    return {name: stage.done for name, stage in status.status.stages.items()}


@pytest.mark.slow
def test_both_stages_take_units_while_extract_has_others_to_do(sources, tmp_path, pool):
    url, told, final = tmp_path / "w", Counting(), Counting()
    describing = pool.submit(llm_ocr.describe, workspace=url, follow=True, progress=told, **EMBEDDED)
    assembling = pool.submit(llm_ocr.assemble, workspace=url, follow=True, progress=final)
    until(lambda: told.lines and final.lines, describing, assembling)
    assert told.lines == final.lines == [f"waiting for a workspace at {url}"]
    llm_ocr.plan(sources, workspace=url, pages_per_unit=1, engine="embedded")
    llm_ocr.extract(workspace=url, shard_index=0, shard_count=2, **FRUGALLY)
    run = llm_ocr.open(url)
    half = counts(run)["extract"]
    until(lambda: counts(run)["describe"] == half and counts(run)["assemble"] > 0, describing, assembling)
    assert counts(run)["extract"] == half < run.status.stages["extract"].total
    llm_ocr.extract(workspace=url, shard_index=1, shard_count=2, **FRUGALLY)
    describing.result(TIMEOUT)
    assembling.result(TIMEOUT)
    status = run.status
    assert status.finished
    assert status.pages.ok == status.pages.expected == final.expected == final.counted
    assert status.figures.expected == told.expected == told.counted > 0
    assert sum(1 for _ in run.documents()) == status.documents
    assert len(run.to_dataset()) == status.pages.expected


class Played:
    """A workspace in which Extract's work is played from one that was done before: unit by unit, without its time."""

    def __init__(self, done: Path, url: Path) -> None:
        self.done, self.url = done, url
        self.give("run.json", "extract/key.json", "extract/*/settings.json")

    def give(self, *patterns: str) -> None:
        """These files, markers last."""
        files = [path for pattern in patterns for path in self.done.glob(pattern) if path.is_file()]
        for path in sorted(files, key=lambda path: path.suffix == ".done"):
            target = self.url / path.relative_to(self.done)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target.with_name(f"{TEMPORARY}{path.name}"))
            target.with_name(f"{TEMPORARY}{path.name}").replace(target)

    def plan(self, generation: int) -> None:
        self.give(f"plan/{generation:04d}/*/*", f"plan/{generation:04d}.done")

    def extract(self, unit: str) -> None:
        self.give(f"extract/*/*/{unit}/*", f"extract/*/*/{unit}.done")


@pytest.fixture(scope="module")
def extracted(golden, examples, small_examples) -> Path:
    """Two generations of sources and one of a retry, extracted."""

    def make(folder: Path) -> None:
        url, late = folder / "w", folder / "late.pdf"
        llm_ocr.extract([late, examples / "paper.pdf"], workspace=url, pages_per_unit=1, **FRUGALLY)
        llm_ocr.extract(
            [small_examples / "invoice.png", small_examples / "fax.tiff"], workspace=url, pages_per_unit=1, **FRUGALLY
        )
        late.write_bytes(text_pdf(*good_pages("late", 1)))
        llm_ocr.retry_failed(workspace=url, engine="embedded")
        llm_ocr.extract(workspace=url, **FRUGALLY)

    return golden("generations", make) / "w"


@pytest.fixture
def played(extracted, tmp_path) -> Played:
    return Played(extracted, tmp_path / "w")


def test_what_is_planned_or_retried_meanwhile_is_done_as_well(played, pool):
    url, told, final = played.url, Counting(), Counting()
    played.plan(1)
    played.extract("0001-*[024]")
    describing = pool.submit(llm_ocr.describe, workspace=url, follow=True, progress=told, **EMBEDDED)
    assembling = pool.submit(llm_ocr.assemble, workspace=url, follow=True, progress=final)
    run = llm_ocr.open(url)
    until(lambda: counts(run)["assemble"] == 1, describing, assembling)  # the document that could not be opened
    assert run.status.pages.failed == 1
    played.plan(2)
    played.plan(3)
    played.extract("*")
    describing.result(TIMEOUT)
    assembling.result(TIMEOUT)
    assert run.status.finished
    assert run.status.generations == 3
    assert run.status.pages.failed == 0
    assert told.counted == told.expected == run.status.figures.expected > 0
    assert final.counted == final.expected == run.status.pages.expected + 1  # one of them twice
    assert all(len(document.markdown) > 10 for document in run.documents())


def test_documents_overwritten_by_a_slow_worker_are_rewritten(played):
    for generation in (1, 2, 3):
        played.plan(generation)
    played.extract("*")
    llm_ocr.describe(workspace=played.url, **EMBEDDED)
    run = llm_ocr.assemble(workspace=played.url)
    texts = {document.path: document.markdown for document in run.documents()}
    note = played.url / "assemble/views/0001-000000.json"
    (played.url / next(path for path in texts if "late" in path)).write_text("of the older generation")
    note.write_text(json.dumps({**json.loads(note.read_text()), "generation": 1}))
    again = llm_ocr.assemble(workspace=played.url)
    assert {document.path: document.markdown for document in again.documents()} == texts


@pytest.mark.parametrize("stage", ["describe", "assemble"])
def test_shards_that_follow_cover_everything_once(played, pool, stage):
    url, call, options = played.url, getattr(llm_ocr, stage), EMBEDDED if stage == "describe" else {}
    played.plan(1)
    shards = [
        pool.submit(call, workspace=url, follow=True, shard_index=index, shard_count=3, **options) for index in range(3)
    ]
    played.extract("0001-*")
    if stage == "assemble":
        llm_ocr.describe(workspace=url, **EMBEDDED)
    for shard in shards:
        shard.result(TIMEOUT)
    status = llm_ocr.open(url).status
    assert status.stages[stage].finished
    data = list((url / stage).rglob("*.parquet"))
    assert len(data) == len(list((url / stage).rglob("*.done"))) == status.stages[stage].total


#: A worker that takes a unit and never publishes it.
HOLDS = """
import sys, time
import llm_ocr
import llm_ocr.stages.{stage} as stage

def hold(*arguments):
    sys.stdout.write("holds\\n")  # in one piece: another thread may write the same
    sys.stdout.flush()
    time.sleep(1000)

assert hasattr(stage, "{name}")
stage.{name} = hold
llm_ocr.{stage}(workspace=sys.argv[1], workspace_endpoint=sys.argv[2], follow=True, lease_seconds=5, {more})
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stage", "name", "more"),
    [
        ("describe", "figures_to_parquet", {"engine": "embedded", "ocr_workers": 1}),
        ("assemble", "assemble_item", {}),
    ],
)
def test_of_two_followers_with_leases_one_is_killed(sources, pool, stage, name, more):
    with s3() as (url, settings):
        llm_ocr.plan(sources, workspace=url, pages_per_unit=1, engine="embedded", **settings)
        llm_ocr.extract(workspace=url, shard_index=0, shard_count=2, **settings, **FRUGALLY)
        if stage == "assemble":
            describing = pool.submit(llm_ocr.describe, workspace=url, follow=True, **settings, **EMBEDDED)
        script = HOLDS.format(stage=stage, name=name, more=", ".join(f"{k}={v!r}" for k, v in more.items()))
        dying = subprocess.Popen(
            [sys.executable, "-c", script, url, settings["workspace_endpoint"]], stdout=subprocess.PIPE, text=True
        )
        try:
            assert dying.stdout
            assert dying.stdout.readline() == "holds\n"
            call, told = getattr(llm_ocr, stage), Counting()
            other = pool.submit(call, workspace=url, follow=True, lease_seconds=5, progress=told, **settings, **more)
            run = llm_ocr.open(url, endpoint=settings["workspace_endpoint"])
            until(lambda: told.lines or counts(run)[stage] > 0, other)
        finally:
            dying.kill()
            dying.wait()
        time.sleep(5)  # a worker whose lease was renewed a moment ago counts as alive, and the other would end
        llm_ocr.extract(workspace=url, shard_index=1, shard_count=2, **settings, **FRUGALLY)
        other.result(TIMEOUT)
        if stage == "assemble":
            describing.result(TIMEOUT)
        assert counts(run)[stage] == run.status.stages[stage].total
        assert told.counted == told.expected


def waiting_program(url, *arguments: str) -> subprocess.Popen[str]:
    command = program("describe", "-w", str(url), "--follow", *arguments)
    return subprocess.Popen(command, env=environment(), cwd=url.parent, stderr=subprocess.PIPE, text=True)


@pytest.mark.slow
@pytest.mark.parametrize("begun", [False, True], ids=["no workspace", "no unit"])
def test_sigterm_ends_a_waiting_follower_before_any_request(extracted, tmp_path, begun):
    url = tmp_path / "w"
    if begun:
        Played(extracted, url).plan(1)
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
        follower = waiting_program(url, "--engine", "server", "--server-url", address)
        try:
            assert follower.stderr
            lines = []
            while not any("waiting for" in line for line in lines):
                lines.append(follower.stderr.readline())
                assert lines[-1], "".join(lines)
            assert ("4 of 4 units of extract" if begun else "a workspace at") in lines[-1]
            with pytest.raises(BlockingIOError):
                server.accept()
            follower.send_signal(signal.SIGTERM)
            assert follower.wait(TIMEOUT) == 4, follower.stderr.read()
        finally:
            follower.kill()
            follower.wait()


def test_without_follow_the_stage_before_must_have_finished(played):
    played.plan(1)
    played.extract("0001-*[024]")
    with pytest.raises(StageMissing, match="2 of 4 units not extracted"):
        llm_ocr.describe(workspace=played.url, **EMBEDDED)
    with pytest.raises(StageMissing, match="2 of 4 units not extracted"):
        llm_ocr.assemble(workspace=played.url)
    played.extract("0001-*")
    with pytest.raises(StageMissing, match="describe has not started"):
        llm_ocr.assemble(workspace=played.url)
