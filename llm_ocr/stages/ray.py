"""Extract and Describe on a Ray cluster: this process plans and assigns units, and actors on the nodes process them.

An actor is a `Worker` with its own engine and its own connection to the workspace. The `Crew` starts the workers and
replaces lost workers. Their units go to other workers. A unit that is processed twice is published once.
"""

import asyncio
import contextlib
import logging
import os
import platform
import re
import socket
import threading
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pydantic import SecretStr

from llm_ocr.config.environment import cores, quiet_ray
from llm_ocr.config.groups import FollowSettings, RenderSettings, ShardSettings, SourceSettings
from llm_ocr.config.models import ServingCommand
from llm_ocr.documents.remote.urls import is_remote
from llm_ocr.engines import Load, Server
from llm_ocr.errors import LlmOcrError, MissingExtra, UsageError, WorkspaceError, WorkspaceMismatch
from llm_ocr.models.profile import Profile
from llm_ocr.scheduling.scanner import PlannedUnits
from llm_ocr.stages import Progress, Silent
from llm_ocr.stages.describe import describe
from llm_ocr.stages.extract import Expected, expected_pages, extract
from llm_ocr.stages.loop import run_blocking
from llm_ocr.stages.recording import Recorded
from llm_ocr.stages.runtime import Job, Remote, Share, Stage, log_folder, passwords, worker_name
from llm_ocr.stages.servers import VLLM, Engines, server_key
from llm_ocr.stages.sharing import pages_stage
from llm_ocr.storage import StoreOptions
from llm_ocr.storage.local import LocalStore
from llm_ocr.types import Counts, Status, Unit
from llm_ocr.workspace import Workspace, library_version
from llm_ocr.workspace.keys import DESCRIBE, EXTRACT, required_key
from llm_ocr.workspace.publish import ESTIMATED, Marker, correction, done_units, find_marker, is_done, iter_markers
from llm_ocr.workspace.stored import workspace_options

# Assignment of units. A unit is identified by its position in the plan (`place`).


#: Units that a worker has in addition to those in progress, so that its server never waits for the driver.
AHEAD = 2
#: Lost workers after which a unit is assigned to a worker that has no other unit.
SUSPECT = 2
#: Lost workers after which a unit is given up.
MOST_LOST = 4

#: Seconds that a worker delays a report without news.
_NOTHING_NEW = 1.0


class Hands:
    """Assignment of units to workers, as the driver sees it. Belongs to one event loop.

    A unit whose workers are lost is processed alone after all others, and finally given up.
    """

    def __init__(self, places: Sequence[int]) -> None:
        self.finished = asyncio.Event()
        self.given_up: list[int] = []
        self._todo = deque(places)
        self._suspects: deque[int] = deque()
        self._left = set(places)
        self._lost: Counter[int] = Counter()
        self._check()

    async def wanted(self) -> bool:
        """Return True when a new worker would receive a unit; False when all units are finished."""
        while not self.finished.is_set():
            if self.offers(()):
                return True
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.finished.wait(), _NOTHING_NEW)
        return False

    def offers(self, held: Collection[int]) -> bool:
        """Return whether a worker that holds these units would receive more after it began them."""
        return not self.alone(held) and bool(self._todo or (self._suspects and not held))

    def take(self, held: Collection[int], waiting: int) -> list[int]:
        """Return the next units of a worker.

        Args:
            held: The units that the worker holds.
            waiting: How many of them it has not begun.
        """
        if self.alone(held):
            return []
        if self._todo:
            return [self._todo.popleft() for _ in range(min(AHEAD - waiting, len(self._todo)))]
        return [self._suspects.popleft()] if self._suspects and not held else []

    def alone(self, held: Iterable[int]) -> bool:
        """Return whether these units are a single suspect unit."""
        return any(self._lost[place] >= SUSPECT for place in held)

    def done(self, place: int) -> None:
        """Mark a unit as published."""
        self._left.discard(place)
        self._check()

    def back(self, held: Iterable[int], *, blame: bool) -> None:
        """Take back the units of a lost worker.

        Args:
            held: The units.
            blame: Whether a unit may be the cause of the loss.
        """
        for place in held:
            self._lost[place] += blame
            if self._lost[place] >= MOST_LOST:
                self.given_up.append(place)
                self._left.discard(place)
            elif self._lost[place] >= SUSPECT:
                self._suspects.append(place)
            else:
                self._todo.append(place)
        self._check()

    def _check(self) -> None:
        if not self._left:
            self.finished.set()


