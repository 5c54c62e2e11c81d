"""Temporary folders of a process: kept while it lives, also where there are no file locks."""

import errno
import fcntl
import os

import pytest

from llm_ocr.storage.own_folder import OwnFolder


@pytest.fixture
def no_locks(monkeypatch):
    def refused(*_):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(fcntl, "flock", refused)


def test_without_file_locks_nobody_takes_a_living_ones_folder_for_a_dead_ones(tmp_path, no_locks, monkeypatch):
    first = OwnFolder("mine-", tmp_path)
    monkeypatch.undo()
    second = OwnFolder("mine-", tmp_path)  # one that has locks looks for what the dead have left
    assert first.path.is_dir()
    assert second.path.is_dir()
    first.remove()
    second.remove()
    assert list(tmp_path.iterdir()) == []
