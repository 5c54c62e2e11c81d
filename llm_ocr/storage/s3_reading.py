"""Reading objects. The SDK repeats requests, and not answers that break off: those are asked for again here."""

import random
import time
from collections.abc import Callable
from io import BytesIO
from typing import Any, BinaryIO, TypeVar

from llm_ocr.errors import StorageError
from llm_ocr.storage.s3_client import Connection
from llm_ocr.storage.s3_errors import translated

T = TypeVar("T")

#: Seconds (at most) before an answer that broke off is asked for again.
_PAUSES = (0.1, 0.5, 2.0, 5.0)

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
    for pause in (*_PAUSES, None):
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
