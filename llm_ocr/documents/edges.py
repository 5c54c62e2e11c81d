"""The margins of pages, kept in the main process so that each page's is read once for all its neighbours."""

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator

from llm_ocr.documents.furniture import REACH, EdgeLine, edge_lines
from llm_ocr.types import PageContent

ReadEdges = Callable[[str, str, int], Awaitable[list[EdgeLine]]]
_Future = asyncio.Future[list[EdgeLine] | None]  # None: the page was to be made, and was not

#: Documents whose margins are kept, and pages of one.
_DOCUMENTS, _PAGES = 64, 64


class EdgeCache:
    """Margins by document and page number; asked for once even when several pages want them at a time."""

    def __init__(self, read: ReadEdges) -> None:
        self._read = read
        self._documents: OrderedDict[str, OrderedDict[int, _Future]] = OrderedDict()

    async def around(
        self, source: str, version: str, number: int, total: int, content: PageContent
    ) -> dict[int, list[EdgeLine]]:
        """The margins of the pages beside `number` by distance; its own `content` is known."""
        loop = asyncio.get_running_loop()
        known = self._known(source)
        self._keep(known, number, edge_lines(content))
        wanted = [page for page in range(number - REACH, number + REACH + 1) if page != number and 1 <= page <= total]
        missing = {page: loop.create_future() for page in wanted if page not in known}
        known.update(missing)
        _forget_oldest(known)
        await self._fetch(missing, source, version)
        return {page - number: await self._lines(known, page, source, version) for page in wanted if page in known}

    @contextlib.contextmanager
    def coming(self, source: str, number: int) -> Iterator[None]:
        """Around the making of a page that ends in `around`: its neighbours wait for it, and do not read it too."""
        known = self._known(source)
        if number in known:
            yield
            return
        future: _Future = asyncio.get_running_loop().create_future()
        known[number] = future
        _forget_oldest(known)
        try:
            yield
        finally:
            if not future.done():
                future.set_result(None)  # it failed, or has no text: whoever waits asks for the margins

    def close(self) -> None:
        """Forget everything; whoever still waits gets nothing."""
        for known in self._documents.values():
            for future in known.values():
                if not future.done():
                    future.set_result([])
        self._documents.clear()

    async def _lines(self, known: OrderedDict[int, _Future], page: int, source: str, version: str) -> list[EdgeLine]:
        while page in known:
            future = known[page]
            lines = await asyncio.shield(future)  # others wait for the same one
            if lines is not None:
                return lines
            if known.get(page) is future:
                known[page] = asyncio.get_running_loop().create_future()
                await self._fetch({page: known[page]}, source, version)
        return []

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
        if not future.done():
            future.set_result(lines)

    async def _fetch(self, missing: dict[int, _Future], source: str, version: str) -> None:
        try:
            for page, future in missing.items():
                lines = await self._read(source, version, page)
                if not future.done():
                    future.set_result(lines)
        finally:
            for future in missing.values():
                if not future.done():
                    future.set_result([])


def _forget_oldest(known: OrderedDict[int, _Future]) -> None:
    while len(known) > _PAGES:
        known.popitem(last=False)
