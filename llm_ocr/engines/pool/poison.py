"""Detect requests that kill servers."""

import math
import random
import time
from collections.abc import Callable

from llm_ocr.engines.pool.session import Request, ServerSession

#: Deaths alone with a server that others ask, too: what one of them asked in the same moment kills as well.
_ALONE_ELSEWHERE = 3
#: A question with so few deaths or hangs left until it is set aside runs apart, and with so few alone.
_APART, _ALONE = 2, 1
#: Seconds of an answer before any has come, and the longest that count here.
_FIRST_ANSWER, _LONG_ANSWER = 4.0, 15.0
#: Weight of the newest answer in the mean.
_NEWEST = 0.05


class PoisonDetector:
    """Requests that were under way when a server died or hung, by the number of that server.

    Deaths and hangs are counted apart: `kills` of the one or `hangs` of the other set a question aside.

    After the first death they are asked again like all others: most deaths are not a question's doing. Then they run on
    that server with no others, a few at a time, and from the last but one death that sets a question aside alone. So
    nobody is set aside for what a neighbour did.

    Neighbours at a server that is not ours are not seen. There a question is set aside after several deaths alone, and
    waits before each for a time by chance, up to `scatter` times as long as an answer takes, and each time twice that:
    so those who suspect different questions of the same deaths do not go on asking them in the same moments.
    """

    def __init__(self, kills: int, hangs: int, scatter: float, stall: float) -> None:
        """`stall`: the longest pause in seconds before a question is asked alone after a hang."""
        self._kills = kills
        self._hangs = hangs
        self._scatter = scatter
        self._stall = stall
        self._seconds = _FIRST_ANSWER  # of an answer, a moving mean
        self.answered = 0  # questions, by any server
        self._held: dict[int, set[Request]] = {}
        self._escaped: dict[str, tuple[int, int]] = {}  # question id: deaths and server

    def hear(self, seconds: float) -> None:
        """A question was answered, in so many seconds."""
        self.answered += 1
        self._seconds += (min(seconds, _LONG_ANSWER) - self._seconds) * max(_NEWEST, 1 / self.answered)

    def accuse(self, service: ServerSession) -> None:
        """The server has died or hung: everything under way there is suspect."""
        under_way = [request for request in service.holders if request.out]
        for request in under_way:
            if not request.harm:
                request.answered_before = self.answered
            request.deaths += not service.hung
            request.hangs += service.hung
            request.alone = request.alone + 1 if len(under_way) == 1 else 0
            most = self._hangs if service.hung else self._kills
            needed = 1 if service.ours else min(most, _ALONE_ELSEWHERE)
            request.guilty = self._count(request) <= 0 and request.alone >= needed
            longest = self._stall if service.hung else math.inf
            request.pause = 0.0 if service.ours else min(longest, self._drawn(request.alone))
            if request.left <= _APART:
                self._hold(request, service.number)
        for _, question_id, deaths in () if service.hung else service.recently_lost:
            if all(request.id != question_id for request in under_way):
                self._escaped[question_id] = (deaths + 1, service.number)
        service.recently_lost.clear()

    def recognise(self, request: Request, alive: Callable[[int], bool], other: int) -> None:
        """A new request; suspect if its question was lost at a server right before that died."""
        if self._escaped and request.id in self._escaped:
            request.deaths, number = self._escaped.pop(request.id)
            request.answered_before = self.answered
            if self._count(request) <= _APART:
                self._hold(request, number if alive(number) else other)

    def proven(self, request: Request) -> bool:
        """Whether anything was answered since it first met a death: else the server itself is to blame."""
        return self.answered > request.answered_before

    def clear(self, request: Request) -> bool:
        """The request has ended and the server lives, or nobody waits for it. False when it was not suspect."""
        if request.suspect_at is None:
            return False
        held = self._held[request.suspect_at]
        held.discard(request)
        if not held:
            del self._held[request.suspect_at]
        request.suspect_at = None
        return True

    def move(self, number: int, other: int) -> None:
        """A server is gone for good: its suspects go to another one."""
        for request in list(self._held.get(number, ())):
            self.clear(request)
            self._hold(request, other)

    def apart(self, number: int) -> bool:
        """Whether that server takes suspects only."""
        return number in self._held

    def next(self, service: ServerSession) -> Request | None:
        """The suspect whose turn it is on that server; None: none, or not yet."""
        held = self._held.get(service.number)
        if not held or any(request.suspect_at != service.number for request in service.holders):
            return None  # others have to finish first
        waiting = [request for request in held if request.waits]
        if any(request.left <= _ALONE for request in service.holders):
            return None
        few = [request for request in waiting if request.left > _ALONE]
        if few:  # the least suspect first: their answers clear them, and show that the server lives
            room = len(service.holders) < math.ceil(math.sqrt(service.window.size))
            return _first(few) if room else None
        ready = [request for request in waiting if time.monotonic() - service.began >= request.pause]
        return _first(ready) if ready and not service.holders else None

    def pauses(self, number: int) -> list[float]:
        """Seconds from that server's start after which suspects may be asked there alone."""
        return [request.pause for request in self._held.get(number, ())]

    def waiting(self) -> list[Request]:
        """All that wait for a place."""
        return [request for held in self._held.values() for request in held if request.waits]

    def _count(self, request: Request) -> float:
        request.left = min(self._kills - request.deaths, self._hangs - request.hangs)
        return request.left

    def _drawn(self, alone: int) -> float:
        return random.uniform(0.0, self._scatter * self._seconds * 2**alone)

    def _hold(self, request: Request, number: int) -> None:
        self.clear(request)
        self._held.setdefault(number, set()).add(request)
        request.suspect_at = number


def _first(requests: list[Request]) -> Request:
    return min(requests, key=lambda request: request.ticket)
