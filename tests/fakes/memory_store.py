"""Store in memory that honors conditional writes, counts requests, and can fail on demand.

For tests and simulations of many workers in one process; its data is not persistent.
"""

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self, TypeVar

from llm_ocr.errors import ObjectChanged, ObjectExists, ObjectNotFound, StorageError
from llm_ocr.storage import BaseStore, Capabilities, ObjectInfo
from llm_ocr.storage.names import check_key
from tests.fakes.crash import When

R = TypeVar("R")

#: Objects per response to a listing, as on S3 and GCS.
PAGE = 1000

#: Number of key segments that form a folder.
_DEPTH = 3


#: Time of a request's failure: before its execution, or afterward, so that only the response is lost.
Fault = When


class MemoryStore(BaseStore):
    """Thread-safe store. `calls` counts requests by name, a listing once per page.

    `fault` is called before each request, with its name and key, and decides about a failure. `clock` gives `modified`.
    """

    url = "memory://store"

    def __init__(
        self, fault: Callable[[str, str], Fault | None] | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        self.fault = fault
        self.calls: Counter[str] = Counter()
        self._clock = clock
        self._lock = threading.RLock()
        self._writes = 0
        # By the first segments of the key, so that the listing of one folder costs only as much as its content.
        self._folders: defaultdict[str, dict[str, tuple[bytes, ObjectInfo]]] = defaultdict(dict)

    def copy(self) -> Self:
        """Return a store with the same objects, which changes alone."""
        other = type(self)(self.fault, self._clock)
        other._writes = self._writes
        other._folders.update({name: dict(objects) for name, objects in self._folders.items()})
        return other

    def get(self, key: str) -> bytes:
        return self._request("get", key, lambda: self._object(key)[0])

    def fetch(self, key: str) -> tuple[bytes, str]:
        data, info = self._request("fetch", key, lambda: self._object(key))
        return data, info.version

    def read_range(self, key: str, start: int, length: int) -> bytes:
        return self._request("read_range", key, lambda: self._object(key)[0][start : start + length])

    def put(self, key: str, data: bytes) -> None:
        self._request("put", key, lambda: self._write(key, data))

    def create(self, key: str, data: bytes) -> str:
        def create() -> str:
            if self._find(key) is not None:
                raise ObjectExists(f"{self.url}/{key} exists")
            return self._write(key, data)

        return self._request("create", key, create)

    def swap(self, key: str, data: bytes, version: str) -> str:
        def swap() -> str:
            found = self._find(key)
            if found is None or found[1].version != version:
                raise ObjectChanged(f"{self.url}/{key} has changed")
            return self._write(key, data)

        return self._request("swap", key, swap)

    def upload(self, path: Path, key: str) -> None:
        self.put(key, path.read_bytes())

    def download(self, key: str, path: Path) -> None:
        path.write_bytes(self.get(key))

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        folder = prefix.rpartition("/")[0]
        if folder:
            check_key(folder)

        def found() -> list[ObjectInfo]:
            names = [_folder(prefix)] if prefix.count("/") >= _DEPTH else [*self._folders]
            near = [name for name in names if name.startswith(prefix[: len(name)]) or prefix.startswith(name)]
            folders = [self._folders.get(name, {}) for name in near]
            infos = [entry[1] for folder in folders for entry in folder.values()]
            wanted = [info for info in infos if info.key.startswith(prefix) and info.key > start_after]
            return sorted(wanted, key=lambda info: info.key)

        infos = self._request("list", prefix, found)
        self.calls["list"] += max(-(-len(infos) // PAGE) - 1, 0)
        return iter(infos)

    def unfinished(self) -> Iterator[ObjectInfo]:
        return iter(())

    def stat(self, key: str) -> ObjectInfo | None:
        found = self._request("stat", key, lambda: self._find(key))
        return found[1] if found else None

    def delete(self, key: str) -> None:
        self._request("delete", key, lambda: self._folders[_folder(key)].pop(key, None))

    def capabilities(self) -> Capabilities:
        return Capabilities(create=True, swap=True)

    def check(self) -> None:
        return

    def _request(self, name: str, key: str, do: Callable[[], R]) -> R:
        if name != "list":
            check_key(key)
        with self._lock:
            self.calls[name] += 1
            fault = self.fault(name, key) if self.fault else None
            if fault is Fault.BEFORE:
                raise _failed(name, key)
            result = do()
        if fault is Fault.AFTER:
            raise _failed(name, key)
        return result

    def _find(self, key: str) -> tuple[bytes, ObjectInfo] | None:
        return self._folders[_folder(key)].get(key)

    def _object(self, key: str) -> tuple[bytes, ObjectInfo]:
        found = self._find(key)
        if found is None:
            raise ObjectNotFound(f"no object {self.url}/{key}")
        return found

    def _write(self, key: str, data: bytes) -> str:
        self._writes += 1
        version = str(self._writes)
        self._folders[_folder(key)][key] = data, ObjectInfo(key, len(data), version, self._clock())
        return version


def _folder(key: str) -> str:
    return "/".join(key.split("/", _DEPTH)[:_DEPTH])


def _failed(name: str, key: str) -> StorageError:
    error = StorageError(f"{name} {key} failed: injected")
    error.retryable = True
    return error
