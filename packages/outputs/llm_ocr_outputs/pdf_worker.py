"""Run the worker process that writes searchable PDFs: `python -m llm_ocr_outputs.pdf_worker`.

The text of a page is a content stream of its own, before the others, in text rendering mode 3, which neither fills nor
strokes (ISO 32000-2, 9.3.6). Its font has a single glyph, a box. Each character of a document has a code of its own in
this font, and a ToUnicode CMap names the characters (9.10.3), so that one font serves all scripts.

pdfium opens documents, and removes old invisible text. It also serializes documents, but its incremental updates repeat
the whole file, and its changes of pages drop resources. So the objects that change are taken from what it serialized,
edited here, and appended to the source as an incremental update (7.5.6). Repaired and encrypted files are written anew.
"""

import ctypes
import io
import json
import math
import re
import struct
import unicodedata
import zlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, groupby
from typing import TYPE_CHECKING, Any

import pypdfium2
import pypdfium2.raw as pdfium

from llm_ocr.documents.files import IMAGE, PDF, FdFile
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
    words: tuple[int, ...] = struct.unpack(f">{len(data) // 4}I", data)
    return sum(words) & 0xFFFFFFFF


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

    @property
    def size(self) -> int:
        """Number of characters."""
        return sum(len(text) for _, _, words in self.lines for text, *_ in words)

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
    return "".join(part if is_number else part[::-1].translate(_MIRRORED) for is_number, part in reversed(parts))


#: Brackets, which right-to-left text shows mirrored.
_MIRRORED = str.maketrans("()[]{}<>«»‹›", ")(][}{><»«›‹")


def _content(lines: Iterable[_Line], font: bytes, codes: Mapping[str, int]) -> bytes:
    """Return the operators that draw lines in a font whose glyphs have the width of an em."""
    parts = [b"q BT 3 Tr"]
    for line in lines:
        matrix = (*line.along, *line.up, *line.origin)
        parts.append(b"%b %b Tf %b Tm" % (font, _number(line.height), b" ".join(map(_number, matrix))))
        at = 0.0
        for text, start, each in line.words:
            codes_of_text = b"".join(struct.pack(">H", codes.get(character, 0)) for character in text)
            string = re.sub(rb"[()\\\r]", lambda found: _ESCAPED[found[0]], codes_of_text)
            parts.append(
                b"%b Tz %b 0 Td(%b)Tj" % (_number(round(100 * each / line.height) or 1), _number(start - at), string)
            )
            at += float(_number(start - at))
    return b"\n".join((*parts, b"ET Q"))


_ESCAPED = {b"(": b"\\(", b")": b"\\)", b"\\": b"\\\\", b"\r": b"\\r"}


def _number(value: float) -> bytes:
    digits = b"%.1f" % value if abs(value) > 1.5 else b"%.3f" % value
    return digits.rstrip(b"0").rstrip(b".")


#: Lengths in points below which text is not drawn.
_FINEST = 0.01


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


def _shown(page: pypdfium2.PdfPage, hidden: Sequence[_Handle]) -> int:
    """Return the number of characters of a page's text that are neither in the hidden objects nor invisible."""
    addresses = {ctypes.addressof(handle.contents) for handle in hidden}
    text_page = page.get_textpage()
    try:
        objects = (pdfium.FPDFText_GetTextObject(text_page, index) for index in range(text_page.count_chars()))
        return sum(
            bool(one) and ctypes.addressof(one.contents) not in addresses and not _is_invisible(one) for one in objects
        )
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
    return before.shape == after.shape and before.tobytes() == after.tobytes()


# Serialization.


def _serialized(pdf: pypdfium2.PdfDocument) -> bytes:
    buffer = io.BytesIO()
    pdf.save(buffer, flags=pdfium.FPDF_REMOVE_SECURITY)
    return buffer.getvalue()


_START = re.compile(rb"startxref\s+(\d+)\s+%%EOF\s*\Z")
_ENTRY = re.compile(rb"(\d{10}) (\d{5}) ([nf])")


