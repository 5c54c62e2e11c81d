"""Figures of real pages for models that give no boxes: the example documents, read by a scripted model."""

import asyncio
from pathlib import Path

import pytest
from scripted_model import ScriptedEngine, stop

from llm_ocr.documents.rendering import Renderer, RenderOptions
from llm_ocr.engines import EngineOptions
from llm_ocr.engines.vlm.reader import ModelReader
from llm_ocr.engines.vlm.requests import ReadOptions
from llm_ocr.models.registry import find_profile
from llm_ocr.types import Attempt, Block, BlockKind, Box, Page
from llm_ocr_cpu.ocr import available
from llm_ocr_cpu.reader import EmbeddedReader

HEAD = (
    "---\nprimary_language: en\nis_rotation_valid: True\nrotation_correction: 0\n"
    "is_table: False\nis_diagram: False\n---\n"
)
#: How the second page of the paper begins and ends, as a model without boxes writes it.
PAPER = (
    "Figure 2: Levels at the three gauges from October to March of the winter of 1979/80.\n\n"
    "Two simpler rules serve as a yardstick.\n\n"
)
#: Where the figures of the examples are.
WIDE_CHART, NARROW_CHART = Box(0.09, 0.07, 0.91, 0.28), Box(0.52, 0.72, 0.91, 0.88)
MEADOWS = Box(0.22, 0.43, 0.78, 0.7)


class RealTools:
    """`ImageTools` over the renderer's processes."""

    def __init__(self, renderer: Renderer) -> None:
        self.resized = renderer.resized
        self.turned = renderer.turned
        self._renderer = renderer

    async def content(self, page: Page) -> Page:
        return await self._renderer.content(page.source, "", page.number, page)


async def _read(source: Path, number: int, answer: str, model: str, text_layer: bool) -> Attempt:
    options = RenderOptions(image_size=1288, text_layer=text_layer, workers=1)
    inspector = EmbeddedReader(EngineOptions(workers=1))
    async with Renderer(options) as renderer:
        page = await renderer.page(str(source), "", number, page_id="d-p00001", document_id="d")
        engine = ScriptedEngine(stop(answer))
        reader = ModelReader(engine, find_profile(model), RealTools(renderer), ReadOptions(), None, inspector)
        try:
            return await reader.read(page)
        finally:
            await reader.close()


def read(source: Path, number: int, answer: str, model: str = "glm-ocr", *, text_layer: bool = True) -> Attempt:
    """The page by a model that gives this answer."""
    return asyncio.run(_read(source, number, answer, model, text_layer))


def charts(attempt: Attempt) -> list[Block]:
    """Those of the paper's second page, which are checked against where they are drawn."""
    found = [block for block in attempt.blocks if block.kind is BlockKind.FIGURE]
    assert [block.label for block in found] == ["chart", "chart"]
    return found


def order(attempt: Attempt) -> list[str]:
    return ["[figure]" if b.kind is BlockKind.FIGURE else b.text.partition(" ")[0] for b in attempt.blocks]


@pytest.mark.slow
@pytest.mark.parametrize("text_layer", [True, False])
def test_a_digital_page_gives_its_charts_between_the_paragraphs(examples, text_layer):
    attempt = read(examples / "paper.pdf", 2, PAPER, text_layer=text_layer)
    first, second = charts(attempt)
    assert first.box.iou(WIDE_CHART) > 0.9 and second.box.iou(NARROW_CHART) > 0.9
    assert order(attempt) == ["[figure]", "Figure", "Two", "[figure]"]
    assert first.caption.startswith("Figure 2: Levels")


def test_olmocr_figures_get_real_boxes_and_keep_their_words(examples):
    words = ["A chart of three levels.", "A chart of ten days."]
    first, second = (f"![{said}](page_5000_100_300_200.png)" for said in words)
    attempt = read(examples / "paper.pdf", 2, f"{HEAD}{first}\n\n{PAPER}{second}", "olmocr-2")
    assert charts(attempt)[0].box.iou(WIDE_CHART) > 0.9
    assert [block.described for block in charts(attempt)] == words
    assert order(attempt) == ["[figure]", "Figure", "Two", "[figure]"]
    assert attempt.notes["primary_language"] == "en"


def test_page_turned_by_the_model_has_its_figures_turned_too(examples):
    answer = HEAD.replace("True", "False").replace("correction: 0", "correction: 180") + PAPER
    attempt = read(examples / "paper.pdf", 2, answer, "olmocr-2")
    assert attempt.rotation == 180
    assert charts(attempt)[0].box.iou(WIDE_CHART.turned(180)) > 0.9


@pytest.mark.slow
@pytest.mark.skipif(not available(), reason="needs OCR")
def test_a_picture_on_a_scan_is_found_by_its_pixels(examples):
    answer = "The meadows above the quay\n\nFigure A: The meadows above the quay in the second week of January."
    attempt = read(examples / "scan.pdf", 2, answer)
    (figure,) = [block for block in attempt.blocks if block.kind is BlockKind.FIGURE]
    assert figure.box.iou(MEADOWS) > 0.85
    assert order(attempt) == ["The", "[figure]", "Figure"]
