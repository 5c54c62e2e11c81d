"""OCR beside a model: when pages wait for it, and what happens if it fails."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from llm_ocr.documents.rendering import Renderer, RenderOptions
from llm_ocr.engines import EngineOptions
from llm_ocr.plugins import ENGINES
from llm_ocr.stages.readers import Verifier
from llm_ocr.types import Box

OWN_WORKERS = True  # one test kills an OCR process


def verifying(examples: Path, use, *, timeout: float = 300.0, **options):
    """Run `use(verifier, page)` with a page of the scan and the real CPU engine."""

    async def run():
        async with Renderer(RenderOptions(workers=1, image_size=900)) as renderer:
            page = await renderer.page(str(examples / "scan.pdf"), "", 3, page_id="p", document_id="d")
            reader = ENGINES.get("embedded").page_reader(EngineOptions(workers=1, timeout=timeout, background=True))
            verifier = Verifier(reader, renderer, **options)
            try:
                return await use(verifier, page)
            finally:
                await verifier.close()

    return asyncio.run(run())


@pytest.mark.slow
def test_requests_wait_for_ocr_only_at_the_bound(examples):
    async def use(verifier, page):
        await asyncio.wait_for(verifier.wait_for_room(), 0.1)
        verifier.begin(page)
        full = verifier.waiting
        room = asyncio.create_task(verifier.wait_for_room())
        await asyncio.sleep(0)
        waited = not room.done()
        text = (await verifier.verified(page))[0].evidence.ocr
        await room
        return waited, full == len(page.image.data), verifier.waiting, len(text.lines) > 20

    assert verifying(examples, use, most_waiting=1) == (True, True, 0, True)
    assert verifying(examples, use, most_waiting=1 << 30)[0] is False


@pytest.mark.slow
def test_a_killed_ocr_process_is_replaced(examples):
    async def use(verifier, page):
        verifier.begin(page)
        pool = verifier._reader._pool
        async with asyncio.timeout(60):
            while not pool._all:  # noqa: ASYNC110  # the pool has no event for it
                await asyncio.sleep(0.01)
        next(iter(pool._all)).process.kill()
        found, why_not = await verifier.verified(page)
        return why_not, found.evidence.ocr is not None

    assert verifying(examples, use) == ("", True)


def test_a_page_that_failed_frees_its_place(examples):
    async def use(verifier, page):
        verifier.begin(page)
        verifier.forget(page)
        await asyncio.wait_for(verifier.wait_for_room(), 60)
        return verifier.waiting, await verifier.verified(page) == (page, "")

    assert verifying(examples, use, most_waiting=1) == (0, True)


def test_pages_with_a_true_layer_are_not_read_by_ocr(examples):
    async def use(verifier, page):
        layer = tuple(
            ("The deputy keeps the second key of the rain gauge.", Box(0.1, top / 50, 0.9, top / 50 + 0.01))
            for top in range(5, 45)
        )
        verifier.begin(replace(page, evidence=replace(page.evidence, lines=layer, pictured=0.0)))
        return verifier.waiting

    assert verifying(examples, use) == 0
