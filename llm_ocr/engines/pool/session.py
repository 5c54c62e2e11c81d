"""Represent one server from readiness to death, its requests in flight, and the limit of their number."""

import asyncio
import logging
import math
import random
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from llm_ocr.engines import ServerFacts
from llm_ocr.engines.client.endpoint import Endpoint, Gauges
from llm_ocr.errors import ServerError
from llm_ocr.types import plural


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
    grace: float = 1.0  # wait after a lost connection for a server's death to show; six times as long after a 500
    interval: float = 0.7  # between two readings of the gauges


#: First window for vLLM if the size of the KV cache is unknown.
UNKNOWN_VLLM = 64
#: First window for servers without gauges, and for other servers than vLLM: llama.cpp often runs 1 to 4 requests.
BLIND = 16
#: Assumed parallel sequences if the server reports none: a guess that avoids a long queue.
USUAL_SEQUENCES = 128
#: Gauge readings after a preemption or refusal in which the window grows by single steps only.
_CALM = 20
#: Readings with an unchanged `running` before the window grows on a server that preprocesses.
_STILL = 3


def first_size(facts: ServerFacts, page_tokens: int, cap: int | None) -> tuple[int, str]:
    """Return the first size of the window, and the reason as a sentence.

    The window is the capacity of the KV cache, at most the server's sequences, plus a small queue. `cap` limits it.
    """
    if not facts.vllm and facts.kv_tokens is None:
        size = BLIND
        why = (
            f"follows the gauges of {facts.gauges}" if facts.gauges else "no gauges: controlled by latency and refusals"
        )
    else:
        if facts.kv_tokens is None:
            at_once, reason = facts.max_num_seqs or UNKNOWN_VLLM, "the size of its KV cache is unknown"
        else:
            pages = max(1, facts.kv_tokens // max(1, page_tokens))
            at_once = min(pages, facts.max_num_seqs or USUAL_SEQUENCES)
            reason = f"KV for {plural(pages, 'page')} of {page_tokens:,} tokens"
        queue = max(4, at_once // 8)
        size, why = at_once + queue, f"{reason}, {at_once:,} sequences at once + {queue} waiting"
    if cap is not None and cap < size:
        return max(1, cap), f"the configured maximum; otherwise {size:,} ({why})"
    return size, why


def describe(facts: ServerFacts, size: int, why: str) -> str:
    """Return the message for users about a ready server and the first size of its window."""
    known = "" if facts.kv_tokens is None else f"{facts.kv_tokens:,} KV tokens; "
    made_up = "; its answers are made up, and their quality is not judged" if facts.simulated else ""
    return f"{known}window {size:,}: {why}{made_up}"


@dataclass(slots=True)
class Window:
    """Limit of requests in flight, between 1 and `cap`."""

    size: int
    cap: int | None = None

    def resize(self, size: int) -> None:
        """Set the size within its bounds."""
        self.size = max(1, size if self.cap is None else min(size, self.cap))

    def full(self, under_way: int) -> bool:
        """Return whether this number of requests fills the window; a few places are always in transfer."""
        return under_way >= self.size - self.size // 16


def queue_band(running: int) -> tuple[int, int]:
    """Return the smallest and largest useful queue of a server that runs `running` requests."""
    return max(2, math.ceil(running / 16)), max(4, math.ceil(running / 8))


class GaugeSteering:
    """Steering by a server's gauges that keeps a small queue in the server.

    Requests in preprocessing or in transit are in neither gauge. They count as queued, not as free capacity: more
    requests do not speed up a server that is limited by its preprocessing.
    """

    def __init__(self, window: Window) -> None:
        self.window = window
        self._running: deque[int] = deque(maxlen=_STILL)
        self._preemptions: int | None = None
        self._calm = 0

    def read(self, gauges: Gauges, under_way: int) -> None:
        """Process one gauge reading; `under_way` is the number of this client's requests at the server."""
        rising = not self._running or gauges.running > min(self._running)
        preempted = self._preemptions is not None and gauges.preemptions > self._preemptions
        self._running.append(gauges.running)
        self._preemptions = gauges.preemptions
        self._calm = max(0, self._calm - 1)
        low, high = queue_band(gauges.running)
        if preempted:
            self.refused(under_way)
        elif gauges.waiting > high:
            # Reduce this client's share of an excessive queue, based on requests in flight. Each reading may do so,
            # because the requests in flight shrink as well.
            share = min(1.0, under_way / (gauges.running + gauges.waiting))
            wanted = under_way - math.ceil((gauges.waiting - (low + high) // 2) * share)
            self.window.resize(min(self.window.size, wanted))
        elif gauges.waiting < low and self.window.full(under_way):
            size = self.window.size
            unseen = max(0, under_way - gauges.running - gauges.waiting)
            ahead = gauges.waiting + unseen
            if self._calm:
                size += 1 if ahead < low else 0
            elif ahead < low and gauges.waiting == 0:
                size += max(2, size // 2 if gauges.kv_usage < 0.5 else size // 4)
            elif ahead < low:
                size += low - ahead
            elif gauges.waiting == 0 and not rising and size < 2 * (gauges.running + high):
                size = min(size + max(1, size // 10), 2 * (gauges.running + high))
            self.window.resize(size)

    def refused(self, under_way: int) -> None:
        """Reduce the window by a tenth after a 429 or 503 response, or a preemption.

        It is reduced again only after the requests in flight have fallen to the new size.
        """
        self._calm = _CALM
        if under_way <= self.window.size:
            self.window.resize(self.window.size - max(1, self.window.size // 10))


#: Assumed seconds of an answer before the first measurement.
_GUESS = 5.0
#: Shortest measurement in seconds, and its smallest number of answers.
_SHORTEST, _FEWEST = 2.0, 16
#: Share of the ideal gain that growth must reach.
_PAYS = 0.5
#: Measurements to hold after growth without gain, and their maximum.
_HOLD, _LONGEST_HOLD = 8, 32
#: Overhead of an answer in tokens, so that short answers count as work.
_PER_ANSWER = 100


class LatencySteering:
    """Steering by throughput: grow while throughput grows, hold when only latency does, halve at a refusal.

    It serves servers without gauges.
    """

    def __init__(self, window: Window, now: float) -> None:
        self.window = window
        self._latency = _GUESS
        self._known = False
        self._fast = True  # grow by half: no measurement has failed yet
        self._before: tuple[int, float, float] | None = None  # size, throughput, and latency before the growth
        self._came = False  # whether an answer arrived since the last tick
        self._held: tuple[float, float] | None = None  # throughput and latency at the start of holding
        self._hold_for = _HOLD
        self._hold_left = 0
        self._refused_at = float("-inf")
        self._measure_from(now)

    def answered(self, now: float, seconds: float, tokens: int) -> None:
        """Record a complete answer."""
        self._latency = seconds if not self._known else self._latency + 0.1 * (seconds - self._latency)
        self._known = self._came = True
        if now >= self._start:
            self._answers += 1
            self._work += _PER_ANSWER + tokens
            self._seconds += seconds

    def refused(self, now: float) -> None:
        """Process a 429 or 503 response: halve the window, at most once per answer duration."""
        if now - self._refused_at < self._latency:
            return
        self._refused_at = now
        self._fast = False
        self._before = self._held = None
        self._hold_left = 0
        self.window.resize(self.window.size // 2)
        self._measure_from(now + self._latency)

    def tick(self, now: float, full: bool) -> None:
        """Update the window; call about once a second. `full`: the requests in flight fill the window."""
        came, self._came = self._came, False
        if not full:  # the measurement says nothing about a window that is not full
            self._measure_from(now)
        elif (
            came
            and now - self._start >= max(_SHORTEST, self._latency)
            and self._answers >= max(_FEWEST, self.window.size)
        ):
            self._judge(self._work / (now - self._start), self._seconds / self._answers)
            self._measure_from(now + self._latency)  # until the requests from the old size have ended

    def _measure_from(self, start: float) -> None:
        self._start = start
        self._answers = 0
        self._work = 0
        self._seconds = 0.0

    def _judge(self, rate: float, latency: float) -> None:
        if self._before is not None:
            size, old_rate, old_latency = self._before
            self._before = None
            grown = self.window.size / size - 1.0
            if rate < old_rate * (1.0 + _PAYS * grown) and latency > old_latency:
                self._fast = False
                self.window.resize(size)
                self._hold_left, self._hold_for = self._hold_for, min(2 * self._hold_for, _LONGEST_HOLD)
                self._held = (old_rate, old_latency)
                return
            self._hold_for = _HOLD
        elif self._hold_left:
            self._hold_left -= 1
            if self._held is not None and rate < 0.8 * self._held[0] and latency > 1.4 * self._held[1]:
                # the server has slowed down
                self.window.resize(self.window.size - self.window.size // 5)
                self._held = (rate, 0.8 * latency)
            if self._hold_left > 0:
                return
        self._before = (self.window.size, rate, latency)
        step = self.window.size // 2 if self._fast else self.window.size // 8
        self.window.resize(self.window.size + max(2, step))


_TIMES = {1: "once", 2: "twice"}


def harm(deaths: int, hangs: int) -> str:
    """Return deaths and hangs in words: `died 4 times`, `died once and hung twice`."""
    counted = (("died", deaths), ("hung", hangs))
    return " and ".join(f"{what} {_TIMES.get(count, f'{count} times')}" for what, count in counted if count)


class Request:
    """Request in the caller's task for the duration of one `ServerPool.complete`.

    Older tickets have priority, also in replays.
    """

    __slots__ = (
        "_cancelling", "_revoked", "alone", "answered_before", "deaths", "hangs", "id", "left", "out",
        "pause", "place", "poisonous", "sent", "suspect_at", "task", "ticket",
    )  # fmt: skip

    def __init__(self, request_id: str, ticket: int) -> None:
        task = asyncio.current_task()
        assert task is not None  # a coroutine creates the request
        self.id = request_id
        self.ticket = ticket
        self.task = task
        self.place: asyncio.Future[ServerSession] | None = None  # set while the request waits for a place
        self.out = False  # the request has been sent
        self.sent = 0.0
        self.deaths = 0  # deaths of servers with this request in flight
        self.hangs = 0  # hangs of servers with this request in flight
        self.left = math.inf  # deaths or hangs, whichever are fewer, until quarantine
        self.answered_before = 0  # completed requests at the first death or hang of this request
        self.alone = 0  # number of the last deaths or hangs without other requests of this client in flight
        self.poisonous = False  # to be quarantined as soon as the server is known to complete other requests
        self.pause = 0.0  # seconds after a server's start before the request is sent there alone
        self.suspect_at: int | None = None  # number of the server where the request runs apart
        self._revoked = False
        self._cancelling = 0

    @property
    def waits(self) -> bool:
        """Whether the request waits for a place."""
        return self.place is not None and not self.place.done()

    @property
    def harm(self) -> str:
        """Deaths and hangs with this request in flight: `died 4 times`, `hung twice`."""
        return harm(self.deaths, self.hangs)

    def go(self, now: float) -> None:
        """Record that the request is being sent."""
        self.out = True
        self.sent = now
        self._cancelling = self.task.cancelling()

    def revoke(self) -> None:
        """Cancel the request's exchange with its server, as a timeout would; the task calls `pardoned`."""
        if self.out and not self._revoked and self.task is not asyncio.current_task():
            self._revoked = True
            self.task.cancel()

    def pardoned(self) -> bool:
        """Return True after a `CancelledError` if only `revoke` caused it; the task then continues."""
        if not self._revoked:
            return False
        self._revoked = False
        return self.task.uncancel() <= self._cancelling


#: Pauses in seconds after a 429 or 503: the first and the longest without Retry-After, and the longest with it.
FIRST_PAUSE, LONGEST_PAUSE, LONGEST_ASKED_PAUSE = 0.5, 60.0, 120.0
#: Two failed probes with this interval in seconds mean that a server is dead; the time limit of each probe.
_BETWEEN_PROBES, _PROBE = 0.5, 8.0
#: Seconds without requests after which another server may be at the address: loading a model takes longer.
_QUIET = 2.0
#: Seconds for connections to close.
_CLOSING = 5.0

_log = logging.getLogger(__name__)


class ServerSession:
    """Connections, window, and requests of one running server."""

    def __init__(
        self, number: int, name: str, endpoint: Endpoint, facts: ServerFacts, window: Window, *, managed: bool = True
    ) -> None:
        """Open the session. `managed`: this client is the only user of the server."""
        now = time.monotonic()
        self.managed = managed
        self.began = now
        self.number = number
        self.name = name
        self.endpoint = endpoint
        self.facts = facts
        self.window = window
        self.by_gauges = GaugeSteering(window)
        self.by_latency = LatencySteering(window, now)
        self.gauges: Gauges | None = None
        self.blind = not (facts.vllm or facts.gauges)  # the server has no gauges
        self.holders: set[Request] = set()  # requests with a place in the window
        self.death: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.replaced = ""  # which other model the server lists now, as a sentence
        self._doubted = -math.inf  # time at which another server may have replaced this one
        self._quiet_since = now  # end of the last request
        self.hung = False  # the server is alive, but its answers made no progress
        self.paused_until = 0.0
        self.stalled = 0  # stalled requests while a hang is being verified; nothing is sent during that time
        self._pauses = 0  # number of pauses since the last answer
        self._probe: asyncio.Task[bool] | None = None

    @property
    def alive(self) -> bool:
        """Whether the server accepts requests now or after a pause."""
        return not self.death.done()

    @property
    def under_way(self) -> int:
        """Requests that have been sent and have not ended."""
        return sum(1 for request in self.holders if request.out)

    def enter(self, request: Request) -> None:
        """Give the request a place."""
        if not self.holders and time.monotonic() - self._quiet_since > _QUIET:
            self.doubt()
        self.holders.add(request)

    def leave(self, request: Request) -> None:
        """Release the request's place."""
        self.holders.discard(request)
        request.out = False
        self._quiet_since = time.monotonic()

    def die(self, why: str) -> None:
        """End the session of a dead or hung server, and revoke all requests in flight."""
        if not self.death.done():
            self.death.set_result(why)
            for request in list(self.holders):
                request.revoke()

    def answered(self, seconds: float, tokens: int) -> None:
        """Record a complete answer."""
        self._pauses = 0
        self.by_latency.answered(time.monotonic(), seconds, tokens)

    def pause(self, sent: float, retry_after: float | None, *, refused: bool = True) -> None:
        """Send nothing for a while after a refused or undeliverable request that was sent at time `sent`.

        Without Retry-After the pause doubles each time. Requests sent before the end of the last pause are ignored.
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
        """Require an identity check at the next use.

        Reasons are a lost connection, a gateway without a server, or an idle server.
        """
        if self.facts.serves and not self.managed:
            self._doubted = time.monotonic()

    async def same(self) -> bool:
        """Return whether the original model is still served; checks only after `doubt`."""
        if self._doubted == -math.inf:
            return True
        doubted = self._doubted
        if not await self.answers():
            return not self.replaced  # the server is gone again; the next request shows its state
        if self._doubted == doubted:
            self._doubted = -math.inf
        return True

    async def answers(self) -> bool:
        """Return whether the same server answers. Concurrent callers share one probe."""
        if self._probe is None or self._probe.done():
            self._probe = asyncio.create_task(self._answers())
        probe = self._probe
        await asyncio.wait({probe})  # unlike `shield`, it does not pass on the cancellation of `close`
        return not probe.cancelled() and probe.result()

    async def _answers(self) -> bool:
        for pause in (_BETWEEN_PROBES, 0.0):
            try:
                async with asyncio.timeout(_PROBE):
                    if (facts := await self.endpoint.probe()) is not None:
                        if not self.managed and self.facts.serves and facts.serves not in ("", self.facts.serves):
                            self.replaced = f"it served {self.facts.serves} and now serves {facts.serves}"
                        return not self.replaced
            except TimeoutError:
                return True  # the port accepts connections; stalled requests show a hang
            except ServerError:
                return True  # the server refuses the probe, but is alive
            await asyncio.sleep(pause)
        return False

    async def close(self) -> None:
        """Close all connections."""
        if self._probe is not None:
            self._probe.cancel()
        try:
            async with asyncio.timeout(_CLOSING):
                await self.endpoint.close()
        except TimeoutError:
            _log.warning("%s: connections did not close within %g s", self.name, _CLOSING)


#: Consecutive failed readings after which a server counts as one without gauges.
_MISSES = 5
#: Time limit of one reading in seconds: a server that preprocesses images answers late.
_READING = 10.0


async def steer(service: ServerSession, dispatch: Callable[[], None], interval: float) -> None:
    """Steer the window until canceled; call `dispatch` after each step, because the window may have grown."""
    missing = 0
    while True:
        await asyncio.sleep(interval)
        if not service.blind:
            try:
                async with asyncio.timeout(_READING):
                    gauges = await service.endpoint.gauges()
            except TimeoutError:
                gauges = None
            if gauges is not None:
                missing = 0
                service.gauges = gauges
                service.by_gauges.read(gauges, service.under_way)
            else:
                missing += 1
                service.blind = missing >= _MISSES and service.gauges is None
        if service.blind:
            service.by_latency.tick(time.monotonic(), service.window.full(len(service.holders)))
        dispatch()
