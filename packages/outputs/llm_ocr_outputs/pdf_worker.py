"""Run the worker process that writes searchable PDFs: `python -m llm_ocr_outputs.pdf_worker`.

The text of a page is drawn in text rendering mode 3, which neither fills nor strokes (ISO 32000-2, 9.3.6), with a font
whose only glyph is a box. Each character of a document has a code of its own in this font, and a ToUnicode CMap names
the characters (9.10.3), so that one font serves all scripts.

A PDF keeps its bytes: objects that changed are appended as an incremental update (7.5.6). The incremental updates of
pdfium repeat the whole file. So pdfium serializes the document before and after the change, and the differences are
appended. Encrypted and repaired files are written anew.
"""

import ctypes
import json
import re
import struct
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

import pypdfium2
import pypdfium2.raw as pdfium

from llm_ocr.documents.fd_file import FdFile
from llm_ocr.documents.file_types import IMAGE, PDF
from llm_ocr.documents.images import ImageFile, plain_image
from llm_ocr.documents.pdf_file import Look, PdfFile
from llm_ocr.documents.pdf_objects import Matrix, page_frame
from llm_ocr.errors import PageFailure
from llm_ocr.sandbox.confinement import Confinement
from llm_ocr.sandbox.worker import serve
from llm_ocr.types import SCAN, Box, Reason

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from PIL import Image

# The font: a TrueType file with the tables that renderers need (OpenType 1.9.1), and two equal glyphs.


#: Units of an em, which is also the width and height of the glyph.
_EM = 1000


