"""Extract and Describe on a Ray cluster: this process plans and hands out units, workers on the nodes do them.

A worker is an actor with an engine of its own (`ray_worker`). When one is lost, its units go to others (`ray_crew`):
whatever is done twice is published once.
"""

import asyncio
import contextlib
import logging
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pydantic import SecretStr

from llm_ocr.api.describing import describe
from llm_ocr.api.engines import VLLM, Engines, server_key
from llm_ocr.api.extracting import extract
from llm_ocr.api.following import pages_stage
from llm_ocr.api.job import Job, Share
from llm_ocr.api.ray_crew import Crew, Size, units_text
from llm_ocr.api.ray_worker import Work
from llm_ocr.api.wiring import passwords
from llm_ocr.documents.remote.urls import is_remote
from llm_ocr.engines.serving import Server
from llm_ocr.errors import LlmOcrError, MissingExtra, UsageError
from llm_ocr.models.profile import Profile
from llm_ocr.settings.environment import cores, quiet_ray
from llm_ocr.settings.groups import FollowSettings, ShardSettings, SourceSettings
from llm_ocr.settings.models import ServingCommand
from llm_ocr.stages import Silent
from llm_ocr.storage.local import LocalStore
from llm_ocr.types import Counts
from llm_ocr.work.expected import Expected, expected_pages
from llm_ocr.work.keys import DESCRIBE, EXTRACT, required_key
from llm_ocr.work.lease_groups import PlannedUnits
from llm_ocr.work.publish import done_units, iter_markers
from llm_ocr.work.workspace import Workspace, library_version

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
