"""Find parts of a PDF page that cannot be decoded. pdfium draws nothing in their place and reports no error."""

import binascii
import ctypes
import io
import re
import struct
import zlib
from base64 import a85decode
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pypdfium2
import pypdfium2.raw as pdfium

from llm_ocr.documents.pdf_objects import Frame, Placed
from llm_ocr.types import InkMap

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

#: Share of the page up to which an image is a dot, such as a list marker: a square of 7 mm on A4 has 0.0008.
_DOT = 0.0008
#: Images of a page that are checked, and bytes of a page's decoded content.
_MOST_IMAGES, _MOST_CONTENT = 32, 64 << 20
#: Filters that pdfium knows. The data of those in `_LENGTHS` has a known length; above this number of bytes, it is not
#: measured, because that would take more than 10 ms.
_LENGTHS = frozenset(
    b"/FlateDecode/Fl/LZWDecode/LZW/RunLengthDecode/RL/ASCII85Decode/A85/ASCIIHexDecode/AHx/Crypt".split(b"/")
)
_CODINGS = _LENGTHS | {b"DCTDecode", b"DCT", b"CCITTFaxDecode", b"CCF", b"JBIG2Decode", b"JPXDecode"}
_MOST_PIXEL_DATA = 4 << 20
#: Bytes at the end of a JPEG in which its end marker is searched, because writers pad.
_TAIL = 4096
_JPEG_END = b"\xff\xd9"
#: Marker of a progressive frame, its length for one, three, or four components, and 8 bits per value.
_PROGRESSIVE = re.compile(rb"\xff\xc2\x00[\x0b\x11\x14]\x08")
#: Extrema of a channel where decoders fill in; of four channels, Pillow gives the inverse.
_GRAY = ((128, 128), (127, 127))
#: Least height of an empty area at the bottom of a JPEG without its end, as a share of the image.
_EMPTY = 0.02
#: Mark of a row of Group 3, two of which end whole fax data, and the bytes at the end in which these are searched.
_FAX_ROW, _FAX_TAIL = "000000000001", 64
_FAX_END = _FAX_ROW * 2
#: Fax data that draws black and white stripes: runs of 8 pixels, four times.
_FAX_STRIPES = int("00110011000101" * 4, 2).to_bytes(7, "big")
#: Least share of equal pixels in two decodings of the same image.
_SAME_PICTURE = 0.99
#: Size of a JBIG2 segment that is not known before its data.
_UNKNOWN_SIZE = 0xFFFFFFFF
_CONTENTS = re.compile(rb"/Contents\s*(?:(\d+) 0 R|\[([^\]]*)\])")
#: Both begin with literal text, which is found quickly in large files. The number before an object has up to 9 digits.
_OBJECT, _STREAM = re.compile(rb" 0 obj\s*(?=<<)"), re.compile(rb">>\s*stream\r?\n")
_NUMBER, _DIGITS = re.compile(rb"[\r\n](\d+)\Z"), 12
_FORM = re.compile(rb"/Subtype\s*/Form\b")
_PAIRS = ((rb"\bBT\b", rb"\bET\b"), (rb"(?<![^\s])q(?![^\s])", rb"(?<![^\s])Q(?![^\s])"))


def image_damage(page: pypdfium2.PdfPage, images: Sequence[Placed], frame: Frame, ink: InkMap) -> str:
    """Return what is wrong with an image of the page; "" if all can be decoded.

    Only images without visible ink are decoded again, because a decoded image shows that it can be.
    """
    images = [image for image in images if image.box.area > _DOT * frame.width * frame.height][:_MOST_IMAGES]
    shown = ink.covers([image.box.scaled(1 / frame.width, 1 / frame.height) for image in images])
    for image, is_shown in zip(images, shown, strict=True):
        # The last filter gives the pixels. There may be none.
        count, name = pdfium.FPDFImageObj_GetImageFilterCount(image.handle), ctypes.create_string_buffer(32)
        if count > 0:
            pdfium.FPDFImageObj_GetImageFilter(image.handle, count - 1, name, len(name))
        coding = name.value
        if coding not in _CODINGS or not (is_shown or _has_bitmap(image)):
            return "an image of the page cannot be decoded"
        if _is_cut(page, image, coding):
            return "an image of the page is damaged: its data ends early"
    return ""


