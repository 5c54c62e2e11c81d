"""The store on Google Cloud Storage. Imports Google's client, so import this module late."""

import base64
import dataclasses
import io
import secrets
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import google_crc32c
from google.api_core.exceptions import NotFound, PreconditionFailed, RequestRangeNotSatisfiable
from google.cloud.storage.exceptions import DataCorruption
from requests import RequestException

from llm_ocr.errors import ObjectChanged, ObjectExists, ObjectNotFound, StorageError
from llm_ocr.storage import DEFAULT_OPTIONS, BaseStore, Capabilities, ObjectInfo, StoreOptions
from llm_ocr.storage.gcs import Place
from llm_ocr.storage.gcs.client import DEFAULT_LIMITS, Connection, Limits, connect
from llm_ocr.storage.gcs.errors import SDK_ERRORS, replaced_meanwhile, said_by, translated, unknown_outcome
from llm_ocr.storage.local import replacing
from llm_ocr.storage.local import translated as translated_here
from llm_ocr.storage.names import PROBES

# Writes that happen exactly once or not at all, with a known outcome. Every write names the generation that it replaces
# (0: none), so that a repeated request cannot write twice. It stores a random word in the object's metadata. After a
# lost response, the word identifies the writer of the current object.


#: Metadata entry with the word of the write.
_WORD = "llm-ocr-write"

#: Generation of a missing object.
ABSENT = 0

#: Attempts to start an upload after a lost session or content damaged in transfer.
_BEGINNINGS = 3

#: Attempts of `replace` to find the object to replace: further attempts follow only repeated removals by others.
_LOOKS = 5

_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class Content:
    """Content to write. `crc32c` in Google's format: the service rejects differing content before it is visible."""

    open: Callable[[], BinaryIO]
    size: int
    crc32c: str

    @staticmethod
    def of_bytes(data: bytes) -> "Content":
        return Content(lambda: io.BytesIO(data), len(data), _digest(google_crc32c.Checksum(data)))

    @staticmethod
    def of_file(path: Path) -> "Content":
        """Return the content of a file, which is read once.

        Raises:
            OSError: the file cannot be read.
        """
        size, checksum = 0, google_crc32c.Checksum()
        with path.open("rb") as file:
            while block := file.read(_BLOCK):
                size += len(block)
                checksum.update(block)
        return Content(lambda: path.open("rb"), size, _digest(checksum))


def write(connection: Connection, name: str, content: Content, generation: int) -> int | None:
    """Write the object in place of that generation; return the new one, or None if the generation is not current.

    Raises the client's errors, also if it is unknown whether the object was written.
    """
    for left in reversed(range(_BEGINNINGS)):
        word = secrets.token_hex(16)
        try:
            blob = connection.bucket.blob(name, chunk_size=connection.limits.chunk)
            blob.metadata = {_WORD: word}
            with content.open() as file:
                blob.upload_from_file(
                    file,
                    size=content.size,
                    content_type="application/octet-stream",  # prevents compression and decompression in transit
                    if_generation_match=generation,
                    checksum="crc32c",
                    crc32c_checksum_value=content.crc32c,
                    **connection.call,
                )
            return int(blob.generation)
        except PreconditionFailed:
            # The first of several attempts may have been ours, with a lost response.
            found, written_by = find(connection, name)
            return found if written_by == word else None
        except (*SDK_ERRORS, ValueError) as error:
            beginning_lost = _beginning_lost(error)
            if not (beginning_lost or unknown_outcome(error)):
                raise
            found, written_by = find(connection.hurried(), name)
            if written_by == word:
                return found
            if found != generation:
                return None
            if not (beginning_lost and left):
                raise
    raise AssertionError("the last beginning returns or raises")


def replace(connection: Connection, name: str, content: Content) -> None:
    """Write the object, whether or not it exists. Raises the client's errors.

    If another writer replaces or removes the object at the same moment, this write counts as the earlier one.
    """
    for _ in range(_LOOKS):
        if write(connection, name, content, ABSENT) is not None:
            return
        current, _word = find(connection, name)
        if current != ABSENT:
            write(connection, name, content, current)
            return
    raise StorageError(f"gs://{connection.bucket.name}/{name} was removed repeatedly during the write")


def remove(connection: Connection, name: str) -> None:
    """Remove the current object. No error if it does not exist. Raises the client's errors.

    The generation is requested first: a repeated request must not remove an object that another writer has written
    since.
    """
    current, _ = find(connection, name)
    if current == ABSENT:
        return
    try:
        connection.bucket.blob(name).delete(if_generation_match=current, **connection.call)
    except PreconditionFailed:
        return
    except NotFound as error:
        if said_by(error).no_bucket:
            raise


def find(connection: Connection, name: str) -> tuple[int, str]:
    """Return the object's generation (`ABSENT`: none) and the word of its write. Raises the client's errors."""
    blob = look(connection, name)
    return (ABSENT, "") if blob is None else (int(blob.generation), str((blob.metadata or {}).get(_WORD, "")))


def look(connection: Connection, name: str) -> Any:
    """Return the client's object with its properties, or None if there is no such object."""
    blob = connection.bucket.blob(name)
    try:
        blob.reload(**connection.call)
    except NotFound as error:
        if said_by(error).no_bucket:
            raise
        return None
    return blob


