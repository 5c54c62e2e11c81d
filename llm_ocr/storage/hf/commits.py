"""Collect writes to a dataset repository into few commits, within the rate limit."""

import atexit
import contextlib
import hashlib
import importlib
import itertools
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from llm_ocr.errors import LlmOcrError, ObjectExists, StorageError
from llm_ocr.storage.hf.client import HubClient, RetryPolicy

if TYPE_CHECKING:
    from huggingface_hub import RepoFile


# Rate limit of commits over all workers of a workspace.


@dataclass(frozen=True, slots=True)
class Rate:
    """Commits of all workers: `per_hour` in the long run, `at_once` in a burst.

    A user's log shows a quota of 128 commits per hour; the Hub documents none. Including the initial burst of a run,
    the default stays below 100 in any hour.

    A commit with waiting callers waits `gather` seconds for more changes. Changes without waiting callers wait `linger`
    seconds. A commit has at most `most` operations (the Hub recommends 50 to 100).
    """

    per_hour: float = 80.0
    at_once: int = 18
    gather: float = 1.0
    linger: float = 30.0
    most: int = 50


RATE = Rate()


class RateLimiter:
    """This worker's share of the rate, as a token bucket. Thread-safe."""

    def __init__(self, rate: Rate) -> None:
        self._rate = rate
        self._lock = threading.Lock()
        self._workers = 1
        self._tokens = float(rate.at_once)
        self._at = time.monotonic()

    def share(self, workers: int) -> None:
        """Set the number of concurrent workers."""
        with self._lock:
            self._refill()
            self._workers = max(1, workers)
            self._refill()

    def due_in(self) -> float:
        """Return the seconds until the next commit is permitted."""
        with self._lock:
            per_second = self._refill()
            return max(0.0, (1.0 - self._tokens) / per_second)

    def spend(self) -> None:
        """Count a commit, whether or not it was due."""
        with self._lock:
            self._refill()
            self._tokens -= 1.0

    def _refill(self) -> float:
        """Add the tokens since the last call, and return those of a second."""
        now, per_second = time.monotonic(), self._rate.per_hour / self._workers / 3600
        size = max(1.0, self._rate.at_once / self._workers)
        self._tokens = min(size, self._tokens + (now - self._at) * per_second)
        self._at = now
        return per_second


# Queue of changes, collected into few commits. One thread per store commits changes in the order of their addition, at
# most `Rate.most` per commit. A `put` does not wait for its commit. A marker does, and everything added before the
# marker is in the same commit or an earlier one. So no marker precedes its data: after a failed commit, changes without
# waiting callers stay at the front of the queue, and a later marker cannot pass them.


_log = logging.getLogger(__name__)

#: Limit of waiting changes, in commits. Above it, adding a change waits too.
_MOST_COMMITS_WAITING = 10

#: Seconds until an idle thread ends; the next change starts another.
_IDLE = 20.0

#: Upper limit in seconds of a wait: more than all retries of a commit take.
_LONGEST_WAIT = 3 * 3600.0

#: Number of consecutive failures after which the pauses between attempts, while no caller waits, stop growing.
_SLOWEST = 20

#: Seconds for the remaining changes when a process ends.
_LAST_WAIT = 120.0


@dataclass(eq=False, slots=True)
class Change:
    """File to write (`operation` of the client) or, with None, to remove.

    `fresh`: write only if there is no file; a caller waits for it. `replaces`: an earlier change removes the path of
    this fresh change. `version` is set on commit; `lost` if a fresh change found another file.
    """

    path: str
    operation: Any = None
    fresh: bool = False
    replaces: bool = False
    version: str | None = None
    lost: bool = False

    @property
    def settled(self) -> bool:
        """Whether the change is final."""
        return self.lost or self.version is not None


