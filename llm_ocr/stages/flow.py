"""How items of many units flow: a bounded number under way, no pause between units, each unit published when whole."""

import asyncio
import contextlib
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from llm_ocr.stages.admission import Admission, Ticket
from llm_ocr.stages.spool import Kept, Spool
from llm_ocr.stages.turns import Caps, Turns

U = TypeVar("U")
ItemT = TypeVar("ItemT")
RowT = TypeVar("RowT")

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
                turns: Turns[_Turn[U, ItemT, RowT]] = Turns(
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
        turns: Turns[_Turn[U, ItemT, RowT]],
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
