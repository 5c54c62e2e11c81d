"""Servers that kill who asks: kill -9 at one request of a run, which is then done or not, as on a network."""

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

from fault_places import Place, gcs, hub
from fault_running import ended, pipeline, started

from tests.fakes.crash import When
from tests.fakes.hub.server import find

#: Kinds of stores whose requests are seen.
REMOTE = ("s3", "gcs", "hub-bucket", "hub-dataset")

#: What only asks the Hub something, though it is a POST.
_QUESTIONS = ("info", "paths", "preupload", "validate", "auth", "whoami")


class Killer:
    """Counts requests that write. At number `at` (from 0; None: never) it kills the process that sends them."""

    def __init__(self, at: int | None = None, when: When = When.BEFORE) -> None:
        self._at = at
        self._when = when
        self._lock = threading.Lock()
        self._known = threading.Event()
        self._process = 0
        self.seen: list[str] = []

    def of(self, process: int) -> None:
        """The process whose requests come."""
        self._process = process
        self._known.set()

    def asked(self, request: str) -> bool:
        """A request has come; whether it is to be done. What comes after the death is not."""
        with self._lock:
            number = len(self.seen)
            self.seen.append(request)
        if self._at is None or number < self._at:
            return True
        self._known.wait()
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._process, signal.SIGKILL)
        return number == self._at and self._when is When.AFTER


def killed_at_request(place: Place, documents: Path, at: int, when: When) -> bool:
    """Whether a process of its own was killed at that request."""
    killer = Killer(at, when)
    with _watched(place, killer) as watched:
        worker = started(pipeline, watched, documents)
        killer.of(worker.pid or 0)
        code = ended(worker)
    assert code in (0, -signal.SIGKILL), f"the worker ended with {code}, not at request {at}"
    return code != 0


def requests_of(place: Place, documents: Path) -> list[str]:
    """The requests of a run that nobody disturbs."""
    killer = Killer()
    with _watched(place, killer) as watched:
        pipeline(watched, documents)
    return killer.seen


@contextlib.contextmanager
def _watched(place: Place, killer: Killer) -> Iterator[Place]:
    """The place, with a killer who sees what is asked of its server."""
    if place.kind == "s3":
        with _s3(killer) as url:
            yield replace(place, endpoint=url)
        return
    with _gcs(killer) if place.kind == "gcs" else _hub(killer):
        yield place


@contextlib.contextmanager
def _s3(killer: Killer) -> Iterator[str]:
    from tests.storage.proxy import Fault, Proxy
    from tests.storage.s3.making import moto_url

    class Watching(Proxy):
        def take(self, method: str, path: str, headers: dict[str, str]) -> Any:
            done = method in ("GET", "HEAD") or killer.asked(f"{method} {path}")
            return None if done else Fault(lost="before")

    proxy = Watching(moto_url())
    try:
        yield proxy.url
    finally:
        proxy.close()


@contextlib.contextmanager
def _gcs(killer: Killer) -> Iterator[None]:
    answer = gcs().answer

    def answered(request: Any) -> Any:
        done = request.method == "GET" or killer.asked(f"{request.method} {request.path}")
        return answer(request) if done else (None, False)

    with mock.patch.object(gcs(), "answer", answered):
        yield


@contextlib.contextmanager
def _hub(killer: Killer) -> Iterator[None]:
    answer = hub()._answer

    def answered(request: Any) -> Any:
        if request.method in ("GET", "HEAD"):
            return answer(request)
        operation = find(request)[0]
        asks = any(word in operation for word in _QUESTIONS)
        return answer(request) if asks or killer.asked(f"{request.method} {operation}") else None

    with mock.patch.object(hub(), "_answer", answered):
        yield
