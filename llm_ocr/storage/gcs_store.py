"""The store on Google Cloud Storage; see `llm_ocr.storage.gcs`. Imports Google's client, so it is imported late."""

import dataclasses
import os
import secrets
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from google.api_core.exceptions import NotFound, RequestRangeNotSatisfiable
from requests import RequestException

from llm_ocr.errors import ObjectChanged, ObjectExists, ObjectNotFound, StorageError
from llm_ocr.storage import DEFAULT_OPTIONS, BaseStore, Capabilities, ObjectInfo, StoreOptions
from llm_ocr.storage.gcs_address import Place
from llm_ocr.storage.gcs_client import DEFAULT_LIMITS, Connection, Limits, connect
from llm_ocr.storage.gcs_errors import replaced_meanwhile, translated
from llm_ocr.storage.gcs_writing import ABSENT, Content, look, remove, replace, write
from llm_ocr.storage.local_errors import translated as translated_here
from llm_ocr.storage.names import PROBES, TEMPORARY

T = TypeVar("T")

#: How often a read begins anew because the object was replaced while it was read.
_READS = 5

_PAGE = 1000


class GcsStore(BaseStore):
    """Objects below a prefix of a bucket. For any number of threads; connects at the first use."""

    def __init__(self, place: Place, options: StoreOptions = DEFAULT_OPTIONS, limits: Limits = DEFAULT_LIMITS) -> None:
        self._place = dataclasses.replace(place, any_key=options.any_key)
        self._options = options
        self._limits = limits
        self._lock = threading.Lock()
        self._connected: Connection | None = None
        self._found: Capabilities | None = None

    @property
    def url(self) -> str:
        """gs://bucket/prefix."""
        return self._place.url

    def get(self, key: str) -> bytes:
        return self.fetch(key)[0]

    def fetch(self, key: str) -> tuple[bytes, str]:
        return _fetch(self._connection(), self._place, key)

    def read_range(self, key: str, start: int, length: int) -> bytes:
        name, connection = self._place.inside(key), self._connection()
        if length <= 0:
            if self.stat(key) is None:
                raise ObjectNotFound(f"no object {self._where(key)}")
            return b""

        def read(blob: Any) -> bytes:
            try:
                data: bytes = blob.download_as_bytes(start=start, end=start + length - 1, **connection.call)
            except RequestRangeNotSatisfiable:
                return b""  # it begins at the end of the object, or behind it
            return data

        with translated("read", self._where(key), connection.context, reading=True):
            return _whole(connection, name, read)

    def put(self, key: str, data: bytes) -> None:
        name, connection = self._place.inside(key), self._connection()
        with translated("write", self._where(key), connection.context):
            replace(connection, name, Content.of_bytes(data))

    def upload(self, path: Path, key: str) -> None:
        name, connection = self._place.inside(key), self._connection()
        with translated_here("read", str(path)), translated(f"copy {path} to", self._where(key), connection.context):
            replace(connection, name, Content.of_file(path))

    def create(self, key: str, data: bytes) -> str:
        return _create(self._connection(), self._place, key, data)

    def swap(self, key: str, data: bytes, version: str) -> str:
        return _swap(self._connection(), self._place, key, data, version)

    def download(self, key: str, path: Path) -> None:
        name, connection, where = self._place.inside(key), self._connection(), self._where(key)
        temporary = path.with_name(f"{TEMPORARY}{os.getpid()}-{secrets.token_hex(8)}")

        def read(blob: Any) -> None:
            with temporary.open("wb") as file:
                blob.download_to_file(file, **connection.call)

        try:
            with translated_here(f"copy {where} to", str(path)):
                with translated("read", where, connection.context, reading=True):
                    _whole(connection, name, read)
                temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        self._place.check_prefix(prefix)
        for info in _listed(self._connection(), self._place, prefix, start_after):
            if not info.key.startswith(PROBES):
                yield info

    def unfinished(self) -> Iterator[ObjectInfo]:
        """Probes that were not removed. What an upload that was cut off has sent is no object; Google drops it."""
        yield from _listed(self._connection(), self._place, PROBES, "")

    def stat(self, key: str) -> ObjectInfo | None:
        name, connection = self._place.inside(key), self._connection()
        with translated("read", self._where(key), connection.context):
            blob = look(connection, name)
        return None if blob is None else _info(key, blob)

    def delete(self, key: str) -> None:
        name, connection = self._place.inside(key), self._connection()
        with translated("remove", self._where(key), connection.context):
            remove(connection, name)

    def capabilities(self) -> Capabilities:
        connection = self._connection()
        with self._lock:
            if self._found is None:
                self._found = _probed(connection.hurried(), self._place)
            return self._found

    def check(self) -> None:
        """Write, read, list and remove a probe. Also finds missing credentials; waits for nobody longer than 20 s."""
        connection, key = self._connection().hurried(), _probe()
        written = secrets.token_bytes(16)
        _create(connection, self._place, key, written)
        if _fetch(connection, self._place, key)[0] != written:
            raise StorageError(f"cannot use {self.url}: what was written is not what is read")
        if key not in {info.key for info in _listed(connection, self._place, key, "")}:
            raise StorageError(f"cannot use {self.url}: what was written is not listed")
        with translated("remove", self._where(key), connection.context):
            remove(connection, self._place.inside(key))

    def _where(self, key: str) -> str:
        return f"{self._place.url}/{key}"

    def _connection(self) -> Connection:
        with self._lock:
            if self._connected is None:
                self._connected = connect(self._place, self._options, self._limits)
            return self._connected


