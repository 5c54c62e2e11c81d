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

T = TypeVar("T")

#: Upper limits in seconds of the pauses before an interrupted response is requested again.
_READ_PAUSES = (0.1, 0.5, 2.0, 5.0)

_CHUNK = 1 << 20


def read_object(connection: Connection, key: str, name: str) -> tuple[bytes, str]:
    """Return the content of an object and its ETag.

    Raises:
        ObjectNotFound: there is no such object.
    """
    content = BytesIO()
    version = copy_object(connection, key, name, content)
    return content.getvalue(), version


def copy_object(connection: Connection, key: str, name: str, file: BinaryIO) -> str:
    """Replace the content of `file`, which is writable and seekable, with the object's; return its ETag.

    Raises:
        ObjectNotFound: there is no such object.
    """

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
    """Return `length` bytes (at least 1) from `start`; fewer or none at the end.

    Raises:
        ObjectNotFound: there is no such object.
    """
    from botocore.exceptions import ClientError

    def ask() -> Any:
        bounds = f"bytes={start}-{start + length - 1}"
        try:
            return connection.client.get_object(Bucket=connection.context.bucket, Key=key, Range=bounds)
        except ClientError as error:
            if error.response.get("ResponseMetadata", {}).get("HTTPStatusCode") != 416:
                raise
            return None  # the range begins after the end

    def read(answer: Any) -> bytes:
        if answer is None:
            return b""
        data: bytes = answer["Body"].read()
        # A service without support for ranges returns the whole object.
        return data if "ContentRange" in answer else data[start : start + length]

    return _read(ask, read, connection, name)


def _read(ask: Callable[[], Any], read: Callable[[Any], T], connection: Connection, name: str) -> T:
    """Return what `read` makes of the response. The SDK repeats requests, but not interrupted response bodies."""
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


# Conditional writes: create-if-absent and compare-and-swap, with tests of the service's support. If the SDK repeats a
# request after a lost response, the request meets its own write and receives 409 or 412. The object is therefore read
# back: our bytes mean success. Two writers of equal bytes would both assume success, so objects that need a single
# winner contain a nonce.


#: Upper limits in seconds of the pauses before the next attempt, when a write met another one but did not take effect:
#: the S3 user guide on conditional writes recommends a retry after 409.
_WRITE_PAUSES = (0.1, 0.3, 1.0, 3.0)


@dataclass(frozen=True, slots=True)
class Target:
    """Object to write. `key` is its key in the bucket, `name` its name in errors."""

    connection: Connection
    key: str
    name: str

    def put(self, data: bytes, **conditions: str) -> str:
        """Write the object and return its ETag.

        Raises:
            Conflict: a condition failed.
            Unsupported: the service does not support a condition.
            ObjectNotFound: the object of a condition is gone.
        """
        context = self.connection.context
        with translated("write", self.name, context, reading="IfMatch" in conditions):
            sent = self.connection.client.put_object(Bucket=context.bucket, Key=self.key, Body=data, **conditions)
        return str(sent["ETag"])

    def find(self) -> tuple[bytes, str] | None:
        """Return content and ETag, or None if there is no such object."""
        try:
            return read_object(self.connection, self.key, self.name)
        except ObjectNotFound:
            return None

    def remove(self) -> None:
        """Remove the object. No error if it does not exist."""
        context = self.connection.context
        with (
            contextlib.suppress(ObjectNotFound),  # other services than Amazon report a missing object
            translated("remove", self.name, context, reading=True),
        ):
            self.connection.client.delete_object(Bucket=context.bucket, Key=self.key)


def create(target: Target, data: bytes) -> str:
    """Write the object if it does not exist, and return its ETag.

    Raises:
        ObjectExists: the object exists.
        Unsupported: the service does not support the condition.
    """
    for pause in _WRITE_PAUSES:
        try:
            return target.put(data, IfNoneMatch="*")
        except StorageError as error:
            failed = error
        current = _current_after(failed, target)
        if current is not None:
            if current[0] == data:
                return current[1]
            raise ObjectExists(f"{target.name} exists") from failed
        if not isinstance(failed, Conflict):
            break
        time.sleep(random.uniform(pause / 2, pause))
    raise failed


def swap(target: Target, data: bytes, version: str) -> str:
    """Replace the object if its ETag is `version`, and return the new ETag.

    Raises:
        ObjectChanged: the object has another version or is gone.
    """
    for pause in _WRITE_PAUSES:
        try:
            return target.put(data, IfMatch=version)
        except ObjectNotFound as gone:
            raise ObjectChanged(f"{target.name} is gone") from gone
        except StorageError as error:
            failed = error
        current = _current_after(failed, target)
        if current is None:
            raise ObjectChanged(f"{target.name} is gone") from failed
        if current[0] == data:
            return current[1]
        if current[1] != version:
            raise ObjectChanged(f"{target.name} has changed") from failed
        if not isinstance(failed, Conflict):
            break
        time.sleep(random.uniform(pause / 2, pause))
    raise failed


