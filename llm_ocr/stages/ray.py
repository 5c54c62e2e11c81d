"""Run Extract and Describe on a Ray cluster: actors on the nodes run the stage, and this process watches them.

Actors share the units as the workers of any run, by leases, or by a shard each in stores without leases. This process
starts the actors, replaces lost ones, and counts the rows of published units.
"""

import asyncio
import concurrent.futures
import contextlib
import logging
import os
import platform
import re
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from logging.handlers import QueueHandler
from pathlib import Path
from queue import SimpleQueue
from typing import Any
from urllib.parse import urlsplit

from pydantic import SecretStr

from llm_ocr.config.environment import cores, quiet_ray
from llm_ocr.config.groups import VLLM, FollowSettings, RenderSettings, ShardSettings, SourceSettings
from llm_ocr.config.models import ClusterCommand, RetrySettings
from llm_ocr.documents.remote import is_remote
from llm_ocr.engines import Load
from llm_ocr.errors import LlmOcrError, MissingExtra, ServerError, UsageError, WorkspaceError, WorkspaceMismatch
from llm_ocr.scheduling.follow import Published
from llm_ocr.scheduling.scanner import PlannedUnits
from llm_ocr.scheduling.shards import Shard, Split
from llm_ocr.stages import Progress, Silent
from llm_ocr.stages.describe import describe, describe_claim
from llm_ocr.stages.extract import expected_pages, extract, extract_claim
from llm_ocr.stages.job import Job, Stage, log_folder, without_servers, worker_name
from llm_ocr.stages.loop import run_blocking
from llm_ocr.stages.recording import Recorded
from llm_ocr.stages.rendering import Remote, passwords
from llm_ocr.stages.servers import Engines, server_key
from llm_ocr.stages.sharing import Expected, held, pages_stage
from llm_ocr.storage.local import LocalStore
from llm_ocr.types import Status, Unit, plural
from llm_ocr.workspace import Workspace, library_version
from llm_ocr.workspace.codec import read_ahead
from llm_ocr.workspace.generations import Generation, generations
from llm_ocr.workspace.keys import DESCRIBE, EXTRACT, Claim, required_key
from llm_ocr.workspace.publish import standing_marker
from llm_ocr.workspace.status import figures_to_describe
from llm_ocr.workspace.stored import workspace_options
from llm_ocr.workspace.summaries import correction

LOCAL = "local"
#: The stages that run on a cluster. The second function returns the claim of the key of the command's settings.
_STAGES: dict[str, tuple[Stage, Callable[[Job[Any]], Awaitable[Claim]]]] = {
    EXTRACT: (extract, extract_claim),
    DESCRIBE: (describe, describe_claim),
}
#: Consecutive losses of a worker, without a unit that any worker published meanwhile, after which it is not replaced.
FRUITLESS = 3
#: Seconds between two reports of a worker, and until a lost worker is replaced.
_EACH, _PAUSE = 1.0, 2.0
#: Seconds between two looks for published units, until workers that wait for a node are reported, and reported again.
_LOOK, _FIRST_NOTICE, _REMIND = 2.0, 30.0, 300.0
#: Seconds to wait for the last reports of workers after all units are published.
_LAST_REPORT = 10.0
#: Seconds for a stage to stop, and for all workers to stop.
_STOPPING, _ALL_STOPPING = 15.0, 18.0
#: Seconds to reach the cluster's head, for Ray to connect, and for a local cluster to start or end.
_REACHED, _READY, _STARTED = 10.0, 30.0, 120.0
#: Bytes of Ray's object store on this machine. The reports in it are small.
_OBJECTS = 100 << 20
_EVERY_MACHINE = (
    "Every machine of the cluster needs the same version of llm-ocr with the same extras, and must reach the workspace "
    "and the documents: folders on a shared disk under the same path, or s3:// or gs:// with credentials in its "
    "environment."
)
_COLORS = re.compile(r"\x1b\[[0-9;]*m")
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Size:
    """Number of workers, GPUs of each worker, and the largest number of workers per machine."""

    workers: int
    gpus: float
    per_node: int