def box_font() -> bytes:
    """Return a TrueType font whose glyphs 0 and 1 are a box of one em; about 450 bytes."""
    points = b"".join(struct.pack(">h", step) for step in (0, 0, _EM, 0)) + b"".join(
        struct.pack(">h", step) for step in (0, _EM, 0, -_EM)
    )
    glyph = struct.pack(">hhhhhHH", 1, 0, 0, _EM, _EM, 3, 0) + b"\1" * 4 + points
    glyph += b"\0" * (-len(glyph) % 4)
    name = "LlmOcrBox".encode("utf-16-be")
    tables = {
        "cmap": struct.pack(">4HI", 0, 1, 3, 1, 12)
        + struct.pack(">12H", 4, 24, 0, 2, 2, 0, 0, 0xFFFF, 0, 0xFFFF, 1, 0),
        "glyf": glyph * 2,
        "head": struct.pack(
            ">IIIIHHQQhhhhHHhhh", 0x10000, 0x10000, 0, 0x5F0F3CF5, 0xB, _EM, 0, 0, 0, 0, _EM, _EM, 0, 8, 2, 0, 0
        ),
        "hhea": struct.pack(">IhhhHhhhhhhhhhhhH", 0x10000, _EM, 0, 0, _EM, 0, 0, _EM, 1, *[0] * 7, 1),
        "hmtx": struct.pack(">Hhh", _EM, 0, 0),
        "loca": struct.pack(">3H", 0, len(glyph) // 2, len(glyph)),
        "maxp": struct.pack(">I14H", 0x10000, 2, 4, 1, 0, 0, 1, *[0] * 8),
        "name": struct.pack(">9H", 0, 1, 18, 3, 1, 0x409, 6, len(name), 0) + name,
        "post": struct.pack(">Iihh5I", 0x30000, 0, 0, 0, 1, 0, 0, 0, 0),
    }
    head, body = struct.pack(">I4H", 0x10000, len(tables), 128, 3, 16 * len(tables) - 128), b""
    start = 12 + 16 * len(tables)
    for tag, table in tables.items():
        padded = table + b"\0" * (-len(table) % 4)
        head += tag.encode() + struct.pack(">3I", _checksum(padded), start + len(body), len(table))
        body += padded
    font = head + body
    at = start + len(tables["cmap"]) + -len(tables["cmap"]) % 4 + len(tables["glyf"]) + 8
    return font[:at] + struct.pack(">I", (0xB1B0AFBA - _checksum(font)) & 0xFFFFFFFF) + font[at + 4 :]


def _checksum(data: bytes) -> int:
    return sum(struct.unpack(f">{len(data) // 4}I", data)) & 0xFFFFFFFF


def _to_unicode(characters: Sequence[str]) -> bytes:
    """Return the CMap of codes from 1 on."""
    entries = [f"<{code:04X}> <{one.encode('utf-16-be').hex()}>" for code, one in enumerate(characters, 1)]
    groups = [entries[at : at + 100] for at in range(0, len(entries), 100)]
    return "\n".join(
        (
            "/CIDInit /ProcSet findresource begin\n12 dict begin\nbegincmap\n/CMapName /LlmOcr def\n/CMapType 2 def",
            "1 begincodespacerange\n<0000> <FFFF>\nendcodespacerange",
            *(f"{len(group)} beginbfchar\n" + "\n".join(group) + "\nendbfchar" for group in groups),
            "endcmap\nCMapName currentdict /CMap defineresource pop\nend\nend",
        )
    ).encode()


class _Font:
    """Font of one document with codes for its characters."""

    def __init__(self, pdf: pypdfium2.PdfDocument, characters: Iterable[str]) -> None:
        ordered = sorted(set(characters))[:0xFFFE]
        self._codes = {character: code for code, character in enumerate(ordered, 1)}
        font, glyphs = box_font(), b"\0\1" * (len(ordered) + 1)
        data = (ctypes.c_uint8 * len(font)).from_buffer_copy(font)
        map_data = (ctypes.c_uint8 * len(glyphs)).from_buffer_copy(glyphs)
        self._pdf = pdf
        self._font = pdfium.FPDFText_LoadCidType2Font(pdf, data, len(font), _to_unicode(ordered), map_data, len(glyphs))
        if not self._font:
            raise PageFailure(Reason.RENDER_CRASHED, "pdfium did not load the font of the text")

    def draw(self, page: pypdfium2.PdfPage, text: str, matrix: Matrix) -> None:
        """Add invisible text to a page. The matrix maps a square for each character to user space."""
        codes = [self._codes[character] for character in text if character in self._codes]
        made = pdfium.FPDFPageObj_CreateTextObj(self._pdf, self._font, 1.0)
        pdfium.FPDFText_SetCharcodes(made, (ctypes.c_uint32 * len(codes))(*codes), len(codes))
        pdfium.FPDFTextObj_SetTextRenderMode(made, pdfium.FPDF_TEXTRENDERMODE_INVISIBLE)
        pdfium.FPDFPageObj_SetMatrix(made, pdfium.FS_MATRIX(*matrix))
        pdfium.FPDFPage_InsertObject(page, made)

    def close(self) -> None:
        pdfium.FPDFFont_Close(self._font)


# Words of a page. The export sends them as JSON: see `pdf.page_wire`.


@dataclass(frozen=True, slots=True)
class _PageText:
    """Text of a page. `words`: text, four sides of the relative box, direction, and what follows: "", " ", or "-"."""

    rotation: int
    keep: bool
    words: tuple[tuple[str, float, float, float, float, str, str], ...]


def _page_texts(payload: Mapping[str, Any]) -> dict[int, _PageText]:
    texts = {}
    for number, data in payload["pages"].items():
        about = json.loads(data)
        texts[int(number)] = _PageText(about["rotation"], about["keep"], tuple(map(tuple, about["words"])))
    return texts


def _visual(text: str) -> str:
    """Return a word in the order of its letters from left to right: extraction programs turn right-to-left runs."""
    sides = [unicodedata.bidirectional(character) for character in text]
    if not any(side in ("R", "AL") for side in sides):
        return text
    runs = ["".join(character for character, _ in run) for is_number, run in _runs(text, sides)]
    numbers = [is_number for is_number, _ in _runs(text, sides)]
    return "".join(
        run if is_number else run[::-1] for run, is_number in zip(reversed(runs), reversed(numbers), strict=True)
    )


def _runs(text: str, sides: Sequence[str]) -> Iterator[tuple[bool, Iterator[tuple[str, str]]]]:
    return groupby(zip(text, sides, strict=True), key=lambda pair: pair[1] in ("L", "EN", "AN"))


def _add_words(page: pypdfium2.PdfPage, font: _Font, text: _PageText) -> None:
    """Draw the words of a page, invisibly, in their order."""
    frame = page_frame(page)
    a, b, c, d, e, f = frame.matrix
    scale = a * d - b * c

    def user(x: float, y: float) -> tuple[float, float]:
        """Return the place in user space of a relative place on the page as it was read."""
        point = Box(x, y, x, y).turned(-text.rotation)
        across, down = point.x0 * frame.width - e, point.y0 * frame.height - f
        return (d * across - c * down) / scale, (a * down - b * across) / scale

    for word, x0, y0, x1, y1, direction, follows in text.words:
        shown = _visual(word)
        corners = {
            "right": ((x0, y1), (x1, y1), (x0, y0)),
            "left": ((x0, y1), (x1, y1), (x0, y0)),
            "down": ((x0, y0), (x0, y1), (x1, y0)),
            "up": ((x1, y1), (x1, y0), (x0, y1)),
        }[direction]
        origin, end, top = (user(*corner) for corner in corners)
        step = (end[0] - origin[0]) / len(shown), (end[1] - origin[1]) / len(shown)
        up = top[0] - origin[0], top[1] - origin[1]
        if direction == "left":
            shown = follows + shown
            origin = origin[0] - step[0] * len(follows), origin[1] - step[1] * len(follows)
        else:
            shown += follows
        if abs(step[0] * up[1] - step[1] * up[0]) < 1e-9:  # a matrix without an inverse draws nothing
            continue
        font.draw(page, shown, (*step, *up, *origin))


# Text that the page's picture does not show.


#: Resolution in dots per inch at which a page must look the same after its old text was removed.
_COMPARED = 100
#: Nesting of forms that is searched.
_DEPTH = 4

_Handle = Any  # a ctypes pointer to an FPDF_PAGEOBJECT


def _is_invisible(handle: _Handle, depth: int = 0) -> bool:
    """Return whether an object is text in mode 3, or a form that has nothing else."""
    kind = pdfium.FPDFPageObj_GetType(handle)
    if kind == pdfium.FPDF_PAGEOBJ_TEXT:
        return bool(pdfium.FPDFTextObj_GetTextRenderMode(handle) == pdfium.FPDF_TEXTRENDERMODE_INVISIBLE)
    if kind != pdfium.FPDF_PAGEOBJ_FORM or depth > _DEPTH:
        return False
    count = pdfium.FPDFFormObj_CountObjects(handle)
    return count > 0 and all(
        _is_invisible(pdfium.FPDFFormObj_GetObject(handle, index), depth + 1) for index in range(count)
    )


def _hidden(page: pypdfium2.PdfPage, *, below: bool) -> list[_Handle]:
    """Return the objects of invisible text; with `below`, also text below an image that covers the page."""
    frame = page_frame(page)
    count = pdfium.FPDFPage_CountObjects(page)
    handles = [pdfium.FPDFPage_GetObject(page, index) for index in range(count)]
    covering = 0
    sides = [ctypes.c_float() for _ in range(4)]
    for place, handle in enumerate(handles):
        is_image = pdfium.FPDFPageObj_GetType(handle) == pdfium.FPDF_PAGEOBJ_IMAGE
        if below and is_image and pdfium.FPDFPageObj_GetBounds(handle, *sides):
            box = frame.box(*(side.value for side in sides)).clipped(frame.width, frame.height)
            covering = place if box.area > SCAN * frame.width * frame.height else covering
    return [
        handle
        for place, handle in enumerate(handles)
        if _is_invisible(handle)
        or (place < covering and pdfium.FPDFPageObj_GetType(handle) == pdfium.FPDF_PAGEOBJ_TEXT)
    ]


def _shows_its_text(page: pypdfium2.PdfPage, hidden: Sequence[_Handle]) -> bool:
    """Return whether most characters of a page's text are not among the hidden objects."""
    addresses = {ctypes.addressof(handle.contents) for handle in hidden}
    text_page = page.get_textpage()
    try:
        count = text_page.count_chars()
        objects = (pdfium.FPDFText_GetTextObject(text_page, index) for index in range(count))
        shown = sum(bool(one) and ctypes.addressof(one.contents) not in addresses for one in objects)
        return 2 * shown > count
    finally:
        text_page.close()


def _pixels(page: pypdfium2.PdfPage) -> "npt.NDArray[np.uint8]":
    pixels: npt.NDArray[np.uint8] = page.render(scale=_COMPARED / 72).to_numpy()
    return pixels


def _without_hidden(pdf: pypdfium2.PdfDocument, index: int, *, below: bool) -> bool:
    """Remove the hidden text of a page; return whether the page looks the same."""
    page = pdf[index]
    hidden = _hidden(page, below=below)
    if not hidden:
        page.close()
        return True
    before = _pixels(page)
    for handle in hidden:
        pdfium.FPDFPage_RemoveObject(page, handle)
        pdfium.FPDFPageObj_Destroy(handle)
    pdfium.FPDFPage_GenerateContent(page)
    page.close()
    page = pdf[index]
    after = _pixels(page)
    page.close()
    return before.shape == after.shape and bool((before == after).all())


# Serialization.


def _serialized(pdf: pypdfium2.PdfDocument) -> bytes:
    parts: list[bytes] = []

    @ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(pdfium.FPDF_FILEWRITE), ctypes.POINTER(None), ctypes.c_ulong)
    def write(_: object, data: int, size: int) -> int:
        parts.append(ctypes.string_at(data, size))
        return 1

    target = pdfium.FPDF_FILEWRITE(1, ctypes.cast(write, type(pdfium.FPDF_FILEWRITE().WriteBlock)))
    if not pdfium.FPDF_SaveAsCopy(pdf, target, pdfium.FPDF_NO_INCREMENTAL):
        raise PageFailure(Reason.RENDER_CRASHED, "pdfium did not write the document")
    return b"".join(parts)


