"""Read and write objects: ranges, conditional writes, and multipart uploads."""

import contextlib
import logging
import random
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, TypeVar
from urllib.parse import quote, unquote

from llm_ocr.errors import ObjectChanged, ObjectExists, ObjectNotFound, StorageError
from llm_ocr.storage import Capabilities, ObjectInfo
from llm_ocr.storage.names import TEMPORARY
from llm_ocr.storage.s3.client import Connection, Service
from llm_ocr.storage.s3.errors import Conflict, Denied, Unsupported, translated

# Reading objects. The SDK repeats requests, and not answers that break off: those are asked for again here.


T = TypeVar("T")

#: Seconds (at most) before an answer that broke off is asked for again.
_READ_PAUSES = (0.1, 0.5, 2.0, 5.0)

_CHUNK = 1 << 20


def read_object(connection: Connection, key: str, name: str) -> tuple[bytes, str]:
    """The content of an object and its ETag. Raises `ObjectNotFound`."""
    content = BytesIO()
    version = copy_object(connection, key, name, content)
    return content.getvalue(), version


def copy_object(connection: Connection, key: str, name: str, file: BinaryIO) -> str:
    """Make the object's content that of `file`, which is writable and seekable; its ETag. Raises `ObjectNotFound`."""

    def ask() -> Any:
        return connection.client.get_object(Bucket=connection.context.bucket, Key=key)

    def copy(answer: Any) -> str:
        file.seek(0)
        file.truncate()
        for chunk in answer["Body"].iter_chunks(_CHUNK):
            file.write(chunk)
        return str(answer["ETag"])

    return _read(ask, copy, connection, name)


def read_part(connection: Connection, key: str, name: str, start: int, length: int) -> bytes:
    """`length` bytes (at least 1) from `start`, fewer or none at the end. Raises `ObjectNotFound`."""
    from botocore.exceptions import ClientError

    def ask() -> Any:
        bounds = f"bytes={start}-{start + length - 1}"
        try:
            return connection.client.get_object(Bucket=connection.context.bucket, Key=key, Range=bounds)
        except ClientError as error:
            if error.response.get("ResponseMetadata", {}).get("HTTPStatusCode") != 416:
                raise
            return None  # it begins behind the end

    def read(answer: Any) -> bytes:
        if answer is None:
            return b""
        data: bytes = answer["Body"].read()
        # A service that does not know ranges gives the whole.
        return data if "ContentRange" in answer else data[start : start + length]

    return _read(ask, read, connection, name)


def _read(ask: Callable[[], Any], read: Callable[[Any], T], connection: Connection, name: str) -> T:
    for pause in (*_READ_PAUSES, None):
        with translated("read", name, connection.context, reading=True):
            answer = ask()
        try:
            with translated("read", name, connection.context):
                return read(answer)
        except StorageError as error:
            if not error.retryable or pause is None:
                raise
            time.sleep(random.uniform(pause / 2, pause))
        finally:
            if answer is not None:
                answer["Body"].close()
    raise AssertionError("not reached: the last round returns or raises")


# Conditional writes: create-if-absent and compare-and-swap, and whether a service honours them. A request that the SDK
# repeats after a lost answer meets its own write, and is told 409 or 412. What stands is therefore read back: our bytes
# mean success. Two writers with the same bytes would both take themselves for the winner, so what must have one winner
# holds a nonce.


#: Seconds (at most) before the next try when a write met another one and nothing of it stands: the S3 user guide on
#: conditional writes asks for a retry after 409.
_WRITE_PAUSES = (0.1, 0.3, 1.0, 3.0)

_LEASES_OFF = "leases are off here, and shards are static"


@dataclass(frozen=True, slots=True)
class Target:
    """One object to write. `key` is its key in the bucket, `name` what errors call it."""

    connection: Connection
    key: str
    name: str

    def put(self, data: bytes, **conditions: str) -> str:
        """Write it, and give its ETag. Raises `Conflict` when a condition fails, `Unsupported` when it is not known.

        `ObjectNotFound`: the object that a condition names is gone.
        """
        context = self.connection.context
        with translated("write", self.name, context, reading="IfMatch" in conditions):
            sent = self.connection.client.put_object(Bucket=context.bucket, Key=self.key, Body=data, **conditions)
        return str(sent["ETag"])

    def find(self) -> tuple[bytes, str] | None:
        """Content and ETag; None when there is no such object."""
        try:
            return read_object(self.connection, self.key, self.name)
        except ObjectNotFound:
            return None

    def remove(self) -> None:
        """Remove it; no error when there is none."""
        context = self.connection.context
        with (
            contextlib.suppress(ObjectNotFound),  # Amazon says nothing of it, others do
            translated("remove", self.name, context, reading=True),
        ):
            self.connection.client.delete_object(Bucket=context.bucket, Key=self.key)