def _objects(data: bytes) -> "_Objects":
    """Return the objects that pdfium wrote.

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
            if (entry := _ENTRY.match(line)) and entry[3] == b"n" and int(entry[1]):  # 0: a missing object
                places[number] = int(entry[1])
        at += 1 + count
    ordered = sorted(places, key=places.__getitem__)
    ends = [*(places[number] for number in ordered[1:]), table]
    about = data[trailer + len(b"trailer") : start.start()].strip()
    found = {number: data[places[number] : end].strip() for number, end in zip(ordered, ends, strict=True)}
    return _Objects(found, about[2:-2])


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
    if stream:
        places[size] = at
    runs: list[list[int]] = []
    for number in sorted(places) if stream or previous >= 0 else range(size):
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    if stream:
        rows = b"".join(struct.pack(">BQ", 1, places[number]) for number in sorted(places))
        rows, index = zlib.compress(rows), b" ".join(b"%d %d" % (run[0], len(run)) for run in runs)
        entries += b"/Size %d/W[1 8 0]/Index[%b]/Filter/FlateDecode/Length %d" % (size + 1, index, len(rows))
        parts.append(b"%d 0 obj\n<</Type/XRef%b>>stream\n%b\nendstream\nendobj\n" % (size, entries, rows))
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


def _update(source: bytes, before: Mapping[int, bytes], after: "_Objects") -> bytes:
    """Return the source with the objects that changed; the document anew if this is not possible, or much smaller."""
    about = re.search(rb"/Info (\d+) 0 R", after.trailer)
    trailer = after.trailer.replace(about[0], b"") if about and int(about[1]) not in after.objects else after.trailer
    anew = _composed(b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n", after.objects, trailer)
    start = _START.search(source)
    previous = int(start[1]) if start else 0
    is_table, is_stream = source[previous : previous + 4] == b"xref", _OBJECT.match(source, previous) is not None
    if start is None or not source.startswith(b"%PDF-") or not (is_table or is_stream):
        return anew
    entries = _ENTRY.finditer(source, previous, source.find(b"trailer", previous)) if is_table else ()
    if any(not _OBJECT_AT.match(source, int(entry[1])) for entry in entries if entry[3] == b"n" and int(entry[1])):
        return anew  # the table is wrong
    changed = {number: data for number, data in after.objects.items() if before.get(number) != data}
    if any(int(found[2]) and int(found[1]) in changed for found in _OBJECT.finditer(source)):
        return anew  # pdfium writes generation 0, and the source refers to another one
    update = _composed(source + b"\n", changed, after.trailer, previous, stream=is_stream)
    return update if len(update) <= max((1 + _MOST_ADDED) * len(source), len(anew)) else anew


_OBJECT = re.compile(rb"\b(\d{1,7})\s+(\d{1,5})\s+obj\b")
_OBJECT_AT = re.compile(rb"\s*\d{1,7}\s+\d{1,5}\s+obj\b")


# Changes of serialized objects.


_TOKEN = re.compile(
    rb"<<|>>|[\[\]]|\((?:[^()\\]|\\.)*+\)|<[0-9A-Fa-f\s]*>|/[^\s()<>\[\]{}/%]*|[^\s()<>\[\]{}/%]+", re.DOTALL
)
_REFERENCE = re.compile(rb"(\d+) \d+ R")
#: Nesting of the tree of pages.
_DEEPEST = 50
#: Codes have two bytes, and code 0 is no character.
_MOST_CHARACTERS = 0xFFFE


def _entries(data: bytes) -> dict[bytes, bytes]:
    """Return the entries of the first dictionary in an object that pdfium wrote, as they are."""
    start = data.find(b"<<") + 2
    tokens = _TOKEN.finditer(data, start)
    found: dict[bytes, bytes] = {}
    for key in tokens:
        if start < 2 or key[0] == b">>" or (first := next(tokens, None)) is None:
            break
        end, depth = first.end(), int(first[0] in (b"<<", b"["))
        while depth and (token := next(tokens, None)):
            depth += (token[0] in (b"<<", b"[")) - (token[0] in (b">>", b"]"))
            end = token.end()
        if reference := _REFERENCE.match(data, first.start()):
            end = reference.end()
            next(tokens), next(tokens)
        found[key[0]] = data[first.start() : end]
    return found


class _Objects:
    """Objects of a document by number, and the entries of its trailer."""

    def __init__(self, objects: dict[int, bytes], trailer: bytes) -> None:
        self.objects = objects
        self.trailer = trailer
        self._next = max(objects, default=0) + 1

    def number_after(self, source: bytes) -> None:
        """Give new objects numbers that a source does not use: it may have more objects than pdfium wrote."""
        used = (int(found[1]) for found in _OBJECT.finditer(source))
        self._next = max(self._next, 1 + max(used, default=0))

    def add(self, content: bytes) -> bytes:
        """Add an object, and return its reference."""
        self.objects[self._next] = b"%d 0 obj\n%b\nendobj" % (self._next, content)
        self._next += 1
        return b"%d 0 R" % (self._next - 1)

    def add_stream(self, data: bytes, entries: bytes = b"") -> bytes:
        """Add a compressed stream, and return its reference."""
        packed = zlib.compress(data, 9)
        return self.add(b"<<%b/Filter/FlateDecode/Length %d>>stream\n%b\nendstream" % (entries, len(packed), packed))

    def resolved(self, value: bytes) -> bytes:
        """Return a value, or the object that it refers to."""
        reference = _REFERENCE.fullmatch(value)
        if reference is None:
            return value
        return self.objects.get(int(reference[1]), b"").partition(b"obj")[2].removesuffix(b"endobj").strip()

    def pages(self) -> list[tuple[int, bytes]]:
        """Return the number of each page's object, and the page's resources, which it may inherit.

        Raises:
            PageFailure: The tree of pages is damaged.
        """
        found: list[tuple[int, bytes]] = []

        def walk(reference: bytes, resources: bytes, depth: int) -> None:
            number = _REFERENCE.fullmatch(reference)
            if depth > _DEEPEST or number is None:
                raise PageFailure(Reason.UNREADABLE, "the tree of pages is damaged")
            node = _entries(self.resolved(reference))
            resources = node.get(b"/Resources", resources)
            if b"/Kids" in node:
                for kid in _REFERENCE.finditer(self.resolved(node[b"/Kids"])):
                    walk(kid[0], resources, depth + 1)
            else:
                found.append((int(number[1]), resources))

        root = _entries(self.resolved(_entries(b"<<%b>>" % self.trailer).get(b"/Root", b"")))
        walk(root.get(b"/Pages", b""), b"<<>>", 0)
        return found

    def add_font(self, characters: Iterable[str]) -> tuple[bytes, dict[str, int]]:
        """Add the font of all text, and return its reference and the codes of the characters."""
        ordered = sorted(characters)[:_MOST_CHARACTERS]
        font = box_font()
        file = self.add_stream(font, b"/Length1 %d" % len(font))
        descriptor = self.add(
            b"<</Type/FontDescriptor/FontName/LlmOcrBox/Flags 4/FontBBox[0 0 1000 1000]/ItalicAngle 0/Ascent 1000"
            b"/Descent 0/CapHeight 1000/StemV 80/FontFile2 %b>>" % file
        )
        glyphs = self.add_stream(b"\0\1" * (len(ordered) + 1))
        descendant = self.add(
            b"<</Type/Font/Subtype/CIDFontType2/BaseFont/LlmOcrBox/CIDSystemInfo<</Registry(Adobe)/Ordering(Identity)"
            b"/Supplement 0>>/DW 1000/FontDescriptor %b/CIDToGIDMap %b>>" % (descriptor, glyphs)
        )
        names = self.add_stream(_to_unicode(ordered))
        made = b"<</Type/Font/Subtype/Type0/BaseFont/LlmOcrBox/Encoding/Identity-H/DescendantFonts[%b]/ToUnicode %b>>"
        return self.add(made % (descendant, names)), {one: code for code, one in enumerate(ordered, 1)}

    def draw(self, texts: Mapping[int, tuple[set[str], Sequence[_Line]]]) -> None:
        """Add the text of pages, by their numbers: its characters and lines."""
        pages = self.pages()
        font, codes = self.add_font({one for characters, _ in texts.values() for one in characters})
        for number, (_, lines) in texts.items():
            if number > len(pages):
                raise PageFailure(Reason.UNREADABLE, f"page {number} is missing in the tree of pages")
            key, inherited = pages[number - 1]
            page = _entries(self.objects[key])
            resources = _entries(self.resolved(inherited))
            fonts = _entries(self.resolved(resources.get(b"/Font", b"<<>>")))
            name = next(name for n in count() if (name := b"/LlmOcr%d" % n) not in fonts)
            resources[b"/Font"] = _dictionary(fonts | {name: font})
            old = page.get(b"/Contents", b"")
            if (listed := self.resolved(old)).startswith(b"["):
                old = listed[1:-1].strip()
            stream = self.add_stream(_content(lines, name, codes))
            page |= {b"/Resources": _dictionary(resources), b"/Contents": b"[%b %b]" % (stream, old)}
            self.objects[key] = b"%d 0 obj\n%b\nendobj" % (key, _dictionary(page))


def _dictionary(entries: Mapping[bytes, bytes]) -> bytes:
    return b"<<%b>>" % b"".join(b"%b %b" % entry for entry in entries.items())


# Operations.


def write_pdf(payload: Mapping[str, Any]) -> dict[str, Any]:
    """Return the PDF of a document, whose pages have the given text."""
    files = [FdFile(descriptor, payload["source"]) for descriptor in payload["files"]]
    texts = {int(number): _PageText(**json.loads(data)) for number, data in payload["pages"].items()}
    if (files[0].kind() or PDF) == IMAGE:
        return {"pdf": _from_images(files, texts)}
    look = Look(64, 64, "pdfium", 60.0, payload["memory"])
    left: dict[int, int] = {}  # by page: 1 to leave text below images, 2 to leave the page as it is
    while True:
        opened = PdfFile(FdFile(payload["files"][0], payload["source"]), payload["passwords"], look)
        try:
            if opened.opened is None:
                raise PageFailure(Reason.UNREADABLE, "pdfium cannot open the document, so that it cannot be written")
            if (written := _with_text(files[0].whole(), opened.opened, texts, left)) is not None:
                return {"pdf": written}
        finally:
            opened.close()


def _with_text(
    source: bytes, pdf: pypdfium2.PdfDocument, texts: Mapping[int, _PageText], left: dict[int, int]
) -> bytes | None:
    """Return the document with the text of its pages; None if pages would look different, after noting them in `left`.

    pdfium is asked to remove old text, and the page is compared. It may also change resources that pages share.
    """
    encrypted = pdfium.FPDF_GetSecurityHandlerRevision(pdf) >= 0
    before = _objects(_serialized(pdf))
    changed: dict[int, tuple[set[str], list[_Line]]] = {}
    removed: set[int] = set()
    failed = False
    for number, text in texts.items():
        level = left.get(number, 0)
        if level > 1 or not 1 <= number <= len(pdf) or not text.lines:
            continue
        page = pdf[number - 1]
        hidden = _hidden(page, below=level == 0)
        is_shown = 2 * _shown(page, hidden) > text.size
        lines = list(text.placed(page))
        page.close()
        if text.keep and is_shown:
            continue
        if hidden:
            removed.add(number)
            if not _without_hidden(pdf, number - 1, below=level == 0):
                left[number] = level + 1
                failed = True
        changed[number] = text.characters, lines
    if failed:
        return None
    if not changed:
        return source
    after = _objects(_serialized(pdf))
    own = {key for number, (key, _) in enumerate(before.pages(), 1) if number in changed}
    own = {one for key in own for one in _of_page(before, key)}
    foreign = [key for key, data in after.objects.items() if before.objects.get(key, data) != data and key not in own]
    if foreign and removed:
        left.update(dict.fromkeys(removed, 2))
        return None
    after.number_after(source)
    after.draw(changed)
    return _update(b"" if encrypted else source, before.objects, after)


def _of_page(objects: _Objects, page: int) -> Iterator[int]:
    """Yield the numbers of the objects of a page alone: itself, its content streams, and its own resources."""
    yield page
    entries = _entries(objects.objects[page])
    for value in (entries.get(b"/Contents", b""), entries.get(b"/Resources", b"")):
        text = objects.resolved(value) if _REFERENCE.fullmatch(value) else value
        for reference in _REFERENCE.finditer(value + (b" " + text if text[:1] == b"[" else b"")):
            yield int(reference[1])
        if text.startswith(b"<<"):
            yield from (int(one[1]) for part in _entries(text).values() if (one := _REFERENCE.fullmatch(part)))


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
        if image.format in ("JPEG", "MPO"):  # an MPO is a JPEG with others after it, as phones write it
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
    result = _objects(_serialized(pdf))
    result.draw(
        {number: (text.characters, list(text.placed(pdf[number - 1]))) for number, text in texts.items() if text.lines}
    )
    pdf.close()
    return _update(b"", {}, result)


if __name__ == "__main__":
    serve({"write": write_pdf, "sizes": _sizes}, Confinement())
