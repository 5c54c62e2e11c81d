"""Run the attempts for one page or figure: the retry ladder and the loop."""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from llm_ocr.engines import Completion, CompletionRequest, Engine
from llm_ocr.engines.vlm.judging import Verdict
from llm_ocr.engines.vlm.requests import LONGEST_BACKOFF, Step, Tries
from llm_ocr.errors import PageFailure, RequestError, RequestRefused
from llm_ocr.models.profile import Profile, Rung
from llm_ocr.types import Reason

#: Factors for a request that exceeds the context: for the sides of its image, and for its answer, a possible cause.
SHRINK_IMAGE, SHRINK_ANSWER = 0.7, 0.5
#: Maximum answers with a loop per page: on higher rungs, most pages that loop so often loop again.
MOST_LOOPS = 4
#: Maximum answers of reasoning alone: the server's settings are the cause, and another try has the same.
MOST_REASONED = 2
#: Maximum times that an image is made smaller: to a quarter of its sides.
MOST_SHRINKS = 4


class Ladder:
    """Retry ladder that returns the next request. The last rung repeats; without rungs the first request repeats.

    `resizes`: images can be scaled down. Otherwise, a request that does not fit only requests a shorter answer.
    """

    def __init__(self, first: Step, rungs: Sequence[Rung], *, resizes: bool = True) -> None:
        self._first = first
        self._rungs = rungs
        self._shrink_image = SHRINK_IMAGE if resizes else 1.0
        self._climbed = 0
        self._shrunk = 0  # times
        self._most_shrinks = MOST_SHRINKS if resizes else 1

    @property
    def step(self) -> Step:
        """Settings of the next request. A rung never lowers the temperature: the same answer would repeat."""
        step = self._first
        if self._climbed and self._rungs:
            rung = self._rungs[min(self._climbed, len(self._rungs)) - 1]
            warmer = step.temperature if rung.temperature is None else max(rung.temperature, step.temperature)
            step = replace(step, mode=rung.mode or step.mode, temperature=warmer, scale=rung.scale)
        if self._shrunk:
            smaller = max(1, int(step.max_tokens * SHRINK_ANSWER))
            step = replace(step, scale=step.scale * self._shrink_image**self._shrunk, max_tokens=smaller)
        return step

    def climb(self) -> None:
        """Move up one rung after a bad answer."""
        self._climbed += 1

    def shrink(self) -> bool:
        """Shrink all further requests after one that did not fit; return False if they are already small.

        The answer is halved once. A small encoder cache of the server may require a much smaller image.
        """
        self._shrunk += 1
        return self._shrunk <= self._most_shrinks


def rungs_for(profile: Profile, *, modes: bool = True, scales: bool = True) -> tuple[Rung, ...]:
    """Return the profile's ladder without prompts or image sizes that do not apply."""
    rungs = [
        replace(rung, mode=rung.mode if modes else None, scale=rung.scale if scales else 1.0) for rung in profile.ladder
    ]
    return tuple(rung for rung in rungs if rung != Rung())


ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True)
class Ended(Generic[ResultT]):
    """Result of an attempt loop. `failure` is None for a sound `best`, otherwise the last failure.

    `final`: no other reader may read the page, because the page kills servers.
    """

    tries: Tries
    best: Verdict[ResultT] | None = None
    failure: PageFailure | None = None
    final: bool = False

    @property
    def shortfall(self) -> str:
        """Fault of `best`, and the end of the tries if it differs; "" without both."""
        if self.best is None or self.failure is None:
            return ""
        failure, tries = self.failure, len(self.tries.rows)
        of_many = f"the best of {tries} tries" if tries > 1 else ""
        last = "" if self.best.reason is failure.reason else f"the last one: {failure.reason.value}: {failure.detail}"
        return joined(self.best.detail, of_many, last)


def joined(*parts: str) -> str:
    """Join the parts that are not empty as one detail."""
    return "; ".join(part for part in parts if part)


@dataclass(slots=True)
class _Clock:
    """Times of the handover of a request to the engine and of its dispatch, in seconds.

    The clock forwards only the first dispatch: a page leaves the queue once, regardless of its requests.
    """

    on_dispatched: Callable[[], None]
    started: float = 0.0
    sent: float | None = None
    dispatched: bool = False

    def on_sent(self) -> None:
        self.sent = time.monotonic()
        if not self.dispatched:
            self.dispatched = True
            self.on_dispatched()

    def spent(self) -> tuple[float, float]:
        """Return the seconds in flight and the seconds of waiting before, until now."""
        now = time.monotonic()
        sent = now if self.sent is None else self.sent
        return now - sent, sent - self.started


