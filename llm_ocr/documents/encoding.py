"""Pixels to image files, once; and what is made of image files."""

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING

from llm_ocr.documents.png import png_file
from llm_ocr.types import Box, EncodedImage

if TYPE_CHECKING:
    from PIL import Image

MEDIA_TYPES = {"png": "image/png", "jpeg": "image/jpeg"}
#: Darkest and lightest value of each channel of a page without content differ by less than this (of 255).
BLANK = 24
#: Rows that are looked at together when colour is searched for.
_STRIP = 64
#: Colour is searched for in every so many pixels of every so many rows before it is in all.
_SPARSE = 16


def encoded(image: "Image.Image", image_format: str, quality: int) -> EncodedImage:
    """PNG or JPEG of this quality from an image of mode L, RGB or RGBX; one without colour as grey: same pixels,
    half the time."""
    plain = image if image.mode == "L" or _has_colour(image) else image.getchannel(0)
    if image_format == "png":
        data = png_file(plain)
    else:
        buffer = io.BytesIO()
        plain.save(buffer, "JPEG", quality=quality)
        data = buffer.getvalue()
    return EncodedImage(data, MEDIA_TYPES[image_format], image.width, image.height)


def cropped(image: EncodedImage, boxes: Sequence[Box], image_format: str, quality: int) -> list[EncodedImage]:
    """The parts of a page image under relative boxes, at least one pixel each."""
    page = _decoded(image)
    return [encoded(page.crop(_pixels(box, page.width, page.height)), image_format, quality) for box in boxes]


def resized(image: EncodedImage, scale: float, quality: int) -> EncodedImage:
    """The image with its sides times `scale`, PNG as PNG and all else as JPEG of this quality."""
    from PIL import Image

    page = _decoded(image)
    size = (max(1, round(page.width * scale)), max(1, round(page.height * scale)))
    return encoded(page.resize(size, Image.Resampling.LANCZOS), _format(image), quality)


def turned(image: EncodedImage, degrees: int, quality: int) -> EncodedImage:
    """The image turned clockwise by 90, 180 or 270 degrees, PNG as PNG and all else as JPEG of this quality."""
    from PIL import Image

    ways = {90: Image.Transpose.ROTATE_270, 180: Image.Transpose.ROTATE_180, 270: Image.Transpose.ROTATE_90}
    return encoded(_decoded(image).transpose(ways[degrees]), _format(image), quality)


def blank(image: EncodedImage) -> bool:
    """Whether nothing stands out: paper of any colour is blank."""
    page = _decoded(image)
    return all(high - low < BLANK for low, high in map(_extremes, page.split()))


def _format(image: EncodedImage) -> str:
    return "png" if image.media_type == "image/png" else "jpeg"


def _decoded(image: EncodedImage) -> "Image.Image":
    """RGB or grey."""
    from PIL import Image

    with Image.open(io.BytesIO(image.data)) as opened:
        page = opened if opened.mode in ("RGB", "L") else opened.convert("RGB")
        page.load()
        return page


def _has_colour(image: "Image.Image") -> bool:
    """Whether red, green and blue differ in any pixel; most pages with colour show it in few."""
    from PIL import Image

    few = (-(-image.width // _SPARSE), -(-image.height // _SPARSE))
    return _differs(image.resize(few, Image.Resampling.NEAREST)) or any(
        _differs(image.crop((0, top, image.width, min(top + _STRIP, image.height))))
        for top in range(0, image.height, _STRIP)
    )


def _differs(image: "Image.Image") -> bool:
    red = image.getchannel(0).tobytes()
    return red != image.getchannel(1).tobytes() or red != image.getchannel(2).tobytes()


def _extremes(channel: "Image.Image") -> tuple[int, int]:
    values = channel.histogram()
    seen = [value for value, count in enumerate(values) if count]
    return seen[0], seen[-1]


def _pixels(box: Box, width: int, height: int) -> tuple[int, int, int, int]:
    box = box.clipped()
    left, top = min(int(box.x0 * width), width - 1), min(int(box.y0 * height), height - 1)
    return (
        left,
        top,
        max(left + 1, min(width, round(box.x1 * width))),
        max(top + 1, min(height, round(box.y1 * height))),
    )
