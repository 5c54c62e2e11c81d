"""Tall pages are read in slices, and have one result."""

import asyncio
import io
from dataclasses import replace

import pytest
from PIL import Image, ImageDraw, ImageFont
from scripted_model import Fallback, ScriptedEngine, Tools, by_layer, reader, stop, text_of

from llm_ocr.documents.rendering import Renderer, RenderOptions
from llm_ocr.engines import noop
from llm_ocr.engines.slices import read_page
from llm_ocr.errors import PageFailure
from llm_ocr.types import BlockKind, Box, Line, PageContent, Reason, Status

LINES = 120
#: Lines of the text that are missing, so that a slice is blank.
GAP = range(55, 95)


def screenshot(tmp_path, *, gap=range(0)):
    image = Image.new("L", (600, 40 * LINES), 255)
    draw, font = ImageDraw.Draw(image), ImageFont.load_default(size=20)
    for number in range(LINES):
        if number not in gap:
            draw.text((40, 40 * number + 8), f"Item {number}: parcel to dock {number % 7}", fill=0, font=font)
    image.save(tmp_path / "tall.png")
    return str(tmp_path / "tall.png")


def read(source, *answers, mode="text", **options):
    engine = ScriptedEngine(*answers)

    async def main():
        async with Renderer(RenderOptions(image_size=1280, workers=1)) as renderer:
            page = await renderer.page(source, "", 1, page_id="d-p00001", document_id="d")
            return page, await read_page(reader(engine, Tools(), mode=mode, **options), page, renderer)

    return engine, *asyncio.run(main())


def test_tall_page_is_read_at_full_size_in_slices(tmp_path):
    engine, page, attempt = read(screenshot(tmp_path), *map(stop, ("one", "two", "three", "four")))
    assert (page.image.width, page.image.height) == (600, 40 * LINES)
    sizes = [(one.image.width, one.image.height) for one in engine.requests]
    assert {width for width, _ in sizes} == {600}
    assert max(height for _, height in sizes) <= 1280
    assert sum(height for _, height in sizes) == 40 * LINES
    assert (attempt.status, text_of(attempt), attempt.tokens_out) == (Status.OK, "one\ntwo\nthree\nfour", 200)


def test_slices_end_between_lines_of_text(tmp_path):
    engine, _, _ = read(screenshot(tmp_path), stop())
    for request in engine.requests:
        pixels = Image.open(io.BytesIO(request.image.data)).convert("L")
        assert pixels.crop((0, 0, 600, 1)).getextrema() == (255, 255)


def test_boxes_of_slices_are_places_on_the_page(tmp_path):
    _, _, attempt = read(screenshot(tmp_path), stop("first\nfig:image"), mode="marked")
    figures = [block.box.y0 for block in attempt.blocks if block.kind is BlockKind.FIGURE]
    assert figures == sorted(figures)
    assert figures[0] < 0.01
    assert figures[-1] > 0.7


def test_blank_slice_costs_no_request(tmp_path):
    engine, _, attempt = read(screenshot(tmp_path, gap=GAP), stop("words"))
    assert (len(engine.requests), attempt.status) == (3, Status.OK)


def test_tall_page_without_glyphs_is_read_from_whole_text_layer(tmp_path):
    async def main(undrawn, engine, fallback):
        async with Renderer(RenderOptions(image_size=1280, workers=1)) as renderer:
            page = await renderer.page(screenshot(tmp_path), "", 1, page_id="d-p00001", document_id="d")
            page = replace(page, evidence=replace(page.evidence, undrawn=undrawn))
            return await read_page(reader(engine, Tools(), fallback), page, renderer)

    engine, fallback = ScriptedEngine(stop()), Fallback(by_layer("請求書"))
    attempt = asyncio.run(main(0.6, engine, fallback))
    assert (attempt.status, attempt.reason, text_of(attempt)) == (Status.DEGRADED, Reason.NOT_DRAWN, "請求書")
    assert (engine.requests, [page.id for page in fallback.pages]) == ([], ["d-p00001"])
    assert asyncio.run(main(0.01, engine, fallback)).status is Status.OK
    assert len(engine.requests) == 4