@dataclass(frozen=True, slots=True)
class Failure:
    """Failure of a worker's stage.

    Attributes:
        message: The error.
        hint: What the user can do.
        everywhere: Whether other workers would fail in the same way.
        ours: Whether the library raised the error on purpose.
    """

    message: str
    hint: str = ""
    everywhere: bool = False
    ours: bool = False


@dataclass(frozen=True, slots=True)
class Done:
    """A published unit.

    Attributes:
        rows: Rows of the unit.
        estimated: Documents that were counted only when they were read.
        change: Pages of these documents minus their expected pages.
    """

    rows: int
    estimated: int = 0
    change: int = 0


@dataclass(frozen=True, slots=True)
class Report:
    """Report of a worker to the driver. `done` contains the published units among the held units."""

    host: str
    waiting: int  # units that are not begun
    done: Mapping[int, Done]
    counted: Mapping[Status, int]  # rows since the last report
    messages: Sequence[tuple[int, str]]  # since the last report: logging level (0 for users) and text
    load: Load
    ended: bool
    failure: Failure | None


class Exchange:
    """Connects the driver's calls with the stage, which runs in its own thread. It is also the stage's `Progress`."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._given: dict[int, Done | None] = {}
        self._queue: deque[int] = deque()
        self._closed = self._ended = False
        self._failure: Failure | None = None
        self._counted: Counter[Status] = Counter()
        self._messages: list[tuple[int, str]] = []
        self._load: Callable[[], Load] = Load

    def give(self, held: Iterable[int]) -> None:
        """Receive all units that the driver assigns to this worker. New units are queued."""
        with self._changed:
            fresh = [place for place in held if place not in self._given]
            self._given.update(dict.fromkeys(fresh))
            self._queue.extend(fresh)
            self._changed.notify_all()

    def close(self) -> None:
        """End the queue. Units that are not begun are left."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def __iter__(self) -> Iterator[int]:
        """Yield the units in order until the exchange is closed. Blocks while the queue is empty."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queue or self._closed)
                if self._closed:
                    return
                place = self._queue.popleft()
                self._changed.notify_all()
            yield place

    def published(self, place: int, done: Done) -> None:
        """Mark a unit as published."""
        with self._changed:
            self._given[place] = done
            self._changed.notify_all()

    def over(self, failure: Failure | None) -> None:
        """Mark the worker as ended."""
        with self._changed:
            self._ended, self._failure = True, failure
            self._changed.notify_all()

    def report(self, held: Iterable[int], *, more: bool) -> Report:
        """Return the news, after a short wait if there is none.

        Args:
            held: The units that the driver has assigned.
            more: Whether the driver has more units for this worker.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._due(held, more), _NOTHING_NEW)
            counted, self._counted = self._counted, Counter()
            messages, self._messages = self._messages, []
            return Report(
                host=platform.node(),
                waiting=len(self._queue),
                done={place: done for place in held if (done := self._given[place]) is not None},
                counted=dict(counted),
                messages=messages,
                load=self._load(),
                ended=self._ended,
                failure=self._failure,
            )

    def _due(self, held: Iterable[int], more: bool) -> bool:
        hungry = more and len(self._queue) < AHEAD
        return self._ended or hungry or bool(self._messages) or any(self._given[place] for place in held)

    # Progress of the stage.

    def begin(self, stage: str, expected: int, done: Counts, estimated: bool = False) -> None:
        """Do nothing: the driver begins the stage."""

    def correct(self, change: int, *, exact: bool) -> None:
        """Do nothing: the driver learns the change when the unit is done."""

    def count(self, status: Status) -> None:
        with self._changed:
            self._counted[status] += 1

    def measure(self, load: Callable[[], Load]) -> None:
        self._load = load

    def say(self, message: str) -> None:
        self.log(0, message)

    def end(self) -> None: ...

    def log(self, level: int, message: str) -> None:
        """Send a line to the driver's log."""
        with self._changed:
            self._messages.append((level, message))
            self._changed.notify_all()


# One worker. It imports nothing of Ray: the driver turns `Worker` into an actor.


