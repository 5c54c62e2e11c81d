"""Which item comes next: in order, unless caps on units, documents or pages of a document make one wait."""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

ItemT = TypeVar("ItemT")

#: Items looked at beyond one that must wait for its document.
LOOK_AHEAD = 256


@dataclass(frozen=True, slots=True)
class Caps:
    """What the user allows at once; None: no cap."""

    units: int | None = None
    documents: int | None = None
    pages: int | None = None  # of one document


NO_CAPS = Caps()


class Turns(Generic[ItemT]):
    """Gives items in order, passing over those whose document may have no more pages under way."""

    def __init__(self, items: AsyncIterator[ItemT], document: Callable[[ItemT], str], caps: Caps) -> None:
        self._items = items
        self._document = document
        self._caps = caps
        self._waiting: deque[ItemT] = deque()
        self._under_way: Counter[str] = Counter()
        self._freed = asyncio.Event()
        self._capped = caps.documents is not None or caps.pages is not None

    async def __aiter__(self) -> AsyncIterator[ItemT]:
        more = True
        ahead: asyncio.Task[bool] | None = None  # what looks for the next item, which may take long
        try:
            while more or self._waiting:
                found = self._next()
                if found is not None:
                    yield found
                elif not self._waiting:
                    more, ahead = await (ahead or self._look_further()), None
                elif more and len(self._waiting) < LOOK_AHEAD:
                    ahead = ahead or asyncio.create_task(self._look_further())
                    await self._freed_or(ahead)
                    if ahead.done():
                        more, ahead = ahead.result(), None
                else:
                    self._freed.clear()
                    await self._freed.wait()
        finally:
            if ahead is not None:
                ahead.cancel()
                await asyncio.gather(ahead, return_exceptions=True)  # nobody asks for this item any more

    async def _freed_or(self, ahead: asyncio.Task[bool]) -> None:
        """Return when an item that waits may come, or another item has come."""
        self._freed.clear()
        freed = asyncio.create_task(self._freed.wait())
        try:
            await asyncio.wait({freed, ahead}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            freed.cancel()

    def done(self, item: ItemT) -> None:
        """The item is finished: another of its document may come."""
        document = self._document(item)
        self._under_way[document] -= 1
        if not self._under_way[document]:
            del self._under_way[document]
        self._freed.set()

    async def _look_further(self) -> bool:
        try:
            self._waiting.append(await anext(self._items))
        except StopAsyncIteration:
            return False
        return True

    def _next(self) -> ItemT | None:
        for place, item in enumerate(self._waiting):
            document = self._document(item)
            if not self._capped or self._allowed(document):
                del self._waiting[place]
                self._under_way[document] += 1
                return item
        return None

    def _allowed(self, document: str) -> bool:
        under_way = self._under_way.get(document, 0)
        if self._caps.pages is not None and under_way >= self._caps.pages:
            return False
        return under_way > 0 or self._caps.documents is None or len(self._under_way) < self._caps.documents