_START = re.compile(rb"startxref\s+(\d+)\s+%%EOF\s*\Z")
_ENTRY = re.compile(rb"(\d{10}) (\d{5}) ([nf])")


def _objects(data: bytes) -> tuple[dict[int, bytes], bytes] | None:
    """Return the objects that pdfium wrote, by number, and the entries of the trailer; None for another form."""
    start = _START.search(data)
    table = int(start[1]) if start else -1
    if start is None or data[table : table + 4] != b"xref" or (trailer := data.find(b"trailer", table)) < 0:
        return None
    places: dict[int, int] = {}
    lines = data[table:trailer].splitlines()[1:]
    at = 0
    while at < len(lines):
        first, count = map(int, lines[at].split())
        for number, line in enumerate(lines[at + 1 : at + 1 + count], first):
            if (entry := _ENTRY.match(line)) and entry[3] == b"n":
                places[number] = int(entry[1])
        at += 1 + count
    ends = dict(zip(ordered := sorted(places.values()), [*ordered[1:], table], strict=True))
    about = data[trailer + len(b"trailer") : start.start()].strip()
    return {number: data[place : ends[place]] for number, place in places.items()}, about[2:-2]


def _update(source: bytes, before: bytes, after: bytes) -> bytes | None:
    """Return the source with the objects that changed; None for a source that must be written anew."""
    old, new, start = _objects(before), _objects(after), _START.search(source)
    if old is None or new is None or start is None or not source.startswith(b"%PDF-"):
        return None
    previous = int(start[1])
    entries = new[1]
    is_table = source[previous : previous + 4] == b"xref"
    if b"/Encrypt" in entries or not (is_table or re.match(rb"\d+ \d+ obj", source[previous : previous + 24])):
        return None
    changed = {number: data for number, data in sorted(new[0].items()) if old[0].get(number) != data}
    parts, at, places = [b"\n"], len(source) + 1, dict[int, int]()
    for number, data in changed.items():
        places[number] = at
        parts.append(data.strip() + b"\n")
        at += len(parts[-1])
    size = max(int(found[1]) if (found := re.search(rb"/Size (\d+)", entries)) else 0, max(changed, default=0) + 1)
    entries = re.sub(rb"/(?:Size|Prev) \d+", b"", entries)
    if is_table:
        parts.append(b"xref\n")
        parts += (b"%d 1\n%010d 00000 n \n" % entry for entry in places.items())
        parts.append(b"trailer\n<<%b/Size %d/Prev %d>>\n" % (entries, size, previous))
    else:
        places[size] = at
        rows = b"".join(struct.pack(">BQ", 1, place) for place in places.values())
        index = b" ".join(b"%d 1" % number for number in places)
        about = (entries, size + 1, previous, index, len(rows))
        parts.append(
            b"%d 0 obj\n<</Type/XRef%b/Size %d/Prev %d/W[1 8 0]/Index[%b]/Length %d>>stream\n" % (size, *about)
        )
        parts += (rows, b"\nendstream\nendobj\n")
    parts.append(b"startxref\n%d\n%%%%EOF\n" % at)
    return b"".join((source, *parts))


