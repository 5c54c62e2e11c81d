"""Single questions put together to batches: as many as wait when a place gets free, never waiting for more."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, TypeVar

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")


class Batches(Generic[ItemT, ResultT]):
    """Runs at most `parallel` batches of at most `size` items at a time."""

    def __init__(
        self, run: Callable[[Sequence[ItemT]], Awaitable[Sequence[ResultT]]], *, size: int, parallel: int
    ) -> None:
        """`run` gives one result for each item, in order; what it raises goes to all who asked."""
        self._run = run
        self._size = size
        self._parallel = parallel
        self._waiting: deque[tuple[ItemT, asyncio.Future[ResultT]]] = deque()
        self._running: set[asyncio.Task[Any]] = set()

    async def ask(self, item: ItemT) -> ResultT:
        """The item's result."""
        answer: asyncio.Future[ResultT] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, answer))
        if len(self._running) < self._parallel:
            self._running.add(asyncio.create_task(self._work()))
        return await answer

    async def close(self) -> None:
        """End what runs; who still waits is cancelled."""
        for task in tuple(self._running):
            task.cancel()
        await asyncio.gather(*tuple(self._running), return_exceptions=True)
        while self._waiting:
            self._waiting.popleft()[1].cancel()

    async def _work(self) -> None:
        try:
            while self._waiting:
                batch = [self._waiting.popleft() for _ in range(min(self._size, len(self._waiting)))]
                batch = [(item, answer) for item, answer in batch if not answer.done()]
                if batch:
                    await self._one(batch)
        finally:  # at once, not by a callback: who asks in between must not count on this one
            if (task := asyncio.current_task()) is not None:
                self._running.discard(task)

    async def _one(self, batch: Sequence[tuple[ItemT, asyncio.Future[ResultT]]]) -> None:
        try:
            results = await self._run([item for item, _ in batch])
        except asyncio.CancelledError:
            for _, answer in batch:
                answer.cancel()
            raise
        except Exception as error:  # noqa: BLE001 - each who asked raises it
            for _, answer in batch:
                if not answer.done():
                    answer.set_exception(error)
            return
        for (_, answer), result in zip(batch, results, strict=True):
            if not answer.done():
                answer.set_result(result)
