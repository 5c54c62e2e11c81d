"""Dataset repositories: what goes into which commit, and that nothing says done that is not there."""

import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from huggingface_hub import constants

from llm_ocr.errors import ObjectExists, ObjectNotFound, StorageError
from llm_ocr.storage.hf.commits import RATE, Rate, RateLimiter
from llm_ocr.types import Counts
from llm_ocr.workspace import Workspace
from llm_ocr.workspace.publish import find_marker, publish, read_data
from llm_ocr.workspace.summaries import Summary
from tests.fakes.hub import Fault, How

#: Nothing is committed before somebody waits for it.
LONG_LINGER = Rate(per_hour=360_000, at_once=1000, gather=0.05, linger=600.0)


@pytest.fixture
def place(making):
    return making.new_place("dataset")


@pytest.fixture
def store(making, place):
    made = making.store_at(place, rate=LONG_LINGER)
    yield made
    making.hub().faults.clear()
    made.flush()


@pytest.fixture
def other(making, place):
    """Another worker's store: it sees what is committed, and nothing else."""
    return making.store_at(place, rate=LONG_LINGER)


@pytest.fixture
def commits(making, place):
    """The titles of the commits since the repository was made, the newest first."""
    return lambda: [commit.title for commit in making.api().list_repo_commits(place.id, repo_type="dataset")][:-1]


@pytest.fixture(params=["by HTTP", "by Xet"])
def sending(request, monkeypatch):
    """Both ways in which huggingface_hub sends large files."""
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", request.param == "by HTTP")


def keys(store):
    return [info.key for info in store.list()]


def wait_until(true) -> None:
    end = time.monotonic() + 60
    while not true():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.02)


@pytest.mark.usefixtures("sending")
def test_data_and_their_marker_go_into_one_commit(store, other, commits):
    store.put("extract/u/1.parquet", b"rows" * 500_000)
    store.put("extract/u/2.json", b"{}")
    assert keys(other) == []
    store.create("extract/u.done", b"marker")
    assert keys(other) == ["extract/u.done", "extract/u/1.parquet", "extract/u/2.json"]
    assert other.get("extract/u/1.parquet") == b"rows" * 500_000
    assert len(commits()) == 1


def test_markers_that_are_made_at_the_same_time_share_commits(store, other, commits):
    begin = threading.Barrier(40)

    def publish(number: int) -> None:
        store.put(f"u{number}/data.parquet", b"%d" % number)
        begin.wait()
        store.create(f"u{number}.done", b"%d" % number)

    with ThreadPoolExecutor(40) as pool:
        list(pool.map(publish, range(40)))
    assert len(keys(other)) == 80
    assert len(commits()) <= 20  # of a busy machine; hardly ever more than 4


def test_a_commit_has_at_most_so_many_files(making, place, other, commits):
    few = making.store_at(place, rate=Rate(per_hour=360_000, at_once=1000, gather=0.01, linger=600.0, most=10))
    for number in range(35):
        few.put(f"f{number:02d}", b"%d" % number)
    few.create("done", b"")
    assert len(commits()) == 4
    assert keys(other) == ["done", *(f"f{number:02d}" for number in range(35))]


def test_readers_of_the_same_store_see_what_waits_for_its_commit(store, tmp_path):
    store.put("a/k", b"0123")
    assert store.get("a/k") == b"0123"
    store.put("a/k", b"4567")
    assert store.stat("a/k").size == 4
    store.put("a/k", b"89")
    assert keys(store) == ["a/k"]
    store.put("a/k", b"abc")
    store.download("a/k", tmp_path / "k")
    assert (tmp_path / "k").read_bytes() == b"abc"
    store.delete("a/k")
    with pytest.raises(ObjectNotFound):
        store.get("a/k")


def test_the_last_of_several_writes_of_a_key_stands(store, other, commits):
    for data in (b"1", b"22", b"1"):
        store.put("k", data)
    store.flush()
    assert other.get("k") == b"1"
    store.put("k", b"333" * 1_000_000)
    store.delete("k")
    store.put("k", b"1")
    store.flush()
    assert other.get("k") == b"1"
    store.put("k", b"4")
    store.delete("k")
    store.flush()
    assert keys(other) == []
    assert len(commits()) == 2  # the second flush found all as it should be


@pytest.mark.usefixtures("sending")
def test_large_files_may_be_gone_once_they_are_uploaded(store, other, tmp_path):
    for name, size in (("large.parquet", 2_000_000), ("large.txt", 2_000_000), ("small.txt", 20)):
        (tmp_path / name).write_bytes(b"x" * size)
        store.upload(tmp_path / name, name)
        (tmp_path / name).unlink()
    store.flush()
    assert [(info.key, info.size) for info in other.list()] == [
        ("large.parquet", 2_000_000),
        ("large.txt", 2_000_000),
        ("small.txt", 20),
    ]


