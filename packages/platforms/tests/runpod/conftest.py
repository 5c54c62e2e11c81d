"""What all tests of the worker have."""

import tempfile

import pytest
from serverless_running import web


@pytest.fixture(autouse=True)
def temporary(tmp_path, monkeypatch):
    """Where everything of a request stands; empty after each test."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder
    assert list(folder.iterdir()) == []


@pytest.fixture(scope="module")
def site(small_examples):
    """The address of a web server that has the small examples."""
    with web(small_examples) as url:
        yield url
