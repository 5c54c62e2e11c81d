"""Measure what this worker uses: processor time of its processes, and utilization of the GPUs of its servers.

Processor times are those of Linux' `/proc`; on other systems only this process is measured. Every `SEARCH` readings,
the processes below this one are searched. Between searches only the known ones are read.
"""

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from llm_ocr.engines.vllm.sizing import gpus
from llm_ocr.results.quality.worker import MODULE

#: Readings from one search for processes to the next: a search reads all processes of the machine (10 ms for 500).
SEARCH = 10
#: Share of a GPU's memory from which it counts: a GPU without a model would lower the mean.
_HOLDS_MODEL = 0.1

#: Kinds of processes by the fields of `Usage`. vLLM names its processes with setproctitle ("VLLM::EngineCore_DP0").
_ENGINE, _INTAKE = b"VLLM::EngineCore", b"VLLM::APIServer"
#: Renderers are Python modules of this package.
_RENDERER = f"\0-m\0{MODULE}".encode()


@dataclass(frozen=True, slots=True)
class Usage:
    """Use since the reading before; None if unknown.

    `client_cores` is of this process. `renderer_cores`, `intake_cores`, and `engine_cores` are means per process of
    renderers, API servers, and engine cores below this process. `gpu` is the mean utilization of their GPUs, 0..1.
    """

    client_cores: float | None = None
    renderer_cores: float | None = None
    intake_cores: float | None = None
    engine_cores: float | None = None
    gpu: float | None = None


class UsageMeter:
    """Reads the use of this worker's processes and GPUs.

    Args:
        proc: Folder of the processes.
        gpu: Returns the utilization of the GPUs that hold models, 0..1; None if unknown. Called only while an engine
            core runs below this process.
        clock: Returns seconds and never goes back.
    """

    def __init__(
        self,
        proc: Path = Path("/proc"),
        gpu: Callable[[], float | None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._proc = proc
        self._gpu = gpu or GpuMeter().read
        self._clock = clock
        self._ticks = os.sysconf("SC_CLK_TCK")
        self._kinds: dict[int, str] = {}
        self._before: dict[int, float] = {}  # processor seconds by process
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
        times = {pid: used for pid in self._kinds if (used := self._seconds(pid)) is not None}
        before, self._before = self._before, times
        if seconds <= 0:
            return Usage()
        cores: dict[str, list[float]] = {}
        for pid, used in times.items():
            if pid in before:
                cores.setdefault(self._kinds[pid], []).append((used - before[pid]) / seconds)
        means: Mapping[str, float] = {kind: sum(values) / len(values) for kind, values in cores.items()}
        return Usage(
            client_cores=client / seconds,
            renderer_cores=means.get("renderer"),
            intake_cores=means.get("intake"),
            engine_cores=means.get("engine"),
            gpu=self._gpu() if "engine" in means else None,
        )

    def _search(self) -> dict[int, str]:
        """Return the kind of each process below this one that has a kind."""
        parents: dict[int, int] = {}
        for entry in self._proc.glob("[0-9]*"):
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
            return (self._proc / str(pid) / "cmdline").read_bytes()[:4096]
        except OSError:
            return b""

    def _stat(self, pid: int) -> list[str] | None:
        """Return the fields of a process after its name: state, parent ..."""
        try:
            return (self._proc / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            return None  # it has ended

    def _seconds(self, pid: int) -> float | None:
        fields = self._stat(pid)
        return None if fields is None else (int(fields[11]) + int(fields[12])) / self._ticks


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
