"""A page is looked at for figures while the model reads it: the end of a run need not wait for it."""

import asyncio
from collections.abc import Awaitable, Callable

from llm_ocr.engines.embedded.regions import Seen


class Ahead:
    """One page's look, when its turn in the lane comes. Few look ahead at a time: each OCR at work takes 300 MB."""

    def __init__(self, look: Callable[[], Awaitable[Seen]], lane: asyncio.Semaphore) -> None:
        self._begun = False
        self._task = asyncio.create_task(self._run(look, lane))
        self._task.add_done_callback(_heard)

    async def seen(self) -> Seen | None:
        """What was seen; None where its turn has not come, and now will not. Raises what `look` raises."""
        if not self._begun:
            self.drop()
            return None
        return await self._task

    def drop(self) -> None:
        """Nobody wants to know any more."""
        self._task.cancel()

    async def _run(self, look: Callable[[], Awaitable[Seen]], lane: asyncio.Semaphore) -> Seen:
        async with lane:
            self._begun = True
            return await look()


def _heard(task: "asyncio.Task[Seen]") -> None:
    """What went wrong with a look that nobody wants is not worth a word."""
    if not task.cancelled():
        task.exception()
