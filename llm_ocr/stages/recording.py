"""Progress and metrics of a stage, written into the workspace while it runs.

Processor times are those of Linux' `/proc`; on other systems only this process is measured. Every `SEARCH` readings,
the processes below this one are searched. Between searches only the known ones are read.
"""

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from llm_ocr.config.models import ServingCommand
from llm_ocr.engines import Load
from llm_ocr.engines.vllm.sizing import gpus
from llm_ocr.errors import StorageError
from llm_ocr.results.quality.worker import MODULE
from llm_ocr.stages import Progress
from llm_ocr.types import Counts, Status
from llm_ocr.workspace import Workspace
from llm_ocr.workspace.metrics import (
    COUNTS,
    FIRST,
    LOADS,
    MOST,
    Sample,
    Series,
    Spending,
    merged,
    thinned,
    write_series,
    write_spending,
)
from llm_ocr.workspace.status import Worked
from llm_ocr.workspace.verdict import judge, verdict_from_json

Clock = Callable[[], float]

_PROC = Path("/proc")
#: Readings from one search for processes to the next: a search reads all processes of the machine (10 ms for 500).
SEARCH = 10
#: Share of a GPU's memory from which it counts: a GPU without a model would lower the mean.
_HOLDS_MODEL = 0.1

#: Kinds of processes. vLLM names its processes with setproctitle ("VLLM::EngineCore_DP0").
_ENGINE, _INTAKE = b"VLLM::EngineCore", b"VLLM::APIServer"
#: Renderers are Python modules of this package.
_RENDERER = f"\0-m\0{MODULE}".encode()


#: Use since the reading before, by the fields of `Sample` in `USES`; without those that are unknown.
Usage = Mapping[str, float]


