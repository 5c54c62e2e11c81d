"""Number of requests in flight at one server. Pure: the caller passes the clock."""

import math
from collections import deque
from dataclasses import dataclass
from enum import Enum, auto

from llm_ocr.engines import ServerFacts
from llm_ocr.engines.client.probing import Gauges

# How many requests may be under way at one server. Pure: no clock, no I/O.


#: vLLM whose KV cache is not known.
UNKNOWN_VLLM = 64
#: Servers without gauges: where their window begins.
BLIND = 16
#: Sequences at once to begin with where the server does not say how many it runs: a guess that leaves no flood waiting.
USUAL_SEQUENCES = 128
#: Gauge readings after a preemption or a refusal in which the window grows by ones only.
_CALM = 20
#: Readings over which `running` must have stood still before more is sent to a server that preprocesses.
_STILL = 3


@dataclass(frozen=True, slots=True)
class FirstSize:
    """The window to begin with, and a sentence that says why."""

    size: int
    why: str


def first_size(facts: ServerFacts, page_tokens: int, cap: int | None) -> FirstSize:
    """What fits into the KV cache, at most what the server runs at once, and a small queue; never above `cap`."""
    kv_tokens = _kv_tokens(facts)
    if not facts.vllm and kv_tokens is None:
        return _capped(BLIND, "no gauges: steered by latency and by refusals", cap)
    if kv_tokens is None:
        at_once, reason = facts.max_num_seqs or UNKNOWN_VLLM, "the size of its KV cache is not known"
    else:
        pages = max(1, kv_tokens // max(1, page_tokens))
        at_once = min(pages, facts.max_num_seqs or USUAL_SEQUENCES)
        reason = f"KV for {pages:,} pages of {page_tokens:,} tokens"
    queue = max(4, at_once // 8)
    return _capped(at_once + queue, f"{reason}, {at_once:,} sequences at once + {queue} waiting", cap)


def describe(facts: ServerFacts, first: FirstSize) -> str:
    """What a user is told when a server is ready."""
    parts = []
    if (kv_tokens := _kv_tokens(facts)) is not None:
        parts.append(f"{kv_tokens:,} KV tokens")
    maximum = facts.max_concurrency
    if maximum is None and kv_tokens is not None and facts.max_model_len:
        maximum = kv_tokens / facts.max_model_len
    if maximum is not None:
        length = f" of {facts.max_model_len:,} tokens" if facts.max_model_len else ""
        parts.append(f"vLLM's own maximum {maximum:.1f} requests{length}")
    known = f"{', '.join(parts)}; " if parts else ""
    return f"{known}window {first.size:,}: {first.why}"


def _kv_tokens(facts: ServerFacts) -> int | None:
    if facts.kv_tokens is None and facts.max_concurrency and facts.max_model_len:
        return int(facts.max_concurrency * facts.max_model_len)
    return facts.kv_tokens


def _capped(size: int, why: str, cap: int | None) -> FirstSize:
    if cap is not None and cap < size:
        return FirstSize(max(1, cap), f"the most that was asked for; else {size:,} ({why})")
    return FirstSize(size, why)


@dataclass(slots=True)
class Window:
    """How many requests may be under way; between 1 and `cap`."""

    size: int
    cap: int | None = None

    def resize(self, size: int) -> None:
        """Set it, within its bounds."""
        self.size = max(1, size if self.cap is None else min(size, self.cap))

    def full(self, under_way: int) -> bool:
        """Whether so many requests fill it. A few places are always just being given away."""
        return under_way >= self.size - self.size // 16


def queue_band(running: int) -> tuple[int, int]:
    """The fewest and the most requests that should wait in a server that runs `running`."""
    return max(2, math.ceil(running / 16)), max(4, math.ceil(running / 8))


class GaugeSteering:
    """Steers a window by vLLM's gauges, so that a small queue always waits there.

    Requests that the server preprocesses, or that are on their way, are in neither gauge. They count as a queue, not
    as room: a server whose wall is its preprocessing runs no more for getting more.
    """

    def __init__(self, window: Window) -> None:
        self.window = window
        self._running: deque[int] = deque(maxlen=_STILL)
        self._preemptions: int | None = None
        self._calm = 0

    def read(self, gauges: Gauges, under_way: int) -> None:
        """One reading; `under_way` are our own requests at that server."""
        rising = not self._running or gauges.running > min(self._running)
        preempted = self._preemptions is not None and gauges.preemptions > self._preemptions
        self._running.append(gauges.running)
        self._preemptions = gauges.preemptions
        self._calm = max(0, self._calm - 1)
        low, high = queue_band(gauges.running)
        if preempted:
            self._back_off(under_way)
        elif gauges.waiting > high:
            self._drain(gauges, under_way, (low + high) // 2)
        elif gauges.waiting < low and self.window.full(under_way):
            self._grow(gauges, under_way, rising)

    def refused(self, under_way: int) -> None:
        """The server answered 429 or 503."""
        self._back_off(under_way)

    def _back_off(self, under_way: int) -> None:
        """A tenth less; not again before the requests under way have come down to it."""
        self._calm = _CALM
        if under_way <= self.window.size:
            self.window.resize(self.window.size - max(1, self.window.size // 10))

    def _drain(self, gauges: Gauges, under_way: int, target: int) -> None:
        """Give up our share of what waits too much. From what is under way, so that it may be done at each reading."""
        share = min(1.0, under_way / (gauges.running + gauges.waiting))
        wanted = under_way - math.ceil((gauges.waiting - target) * share)
        self.window.resize(min(self.window.size, wanted))

    def _grow(self, gauges: Gauges, under_way: int, rising: bool) -> None:
        size = self.window.size
        low, high = queue_band(gauges.running)
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


# Steering a window by answers and refusals, for servers without gauges. Pure: the clock is given.


#: Answers' mean time until one is known, in seconds.
_GUESS = 5.0
#: Shortest measurement in seconds, and its fewest answers.
_SHORTEST, _FEWEST = 2.0, 16
#: Growth must bring this part of what it would in a server with room.
_PAYS = 0.5
#: Measurements to hold after growth that did not pay, and the most of them.
_HOLD, _LONGEST_HOLD = 8, 32
#: What an answer costs beside its tokens, in tokens: short answers are work too.
_PER_ANSWER = 100


class _Pace(Enum):
    FAST = auto()  # by half: nothing has stood against it yet
    SLOW = auto()  # by a few


class LatencySteering:
    """Grows the window while work done per second grows with it, holds when only latency does, halves at a refusal."""

    def __init__(self, window: Window, now: float) -> None:
        self.window = window
        self._latency = _GUESS
        self._known = False
        self._pace = _Pace.FAST
        self._before: tuple[int, float, float] | None = None  # size, work per second and latency before it grew
        self._came = False  # an answer, since the last tick
        self._held: tuple[float, float] | None = None  # work per second and latency when holding began
        self._hold_for = _HOLD
        self._hold_left = 0
        self._refused_at = float("-inf")
        self._measure_from(now)

    @property
    def latency(self) -> float:
        """Seconds that an answer takes; a running mean."""
        return self._latency

    def answered(self, now: float, seconds: float, tokens: int) -> None:
        """One answer came whole."""
        self._latency = seconds if not self._known else self._latency + 0.1 * (seconds - self._latency)
        self._known = self._came = True
        if now >= self._start:
            self._answers += 1
            self._work += _PER_ANSWER + tokens
            self._seconds += seconds

    def refused(self, now: float) -> None:
        """The server answered 429 or 503. Halves, at most once in the time that an answer takes."""
        if now - self._refused_at < self._latency:
            return
        self._refused_at = now
        self._pace = _Pace.SLOW
        self._before = self._held = None
        self._hold_left = 0
        self.window.resize(self.window.size // 2)
        self._measure_from(now + self._latency)

    def tick(self, now: float, full: bool) -> None:
        """To be called about every second; `full`: as many requests are under way as the window allows."""
        came, self._came = self._came, False
        if not full:  # what is measured now says nothing of the window
            self._measure_from(now)
        elif (
            came
            and now - self._start >= max(_SHORTEST, self._latency)
            and self._answers >= max(_FEWEST, self.window.size)
        ):
            self._judge(self._work / (now - self._start), self._seconds / self._answers)
            self._measure_from(now + self._latency)  # until what was under way at the old size has gone

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
                self._pace = _Pace.SLOW
                self.window.resize(size)
                self._hold_left, self._hold_for = self._hold_for, min(2 * self._hold_for, _LONGEST_HOLD)
                self._held = (old_rate, old_latency)
                return
            self._hold_for = _HOLD
        elif self._hold_left and self._holds(rate, latency):
            return
        self._before = (self.window.size, rate, latency)
        step = self.window.size // 2 if self._pace is _Pace.FAST else self.window.size // 8
        self.window.resize(self.window.size + max(2, step))

    def _holds(self, rate: float, latency: float) -> bool:
        """One measurement while holding: less where the server has become slower. False when the hold is over."""
        self._hold_left -= 1
        if self._held is not None and rate < 0.8 * self._held[0] and latency > 1.4 * self._held[1]:
            self.window.resize(self.window.size - self.window.size // 5)
            self._held = (rate, 0.8 * latency)
        return self._hold_left > 0
