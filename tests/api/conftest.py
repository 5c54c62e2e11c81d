"""Workspaces that the tests of several files use."""

import shutil
from pathlib import Path

import pytest
from export_workspaces import make


@pytest.fixture(scope="session")
def standing(golden) -> Path:
    """An assembled workspace of 6 documents of 3 pages, one of them failed; tests that change it copy it."""
    return golden("export", lambda folder: make(str(folder / "w"), fails=frozenset({"4.pdf"}))) / "w"


@pytest.fixture
def workspace(standing, tmp_path) -> Path:
    """A copy of that workspace."""
    return Path(shutil.copytree(standing, tmp_path / "w"))
