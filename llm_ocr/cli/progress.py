"""Progress of a stage: a live line on a terminal, plain lines otherwise, nothing if quiet."""

import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TextIO

from llm_ocr.cli.output import harmless, paragraph, with_flags, write_line
from llm_ocr.config.environment import environment
from llm_ocr.config.groups import LogSettings
from llm_ocr.engines import Load
from llm_ocr.stages import Progress, Silent
from llm_ocr.types import Counts, Status, plural

if TYPE_CHECKING:
    from rich.progress import Progress as Bars
    from rich.progress import TaskID


#: Length in seconds of the window over which the speed is measured.
WINDOW = 30.0
#: Pages of Assemble that end within this many seconds belong to one item. No speed is known in the first such period.
BURST = 1.0
#: Pages that end within this many seconds are counted together, as those of a unit that another machine published.
AT_ONCE = 0.1


@dataclass(slots=True)
class EngineMeter:
    """Live numbers of an engine, read on each call of `words`, with tokens per second over the last half minute."""

    load: Callable[[], Load]
    clock: Callable[[], float]
    _seen: deque[tuple[float, int]] = field(default_factory=deque)

    def __post_init__(self) -> None:
        self._seen.append((self.clock(), self.load().tokens_out))

    def words(self) -> str:
        """Return `5,310 tok/s, 120 of 128 in flight, 7 waiting, 2 busy, 1 lost, 1 restart`, without zeros."""
        load = self.load()
        if not load.servers:
            return "server starting" if not load.answers else "server restarting"
        # A window that has just shrunk is below the requests in flight, until those are answered.
        within = load.in_flight <= load.window
        places = (
            f"{load.in_flight} of {load.window} in flight"
            if within
            else f"{load.in_flight} in flight, window {load.window}"
        )
        moment = self.clock()
        self._seen.append((moment, load.tokens_out))
        while len(self._seen) > 2 and self._seen[1][0] <= moment - WINDOW:
            self._seen.popleft()
        first, before = self._seen[0]
        speed = (load.tokens_out - before) / (moment - first) if moment > first else 0.0
        parts = [f"{speed:,.0f} tok/s", places]
        parts += [f"{load.waiting} waiting"] if load.waiting else []
        named = ((load.busy, "busy"), (load.lost, "lost"), (load.restarts, "restarted"))
        return ", ".join([*parts, *(f"{count} {name}" for count, name in named if count)])


#: A plain line is written at least this often (seconds), or after each further tenth of the work.
EVERY, SHARES = 10.0, 10
#: Minimum time between two plain lines, in seconds.
APART = 1.0
#: Units of stages that do not count pages.
NOUNS = {"describe": "figure", "export": "file", "fields": "document"}

Clock = Callable[[], float]


@contextmanager
def shown_progress(settings: LogSettings) -> Iterator[Progress]:
    """Show progress on standard error as the settings say, while the block runs."""
    if settings.quiet:
        yield Silent()
    elif not sys.stderr.isatty() or environment().get("TERM") == "dumb":
        yield PlainProgress(sys.stderr)
    else:
        live = LiveProgress(sys.stderr)
        try:
            yield live
        finally:
            live.close()


