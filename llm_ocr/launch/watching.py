"""Watch jobs until they end: their states, the progress of the stage, and the costs so far."""

import shutil
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TextIO

from llm_ocr.costs.comparison import money_text, time_span
from llm_ocr.costs.throughput import Span
from llm_ocr.errors import LaunchError, StorageError, WorkspaceError
from llm_ocr.launch import PIPELINE, REPAIR, Job, JobSpec, JobStatus, Launcher, State, is_installed, launcher_for
from llm_ocr.launch.bill import billed_seconds, has_ended, price_of
from llm_ocr.launch.records import Submission, submissions
from llm_ocr.types import plural
from llm_ocr.workspace import Workspace
from llm_ocr.workspace.codec import parse_unit_id
from llm_ocr.workspace.generations import Generation, generations, has_generation, totals_of
from llm_ocr.workspace.keys import ASSEMBLE, DESCRIBE, EXTRACT, FIELDS, newest_key
from llm_ocr.workspace.publish import done_units, iter_markers
from llm_ocr.workspace.status import run_status
from llm_ocr.workspace.summaries import correction

#: Seconds between two requests to the platform.
EVERY = 15.0
#: Maximum consecutive failed requests.
_MOST_FAILURES = 20
#: The workspace is read at most once in this many requests to the platform, and for at most this share of the time:
#: each reading lists the published units of the stage.
_READ_EVERY, _READ_SHARE = 2, 0.1
#: Seconds between two plain lines without a change of state.
_PLAIN_EVERY = 60.0
#: Seconds over which the speed is measured: units are published singly, minutes apart.
_WINDOW = 900.0

Say = Callable[[str], None]


class Display:
    """Output of a launch: messages, and the progress of the current stage.

    If `say` writes to a terminal, progress is one line that is redrawn. Otherwise (logs, notebooks), progress is a
    message at every change of state, and once a minute.
    """

    def __init__(self, say: Say, terminal: TextIO | None = None) -> None:
        self._say = say
        self._terminal = terminal
        self._drawn = ""
        self._last = float("-inf")

    def say(self, line: str) -> None:
        """Show a message."""
        drawn = self._drawn
        self._draw("")
        self._say(line)
        self._draw(drawn)

    def progress(self, line: str, *, changed: bool) -> None:
        """Show progress; `changed` is true if the jobs' states differ from the last line."""
        if self._terminal is not None:
            self._draw(line)
        elif changed or time.monotonic() - self._last >= _PLAIN_EVERY:
            self._last = time.monotonic()
            self._say(line)

    def end(self, line: str) -> None:
        """Replace progress by a message; without a terminal, the message was already shown as progress."""
        if self._terminal is not None:
            self._draw("")
            self._say(line)

    def _draw(self, line: str) -> None:
        if self._terminal is not None and line != self._drawn:
            line = line[: shutil.get_terminal_size().columns - 1]
            self._terminal.write(f"\r{line}\x1b[K")
            self._terminal.flush()
        self._drawn = line


@dataclass(frozen=True, slots=True)
class StageProgress:
    """Finished units and their total; `total` is 0 before planning. `pages` are those of the whole plan."""

    done: int
    total: int
    pages: int

    @property
    def finished(self) -> bool:
        return 0 < self.total <= self.done


def stage_progress(workspace: Workspace, stage: str, launch: str = "") -> StageProgress:
    """Return a stage's progress under its newest key; of repairs, the progress of the one that the launch planned.

    Raises:
        StorageError: The workspace cannot be read.
        WorkspaceError: The workspace is damaged.
    """
    run = run_status(workspace)
    if stage == REPAIR:
        planned = [one for one in generations(workspace) if one.of_launch(launch)]
        numbers = {one.number for one in planned}
        done = done_units(workspace, EXTRACT, run.stages[EXTRACT].key) if planned else set()
        read = sum(parse_unit_id(unit)[0] in numbers for unit in done)
        return StageProgress(read, sum(one.units for one in planned), run.pages.expected)
    status = run.stages.get(stage) or replace(run.stages[ASSEMBLE], key="")  # Fields has the same items
    return StageProgress(status.done if status.key else 0, status.total, run.pages.expected)


