"""Process the items of many units concurrently, with bounded memory, and publish each unit when it is complete.

An item passes the `DocumentLimiter`, waits for its `Admission`, and leaves its row in the `Spool`.
"""

import asyncio
import contextlib
from collections import Counter, deque
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any, Generic, TypeVar

from llm_ocr.storage.own_folder import OwnFolder

#: Bytes assumed for an item until the first item is weighed: about a rendered page.
FIRST_GUESS = 512 << 10
#: Share of the newest weight in the moving average.
_NEWEST = 0.1


class Admission:
    """Admits items while fewer than `most` items, and fewer than `most_bytes` bytes, are being prepared.

    Callers that wait may enter in another order. An item leaves when the engine accepts it, or when it is done.

    Args:
        most: Items.
        most_bytes: Bytes; None for no limit.
    """

    def __init__(self, most: int, most_bytes: int | None = None) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._count = 0
        self._bytes = 0.0
        self._mean = float(FIRST_GUESS)
        self._left = asyncio.Event()
        self.capped = 0  # waits for the user's limits on work in progress

    @contextlib.contextmanager
    def capping(self) -> Iterator[None]:
        """Count the block as a wait for the user's limits."""
        self.capped += 1
        try:
            yield
        finally:
            self.capped -= 1

    @property
    def bytes(self) -> int:
        """Return the bytes being prepared. Items that are not weighed yet count with the mean weight."""
        return round(self._bytes)

    async def enter(self) -> "Ticket":
        """Wait for admission. An item is always admitted if no other item is being prepared."""
        while self._count and (
            self._count >= self._most or (self._most_bytes is not None and self._bytes + self._mean > self._most_bytes)
        ):
            self._left.clear()
            await self._left.wait()
        ticket = Ticket(self, self._mean)
        self._count += 1
        self._bytes += ticket.weight
        return ticket


class Ticket:
    """Admission of one item."""

    __slots__ = ("_admission", "_held", "weight")

    def __init__(self, admission: Admission, weight: float) -> None:
        self._admission = admission
        self._held = True
        self.weight = weight

    def weigh(self, weight: int) -> None:
        """Set the item's weight in bytes."""
        if self._held:
            admission = self._admission
            admission._mean += _NEWEST * (weight - admission._mean)
            admission._bytes += weight - self.weight
            admission._left.set()
            self.weight = weight

    def release(self) -> None:
        """Admit the next item. Further calls have no effect."""
        if self._held:
            self._held = False
            self._admission._count -= 1
            self._admission._bytes -= self.weight
            self._admission._left.set()


ItemT = TypeVar("ItemT")

#: Items inspected after an item that must wait for its document.
LOOK_AHEAD = 256


@dataclass(frozen=True, slots=True)
class Caps:
    """The user's limits on work in progress; None for no limit."""

    units: int | None = None
    documents: int | None = None
    pages: int | None = None  # per document


NO_CAPS = Caps()