def _is_better(verdict: Verdict[ResultT], best: Verdict[ResultT] | None) -> bool:
    """Compare with the kept answer: sound beats unsound, and higher beats lower quality."""
    if best is not None and best.sound:
        return verdict.sound and (verdict.quality or 0.0) > (best.quality or 0.0)
    return verdict.sound or verdict.worth > (best.worth if best else 0)


def _ended(
    tries: Tries, best: Verdict[ResultT] | None, failure: PageFailure | None, *, final: bool = False
) -> Ended[ResultT]:
    """A sound answer has no failure, whatever the later answers are."""
    return Ended(tries, best) if best is not None and best.sound else Ended(tries, best, failure, final)


async def run_attempts(
    engine: Engine,
    make_request: Callable[[Step], Awaitable[CompletionRequest]],
    judge: Callable[[Completion, Step], Awaitable[Verdict[ResultT]]],
    ladder: Ladder,
    tries: Tries,
    on_dispatched: Callable[[], None],
    backoff: float,
    *,
    most_malformed: int | None = None,
    rereads: int = 0,
) -> Ended[ResultT]:
    """Send requests for one page, figure, or region, up the ladder and within its tries.

    A bad answer moves up the ladder. A lost request is repeated unchanged after a pause. `MOST_LOOPS` limits answers
    with a loop, and `MOST_REASONED` those of reasoning alone. The best sound answer is kept, whatever the later answers
    are. `PageFailure` is part of the result.

    Args:
        engine: Engine that completes the requests.
        make_request: Returns the request of a step. Raises `PageFailure` if its image cannot be created.
        judge: Judges the answer of a step; never raises.
        ladder: Position on the retry ladder.
        tries: Receives one row for each request.
        on_dispatched: Called when the first request is sent, once: a page leaves the queue once.
        backoff: Seconds before a lost request is repeated; doubled each time.
        most_malformed: Limit of malformed answers; None: limited by the tries only.
        rereads: Limit of the tries after a sound answer of low quality.

    Raises:
        ServerError: No server is available.
    """
    best: Verdict[ResultT] | None = None
    failure: PageFailure | None = None
    faults: Counter[Reason] = Counter()
    reasoned = 0  # answers of reasoning alone
    lost = 0  # consecutive lost requests
    clock = _Clock(on_dispatched)
    while tries.left and (rereads > 0 or best is None or not best.sound):
        rereads -= best is not None and best.sound
        step = ladder.step
        try:
            request = await make_request(step)
        except PageFailure as unmade:
            return _ended(tries, best, unmade)
        clock.started, clock.sent = time.monotonic(), None
        try:
            answer = await engine.complete(request, clock.on_sent)
        except RequestRefused as refusal:
            reason = Reason.TOO_LONG if refusal.too_long else Reason.REFUSED
            tries.add(step, reason, str(refusal), *clock.spent())
            failure = PageFailure(reason, str(refusal))
            if not (refusal.too_long and ladder.shrink()):
                break
            continue
        except RequestError as error:
            tries.add(step, Reason.SERVER_ERROR, str(error), *clock.spent())
            failure = PageFailure(Reason.SERVER_ERROR, str(error), retryable=True)
            if tries.left and backoff > 0:
                await asyncio.sleep(min(backoff * 2.0 ** min(lost, 16), LONGEST_BACKOFF))
            lost += 1
            continue
        except PageFailure as given_up:
            tries.add(step, given_up.reason, given_up.detail, *clock.spent())
            return _ended(tries, best, given_up, final=True)
        lost = 0
        verdict = await judge(answer, step)
        tries.add(
            step,
            verdict.reason,
            verdict.detail,
            answer.seconds,
            answer.waited,
            answer,
            counts=not verdict.again,
            quality=verdict.quality,
        )
        if _is_better(verdict, best):
            best = replace(verdict, raw=answer.text)
        if verdict.again:
            continue
        if verdict.sound and not verdict.weak:
            break
        ladder.climb()
        if verdict.reason is None:
            continue
        failure = PageFailure(verdict.reason, verdict.detail)
        faults[verdict.reason] += 1
        reasoned += bool(answer.reasoned) and not answer.text.strip()
        if faults[Reason.MALFORMED] == most_malformed or faults[Reason.LOOP] == MOST_LOOPS or reasoned == MOST_REASONED:
            break
    return _ended(tries, best, failure)
