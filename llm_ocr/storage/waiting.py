"""Warnings of stores that make a command wait: without them, an outage looks like a program that hangs."""

import logging
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
