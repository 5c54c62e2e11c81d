"""Back-pressure from work that comes after the model: pages that wait for it hold back new questions."""

import asyncio
from types import TracebackType


class Backlog:
    """`async with` is around the work; `room` waits while `most` pages are at it."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._count = 0
        self._left = asyncio.Event()

    async def room(self) -> None:
        """Returns when fewer pages wait."""
        while self._count >= self._most:
            self._left.clear()
            await self._left.wait()

    async def __aenter__(self) -> None:
        self._count += 1

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._count -= 1
        self._left.set()
