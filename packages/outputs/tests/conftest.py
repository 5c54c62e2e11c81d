"""Workspaces that the tests of several files use."""

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from bad_documents import garbage, good_pages, text_pdf
from export_workspaces import make

import llm_ocr
from llm_ocr.storage import StoreOptions, open_store
from llm_ocr.storage.local import LocalStore


@pytest.fixture(scope="session")
def standing(golden) -> Path:
    """Return an assembled workspace of 6 documents of 3 pages, one of them failed; tests copy it before a change."""
    return golden("export", lambda folder: make(str(folder / "w"), fails=frozenset({"4.pdf"}))) / "w"


@pytest.fixture(scope="session")
def real(golden) -> Path:
    """Return a workspace of two documents, a copy of one, one whose name is no text, and one that does not open."""

    def make_it(folder: Path) -> None:
        (folder / "in/sub").mkdir(parents=True)
        paper = text_pdf(*good_pages("a", 3))
        for name, data in {"a.pdf": paper, "sub/copy.pdf": paper, "broken.pdf": garbage()}.items():
            (folder / "in" / name).write_bytes(data)
        (folder / "in/日本 #1.pdf").write_bytes(text_pdf(*good_pages("b", 1)))
        if sys.platform == "linux":  # whose file systems have names that are no UTF-8: such a document is not read
            (folder / "in/caf\udce9.pdf").write_bytes(text_pdf(*good_pages("odd", 1)))
        llm_ocr.run(folder / "in", workspace=folder / "w", engine="embedded", render_workers=1, ocr_workers=1)

    return golden("texts", make_it) / "w"


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
