"""Workspaces that the tests of several files use."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from export_workspaces import make

from llm_ocr.storage import StoreOptions, open_store
from llm_ocr.storage.local import LocalStore


@pytest.fixture(scope="session")
def standing(golden) -> Path:
    """Return an assembled workspace of 6 documents of 3 pages, one of them failed; tests copy it before a change."""
    return golden("export", lambda folder: make(str(folder / "w"), fails=frozenset({"4.pdf"}))) / "w"


@pytest.fixture
def workspace(standing, tmp_path) -> Path:
    """Return a copy of that workspace."""
    return Path(shutil.copytree(standing, tmp_path / "w"))


@pytest.fixture
def bucket_workspace(golden) -> Callable[[str, dict[str, str]], None]:
    """Return `bucket_workspace(url, settings)`: copy a workspace of 3 documents to a bucket, markers last."""

    def copy(url: str, settings: dict[str, str]) -> None:
        source = LocalStore(golden("for buckets", lambda folder: make(str(folder / "w"), 3)) / "w")
        store = open_store(url, StoreOptions(endpoint=settings["workspace_endpoint"]))
        for key in sorted((info.key for info in source.list()), key=lambda key: key.endswith(".done")):
            store.put(key, source.get(key))

    return copy
