"""Store in a storage bucket of the Hugging Face Hub, through the Hub's own API.

A bucket has no versions and no conditional writes: of two creators of a key, the last one wins. Work is divided in
advance (static shards), so a marker has two writers only if a shard runs twice at once; both results are complete. The
Hub's S3 gateway supports conditions: a bucket given as `s3://…` has them too.
"""

import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from llm_ocr.errors import ObjectExists, ObjectNotFound, StorageError
from llm_ocr.storage import BaseStore, ObjectInfo, StoreOptions
from llm_ocr.storage.hf import Place
from llm_ocr.storage.hf.client import RETRIES, HubStore, RetryPolicy
from llm_ocr.storage.names import PROBES, check_key

if TYPE_CHECKING:
    from huggingface_hub import BucketFile


_WHY = "writes to a bucket of the Hub have no conditions"
_NOTE = (
    f"{_WHY}: if two workers finish the same unit, the last marker remains, and workers cannot claim units. "
    "Divide the units with `shard_index` and `shard_count`, or give the bucket as s3:// with the S3 gateway of the Hub "
    "as `workspace_endpoint`."
)


#: Number of locks that creators and removers of keys in this process share, each for many keys.
_LOCKS = 256


class BucketStore(HubStore):
    """Store whose objects are files of the bucket below the prefix. Safe to use from several threads and processes."""

    why, note = _WHY, _NOTE

    def __init__(self, place: Place, options: StoreOptions, retries: RetryPolicy = RETRIES) -> None:
        super().__init__(place, options, retries)
        self._locks = [threading.Lock() for _ in range(_LOCKS)]
        self._made = threading.Lock()

    def put(self, key: str, data: bytes) -> None:
        check_key(key)
        self._write(key, data)

    def upload(self, path: Path, key: str) -> None:
        check_key(key)
        self._write(key, path)

    def create(self, key: str, data: bytes) -> str:
        """Check, write, and read back. An object of another writer in between raises `ObjectExists`."""
        check_key(key)
        with self._locks[hash(key) % _LOCKS]:
            if self.stat(key) is not None:
                raise ObjectExists(f"{self._client.where(key)} exists")
            self._write(key, data)
            standing, version = self.fetch(key)
        if standing != data:
            raise ObjectExists(f"{self._client.where(key)} was written by another at the same moment")
        return version

    def _write(self, key: str, source: bytes | Path) -> None:
        added: list[tuple[str | Path | bytes, str]] = [(source, self._place.path(key))]
        self._client.ask("write", key, lambda: self._client.api.batch_bucket_files(self._place.id, add=added))

    def download(self, key: str, path: Path) -> None:
        file = self._file(key)
        if file is None:
            raise ObjectNotFound(f"no object {self._client.where(key)}")

        def fetch(folder: Path) -> Path:
            self._client.api.download_bucket_files(self._place.id, [(file, folder / "content")])
            return folder / "content"

        self._download(key, path, fetch)

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        return (info for info in self._listed(prefix, start_after) if not info.key.startswith(PROBES))

    def unfinished(self) -> Iterator[ObjectInfo]:
        """List leftovers of an interrupted `check`. An interrupted upload leaves nothing visible."""
        return self._listed(PROBES, "")

    def _tree(self, folder: str | None) -> Iterable[Any]:
        return self._client.api.list_bucket_tree(self._place.id, folder, recursive=True)

    def _info(self, key: str, entry: Any) -> ObjectInfo | None:
        from huggingface_hub import BucketFile

        if not isinstance(entry, BucketFile):
            return None
        at = entry.uploaded_at or entry.mtime
        return ObjectInfo(key, entry.size, entry.xet_hash, at.timestamp() if at else 0.0)

    def stat(self, key: str) -> ObjectInfo | None:
        file = self._file(key)
        return self._info(key, file) if file else None

    def _file(self, key: str) -> "BucketFile | None":
        check_key(key)
        path = self._place.path(key)

        def look_up() -> "BucketFile | None":
            found = self._client.api.get_bucket_paths_info(self._place.id, [path])
            return next((file for file in found if file.path == path), None)

        # Clients before 2.0 do not retry a dropped connection.
        return self._client.ask("read", key, look_up)

    def delete(self, key: str) -> None:
        check_key(key)

        paths = [self._place.path(key)]
        with self._locks[hash(key) % _LOCKS]:
            if self.stat(key) is None:
                return
            try:
                self._client.ask(
                    "remove", key, lambda: self._client.api.batch_bucket_files(self._place.id, delete=paths)
                )
            except StorageError:
                if self.stat(key) is not None:  # otherwise another process has removed it
                    raise

    def check(self) -> None:
        """Check the bucket by writing. A bucket that does not exist is created, private."""
        super().check()
        BaseStore.check(self)

    def _make_sure(self) -> None:
        from huggingface_hub.errors import BucketNotFoundError

        api = self._client.api
        with self._made, self._client.doing("use"):
            try:
                api.bucket_info(self._place.id)
            except BucketNotFoundError:
                self._make(lambda: api.create_bucket(self._place.id, private=True, exist_ok=True))

    def _address(self, key: str) -> str:
        check_key(key)
        path = quote(self._place.path(key), safe="")
        return f"{self._client.api.endpoint}/buckets/{self._place.id}/resolve/{path}"