class CommitQueue:
    """Changes that wait for their commit. Safe to use from several threads."""

    def __init__(self, committer: "Committer", rate: Rate) -> None:
        self.pace = RateLimiter(rate)
        self._committer = committer
        self._rate = rate
        self._changed = threading.Condition()
        self._waiting: list[Change] = []
        self._under_way: list[Change] = []
        self._since = 0.0  # time of the first waiting change
        self._urgent_since: float | None = None
        self._rushed = False
        self._failures = 0
        self._in_row = 0
        self._error: LlmOcrError | None = None
        self._thread: threading.Thread | None = None
        self._ending = False
        self._process = os.getpid()
        _OPEN.add(self)

    def add(self, change: Change) -> None:
        """Add the change. Waits for room in the queue, not for the commit.

        Raises:
            ObjectExists: the change is fresh, and another change of this queue writes its path.
        """
        with self._changed:
            pending = (*self._under_way, *self._waiting) if change.fresh else ()
            before = next((other for other in reversed(pending) if other.path == change.path), None)
            if before is not None and before.operation is not None:
                raise ObjectExists(f"{change.path} exists")
            change.replaces = before is not None
            room = _MOST_COMMITS_WAITING * self._rate.most
            self._wait_for(lambda: len(self._waiting) < room)
            if not self._waiting:
                self._since = time.monotonic()
            self._waiting.append(change)
            self._wake()

    def settle(self, changes: Sequence[Change], *, rush: bool = False) -> None:
        """Return when the changes are committed, or raise the error of a commit and withdraw the fresh changes.

        `rush`: commit now, regardless of the rate.
        """
        with self._changed:
            if not all(change.settled for change in changes):
                self._urgent_since = self._urgent_since or time.monotonic()
                self._rushed = self._rushed or rush
                self._wake()
            try:
                self._wait_for(lambda: all(change.settled for change in changes))
            except LlmOcrError:
                self._waiting = [change for change in self._waiting if not (change.fresh and change in changes)]
                raise

    def of(self, wanted: Callable[[str], bool]) -> list[Change]:
        """Return the uncommitted changes whose path is `wanted`."""
        with self._changed:
            return [change for change in (*self._under_way, *self._waiting) if wanted(change.path)]

    def flush(self) -> None:
        """Commit everything now, regardless of the rate. Raises the error of the commit."""
        self.settle(self.of(lambda _: True), rush=True)

    def finish(self) -> None:
        """Commit everything at the end of the process, in this thread, because no other can be started."""
        if self._process != os.getpid():  # after a fork, the changes are the parent's
            return
        with self._changed:
            self._ending = self._rushed = True
            self._changed.notify_all()
            if not self._changed.wait_for(lambda: not self._under_way, _LAST_WAIT):
                raise StorageError("the last commit timed out")
            while self._waiting:
                self._commit(self._take(), last=True)

    def _wait_for(self, true: Callable[[], bool]) -> None:
        failures, give_up = self._failures, time.monotonic() + _LONGEST_WAIT
        while not true():
            if self._failures != failures:
                if self._error is not None:  # otherwise a later commit included the failed changes
                    error = self._error  # copied, because several threads may raise it
                    message = str(error.args[0]) if error.args else str(error)
                    raise StorageError(message, hint=error.hint, retryable=error.retryable) from error
                failures, give_up = self._failures, time.monotonic() + _LONGEST_WAIT
            if not self._changed.wait(give_up - time.monotonic()):
                raise StorageError("no commit succeeded for hours", hint="Run the same command again.")

    def _wake(self) -> None:
        if self._thread is None and not self._ending:
            self._thread = threading.Thread(target=self._run, name="hub-commits", daemon=True)
            self._thread.start()
        self._changed.notify_all()

    def _run(self) -> None:
        while batch := self._next():
            with contextlib.suppress(LlmOcrError):  # waiting callers have received the error, and it was logged
                self._commit(batch)

    def _commit(self, batch: list[Change], *, last: bool = False) -> None:
        try:
            self.pace.spend()
            # The last change of each path.
            self._committer.commit(list({change.path: change for change in batch}.values()), last=last)
        except LlmOcrError as error:
            self._failed(batch, error)
            raise
        except BaseException as error:
            self._thread = None
            self._failed(batch, StorageError(f"cannot commit: {error!r}"))
            raise
        with self._changed:
            final = {change.path: change for change in batch}
            for change in batch:
                change.version, change.lost = final[change.path].version, final[change.path].lost
            self._under_way, self._error, self._in_row = [], None, 0
            self._changed.notify_all()

    def _next(self) -> list[Change]:
        """Return the changes of the next commit when it is due; empty when the thread has no more work."""
        with self._changed:
            while True:
                something = self._changed.wait_for(lambda: self._waiting or self._ending, _IDLE)
                if not something or self._ending:
                    self._thread = None
                    return []
                if self._rushed:
                    return self._take()
                full = len(self._waiting) >= self._rate.most
                due = [self._since + (0.0 if full else self._rate.linger)]
                if self._urgent_since is not None:
                    due.append(self._urgent_since + self._rate.gather)
                seconds = max(min(due) - time.monotonic(), self.pace.due_in())
                if seconds <= 0:
                    return self._take()
                self._changed.wait(seconds)

    def _take(self) -> list[Change]:
        batch, self._waiting = self._waiting[: self._rate.most], self._waiting[self._rate.most :]
        self._under_way = batch
        self._since = time.monotonic()
        if not self._waiting:
            self._urgent_since, self._rushed = None, False
        return batch

    def _failed(self, batch: list[Change], error: LlmOcrError) -> None:
        _log.warning("a commit of %d files failed: %s", len(batch), error)
        with self._changed:
            self._waiting = [*(change for change in batch if not change.fresh), *self._waiting]
            self._under_way = []
            self._failures += 1
            self._in_row += 1
            self._since = time.monotonic() + self._rate.linger * min(self._in_row, _SLOWEST)
            self._urgent_since, self._rushed = None, False
            self._error = error
            self._changed.notify_all()