def _has_bitmap(image: Placed) -> bool:
    bitmap = pdfium.FPDFImageObj_GetBitmap(image.handle)
    if bitmap:
        pdfium.FPDFBitmap_Destroy(bitmap)
    return bool(bitmap)


def _is_cut(page: pypdfium2.PdfPage, image: Placed, coding: bytes) -> bool:
    """Return whether the data of an image ends before its last rows."""
    if coding in _LENGTHS:
        about = pdfium.FPDF_IMAGEOBJ_METADATA()
        if not pdfium.FPDFImageObj_GetImageMetadata(image.handle, page, about):
            return False
        size = about.height * ((about.width * about.bits_per_pixel + 7) // 8)
        if not 0 < size <= _MOST_PIXEL_DATA:
            return False
        return bool(pdfium.FPDFImageObj_GetImageDataDecoded(image.handle, None, 0) < (1 - _EMPTY) * size)
    size = pdfium.FPDFImageObj_GetImageDataDecoded(image.handle, None, 0)  # without the last filter
    data = (ctypes.c_ubyte * size)()
    pdfium.FPDFImageObj_GetImageDataDecoded(image.handle, data, size)
    if coding in (b"DCTDecode", b"DCT"):
        return cut_jpeg(bytes(data))
    if coding in (b"CCITTFaxDecode", b"CCF"):
        return _is_cut_fax(image, bytes(data))
    if coding == b"JBIG2Decode":
        return _is_cut_jbig2(bytes(data))
    return coding == b"JPXDecode" and _JPEG_END not in bytes(data[-_TAIL:]) and not _has_bitmap(image)


def cut_jpeg(data: bytes) -> bool:
    """Return whether a JPEG lacks its end marker and its last rows, which decoders fill with gray.

    A progressive JPEG without its end marker counts as cut: all of its rows have pixels, but not all of their detail.
    """
    if _JPEG_END in data[-_TAIL:]:
        return False
    if _PROGRESSIVE.search(data):
        return True
    from PIL import Image

    try:
        with Image.open(io.BytesIO(data + _JPEG_END)) as picture:
            picture.draft("L", picture.size)
            rows = max(8, round(_EMPTY * picture.height))
            last = picture.crop((0, picture.height - rows, picture.width, picture.height))
            return all(band.getextrema() in _GRAY for band in last.split())
    except (OSError, SyntaxError, ValueError):
        return True


def _is_cut_fax(image: Placed, data: bytes) -> bool:
    """Return whether a fax image has rows that its data does not reach.

    Rows of Group 3 have a mark each, except in data that does not begin with one, which counts as whole. In rows of
    Group 4 that the data does not reach, additional data draws.
    """
    import numpy as np

    if _FAX_END in f"{int.from_bytes(data[-_FAX_TAIL:], 'big'):b}":
        return False
    bits = f"{int.from_bytes(data, 'big'):0{8 * len(data)}b}"
    width, height = ctypes.c_uint(), ctypes.c_uint()
    if bits.startswith(_FAX_ROW[:-1]) and pdfium.FPDFImageObj_GetImagePixelSize(image.handle, width, height):
        return bits.count(_FAX_ROW) < (1 - _EMPTY) * height.value
    bitmap = pdfium.FPDFImageObj_GetBitmap(image.handle)
    if not bitmap:
        return False
    drawn = pypdfium2.PdfBitmap.from_raw(bitmap).to_numpy()
    tall, wide = drawn.shape[:2]
    plain = _fax_picture(data, wide, tall)
    for left in (0, 1, 2):  # an incomplete code at the end may hide what is added to it
        longer = _fax_picture(data[: len(data) - left] + _FAX_STRIPES * wide, wide, tall)
        if plain is None or longer is None:
            return False
        changed = np.flatnonzero((plain != longer).any(axis=1))
        if len(changed) and 0 < changed[0] < (1 - _EMPTY) * tall:
            rows = slice(changed[0])
            alike = float((plain[rows] == (drawn.reshape(tall, wide, -1)[rows, :, 0] > 127)).mean())
            return max(alike, 1 - alike) > _SAME_PICTURE  # black and white may be exchanged
    return False


def _fax_picture(data: bytes, width: int, height: int) -> "npt.NDArray[np.bool_] | None":
    """Return the pixels of Group 4 data, decoded as a TIFF of one strip; None if it cannot be decoded."""
    import numpy as np
    from PIL import Image

    tags = ((256, width), (257, height), (258, 1), (259, 4), (262, 0), (273, 8), (278, height), (279, len(data)))
    padded = data + bytes(len(data) % 2)
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags)
    file = struct.pack("<4sI", b"II*\0", 8 + len(padded)) + padded + struct.pack("<H", len(tags)) + entries + bytes(4)
    try:
        with Image.open(io.BytesIO(file)) as picture:
            return np.asarray(picture)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError):
        return None


