"""The local store: what a folder can do to us, and what we say then."""

import errno
import fcntl
import os
import stat
from pathlib import Path
from unittest import mock

import pytest

from llm_ocr.errors import ObjectExists, StorageError
from llm_ocr.storage import open_store
from llm_ocr.storage.local import LocalStore
from llm_ocr.storage.own_folder import OwnFolder
from tests.fakes.crash import Crash, CrashingLocalStore, CrashPoint, When


class Failing(LocalStore):
    """A folder whose file system answers one step with an error."""

    def __init__(self, root: Path, step: str, code: int) -> None:
        super().__init__(root)
        self.step, self.code = step, code

    def _fail(self, step: str) -> None:
        if step == self.step:
            raise OSError(self.code, os.strerror(self.code))

    def _make_folder(self, folder):
        self._fail("folder")
        super()._make_folder(folder)

    def _write_file(self, path, fill):
        path.write_bytes(b"torn")
        self._fail("file")
        path.unlink()
        super()._write_file(path, fill)

    def _link(self, temporary, path):
        self._fail("link")
        super()._link(temporary, path)

    def _rename(self, temporary, path):
        self._fail("rename")
        super()._rename(temporary, path)


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize(
    ("step", "code", "says"),
    [
        ("file", errno.ENOSPC, "disk is full"),
        ("file", errno.EDQUOT, "quota"),
        ("folder", errno.EROFS, "read-only"),
        ("folder", errno.EACCES, "permissions"),
        ("file", errno.EIO, "run the same command again"),
        ("link", errno.EACCES, "permissions"),
        ("rename", errno.EIO, "run the same command again"),
    ],
)
def test_failing_disk_is_a_storage_error_with_hint_and_no_files(tmp_path, step, code, says):
    store = Failing(tmp_path / "w", step, code)
    write = store.put if step == "rename" else store.create
    with pytest.raises(StorageError, match=says) as caught:
        write("a/b", b"data")
    assert not isinstance(caught.value, ObjectExists)
    assert caught.value.errno == code
    assert isinstance(caught.value, OSError)
    assert files(tmp_path) == []


@pytest.mark.parametrize(("step", "code"), [("file", errno.ENOSPC), ("folder", errno.EROFS), ("rename", errno.EPERM)])
def test_the_check_finds_out_before_any_work(tmp_path, step, code):
    with pytest.raises(StorageError) as caught:
        Failing(tmp_path / "w", step, code).check()
    assert caught.value.hint
    assert files(tmp_path) == []


def test_the_check_notices_links_that_replace(tmp_path):
    class Replacing(LocalStore):
        def _link(self, temporary, path):
            path.unlink(missing_ok=True)
            super()._link(temporary, path)

    with pytest.raises(StorageError, match="replaces a file"):
        Replacing(tmp_path / "w").check()
    assert files(tmp_path) == []


def test_a_file_where_the_folder_should_be_is_said(tmp_path):
    (tmp_path / "w").write_text("a file")
    for call in (LocalStore(tmp_path / "w").check, lambda: LocalStore(tmp_path / "w" / "x").put("a", b"")):
        with pytest.raises(StorageError, match="A file has the path of a required folder"):
            call()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission_is_said(tmp_path):
    (tmp_path / "w").mkdir(mode=0o500)
    with pytest.raises(StorageError, match="permissions"):
        LocalStore(tmp_path / "w").check()


def test_a_create_whose_answer_was_lost_knows_its_own_link(tmp_path):
    class Nfs(LocalStore):
        def _link(self, temporary, path):
            super()._link(temporary, path)
            super()._link(temporary, path)  # the repeated call finds the name taken, by us

    Nfs(tmp_path).create("k", b"ours")
    assert files(tmp_path) == ["k"]


def test_temporary_files_are_not_listed_and_can_be_removed(tmp_path):
    store = CrashingLocalStore(tmp_path, CrashPoint(at=1, when=When.AFTER))
    with pytest.raises(Crash):
        store.put("name", b"data")
    store = LocalStore(tmp_path)
    assert list(store.list()) == []
    left = list(store.unfinished())
    assert [info.size for info in left] == [4]
    for info in left:
        store.delete(info.key)
    assert files(tmp_path) == []


