"""Assign requests to servers, oldest first, within the window of each server; requests that kill servers run apart."""

import asyncio
import copy
import heapq
import math
import random
import time

from llm_ocr.engines.pool.session import PoolOptions, Request, ServerSession
from llm_ocr.errors import LlmOcrError

#: Deaths alone with a shared server. Requests of other clients at the same moment can also kill that server.
_ALONE_ELSEWHERE = 3
#: Remaining deaths or hangs from which a request runs apart, and from which a request runs alone.
_APART, _ALONE = 2, 1
#: Assumed seconds of an answer before the first measurement, and the longest time that counts here.
_FIRST_ANSWER, _LONG_ANSWER = 4.0, 15.0
#: Weight of the newest answer in the moving mean.
_NEWEST = 0.05


class PoisonDetector:
    """Requests that were in flight when a server exited or hung, by server number.

    Deaths and hangs are counted separately: `kills` deaths or `hangs` hangs quarantine a request.

    After the first death, requests are sent again as usual, because most deaths are not caused by a request. Then
    suspects run on that server without other requests, a few at a time. From the last death before quarantine, a
    suspect runs alone. So no request is quarantined for a death that a neighbor caused.

    Requests of other clients on an external server are invisible. On such a server, a request is quarantined after
    several deaths alone. Before each of these attempts the request waits a random time. The wait is at most `scatter`
    times the duration of an answer and doubles each time. So clients with different suspects do not repeat them at the
    same moments.
    """

    def __init__(self, options: PoolOptions) -> None:
        self._options = options
        self._seconds = _FIRST_ANSWER  # moving mean of the duration of an answer
        self.answered = 0  # completed requests on all servers
        #: Suspects by server. A server with suspects accepts no other requests.
        self.by_server: dict[int, set[Request]] = {}

    def record_answer(self, seconds: float) -> None:
        """Record a completed request and its duration in seconds."""
        self.answered += 1
        self._seconds += (min(seconds, _LONG_ANSWER) - self._seconds) * max(_NEWEST, 1 / self.answered)

    def record_death(self, service: ServerSession) -> None:
        """Mark all requests in flight on a dead or hung server as suspects."""
        in_flight = [request for request in service.holders if request.out]
        for request in in_flight:
            if not request.harm:
                request.answered_before = self.answered
            request.deaths += not service.hung
            request.hangs += service.hung
            request.alone = request.alone + 1 if len(in_flight) == 1 else 0
            most = self._options.hangs if service.hung else self._options.kills
            needed = 1 if service.managed else min(most, _ALONE_ELSEWHERE)
            request.left = min(self._options.kills - request.deaths, self._options.hangs - request.hangs)
            request.poisonous = request.left <= 0 and request.alone >= needed
            longest = self._options.stall if service.hung else math.inf
            wait = random.uniform(0.0, self._options.scatter * self._seconds * 2**request.alone)
            request.pause = 0.0 if service.managed else min(longest, wait)
            if request.left <= _APART:
                self._hold(request, service.number)

    def clear(self, request: Request) -> bool:
        """Clear a request that ended on a live server or was abandoned; return False if it was not a suspect."""
        if request.suspect_at is None:
            return False
        held = self.by_server[request.suspect_at]
        held.discard(request)
        if not held:
            del self.by_server[request.suspect_at]
        request.suspect_at = None
        return True

    def move(self, number: int, other: int) -> None:
        """Move the suspects of a permanently stopped server to another server."""
        for request in list(self.by_server.get(number, ())):
            self.clear(request)
            self._hold(request, other)

    def next(self, service: ServerSession) -> Request | None:
        """Return the next suspect for the server, or None if there is none or the time has not come."""
        held = self.by_server.get(service.number)
        if not held or any(request.suspect_at != service.number for request in service.holders):
            return None  # requests in flight must finish first
        waiting = [request for request in held if request.waits]
        if any(request.left <= _ALONE for request in service.holders):
            return None
        few = [request for request in waiting if request.left > _ALONE]
        if few:  # least suspect first: their answers clear them and prove that the server works
            room = len(service.holders) < math.ceil(math.sqrt(service.window.size))
            return _first(few) if room else None
        ready = [request for request in waiting if time.monotonic() - service.began >= request.pause]
        return _first(ready) if ready and not service.holders else None

    def _hold(self, request: Request, number: int) -> None:
        self.clear(request)
        self.by_server.setdefault(number, set()).add(request)
        request.suspect_at = number


def _first(requests: list[Request]) -> Request:
    return min(requests, key=lambda request: request.ticket)


class RequestScheduler:
    """Queue that places waiting requests in the least loaded window; no polling."""

    def __init__(self, cap: int | None, suspects: PoisonDetector) -> None:
        self._cap = cap
        self._suspects = suspects
        self.services: list[ServerSession] = []  # servers that are ready; `dispatch` must follow an addition
        self._queue: list[tuple[int, Request]] = []  # heap; entries that no longer wait are skipped
        self.failure: Exception | None = None  # the error that ended the scheduling
        self.held = False  # nothing is scheduled; waiting requests keep waiting
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

    def fail(self, error: Exception) -> None:
        """Stop scheduling: all current and later callers of `take` receive the error."""
        if self.failure is not None:
            return
        self.failure = error
        waiting = [request for _, request in self._queue]
        waiting += [request for held in self._suspects.by_server.values() for request in held]
        self._queue.clear()
        for request in waiting:
            if request.place is not None and not request.place.done():
                request.place.set_exception(_copied(error))
                self.queued -= 1

    def dispatch(self) -> None:
        """Assign all free places."""
        now = time.monotonic()
        for service in self.services:
            while self._open(service, now) and (suspect := self._suspects.next(service)) is not None:
                self._give(service, suspect)
        while self._queue:
            request = self._queue[0][1]
            if request.waits and request.suspect_at is None:
                freest, least = None, 1.0
                for service in self.services:
                    load = len(service.holders) / service.window.size
                    if load < least and self._open(service, now) and service.number not in self._suspects.by_server:
                        freest, least = service, load
                if freest is None:
                    return
                self._give(freest, request)
            heapq.heappop(self._queue)

    def _open(self, service: ServerSession, now: float) -> bool:
        if self.held or not service.alive or service.stalled or now < service.paused_until:
            return False
        return self._cap is None or self.taken < self._cap

    def _give(self, service: ServerSession, request: Request) -> None:
        service.enter(request)
        self.taken += 1
        self.queued -= 1
        if request.place is not None:
            request.place.set_result(service)


def _copied(error: Exception) -> Exception:
    """Return a separate error for each caller: an exception that is raised many times collects all tracebacks."""
    return copy.copy(error) if isinstance(error, LlmOcrError) else error
