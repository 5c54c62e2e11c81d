"""Decode image files and encode page images."""

import io
import os
import struct
import warnings
import zlib
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from llm_ocr.documents.files import FdFile
from llm_ocr.documents.ink import ink_of, reduction_of
from llm_ocr.errors import PageFailure
from llm_ocr.types import Box, EncodedImage, InkMap, Reason

if TYPE_CHECKING:
    from PIL import Image
    from PIL.TiffImagePlugin import TiffImageFile


_SIGNATURE = b"\x89PNG\r\n\x1a\n"
#: Color types of PNG, 8 bits per channel.
_GREY, _RGB = 0, 2
#: Filters of PNG: none is best for rendered text, and the difference to the row above for scans (a quarter smaller).
_NONE, _UP = 0, 2
#: Deflate's level: 6 takes twice the time and hardly reduces the size.
_LEVEL = 1
#: Rows per compression call: they fit into the processor's cache and avoid a second copy of the page.
_STRIP = 64
#: Rows of each of the three samples that decide the filter.
_SAMPLE = 16


def png_file(image: "Image.Image") -> bytes:
    """Return an image of mode L, RGB, or RGBX (last channel dropped) as a PNG file with 8 bits per channel.

    This takes half of Pillow's time: one filter for the whole page instead of five tried on every row.
    """
    height, kind = image.height, _NONE
    if height >= 8 * _SAMPLE:  # the filter that compresses three samples of the page better
        samples = [(top, top + _SAMPLE) for top in (height // 4, height // 2, 3 * height // 4)]
        kind = min((_NONE, _UP), key=lambda candidate: len(_packed(image, candidate, samples)))
    about = struct.pack(">IIBBBBB", image.width, height, 8, _GREY if image.mode == "L" else _RGB, 0, 0, 0)
    pixels = _packed(image, kind, [(0, height)])
    parts = [_SIGNATURE]
    for name, data in ((b"IHDR", about), (b"IDAT", pixels), (b"IEND", b"")):
        parts += struct.pack(">I", len(data)), name, data, struct.pack(">I", zlib.crc32(data, zlib.crc32(name)))
    return b"".join(parts)


def _packed(image: "Image.Image", kind: int, spans: Sequence[tuple[int, int]]) -> bytes:
    """Return the rows of these spans (first, after the last), filtered and deflated."""
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, zlib.MAX_WBITS, 9)
    parts: list[bytes] = []
    for first, end in spans:
        for top in range(first, end, _STRIP):
            rows = _rows(image, kind, top, min(end, top + _STRIP))
            parts += packer.compress(bytes((kind,))), packer.compress(memoryview(rows)[:-1])
    return b"".join((*parts, packer.flush()))


def _rows(image: "Image.Image", kind: int, top: int, bottom: int) -> bytes | bytearray:
    """Return filtered rows, each followed by the filter number of the next row."""
    from PIL import ImageChops

    strip = image.crop((0, top, image.width, bottom))
    if kind == _UP:  # above the first row `crop` returns zeros, as PNG requires
        strip = ImageChops.subtract_modulo(strip, image.crop((0, top - 1, image.width, bottom - 1)))
    mode = "L" if image.mode == "L" else "RGB"
    size = image.width * len(mode) + 1
    rows = strip.tobytes("raw", mode, size, 1)  # rows are padded with zeros to this size
    if kind == _NONE:
        return rows
    numbered = bytearray(rows)
    numbered[size - 1 :: size] = bytes((kind,)) * (bottom - top)
    return numbered


MEDIA_TYPES = {"png": "image/png", "jpeg": "image/jpeg"}
#: Interval of pixels and rows in the first search for color, before all pixels are checked.
_SPARSE = 16


def encoded(image: "Image.Image", image_format: str, quality: int) -> EncodedImage:
    """Return a PNG, or a JPEG of this quality, from an image of mode L, RGB, or RGBX; see `grayscale_if_equal`."""
    plain = grayscale_if_equal(image)
    if image_format == "png":
        data = png_file(plain)
    else:
        buffer = io.BytesIO()
        plain.save(buffer, "JPEG", quality=quality)
        data = buffer.getvalue()
    return EncodedImage(data, MEDIA_TYPES[image_format], image.width, image.height)


def grayscale_if_equal(image: "Image.Image") -> "Image.Image":
    """Return an image without color in mode L, which has the same pixels and is processed in half the time."""
    from PIL import Image

    if image.mode == "L":
        return image
    # Most color pages have only few pixels in color: all are compared only if a sample of them is gray.
    few = (-(-image.width // _SPARSE), -(-image.height // _SPARSE))
    strips = (
        image.crop((0, top, image.width, min(top + _STRIP, image.height))) for top in range(0, image.height, _STRIP)
    )
    if _differs(image.resize(few, Image.Resampling.NEAREST)) or any(map(_differs, strips)):
        return image
    return image.getchannel(0)


def cropped(image: EncodedImage, boxes: Sequence[Box], quality: int) -> list[EncodedImage]:
    """Return the parts of a page image under relative boxes, at least one pixel each.

    PNG remains PNG, others become JPEG of this quality.
    """
    image_format = "png" if image.media_type == "image/png" else "jpeg"
    page = _decoded(image)
    width, height = page.size
    parts = []
    for box in (relative.clipped() for relative in boxes):
        left, top = min(int(box.x0 * width), width - 1), min(int(box.y0 * height), height - 1)
        right = max(left + 1, min(width, round(box.x1 * width)))
        bottom = max(top + 1, min(height, round(box.y1 * height)))
        parts.append(encoded(page.crop((left, top, right, bottom)), image_format, quality))
    return parts


def changed(image: EncodedImage, scale: float, degrees: int, quality: int) -> EncodedImage:
    """Return the image with its sides multiplied by `scale`, and turned clockwise by 0, 90, 180, or 270 degrees.

    PNG remains PNG, others become JPEG of this quality.
    """
    from PIL import Image

    page = _decoded(image)
    if scale != 1.0:
        size = (max(1, round(page.width * scale)), max(1, round(page.height * scale)))
        page = page.resize(size, Image.Resampling.LANCZOS)
    if degrees:
        ways = {90: Image.Transpose.ROTATE_270, 180: Image.Transpose.ROTATE_180, 270: Image.Transpose.ROTATE_90}
        page = page.transpose(ways[degrees])
    return encoded(page, "png" if image.media_type == "image/png" else "jpeg", quality)


def blank(image: EncodedImage) -> bool:
    """Return whether the image has no ink; see `ink_of`."""
    return ink_of(_decoded(image)).blank


def _decoded(image: EncodedImage) -> "Image.Image":
    """Return the image in RGB or grayscale."""
    from PIL import Image

    with Image.open(io.BytesIO(image.data)) as opened:
        page = opened if opened.mode in ("RGB", "L") else opened.convert("RGB")
        page.load()
        return page


def _differs(image: "Image.Image") -> bool:
    red = image.getchannel(0).tobytes()
    return red != image.getchannel(1).tobytes() or red != image.getchannel(2).tobytes()


#: Formats of Pillow, and the features that optional ones need.
_FORMATS = ("PNG", "JPEG", "WEBP", "TIFF", "GIF", "BMP", "JPEG2000", "AVIF")
_OPTIONAL = {"JPEG2000": "jpg_2000", "AVIF": "avif"}
#: Formats whose frames are an animation. Those of a TIFF are pages, and those of a JPEG (MPO) are previews.
_ANIMATED = ("GIF", "PNG", "WEBP", "AVIF")
#: Tags of a TIFF's frames, and their values for smaller copies of another frame and for masks.
_SUBFILE, _REDUCED, _MASK = 254, 1, 4
_OLD_SUBFILE, _OLD_REDUCED = 255, 2
#: Tag of the meaning of a TIFF's gray values, and the value for 0 as white.
_PHOTOMETRIC, _WHITE_IS_0 = 262, 0
#: Frames from which a TIFF whose frames are each half as large is one page in several sizes.
_LEVELS = 3
#: Limit of an image's pixels, checked before decoding. 200 megapixels are A2 at 600 dpi.
MAX_PIXELS = 200_000_000
#: Range of the horizontal resolution of faxes divided by the vertical one: 204 x 98 and 204 x 196 pixels per inch.
_OBLONG = (1.2, 4.5)
#: Minimum side of a page image in pixels; smaller images are unreadable.
MIN_SIDE = 8
#: Height divided by width above which a page is tall and read in slices, and this ratio of an ordinary page.
_TALL, _ORDINARY = 2.5, 1.414
_MOST_SLICES = 24
_ORIENTATION = 0x0112  # the EXIF tag
_ON_SIDE = (5, 6, 7, 8)  # its values for images that are turned by a quarter
_PNG_BITS = 24  # place of the byte with a PNG's bits per channel
#: Bits per pixel of scanners and cameras whose gray is stored in 16 bits.
_DEPTHS = (8, 10, 12, 14, 16)
#: Range of gray of 255 that cannot be seen, and the share of the range by which neighboring pixels of noise differ.
_UNSEEN, _GRAIN = 12, 0.08
#: Gray values of the paper behind transparency: white, and others if white would hide content.
_WHITE, _PAPERS = 255, (0, 128)
#: Longest side in pixels for the comparison of papers, and the minimum difference of neighboring pixels at an edge.
_LOOKED_AT, _CLEAR = 1500, 40
#: Errors of Pillow's readers for damaged files, found by fuzzing: they calculate with unchecked values.
_DAMAGED = (
    *(OSError, SyntaxError, ValueError, EOFError, TypeError, LookupError),
    *(ArithmeticError, AttributeError, AssertionError, RuntimeError, struct.error),
)


def longest_side(width: float, height: float, size: int) -> int:
    """Return the limit of a page's longest side in pixels: `size`, and more for a tall page.

    A tall page has the width of an ordinary page of that size, and is read in slices of that height.
    """
    if height <= _TALL * width:
        return size
    return min(max(size, round(size / _ORDINARY * height / width)), _MOST_SLICES * size)


class ImageFile:
    """Opened image file. Raises `PageFailure` `unreadable` for other content."""

    def __init__(self, file: FdFile) -> None:
        from PIL import Image, UnidentifiedImageError
        from PIL.TiffImagePlugin import TiffImageFile

        Image.MAX_IMAGE_PIXELS = MAX_PIXELS
        self._buffered = io.BufferedReader(file)  # closes the file when unreferenced
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        try:
            self._image = self._opened()
            # Frames of a TIFF are pages; frames of an animation are not.
            self._frames = _tiff_pages(self._image) if isinstance(self._image, TiffImageFile) else [0]
        except (Image.DecompressionBombWarning, Image.DecompressionBombError) as error:
            raise PageFailure(Reason.RENDER_LIMIT, f"more than {MAX_PIXELS // 1_000_000} million pixels") from error
        except UnidentifiedImageError as error:
            raise PageFailure(Reason.UNREADABLE, f"not a readable image ({', '.join(_FORMATS)})") from error
        except _DAMAGED as error:
            raise PageFailure(Reason.UNREADABLE, f"cannot be opened as an image: {error}") from error
        self.pages = len(self._frames)
        self._file = file

    @property
    def placeholder(self) -> str:
        """Return what the page does not show; "" for an image without further frames."""
        try:
            is_animated = self._image.format in _ANIMATED and getattr(self._image, "is_animated", False)
        except _DAMAGED:  # data after the first frame, which alone is read
            return ""
        return "the image is animated, and only its first frame was read" if is_animated else ""

    def _opened(self) -> "Image.Image":
        from PIL import Image, features

        formats = [name for name in _FORMATS if name not in _OPTIONAL or features.check(_OPTIONAL[name])]
        return Image.open(self._buffered, formats=formats)  # a JPEG may be an MPO

    def page(self, number: int, *, size: int, image_format: str, quality: int) -> tuple[EncodedImage, InkMap, str]:
        """Return page `number`, its ink, and its damage: "" for an image that can be decoded to its end.

        The page is upright by EXIF, with at most `size` pixels on its longest side; it is never enlarged.
        """
        from PIL import Image
        from PIL import ImageFile as Decoding

        if not 1 <= number <= self.pages:
            raise PageFailure(Reason.NO_SUCH_PAGE, f"page {number} of {self.pages}")
        try:
            try:
                return *self._page(number, size, image_format, quality), ""
            except _DAMAGED as error:
                self._buffered.seek(0)
                self._image = self._opened()
                Decoding.LOAD_TRUNCATED_IMAGES = True
                image, ink = self._page(number, size, image_format, quality, damaged=True)
                if ink.blank:  # nothing was decoded
                    raise
                return image, ink, f"the image is damaged: {error}"
        except (Image.DecompressionBombWarning, Image.DecompressionBombError) as error:
            raise PageFailure(Reason.RENDER_LIMIT, f"more than {MAX_PIXELS // 1_000_000} million pixels") from error
        except _DAMAGED as error:
            raise PageFailure(Reason.UNREADABLE, f"image data cannot be decoded: {error}") from error
        finally:
            Decoding.LOAD_TRUNCATED_IMAGES = False

    def _page(
        self, number: int, size: int, image_format: str, quality: int, *, damaged: bool = False
    ) -> tuple[EncodedImage, InkMap]:
        from PIL import Image, ImageOps

        image = self.frame(number)
        width, height = image.size
        if image.getexif().get(_ORIENTATION, 1) in _ON_SIDE:
            width, height = height, width
        size = longest_side(width, height, size)
        if image.width * image.height > MAX_PIXELS:
            raise PageFailure(Reason.RENDER_LIMIT, f"{image.width} x {image.height} pixels")
        if min(image.size) * min(1.0, size / max(image.size)) < MIN_SIDE:
            raise PageFailure(Reason.RENDER_LIMIT, f"{image.width} x {image.height} pixels is too narrow to read")
        if not damaged and self._needs_no_change(image, size, image_format):
            media_type = MEDIA_TYPES["png" if image.format == "PNG" else "jpeg"]
            whole = EncodedImage(self._file.whole(), media_type, image.width, image.height)
            if image.format == "PNG":
                image.load()  # done already for its EXIF, which may follow the pixels
                return whole, ink_of(image)
            return whole, ink_of(_sketch(whole.data))
        if image.format in ("JPEG", "MPO"):
            image.draft(image.mode, (size, size))  # decodes at 1/2, 1/4, or 1/8 if that is large enough
        image.load()
        inverted = is_negative(image)
        image = _with_square_pixels(image)
        plain = plain_image(ImageOps.exif_transpose(image) if image.getexif().get(_ORIENTATION, 1) != 1 else image)
        if inverted:
            plain = ImageOps.invert(plain)
        if max(plain.size) > size:
            if plain is image:
                plain = image.copy()
            plain.thumbnail((size, size), Image.Resampling.LANCZOS, reducing_gap=2.0)
        shown = grayscale_if_equal(plain)
        return encoded(shown, image_format, quality), ink_of(shown)

    def _needs_no_change(self, image: "Image.Image", size: int, image_format: str) -> bool:
        """Return whether the bytes of the file can be the page image.

        A PNG must be wanted, and smaller than its pixels. With 16 bits per channel, transparency, or further frames,
        the pixels would depend on the reader.
        """
        from PIL.PngImagePlugin import PngImageFile

        if image.mode not in ("RGB", "L") or max(image.size) > size:
            return False
        if isinstance(image, PngImageFile):
            pixels = image.width * image.height * len(image.mode)
            eight_bits = os.pread(self._file.fileno(), 1, _PNG_BITS) == b"\x08"
            if image_format != "png" or self._file.size > pixels or not eight_bits:
                return False
            if "transparency" in image.info or image.n_frames > 1:
                return False
        elif image.format != "JPEG":
            return False
        return bool(image.getexif().get(_ORIENTATION, 1) == 1)

    def frame(self, number: int) -> "Image.Image":
        """Return page `number` as it is in the file, not decoded. It is valid until the next page is asked for."""
        if self._frames != [0]:
            self._image.seek(self._frames[number - 1])
        return self._image

    def close(self) -> None:
        """Close the file."""
        self._image.close()
        self._file.close()


def _tiff_pages(image: "TiffImageFile") -> list[int]:
    """Return the frames of a TIFF that are pages: no smaller copies of a page, and no masks."""
    frames, sizes = [], []
    for frame in range(image.n_frames):
        image.seek(frame)
        sizes.append(image.size)
        kind, old_kind = image.tag_v2.get(_SUBFILE, 0), image.tag_v2.get(_OLD_SUBFILE, 1)
        if not int(kind) & (_REDUCED | _MASK) and old_kind != _OLD_REDUCED:
            frames.append(frame)
    image.seek(0)
    halves = all(
        abs(2 * small - large) <= 2 for last, size in pairwise(sizes) for large, small in zip(last, size, strict=True)
    )
    return [0] if not frames or (halves and len(sizes) >= _LEVELS) else frames


def _sketch(data: bytes) -> "Image.Image":
    """Return a JPEG for its ink, decoded to its end at the size of the ink, in half of the time."""
    from PIL import Image

    image = Image.open(io.BytesIO(data))
    part = reduction_of(image)
    part &= -part  # it is reduced by powers of two only, and the ink by the rest
    image.draft(image.mode, (image.width // part, image.height // part))
    image.load()
    return image


def _with_square_pixels(image: "Image.Image") -> "Image.Image":
    """Return a fax of half the lines at its full height, or the image if its pixels are square."""
    across, down = map(float, image.info.get("dpi", (1, 1)))
    if image.format != "TIFF" or not (across > 0 and down > 0 and _OBLONG[0] < across / down < _OBLONG[1]):
        return image
    from PIL import Image

    gray = image.convert("L") if image.mode == "1" else image
    resample = Image.Resampling.NEAREST if image.mode == "P" else Image.Resampling.BILINEAR
    return gray.resize((image.width, round(image.height * across / down)), resample)


def is_negative(image: "Image.Image") -> bool:
    """Return whether the image is a TIFF whose zero is white. Pillow inverts 8 bits of gray, and no deeper ones."""
    from PIL.TiffImagePlugin import TiffImageFile

    is_white = isinstance(image, TiffImageFile) and image.tag_v2.get(_PHOTOMETRIC) == _WHITE_IS_0
    return is_white and image.mode.startswith(("I", "F"))


def plain_image(image: "Image.Image") -> "Image.Image":
    """Return 8 bits per channel, RGB or grayscale, on white paper, or on black or gray if white would hide content."""
    if image.mode in ("RGB", "L"):
        if "transparency" not in image.info:
            return image
        image = image.convert("RGBA")
    if image.mode == "1":
        return image.convert("L")
    if image.mode.startswith(("I", "F")):
        return _eight_bits(image)
    if image.mode in ("RGBA", "LA", "PA", "La", "RGBa") or (image.mode == "P" and "transparency" in image.info):
        return _on_paper((image.convert("LA") if image.mode == "La" else image).convert("RGBA"))
    return image.convert("RGB")


def _on_paper(layer: "Image.Image") -> "Image.Image":
    """Choose white paper unless black or gray shows 25 % more edges, as for white letters on a transparent ground."""
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
    """Return the number of pixels that differ clearly from their right neighbor."""
    from PIL import ImageChops

    grey = image.convert("L")
    return sum(ImageChops.difference(grey, ImageChops.offset(grey, 1, 0)).histogram()[_CLEAR:])


def _eight_bits(image: "Image.Image") -> "Image.Image":
    """Convert 10 to 16 bits of gray by the depth in use.

    Stretch wider or floating values between their extremes, and also values in a range too narrow to see, unless they
    are the noise of paper.
    """
    import numpy as np
    from PIL import Image

    values = np.asarray(image).astype(np.float64)
    spread = float(values.max() - values.min()) or 1.0
    if image.mode.startswith("I;16") or (image.mode == "I" and 255 < values.max() <= 65535 and values.min() >= 0):
        depth = next(bits for bits in _DEPTHS if values.max() < 1 << bits)
        noise = float(np.median(np.abs(np.diff(values, axis=1)))) if values.shape[1] > 1 else 0.0
        if spread * 255 < _UNSEEN * (1 << depth) and noise < _GRAIN * spread:
            values = (values - values.min()) * (255 / spread)
        else:
            values = values * (255 / ((1 << depth) - 1))
    elif values.max() > 255 or values.min() < 0 or image.mode == "F":
        values = (values - values.min()) * (255 / spread)
    return Image.fromarray(np.clip(np.round(values), 0, 255).astype(np.uint8))
