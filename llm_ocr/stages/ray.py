"""Run Extract and Describe on a Ray cluster: actors on the nodes run the stage, and this process assigns the units.

An actor is a `Worker` with its own engine and its own connection to the workspace. The `Crew` starts the workers,
replaces lost workers, and sums up their reports. A unit that is processed twice is published once.
"""

import asyncio
import concurrent.futures
import contextlib
import logging
import os
import platform
import re
import socket
import threading
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pydantic import SecretStr

from llm_ocr.config.environment import cores, quiet_ray
from llm_ocr.config.groups import VLLM, FollowSettings, RenderSettings, ShardSettings, SourceSettings
from llm_ocr.config.models import ClusterCommand, RetrySettings
from llm_ocr.documents.remote.urls import is_remote
from llm_ocr.engines import Load
from llm_ocr.errors import LlmOcrError, MissingExtra, UsageError, WorkspaceError, WorkspaceMismatch
from llm_ocr.scheduling.scanner import PlannedUnits
from llm_ocr.stages import Progress, Silent
from llm_ocr.stages.describe import describe
from llm_ocr.stages.extract import Expected, expected_pages, extract
from llm_ocr.stages.job import Job, Share, Stage, log_folder, without_servers, worker_name
from llm_ocr.stages.loop import run_blocking
from llm_ocr.stages.recording import Recorded
from llm_ocr.stages.remote import Remote
from llm_ocr.stages.rendering import passwords
from llm_ocr.stages.servers import Engines, server_key
from llm_ocr.stages.sharing import copy_markers, pages_stage
from llm_ocr.storage.local import LocalStore
from llm_ocr.types import Counts, Status, Unit, plural
from llm_ocr.workspace import Workspace, library_version
from llm_ocr.workspace.codec import parse_unit_id
from llm_ocr.workspace.generations import generations
from llm_ocr.workspace.keys import DESCRIBE, EXTRACT, newest_key, required_key
from llm_ocr.workspace.publish import ESTIMATED, correction, done_units, find_marker, is_done, iter_markers
from llm_ocr.workspace.stored import workspace_options

LOCAL = "local"
_STAGES: dict[str, Stage] = {EXTRACT: extract, DESCRIBE: describe}
_log = logging.getLogger(__name__)


# Assignment of the units. A unit is identified by its position in the plan (`place`).


#: Units that a worker has in addition to those in progress, so that its server never waits for the driver.
AHEAD = 2
#: Lost workers after which a unit is assigned to a worker that has no other unit, and after which it is aborted.
SUSPECT, MOST_LOST = 2, 4
#: Seconds that a worker delays a report without news.
_NOTHING_NEW = 1.0


class UnitQueue:
    """Units that no worker holds, and the losses of each unit. Belongs to one event loop."""

    def __init__(self, places: Iterable[int]) -> None:
        self.finished = asyncio.Event()
        self.aborted: list[int] = []
        self._todo = deque(places)
        self._suspects: deque[int] = deque()
        self._left = set(self._todo)
        self._lost: Counter[int] = Counter()
        self.done()

    async def wanted(self) -> bool:
        """Return True when a new worker would receive a unit; False when all units are finished."""
        while not (self.finished.is_set() or self._todo or self._suspects):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.finished.wait(), _NOTHING_NEW)
        return not self.finished.is_set()

    def take(self, held: Collection[int], waiting: int) -> list[int]:
        """Return the next units of a worker that holds the units `held` and has not begun `waiting` of them."""
        taken: list[int] = []
        while waiting + len(taken) < AHEAD and not self.alone([*held, *taken]):
            if self._todo:
                taken.append(self._todo.popleft())
            elif self._suspects and not held and not taken:
                taken.append(self._suspects.popleft())
            else:
                break
        return taken

    def alone(self, held: Iterable[int]) -> bool:
        """Return whether these units are a single suspect unit."""
        return any(self._lost[place] >= SUSPECT for place in held)

    def done(self, *places: int) -> None:
        """Mark units as published."""
        self._left.difference_update(places)
        if not self._left:
            self.finished.set()

    def restore(self, held: Iterable[int], *, blame: bool) -> None:
        """Take back the units of a lost worker. `blame` is whether a unit may be the cause of the loss."""
        for place in held:
            self._lost[place] += blame
            if self._lost[place] >= MOST_LOST:
                self.aborted.append(place)
                self.done(place)
            else:
                (self._suspects if self.alone([place]) else self._todo).append(place)


