"""Images of rows as data URLs, bounded in size: pages must not make a notebook of hundreds of megabytes."""

import base64
import io
from collections.abc import Mapping
from typing import TYPE_CHECKING

from llm_ocr.types import EncodedImage

if TYPE_CHECKING:
    from PIL import Image

#: Images up to this many bytes are shown as they are, larger ones scaled down and encoded again.
AS_THEY_ARE = 300_000
_JPEG_QUALITY = 85
_MAGIC = {b"\x89PNG": "image/png", b"\xff\xd8\xff": "image/jpeg", b"RIFF": "image/webp"}


def data_url(picture: object, longest_side: int) -> str | None:
    """A data URL of an image as rows hold it, at most `longest_side` pixels unless it is small in bytes.

    Takes what `datasets` gives (a PIL image, or `{bytes, path}` undecoded) and `EncodedImage`; None for anything else.
    """
    data = image_bytes(picture)
    if data is not None and len(data) <= AS_THEY_ARE and (media_type := _media_type(data)):
        return _url(data, media_type)
    decoded = _decoded(picture, data)
    return _scaled(decoded, longest_side) if decoded is not None else None


def image_bytes(picture: object) -> bytes | None:
    """The encoded bytes, if the row holds any."""
    if isinstance(picture, EncodedImage):
        return picture.data or None
    data = picture.get("bytes") if isinstance(picture, Mapping) else None
    return data if isinstance(data, bytes) and data else None


def encoded_image(picture: object) -> EncodedImage | None:
    """The image in the form that the library works with, encoded as PNG if it came decoded."""
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


def _scaled(picture: "Image.Image", longest_side: int) -> str:
    picture = picture.copy()
    picture.thumbnail((longest_side, longest_side))
    out = io.BytesIO()
    if "A" in picture.getbands() or picture.mode in ("P", "1"):
        picture.save(out, "PNG")
        return _url(out.getvalue(), "image/png")
    picture.convert("RGB").save(out, "JPEG", quality=_JPEG_QUALITY)
    return _url(out.getvalue(), "image/jpeg")


def _media_type(data: bytes) -> str:
    return next((kind for magic, kind in _MAGIC.items() if data.startswith(magic)), "")


def _url(data: bytes, media_type: str) -> str:
    return f"data:{media_type};base64,{base64.b64encode(data).decode('ascii')}"
