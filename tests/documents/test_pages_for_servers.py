"""Pages on their way to workers and servers: encoded without loss, small enough, and as they were."""

import io
from dataclasses import replace

import numpy as np
import pytest
from pdf_writing import pages, text, written
from PIL import Image, ImageDraw
from test_rendering import HELLO, outcome, rendered, started, with_renderer

from llm_ocr.documents.images import changed, encoded
from llm_ocr.documents.page_wire import from_wire, page_to_wire
from llm_ocr.errors import PageFailure
from llm_ocr.types import Box, EncodedImage, Line, Page, PageContent, Path, Raster, Reason, Word


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


async def test_reading_the_text_layer_of_what_has_none_changes_nothing(tmp_path):
    Image.new("RGB", (90, 90), "white").save(tmp_path / "a.png")
    source = written(tmp_path / "a.pdf", HELLO)

    async with started() as renderer:
        before = await outcome(renderer, str(tmp_path / "a.png"))
        with pytest.raises(PageFailure) as beyond:
            await renderer.content(source, "", 2, before)
        assert await renderer.content(str(tmp_path / "a.png"), "", 1, before) == before
    assert beyond.value.reason is Reason.NO_SUCH_PAGE


async def test_an_image_is_resized_turned_and_looked_at_in_a_worker(tmp_path):
    source = written(tmp_path / "a.pdf", pages(text("Hello"), b""))

    async with started(image_size=1000) as renderer:
        page, empty = [await outcome(renderer, source, number) for number in (1, 2)]
        small = await renderer.resized(page.image, 0.5)
        assert (small.width, small.height, small.media_type) == (386, 500, "image/png")
        side = await renderer.turned(page.image, 90)
        assert (side.width, side.height, side.media_type) == (page.image.height, page.image.width, "image/png")
        assert [await renderer.blank(image) for image in (page.image, small, empty.image)] == [False, False, True]


async def test_what_is_no_image_cannot_be_resized_or_looked_at():
    async with started() as renderer:
        broken = EncodedImage(b"\x89PNG nothing", "image/png", 10, 10)
        for asked in (renderer.resized(broken, 0.5), renderer.blank(broken)):
            with pytest.raises(PageFailure):
                await asked


def page(width=300, height=400, colour="black"):
    image = Image.new("RGB", (width, height), "white")
    draw = ImageDraw.Draw(image)
    for y in range(20, height - 20, 15):
        draw.text((10, y), "the quick brown fox jumps over the lazy dog", fill=colour)
    return image


def scan(width=300, height=400):
    """Paper with shade and noise, in colour."""
    shade = np.linspace(180, 230, height)[:, None, None] + np.linspace(0, 9, width)[None, :, None]
    noise = np.random.default_rng(7).integers(0, 4, (1, width, 3))
    return Image.fromarray((shade + noise).astype(np.uint8))


def noise(width=300, height=400):
    return Image.fromarray(np.random.default_rng(3).integers(0, 256, (height, width, 3), dtype=np.uint8))


def decoded(image: EncodedImage) -> Image.Image:
    opened = Image.open(io.BytesIO(image.data))
    opened.load()
    assert (opened.size, opened.get_format_mimetype()) == ((image.width, image.height), image.media_type)
    return opened


def same(one: Image.Image, other: Image.Image) -> bool:
    return one.convert("RGB").tobytes() == other.convert("RGB").tobytes()


@pytest.mark.parametrize("make", [page, scan, noise])
@pytest.mark.parametrize("mode", ["RGB", "RGBX", "L"])
@pytest.mark.parametrize("size", [(1, 1), (3, 700), (257, 64), (300, 129), (131, 65)])
def test_a_png_has_the_pixels_of_its_page(make, mode, size):
    image = make(*size).convert(mode)
    assert same(decoded(encoded(image, "png", 90)), image)