async def test_counts_of_a_text_layer_are_those_of_the_page_in_sum(tmp_path):
    class Recorder(Fallback):
        name = "recorder"

    lines = tuple(Line(f"Item {number}", Box(40, top, 300, top + 20), 12) for number, top in enumerate((100, 4700)))
    content = PageContent(600, 4800, lines, unmapped=4, unread=7, invisible=5)
    recorder = Recorder(by_layer())
    async with Renderer(RenderOptions(image_size=1280, workers=1)) as renderer:
        page = await renderer.page(screenshot(tmp_path), "", 1, page_id="d-p00001", document_id="d")
        await read_page(recorder, replace(page, content=content), renderer)
    counts = [(page.content.unmapped, page.content.unread, page.content.invisible) for page in recorder.pages]
    assert counts == [(2, 7, 5), (0, 0, 0), (0, 0, 0), (2, 0, 0)]


def test_unreadable_slice_makes_the_page_degraded(tmp_path):
    answers = (stop("one"), stop(""), stop("three"), stop("four"))
    _, _, attempt = read(screenshot(tmp_path), *answers, max_attempts=1)
    assert (attempt.status, attempt.reason) == (Status.DEGRADED, Reason.EMPTY)
    assert text_of(attempt) == "one\nthree\nfour"
    assert attempt.detail.startswith("slice 2 of 4: ")


def test_page_fails_if_no_slice_is_readable(tmp_path):
    with pytest.raises(PageFailure, match="empty answer"):
        read(screenshot(tmp_path), stop(""), max_attempts=1)


async def read_turned(tmp_path, turn, *, whole):
    """Read a tall page whose slices are read with this turn, and whose whole is read as given."""

    class Turned(Fallback):
        async def read(self, page, on_dispatched=noop):
            self.pages.append(page)
            if not page.id.endswith("p00001"):
                return replace(by_layer(page.id), rotation=turn)
            if isinstance(whole, PageFailure):
                raise whole
            return replace(whole, rotation=turn)

    recorder = Turned(by_layer())
    async with Renderer(RenderOptions(image_size=1280, workers=1)) as renderer:
        page = await renderer.page(screenshot(tmp_path), "", 1, page_id="d-p00001", document_id="d")
        return recorder, await read_page(recorder, page, renderer)


async def test_tall_page_upside_down_is_read_from_its_last_slice(tmp_path):
    _, attempt = await read_turned(tmp_path, 180, whole=by_layer())
    assert text_of(attempt).split() == [f"d-p00001-s{number:02}" for number in (4, 3, 2, 1)]
    assert [round(block.box.y1, 2) for block in attempt.blocks] == [1.0, 0.75, 0.5, 0.25]


@pytest.mark.parametrize("turn", [90, 270])
async def test_wide_page_on_its_side_is_read_as_a_whole(tmp_path, turn):
    recorder, attempt = await read_turned(tmp_path, turn, whole=by_layer("whole lines" * 4))
    assert (attempt.status, attempt.rotation, text_of(attempt)) == (Status.OK, turn, "whole lines" * 4)
    assert recorder.pages[-1].image.height == 1280
    assert attempt.seconds == 5.0  # of four slices and the whole page


@pytest.mark.parametrize(
    "whole", [by_layer(""), by_layer("whole lines", Status.DEGRADED), PageFailure(Reason.ENGINE_TIMEOUT, "too slow")]
)
async def test_cut_lines_of_a_page_on_its_side_are_degraded(tmp_path, whole):
    _, attempt = await read_turned(tmp_path, 90, whole=whole)
    assert (attempt.status, attempt.reason) == (Status.DEGRADED, Reason.LOW_QUALITY)
    assert "turned by 90 degrees" in attempt.detail
    assert len(attempt.blocks) == 4
