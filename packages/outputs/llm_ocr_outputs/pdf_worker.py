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
import math
import re
import struct
import unicodedata
import zlib
from bisect import bisect_right
from collections import defaultdict
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


# Text of a page: lines in user space, and their content stream. The export sends it as JSON: see `pdf.page_wire`.


#: Least gap between two words in heights of their line. poppler joins words with less than 0.1 between them.
_LEAST_GAP = 0.12


@dataclass(frozen=True, slots=True)
class _Line:
    """Line in user space.

    `along` and `up` are unit vectors; the words follow `along` from `origin` on. `words` are characters in the order in
    which they are drawn, the start of the first one, and the width of each one, in lengths of user space.
    """

    along: tuple[float, float]
    up: tuple[float, float]
    origin: tuple[float, float]
    height: float
    words: tuple[tuple[str, float, float], ...]


@dataclass(frozen=True, slots=True)
class _PageText:
    """Text of a page. With `keep`, visible text of the page stays alone. `lines` are those of the JSON."""

    rotation: int
    keep: bool
    lines: Sequence[tuple[str, Sequence[float], Sequence[tuple[str, float, float, str]]]]

    @property
    def characters(self) -> set[str]:
        return {one for _, _, words in self.lines for text, _, _, follows in words for one in f"{text}{follows}"}

    def placed(self, page: pypdfium2.PdfPage) -> Iterator[_Line]:
        """Yield the lines in the user space of a page."""
        frame = page_frame(page)
        a, b, c, d, e, f = frame.matrix
        scale = a * d - b * c

        def user(x: float, y: float) -> tuple[float, float]:
            point = Box(x, y, x, y).turned(-self.rotation)
            across, down = point.x0 * frame.width - e, point.y0 * frame.height - f
            return (d * across - c * down) / scale, (a * down - b * across) / scale

        for direction, (x0, y0, x1, y1), words in self.lines:
            corners = {"down": ((x0, y0), (x0, y1), (x1, y0)), "up": ((x1, y1), (x1, y0), (x0, y1))}
            origin, end, top = (user(*corner) for corner in corners.get(direction, ((x0, y1), (x1, y1), (x0, y0))))
            length, height = math.dist(origin, end), math.dist(origin, top)
            if length < _FINEST or height < _FINEST:
                continue
            along = (end[0] - origin[0]) / length, (end[1] - origin[1]) / length
            up = (top[0] - origin[0]) / height, (top[1] - origin[1]) / height
            placed = [
                (length * start, length * (stop - start), _visual(text), follows)
                for text, start, stop, follows in words
            ]
            yield _Line(along, up, origin, height, tuple(_spaced(placed, height, leftward=direction == "left")))


def _spaced(
    words: Sequence[tuple[float, float, str, str]], height: float, *, leftward: bool
) -> Iterator[tuple[str, float, float]]:
    """Yield the words of a line as in `_Line`, with what follows them, and with gaps that extraction programs see."""
    starts = sorted(start for start, *_ in words)
    for start, width, text, follows in words:
        after = bisect_right(starts, start)
        if after < len(starts):
            width = min(width, max(starts[after] - start - _LEAST_GAP * height, 0.4 * width))
        each = max(width, _FINEST) / len(text)
        yield (follows + text, start - each * len(follows), each) if leftward else (text + follows, start, each)


def _visual(text: str) -> str:
    """Return a word in the order of its letters from left to right: extraction programs turn right-to-left runs."""
    sides = [unicodedata.bidirectional(character) for character in text]
    if not any(side in ("R", "AL") for side in sides):
        return text
    runs = groupby(zip(text, sides, strict=True), key=lambda pair: pair[1] in ("L", "EN", "AN"))
    parts = [(is_number, "".join(character for character, _ in run)) for is_number, run in runs]
    return "".join(part if is_number else part[::-1] for is_number, part in reversed(parts))


def _content(lines: Iterable[_Line], font: bytes, codes: Mapping[str, int]) -> bytes:
    """Return the operators that draw lines in a font whose glyphs have the width of an em."""
    parts = [b"BT 3 Tr 0 Tc 0 Tw 0 Ts"]
    for line in lines:
        matrix = (*line.along, *line.up, *line.origin)
        parts.append(b"/%b %b Tf %b Tm" % (font, _number(line.height), b" ".join(map(_number, matrix))))
        at = 0.0
        for text, start, each in line.words:
            codes_of_text = b"".join(struct.pack(">H", codes[character]) for character in text)
            string = re.sub(rb"[()\\\r]", lambda found: _ESCAPED[found[0]], codes_of_text)
            parts.append(
                b"%b Tz %b 0 Td(%b)Tj" % (_number(round(100 * each / line.height) or 1), _number(start - at), string)
            )
            at += float(_number(start - at))
    return b"\n".join((*parts, b"ET"))


_ESCAPED = {b"(": b"\\(", b")": b"\\)", b"\\": b"\\\\", b"\r": b"\\r"}