def create_unsafely(target: Target, data: bytes) -> str:
    """Create without conditions, correct only while no two writers are active."""
    current = target.find()
    if current is not None:
        raise ObjectExists(f"{target.name} exists")
    return target.put(data)


def _current_after(failed: StorageError, target: Target) -> tuple[bytes, str] | None:
    """Return the current object after a write with unknown outcome; raise `failed` if the write did not happen."""
    if not failed.retryable:
        raise failed
    try:
        return target.find()
    except StorageError as unread:
        raise failed from unread


def probe(target: Target) -> Capabilities:
    """Return the service's capabilities, tested with an object of this name, which is removed.

    The object is read back too, which checks all permissions that a workspace needs.

    Raises:
        StorageError: the service refused a request.
    """
    try:
        try:
            version = create(target, _nonce())
        except Unsupported:
            created, version = False, target.put(_nonce())
        else:
            try:
                version = target.put(_nonce(), IfNoneMatch="*")
                created = False
            except Conflict:  # a second creator fails
                created = True
        swapped = False
        try:
            swap(target, _nonce(), version)
            target.put(_nonce(), IfMatch=version)
        except Conflict:  # the current version was replaced, and the outdated version refused
            current = target.find()
            swapped = current is not None and current[1] != version
        except (Unsupported, ObjectChanged):
            pass
        if target.find() is None:
            raise StorageError(
                f"{target.name} is not readable after the write",
                hint="This store does not keep objects: use another.",
            )
    except StorageError:
        with contextlib.suppress(StorageError):  # the first error is more informative than a cleanup error
            target.remove()
        raise
    target.remove()
    missing = [name for name, there in (("If-None-Match", created), ("If-Match", swapped)) if not there]
    unsupported = f"{' and '.join(missing)} of PutObject are not supported by {target.connection.server}"
    note = f"{unsupported}, so workers cannot claim units"
    return Capabilities(created, swapped, note if missing else "")


def _nonce() -> bytes:
    return secrets.token_hex(16).encode()


_log = logging.getLogger(__name__)

#: A multipart upload has an id, but no key; it is listed as <folder>/.tmp-upload-<id>:<name>.
_UPLOAD = f"{TEMPORARY}upload-"

#: Concurrent parts of a file; a store is used from many threads already.
_PARTS_AT_ONCE = 4

_MOST_PARTS = 10_000
_MEBI = 1 << 20


def upload_file(connection: Connection, path: Path, key: str, name: str) -> None:
    """Write an object from a file, in parts above `connection.multipart` bytes.

    Raises:
        StorageError: the upload failed.
    """
    with translated(f"copy {path} to", name, connection.context):
        if path.stat().st_size <= connection.multipart:
            with path.open("rb") as file:
                connection.client.put_object(Bucket=connection.context.bucket, Key=key, Body=file)
            return
        try:
            _upload_parts(connection, path, key)
        except connection.client.exceptions.NoSuchUpload:
            # The parts were joined but the response was lost: the repeated request finds no upload. Another writer's
            # object may be the current one, so the file is uploaded again.
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
    """Yield multipart uploads that were neither completed nor aborted; none if the service cannot list them."""
    context = connection.context
    pages = iter(
        connection.client.get_paginator("list_multipart_uploads").paginate(Bucket=context.bucket, Prefix=context.root)
    )
    while True:
        try:
            with translated("list the unfinished uploads of", context.url, context):
                page = next(pages, None)
        except StorageError as error:
            hidden = isinstance(error, (Unsupported, Denied)) or connection.service is Service.HUGGING_FACE
            if error.retryable or not hidden:
                raise
            _log.warning("%s: cannot find interrupted uploads: %s", context.url, error)
            return
        if page is None:
            return
        for upload in page.get("Uploads", ()):
            if not upload["Key"].startswith(context.root):
                continue  # some services list the uploads of the whole bucket
            folder, slash, name = str(upload["Key"]).removeprefix(context.root).rpartition("/")
            key = f"{folder}{slash}{_UPLOAD}{quote(upload['UploadId'], safe='')}:{name}"
            modified = float(int(upload["Initiated"].timestamp()))
            yield ObjectInfo(key, _size(connection, upload), str(upload["UploadId"]), modified)


def is_upload(key: str) -> bool:
    """Return whether a key is from `unfinished_uploads`."""
    return key.rpartition("/")[2].startswith(_UPLOAD)


def give_up(connection: Connection, key: str, name: str) -> None:
    """Remove the parts of an upload. No error if they are gone."""
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


def _size(connection: Connection, upload: Any) -> int:
    """Return the bytes of the received parts."""
    where = f"{connection.context.url}: {upload['Key']}"
    try:
        with translated("list the parts of", where, connection.context, reading=True):
            pages = connection.client.get_paginator("list_parts").paginate(
                Bucket=connection.context.bucket, Key=upload["Key"], UploadId=upload["UploadId"]
            )
            return sum(part["Size"] for page in pages for part in page.get("Parts", ()))
    except StorageError:
        return 0  # the upload has just ended, or the service does not report parts: only a displayed number is missing
