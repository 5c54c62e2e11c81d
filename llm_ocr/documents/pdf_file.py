"""Open a PDF in the worker process: count, render, and read its pages."""

import contextlib
import ctypes
import functools
import math
import pkgutil
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, Self

import pypdfium2
import pypdfium2.raw as pdfium

from llm_ocr.documents import poppler
from llm_ocr.documents.damage import content_damage, image_damage
from llm_ocr.documents.files import FdFile, UncountedFile, without_counts
from llm_ocr.documents.hidden_text import drop_contradicted_names, hide_covered_text
from llm_ocr.documents.images import MIN_SIDE, grayscale_if_equal, longest_side
from llm_ocr.documents.ink import LONGEST, ink_of
from llm_ocr.documents.pdf_objects import (
    Frame,
    Objects,
    check_boxes,
    drawn_check_boxes,
    has_bare_notes,
    has_fields,
    page_frame,
    page_objects,
    placeholder,
    with_check_boxes,
)
from llm_ocr.documents.text_layer import without_lookalikes
from llm_ocr.errors import PageFailure
from llm_ocr.types import DIRECTIONS, SCAN, Box, Evidence, InkMap, Line, PageContent, Reason

if TYPE_CHECKING:
    from PIL import Image


#: Limit of a page's characters, above which its text is skipped: maps have 40,000, which take 0.1 s.
_MOST_CHARACTERS = 25_000
#: Letters of scripts for which pdfium has no font of its own.
_NO_LATIN = re.compile(r"[\u0370-\u1dff\u2e80-\ufaff\ufe30-\uffef]")
#: Range of brightness (of 255) of a part of a picture without text, and highest color value of dark text.
_ONE_COLOR, _DARK = 24, 200
#: Largest difference of gray values, of 255, that is not visible, and of the values of a color. Height of text in
#: pixels that shows its letters.
_UNSEEN, _UNSEEN_COLOR, _LEAST_PIXELS = 8, 64, 3.0
#: Share of a line's height at its sides that is not compared, and width in heights of a part without letters.
_MARGIN, _GAP = 0.1, 1.2
#: Height in pixels of the small picture up to which a line is compared as a whole.
_SMALL = 4
_WORD = re.compile(r"\S+")
#: Letters and digits of a word, with what is between them.
_LETTERS = re.compile(r"[^\W_](?:.*[^\W_])?")
#: pdfium's mark for a hyphen in a broken word (U+FFFE, or U+0002 in older releases), and marks of the direction, which
#: are not text of the page.
_NO_TEXT = dict.fromkeys((0xFFFE, 0x0002, *DIRECTIONS))
#: Glyphs without a mapping, and right-to-left letters: pdfium's text of these has wrong letters, or the wrong order.
_UNSURE = re.compile(r"[\x00-\x01\x03-\x08\x0b\x0c\x0e-\x1f\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]")


def evidence_of(
    page: pypdfium2.PdfPage, frame: Frame, objects: Objects, picture: "Image.Image", ink: InkMap, page_text: str
) -> Evidence:
    """Return the ink of a page, its share of images, and its lines to judge answers; takes 3 ms for most pages.

    The lines are pdfium's, without words that the picture does not show. On pages with right-to-left letters or
    undecoded glyphs, these are the lines of `page_text`, if there is one; also where pdfium takes the text of a sparse
    page, such as a table of contents, for vertical writing, whose lines are single letters. The lines are left out if
    form fields that could not be flattened contain text.
    """
    area = max(frame.width * frame.height, 1e-6)
    pictured = min(1.0, sum(raster.box.area for raster in objects.rasters) / area)
    lines, undrawn, invisible = _layer_lines(page, frame, picture)
    lines = () if has_fields(page) else lines
    covered = bool(objects.covered)
    single = 2 * sum(len(text) == 1 for text, _ in lines) > len(lines)
    if page_text and (covered or single or any(_UNSURE.search(text) for text, _ in lines)):
        width, height = 1 / max(frame.width, 1e-6), 1 / max(frame.height, 1e-6)
        found = _imported(page_text)(page, objects, picture if invisible or covered else None).lines
        lines = tuple((line.text, line.box.scaled(width, height).clipped()) for line in found)
    return Evidence(ink, lines, round(pictured, 4), round(undrawn, 4), invisible + objects.covered_characters)


