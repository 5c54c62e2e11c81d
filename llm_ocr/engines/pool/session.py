"""One server from its readiness to its end, and the requests in flight."""

import asyncio
import math
import random
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from llm_ocr.engines import ServerFacts
from llm_ocr.engines.client.endpoint import Endpoint
from llm_ocr.engines.client.probing import Gauges
from llm_ocr.engines.pool.window import GaugeSteering, LatencySteering, Window
from llm_ocr.errors import ServerError

# One question on its way through the fleet.


_TIMES = {1: "once", 2: "twice"}


def harm(deaths: int, hangs: int) -> str:
    """Return deaths and hangs in words: `died 4 times`, `died once and hung twice`."""
    counted = (("died", deaths), ("hung", hangs))
    return " and ".join(f"{what} {_TIMES.get(count, f'{count} times')}" for what, count in counted if count)


class Request:
    """Lives as long as one `Fleet.ask`, in the caller's task. Older tickets go first, also after a replay."""

    __slots__ = (
        "_cancelling", "_revoked", "alone", "answered_before", "deaths", "guilty", "hangs", "id", "left", "out",
        "pause", "place", "sent", "suspect_at", "task", "ticket",
    )  # fmt: skip

    def __init__(self, question_id: str, ticket: int, task: asyncio.Task[Any]) -> None:
        self.id = question_id
        self.ticket = ticket
        self.task = task
        self.place: asyncio.Future[ServerSession] | None = None  # while it waits for one
        self.out = False  # it has been sent
        self.sent = 0.0
        self.deaths = 0  # of servers, while it was under way there
        self.hangs = 0  # of servers, while it was under way there
        self.left = math.inf  # deaths or hangs, whichever are fewer, until it is set aside
        self.answered_before = 0  # questions that were answered when it met its first death or hang
        self.alone = 0  # the last so many of them with nothing else of ours under way
        self.guilty = False  # it is to be set aside, once it is sure that the server answers others
        self.pause = 0.0  # seconds from a server's start until it is asked there alone
        self.suspect_at: int | None = None  # the number of the server where it runs apart
        self._revoked = False
        self._cancelling = 0

    @property
    def waits(self) -> bool:
        """Whether it waits for a place."""
        return self.place is not None and not self.place.done()

    @property
    def harm(self) -> str:
        """What happened to servers while it was under way: `died 4 times`, `hung twice`."""
        return harm(self.deaths, self.hangs)

    def go(self, now: float) -> None:
        """It is being sent."""
        self.out = True
        self.sent = now
        self._cancelling = self.task.cancelling()

    def revoke(self) -> None:
        """Take it back from its server, as a time-out would: its task notices by `pardoned`."""
        if self.out and not self._revoked and self.task is not asyncio.current_task():
            self._revoked = True
            self.task.cancel()

    def pardoned(self) -> bool:
        """After a `CancelledError`: True when only `revoke` was behind it, and the task goes on."""
        if not self._revoked:
            return False
        self._revoked = False
        return self.task.uncancel() <= self._cancelling


# One server from the moment when it is ready until its death.


#: Pauses after a 429 or 503 in seconds: without Retry-After from the first to the longest, and the longest with it.
FIRST_PAUSE, LONGEST_PAUSE, LONGEST_ASKED_PAUSE = 0.5, 60.0, 120.0
#: Two probes so many seconds apart must fail before a server counts as dead; each may take so long.
_BETWEEN_PROBES, _PROBE = 0.5, 8.0
#: A request that was lost so many seconds before the death may have caused it.
_BEFORE_DEATH = 5.0
#: Seconds without a request after which another server may be there: a model takes longer to load.
_QUIET = 2.0


