"""Store in a bucket of S3 or of an S3-compatible service: the Hugging Face gateway, R2, MinIO, and others.

Versions are ETags. They depend on the content, so the same bytes written again have the same version: swapped objects
contain a nonce.
"""

import contextlib
import logging
import random
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, TypeVar
from urllib.parse import quote, unquote

from llm_ocr.errors import ObjectChanged, ObjectExists, ObjectNotFound, StorageError
from llm_ocr.storage import DEFAULT_OPTIONS, BaseStore, Capabilities, ObjectInfo, StoreOptions
from llm_ocr.storage.local import replacing
from llm_ocr.storage.names import PROBES, TEMPORARY, need_client
from llm_ocr.storage.s3.client import (
    DEFAULT_LIMITS,
    Connection,
    Limits,
    Place,
    Service,
    check_endpoint,
    connect,
    parse_url,
)
from llm_ocr.storage.s3.errors import Conflict, Denied, Unsupported, translated
from llm_ocr.storage.waiting import STOPPING

T = TypeVar("T")

_log = logging.getLogger(__name__)

#: Upper limits in seconds of the pauses before an interrupted response is requested again.
_READ_PAUSES = (0.1, 0.5, 2.0, 5.0)

#: Upper limits in seconds of the pauses before the next attempt, when a write met another one but did not take effect:
#: the S3 user guide on conditional writes recommends a retry after 409.
_WRITE_PAUSES = (0.1, 0.3, 1.0, 3.0)

_CHUNK = 1 << 20

#: A multipart upload has an id, but no key; it is listed as <folder>/.tmp-upload-<id>:<name>.
_UPLOAD = f"{TEMPORARY}upload-"

#: Concurrent parts of a file; a store is used from many threads already.
_PARTS_AT_ONCE = 4
_MOST_PARTS = 10_000
_MEBI = 1 << 20

_BROKEN = "The server at this endpoint does not follow the protocol of S3: check `workspace_endpoint`, or use another."


def open_s3(url: str, options: StoreOptions = DEFAULT_OPTIONS) -> "S3Store":
    """Return the store for `s3://BUCKET/PREFIX`, without connecting.

    Raises:
        UsageError: the URL or the endpoint is invalid.
        MissingExtra: boto3 is not installed.
    """
    place = parse_url(url, options)
    need_client("boto3", "s3:// needs boto3", "s3")
    if options.endpoint is not None:
        check_endpoint(options.endpoint, options)
    return S3Store(place, options)


