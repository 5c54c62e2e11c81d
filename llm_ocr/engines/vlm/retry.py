"""Run the attempts for one page or figure: the retry ladder and the loop."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Generic, Protocol, TypeVar

from llm_ocr.engines import Completion, CompletionRequest, Engine
from llm_ocr.engines.vlm.judging import Verdict
from llm_ocr.engines.vlm.requests import LONGEST_BACKOFF, Clock, Step, Tries
from llm_ocr.errors import PageFailure, RequestError, RequestRefused
from llm_ocr.models.profile import Profile, Rung
from llm_ocr.types import Reason

# Position on the profile's retry ladder.


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


def rungs_as_json(rungs: Sequence[Rung]) -> list[dict[str, Any]]:
    """Return the ladder for a key."""
    return [asdict(rung) for rung in rungs]


# Attempts until an answer is sound or no further try is allowed.


ResultT = TypeVar("ResultT")


class Task(Protocol[ResultT]):
    """Requests and verdicts for one page or figure."""

    async def request(self, step: Step) -> CompletionRequest:
        """Return the request. Raises `PageFailure` if its image cannot be created."""

    async def judge(self, answer: Completion, step: Step) -> Verdict[ResultT]:
        """Judge the answer; never raises."""


@dataclass(frozen=True, slots=True)
class Found(Generic[ResultT]):
    """Text of an answer and its verdict."""

    verdict: Verdict[ResultT]
    text: str


@dataclass(frozen=True, slots=True)
class Ended(Generic[ResultT]):
    """Result of an attempt loop. `failure` is None for a sound `best`, otherwise the last failure.

    `final`: no other reader may read the page, because the page kills servers.
    """

    best: Found[ResultT] | None
    failure: PageFailure | None = None
    final: bool = False

    def shortfall(self, tries: int) -> str:
        """Return the fault of `best`, and the end of the tries if it differs; "" without both."""
        if self.best is None or self.failure is None:
            return ""
        verdict, failure = self.best.verdict, self.failure
        of_many = f"the best of {tries} tries" if tries > 1 else ""
        last = "" if verdict.reason is failure.reason else f"the last one: {failure.reason.value}: {failure.detail}"
        return joined(verdict.detail, of_many, last)


def joined(*parts: str) -> str:
    """Join the parts that are not empty as one detail."""
    return "; ".join(part for part in parts if part)


@dataclass(slots=True)
class AttemptLoop(Generic[ResultT]):
    """Loop over the requests of one task, up the ladder and within its tries.

    A bad answer moves up the ladder. A lost request is repeated unchanged after a pause. `malformed_left` limits the
    number of malformed answers; None: limited by the tries only. `MOST_LOOPS` limits answers with a loop, and
    `MOST_REASONED` those of reasoning alone. `rereads` limits the tries after a sound answer of low quality. The best
    sound answer is kept, whatever the later answers are.
    """

    engine: Engine
    task: Task[ResultT]
    ladder: Ladder
    tries: Tries
    on_dispatched: Callable[[], None]
    backoff: float
    malformed_left: int | None = None
    rereads: int = 0
    _best: Found[ResultT] | None = None
    _loops: int = 0  # answers with a loop
    _reasoned: int = 0  # answers of reasoning alone
    _lost: int = 0  # consecutive lost requests

    async def run(self) -> Ended[ResultT]:
        """Run the loop. Never raises `PageFailure`; `ServerError` propagates."""
        clock = Clock(self.on_dispatched)
        failure: PageFailure | None = None
        while self.tries.left and self._may_go_on():
            step = self.ladder.step
            try:
                request = await self.task.request(step)
            except PageFailure as unmade:
                return self._ended(unmade)
            try:
                clock.start()
                answer = await self.engine.complete(request, clock.on_sent)
            except RequestRefused as refusal:
                reason = Reason.TOO_LONG if refusal.too_long else Reason.REFUSED
                failure = self._failed(step, reason, str(refusal), clock)
                if not (refusal.too_long and self.ladder.shrink()):
                    return self._ended(failure)
            except RequestError as lost:
                failure = self._failed(step, Reason.SERVER_ERROR, str(lost), clock)
                await self._pause()
            except PageFailure as given_up:
                self.tries.failed(step, given_up.reason, given_up.detail, clock.spent())
                return self._ended(given_up, final=True)
            else:
                verdict = await self._judged(answer, step)
                if verdict.again or verdict.weak:
                    continue
                failure = PageFailure(verdict.reason, verdict.detail) if verdict.reason else None
                if failure is None or self._is_hopeless():
                    break
        return self._ended(failure)

    def _may_go_on(self) -> bool:
        if not self._is_final():
            return True
        self.rereads -= 1
        return self.rereads >= 0

    def _is_hopeless(self) -> bool:
        return self.malformed_left == 0 or self._loops == MOST_LOOPS or self._reasoned == MOST_REASONED

    def _is_final(self) -> bool:
        return self._best is not None and self._best.verdict.sound

    def _ended(self, failure: PageFailure | None, *, final: bool = False) -> Ended[ResultT]:
        return Ended(self._best) if self._is_final() else Ended(self._best, failure, final)

    def _failed(self, step: Step, reason: Reason, detail: str, clock: Clock) -> PageFailure:
        self.tries.failed(step, reason, detail, clock.spent())
        return PageFailure(reason, detail, retryable=reason is Reason.SERVER_ERROR)

    async def _pause(self) -> None:
        if self.tries.left and self.backoff > 0:
            await asyncio.sleep(min(self.backoff * 2.0 ** min(self._lost, 16), LONGEST_BACKOFF))
        self._lost += 1

    async def _judged(self, answer: Completion, step: Step) -> Verdict[ResultT]:
        self._lost = 0
        verdict = await self.task.judge(answer, step)
        counts = not verdict.again
        self.tries.answered(step, answer, verdict.reason, verdict.detail, counts=counts, quality=verdict.quality)
        if self._is_better(verdict):
            self._best = Found(verdict, answer.text)
        if verdict.sound and not verdict.weak:
            return verdict
        if verdict.again:
            return verdict
        self._loops += verdict.reason is Reason.LOOP
        self._reasoned += bool(answer.reasoned) and not answer.text.strip()
        if verdict.reason is Reason.MALFORMED and self.malformed_left is not None:
            self.malformed_left -= 1
        self.ladder.climb()
        return verdict

    def _is_better(self, verdict: Verdict[ResultT]) -> bool:
        """Return whether the verdict beats the kept one: sound beats unsound, and higher beats lower quality."""
        best = self._best.verdict if self._best else None
        if best is not None and best.sound:
            return verdict.sound and (verdict.quality or 0.0) > (best.quality or 0.0)
        return verdict.sound or verdict.worth > (best.worth if best else 0)