#: Returns the content of a page, without words that the picture does not show.
PageText = Callable[[pypdfium2.PdfPage, Objects, "Image.Image | None"], PageContent]


@functools.cache
def _imported(page_text: str) -> PageText:
    """Import the engine's function at its first use: it requires numpy, which a worker that only renders does not."""
    found: PageText = pkgutil.resolve_name(page_text)
    return found


def _plain_content(page: pypdfium2.PdfPage, objects: Objects, picture: "Image.Image | None") -> PageContent:
    """Return the lines of pdfium and the objects of a page: the content if no engine reads its text."""
    frame = page_frame(page)
    found, _, invisible = _layer_lines(page, frame, picture)
    boxes = [(text, box.scaled(frame.width, frame.height)) for text, box in found]
    lines = tuple(Line(text, box, min(box.width, box.height)) for text, box in boxes)
    objects_of_page = tuple(objects.rasters), tuple(objects.paths)
    return PageContent(frame.width, frame.height, lines, *objects_of_page, invisible=invisible)


def _layer_lines(
    page: pypdfium2.PdfPage, frame: Frame, picture: "Image.Image | None"
) -> tuple[tuple[tuple[str, Box], ...], float, int]:
    """Return the lines with their relative boxes, the undrawn share of their characters, and the invisible ones.

    The lines are without words that the picture does not show. A font that neither the file nor the system has is no
    reason to leave them out.
    """
    text_page = page.get_textpage()
    try:
        if not 0 < text_page.count_chars() <= _MOST_CHARACTERS:
            return (), 0.0, 0
        lines, lost, start, total, invisible = [], 0.0, 0, 0, 0
        edges = _Edges(picture) if picture is not None else None
        for line in text_page.get_text_range().split("\r\n"):
            pieces = _pieces(text_page, frame, start, _count(line)) if line.strip() else []
            if pieces:
                shown, around, empty, total = line, _around(pieces), 0.0, total + len(line)
                if picture is not None and _NO_LATIN.search(line):
                    empty = sum(piece.length for piece in pieces if _is_undrawn(text_page, piece, picture))
                    lost += len(line) * empty / max(sum(piece.length for piece in pieces), 1e-9)
                # The whole line first: some files have a piece for each character.
                if edges and not empty and edges.have_gap(around) and any(edges.have_gap(one.box) for one in pieces):
                    words, places, count = _visible_words(text_page, frame, start, line, edges.picture)
                    if count:
                        shown, pieces, around = " ".join(words), places, _around(places or pieces)
                        invisible += count
                if pieces:
                    lines.append((without_lookalikes(shown.translate(_NO_TEXT)), around.clipped()))
            start += _count(line) + 2
        return tuple(lines), lost / max(1, total), invisible
    finally:
        text_page.close()