class DocumentLimiter(Generic[ItemT]):
    """Yields items in order, and skips items whose document has reached its limit until another item is done.

    Args:
        items: The items.
        document: Returns the id of the document of an item.
        caps: The limits. `units` has no effect here.
        repeats: Whether `repeat` may be called until the last item is done.
        capping: Encloses the waits of items for the limits.
    """

    def __init__(
        self,
        items: AsyncIterator[ItemT],
        document: Callable[[ItemT], str],
        caps: Caps,
        *,
        repeats: bool = False,
        capping: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext,
    ) -> None:
        self._items = items
        self._repeats = repeats
        self._document = document
        self._caps = caps
        self._capping = capping
        self._waiting: deque[ItemT] = deque()
        self._under_way: Counter[str] = Counter()
        self._freed = asyncio.Event()

    async def __aiter__(self) -> AsyncIterator[ItemT]:
        more = True
        ahead: asyncio.Task[bool] | None = None  # fetches the next item, which may take seconds
        try:
            while more or self._waiting or (self._repeats and self._under_way):
                found = self._next()
                if found is not None:
                    yield found
                elif not self._waiting and not self._repeats:
                    more, ahead = await (ahead or self._fetch()), None
                elif more and len(self._waiting) < LOOK_AHEAD:
                    ahead = ahead or asyncio.create_task(self._fetch())
                    self._freed.clear()
                    freed = asyncio.create_task(self._freed.wait())
                    try:  # until a waiting item may be allowed, or another item was fetched
                        with self._capping() if self._waiting else contextlib.nullcontext():
                            await asyncio.wait({freed, ahead}, return_when=asyncio.FIRST_COMPLETED)
                    finally:
                        freed.cancel()
                    if ahead.done():
                        more, ahead = ahead.result(), None
                else:
                    self._freed.clear()
                    with self._capping() if self._waiting else contextlib.nullcontext():
                        await self._freed.wait()
        finally:
            if ahead is not None:
                ahead.cancel()
                await asyncio.gather(ahead, return_exceptions=True)

    def repeat(self, items: Sequence[ItemT]) -> None:
        """Yield finished items again, before new ones. Called before `done` of one of them."""
        self._waiting.extendleft(reversed(items))

    def done(self, item: ItemT) -> None:
        """Mark an item as finished, so that another item of its document is allowed."""
        document = self._document(item)
        self._under_way[document] -= 1
        if not self._under_way[document]:
            del self._under_way[document]
        self._freed.set()

    async def _fetch(self) -> bool:
        try:
            self._waiting.append(await anext(self._items))
        except StopAsyncIteration:
            return False
        return True

    def _next(self) -> ItemT | None:
        """Return the first waiting item that the caps allow."""
        caps, under_way = self._caps, self._under_way
        for place, item in enumerate(self._waiting):
            document = self._document(item)
            pages = under_way.get(document, 0)
            is_full = caps.documents is not None and not pages and len(under_way) >= caps.documents
            if not is_full and (caps.pages is None or pages < caps.pages):
                del self._waiting[place]
                under_way[document] += 1
                return item
        return None


RowT = TypeVar("RowT")


@dataclass(frozen=True, slots=True)
class Kept(Generic[RowT]):
    """Row in the spool; complete, or without its large parts, which are in `file`."""

    row: RowT
    sizes: Sequence[int]  # bytes of each large part
    file: Path | None = None


@dataclass(slots=True)
class Spool(Generic[RowT]):
    """Keeps rows until their unit is published.

    A stuck page can keep a unit open for minutes while thousands of other pages are read. Without the spool, their
    images would accumulate in memory.
    """

    parts: Callable[[RowT], Sequence[bytes]] = lambda row: ()  # returns the large parts of a row, for files
    with_parts: Callable[[RowT, Sequence[bytes]], RowT] = lambda row, parts: row  # returns it with other large parts
    limit: int = 0  # bytes of large parts in memory. Those of further rows go to files.
    held: int = 0  # bytes in memory now
    _folder: OwnFolder | None = None
    _written: int = field(default=0)

    async def keep(self, row: RowT) -> Kept[RowT]:
        """Store a row."""
        parts = self.parts(row)
        sizes = [len(part) for part in parts]
        if not parts or self.held + sum(sizes) <= self.limit:
            self.held += sum(sizes)
            return Kept(row, sizes)
        if self._folder is None:
            self._folder = OwnFolder("llm-ocr-spool-")
        self._written += 1
        file = self._folder.path / str(self._written)
        await asyncio.to_thread(file.write_bytes, b"".join(parts))
        return Kept(self.with_parts(row, [b""] * len(parts)), sizes, file)

    async def take(self, kept: Sequence[Kept[RowT]]) -> list[RowT]:
        """Return the rows in this order, and forget them."""
        self.held -= sum(sum(one.sizes) for one in kept if one.file is None)
        if all(one.file is None for one in kept):
            return [one.row for one in kept]

        def taken(one: Kept[RowT]) -> RowT:
            if one.file is None:
                return one.row
            data, ends = one.file.read_bytes(), list(accumulate(one.sizes))
            one.file.unlink()
            parts = [data[end - size : end] for size, end in zip(one.sizes, ends, strict=True)]
            return self.with_parts(one.row, parts)

        return await asyncio.to_thread(lambda: [taken(one) for one in kept])

    def close(self) -> None:
        """Remove the files."""
        if self._folder is not None:
            self._folder.remove()
            self._folder = None


U = TypeVar("U")

#: Units without items that are published at a time.
_EMPTY = 4


@dataclass(slots=True)
class _Open(Generic[U, ItemT, RowT]):
    """Unit with items in progress. The rows wait in the order of the items."""

    unit: U
    rows: dict[int, Kept[RowT]]
    items: Sequence[ItemT]
    left: int  # items without a row, or to be worked on again
    is_again: bool = False