# A worker. It imports nothing of Ray: the driver turns `Worker` into an actor.


@dataclass(frozen=True, slots=True)
class Size:
    """Number of workers, GPUs of each worker, and the largest number of workers per machine."""

    workers: int
    gpus: float
    per_node: int


@dataclass(frozen=True, slots=True)
class Work:
    """Task of the workers."""

    stage: str
    key: str  # a worker with another stage key fails
    published: str  # key below which the units are published; of a repair, that of the workspace
    settings: ClusterCommand
    engine: str
    size: Size
    folder: str  # the driver's current folder, for paths in `settings`
    witness: str  # a document on the driver's disks that the worker must see; empty if there is none
    version: str  # of the library
    commits: Mapping[str, str | None] = field(default_factory=dict)  # of models; another commit gives another key


@dataclass(unsafe_hash=True)
class Failure(Exception):
    """Failure of a worker.

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
    """A published unit: its rows, its documents without a page count in the plan, and the change of their pages."""

    rows: int
    estimated: int = 0
    change: int = 0


@dataclass(frozen=True, slots=True)
class Report:
    """Report of a worker."""

    host: str
    waiting: int  # units that are not begun
    done: Mapping[int, Done]  # the published units among the held units
    counted: Mapping[Status, int]  # rows since the last report
    messages: Sequence[tuple[int, str]]  # since the last report: logging level (0 for users) and text
    load: Load
    ended: bool
    failure: Failure | None


class Worker(Silent):
    """Runs the stage in a thread, over the units that the driver assigns, and is its `Progress`.

    The driver calls `turn` and `stop`, one at a time.
    """

    def __init__(self, work: Work) -> None:
        with contextlib.suppress(OSError):
            os.chdir(work.folder)
        self._work = work
        self._changed = threading.Condition()
        self._news = self._closed = self._ended = False
        self._queue: deque[int] = deque()
        self._given: dict[int, Done | None] = {}
        self._counted: Counter[Status] = Counter()
        self._messages: list[tuple[int, str]] = []
        self._load: Callable[[], Load] = Load
        self._failure: Failure | None = None
        self._cancel: Callable[[], object] = lambda: None
        self._thread = threading.Thread(target=self._run, name="llm_ocr", daemon=True)
        self._thread.start()

    def turn(self, held: Sequence[int], *, over: bool) -> Report:
        """Receive the assigned units, and return a report, after a short wait if there is no news.

        Calls with the same units may be repeated: the next report replaces a lost one.

        Args:
            held: All units assigned to this worker.
            over: Whether the worker ends after these units.
        """
        with self._changed:
            fresh = [place for place in held if place not in self._given]
            self._given.update(dict.fromkeys(fresh))
            self._queue.extend(fresh)
            self._closed |= over
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._news, _NOTHING_NEW)
            self._news = False
            counted, self._counted = self._counted, Counter()
            messages, self._messages = self._messages, []
            done = {place: done for place in held if (done := self._given[place]) is not None}
            return Report(
                platform.node(), len(self._queue), done, counted, messages, self._load(), self._ended, self._failure
            )

    def stop(self) -> None:
        """End at once. Published units remain."""
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._cancel()
        self._thread.join(_STOPPING)

    def published(self, place: int, done: Done) -> None:
        """Mark a unit as published."""
        with self._reported():
            self._given[place] = done

    def count(self, status: Status) -> None:
        with self._changed:
            self._counted[status] += 1

    def measure(self, load: Callable[[], Load]) -> None:
        self._load = load

    def say(self, message: str) -> None:
        self.log(0, message)

    def log(self, level: int, message: str) -> None:
        """Send a line to the driver's log."""
        with self._reported():
            self._messages.append((level, message))

    @contextlib.contextmanager
    def _reported(self) -> Iterator[None]:
        """Change the state in the block, and report it at once."""
        with self._changed:
            yield
            self._news = True
            self._changed.notify_all()

    def _run(self) -> None:
        logger, failure = logging.getLogger("llm_ocr"), None
        logger.setLevel(self._work.settings.log_level.upper())
        logger.propagate = False
        logger.addHandler(handler := _Forward(self))
        try:
            run_blocking(self._stage)
        except LlmOcrError as error:
            everywhere = isinstance(error, UsageError | WorkspaceError | MissingExtra)
            failure = Failure(error.args[0], error.hint, everywhere, ours=True)
        except BaseException as error:  # noqa: BLE001 - reported to the driver
            _log.debug("the worker ended with an error", exc_info=True)
            failure = Failure(f"{type(error).__name__}: {error}")
        logger.removeHandler(handler)
        with self._reported():
            self._ended, self._failure = True, failure

    async def _stage(self) -> None:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        self._cancel = lambda: loop.call_soon_threadsafe(task.cancel)
        work, settings = self._work, shared_cores(self._work)
        workspace = await asyncio.to_thread(_opened, work)
        name = worker_name()
        engines = Engines(work.engine, settings, log_folder(workspace, name), self.say)
        engines.commits.update(work.commits)
        remote, recorded = Remote(settings), Recorded(self, workspace, name, settings)
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(engines.close)
            await stack.enter_async_context(recorded.kept())
            stack.push_async_callback(remote.close)
            share = self._share(workspace)
            job = Job(workspace, settings, recorded, engines, remote, share, command=work.stage)
            try:
                await _STAGES[work.stage](job)
            finally:
                with self._reported():
                    self._closed = True  # a thread may wait for units
        await asyncio.to_thread(workspace.flush)

    def _share(self, workspace: Workspace) -> Share:
        work, places = self._work, dict[str, int]()

        def units() -> Iterator[Unit]:
            planned = PlannedUnits(workspace)
            while True:
                with self._reported():
                    self._changed.wait_for(lambda: self._queue or self._closed)
                    if self._closed:
                        return
                    place = self._queue.popleft()
                unit = planned[place]
                places[unit.id] = place
                if is_done(workspace, work.stage, work.published, unit.id):  # by another worker meanwhile
                    done(unit.id)
                else:
                    yield unit

        def done(unit: str) -> None:
            marker = find_marker(workspace, work.stage, work.published, unit)
            if marker is None:  # a store that batches writes; the driver checks at the end
                found = Done(0)
            elif work.stage == DESCRIBE:
                found = Done(marker.figures.expected)
            else:
                estimated = int(marker.summary.extra.get(ESTIMATED, 0))
                found = Done(marker.counts.expected, estimated, correction(marker.summary))
            self.published(places.pop(unit), found)

        def begun(key: str) -> None:
            if key != work.key:
                raise WorkspaceMismatch(
                    f"{platform.node()} would make other results than the driver (key {key}, not {work.key})",
                    hint="Use the same version of llm-ocr, with the same extras, on all machines of the cluster.",
                )

        return Share(units(), done=done, begun=begun)