#: Seconds that a stage may take to stop.
_STOPPING = 15.0
_STAGES: dict[str, Stage] = {EXTRACT: extract, DESCRIBE: describe}

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Work:
    """Task of a worker.

    Attributes:
        stage: The stage.
        key: The stage key. A worker whose key differs fails.
        settings: The settings of the command.
        engine: The engine's name.
        beside: Workers on the same machine, including this worker.
        folder: The driver's current folder, for paths in `settings`.
        witness: A document on the driver's disks that the worker must see; empty if there is none.
        version: The driver's version of the library.
        commits: Commits of models that the driver has looked up. Another commit would give another key.
    """

    stage: str
    key: str
    settings: ServingCommand
    engine: str
    beside: int
    folder: str
    witness: str
    version: str
    commits: Mapping[str, str | None] = field(default_factory=dict)


class Worker:
    """Processes the units that the driver assigns. The driver calls `turn` and `stop`, one at a time."""

    def __init__(self, work: Work) -> None:
        with contextlib.suppress(OSError):
            os.chdir(work.folder)
        self._work = work
        self._exchange = Exchange()
        self._running: tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]] | None = None
        self._thread = threading.Thread(target=self._run, name="llm_ocr", daemon=True)
        self._thread.start()

    def turn(self, held: Sequence[int], *, more: bool, over: bool) -> Report:
        """Receive the assigned units and return the news.

        Calls with the same units may be repeated: the next report replaces a lost one.

        Args:
            held: All units assigned to this worker.
            more: Whether the driver has more units for this worker.
            over: Whether the worker ends after these units.
        """
        self._exchange.give(held)
        if over:
            self._exchange.close()
        return self._exchange.report(held, more=more)

    def stop(self) -> None:
        """End at once. Published units remain."""
        self._exchange.close()
        if self._running is not None:
            loop, task = self._running
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(task.cancel)
        self._thread.join(_STOPPING)

    def _run(self) -> None:
        failure: Failure | None = None
        with _logged(self._exchange, self._work.settings.log_level):
            try:
                run_blocking(self._stage)
            except BaseException as error:  # noqa: BLE001 - reported to the driver
                _log.debug("the worker ended with an error", exc_info=True)
                failure = _failure(error)
        self._exchange.over(failure)

    async def _stage(self) -> None:
        _check_version(self._work)
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        self._running = loop, task
        work, settings = self._work, _shared_cores(self._work)
        options = workspace_options(settings)
        workspace = await asyncio.to_thread(_opened, str(settings.workspace), options)
        _check_documents(work)
        name = worker_name()
        engines = Engines(work.engine, settings, log_folder(workspace, name), self._exchange.say)
        engines.commits.update(work.commits)
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(engines.close)
            recorded = Recorded(self._exchange, workspace, name, settings)
            await stack.enter_async_context(recorded.kept())
            remote = Remote(settings)
            stack.push_async_callback(remote.close)
            stack.callback(self._exchange.close)  # a thread may wait there for units
            job = Job(workspace, settings, recorded, engines, remote, command=work.stage)
            await _STAGES[work.stage](replace(job, given=self._share(workspace)))
        await asyncio.to_thread(workspace.flush)

    def _share(self, workspace: Workspace) -> Share:
        work, under_way = self._work, dict[str, int]()

        def done(unit: str) -> None:
            marker = find_marker(workspace, work.stage, work.key, unit)
            self._exchange.published(under_way.pop(unit), _done(marker))

        def units() -> Iterator[Unit]:
            planned = PlannedUnits(workspace)
            for place in self._exchange:
                unit = planned[place]
                under_way[unit.id] = place
                if is_done(workspace, work.stage, work.key, unit.id):  # by another worker meanwhile
                    done(unit.id)
                else:
                    yield unit

        def begun(key: str) -> None:
            if key != work.key:
                raise WorkspaceMismatch(
                    f"{platform.node()} would make other results than the driver (key {key}, not {work.key})",
                    hint="Use the same version of llm-ocr, with the same extras, on all machines of the cluster.",
                )

        return Share(units(), done=done, begun=begun)


def _opened(url: str, options: StoreOptions) -> Workspace:
    """Open the workspace. Raises `WorkspaceError` if this machine cannot reach it."""
    try:
        return Workspace.open(url, options=options)
    except WorkspaceMismatch:
        raise
    except WorkspaceError as error:
        raise WorkspaceError(
            f"{error.args[0]} on {platform.node()}",
            hint="Every machine of the cluster has to reach the workspace: a folder on a shared disk, or "
            "s3:// or gs:// with credentials in each machine's environment.",
        ) from error