class UsageMeter:
    """Reads the use of this worker's processes and GPUs.

    Args:
        gpu: Returns the utilization of the GPUs that hold models, 0..1; None if unknown. Called only while an engine
            core runs below this process.
        clock: Returns seconds and never goes back.
    """

    def __init__(self, gpu: Callable[[], float | None] | None = None, clock: Clock = time.monotonic) -> None:
        self._gpu = gpu or GpuMeter().read
        self._clock = clock
        self._ticks = os.sysconf("SC_CLK_TCK")
        self._kinds: dict[int, str] = {}
        self._before: dict[int, float] = {}  # seconds of `_seconds` by process
        self._at = clock()
        self._own = time.process_time()
        self._readings = 0

    def read(self) -> Usage:
        """Return the use since the last call. The first call returns only that of this process."""
        if self._readings % SEARCH == 0:
            self._kinds = self._search()
        self._readings += 1
        now, own = self._clock(), time.process_time()
        seconds, self._at = now - self._at, now
        client, self._own = own - self._own, own
        times = {pid: used for pid, kind in self._kinds.items() if (used := self._seconds(pid, kind)) is not None}
        before, self._before = self._before, times
        if seconds <= 0:
            return {}
        cores: dict[str, list[float]] = {}
        for pid, used in times.items():
            if pid in before:
                cores.setdefault(f"{self._kinds[pid]}_cores", []).append((used - before[pid]) / seconds)
        use = {kind: sum(values) / len(values) for kind, values in cores.items()} | {"client_cores": client / seconds}
        if "engine_cores" in use and (gpu := self._gpu()) is not None:
            use["gpu"] = gpu
        return use

    def _search(self) -> dict[int, str]:
        """Return the kind of each process below this one that has a kind."""
        parents: dict[int, int] = {}
        for entry in _PROC.glob("[0-9]*"):
            if (fields := self._stat(int(entry.name))) is not None:
                parents[int(entry.name)] = int(fields[1])
        below, ahead = set[int](), [os.getpid()]
        while ahead:
            parent = ahead.pop()
            found = [pid for pid, above in parents.items() if above == parent and pid not in below]
            below.update(found)
            ahead += found
        titles = {pid: self._title(pid) for pid in below}
        kinds = {pid: "renderer" for pid, title in titles.items() if _RENDERER in title}
        kinds |= {pid: "engine" for pid, title in titles.items() if title.startswith(_ENGINE)}
        # Several API servers have a name of their own; a single one is the process above the engine core.
        intake = {pid for pid, title in titles.items() if title.startswith(_INTAKE)}
        intake = intake or {parents[pid] for pid, kind in kinds.items() if kind == "engine"} & below
        return kinds | dict.fromkeys(intake, "intake")

    def _title(self, pid: int) -> bytes:
        try:
            return (_PROC / str(pid) / "cmdline").read_bytes()[:4096]
        except OSError:
            return b""

    def _stat(self, pid: int) -> list[str] | None:
        """Return the fields of a process after its name: state, parent ..."""
        try:
            return (_PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            return None  # it has ended

    def _seconds(self, pid: int, kind: str) -> float | None:
        """Return the processor seconds of a process, and for a renderer also those that it waited for a processor.

        A renderer that waits because servers take the cores is busy: the source does not limit. `schedstat` is of its
        first thread, which does the work.
        """
        fields = self._stat(pid)
        if fields is None:
            return None
        waited = 0.0
        if kind == "renderer":
            with contextlib.suppress(OSError, IndexError):  # a kernel without scheduler statistics
                waited = int((_PROC / str(pid) / "schedstat").read_text().split()[1]) / 1e9
        return (int(fields[11]) + int(fields[12])) / self._ticks + waited


class GpuMeter:
    """Reads GPU utilization with the package nvidia-ml-py; without it or a driver, the utilization is unknown."""

    def __init__(self) -> None:
        self._devices: list[object] | None = None  # None before the first reading

    def read(self) -> float | None:
        """Return the mean utilization of the visible GPUs that hold a model, 0..1; None if unknown."""
        try:
            import pynvml
        except ImportError:
            return None
        busy = []
        try:
            if self._devices is None:
                self._devices = []
                pynvml.nvmlInit()
                for name in gpus():
                    if name.isdecimal():
                        self._devices.append(pynvml.nvmlDeviceGetHandleByIndex(int(name)))
                    else:
                        self._devices.append(pynvml.nvmlDeviceGetHandleByUUID(name))
            for device in self._devices:
                memory = pynvml.nvmlDeviceGetMemoryInfo(device)
                if memory.used >= _HOLDS_MODEL * memory.total:
                    busy.append(pynvml.nvmlDeviceGetUtilizationRates(device).gpu / 100)
        except pynvml.NVMLError:
            return None  # no driver, or part of a divided GPU (MIG), which does not report it
        return sum(busy) / len(busy) if busy else None


class Sampler:
    """Samples the numbers of one stage over time.

    `count` is called at each end of an item, and `tick` about every second.

    Args:
        load: Returns the engine's numbers; None without an engine that reports them.
        clock: Returns seconds and never goes back.
    """

    def __init__(self, load: Callable[[], Load] | None, clock: Clock = time.monotonic) -> None:
        self._load = load
        self._clock = clock
        self._every = FIRST
        self._began = self._since = clock()
        self._ended = dict.fromkeys(Status, 0)
        self._known = self._counts()
        self._seen: Sample | None = None  # the current, incomplete sample
        self._samples: tuple[Sample, ...] = ()
        self._usage: Usage = {}
        self.first: float | None = None  # seconds until the first item ended

    def count(self, status: Status) -> None:
        """Count a finished item."""
        self._ended[status] += 1
        if self.first is None:
            self.first = self._clock() - self._began

    def tick(self, usage: Usage | None = None) -> None:
        """Read the numbers. The gauges and the use, if given, apply to the time since the last read."""
        self._usage = self._usage if usage is None else usage
        now = self._clock()
        if now <= self._since:
            return
        seconds, self._since = now - self._since, now
        before, self._known = self._known, self._counts()
        gone = {name: self._known[name] - before[name] for name in COUNTS}
        gauges: dict[str, Any] = {}
        if self._load is not None:
            values = asdict(self._load())
            gauges = {name: None if values[name] is None else float(values[name]) for name in LOADS}
            gauges |= self._usage
        passed = Sample(seconds, **gone, **gauges)
        self._seen = passed if self._seen is None else merged(self._seen, passed)
        if self._seen.seconds >= self._every:
            self._samples, self._seen = (*self._samples, self._seen), None
            if len(self._samples) > MOST:
                self._samples = thinned(self._samples, MOST)
                self._every *= 2

    def series(self, worker: str, stage: str, batch_id: str, before: float) -> Series:
        """Return the samples until now.

        Args:
            worker: The worker's name.
            stage: The stage.
            batch_id: The batch.
            before: See `Series`.
        """
        self.tick()
        samples = self._samples if self._seen is None else (*self._samples, self._seen)
        began = time.time() - (self._clock() - self._began)
        return Series(worker, stage, batch_id, began, before, self.first, samples)

    def _counts(self) -> dict[str, int]:
        load = self._load() if self._load else Load()
        return {
            **{status.value: count for status, count in self._ended.items()},
            "tokens_in": load.tokens_in,
            "tokens_out": load.tokens_out,
            "retries": load.busy + load.lost,
            "restarts": load.restarts,
        }


class Tally:
    """Passes the progress on to `shown`, and counts what the command finishes.

    Args:
        shown: Receives all calls.
        worked: Receives the counts.
    """

    def __init__(self, shown: Progress, worked: Worked) -> None:
        self._shown = shown
        self._worked = worked
        self._stage = ""

    def begin(self, stage: str, expected: int, done: Counts, *, estimated: bool = False) -> None:
        self._stage = stage
        self._worked.counts.setdefault(stage, Counts())
        # A progress of the user's may have no parameter `estimated`, so exact counts are passed without it.
        if estimated:
            self._shown.begin(stage, expected, done, estimated=True)
        else:
            self._shown.begin(stage, expected, done)

    def correct(self, change: int, *, exact: bool) -> None:
        self._shown.correct(change, exact=exact)

    def count(self, status: Status) -> None:
        item = Counts(1, *(int(status is other) for other in (Status.OK, Status.DEGRADED, Status.FAILED)))
        self._worked.counts[self._stage] += item
        self._shown.count(status)

    def measure(self, load: Callable[[], Load]) -> None:
        self._shown.measure(load)

    def say(self, message: str) -> None:
        self._shown.say(message)

    def end(self) -> None:
        self._shown.end()


#: Seconds between two writes of totals and series; the second for a store that batches writes into commits.
EVERY, SELDOM = 15.0, 120.0
#: Seconds between two samples.
LOOK = 1.0

_log = logging.getLogger(__name__)

#: Totals and series of a stage.
_State = tuple[Spending, Series]


class Recorded(Tally):
    """Passes the progress on to `shown`, counts as `Tally`, and records the numbers of the running stage.

    Args:
        shown: Receives all calls.
        workspace: The workspace.
        worker: The name under which the numbers are written.
        settings: Prices and batch.
        worked: Receives the counts.
    """

    def __init__(
        self, shown: Progress, workspace: Workspace, worker: str, settings: ServingCommand, worked: Worked | None = None
    ) -> None:
        super().__init__(shown, worked or Worked())
        self._workspace = workspace
        self.worker = worker
        self._settings = settings
        self._load: Callable[[], Load] | None = None
        self._has_engine = False  # whether an engine reports numbers
        self._gathers = workspace.store.gathers
        self._before = Load()  # the engine's numbers at the begin of the stage, because an engine may serve two stages
        self._opened = self._began = self._paid_from = time.monotonic()
        self._cost_before = 0.0  # of this worker's finished stages
        self.items = 0  # finished in the running stage
        self._sampler = Sampler(None)
        self._ended: list[_State] = []
        self._over = asyncio.Event()

    def begin(self, stage: str, expected: int, done: Counts, *, estimated: bool = False) -> None:
        self._began, self.items = time.monotonic(), 0
        self._before = self._load() if self._load else Load()
        self._sampler = Sampler(self._load)
        super().begin(stage, expected, done, estimated=estimated)

    def count(self, status: Status) -> None:
        self.items += 1
        self._sampler.count(status)
        super().count(status)

    def measure(self, load: Callable[[], Load]) -> None:
        self._load, self._has_engine = load, True
        super().measure(load)

    def end(self) -> None:
        limits: Mapping[str, Any] = {}
        stage = self._stage
        if stage:
            self._ended.append(self._state())
            limits = self._ended[-1][0].limits
            self._cost_before += self._ended[-1][0].cost or 0.0
            self._paid_from = time.monotonic()
        self._stage, self._load = "", None
        super().end()
        if verdict := verdict_from_json(limits):
            self.say(f"{stage}: {verdict.sentence}")

    def cost(self) -> float:
        """Return the cost of this worker until now, in all its stages, in dollars. Without prices it is 0."""
        if self._stage:
            return self._cost_before + (self._spending().cost or 0.0)
        hours = (time.monotonic() - self._paid_from) / 3600
        return self._cost_before + hours * (self._settings.price_per_hour or 0.0)

    @contextlib.asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        """Write the numbers every `EVERY` seconds and at the end of the block, also after an error."""
        self._over.clear()
        tasks = [asyncio.create_task(self._look_often()), asyncio.create_task(self._write_often())]
        try:
            yield
        finally:
            self._over.set()
            await asyncio.gather(*tasks)

    async def _look_often(self) -> None:
        meter = UsageMeter()
        while not await self._is_over(LOOK):
            if self._stage:
                self._sampler.tick(await asyncio.to_thread(meter.read) if self._has_engine else None)

    async def _write_often(self) -> None:
        """Write the numbers in sequence, so that an older state never replaces a newer one."""
        over = False
        while not over:
            over = await self._is_over(SELDOM if self._gathers else EVERY)
            if self._gathers and not (over or self._has_engine):
                continue  # every write becomes part of a commit, and without an engine the markers are enough
            states, self._ended = self._ended, []
            if self._stage:
                states.append(self._state())
            await asyncio.to_thread(self._write, states)

    async def _is_over(self, seconds: float) -> bool:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._over.wait(), seconds)
        return self._over.is_set()

    def _write(self, states: Sequence[_State]) -> None:
        """Write totals and series of stages; the series first, so that both are part of one commit."""
        for spending, series in states:
            if not (spending.items or spending.tokens_in or spending.hour_cost):
                continue
            try:
                write_series(self._workspace, series)
                write_spending(self._workspace, spending)
            except StorageError as error:
                _log.warning("cannot write the metrics of this worker: %s", error)

    def _state(self) -> _State:
        spending = self._spending()
        before = self._began - self._opened
        series = self._sampler.series(spending.worker, spending.stage, spending.batch_id, before)
        verdict = judge(series.samples)
        return replace(spending, limits=verdict.to_json() if verdict else {}), series

    def _spending(self) -> Spending:
        load = self._load() if self._load else Load()
        return Spending(
            worker=self.worker,
            stage=self._stage,
            batch_id=self._settings.batch_id or "",
            updated=datetime.now(UTC).isoformat(timespec="seconds"),
            items=self.items,
            seconds=round(time.monotonic() - self._began, 3),
            tokens_in=load.tokens_in - self._before.tokens_in,
            tokens_out=load.tokens_out - self._before.tokens_out,
            price_in=self._settings.price_in,
            price_out=self._settings.price_out,
            price_per_hour=self._settings.price_per_hour,
            paid=round(time.monotonic() - self._paid_from, 3),
            engine=asdict(load),
        )
