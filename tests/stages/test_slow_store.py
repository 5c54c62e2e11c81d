"""A store that takes long costs time, not memory: pages of whole units wait in the spool until it is their turn."""

import asyncio

from llm_ocr.stages import Silent
from llm_ocr.stages.extract import UNITS_AT_ONCE, Extract
from llm_ocr.stages.flow import Admission
from llm_ocr.types import Attempt, DocumentPart, EncodedImage, Page, Status, Unit, page_id

UNITS = 5 * UNITS_AT_ONCE


class Reader:
    """Finds nothing on any page."""

    name = "none"

    async def read(self, page, on_dispatched):
        return Attempt("none", "model", Status.OK)


class Renderer:
    """Blank pages."""

    async def page(self, part, number):
        image = EncodedImage(b"image", "image/png", 1, 1)
        return Page(page_id(part.document_id, number), part.document_id, number, image, None, part.source)


def test_few_units_are_in_memory_while_the_store_is_slow():
    handed: list[str] = []
    most = 0

    async def units():
        for number in range(UNITS):
            part = DocumentPart(f"d{number}", "a.pdf", "a.pdf", "v", (1, 2), 2, 2 * number)
            yield Unit(f"0001-{number:06d}", 1, number, (part,))

    async def main():
        all_read, full = asyncio.Event(), asyncio.Event()
        progress = Silent()
        left = 2 * UNITS

        def count(status):
            nonlocal left
            left -= 1
            if not left:
                all_read.set()

        progress.count = count
        under_way = 0

        async def publish(unit, pages):
            nonlocal under_way, most
            under_way += 1
            most = max(most, under_way)
            if under_way == UNITS_AT_ONCE:
                full.set()
            await full.wait()
            await all_read.wait()
            handed.append(unit.id)
            under_way -= 1

        stage = Extract(Renderer(), Reader(), publish, progress, Admission(4))
        await asyncio.wait_for(stage.run(units()), 30)

    asyncio.run(main())
    assert most == UNITS_AT_ONCE
    assert sorted(handed) == [f"0001-{number:06d}" for number in range(UNITS)]
