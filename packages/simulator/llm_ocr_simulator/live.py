"""Engine model on the real clock: one timer for all requests."""

import asyncio
from dataclasses import dataclass, field

from llm_ocr_simulator.answers import SseStream
from llm_ocr_simulator.engine import EngineModel, RunningSequence

#: Minimum seconds between two writes of a stream: a wake-up per token would use a whole core.
TICK = 0.02
#: Minimum seconds between two wake-ups for ends: at a high --speed, steps take microseconds.
NEAREST = 0.001


@dataclass(eq=False, slots=True)
class Job:
    """Request in the engine: `done` is set when all its tokens exist."""

    sequence: RunningSequence
    stream: SseStream | None
    done: "asyncio.Future[None]"
    due: int = field(default=1)  # number of tokens at which the stream has text to write


class LiveEngine:
    """`EngineModel` driven by the event loop's clock; time 0 is its creation."""

    def __init__(self, model: EngineModel) -> None:
        self.model = model
        self._loop = asyncio.get_running_loop()
        self._origin = self._loop.time()
        self._frozen_at: float | None = None
        self._jobs: dict[RunningSequence, Job] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._streams = 0

    def now(self) -> float:
        """Return the seconds since the start; constant while the engine hangs."""
        if self._frozen_at is not None:
            return self._frozen_at
        return self._loop.time() - self._origin

    def freeze(self) -> None:
        """Hang the engine until `thaw`."""
        if self._frozen_at is None:
            self._tick()
            self._frozen_at = self.now()
            self._set_timer()

    def thaw(self) -> None:
        """Continue at the point where the engine stopped."""
        if self._frozen_at is not None:
            self._origin = self._loop.time() - self._frozen_at
            self._frozen_at = None
            self._set_timer()

    def submit(self, prompt: int, output: int, images: int, stream: SseStream | None) -> Job:
        """Submit a request that arrives now.

        Raises:
            ValueError: The request can never fit.
        """
        now = self.now()
        self._deliver(now)
        job = Job(self.model.submit(now, prompt, output, images), stream, self._loop.create_future())
        self._jobs[job.sequence] = job
        self._streams += stream is not None
        self._set_timer()
        return job

    def abort(self, job: Job) -> None:
        """Drop a request whose client disconnected."""
        if self._jobs.pop(job.sequence, None):
            self._streams -= job.stream is not None
            self._deliver(self.now())
            self.model.abort(job.sequence)
            self._set_timer()

    def fail_all(self, error: Exception) -> None:
        """End all requests with an error."""
        for job in list(self._jobs.values()):
            if not job.done.done():
                job.done.set_exception(error)

    def _tick(self) -> None:
        self._deliver(self.now())
        self._set_timer()

    def _deliver(self, now: float) -> None:
        """Advance the model to now, and deliver its output."""
        for sequence in self.model.advance(now):
            job = self._jobs.pop(sequence, None)
            if job is None:
                continue
            self._streams -= job.stream is not None
            if job.stream:
                job.stream.send(sequence.output)
            if not job.done.done():
                job.done.set_result(None)

    def _on_timer(self) -> None:
        self._tick()
        made = self.model.made
        for job in self._jobs.values():
            if job.stream and (tokens := made(job.sequence)) >= job.due:
                job.due = job.stream.send(tokens)

    def _set_timer(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None
        event = self.model.next_event() if self._frozen_at is None else None
        if event is None:
            return
        now = self.now()
        wake = max(event, now + NEAREST)
        if self._streams:
            # Absolute ticks: a late wake-up does not shift the later ones.
            wake = min(wake, (now // TICK + 1) * TICK)
        self._timer = self._loop.call_at(self._origin + wake, self._on_timer)
