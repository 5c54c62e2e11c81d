"""Samples of a GPU machine once a second: GPU, gauges of the servers, and cores of each process."""

import json
import os
import shutil
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from llm_ocr.engines.client.endpoint import Gauges, parse

_TICK = os.sysconf("SC_CLK_TCK")
_QUERY = "utilization.gpu,utilization.memory,memory.used,power.draw,clocks.sm"
#: Share of all tokens between which a server is steadily full.
STEADY = (0.2, 0.8)


@dataclass(frozen=True, slots=True)
class Process:
    """A process that used the processor in this second."""

    pid: int
    parent: int
    name: str
    cores: float


@dataclass(frozen=True, slots=True)
class Sample:
    """One second. `gpu`: busy %, memory busy %, memory MiB, power W, clock MHz."""

    at: float  # seconds of the monotonic clock
    label: str
    gpu: tuple[float, ...] = ()
    gauges: Mapping[str, Gauges] = field(default_factory=dict)  # by address
    processes: Sequence[Process] = ()

    def line(self, began: float) -> str:
        row = {"t": round(self.at - began, 2), "label": self.label, "gpu": self.gpu}
        row["gauges"] = {address: asdict(gauges) for address, gauges in self.gauges.items()}
        row["processes"] = [(one.pid, one.parent, one.name, one.cores) for one in self.processes]
        return json.dumps(row)


class Sampler(threading.Thread):
    """Takes a sample each second until the program ends, and appends it to a file."""

    def __init__(self, file: Path) -> None:
        super().__init__(daemon=True)
        self.began = time.monotonic()
        self.samples: list[Sample] = []
        self.label = ""
        self.addresses: set[str] = set()
        self._file = file.open("a", buffering=1)
        self._gpu: list[tuple[float, ...]] = []
        self._used: dict[int, float] = {}
        self.smi = None
        if shutil.which("nvidia-smi"):
            words = ["nvidia-smi", f"--query-gpu={_QUERY}", "--format=csv,noheader,nounits", "-lms", "250"]
            self.smi = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
            threading.Thread(target=self._read_gpu, args=(self.smi,), daemon=True).start()

    def _read_gpu(self, smi: "subprocess.Popen[str]") -> None:
        for line in smi.stdout or ():
            try:
                self._gpu.append(tuple(float(part) for part in line.split(",")))
            except ValueError:
                continue  # "[N/A]" of a driver that does not know a value

    def run(self) -> None:
        while True:
            due = time.monotonic() + 1.0
            gpu, self._gpu = self._gpu, []
            mean = tuple(round(sum(column) / len(gpu), 1) for column in zip(*gpu, strict=True)) if gpu else ()
            gauges = {address: found for address in sorted(self.addresses) if (found := _gauges(address))}
            sample = Sample(time.monotonic(), self.label, mean, gauges, self._processes())
            self.samples.append(sample)
            self._file.write(sample.line(self.began) + "\n")
            time.sleep(max(0.0, due - time.monotonic()))

    def _processes(self) -> list[Process]:
        used: dict[int, float] = {}
        found: list[Process] = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                pid = int(entry.name)
                used[pid] = (int(fields[11]) + int(fields[12])) / _TICK
                cores = used[pid] - self._used.get(pid, 0.0 if self._used else used[pid])
                if cores >= 0.03:
                    command = (entry / "cmdline").read_bytes().replace(b"\0", b" ")
                    found.append(Process(pid, int(fields[1]), command.decode(errors="replace")[:90], round(cores, 2)))
            except (OSError, IndexError):
                continue  # it has ended
        self._used = used
        return found

    def during(self, label: str) -> "list[Sample]":
        return [sample for sample in self.samples if sample.label == label]


def _gauges(address: str) -> Gauges | None:
    try:
        with urllib.request.urlopen(f"{address}/metrics", timeout=3) as answer:
            return parse(answer.read().decode())
    except OSError:
        return None


@dataclass(frozen=True, slots=True)
class Served:
    """What the servers did during one run, from their counters."""

    requests: int
    prompt_tokens: int
    output_tokens: int
    steady_tokens_per_s: float
    most_running: int
    running: float  # means of the middle of the run
    waiting: float
    kv_usage: float  # highest
    gpu_busy: float | None  # %, mean of the middle
    power: float | None  # W
    api_cores: float  # of all API servers
    engine_cores: float  # of the busiest engine
    seconds: float


def served(samples: Sequence[Sample], addresses: Iterable[str]) -> Served | None:
    """Return what happened in these samples; None if the counters did not move."""
    names = list(addresses)
    rows = [sample for sample in samples if all(name in sample.gauges for name in names)]
    if len(rows) < 2:
        return None

    def total(sample: Sample, value: str) -> int:
        return sum(int(asdict(sample.gauges[name])[value]) for name in names)

    first, last = rows[0], rows[-1]
    tokens = total(last, "generation_tokens") - total(first, "generation_tokens")
    if tokens <= 0:
        return None
    shares = [(total(row, "generation_tokens") - total(first, "generation_tokens")) / tokens for row in rows]
    middle = [row for row, share in zip(rows, shares, strict=True) if STEADY[0] <= share <= STEADY[1]] or rows
    span = max(1e-9, middle[-1].at - middle[0].at)
    steady = (total(middle[-1], "generation_tokens") - total(middle[0], "generation_tokens")) / span

    def mean(values: Iterable[float]) -> float:
        held = list(values)
        return round(sum(held) / len(held), 2) if held else 0.0

    busy = [row.gpu[0] for row in middle if row.gpu]
    engines: dict[int, float] = {}
    for row in middle:
        for process in row.processes:
            if "EngineCore" in process.name:
                engines[process.pid] = engines.get(process.pid, 0.0) + process.cores
    return Served(
        requests=total(last, "finished") - total(first, "finished"),
        prompt_tokens=total(last, "prompt_tokens") - total(first, "prompt_tokens"),
        output_tokens=tokens,
        steady_tokens_per_s=round(steady, 1),
        most_running=max(total(row, "running") for row in rows),
        running=mean(total(row, "running") for row in middle),
        waiting=mean(total(row, "waiting") for row in middle),
        kv_usage=max(max(row.gauges[name].kv_usage for name in names) for row in rows),
        gpu_busy=mean(busy) if busy else None,
        power=mean(row.gpu[3] for row in middle if row.gpu) if busy else None,
        api_cores=mean(
            sum(one.cores for one in row.processes if "vllm" in one.name.lower() and "EngineCore" not in one.name
                and " bench " not in one.name and "launcher.py" not in one.name)
            for row in middle
        ),
        engine_cores=round(max(engines.values(), default=0.0) / len(middle), 2),
        seconds=round(last.at - first.at, 1),
    )  # fmt: skip
