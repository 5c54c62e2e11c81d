"""Steering a window by answers and refusals, for servers without gauges. Pure: the clock is given."""

from enum import Enum, auto

from llm_ocr.engines.fleet.window import Window

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
