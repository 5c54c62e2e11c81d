"""Compare-and-swap in folders, and folders without hard links or locks."""

import errno
import fcntl
import os
import random
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from llm_ocr.errors import ObjectExists, StorageError
from llm_ocr.storage import local
from llm_ocr.storage.local import LocalStore, locks
from llm_ocr.storage.local.locks import exclusive, kept_on_this_machine
from tests.fakes.crash import Crash, CrashingLocalStore, CrashPoint, When

BEFORE = "36 35 98:0 /mnt1 "


class NoLinks(LocalStore):
    """As on FAT and exFAT."""

    def _link(self, temporary, path):
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))


class Slow(LocalStore):
    """A rename takes so long that others come in between, where nothing keeps them out."""

    def _rename(self, temporary, path):
        time.sleep(0.02)
        super()._rename(temporary, path)


class SlowNoLinks(Slow, NoLinks):
    """Both."""


@pytest.fixture
def no_locks(monkeypatch):
    """A file system that answers `flock` as NFS without lockd does."""

    def flock(handle, how):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(locks.fcntl, "flock", flock)


def test_processes_that_swap_one_object_lose_no_change(tmp_path):
    store = LocalStore(tmp_path)
    store.create("a/count", b"0")
    code = """
import sys
from pathlib import Path
from llm_ocr.errors import ObjectChanged
from llm_ocr.storage.local import LocalStore
store = LocalStore(Path(sys.argv[1]))
for _ in range(25):
    while True:
        data, version = store.fetch("a/count")
        try:
            store.swap("a/count", b"%d" % (int(data) + 1), version)
            break
        except ObjectChanged:
            pass
"""
    workers = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path)]) for _ in range(4)]
    assert [worker.wait() for worker in workers] == [0] * 4
    assert store.get("a/count") == b"100"


def test_a_swap_that_takes_its_time_still_keeps_others_out(tmp_path, race):
    store = Slow(tmp_path)
    version = store.create("k", b"held")
    store.capabilities()
    assert len(race(lambda number: store.swap("k", b"%d" % number, version), 8)) == 1


def test_versions_differ_despite_stopped_clock_and_reused_inodes(tmp_path):
    class CoarseClock(CrashingLocalStore):
        """As before Linux 6.13, where all that is written within some milliseconds has the same time."""

        def _write_file(self, path, fill):
            super()._write_file(path, fill)
            os.utime(path, (1_700_000_000, 1_700_000_000))

    random.seed(4)
    store = CoarseClock(tmp_path, CrashPoint())
    versions = [store.create("k", b"0")]
    for _ in range(60):
        versions.append(store.swap("k", b"1", versions[-1]))
    assert len(set(versions)) == len(versions)
    assert 1_700_000_000 <= store.stat("k").modified < 1_700_000_000.002


@pytest.mark.parametrize("when", When)
def test_swap_cut_off_at_any_step_is_atomic_and_next_one_works(tmp_path, when):
    def prepared(root: Path, point: CrashPoint) -> tuple[LocalStore, str]:
        store = CrashingLocalStore(root, point)
        found = LocalStore(root).create("a/k", b"old")
        store._capabilities = LocalStore(root).capabilities()
        return store, found

    count = CrashPoint()
    store, version = prepared(tmp_path / "count", count)
    store.swap("a/k", b"new", version)
    assert len(count.seen) >= 4
    for at in range(len(count.seen)):
        root = tmp_path / str(at)
        store, version = prepared(root, CrashPoint(at, when))
        with pytest.raises(Crash):
            store.swap("a/k", b"new", version)
        after = LocalStore(root)
        data, now = after.fetch("a/k")
        assert (data, now == version) in [(b"old", True), (b"new", False)]
        after.swap("a/k", b"next", now)
        assert [info.key for info in after.list()] == ["a/k"]


def test_a_worker_that_is_killed_while_it_swaps_holds_up_nobody(tmp_path):
    version = LocalStore(tmp_path).create("k", b"old")
    code = """
import os, sys
from pathlib import Path
from llm_ocr.storage.local import LocalStore
class Dies(LocalStore):
    def _rename(self, temporary, path):
        if path.name == "k":
            os._exit(137)
        super()._rename(temporary, path)
Dies(Path(sys.argv[1])).swap("k", b"new", sys.argv[2])
"""
    ended = subprocess.run([sys.executable, "-c", code, str(tmp_path), version], check=False)
    assert ended.returncode == 137
    LocalStore(tmp_path).swap("k", b"next", version)
    assert LocalStore(tmp_path).get("k") == b"next"


