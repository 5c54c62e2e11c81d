"""Start, watch, and restart one server of the pool."""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from llm_ocr.engines import Address, Server, ServerFacts
from llm_ocr.engines.client.endpoint import Endpoint
from llm_ocr.engines.pool.poison import PoisonDetector
from llm_ocr.engines.pool.scheduler import RequestScheduler
from llm_ocr.engines.pool.session import ServerSession, harm, steer
from llm_ocr.engines.pool.window import Window, describe, first_size
from llm_ocr.errors import ServerError

# What a user may set of a fleet.


@dataclass(frozen=True, slots=True)
class PoolOptions:
    """Times in seconds."""

    max_inflight: int | None = None  # requests under way at all servers together; None: as the servers allow
    page_tokens: int = 2000  # of a full page, prompt and answer
    stall: float = 180.0  # without progress of any answer: the server hangs
    kills: int = 4  # deaths of the server, the last one alone with it, that set a question aside
    hangs: int = 4  # hangs of the server that do so, in the same way
    scatter: float = 4.0  # answers' times, over which suspects are spread that are asked alone where others ask, too
    max_restarts: int = 5  # of one server, without `ENOUGH_ANSWERS` since
    busy_timeout: float = 1800.0  # of nothing but 429 and 503
    grace: float = 1.0  # after a lost connection, for the server's death to be seen; twice as long after a 500
    interval: float = 0.7  # between two readings of the gauges


# How often a server may be restarted.


#: Answers after which a restart is forgotten.
ENOUGH_ANSWERS = 100


class Budget:
    """Allows `most` restarts of one server; each is forgotten after `ENOUGH_ANSWERS` answers of that server."""

    def __init__(self, most: int) -> None:
        self.most = most
        #: The server's answers at each restart that is not forgotten, and whether it hung.
        self._at: deque[tuple[int, bool]] = deque()
        self._forgiven_at = 0

    @property
    def used(self) -> int:
        """Restarts that are not forgotten."""
        return len(self._at)

    @property
    def hangs(self) -> int:
        """Those of them after which the server hung, instead of being dead."""
        return sum(hung for _, hung in self._at)

    def spend(self, answers: int, *, hung: bool = False) -> bool:
        """One more restart, after so many answers; False when none is left."""
        while self._at and answers - self._at[0][0] >= ENOUGH_ANSWERS:
            self._at.popleft()
        if len(self._at) >= self.most:
            return False
        self._at.append((answers, hung))
        return True

    def explained(self, answers: int) -> None:
        """The deaths had a cause that is gone: a question was set aside.

        Only where something was answered since the last time: a server that dies of every question has another cause.
        """
        if answers > self._forgiven_at:
            self._forgiven_at = answers
            self._at.clear()


# A server is judged by progress: one that answers /health and finishes nothing hangs.


_MOMENT = 0.1  # seconds


async def hang(service: ServerSession, stall: float) -> str:
    """Returns why, when requests were under way for `stall` seconds without a byte of any answer."""
    pause = min(1.0, stall / 10)
    own_fault = 0.0  # until when this process itself stood still
    while True:
        before = time.monotonic()
        await asyncio.sleep(pause)
        now = time.monotonic()
        if now - before > pause + stall / 4:
            own_fault = now  # bytes may have come that nobody has read yet
        if service.holders and now - max(service.progressed(), own_fault) > stall:
            return f"no answer made progress for {stall:g} s"


async def moves_again(service: ServerSession, stall: float) -> bool:
    """After a request that stalled: True as soon as another one gets on, False when the server has died meanwhile.

    With no other under way, those that have ended tell: while one of them got on lately, the server did not hang.
    """
    # A request sent to a server without others looks like progress: none is sent from now on, and what was being sent
    # in this moment does not count.
    since = time.monotonic() + _MOMENT
    service.stalled += 1
    try:
        while service.alive:
            if len(service.holders) == 1 and time.monotonic() - service.progressed() < stall / 2:
                return True
            await asyncio.wait({service.death}, timeout=min(0.5, stall / 10))
            if service.progressed() > since:
                return service.alive
    finally:
        service.stalled -= 1
    return False


