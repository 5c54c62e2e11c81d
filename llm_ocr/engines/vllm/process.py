"""Start a server's process group with the launcher, read its output, and end the whole group."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from llm_ocr.engines.vllm import launcher
from llm_ocr.engines.vllm.log import ServerLog

#: Seconds for a launcher without remaining processes to exit; usually a few hundredths of a second.
_LAUNCHER_ENDS = 10.0


class _OutputReader(asyncio.SubprocessProtocol):
    """Protocol that observes the exit itself: asyncio's `wait` also waits until the pipe is closed by all processes."""

    def __init__(self, log: ServerLog) -> None:
        self._log = log
        loop = asyncio.get_running_loop()
        self.exited: asyncio.Future[None] = loop.create_future()
        self.silent: asyncio.Future[None] = loop.create_future()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self._log.feed(data)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        if fd == 1 and not self.silent.done():
            self.silent.set_result(None)

    def process_exited(self) -> None:
        if not self.exited.done():
            self.exited.set_result(None)


class ServerProcess:
    """One run of a server; its output goes to the log."""

    def __init__(self, transport: asyncio.SubprocessTransport, output: _OutputReader, log: ServerLog) -> None:
        self._transport = transport
        self._output = output
        self._log = log
        self._ended = asyncio.create_task(self._wait())
        self.stopping = False  # whether the end of the server was requested

    @classmethod
    async def start(cls, command: Sequence[str], environment: Mapping[str, str], log: ServerLog) -> "ServerProcess":
        """Start the command under the launcher in its own session."""
        transport, output = await asyncio.get_running_loop().subprocess_exec(
            lambda: _OutputReader(log),
            # Isolated: the server's PYTHONPATH and site-packages do not affect the launcher.
            sys.executable, "-I", "-S", str(Path(launcher.__file__)), *command,
            stdin=asyncio.subprocess.PIPE,  # never written to: its end tells the launcher that this process is gone
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=dict(environment),
            start_new_session=True,
        )  # fmt: skip
        return cls(transport, output, log)

    @property
    def pid(self) -> int:
        """Process id of the launcher, and id of the group."""
        return self._transport.get_pid()

    async def ended(self) -> str:
        """Wait for the end of the server and of its output; return how it ended, such as "ended with code 1"."""
        return await asyncio.shield(self._ended)

    async def stop(self, stop_timeout: float) -> None:
        """Send SIGTERM to the group and SIGKILL after `stop_timeout` seconds; return when no process is left."""
        self.stopping = True
        if self._ended.done():
            return  # the group's number may belong to another program by now
        self._signal(signal.SIGTERM)
        await asyncio.wait([self._ended], timeout=stop_timeout)
        # Processes in other sessions can be found only below the launcher, so the launcher is not killed and exits
        # last.
        if not self._ended.done() and await asyncio.to_thread(launcher.kill_below, self.pid):
            await asyncio.wait([self._ended], timeout=_LAUNCHER_ENDS)
        if not self._ended.done():
            self._signal(signal.SIGKILL)
            await asyncio.wait([self._ended])

    async def _wait(self) -> str:
        await self._output.exited
        # The engine's processes may outlive the failed process; they hold the device's memory.
        self._signal(signal.SIGKILL)
        await asyncio.wait([self._output.silent], timeout=5)
        for _ in range(250):  # until the kernel has removed the killed processes: only then is the device's memory free
            if not _alive(self.pid):
                break
            await asyncio.sleep(0.02)
        self._log.finish()
        self._log.close()
        code = self._transport.get_returncode()
        self._transport.close()
        if code is not None and code < 0:
            return f"was killed by {_signal_name(-code)}"
        # A shell or container reports the signal that ended its command in this way.
        signaled = f" ({_signal_name(code - 128)})" if code is not None and 128 < code < 160 else ""
        return f"ended with code {code or 0}{signaled}"

    def _signal(self, number: int) -> None:
        # No such group: all processes have ended. macOS raises PermissionError for a group of zombies.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)


def _alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):
        return False
    # In a container whose first process does not reap orphans, dead processes stay listed as zombies without resources.
    states = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # exited in the meantime
            fields = stat.read_text(errors="replace").rpartition(")")[2].split()  # "PID (name) STATE PARENT GROUP …"
            if int(fields[2]) == group:
                states.append(fields[0])
    return any(state not in "ZX" for state in states) if states else sys.platform != "linux"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