class S3Store(BaseStore):
    """Store whose objects are in a bucket under a prefix. One client, created on first use, serves all threads.

    Encryption, versions, and lifecycle are the bucket's: no request sets them.
    """

    def __init__(self, place: Place, options: StoreOptions = DEFAULT_OPTIONS, limits: Limits = DEFAULT_LIMITS) -> None:
        self._place = replace(place, any_key=options.any_key)
        self.url = place.url
        self._options = options
        self._limits = limits
        self._lock = threading.Lock()
        self._connection: Connection | None = None
        self._capabilities: Capabilities | None = None

    def _connected(self) -> Connection:
        with self._lock:
            if self._connection is None:
                self._connection = connect(self._place, self._options, self._limits)
            return self._connection

    def fetch(self, key: str) -> tuple[bytes, str]:
        content = BytesIO()
        version = self._copy(key, content)
        return content.getvalue(), version

    def download(self, key: str, path: Path) -> None:
        with replacing(path, f"{self.url}/{key}") as temporary, temporary.open("wb") as file:
            self._copy(key, file)

    def _copy(self, key: str, file: BinaryIO) -> str:
        """Replace the content of `file`, which is writable and seekable, with the object's; return its ETag."""

        def copy(answer: Any) -> str:
            file.seek(0)
            file.truncate()
            for chunk in answer["Body"].iter_chunks(_CHUNK):
                file.write(chunk)
            return str(answer["ETag"])

        return self._read(key, copy)

    def read_range(self, key: str, start: int, length: int) -> bytes:
        if length < 1:
            if self.stat(key) is None:
                raise ObjectNotFound(f"no object {self.url}/{key}")
            return b""

        def read(answer: Any) -> bytes:
            if answer is None:  # the range begins after the end
                return b""
            data: bytes = answer["Body"].read()
            # A service without support for ranges returns the whole object.
            return data if "ContentRange" in answer else data[start : start + length]

        return self._read(key, read, Range=f"bytes={start}-{start + length - 1}")

    def _read(self, key: str, read: Callable[[Any], T], **options: str) -> T:
        """Return what `read` makes of the response, which is None for a range after the object's end.

        The SDK repeats requests, but not interrupted response bodies.

        Raises:
            ObjectNotFound: there is no such object.
        """
        from botocore.exceptions import ClientError

        inside, name, connection = self._place.inside(key), f"{self.url}/{key}", self._connected()
        for pause in (*_READ_PAUSES, None):
            answer = None
            with translated("read", name, connection.context, reading=True):
                try:
                    answer = connection.client.get_object(Bucket=self._place.bucket, Key=inside, **options)
                except ClientError as error:
                    if error.response.get("ResponseMetadata", {}).get("HTTPStatusCode") != 416:
                        raise
            try:
                with translated("read", name, connection.context):
                    return read(answer)
            except StorageError as error:
                if not error.retryable or pause is None or STOPPING.over:
                    raise
                time.sleep(random.uniform(pause / 2, pause))
            finally:
                if answer is not None:
                    answer["Body"].close()
        raise AssertionError("not reached: the last round returns or raises")

    def put(self, key: str, data: bytes) -> None:
        self._put(key, data)

    def _put(self, key: str, data: bytes, **conditions: str) -> str:
        """Write the object and return its ETag.

        Raises:
            Conflict: a condition failed.
            Unsupported: the service does not support a condition.
            ObjectNotFound: the object of a condition is gone.
        """
        inside, connection = self._place.inside(key), self._connected()
        with translated("write", f"{self.url}/{key}", connection.context, reading="IfMatch" in conditions):
            sent = connection.client.put_object(Bucket=self._place.bucket, Key=inside, Body=data, **conditions)
        return str(sent["ETag"])

    def create(self, key: str, data: bytes) -> str:
        if self._capabilities is None or self._capabilities.create:
            # Reported by capabilities(). A workspace with a single writer still works without the condition.
            with contextlib.suppress(Unsupported):
                return self._put_if(key, data, None)
        if self._found(key) is not None:
            raise ObjectExists(f"{self.url}/{key} exists")
        return self._put(key, data)

    def swap(self, key: str, data: bytes, version: str) -> str:
        can = self.capabilities()
        if not can.swap:
            where = f"{self.url}/{key}"
            raise StorageError(f"cannot swap {where}: {can.note}", hint="Use `shard_index` and `shard_count`.")
        return self._put_if(key, data, version)

    def _put_if(self, key: str, data: bytes, version: str | None) -> str:
        """Write the object if it has this version, or with None if it does not exist, and return its ETag.

        If the SDK repeats a request after a lost response, the request meets its own write and receives 409 or 412.
        The object is therefore read back: our bytes mean success. Two writers of equal bytes would both assume success,
        so objects that need a single winner contain a nonce.

        Raises:
            ObjectExists: the object exists; for None.
            ObjectChanged: the object has another version or is gone; for a version.
            Unsupported: the service does not support the condition.
        """
        name = f"{self.url}/{key}"
        condition = {"IfNoneMatch": "*"} if version is None else {"IfMatch": version}
        for pause in _WRITE_PAUSES:
            try:
                return self._put(key, data, **condition)
            except ObjectNotFound as gone:
                raise ObjectChanged(f"{name} is gone") from gone
            except StorageError as error:
                failed = error
            if not failed.retryable:
                raise failed
            try:
                current = self._found(key)
            except StorageError as unread:
                raise failed from unread
            if current is not None and current[0] == data:
                return current[1]
            if version is None and current is not None:
                raise ObjectExists(f"{name} exists") from failed
            if version is not None and (current is None or current[1] != version):
                raise ObjectChanged(f"{name} {'is gone' if current is None else 'has changed'}") from failed
            if not isinstance(failed, Conflict):
                break
            time.sleep(random.uniform(pause / 2, pause))
        raise failed

    def _found(self, key: str) -> tuple[bytes, str] | None:
        """Return content and ETag, or None if there is no such object."""
        try:
            return self.fetch(key)
        except ObjectNotFound:
            return None

    def upload(self, path: Path, key: str) -> None:
        inside, connection = self._place.inside(key), self._connected()
        client, bucket = connection.client, self._place.bucket
        with translated(f"copy {path} to", f"{self.url}/{key}", connection.context):
            if path.stat().st_size <= connection.multipart:
                with path.open("rb") as file:
                    client.put_object(Bucket=bucket, Key=inside, Body=file)
                return
            from boto3.s3.transfer import TransferConfig
            from s3transfer.manager import TransferManager

            part = min(max(connection.multipart, 5 * _MEBI), 64 * _MEBI)
            part = max(part, -(-path.stat().st_size // _MOST_PARTS))
            config = TransferConfig(
                multipart_threshold=connection.multipart, multipart_chunksize=part, max_concurrency=_PARTS_AT_ONCE
            )
            for last in (False, True):
                try:
                    with TransferManager(client, config) as manager:
                        manager.upload(str(path), bucket, inside).result()
                    return
                except client.exceptions.NoSuchUpload:
                    # The parts were joined but the response was lost: the repeated request finds no upload. Another
                    # writer's object may be the current one, so the file is uploaded again.
                    if last:
                        raise

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        self._place.check_prefix(prefix)
        for info in self._objects(prefix, start_after):
            if self._place.has(info.key) and not info.key.startswith(PROBES):
                yield info

    def _objects(self, prefix: str, start_after: str) -> Iterator[ObjectInfo]:
        root = self._place.root
        start = {"StartAfter": root + start_after} if start_after else {}
        for page in self._pages("list_objects_v2", "list", Prefix=root + prefix, **start):
            for found in page.get("Contents", ()):
                name = str(found.get("Key", ""))
                if not name.startswith(root + prefix):
                    raise StorageError(
                        f"{self.url}: the store listed {name!r}, which does not begin with {root + prefix!r}",
                        hint=_BROKEN,
                    )
                yield self._info(name.removeprefix(root), found.get("Size"), found)

    def _pages(self, operation: str, action: str, **options: str) -> Iterator[Any]:
        connection = self._connected()
        pages = iter(connection.client.get_paginator(operation).paginate(Bucket=self._place.bucket, **options))
        while True:
            with translated(action, self.url, connection.context):
                page = next(pages, None)
            if page is None:
                return
            yield page

    def unfinished(self) -> Iterator[ObjectInfo]:
        """List probes that were not removed, and multipart uploads that were neither completed nor aborted.

        There are no uploads if the service cannot list them.
        """
        yield from self._objects(PROBES, "")
        root, connection = self._place.root, self._connected()
        try:
            for page in self._pages("list_multipart_uploads", "list the unfinished uploads of", Prefix=root):
                for upload in page.get("Uploads", ()):
                    if not upload["Key"].startswith(root):
                        continue  # some services list the uploads of the whole bucket
                    folder, slash, name = str(upload["Key"]).removeprefix(root).rpartition("/")
                    key = f"{folder}{slash}{_UPLOAD}{quote(upload['UploadId'], safe='')}:{name}"
                    modified = float(int(upload["Initiated"].timestamp()))
                    yield ObjectInfo(key, self._upload_size(upload), str(upload["UploadId"]), modified)
        except StorageError as error:
            hidden = isinstance(error, (Unsupported, Denied)) or connection.service is Service.HUGGING_FACE
            if error.retryable or not hidden:
                raise
            _log.warning("%s: cannot find interrupted uploads: %s", self.url, error)

    def _upload_size(self, upload: Any) -> int:
        """Return the bytes of the received parts."""
        connection = self._connected()
        try:
            with translated("list the parts of", f"{self.url}: {upload['Key']}", connection.context, reading=True):
                pages = connection.client.get_paginator("list_parts").paginate(
                    Bucket=self._place.bucket, Key=upload["Key"], UploadId=upload["UploadId"]
                )
                return sum(part["Size"] for page in pages for part in page.get("Parts", ()))
        except StorageError:  # the upload has just ended, or the service does not report parts
            return 0  # only a displayed number is missing

    def stat(self, key: str) -> ObjectInfo | None:
        inside, connection = self._place.inside(key), self._connected()
        try:
            with translated("read", f"{self.url}/{key}", connection.context, reading=True):
                found = connection.client.head_object(Bucket=self._place.bucket, Key=inside)
        except ObjectNotFound:
            return None
        except StorageError as error:
            if not error.retryable:
                self._first_page()  # the response to HEAD has no body; this request's error explains the problem
            raise
        return self._info(key, found.get("ContentLength"), found)

    def _first_page(self) -> None:
        """Request the beginning of the listing: unlike for HEAD, an error response explains the bucket's problem."""
        connection = self._connected()
        with translated("use", self.url, connection.context):
            connection.client.list_objects_v2(Bucket=self._place.bucket, Prefix=self._place.root, MaxKeys=1)

    def _info(self, key: str, size: int | None, found: Any) -> ObjectInfo:
        """Return the object's data. The responses to a listing and to HEAD agree to the second.

        Raises:
            StorageError: the response lacks a field.
        """
        modified: datetime | None = found.get("LastModified")
        if size is None or modified is None or "ETag" not in found:
            raise StorageError(f"{self.url}: the response about {key} lacks size, time, or ETag", hint=_BROKEN)
        return ObjectInfo(key, size, found["ETag"], float(int(modified.timestamp())))

    def delete(self, key: str) -> None:
        folder, slash, last = key.rpartition("/")
        if not last.startswith(_UPLOAD):
            inside, connection = self._place.inside(key), self._connected()
            with (
                contextlib.suppress(ObjectNotFound),  # other services than Amazon report a missing object
                translated("remove", f"{self.url}/{key}", connection.context, reading=True),
            ):
                connection.client.delete_object(Bucket=self._place.bucket, Key=inside)
            return
        upload, _, name = last.removeprefix(_UPLOAD).partition(":")
        inside, connection = f"{self._place.root}{folder}{slash}{name}", self._connected()
        client = connection.client
        with (
            translated("remove", f"{self.url}/{key}", connection.context),
            contextlib.suppress(client.exceptions.NoSuchUpload),
        ):
            client.abort_multipart_upload(Bucket=self._place.bucket, Key=inside, UploadId=unquote(upload))

    def capabilities(self) -> Capabilities:
        if self._capabilities is None:
            self._capabilities = self._probed()
        return self._capabilities

    def check(self) -> None:
        self._first_page()
        self._capabilities = self._probed()

    def _probed(self) -> Capabilities:
        """Return the service's capabilities, tested with an object that is removed.

        The object is read back too, which checks all permissions that a workspace needs.

        Raises:
            StorageError: the service refused a request.
        """
        key = f"{PROBES}{secrets.token_hex(8)}"
        first, second, third, fourth = (secrets.token_hex(16).encode() for _ in range(4))
        try:
            try:
                version = self._put_if(key, first, None)
            except Unsupported:
                created, version = False, self._put(key, first)
            else:
                try:
                    version, created = self._put(key, second, IfNoneMatch="*"), False
                except Conflict:  # a second creator fails
                    created = True
            swapped = False
            try:
                self._put_if(key, third, version)
                self._put(key, fourth, IfMatch=version)
            except Conflict:  # the current version was replaced, and the outdated version refused
                current = self._found(key)
                swapped = current is not None and current[1] != version
            except (Unsupported, ObjectChanged):
                pass
            if self._found(key) is None:
                raise StorageError(
                    f"{self.url}/{key} is not readable after the write",
                    hint="This store does not keep objects: use another.",
                )
        except StorageError:
            with contextlib.suppress(StorageError):  # the first error is more informative than a cleanup error
                self.delete(key)
            raise
        self.delete(key)
        missing = [name for name, there in (("If-None-Match", created), ("If-Match", swapped)) if not there]
        unsupported = f"{' and '.join(missing)} of PutObject are not supported by {self._connected().server}"
        return Capabilities(created, swapped, f"{unsupported}, so workers cannot claim units" if missing else "")
