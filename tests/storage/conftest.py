"""Every store is made here; the contract tests run over all of them.

A store other than the local one brings tests/storage/<folder>/making.py with

    make_store(tmp_path) -> a context manager that gives an empty store (hub: in a bucket; make_dataset_store beside it)
    MANY = 1100             optional: how many objects a list of several pages takes; its server's pages must be smaller
"""

import contextlib
import importlib.util
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest

from llm_ocr.storage import ObjectStore, open_store

#: More than one page of S3 and GCS.
MANY = 1100

#: name -> folder and function that make it.
_ELSEWHERE = {
    "s3": ("s3", "make_store"),
    "gcs": ("gcs", "make_store"),
    "hub-bucket": ("hub", "make_store"),
    "hub-dataset": ("hub", "make_dataset_store"),
    "a user's own": ("sqlite", "make_store"),
}


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of store."""

    name: str
    make: Callable[[Path], AbstractContextManager[ObjectStore]]
    many: int = MANY


@contextlib.contextmanager
def _local(tmp_path: Path) -> Iterator[ObjectStore]:
    yield open_store(str(tmp_path / "local store"))


def _making(name: str) -> ModuleType:
    """tests/storage/<name>/making.py by its path, for the folders of tests are no packages."""
    path = Path(__file__).parent / name / "making.py"
    if not path.is_file():
        pytest.skip(f"no {name}/making.py: this store is not there")
    spec = importlib.util.spec_from_file_location(f"making_{name}", path)
    if spec.name not in sys.modules:
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        sys.modules[spec.name] = module  # only whole: an import that was skipped is tried again
    return sys.modules[spec.name]


@pytest.fixture(scope="module", params=["local", *_ELSEWHERE])
def stores(request) -> Kind:
    """Each kind of store in turn; skips those that are not there."""
    if request.param == "local":
        return Kind("local", _local)
    folder, function = _ELSEWHERE[request.param]
    module = _making(folder)
    if not hasattr(module, function):
        pytest.skip(f"{folder}/making.py makes no {request.param} store")
    return Kind(request.param, getattr(module, function), getattr(module, "MANY", MANY))


@pytest.fixture
def store(stores, tmp_path) -> Iterator[ObjectStore]:
    """An empty store of each kind."""
    with stores.make(tmp_path) as made:
        yield made


@pytest.fixture
def fill(store) -> Callable[[dict[str, bytes]], None]:
    """Puts many objects at once, for a put of some stores takes seconds."""

    def put(objects: dict[str, bytes]) -> None:
        with ThreadPoolExecutor(16) as pool:
            list(pool.map(store.put, objects, objects.values()))

    return put


@pytest.fixture
def creates(store) -> None:
    """Skips stores that do not promise create-if-absent."""
    if not (can := store.capabilities()).create:
        pytest.skip(f"no create-if-absent: {can.note}")


@pytest.fixture
def swaps(store) -> None:
    """Skips stores that do not promise compare-and-swap."""
    if not (can := store.capabilities()).swap:
        pytest.skip(f"no compare-and-swap: {can.note}")