def _number(value: float) -> bytes:
    return b"%g" % round(value, 1 if abs(value) > 1.5 else 3)


#: Lengths in points below which text is not drawn.
_FINEST = 0.01


class _Font:
    """Font of one document with codes for its characters."""

    def __init__(self, pdf: pypdfium2.PdfDocument, characters: Iterable[str]) -> None:
        ordered = sorted({" ", *characters})[:_MOST_CHARACTERS]
        self.codes = defaultdict(int, {character: code for code, character in enumerate(ordered, 1)})
        font, glyphs = box_font(), b"\0\1" * (len(ordered) + 1)
        data = (ctypes.c_uint8 * len(font)).from_buffer_copy(font)
        map_data = (ctypes.c_uint8 * len(glyphs)).from_buffer_copy(glyphs)
        self._pdf = pdf
        self._font = pdfium.FPDFText_LoadCidType2Font(pdf, data, len(font), _to_unicode(ordered), map_data, len(glyphs))
        if not self._font:
            raise PageFailure(Reason.RENDER_CRASHED, "pdfium did not load the font of the text")

    def draw(self, page: pypdfium2.PdfPage, text: str, matrix: Matrix) -> None:
        """Add an object of invisible text to a page. The matrix maps a square for each character to user space."""
        made = pdfium.FPDFPageObj_CreateTextObj(self._pdf, self._font, 1.0)
        codes = (ctypes.c_uint32 * len(text))(*(self.codes[character] for character in text))
        pdfium.FPDFText_SetCharcodes(made, codes, len(text))
        pdfium.FPDFTextObj_SetTextRenderMode(made, pdfium.FPDF_TEXTRENDERMODE_INVISIBLE)
        pdfium.FPDFPageObj_SetMatrix(made, pdfium.FS_MATRIX(*matrix))
        pdfium.FPDFPage_InsertObject(page, made)

    def close(self) -> None:
        pdfium.FPDFFont_Close(self._font)


#: Codes have two bytes, and code 0 is no character.
_MOST_CHARACTERS = 0xFFFE


def _draw(pdf: pypdfium2.PdfDocument, texts: Mapping[int, _PageText]) -> bytes:
    """Draw the texts of pages, and return the serialized document.

    pdfium writes 80 bytes for each word. So it draws one space on each page, whose operators are then replaced. In an
    encrypted document, where they cannot be found, it draws the words.
    """
    font = _Font(pdf, {one for text in texts.values() for one in text.characters})
    contents: dict[int, list[_Line]] = {}
    encrypted = pdfium.FPDF_GetSecurityHandlerRevision(pdf) >= 0
    for number, text in texts.items():
        page = pdf[number - 1]
        contents[number] = list(text.placed(page))
        if not encrypted:
            font.draw(page, " ", (1, 0, 0, 1, number, 0))
        for line in contents[number] if encrypted else ():
            (a, b), (c, d), (e, f), height = line.along, line.up, line.origin, line.height
            for word, start, each in line.words:
                place = e + start * a, f + start * b
                font.draw(page, word, (each * a, each * b, height * c, height * d, *place))
        if not pdfium.FPDFPage_GenerateContent(page):
            raise PageFailure(Reason.RENDER_CRASHED, f"pdfium did not write page {number}")
        page.close()
    font.close()
    data = _serialized(pdf)
    return data if encrypted else _with_contents(data, contents, font.codes)


#: Operators of the space that marks the place of a page's text.
_MARK = re.compile(rb"q (?:[\d. ]+ rg )?(?:[\d. ]+ RG )?BT 1 0 0 1 (\d+) 0 Tm /(\w+) 1 Tf 3 Tr \[?<0001>\]? T[Jj] ET Q")
_STREAM = re.compile(rb"(\d+ 0 obj\s*<<.*?)/Length \d+(.*?>>\s*stream\r?\n)(.*)\r?\nendstream", re.DOTALL)


def _with_contents(data: bytes, contents: Mapping[int, Sequence[_Line]], codes: Mapping[str, int]) -> bytes:
    """Return a serialized document with the operators of lines in place of each page's mark."""
    objects, trailer = _objects(data)
    left = dict(contents)
    for key, found in reversed(objects.items()):  # new objects are last
        stream = _STREAM.match(found) if left and b"/FlateDecode" in found[:200] else None
        if stream is None:
            continue
        try:
            operators = zlib.decompress(stream[3])
        except zlib.error:
            continue
        if (mark := _MARK.search(operators)) and (lines := left.pop(int(mark[1]), None)) is not None:
            text = b"q " + _content(lines, mark[2], codes) + b" Q"
            packed = zlib.compress(operators[: mark.start()] + text + operators[mark.end() :], 9)
            head = b"%b/Length %d%b" % (stream[1], len(packed), stream[2])
            objects[key] = b"%b%b\r\nendstream\r\nendobj" % (head, packed)
    if left:
        raise PageFailure(Reason.RENDER_CRASHED, f"pdfium did not write the text of page {min(left)}")
    first = _OBJECT.search(data)
    return _composed(data[: first.start() if first else 0], objects, trailer)


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