class _Forward(logging.Handler):
    """Sends the library's log records to the driver."""

    def __init__(self, worker: Worker) -> None:
        super().__init__()
        self._worker = worker

    def emit(self, record: logging.LogRecord) -> None:
        self._worker.log(record.levelno, self.format(record))


def _opened(work: Work) -> Workspace:
    """Open the workspace. Raises `LlmOcrError` if this machine cannot process the driver's units."""
    node, version = platform.node(), library_version()
    if version != work.version:
        raise MissingExtra(
            f"llm-ocr {version} is installed on {node}, and {work.version} where the command was started",
            hint="Use the same version on all machines of the cluster.",
        )
    try:
        workspace = Workspace.open(str(work.settings.workspace), options=workspace_options(work.settings))
    except WorkspaceMismatch:
        raise
    except WorkspaceError as error:
        raise WorkspaceError(
            f"{error.args[0]} on {node}",
            hint="Every machine of the cluster must reach the workspace: a folder on a shared disk, or "
            "s3:// or gs:// with credentials in each machine's environment.",
        ) from error
    if work.witness and not Path(work.witness).exists():
        raise WorkspaceError(
            f"{work.witness} is not on {node}",
            hint="Every machine of the cluster must reach the documents: put them on a shared disk under the same "
            "path, or on s3:// or gs://.",
        )
    return workspace


