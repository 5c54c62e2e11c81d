"""Image files as documents: PNG, JPEG, WebP, and every frame of a TIFF."""

import io
import struct
import warnings
from typing import TYPE_CHECKING

from llm_ocr.documents.encoding import encoded
from llm_ocr.documents.given_file import GivenFile
from llm_ocr.documents.ink import ink_of
from llm_ocr.errors import PageFailure
from llm_ocr.types import EncodedImage, Ink, Reason

if TYPE_CHECKING:
    from PIL import Image

#: Pixels of one image that are decoded; more is refused before anything is decoded. 200 megapixels are A2 at 600 dpi.
MAX_PIXELS = 200_000_000
#: A side of a page image, in pixels, below which nothing can be read.
MIN_SIDE = 8
_ORIENTATION = 0x0112  # the EXIF tag
#: What transparency is put on, in grey values: white, and others where that would hide something.
_WHITE, _PAPERS = 255, (0, 128)
#: The longest side, in pixels, at which papers are compared; and by how much neighboring pixels differ at an edge.
_LOOKED_AT, _CLEAR = 1500, 40
#: What Pillow's readers raise for damaged files, as fuzzing found: they compute with what stands there.
_DAMAGED = (
    *(OSError, SyntaxError, ValueError, EOFError, TypeError, LookupError),
    *(ArithmeticError, AttributeError, AssertionError, RuntimeError, struct.error),
)


class ImageFile:
    """An opened image file. Raises PageFailure `unreadable` when it is none."""

    def __init__(self, file: GivenFile) -> None:
        from PIL import Image, UnidentifiedImageError
        from PIL.TiffImagePlugin import TiffImageFile

        Image.MAX_IMAGE_PIXELS = MAX_PIXELS
        self._buffered = io.BufferedReader(file)  # closes the file when nobody holds it
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        try:
            self._image = Image.open(self._buffered, formats=("PNG", "JPEG", "WEBP", "TIFF"))  # a JPEG may be an MPO
            # Frames of a TIFF are pages, those of an animation are not.
            self.pages = self._image.n_frames if isinstance(self._image, TiffImageFile) else 1
        except (Image.DecompressionBombWarning, Image.DecompressionBombError) as error:
            raise PageFailure(Reason.RENDER_LIMIT, f"more than {MAX_PIXELS // 1_000_000} million pixels") from error
        except UnidentifiedImageError as error:
            raise PageFailure(Reason.UNREADABLE, "not an image that can be read (PNG, JPEG, WebP, TIFF)") from error
        except _DAMAGED as error:
            raise PageFailure(Reason.UNREADABLE, f"cannot be opened as an image: {error}") from error
        self._file = file

    def page(self, number: int, *, size: int, image_format: str, quality: int) -> tuple[EncodedImage, Ink]:
        """Page `number`, upright by EXIF, at most `size` pixels on its longest side; never enlarged. And its ink."""
        from PIL import Image

        if not 1 <= number <= self.pages:
            raise PageFailure(Reason.NO_SUCH_PAGE, f"page {number} of {self.pages}")
        try:
            return self._page(number, size, image_format, quality)
        except (Image.DecompressionBombWarning, Image.DecompressionBombError) as error:
            raise PageFailure(Reason.RENDER_LIMIT, f"more than {MAX_PIXELS // 1_000_000} million pixels") from error
        except _DAMAGED as error:
            raise PageFailure(Reason.UNREADABLE, f"image data cannot be decoded: {error}") from error

    def _page(self, number: int, size: int, image_format: str, quality: int) -> tuple[EncodedImage, Ink]:
        image = self._image
        if self.pages > 1:
            image.seek(number - 1)
        _check(image.width, image.height, size)
        if self._needs_no_change(image, size):
            image.load()  # proves that it can be decoded
            return EncodedImage(self._file.whole(), "image/jpeg", image.width, image.height), ink_of(image)
        if image.format in ("JPEG", "MPO"):
            image.draft(image.mode, (size, size))  # decodes at a half, quarter or eighth where that is enough
        shown = _prepared(image, size)
        return encoded(shown, image_format, quality), ink_of(shown)

    def _needs_no_change(self, image: "Image.Image", size: int) -> bool:
        if image.format != "JPEG" or image.mode not in ("RGB", "L") or max(image.size) > size:
            return False
        return bool(image.getexif().get(_ORIENTATION, 1) == 1)

    def close(self) -> None:
        """Close the file."""
        self._image.close()
        self._file.close()