def _fetch(connection: Connection, place: Place, key: str) -> tuple[bytes, str]:
    def read(blob: Any) -> tuple[bytes, str]:
        data: bytes = blob.download_as_bytes(**connection.call)
        return data, str(int(blob.generation))

    name = place.inside(key)
    with translated("read", f"{place.url}/{key}", connection.context, reading=True):
        return _whole(connection, name, read)


def _whole(connection: Connection, name: str, read: Callable[[Any], T]) -> T:
    """What `read` makes of the object, of one generation throughout.

    A read that was cut off goes on in the generation in which it began; when that one is gone, it begins anew. So it
    does when the answer that there is no such object was cut off: the client reads that one outside of its retries.
    """
    for left in reversed(range(_READS)):
        try:
            return read(connection.bucket.blob(name))
        except RequestException:
            if not left:
                raise
        except NotFound as error:
            if not replaced_meanwhile(error):
                raise
            if not left:
                said = StorageError(f"gs://{connection.bucket.name}/{name} is replaced faster than it can be read")
                said.retryable = True
                raise said from error
    raise AssertionError("the last read returns or raises")


def _create(connection: Connection, place: Place, key: str, data: bytes) -> str:
    name, where = place.inside(key), f"{place.url}/{key}"
    with translated("write", where, connection.context):
        written = write(connection, name, Content.of_bytes(data), ABSENT)
    if written is None:
        raise ObjectExists(f"{where} exists")
    return str(written)


def _swap(connection: Connection, place: Place, key: str, data: bytes, version: str) -> str:
    name, where = place.inside(key), f"{place.url}/{key}"
    if not version.isdecimal() or int(version) == ABSENT:
        raise ObjectChanged(f"{where}: {version!r} is no version of it")
    with translated("write", where, connection.context):
        written = write(connection, name, Content.of_bytes(data), int(version))
    if written is None:
        raise ObjectChanged(f"{where} is not of version {version} any more")
    return str(written)


def _listed(connection: Connection, place: Place, prefix: str, start_after: str) -> Iterator[ObjectInfo]:
    where = f"{place.url}/{prefix}" if prefix else place.url
    with translated("list", where, connection.context):
        pages = connection.bucket.list_blobs(
            prefix=place.root + prefix,
            start_offset=place.root + start_after if start_after else None,  # inclusive: that key itself is left out
            page_size=_PAGE,
            fields="items(name,size,generation,timeCreated),nextPageToken",
            **connection.call,
        ).pages
    while True:
        with translated("list", where, connection.context):
            page = next(pages, None)
        if page is None:
            return
        for blob in page:
            key = blob.name.removeprefix(place.root)
            if key > start_after and place.has(key):
                yield _info(key, blob)


def _info(key: str, blob: Any) -> ObjectInfo:
    return ObjectInfo(key, int(blob.size), str(int(blob.generation)), blob.time_created.timestamp())


def _probe() -> str:
    return f"{PROBES}{secrets.token_hex(16)}"


def _probed(connection: Connection, place: Place) -> Capabilities:
    """Try whether generations are honoured: Google's are, an emulator's may not be."""
    key = _probe()
    version = _create(connection, place, key, b"1")
    try:
        create = _refused(lambda: _create(connection, place, key, b"2"), ObjectExists)
        if create:
            second = _swap(connection, place, key, b"3", version)
            swap = _refused(lambda: _swap(connection, place, key, b"4", version), ObjectChanged) and second != version
        else:
            swap = False
    finally:
        with translated("remove", f"{place.url}/{key}", connection.context):
            remove(connection, place.inside(key))
    note = "" if create and swap else f"{connection.context.server} does not honour generation preconditions"
    return Capabilities(create, swap, note)


def _refused(attempt: Callable[[], object], error: type[StorageError]) -> bool:
    try:
        attempt()
    except error:
        return True
    return False
