"""Store in a bucket of S3 or of an S3-compatible service: the Hugging Face gateway, R2, MinIO, and others.

Versions are ETags. They depend on the content, so the same bytes written again have the same version: swapped objects
contain a nonce.
"""

import secrets
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from llm_ocr.errors import ObjectNotFound, StorageError
from llm_ocr.storage import DEFAULT_OPTIONS, BaseStore, Capabilities, ObjectInfo, StoreOptions
from llm_ocr.storage.local import replacing
from llm_ocr.storage.names import PROBES, need_client
from llm_ocr.storage.s3.client import DEFAULT_LIMITS, Connection, Limits, Place, check_endpoint, connect, parse_url
from llm_ocr.storage.s3.errors import Unsupported, translated
from llm_ocr.storage.s3.transfers import (
    Target,
    copy_object,
    create,
    create_unsafely,
    give_up,
    is_upload,
    probe,
    read_object,
    read_part,
    swap,
    unfinished_uploads,
    upload_file,
)


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
        self._options = options
        self._limits = limits
        self._lock = threading.Lock()
        self._connection: Connection | None = None
        self._capabilities: Capabilities | None = None

    @property
    def url(self) -> str:
        """`s3://BUCKET/PREFIX`."""
        return self._place.url

    def fetch(self, key: str) -> tuple[bytes, str]:
        inside = self._place.inside(key)
        return read_object(self._connected(), inside, self._name(key))

    def read_range(self, key: str, start: int, length: int) -> bytes:
        inside = self._place.inside(key)
        if length < 1:
            if self.stat(key) is None:
                raise ObjectNotFound(f"no object {self._name(key)}")
            return b""
        return read_part(self._connected(), inside, self._name(key), start, length)

    def put(self, key: str, data: bytes) -> None:
        self._target(key).put(data)

    def create(self, key: str, data: bytes) -> str:
        target = self._target(key)
        if self._capabilities is None or self._capabilities.create:
            try:
                return create(target, data)
            except Unsupported:  # reported by capabilities(); a workspace with a single writer still works here
                pass
        return create_unsafely(target, data)

    def swap(self, key: str, data: bytes, version: str) -> str:
        target = self._target(key)
        can = self.capabilities()
        if not can.swap:
            raise StorageError(
                f"cannot swap {self._name(key)}: {can.note}", hint="Use `shard_index` and `shard_count`."
            )
        return swap(target, data, version)

    def upload(self, path: Path, key: str) -> None:
        inside = self._place.inside(key)
        upload_file(self._connected(), path, inside, self._name(key))

    def download(self, key: str, path: Path) -> None:
        inside, connection = self._place.inside(key), self._connected()
        with replacing(path, self._name(key)) as temporary, temporary.open("wb") as file:
            copy_object(connection, inside, self._name(key), file)

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        self._place.check_prefix(prefix)
        for info in self._objects(prefix, start_after):
            if self._place.has(info.key) and not info.key.startswith(PROBES):
                yield info

    def unfinished(self) -> Iterator[ObjectInfo]:
        yield from self._objects(PROBES, "")
        yield from unfinished_uploads(self._connected())

    def stat(self, key: str) -> ObjectInfo | None:
        inside, connection = self._place.inside(key), self._connected()
        try:
            with translated("read", self._name(key), connection.context, reading=True):
                found = connection.client.head_object(Bucket=self._place.bucket, Key=inside)
        except ObjectNotFound:
            return None
        except StorageError as error:
            if not error.retryable:
                self._first_page()  # the response to HEAD has no body; this request's error explains the problem
            raise
        return _info(key, self.url, found.get("ContentLength"), found)

    def delete(self, key: str) -> None:
        if is_upload(key):
            give_up(self._connected(), key, self._name(key))
        else:
            self._target(key).remove()

    def capabilities(self) -> Capabilities:
        if self._capabilities is None:
            self._capabilities = probe(self._target(f"{PROBES}{secrets.token_hex(8)}"))
        return self._capabilities

    def check(self) -> None:
        self._first_page()
        self._capabilities = probe(self._target(f"{PROBES}{secrets.token_hex(8)}"))

    def _connected(self) -> Connection:
        if self._connection is None:
            with self._lock:
                if self._connection is None:
                    self._connection = connect(self._place, self._options, self._limits)
        return self._connection

    def _name(self, key: str) -> str:
        return f"{self.url}/{key}"

    def _target(self, key: str) -> Target:
        inside = self._place.inside(key)
        return Target(self._connected(), inside, self._name(key))

    def _first_page(self) -> None:
        """Request the beginning of the listing: unlike for HEAD, an error response explains the bucket's problem."""
        connection = self._connected()
        with translated("use", self.url, connection.context):
            connection.client.list_objects_v2(Bucket=self._place.bucket, Prefix=self._place.root, MaxKeys=1)

    def _objects(self, prefix: str, start_after: str) -> Iterator[ObjectInfo]:
        root, connection = self._place.root, self._connected()
        start = {"StartAfter": root + start_after} if start_after else {}
        paginator = connection.client.get_paginator("list_objects_v2")
        pages = iter(paginator.paginate(Bucket=self._place.bucket, Prefix=root + prefix, **start))
        while True:
            with translated("list", self.url, connection.context):
                page = next(pages, None)
            if page is None:
                return
            for found in page.get("Contents", ()):
                name = str(found.get("Key", ""))
                if not name.startswith(root + prefix):
                    raise StorageError(
                        f"{self.url}: the store listed {name!r}, which does not begin with {root + prefix!r}",
                        hint=_BROKEN,
                    )
                yield _info(name.removeprefix(root), self.url, found.get("Size"), found)


_BROKEN = "The server at this endpoint does not follow the protocol of S3: check `workspace_endpoint`, or use another."


def _info(key: str, url: str, size: int | None, found: Any) -> ObjectInfo:
    """Return the object's data. The responses to a listing and to HEAD agree to the second.

    Raises:
        StorageError: the response lacks a field.
    """
    modified: datetime | None = found.get("LastModified")
    if size is None or modified is None or "ETag" not in found:
        raise StorageError(f"{url}: the response about {key} lacks size, time, or ETag", hint=_BROKEN)
    return ObjectInfo(key, size, found["ETag"], float(int(modified.timestamp())))
