"""Extract and Describe on a Ray cluster: the driver hands out units, workers process them."""

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
from llm_ocr.stages.runtime import Job, Remote, Share, log_folder, passwords, worker_name
from llm_ocr.stages.servers import VLLM, Engines, server_key
from llm_ocr.stages.sharing import pages_stage
from llm_ocr.storage import StoreOptions
from llm_ocr.storage.local import LocalStore
from llm_ocr.types import Counts, Status, Unit
from llm_ocr.workspace import Workspace, library_version
from llm_ocr.workspace.keys import DESCRIBE, EXTRACT, required_key
from llm_ocr.workspace.publish import ESTIMATED, Marker, correction, done_units, find_marker, is_done, iter_markers
from llm_ocr.workspace.stored import workspace_options

# Units on their way over a cluster: as the driver hands them out, and as a worker takes them in and tells of them.
# Units are named by their place in the plan.


#: Units that a worker has beside those it has begun: its server must not wait for the driver at the end of a unit.
AHEAD = 2
#: Workers that may be lost over a unit until it is done by a worker that has nothing else.
SUSPECT = 2
#: Workers that may be lost over a unit in all; alone in the end, so that no other unit is to blame.
MOST_LOST = 4

#: Seconds that a report is held back when there is nothing to report.
_NOTHING_NEW = 1.0


class Hands:
    """Who has which unit, as the driver knows it. Belongs to one event loop.

    A unit that ends the worker that does it is done alone at last, after all others, and given up in the end.
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
        """Returns when a new worker would get something; False when all is finished."""
        while not self.finished.is_set():
            if self.offers(()):
                return True
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.finished.wait(), _NOTHING_NEW)
        return False

    def offers(self, held: Collection[int]) -> bool:
        """Whether a worker that holds these units would get more, if it had begun them."""
        return not self.alone(held) and bool(self._todo or (self._suspects and not held))

    def take(self, held: Collection[int], waiting: int) -> list[int]:
        """What a worker gets next that holds these units, and has not begun so many of them."""
        if self.alone(held):
            return []
        if self._todo:
            return [self._todo.popleft() for _ in range(min(AHEAD - waiting, len(self._todo)))]
        return [self._suspects.popleft()] if self._suspects and not held else []

    def alone(self, held: Iterable[int]) -> bool:
        """Whether these are one unit that is done alone."""
        return any(self._lost[place] >= SUSPECT for place in held)

    def done(self, place: int) -> None:
        """The unit is published."""
        self._left.discard(place)
        self._check()

    def back(self, held: Iterable[int], *, blame: bool) -> None:
        """A worker was lost that held these units. `blame`: one of them may be why."""
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
    """How a worker's stage failed. `everywhere`: others would fail alike; `ours`: an error that we raise on purpose."""

    message: str
    hint: str = ""
    everywhere: bool = False
    ours: bool = False


@dataclass(frozen=True, slots=True)
class Done:
    """A unit that is published.

    `estimated` documents of it were counted only when they were read, and have `change` pages more than expected.
    """

    rows: int
    estimated: int = 0
    change: int = 0


@dataclass(frozen=True, slots=True)
class Report:
    """What a worker tells its driver. `done` are those of the held units that are published."""

    host: str
    waiting: int  # units that are not begun
    done: Mapping[int, Done]
    counted: Mapping[Status, int]  # rows since the last report
    said: Sequence[tuple[int, str]]  # lines since the last report: level of logging, 0 for users
    load: Load
    ended: bool
    failure: Failure | None


