"""How many requests may be under way at one server. Pure: no clock, no I/O."""

import math
from collections import deque
from dataclasses import dataclass

from llm_ocr.engines.chat.gauges import Gauges
from llm_ocr.engines.serving import ServerFacts

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