def _done(marker: Marker | None) -> Done:
    if marker is None:  # a store that batches writes; the driver checks at the end
        return Done(0)
    if marker.stage == DESCRIBE:
        return Done(marker.figures.expected)
    estimated = int(marker.summary.extra.get(ESTIMATED, 0))
    return Done(marker.counts.expected, estimated, correction(marker.summary))


def _shared_cores(work: Work) -> ServingCommand:
    """Return the settings with this worker's share of the cores, unless the user set them."""
    settings = work.settings
    given = {"ocr_workers": settings.ocr_workers}
    if isinstance(settings, RenderSettings):
        given["render_workers"] = settings.render_workers
    share = max(1, cores() // work.beside)
    left_open = {name: share for name, value in given.items() if value is None}
    return settings.model_copy(update=left_open) if work.beside > 1 else settings


def _check_version(work: Work) -> None:
    here = library_version()
    if here != work.version:
        raise MissingExtra(
            f"llm-ocr {here} is installed on {platform.node()}, and {work.version} where the command was started",
            hint="Use the same version on all machines of the cluster.",
        )


def _check_documents(work: Work) -> None:
    """Raise `WorkspaceError` if the driver's documents are not on this machine: all their pages would fail."""
    if work.witness and not Path(work.witness).exists():
        raise WorkspaceError(
            f"{work.witness} is not on {platform.node()}",
            hint="Every machine of the cluster has to reach the documents: put them on a shared disk under the same "
            "path, or on s3:// or gs://.",
        )


def _failure(error: BaseException) -> Failure:
    if isinstance(error, LlmOcrError):
        everywhere = isinstance(error, UsageError | WorkspaceError | MissingExtra)
        return Failure(error.args[0], error.hint, everywhere=everywhere, ours=True)
    return Failure(f"{type(error).__name__}: {error}")


class _Forward(logging.Handler):
    """Sends the library's log records to the driver."""

    def __init__(self, exchange: Exchange) -> None:
        super().__init__()
        self._exchange = exchange

    def emit(self, record: logging.LogRecord) -> None:
        self._exchange.log(record.levelno, self.format(record))


@contextlib.contextmanager
def _logged(exchange: Exchange, level: str) -> Iterator[None]:
    handler, logger = _Forward(exchange), logging.getLogger("llm_ocr")
    logger.setLevel(level.upper())
    logger.propagate = False
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


# The crew: the workers of one stage, as the driver sees them.


#: Consecutive workers without a finished unit after which their place on the cluster is given up.
FRUITLESS = 3
#: Seconds until a lost worker is replaced, until workers that wait for a node are reported, and reported again.
_PAUSE, _FIRST_NOTICE, _REMIND = 2.0, 30.0, 300.0
#: Seconds between calls of an unreachable worker, until it counts as lost, and for all workers to stop.
_AGAIN, _SILENCE, _STOPPING_CREW = 1.0, 60.0, 18.0
_COLORS = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True, slots=True)
class Size:
    """Number of workers, GPUs of each worker, and the largest number of workers per machine."""

    workers: int
    gpus: float
    beside: int