def test_scans_and_text_are_about_as_small_as_pillow_makes_them():
    for image in (page(600, 800, "navy"), scan(600, 800)):
        theirs = io.BytesIO()
        image.save(theirs, "PNG", compress_level=1)
        assert len(encoded(image, "png", 90).data) < 1.2 * len(theirs.getvalue())


@pytest.mark.parametrize("mode", ["RGB", "RGBX"])
@pytest.mark.parametrize("image_format", ["png", "jpeg"])
def test_colorless_page_is_stored_as_gray_and_looks_the_same(image_format, mode):
    image = page()
    stored = decoded(encoded(image.convert(mode), image_format, 90))
    in_colour = io.BytesIO()
    image.save(in_colour, image_format, quality=90)
    assert stored.mode == "L"
    assert same(stored, Image.open(in_colour))


@pytest.mark.parametrize("place", [(0, 0), (7, 3), (299, 0), (150, 200), (0, 399), (299, 399)])
@pytest.mark.parametrize("channel", [0, 1, 2])
def test_one_pixel_of_colour_keeps_the_page_in_colour(place, channel):
    image = page()
    values = [128, 128, 128]
    values[channel] = 129
    image.putpixel(place, tuple(values))
    stored = decoded(encoded(image, "png", 90))
    assert stored.getpixel(place) == tuple(values)


@pytest.mark.parametrize("image_format", ["png", "jpeg"])
@pytest.mark.parametrize("colour", ["black", "red"])
def test_resized_image_keeps_format_and_look_of_original(image_format, colour):
    image = encoded(page(colour=colour), image_format, 90)
    small = changed(image, 0.5, 0, 90)
    assert (small.width, small.height, small.media_type) == (150, 200, image.media_type)
    assert decoded(small).mode == decoded(image).mode
    assert np.asarray(decoded(small)).mean() == pytest.approx(np.asarray(decoded(image)).mean(), abs=2)


@pytest.mark.parametrize("image_format", ["png", "jpeg"])
@pytest.mark.parametrize("degrees", [90, 180, 270])
def test_a_page_is_turned_clockwise_and_so_are_boxes_on_it(image_format, degrees):
    mark = Image.new("RGB", (60, 40), "white")
    mark.paste("red", (0, 0, 15, 10))  # top left
    upright = changed(encoded(mark, image_format, 95), 1.0, degrees, 95)
    assert (upright.width, upright.height) == ((40, 60) if degrees % 180 else (60, 40))
    seen = decoded(upright).convert("RGB")
    box = Box(0, 0, 0.25, 0.25).turned(degrees)
    x, y = box.centre
    red, green, _ = seen.getpixel((int(x * seen.width), int(y * seen.height)))
    assert red > 200 and green < 80
    assert box.turned(-degrees) == Box(0, 0, 0.25, 0.25)


def test_an_image_is_never_resized_to_nothing():
    assert changed(encoded(page(3, 200), "png", 90), 0.01, 0, 90).width == 1


WORDS = (Word("two", Box(1, 2, 3, 4)), Word("words", Box(4, 2, 9, 4)))


LINES = (
    Line("two words", Box(1, 2, 9, 4), 2.0, WORDS, bold=True, mono=True),
    Line("文字", Box(1, 5, 2, 6), 1.25, (), italic=True, stacked=True, recurs=True, confidence=0.5),
    Line("not as the words", Box(1, 2, 9, 4), 2.0, WORDS),
)


CONTENT = PageContent(
    612.5, 792, LINES, (Raster(Box(0, 0, 1, 1)),), (Path(Box(0, 0, 5, 0), (1, 2, 3), None, 2),), unmapped=3
)


PAGE = Page("d-p00001", "d", 1, EncodedImage(b"\x89PNG", "image/png", 10, 20), CONTENT, "/a/b.pdf")


@pytest.mark.parametrize("page", [PAGE, replace(PAGE, content=None), replace(PAGE, content=PageContent(1, 1))])
def test_a_page_comes_back_as_it_was(page):
    assert from_wire(Page, page_to_wire(page)) == page