def shared_cores(work: Work) -> ClusterCommand:
    """Return the settings with this worker's share of the cores, unless the user set them."""
    settings, per_node = work.settings, work.size.per_node
    given = {"ocr_workers": settings.ocr_workers}
    if isinstance(settings, RenderSettings):
        given["render_workers"] = settings.render_workers
    left_open = {name: max(1, cores() // per_node) for name, value in given.items() if value is None}
    return settings.model_copy(update=left_open) if per_node > 1 else settings


# The workers of a stage, as the driver sees them.


#: Consecutive workers without a finished unit after which they are not replaced.
FRUITLESS = 3
#: Seconds until a lost worker is replaced, until workers that wait for a node are reported, and reported again.
_PAUSE, _FIRST_NOTICE, _REMIND = 2.0, 30.0, 300.0
#: Seconds for a stage to stop, and for all workers to stop.
_STOPPING, _ALL_STOPPING = 15.0, 18.0
_COLORS = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(slots=True, eq=False)
class _Life:
    """One worker from start to end."""

    number: int
    actor: Any
    task: "asyncio.Task[None]"
    host: str = ""  # empty until the worker runs
    held: dict[int, None] = field(default_factory=dict)  # in the order of assignment
    finished: int = 0  # units
    unsettled: int = 0  # rows of unfinished units
    load: Load = field(default_factory=Load)

    @property
    def name(self) -> str:
        return f"worker {self.number}" + (f" ({self.host})" if self.host else "")


class Crew:
    """Workers that process the units of a stage.

    Args:
        ray: The package `ray`, connected.
        work: The task of the workers.
        progress: Receives the progress.
        estimated: Documents that are not counted yet.
    """

    def __init__(self, ray: Any, work: Work, progress: Progress, estimated: int) -> None:
        self._ray, self._work, self._progress, self._estimated = ray, work, progress, estimated
        # Ray restarts nothing, so that every loss is visible here. It repeats calls of unreachable workers.
        options = {"max_restarts": 0, "max_task_retries": -1, "scheduling_strategy": "SPREAD"}
        self._actor = ray.remote(num_gpus=work.size.gpus, **options)(Worker)
        self._units = UnitQueue(())
        self._lives: list[_Life] = []
        self._spent = Load()  # by ended workers
        self._twice = 0  # rows of lost units, which will be counted again
        self._last = Failure("")  # of a worker that was not replaced

    async def run(self, places: Sequence[int]) -> list[int]:
        """Process the units at these places of the plan.

        Returns:
            The units that were aborted because their workers died.

        Raises:
            LlmOcrError: No worker is left, or an error would affect every worker.
        """
        units = self._units = UnitQueue(places)
        waiting = asyncio.create_task(self._watch_waiting())
        try:
            async with asyncio.TaskGroup() as tasks:
                for number in range(min(self._work.size.workers, len(places))):
                    tasks.create_task(self._work_on(number))
        finally:
            waiting.cancel()
            stops = [life.actor.stop.remote() for life in self._lives if life.host]
            if stops:  # their servers shut down in order; workers that do not answer are killed below
                await asyncio.wait({asyncio.gather(*stops, return_exceptions=True)}, timeout=_ALL_STOPPING)
            for life in list(self._lives):
                self._end(life)
        if not units.finished.is_set():
            message = f"no worker is left on the cluster; the last one: {self._last.message}"
            raise LlmOcrError(message, hint=self._last.hint)
        return units.aborted

    def load(self) -> Load:
        """Return the sum of the numbers of all workers' engines."""
        return _sum([self._spent, *(life.load for life in self._lives)])

    async def _work_on(self, number: int) -> None:
        """Run a worker and its replacements, until all units are finished or the workers achieve nothing."""
        fruitless, task = 0, asyncio.current_task()
        assert task is not None
        while await self._units.wanted():
            life = _Life(number, self._actor.remote(self._work), task)
            self._lives.append(life)
            try:
                await self._watch(life)
            except Failure as failure:
                fruitless = 0 if life.finished else fruitless + (not self._units.alone(life.held))
                self._lose(life, failure)
                # Errors of the library were already retried: a server that does not start, a store.
                if fruitless >= (1 if failure.ours else FRUITLESS):
                    self._last = failure
                    return
            self._end(life)
            await asyncio.sleep(_PAUSE)  # meanwhile other workers may take its units

    async def _watch(self, life: _Life) -> None:
        """Assign units to a worker until all units are finished. Raises `Failure` if the worker ends early."""
        while True:
            over = self._units.finished.is_set()
            try:
                report: Report = await life.actor.turn.remote(tuple(life.held), over=over)
            except self._ray.exceptions.RayError as error:
                raise reason_of(str(error)) from error
            self._accept(life, report)
            if report.ended:
                if over and report.failure is None:
                    return
                raise report.failure or Failure("it ended early")
            life.held.update(dict.fromkeys(self._units.take(life.held, report.waiting)))

    def _accept(self, life: _Life, report: Report) -> None:
        """Pass a report on to the progress and the log."""
        life.host, life.load = report.host, report.load
        for level, line in report.messages:
            if level:
                _log.log(level, "%s: %s", life.name, line)
            else:
                self._progress.say(f"{life.name}: {line}")
        for status, number in report.counted.items():
            life.unsettled += number
            again = min(number, self._twice)
            self._twice -= again
            for _ in range(number - again):
                self._progress.count(status)
        for place, done in report.done.items():
            del life.held[place]
            life.finished += 1
            life.unsettled -= done.rows
            self._units.done(place)
            if done.estimated:
                self._estimated -= done.estimated
                self._progress.correct(done.change, exact=self._estimated <= 0)

    def _lose(self, life: _Life, failure: Failure) -> None:
        """Take back the units of a lost worker. Raises an error that would affect every worker."""
        if failure.everywhere:
            raise LlmOcrError(f"{life.name}: {failure.message}", hint=failure.hint)
        self._twice += max(0, life.unsettled)
        back = f"; other workers process its {plural(len(life.held), 'unit')}" if life.held else ""
        self._progress.say(f"{life.name} was lost: {failure.message}{back}")
        self._units.restore(life.held, blame=not failure.ours)

    def _end(self, life: _Life) -> None:
        """End the worker's process, or its wait for a node."""
        self._lives.remove(life)
        past = replace(life.load, servers=0, window=0, in_flight=0, queued=0, running=None, waiting=None)
        self._spent = _sum([self._spent, past])
        self._ray.kill(life.actor)

    async def _watch_waiting(self) -> None:
        """Report workers that wait for a node, and cancel them when all units are finished."""
        size, pause, finished = self._work.size, _FIRST_NOTICE, self._units.finished
        needs = f"{size.gpus:g} GPU and a CPU" if size.gpus else "a CPU"
        waiting: list[_Life] = []
        while not finished.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(finished.wait(), pause)
            pause, waiting = _REMIND, [life for life in self._lives if not life.host]
            if waiting and not finished.is_set():
                self._progress.say(f"{len(waiting)} of {size.workers} workers wait for a node with {needs} free")
        for life in waiting:
            life.task.cancel()


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


def _sum(loads: Iterable[Load]) -> Load:
    sums: dict[str, float | None] = asdict(Load())
    for load in map(asdict, loads):
        sums |= {name: (sums[name] or 0) + value for name, value in load.items() if value is not None}
    return Load(**sums)  # type: ignore[arg-type]  # only gauges may be None


# The driver.


#: Seconds to reach the cluster's head, for Ray to connect, and for a local cluster to start or end.
_REACHED, _READY, _STARTED = 10.0, 30.0, 120.0
#: Bytes of Ray's object store on this machine. The reports in it are small.
_OBJECTS = 100 << 20


@contextlib.asynccontextmanager
async def cluster(settings: ClusterCommand) -> AsyncIterator[Callable[[Stage, Job[Any]], Awaitable[None]]]:
    """Connect to the cluster; yield a function that runs Extract and Describe on it and other stages here.

    Raises:
        MissingExtra: Ray is not installed.
        UsageError: The settings contradict Ray.
        LlmOcrError: The cluster cannot be reached.
    """
    shares = isinstance(settings, ShardSettings) and settings.shard_count > 1
    if shares or (isinstance(settings, FollowSettings) and settings.follow):
        raise UsageError(
            "`ray` cannot be combined with `shard_count` or `follow`",
            hint="One command assigns all units to the cluster. `run` with `ray` does Extract, then Describe.",
        )
    async with _connected(settings.ray or LOCAL) as ray:

        async def run_stage(stage: Stage, job: Job[Any]) -> None:
            name = next((name for name, known in _STAGES.items() if known is stage), None)
            await (stage(job) if name is None else _run_stage(ray, name, job))

        yield run_stage


@contextlib.asynccontextmanager
async def _connected(address: str) -> AsyncIterator[Any]:
    """Connect to the cluster, and yield the package `ray`.

    Ray has its own thread: its processes on this machine end with the thread that started them, and in the main thread
    Ray would replace the SIGTERM handler. A connection of the caller is reused and left open.
    """
    connected: concurrent.futures.Future[Any] = concurrent.futures.Future()
    over = threading.Event()

    def run() -> None:
        connected.set_running_or_notify_cancel()  # a cancellation after this point has no effect
        try:
            ray, leave = _connect(address)
        except BaseException as error:  # noqa: BLE001 - raised in the event loop
            connected.set_exception(error)
            return
        connected.set_result(ray)
        over.wait()
        if leave:
            ray.shutdown()

    def unreachable(why: str) -> LlmOcrError:
        return LlmOcrError(
            f"`ray={address}`: the cluster cannot be used: {why}",
            hint="Give the address of its head, HOST:6379, on a machine of the cluster; ray://HOST:10001 on others; "
            "`auto` where `ray start` was called; or `local` for this machine alone.",
        )

    thread = threading.Thread(target=run, name="llm_ocr ray", daemon=True)
    thread.start()
    timeout = _STARTED if address == LOCAL else _READY
    try:
        attempt = asyncio.wrap_future(connected)
        await asyncio.wait({attempt}, timeout=timeout)
        if not attempt.done():
            raise unreachable(f"no answer in {timeout:.0f} seconds")
        if (error := attempt.exception()) is not None:
            raise error if isinstance(error, LlmOcrError) else unreachable(str(error).strip().partition("\n")[0])
        yield attempt.result()
    finally:
        over.set()
        if connected.done():
            await asyncio.to_thread(thread.join, _STARTED)


def _connect(address: str) -> tuple[Any, bool]:
    """Connect; return the package `ray`, and whether to disconnect at the end."""
    quiet_ray(alone=address == LOCAL)
    try:
        import ray
    except ImportError as error:
        raise MissingExtra("`ray`: Ray is not installed", install="ray") from error
    if ray.is_initialized():
        return ray, False
    logging.getLogger("ray").setLevel(logging.ERROR)
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address == LOCAL:
        options |= {"include_dashboard": False, "object_store_memory": _OBJECTS, "num_cpus": cores()}
    elif address != "auto":  # Ray itself would try for a minute
        parts = urlsplit(address if "//" in address else f"//{address}")
        if not parts.hostname or not parts.port:
            raise ValueError("not of the form HOST:PORT")
        socket.create_connection((parts.hostname, parts.port), timeout=_REACHED).close()
    ray.init(address=address, **options)
    return ray, True


async def _run_stage(ray: Any, name: str, job: Job[ClusterCommand]) -> None:
    """Publish all units of a stage. Raises `LlmOcrError` if units could not be processed."""
    workspace, progress, settings = job.workspace, job.progress, job.settings
    key, commits = await _key(name, job)
    units = await asyncio.to_thread(PlannedUnits, workspace)
    planned = {generation.number: generation for generation in units.generations}
    base = await asyncio.to_thread(newest_key, workspace, name) if name == EXTRACT else None
    published = base if base and any(one.key(base) == key for one in units.generations) else key
    expected = await asyncio.to_thread(_expected, workspace, name, key, published, pages_stage(settings))

    def unfinished() -> list[int]:
        done = done_units(workspace, name, published)
        open_units = [(place, units.name(place)) for place in range(len(units)) if units.name(place) not in done]
        if name != EXTRACT:
            return [place for place, _ in open_units]
        return [place for place, unit in open_units if planned[parse_unit_id(unit)[0]].key(published) == key]

    left = await asyncio.to_thread(unfinished)
    if left:
        nodes = [node for node in await asyncio.to_thread(ray.nodes) if node["Alive"]]
        size = size_of(settings, job.engines.engine, [node["Resources"] for node in nodes])
        hosts = {node["NodeManagerHostname"] for node in nodes}
        if isinstance(workspace.store, LocalStore) and len(hosts) > 1:
            progress.say(f"{workspace.url} is a folder: all {len(nodes)} nodes must see it under this path")
        work = Work(
            stage=name,
            key=key,
            published=published,
            settings=await asyncio.to_thread(_for_nodes, settings, workspace),
            engine=job.engines.engine,
            size=size,
            folder=str(Path.cwd()),
            witness=await asyncio.to_thread(_witness, units[left[0]]) if name == EXTRACT else "",
            version=library_version(),
            commits=commits,
        )
        crew = Crew(ray, work, progress, expected.estimated)
        if job.engines.uses_models:
            progress.measure(crew.load)
    progress.begin(name, expected.pages, expected.done, estimated=bool(expected.estimated))
    while left:
        if aborted := sorted(await crew.run(left)):
            shown = [f"{units.name(place)} ({units[place].parts[0].relative})" for place in aborted[:5]]
            more = f" and {len(aborted) - 5} more" if len(aborted) > 5 else ""
            raise LlmOcrError(
                f"{plural(len(aborted), 'unit')} aborted, because every worker on it died: {', '.join(shown)}{more}",
                hint="All other units are done. Run the command without `ray` to see the cause, or read Ray's logs.",
            )
        # A store that batches writes may have lost those of a worker that crashed after its report.
        before, left = left, await asyncio.to_thread(unfinished)
        if left == before:
            raise LlmOcrError(f"{plural(len(left), 'unit')} processed, but {workspace.url} has no marker of them")
    await asyncio.to_thread(copy_markers, workspace, name, published, units)
    progress.end()


async def _key(name: str, job: Job[ClusterCommand]) -> tuple[str, Mapping[str, str | None]]:
    """Run the stage over no units; return its key, which no unit has claimed yet, and the commits in it."""
    keys: list[str] = []
    keyed = without_servers(job)
    await _STAGES[name](replace(keyed, progress=Silent(), given=Share((), begun=keys.append)))
    return keys[0], dict(keyed.engines.commits)


def size_of(settings: ClusterCommand, engine: str, nodes: Sequence[dict[str, float]]) -> Size:
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
            hint="Set `ray_gpus=0` with running servers or the CPU engine; `ray_workers=N` if nodes start on demand.",
        )
    per_node = max(fits, default=1) if gpus else -(-workers // max(1, len(fits)))
    return Size(workers, gpus, max(1, min(per_node, workers)))


def _for_nodes(settings: ClusterCommand, workspace: Workspace) -> ClusterCommand:
    """Return the settings for workers, with secrets instead of files of this machine and an absolute workspace path."""
    changes: dict[str, Any] = {"log_file": None, "server_key_file": None}
    if isinstance(workspace.store, LocalStore):
        changes["workspace"] = str(workspace.store.root.absolute())
    if key := server_key(settings.server_key, settings.server_key_file):
        changes["server_key"] = SecretStr(key)
    if isinstance(settings, SourceSettings | RetrySettings):
        found = passwords(settings.password, settings.password_file)
        changes |= {"password": tuple(map(SecretStr, found)), "password_file": None}
    return settings.model_copy(update=changes)


def _expected(workspace: Workspace, stage: str, key: str, published: str, pages_from: str) -> Expected:
    """Return the expected and finished rows."""
    if stage == EXTRACT:
        own = [generation for generation in generations(workspace) if generation.key(published) == key]
        return expected_pages(workspace, published, among=own)
    source = required_key(workspace, pages_from)
    figures = sum(marker.figures.expected for marker in iter_markers(workspace, pages_from, source))
    return Expected(figures, sum((marker.figures for marker in iter_markers(workspace, stage, key)), Counts()))


def _witness(unit: Unit) -> str:
    """Return a document on this machine's disks that workers must see too; empty if there is none."""
    sources = (part.source for part in unit.parts if not is_remote(part.source))
    return next((source for source in sources if Path(source).is_file()), "")