# Operations.


def _write(payload: Mapping[str, Any]) -> dict[str, Any]:
    """Return the PDF of a document, whose pages have the given text."""
    files = [FdFile(descriptor, payload["source"]) for descriptor in payload["files"]]
    texts = _page_texts(payload)
    if (files[0].kind() or PDF) == IMAGE:
        return {"pdf": _from_images(files, texts)}
    look = Look(64, 64, "pdfium", 60.0, payload["memory"])
    without: dict[int, int] = {}  # by page: 1 to leave text below images, 2 to leave the page as it is
    while True:
        opened = PdfFile(FdFile(payload["files"][0], payload["source"]), payload["passwords"], look)
        try:
            if opened.opened is None:
                raise PageFailure(Reason.UNREADABLE, "pdfium cannot open the document, so that it cannot be written")
            failed = _change(opened.opened, texts, without, before := _serialized(opened.opened))
            if isinstance(failed, bytes):
                source = files[0].whole()
                return {"pdf": source if failed is before else _update(source, before, failed) or failed}
            without |= failed
        finally:
            opened.close()


def _change(
    pdf: pypdfium2.PdfDocument, texts: Mapping[int, _PageText], without: Mapping[int, int], before: bytes
) -> bytes | dict[int, int]:
    """Give the pages their text.

    Returns:
        The serialized document; `before` if nothing changed. If pages would look different, what they must leave.
    """
    added: dict[int, _PageText] = {}
    failed: dict[int, int] = {}
    for number, text in texts.items():
        level = without.get(number, 0)
        if level > 1 or not 1 <= number <= len(pdf):
            continue
        page = pdf[number - 1]
        is_shown = _shows_its_text(page, _hidden(page, below=True))
        page.close()
        if text.keep and is_shown:
            continue
        if not _without_hidden(pdf, number - 1, below=level == 0):
            failed[number] = level + 1
        added[number] = text
    if failed:
        return failed
    if not added:
        return before
    _draw(pdf, added)
    return _serialized(pdf)


