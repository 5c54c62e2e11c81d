"""Store in a dataset repository of the Hugging Face Hub."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llm_ocr.errors import ObjectExists, StorageError, UsageError
from llm_ocr.storage import ObjectInfo, StoreOptions
from llm_ocr.storage.hf import Place
from llm_ocr.storage.hf.client import RETRIES, HubStore, RetryPolicy, missing
from llm_ocr.storage.hf.commits import RATE, SEND_EARLY, Change, CommitQueue, Committer, Rate, version_of
from llm_ocr.storage.names import check_key

if TYPE_CHECKING:
    from huggingface_hub import RepoFile


# Every write to a repository is a git commit, and the Hub accepts about a hundred per hour. So `put`, `upload`, and
# `delete` return before their commit. `create`, which publishes everything, returns after the commit that contains it
# and all earlier writes. This is invisible within a store: reading an uncommitted object waits for its commit. Other
# processes see a write with the next commit: of the next marker, after `Rate.linger` seconds, or by `flush`, which
# makes puts durable.


#: Half of the 100,000 files up to which a repository stays fast (the Hub's documentation).
MOST_FILES = 50_000

_WHY = "commits to a repository are limited, and a condition applies to the whole repository"
_NOTE = (
    f"{_WHY}: if two workers finish the same unit, the last marker remains, and workers cannot claim units. Divide the "
    "units with `shard_index` and `shard_count`. Writes of all workers go into less than 100 commits per hour, so a "
    "finished unit may become visible after minutes. The write times of files are unknown."
)

#: Files in the root of repositories that are not content of a workspace: made by the Hub, or by its user for readers.
_NOT_CONTENT = frozenset({".gitattributes", ".gitignore", "README.md"})


class DatasetStore(HubStore):
    """Store whose objects are files of the repository below the prefix. Safe to use from several threads.

    Planning refuses plans that need more than `most_files`.
    """

    most_files = MOST_FILES
    gathers = True
    why, note = _WHY, _NOTE

    def __init__(self, place: Place, options: StoreOptions, retries: RetryPolicy = RETRIES, rate: Rate = RATE) -> None:
        super().__init__(place, options, retries)
        self._committer = Committer(self._client)
        self._queue = CommitQueue(self._committer, rate)

    def share(self, workers: int) -> None:
        """Set the number of concurrent workers, each of which makes its share of the commits per hour."""
        self._queue.pace.share(workers)

    def flush(self) -> None:
        """Return when all writes are committed.

        Raises:
            StorageError: a commit failed.
        """
        self._queue.flush()

    def put(self, key: str, data: bytes) -> None:
        self._queue.add(self._addition(key, data, len(data)))

    def upload(self, path: Path, key: str) -> None:
        check_key(key)
        with self._client.doing("read the file for", key):
            size = path.stat().st_size
            source = path if size >= SEND_EARLY else path.read_bytes()
        self._queue.add(self._addition(key, source, size))

    def create(self, key: str, data: bytes) -> str:
        check_key(key)
        path = self._place.path(key)
        before = self._queue.of(path.__eq__)
        if not before and self._file(path):
            raise ObjectExists(f"{self._client.where(key)} exists")
        change = self._addition(key, data, len(data), fresh=True)
        self._queue.add(change)
        self._queue.settle([change])
        if change.lost or change.version is None:
            raise ObjectExists(f"{self._client.where(key)} exists")
        return change.version

    def delete(self, key: str) -> None:
        check_key(key)
        self._check_writable()
        self._queue.add(Change(self._place.path(key)))

    def _addition(self, key: str, source: bytes | Path, size: int, *, fresh: bool = False) -> Change:
        from huggingface_hub import CommitOperationAdd

        check_key(key)
        self._check_writable()
        path = self._place.path(key)
        with self._client.doing("write", key):
            operation = CommitOperationAdd(path, source)
        self._committer.prepare(operation, size)
        if isinstance(source, Path) and operation.path_or_fileobj != b"":  # not sent ahead; may be gone at commit time
            with self._client.doing("read the file for", key):
                operation.path_or_fileobj = source.read_bytes()
        return Change(path, operation, fresh)

    def _check_writable(self) -> None:
        if self._place.is_commit:
            raise UsageError(
                f"{self.url} is a commit, which is read-only", hint="Give a branch, or no revision for main."
            )

    def download(self, key: str, path: Path) -> None:
        self._settle(key)

        def fetch(folder: Path) -> Path:
            from huggingface_hub import hf_hub_download

            return Path(
                hf_hub_download(
                    self._place.id,
                    self._place.path(key),
                    repo_type="dataset",
                    revision=self._place.revision or None,
                    local_dir=folder,
                    endpoint=self._client.api.endpoint,
                    token=self._client.api.token,
                )
            )

        self._download(key, path, fetch)

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        self._queue.settle(self._queue.of(lambda path: path.startswith(self._place.path(prefix))))
        hidden = frozenset() if self._place.prefix else _NOT_CONTENT
        return (info for info in self._listed(prefix, start_after) if info.key not in hidden)

    def _tree(self, folder: str | None) -> Iterable[Any]:
        return self._client.api.list_repo_tree(
            self._place.id,
            folder,
            recursive=True,
            revision=self._place.revision or None,
            repo_type="dataset",
        )

    def _info(self, key: str, entry: Any) -> ObjectInfo | None:
        """Return the object's data without its time: the Hub returns the commits of files only in pages of 50."""
        from huggingface_hub import RepoFile

        return ObjectInfo(key, entry.size, version_of(entry)) if isinstance(entry, RepoFile) else None

    def unfinished(self) -> Iterator[ObjectInfo]:
        """Return nothing: content that was sent and not committed is invisible, and the Hub removes it."""
        return iter(())

    def stat(self, key: str) -> ObjectInfo | None:
        self._settle(key)
        path = self._place.path(key)
        file = self._file(path)
        return self._info(key, file) if file else None

    def _file(self, path: str) -> "RepoFile | None":
        return self._client.retries.keep_trying(lambda: self._committer.there([path])).get(path)

    def _settle(self, key: str) -> None:
        """Wait for the commit of this store's pending writes to the key."""
        check_key(key)
        self._queue.settle(self._queue.of(self._place.path(key).__eq__))

    def _address(self, key: str) -> str:
        from huggingface_hub import hf_hub_url

        self._settle(key)
        return hf_hub_url(
            self._place.id,
            self._place.path(key),
            repo_type="dataset",
            revision=self._place.revision or None,
            endpoint=self._client.api.endpoint,
        )

    def check(self) -> None:
        """Check the write permission without a commit. A repository that does not exist is created, private."""
        self._check_writable()
        super().check()

    def _make_sure(self) -> None:
        from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError

        api, place = self._client.api, self._place
        with self._client.doing("use"):
            try:
                api.repo_info(place.id, repo_type="dataset", revision=place.revision or None)
            except GatedRepoError:
                raise
            except RepositoryNotFoundError:
                for kind in ("model", "space"):
                    if api.repo_exists(place.id, repo_type=kind):
                        raise StorageError(
                            f"cannot use {self.url}: {place.id} is a {kind} repository",
                            hint="Give a dataset repository, or an unused name.",
                        ) from None
                if place.revision:
                    raise missing(f"cannot use {self.url}", self._client) from None
                self._make(lambda: api.create_repo(place.id, repo_type="dataset", private=True, exist_ok=True))
            api.auth_check(place.id, repo_type="dataset", write=True)
