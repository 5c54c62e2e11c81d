"""clean: leftovers go, everything that counts stays."""

import asyncio
import os
import signal
import subprocess
import sys
import time

import pytest

from llm_ocr.errors import StorageError, WorkspaceError
from llm_ocr.scheduling.leases import Claim, LeaseOptions, Leases, is_lease
from llm_ocr.stages.clean import clean
from llm_ocr.stages.flow import Spool
from llm_ocr.storage.local import LocalStore
from llm_ocr.workspace import Workspace
from llm_ocr.workspace.generations import read_units
from llm_ocr.workspace.keys import EXTRACT, claim_key
from llm_ocr.workspace.publish import find_marker, read_data
from tests.fakes.crash import Crash, CrashingLocalStore, CrashPoint, When
from tests.fakes.memory_store import MemoryStore

LATER = time.time() + 2 * 86400


@pytest.fixture
def leftovers(made, workspace):
    """A workspace with one done unit, and what the dead have left; the keys of the leftovers."""
    made.plan(workspace, [made.document("a", 4), made.document("b", 4)])
    units = list(read_units(workspace))
    claim_key(workspace, "describe", {})
    marker = made.extract(workspace, units[0])
    base = marker.object.rpartition("/")[0]
    keys = [
        f"{base}/0000000000000000.parquet",
        f"{EXTRACT}/{made.key(workspace)}/00/{units[1].id}/1.parquet",
        f"{EXTRACT}/{made.key(workspace)}/00/{units[1].id}.lease",
        "plan/0001/0000000000000000/units-00000.jsonl",
        "plan/0002/0000000000000000/units-00000.jsonl",
    ]
    for key in keys:
        workspace.store.put(key, b"leftover")
    with pytest.raises(Crash):
        CrashingLocalStore(made.root, CrashPoint(1, When.AFTER)).put("run.json", b"torn")
    return sorted([*keys, *(info.key for info in workspace.store.unfinished())])


def kept(workspace, leftovers):
    return {info.key for info in workspace.store.list()} - set(leftovers)


def test_clean_removes_leftovers_and_nothing_else(made, workspace, leftovers):
    before = kept(workspace, leftovers)
    cleaned = clean(workspace, now=LATER)
    assert sorted(info.key for info in cleaned.objects) == leftovers
    assert cleaned.size > 0
    assert {info.key for info in workspace.store.list()} == before
    assert list(workspace.store.unfinished()) == []
    assert clean(workspace, now=LATER).objects == ()
    units = list(read_units(workspace))
    assert read_data(workspace, find_marker(workspace, EXTRACT, made.key(workspace), units[0].id))


def test_a_dry_run_lists_and_keeps(workspace, leftovers):
    cleaned = clean(workspace, now=LATER, dry_run=True)
    assert sorted(info.key for info in cleaned.objects) == leftovers
    assert clean(workspace, now=LATER, dry_run=True) == cleaned


def test_clean_keeps_recent_objects(workspace, leftovers):
    assert clean(workspace).objects == ()
    assert clean(workspace, older_than=60, now=time.time() + 30).objects == ()


def test_a_clock_ahead_of_the_store_makes_nothing_old(workspace, leftovers, monkeypatch):
    real = time.time
    monkeypatch.setattr("time.time", lambda: real() + 30 * 3600)
    before = {info.key for info in workspace.store.list()}
    assert clean(workspace, dry_run=True).objects == clean(workspace).objects == ()
    assert {info.key for info in workspace.store.list()} == before


@pytest.mark.parametrize("behind", [0, -30 * 3600, 30 * 3600])
def test_age_is_by_the_clock_of_the_store(made, behind):
    """Two days pass in the store; this machine's clock differs from the store's and stays where it is."""
    clock = [time.time() - behind]
    workspace = Workspace.on(MemoryStore(clock=lambda: clock[0]), create=True)
    made.plan(workspace, [made.document("a", 4)])
    (unit,) = read_units(workspace)
    lost = f"{EXTRACT}/{made.key(workspace)}/00/{unit.id}/1.parquet"
    workspace.store.put(lost, b"leftover")
    assert clean(workspace).objects == ()
    clock[0] += 2 * 86400
    before = {info.key for info in workspace.store.list()}
    assert [info.key for info in clean(workspace).objects] == [lost]
    assert {info.key for info in workspace.store.list()} == before - {lost}


def test_the_probe_of_a_killed_clean_is_a_leftover(workspace, leftovers, monkeypatch):
    def killed(store, key):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(LocalStore, "delete", killed)
        clean(workspace)
    before = kept(workspace, leftovers)
    (probe,) = before - {info.key for info in workspace.store.list() if "clock-" not in info.key}
    assert probe in {info.key for info in clean(workspace, now=LATER).objects}


