"""Files that go up in parts, and what is left of those that were cut off."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from llm_ocr.errors import StorageError
from llm_ocr.storage import ObjectInfo
from llm_ocr.storage.names import TEMPORARY
from llm_ocr.storage.s3_address import Service
from llm_ocr.storage.s3_client import Connection
from llm_ocr.storage.s3_errors import Denied, Unsupported, translated

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