def _check(width: int, height: int, size: int) -> None:
    if width * height > MAX_PIXELS:
        raise PageFailure(Reason.RENDER_LIMIT, f"{width} x {height} pixels")
    shrink = min(1.0, size / max(width, height))
    if min(width, height) * shrink < MIN_SIDE:
        raise PageFailure(Reason.RENDER_LIMIT, f"{width} x {height} pixels is too narrow to be read")


def _prepared(image: "Image.Image", size: int) -> "Image.Image":
    """RGB or grey, upright, within `size`."""
    from PIL import Image, ImageOps

    image.load()
    plain = _plain(ImageOps.exif_transpose(image) if image.getexif().get(_ORIENTATION, 1) != 1 else image)
    if max(plain.size) > size:
        if plain is image:
            plain = image.copy()
        plain.thumbnail((size, size), Image.Resampling.LANCZOS, reducing_gap=2.0)
    return plain


def _plain(image: "Image.Image") -> "Image.Image":
    """8 bits a channel, RGB or grey, transparency on white, or on black or grey where white would hide something."""

    if image.mode in ("RGB", "L"):
        if "transparency" not in image.info:
            return image
        image = image.convert("RGBA")
    if image.mode == "1":
        return image.convert("L")
    if image.mode.startswith(("I", "F")):
        return _eight_bits(image)
    if image.mode in ("RGBA", "LA", "PA", "La", "RGBa") or (image.mode == "P" and "transparency" in image.info):
        return _on_paper(image.convert("RGBA"))
    return image.convert("RGB")


def _on_paper(layer: "Image.Image") -> "Image.Image":
    """White, unless black or grey shows a quarter more: white letters on a transparent ground are light on light."""
    if layer.getchannel("A").getextrema()[0] == _WHITE:  # opaque
        return layer.convert("RGB")
    small = layer.reduce(max(1, round(max(layer.size) / _LOOKED_AT)))
    best, most = _WHITE, _edges(_composed(small, _WHITE))
    for paper in _PAPERS:
        shown = _edges(_composed(small, paper))
        if shown > 1.25 * most:
            best, most = paper, shown
    return _composed(layer, best)


def _composed(layer: "Image.Image", paper: int) -> "Image.Image":
    from PIL import Image

    return Image.alpha_composite(Image.new("RGBA", layer.size, (paper, paper, paper, 255)), layer).convert("RGB")


def _edges(image: "Image.Image") -> int:
    """How many pixels differ clearly from the one to the right of them."""
    from PIL import ImageChops

    grey = image.convert("L")
    return sum(ImageChops.difference(grey, ImageChops.offset(grey, 1, 0)).histogram()[_CLEAR:])


def _eight_bits(image: "Image.Image") -> "Image.Image":
    """16-bit grey by its high byte; wider or floating values spread between their extremes."""
    import numpy as np
    from PIL import Image

    values = np.asarray(image).astype(np.float64)
    if image.mode.startswith("I;16") or (image.mode == "I" and 255 < values.max() <= 65535 and values.min() >= 0):
        values = values / 257
    elif values.max() > 255 or values.min() < 0 or image.mode == "F":
        spread = float(values.max() - values.min()) or 1.0
        values = (values - values.min()) * (255 / spread)
    return Image.fromarray(np.clip(np.round(values), 0, 255).astype(np.uint8))