def _objects(data: bytes) -> tuple[dict[int, bytes], bytes]:
    """Return the objects that pdfium wrote, by number in the order of the file, and the entries of the trailer.

    Raises:
        PageFailure: pdfium wrote another form.
    """
    start = _START.search(data)
    table = int(start[1]) if start else -1
    if start is None or data[table : table + 4] != b"xref" or (trailer := data.find(b"trailer", table)) < 0:
        raise PageFailure(Reason.RENDER_CRASHED, "pdfium wrote no table of objects")
    places: dict[int, int] = {}
    lines = data[table:trailer].splitlines()[1:]
    at = 0
    while at < len(lines):
        first, count = map(int, lines[at].split())
        for number, line in enumerate(lines[at + 1 : at + 1 + count], first):
            if (entry := _ENTRY.match(line)) and entry[3] == b"n":
                places[number] = int(entry[1])
        at += 1 + count
    ordered = sorted(places, key=places.__getitem__)
    ends = [*(places[number] for number in ordered[1:]), table]
    about = data[trailer + len(b"trailer") : start.start()].strip()
    return {number: data[places[number] : end].strip() for number, end in zip(ordered, ends, strict=True)}, about[2:-2]


def _composed(
    start: bytes, objects: Mapping[int, bytes], trailer: bytes, previous: int = -1, *, stream: bool = False
) -> bytes:
    """Return a file of objects after `start`, with a table or (`stream`) a stream of their places (7.5.4, 7.5.8)."""
    parts, at, places = [start], len(start), dict[int, int]()
    for number, data in objects.items():
        places[number] = at
        parts.append(data + b"\n")
        at += len(parts[-1])
    declared = re.search(rb"/Size (\d+)", trailer)
    size = max(int(declared[1]) if declared else 0, max(objects, default=0) + 1)
    entries = re.sub(rb"/(?:Size|Prev) \d+", b"", trailer) + (b"/Prev %d" % previous if previous >= 0 else b"")
    runs: list[list[int]] = []
    for number in sorted(places) if stream or previous >= 0 else range(size):
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    if stream:
        rows = b"".join(struct.pack(">BQ", 1, places[number]) for number in sorted(places))
        rows, index = zlib.compress(rows), b" ".join(b"%d %d" % (run[0], len(run)) for run in runs)
        about = b"/Type/XRef%b/Size %d/W[1 8 0]/Index[%b]/Filter/FlateDecode/Length %d" % (
            entries,
            size + 1,
            index,
            len(rows),
        )
        parts.append(b"%d 0 obj\n<<%b>>stream\n%b\nendstream\nendobj\n" % (size, about, rows))
    else:
        parts.append(b"xref\n")
        for run in runs:
            parts.append(b"%d %d\n" % (run[0], len(run)))
            parts += (b"%010d 00000 n \n" % places[n] if n in places else b"0000000000 65535 f \n" for n in run)
        parts.append(b"trailer\n<<%b/Size %d>>\n" % (entries, size))
    parts.append(b"startxref\n%d\n%%%%EOF\n" % at)
    return b"".join(parts)


#: Share of a source by which an update may be larger, before the document is written anew instead.
_MOST_ADDED = 0.05


def _update(source: bytes, before: bytes, after: bytes) -> bytes:
    """Return the source with the objects that changed; the document anew if this is not possible, or much smaller."""
    start = _START.search(source)
    old, (new, trailer) = _objects(before)[0], _objects(after)
    previous = int(start[1]) if start else 0
    is_table, is_stream = source[previous : previous + 4] == b"xref", _OBJECT.match(source, previous) is not None
    if b"/Encrypt" in trailer or start is None or not source.startswith(b"%PDF-") or not (is_table or is_stream):
        return after
    changed = {number: data for number, data in new.items() if old.get(number) != data}
    update = _composed(source + b"\n", changed, trailer, previous, stream=is_stream)
    return update if len(update) <= max((1 + _MOST_ADDED) * len(source), len(after)) else after


_OBJECT = re.compile(rb"\d+ \d+ obj")


# Operations.


def _write(payload: Mapping[str, Any]) -> dict[str, Any]:
    """Return the PDF of a document, whose pages have the given text."""
    files = [FdFile(descriptor, payload["source"]) for descriptor in payload["files"]]
    texts = {int(number): _PageText(**json.loads(data)) for number, data in payload["pages"].items()}
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
                return {"pdf": source if failed is before else _update(source, before, failed)}
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
        if (text.keep and is_shown) or not text.lines:
            continue
        if not _without_hidden(pdf, number - 1, below=level == 0):
            failed[number] = level + 1
        added[number] = text
    if failed:
        return failed
    return _draw(pdf, added) if added else before


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
    data = _draw(pdf, {number: text for number, text in texts.items() if 1 <= number <= len(pdf)})
    pdf.close()
    return data


if __name__ == "__main__":
    serve({"write": _write, "sizes": _sizes}, Confinement())
