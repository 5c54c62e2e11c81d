"""Answers are rated in the renderer's processes, with the same result as in the stage's own."""

import asyncio
from dataclasses import fields, replace

import pytest

from llm_ocr.config.models import ExtractSettings
from llm_ocr.documents.page_wire import from_wire, to_wire
from llm_ocr.documents.rendering import Renderer, RenderOptions
from llm_ocr.errors import PageFailure
from llm_ocr.results.quality.scoring import Limits, rated
from llm_ocr.results.quality.worker import MODULE, rating_from_wire, rating_to_wire
from llm_ocr.stages.rendering import PartRenderer, Remote
from llm_ocr.types import Attempt, Block, BlockKind, Box, Evidence, InkMap, OcrLine, OcrText, Reason, Status

#: The upper half of a page's text, a sentence that is not there, and a chart.
INVENTED = Block(BlockKind.TEXT, Box(0.1, 0.6, 0.9, 0.7), "The committee owes 4,711 crowns to nobody at all.")
CHART = Block(BlockKind.FIGURE, Box(0.1, 0.8, 0.9, 0.9), inside="1 2", caption="Figure 1", described="A chart.")


@pytest.mark.parametrize("document", ["paper.pdf", "invoice.png"])
def test_rating_is_the_same_in_another_process(examples, document):
    async def main() -> None:
        async with Renderer(RenderOptions(module=MODULE, workers=1)) as renderer:
            page = await renderer.page(str(examples / document), "", 1, page_id="d-p00001", document_id="d")
            assert page.evidence is not None
            half = [Block(BlockKind.TEXT, box, text) for text, box in page.evidence.lines if box.y1 < 0.5]
            attempt = Attempt("olmocr-2", "model", Status.OK, (*half, INVENTED, CHART), raw="raw", tokens_out=7)
            faulty = replace(attempt, status=Status.DEGRADED, reason=Reason.LOOP, detail="it looped", rotation=90)
            kept = replace(page, content=replace(page.content, with_invisible=True)) if page.content else page
            for one, of, limits in (
                (page, attempt, Limits()),
                (page, faulty, Limits()),
                (kept, attempt, Limits(0.5, 0.9)),
            ):
                reply = await renderer.rate(rating_to_wire(one, of, limits, transcribed=True))
                assert rating_from_wire(of, reply) == rated(one, of, limits, transcribed=True)

    asyncio.run(main())


def test_answer_is_rated_here_if_the_process_fails(examples):
    class Crashing(Renderer):
        async def rate(self, payload):
            raise PageFailure(Reason.RENDER_CRASHED, "killed")

    async def main() -> None:
        async with Crashing(RenderOptions(module=MODULE, workers=1)) as renderer:
            page = await renderer.page(str(examples / "paper.pdf"), "", 1, page_id="d-p00001", document_id="d")
            attempt = Attempt("olmocr-2", "model", Status.OK, (INVENTED,))
            tools = PartRenderer(renderer, Remote(ExtractSettings(workspace="-")))
            assert await tools.rated(page, attempt, Limits()) == rated(page, attempt, Limits())

    asyncio.run(main())


def test_all_evidence_reaches_the_other_process():
    ink = InkMap(8, 2, b"\1\2", True)
    ocr = OcrText((OcrLine("A line", Box(0.1, 0.2, 0.3, 0.4), 0.9, (0.9, 0.95)),), frozenset({"LATIN"}))
    evidence = Evidence(ink, (("A line", Box(0.1, 0.2, 0.3, 0.4)),), 0.25, 0.125, 3, ocr)
    assert all(getattr(evidence, one.name) != one.default for one in fields(Evidence))
    assert from_wire(Evidence, to_wire(evidence)) == evidence
