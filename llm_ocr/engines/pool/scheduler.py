"""Assign requests to servers: oldest first, within the window of each server."""

import asyncio
import copy
import heapq
import time

from llm_ocr.engines.pool.poison import PoisonDetector
from llm_ocr.engines.pool.session import Request, ServerSession
from llm_ocr.errors import LlmOcrError


class RequestScheduler:
    """Queue that places waiting requests in the least loaded window; no polling."""

    def __init__(self, cap: int | None, suspects: PoisonDetector) -> None:
        self._cap = cap
        self._suspects = suspects
        self.services: list[ServerSession] = []  # servers that are ready
        self._queue: list[tuple[int, Request]] = []  # heap; entries that no longer wait are skipped
        self.failure: Exception | None = None  # the error that ended the scheduling
        self._held = False
        self.queued = 0
        self.taken = 0

    async def take(self, request: Request) -> ServerSession:
        """Wait for a place; older requests first. Raises the error that `fail` received."""
        if self.failure is not None:
            raise _copied(self.failure)
        place: asyncio.Future[ServerSession] = asyncio.get_running_loop().create_future()
        request.place = place
        if request.suspect_at is None:
            heapq.heappush(self._queue, (request.ticket, request))
        self.queued += 1
        self.dispatch()
        try:
            return await place
        except asyncio.CancelledError:
            if place.cancelled():
                self.queued -= 1
            elif place.exception() is None:  # the place was assigned at the same moment
                self.leave(place.result(), request)
            raise
        finally:
            request.place = None

    def leave(self, service: ServerSession, request: Request) -> None:
        """Release the request's place."""
        service.leave(request)
        self.taken -= 1
        self.dispatch()

    def open(self, service: ServerSession) -> None:
        """Add a ready server."""
        self.services.append(service)
        self.dispatch()

    def close(self, service: ServerSession) -> None:
        """Remove a server; its requests keep their places until they leave."""
        self.services = [other for other in self.services if other is not service]

    def fail(self, error: Exception) -> None:
        """Stop scheduling: all current and later callers of `take` receive the error."""
        if self.failure is not None:
            return
        self.failure = error
        waiting = [request for _, request in self._queue if request.waits] + self._suspects.waiting()
        self._queue.clear()
        for request in waiting:
            if request.place is not None:
                request.place.set_exception(_copied(error))
                self.queued -= 1

    def hold(self) -> None:
        """Stop scheduling; waiting requests keep waiting."""
        self._held = True

    def dispatch(self) -> None:
        """Assign all free places."""
        now = time.monotonic()
        for service in self.services:
            while self._open(service, now) and (suspect := self._suspects.next(service)) is not None:
                self._give(service, suspect)
        while self._queue:
            request = self._queue[0][1]
            if request.waits and request.suspect_at is None:
                freest = self._freest(now)
                if freest is None:
                    return
                self._give(freest, request)
            heapq.heappop(self._queue)

    def _open(self, service: ServerSession, now: float) -> bool:
        if self._held or not service.alive or service.stalled or now < service.paused_until:
            return False
        return self._cap is None or self.taken < self._cap

    def _freest(self, now: float) -> ServerSession | None:
        best, least = None, 1.0
        for service in self.services:
            load = len(service.holders) / service.window.size
            if load < least and self._open(service, now) and not self._suspects.apart(service.number):
                best, least = service, load
        return best

    def _give(self, service: ServerSession, request: Request) -> None:
        service.enter(request)
        self.taken += 1
        self.queued -= 1
        if request.place is not None:
            request.place.set_result(service)


def _copied(error: Exception) -> Exception:
    """Return a separate error for each caller: an exception that is raised many times collects all tracebacks."""
    return copy.copy(error) if isinstance(error, LlmOcrError) else error