@dataclass(slots=True)
class _Units:
    """Published units of one stage. A marker never changes and is therefore read only once."""

    stage: str
    key: str = ""
    seen: set[str] = field(default_factory=set)
    pages: int = 0
    figures: int = 0
    found: int = 0  # figures that Extract found
    correction: int = 0  # correction of the pages that the plan expected
    rows: Counter[int] = field(default_factory=Counter)  # of Extract, by generation

    def __contains__(self, unit: object) -> bool:
        return unit not in self.seen

    def read(self, workspace: Workspace) -> None:
        key = newest_key(workspace, self.stage) or ""
        if key != self.key:
            self.key, self.pages, self.figures, self.found, self.correction = key, 0, 0, 0, 0
            self.seen.clear()
            self.rows.clear()
        for marker in iter_markers(workspace, self.stage, key, among=self) if key else ():
            counts, figures = marker.summary.counts, marker.summary.figures
            self.seen.add(marker.unit)
            self.pages += counts.ok + counts.degraded + counts.failed - marker.summary.replaces
            self.figures += figures.ok + figures.degraded + figures.failed
            self.found += figures.expected
            self.correction += correction(marker.summary)
            if self.stage == EXTRACT:  # Assemble publishes items, which have other names
                self.rows[parse_unit_id(marker.unit)[0]] += counts.expected


class Progress:
    """Progress of a stage as text: `120/412 pages, 1.3 pages/s, 3.7 min left, $0.42 of $5.00` (`max_cost`)."""

    def __init__(self, workspace: Workspace, platform: str, spec: JobSpec, max_cost: float | None = None) -> None:
        self._workspace = workspace
        self._spec = spec
        self._max_cost = max_cost
        self._price = price_of(platform, spec)
        ends = [submission.end for submission in submissions(workspace) if submission.end]
        self._spent = sum(float(end.get("cost") or 0.0) for end in ends)
        self._units = _Units(EXTRACT if spec.stage == REPAIR else spec.stage)
        self._extracted = _Units(EXTRACT)  # for Describe: the figures to describe
        self._plan: list[Generation] = []
        self._readings: deque[tuple[float, int]] = deque()  # time, and pages or figures
        self._next = 0.0
        self._done = self._total = 0

    def words(self, statuses: Sequence[JobStatus], *, every: float) -> str:
        """Return the progress; read the workspace if the last reading is at least `every` seconds old."""
        stage, now = self._spec.stage, time.monotonic()
        if now >= self._next or all(status.state.over for status in statuses):
            if has_generation(self._workspace, len(self._plan) + 1):
                self._plan = generations(self._workspace)
            self._units.read(self._workspace)
            if stage == DESCRIBE:
                self._extracted.read(self._workspace)
                self._done, self._total = self._units.figures, self._extracted.found
            elif stage == REPAIR:
                planned = [one for one in self._plan if one.of_launch(self._spec.launch)]
                self._done = sum(self._units.rows[one.number] for one in planned)
                self._total = sum(one.expected for one in planned)
            elif stage == FIELDS:
                self._done, self._total = self._units.pages, totals_of(self._plan).documents
            else:
                self._total = totals_of(self._plan).expected + self._units.correction
                self._done = min(self._units.pages, self._total)
            self._next = now + max(every, (time.monotonic() - now) / _READ_SHARE)
            self._readings.append((now, self._done))
            while len(self._readings) > 2 and self._readings[0][0] < now - _WINDOW:
                self._readings.popleft()
        noun = {DESCRIBE: "figure", FIELDS: "document"}.get(stage, "page")
        parts = [f"{self._done:,}/{plural(self._total, noun)}"] if self._total else []
        (begun, before), (last, after) = self._readings[0], self._readings[-1]
        if after > before:
            speed = (after - before) / (last - begun)
            parts.append(f"{speed:.{1 if speed >= 1 else 2}f} {noun}s/s")
            if after < self._total:
                parts.append(f"{time_span(Span.of((self._total - after) / speed))} left")
        # The costs of ended submissions of the workspace, and of these jobs so far.
        seconds = billed_seconds(self._spec, statuses, until=time.time())
        if self._price is not None and seconds is not None:
            spent = money_text(self._spent + seconds / 3600 * self._price.per_hour)
            parts.append(spent if self._max_cost is None else f"{spent} of {money_text(self._max_cost)}")
        return ", ".join(parts)