def _is_cut_jbig2(data: bytes) -> bool:
    """Return whether the last segment of embedded JBIG2 data ends after the data; see ISO 14492, section 7.2."""
    at = 0
    while at + 11 <= len(data):
        number, flags, referred = struct.unpack_from(">IBB", data, at)
        at += 5
        count = referred >> 5
        if count == 7:  # a long form: the count, and a bit for each segment and this one
            count = struct.unpack_from(">I", data, at)[0] & 0x1FFFFFFF
            at += 4 + (count + 8) // 8
        else:
            at += 1
        at += count * (1 if number <= 256 else 2 if number <= 65536 else 4) + (4 if flags & 0x40 else 1)
        if at + 4 > len(data):
            return True
        size = struct.unpack_from(">I", data, at)[0]
        if size == _UNKNOWN_SIZE:
            return False
        at += 4 + size
    return at > len(data)


def content_damage(pdf: pypdfium2.PdfDocument, number: int) -> str:
    """Return what is wrong with the content streams of page `number` and of its forms; "" if all can be decoded."""
    single = pypdfium2.PdfDocument.new()
    file = io.BytesIO()
    try:
        single.import_pages(pdf, [number - 1])
        single.save(file)  # without object streams and encryption, whatever the document has
    except (pypdfium2.PdfiumError, OSError):
        return ""
    finally:
        single.close()
    data = file.getvalue()
    found = _CONTENTS.search(data)
    names = {found[1]} if found and found[1] else set(re.findall(rb"(\d+) 0 R", found[2])) if found else set()
    contents: list[tuple[bytes, bool]] = []
    parts: list[tuple[bytes, bool]] = []
    for start in _OBJECT.finditer(data):
        name = _NUMBER.search(data, max(0, start.start() - _DIGITS), start.start())
        stream = _STREAM.search(data, start.end(), data.find(b"endobj", start.end()))
        about = data[start.end() : stream.start()] if stream else b""
        length = re.search(rb"/Length (\d+)\b(?! 0 R)", about)
        if name is None or stream is None or length is None or b"\0" in about:
            continue
        if name[1] in names or _FORM.search(about):
            part = _decoded(data[stream.end() : stream.end() + int(length[1])], about)
            (contents if name[1] in names else parts).append(part)
    lost = any(not whole and not content.strip() for content, whole in contents + parts)
    # Operators of the page may begin in one of its streams and end in another one.
    parts.append((b"\n".join(content for content, _ in contents), all(whole for _, whole in contents)))
    for content, whole in parts:
        lost |= not whole and any(len(re.findall(a, content)) != len(re.findall(b, content)) for a, b in _PAIRS)
    return "the content of the page is damaged: its data ends early" if lost else ""


def _decoded(data: bytes, about: bytes) -> tuple[bytes, bool]:
    """Return the decoded stream as far as it can be decoded, and whether that is all of it."""
    filters = re.search(rb"/Filter\s*(?:\[([^\]]*)\]|/(\w+))", about)
    names = re.findall(rb"\w+", filters[1] or filters[2]) if filters else []
    for name in names:
        if name in (b"ASCII85Decode", b"A85"):
            try:
                data = a85decode(data.split(b"~")[0])
            except ValueError:
                return b"", False
        elif name in (b"ASCIIHexDecode", b"AHx"):
            try:
                data = binascii.unhexlify(re.sub(rb"\s|>.*", b"", data))
            except ValueError:
                return b"", False
        elif name in (b"FlateDecode", b"Fl"):
            inflate, result = zlib.decompressobj(), bytearray()
            try:
                for start in range(0, len(data), 256):  # an error loses one piece only
                    result += inflate.decompress(data[start : start + 256], _MOST_CONTENT)
                    if len(result) >= _MOST_CONTENT:
                        return bytes(result), True
            except zlib.error:
                return bytes(result), False
            return bytes(result), inflate.eof or not data  # of an empty stream, nothing is lost
        else:
            return (data, True) if name in _LENGTHS else (b"", False)
    return data, True