def create(target: Target, data: bytes) -> str:
    """Write the object if there is none; its ETag. Raises `ObjectExists`, and `Unsupported` where it is not known."""
    for pause in _WRITE_PAUSES:
        try:
            return target.put(data, IfNoneMatch="*")
        except StorageError as error:
            failed = error
        standing = _standing_after(failed, target)
        if standing is not None:
            if standing[0] == data:
                return standing[1]
            raise ObjectExists(f"{target.name} exists") from failed
        if not isinstance(failed, Conflict):
            break
        time.sleep(random.uniform(pause / 2, pause))
    raise failed


def swap(target: Target, data: bytes, version: str) -> str:
    """Replace the object if its ETag is `version`; its new one. Raises `ObjectChanged`."""
    for pause in _WRITE_PAUSES:
        try:
            return target.put(data, IfMatch=version)
        except ObjectNotFound as gone:
            raise ObjectChanged(f"{target.name} is gone") from gone
        except StorageError as error:
            failed = error
        standing = _standing_after(failed, target)
        if standing is None:
            raise ObjectChanged(f"{target.name} is gone") from failed
        if standing[0] == data:
            return standing[1]
        if standing[1] != version:
            raise ObjectChanged(f"{target.name} has changed") from failed
        if not isinstance(failed, Conflict):
            break
        time.sleep(random.uniform(pause / 2, pause))
    raise failed


def create_unsafely(target: Target, data: bytes) -> str:
    """`create` where the service has no conditions: right as long as no two write at the same moment."""
    standing = target.find()
    if standing is not None:
        raise ObjectExists(f"{target.name} exists")
    return target.put(data)


def _standing_after(failed: StorageError, target: Target) -> tuple[bytes, str] | None:
    """What stands after a write of which it is not known whether it happened; raises `failed` when it did not."""
    if not failed.retryable:
        raise failed
    try:
        return target.find()
    except StorageError as unread:
        raise failed from unread


def probe(target: Target) -> Capabilities:
    """What the service honours, found with an object of this name, which is removed. Raises `StorageError`.

    The object is read back too, so that all permissions that a workspace needs are proved.
    """
    try:
        created, version = _probe_create(target)
        swapped = _probe_swap(target, version)
        if target.find() is None:
            raise StorageError(
                f"{target.name} cannot be read after it was written", hint="Nothing can be kept in such a store."
            )
    except StorageError:
        with contextlib.suppress(StorageError):  # the first error says more than that of the cleaning up
            target.remove()
        raise
    target.remove()
    missing = [name for name, there in (("If-None-Match", created), ("If-Match", swapped)) if not there]
    note = f"{' and '.join(missing)} of PutObject: not honoured by {target.connection.server}, so {_LEASES_OFF}"
    return Capabilities(created, swapped, note if missing else "")


def _probe_create(target: Target) -> tuple[bool, str]:
    """Whether a second creator loses, and the version that stands."""
    try:
        version = create(target, _nonce())
    except Unsupported:
        return False, target.put(_nonce())
    try:
        return False, target.put(_nonce(), IfNoneMatch="*")
    except Conflict:
        return True, version


def _probe_swap(target: Target, version: str) -> bool:
    """Whether the right version is replaced, and then, as it is not the right one any more, is refused."""
    try:
        swap(target, _nonce(), version)
        target.put(_nonce(), IfMatch=version)
    except Conflict:
        standing = target.find()
        return standing is not None and standing[1] != version
    except (Unsupported, ObjectChanged):
        return False
    return False


def _nonce() -> bytes:
    return secrets.token_hex(16).encode()


# Files that go up in parts, and what is left of those that were cut off.


_log = logging.getLogger(__name__)

