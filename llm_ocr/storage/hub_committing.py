"""One commit to a dataset repository, and the proof that what it was to write is there."""

import hashlib
import itertools
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from llm_ocr.errors import StorageError
from llm_ocr.storage.hub_client import HubClient, Patience
from llm_ocr.storage.hub_commits import Change

if TYPE_CHECKING:
    from huggingface_hub import RepoFile

#: Bytes from which content is sent when it is put, not with the commit: it would wait in memory.
SEND_EARLY = 1 << 20

#: When the process ends there may be some seconds until it is killed.
_AT_THE_END = Patience(tries=4, limit=20.0)

_IGNORED = "Look for a rule in the repository's .gitignore that leaves these files out."


class Committer:
    """Makes the commits of one store."""

    def __init__(self, client: HubClient, patience: Patience) -> None:
        self._client = client
        self._place = client.place
        self._patience = patience

    def prepare(self, operation: Any, size: int) -> None:
        """Send large content ahead of the commit; it is no longer in memory then."""
        if size < SEND_EARLY:
            return

        def send() -> None:
            with self._client.doing("send", self._place.key(operation.path_in_repo)):
                self._client.api.preupload_lfs_files(
                    self._place.id, [operation], repo_type="dataset", revision=self._place.revision or None
                )

        self._patience.keep_trying(send)

    def commit(self, changes: Sequence[Change], *, last: bool = False) -> None:
        """See `hub_commits.Commits`. A fresh file that is there by now is left out, and lost."""
        tries = itertools.count()
        patience = _AT_THE_END if last else self._patience
        oid = patience.keep_trying(lambda: self._try(changes, again=next(tries) > 0, last=last))
        written = [change for change in changes if change.operation is not None and not change.lost]
        there = patience.keep_trying(lambda: self.there([change.path for change in written], oid))
        for change in changes:
            if change in written:
                change.version = self._proved(change, there.get(change.path))
            elif not change.lost:
                change.version = ""

    def _try(self, changes: Sequence[Change], *, again: bool, last: bool) -> str:
        """The id of the commit; empty when there was nothing to commit. `again`: some may have been committed before,
        by a commit whose answer was lost."""
        now = self.there(change.path for change in changes if again or change.fresh or change.operation is None)
        operations: list[Any] = []
        for change in changes:
            found = now.get(change.path)
            same = found is not None and change.operation is not None and _same(change, found)
            change.lost = change.fresh and not change.replaces and found is not None and not same
            if not change.lost and not (again and same):
                operations += _operations(change, found)
        if not operations:
            return ""
        with self._client.doing("write", self._place.key(operations[0].path_in_repo)):
            if last:
                self._send_one_by_one(operations)
            made = self._client.api.create_commit(
                self._place.id,
                operations,
                commit_message=_title(operations, self._place.key),
                repo_type="dataset",
                revision=self._place.revision or None,
            )
        return made.oid

    def _send_one_by_one(self, operations: Sequence[Any]) -> None:
        """Several files at once the client sends with threads, which may not be begun when the process ends."""
        from huggingface_hub import CommitOperationAdd

        for operation in operations:
            if isinstance(operation, CommitOperationAdd):
                self._client.api.preupload_lfs_files(
                    self._place.id, [operation], repo_type="dataset", revision=self._place.revision or None
                )

    def there(self, paths: Iterable[str], revision: str = "") -> dict[str, "RepoFile"]:
        """The files among these paths, by path."""
        from huggingface_hub import RepoFile

        asked = list(paths)
        if not asked:
            return {}
        with self._client.doing("read", self._place.key(asked[0])):
            found = self._client.api.get_paths_info(
                self._place.id, asked, repo_type="dataset", revision=revision or self._place.revision or None
            )
        return {file.path: file for file in found if isinstance(file, RepoFile)}

    def _proved(self, change: Change, file: "RepoFile | None") -> str:
        where = self._client.where(self._place.key(change.path))
        if file is None:
            raise StorageError(f"cannot write {where}: the commit was made without it", hint=_IGNORED)
        if not _same(change, file):
            raise StorageError(f"cannot write {where}: other content was committed", hint="Run the same command again.")
        return version_of(file)


def version_of(file: "RepoFile") -> str:
    """The token of a file: its sha256 or, of a small one, its git object id. Both are also its ETag."""
    return file.lfs.sha256 if file.lfs else file.blob_id


def _same(change: Change, file: "RepoFile") -> bool:
    if file.lfs:
        return bool(file.lfs.sha256 == change.operation.upload_info.sha256.hex())
    data = change.operation.path_or_fileobj
    if not isinstance(data, bytes) or len(data) != file.size:
        return False
    git = hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False)
    return bool(git.hexdigest() == file.blob_id)


def _operations(change: Change, found: "RepoFile | None") -> list[Any]:
    from huggingface_hub import CommitOperationDelete

    if change.operation is not None:
        return [_renewed(change.operation)]
    return [CommitOperationDelete(change.path, is_folder=False)] if found else []


def _renewed(operation: Any) -> Any:
    """The operation as if nothing had been asked about it, but for content that was sent.

    The client keeps in it what the repository held and ignored when it was sent, and leaves out what was the same then,
    though it may be another by now; and it takes no operation twice, though a commit may have been made without it.
    """
    operation._is_committed = False
    operation._remote_oid = None
    if not operation._is_uploaded:
        operation._upload_mode = None
    return operation


def _title(operations: Sequence[Any], key: Any) -> str:
    first = key(operations[0].path_in_repo)
    return f"llm-ocr: {first}" + (f" and {len(operations) - 1} more" if len(operations) > 1 else "")
