"""One worker on a cluster: an engine of its own, a connection to the workspace of its own, units from the driver.

Nothing of Ray is imported here: the driver makes an actor of `Worker`.
"""

import asyncio
import contextlib
import logging
import os
import platform
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from llm_ocr.api.describing import describe
from llm_ocr.api.engines import Engines
from llm_ocr.api.extracting import extract
from llm_ocr.api.job import Job, Share
from llm_ocr.api.logs import log_folder, worker_name
from llm_ocr.api.loop import run_blocking
from llm_ocr.api.ray_units import Done, Exchange, Failure, Report
from llm_ocr.api.recording import Recorded
from llm_ocr.api.remote import Remote
from llm_ocr.errors import LlmOcrError, MissingExtra, UsageError, WorkspaceError, WorkspaceMismatch
from llm_ocr.settings.environment import cores
from llm_ocr.settings.groups import RenderSettings
from llm_ocr.settings.models import ServingCommand
from llm_ocr.storage import StoreOptions
from llm_ocr.types import Unit
from llm_ocr.work.keys import DESCRIBE, EXTRACT
from llm_ocr.work.lease_groups import PlannedUnits
from llm_ocr.work.publish import Marker, find_marker, is_done
from llm_ocr.work.stored import workspace_options
from llm_ocr.work.summary import ESTIMATED, correction
from llm_ocr.work.workspace import Workspace, library_version

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
