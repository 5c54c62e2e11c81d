"""One server of a fleet through all its lives: start, service, death, restart."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from llm_ocr.engines.chat.endpoint import Endpoint
from llm_ocr.engines.fleet.budget import ENOUGH_ANSWERS, Budget
from llm_ocr.engines.fleet.options import FleetOptions
from llm_ocr.engines.fleet.places import Places
from llm_ocr.engines.fleet.request import harm
from llm_ocr.engines.fleet.service import Service
from llm_ocr.engines.fleet.steering import steer
from llm_ocr.engines.fleet.suspects import Suspects
from llm_ocr.engines.fleet.watchdog import hang
from llm_ocr.engines.fleet.window import Window, describe, first_size
from llm_ocr.engines.serving import Address, Server, ServerFacts
from llm_ocr.errors import ServerError

#: Seconds for connections to close.
_CLOSING = 5.0

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Member:
    """`live` runs it; the rest is read by the fleet."""

    number: int
    server: Server
    options: FleetOptions
    places: Places
    suspects: Suspects
    say: Callable[[str], None]
    service: Service | None = None  # while it serves
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

    def accuse(self, service: Service, why: str, *, hung: bool = False) -> None:
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
        service = self.service = Service(self.number, self.server.name, endpoint, facts, window, ours=self.server.ours)
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

    async def _close(self, service: Service) -> None:
        try:
            await service.close(_CLOSING)
        except TimeoutError:
            _log.warning("%s: connections did not close within %g s", self.server.name, _CLOSING)