class Exchange:
    """Between the driver's calls and the stage, which runs in a thread of its own. Also the stage's `Progress`."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._given: dict[int, Done | None] = {}
        self._queue: deque[int] = deque()
        self._closed = self._ended = False
        self._failure: Failure | None = None
        self._counted: Counter[Status] = Counter()
        self._said: list[tuple[int, str]] = []
        self._load: Callable[[], Load] = Load

    def give(self, held: Iterable[int]) -> None:
        """The driver says all that this worker has; what is new comes behind what waits."""
        with self._changed:
            fresh = [place for place in held if place not in self._given]
            self._given.update(dict.fromkeys(fresh))
            self._queue.extend(fresh)
            self._changed.notify_all()

    def close(self) -> None:
        """Nothing more comes, and what is not begun is left."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def __iter__(self) -> Iterator[int]:
        """The units in their order, until it is closed. Blocks while there is none."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queue or self._closed)
                if self._closed:
                    return
                place = self._queue.popleft()
                self._changed.notify_all()
            yield place

    def published(self, place: int, done: Done) -> None:
        """A unit is done."""
        with self._changed:
            self._given[place] = done
            self._changed.notify_all()

    def over(self, failure: Failure | None) -> None:
        """The worker has ended."""
        with self._changed:
            self._ended, self._failure = True, failure
            self._changed.notify_all()

    def report(self, held: Iterable[int], *, more: bool) -> Report:
        """What is new; waits a moment for it. `more`: the driver has units that this worker may get."""
        with self._changed:
            self._changed.wait_for(lambda: self._due(held, more), _NOTHING_NEW)
            counted, self._counted = self._counted, Counter()
            said, self._said = self._said, []
            return Report(
                host=platform.node(),
                waiting=len(self._queue),
                done={place: done for place in held if (done := self._given[place]) is not None},
                counted=dict(counted),
                said=said,
                load=self._load(),
                ended=self._ended,
                failure=self._failure,
            )

    def _due(self, held: Iterable[int], more: bool) -> bool:
        hungry = more and len(self._queue) < AHEAD
        return self._ended or hungry or bool(self._said) or any(self._given[place] for place in held)

    # What the stage tells.

    def begin(self, stage: str, expected: int, done: Counts, estimated: bool = False) -> None:
        """The driver begins the stage."""

    def correct(self, change: int, *, exact: bool) -> None:
        """The driver learns it when the unit is done."""

    def count(self, status: Status) -> None:
        with self._changed:
            self._counted[status] += 1

    def measure(self, load: Callable[[], Load]) -> None:
        self._load = load

    def say(self, message: str) -> None:
        self.log(0, message)

    def end(self) -> None: ...

    def log(self, level: int, message: str) -> None:
        """A line for the driver's log."""
        with self._changed:
            self._said.append((level, message))
            self._changed.notify_all()


# One worker on a cluster: an engine of its own, a connection to the workspace of its own, units from the driver.
# Nothing of Ray is imported here: the driver makes an actor of `Worker`.


#: Seconds that a stage may take to stop.
_STOPPING = 15.0
#: The name of a stage decides which settings its job has; types cannot say that.
_STAGES: dict[str, Callable[[Job[Any]], Awaitable[None]]] = {EXTRACT: extract, DESCRIBE: describe}

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Work:
    """What a worker is to do, and where.

    `beside`: workers on the same machine, this one included. `folder` is the driver's current one, for paths in
    `settings`; `witness` a document that the driver can read, "" for none on its disks; `version` the driver's.
    `commits` are those of models that the driver has looked up: another commit would be another key.
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
    """Does the units that the driver gives it. `turn` and `stop` are for the driver, one call at a time."""

    def __init__(self, work: Work) -> None:
        with contextlib.suppress(OSError):
            os.chdir(work.folder)
        self._work = work
        self._exchange = Exchange()
        self._running: tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]] | None = None
        self._thread = threading.Thread(target=self._run, name="llm_ocr", daemon=True)
        self._thread.start()

    def turn(self, held: Sequence[int], *, more: bool, over: bool) -> Report:
        """Take what is new among the units that the driver wants done, and tell what is new; `over`: end then.

        May be called again with the same units: a report that was lost is made good by the next one.
        """
        self._exchange.give(held)
        if over:
            self._exchange.close()
        return self._exchange.report(held, more=more)

    def stop(self) -> None:
        """End at once; what is published stays."""
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
            except BaseException as error:  # noqa: BLE001 - told to the driver
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
                if is_done(workspace, work.stage, work.key, unit.id):  # by somebody else since
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
    """Raises `WorkspaceError` where it is not to be seen from here."""
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
    if marker is None:  # of a store that gathers writes; the driver looks for it at the end
        return Done(0)
    if marker.stage == DESCRIBE:
        return Done(marker.figures.expected)
    estimated = int(marker.summary.extra.get(ESTIMATED, 0))
    return Done(marker.counts.expected, estimated, correction(marker.summary))


def _shared_cores(work: Work) -> ServingCommand:
    """The settings, with a share of this machine's cores where they say nothing about them."""
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
    """Raises `WorkspaceError` where documents that the driver reads are not there: all their pages would fail."""
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
    """Sends what the library logs to the driver, which logs it there."""

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