@dataclass(slots=True)
class Meter:
    """Counts of one stage, its speed, its remaining time, and its costs. All times are in seconds.

    `spent` returns the costs of the workspace so far, in dollars. Later costs of other workers are in no number until
    this worker counts their pages.
    """

    stage: str
    expected: int
    before: Counts  # finished in earlier runs
    clock: Clock
    engine: EngineMeter | None = None
    estimated: bool = False
    spent: Callable[[], float] | None = None
    now: Counts = field(default_factory=Counts)
    started: float = 0.0
    spent_before: float = 0.0
    first: float | None = None  # time of the first page of this run
    opening: int = 0  # pages that were counted together with the first
    ends: deque[float] = field(default_factory=deque)

    def __post_init__(self) -> None:
        self.started = self.clock()
        self.spent_before = self.spent() if self.spent else 0.0

    def count(self, status: Status) -> None:
        """Count one finished page."""
        self.now += Counts(
            ok=int(status is Status.OK), degraded=int(status is Status.DEGRADED), failed=int(status is Status.FAILED)
        )
        self.ends.append(self.clock())
        self.first = self.ends[-1] if self.first is None else self.first
        self.opening += self.ends[-1] - self.first <= AT_ONCE

    def correct(self, change: int, exact: bool) -> None:
        """Correct the expected count."""
        self.expected += change
        self.estimated = not exact

    @property
    def done(self) -> int:
        """Return the finished pages, earlier runs included."""
        return self.before.ended + self.now.ended

    def speed(self) -> float:
        """Return pages per second over the last half minute; 0 until a second after the first page of this run.

        The time until the first page is not counted: a server that starts reads nothing for minutes. Assemble ends all
        pages of an item at once. Its speed is that of the whole run, and 0 until a second item ends.
        """
        moment = self.clock()
        if self.stage == "assemble" and self.ends:
            known = self.first is not None and self.ends[-1] - self.first >= BURST
            return self.now.ended / (moment - self.started) if known else 0.0
        while self.ends and self.ends[0] < moment - WINDOW:
            self.ends.popleft()
        if self.first is None or moment - self.first < BURST:
            return 0.0
        span = min(WINDOW, moment - self.first)
        return (len(self.ends) - (self.opening if span < WINDOW else 0)) / span

    def left(self) -> float | None:
        """Return the remaining seconds at this speed, or None if unknown."""
        speed = self.speed()
        return max(0, self.expected - self.done) / speed if speed > 0 else None

    def words(self) -> str:
        """Return `120/412 pages, 118 ok, 1 degraded, 1 failed`, or `120 of about 412 pages, ...` for an estimate."""
        noun = NOUNS.get(self.stage, "page")
        expected = f" of {about(self.expected)} {noun}s" if self.estimated else f"/{plural(self.expected, noun)}"
        return f"{self.done:,}{expected}, {outcome(self.before + self.now)}"

    def pace(self) -> str:
        """Return `12.3 pages/s, 0:24 left, $0.42 of about $3.10, 5,310 tok/s, 120 of 128 in flight`, if known."""
        speed, left = self.speed(), self.left()
        parts = []
        if left is not None:
            parts.append(f"{speed:.{1 if speed >= 1 else 2}f} {NOUNS.get(self.stage, 'page')}s/s")
            parts.append(f"{span_text(left)} left")
        if self.spent is not None:
            parts.append(self.costs(self.spent()))
        if self.engine is not None:
            parts.append(self.engine.words())
        return ", ".join(parts)

    def costs(self, now: float) -> str:
        """Return `$0.42 of about $3.10`: costs so far, and at the stage's end. The pages of this run cost the same."""
        each = (now - self.spent_before) / max(1, self.now.ended)
        end = max(now, self.spent_before + each * (max(0, self.expected - self.done) + self.now.ended))
        # Four digits after the point for less than a cent.
        words = [f"${value:,.{2 if value >= 0.01 or value == 0 else 4}f}" for value in (now, end)]
        return " of about ".join(words if self.now.ended else words[:1])


def outcome(counts: Counts) -> str:
    """Return `412 ok, 3 degraded, 1 failed`, without zeros in the last two."""
    parts = [f"{counts.ok:,} ok"]
    parts += [f"{counts.degraded:,} degraded"] if counts.degraded else []
    parts += [f"{counts.failed:,} failed"] if counts.failed else []
    return ", ".join(parts)


def about(count: int) -> str:
    """Return `about 412` or `about 1,234,000`, with no more digits than an estimate has."""
    digits = max(0, len(str(count)) - 4)
    return f"about {round(count, -digits):,}"