def _draw(pdf: pypdfium2.PdfDocument, texts: Mapping[int, _PageText]) -> None:
    characters = {c for text in texts.values() for word in text.words for c in f"{word[0]}{word[6]}"}
    font = _Font(pdf, characters)
    for number, text in texts.items():
        page = pdf[number - 1]
        _add_words(page, font, text)
        if not pdfium.FPDFPage_GenerateContent(page):
            raise PageFailure(Reason.RENDER_CRASHED, f"pdfium did not write page {number}")
        page.close()
    font.close()


#: Resolution of images without one. Up to 96 dots per inch, the value is that of screens, and says nothing.
DEFAULT_DPI, _SCREEN = 200.0, 96.5
#: Longest side of a page in points (ISO 32000-2, C.2).
_LONGEST = 14400.0
_ORIENTATION, _ON_SIDE = 0x0112, (5, 6, 7, 8)  # EXIF
#: By EXIF's orientation: where the image's unit square has its corners, as a matrix on the page's unit square.
_TURNS: Mapping[int, Matrix] = {
    1: (1, 0, 0, 1, 0, 0),
    2: (-1, 0, 0, 1, 1, 0),
    3: (-1, 0, 0, -1, 1, 1),
    4: (1, 0, 0, -1, 0, 1),
    5: (0, -1, -1, 0, 1, 1),
    6: (0, -1, 1, 0, 0, 1),
    7: (0, 1, 1, 0, 0, 0),
    8: (0, 1, -1, 0, 1, 0),
}