# The workers of one stage on a cluster, as the driver sees them: started, fed, replaced when they are lost, ended.


#: Lives in a row that end before a unit is done, until a place on the cluster is left.
FRUITLESS = 3
#: Seconds until a lost worker is replaced; until it is said that workers wait for a place, and said again.
_PAUSE, _PATIENCE, _REMIND = 2.0, 30.0, 300.0
#: Seconds between two tries to ask a worker that cannot be reached, and in which it has to answer; for all to stop.
_AGAIN, _SILENCE, _STOPPING_CREW = 1.0, 60.0, 18.0
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True, slots=True)
class Size:
    """How many workers, how many GPUs each of them has, and how many of them share a machine at most."""

    workers: int
    gpus: float
    beside: int


class _Lost(Exception):
    """A worker has ended before its time."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


@dataclass(slots=True, eq=False)
class _Life:
    """One worker, from its start to its end."""

    number: int
    actor: Any
    host: str = ""
    held: dict[int, None] = field(default_factory=dict)  # in the order in which they were given
    waiting: int = 0
    finished: int = 0  # units
    counted: int = 0  # rows that it told of
    settled: int = 0  # rows of its finished units
    load: Load = field(default_factory=Load)

    @property
    def name(self) -> str:
        return f"worker {self.number}" + (f" ({self.host})" if self.host else "")


class Crew:
    """Does units on a cluster. `ray` is the package of that name, connected; `estimated` documents are not counted."""

    def __init__(self, ray: Any, work: Work, size: Size, progress: Progress, *, estimated: int = 0) -> None:
        self._ray = ray
        self._work = work
        self._size = size
        self._progress = progress
        self._estimated = estimated
        self._hands = Hands(())
        # Ray starts nothing again by itself: every loss is to be seen here.
        options = {"num_gpus": size.gpus, "max_restarts": 0, "max_task_retries": 0, "scheduling_strategy": "SPREAD"}
        self._actor = ray.remote(**options)(Worker)
        self._lives: list[_Life] = []
        self._spent = Load()  # by workers that have ended
        self._twice = 0  # rows that will be counted a second time, for their unit was lost
        self._left: list[Failure] = []  # why places on the cluster were left

    async def run(self, places: Sequence[int]) -> list[int]:
        """Do the units at these places of the plan; those that were given up are returned.

        Raises `LlmOcrError` when no worker is left, and what would meet every worker.
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
        """The numbers of all workers' engines."""
        return _sum([self._spent, *(life.load for life in self._lives)])

    async def _place(self, number: int) -> None:
        """One place on the cluster: a worker, and those that replace it."""
        fruitless = 0
        while await self._hands.wanted():
            life = _Life(number, self._actor.remote(self._work))
            self._lives.append(life)
            try:
                await self._live(life)
            except _Lost as lost:
                fruitless = 0 if life.finished else fruitless + (not self._hands.alone(life.held))
                self._lose(life, lost.failure)
                # What we raise on purpose was tried more than once already: a server that does not start, a store.
                if fruitless >= (1 if lost.failure.ours else FRUITLESS):
                    self._left.append(lost.failure)
                    return
            self._end(life)
            await asyncio.sleep(_PAUSE)  # others may have taken by then what it had

    async def _live(self, life: _Life) -> None:
        """Feed a worker until it has ended as it should; until all is done, where it gets no place before."""
        first = asyncio.create_task(self._ask(life))
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
            report = await self._ask(life)

    async def _ask(self, life: _Life) -> Report:
        """One turn of a worker; asked again where it cannot be reached for a moment."""
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
        """What a worker tells; False when it has ended as it should."""
        life.host, life.waiting, life.load = report.host, report.waiting, report.load
        for level, line in report.said:
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
        """A worker is lost. Raises the error that would meet every worker."""
        if failure.everywhere:
            raise LlmOcrError(f"{life.name}: {failure.message}", hint=failure.hint)
        self._twice += max(0, life.counted - life.settled)
        back = f"; {units_text(len(life.held))} to be done by others" if life.held else ""
        self._progress.say(f"{life.name} was lost: {failure.message}{back}")
        self._hands.back(life.held, blame=not failure.ours)

    def _end(self, life: _Life) -> None:
        """End its process, or its wait for a place."""
        self._lives.remove(life)
        self._spent = _sum([self._spent, _past(life.load)])
        self._ray.kill(life.actor)

    async def _stop(self) -> None:
        """End the workers that there still are; their servers end in their own order."""
        stops = [asyncio.ensure_future(_settled(life.actor.stop.remote())) for life in self._lives if life.host]
        if stops:
            await asyncio.wait(stops, timeout=_STOPPING_CREW)
        for life in list(self._lives):
            self._end(life)

    async def _watch(self) -> None:
        """Say when workers wait for a place on the cluster."""
        needs = f"{self._size.gpus:g} GPU and a CPU" if self._size.gpus else "a CPU"
        pause = _PATIENCE
        while True:
            await asyncio.sleep(pause)
            waiting = sum(not life.host for life in self._lives)
            if waiting:
                self._progress.say(f"{waiting} of {self._size.workers} workers wait for a node with {needs} free")
            pause = _REMIND


