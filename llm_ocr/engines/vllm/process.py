"""A server's process group: started by the launcher, read, and ended as a whole."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from llm_ocr.engines.vllm import launcher
from llm_ocr.engines.vllm.log import ServerLog

#: Seconds that a launcher takes to end when nothing is left below it; usually a few hundredths.
_LAUNCHER_ENDS = 10.0


class _Ears(asyncio.SubprocessProtocol):
    """Hears of the end itself: asyncio's `wait` also waits until nobody holds the pipe, and the engine may."""

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
    """One run of a server. What it prints goes to the log."""

    def __init__(self, transport: asyncio.SubprocessTransport, ears: _Ears, log: ServerLog) -> None:
        self._transport = transport
        self._ears = ears
        self._log = log
        self._ended = asyncio.create_task(self._wait())
        self._stopping = False

    @classmethod
    async def start(cls, words: Sequence[str], environment: Mapping[str, str], log: ServerLog) -> "ServerProcess":
        """Start the command in a session of its own, under the launcher."""
        transport, ears = await asyncio.get_running_loop().subprocess_exec(
            lambda: _Ears(log),
            # Isolated: neither PYTHONPATH nor site-packages, which are the server's, touch the launcher.
            sys.executable, "-I", "-S", str(Path(launcher.__file__)), *words,
            stdin=asyncio.subprocess.PIPE,  # never written: its end tells the launcher that we are gone
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=dict(environment),
            start_new_session=True,
        )  # fmt: skip
        return cls(transport, ears, log)

    @property
    def pid(self) -> int:
        """The launcher's, and the group's."""
        return self._transport.get_pid()

    @property
    def running(self) -> bool:
        """Whether the server has not ended."""
        return self._transport.get_returncode() is None

    @property
    def stopping(self) -> bool:
        """Whether it ended, or ends, because we wanted it."""
        return self._stopping

    async def ended(self) -> str:
        """Returns when the server has ended and what it printed is read: how it ended, "ended with code 1"."""
        return await asyncio.shield(self._ended)

    async def stop(self, patience: float) -> None:
        """SIGTERM to the group, `patience` seconds, then SIGKILL. Returns when nothing of it is left."""
        self._stopping = True
        if self._ended.done():
            return  # the group's number may be another program's by now
        self._signal(signal.SIGTERM)
        await asyncio.wait([self._ended], timeout=patience)
        # Without its launcher, what is in other sessions could not be found any more: it goes last, by itself.
        if not self._ended.done() and await asyncio.to_thread(launcher.kill_below, self.pid):
            await asyncio.wait([self._ended], timeout=_LAUNCHER_ENDS)
        if not self._ended.done():
            self._signal(signal.SIGKILL)
            await asyncio.wait([self._ended])

    async def _wait(self) -> str:
        await self._ears.exited
        # The engine's processes may outlive the one that failed; they hold the device's memory.
        self._signal(signal.SIGKILL)
        await asyncio.wait([self._ears.silent], timeout=5)
        await self._gone()
        self._log.finish()
        self._log.close()
        code = self._transport.get_returncode()
        self._transport.close()
        return _how(code or 0)

    async def _gone(self, patience: float = 5.0) -> None:
        """Until the kernel has taken away what was killed: only then is the device's memory free."""
        for _ in range(int(patience / 0.02)):
            if not _alive(self.pid):
                return
            await asyncio.sleep(0.02)

    def _signal(self, number: int) -> None:
        # No such group: all of it has ended. PermissionError is what macOS says of a group of zombies.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)


def _alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):
        return False
    # In a container whose first process takes no orphans in, the dead stay listed as zombies; they hold nothing.
    states = [state for state, of in map(_state, Path("/proc").glob("[0-9]*/stat")) if of == group]
    return any(state not in "ZX" for state in states) if states else sys.platform != "linux"


def _state(stat: Path) -> tuple[str, int]:
    """State and group of a process, from Linux's /proc/PID/stat: "PID (name) STATE PARENT GROUP …"."""
    try:
        fields = stat.read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return "X", 0  # gone meanwhile
    return fields[0], int(fields[2])


def _how(code: int) -> str:
    if code < 0:
        return f"was killed by {_signal_name(-code)}"
    # A shell or a container tells so of the signal that ended what it ran.
    return f"ended with code {code}" + (f" ({_signal_name(code - 128)})" if 128 < code < 160 else "")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
