"""Blocking iterators and calls of the store, for coroutines: each step in a thread."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from typing import TypeVar

T = TypeVar("T")

_END = object()


async def stepwise(items: Iterable[T], stop: Callable[[], bool] = lambda: False) -> AsyncIterator[T]:
    """The items, each fetched in a thread when it is asked for; none any more when `stop` says so."""
    iterator = await asyncio.to_thread(iter, items)
    while not stop():
        item = await asyncio.to_thread(next, iterator, _END)
        if item is _END:
            return
        yield item  # type: ignore[misc]  # not _END, hence a T