def units_text(number: int) -> str:
    """`1 unit`, `2 units`."""
    return f"{number} unit{'' if number == 1 else 's'}"


async def _settled(answer: Awaitable[None]) -> None:
    with contextlib.suppress(Exception):  # it is killed in any case
        await answer


def reason_of(text: str) -> Failure:
    """Why a worker was lost, from what Ray says of it."""
    lines = [line.strip() for line in _COLOURS.sub("", text).splitlines() if line.strip()]
    if any("failed to import on the worker" in line for line in lines):
        return Failure(
            f"llm-ocr cannot be loaded on the cluster's nodes: {lines[-1]}",
            hint="Install the same version of llm-ocr with the same extras on every node.",
            everywhere=True,
        )
    told = next((line for line in lines if line.startswith("The actor is dead because")), "")
    told = told.removeprefix("The actor is dead because ").partition(" Some common causes include")[0]
    return Failure(told or (lines[-1] if lines else "it died"))


def _past(load: Load) -> Load:
    """What stays of the numbers of an engine that is no more."""
    return replace(load, servers=0, window=0, in_flight=0, queued=0, running=None, waiting=None)


def _sum(loads: Sequence[Load]) -> Load:
    sums: dict[str, int | None] = {}
    numbers = [asdict(load) for load in loads]
    for one in fields(Load):
        known = [each[one.name] for each in numbers if each[one.name] is not None]
        sums[one.name] = sum(known) if known else None
    return Load(**sums)  # type: ignore[arg-type]  # None only where one of them is None, which none but gauges are


# Extract and Describe on a Ray cluster: this process plans and hands out units, workers on the nodes do them. A worker
# is an actor with an engine of its own (`ray_worker`). When one is lost, its units go to others (`ray_crew`): whatever
# is done twice is published once.


#: The command's name decides which settings the job has; types cannot say that.
Stage = Callable[[Job[Any]], Awaitable[None]]

LOCAL = "local"
_NAMES: dict[Stage, str] = {extract: EXTRACT, describe: DESCRIBE}
#: Seconds to reach the cluster's head, for Ray to be ready there, and to start or to end on this machine.
_REACHED, _READY, _STARTED = 10.0, 30.0, 120.0
#: Bytes of Ray's memory for objects on this machine: what passes through it is small.
_OBJECTS = 100 << 20


