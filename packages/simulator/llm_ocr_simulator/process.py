"""Simulator in a separate process, for tests and benchmarks."""

import json
import multiprocessing
import os
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

_ANSWER_SECONDS = 60.0
_END_SECONDS = 5.0
_MODULE = "llm_ocr_simulator.__main__"


@dataclass(frozen=True, slots=True)
class Running:
    """Simulator that listens. `url` ends in /v1."""

    url: str
    pid: int
    process: BaseProcess = field(repr=False)

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
        self.process.join()

    def wait(self, seconds: float) -> int | None:
        """Wait for the end of the process; return its exit code, None if it still runs."""
        self.process.join(seconds)
        return self.process.exitcode

    def _call(self, path: str, body: bytes | None = None) -> bytes:
        request = urllib.request.Request(self.root + path, body, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=_ANSWER_SECONDS) as answer:
                return bytes(answer.read())
        except urllib.error.HTTPError as error:
            raise ValueError(error.read().decode()) from error


def command(**options: Any) -> list[str]:
    """Return the simulator's command line. Keywords are its flags: `max_num_seqs=8`, `fault={"429": 0.1}`."""
    return [sys.executable, "-m", "llm_ocr_simulator", *_flags(options)]


def _flags(options: Mapping[str, Any]) -> list[str]:
    words: list[str] = []
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
    """Simulator with these options (see `command`) for a `with` block, stopped at the end of the block.

    It is forked from a process that has imported the server once: a tenth of the processor time of a new interpreter.
    A script that starts one needs `if __name__ == "__main__":`, because `multiprocessing` imports it again.

    Raises:
        RuntimeError: The simulator does not start.
    """

    def __init__(self, **options: Any) -> None:
        # Its parent process is the fork server, which outlives it.
        self._flags = _flags({"until_stdin_closes": True, "ignore_parent": True, **options})
        self._process: BaseProcess | None = None

    def __enter__(self) -> Running:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([_MODULE])
        read_stdin, self._stdin = context.Pipe(duplex=False)
        self._stdout, write_stdout = context.Pipe(duplex=False)  # open as long as the process: it writes log lines
        self._process = context.Process(target=_serve, args=(self._flags, read_stdin, write_stdout), daemon=True)
        self._process.start()
        read_stdin.close()
        write_stdout.close()
        try:
            with os.fdopen(os.dup(self._stdout.fileno()), "rb") as stdout:
                line = stdout.readline()
            if not line:
                self._process.join()
                raise RuntimeError(f"the simulator ended with exit code {self._process.exitcode} before it listened")
            announced = json.loads(line)
            return Running(announced["url"], announced["pid"], self._process)
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *error: object) -> None:
        if self._process:
            self._stdin.close()
            self._process.terminate()
            self._process.join(_END_SECONDS)
            if self._process.is_alive():
                self._process.kill()
                self._process.join()
            self._stdout.close()


def _serve(flags: list[str], stdin: Connection, stdout: Connection) -> None:
    from llm_ocr_simulator.__main__ import main  # imported by the fork server only, not by those who start simulators

    for number, connection in enumerate((stdin, stdout)):
        os.dup2(connection.fileno(), number)
        connection.close()
    # Without the caller's settings: LLM_OCR_SIMULATOR and VLLM_API_KEY would change the server.
    for name in os.environ.keys() - {"PATH", "LD_LIBRARY_PATH", "TMPDIR"}:
        del os.environ[name]
    sys.exit(main(flags))
