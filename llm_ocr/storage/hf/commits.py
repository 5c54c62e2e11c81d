"""Collect writes to a dataset repository into few commits, within the rate limit."""

import atexit
import contextlib
import importlib
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from llm_ocr.errors import LlmOcrError, ObjectExists, StorageError

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

    def __init__(self, commit: Callable[[Sequence[Change], bool], None], rate: Rate) -> None:
        """Open the queue. `commit` settles changes of different paths, or none; True: the process is about to end."""
        self.pace = RateLimiter(rate)
        self._commit_changes = commit
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
            self._commit_changes(list({change.path: change for change in batch}.values()), last)
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
