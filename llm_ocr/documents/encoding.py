"""Pixels to image files, once."""

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING

from llm_ocr.types import Box, EncodedImage

if TYPE_CHECKING:
    from PIL import Image

MEDIA_TYPES = {"png": "image/png", "jpeg": "image/jpeg"}


def encoded(image: "Image.Image", image_format: str, quality: int) -> EncodedImage:
    """PNG level 1 (level 6 costs twice the time and is no smaller on pages) or JPEG of this quality, RGB or grey."""
    buffer = io.BytesIO()
    if image_format == "png":
        image.save(buffer, "PNG", compress_level=1)
    else:
        image.save(buffer, "JPEG", quality=quality)
    return EncodedImage(buffer.getvalue(), MEDIA_TYPES[image_format], image.width, image.height)


def cropped(image: EncodedImage, boxes: Sequence[Box], image_format: str, quality: int) -> list[EncodedImage]:
    """The parts of a page image under relative boxes, at least one pixel each."""
    from PIL import Image

    with Image.open(io.BytesIO(image.data)) as opened:
        page = opened if opened.mode in ("RGB", "L") else opened.convert("RGB")
        page.load()
        return [encoded(page.crop(_pixels(box, page.width, page.height)), image_format, quality) for box in boxes]


def _pixels(box: Box, width: int, height: int) -> tuple[int, int, int, int]:
    box = box.clipped()
    left, top = min(int(box.x0 * width), width - 1), min(int(box.y0 * height), height - 1)
    return (
        left,
        top,
        max(left + 1, min(width, round(box.x1 * width))),
        max(top + 1, min(height, round(box.y1 * height))),
    )
