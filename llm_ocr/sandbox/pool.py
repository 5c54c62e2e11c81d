"""Pool of worker processes in the main process; each worker handles one request at a time."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import struct
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

from llm_ocr.config.environment import worker_environment
from llm_ocr.errors import PageFailure, WorkerDied, WorkerError
from llm_ocr.sandbox.worker import HEAD, OUT_OF_MEMORY, decode, encode
from llm_ocr.types import Reason

_CLOSED = "not started: its pool was closed"


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a worker process. `memory` and `file_size` in bytes; without `confined`, it keeps network and files.

    `niceness`: 0 to 19, as for `nice`. A worker with a higher value has lower priority. `package`: another package than
    ours, whose modules the worker may import later.
    """

    memory: int
    file_size: int = 64 << 20
    requests: int = 500  # the process is replaced after this number
    confined: bool = True
    niceness: int = 0
    package: str = ""


@dataclass(frozen=True, slots=True)
class Interpreter:
    """Another Python interpreter; `path` is the folder from which it imports this package."""

    python: str
    path: str


class WorkerPool:
    """Up to `workers` processes of `python -m module`; `module` ends with `sandbox.worker.serve(handlers)`."""

    def __init__(
        self,
        module: str,
        *,
        workers: int,
        limits: Limits,
        interpreter: Interpreter | None = None,
        start_delay: float = 0.0,
    ) -> None:
        """Create the pool; processes start on demand.

        Args:
            module: the module of the workers.
            workers: upper limit of processes.
            limits: limits of each process.
            interpreter: the Python interpreter of the workers; None for this one.
            start_delay: seconds that a request waits for a busy worker before another one is started.
        """
        self.interpreter = interpreter
        self.module = module
        self.workers = workers
        self.limits = limits
        self._idle: list[_Worker] = []  # the most recently used worker is last
        self._all: set[_Worker] = set()
        self._turns = asyncio.Semaphore(workers)
        self._start_delay = start_delay
        self._freed = asyncio.Event()
        self._starting = asyncio.Lock()
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def call(
        self,
        operation: str,
        payload: Mapping[str, Any],
        *,
        deadline: float,
        affinity: str = "",
        files: Sequence[int] = (),
    ) -> dict[str, Any]:
        """Run an operation in a worker, preferably in the idle worker that last handled `affinity`.

        Requests that still wait when the pool is closed raise `WorkerDied`.

        Args:
            operation: name of a handler.
            payload: argument of the handler.
            deadline: seconds after which the worker is killed.
            affinity: key of related requests, such as a document.
            files: descriptors that the worker receives as its own in `payload["files"]`; 250 at most.

        Raises:
            WorkerDied: the worker exceeded the deadline or its memory, or crashed.
            PageFailure: the worker raised it.
            WorkerError: the worker raised another error.
        """
        async with self._turns:
            worker = await self._take(affinity)
            try:
                reply = await worker.ask({"operation": operation, "payload": payload}, deadline, files)
            except BaseException:
                self._all.discard(worker)
                await worker.kill()
                raise
            worker.affinity = affinity or worker.affinity
            worn = worker.answered >= self.limits.requests or reply.get("out_of_memory")
            if worn or worker not in self._all:
                self._all.discard(worker)
                await worker.kill()
            else:
                self._idle.append(worker)
                self._freed.set()
        if "result" in reply:
            result = reply["result"]
            if not isinstance(result, dict):
                raise WorkerError("a worker answered with something that is not an object")
            return result
        if "failure" in reply:
            raise PageFailure(Reason(reply["failure"]), str(reply.get("detail", "")), hint=str(reply.get("hint", "")))
        if reply.get("out_of_memory"):
            raise WorkerDied("out of its memory limit", out_of_memory=True)
        raise WorkerError(str(reply.get("error", "no answer")))

    def may_replace(self, other: "WorkerPool") -> bool:
        """Return whether this pool is open, and has the same kind and number of workers as another one."""
        mine, theirs = ((pool.module, pool.workers, pool.limits, pool.interpreter) for pool in (self, other))
        return not self._closed and mine == theirs

    async def close(self) -> None:
        """Kill all workers at once, permanently."""
        self._closed = True
        self._freed.set()
        async with self._starting:  # a worker that starts now would outlive the pool
            workers, self._all, self._idle = list(self._all), set(), []
        await asyncio.gather(*(worker.kill() for worker in workers))

    async def _take(self, affinity: str) -> "_Worker":
        if self._start_delay and (self._all or self._starting.locked()):
            # Another process costs as much time, and memory.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._start_delay):
                    while not self._idle and not self._closed:
                        self._freed.clear()
                        await self._freed.wait()
        for index, idle in enumerate(self._idle):
            if affinity and idle.affinity == affinity:
                return self._idle.pop(index)
        if self._idle:  # with affinity the oldest worker; otherwise the newest, so that others stay asleep
            return self._idle.pop(0 if affinity else -1)
        async with self._starting:
            if self._closed:
                raise WorkerDied(_CLOSED)
            worker = await _Worker.start(self.module, self.limits, self.interpreter)
            self._all.add(worker)
        return worker