# One server of a fleet through all its lives: start, service, death, restart.


#: Seconds for connections to close.
_CLOSING = 5.0

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class ServerSupervisor:
    """`live` runs it; the rest is read by the fleet."""

    number: int
    server: Server
    options: PoolOptions
    places: RequestScheduler
    suspects: PoisonDetector
    say: Callable[[str], None]
    service: ServerSession | None = None  # while it serves
    answers: int = 0
    restarts: int = 0
    uninvolved: bool = False  # others ask it, too, and nothing of ours was under way when it died
    gone: Exception | None = None  # why it serves no more, for good
    budget: Budget = field(init=False)

    def __post_init__(self) -> None:
        self.budget = Budget(self.options.max_restarts)

    async def live(self) -> None:
        """Start the server and serve until cancelled, through its deaths. Raises `ServerError` when that is over."""
        address, facts = await self.server.start()
        while True:
            why, hung = await self._serve(address, facts)
            if self.uninvolved:
                self.say(f"{self.server.name}: {why}; nothing of ours was there")
            elif not self.budget.spend(self.answers, hung=hung):
                hangs = self.budget.hangs + hung
                raise ServerError(
                    f"{self.server.name} {harm(self.budget.used + 1 - hangs, hangs)} without {ENOUGH_ANSWERS} answers "
                    f"since the first; the last time: {why}",
                    hint="Look at its log. The same command goes on where this one stopped; --max-server-restarts "
                    "allows more restarts"
                    + (", --request-timeout more time without progress of an answer." if hangs else "."),
                )
            else:
                nth = f"restart {self.budget.used} of {self.budget.most}"
                self.say(f"{self.server.name}: {why}; {nth}, what was under way is asked again")
            self.restarts += 1
            address, facts = await self.server.restart(why)

    def accuse(self, service: ServerSession, why: str, *, hung: bool = False) -> None:
        """The server is dead or `hung`: what is under way there is suspect and asked again. Once for each service."""
        if not service.alive:
            return
        self.uninvolved = not service.ours and not service.under_way
        service.die(why, self.suspects.accuse, hung=hung)
        if any(request.guilty or (request.alone and not service.ours) for request in service.holders):
            self.budget.explained(self.answers)

    async def _serve(self, address: Address, facts: ServerFacts) -> tuple[str, bool]:
        """Serve from ready to dead; return why it died, and whether it hung instead."""
        first = first_size(facts, self.options.page_tokens, self.options.max_inflight)
        endpoint = Endpoint(address, vllm=facts.vllm, stall=self.options.stall, known=self.answers > 0)
        window = Window(first.size, self.options.max_inflight)
        service = self.service = ServerSession(
            self.number, self.server.name, endpoint, facts, window, ours=self.server.ours
        )
        kind = f" (vLLM {facts.version})".replace(" )", ")") if facts.vllm else ""
        self.say(f"{self.server.name}{kind} is ready: {describe(facts, first)}")
        self.places.open(service)
        for pause in self.suspects.pauses(self.number):
            asyncio.get_running_loop().call_at(service.began + pause, self.places.dispatch)
        hanging = asyncio.create_task(hang(service, self.options.stall))
        watchers: list[asyncio.Future[Any]] = [
            asyncio.create_task(self.server.ended()),
            hanging,
            asyncio.create_task(steer(service, self.places.dispatch, self.options.interval)),
        ]
        try:
            await asyncio.wait([service.death, *watchers], return_when=asyncio.FIRST_COMPLETED)
            for watcher in watchers:
                if watcher.done() and service.alive:
                    self.accuse(service, watcher.result() or "it ended", hung=watcher is hanging)
            return await service.death, service.hung
        finally:
            self.service = None
            self.places.close(service)
            service.die("closed")
            for watcher in watchers:
                watcher.cancel()
            await asyncio.gather(*watchers, return_exceptions=True)
            await self._close(service)

    async def _close(self, service: ServerSession) -> None:
        try:
            await service.close(_CLOSING)
        except TimeoutError:
            _log.warning("%s: connections did not close within %g s", self.server.name, _CLOSING)