@dataclass(frozen=True, slots=True)
class _Task(Generic[U, ItemT, RowT]):
    """One item of an open unit."""

    opened: _Open[U, ItemT, RowT]
    position: int
    item: ItemT


@dataclass(slots=True)
class Flow(Generic[U, ItemT, RowT]):
    """Processes all items of all units.

    The items of the next unit enter while the last items of the previous unit finish. An error of `work` or `publish`
    ends the flow, so a failure of a single item must be returned as its row.
    """

    #: Returns the row of an item. It may release the ticket as soon as the next item can be prepared. The ticket is
    #: always released at the end of the item.
    work: Callable[[ItemT, Ticket], Awaitable[RowT]]
    publish: Callable[[U, Sequence[RowT]], Awaitable[None]]  # publishes the rows of a complete unit
    admission: Admission  # bounds the items between source and engine
    spool: Spool[RowT]  # keeps the rows of incomplete units
    caps: Caps  # the user's limits
    document: Callable[[ItemT], str]  # returns the id of the document of an item, for the caps
    #: Units are published inside this context. Their rows stay in the spool while they wait for it.
    publishing: contextlib.AbstractAsyncContextManager[Any] = field(default_factory=contextlib.nullcontext)
    #: Returns the positions of the items of a complete unit that `rework` processes, before it is published. Its rows
    #: may lack what the spool has written to files.
    again: Callable[[U, Sequence[RowT]], Sequence[int]] | None = None
    #: Returns the new row of an item, whose complete row it receives.
    rework: Callable[[ItemT, RowT, Ticket], Awaitable[RowT]] | None = None

    async def run(self, units: AsyncIterable[tuple[U, Sequence[ItemT]]]) -> None:
        """Process and publish all units."""
        open_units = asyncio.Semaphore(self.caps.units) if self.caps.units else None
        try:
            async with asyncio.TaskGroup() as tasks:
                limiter: DocumentLimiter[_Task[U, ItemT, RowT]] = DocumentLimiter(
                    self._tasks(units, open_units, tasks),
                    lambda task: self.document(task.item),
                    self.caps,
                    repeats=self.again is not None,
                    capping=self.admission.capping,
                )
                async for task in limiter:
                    ticket = await self.admission.enter()
                    tasks.create_task(self._process(task, ticket, limiter, open_units))
        finally:
            self.spool.close()

    async def _tasks(
        self,
        units: AsyncIterable[tuple[U, Sequence[ItemT]]],
        open_units: asyncio.Semaphore | None,
        tasks: asyncio.TaskGroup,
    ) -> AsyncIterator[_Task[U, ItemT, RowT]]:
        empty = asyncio.Semaphore(_EMPTY)

        async def publish_empty(unit: U) -> None:
            try:
                await self.publish(unit, [])
            finally:
                empty.release()

        async for unit, items in units:
            if not items:
                await empty.acquire()
                tasks.create_task(publish_empty(unit))
                continue
            if open_units is not None:
                with self.admission.capping():
                    await open_units.acquire()
            opened: _Open[U, ItemT, RowT] = _Open(unit, {}, items, len(items))
            for position, item in enumerate(items):
                yield _Task(opened, position, item)

    async def _process(
        self,
        task: _Task[U, ItemT, RowT],
        ticket: Ticket,
        limiter: DocumentLimiter[_Task[U, ItemT, RowT]],
        open_units: asyncio.Semaphore | None,
    ) -> None:
        opened = task.opened
        before = opened.rows.pop(task.position, None)
        try:
            if before is None:
                row = await self.work(task.item, ticket)
            else:
                assert self.rework is not None
                row = await self.rework(task.item, (await self.spool.take([before]))[0], ticket)
            ticket.release()
            opened.rows[task.position] = await self.spool.keep(row)
            del row
            opened.left -= 1
            if not opened.left and self.again is not None and not opened.is_again:
                opened.is_again = True
                rows = [opened.rows[position].row for position in range(len(opened.items))]
                chosen = self.again(opened.unit, rows)
                opened.left = len(chosen)
                limiter.repeat([_Task(opened, position, opened.items[position]) for position in chosen])
        finally:
            ticket.release()
            limiter.done(task)
        if not opened.left:
            kept = [opened.rows.pop(position) for position in range(len(opened.items))]
            async with self.publishing:
                await self.publish(opened.unit, await self.spool.take(kept))
            if open_units is not None:
                open_units.release()
