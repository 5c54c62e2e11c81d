"""The embedded engine's layout as a detector: where the things of a page stand, in reading order."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from llm_ocr.documents.rendering import Renderer, RenderOptions
from llm_ocr.engines import EngineOptions, noop
from llm_ocr.engines.regions.detection import DEFAULT_TASKS, Layout
from llm_ocr.types import Attempt, Block, BlockKind, Box, EncodedImage, Page, Status
from llm_ocr_cpu.detector import EmbeddedDetector, regions_of
from llm_ocr_cpu.reader import EmbeddedReader
from tests.engines.regions.region_parts import PAGE, RegionWorkbench


class PaperTools:
    """Reads the text layer of a page's document in the renderer's processes."""

    def __init__(self, renderer: Renderer) -> None:
        self._renderer = renderer

    async def content(self, page: Page) -> Page:
        return await self._renderer.content(page.source, "", page.number, page)


def detected(document: Any, number: int) -> Layout:
    async def go() -> Layout:
        async with Renderer(RenderOptions(text_layer=False, workers=1)) as renderer:
            reader = EmbeddedReader(EngineOptions(workers=1))
            detector = EmbeddedDetector(reader, PaperTools(renderer), workers=1)
            try:
                page = await renderer.page(str(document), "", number, page_id="d-p00001", document_id="d")
                return await detector.detect(page)
            finally:
                await detector.close()

    return asyncio.run(go())


@pytest.fixture(scope="module")
def paper(examples) -> list[Layout]:
    return [detected(examples / "paper.pdf", number) for number in (1, 2)]


def test_titles_texts_tables_and_figures_of_a_paper_are_found(paper):
    labels = {region.label for layout in paper for region in layout.regions}
    assert {"doc_title", "paragraph_title", "text", "table", "figure_title"} <= labels
    assert labels & {"image", "chart"}
    assert labels <= set(DEFAULT_TASKS)


def test_regions_lie_on_the_page_and_have_an_order(paper):
    for layout in paper:
        assert [region.order for region in layout.regions] == list(range(len(layout.regions)))
        for region in layout.regions:
            box = region.box
            assert 0 <= box.x0 < box.x1 <= 1 and 0 <= box.y0 < box.y1 <= 1
        assert layout.regions[0].box.y0 <= min(region.box.y0 for region in layout.regions) + 0.1


def block(kind: BlockKind, *sides: float, **more: Any) -> Block:
    return Block(kind, Box(*sides), "text", **more)


def test_a_list_is_one_region_a_column():
    items = [block(BlockKind.LIST_ITEM, 0.1, 0.2 + i / 10, 0.4, 0.25 + i / 10) for i in range(3)]
    over = block(BlockKind.LIST_ITEM, 0.6, 0.1, 0.9, 0.2)
    found = list(regions_of([*items, over, block(BlockKind.TEXT, 0.6, 0.5, 0.9, 0.6)]))
    assert [region.label for region in found] == ["text", "text", "text"]
    assert found[0].box.y1 == pytest.approx(0.453)
    assert found[1].box.x0 == pytest.approx(0.594)


def test_where_a_text_goes_on_is_a_region_of_its_own():
    found = list(regions_of([block(BlockKind.TEXT, 0.1, 0.5, 0.4, 0.9, continued=(Box(0.6, 0.1, 0.9, 0.3),))]))
    assert [(region.order, round(region.box.x0, 3)) for region in found] == [(0, 0.094), (1, 0.594)]


def test_every_kind_of_block_has_a_label():
    found = list(regions_of(block(kind, 0.1, 0.1, 0.2, 0.2) for kind in BlockKind))
    assert {region.label for region in found} <= set(DEFAULT_TASKS)
    assert [region.label for region in regions_of([block(BlockKind.FIGURE, 0, 0, 1, 1, label="chart")])] == ["chart"]


class TurningReader:
    """A `PageReader` that turns the page."""

    name = "embedded"
    closed = 0

    def identity(self) -> Mapping[str, Any]:
        return {"engine": "embedded"}

    async def read(self, page: Page, on_dispatched: Callable[[], None] = noop) -> Attempt:
        assert page.content is not None
        upright = EncodedImage(b"upright", "image/png", 2, 1)
        return Attempt("embedded", "ocr", Status.OK, rotation=90, image=upright)

    async def close(self) -> None:
        self.closed += 1


def test_a_page_that_lay_on_its_side_comes_back_upright():
    reader = TurningReader()
    detector = EmbeddedDetector(reader, RegionWorkbench(), workers=1)
    layout = asyncio.run(detector.detect(PAGE))
    assert (layout.rotation, layout.image and layout.image.data) == (90, b"upright")
    assert detector.identity()["reader"] == {"engine": "embedded"}
    asyncio.run(detector.close())
    assert reader.closed == 1
