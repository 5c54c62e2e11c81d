"""Start, watch, and restart one server of the pool."""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from llm_ocr.engines import Address, Server, ServerFacts
from llm_ocr.engines.client.endpoint import Endpoint
from llm_ocr.engines.pool.scheduler import PoisonDetector, RequestScheduler
from llm_ocr.engines.pool.session import ServerSession, harm, steer
from llm_ocr.engines.pool.window import Window, describe, first_size
from llm_ocr.errors import ServerError


@dataclass(frozen=True, slots=True)
class PoolOptions:
    """Options of a server pool; times in seconds."""

    # limit of requests in flight over all servers; None: chosen by the servers' capacity
    max_inflight: int | None = None
    page_tokens: int = 2000  # tokens of a full page, prompt and answer together
    stall: float = 180.0  # a server without progress of any answer for this time hangs
    kills: int = 4  # deaths that quarantine a request, the last one with the request alone
    hangs: int = 4  # hangs that quarantine a request, in the same way
    scatter: float = 4.0  # answer durations over which suspects are spread on a shared server
    max_restarts: int = 5  # restarts of one server without `ENOUGH_ANSWERS` in between
    busy_timeout: float = 1800.0  # limit for a time with only 429 and 503 responses
    grace: float = 1.0  # wait after a lost connection for a server's death to show; twice as long after a 500
    interval: float = 0.7  # between two readings of the gauges


#: Answers after which a restart is forgotten.
ENOUGH_ANSWERS = 100


class Budget:
    """Budget of `most` restarts of one server; each is forgotten after `ENOUGH_ANSWERS` answers of that server."""

    def __init__(self, most: int) -> None:
        self.most = most
        #: Number of answers at each remembered restart, and whether the server hung.
        self._at: deque[tuple[int, bool]] = deque()
        self._forgiven_at = 0

    @property
    def used(self) -> int:
        """Number of remembered restarts."""
        return len(self._at)

    @property
    def hangs(self) -> int:
        """Number of remembered restarts that were caused by a hang."""
        return sum(hung for _, hung in self._at)

    def spend(self, answers: int, *, hung: bool = False) -> bool:
        """Spend a restart at the given number of answers; return False if none is left."""
        while self._at and answers - self._at[0][0] >= ENOUGH_ANSWERS:
            self._at.popleft()
        if len(self._at) >= self.most:
            return False
        self._at.append((answers, hung))
        return True

    def explained(self, answers: int) -> None:
        """Forget deaths whose cause is gone because a request was quarantined.

        This requires a completed request since the last call: a server that exits at every request has another cause.
        """
        if answers > self._forgiven_at:
            self._forgiven_at = answers
            self._at.clear()


async def hang(service: ServerSession, stall: float) -> str:
    """Return the reason when requests were in flight for `stall` seconds without a byte of any answer.

    Progress decides whether a server works: a server that answers /health and completes nothing hangs.
    """
    pause = min(1.0, stall / 10)
    own_fault = 0.0  # end of the last time in which this process itself was suspended
    while True:
        before = time.monotonic()
        await asyncio.sleep(pause)
        now = time.monotonic()
        if now - before > pause + stall / 4:
            own_fault = now  # received bytes may still be unread
        if service.holders and now - max(service.progressed(), own_fault) > stall:
            return f"no answer made progress for {stall:g} s"


async def moves_again(service: ServerSession, stall: float) -> bool:
    """Return True after a stalled request as soon as another request makes progress, False if the server exited.

    Without other requests in flight, recently ended requests decide: if one made recent progress, the server did not
    hang.
    """
    # A request on an otherwise idle server looks like progress. So nothing is sent from now on, and requests that are
    # being sent at this moment do not count.
    since = time.monotonic() + 0.1
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


@dataclass(slots=True)
class ServerSupervisor:
    """Supervisor of one server; `live` runs it, and the pool reads the other members."""

    number: int
    server: Server
    options: PoolOptions
    places: RequestScheduler
    suspects: PoisonDetector
    say: Callable[[str], None]
    service: ServerSession | None = None  # set while the server accepts requests
    answers: int = 0
    restarts: int = 0
    uninvolved: bool = False  # a shared server exited without a request of this client in flight
    gone: Exception | None = None  # final error of a server that is not restarted
    budget: Budget = field(init=False)

    def __post_init__(self) -> None:
        self.budget = Budget(self.options.max_restarts)

    async def live(self) -> None:
        """Start the server and serve through its deaths until canceled.

        Raises `ServerError` when no restart is possible.
        """
        address, facts = await self.server.start()
        while True:
            why, hung = await self._serve(address, facts)
            if self.uninvolved:
                self.say(f"{self.server.name}: {why}; no request was in flight")
            elif not self.budget.spend(self.answers, hung=hung):
                hangs = self.budget.hangs + hung
                raise ServerError(
                    f"{self.server.name} {harm(self.budget.used + 1 - hangs, hangs)} without {ENOUGH_ANSWERS} answers "
                    f"since the first failure; the last reason: {why}",
                    hint="Check the server's log. Run the same command again to continue. `max_server_restarts` allows "
                    "more restarts." + (" `request_timeout` allows more time without progress." if hangs else ""),
                )
            else:
                nth = f"restart {self.budget.used} of {self.budget.most}"
                self.say(f"{self.server.name}: {why}; {nth}; its requests are sent again")
            self.restarts += 1
            address, facts = await self.server.restart(why)

    def report_death(self, service: ServerSession, why: str, *, hung: bool = False) -> None:
        """Mark requests on a dead or hung server as suspects and replay them; once per session."""
        if not service.alive:
            return
        self.uninvolved = not service.managed and not service.under_way
        service.die(why, self.suspects.record_death, hung=hung)
        if any(request.poisonous or (request.alone and not service.managed) for request in service.holders):
            self.budget.explained(self.answers)

    async def _serve(self, address: Address, facts: ServerFacts) -> tuple[str, bool]:
        """Serve from readiness to death; return the reason, and whether the server hung."""
        size, why = first_size(facts, self.options.page_tokens, self.options.max_inflight)
        endpoint = Endpoint(address, vllm=facts.vllm, stall=self.options.stall, known=self.answers > 0)
        window = Window(size, self.options.max_inflight)
        service = self.service = ServerSession(
            self.number, self.server.name, endpoint, facts, window, managed=self.server.managed
        )
        kind = f"vLLM {facts.version}".rstrip() if facts.vllm else facts.gauges
        self.say(f"{self.server.name}{kind and f' ({kind})'} is ready: {describe(facts, size, why)}")
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
                    self.report_death(service, watcher.result() or "it ended", hung=watcher is hanging)
            return await service.death, service.hung
        finally:
            self.service = None
            self.places.close(service)
            service.die("closed")
            for watcher in watchers:
                watcher.cancel()
            await asyncio.gather(*watchers, return_exceptions=True)
            await service.close()
