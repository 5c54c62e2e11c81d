"""Add the text of pages to PDFs. Only the process of `pdf_worker` imports this module, at its first document.

The text of a page is a content stream of its own, before the others, in text rendering mode 3, which neither fills nor
strokes (ISO 32000-2, 9.3.6). Its font has a single glyph, a box. Each character of a document has a code of its own in
this font, and a ToUnicode CMap names the characters (9.10.3), so that one font serves all scripts.

pikepdf edits the document, and pdfium draws it, to compare pages and to find where they lie. pikepdf writes only whole
files, so `_appended` adds the changed objects to the source as an incremental update (7.5.6). For damaged and encrypted
documents, a new file is written from the copy that pdfium has repaired and decrypted.
"""

import io
import json
import math
import re
import struct
import sys
import unicodedata
import zlib
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from itertools import count, groupby
from pathlib import Path

import pikepdf
import pypdfium2
import pypdfium2.raw as pdfium
from pikepdf import Array, Dictionary, Name
from pikepdf.canvas import ContentStreamBuilder

from llm_ocr.documents.pdf_objects import MAX_DEPTH, Frame, Matrix, multiplied, page_frame
from llm_ocr.errors import PageFailure
from llm_ocr.types import SCAN, Box, Reason

# Text of a page: lines, and their content stream. The export sends it as JSON: see `pdf.page_wire`.


#: Least gap between two words in heights of their line. poppler joins words with less than 0.1 between them.
_LEAST_GAP = 0.12
#: Lengths in points below which text is not drawn.
_FINEST = 0.01
#: Letters of a word that says whether a page has it. Shorter ones are in every text.
_LONG_WORD = 4
#: First character of the scripts of East Asia.
_IDEOGRAMS = "\u2e80"


@dataclass(frozen=True, slots=True)
class _PageText:
    """Text of a page. With `credible`, visible text of the page is true. `lines` are those of the JSON."""

    rotation: int
    credible: bool
    lines: Sequence[tuple[str, Sequence[float], Sequence[tuple[str, float, float, str]]]]

    def lacking(self, visible: str) -> "_PageText":
        """Return the text to draw on a page with visible text: with `credible`, the lines that it lacks.

        A line is lacking if the visible text has less than half of the letters of its longer words.
        """
        if not (self.credible and visible):
            return self
        lines = []
        for line in self.lines:
            words = [part for word, *_ in line[2] for part in _parts(_plain(word)) if len(part) >= _LONG_WORD]
            found = sum(len(word) for word in words if word in visible or word[::-1] in visible)
            if 2 * found < sum(map(len, words)):
                lines.append(line)
        return replace(self, lines=lines)

    @property
    def text(self) -> str:
        """All words, with what follows them."""
        return "".join(f"{word}{after}" for _, _, words in self.lines for word, _, _, after in words)

    def content(self, frame: Frame, font: Name, codes: Mapping[str, int]) -> bytes:
        """Return the operators that draw the lines on a page, in a font whose glyphs have the width of an em."""
        a, b, c, d, e, f = frame.matrix
        scale = a * d - b * c

        def user(x: float, y: float) -> tuple[float, float]:
            point = Box(x, y, x, y).turned(-self.rotation)
            across, down = point.x0 * frame.width - e, point.y0 * frame.height - f
            return (d * across - c * down) / scale, (a * down - b * across) / scale

        drawn = ContentStreamBuilder().push().begin_text().set_text_rendering(3)
        for direction, (x0, y0, x1, y1), words in self.lines:
            corners = {"down": ((x0, y0), (x0, y1), (x1, y0)), "up": ((x1, y1), (x1, y0), (x0, y1))}
            origin, end, top = (user(*corner) for corner in corners.get(direction, ((x0, y1), (x1, y1), (x0, y0))))
            length, height = math.dist(origin, end), math.dist(origin, top)
            if length < _FINEST or height < _FINEST:
                continue
            axes = [(to[axis] - origin[axis]) / size for to, size in ((end, length), (top, height)) for axis in (0, 1)]
            drawn.set_text_font(font, _rounded(height))
            drawn.set_text_matrix(pikepdf.Matrix(*map(_rounded, (*axes, *origin))))
            placed = [
                (length * start, length * (stop - start), _visual(word), after) for word, start, stop, after in words
            ]
            at = 0.0
            for word, start, each in _spaced(placed, height, leftward=direction == "left"):
                step = _rounded(start - at)
                string = b"".join(struct.pack(">H", codes.get(letter, 0)) for letter in word)
                drawn.set_text_horizontal_scaling(round(100 * each / height) or 1)
                drawn.move_cursor(step, 0).show_text(string)
                at += step
        return drawn.end_text().pop().build()


def _rounded(value: float) -> float:
    return round(value, 1 if abs(value) > 1.5 else 3)


