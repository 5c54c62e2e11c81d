"""Writes to Google Cloud Storage that happen once or not at all, and say which.

Every write names the generation that it replaces (0: none), so that a repeated request cannot write twice, and carries
a word of its own in the object's metadata: when an answer was lost, the word tells whose object stands there.
"""

import base64
import io
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import google_crc32c
from google.api_core.exceptions import NotFound, PreconditionFailed
from google.cloud.storage.exceptions import DataCorruption

from llm_ocr.errors import StorageError
from llm_ocr.storage.gcs_client import Connection
from llm_ocr.storage.gcs_errors import SDK_ERRORS, said_by, unknown_outcome

#: The metadata entry with the word of the write.
_WORD = "llm-ocr-write"

#: No object.
ABSENT = 0

#: How often an upload is begun, when its session was lost or the content was damaged on its way.
_BEGINNINGS = 3

#: How often `replace` looks for the object that it replaces: more only when others remove it again and again.
_LOOKS = 5

_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class Content:
    """What is written. `crc32c` as Google writes it: the service refuses content that differs, before it is seen."""

    open: Callable[[], BinaryIO]
    size: int
    crc32c: str

    @staticmethod
    def of_bytes(data: bytes) -> "Content":
        return Content(lambda: io.BytesIO(data), len(data), _digest(google_crc32c.Checksum(data)))

    @staticmethod
    def of_file(path: Path) -> "Content":
        """Reads the file once. Raises `OSError`."""
        size, checksum = 0, google_crc32c.Checksum()
        with path.open("rb") as file:
            while block := file.read(_BLOCK):
                size += len(block)
                checksum.update(block)
        return Content(lambda: path.open("rb"), size, _digest(checksum))


def write(connection: Connection, name: str, content: Content, generation: int) -> int | None:
    """Write the object in place of that generation; the new one, or None when another object stands there or none.

    Raises the client's errors, also when it could not be found out whether the object was written.
    """
    for left in reversed(range(_BEGINNINGS)):
        word = secrets.token_hex(16)
        try:
            return _upload(connection, name, content, generation, word)
        except PreconditionFailed:
            # The first of several tries may have been ours and its answer lost.
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
    """Write the object, whatever stands there. Raises the client's errors.

    When another writer replaces or removes the object at the same moment, this write counts as the earlier one.
    """
    for _ in range(_LOOKS):
        if write(connection, name, content, ABSENT) is not None:
            return
        standing, _word = find(connection, name)
        if standing != ABSENT:
            write(connection, name, content, standing)
            return
    raise StorageError(f"gs://{connection.bucket.name}/{name} was removed again and again while it was written")


def remove(connection: Connection, name: str) -> None:
    """Remove the object as it is now; no error when there is none. Raises the client's errors.

    The generation is asked for first: a repeated request must not remove what another has written since.
    """
    standing, _ = find(connection, name)
    if standing == ABSENT:
        return
    try:
        connection.bucket.blob(name).delete(if_generation_match=standing, **connection.call)
    except PreconditionFailed:
        return
    except NotFound as error:
        if said_by(error).no_bucket:
            raise


def find(connection: Connection, name: str) -> tuple[int, str]:
    """The generation of the object (`ABSENT`: there is none) and the word of its write. Raises the client's errors."""
    blob = look(connection, name)
    return (ABSENT, "") if blob is None else (int(blob.generation), str((blob.metadata or {}).get(_WORD, "")))


def look(connection: Connection, name: str) -> Any:
    """The client's object with its properties; None when there is none."""
    blob = connection.bucket.blob(name)
    try:
        blob.reload(**connection.call)
    except NotFound as error:
        if said_by(error).no_bucket:
            raise
        return None
    return blob


def _upload(connection: Connection, name: str, content: Content, generation: int, word: str) -> int:
    blob = connection.bucket.blob(name, chunk_size=connection.limits.chunk)
    blob.metadata = {_WORD: word}
    with content.open() as file:
        blob.upload_from_file(
            file,
            size=content.size,
            content_type="application/octet-stream",  # neither compressed nor unpacked by anyone on its way
            if_generation_match=generation,
            checksum="crc32c",
            crc32c_checksum_value=content.crc32c,
            **connection.call,
        )
    return int(blob.generation)


def _beginning_lost(error: BaseException) -> bool:
    """Whether the upload must begin anew: its session is gone, a chunk was kept in part, or the content was damaged."""
    if isinstance(error, DataCorruption):
        return True
    said = said_by(error)
    if not said.status:  # the client cannot go on in the middle of a chunk
        return isinstance(error, ValueError) and "Bytes stream" in str(error)
    damaged = said.status == 400 and ("match" in said.message or "corrupt" in said.message.lower())
    return damaged or said.status == 410 or (said.status == 404 and not said.no_bucket)


def _digest(checksum: Any) -> str:
    return base64.b64encode(checksum.digest()).decode()