def test_a_lock_that_is_never_let_go_is_an_error_that_may_pass(tmp_path):
    with (
        exclusive(tmp_path, "k"),
        pytest.raises(StorageError, match="suspended or disconnected") as caught,
        exclusive(tmp_path, "k", timeout=0.05),
    ):
        pass
    assert caught.value.retryable


def test_a_killed_holder_of_a_shared_or_single_lock_frees_it(tmp_path):
    code = """if True:
        import pathlib, sys, time
        from llm_ocr.storage.local import LocalStore
        with LocalStore(pathlib.Path(sys.argv[1])).held("x", shared=False) as other:
            print(other or "mine", flush=True)
            time.sleep(60)
    """
    with subprocess.Popen([sys.executable, "-c", code, tmp_path], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "mine\n"
        for shared in (True, False):
            with LocalStore(tmp_path).held("x", shared=shared) as other:
                assert other.startswith(f"process {process.pid} on ")
        process.kill()
    with LocalStore(tmp_path).held("x", shared=True) as one, LocalStore(tmp_path).held("x", shared=True) as two:
        assert (one, two) == ("", "")
        with LocalStore(tmp_path).held("x", shared=False) as other:
            assert other == f"process {os.getpid()} on {socket.gethostname()}"


@pytest.mark.usefixtures("no_locks")
def test_without_locks_or_permission_no_command_is_refused(tmp_path):
    with LocalStore(tmp_path).held("x", shared=False) as one, LocalStore(tmp_path).held("x", shared=False) as two:
        assert (one, two) == ("", "")


def test_what_is_deleted_while_it_is_swapped_does_not_come_back(tmp_path):
    class Meanwhile(LocalStore):
        def _rename(self, temporary, path):
            if path.name == "k":
                deleting.start()
                deleting.join(0.2)
            super()._rename(temporary, path)

    version = LocalStore(tmp_path).create("k", b"old")
    deleting = threading.Thread(target=LocalStore(tmp_path).delete, args=("k",))
    Meanwhile(tmp_path).swap("k", b"new", version)
    deleting.join()
    assert list(LocalStore(tmp_path).list()) == []


def test_locks_are_no_content_and_no_leftovers(tmp_path):
    store = LocalStore(tmp_path)
    store.swap("k", b"1", store.create("k", b"0"))
    assert (tmp_path / locks.LOCKS).is_dir()
    assert [info.key for info in store.list()] == ["k"]
    assert list(store.unfinished()) == []
    for call in (store.get, store.delete):
        with pytest.raises(StorageError, match="cannot be the name"):
            call(f"{locks.LOCKS}/00")


def test_without_hard_links_locks_decide_and_one_of_24_wins(tmp_path, race):
    store = SlowNoLinks(tmp_path)
    store.check()
    can = store.capabilities()
    assert (can.create, can.swap) == (True, False)
    assert "hard links" in can.note

    assert len(race(lambda number: store.create("a/k", b"%d" % number))) == 1
    assert [info.key for info in store.list()] == ["a/k"]
    assert list(store.unfinished()) == []


def test_without_hard_links_a_dead_creator_is_not_in_the_way(tmp_path):
    class Crashing(CrashingLocalStore, NoLinks):
        def _link(self, temporary, path):
            NoLinks._link(self, temporary, path)

    count = CrashPoint()
    Crashing(tmp_path / "count", count).create("k", b"data")
    for at in range(len(count.seen)):
        for when in When:
            root = tmp_path / f"{at}-{when}"
            with pytest.raises(Crash):
                Crashing(root, CrashPoint(at, when)).create("k", b"data")
            if NoLinks(root).stat("k") is None:
                NoLinks(root).create("k", b"data")
            assert NoLinks(root).get("k") == b"data"


@pytest.mark.usefixtures("no_locks")
def test_folder_without_links_or_locks_allows_one_worker_a_unit(tmp_path):
    store = NoLinks(tmp_path)
    store.check()
    can = store.capabilities()
    assert (can.create, can.swap) == (False, False)
    assert "no hard links" in can.note
    assert "no file locks" in can.note
    assert list(tmp_path.iterdir()) == []
    store.create("k", b"first")
    with pytest.raises(ObjectExists):
        store.create("k", b"second")
    assert store.get("k") == b"first"


@pytest.mark.usefixtures("no_locks")
def test_without_locks_everything_works_but_claims(tmp_path):
    store = LocalStore(tmp_path)
    store.check()
    can = store.capabilities()
    assert (can.create, can.swap) == (True, False)
    assert "no file locks" in can.note
    version = store.create("k", b"0")
    with pytest.raises(StorageError, match="cannot swap") as caught:
        store.swap("k", b"1", version)
    assert "`shard_index`" in caught.value.hint
    store.delete("k")
    assert list(store.list()) == []


def test_locks_that_exclude_nobody_are_noticed(tmp_path, monkeypatch):
    monkeypatch.setattr(locks.fcntl, "flock", lambda handle, how: None)
    assert not LocalStore(tmp_path).capabilities().swap


def test_a_rename_that_copies_is_noticed(tmp_path):
    class Copying(LocalStore):
        def _rename(self, temporary, path):
            path.unlink(missing_ok=True)
            path.write_bytes(temporary.read_bytes())
            temporary.unlink()

    store = Copying(tmp_path)
    store.check()
    assert (store.capabilities().create, store.capabilities().swap) == (True, False)
    assert "copies" in store.capabilities().note


def test_a_rename_that_replaces_nothing_is_refused(tmp_path):
    class Keeping(LocalStore):
        def _rename(self, temporary, path):
            temporary.unlink()

    with pytest.raises(StorageError, match="does not replace"):
        Keeping(tmp_path).check()


def test_a_disk_that_cannot_be_written_is_an_error_and_no_answer(tmp_path):
    class ReadOnly(LocalStore):
        def _write_file(self, path, fill):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    store = ReadOnly(tmp_path)
    for _ in range(2):
        with pytest.raises(StorageError, match="read-only"):
            store.capabilities()


@pytest.mark.parametrize(
    ("mount", "says"),
    [
        ("{} rw,noatime shared:1 - ext4 /dev/sda1 rw,errors=continue", ""),
        ("{} rw,relatime - nfs4 server:/export rw,vers=4.2,local_lock=none,addr=10.0.0.1", ""),
        ("{} rw,relatime - nfs server:/export rw,vers=3,local_lock=none,addr=10.0.0.1", ""),
        ("{} rw,relatime - nfs server:/export rw,vers=3,nolock,local_lock=all", "local_lock=all"),
        ("{} rw,relatime - nfs server:/export rw,vers=3,local_lock=flock", "local_lock=flock"),
        ("{} rw,relatime - cifs //server/share rw,nobrl,vers=3.1.1", "nobrl"),
        ("{} rw,relatime - lustre host@tcp:/fs rw,localflock", "localflock"),
        ("{} rw,nosuid - fuse.gcsfuse gcsfuse rw,user_id=0", "fuse.gcsfuse"),
        ("{} rw,nosuid - fuse mountpoint-s3 ro,user_id=0", "fuse file system"),
    ],
)
def test_mounts_that_keep_locks_to_the_machine_are_known(tmp_path, mount, says):
    folder = tmp_path / "mounted here"
    folder.mkdir()
    mounts = tmp_path / "mountinfo"
    escaped = str(folder.resolve()).replace(" ", "\\040")
    mounts.write_text(f"22 1 254:0 / / rw - ext4 /dev/vda rw\n{BEFORE}{mount.format(escaped)}\nnot a mount\n")
    found = kept_on_this_machine(folder / "run", mounts)
    assert bool(found) == bool(says)
    assert says in found
    assert kept_on_this_machine(tmp_path / "elsewhere", mounts) == ""
    assert kept_on_this_machine(folder, tmp_path / "no such file") == ""


def test_machine_only_locks_are_reported_and_not_used_to_publish(tmp_path, monkeypatch):
    monkeypatch.setattr(local, "unreliable", lambda root: "file locks may hold on this machine only")
    assert "this machine only" in LocalStore(tmp_path).capabilities().note
    NoLinks(tmp_path).create("k", b"")
    assert not (tmp_path / locks.LOCKS).exists()


def test_a_lock_is_an_flock_that_other_programs_can_see(tmp_path):
    with exclusive(tmp_path, "k"):
        (held,) = (tmp_path / locks.LOCKS).iterdir()
        with held.open("r+b") as file, pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
