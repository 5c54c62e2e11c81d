"""What pages for a model server need beside their pixels: smaller ones, turned ones, and text layers later."""

import pytest
from making import pages, text, written
from PIL import Image
from test_rendering import HELLO, outcome, rendered, with_renderer

from llm_ocr.errors import PageFailure
from llm_ocr.types import EncodedImage, Reason


def test_the_text_layer_can_be_read_later_and_is_the_same(tmp_path):
    made = [text("A Study of Headers", y=770) + text(f"Body {name}", y=400) for name in ("one", "two", "three")]
    source = written(tmp_path / "a.pdf", pages(*made))

    async def steps(renderer):
        page = await outcome(renderer, source, 2)
        return page, await renderer.content(source, "pdf", 2, page)

    plain, later = with_renderer(steps, text_layer=False)
    (whole,) = rendered(source, 2)
    assert plain.content is None
    assert [line.recurs for line in later.content.lines] == [True, False]
    assert later == whole


def test_reading_the_text_layer_of_what_has_none_changes_nothing(tmp_path):
    Image.new("RGB", (90, 90), "white").save(tmp_path / "a.png")
    source = written(tmp_path / "a.pdf", HELLO)

    async def steps(renderer):
        page = await outcome(renderer, str(tmp_path / "a.png"))
        with pytest.raises(PageFailure) as beyond:
            await renderer.content(source, "", 2, page)
        return page, await renderer.content(str(tmp_path / "a.png"), "", 1, page), beyond.value.reason

    before, after, reason = with_renderer(steps)
    assert (after, reason) == (before, Reason.NO_SUCH_PAGE)


def test_an_image_is_resized_turned_and_looked_at_in_a_worker(tmp_path):
    source = written(tmp_path / "a.pdf", pages(text("Hello"), b""))

    async def steps(renderer):
        page, empty = [await outcome(renderer, source, number) for number in (1, 2)]
        small = await renderer.resized(page.image, 0.5)
        assert (small.width, small.height, small.media_type) == (386, 500, "image/png")
        side = await renderer.turned(page.image, 90)
        assert (side.width, side.height, side.media_type) == (page.image.height, page.image.width, "image/png")
        return [await renderer.blank(image) for image in (page.image, small, empty.image)]

    assert with_renderer(steps, image_size=1000) == [False, False, True]


def test_what_is_no_image_cannot_be_resized_or_looked_at():
    async def steps(renderer):
        broken = EncodedImage(b"\x89PNG nothing", "image/png", 10, 10)
        for asked in (renderer.resized(broken, 0.5), renderer.blank(broken)):
            with pytest.raises(PageFailure):
                await asked

    with_renderer(steps)