_OPEN: "weakref.WeakSet[CommitQueue]" = weakref.WeakSet()


def _commit_what_is_left() -> None:
    """Commit changes that were put and not flushed, when a process ends normally."""
    for queue in list(_OPEN):
        try:
            queue.finish()
        except LlmOcrError as error:
            left = queue.of(lambda _: True)
            names = left[0].path if left else "the last files"
            _log.error("%d files were not committed (%s …): %s", len(left), names, error)


# Runs before the thread pools with which huggingface_hub sends files shut down. Their exit handlers are registered on
# import, and the last registered handler runs first. Runs a second time for later changes.
importlib.import_module("concurrent.futures.thread")
getattr(threading, "_register_atexit", atexit.register)(_commit_what_is_left)
atexit.register(_commit_what_is_left)


# Commits to a dataset repository, each followed by a check of its files.


#: Bytes from which content is sent on `put`, not with the commit, to save memory.
SEND_EARLY = 1 << 20

#: At the end of a process, only seconds may be left until it is killed.
_AT_THE_END = RetryPolicy(tries=4, limit=20.0)

_IGNORED = "Remove the rule in the .gitignore of the repository that excludes these files."


class Committer:
    """Makes the commits of one store."""

    def __init__(self, client: HubClient) -> None:
        self._client = client
        self._place = client.place

    def prepare(self, operation: Any, size: int) -> None:
        """Send large content ahead of the commit, which frees its memory."""
        if size < SEND_EARLY:
            return

        self._client.ask("send", self._place.key(operation.path_in_repo), lambda: self._send(operation))

    def _send(self, operation: Any) -> None:
        self._client.api.preupload_lfs_files(
            self._place.id, [operation], repo_type="dataset", revision=self._place.revision or None
        )

    def commit(self, changes: Sequence[Change], *, last: bool = False) -> None:
        """Commit and settle all changes, or raise `StorageError` and settle none. No two have the same path.

        A fresh file that exists by now is excluded, and marked as lost. `last`: the process is about to end, so little
        time is left.
        """
        tries = itertools.count()
        retries = _AT_THE_END if last else self._client.retries
        oid = retries.keep_trying(lambda: self._try(changes, again=next(tries) > 0, last=last))
        written = [change for change in changes if change.operation is not None and not change.lost]
        there = retries.keep_trying(lambda: self.there([change.path for change in written], oid))
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

        now = self.there(change.path for change in changes if again or change.fresh or change.operation is None)
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
                self._place.id,
                operations,
                commit_message=f"llm-ocr: {title}",
                repo_type="dataset",
                revision=self._place.revision or None,
            )
        return made.oid

    def there(self, paths: Iterable[str], revision: str = "") -> dict[str, "RepoFile"]:
        """Return the existing files among these paths, by path."""
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
            raise StorageError(f"cannot write {where}: the commit lacks the file", hint=_IGNORED)
        if not _same(change, file):
            raise StorageError(f"cannot write {where}: other content was committed", hint="Run the same command again.")
        return version_of(file)


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