@pytest.mark.usefixtures("sending")
def test_large_data_sent_ahead_replaces_later_data(store, other):
    """The client leaves out what was already there when it was sent, though it may be another by the commit."""
    first, second = b"1" * 2_000_000, b"2" * 2_000_000
    store.put("k.parquet", first)
    store.flush()
    store.put("k.parquet", first)
    other.put("k.parquet", second)
    other.flush()
    store.flush()
    assert other.get("k.parquet") == first


def test_creator_finds_what_another_committed_while_it_waited(making, place, other):
    slow = making.store_at(place, rate=Rate(per_hour=360_000, at_once=1000, gather=600.0, linger=600.0))
    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(slow.create, "k", b"late")
        wait_until(lambda: slow._queue.of(lambda _: True))
        other.create("k", b"first")
        slow.flush()
        with pytest.raises(ObjectExists):
            late.result()
    assert other.get("k") == b"first"


def test_repeated_or_unneeded_removal_spoils_no_commit(store, other):
    store.put("k", b"1")
    store.put("l", b"1")
    store.flush()
    for key in ("k", "never", "k"):
        store.delete(key)
    other.delete("k")
    other.flush()
    store.create("done", b"")
    assert keys(other) == ["done", "l"]


@pytest.mark.parametrize("status", [409, 412, 429, 500, 502, 503])
def test_a_commit_that_was_refused_is_tried_again(making, place, store, other, commits, status):
    headers = {"Retry-After": "0"} if status == 429 else {}
    making.hub().faults.add(Fault("commit", place.id, status=status, times=2, headers=headers))
    store.put("data", b"1")
    store.create("done", b"2")
    assert keys(other) == ["data", "done"]
    assert len(commits()) == 1
    assert making.hub().faults.listed() == []


@pytest.mark.usefixtures("sending")
@pytest.mark.parametrize("how", [How.LOSE, How.CUT])
def test_a_commit_whose_answer_was_lost_is_made_once(making, place, store, other, commits, how):
    making.hub().faults.add(Fault("commit", place.id, how, status=504))
    store.put("large.parquet", b"1" * 2_000_000)
    store.put("data", b"1")
    store.create("done", b"2")
    assert keys(other) == ["data", "done", "large.parquet"]
    assert len(commits()) == 1
    assert making.hub().faults.listed() == []


@pytest.mark.parametrize("operation", ["preupload", "lfs_batch", "lfs_put", "lfs_verify", "paths_info", "commit"])
@pytest.mark.parametrize("how", [How.REFUSE, How.DROP, How.LOSE])
def test_any_one_failure_on_the_way_is_not_noticed(making, place, store, other, monkeypatch, operation, how):
    monkeypatch.setattr("huggingface_hub.utils._http.time.sleep", lambda _: None)
    name = "" if operation in ("lfs_put", "lfs_verify") else place.id
    making.hub().faults.add(Fault(operation, name, how, status=503))
    large = f"{how} {operation} ".encode() * 200_000  # of its own: what the Hub has already is not sent
    store.put("large.parquet", large)
    store.create("done", b"2")
    assert other.get("large.parquet") == large
    assert keys(other) == ["done", "large.parquet"]
    assert making.hub().faults.listed() == []


def test_commit_quota_wait_lasts_as_long_as_the_hub_requests(making, place, other, monkeypatch):
    waits: list[float] = []
    monkeypatch.setattr("llm_ocr.storage.hf.client.random.uniform", lambda low, high: low)
    retries = making.RetryPolicy(tries=2, first=0.0, longest=0.0, limit=4000.0)
    client = making.store_at(place)._client

    def make(data: bytes = b"1") -> None:
        with client.doing("write"):
            client.api.upload_file(path_or_fileobj=data, path_in_repo="k", repo_id=place.id, repo_type="dataset")

    make(b"0")
    making.hub().state.quota.per_hour = making.hub().state.quota.made()

    def pause(seconds: float) -> None:
        waits.append(seconds)
        making.hub().state.quota.per_hour = None

    retries.keep_trying(make, pause)
    assert len(waits) == 1
    assert 3000 < waits[0] <= 3601


def test_a_marker_never_passes_data_that_could_not_be_committed(making, place, store, other):
    making.hub().faults.add(Fault("commit", place.id, status=403, times=1, message="storage limit reached"))
    store.put("u/data", b"1")
    with pytest.raises(StorageError, match="storage limit reached") as caught:
        store.create("u.done", b"2")
    assert not caught.value.retryable
    assert keys(other) == []
    store.create("v.done", b"3")
    assert keys(other) == ["u/data", "v.done"]


