"""The page with its blocks drawn in: for people who want to see what was found, and in which order."""

import io
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from llm_ocr.errors import PageFailure
from llm_ocr.types import Block, BlockKind, Box, EncodedImage, Reason

if TYPE_CHECKING:
    from PIL import Image, ImageDraw, ImageFont

    _Font = ImageFont.FreeTypeFont | ImageFont.ImageFont

_Colour = tuple[int, int, int]

_COLOURS: dict[BlockKind, _Colour] = {
    BlockKind.TITLE: (200, 30, 30),
    BlockKind.HEADING: (220, 90, 20),
    BlockKind.TEXT: (40, 90, 200),
    BlockKind.LIST_ITEM: (20, 130, 170),
    BlockKind.TABLE: (120, 50, 180),
    BlockKind.FORMULA: (190, 40, 140),
    BlockKind.CODE: (70, 70, 70),
    BlockKind.FIGURE: (20, 140, 60),
    BlockKind.CAPTION: (120, 140, 20),
    BlockKind.FOOTNOTE: (140, 100, 60),
    BlockKind.HEADER: (150, 150, 150),
    BlockKind.FOOTER: (150, 150, 150),
    BlockKind.PAGE_NUMBER: (150, 150, 150),
}
_TINT = 28  # opacity 0..255 of a box's inside
_EDGE = 2  # pixels
_LABEL = 13  # font size in pixels
_LABEL_SPACE = 3  # pixels around a label
_JPEG_QUALITY = 85
#: The longest side of the picture in pixels: enough to read the text and the labels.
LONGEST_SIDE = 1600


def boxes_image(
    image: EncodedImage, blocks: Sequence[Block], *, media_type: str = "image/jpeg", longest_side: int = LONGEST_SIDE
) -> EncodedImage:
    """The page's picture with each block's box, numbered in reading order; PNG, or JPEG with quality 85.

    Raises `PageFailure` (unreadable) for page images that cannot be decoded, or have more pixels than Pillow takes.
    """
    from PIL import ImageDraw, ImageFont

    page = _open(image, longest_side)
    draw = ImageDraw.Draw(page, "RGBA")  # blends translucent colours into an RGB image
    font = ImageFont.load_default(_LABEL)
    for number, block in enumerate(blocks, 1):
        box = _pixels(block.box, page.size)
        colour = _COLOURS[block.kind]
        draw.rectangle(box, fill=(*colour, _TINT), outline=(*colour, 255), width=_EDGE)
        for more in block.continued:
            draw.rectangle(_pixels(more, page.size), fill=(*colour, _TINT), outline=(*colour, 255), width=_EDGE)
        _label(draw, box, f"{number} {block.kind.value.replace('_', ' ')}", colour, font)
    return _encoded(page, media_type)


def _open(image: EncodedImage, longest_side: int) -> "Image.Image":
    from PIL import Image

    try:
        page = Image.open(io.BytesIO(image.data))
        page.draft("RGB", (longest_side, longest_side))
        page.thumbnail((longest_side, longest_side))
        page.load()
        return page if page.mode == "RGB" else page.convert("RGB")
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise PageFailure(Reason.UNREADABLE, f"page image cannot be decoded: {error}") from error


def _pixels(box: Box, size: tuple[int, int]) -> tuple[int, int, int, int]:
    """Corners inside the picture, in order, whatever the engine answered."""
    sides = (box.x0, box.y0, box.x1, box.y1)
    safe = Box(*(side if math.isfinite(side) else 0.0 for side in sides)).clipped().scaled(size[0] - 1, size[1] - 1)
    return round(safe.x0), round(safe.y0), round(safe.x1), round(safe.y1)


def _label(
    draw: "ImageDraw.ImageDraw", box: tuple[int, int, int, int], text: str, colour: _Colour, font: "_Font"
) -> None:
    """Above the box, or inside it at the top of the page."""
    _, _, right, bottom = draw.textbbox((0, 0), text, font=font)
    width, height = right + 2 * _LABEL_SPACE, bottom + _LABEL_SPACE
    x, y = box[0], box[1] - height
    if y < 0:
        y = box[1]
    draw.rectangle((x, y, x + width, y + height), fill=(*colour, 210))
    draw.text((x + _LABEL_SPACE, y), text, fill=(255, 255, 255, 255), font=font)


def _encoded(page: "Image.Image", media_type: str) -> EncodedImage:
    out = io.BytesIO()
    if media_type == "image/png":
        page.save(out, "PNG", compress_level=1)
    else:
        page.save(out, "JPEG", quality=_JPEG_QUALITY)
    return EncodedImage(out.getvalue(), media_type, page.width, page.height)
