"""Margins of pages: each page is read once, by whoever makes it, however many neighbours ask for its margins."""

import asyncio

import pytest

from llm_ocr.documents import rendering
from llm_ocr.documents.rendering import EdgeCache
from llm_ocr.types import Box, Line, PageContent

NOTHING_WAITS = 30.0  # seconds; far more than any of it takes


def content(text: str) -> PageContent:
    return PageContent(600.0, 800.0, (Line(text, Box(50, 20, 300, 32), 10.0, ()),), (), ())


class Margins:
    """A document of three pages, and which of them were read for their margins alone."""

    def __init__(self) -> None:
        self.read_alone: list[int] = []
        self.cache = EdgeCache(self._read)

    async def _read(self, source, kind, number):
        self.read_alone.append(number)
        return []

    async def make(self, number, *, fails=False, text="Header"):
        with self.cache.coming("d.pdf", number):
            await asyncio.sleep(0.01 * number)
            if fails:
                raise ValueError(number)
            if not text:
                return {}
            return await self.cache.around("d.pdf", "pdf", number, 3, content(text))

    def run(self, *pages):
        async def main():
            async with asyncio.timeout(NOTHING_WAITS):
                return await asyncio.gather(*pages, return_exceptions=True)

        return asyncio.run(main())


def test_pages_made_in_parallel_are_not_read_for_margins():
    margins = Margins()
    first, _, third = margins.run(margins.make(1), margins.make(2), margins.make(3))
    assert margins.read_alone == []
    assert [line.text for distance in (1, 2) for line in first[distance]] == ["Header"] * 2
    assert sorted(third) == [-2, -1]


@pytest.mark.parametrize("how", [{"fails": True}, {"text": ""}])
def test_margins_of_a_page_that_was_not_made_are_read_once(how):
    margins = Margins()
    first, _, third = margins.run(margins.make(1), margins.make(2, **how), margins.make(3))
    assert margins.read_alone == [2]
    assert first[1] == third[-1] == []


def test_margins_of_pages_that_nobody_makes_are_read():
    margins = Margins()
    margins.run(margins.make(2))
    assert sorted(margins.read_alone) == [1, 3]


async def test_few_margins_are_kept_and_each_is_read_once(monkeypatch):
    monkeypatch.setattr(rendering, "_MOST_MARGINS", 8)
    read: list[int] = []

    async def margins(source, kind, number):
        read.append(number)
        return []

    cache = EdgeCache(margins)
    for number in range(1, 41):
        found = await cache.around("a.pdf", "pdf", number, 40, PageContent(1, 1, ()))
        assert set(found) == {step for step in (-2, -1, 1, 2) if 1 <= number + step <= 40}
    assert len(cache._known) <= 8
    assert sorted(read) == list(range(2, 41))
