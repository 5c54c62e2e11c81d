"""Units whose documents are all counted: what the plan only estimated is opened before its pages are read."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Awaitable, Callable
from dataclasses import replace

from llm_ocr.errors import PageFailure
from llm_ocr.types import DocumentPart, Reason, Unit
from llm_ocr.work.wanted import no_such_page, wanted_pages

#: Opens the document of a part: its number of pages. Raises PageFailure.
Count = Callable[[DocumentPart], Awaitable[int]]


async def counted_units(units: AsyncIterable[Unit], count: Count) -> AsyncGenerator[Unit, None]:
    """The units in their order, with the pages of all their documents.

    While such a unit is read, the next one is counted, so that nobody waits for documents to be opened. Must be closed
    when it is not read to its end.
    """
    rest = aiter(units)
    ahead: asyncio.Task[Unit | None] | None = None
    try:
        while True:
            unit = await (ahead or _next(rest, count))
            ahead = None
            if unit is None:
                return
            if unit.estimated:
                ahead = asyncio.create_task(_next(rest, count))
            yield unit
    finally:
        if ahead is not None:
            ahead.cancel()
            await asyncio.gather(ahead, return_exceptions=True)  # nobody asks for this unit any more


async def _next(rest: AsyncIterator[Unit], count: Count) -> Unit | None:
    try:
        unit = await anext(rest)
    except StopAsyncIteration:
        return None
    if not unit.estimated:
        return unit
    parts = await asyncio.gather(*(_counted(part, count) for part in unit.parts))
    return replace(unit, parts=tuple(parts))


async def _counted(part: DocumentPart, count: Count) -> DocumentPart:
    """The part as an exact plan would have it; its estimate stays, because the plan was made with it."""
    if part.counted:
        return part
    try:
        total = await count(part)
    except PageFailure as failure:
        return replace(part, reason=failure.reason, detail=failure.detail)
    pages = wanted_pages(part.wanted, total)
    if not pages:
        return replace(part, reason=Reason.NO_SUCH_PAGE, detail=no_such_page(total), page_total=total)
    return replace(part, pages=pages, page_total=total)
