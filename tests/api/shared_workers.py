"""Worker processes that all tests of a session share: the start of one costs more than the pages of most tests.

A pool of the code under test keeps its own limit of concurrent requests and its answers. Its requests are sent to one
pool per kind of worker, which runs in a separate thread until the session ends. Workers are equal if module, limits,
interpreter, and environment are.
"""

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from llm_ocr.config.environment import worker_environment
from llm_ocr.errors import WorkerDied
from llm_ocr.sandbox.pool import WorkerPool, _Worker

#: Maximum kinds of workers with kept processes; the least recently used kind ends.
_KINDS = 6
#: Variables that differ between commands in the process of a test and the Python API; no answer depends on them.
_NO_MATTER = ("PATH", "LANG")
#: Name of the thread that starts them.
THREAD = "shared-workers"
_CLOSED = "not started: its pool was closed"
_own_call, _own_close, _own_kill = WorkerPool.call, WorkerPool.close, _Worker.kill


class _Kept(WorkerPool):
    """Pool that serves many pools."""

    call, close = _own_call, _own_close
    asked = 0


class SharedWorkers:
    """Serve the requests of every `WorkerPool` from common processes while `active`."""

    def __init__(self) -> None:
        self.active = True
        self.ended = 0  # changes when a shared process ends, whose processor time is that of many tests
        self.ending = 0  # shared processes that are being killed
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=THREAD, daemon=True)
        self._kept: dict[object, _Kept] = {}
        self._lock = threading.Lock()
        self._under_way: dict[WorkerPool, set[concurrent.futures.Future[dict[str, Any]]]] = {}

    def install(self, patch: Callable[[type, str, object], None]) -> None:
        """Replace the methods of `WorkerPool` by means of `patch(owner, name, value)`."""
        self._thread.start()
        shared = self

        async def call(
            pool: WorkerPool,
            operation: str,
            payload: Mapping[str, Any],
            *,
            deadline: float,
            affinity: str = "",
            files: Sequence[int] = (),
        ) -> dict[str, Any]:
            options: dict[str, Any] = {"deadline": deadline, "affinity": affinity, "files": files}
            if not shared.active:
                return await _own_call(pool, operation, payload, **options)
            return await shared._call(pool, operation, payload, options)

        async def close(pool: WorkerPool) -> None:
            await _own_close(pool)
            for request in list(shared._under_way.get(pool, ())):
                request.cancel()

        async def kill(worker: _Worker) -> None:
            ours = asyncio.get_running_loop() is shared._loop
            shared.ended += ours
            shared.ending += ours
            try:
                await _own_kill(worker)
            finally:
                shared.ending -= ours

        patch(_Worker, "kill", kill)
        patch(WorkerPool, "call", call)
        patch(WorkerPool, "close", close)

    def end(self) -> None:
        """End all processes and the thread."""
        for kept in self._kept.values():
            asyncio.run_coroutine_threadsafe(kept.close(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    async def _call(
        self, pool: WorkerPool, operation: str, payload: Mapping[str, Any], options: dict[str, Any]
    ) -> dict[str, Any]:
        async with pool._turns:
            if pool._closed:
                raise WorkerDied(_CLOSED)
            kept = self._kept_for(pool)
            request = asyncio.run_coroutine_threadsafe(kept.call(operation, payload, **options), self._loop)
            under_way = self._under_way.setdefault(pool, set())
            under_way.add(request)
            try:
                return await asyncio.wrap_future(request)
            except asyncio.CancelledError:
                if pool._closed:
                    raise WorkerDied(_CLOSED) from None
                raise
            finally:
                under_way.discard(request)
                if not under_way:
                    self._under_way.pop(pool, None)
                with self._lock:
                    kept.asked -= 1

    def _kept_for(self, pool: WorkerPool) -> _Kept:
        environment = tuple(
            sorted((name, value) for name, value in worker_environment().items() if name not in _NO_MATTER)
        )
        kind = (pool.module, pool.limits, pool.interpreter, pool._start_delay, environment)
        with self._lock:
            kept = self._kept.pop(kind, None)
            if kept is None:
                kept = _Kept(
                    pool.module,
                    workers=64,
                    limits=pool.limits,
                    interpreter=pool.interpreter,
                    start_delay=pool._start_delay,
                )
                idle = [known for known, one in self._kept.items() if not one.asked]
                for known in idle[: max(0, len(self._kept) - _KINDS + 1)]:
                    asyncio.run_coroutine_threadsafe(self._kept.pop(known).close(), self._loop)
            self._kept[kind] = kept  # most recently used
            kept.asked += 1
        return kept
