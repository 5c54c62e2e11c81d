"""Trying again what may be better the next time."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from llm_ocr.errors import PageFailure

T = TypeVar("T")

#: Seconds; a server that asks for more patience gets this much.
_LONGEST_PAUSE = 60.0


class NotNow(PageFailure):
    """A failure that may pass. `after`: seconds that the server asked to wait."""

    def __init__(self, failure: PageFailure, after: float | None = None) -> None:
        super().__init__(failure.reason, failure.detail, hint=failure.hint, retryable=True)
        self.after = after


async def persistently(attempt: Callable[[], Awaitable[T]], *, tries: int, pause: float) -> T:
    """The first result of up to `tries` attempts; only `NotNow` is tried again, the last one is raised.

    Pauses double and are spread by chance, so that many workers do not come back at the same moment.
    """
    for number in range(1, tries):
        try:
            return await attempt()
        except NotNow as failure:
            spread = pause * 2 ** (number - 1) * random.uniform(0.5, 1.5)
            await asyncio.sleep(min(max(spread, failure.after or 0.0), _LONGEST_PAUSE))
    return await attempt()