def test_flush_fails_loudly_and_keeps_what_it_could_not_write(making, place, store, other):
    making.hub().faults.add(Fault("commit", place.id, status=403, times=1))
    store.put("k", b"1")
    with pytest.raises(StorageError):
        store.flush()
    store.flush()
    assert other.get("k") == b"1"


def test_what_the_repository_ignores_is_an_error(making, place, store):
    making.api().upload_file(
        path_or_fileobj=b"*.done", path_in_repo=".gitignore", repo_id=place.id, repo_type="dataset"
    )
    with pytest.raises(StorageError, match="the commit lacks the file") as caught:
        store.create("u.done", b"1")
    assert ".gitignore" in caught.value.hint


@pytest.mark.usefixtures("sending")
def test_what_was_ignored_is_committed_once_the_rule_is_gone(making, place, store, other):
    api = making.api()
    api.upload_file(path_or_fileobj=b"u/*", path_in_repo=".gitignore", repo_id=place.id, repo_type="dataset")
    for name, data in (("runs/one/u/small", b"1"), ("u/small", b"2"), ("u/large.parquet", b"3" * 2_000_000)):
        store.put(name, data)
    api.upload_file(path_or_fileobj=b"*/u/*", path_in_repo=".gitignore", repo_id=place.id, repo_type="dataset")
    with pytest.raises(StorageError, match="the commit lacks the file"):
        store.flush()
    api.delete_file(".gitignore", repo_id=place.id, repo_type="dataset")
    store.flush()
    assert keys(other) == ["runs/one/u/small", "u/large.parquet", "u/small"]
    assert other.get("u/large.parquet") == b"3" * 2_000_000


def test_units_are_published_by_the_rule_and_read_by_others(store, other):
    summary = Summary(Counts(expected=1, ok=1))
    with Workspace.on(store, create=True) as mine, Workspace.on(other) as theirs:
        marker = publish(mine, "extract", "k" * 12, "u", b"rows", summary)
        assert find_marker(theirs, "extract", "k" * 12, "u") == marker
        assert read_data(theirs, marker) == b"rows"
        assert publish(theirs, "extract", "k" * 12, "u", b"other rows", summary) == marker
    other.flush()


def test_put_is_committed_after_a_while_without_a_waiter(making, place, other):
    hasty = making.store_at(place, rate=Rate(per_hour=360_000, at_once=1000, gather=0.01, linger=0.01))
    hasty.put("k", b"1")
    wait_until(lambda: other.stat("k") is not None)


PROGRAM = """
import sys
from llm_ocr.storage import open_store
store = open_store(sys.argv[1])
store.put("a.parquet", b"1")
store.put("b.parquet", b"2" * 2_000_000)
store.put("c.parquet", b"3")
{end}
"""


@pytest.mark.parametrize(
    ("end", "code", "left"),
    [
        ("", 0, ["a.parquet", "b.parquet", "c.parquet"]),
        ("raise SystemExit(4)", 4, ["a.parquet", "b.parquet", "c.parquet"]),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -9, []),
    ],
)
def test_ending_process_commits_and_killed_one_leaves_no_half(making, place, other, tmp_path, end, code, left):
    environment = {"PATH": "/usr/bin:/bin", **making.hub().environment(tmp_path)}
    command = [sys.executable, "-c", PROGRAM.format(end=end), place.url]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=180)
    assert (ended.returncode, ended.stderr) == (code, "")
    assert keys(other) == left


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands until it is set."""
    now = [1000.0]
    monkeypatch.setattr("llm_ocr.storage.hf.commits.time.monotonic", lambda: now[0])
    return now


def commits_in_an_hour(pace: RateLimiter, clock: list[float]) -> int:
    """As many as the pace allows, one when it is due."""
    made, end = 0, clock[0] + 3600
    while True:
        clock[0] += pace.due_in()
        if clock[0] >= end:
            return made
        pace.spend()
        made += 1


@pytest.mark.parametrize("workers", [1, 2, 5, 18])
def test_all_workers_make_under_a_hundred_commits_in_any_hour(clock, workers):
    pace = RateLimiter(RATE)
    pace.share(workers)
    assert 70 <= workers * commits_in_an_hour(pace, clock) < 100
    assert 70 <= workers * commits_in_an_hour(pace, clock) < 100
    clock[0] += 24 * 3600
    assert 70 <= workers * commits_in_an_hour(pace, clock) < 100


def test_a_small_run_does_not_wait(clock):
    pace = RateLimiter(RATE)
    for _ in range(15):
        assert pace.due_in() == 0
        pace.spend()


def test_a_commit_out_of_turn_is_made_up_for(clock):
    pace = RateLimiter(Rate(per_hour=60, at_once=1))
    for _ in range(3):
        pace.spend()
    assert pace.due_in() == pytest.approx(180)
    clock[0] += 180
    assert pace.due_in() == pytest.approx(0, abs=1e-6)
