"""What fetching a document gives, and what it needs of the cache."""

import contextlib
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from llm_ocr.documents.giving import CHANGED_HINT
from llm_ocr.documents.remote.urls import fingerprint, scheme_of
from llm_ocr.errors import PageFailure, StorageError
from llm_ocr.storage import ObjectInfo
from llm_ocr.types import Reason


@dataclass(frozen=True, slots=True)
class Fetched:
    """A document that stands in a local file, whole."""

    version: str
    size: int  # bytes


class Room(Protocol):
    """The place that one document takes in the cache."""

    async def take(self, size: int) -> None:
        """Wait until there is room for so many bytes. Once, before anything is written."""

    def resize(self, size: int) -> None:
        """The document is found to have so many bytes; never waits."""


class DiskError(StorageError):
    """The local disk does not take a document: no fault of the document, and of the store neither."""


class Sink:
    """A local file that is written while its bytes come. Blocking; one thread at a time.

    Raises `DiskError`.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        with self._local():
            self._file = path.open("wb", buffering=0)
        self._digest = hashlib.sha256()
        self.size = 0

    def write(self, data: bytes) -> None:
        with self._local():
            view = memoryview(data)
            while view:
                view = view[self._file.write(view) :]
        self._digest.update(data)
        self.size += len(data)

    def sha256(self) -> str:
        """In hex, of what has been written."""
        return self._digest.hexdigest()

    def close(self) -> None:
        self._file.close()

    def clear(self) -> None:
        """Begin again."""
        with self._local():
            self._file.seek(0)
            self._file.truncate()
        self._digest = hashlib.sha256()
        self.size = 0

    @contextlib.contextmanager
    def _local(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise DiskError(
                f"cannot keep a document in {self._path.parent}: {error.strerror or error}",
                hint="Make room there, or name another folder for the local copies of documents.",
            ) from error


def store_version(url: str, info: ObjectInfo) -> str:
    """A version of the object that was found without reading it.

    Documents of one version count as copies of each other. ETags of S3 are made of the content; tokens of other stores
    may be equal for two objects, so that theirs hold the URL, too.
    """
    version = f"{info.version.strip(chr(34))}-{info.size}"
    return version if scheme_of(url) == "s3" else f"{version}@{fingerprint(url)}"


def changed(what: str) -> PageFailure:
    """The failure for a document that is not the one of the plan."""
    return PageFailure(Reason.SOURCE_CHANGED, what, hint=CHANGED_HINT)