def _spaced(
    words: Sequence[tuple[float, float, str, str]], height: float, *, leftward: bool
) -> Iterator[tuple[str, float, float]]:
    """Yield each word with what follows it, its start, and the width of its letters, with gaps that programs see."""
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


#: TrueType font whose glyphs 0 and 1 are a box of one em (1000 units).
_FONT = Path(__file__).with_name("box.ttf").read_bytes()
#: Its descriptor, the font of its glyphs, and that of the codes; streams and references are added.
_FONT_ENTRIES = (
    b"<</Type/FontDescriptor/FontName/LlmOcrBox/Flags 4/FontBBox[0 0 1000 1000]/ItalicAngle 0/Ascent 1000/Descent 0"
    b"/CapHeight 1000/StemV 80>>",
    b"<</Type/Font/Subtype/CIDFontType2/BaseFont/LlmOcrBox/CIDSystemInfo<</Registry(Adobe)/Ordering(Identity)"
    b"/Supplement 0>>/DW 1000>>",
    b"<</Type/Font/Subtype/Type0/BaseFont/LlmOcrBox/Encoding/Identity-H>>",
)
#: Codes have two bytes, and code 0 is no character.
_MOST_CHARACTERS = 0xFFFE


def _draw(pdf: pikepdf.Pdf, texts: Mapping[int, _PageText], frames: Mapping[int, Frame]) -> list[pikepdf.Object]:
    """Add the text of pages with a frame to a document, and return the objects that are new or changed."""
    ordered = sorted({letter for number in frames for letter in texts[number].text})[:_MOST_CHARACTERS]
    codes = {letter: code for code, letter in enumerate(ordered, 1)}
    file = _stream(pdf, _FONT, Length1=len(_FONT))
    glyphs, unicode = _stream(pdf, b"\0\1" * (len(ordered) + 1)), _stream(pdf, _to_unicode(ordered))
    descriptor, descendant, font = (pdf.make_indirect(pikepdf.Object.parse(entries)) for entries in _FONT_ENTRIES)
    descriptor.FontFile2, descendant.FontDescriptor, descendant.CIDToGIDMap = file, descriptor, glyphs
    font.DescendantFonts, font.ToUnicode = Array([descendant]), unicode
    changed = [file, glyphs, unicode, descriptor, descendant, font]
    for number, frame in frames.items():
        page = pdf.pages[number - 1]
        resources = copy(page.resources)  # pages may share them
        resources.Font = copy(resources.get("/Font") or Dictionary())
        name = next(name for at in count() if (name := Name(f"/LlmOcr{at}")) not in resources.Font)
        resources.Font[name] = font
        page.obj.Resources = resources
        stream = _stream(pdf, texts[number].content(frame, name, codes))
        old = page.obj.get(Name.Contents, Array())
        page.obj.Contents = Array([stream, *(old if isinstance(old, Array) else [old])])
        changed += [stream, page.obj]
    return changed


def _stream(pdf: pikepdf.Pdf, data: bytes, **entries: int) -> pikepdf.Object:
    return pdf.make_stream(zlib.compress(data, 9), Filter=Name.FlateDecode, **entries)


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


# Text that the page's picture does not show.


#: Resolution in dots per inch at which a page must look the same after its old text was removed.
_COMPARED = 100
#: Operators that paint, or change where or how text and images are painted.
_OPERATORS = "q Q cm Tr Tj TJ ' \" Do BI ID EI f F f* B B* b b* S s sh"


def _painted(
    content: pikepdf.Page | pikepdf.Object, resources: pikepdf.Object, mode: int = 0, depth: int = 0
) -> Iterator[tuple[int, str, Matrix]]:
    """Yield what a content stream paints.

    Args:
        content: A page, or a form.
        resources: Its resources.
        mode: Text rendering mode at its begin.
        depth: Number of forms around it.

    Yields:
        The place of the operation among those of `_OPERATORS`, the kind of what it paints, and the matrix at it. Kinds
        are "text", "invisible" for text in mode 3 and forms that have nothing else, "image", and "graphics".
    """
    matrix: Matrix = (1, 0, 0, 1, 0, 0)
    states: list[tuple[Matrix, int]] = []
    for place, operation in enumerate(pikepdf.parse_content_stream(content, _OPERATORS)):
        kind, operands = "", operation.operands
        match str(operation.operator):
            case "q":
                states.append((matrix, mode))
            case "Q" if states:
                matrix, mode = states.pop()
            case "cm" if len(operands) == 6:
                a, b, c, d, e, f = map(float, operands)
                matrix = multiplied((a, b, c, d, e, f), matrix)
            case "Tr" if operands:
                mode = int(operands[0])
            case "Tj" | "TJ" | "'" | '"':
                kind = "invisible" if mode == 3 else "text"
            case "INLINE IMAGE":
                kind = "image"
            case "Do" if operands:
                drawn = resources.get("/XObject", Dictionary()).get(str(operands[0]), Dictionary())
                if drawn.get("/Subtype") == "/Form" and depth < MAX_DEPTH:
                    kinds = {one for _, one, _ in _painted(drawn, drawn.get("/Resources", resources), mode, depth + 1)}
                    kind = "invisible" if kinds == {"invisible"} else "graphics"
                else:
                    kind = "image" if drawn.get("/Subtype") == "/Image" else ""
            case "Q" | "cm" | "Tr" | "Do":
                pass
            case _:
                kind = "graphics"
        if kind:
            yield place, kind, matrix


