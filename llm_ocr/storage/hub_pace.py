"""How often commits may be made, over all workers of a workspace."""

import threading
import time
from dataclasses import dataclass

#: A user's log shows a quota of 128 commits an hour; the Hub documents none. With the first ones of a run, which may
#: follow each other at once, it stays below 100 in any hour.
_PER_HOUR = 80.0
_AT_ONCE = 18


@dataclass(frozen=True, slots=True)
class Rate:
    """Commits of all workers: `per_hour` in the long run, `at_once` without a pause.

    `gather` is how long (seconds) a commit that somebody waits for waits itself for others to go with it; `linger` how
    long writes wait that nobody waits for; `most` operations make one commit (the Hub asks for 50 to 100).
    """

    per_hour: float = _PER_HOUR
    at_once: int = _AT_ONCE
    gather: float = 1.0
    linger: float = 30.0
    most: int = 50


RATE = Rate()


class Pace:
    """This worker's share of the rate, as a bucket of tokens. Usable from any thread."""

    def __init__(self, rate: Rate) -> None:
        self._rate = rate
        self._lock = threading.Lock()
        self._workers = 1
        self._tokens = float(rate.at_once)
        self._at = time.monotonic()

    def share(self, workers: int) -> None:
        """From now on so many workers write at the same time."""
        with self._lock:
            self._refill()
            self._workers = max(1, workers)
            self._tokens = min(self._tokens, self._size)

    def due_in(self) -> float:
        """Seconds until the next commit may be made."""
        with self._lock:
            self._refill()
            return max(0.0, (1.0 - self._tokens) / self._per_second)

    def spend(self) -> None:
        """A commit is made, whether it was due or not."""
        with self._lock:
            self._refill()
            self._tokens -= 1.0

    @property
    def _size(self) -> float:
        return max(1.0, self._rate.at_once / self._workers)

    @property
    def _per_second(self) -> float:
        return self._rate.per_hour / self._workers / 3600

    def _refill(self) -> None:
        now = time.monotonic()
        self._tokens = min(self._size, self._tokens + (now - self._at) * self._per_second)
        self._at = now
