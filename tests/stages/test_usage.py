"""Processor times of a worker's own processes, by kind."""

import os
import signal
import subprocess
import sys
import time

import pytest

from llm_ocr.stages.usage import GpuMeter, UsageMeter

#: Processes with the names of a renderer, and of a server as vLLM's that starts an engine core; both compute.
PROCESSES = """
import subprocess, sys
endless = "while True: pass"
subprocess.Popen([sys.executable, "-c", endless, "-m", "llm_ocr.documents.renderer"])
subprocess.Popen(["VLLM::EngineCore_DP0", "-c", endless], executable=sys.executable).wait()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="processor times of other processes are read on Linux only")
def test_processes_of_server_and_renderers_are_told_apart() -> None:
    readings = iter(range(1_000_000))
    meter = UsageMeter(gpu=lambda: 0.38, clock=lambda: float(next(readings)))
    usage = meter.read()
    with subprocess.Popen([sys.executable, "-c", PROCESSES], start_new_session=True) as server:
        try:
            while not (usage.engine_cores and usage.renderer_cores):  # the kernel counts in steps of 10 ms
                time.sleep(0.05)
                usage = meter.read()
        finally:
            os.killpg(server.pid, signal.SIGKILL)
    assert usage.intake_cores is not None
    assert usage.client_cores is not None
    assert usage.gpu == 0.38


def test_without_a_server_the_gpu_is_not_asked() -> None:
    def ask() -> float:
        raise AssertionError

    meter = UsageMeter(gpu=ask)
    assert (meter.read().gpu, meter.read().engine_cores) == (None, None)


def test_without_a_driver_the_use_of_gpus_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("llm_ocr.stages.usage._NVML", "libllm-ocr-none.so.1")
    assert GpuMeter().read() is None