class ServerSession:
    """Its connections, its window, and the requests there."""

    def __init__(
        self, number: int, name: str, endpoint: Endpoint, facts: ServerFacts, window: Window, *, ours: bool = True
    ) -> None:
        """`ours`: nobody else asks it."""
        now = time.monotonic()
        self.ours = ours
        self.began = now
        self.number = number
        self.name = name
        self.endpoint = endpoint
        self.facts = facts
        self.window = window
        self.by_gauges = GaugeSteering(window)
        self.by_latency = LatencySteering(window, now)
        self.gauges: Gauges | None = None
        self.blind = not facts.vllm  # it has no gauges
        self.holders: set[Request] = set()  # requests with a place here
        self.recently_lost: deque[tuple[float, str, int]] = deque(maxlen=256)  # when, question id, deaths before
        self.death: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.replaced = ""  # the model that the server lists now, where it is another one
        self._doubted = -math.inf  # when the server may have been replaced by another one
        self._quiet_since = now  # when the last request ended
        self.hung = False  # it did not die: its answers made no progress
        self.paused_until = 0.0
        self.stalled = 0  # requests that stalled, while it is open whether the server hangs: nothing is sent then
        self._pauses = 0  # since the last answer
        self._busy_since = now
        self._probe: asyncio.Task[bool] | None = None

    @property
    def alive(self) -> bool:
        """Whether it takes requests, or will after a pause."""
        return not self.death.done()

    @property
    def under_way(self) -> int:
        """Requests that have been sent and have not ended."""
        return sum(1 for request in self.holders if request.out)

    def enter(self, request: Request) -> None:
        """The request has a place here."""
        if not self.holders:
            self._busy_since = time.monotonic()
            if self._busy_since - self._quiet_since > _QUIET:
                self.doubt()
        self.holders.add(request)

    def leave(self, request: Request) -> None:
        """It has none any more."""
        self.holders.discard(request)
        request.out = False
        self._quiet_since = time.monotonic()

    def progressed(self) -> float:
        """When something moved last, by `time.monotonic`; the beginning of work counts too."""
        return max(self.endpoint.received, self._busy_since)

    def die(self, why: str, accuse: Callable[["ServerSession"], None] | None = None, *, hung: bool = False) -> None:
        """It serves no more, as it is dead or `hung`. All requests under way are taken back; `accuse` comes before."""
        if self.death.done():
            return
        self.hung = hung
        self.death.set_result(why)
        if accuse is not None:
            oldest = time.monotonic() - _BEFORE_DEATH
            while self.recently_lost and self.recently_lost[0][0] < oldest:
                self.recently_lost.popleft()
            accuse(self)
        for request in list(self.holders):
            request.revoke()

    def answered(self, seconds: float, tokens: int) -> None:
        """An answer came whole."""
        self._pauses = 0
        self.by_latency.answered(time.monotonic(), seconds, tokens)

    def lost(self, request: Request) -> None:
        """A request ended without an answer, and the server seems to live."""
        self.recently_lost.append((time.monotonic(), request.id, request.deaths))

    def pause(self, sent: float, retry_after: float | None, *, refused: bool = True) -> None:
        """Nothing is sent for a while: a request of the time `sent` was refused, or could not be delivered.

        Without Retry-After twice as long each time; what was sent before the last pause ended is no new sign.
        """
        now = time.monotonic()
        if retry_after is not None:
            seconds = min(max(retry_after, 0.0), LONGEST_ASKED_PAUSE) + random.uniform(0.0, 0.1)
        elif sent < self.paused_until:
            seconds = 0.0
        else:
            seconds = min(FIRST_PAUSE * 2.0 ** min(self._pauses, 16), LONGEST_PAUSE) * random.uniform(0.75, 1.25)
        if sent >= self.paused_until:
            self._pauses += 1
        self.paused_until = max(self.paused_until, now + seconds)
        if refused and self.blind:
            self.by_latency.refused(now)
        elif refused:
            self.by_gauges.refused(self.under_way)

    def doubt(self) -> None:
        """A connection was lost, a gateway had no server, or nothing was asked for a while: look who answers there."""
        if self.facts.serves and not self.ours:
            self._doubted = time.monotonic()

    async def same(self) -> bool:
        """Return whether the model of the beginning is still served; looks only after a doubt."""
        if self._doubted == -math.inf:
            return True
        doubted = self._doubted
        if not await self.answers():
            return not self.replaced  # the server that answered is gone again: the next request will tell
        if self._doubted == doubted:
            self._doubted = -math.inf
        return True

    async def answers(self) -> bool:
        """Whether the same server answers there. Many may ask at once: the server is asked once."""
        if self._probe is None or self._probe.done():
            self._probe = asyncio.create_task(self._answers())
        return await asyncio.shield(self._probe)

    async def _answers(self) -> bool:
        for pause in (_BETWEEN_PROBES, 0.0):
            try:
                async with asyncio.timeout(_PROBE):
                    if (facts := await self.endpoint.probe()) is not None:
                        return self._still(facts)
            except TimeoutError:
                return True  # somebody took the connection; whether it hangs is the watchdog's to say
            except ServerError:
                return True  # it does not like us, but it lives
            await asyncio.sleep(pause)
        return False

    def _still(self, facts: ServerFacts) -> bool:
        if not self.ours and self.facts.serves and facts.serves not in ("", self.facts.serves):
            self.replaced = facts.serves
        return not self.replaced

    async def close(self, seconds: float) -> None:
        """Close all connections, within so many seconds."""
        if self._probe is not None:
            self._probe.cancel()
        async with asyncio.timeout(seconds):
            await self.endpoint.close()


# The task that reads a server's gauges and steers its window.


#: Readings without gauges after which a server counts as one that has none.
_PATIENCE = 5
#: Longest time for one reading in seconds: a server that preprocesses images answers late.
_READING = 10.0


async def steer(service: ServerSession, dispatch: Callable[[], None], interval: float) -> None:
    """Steer until cancelled; `dispatch` is called after each step, for a window that has grown."""
    missing = 0
    while True:
        await asyncio.sleep(interval)
        if not service.blind:
            gauges = await _read(service)
            if gauges is not None:
                missing = 0
                service.gauges = gauges
                service.by_gauges.read(gauges, service.under_way)
            else:
                missing += 1
                service.blind = missing >= _PATIENCE and service.gauges is None
        if service.blind:
            service.by_latency.tick(time.monotonic(), service.window.full(len(service.holders)))
        dispatch()


async def _read(service: ServerSession) -> Gauges | None:
    try:
        async with asyncio.timeout(_READING):
            return await service.endpoint.gauges()
    except TimeoutError:
        return None
