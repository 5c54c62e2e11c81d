"""How items of many units flow: a bounded number under way, no pause between units, each unit published when whole."""

import asyncio
from collections.abc import AsyncIterable, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

U = TypeVar("U")
ItemT = TypeVar("ItemT")
RowT = TypeVar("RowT")


@dataclass(slots=True)
class _Open(Generic[U, RowT]):
    """A unit some of whose items are under way; rows wait in the items' order."""

    unit: U
    rows: dict[int, RowT]
    expected: int


async def flow(
    units: AsyncIterable[tuple[U, Sequence[ItemT]]],
    work: Callable[[ItemT], Awaitable[RowT]],
    publish: Callable[[U, Sequence[RowT]], Awaitable[None]],
    *,
    in_flight: int,
) -> None:
    """Do all items of all units, `in_flight` at a time; the next unit's items enter while the last one's tail finishes.

    Errors of `work` and `publish` end the flow: what can fail for one item alone must come back as its row.
    """
    slots = asyncio.Semaphore(in_flight)

    async def one(opened: _Open[U, RowT], place: int, item: ItemT) -> None:
        try:
            opened.rows[place] = await work(item)
            if len(opened.rows) == opened.expected:
                await publish(opened.unit, [opened.rows[index] for index in range(opened.expected)])
        finally:
            slots.release()

    async with asyncio.TaskGroup() as tasks:
        async for unit, items in units:
            if not items:
                await publish(unit, [])
            opened: _Open[U, RowT] = _Open(unit, {}, len(items))
            for place, item in enumerate(items):
                await slots.acquire()
                tasks.create_task(one(opened, place, item))
