"""Progress of a stage: a live line on a terminal, plain lines otherwise, nothing if quiet."""

import sys
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from llm_ocr.cli.output import harmless, paragraph, with_flags, write_line
from llm_ocr.config.environment import environment
from llm_ocr.config.groups import LogSettings
from llm_ocr.engines import Load
from llm_ocr.stages import Progress, Silent
from llm_ocr.types import Counts, Status, plural

if TYPE_CHECKING:
    from rich.progress import Progress as Bars
    from rich.progress import TaskID


@dataclass(slots=True)
class SpendMeter:
    """Costs of a workspace and of the stage at its end; `spent` returns the costs of the workspace so far, in dollars.

    Later costs of other workers are in neither number until this worker counts their pages.
    """

    spent: Callable[[], float]
    _before: float = field(init=False)

    def __post_init__(self) -> None:
        self._before = self.spent()

    def words(self, ended: int, expected: int) -> str:
        """Return `$0.42 of about $3.10`: costs so far, and at the stage's end.

        `ended` of `expected` pages count this run only.
        """
        now = self.spent()
        if not ended:
            return _money(now)
        each = (now - self._before) / ended
        return f"{_money(now)} of about {_money(max(now, self._before + each * expected))}"


def _money(value: float) -> str:
    """Return `$3.10`, with four digits after the point for less than a cent."""
    return f"${value:,.{2 if value >= 0.01 or value == 0 else 4}f}"


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


class ShownProgress(Progress, Protocol):
    """Progress that can be closed: the drawn lines stay on the screen in order."""

    def close(self) -> None:
        """Stop drawing; repeated calls are allowed."""


def progress_for(settings: LogSettings, stream: TextIO | None = None) -> ShownProgress:
    """Return the progress for the settings and the stream (standard error by default)."""
    out = stream or sys.stderr
    if settings.quiet:
        return QuietProgress()
    redrawn = out.isatty() and environment().get("TERM") != "dumb"
    return LiveProgress(out) if redrawn else PlainProgress(out)


@dataclass(slots=True)
class Meter:
    """Counts of one stage, its speed, and its remaining time. All times are in seconds."""

    stage: str
    expected: int
    before: Counts  # finished in earlier runs
    clock: Clock
    now: Counts = field(default_factory=Counts)
    started: float = 0.0
    first: float | None = None  # time of the first page of this run
    opening: int = 0  # pages that were counted together with the first
    ends: deque[float] = field(default_factory=deque)
    engine: EngineMeter | None = None
    estimated: bool = False
    spend: SpendMeter | None = None

    def __post_init__(self) -> None:
        self.started = self.clock()

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
    def total(self) -> Counts:
        """Return the finished pages, earlier runs included."""
        return self.before + self.now

    @property
    def done(self) -> int:
        return self.total.ok + self.total.degraded + self.total.failed

    def speed(self) -> float:
        """Return pages per second over the last half minute; 0 until a second after the first page of this run.

        The time until the first page is not counted: a server that starts reads nothing for minutes. Assemble ends all
        pages of an item at once. Its speed is that of the whole run, and 0 until a second item ends.
        """
        moment = self.clock()
        if self.stage == "assemble" and self.ends:
            known = self.first is not None and self.ends[-1] - self.first >= BURST
            return self.ended / (moment - self.started) if known else 0.0
        while self.ends and self.ends[0] < moment - WINDOW:
            self.ends.popleft()
        if self.first is None or moment - self.first < BURST:
            return 0.0
        span = min(WINDOW, moment - self.first)
        return (len(self.ends) - (self.opening if span < WINDOW else 0)) / span

    @property
    def ended(self) -> int:
        """Return the pages finished in this run."""
        return self.now.ok + self.now.degraded + self.now.failed

    def left(self) -> float | None:
        """Return the remaining seconds at this speed, or None if unknown."""
        speed = self.speed()
        return max(0, self.expected - self.done) / speed if speed > 0 else None

    def words(self) -> str:
        """Return `120/412 pages, 118 ok, 1 degraded, 1 failed`, or `120 of about 412 pages, ...` for an estimate."""
        noun = NOUNS.get(self.stage, "page")
        expected = f" of {about(self.expected)} {noun}s" if self.estimated else f"/{plural(self.expected, noun)}"
        return f"{self.done:,}{expected}, {outcome(self.total)}"

    def pace(self) -> str:
        """Return `12.3 pages/s, 0:24 left, $0.42 of about $3.10, 5,310 tok/s, 120 of 128 in flight`, if known."""
        speed, left = self.speed(), self.left()
        parts = []
        if left is not None:
            parts.append(f"{speed:.{1 if speed >= 1 else 2}f} {NOUNS.get(self.stage, 'page')}s/s")
            parts.append(f"{span_text(left)} left")
        if self.spend is not None:
            parts.append(self.spend.words(self.ended, max(0, self.expected - self.done) + self.ended))
        if self.engine is not None:
            parts.append(self.engine.words())
        return ", ".join(parts)


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


class QuietProgress(Silent):
    """Progress without output."""

    def close(self) -> None: ...


class _Metering:
    """State that both displays share."""

    def __init__(self, clock: Clock) -> None:
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
        spend = None if self._spent is None or stage == "assemble" else SpendMeter(self._spent)
        self._meter = Meter(stage, expected, done, self._clock, engine=self._engine, estimated=estimated, spend=spend)
        return self._meter


class PlainProgress(_Metering):
    """Lines for logs: at the start of a stage, every ten seconds or ten percent, and at its end."""

    def __init__(self, stream: TextIO, clock: Clock = time.monotonic) -> None:
        super().__init__(clock)
        self._stream = stream
        self._last = (0.0, 0)  # time of the last line, and finished pages at that time

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

    def close(self) -> None: ...


class LiveProgress(_Metering):
    """One line per stage, redrawn in place: bar, pages, outcome, speed, remaining time."""

    def __init__(self, stream: TextIO, clock: Clock = time.monotonic) -> None:
        super().__init__(clock)
        self._stream = stream
        self._bars: Bars | None = None
        self._task: TaskID | None = None

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
            return Text(numbers(task.fields["meter"], ended=bool(task.fields.get("ended")), taken=task.elapsed))

    return RichProgress(
        TextColumn("{task.description:<9}"),
        BarColumn(bar_width=24),
        Numbers(),
        console=Console(file=stream),
        refresh_per_second=4,
    )


def numbers(meter: Meter, *, ended: bool, taken: float | None) -> str:
    """Return the text to the right of the bar."""
    tail: Any = f"in {span_text(taken or 0.0)}" if ended else meter.pace()
    return f"{meter.words()}  {tail}".rstrip()