def _beginning_lost(error: BaseException) -> bool:
    """Return whether to restart the upload: its session is gone, a chunk was stored in part, or content was damaged."""
    if isinstance(error, DataCorruption):
        return True
    said = said_by(error)
    if not said.status:  # the client cannot continue in the middle of a chunk
        return isinstance(error, ValueError) and "Bytes stream" in str(error)
    damaged = said.status == 400 and ("match" in said.message or "corrupt" in said.message.lower())
    return damaged or said.status == 410 or (said.status == 404 and not said.no_bucket)


def _digest(checksum: Any) -> str:
    return base64.b64encode(checksum.digest()).decode()


T = TypeVar("T")

#: Attempts of a read whose object was replaced during the read.
_READS = 5

_PAGE = 1000


class GcsStore(BaseStore):
    """Store whose objects are below a prefix of a bucket. Thread-safe; connects on first use."""

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

    def fetch(self, key: str) -> tuple[bytes, str]:
        connection = self._connection()

        def read(blob: Any) -> tuple[bytes, str]:
            data: bytes = blob.download_as_bytes(**connection.call)
            return data, str(int(blob.generation))

        name = self._place.inside(key)
        with translated("read", self._where(key), connection.context, reading=True):
            return _whole(connection, name, read)

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
                return b""  # the range begins at the end of the object, or after it
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
        connection = self._connection()
        name, where = self._place.inside(key), self._where(key)
        with translated("write", where, connection.context):
            written = write(connection, name, Content.of_bytes(data), ABSENT)
        if written is None:
            raise ObjectExists(f"{where} exists")
        return str(written)

    def swap(self, key: str, data: bytes, version: str) -> str:
        connection = self._connection()
        name, where = self._place.inside(key), self._where(key)
        if not version.isdecimal() or int(version) == ABSENT:
            raise ObjectChanged(f"{where}: {version!r} is no version of it")
        with translated("write", where, connection.context):
            written = write(connection, name, Content.of_bytes(data), int(version))
        if written is None:
            raise ObjectChanged(f"{where} is not of version {version} any more")
        return str(written)

    def download(self, key: str, path: Path) -> None:
        name, connection, where = self._place.inside(key), self._connection(), self._where(key)

        def read(blob: Any) -> None:
            with temporary.open("wb") as file:
                blob.download_to_file(file, **connection.call)

        with replacing(path, where) as temporary, translated("read", where, connection.context, reading=True):
            _whole(connection, name, read)

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        self._place.check_prefix(prefix)
        for info in self._listed(prefix, start_after):
            if not info.key.startswith(PROBES):
                yield info

    def unfinished(self) -> Iterator[ObjectInfo]:
        """List probes that were not removed. Google removes the data of interrupted uploads, which are not objects."""
        yield from self._listed(PROBES)

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
        """Test whether generation preconditions work: Google's do, an emulator's may not."""
        hurried = self._hurried()
        with self._lock:
            if self._found is None:
                found = super(GcsStore, hurried).capabilities()
                server = hurried._connection().context.server
                note = f"{server} does not honour generation preconditions" if found.note else ""
                self._found = dataclasses.replace(found, note=note)
            return self._found

    def check(self) -> None:
        """Write, read, list, and remove a probe. Also detects missing credentials. Each request takes at most 20 s."""
        super(GcsStore, self._hurried()).check()

    def _hurried(self) -> "GcsStore":
        """Return the same store with less time for each request."""
        store = GcsStore(self._place, self._options, self._limits)
        store._connected = self._connection().hurried()
        return store

    def _listed(self, prefix: str, start_after: str = "") -> Iterator[ObjectInfo]:
        connection, root = self._connection(), self._place.root
        where = f"{self.url}/{prefix}" if prefix else self.url
        with translated("list", where, connection.context):
            pages = connection.bucket.list_blobs(
                prefix=root + prefix,
                start_offset=root + start_after if start_after else None,  # inclusive: that key itself is skipped
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
                if not blob.name.startswith(root + prefix):
                    raise StorageError(
                        f"{where}: the store listed {blob.name!r}, which does not begin with {root + prefix!r}",
                        hint="The server does not follow the protocol of Google Cloud Storage: check "
                        "`workspace_endpoint`.",
                    )
                key = blob.name.removeprefix(root)
                if key > start_after and self._place.has(key):
                    yield _info(key, blob)

    def _where(self, key: str) -> str:
        return f"{self._place.url}/{key}"

    def _connection(self) -> Connection:
        with self._lock:
            if self._connected is None:
                self._connected = connect(self._place, self._options, self._limits)
            return self._connected


def _whole(connection: Connection, name: str, read: Callable[[Any], T]) -> T:
    """Return the result of `read` for the object, from a single generation.

    An interrupted read continues in its initial generation. If that generation is gone, the read restarts. It also
    restarts after an interrupted 404 response, which the client reads outside of its retries.
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
                what = f"gs://{connection.bucket.name}/{name} is replaced faster than a read completes"
                raise StorageError(what, retryable=True) from error
    raise AssertionError("the last read returns or raises")


def _info(key: str, blob: Any) -> ObjectInfo:
    return ObjectInfo(key, int(blob.size), str(int(blob.generation)), blob.time_created.timestamp())