@pytest.mark.parametrize("when", When)
@pytest.mark.parametrize("operation", ["put", "create"])
def test_write_cut_off_at_any_step_leaves_whole_object_or_none(tmp_path, operation, when):
    count = CrashPoint()
    getattr(CrashingLocalStore(tmp_path / "count", count), operation)("a/b/k", b"data")
    assert len(count.seen) >= 6
    for at in range(len(count.seen)):
        root = tmp_path / f"{at}"
        with pytest.raises(Crash):
            getattr(CrashingLocalStore(root, CrashPoint(at, when)), operation)("a/b/k", b"data")
        store = LocalStore(root)
        there = [(info.key, store.get(info.key)) for info in store.list()]
        assert there in ([], [("a/b/k", b"data")])
        if not there:
            getattr(store, operation)("a/b/k", b"data")
        assert store.get("a/b/k") == b"data"


@pytest.mark.parametrize(("operation", "named"), [("put", "rename"), ("create", "link"), ("swap", "rename")])
def test_power_cut_loses_nothing_that_was_reported_written(tmp_path, monkeypatch, operation, named):
    """The content is on the disk before it has its name, and the name before the write returns."""
    steps, fsync = [], os.fsync

    class Watched(LocalStore):
        def _link(self, temporary, path):
            steps.append("link")
            super()._link(temporary, path)

        def _rename(self, temporary, path):
            steps.append("rename")
            super()._rename(temporary, path)

    def watched(handle):
        steps.append("sync folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "sync file")
        fsync(handle)

    store = Watched(tmp_path)
    before = (store.create("a/k", b"old"),) if operation == "swap" else ()
    store.capabilities()
    monkeypatch.setattr(os, "fsync", watched)
    steps.clear()
    getattr(store, operation)("a/k", b"new", *before)
    new_folder = [] if before else ["sync folder"]
    assert steps == [*new_folder, "sync file", named, "sync folder"]


def test_files_get_the_permissions_that_the_user_set(tmp_path):
    before = os.umask(0o027)
    try:
        LocalStore(tmp_path).put("k", b"")
    finally:
        os.umask(before)
    assert (tmp_path / "k").stat().st_mode & 0o777 == 0o640


def test_a_relative_folder_is_of_the_current_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    store = open_store("some folder")
    monkeypatch.chdir("/")
    store.put("k", b"1")
    assert (tmp_path / "some folder" / "k").exists()
    assert store.url == str(tmp_path / "some folder")


@pytest.mark.parametrize("form", ["file://{}", "file://localhost{}", "FILE://{}", "{}"])
def test_file_urls_and_paths_are_the_same_place(tmp_path, form):
    folder = tmp_path / "with%20space" if "://" in form else tmp_path / "with space"
    open_store(form.format(folder)).put("k", b"1")
    assert (tmp_path / "with space" / "k").exists()


def test_folders_of_any_name_work(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a,b", "[x]", "-dash", "日本", "./s3:/x", "c:", "100%"):
        open_store(name).put("k", b"1")
        assert (tmp_path / name / "k").exists()


def test_links_that_lead_nowhere_are_no_objects_and_cost_none(tmp_path):
    store = LocalStore(tmp_path)
    store.put("a/b", b"1")
    for name, target in (("circle", "circle"), ("a/circle", "../circle"), ("a/gone", "nothing")):
        (tmp_path / name).symlink_to(target)
    assert [info.key for info in store.list()] == ["a/b"]


def test_folder_of_a_living_owner_is_kept_without_file_locks(tmp_path):
    with mock.patch.object(fcntl, "flock", side_effect=OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))):
        first = OwnFolder("mine-", tmp_path)
    second = OwnFolder("mine-", tmp_path)  # one that has locks looks for what the dead have left
    assert first.path.is_dir()
    assert second.path.is_dir()
    first.remove()
    second.remove()
    assert list(tmp_path.iterdir()) == []