class Elsewhere(Engines):
    """The models of a command whose servers run on other machines: good for keys, not for questions."""

    def _servers(self, profile: Profile, model: str, revision: str | None) -> Sequence[Server]:
        return []


@contextlib.asynccontextmanager
async def cluster(settings: ServingCommand) -> AsyncIterator[Callable[[Stage, Job[Any]], Awaitable[None]]]:
    """Carries out stages, Extract and Describe on the cluster and others here, while the block lasts.

    Raises `MissingExtra` without Ray, `UsageError` for settings that do not go with it, `LlmOcrError` when the cluster
    cannot be reached.
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

        async def carry_out(stage: Stage, job: Job[Any]) -> None:
            if stage in _NAMES:
                await _Driver(ray, job, stage).run()
            else:
                await stage(job)

        yield carry_out
    finally:
        await connection.close()


class _Connection(threading.Thread):
    """Ray, connected in a thread that lives as long as the connection.

    Ray's processes on this machine end with the thread that started them, and only in the main thread Ray would take
    SIGTERM away from us. One that the caller has connected before is used, and left as it is.
    """

    def __init__(self, address: str) -> None:
        super().__init__(name="llm_ocr ray", daemon=True)
        self._address = address
        self._ready = threading.Event()
        self._over = threading.Event()
        self._ray: Any = None
        self._error: BaseException | None = None

    async def opened(self) -> Any:
        """The package `ray`."""
        self.start()
        patience = _STARTED if self._address == LOCAL else _READY
        if not await asyncio.to_thread(self._ready.wait, patience):
            raise self._unreachable(f"no answer in {patience:.0f} seconds")
        if isinstance(self._error, LlmOcrError):
            raise self._error
        if self._error is not None:
            raise self._unreachable(str(self._error).strip().partition("\n")[0]) from self._error
        return self._ray

    async def close(self) -> None:
        """Leave the cluster; one of this machine alone ends."""
        self._over.set()
        if self._ready.is_set() and self.is_alive():
            await asyncio.to_thread(self.join, _STARTED)

    def run(self) -> None:
        leave = False
        try:
            leave = self._connect()
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            self._error = error
        self._ready.set()
        self._over.wait()
        if leave:
            self._ray.shutdown()

    def _connect(self) -> bool:
        """Whether it is to be left again."""
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
        """A look whether somebody listens there: Ray itself would try for a minute."""
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
        """Returns when all units are published. Raises `LlmOcrError` when some could not be done."""
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
            # A store that gathers writes may have lost those of a worker that died after it had told of them.
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
    """How many workers of which size these nodes' resources allow, unless the settings say it.

    Raises `LlmOcrError` when there is no node for any.
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
    """The settings for a worker: nothing in them names a file of secrets of this machine, or a folder by half."""
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
    """What is to be done, and what of it is done."""
    if stage == EXTRACT:
        return expected_pages(workspace, key)
    source = required_key(workspace, pages_from)
    figures = sum(marker.figures.expected for marker in iter_markers(workspace, pages_from, source))
    return Expected(figures, sum((marker.figures for marker in iter_markers(workspace, stage, key)), Counts()))


def _left(workspace: Workspace, stage: str, key: str, planned: PlannedUnits) -> list[int]:
    """The places of units without a marker."""
    done = done_units(workspace, stage, key)
    return [place for place in range(len(planned)) if planned.name(place) not in done]


def _witness(planned: PlannedUnits, place: int) -> str:
    """A document on this machine's disks that a worker has to see too; "" when there is none."""
    sources = (part.source for part in planned[place].parts if not is_remote(part.source))
    return next((source for source in sources if Path(source).is_file()), "")


def _given_up(planned: PlannedUnits, places: Sequence[int]) -> LlmOcrError:
    shown = [f"{planned.name(place)} ({planned[place].parts[0].relative})" for place in sorted(places)[:5]]
    more = f" and {len(places) - 5} more" if len(places) > 5 else ""
    return LlmOcrError(
        f"{units_text(len(places))} given up, for every worker on it died: {', '.join(shown)}{more}",
        hint="All others are done. Run the command without --ray to see what happens; Ray's logs tell how they died.",
    )