def span_text(seconds: float) -> str:
    """Return `0:24`, `12:03`, or `3:04:05`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


class _Metering:
    """State that both displays share."""

    def __init__(self, stream: TextIO, clock: Clock = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._meter: Meter | None = None
        self._engine: EngineMeter | None = None
        self._spent: Callable[[], float] | None = None

    def measure(self, load: Callable[[], Load]) -> None:
        self._engine = EngineMeter(load, self._clock)

    def price(self, spent: Callable[[], float]) -> None:
        """Set the function that returns the costs of the workspace, in dollars."""
        self._spent = spent

    def _begun(self, stage: str, expected: int, done: Counts, estimated: bool) -> Meter:
        spent = None if stage == "assemble" else self._spent
        self._meter = Meter(stage, expected, done, self._clock, self._engine, estimated, spent)
        return self._meter


class PlainProgress(_Metering):
    """Lines for logs: at the start of a stage, every ten seconds or ten percent, and at its end."""

    _last = (0.0, 0)  # time of the last line, and finished pages at that time

    def begin(self, stage: str, expected: int, done: Counts, estimated: bool = False) -> None:
        meter = self._begun(stage, expected, done, estimated)
        self._last = (meter.started, meter.done)
        before = f", {meter.done:,} already done" if meter.done else ""
        noun = NOUNS.get(stage, "page")
        self.say(f"{stage}: {f'{about(expected)} {noun}s' if estimated else plural(expected, noun)}{before}")

    def correct(self, change: int, *, exact: bool) -> None:
        if self._meter is not None:
            self._meter.correct(change, exact)

    def count(self, status: Status) -> None:
        meter = self._meter
        if meter is None:
            return
        meter.count(status)
        moment = self._clock()
        waited, grown = moment - self._last[0], meter.done - self._last[1]
        due = waited >= EVERY or (grown * SHARES >= meter.expected and waited >= APART)
        if due and meter.done < meter.expected:
            self._last = (moment, meter.done)
            self.say(f"{meter.stage}: {', '.join(filter(None, (meter.words(), meter.pace())))}")

    def say(self, message: str) -> None:
        write_line(paragraph(message), self._stream)

    def end(self) -> None:
        meter, self._meter, self._engine = self._meter, None, None
        if meter is not None:
            self.say(f"{meter.stage}: {meter.words()} in {span_text(self._clock() - meter.started)}")


class LiveProgress(_Metering):
    """One line per stage, redrawn in place: bar, pages, outcome, speed, remaining time."""

    _bars: "Bars | None" = None
    _task: "TaskID | None" = None

    def begin(self, stage: str, expected: int, done: Counts, estimated: bool = False) -> None:
        bars = self._bars = self._bars or _bars(self._stream)
        meter = self._begun(stage, expected, done, estimated)
        bars.start()
        self._task = bars.add_task(stage, total=max(1, expected), completed=meter.done, meter=meter)

    def correct(self, change: int, *, exact: bool) -> None:
        if self._bars is not None and self._meter is not None and self._task is not None:
            self._meter.correct(change, exact)
            self._bars.update(self._task, total=max(1, self._meter.expected))

    def count(self, status: Status) -> None:
        if self._bars is not None and self._meter is not None and self._task is not None:
            self._meter.count(status)
            self._bars.update(self._task, completed=self._meter.done)

    def say(self, message: str) -> None:
        if self._bars is None:
            write_line(paragraph(message), self._stream)
        else:
            self._bars.console.print(
                harmless(with_flags(paragraph(message))), markup=False, highlight=False, soft_wrap=True
            )

    def end(self) -> None:
        if self._bars is not None and self._task is not None and self._meter is not None:
            self._bars.update(self._task, completed=max(1, self._meter.expected), ended=True)
            self._bars.refresh()
            self._bars.stop_task(self._task)
        self._task = self._meter = self._engine = None

    def close(self) -> None:
        """Stop drawing; the drawn lines stay on the screen in order. Repeated calls are allowed."""
        if self._bars is not None:
            self._bars.stop()
            self._bars = None


def _bars(stream: TextIO) -> "Bars":
    from rich.console import Console
    from rich.progress import BarColumn, ProgressColumn, Task, TextColumn
    from rich.progress import Progress as RichProgress
    from rich.text import Text

    class Numbers(ProgressColumn):
        """Counts during the stage; counts and elapsed time at its end."""

        def render(self, task: Task) -> Text:
            meter = task.fields["meter"]
            tail = f"in {span_text(task.elapsed or 0.0)}" if task.fields.get("ended") else meter.pace()
            return Text(f"{meter.words()}  {tail}".rstrip())

    return RichProgress(
        TextColumn("{task.description:<9}"),
        BarColumn(bar_width=24),
        Numbers(),
        console=Console(file=stream),
        refresh_per_second=4,
    )