def test_objects_without_a_time_are_never_old(made):
    workspace = Workspace.on(MemoryStore(clock=lambda: 0.0), create=True)
    made.plan(workspace, [made.document("a", 4)])
    (unit,) = read_units(workspace)
    workspace.store.put(f"{EXTRACT}/{made.key(workspace)}/00/{unit.id}/1.parquet", b"another worker's, perhaps")
    writes = workspace.store.calls["put"]
    assert clean(workspace, now=LATER).objects == clean(workspace).objects == ()
    assert workspace.store.calls["put"] == writes


def test_a_lease_expires_after_the_time_in_its_content(made, workspace):
    made.plan(workspace, [made.document("a", 4)])
    long = Leases(workspace.store, EXTRACT, made.key(workspace), LeaseOptions(seconds=10 * 86400))
    (unit,) = read_units(workspace)
    assert long.claim(unit.id) is Claim.OURS
    assert clean(workspace, now=LATER).objects == ()
    (removed,) = clean(workspace, now=LATER + 10 * 86400).objects
    assert is_lease(removed.key)


def test_nothing_of_a_unit_with_a_damaged_marker_is_removed(made, workspace, leftovers):
    (marker,) = made.root.glob(f"{EXTRACT}/*/*/*.done")
    marker.write_bytes(b"")
    with pytest.raises(WorkspaceError, match="damaged"):
        clean(workspace, now=LATER)
    assert len(list(marker.with_suffix("").iterdir())) == 2


def test_clean_keeps_retries_and_their_data(made, workspace):
    document = made.document("a", 4)
    made.plan(workspace, [document])
    (unit,) = read_units(workspace)
    made.extract(workspace, unit, [f"{document.id}-p00001"])

    assert made.retry(workspace) is not None
    for again in list(read_units(workspace))[1:]:
        made.extract(workspace, again)
    assert clean(workspace, now=LATER).objects == ()


def test_an_error_in_the_middle_is_not_hidden(made, workspace, leftovers):
    class Stuck(LocalStore):
        def delete(self, key):
            raise StorageError(f"cannot remove {key}")

    with pytest.raises(StorageError, match="cannot remove"):
        clean(made.workspace(Stuck(made.root)), now=LATER)


def test_clean_removes_leftovers_of_user_defined_stages(workspace):
    key = claim_key(workspace, "redact", {"version": "1"})
    leftover = f"redact/{key}/00/0001-000000/0000000000000000.parquet"
    views = ("documents/a.pdf.md", "dataset/train-1.parquet", "preview/train-0123456789ab-00000.parquet")
    for name in (leftover, *views):
        workspace.store.put(name, b"data")
    assert [info.key for info in clean(workspace, now=LATER).objects] == [leftover]


def test_markers_are_read_only_where_their_data_is_ambiguous(made, workspace, monkeypatch):
    made.plan(workspace, [made.document(name, 4) for name in "abc"])
    done = [made.extract(workspace, unit) for unit in read_units(workspace)]
    unit = done[0].object.rpartition("/")[0]
    lost = f"{unit}/0.parquet"
    workspace.store.put(lost, b"of another attempt")
    read = []
    monkeypatch.setattr(LocalStore, "get", lambda store, key: read.append(key) or store.fetch(key)[0])
    assert [info.key for info in clean(workspace, now=LATER).objects] == [lost]
    markers = [key for key in read if key.startswith(EXTRACT) and key.endswith(".done")]
    assert markers and set(markers) == {f"{unit}.done"}


PROGRAM = """
import asyncio, sys
from llm_ocr.stages.flow import Spool
from tests.fakes.memory_store import MemoryStore
from llm_ocr.workspace import Workspace

workspace = Workspace.on(MemoryStore(), create=True)
(workspace.spool / "half an upload").write_bytes(b"x" * 1000)
spool = Spool(lambda row: [row], lambda row, parts: parts[0])
asyncio.run(spool.keep(b"a row"))
print("ready", flush=True)
sys.stdin.read()
"""


def test_disk_files_of_a_killed_worker_are_removed_by_the_next(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    dead, living = (
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        )
        for _ in range(2)
    )
    assert [process.stdout.readline() for process in (dead, living)] == [b"ready\n"] * 2
    dead.send_signal(signal.SIGKILL)
    dead.communicate()
    assert kinds(tmp_path) == ["spool", "spool", "workspace", "workspace"]
    with Workspace.on(MemoryStore(), create=True) as workspace:
        assert workspace.spool.exists()
        assert kinds(tmp_path) == ["spool", "spool", "workspace", "workspace"]  # one's own, in the dead one's place
        spool_a_row()
        assert kinds(tmp_path) == ["spool", "workspace", "workspace"]
    living.communicate()
    assert kinds(tmp_path) == []


def kinds(folder):
    return sorted(path.name.split("-")[2] for path in folder.iterdir())


def spool_a_row():
    spool = Spool(lambda row: [row], lambda row, parts: parts[0])
    asyncio.run(spool.keep(b"a row"))
    spool.close()
