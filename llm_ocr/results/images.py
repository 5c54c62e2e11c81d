"""Images for display: data URLs of limited size, and pages with their blocks drawn in."""

import base64
import io
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from llm_ocr.errors import PageFailure
from llm_ocr.types import Block, BlockKind, Box, EncodedImage, Reason

if TYPE_CHECKING:
    from PIL import Image


# Images of rows as data URLs of limited size: pages must not fill a notebook with hundreds of megabytes.


#: Size in bytes up to which images are shown unchanged; larger images are scaled down and encoded again.
AS_THEY_ARE = 300_000
_JPEG_QUALITY = 85
_MAGIC = {b"\x89PNG": "image/png", b"\xff\xd8\xff": "image/jpeg", b"RIFF": "image/webp"}


def data_url(picture: object, longest_side: int) -> str | None:
    """Return the data URL of a row's image, scaled to `longest_side` pixels unless the file is small.

    Accepts images of `datasets` (a PIL image, or `{bytes, path}` undecoded) and `EncodedImage`; None for other values.
    """
    data = image_bytes(picture)
    if data is not None and len(data) <= AS_THEY_ARE and (media_type := _media_type(data)):
        return _url(data, media_type)
    decoded = _decoded(picture, data)
    if decoded is None:
        return None
    decoded = decoded.copy()
    decoded.thumbnail((longest_side, longest_side))
    out = io.BytesIO()
    if "A" in decoded.getbands() or decoded.mode in ("P", "1"):
        decoded.save(out, "PNG")
        return _url(out.getvalue(), "image/png")
    decoded.convert("RGB").save(out, "JPEG", quality=_JPEG_QUALITY)
    return _url(out.getvalue(), "image/jpeg")


def image_bytes(picture: object) -> bytes | None:
    """Return the encoded bytes if the row has any."""
    if isinstance(picture, EncodedImage):
        return picture.data or None
    data = picture.get("bytes") if isinstance(picture, Mapping) else None
    return data if isinstance(data, bytes) and data else None


def encoded_image(picture: object) -> EncodedImage | None:
    """Return the image as `EncodedImage`; a decoded image is encoded as PNG."""
    if isinstance(picture, EncodedImage):
        return picture if picture.data else None
    data = image_bytes(picture)
    decoded = _decoded(picture, data)
    if decoded is None:
        return None
    if data is None:
        out = io.BytesIO()
        decoded.save(out, "PNG", compress_level=1)
        data = out.getvalue()
    return EncodedImage(data, _media_type(data), decoded.width, decoded.height)


def _decoded(picture: object, data: bytes | None) -> "Image.Image | None":
    from PIL import Image

    if isinstance(picture, Image.Image):
        return picture
    if data is None:
        return None
    try:
        return Image.open(io.BytesIO(data))
    except (OSError, Image.DecompressionBombError):
        return None


def _media_type(data: bytes) -> str:
    return next((kind for magic, kind in _MAGIC.items() if data.startswith(magic)), "")


def _url(data: bytes, media_type: str) -> str:
    return f"data:{media_type};base64,{base64.b64encode(data).decode('ascii')}"


_COLORS: dict[BlockKind, tuple[int, int, int]] = {
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
#: Longest side of the picture in pixels: sufficient to read the text and the labels.
LONGEST_SIDE = 1600


def boxes_image(image: EncodedImage, blocks: Sequence[Block], *, media_type: str = "image/jpeg") -> EncodedImage:
    """Return the page's picture with each block's box, numbered in reading order; PNG, or JPEG with quality 85.

    Raises:
        PageFailure: the page image cannot be decoded, or exceeds Pillow's pixel limit (unreadable).
    """
    from PIL import Image, ImageDraw, ImageFont

    try:
        opened = Image.open(io.BytesIO(image.data))
        opened.draft("RGB", (LONGEST_SIDE, LONGEST_SIDE))
        opened.thumbnail((LONGEST_SIDE, LONGEST_SIDE))
        opened.load()
        page = opened if opened.mode == "RGB" else opened.convert("RGB")
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise PageFailure(Reason.UNREADABLE, f"page image cannot be decoded: {error}") from error
    draw = ImageDraw.Draw(page, "RGBA")  # blends translucent colors into an RGB image
    font = ImageFont.load_default(_LABEL)
    for number, block in enumerate(blocks, 1):
        color = _COLORS[block.kind]
        boxes = []  # ordered corners inside the picture, for any box from an engine
        for box in (block.box, *block.continued):
            sides = (side if math.isfinite(side) else 0.0 for side in (box.x0, box.y0, box.x1, box.y1))
            safe = Box(*sides).clipped().scaled(page.width - 1, page.height - 1)
            boxes.append((round(safe.x0), round(safe.y0), round(safe.x1), round(safe.y1)))
        for corners in boxes:
            draw.rectangle(corners, fill=(*color, _TINT), outline=(*color, 255), width=_EDGE)
        # The label is above the box, or inside it at the top of the page.
        text = f"{number} {block.kind.value.replace('_', ' ')}"
        _, _, right, bottom = draw.textbbox((0, 0), text, font=font)
        width, height = right + 2 * _LABEL_SPACE, bottom + _LABEL_SPACE
        x, top = boxes[0][:2]
        y = top - height if top >= height else top
        draw.rectangle((x, y, x + width, y + height), fill=(*color, 210))
        draw.text((x + _LABEL_SPACE, y), text, fill=(255, 255, 255, 255), font=font)
    out = io.BytesIO()
    if media_type == "image/png":
        page.save(out, "PNG", compress_level=1)
    else:
        page.save(out, "JPEG", quality=_JPEG_QUALITY)
    return EncodedImage(out.getvalue(), media_type, page.width, page.height)
