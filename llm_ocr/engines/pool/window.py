"""Steer the number of requests in flight at one server. Pure: the caller passes the clock."""

import math
from collections import deque
from dataclasses import dataclass

from llm_ocr.engines import ServerFacts
from llm_ocr.engines.client.probing import Gauges
from llm_ocr.types import plural

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
    kv_tokens = _kv_tokens(facts)
    if not facts.vllm and kv_tokens is None:
        size = BLIND
        why = (
            f"follows the gauges of {facts.gauges}" if facts.gauges else "no gauges: controlled by latency and refusals"
        )
    else:
        if kv_tokens is None:
            at_once, reason = facts.max_num_seqs or UNKNOWN_VLLM, "the size of its KV cache is unknown"
        else:
            pages = max(1, kv_tokens // max(1, page_tokens))
            at_once = min(pages, facts.max_num_seqs or USUAL_SEQUENCES)
            reason = f"KV for {plural(pages, 'page')} of {page_tokens:,} tokens"
        queue = max(4, at_once // 8)
        size, why = at_once + queue, f"{reason}, {at_once:,} sequences at once + {queue} waiting"
    if cap is not None and cap < size:
        return max(1, cap), f"the configured maximum; otherwise {size:,} ({why})"
    return size, why


def describe(facts: ServerFacts, size: int, why: str) -> str:
    """Return the message for users about a ready server and the first size of its window."""
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
    made_up = "; its answers are made up, and their quality is not judged" if facts.simulated else ""
    return f"{known}window {size:,}: {why}{made_up}"


def _kv_tokens(facts: ServerFacts) -> int | None:
    if facts.kv_tokens is None and facts.max_concurrency and facts.max_model_len:
        return int(facts.max_concurrency * facts.max_model_len)
    return facts.kv_tokens


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
