"""Items of many units in flight: admission by bytes, caps, spool, and publication per unit."""

import asyncio
import contextlib
from collections import Counter, deque
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from llm_ocr.storage.own_folder import OwnFolder

# How much may stand between the source and the engine: counted in items and in bytes, so that memory is bounded.


#: What an item is taken to weigh until one was weighed, in bytes: about a rendered page.
FIRST_GUESS = 512 << 10
#: Share of the newest weight in the running mean.
_NEWEST = 0.1


class Admission:
    """Lets items in while fewer than `most` of them, and fewer than `most_bytes` bytes, are being prepared.

    One caller enters at a time. An item leaves when the engine takes it up, or when it is done.
    """

    def __init__(self, most: int, most_bytes: int | None = None) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._count = 0
        self._bytes = 0.0
        self._mean = float(FIRST_GUESS)
        self._left = asyncio.Event()

    @property
    def bytes(self) -> int:
        """What is being prepared now, as far as it was weighed; else by the mean."""
        return round(self._bytes)

    async def enter(self) -> "Ticket":
        """Waits for room; one item is always let in, whatever it weighs."""
        while self._count and not self._room():
            self._left.clear()
            await self._left.wait()
        ticket = Ticket(self, self._mean)
        self._count += 1
        self._bytes += ticket.weight
        return ticket

    def _room(self) -> bool:
        if self._count >= self._most:
            return False
        return self._most_bytes is None or self._bytes + self._mean <= self._most_bytes

    def _weighed(self, before: float, now: float) -> None:
        self._mean += _NEWEST * (now - self._mean)
        self._bytes += now - before
        self._left.set()

    def _leave(self, weight: float) -> None:
        self._count -= 1
        self._bytes -= weight
        self._left.set()


class Ticket:
    """One item's place in an `Admission`."""

    __slots__ = ("_admission", "_held", "weight")

    def __init__(self, admission: Admission, weight: float) -> None:
        self._admission = admission
        self._held = True
        self.weight = weight

    def weigh(self, weight: int) -> None:
        """What the item takes, in bytes, now that it is known."""
        if self._held:
            self._admission._weighed(self.weight, weight)
            self.weight = weight

    def release(self) -> None:
        """The item is on its way: the next one may be prepared. May be called twice."""
        if self._held:
            self._held = False
            self._admission._leave(self.weight)


# Which item comes next: in order, unless caps on units, documents or pages of a document make one wait.


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


class DocumentLimiter(Generic[ItemT]):
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


# Finished rows of units that are not whole yet: in memory up to a limit, the rest in files of this machine.


RowT = TypeVar("RowT")


@dataclass(frozen=True, slots=True)
class Kept(Generic[RowT]):
    """A row, whole or without what stands in `file`."""

    row: RowT
    size: int
    file: Path | None = None


@dataclass(frozen=True, slots=True)
class RowFiles(Generic[RowT]):
    """How a row is split into a light one that stays in memory and the bytes of a file, and put together again.

    `size` is what the bytes take.
    """

    split: Callable[[RowT], tuple[RowT, bytes]]
    join: Callable[[RowT, bytes], RowT]
    size: Callable[[RowT], int]


@dataclass(slots=True)
class Spool(Generic[RowT]):
    """Keeps rows until their unit is published: all in memory, or `limit` bytes and the rest as `files` make them.

    One stuck page can hold a unit open for minutes while thousands of others are read; their images must not pile up
    in memory.
    """

    files: "RowFiles[RowT] | None" = None
    limit: int = 0
    held: int = 0  # bytes in memory
    _folder: OwnFolder | None = None
    _written: int = field(default=0)

    async def keep(self, row: RowT) -> Kept[RowT]:
        """Put a row away."""
        files = self.files
        if files is None:
            return Kept(row, 0)
        size = files.size(row)
        if self.held + size <= self.limit:
            self.held += size
            return Kept(row, size)
        if self._folder is None:
            self._folder = OwnFolder("llm-ocr-spool-")
        self._written += 1
        file = self._folder.path / str(self._written)
        light, heavy = files.split(row)
        await asyncio.to_thread(file.write_bytes, heavy)
        return Kept(light, size, file)

    async def take(self, kept: Sequence[Kept[RowT]]) -> list[RowT]:
        """The rows again, in this order; they are no longer kept."""
        self.held -= sum(one.size for one in kept if one.file is None)
        if all(one.file is None for one in kept):
            return [one.row for one in kept]
        return await asyncio.to_thread(lambda: [self._taken(one) for one in kept])

    def _taken(self, kept: Kept[RowT]) -> RowT:
        if kept.file is None or self.files is None:
            return kept.row
        row = self.files.join(kept.row, kept.file.read_bytes())
        kept.file.unlink()
        return row

    def close(self) -> None:
        """Remove the files."""
        if self._folder is not None:
            self._folder.remove()
            self._folder = None


