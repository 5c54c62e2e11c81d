"""What a vLLM server did, from its own counters, read while a client works: the same measure for every client."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

from llm_ocr.engines.client.endpoint import Endpoint
from llm_ocr.engines.client.probing import Gauges

#: Seconds between looks.
EVERY = 0.2
#: The share of all tokens between which the server is steadily full.
STEADY = (0.2, 0.8)


@dataclass(frozen=True, slots=True)
class Sample:
    """The counters at a moment of `time.monotonic`."""

    at: float
    gauges: Gauges


@dataclass(slots=True)
class Watched:
    """All that was seen. `began` is when watching began, `ready` when the server first answered."""

    began: float = field(default_factory=time.monotonic)
    samples: list[Sample] = field(default_factory=list)

    @property
    def ready(self) -> float:
        """Raises SystemExit when no server was ever seen."""
        if not self.samples:
            raise SystemExit("the server was never seen: its /metrics did not answer")
        return self.samples[0].at


@dataclass(frozen=True, slots=True)
class Served:
    """What the server did. `steady`: tokens per second in the middle of the run."""

    requests: int
    tokens_in: int
    tokens_out: int
    steady: float
    running: int  # most at one time
    waiting: float  # mean of the middle of the run
    preemptions: int

    def as_json(self, seconds: float) -> dict[str, float]:
        """With the client's own seconds, from its first request to its last answer."""
        return {
            "requests": self.requests,
            "prompt_tokens": self.tokens_in,
            "output_tokens": self.tokens_out,
            "requests_s": round(seconds, 2),
            "pages_per_min": round(60 * self.requests / seconds, 1),
            "output_tokens_per_s": round(self.tokens_out / seconds, 1),
            "steady_output_tokens_per_s": round(self.steady, 1),
            "most_running": self.running,
            "mean_waiting": round(self.waiting, 1),
            "preemptions": self.preemptions,
        }


@contextlib.asynccontextmanager
async def watching(endpoint: Endpoint) -> AsyncIterator[Watched]:
    """Looks at the server's counters until the block ends; a server that does not answer is not there yet, or gone."""
    watched = Watched()
    task = asyncio.create_task(_watch(endpoint, watched))
    try:
        yield watched
        await asyncio.sleep(2 * EVERY)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _watch(endpoint: Endpoint, watched: Watched) -> None:
    while True:
        due = time.monotonic() + EVERY
        gauges = await endpoint.gauges()
        if gauges is not None:
            watched.samples.append(Sample(time.monotonic(), gauges))
        await asyncio.sleep(max(0.0, due - time.monotonic()))


def served(samples: Sequence[Sample]) -> Served:
    """What happened in these samples. Raises SystemExit when nothing did."""
    first, last = samples[0].gauges, samples[-1].gauges
    tokens = last.generation_tokens - first.generation_tokens
    if tokens <= 0:
        raise SystemExit("the server's counters did not move: no request reached it")
    low, high = (_crossing(samples, first.generation_tokens + share * tokens) for share in STEADY)
    middle = [one.gauges for one in samples if low <= one.at <= high] or [last]
    return Served(
        requests=last.finished - first.finished,
        tokens_in=last.prompt_tokens - first.prompt_tokens,
        tokens_out=tokens,
        steady=(STEADY[1] - STEADY[0]) * tokens / max(high - low, 1e-9),
        running=max(one.gauges.running for one in samples),
        waiting=sum(one.waiting for one in middle) / len(middle),
        preemptions=last.preemptions - first.preemptions,
    )


def _crossing(samples: Sequence[Sample], tokens: float) -> float:
    """When the counter of tokens reached this value, on the line between two samples."""
    before = samples[0]
    for one in samples:
        if one.gauges.generation_tokens >= tokens:
            step = one.gauges.generation_tokens - before.gauges.generation_tokens
            share = (tokens - before.gauges.generation_tokens) / step if step else 1.0
            return before.at + share * (one.at - before.at)
        before = one
    return samples[-1].at
