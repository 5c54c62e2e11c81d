"""Many requests share the worker's model; a stage has the machine for itself, since it starts a model of its own."""

import asyncio
import contextlib
from collections.abc import AsyncIterator


class Turns:
    """Who may use the machine. One who waits to be alone is not overtaken."""

    def __init__(self) -> None:
        self._changed = asyncio.Condition()
        self._together = 0
        self._alone = False
        self._waiting = 0

    @contextlib.asynccontextmanager
    async def together(self) -> AsyncIterator[None]:
        """Beside others of this kind."""
        async with self._changed:
            await self._changed.wait_for(lambda: not self._alone and not self._waiting)
            self._together += 1
        try:
            yield
        finally:
            await self._leave(alone=False)

    @contextlib.asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """With nobody beside."""
        async with self._changed:
            self._waiting += 1
            try:
                await self._changed.wait_for(lambda: not self._alone and not self._together)
                self._alone = True
            finally:
                self._waiting -= 1
                self._changed.notify_all()
        try:
            yield
        finally:
            await self._leave(alone=True)

    async def _leave(self, *, alone: bool) -> None:
        async with self._changed:
            if alone:
                self._alone = False
            else:
                self._together -= 1
            self._changed.notify_all()