#: An upload in parts has an id, and no name among the keys; we show it as <folder>/.tmp-upload-<id>:<name>.
_UPLOAD = f"{TEMPORARY}upload-"

#: Parts in flight for one file; a store is used from many threads already.
_PARTS_AT_ONCE = 4

_MOST_PARTS = 10_000
_MEBI = 1 << 20


def upload_file(connection: Connection, path: Path, key: str, name: str) -> None:
    """Write an object from a file, in parts above `connection.multipart` bytes. Raises `StorageError`."""
    with translated(f"copy {path} to", name, connection.context):
        if path.stat().st_size <= connection.multipart:
            with path.open("rb") as file:
                connection.client.put_object(Bucket=connection.context.bucket, Key=key, Body=file)
            return
        try:
            _upload_parts(connection, path, key)
        except connection.client.exceptions.NoSuchUpload:
            # The parts were joined and the answer lost: the repeated request finds no upload. Which of two writers'
            # object stands is not known, so the file goes up once more.
            _upload_parts(connection, path, key)


def _upload_parts(connection: Connection, path: Path, key: str) -> None:
    from boto3.s3.transfer import TransferConfig
    from s3transfer.manager import TransferManager

    part = min(max(connection.multipart, 5 * _MEBI), 64 * _MEBI)
    part = max(part, -(-path.stat().st_size // _MOST_PARTS))
    config = TransferConfig(
        multipart_threshold=connection.multipart, multipart_chunksize=part, max_concurrency=_PARTS_AT_ONCE
    )
    with TransferManager(connection.client, config) as manager:
        manager.upload(str(path), connection.context.bucket, key).result()


def unfinished_uploads(connection: Connection) -> Iterator[ObjectInfo]:
    """Uploads in parts that were neither finished nor given up; none where the service cannot list them."""
    context = connection.context
    pages = connection.client.get_paginator("list_multipart_uploads").paginate(
        Bucket=context.bucket, Prefix=context.root
    )
    for upload in _uploads(connection, pages):
        folder, slash, name = str(upload["Key"]).removeprefix(context.root).rpartition("/")
        key = f"{folder}{slash}{_UPLOAD}{quote(upload['UploadId'], safe='')}:{name}"
        modified = float(int(upload["Initiated"].timestamp()))
        yield ObjectInfo(key, _size(connection, upload), str(upload["UploadId"]), modified)


def is_upload(key: str) -> bool:
    """Whether a key is one of `unfinished_uploads`."""
    return key.rpartition("/")[2].startswith(_UPLOAD)


def give_up(connection: Connection, key: str, name: str) -> None:
    """Remove the parts of an upload; no error when they are gone."""
    folder, slash, last = key.rpartition("/")
    upload, _, last = last.removeprefix(_UPLOAD).partition(":")
    with translated("remove", name, connection.context):
        try:
            connection.client.abort_multipart_upload(
                Bucket=connection.context.bucket,
                Key=f"{connection.context.root}{folder}{slash}{last}",
                UploadId=unquote(upload),
            )
        except connection.client.exceptions.NoSuchUpload:
            return


def _uploads(connection: Connection, pages: Any) -> Iterator[Any]:
    rest = iter(pages)
    while True:
        try:
            with translated("list the unfinished uploads of", connection.context.url, connection.context):
                page = next(rest, None)
        except StorageError as error:
            hidden = isinstance(error, (Unsupported, Denied)) or connection.service is Service.HUGGING_FACE
            if error.retryable or not hidden:
                raise
            _log.warning("%s: uploads that were cut off are not found: %s", connection.context.url, error)
            return
        if page is None:
            return
        # Some services show those of the whole bucket.
        yield from (one for one in page.get("Uploads", ()) if one["Key"].startswith(connection.context.root))


def _size(connection: Connection, upload: Any) -> int:
    """Bytes of the parts that arrived."""
    where = f"{connection.context.url}: {upload['Key']}"
    try:
        with translated("list the parts of", where, connection.context, reading=True):
            pages = connection.client.get_paginator("list_parts").paginate(
                Bucket=connection.context.bucket, Key=upload["Key"], UploadId=upload["UploadId"]
            )
            return sum(part["Size"] for page in pages for part in page.get("Parts", ()))
    except StorageError:
        return 0  # it ended just now, or the service does not say: only a number for the user is missing
