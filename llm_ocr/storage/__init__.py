"""Keys and bytes under a workspace URL. Keys are relative, with `/`, never empty and never with `..`."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """One object: `size` in bytes, `version` a token that changes with its content.

    `modified` is when it was written, in seconds since 1970 by the clock of the store.
    """

    key: str
    size: int
    version: str
    modified: float = 0.0


class ObjectStore(Protocol):
    """What a workspace needs of a storage system. Methods block: async code calls them in threads, several at once.

    All raise `StorageError`, also for what is no key (see `storage.names`); `get`, `download` and `read_range` raise
    `ObjectNotFound` for a missing key.
    """

    @property
    def url(self) -> str:
        """The workspace's URL, as it is shown to users."""

    def get(self, key: str) -> bytes:
        """The whole object."""

    def read_range(self, key: str, start: int, length: int) -> bytes:
        """`length` bytes from `start` (fewer at the end of the object)."""

    def put(self, key: str, data: bytes) -> None:
        """Write the object whole, replacing an older one; durable when it returns."""

    def create(self, key: str, data: bytes) -> None:
        """Write the object if none is there; raise `ObjectExists` otherwise. Exactly one of many callers succeeds.

        After any other `StorageError` the object may have been written all the same: read it back.
        """

    def upload(self, path: Path, key: str) -> None:
        """`put` from a local file."""

    def download(self, key: str, path: Path) -> None:
        """Write the object to a local file, whole or not at all."""

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        """Objects whose key begins with `prefix`, in key order, after `start_after`. Unfinished writes are left out."""

    def unfinished(self) -> Iterator[ObjectInfo]:
        """What writes that were cut off have left behind: no objects, only space; `delete` takes their keys."""

    def stat(self, key: str) -> ObjectInfo | None:
        """None when there is no such object."""

    def delete(self, key: str) -> None:
        """Remove the object; no error when there is none."""

    def check(self) -> None:
        """Prove by writing that a workspace can live here; raise `StorageError` with what to do otherwise."""


def open_store(url: str) -> ObjectStore:
    """The store for a workspace URL: a local folder or `file://` URL.

    Raises `UsageError` for a scheme that is not known.
    """
    from llm_ocr.storage.local import open_local

    return open_local(url)
