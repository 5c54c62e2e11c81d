"""Margins of pages are kept for the neighbours, and only for them."""

import asyncio

from llm_ocr.documents import rendering
from llm_ocr.documents.rendering import EdgeCache
from llm_ocr.types import PageContent

PAGES = 10 * rendering._PAGES


def test_of_a_long_document_only_the_last_pages_margins_are_kept_and_each_is_read_once():
    read: list[int] = []

    async def margins(source, kind, number):
        read.append(number)
        return []

    async def in_order():
        cache = EdgeCache(margins)
        for number in range(1, PAGES + 1):
            found = await cache.around("a.pdf", "pdf", number, PAGES, PageContent(1, 1, ()))
            assert set(found) == {step for step in (-2, -1, 1, 2) if 1 <= number + step <= PAGES}
        return len(cache._documents["a.pdf"])

    kept = asyncio.run(in_order())
    assert kept <= rendering._PAGES + 4
    assert sorted(read) == list(range(2, PAGES + 1))