def _count(text: str) -> int:
    """Return the number of pdfium's characters: a letter beyond U+FFFF, as in formulas, is two."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


class _Piece(NamedTuple):
    """Part of a line in one text object: its relative box, and its center in user space."""

    box: Box
    x: float
    y: float

    @property
    def length(self) -> float:
        return max(self.box.width, self.box.height)


def _around(pieces: Sequence[_Piece]) -> Box:
    return functools.reduce(Box.union, (piece.box for piece in pieces))


def _pieces(text_page: pypdfium2.PdfTextPage, frame: Frame, start: int, count: int) -> list[_Piece]:
    """Return the parts of a line that have a place."""
    left, top, right, bottom = (ctypes.c_double() for _ in range(4))
    found = []
    for index in range(max(0, pdfium.FPDFText_CountRects(text_page, start, count))):
        if pdfium.FPDFText_GetRect(text_page, index, left, top, right, bottom):
            box = frame.box(left.value, bottom.value, right.value, top.value)
            middle = (left.value + right.value) / 2, (top.value + bottom.value) / 2
            found.append(_Piece(box.scaled(1 / frame.width, 1 / frame.height), *middle))
    return found


class _Edges:
    """Small copy of a picture, white where adjacent pixels visibly differ, as in letters."""

    def __init__(self, picture: "Image.Image") -> None:
        from PIL import ImageChops

        self.picture = picture
        # One channel is enough: what it lacks, such as green on white, is looked for in all of them.
        gray = picture if picture.mode == "L" else picture.getchannel(1)
        small = gray.reduce(max(1, round(max(gray.size) / LONGEST)))
        across = ImageChops.difference(small, ImageChops.offset(small, 1, 0))
        down = ImageChops.difference(small, ImageChops.offset(small, 0, 1))
        self._image = ImageChops.lighter(across, down).point([255 * (value > _UNSEEN) for value in range(256)])
        self._bytes = self._image.tobytes()

    def have_gap(self, box: Box) -> bool:
        """Return whether a part of a line that is longer than it is high has no edges: a wide gap, a bar, nothing."""
        width, height = self._image.size
        left, right = max(0, int(box.x0 * width)), min(width, math.ceil(box.x1 * width))
        top, bottom = max(0, int(box.y0 * height)), min(height, math.ceil(box.y1 * height))
        lies, high = right - left >= bottom - top, min(right - left, bottom - top)
        if high <= 0:  # outside of the page
            return True
        length = max(2, min(round(_GAP * high), max(right - left, bottom - top)))
        sides = int(high > _SMALL)  # where a bar may end
        rows = (self._bytes[width * row + left : width * row + right] for row in range(top + sides, bottom - sides))
        if max(right - left, bottom - top) <= length:  # a single letter
            return not any(map(any, rows))
        if lies and any(bytes(length) not in row for row in rows):  # takes a tenth of the time of a projection
            return False
        across, down = (0, sides) if lies else (sides, 0)
        part = self._image.crop((left + across, top + down, right - across, bottom - down))
        return bytes(length) in bytes(part.getprojection()[0 if lies else 1])


def _visible_words(
    text_page: pypdfium2.PdfTextPage, frame: Frame, start: int, line: str, picture: "Image.Image"
) -> tuple[list[str], list[_Piece], int]:
    """Return the words of a line that the picture shows, their places, and how many characters the others have."""
    shown, places, invisible = [], [], 0
    for word in _WORD.finditer(line):
        first = start + _count(line[: word.start()])
        pieces = _pieces(text_page, frame, first, _count(word[0]))
        letters = sum(map(str.isalnum, word[0]))
        judged = pieces
        if (inner := _LETTERS.search(word[0])) and inner[0] != word[0]:  # a bar may end before a comma
            judged = _pieces(text_page, frame, first + _count(word[0][: inner.start()]), _count(inner[0]))
        if letters and judged and all(_is_plain(picture, piece.box, letters) for piece in judged):
            invisible += len(word[0].translate(_NO_TEXT))
        else:
            shown.append(word[0])
            places += pieces
    return shown, places, invisible


def _is_plain(picture: "Image.Image", box: Box, letters: int) -> bool:
    """Return whether the picture has one color where it should show letters; a place outside of it has none.

    A bar may end at the sides of the box. A single letter, such as an I, may fill its box, but not more.
    """
    place = box.scaled(picture.width, picture.height)
    lower, longer = sorted((place.width, place.height))
    if longer < 1 or (lower < _LEAST_PIXELS and letters > 1):  # a character without a place, or too small
        return False
    room = _MARGIN * lower * (1 if letters > 1 else -3)
    left, top = max(0, int(place.x0 + room)), max(0, int(place.y0 + room))
    right, bottom = min(picture.width, int(place.x1 - room) + 1), min(picture.height, int(place.y1 - room) + 1)
    if left >= right or top >= bottom:
        return True
    part = picture.crop((left, top, right, bottom))
    levels = part.convert("L").tobytes()
    if max(levels) - min(levels) > _UNSEEN:
        return False
    bands = part.convert("RGB").split() if part.mode != "L" else ()
    values = (band.tobytes() for band in bands)
    return all(max(band) - min(band) <= _UNSEEN_COLOR for band in values)


def _is_undrawn(text_page: pypdfium2.PdfTextPage, piece: _Piece, picture: "Image.Image") -> bool:
    """Return whether nothing is drawn at visible text whose font is not in the file; pdfium has only Latin fonts."""
    place = piece.box.clipped().scaled(picture.width, picture.height)
    part = picture.crop((int(place.x0), int(place.y0), math.ceil(place.x1), math.ceil(place.y1)))
    levels = part.convert("L").tobytes()
    if not levels or max(levels) - min(levels) >= _ONE_COLOR:
        return False
    index = pdfium.FPDFText_GetCharIndexAtPos(text_page, piece.x, piece.y, 2.0, 2.0)
    drawn = pdfium.FPDFText_GetTextObject(text_page, index) if index >= 0 else None
    if not drawn or pdfium.FPDFTextObj_GetTextRenderMode(drawn) == pdfium.FPDF_TEXTRENDERMODE_INVISIBLE:
        return False
    colour = [ctypes.c_uint() for _ in range(4)]
    if not pdfium.FPDFPageObj_GetFillColor(drawn, *colour) or min(level.value for level in colour[:3]) > _DARK:
        return False
    font = pdfium.FPDFTextObj_GetFont(drawn)
    return bool(font) and not pdfium.FPDFFont_GetIsEmbedded(font)


#: Maximum pixels per point: 288 dpi. A small page is not enlarged to the full size.
MAX_SCALE = 4.0
#: Longest side in pixels of the picture of a page that is read without its image.
_SKETCH = 1536
#: Share of the memory limit that one decoded image may occupy. pdfium silently skips images that exceed its memory. So
#: such a page must be refused before rendering.
IMAGE_SHARE = 0.7
#: pdfium silently draws nothing for images with more bytes than this, whatever the memory (seen with 5.15.2).
_IMAGE_BYTES = (1 << 31) - 1
#: Number of pages whose text is kept for comparison with their neighbors.
_KEPT_PAGES = 16
#: Largest page count that is accepted without a check; for more pages, the number of checked pages across the document.
_BELIEVED, _LOOKED_AT = 1000, 16
#: Largest page count that is compared with the pages of the page tree, which takes 0.1 s.
_COUNTED = 5000


@dataclass(frozen=True, slots=True)
class Look:
    """Options of page rendering. `timeout` in seconds applies only to poppler's processes; `memory` is in bytes.

    `size` is the longest side of page images in pixels, `scan_size` of scans that are as large themselves. `page_text`
    is the import path of a `PageText`; "" for pdfium's lines. With `keep_invisible`, contents have the words that the
    picture does not show.
    """

    size: int
    scan_size: int
    renderer: str
    timeout: float
    memory: int
    page_text: str = ""
    keep_invisible: bool = False


@dataclass(frozen=True, slots=True)
class DrawnPage:
    """Page as shown, in grayscale, RGB, or RGBX, with the evidence for judging answers.

    `content` is None if not requested, or if only poppler can read the page. `damage`: what is missing from the page.
    """

    image: "Image.Image"
    evidence: Evidence
    content: PageContent | None = None
    damage: str = ""


class PdfFile:
    """Opened PDF. Raises `PageFailure` `unreadable` or `encrypted`."""

    def __init__(self, file: FdFile, passwords: Sequence[str], look: Look) -> None:
        self._file = file
        self._source: FdFile | bytes = file  # what pdfium opens
        self._look = look
        self._password = ""
        #: Document in pdfium; None if only poppler can read it.
        self.opened: pypdfium2.PdfDocument | None = None
        self._flattened: pypdfium2.PdfDocument | None = None
        self._is_whole: dict[int, bool] = {}  # whether a flattened page has all that it had before
        self._contents: dict[int, PageContent] = {}
        #: For what the pages are placeholders; see `pdf_objects.placeholder`.
        self.placeholder = ""
        self._damage = ""  # of the page tree
        self.pages = 0
        try:
            self._open(["", *passwords])
        except PageFailure as failure:
            if failure.reason is not Reason.UNREADABLE or not poppler.installed():
                raise
            for password in ("", *passwords):
                try:
                    self.pages = poppler.page_count(self._file, password, self._look.timeout)
                except PageFailure:
                    continue
                self._password = password
                break
            if self.pages < 1:
                raise
        # Pages across the document, the last one first, without the first page, which may be the only one.
        checked = (1 + place * (self.pages - 1) // _LOOKED_AT for place in range(_LOOKED_AT, 0, -1))
        if self.pages > _BELIEVED and not any(map(self._has, checked)):
            raise PageFailure(Reason.UNREADABLE, f"the file declares {self.pages:,} pages, but nearly all are missing")

    def _has(self, number: int) -> bool:
        try:
            if self.opened is not None:
                self.opened[number - 1].close()
            else:
                poppler.page_size(self._file, number, password=self._password, timeout=self._look.timeout)
        except (pypdfium2.PdfiumError, PageFailure):
            return False
        return True

    def _open(self, passwords: Sequence[str]) -> None:
        for password in passwords:
            # A PDF without pages sets no error code, so that an older code, such as that of a missing password, would
            # remain. The empty document resets it: it is refused as not a PDF.
            pdfium.FPDF_LoadMemDocument64(b"", 0, None)
            try:
                self.opened = pypdfium2.PdfDocument(self._file, password=password or None)
            except pypdfium2.PdfiumError as error:
                if error.err_code == pdfium.FPDF_ERR_PASSWORD:
                    continue
                if error.err_code == pdfium.FPDF_ERR_SECURITY:
                    raise PageFailure(Reason.ENCRYPTED, "encrypted with an unsupported method") from error
                if error.err_code in (pdfium.FPDF_ERR_FORMAT, pdfium.FPDF_ERR_UNKNOWN):
                    why = "not a readable PDF: damaged, empty, or without pages"
                    raise PageFailure(Reason.UNREADABLE, why) from error
                raise PageFailure(Reason.UNREADABLE, str(error)) from error
            self._password = password
            self.pages = len(self.opened)
            if self.pages <= _COUNTED:
                self._count(self.opened)
            self.opened.init_forms()
            self.placeholder = placeholder(self.opened)
            return
        given = (
            f"none of the {len(passwords) - 1} passwords given opens it" if len(passwords) > 1 else "no password given"
        )
        raise PageFailure(Reason.ENCRYPTED, given, hint="Give the password with `password_file`.")

    def _count(self, opened: pypdfium2.PdfDocument) -> None:
        """Open the document with all pages of a page tree that has more than it says, or note that it is damaged."""
        with UncountedFile(self._file.fileno(), self._file.name) as file:
            try:
                with contextlib.closing(pypdfium2.PdfDocument(file, password=self._password or None)) as counted:
                    pages = len(counted)
            except pypdfium2.PdfiumError:  # all pages are missing
                return
        if pages > self.pages:
            self._damage = "the page tree of the file has more pages than it says"
            with contextlib.suppress(pypdfium2.PdfiumError):
                data = without_counts(self._file)
                whole = pypdfium2.PdfDocument(data, password=self._password or None)
                if len(whole) == pages:
                    self.opened, self._source, self.pages, self._damage = whole, data, pages, ""
                    opened.close()
                else:
                    whole.close()
        elif pages < self.pages:
            with contextlib.suppress(pypdfium2.PdfiumError):  # a page is missing
                for index in range(self.pages):
                    opened.get_page_size(index)
                # pdfium counts a tree inside of itself once, but finds its pages again and again.
                self._damage = "the page tree of the file contains itself: pages may be repeated, or missing"

    def close(self) -> None:
        """Free pdfium's resources."""
        for opened in (self._flattened, self.opened):
            if opened is not None:
                opened.close()
        self._file.close()

    def page(self, number: int, *, text_layer: bool) -> DrawnPage:
        """Return page `number`. Raises `PageFailure` for a damaged page that shows nothing."""
        loaded = self._loaded(number)
        if loaded is None:
            image = self._by_poppler(number, self._look.size)
            return DrawnPage(image, Evidence(ink_of(image)))
        try:
            self._check_size(*loaded.get_size())
            frame = page_frame(loaded)
            objects = page_objects(loaded, frame, paths=text_layer)
            self._check_images(objects.largest_image)
            self._hide(loaded, number, frame, objects)
            # At most the scan's own pixels, which show its smallest letters.
            scanned = int(max(loaded.get_size()) * objects.scan_resolution(frame))
            size = max(self._look.size, min(self._look.scan_size, scanned))
            poppler_draws = self._look.renderer == "poppler"
            image = self._by_poppler(number, size) if poppler_draws else self._rendered(loaded, size)
            image = grayscale_if_equal(image)
            ink = ink_of(image)
            self._without_named(objects)
            with self._with_values(loaded, number) as flat:
                evidence = evidence_of(flat, frame, objects, image, ink, self._look.page_text)
            damage = self._damage or image_damage(loaded, objects.images_at, frame, ink)
            if not damage and evidence.pictured < SCAN and self.opened is not None:
                damage = content_damage(self.opened, number)
            if damage and ink.blank and not (evidence.lines or evidence.invisible):
                raise PageFailure(Reason.UNREADABLE, damage)
            content = self._content(number, loaded, objects, image) if text_layer else None
            return DrawnPage(image, evidence, content, damage)
        finally:
            loaded.close()

    def content(self, number: int) -> PageContent | None:
        """Return the content of page `number` without its image; None if only poppler can read it."""
        if number in self._contents:
            return self._contents[number]
        loaded = self._loaded(number)
        if loaded is None:
            return None
        with contextlib.closing(loaded):
            frame = page_frame(loaded)
            objects = page_objects(loaded, frame)
            picture = None  # a small one, which shows which words are visible
            with contextlib.suppress(PageFailure):  # the page cannot be rendered
                self._check_size(*loaded.get_size())
                self._check_images(objects.largest_image)
                self._hide(loaded, number, frame, objects)
                picture = self._rendered(loaded, min(self._look.size, _SKETCH))
                self._without_named(objects)
            return self._content(number, loaded, objects, picture)

    def _loaded(self, number: int) -> pypdfium2.PdfPage | None:
        """Return the page in pdfium; None if only poppler can read it. Raises `PageFailure` for a missing page."""
        if not 1 <= number <= self.pages:
            raise PageFailure(Reason.NO_SUCH_PAGE, f"page {number} of {self.pages}")
        if self.opened is None:
            return None
        try:
            return self.opened[number - 1]
        except pypdfium2.PdfiumError as error:
            # poppler does not count a page that the file lacks. If it has the last page, its numbers are pdfium's.
            password, timeout = self._password, self._look.timeout
            if poppler.installed() and all(
                poppler.page_size(self._file, self.pages, password=password, timeout=timeout)
            ):
                return None
            raise PageFailure(Reason.UNREADABLE, f"page {number} cannot be loaded") from error

    def _check_size(self, width: float, height: float) -> None:
        """Check the sides in points. Damaged pages have sides of zero, or sides that are not numbers."""
        if not (0 < width < math.inf and 0 < height < math.inf):
            raise PageFailure(Reason.UNREADABLE, "the page has no size")
        if min(width, height) * min(self._look.size / max(width, height), MAX_SCALE) < MIN_SIDE:
            raise PageFailure(Reason.RENDER_LIMIT, f"a page of {width:g} x {height:g} points is too narrow to read")

    def _check_images(self, largest: int) -> None:
        allowed = min(IMAGE_SHARE * self._look.memory, _IMAGE_BYTES)
        if largest > allowed:
            raise PageFailure(
                Reason.RENDER_LIMIT,
                f"an image of the page takes {largest >> 20} MiB, and the limit is {int(allowed) >> 20} MiB",
                hint="If you trust the document, increase `render_memory`.",
            )

    def _rendered(self, page: pypdfium2.PdfPage, size: int) -> "Image.Image":
        width, height = page.get_size()
        scale = _scale(width, height, size) * (1 - 1e-7)  # sizes are rounded up; avoids an additional pixel
        # Pillow can use RGBX without a copy.
        image: Image.Image = page.render(scale=scale, rev_byteorder=True, prefer_bgrx=True).to_pil()
        return image

    def _by_poppler(self, number: int, size: int) -> "Image.Image":
        timeout = self._look.timeout
        width, height = poppler.page_size(self._file, number, password=self._password, timeout=timeout)
        self._check_size(width, height)
        longest = max(1, round(max(width, height) * _scale(width, height, size)))
        return poppler.render(self._file, number, longest, password=self._password, timeout=timeout)

    def _content(
        self, number: int, page: pypdfium2.PdfPage, objects: Objects, picture: "Image.Image | None"
    ) -> PageContent:
        """Read the page's text, and keep it. Form values and free-text notes are included."""
        while len(self._contents) >= _KEPT_PAGES:
            del self._contents[next(iter(self._contents))]
        page_content = _imported(self._look.page_text) if self._look.page_text else _plain_content
        with self._with_values(page, number) as flat:
            if flat is not page:
                frame = page_frame(flat)
                objects = page_objects(flat, frame)
                self._hide(flat, number, frame, objects)
                self._without_named(objects)
            content = page_content(flat, objects, picture)
            content = replace(content, invisible=content.invisible + objects.covered_characters)
            if content.invisible and self._look.keep_invisible:
                for covered in objects.covered:
                    pdfium.FPDFPageObj_SetIsActive(covered.handle, True)
                every_word = replace(page_content(flat, objects, None), invisible=content.invisible)
                content = replace(every_word, with_invisible=True)
        boxes = check_boxes(page, page_frame(page)) or drawn_check_boxes(content)
        self._contents[number] = with_check_boxes(content, boxes)
        return self._contents[number]

    @staticmethod
    def _hide(page: pypdfium2.PdfPage, number: int, frame: Frame, objects: Objects) -> None:
        """Hide the text of the page that it draws over, and texts that its glyphs contradict, from all readers."""
        hide_covered_text(page, frame, objects)
        drop_contradicted_names(page, number, objects)

    @staticmethod
    def _without_named(objects: Objects) -> None:
        """Deactivate the text objects that are read with another one, and are drawn; pdfium would read them twice."""
        for named in objects.named:
            for handle in named.others:
                pdfium.FPDFPageObj_SetIsActive(handle, False)

    @contextlib.contextmanager
    def _with_values(self, page: pypdfium2.PdfPage, number: int) -> Iterator[pypdfium2.PdfPage]:
        """Yield the page with the values of its form fields and its free-text notes as text, or `page` without any.

        pdfium does not read annotations, so they are flattened. This is done in a second document: the picture of a
        flattened page differs, and a page must not depend on which pages were read before. pdfium flattens a page
        without the fonts and images that it inherits from the page tree. A copy of such a page has them, but no tags.
        """
        if self.opened is None or not has_fields(page):
            yield page
            return
        if self._flattened is None:
            self._flattened = self._with_forms()
        if number not in self._is_whole:
            before, after = _flatten(self._flattened, number - 1)
            self._is_whole[number] = after.continues(before)
        if self._is_whole[number]:
            with contextlib.closing(self._flattened[number - 1]) as flat:
                yield flat
            return
        with contextlib.closing(self._with_forms()) as whole, pypdfium2.PdfDocument.new() as copy:
            with contextlib.closing(whole[number - 1]) as unchanged, contextlib.suppress(pypdfium2.PdfiumError):
                _draw_notes(unchanged)
                copy.import_pages(whole, [number - 1])
            if len(copy):  # a damaged page stays without its values
                _flatten(copy, 0)
            yield copy[0] if len(copy) else page

    def _with_forms(self) -> pypdfium2.PdfDocument:
        """Open the document once more, with the appearances of its form fields."""
        opened = pypdfium2.PdfDocument(self._source, password=self._password or None)
        opened.init_forms()
        return opened


