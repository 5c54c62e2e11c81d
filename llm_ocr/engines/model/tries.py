"""The requests made for one page or figure: each as a row of JSON values, and their sums."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from llm_ocr.engines.asking import Answer
from llm_ocr.types import Reason, Status


@dataclass(frozen=True, slots=True)
class Step:
    """What one request asks with. `scale` is of the image's sides; `max_tokens` of the answer."""

    mode: str
    temperature: float
    max_tokens: int
    scale: float = 1.0


@dataclass(slots=True)
class Clock:
    """When a request was handed over and when it went out, by the engine's call of `admitted`; in seconds.

    Passes that call on, the first time only: a page leaves the queue once, however often it is asked for.
    """

    admitted: Callable[[], None]
    _asked: float = 0.0
    _out: float | None = None
    _told: bool = False

    def start(self) -> None:
        """A request is handed to the engine now."""
        self._asked, self._out = time.monotonic(), None

    def went_out(self) -> None:
        """For the engine: the request goes out now."""
        self._out = time.monotonic()
        if not self._told:
            self._told = True
            self.admitted()

    def spent(self) -> tuple[float, float]:
        """Seconds under way and seconds waited before, until now."""
        now = time.monotonic()
        out = now if self._out is None else self._out
        return now - out, out - self._asked


@dataclass(slots=True)
class Tries:
    """At most `limit` requests, beside those that do not count."""

    limit: int
    rows: list[Mapping[str, Any]] = field(default_factory=list)
    tokens_in: int = 0
    tokens_out: int = 0
    seconds: float = 0.0
    uncounted: int = 0

    @property
    def left(self) -> bool:
        return len(self.rows) - self.uncounted < self.limit

    def answered(
        self,
        step: Step,
        answer: Answer,
        reason: Reason | None,
        detail: str,
        *,
        counts: bool = True,
        quality: float | None = None,
    ) -> None:
        """A request that was answered; `reason` says why the answer is no good."""
        self.uncounted += not counts
        self.tokens_in += answer.tokens_in
        self.tokens_out += answer.tokens_out
        self._add(step, reason, detail, answer.seconds, answer.waited, answer)
        if quality is not None:
            self.rows[-1] = {**self.rows[-1], "quality": quality}

    def failed(self, step: Step, reason: Reason, detail: str, spent: tuple[float, float]) -> None:
        """A request without an answer; `spent` as `Clock.spent` says."""
        self._add(step, reason, detail, *spent, None)

    def _add(
        self, step: Step, reason: Reason | None, detail: str, seconds: float, waited: float, answer: Answer | None
    ) -> None:
        self.seconds += seconds
        self.rows.append(
            {
                "status": (Status.FAILED if reason else Status.OK).value,
                "reason": reason.value if reason else None,
                "temperature": step.temperature,
                "mode": step.mode,
                "scale": round(step.scale, 4),
                "tokens_in": answer.tokens_in if answer else 0,
                "tokens_out": answer.tokens_out if answer else 0,
                "seconds": round(seconds, 4),
                "waited": round(waited, 4),
                "server": answer.server if answer else "",
                "detail": detail,
                **({"tokens_estimated": True} if answer and answer.estimated else {}),
            }
        )
