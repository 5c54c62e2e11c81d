"""One lock for each key, as long as somebody holds or wants it."""

import contextlib
import threading
from collections.abc import Iterator


class KeyLocks:
    """Threads of this process take turns at a key; keys do not wait for each other."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._of: dict[str, tuple[threading.Lock, int]] = {}

    @contextlib.contextmanager
    def of(self, key: str) -> Iterator[None]:
        """Hold the lock of `key`."""
        with self._lock:
            lock, users = self._of.get(key, (threading.Lock(), 0))
            self._of[key] = lock, users + 1
        try:
            with lock:
                yield
        finally:
            with self._lock:
                lock, users = self._of[key]
                if users == 1:
                    del self._of[key]
                else:
                    self._of[key] = lock, users - 1
