"""Which question kills servers: those that were under way at a death run apart until they are cleared."""

import math
from collections.abc import Callable

from llm_ocr.engines.fleet.request import Request
from llm_ocr.engines.fleet.service import Service


class Suspects:
    """Requests that were under way when a server died, by the number of that server.

    After the first death they are asked again like all others: most deaths are not a question's doing. Then they run on
    that server with no others, a few at a time, and from the last but one death that sets a question aside alone. So
    nobody is set aside for what a neighbour did.
    """

    def __init__(self, kills: int) -> None:
        self._kills = kills
        self._pardoned = max(0, kills - 3)  # deaths after which a question is not suspect yet
        self._apart_from = max(1, kills - 1)
        self.answered = 0  # questions, by any server
        self._held: dict[int, set[Request]] = {}
        self._escaped: dict[str, tuple[int, int]] = {}  # question id: deaths and server

    def accuse(self, service: Service) -> None:
        """The server has died: everything under way there is suspect."""
        under_way = [request for request in service.holders if request.out]
        for request in under_way:
            if not request.deaths:
                request.answered_before = self.answered
            request.deaths += 1
            request.died_alone = len(under_way) == 1
            if request.deaths > self._pardoned:
                self._hold(request, service.number)
        for _, question_id, deaths in service.recently_lost:
            if all(request.id != question_id for request in under_way):
                self._escaped[question_id] = (deaths + 1, service.number)
        service.recently_lost.clear()

    def recognise(self, request: Request, alive: Callable[[int], bool], other: int) -> None:
        """A new request; suspect if its question was lost at a server right before that died."""
        if self._escaped and request.id in self._escaped:
            request.deaths, number = self._escaped.pop(request.id)
            request.answered_before = self.answered
            if request.deaths > self._pardoned:
                self._hold(request, number if alive(number) else other)

    def guilty(self, request: Request) -> bool:
        """Whether it is to be set aside, once it is sure that the server answers others."""
        return request.deaths >= self._kills and request.died_alone

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

    def next(self, service: Service) -> Request | None:
        """The suspect whose turn it is on that server; None: none, or not yet."""
        held = self._held.get(service.number)
        if not held or any(request.suspect_at != service.number for request in service.holders):
            return None  # others have to finish first
        waiting = [request for request in held if request.waits]
        if any(request.deaths >= self._apart_from for request in service.holders):
            return None
        few = [request for request in waiting if request.deaths < self._apart_from]
        if few:  # the least suspect first: their answers clear them, and show that the server lives
            room = len(service.holders) < math.ceil(math.sqrt(service.window.size))
            return _first(few) if room else None
        return _first(waiting) if waiting and not service.holders else None

    def waiting(self) -> list[Request]:
        """All that wait for a place."""
        return [request for held in self._held.values() for request in held if request.waits]

    def _hold(self, request: Request, number: int) -> None:
        self.clear(request)
        self._held.setdefault(number, set()).add(request)
        request.suspect_at = number


def _first(requests: list[Request]) -> Request:
    return min(requests, key=lambda request: request.ticket)