def _size(image: "Image.Image") -> tuple[float, float]:
    """Return the physical size of an upright image in points."""
    across, down = image.info.get("dpi") or (0.0, 0.0)
    if not (_SCREEN < float(across) < 10_000 and _SCREEN < float(down) < 10_000):
        across = down = DEFAULT_DPI
    width, height = 72 * image.width / float(across), 72 * image.height / float(down)
    fit = min(1.0, _LONGEST / max(width, height))
    width, height = width * fit, height * fit
    return (height, width) if image.getexif().get(_ORIENTATION, 1) in _ON_SIDE else (width, height)


def _images(files: Sequence[FdFile]) -> Iterator[tuple[FdFile, "Image.Image"]]:
    """Yield the pages of image files as they are stored, not decoded."""
    for file in files:
        opened = ImageFile(file)
        for number in range(1, opened.pages + 1):
            yield file, opened.frame(number)


def _sizes(payload: Mapping[str, Any]) -> dict[str, Any]:
    """Return width and height of each page of image files in points."""
    files = [FdFile(descriptor, payload["source"]) for descriptor in payload["files"]]
    return {"sizes": [_size(image) for _, image in _images(files)]}


def _from_images(files: Sequence[FdFile], texts: Mapping[int, _PageText]) -> bytes:
    """Return a PDF of images: the bytes of a JPEG unchanged, others without loss."""
    pdf = pypdfium2.PdfDocument.new()
    for file, image in _images(files):
        width, height = _size(image)
        page = pdf.new_page(width, height)
        turn: Matrix = (1, 0, 0, 1, 0, 0)
        made = pypdfium2.PdfImage.new(pdf)
        if image.format == "JPEG":
            turn = _TURNS.get(image.getexif().get(_ORIENTATION, 1), turn)
            made.load_jpeg(FdFile(file.fileno(), file.name), inline=True)
        else:
            from PIL import ImageOps

            image.load()
            bitmap = pypdfium2.PdfBitmap.from_pil(plain_image(ImageOps.exif_transpose(image)))
            made.set_bitmap(bitmap)
            bitmap.close()
        a, b, c, d, e, f = turn
        made.set_matrix(pypdfium2.PdfMatrix(a * width, b * height, c * width, d * height, e * width, f * height))
        page.insert_obj(made)
        page.gen_content()
        page.close()
    _draw(pdf, {number: text for number, text in texts.items() if 1 <= number <= len(pdf)})
    data = _serialized(pdf)
    pdf.close()
    return data


if __name__ == "__main__":
    serve({"write": _write, "sizes": _sizes}, Confinement())
