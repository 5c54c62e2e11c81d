"""A launch that waits shows pages, speed, time left, and dollars: one line on a terminal, messages elsewhere."""

import io
import time
from dataclasses import dataclass, field

import pytest

import llm_ocr
from llm_ocr.errors import LaunchError
from llm_ocr.launch import Job, JobSpec, JobStatus, State, watching
from llm_ocr.launch.watching import Display, Progress, until_over
from llm_ocr.workspace import Workspace

SPEC = JobSpec("extract", "w", "l", shards=2, hardware="x", options={"price_per_hour": 3600.0})


@pytest.fixture(scope="module")
def read(tmp_path_factory, examples):
    """A workspace whose three units are read, and its figures described."""
    folder = tmp_path_factory.mktemp("watched") / "w"
    small = {"engine": "embedded", "render_workers": 1, "ocr_workers": 1, "pages_per_unit": 1}
    llm_ocr.run([examples / "paper.pdf"], workspace=folder, **small)
    return folder


def running(seconds: float) -> JobStatus:
    return JobStatus(Job("a", "a"), State.RUNNING, "", 0.0, None, seconds)


def test_pages_and_dollars_are_shown(read):
    with Workspace.open(str(read)) as workspace:
        progress = Progress(workspace, "slurm", SPEC, 20.0)
        assert progress.words([running(1.5)], every=60) == "3/3 pages, $1.50 of $20.00"


def test_speed_and_time_left_follow_from_published_units(examples, tmp_path, monkeypatch):
    monkeypatch.setattr(watching, "_READ_SHARE", 1e9)  # a slow first reading would put off the second
    small = {"workspace": tmp_path / "w", "engine": "embedded", "render_workers": 1, "ocr_workers": 1}
    llm_ocr.plan(examples / "paper.pdf", workspace=tmp_path / "w", pages_per_unit=1, engine="embedded")
    with Workspace.open(str(tmp_path / "w")) as workspace:
        progress = Progress(workspace, "slurm", SPEC)
        assert progress.words([running(1.0)], every=0) == "0/3 pages, $1.00"
        llm_ocr.extract(shard_index=0, shard_count=3, **small)
        words = progress.words([running(2.0)], every=0)
    done, pace, left, money = words.split(", ")
    assert 0 < int(done.removesuffix("/3 pages")) < 3
    assert pace.endswith(" pages/s")
    assert left.endswith(" left")
    assert money == "$2.00"


def test_describe_counts_figures(read):
    status = llm_ocr.open(read).status
    with Workspace.open(str(read)) as workspace:
        spec = JobSpec("describe", "w", "l", hardware="x")
        words = Progress(workspace, "slurm", spec).words([running(1.0)], every=60)
    assert words == f"{status.figures.expected}/{status.figures.expected} figures"


@dataclass
class Counting:
    """A store that counts what is read."""

    store: object
    read: list[str] = field(default_factory=list)

    def __getattr__(self, name):
        return getattr(self.store, name)

    def get(self, key):
        self.read.append(key)
        return self.store.get(key)


def test_each_unit_is_read_once_however_often_progress_is_shown(read):
    with Workspace.open(str(read)) as workspace:
        workspace.store = store = Counting(workspace.store)
        progress = Progress(workspace, "slurm", SPEC)
        for _ in range(5):
            progress.words([running(1.0)], every=0)
    markers = [key for key in store.read if key.startswith("extract/") and key.endswith(".done")]
    assert len(markers) == len(set(markers)) == 3


@dataclass
class Platform:
    """Answers of a platform, one after the other; the last one for ever."""

    answers: list[object]

    def status(self, jobs):
        found = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(found, Exception):
            raise found
        return [found]


ENDED = JobStatus(Job("a", "a"), State.SUCCEEDED, "", 0.0, 2.0, 2.0)


def test_without_a_terminal_a_change_of_state_is_a_message(read):
    lines: list[str] = []
    platform = Platform([running(1.0), LaunchError("no answer"), running(1.1), ENDED])
    with Workspace.open(str(read)) as workspace:
        progress = Progress(workspace, "slurm", SPEC)
        until_over(platform, [ENDED.job], Display(lines.append), "extract", every=0.01, progress=progress)
    assert lines == [
        "extract: 3/3 pages, $1.00; 1 job: 1 running",
        "extract: no answer; retrying",
        "extract: 3/3 pages, $2.00; 1 job: 1 succeeded",
    ]


def test_on_a_terminal_one_line_is_redrawn_and_its_end_stays(read):
    terminal = io.StringIO()
    platform = Platform([running(1.0), LaunchError("no answer"), running(1.1), ENDED])
    with Workspace.open(str(read)) as workspace:
        progress = Progress(workspace, "slurm", SPEC)
        display = Display(lambda line: terminal.write(f"{line}\n"), terminal)
        until_over(platform, [ENDED.job], display, "extract", every=0.01, progress=progress)
    shown = [one.partition("\r")[2] or one for one in terminal.getvalue().replace("\x1b[K", "").split("\n")]
    assert terminal.getvalue().startswith("\rextract: 3/3 pages, $1.00; 1 job: 1 running\x1b[K")
    assert [one.rpartition("\r")[2] for one in shown] == [
        "extract: no answer; retrying",
        "extract: 3/3 pages, $2.00; 1 job: 1 succeeded",
        "",
    ]


def test_a_store_that_does_not_answer_ends_no_launch(read, tmp_path):
    lines: list[str] = []
    with Workspace.open(str(read)) as workspace:
        progress = Progress(workspace, "slurm", SPEC)
        workspace.store = Broken(workspace.store)
        until_over(Platform([ENDED]), [ENDED.job], Display(lines.append), "extract", every=0.01, progress=progress)
    assert lines == ["extract: progress cannot be read: the disk is gone; 1 job: 1 succeeded"]


@dataclass
class Broken:
    """A store that fails."""

    store: object

    def __getattr__(self, name):
        raise llm_ocr.errors.StorageError("the disk is gone")


def test_progress_shows_no_dollars_where_the_price_is_unknown(read):
    with Workspace.open(str(read)) as workspace:
        progress = Progress(workspace, "slurm", JobSpec("extract", "w", "l", hardware="gpu:1"))
        assert progress.words([running(time.time())], every=60) == "3/3 pages"