def _draw_notes(page: pypdfium2.PdfPage) -> None:
    """Let pdfium make the appearances of free-text notes without one."""
    if has_bare_notes(page):
        page.render(scale=1 / max(1.0, *page.get_size()))


class _Drawn(NamedTuple):
    """Text of a page without spaces, and the boxes of its texts and images, in drawing order."""

    letters: str
    texts: list[Box]
    images: list[Box]

    @classmethod
    def of(cls, page: pypdfium2.PdfPage) -> Self:
        """Return what a page draws."""
        objects = page_objects(page, page_frame(page), paths=False)
        boxes = [[placed.box for placed in found] for found in (objects.texts_at, objects.images_at)]
        with contextlib.closing(page.get_textpage()) as text_page:
            has_few = text_page.count_chars() <= _MOST_CHARACTERS
            return cls("".join(text_page.get_text_range().split()) if has_few else "", *boxes)

    def continues(self, before: "_Drawn") -> bool:
        """Return whether all that was drawn before is drawn first, at the same places."""
        return all(found[: len(first)] == first for found, first in zip(self, before, strict=True))


def _flatten(document: pypdfium2.PdfDocument, index: int) -> tuple[_Drawn, _Drawn]:
    """Make the annotations of a page part of its content, and return what the page drew before, and what after."""
    with contextlib.closing(document[index]) as page:
        _draw_notes(page)
        before = _Drawn.of(page)
        pdfium.FPDFPage_Flatten(page, pdfium.FLAT_NORMALDISPLAY)
    with contextlib.closing(document[index]) as page:
        return before, _Drawn.of(page)


def _scale(width: float, height: float, size: int) -> float:
    return min(longest_side(width, height, size) / max(width, height), MAX_SCALE)