class PipelineProgress:
    """Progress of the stage that a coordinator has submitted last."""

    def __init__(self, workspace: Workspace, launcher: Launcher, launch: str, max_cost: float | None = None) -> None:
        self._workspace = workspace
        self._launcher = launcher
        self._launch = launch
        self._max_cost = max_cost
        self._newest: Submission | None = None
        self._progress: Progress | None = None
        self._next = 0.0

    def words(self, statuses: Sequence[JobStatus], *, every: float) -> str:
        """Return the progress; check for new submissions every `every` seconds."""
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + every
            made = [
                submission
                for submission in submissions(self._workspace, self._launch)
                if submission.spec.stage != PIPELINE and submission.jobs
            ]
            newest = max(made, key=lambda submission: submission.decided, default=None)
            if newest is not None and (self._newest is None or newest.spec != self._newest.spec):
                self._progress = Progress(self._workspace, newest.platform, newest.spec, self._max_cost)
            self._newest = newest
        if self._newest is None or self._progress is None:
            return ""
        of_stage = self._launcher.status(self._newest.jobs or ())
        return f"{self._newest.spec.stage} {self._progress.words(of_stage, every=every)}"


def until_over(
    launcher: Launcher,
    jobs: Sequence[Job],
    display: Display,
    stage: str,
    *,
    every: float = EVERY,
    progress: Progress | PipelineProgress | None = None,
) -> Sequence[JobStatus]:
    """Wait for the jobs of a stage, and show their states and progress.

    Args:
        launcher: Launcher of the jobs.
        jobs: Jobs of one submission.
        display: Output.
        stage: Name of the stage.
        every: Seconds between two requests to the platform.
        progress: Progress of the stage.

    Returns:
        The last status of each job.

    Raises:
        LaunchError: `_MOST_FAILURES` consecutive requests to the platform failed.
    """
    shown, failed = "", 0
    while True:
        try:
            statuses = launcher.status(jobs)
            failed = 0
        except LaunchError as error:
            failed += 1
            if failed >= _MOST_FAILURES:
                raise
            display.say(f"{stage}: {error.args[0]}; retrying")
            time.sleep(every)
            continue
        states = summary(statuses)
        try:
            words = "" if progress is None else progress.words(statuses, every=_READ_EVERY * every)
        except (LaunchError, StorageError, WorkspaceError) as error:  # a temporary failure must not end the launch
            words = f"progress cannot be read: {error.args[0]}"
        line = f"{stage}: {words}; {states}" if words else f"{stage}: {states}"
        display.progress(line, changed=states != shown)
        shown = states
        if all(status.state.over for status in statuses):
            display.end(line)
            return statuses
        time.sleep(every)


def summary(statuses: Sequence[JobStatus]) -> str:
    """Return the states as text: `3 jobs: 1 running, 2 queued`."""
    counts = Counter(status.state for status in statuses)
    states = ", ".join(f"{counts[state]} {state.value}" for state in State if counts[state])
    return f"{plural(len(statuses), 'job')}: {states}"


def reasons(statuses: Sequence[JobStatus]) -> str:
    """Return the reasons of failed jobs: each once, with the names of its first three jobs; "" without failures."""
    found: dict[str, list[str]] = {}
    for status in statuses:
        if status.state is not State.SUCCEEDED:
            found.setdefault(status.reason or status.state.value, []).append(status.job.name)
    return "; ".join(
        f"{reason} ({', '.join([*names[:3], *(['...'] if names[3:] else [])])})" for reason, names in found.items()
    )


@dataclass(frozen=True, slots=True)
class LaunchedJob:
    """Job of a workspace, with its platform and its current state."""

    platform: str
    stage: str
    launcher: Launcher
    job: Job
    status: JobStatus


def launched_jobs(workspace: Workspace) -> Sequence[LaunchedJob]:
    """Return all jobs of a workspace, the oldest first, and record the ends of finished ones.

    Jobs of older versions on platforms that this version lacks are left out.

    Raises:
        LaunchError: A platform request fails.
    """
    for submission in submissions(workspace):
        has_ended(workspace, submission)
    found = []
    for submission in submissions(workspace):
        if submission.jobs and is_installed(submission.platform):
            launcher = launcher_for(submission.platform)
            for job, status in zip(submission.jobs, launcher.status(submission.jobs), strict=True):
                found.append(LaunchedJob(submission.platform, submission.spec.stage, launcher, job, status))
    return found