# How items of many units flow: a bounded number under way, no pause between units, each unit published when whole.


U = TypeVar("U")

#: Units without an item that are published at a time: a store may take long, and nothing else waits for them.
_EMPTY = 4

Work = Callable[[ItemT, Ticket], Awaitable[RowT]]


@dataclass(slots=True)
class _Open(Generic[U, RowT]):
    """A unit some of whose items are under way; rows wait in the items' order."""

    unit: U
    rows: dict[int, Kept[RowT]]
    expected: int


@dataclass(frozen=True, slots=True)
class _Turn(Generic[U, ItemT, RowT]):
    """One item of an open unit."""

    opened: _Open[U, RowT]
    place: int
    item: ItemT


@dataclass(slots=True)
class Flow(Generic[U, ItemT, RowT]):
    """Does all items of all units; the next unit's items enter while the last one's tail finishes.

    `work` gets a ticket that it may release when another item may be prepared; it is released at the item's end in any
    case. `document` names what an item belongs to, for the caps; units are published inside `publishing`, their rows
    still in the spool while they wait for it. Errors of `work` and `publish` end the flow: what can
    fail for one item alone must come back as its row.
    """

    work: Work[ItemT, RowT]
    publish: Callable[[U, Sequence[RowT]], Awaitable[None]]
    admission: Admission
    spool: Spool[RowT]
    caps: Caps
    document: Callable[[ItemT], str]
    publishing: contextlib.AbstractAsyncContextManager[Any] = field(default_factory=contextlib.nullcontext)

    async def run(self, units: AsyncIterable[tuple[U, Sequence[ItemT]]]) -> None:
        """Returns when all is published."""
        places = asyncio.Semaphore(self.caps.units) if self.caps.units else None
        try:
            async with asyncio.TaskGroup() as tasks:
                turns: DocumentLimiter[_Turn[U, ItemT, RowT]] = DocumentLimiter(
                    self._turns(units, places, tasks), lambda turn: self.document(turn.item), self.caps
                )
                async for turn in turns:
                    ticket = await self.admission.enter()
                    tasks.create_task(self._one(turn, ticket, turns, places))
        finally:
            self.spool.close()

    async def _turns(
        self,
        units: AsyncIterable[tuple[U, Sequence[ItemT]]],
        places: asyncio.Semaphore | None,
        tasks: asyncio.TaskGroup,
    ) -> AsyncIterator[_Turn[U, ItemT, RowT]]:
        empty = asyncio.Semaphore(_EMPTY)
        async for unit, items in units:
            if not items:
                await empty.acquire()
                tasks.create_task(self._empty(unit, empty))
                continue
            if places is not None:
                await places.acquire()
            opened: _Open[U, RowT] = _Open(unit, {}, len(items))
            for place, item in enumerate(items):
                yield _Turn(opened, place, item)

    async def _empty(self, unit: U, places: asyncio.Semaphore) -> None:
        try:
            await self.publish(unit, [])
        finally:
            places.release()

    async def _one(
        self,
        turn: _Turn[U, ItemT, RowT],
        ticket: Ticket,
        turns: DocumentLimiter[_Turn[U, ItemT, RowT]],
        places: asyncio.Semaphore | None,
    ) -> None:
        opened = turn.opened
        try:
            row = await self.work(turn.item, ticket)
        finally:
            ticket.release()
            turns.done(turn)
        opened.rows[turn.place] = await self.spool.keep(row)
        del row
        if len(opened.rows) == opened.expected:
            kept = [opened.rows.pop(place) for place in range(opened.expected)]
            async with self.publishing:
                await self.publish(opened.unit, await self.spool.take(kept))
            if places is not None:
                places.release()
