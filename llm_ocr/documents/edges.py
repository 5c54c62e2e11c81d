"""The margins of pages, kept in the main process so that each page's is read once for all its neighbours."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable

from llm_ocr.documents.furniture import REACH, EdgeLine, edge_lines
from llm_ocr.types import PageContent

ReadEdges = Callable[[str, str, int], Awaitable[list[EdgeLine]]]
_Future = asyncio.Future[list[EdgeLine]]

#: Documents whose margins are kept, and pages of one.
_DOCUMENTS, _PAGES = 64, 64


class EdgeCache:
    """Margins by document and page number; asked for once even when several pages want them at a time."""

    def __init__(self, read: ReadEdges) -> None:
        self._read = read
        self._documents: OrderedDict[str, OrderedDict[int, _Future]] = OrderedDict()

    async def around(
        self, source: str, kind: str, number: int, total: int, content: PageContent
    ) -> dict[int, list[EdgeLine]]:
        """The margins of the pages beside `number` by distance; its own `content` is known."""
        loop = asyncio.get_running_loop()
        known = self._known(source)
        self._keep(known, number, edge_lines(content))
        wanted = [page for page in range(number - REACH, number + REACH + 1) if page != number and 1 <= page <= total]
        missing = {page: loop.create_future() for page in wanted if page not in known}
        known.update(missing)
        await self._fetch(missing, source, kind)
        # Shielded: others wait for the same futures.
        return {page - number: await asyncio.shield(known[page]) for page in wanted if page in known}

    def close(self) -> None:
        """Forget everything; whoever still waits gets nothing."""
        for known in self._documents.values():
            for future in known.values():
                if not future.done():
                    future.set_result([])
        self._documents.clear()

    def _known(self, source: str) -> OrderedDict[int, _Future]:
        known = self._documents.setdefault(source, OrderedDict())
        self._documents.move_to_end(source)
        while len(self._documents) > _DOCUMENTS:
            self._documents.popitem(last=False)
        return known

    def _keep(self, known: OrderedDict[int, _Future], number: int, lines: list[EdgeLine]) -> None:
        future = known.get(number)
        if future is None:
            future = known[number] = asyncio.get_running_loop().create_future()
            while len(known) > _PAGES:
                known.popitem(last=False)
        if not future.done():
            future.set_result(lines)

    async def _fetch(self, missing: dict[int, _Future], source: str, kind: str) -> None:
        try:
            for page, future in missing.items():
                lines = await self._read(source, kind, page)
                if not future.done():
                    future.set_result(lines)
        finally:
            for future in missing.values():
                if not future.done():
                    future.set_result([])
