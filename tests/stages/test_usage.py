"""Processor times of a worker's own processes, by kind."""

import os
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from llm_ocr.stages.recording import GpuMeter, UsageMeter

#: Processes with the names of a renderer, and of a server as vLLM's that starts an engine core; both compute.
PROCESSES = """
import subprocess, sys
endless = "while True: pass"
subprocess.Popen([sys.executable, "-c", endless, "-m", "llm_ocr.results.quality.worker"])
subprocess.Popen(["VLLM::EngineCore_DP0", "-c", endless], executable=sys.executable).wait()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="processor times of other processes are read on Linux only")
def test_processes_of_server_and_renderers_are_told_apart() -> None:
    readings = iter(range(1_000_000))
    meter = UsageMeter(gpu=lambda: 0.38, clock=lambda: float(next(readings)))
    usage = meter.read()
    with subprocess.Popen([sys.executable, "-c", PROCESSES], start_new_session=True) as server:
        try:
            while not (
                usage.get("engine_cores") and usage.get("renderer_cores")
            ):  # the kernel counts in steps of 10 ms
                time.sleep(0.05)
                usage = meter.read()
        finally:
            os.killpg(server.pid, signal.SIGKILL)
    assert usage.get("intake_cores") is not None
    assert usage.get("client_cores") is not None
    assert usage.get("gpu") == 0.38


@pytest.mark.skipif(sys.platform != "linux", reason="processor times of other processes are read on Linux only")
def test_renderer_that_waits_for_a_core_counts_as_busy() -> None:
    command = [sys.executable, "-c", "while True: pass", "-m", "llm_ocr.results.quality.worker"]
    renderers = [subprocess.Popen(command) for _ in range(3)]
    try:
        for renderer in renderers:
            os.sched_setaffinity(renderer.pid, {min(os.sched_getaffinity(0))})
        meter = UsageMeter()
        share, deadline = 0.0, time.monotonic() + 30.0
        while share <= 0.7 and time.monotonic() < deadline:  # each has a third of the core, once it runs
            meter.read()
            time.sleep(1.0)
            share = meter.read().get("renderer_cores", 0.0)
        assert share > 0.7
    finally:
        for renderer in renderers:
            renderer.kill()
            renderer.wait()


def test_without_a_server_the_gpu_is_not_asked() -> None:
    def ask() -> float:
        raise AssertionError

    meter = UsageMeter(gpu=ask)
    assert (meter.read().get("gpu"), meter.read().get("engine_cores")) == (None, None)


class Driver:
    """Stands for the package nvidia-ml-py on a machine with two GPUs, one of which holds a model."""

    class NVMLError(Exception):
        pass

    def __init__(self, *, works: bool) -> None:
        self.works = works

    def nvmlInit(self) -> None:
        if not self.works:
            raise self.NVMLError

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetMemoryInfo(self, device: int) -> SimpleNamespace:
        return SimpleNamespace(used=(70, 1)[device], total=80)

    def nvmlDeviceGetUtilizationRates(self, device: int) -> SimpleNamespace:
        return SimpleNamespace(gpu=(38, 0)[device])


@pytest.mark.parametrize(("works", "share"), [(True, 0.38), (False, None)])
def test_only_gpus_that_hold_a_model_count(monkeypatch: pytest.MonkeyPatch, works: bool, share: float | None) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", Driver(works=works))  # type: ignore[arg-type]  # stands for a module
    monkeypatch.setattr("llm_ocr.stages.recording.gpus", lambda: ("0", "1"))
    meter = GpuMeter()
    assert [meter.read(), meter.read()] == [share, share]


def test_without_the_package_the_use_of_gpus_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)  # type: ignore[arg-type]  # makes the import fail
    assert GpuMeter().read() is None
