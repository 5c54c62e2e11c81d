"""Store in a dataset repository of the Hugging Face Hub."""

import hashlib
import itertools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llm_ocr.errors import ObjectExists, StorageError, UsageError
from llm_ocr.storage import ObjectInfo, StoreOptions
from llm_ocr.storage.hf import Place
from llm_ocr.storage.hf.client import RETRIES, HubStore, RetryPolicy, missing
from llm_ocr.storage.hf.commits import RATE, Change, CommitQueue, Rate
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


#: Bytes from which content is sent on `put`, not with the commit, to save memory.
SEND_EARLY = 1 << 20

#: At the end of a process, only seconds may be left until it is killed.
_AT_THE_END = RetryPolicy(tries=4, limit=20.0)

_IGNORED = "Remove the rule in the .gitignore of the repository that excludes these files."


class DatasetStore(HubStore):
    """Store whose objects are files of the repository below the prefix. Safe to use from several threads.

    Planning refuses plans that need more than `most_files`.
    """

    most_files = MOST_FILES
    gathers = True
    why, note = _WHY, _NOTE

    def __init__(self, place: Place, options: StoreOptions, retries: RetryPolicy = RETRIES, rate: Rate = RATE) -> None:
        super().__init__(place, options, retries)
        self._queue = CommitQueue(self._commit, rate)

    @property
    def _at(self) -> dict[str, Any]:
        """Arguments of the client's calls: the kind of the repository, and the revision."""
        return {"repo_type": "dataset", "revision": self._place.revision or None}

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
        if size >= SEND_EARLY:  # frees its memory
            self._client.ask("send", key, lambda: self._send(operation))
        if isinstance(source, Path) and operation.path_or_fileobj != b"":  # not sent ahead; may be gone at commit time
            with self._client.doing("read the file for", key):
                operation.path_or_fileobj = source.read_bytes()
        return Change(path, operation, fresh)

    def _send(self, operation: Any) -> None:
        self._client.api.preupload_lfs_files(self._place.id, [operation], **self._at)

    def _commit(self, changes: Sequence[Change], last: bool) -> None:
        """Commit and settle all changes, or raise `StorageError` and settle none. No two have the same path.

        A fresh file that exists by now is excluded, and marked as lost. `last`: the process is about to end, so little
        time is left.
        """
        tries = itertools.count()
        retries = _AT_THE_END if last else self._client.retries
        oid = retries.keep_trying(lambda: self._try(changes, again=next(tries) > 0, last=last))
        written = [change for change in changes if change.operation is not None and not change.lost]
        there = retries.keep_trying(lambda: self._there([change.path for change in written], oid))
        for change in changes:
            if change in written:
                change.version = self._proved(change, there.get(change.path))
            elif not change.lost:
                change.version = ""

    def _try(self, changes: Sequence[Change], *, again: bool, last: bool) -> str:
        """Make a commit and return its id; empty if there was nothing to commit.

        `again`: an earlier commit with a lost response may contain some of the changes.
        """
        from huggingface_hub import CommitOperationAdd, CommitOperationDelete

        now = self._there(change.path for change in changes if again or change.fresh or change.operation is None)
        operations: list[Any] = []
        for change in changes:
            found = now.get(change.path)
            same = found is not None and change.operation is not None and _same(change, found)
            change.lost = change.fresh and not change.replaces and found is not None and not same
            if not change.lost and not (again and same):
                if change.operation is not None:
                    operations.append(_renewed(change.operation))
                elif found is not None:
                    operations.append(CommitOperationDelete(change.path, is_folder=False))
        if not operations:
            return ""
        title = first = self._place.key(operations[0].path_in_repo)
        if len(operations) > 1:
            title += f" and {len(operations) - 1} more"
        with self._client.doing("write", first):
            if last:
                # One by one: for several files, the client starts threads, which fails at the end of a process.
                for operation in operations:
                    if isinstance(operation, CommitOperationAdd):
                        self._send(operation)
            made = self._client.api.create_commit(
                self._place.id, operations, commit_message=f"llm-ocr: {title}", **self._at
            )
        return str(made.oid)

    def _there(self, paths: Iterable[str], revision: str = "") -> dict[str, "RepoFile"]:
        """Return the existing files among these paths, by path."""
        from huggingface_hub import RepoFile

        asked = list(paths)
        if not asked:
            return {}
        with self._client.doing("read", self._place.key(asked[0])):
            at = {**self._at, "revision": revision} if revision else self._at
            found = self._client.api.get_paths_info(self._place.id, asked, **at)
        return {file.path: file for file in found if isinstance(file, RepoFile)}

    def _proved(self, change: Change, file: "RepoFile | None") -> str:
        where = self._client.where(self._place.key(change.path))
        if file is None:
            raise StorageError(f"cannot write {where}: the commit lacks the file", hint=_IGNORED)
        if not _same(change, file):
            raise StorageError(f"cannot write {where}: other content was committed", hint="Run the same command again.")
        return version_of(file)

    def _check_writable(self) -> None:
        if self._place.is_commit:
            raise UsageError(
                f"{self.url} is a commit, which is read-only", hint="Give a branch, or no revision for main."
            )

    def download(self, key: str, path: Path) -> None:
        self._settle(key)

        def fetch(folder: Path) -> Path:
            from huggingface_hub import hf_hub_download

            api, path = self._client.api, self._place.path(key)
            options = {"local_dir": folder, "endpoint": api.endpoint, "token": api.token, **self._at}
            return Path(hf_hub_download(self._place.id, path, **options))

        self._download(key, path, fetch)

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        self._queue.settle(self._queue.of(lambda path: path.startswith(self._place.path(prefix))))
        hidden = frozenset() if self._place.prefix else _NOT_CONTENT
        return (info for info in self._listed(prefix, start_after) if info.key not in hidden)

    def _tree(self, folder: str | None) -> Iterable[Any]:
        return self._client.api.list_repo_tree(self._place.id, folder, recursive=True, **self._at)

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
        return self._client.retries.keep_trying(lambda: self._there([path])).get(path)

    def _settle(self, key: str) -> None:
        """Wait for the commit of this store's pending writes to the key."""
        check_key(key)
        self._queue.settle(self._queue.of(self._place.path(key).__eq__))

    def _address(self, key: str) -> str:
        from huggingface_hub import hf_hub_url

        self._settle(key)
        return hf_hub_url(self._place.id, self._place.path(key), endpoint=self._client.api.endpoint, **self._at)

    def check(self) -> None:
        """Check the write permission without a commit. A repository that does not exist is created, private."""
        self._check_writable()
        super().check()

    def _make_sure(self) -> None:
        from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError

        api, place = self._client.api, self._place
        with self._client.doing("use"):
            try:
                api.repo_info(place.id, **self._at)
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


def version_of(file: "RepoFile") -> str:
    """Return the version token of a file: its sha256 or, if small, its git object id. Both are also its ETag."""
    return file.lfs.sha256 if file.lfs else file.blob_id


def _same(change: Change, file: "RepoFile") -> bool:
    if file.lfs:
        return bool(file.lfs.sha256 == change.operation.upload_info.sha256.hex())
    data = change.operation.path_or_fileobj
    if not isinstance(data, bytes) or len(data) != file.size:
        return False
    git = hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False)
    return bool(git.hexdigest() == file.blob_id)


def _renewed(operation: Any) -> Any:
    """Reset the client's state in the operation, except for sent content.

    The client stores in it the repository's content and ignore rules at the time of sending. It skips content that was
    equal then, although the file may have changed. It also refuses an operation twice, although a commit may have been
    made without it.
    """
    operation._is_committed = False
    operation._remote_oid = None
    if not operation._is_uploaded:
        operation._upload_mode = None
    return operation
