"""Simulator in a separate process, for tests and benchmarks."""

import asyncio
import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_ANSWER_SECONDS = 60.0
_END_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Running:
    """Simulator that listens. `url` ends in /v1."""

    url: str
    pid: int
    process: "subprocess.Popen[bytes]" = field(repr=False)

    @property
    def root(self) -> str:
        """Return the URL without /v1."""
        return self.url.removesuffix("/v1")

    def log(self) -> dict[str, Any]:
        """Return GET /simulator/log: all requests, `measured` and `oracle` makespan, `cpu_seconds` of the simulator."""
        return dict(json.loads(self._call("/simulator/log")))

    def set_faults(self, faults: Mapping[str, Any]) -> None:
        """Replace all faults (kinds and values as in faults.py); an empty mapping removes them."""
        self._call("/simulator/faults", json.dumps(dict(faults)).encode())

    def reset(self) -> None:
        """Clear the log."""
        self._call("/simulator/reset", b"{}")

    def kill(self) -> None:
        """Kill the process, as kill -9."""
        self.process.kill()
        self.process.wait()

    def _call(self, path: str, body: bytes | None = None) -> bytes:
        request = urllib.request.Request(self.root + path, body, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=_ANSWER_SECONDS) as answer:
                return bytes(answer.read())
        except urllib.error.HTTPError as error:
            raise ValueError(error.read().decode()) from error


def command(**options: Any) -> list[str]:
    """Return the simulator's command line. Keywords are its flags: `max_num_seqs=8`, `fault={"429": 0.1}`."""
    words = [sys.executable, "-m", "llm_ocr_simulator"]
    for name, value in options.items():
        flag = "--" + name.replace("_", "-")
        if isinstance(value, Mapping):
            words += [word for kind, one in value.items() for word in (flag, f"{kind}={one}")]
        elif value is True:
            words.append(flag)
        elif value is not None and value is not False:
            words += [flag, str(value)]
    return words


class running:
    """Simulator with these options (see `command`) for a `with` or `async with` block, stopped at the end of the block.

    Raises:
        RuntimeError: The simulator does not start.
    """

    def __init__(self, **options: Any) -> None:
        self._command = command(**{"until_stdin_closes": True, **options})
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Running:
        # Without the caller's settings: LLM_OCR_SIMULATOR and VLLM_API_KEY would change the server.
        kept = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH", "TMPDIR") if name in os.environ}
        environment = {**kept, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OMP_NUM_THREADS": "1"}
        self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
        try:
            line = self._process.stdout.readline() if self._process.stdout else b""
            if not line:
                code = self._process.wait()
                raise RuntimeError(f"the simulator ended with exit code {code} before it listened")
            announced = json.loads(line)
            return Running(announced["url"], announced["pid"], self._process)
        except BaseException:
            stop(self._process)
            raise

    def __exit__(self, *error: object) -> None:
        if self._process:
            stop(self._process)

    async def __aenter__(self) -> Running:
        return await asyncio.to_thread(self.__enter__)

    async def __aexit__(self, *error: object) -> None:
        await asyncio.to_thread(self.__exit__)


def stop(process: "subprocess.Popen[bytes]") -> None:
    """Stop a simulator that was started with pipes."""
    for pipe in (process.stdin, process.stdout):
        if pipe:
            pipe.close()
    process.terminate()
    try:
        process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
