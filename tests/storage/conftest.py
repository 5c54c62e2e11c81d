"""Every store is made here; the contract tests run over all of them.

A store other than the local one brings tests/storage/<folder>/making.py, and a line in `_ELSEWHERE`; a store of a
package brings packages/<package>/tests/<name>_making.py, and no line. The file has

    make_store(tmp_path) -> a context manager that gives an empty store (hub: in a bucket; make_dataset_store beside it)
    MANY                    how many objects a list of several pages takes
    NEEDS                   tool of `require` without which the store is skipped (may be missing)
"""

import contextlib
import importlib
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import pytest

from llm_ocr.errors import ObjectChanged, ObjectExists
from llm_ocr.storage import ObjectStore, open_store

#: More than one page of S3 and GCS.
MANY = 1100

#: name -> module and function that make it.
_ELSEWHERE = {
    "s3": ("tests.storage.s3.making", "make_store"),
    "gcs": ("tests.storage.gcs.making", "make_store"),
    "hub-bucket": ("tests.storage.hub.making", "make_store"),
    "hub-dataset": ("tests.storage.hub.making", "make_dataset_store"),
    "a user's own": ("tests.storage.sqlite.making", "make_store"),
}
for _file in sorted(Path(__file__).parents[2].glob("packages/*/tests/*_making.py")):
    sys.path.append(str(_file.parent))
    _ELSEWHERE[_file.stem.removesuffix("_making")] = (_file.stem, "make_store")


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of store."""

    name: str
    make: Callable[[Path], AbstractContextManager[ObjectStore]]
    many: int = MANY


@contextlib.contextmanager
def _local(tmp_path: Path) -> Iterator[ObjectStore]:
    yield open_store(str(tmp_path / "local store"))


@pytest.fixture(scope="module", params=["local", *_ELSEWHERE])
def stores(request, require) -> Kind:
    """Each kind of store in turn."""
    if request.param == "local":
        return Kind("local", _local)
    module, function = _ELSEWHERE[request.param]
    making = importlib.import_module(module)
    if tool := getattr(making, "NEEDS", ""):
        require(tool)
    return Kind(request.param, getattr(making, function), making.MANY)


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


@pytest.fixture(scope="session")
def race() -> Callable[..., list[tuple[int, object]]]:
    """`race(act, many)` calls `act` with 0, 1, 2 ... at the same moment; who did not lose, with what it got."""
    return _race


def _race(act: Callable[[int], object], many: int = 24) -> list[tuple[int, object]]:
    begin = threading.Barrier(many)

    def run(number: int) -> tuple[int, object] | None:
        begin.wait()
        try:
            return number, act(number)
        except (ObjectExists, ObjectChanged):
            return None

    with ThreadPoolExecutor(many) as pool:
        return [won for won in pool.map(run, range(many)) if won is not None]
