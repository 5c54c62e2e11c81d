"""Warnings of stores that make a command wait, and the end of the wait for a command that was stopped.

Without the warnings, an outage looks like a program that hangs.
"""

import logging
import math
import threading
import time

_log = logging.getLogger(__name__)

#: A wait of at least this many seconds is reported.
_LONG = 5.0
#: Seconds between two warnings: many threads wait for the same store.
_EVERY = 30.0


class Notices:
    """Warnings of this process, at most one in 30 s. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._next = 0.0

    def tell(self, text: str, seconds: float) -> None:
        """Warn that a request is repeated, if the user waits for it longer than a moment.

        Args:
            text: The error with the place, and when the request is repeated.
            seconds: How long the request waits.
        """
        with self._lock:
            now = time.monotonic()
            if seconds < _LONG or now < self._next:
                return
            self._next = now + _EVERY
        _log.warning("%s", text)


#: The notices of all stores.
NOTICES = Notices()


#: Seconds after a signal in which failed requests are still repeated, so that finished pages are published.
GRACE = 20.0


class Stopping:
    """Whether the command was stopped by a signal more than `GRACE` seconds ago: then no request is repeated.

    All attempts of one request to an S3 server that does not answer take 9 minutes. Thread-safe.
    """

    def __init__(self) -> None:
        self._end = math.inf

    def begin(self) -> None:
        """Begin to count the seconds, at the first signal."""
        self._end = min(self._end, time.monotonic() + GRACE)

    def reset(self) -> None:
        """Begin another command in this process."""
        self._end = math.inf

    @property
    def over(self) -> bool:
        """Whether the seconds have passed."""
        return time.monotonic() > self._end


#: The signals of this process.
STOPPING = Stopping()