@dataclass(frozen=True, slots=True)
class Work:
    """Task of a worker."""

    stage: str
    key: str  # of the stage; a worker with another one fails
    settings: ClusterCommand
    engine: str
    per_node: int  # workers that share the cores of a machine
    folder: str  # the driver's current folder, for paths in `settings`
    witness: str  # a document on the driver's disks that the worker must see; empty if there is none
    version: str  # of the library
    commits: Mapping[str, str | None] = field(default_factory=dict)  # of models; another commit gives another key
    split: Split = field(default_factory=lambda: Split(leases=True))


@dataclass(unsafe_hash=True)
class Failure(Exception):
    """Failure of a worker."""

    message: str
    hint: str = ""  # what the user can do
    everywhere: bool = False  # whether other workers would fail in the same way
    ours: bool = False  # whether the library raised the error on purpose


@dataclass(frozen=True, slots=True)
class Report:
    """Report of a worker."""

    host: str
    messages: Sequence[tuple[int, str]]  # since the last report: logging level (0 for users) and text
    load: Load
    ended: bool
    failure: Failure | None
    refusal: Failure | None  # of servers that refused all its requests


class Worker(Silent):
    """Runs the stage in a thread, and is its `Progress`. The driver calls `turn` and `stop`, one at a time.

    It imports nothing of Ray: the driver turns it into an actor.
    """

    def __init__(self, work: Work) -> None:
        with contextlib.suppress(OSError):
            os.chdir(work.folder)
        self._work = work
        self._over = threading.Event()
        self._messages: SimpleQueue[logging.LogRecord] = SimpleQueue()
        self._load: Callable[[], Load] = Load
        self._failure: Failure | None = None
        self._refusal: Failure | None = None
        self._cancel: Callable[[], object] = lambda: None
        self._thread = threading.Thread(target=self._run, name="llm_ocr", daemon=True)

    def turn(self) -> Report:
        """Return a report: the first one at once, with the host; then after a second or at the end."""
        if first := self._thread.ident is None:
            self._thread.start()
        ended = self._over.wait(0.0 if first else _EACH)
        records = [self._messages.get() for _ in range(self._messages.qsize())]
        messages = [(record.levelno, record.getMessage()) for record in records]
        ends = self._failure, self._refusal
        return Report(socket.gethostname(), messages, self._load(), ended, *ends)

    def stop(self) -> None:
        """End at once. Published units remain."""
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._cancel()
        self._thread.join(_STOPPING)

    def measure(self, load: Callable[[], Load]) -> None:
        self._load = load

    def say(self, message: str) -> None:
        self._messages.put(logging.makeLogRecord({"levelno": 0, "msg": message}))

    def _run(self) -> None:
        logger = logging.getLogger("llm_ocr")
        logger.setLevel(self._work.settings.log_level.upper())
        logger.propagate = False
        logger.addHandler(handler := QueueHandler(self._messages))
        try:
            run_blocking(self._stage)
        except LlmOcrError as error:
            everywhere = isinstance(error, UsageError | WorkspaceError | MissingExtra)
            self._failure = Failure(error.args[0], error.hint, everywhere, ours=True)
        except BaseException as error:  # noqa: BLE001 - reported to the driver
            _log.debug("the worker ended with an error", exc_info=True)
            self._failure = Failure(f"{type(error).__name__}: {error}")
        logger.removeHandler(handler)
        self._over.set()

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
            stage, _ = _STAGES[work.stage]
            await stage(Job(workspace, settings, recorded, engines, remote, work.split, work.key, command=work.stage))
        await asyncio.to_thread(workspace.flush)
        try:
            engines.check_answers()
        except ServerError as error:  # no failure: all units are published, and other workers may have answers
            self._refusal = Failure(error.args[0], error.hint)


def _opened(work: Work) -> Workspace:
    """Open the workspace. Raises `LlmOcrError` if this machine cannot process the driver's units."""
    node, version = platform.node(), library_version()
    if version != work.version:
        what = f"llm-ocr {version} is installed on {node}, and {work.version} where the command was started"
        raise MissingExtra(what, hint=_EVERY_MACHINE)
    try:
        workspace = Workspace.open(str(work.settings.workspace), options=workspace_options(work.settings))
    except WorkspaceMismatch:
        raise
    except WorkspaceError as error:
        raise WorkspaceError(f"{error.args[0]} on {node}", hint=_EVERY_MACHINE) from error
    if work.witness and not Path(work.witness).exists():
        raise WorkspaceError(f"{work.witness} is not on {node}", hint=_EVERY_MACHINE)
    return workspace