def _without_hidden(page: pikepdf.Page, frame: Frame, *, below: bool) -> bytes | None:
    """Return the content of a page without invisible text; with `below`, also without text below an image of the page.

    None: the page has no such text. An image is one of the page if it covers most of it.
    """
    painted = list(_painted(page, page.resources))
    covering = 0
    for place, kind, matrix in painted:
        if below and kind == "image":
            box = frame.within(matrix).box(0, 0, 1, 1).clipped(frame.width, frame.height)
            covering = place if box.area > SCAN * frame.width * frame.height else covering
    hidden = {place for place, kind, _ in painted if kind == "invisible" or (kind == "text" and place < covering)}
    if not hidden:
        return None
    places = count()
    known = {*_OPERATORS.split(), "INLINE IMAGE"}
    operations = pikepdf.parse_content_stream(page)
    kept = [one for one in operations if str(one.operator) not in known or next(places) not in hidden]
    return pikepdf.unparse_content_stream(kept)


def _visible(page: pypdfium2.PdfPage) -> str:
    """Return the letters and digits of a page's text that are not invisible."""
    text_page = page.get_textpage()
    try:
        objects = (pdfium.FPDFText_GetTextObject(text_page, index) for index in range(text_page.count_chars()))
        invisible = pdfium.FPDF_TEXTRENDERMODE_INVISIBLE
        is_shown = (bool(one) and pdfium.FPDFTextObj_GetTextRenderMode(one) != invisible for one in objects)
        codes = (pdfium.FPDFText_GetUnicode(text_page, index) for index, shown in enumerate(is_shown) if shown)
        units = "".join(chr(code) for code in codes if code <= sys.maxunicode)  # letters beyond U+FFFF are two of them
        return _plain(units.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "ignore"))
    finally:
        text_page.close()


def _parts(word: str) -> Sequence[str]:
    """Return the word, or parts of a text in a script without spaces, which the page may break anywhere."""
    return [word[at : at + _LONG_WORD] for at in range(0, len(word), _LONG_WORD)] if word[:1] >= _IDEOGRAMS else [word]


def _plain(text: str) -> str:
    """Return the letters and digits of a text, regardless of case."""
    return "".join(filter(str.isalnum, unicodedata.normalize("NFKC", text).casefold()))


def _picture(page: pypdfium2.PdfPage) -> tuple[tuple[int, ...], bytes]:
    pixels = page.render(scale=_COMPARED / 72).to_numpy()
    return pixels.shape, pixels.tobytes()


def with_text(source: bytes, shown: pypdfium2.PdfDocument, pages: Mapping[str, bytes]) -> bytes:
    """Return a document with the text of its pages.

    Old text is removed, and the page compared. A page that would look different keeps the text below its images; if it
    would still look different, it stays as it is.

    Args:
        source: The bytes of the document.
        shown: The same document, in pdfium.
        pages: The text of pages by their numbers, as JSON of `pdf.page_wire`.

    Returns:
        The source with an update; the source itself if no page gets text; or a new file, see `_MOST_ADDED`.

    Raises:
        PageFailure: The document is too damaged.
    """
    texts = {int(number): _PageText(**json.loads(data)) for number, data in pages.items()}
    numbers = [number for number, text in texts.items() if text.lines and 1 <= number <= len(shown)]
    pdf, is_sound = _editable(source, shown)
    frames = {number: page_frame(shown[number - 1]) for number in numbers}
    visible = {number: _visible(shown[number - 1]) for number in numbers}
    before = {number: pdf.pages[number - 1].obj.get(Name.Contents) for number in numbers}
    bared: dict[int, pikepdf.Object] = {}  # the contents of pages without their old text
    left: set[int] = set()
    different = numbers
    for below in (True, False):
        tried: dict[int, pikepdf.Object] = {}
        for number in different:
            page = pdf.pages[number - 1]
            try:
                content = _without_hidden(page, frames[number], below=below)
            except (pikepdf.PdfError, TypeError, ValueError):  # an operation without its operands
                left.add(number)
                continue
            if content is not None:
                page.obj.Contents = tried[number] = _stream(pdf, content)
        different = []
        if tried:
            with pypdfium2.PdfDocument(_saved(pdf)) as bare:
                for number, stream in tried.items():
                    if _picture(bare[number - 1]) == _picture(shown[number - 1]):
                        visible[number], bared[number] = _visible(bare[number - 1]), stream
                    else:
                        different.append(number)
                        pdf.pages[number - 1].obj.Contents = before[number]
    texts = {number: texts[number].lacking(visible[number]) for number in numbers}
    left.update(different, (number for number in numbers if not texts[number].lines))
    for number in left:
        del frames[number]
        if before[number] is not None:
            pdf.pages[number - 1].obj.Contents = before[number]
    if not frames:
        return source
    changed = [*_draw(pdf, texts, frames), *(stream for number, stream in bared.items() if number in frames)]
    if not is_sound:
        return _saved(pdf)
    update = _appended(source, pdf, changed)
    return update if len(update) <= (1 + _MOST_ADDED) * len(source) else min(update, _saved(pdf), key=len)


