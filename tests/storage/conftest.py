"""Every store is made here; the contract tests run over all of them."""

from collections.abc import Callable
from pathlib import Path

import pytest

from llm_ocr.storage import ObjectStore, open_store

#: name -> makes an empty store; other stores are added here and must pass test_store_contract.py unchanged.
STORES: dict[str, Callable[[Path], ObjectStore]] = {
    "local": lambda folder: open_store(str(folder / "local store")),
}


@pytest.fixture(params=sorted(STORES))
def store(request, tmp_path) -> ObjectStore:
    """An empty store of each kind."""
    return STORES[request.param](tmp_path)
