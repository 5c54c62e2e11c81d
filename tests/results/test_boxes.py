"""The picture of the page with its boxes: there, bounded in size, and never a reason to fail on odd boxes."""

import io

import pytest
from made import picture
from PIL import Image

from llm_ocr.errors import PageFailure
from llm_ocr.results.images import LONGEST_SIDE, boxes_image
from llm_ocr.types import Block, BlockKind, Box, EncodedImage, Reason


def decoded(image: EncodedImage) -> Image.Image:
    shown = Image.open(io.BytesIO(image.data))
    assert shown.size == (image.width, image.height)
    assert Image.MIME[shown.format] == image.media_type
    return shown.convert("RGB")


@pytest.mark.parametrize("media_type", ["image/jpeg", "image/png"])
@pytest.mark.parametrize("source", ["image/jpeg", "image/png", "image/webp"])
def test_the_box_is_drawn_where_the_block_is(media_type, source):
    page = picture(600, 800, source, "white")
    shown = decoded(boxes_image(page, [Block(BlockKind.FIGURE, Box(0.25, 0.5, 0.75, 0.9))], media_type=media_type))
    assert shown.size == (600, 800)
    red, green, blue = shown.getpixel((150, 500))
    assert green > red + 40 and green > blue + 20
    assert min(shown.getpixel((20, 700))) > 240
    inside = shown.getpixel((300, 560))
    assert 200 < min(inside) < 255


def test_every_kind_has_a_colour_and_odd_boxes_do_no_harm():
    odd = [
        Box(-1, -1, 2, 2),
        Box(0.9, 0.9, 0.1, 0.1),
        Box(0.5, 0.5, 0.5, 0.5),
        Box(float("nan"), 0, float("inf"), 1),
        Box(3, 3, 4, 4),
    ]
    blocks = [Block(kind, box) for kind in BlockKind for box in odd]
    decoded(boxes_image(picture(300, 400), blocks))
    decoded(boxes_image(picture(1, 1), blocks))


def test_large_pages_are_scaled_down():
    shown = boxes_image(picture(6000, 300), [])
    assert (shown.width, shown.height) == (LONGEST_SIDE, 80)


def test_transparent_and_grey_pages_work():
    for mode in ("L", "LA", "RGBA", "P", "1", "CMYK", "I;16"):
        out = io.BytesIO()
        Image.new(mode, (60, 80)).save(out, "TIFF" if mode in ("CMYK",) else "PNG")
        decoded(
            boxes_image(EncodedImage(out.getvalue(), "image/png", 60, 80), [Block(BlockKind.TEXT, Box(0, 0, 1, 1))])
        )


def test_what_is_no_image_says_so():
    with pytest.raises(PageFailure, match="cannot be decoded") as caught:
        boxes_image(EncodedImage(b"no image", "image/png", 1, 1), [])
    assert caught.value.reason is Reason.UNREADABLE
    with pytest.raises(PageFailure, match="cannot be decoded"):
        boxes_image(EncodedImage(picture(300, 300).data[:120], "image/png", 300, 300), [])
