"""What all tests of the worker have."""

import tempfile

import pytest


@pytest.fixture(autouse=True)
def temporary(tmp_path, monkeypatch):
    """Where everything of a request stands; empty after each test."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder
    assert list(folder.iterdir()) == []
