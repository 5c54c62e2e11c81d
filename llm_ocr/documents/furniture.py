"""Detect running headers, footers, and page numbers by comparing the margins of neighboring pages."""

import asyncio
import contextlib
import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from llm_ocr.types import Line, PageContent

# Running headers, footers and page numbers: lines near the edge that stand at the same place on neighbouring pages.


#: How far from a page's edge such lines stand, in parts of its height (or width, for text turned along the side).
MARGIN = 0.12
#: Pages looked at before and after: two, because left and right pages may differ.
REACH = 2
#: How far apart the same line may stand on two pages, in parts of width and height.
_ACROSS, _DOWN = 0.03, 0.015
_NUMBER = re.compile(r"[0-9]+|\b[ivxlcIVXLC]{1,7}\b")
_ROMAN = {"i": 1, "v": 5, "x": 10, "l": 50, "c": 100}


@dataclass(frozen=True, slots=True)
class EdgeLine:
    """A line near a page's edge: its text with `#` for numbers, the numbers, and its place relative to the page."""

    text: str
    numbers: tuple[int, ...]
    left: float
    right: float
    middle: float


def edge_lines(content: PageContent) -> list[EdgeLine]:
    """The lines near the page's edges."""
    return [_edge_line(line, content) for line in content.lines if _near_edge(line, content)]


def marked(content: PageContent, neighbours: Mapping[int, Sequence[EdgeLine]]) -> PageContent:
    """The content with `recurs` set where a neighbour has the same line at the same place.

    `neighbours`: lines by distance in pages, negative for pages before. A line without letters must count with the
    pages: cells of a table that goes on over pages are numbers at the same place, too.
    """
    others: dict[str, list[tuple[int, EdgeLine]]] = {}
    for distance, lines in neighbours.items():
        for edge in lines:
            others.setdefault(edge.text, []).append((distance, edge))
    if not others:
        return content

    def recurs(line: Line) -> bool:
        if not _near_edge(line, content):
            return False
        here = _edge_line(line, content)
        return any(
            _same_place(here, other) and _same_matter(here, other, distance)
            for distance, other in others.get(here.text, ())
        )

    return replace(content, lines=tuple(replace(line, recurs=True) if recurs(line) else line for line in content.lines))


def _near_edge(line: Line, content: PageContent) -> bool:
    x, y = line.box.centre
    if line.box.height > 2 * max(line.box.width, line.size):  # runs along the side
        return not MARGIN * content.width <= x <= (1 - MARGIN) * content.width
    return not MARGIN * content.height <= y <= (1 - MARGIN) * content.height


def _edge_line(line: Line, content: PageContent) -> EdgeLine:
    text = _NUMBER.sub("#", line.text).replace(" ", "")
    numbers = tuple(_value(found) for found in _NUMBER.findall(line.text))
    width, height = content.width, content.height
    return EdgeLine(text, numbers, line.box.x0 / width, line.box.x1 / width, line.box.centre[1] / height)


def _value(number: str) -> int:
    if number[0] in "0123456789":
        return int(number[:9])
    values = [_ROMAN[letter] for letter in number.lower()]
    return sum(-one if one < after else one for one, after in zip(values, [*values[1:], 0], strict=True))


def _same_matter(one: EdgeLine, other: EdgeLine, distance: int) -> bool:
    if sum(character.isalpha() for character in one.text) >= 2:
        return True
    return len(one.numbers) <= 2 and any(
        theirs - ours == distance for ours, theirs in zip(one.numbers, other.numbers, strict=False)
    )


def _same_place(one: EdgeLine, other: EdgeLine) -> bool:
    across = min(
        abs(one.left - other.left),
        abs(one.right - other.right),
        abs(one.left + one.right - other.left - other.right) / 2,
    )
    return across <= _ACROSS and abs(one.middle - other.middle) <= _DOWN


# The margins of pages, kept in the main process so that each page's is read once for all its neighbours.


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
