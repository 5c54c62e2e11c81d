"""The numbers of a stage over time, taken while it runs."""

import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from llm_ocr.engines.asking import Load
from llm_ocr.types import Status
from llm_ocr.work.series import COUNTS, FIRST, GAUGES, MOST, Sample, Series, merged, thinned

Clock = Callable[[], float]


class Sampler:
    """Makes one stage's `Series`: `count` at each end of an item, `tick` about every second.

    `load` are the engine's numbers, None where no engine tells any. `clock` counts seconds and never goes back.
    """

    def __init__(self, load: Callable[[], Load] | None, clock: Clock = time.monotonic) -> None:
        self._load = load
        self._clock = clock
        self._every = FIRST
        self._began = self._since = clock()
        self._ended = dict.fromkeys(Status, 0)
        self._known = self._counts()
        self._seen: Sample | None = None  # what has passed of the sample under way
        self._samples: tuple[Sample, ...] = ()
        self.first: float | None = None  # seconds until the first item ended

    def count(self, status: Status) -> None:
        """One more item ended."""
        self._ended[status] += 1
        if self.first is None:
            self.first = self._clock() - self._began

    def tick(self) -> None:
        """Look at the numbers now; the gauges are taken for those of the time since the last look."""
        now = self._clock()
        if now <= self._since:
            return
        seconds, self._since = now - self._since, now
        before, self._known = self._known, self._counts()
        gone = {name: self._known[name] - before[name] for name in COUNTS}
        passed = Sample(seconds, **gone, **self._gauges())
        self._seen = passed if self._seen is None else merged(self._seen, passed)
        if self._seen.seconds >= self._every:
            self._samples, self._seen = (*self._samples, self._seen), None
            self._thin()

    def series(self, worker: str, stage: str, batch_id: str, before: float) -> Series:
        """All until now, as `worker`'s; `before` as in `Series`."""
        self.tick()
        samples = self._samples if self._seen is None else (*self._samples, self._seen)
        began = time.time() - (self._clock() - self._began)
        return Series(worker, stage, batch_id, began, before, self.first, samples)

    def _thin(self) -> None:
        if len(self._samples) > MOST:
            self._samples = thinned(self._samples, MOST)
            self._every *= 2

    def _counts(self) -> dict[str, int]:
        load = self._load() if self._load else Load()
        return {
            **{status.value: count for status, count in self._ended.items()},
            "tokens_in": load.tokens_in,
            "tokens_out": load.tokens_out,
            "retries": load.busy + load.lost,
            "restarts": load.restarts,
        }

    def _gauges(self) -> dict[str, Any]:
        if self._load is None:
            return {}
        load = self._load()
        values = asdict(load)
        return {name: None if values[name] is None else float(values[name]) for name in GAUGES}
