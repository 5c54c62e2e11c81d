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

from llm_ocr.documents.pdf_objects import Frame, LargeImage
from llm_ocr.types import InkMap

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

#: Images of a page that are checked, and bytes of a page's decoded content.
_MOST_IMAGES, _MOST_CONTENT = 32, 64 << 20
#: Bytes at the end of a JPEG in which its end marker is searched, because writers pad.
_TAIL = 4096
_JPEG_END = b"\xff\xd9"
#: Least height of an empty area at the bottom of a JPEG without its end, as a share of the image.
_EMPTY = 0.02
#: Bits at the end of whole fax data, and the bytes at the end in which they are searched.
_FAX_END, _FAX_TAIL = "000000000001" * 2, 64
#: Fax data that draws black and white stripes: runs of 8 pixels, four times.
_FAX_STRIPES = int("00110011000101" * 4, 2).to_bytes(7, "big")
#: Least share of equal pixels in two decodings of the same image.
_SAME_PICTURE = 0.99
_CONTENTS = re.compile(rb"/Contents\s*(?:(\d+) 0 R|\[([^\]]*)\])")
_STREAM = re.compile(rb"<<(?P<about>[^\x00]*?)>>\s*stream\r?\n")
_PAIRS = ((rb"\bBT\b", rb"\bET\b"), (rb"(?<![^\s])q(?![^\s])", rb"(?<![^\s])Q(?![^\s])"))


def image_damage(images: Sequence[LargeImage], frame: Frame, ink: InkMap) -> str:
    """Return what is wrong with an image of the page; "" if all can be decoded.

    Only images without visible ink are decoded again, because a decoded image shows that it can be.
    """
    for image in images[:_MOST_IMAGES]:
        if not ink.covers(image.box.scaled(1 / frame.width, 1 / frame.height)):
            bitmap = pdfium.FPDFImageObj_GetBitmap(image.handle)
            if not bitmap:
                return "an image of the page cannot be decoded"
            pdfium.FPDFBitmap_Destroy(bitmap)
        if _is_cut(image):
            return "an image of the page is damaged: its data ends early"
    return ""


def _is_cut(image: LargeImage) -> bool:
    """Return whether the data of a JPEG or fax image ends before its last rows.

    Of a cut JPEG 2000 image, pdfium draws nothing.
    """
    name = ctypes.create_string_buffer(32)
    if pdfium.FPDFImageObj_GetImageFilterCount(image.handle) != 1:
        return False
    pdfium.FPDFImageObj_GetImageFilter(image.handle, 0, name, len(name))
    if name.value not in (b"DCTDecode", b"CCITTFaxDecode"):
        return False
    size = pdfium.FPDFImageObj_GetImageDataRaw(image.handle, None, 0)
    data = (ctypes.c_ubyte * size)()
    pdfium.FPDFImageObj_GetImageDataRaw(image.handle, data, size)
    return cut_jpeg(bytes(data)) if name.value == b"DCTDecode" else _is_cut_fax(image, bytes(data))


def cut_jpeg(data: bytes) -> bool:
    """Return whether a JPEG lacks its end marker and its last rows, which decoders fill with gray."""
    if _JPEG_END in data[-_TAIL:]:
        return False
    from PIL import Image

    try:
        with Image.open(io.BytesIO(data + _JPEG_END)) as picture:
            picture.draft("L", picture.size)
            rows = max(8, round(_EMPTY * picture.height))
            last = picture.convert("L").crop((0, picture.height - rows, picture.width, picture.height))
            return last.getextrema() == (128, 128)
    except (OSError, SyntaxError, ValueError):
        return True


def _is_cut_fax(image: LargeImage, data: bytes) -> bool:
    """Return whether a Group 4 fax image has rows that its data does not reach: additional data draws in them.

    Data of other fax codes counts as whole. It is decoded into another picture than pdfium's, or not at all.
    """
    import numpy as np

    if _FAX_END in f"{int.from_bytes(data[-_FAX_TAIL:], 'big'):b}":
        return False
    bitmap = pdfium.FPDFImageObj_GetBitmap(image.handle)
    if not bitmap:
        return False
    drawn = pypdfium2.PdfBitmap.from_raw(bitmap).to_numpy()
    height, width = drawn.shape[:2]
    plain, longer = (_fax_picture(data + more, width, height) for more in (b"", _FAX_STRIPES * width))
    if plain is None or longer is None:
        return False
    changed = np.flatnonzero((plain != longer).any(axis=1))
    if not len(changed) or not 0 < changed[0] < (1 - _EMPTY) * height:
        return False
    rows = slice(changed[0])
    alike = float((plain[rows] == (drawn.reshape(height, width, -1)[rows, :, 0] > 127)).mean())
    return max(alike, 1 - alike) > _SAME_PICTURE  # black and white may be exchanged


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


def content_damage(pdf: pypdfium2.PdfDocument, number: int) -> str:
    """Return what is wrong with the content stream of page `number`; "" if it can be decoded to its end."""
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
    if found is None:
        return ""
    content, whole = bytearray(), True
    for name in [found[1]] if found[1] else re.findall(rb"(\d+) 0 R", found[2]):
        start = re.search(rb"(?:^|[\r\n])%s 0 obj\s*" % name, data)
        stream = _STREAM.match(data, start.end()) if start else None
        length = re.search(rb"/Length (\d+)\b(?! 0 R)", stream["about"]) if stream else None
        if stream is None or length is None:
            continue
        raw = data[stream.end() : stream.end() + int(length[1])]
        decoded, complete = _decoded(raw, stream["about"])
        content += decoded + b"\n"
        whole = whole and complete
    unbalanced = any(len(re.findall(a, content)) != len(re.findall(b, content)) for a, b in _PAIRS)
    if whole or (content.strip() and not unbalanced):
        return ""
    return "the content of the page is damaged: its data ends early"


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
            return data, True
    return data, True