#: Largest size of an update as a share of the source. Above it, the smaller of the update and a new file is written.
_MOST_ADDED = 0.05
_START = re.compile(rb"startxref\s+(\d+)\s+%%EOF\s*\Z")
#: Warnings of pikepdf about files that all readers understand.
_HARMLESS = ("object has offset 0", "reported number of objects")


def _editable(source: bytes, shown: pypdfium2.PdfDocument) -> tuple[pikepdf.Pdf, bool]:
    """Return a document to edit, and whether its bytes can be continued.

    A damaged or encrypted document is as pdfium repairs and decrypts it.

    Raises:
        PageFailure: What pdfium makes of it is damaged, too.
    """
    try:
        pdf = pikepdf.open(io.BytesIO(source), attempt_recovery=False, suppress_warnings=True)
        if source.startswith(b"%PDF-") and _START.search(source) and not pdf.is_encrypted:
            is_whole = len(pdf.pages) == len(shown) and len(pdf.objects) > 0  # which reads all objects
            if is_whole and all(any(text in str(one) for text in _HARMLESS) for one in pdf.get_warnings()):
                return pdf, True
    except (pikepdf.PdfError, pikepdf.PasswordError):
        pass
    buffer = io.BytesIO()
    shown.save(buffer, flags=pdfium.FPDF_REMOVE_SECURITY)
    try:
        return pikepdf.open(buffer, suppress_warnings=True), False
    except pikepdf.PdfError as error:
        raise PageFailure(Reason.UNREADABLE, "the document is too damaged to be written") from error


def _saved(pdf: pikepdf.Pdf) -> bytes:
    buffer = io.BytesIO()
    pdf.save(buffer, deterministic_id=True)
    return buffer.getvalue()


def _appended(source: bytes, pdf: pikepdf.Pdf, changed: Sequence[pikepdf.Object]) -> bytes:
    """Return the source with objects after it, and with their table, or a stream as the source has (7.5.4, 7.5.8)."""
    out = bytearray(source)
    out += b"\n"
    places: dict[tuple[int, int], int] = {}

    def add(one: pikepdf.Object) -> None:
        places[one.objgen] = len(out)
        body = one.unparse(resolved=True)
        if isinstance(one, pikepdf.Stream):
            data = one.read_raw_bytes()
            about = copy(one.stream_dict)
            about.Length = len(data)
            body = b"%b\nstream\n%b\nendstream" % (about.unparse(), data)
        out.extend(b"%d %d obj\n%b\nendobj\n" % (*one.objgen, body))

    for one in changed:
        add(one)
    start, end = _START.search(source), len(out)
    trailer = Dictionary(Prev=int(start[1]) if start else 0)
    for name in ("/Root", "/Info", "/ID"):
        if name in pdf.trailer:
            trailer[name] = pdf.trailer[name]
    table = pdf.make_stream(b"") if pdf.trailer.get("/Type") == "/XRef" else None
    if table is not None:
        places[table.objgen] = end
    trailer.Size = max(int(pdf.trailer.Size), *(number + 1 for number, _ in places))
    if table is not None:
        table.stream_dict = trailer
        table.Type, table.W = Name.XRef, Array([1, 8, 2])
        table.Index = Array([part for number, _ in places for part in (number, 1)])
        table.write(b"".join(struct.pack(">BQH", 1, at, generation) for (_, generation), at in places.items()))
        add(table)
    else:
        rows = (b"%d 1\n%010d %05d n \n" % (number, at, generation) for (number, generation), at in places.items())
        out += b"xref\n%btrailer\n%b\n" % (b"".join(rows), trailer.unparse())
    out += b"startxref\n%d\n%%%%EOF\n" % end
    return bytes(out)