def shared_cores(work: Work) -> ClusterCommand:
    """Return the settings with this worker's share of the cores, unless the user set them."""
    settings, per_node = work.settings, work.per_node
    given = {"ocr_workers": settings.ocr_workers}
    if isinstance(settings, RenderSettings):
        given["render_workers"] = settings.render_workers
    left_open = {name: max(1, cores() // per_node) for name, value in given.items() if value is None}
    return settings.model_copy(update=left_open) if per_node > 1 else settings


@dataclass(slots=True, eq=False)
class _Life:
    """One worker from start to end."""

    number: int
    actor: Any
    report: Report | None = None  # the last one

    @property
    def name(self) -> str:
        return f"worker {self.number}" + (f" ({self.report.host})" if self.report else "")


class Crew:
    """Workers that process the units of a stage.

    Args:
        ray: The package `ray`, connected.
        work: The task of the workers.
        size: Their number and size.
        workspace: The workspace.
        progress: Receives the progress.
        estimated: Documents that are not counted yet.

    Attributes:
        last: The failure of a worker that was not replaced.
        refusal: The refusal of a worker's servers that answered none of its requests.
    """

    def __init__(
        self, ray: Any, work: Work, size: Size, workspace: Workspace, progress: Progress, estimated: int
    ) -> None:
        self.last = Failure("")
        self.refusal: Failure | None = None
        self._ray, self._work, self._size = ray, work, size
        self._workspace, self._progress, self._estimated = workspace, progress, estimated
        # Ray restarts nothing, so that every loss is visible here. It repeats calls of unreachable workers.
        options = {"max_restarts": 0, "max_task_retries": -1, "scheduling_strategy": "SPREAD"}
        self._actor = ray.remote(num_gpus=size.gpus, **options)(Worker)
        self._lives: list[_Life] = []
        self._spent = Load()  # by ended workers

    def load(self) -> Load:
        """Return the sum of the numbers of all workers' engines."""
        return _sum(self._spent, *(life.report.load for life in self._lives if life.report))

    async def run(self, units: PlannedUnits, key: str) -> None:
        """Process the units until all are published, or until no worker has anything left.

        Args:
            units: The units of the stage.
            key: The key below which they are published; of a repair, that of the workspace.

        Raises:
            LlmOcrError: An error would affect every worker.
        """
        size, passed, notice = self._size, 0.0, _FIRST_NOTICE
        published = Published(self._workspace.store, units, self._work.stage, key)
        await asyncio.to_thread(lambda: list(iter(published.look, [])))  # of earlier runs
        needs = f"{size.gpus:g} GPU and a CPU" if size.gpus else "a CPU"
        workers = min(size.workers, published.missing)
        slots = [asyncio.create_task(self._work_on(Shard(number, workers), published)) for number in range(workers)]
        tasks = set(slots)
        try:
            while tasks and published.missing:
                ended, tasks = await asyncio.wait(tasks, timeout=_LOOK, return_when=asyncio.FIRST_COMPLETED)
                await self._count(published, units, key)
                for task in ended:
                    task.result()
                passed, waiting = passed + _LOOK, sum(life.report is None for life in self._lives)
                if passed >= notice and waiting:
                    notice = passed + _REMIND
                    self._progress.say(f"{waiting} of {size.workers} workers wait for a node with {needs} free")
            # The last report of a worker, which may be a refusal, comes after its last unit.
            deadline = time.monotonic() + _LAST_REPORT
            while tasks and time.monotonic() < deadline and any(life.report for life in self._lives):
                _, tasks = await asyncio.wait(tasks, timeout=_LOOK, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*slots, return_exceptions=True)
            stops = [life.actor.stop.remote() for life in self._lives if life.report]
            if stops:  # their servers shut down in order; workers that do not answer are killed below
                await asyncio.wait({asyncio.gather(*stops, return_exceptions=True)}, timeout=_ALL_STOPPING)
            for life in list(self._lives):
                self._end(life)

    async def _count(self, published: Published, units: PlannedUnits, key: str) -> None:
        """Pass the rows of the newly published units on to the progress."""
        find = partial(standing_marker, self._workspace, self._work.stage, key)
        found = await asyncio.to_thread(lambda: [place for places in iter(published.look, []) for place in places])
        names = [units.name(place) for place in found]
        for marker in await asyncio.to_thread(lambda: list(read_ahead(find, names, "markers"))):
            counts = marker.counts if self._work.stage == EXTRACT else marker.figures
            numbers = {Status.OK: counts.ok, Status.DEGRADED: counts.degraded, Status.FAILED: counts.failed}
            for status in Counter(numbers).elements():
                self._progress.count(status)
            if estimated := marker.summary.extra.estimated:
                self._estimated -= estimated
                self._progress.correct(correction(marker.summary), exact=self._estimated <= 0)

    async def _work_on(self, shard: Shard, published: Published) -> None:
        """Run a worker and its replacements, until no unit is left for it or they achieve nothing."""
        work, fruitless = self._work, 0
        if not work.split.leases:
            work = replace(work, split=Split(shard))
        while fruitless < FRUITLESS:
            life, missing = _Life(shard.index, self._actor.remote(work)), published.missing
            self._lives.append(life)
            try:
                await self._watch(life)
            except Failure as failure:
                self._end(life)
                if failure.everywhere:
                    raise LlmOcrError(f"{life.name}: {failure.message}", hint=failure.hint) from failure
                # Its units are free when its leases expire, or at once if another worker sees that its process ended.
                self._progress.say(f"{life.name} was lost: {failure.message}")
                self.last = failure
                fruitless = 0 if published.missing < missing else fruitless + 1
                # Nothing is left, or it was already retried: a server that does not start, a store.
                if not published.missing or (failure.ours and fruitless):
                    return
                await asyncio.sleep(_PAUSE)
            else:
                self._end(life)
                return

    async def _watch(self, life: _Life) -> None:
        """Follow a worker to its end. Raises `Failure` if it ends with an error."""
        while not (life.report and life.report.ended):
            try:
                report: Report = await life.actor.turn.remote()
            except self._ray.exceptions.RayError as error:
                raise reason_of(str(error)) from error
            life.report = report
            for level, line in report.messages:
                if level:
                    _log.log(level, "%s: %s", life.name, line)
                else:
                    self._progress.say(f"{life.name}: {line}")
        if life.report.failure is not None:
            raise life.report.failure

    def _end(self, life: _Life) -> None:
        """End the worker's process, or its wait for a node."""
        self._lives.remove(life)
        if life.report:
            self.refusal = life.report.refusal or self.refusal
            past = replace(life.report.load, servers=0, window=0, in_flight=0, queued=0, running=None, waiting=None)
            self._spent = _sum(self._spent, past)
        self._ray.kill(life.actor)


def reason_of(text: str) -> Failure:
    """Return why a worker was lost, from Ray's error text."""
    lines = [line.strip() for line in _COLORS.sub("", text).splitlines() if line.strip()]
    if any("failed to import on the worker" in line for line in lines):
        return Failure(f"llm-ocr cannot be loaded on the cluster's nodes: {lines[-1]}", _EVERY_MACHINE, everywhere=True)
    cause = next((line for line in lines if line.startswith("The actor is dead because")), "")
    cause = cause.removeprefix("The actor is dead because ").partition(" Some common causes include")[0]
    return Failure(cause or (lines[-1] if lines else "it died"))


def _sum(*loads: Load) -> Load:
    sums: dict[str, float | None] = asdict(Load())
    for load in map(asdict, loads):
        sums |= {name: (sums[name] or 0) + value for name, value in load.items() if value is not None}
    return Load(**sums)  # type: ignore[arg-type]  # only gauges may be None


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
            name = next((name for name, (known, _) in _STAGES.items() if known is stage), None)
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

    thread = threading.Thread(target=run, name="llm_ocr ray", daemon=True)
    thread.start()
    timeout = _STARTED if address == LOCAL else _READY
    try:
        attempt = asyncio.wrap_future(connected)
        await asyncio.wait({attempt}, timeout=timeout)
        error = attempt.exception() if attempt.done() else f"no answer in {timeout:.0f} seconds"
        if isinstance(error, LlmOcrError):
            raise error
        if error is not None:
            why = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise LlmOcrError(
                f"`ray={address}`: the cluster cannot be used: {why}",
                hint="Give the address of its head, HOST:6379, on a machine of the cluster; ray://HOST:10001 on "
                "others; `auto` where `ray start` was called; or `local` for this machine alone.",
            )
        if threading.current_thread() is threading.main_thread() and (handler := signal.getsignal(signal.SIGTERM)):
            # Ray's library has put its handler before Python's. It aborts the process 3 s later (Abseil's
            # `alarm_on_failure_secs`), and stopping the workers can take longer.
            signal.signal(signal.SIGTERM, handler)
            signal.siginterrupt(signal.SIGTERM, False)
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
    here = without_servers(job)
    stage, claimed = _STAGES[name]
    claim = await claimed(replace(here, progress=Silent()))
    published = await asyncio.to_thread(claim.check)
    own: Sequence[Generation] = await asyncio.to_thread(generations, workspace)
    if name == EXTRACT:
        own = [one for one in own if one.key(published) == claim.key]
    units = await asyncio.to_thread(PlannedUnits, workspace, own)
    left = await asyncio.to_thread(units.without_marker, name, published)
    if not left:  # without a unit, the stage needs no engine
        await stage(here)
        return

    if name == EXTRACT:
        expected = await asyncio.to_thread(expected_pages, workspace, published, among=own)
    else:
        pages_from = pages_stage(settings)
        source = await asyncio.to_thread(required_key, workspace, pages_from)
        every_unit = {units.name(place) for place in range(len(units))}
        counts = await asyncio.to_thread(figures_to_describe, workspace, pages_from, source, published, every_unit)
        expected = Expected(*counts)
    nodes = [node for node in await asyncio.to_thread(ray.nodes) if node["Alive"]]
    size = size_of(settings, job.engines.engine, [node["Resources"] for node in nodes])
    hosts = {node["NodeManagerHostname"] for node in nodes}
    if isinstance(workspace.store, LocalStore) and len(hosts) > 1:
        progress.say(f"{workspace.url} is a folder: all {len(nodes)} nodes must see it under this path")
    can = await asyncio.to_thread(workspace.store.capabilities)
    work = Work(
        stage=name,
        key=claim.key,
        settings=await asyncio.to_thread(_for_nodes, settings, workspace),
        engine=job.engines.engine,
        per_node=size.per_node,
        folder=str(Path.cwd()),
        witness=await asyncio.to_thread(_witness, units[left[0]]) if name == EXTRACT else "",
        version=library_version(),
        commits=dict(here.engines.commits),
        split=Split(leases=can.create and can.swap),
    )
    crew = Crew(ray, work, size, workspace, progress, expected.estimated)
    if job.engines.uses_models:
        progress.measure(crew.load)
    progress.begin(name, expected.pages, expected.done, estimated=bool(expected.estimated))
    while left:
        with held(job, name, claim.key, alone=False):
            await crew.run(units, published)
        before, left = left, await asyncio.to_thread(units.without_marker, name, published)
        if left == before:
            named = ", ".join(f"{units.name(place)} ({units[place].parts[0].relative})" for place in left[:5])
            more = f" and {len(left) - 5} more" if len(left) > 5 else ""
            if not crew.last.message:  # a store that batches writes may have lost those of a worker that crashed
                raise LlmOcrError(f"{plural(len(left), 'unit')} processed, but {workspace.url} has no marker of them")
            raise LlmOcrError(
                f"no worker is left on the cluster; the last one: {crew.last.message}; "
                f"{plural(len(left), 'unit')} not done: {named}{more}",
                hint=crew.last.hint or "If it is always the same unit, run the command without `ray` to see the cause.",
            )
        if crew.refusal and not crew.load().answers:
            job.engines.refused(ServerError(crew.refusal.message, hint=crew.refusal.hint))
    progress.end()


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


def _witness(unit: Unit) -> str:
    """Return a document on this machine's disks that workers must see too; empty if there is none."""
    sources = (part.source for part in unit.parts if not is_remote(part.source))
    return next((source for source in sources if Path(source).is_file()), "")