class _Worker:
    """Worker process. Only for one caller at a time."""

    def __init__(self, process: asyncio.subprocess.Process, door: socket.socket) -> None:
        self.process = process
        self._door = door  # passes open files
        self.affinity = ""
        self.answered = 0
        self._last_lines: deque[str] = deque(maxlen=5)
        self._listener = asyncio.create_task(self._listen())

    @classmethod
    async def start(cls, module: str, limits: Limits, interpreter: Interpreter | None) -> "_Worker":
        """Start a process. If the caller is cancelled during the start, kill the process."""
        starting = asyncio.ensure_future(cls._started(module, limits, interpreter))
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            await (await starting).kill()
            raise

    @classmethod
    async def _started(cls, module: str, limits: Limits, interpreter: Interpreter | None) -> "_Worker":
        environment = worker_environment() | ({"PYTHONPATH": interpreter.path} if interpreter else {})
        door, theirs = socket.socketpair()
        options = json.dumps(asdict(limits) | {"door": theirs.fileno()})
        try:
            with theirs:
                process = await asyncio.create_subprocess_exec(
                    # -P: a json.py in the user's working folder must not be imported.
                    interpreter.python if interpreter else sys.executable, "-P", "-m", module, options,
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=asyncio.subprocess.PIPE,
                    pass_fds=(theirs.fileno(),),
                    env=environment,
                    limit=1 << 20,
                    start_new_session=True,  # a process group of its own: killed together with its children
                )  # fmt: skip
        except BaseException:
            door.close()
            raise
        return cls(process, door)

    async def ask(self, request: Mapping[str, Any], deadline: float, files: Sequence[int]) -> dict[str, Any]:
        try:
            async with asyncio.timeout(deadline):
                stdin, stdout = self.process.stdin, self.process.stdout
                if stdin is None or stdout is None:
                    raise ConnectionError("the worker has no pipes")
                if files:
                    socket.send_fds(self._door, [b"."], files)  # a single byte never blocks
                for piece in encode({**request, "files": len(files)}):
                    stdin.write(piece)
                await stdin.drain()
                head_size, count = HEAD.unpack(await stdout.readexactly(HEAD.size))
                sizes = struct.unpack(f">{count}I", await stdout.readexactly(4 * count))
                head = await stdout.readexactly(head_size)
                reply = decode(head, [await stdout.readexactly(size) for size in sizes])
        except TimeoutError as error:
            raise WorkerDied(f"killed after {deadline:g} s", timed_out=True) from error
        except (asyncio.IncompleteReadError, ConnectionError, ValueError, IndexError) as error:
            await self.kill()
            code = self.process.returncode
            output = "; ".join(self._last_lines)
            # Native libraries abort if an allocation fails.
            memory = code in (OUT_OF_MEMORY, -signal.SIGABRT) or any(
                sign in output for sign in ("bad_alloc", "MemoryError", "out of memory")
            )
            detail = f"ended with code {code}" + (f": {output}" if output else "")
            raise WorkerDied(detail, out_of_memory=memory) from error
        self.answered += max(1, len(files))  # recycled by the number of documents, however they are batched
        return reply

    async def _listen(self) -> None:
        if self.process.stderr is None:
            return
        with contextlib.suppress(ValueError):  # a line longer than the buffer: ignore the rest
            async for line in self.process.stderr:
                self._last_lines.append(line.decode(errors="replace").strip()[:300])

    async def kill(self) -> None:
        self._door.close()
        if self.process.stdin is not None:
            self.process.stdin.close()
        if self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGKILL)
        await self.process.wait()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._listener, 1)
