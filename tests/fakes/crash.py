"""Crash points: a store that crashes at its n-th write, so that a test can cover all of them.

Two layers are counted. `CrashingStore` (created by `crashing`) wraps any store and counts its writing calls.
`CrashingLocalStore` counts the single steps of the local store's writes (temporary file, link or rename, sync of the
folder, removal).
"""

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import BinaryIO, NoReturn

from llm_ocr.storage import BaseStore, Capabilities, ObjectInfo, ObjectStore
from llm_ocr.storage.local import LocalStore

#: Exit status in a shell of a process that was killed with signal 9.
KILLED = 137


class Crash(BaseException):
    """Crash of a process, for tests that stay in their process. No `except Exception` catches it."""


class When(StrEnum):
    """Point at which a write is cut off."""

    BEFORE = "before"
    AFTER = "after"


def die_by_exception() -> NoReturn:
    """Raise `Crash`."""
    raise Crash


def die_by_exit() -> NoReturn:
    """Exit the process at once, as kill -9 does: no cleanup, no flush of buffers."""
    os._exit(KILLED)


class CrashPoint:
    """Counter of write boundaries that crashes at number `at` (from 0; None: never). Every later write crashes, too."""

    def __init__(
        self, at: int | None = None, when: When = When.BEFORE, die: Callable[[], NoReturn] = die_by_exception
    ) -> None:
        self._at = at
        self._when = when
        self._die = die
        self._lock = threading.Lock()
        self._dead = False
        self.seen: list[str] = []

    @contextlib.contextmanager
    def write(self, what: str) -> Iterator[None]:
        """Enclose one write; `what` is its name in `seen`."""
        with self._lock:
            number = len(self.seen)
            self.seen.append(what)
            self._dead = self._dead or (number == self._at and self._when is When.BEFORE)
        if self._dead:
            self._die()
        try:
            yield
        finally:  # also after a failed write, such as a lost create
            if number == self._at and self._when is When.AFTER:
                self._dead = True
                self._die()


class CrashingStore(BaseStore):
    """Any store, with a crash point before or after each writing call."""

    def __init__(self, inner: ObjectStore, point: CrashPoint) -> None:
        self._inner = inner
        self._point = point

    @property
    def url(self) -> str:
        """Return the inner store's URL."""
        return self._inner.url

    def get(self, key: str) -> bytes:
        return self._inner.get(key)

    def read_range(self, key: str, start: int, length: int) -> bytes:
        return self._inner.read_range(key, start, length)

    def put(self, key: str, data: bytes) -> None:
        with self._point.write(f"put {key}"):
            self._inner.put(key, data)

    def create(self, key: str, data: bytes) -> str:
        with self._point.write(f"create {key}"):
            return self._inner.create(key, data)

    def fetch(self, key: str) -> tuple[bytes, str]:
        return self._inner.fetch(key)

    def swap(self, key: str, data: bytes, version: str) -> str:
        with self._point.write(f"swap {key}"):
            return self._inner.swap(key, data, version)

    def capabilities(self) -> Capabilities:
        return self._inner.capabilities()

    def upload(self, path: Path, key: str) -> None:
        with self._point.write(f"upload {key}"):
            self._inner.upload(path, key)

    def download(self, key: str, path: Path) -> None:
        self._inner.download(key, path)

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        return self._inner.list(prefix, start_after=start_after)

    def unfinished(self) -> Iterator[ObjectInfo]:
        return self._inner.unfinished()

    def stat(self, key: str) -> ObjectInfo | None:
        return self._inner.stat(key)

    def delete(self, key: str) -> None:
        with self._point.write(f"delete {key}"):
            self._inner.delete(key)

    def check(self) -> None:
        with self._point.write("check"):
            self._inner.check()


class CrashingFolder(CrashingStore, LocalStore):
    """`CrashingStore` around a folder, for code that checks whether a workspace is a folder."""

    def __init__(self, inner: LocalStore, point: CrashPoint) -> None:
        CrashingStore.__init__(self, inner, point)
        self.root = inner.root


def crashing(store: ObjectStore, point: CrashPoint) -> CrashingStore:
    """Return any store with crash points at its calls; a folder stays a folder."""
    return CrashingFolder(store, point) if isinstance(store, LocalStore) else CrashingStore(store, point)


class CrashingLocalStore(LocalStore):
    """Local store with a crash point before or after each step of a write, including an empty temporary file.

    Syncs to disk are counted but not executed: a process crashes, not the machine.
    """

    def __init__(self, root: Path, point: CrashPoint) -> None:
        super().__init__(root)
        self._point = point

    def _write_file(self, path: Path, fill: Callable[[BinaryIO], None]) -> None:
        with self._point.write(f"begin {path.name}"), path.open("xb"):
            pass
        with self._point.write(f"fill {path.name}"), path.open("r+b") as file:
            fill(file)

    def _link(self, temporary: Path, path: Path) -> None:
        with self._point.write(f"link {path.name}"):
            super()._link(temporary, path)

    def _rename(self, temporary: Path, path: Path) -> None:
        with self._point.write(f"rename {path.name}"):
            super()._rename(temporary, path)

    def _sync_folder(self, folder: Path) -> None:
        with self._point.write(f"sync {folder.name}"):
            pass

    def _unlink(self, temporary: Path) -> None:
        with self._point.write(f"unlink {temporary.name}"):
            super()._unlink(temporary)


def boundaries(wrap: Callable[[CrashPoint], ObjectStore], run: Callable[[ObjectStore], object]) -> list[str]:
    """Return the writes of an undisturbed run, in order: its crash points are 0 to their number."""
    point = CrashPoint()
    run(wrap(point))
    return point.seen