class _Lost(Exception):
    """A worker ended early."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


@dataclass(slots=True, eq=False)
class _Life:
    """One worker from start to end."""

    number: int
    actor: Any
    host: str = ""
    held: dict[int, None] = field(default_factory=dict)  # in the order of assignment
    waiting: int = 0
    finished: int = 0  # units
    counted: int = 0  # reported rows
    settled: int = 0  # rows of its finished units
    load: Load = field(default_factory=Load)

    @property
    def name(self) -> str:
        return f"worker {self.number}" + (f" ({self.host})" if self.host else "")


class Crew:
    """Workers that process the units of a stage.

    Args:
        ray: The package `ray`, connected.
        work: The task of the workers.
        size: Their number and resources.
        progress: Receives the progress.
        estimated: Documents that are not counted yet.
    """

    def __init__(self, ray: Any, work: Work, size: Size, progress: Progress, *, estimated: int = 0) -> None:
        self._ray = ray
        self._work = work
        self._size = size
        self._progress = progress
        self._estimated = estimated
        self._hands = Hands(())
        # Ray restarts nothing, so that every loss is visible here.
        options = {"num_gpus": size.gpus, "max_restarts": 0, "max_task_retries": 0, "scheduling_strategy": "SPREAD"}
        self._actor = ray.remote(**options)(Worker)
        self._lives: list[_Life] = []
        self._spent = Load()  # by ended workers
        self._twice = 0  # rows of lost units, which will be counted again
        self._left: list[Failure] = []  # why places on the cluster were given up

    async def run(self, places: Sequence[int]) -> list[int]:
        """Process the units at these places of the plan.

        Returns:
            The units that were given up.

        Raises:
            LlmOcrError: No worker is left, or an error would affect every worker.
        """
        hands = self._hands = Hands(places)
        watch = asyncio.create_task(self._watch())
        try:
            async with asyncio.TaskGroup() as tasks:
                for number in range(min(self._size.workers, len(places))):
                    tasks.create_task(self._place(number))
        finally:
            watch.cancel()
            await self._stop()
        if not hands.finished.is_set():
            last = self._left[-1]
            raise LlmOcrError(f"no worker is left on the cluster; the last one: {last.message}", hint=last.hint)
        return hands.given_up

    def load(self) -> Load:
        """Return the sum of the numbers of all workers' engines."""
        return _sum([self._spent, *(life.load for life in self._lives)])

    async def _place(self, number: int) -> None:
        """Run one place on the cluster: a worker and its replacements."""
        fruitless = 0
        while await self._hands.wanted():
            life = _Life(number, self._actor.remote(self._work))
            self._lives.append(life)
            try:
                await self._live(life)
            except _Lost as lost:
                fruitless = 0 if life.finished else fruitless + (not self._hands.alone(life.held))
                self._lose(life, lost.failure)
                # Errors of the library were already retried: a server that does not start, a store.
                if fruitless >= (1 if lost.failure.ours else FRUITLESS):
                    self._left.append(lost.failure)
                    return
            self._end(life)
            await asyncio.sleep(_PAUSE)  # meanwhile other workers may take its units

    async def _live(self, life: _Life) -> None:
        """Assign units to a worker until it ends, or until all units are finished before it has started."""
        first = asyncio.create_task(self._call(life))
        finished = asyncio.create_task(self._hands.finished.wait())
        try:
            await asyncio.wait({first, finished}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            finished.cancel()
            if not first.done():
                first.cancel()
        if first.cancelled() or not first.done():
            return
        report = first.result()
        while self._take_in(life, report):
            life.held.update(dict.fromkeys(self._hands.take(life.held, life.waiting)))
            report = await self._call(life)

    async def _call(self, life: _Life) -> Report:
        """Call `turn` of a worker; repeat the call while the worker is unreachable."""
        errors, clock = self._ray.exceptions, asyncio.get_running_loop().time
        silent_since: float | None = None
        while True:
            hands = self._hands
            try:
                asked = life.actor.turn.remote(
                    tuple(life.held), more=hands.offers(life.held), over=hands.finished.is_set()
                )
                report: Report = await asked
                return report
            except errors.ActorUnavailableError as error:
                silent_since = silent_since or clock()
                if clock() - silent_since > _SILENCE:
                    raise _Lost(Failure("it cannot be reached")) from error
                await asyncio.sleep(_AGAIN)
            except errors.RayError as error:
                raise _Lost(reason_of(str(error))) from error

    def _take_in(self, life: _Life, report: Report) -> bool:
        """Process a report. Returns False if the worker has ended as planned."""
        life.host, life.waiting, life.load = report.host, report.waiting, report.load
        for level, line in report.messages:
            if level:
                _log.log(level, "%s: %s", life.name, line)
            else:
                self._progress.say(f"{life.name}: {line}")
        self._count(life, report)
        for place, done in report.done.items():
            del life.held[place]
            life.finished += 1
            life.settled += done.rows
            self._hands.done(place)
            if done.estimated:
                self._estimated -= done.estimated
                self._progress.correct(done.change, exact=self._estimated <= 0)
        if report.failure is not None:
            raise _Lost(report.failure)
        if report.ended and not self._hands.finished.is_set():
            raise _Lost(Failure("it ended before its time"))
        return not report.ended

    def _count(self, life: _Life, report: Report) -> None:
        for status, number in report.counted.items():
            life.counted += number
            again = min(number, self._twice)
            self._twice -= again
            for _ in range(number - again):
                self._progress.count(status)

    def _lose(self, life: _Life, failure: Failure) -> None:
        """Take back the units of a lost worker. Raises an error that would affect every worker."""
        if failure.everywhere:
            raise LlmOcrError(f"{life.name}: {failure.message}", hint=failure.hint)
        self._twice += max(0, life.counted - life.settled)
        back = f"; {units_text(len(life.held))} to be done by others" if life.held else ""
        self._progress.say(f"{life.name} was lost: {failure.message}{back}")
        self._hands.back(life.held, blame=not failure.ours)

    def _end(self, life: _Life) -> None:
        """End the worker's process, or its wait for a node."""
        self._lives.remove(life)
        self._spent = _sum([self._spent, _past(life.load)])
        self._ray.kill(life.actor)

    async def _stop(self) -> None:
        """Stop the remaining workers. Their servers shut down in order."""
        stops = [asyncio.ensure_future(_settled(life.actor.stop.remote())) for life in self._lives if life.host]
        if stops:
            await asyncio.wait(stops, timeout=_STOPPING_CREW)
        for life in list(self._lives):
            self._end(life)

    async def _watch(self) -> None:
        """Report workers that wait for a node."""
        needs = f"{self._size.gpus:g} GPU and a CPU" if self._size.gpus else "a CPU"
        pause = _FIRST_NOTICE
        while True:
            await asyncio.sleep(pause)
            waiting = sum(not life.host for life in self._lives)
            if waiting:
                self._progress.say(f"{waiting} of {self._size.workers} workers wait for a node with {needs} free")
            pause = _REMIND


def units_text(number: int) -> str:
    """Return `1 unit` or `2 units`."""
    return f"{number} unit{'' if number == 1 else 's'}"


async def _settled(answer: Awaitable[None]) -> None:
    with contextlib.suppress(Exception):  # the actor is killed afterwards
        await answer


def reason_of(text: str) -> Failure:
    """Return why a worker was lost, from Ray's error text."""
    lines = [line.strip() for line in _COLORS.sub("", text).splitlines() if line.strip()]
    if any("failed to import on the worker" in line for line in lines):
        return Failure(
            f"llm-ocr cannot be loaded on the cluster's nodes: {lines[-1]}",
            hint="Install the same version of llm-ocr with the same extras on every node.",
            everywhere=True,
        )
    cause = next((line for line in lines if line.startswith("The actor is dead because")), "")
    cause = cause.removeprefix("The actor is dead because ").partition(" Some common causes include")[0]
    return Failure(cause or (lines[-1] if lines else "it died"))


def _past(load: Load) -> Load:
    """Return the numbers of an ended engine."""
    return replace(load, servers=0, window=0, in_flight=0, queued=0, running=None, waiting=None)


def _sum(loads: Sequence[Load]) -> Load:
    sums: dict[str, int | None] = {}
    numbers = [asdict(load) for load in loads]
    for one in fields(Load):
        known = [each[one.name] for each in numbers if each[one.name] is not None]
        sums[one.name] = sum(known) if known else None
    return Load(**sums)  # type: ignore[arg-type]  # only gauges may be None


# The driver.


LOCAL = "local"
_NAMES: dict[Stage, str] = {extract: EXTRACT, describe: DESCRIBE}
#: Seconds to reach the cluster's head, for Ray to connect, and for a local cluster to start or end.
_REACHED, _READY, _STARTED = 10.0, 30.0, 120.0
#: Bytes of Ray's object store on this machine. The reports in it are small.
_OBJECTS = 100 << 20


class Elsewhere(Engines):
    """Models whose servers run on other machines. Readers of these models have keys but no servers."""

    def _servers(self, profile: Profile, model: str, revision: str | None) -> Sequence[Server]:
        return []


@contextlib.asynccontextmanager
async def cluster(settings: ServingCommand) -> AsyncIterator[Callable[[Stage, Job[Any]], Awaitable[None]]]:
    """Connect to the cluster; yield a function that runs Extract and Describe on it and other stages here.

    Raises:
        MissingExtra: Ray is not installed.
        UsageError: The settings contradict Ray.
        LlmOcrError: The cluster cannot be reached.
    """
    shares = isinstance(settings, ShardSettings) and settings.shard_count > 1
    if shares or (isinstance(settings, FollowSettings) and settings.follow):
        raise UsageError(
            "--ray goes neither with --shard-count nor with --follow",
            hint="One command hands out all units to the cluster; `run --ray` does Extract, then Describe.",
        )
    connection = _Connection(settings.ray or LOCAL)
    try:
        ray = await connection.opened()

        async def run_stage(stage: Stage, job: Job[Any]) -> None:
            if stage in _NAMES:
                await _Driver(ray, job, stage).run()
            else:
                await stage(job)

        yield run_stage
    finally:
        await connection.close()


class _Connection(threading.Thread):
    """Ray, connected in its own thread.

    Ray's processes on this machine end with the thread that started them, and in the main thread Ray would replace our
    SIGTERM handler. A connection of the caller is reused and left open.
    """

    def __init__(self, address: str) -> None:
        super().__init__(name="llm_ocr ray", daemon=True)
        self._address = address
        self._ready = threading.Event()
        self._over = threading.Event()
        self._ray: Any = None
        self._error: BaseException | None = None

    async def opened(self) -> Any:
        """Connect and return the package `ray`."""
        self.start()
        timeout = _STARTED if self._address == LOCAL else _READY
        if not await asyncio.to_thread(self._ready.wait, timeout):
            raise self._unreachable(f"no answer in {timeout:.0f} seconds")
        if isinstance(self._error, LlmOcrError):
            raise self._error
        if self._error is not None:
            raise self._unreachable(str(self._error).strip().partition("\n")[0]) from self._error
        return self._ray

    async def close(self) -> None:
        """Disconnect. A local cluster ends."""
        self._over.set()
        if self._ready.is_set() and self.is_alive():
            await asyncio.to_thread(self.join, _STARTED)

    def run(self) -> None:
        leave = False
        try:
            leave = self._connect()
        except BaseException as error:  # noqa: BLE001 - raised in `opened`
            self._error = error
        self._ready.set()
        self._over.wait()
        if leave:
            self._ray.shutdown()

    def _connect(self) -> bool:
        """Connect; return whether `close` must disconnect."""
        quiet_ray(alone=self._address == LOCAL)
        try:
            import ray
        except ImportError as error:
            raise MissingExtra("--ray: Ray is not installed", install="ray") from error
        self._ray = ray
        if ray.is_initialized():
            return False
        logging.getLogger("ray").setLevel(logging.ERROR)
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        if self._address == LOCAL:
            options |= {"include_dashboard": False, "object_store_memory": _OBJECTS, "num_cpus": cores()}
        else:
            self._reach()
        ray.init(address=self._address, **options)
        return True

    def _reach(self) -> None:
        """Check that the address accepts connections. Ray itself would retry for a minute."""
        if self._address == "auto":
            return
        parts = urlsplit(self._address if "//" in self._address else f"//{self._address}")
        if not parts.hostname or not parts.port:
            raise ValueError("not of the form HOST:PORT")
        socket.create_connection((parts.hostname, parts.port), timeout=_REACHED).close()

    def _unreachable(self, why: str) -> LlmOcrError:
        return LlmOcrError(
            f"--ray {self._address}: the cluster cannot be used: {why}",
            hint="Give the address of its head, HOST:6379, on a machine of the cluster; ray://HOST:10001 on others; "
            "`auto` where `ray start` was called; or `local` for this machine alone.",
        )


@dataclass(frozen=True, slots=True)
class _Driver:
    """One stage on the cluster."""

    ray: Any
    job: Job[ServingCommand]
    stage: Stage

    async def run(self) -> None:
        """Publish all units of the stage. Raises `LlmOcrError` if units could not be processed."""
        job, name, progress = self.job, _NAMES[self.stage], self.job.progress
        key, commits = await self._key()
        expected = await asyncio.to_thread(_expected, job.workspace, name, key, pages_stage(job.settings))
        planned = await asyncio.to_thread(PlannedUnits, job.workspace)
        left = await asyncio.to_thread(_left, job.workspace, name, key, planned)
        crew = await self._crew(key, commits, planned, left, expected.estimated) if left else None
        if crew is not None and job.engines.uses_models:
            progress.measure(crew.load)
        progress.begin(name, expected.pages, expected.done, *([True] if expected.estimated else []))
        while left and crew is not None:
            given_up = await crew.run(left)
            if given_up:
                raise await asyncio.to_thread(_given_up, planned, given_up)
            # A store that batches writes may have lost those of a worker that crashed after its report.
            before, left = left, await asyncio.to_thread(_left, job.workspace, name, key, planned)
            if left == before:
                raise LlmOcrError(f"{units_text(len(left))} done, and still without a marker in {job.workspace.url}")
        progress.end()

    async def _key(self) -> tuple[str, Mapping[str, str | None]]:
        """Run the stage over no units; return its key, which no unit has claimed yet, and the commits in it."""
        keys: list[str] = []
        job = self.job
        engines = Elsewhere(job.engines.engine, job.settings, Path(), job.progress.say)
        given = Share((), begun=keys.append)
        await self.stage(replace(job, progress=Silent(), engines=engines, given=given))
        return keys[0], dict(engines.commits)

    async def _crew(
        self,
        key: str,
        commits: Mapping[str, str | None],
        planned: PlannedUnits,
        left: Sequence[int],
        estimated: int,
    ) -> Crew:
        job, settings = self.job, self.job.settings
        nodes = [node for node in await asyncio.to_thread(self.ray.nodes) if node["Alive"]]
        size = size_of(settings, job.engines.engine, [node["Resources"] for node in nodes])
        local = isinstance(job.workspace.store, LocalStore)
        if local and len({node["NodeManagerHostname"] for node in nodes}) > 1:
            job.progress.say(f"{job.workspace.url} is a folder: all {len(nodes)} nodes have to see it under this path")
        documents = _NAMES[self.stage] == EXTRACT
        work = Work(
            stage=_NAMES[self.stage],
            key=key,
            commits=commits,
            settings=await asyncio.to_thread(_for_nodes, settings, job.workspace),
            beside=size.beside,
            engine=job.engines.engine,
            folder=str(Path.cwd()),
            witness=await asyncio.to_thread(_witness, planned, left[0]) if documents else "",
            version=library_version(),
        )
        return Crew(self.ray, work, size, job.progress, estimated=estimated)


def size_of(settings: ServingCommand, engine: str, nodes: Sequence[dict[str, float]]) -> Size:
    """Return number and size of the workers that fit on these nodes, unless the settings determine them.

    Raises:
        LlmOcrError: No node has room for a worker.
    """
    gpus = settings.ray_gpus
    if "ray_gpus" not in settings.model_fields_set:
        gpus = float(settings.tensor_parallel_size * settings.data_parallel_size) if engine == VLLM else 0.0
    fits = [int(node.get("GPU", 0) // gpus) if gpus else 1 for node in nodes if node.get("CPU", 0) >= 1]
    workers = settings.ray_workers or sum(fits)
    if not workers:
        raise LlmOcrError(
            f"no node of the cluster has {f'{gpus:g} GPU' if gpus else 'a CPU'} for a worker",
            hint="--ray-gpus 0 with running servers or the CPU engine; --ray-workers N where nodes come on demand.",
        )
    beside = max(fits, default=1) if gpus else -(-workers // max(1, len(fits)))
    return Size(workers, gpus, max(1, min(beside, workers)))


def _for_nodes(settings: ServingCommand, workspace: Workspace) -> ServingCommand:
    """Return the settings for workers, with secrets instead of files of this machine and an absolute workspace path."""
    changes: dict[str, Any] = {"log_file": None, "server_key_file": None}
    if isinstance(workspace.store, LocalStore):
        changes["workspace"] = str(workspace.store.root.absolute())
    if key := server_key(settings.server_key, settings.server_key_file):
        changes["server_key"] = SecretStr(key)
    if isinstance(settings, SourceSettings):
        found = passwords(settings.password, settings.password_file)
        changes |= {"password": tuple(map(SecretStr, found)), "password_file": None}
    return settings.model_copy(update=changes)


def _expected(workspace: Workspace, stage: str, key: str, pages_from: str) -> Expected:
    """Return the expected and finished rows."""
    if stage == EXTRACT:
        return expected_pages(workspace, key)
    source = required_key(workspace, pages_from)
    figures = sum(marker.figures.expected for marker in iter_markers(workspace, pages_from, source))
    return Expected(figures, sum((marker.figures for marker in iter_markers(workspace, stage, key)), Counts()))


def _left(workspace: Workspace, stage: str, key: str, planned: PlannedUnits) -> list[int]:
    """Return the places of units without a marker."""
    done = done_units(workspace, stage, key)
    return [place for place in range(len(planned)) if planned.name(place) not in done]


def _witness(planned: PlannedUnits, place: int) -> str:
    """Return a document on this machine's disks that workers must see too; empty if there is none."""
    sources = (part.source for part in planned[place].parts if not is_remote(part.source))
    return next((source for source in sources if Path(source).is_file()), "")


def _given_up(planned: PlannedUnits, places: Sequence[int]) -> LlmOcrError:
    shown = [f"{planned.name(place)} ({planned[place].parts[0].relative})" for place in sorted(places)[:5]]
    more = f" and {len(places) - 5} more" if len(places) > 5 else ""
    return LlmOcrError(
        f"{units_text(len(places))} given up, for every worker on it died: {', '.join(shown)}{more}",
        hint="All others are done. Run the command without --ray to see what happens; Ray's logs tell how they died.",
    )
