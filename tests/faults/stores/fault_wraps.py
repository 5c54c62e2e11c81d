"""Stores that do what another does, but for one thing."""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from llm_ocr.storage import Capabilities, ObjectStore
from llm_ocr.storage.local import LocalStore
from tests.fakes.crash import CrashingFolder, CrashingLocalStore, CrashingStore, CrashPoint


def is_marker(key: str) -> bool:
    """Whether it is the marker of a unit of a stage."""
    return key.endswith(".done") and key.count("/") == 3


class Passing(CrashingStore):
    """Passes everything on."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner, CrashPoint())


class PassingFolder(CrashingFolder):
    """The same for a folder."""

    def __init__(self, inner: LocalStore) -> None:
        super().__init__(inner, CrashPoint())


def passing(store: ObjectStore, **instead: Callable[..., Any]) -> ObjectStore:
    """The store, with other methods for those named."""
    made = PassingFolder(store) if isinstance(store, LocalStore) else Passing(store)
    for name, method in instead.items():
        setattr(made, name, method)
    return made


def without_claims(store: ObjectStore) -> ObjectStore:
    """Units cannot be leased, and no command excludes another: every worker without a static share does all of them."""
    return passing(
        store,
        capabilities=lambda: Capabilities(create=True, swap=False, note="said by the tests"),
        held=lambda name, *, shared: contextlib.nullcontext(""),
    )


def around_markers(
    store: ObjectStore,
    before: Callable[[], object] = lambda: None,
    created: Callable[[bytes], object] = lambda marker: None,
) -> ObjectStore:
    """Calls `before` before a stage's marker is created, and `created` with it when it was."""

    def create(key: str, data: bytes) -> str:
        if not is_marker(key):
            return store.create(key, data)
        before()
        version = store.create(key, data)
        created(data)
        return version

    return passing(store, create=create)


class FullDisk(CrashingLocalStore):
    """The disk is full from the file number `at` on: the system's own answer, by its device that is always full."""

    def __init__(self, root: Path, at: int) -> None:
        super().__init__(root, CrashPoint())
        self._at = at
        self.files = 0

    def _write_file(self, path: Path, fill: Callable[[BinaryIO], None]) -> None:
        self.files += 1
        if self.files <= self._at:
            super()._write_file(path, fill)
            return
        path.write_bytes(b"")
        with Path("/dev/full").open("wb") as full:
            fill(full)
