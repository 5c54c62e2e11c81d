"""Read coordinates, images, vector objects, links, and check boxes of a PDF page, and find placeholder pages.

Coordinates are points of the page as shown: /Rotate and CropBox applied, y down.
"""

import contextlib
import ctypes
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import islice
from math import inf
from typing import Any, NamedTuple

import pypdfium2
import pypdfium2.raw as pdfium

from llm_ocr.types import SCAN, Box, Line, PageContent, Path, Raster, Word

Matrix = tuple[float, float, float, float, float, float]


@dataclass(frozen=True, slots=True)
class Frame:
    """Frame of a page. `matrix` maps a point of user space to the page as shown, `width` x `height` points."""

    matrix: Matrix
    width: float
    height: float

    def box(self, left: float, bottom: float, right: float, top: float) -> Box:
        """Return the box as shown of a rectangle in user space, not clipped."""
        a, b, c, d, e, f = self.matrix
        xs = (a * left + c * bottom + e, a * right + c * top + e, a * left + c * top + e, a * right + c * bottom + e)
        ys = (b * left + d * bottom + f, b * right + d * top + f, b * left + d * top + f, b * right + d * bottom + f)
        return Box(min(xs), min(ys), max(xs), max(ys))

    def within(self, inner: Matrix) -> "Frame":
        """Return the frame for the content of a form XObject with the matrix `inner`."""
        return Frame(multiplied(inner, self.matrix), self.width, self.height)


def multiplied(first: Matrix, then: Matrix) -> Matrix:
    """Return the matrix that applies `first`, then `then`."""
    a, b, c, d, e, f = first
    p, q, r, s, t, u = then
    return (a * p + b * r, a * q + b * s, c * p + d * r, c * q + d * s, e * p + f * r + t, e * q + f * s + u)


def page_frame(page: pypdfium2.PdfPage) -> Frame:
    """Return the page's frame from pdfium's own mapping, so that text and objects match the drawn positions."""
    width, height = page.get_size()
    longest = max(width, height, 1e-6)
    fine = 1e7 / longest  # FPDF_PageToDevice returns integers: the device has a resolution of 1e-7 of the page

    def shown(x: float, y: float) -> tuple[float, float]:
        across, down = ctypes.c_int(), ctypes.c_int()
        size = (max(1, round(width * fine)), max(1, round(height * fine)))
        pdfium.FPDF_PageToDevice(page, 0, 0, *size, 0, x, y, ctypes.byref(across), ctypes.byref(down))
        return across.value / fine, down.value / fine

    origin, right, up = shown(0, 0), shown(longest, 0), shown(0, longest)
    matrix = (
        (right[0] - origin[0]) / longest,
        (right[1] - origin[1]) / longest,
        (up[0] - origin[0]) / longest,
        (up[1] - origin[1]) / longest,
        origin[0],
        origin[1],
    )
    return Frame(matrix, width, height)


#: Maximum nesting of form XObjects; deeper content is ignored. The reference measurements used the same depth.
MAX_DEPTH = 8
#: Limits of read objects and kept vector objects per page: maps have hundreds of thousands, charts a few thousand.
MAX_OBJECTS = 60_000
MAX_PATHS = 20_000
#: Limit of a clip path's points; a longer path is ignored.
_MAX_CLIP_POINTS = 200

#: Maximum number of visible text objects on a scan: lines or words that a library or a court added.
_STAMP = 20
#: Minimum share of the page of an image that tells the scan's resolution: many scans consist of strips.
_STRIP = 0.02
#: Distance in points of the sides of strips of one image.
_TOUCHING = 0.5

#: Pixels above which an image's color depth matters, and above which it does not. A scanned sheet of A0 in black and
#: white has 280 million pixels.
_HUGE, _ABSURD = 100_000_000, 1_000_000_000

Colour = tuple[int, int, int]


class Placed(NamedTuple):
    """Text object that is not drawn invisibly, image, or bar. `box` in points as shown, `order` of drawing.

    The handle is valid until the page is closed.
    """

    handle: "_Handle"
    box: Box
    order: int


class Covered(NamedTuple):
    """Text object that others hide: as a whole, which has `characters` and is not active, or at a place."""

    handle: "_Handle"
    place: Box | None
    characters: int


class Named(NamedTuple):
    """Text object whose `/ActualText` has the letters of `others`, too, and the box around all, in points as shown."""

    handle: "_Handle"
    others: list["_Handle"]
    box: Box


@dataclass(slots=True)
class Objects:
    """Objects among the first `MAX_OBJECTS`. `largest_image`: bytes of the largest decoded image.

    `resolution`: pixels per point of the finest image that is no small detail. `texts`: visible text objects
    above the largest image. `bars`: opaque rectangles and straight strokes after the first text. `covered` and `named`
    are set by `hidden_text`.
    """

    rasters: list[Raster] = field(default_factory=list)
    paths: list[Path] = field(default_factory=list)
    largest_image: int = 0
    resolution: float = 0.0
    texts: int = 0
    texts_at: list[Placed] = field(default_factory=list)
    images_at: list[Placed] = field(default_factory=list)
    bars: list[Placed] = field(default_factory=list)
    covered: list[Covered] = field(default_factory=list)
    named: list[Named] = field(default_factory=list)

    @property
    def covered_characters(self) -> int:
        """Number of characters of the texts that are hidden as a whole."""
        return sum(covered.characters for covered in self.covered)

    def scan_resolution(self, frame: Frame) -> float:
        """Return the pixels per point of a scanned page; 0.0 for other pages.

        The text of older OCR is invisible, or drawn below the image. More visible text than a stamp means a slide
        with a background image.
        """
        covered = sum(raster.box.area for raster in self.rasters)
        scan = covered > SCAN * frame.width * frame.height and self.texts <= _STAMP
        return self.resolution if scan else 0.0


def page_objects(page: pypdfium2.PdfPage, frame: Frame, *, paths: bool = True) -> Objects:
    """Return the images and visible paths on the page, clipped to the page, in drawing order.

    Without `paths`, of which only bars are then read, it takes a third of the time.
    """
    found, examined = Objects(), 0
    for order, (handle, kind, where) in enumerate(islice(_walk(page, frame), MAX_OBJECTS)):
        if kind == pdfium.FPDF_PAGEOBJ_IMAGE:
            if (box := _add_image(found, page, handle, where)) is not None:
                found.images_at.append(Placed(handle, box, order))
        elif kind == pdfium.FPDF_PAGEOBJ_TEXT:
            if pdfium.FPDFTextObj_GetTextRenderMode(handle) == pdfium.FPDF_TEXTRENDERMODE_INVISIBLE:
                continue
            found.texts += found.texts <= _STAMP
            if (box := _visible(handle, where, clip=False)) is not None:
                found.texts_at.append(Placed(handle, box, order))
        elif kind == pdfium.FPDF_PAGEOBJ_PATH:
            above = bool(found.texts_at) and examined < _MOST_EXAMINED
            examined += above
            may_hide = above and _may_hide(handle, where)
            if not (paths or may_hide):
                continue
            path = _path(handle, where, with_slant=paths and len(found.paths) < _MOST_SLANTED)
            if path is not None and paths:
                found.paths.append(path)
            if path is not None and may_hide and (path.fill or path.segments == 2):
                found.bars.append(Placed(handle, path.box, order))
        elif not paths:
            continue
        elif kind == pdfium.FPDF_PAGEOBJ_SHADING and (box := _visible(handle, where, clip=True)) is not None:
            found.paths.append(Path(box, None, (128, 128, 128), 1))
        if len(found.paths) >= MAX_PATHS:
            break
    return found


def _add_image(found: Objects, page: pypdfium2.PdfPage, handle: "_Handle", where: Frame) -> Box | None:
    """Add an image, and return its visible box, if any."""
    across, down = ctypes.c_uint(), ctypes.c_uint()
    known = pdfium.FPDFImageObj_GetImagePixelSize(handle, across, down)  # not for a damaged image
    pixels = across.value * down.value if known else 0
    size = 3 * pixels  # bytes at 8 bits per channel
    if _HUGE <= pixels <= _ABSURD:  # pdfium may decode the image for its real depth
        about = pdfium.FPDF_IMAGEOBJ_METADATA()
        if pdfium.FPDFImageObj_GetImageMetadata(handle, page, about) and about.bits_per_pixel:
            size = pixels * max(1, about.bits_per_pixel // 8)
    found.largest_image = max(found.largest_image, size)
    if (box := _visible(handle, where, clip=True)) is not None:
        if found.rasters and _continues(found.rasters[-1].box, box):  # many scans consist of strips
            found.rasters[-1] = Raster(found.rasters[-1].box.union(box))
        else:
            found.rasters.append(Raster(box))
        if box.area > _STRIP * where.width * where.height:
            if box.area > SCAN * where.width * where.height:
                found.texts = 0
            # The root of the areas' ratio is the same for a turned image; a clipped image counts as finer.
            found.resolution = max(found.resolution, math.sqrt(pixels / box.area))
    return box


def _continues(strip: Box, box: Box) -> bool:
    """Return whether an image of the same width touches the one before at its top or bottom."""
    gaps = (box.x0 - strip.x0, box.x1 - strip.x1, min(abs(box.y0 - strip.y1), abs(strip.y0 - box.y1)))
    return all(abs(gap) < _TOUCHING for gap in gaps)


_Handle = Any  # a ctypes pointer to an FPDF_PAGEOBJECT


def _walk(page: pypdfium2.PdfPage, frame: Frame) -> Iterator[tuple[_Handle, int, Frame]]:
    """Yield all objects except text and forms; objects inside forms have the form's frame."""

    def level(count: int, get: Callable[[int], _Handle], frame: Frame, depth: int) -> Iterator[tuple[Any, int, Frame]]:
        for index in range(count):
            handle = get(index)
            kind = pdfium.FPDFPageObj_GetType(handle)
            if kind == pdfium.FPDF_PAGEOBJ_FORM:
                if depth < MAX_DEPTH:
                    yield from inside(handle, frame, depth)
            else:
                yield handle, kind, frame

    def inside(form: _Handle, frame: Frame, depth: int) -> Iterator[tuple[Any, int, Frame]]:
        matrix = pdfium.FS_MATRIX()
        if pdfium.FPDFPageObj_GetMatrix(form, matrix):
            frame = frame.within((matrix.a, matrix.b, matrix.c, matrix.d, matrix.e, matrix.f))
        count = pdfium.FPDFFormObj_CountObjects(form)
        return level(count, lambda index: pdfium.FPDFFormObj_GetObject(form, index), frame, depth + 1)

    raw = page.raw
    return level(pdfium.FPDFPage_CountObjects(raw), lambda index: pdfium.FPDFPage_GetObject(raw, index), frame, 1)


_bounds = tuple(ctypes.c_float() for _ in range(4))  # left, bottom, right, top; a worker has one thread
_colour = tuple(ctypes.c_uint() for _ in range(4))
_mode, _stroked = ctypes.c_int(), ctypes.c_int()
#: Least diagonal of a path whose slant is measured, as a share of the page's longer side: 42 points of A4, more than
#: that of a bullet or a large radio button (25).
_LEAST_SLANTED = 0.05
#: Number of paths of a page, of any size, after which no slant is measured, and limit of a path's measured points: they
#: bound the time to 0.1 s a page.
_MOST_SLANTED, _MOST_POINTS = 500, 60
#: Number of paths above texts that are examined as bars, which takes 0.1 s. Most segments of a rectangle, and largest
#: width in points of a rule, which is thinner than letters.
_MOST_EXAMINED, _SEGMENTS, _THIN = 10_000, 5, 3.0
#: Least sine of the angle between a slanted stroke and both axes.
_OFF_AXIS = 0.05


def _path(handle: _Handle, frame: Frame, *, with_slant: bool) -> Path | None:
    if not pdfium.FPDFPath_GetDrawMode(handle, _mode, _stroked):
        return None
    fill = _painted(pdfium.FPDFPageObj_GetFillColor, handle) if _mode.value else None
    stroke = _painted(pdfium.FPDFPageObj_GetStrokeColor, handle) if _stroked.value else None
    if fill is None and stroke is None:
        return None
    box = _visible(handle, frame, clip=False)
    if box is None:
        return None
    if max(box.width / frame.width, box.height / frame.height) > 0.05:  # often cut down to its place by a clip path
        box = _visible(handle, frame, clip=True)
        if box is None:
            return None
    segments = max(0, pdfium.FPDFPath_CountSegments(handle))
    large = math.hypot(box.width, box.height) > _LEAST_SLANTED * max(frame.width, frame.height)
    slant = _slant(handle, frame, segments) if large and with_slant else 0.0
    return Path(box, stroke, fill, segments, slant)


def _may_hide(handle: _Handle, frame: Frame) -> bool:
    """Return whether a path is opaque, has few segments, and is no thin rule."""
    if not 2 <= pdfium.FPDFPath_CountSegments(handle) <= _SEGMENTS or pdfium.FPDFPageObj_HasTransparency(handle):
        return False
    box = _visible(handle, frame, clip=False)
    return box is not None and min(box.width, box.height) > _THIN


def _slant(handle: _Handle, frame: Frame, segments: int) -> float:
    """Return the share of a path's length that follows neither axis of the page. A curve counts as two chords."""
    matrix = pdfium.FS_MATRIX()
    if not pdfium.FPDFPageObj_GetMatrix(handle, matrix):
        return 0.0
    a, b, c, d, _, _ = multiplied((matrix.a, matrix.b, matrix.c, matrix.d, 0.0, 0.0), frame.matrix)
    x, y = ctypes.c_float(), ctypes.c_float()
    length = slanted = 0.0
    last = (0.0, 0.0)
    control: list[tuple[float, float]] = []  # the control points of a curve come before its end
    for number in range(min(segments, _MOST_POINTS)):
        segment = pdfium.FPDFPath_GetPathSegment(handle, number)
        if not pdfium.FPDFPathSegment_GetPoint(segment, x, y):
            return 0.0
        here = (a * x.value + c * y.value, b * x.value + d * y.value)
        kind = pdfium.FPDFPathSegment_GetType(segment)
        if kind == pdfium.FPDF_SEGMENT_BEZIERTO and len(control) < 2:
            control.append(here)
            continue
        ends = [here]
        if len(control) == 2:
            (p, q), (r, s) = control
            ends.insert(0, ((last[0] + 3 * p + 3 * r + here[0]) / 8, (last[1] + 3 * q + 3 * s + here[1]) / 8))
        for end in ends if kind != pdfium.FPDF_SEGMENT_MOVETO else ():
            across, down = abs(end[0] - last[0]), abs(end[1] - last[1])
            step = math.hypot(across, down)
            length += step
            slanted += step if min(across, down) > _OFF_AXIS * step else 0.0
            last = end
        last, control = here, []
    return round(slanted / length, 2) if length else 0.0


def _painted(get: Callable[..., int], handle: _Handle) -> Colour | None:
    if not get(handle, *_colour):
        return None
    red, green, blue, alpha = (part.value for part in _colour)
    return (red, green, blue) if alpha else None


def _visible(handle: _Handle, frame: Frame, *, clip: bool) -> Box | None:
    """Return the object's box on the page; None if it is invisible."""
    if not pdfium.FPDFPageObj_GetBounds(handle, *_bounds):
        return None
    left, bottom, right, top = (part.value for part in _bounds)
    if clip and (cut := _clip_bounds(handle)) is not None:
        left, bottom, right, top = max(left, cut[0]), max(bottom, cut[1]), min(right, cut[2]), min(top, cut[3])
        if left > right or bottom > top:
            return None
    box = frame.box(left, bottom, right, top)
    if box.x1 < 0 or box.y1 < 0 or box.x0 > frame.width or box.y0 > frame.height:
        return None
    return box.clipped(frame.width, frame.height)


def _clip_bounds(handle: _Handle) -> tuple[float, float, float, float] | None:
    """Return the rectangle around the intersection of an object's clip paths; None without clip paths."""
    clip = pdfium.FPDFPageObj_GetClipPath(handle)
    count = pdfium.FPDFClipPath_CountPaths(clip) if clip else 0
    left, bottom, right, top = -1e9, -1e9, 1e9, 1e9
    x, y = ctypes.c_float(), ctypes.c_float()
    for index in range(min(count, 20)):
        segments = pdfium.FPDFClipPath_CountPathSegments(clip, index)
        xs, ys = [], []
        for number in range(segments if segments <= _MAX_CLIP_POINTS else 0):
            segment = pdfium.FPDFClipPath_GetPathSegment(clip, index, number)
            if segment and pdfium.FPDFPathSegment_GetPoint(segment, x, y):
                xs.append(x.value)
                ys.append(y.value)
        if xs:
            left, bottom = max(left, min(xs)), max(bottom, min(ys))
            right, top = min(right, max(xs)), min(top, max(ys))
    return (left, bottom, right, top) if count > 0 else None


#: Limits of a page's links and of an address's bytes.
_MOST_LINKS, _LONGEST_ADDRESS = 500, 2000
_ADDRESS = re.compile(r"(?:https?://|mailto:)[\x21-\x7e]+", re.IGNORECASE)


def page_links(page: pypdfium2.PdfPage, frame: Frame) -> list[tuple[Box, str]]:
    """Return rectangles and addresses of the page's links with the schemes http, https, and mailto.

    Links to places of the document have no meaning in Markdown.
    """
    found: list[tuple[Box, str]] = []
    place, link, area = ctypes.c_int(0), pdfium.FPDF_LINK(), pdfium.FS_RECTF()
    buffer = ctypes.create_string_buffer(_LONGEST_ADDRESS)
    for _ in range(_MOST_LINKS):
        if not pdfium.FPDFLink_Enumerate(page, ctypes.byref(place), ctypes.byref(link)):
            break
        action = pdfium.FPDFLink_GetAction(link)
        if not action or pdfium.FPDFAction_GetType(action) != pdfium.PDFACTION_URI or page.pdf is None:
            continue
        size = pdfium.FPDFAction_GetURIPath(page.pdf, action, buffer, _LONGEST_ADDRESS)
        address = buffer.value.decode("ascii", "replace").strip() if size <= _LONGEST_ADDRESS else ""
        if _ADDRESS.fullmatch(address) and pdfium.FPDFLink_GetAnnotRect(link, ctypes.byref(area)):
            found.append((frame.box(area.left, area.bottom, area.right, area.top), address))
    return found


#: Limit of a page's annotations, and of a document's attachments.
_MOST_ANNOTATIONS = 1000
_FILLED_IN = (pdfium.FPDF_ANNOT_WIDGET, pdfium.FPDF_ANNOT_FREETEXT)
_HIDING = (pdfium.FPDF_ANNOT_REDACT, pdfium.FPDF_ANNOT_SQUARE, pdfium.FPDF_ANNOT_STAMP)
#: Bytes of an empty text of pdfium, in UTF-16 with a zero at its end.
_EMPTY = 2
_BOXES = (pdfium.FPDF_FORMFIELD_CHECKBOX, pdfium.FPDF_FORMFIELD_RADIOBUTTON)
_UNSEEN = pdfium.FPDF_ANNOT_FLAG_HIDDEN | pdfium.FPDF_ANNOT_FLAG_NOVIEW
#: Largest distance between a check box and its label in font sizes.
_NEAR = 3.0
#: Side of a drawn check box in font sizes, ratio of its sides, and least ratio of two boxes of a form: pdfium counts
#: the pen of those with a border.
_DRAWN, _SQUARE, _ALIKE = (0.5, 2.0), (0.8, 1.25), 0.8
#: Fewest operators of a closed shape: a cross has two for each of its strokes, and a tick three.
_SIDES = 4
#: Least size of a mark relative to its box, lightest border, darkest white, and most boxes: more are a drawing.
_MARK, _BORDER, _WHITE, _MOST_DRAWN = 0.3, 200, 250, 200
#: Words that a form prints into a drawn box as its check mark.
_MARKS = frozenset("xX\N{MULTIPLICATION SIGN}\N{CHECK MARK}\N{HEAVY CHECK MARK}\N{BALLOT X}\N{HEAVY BALLOT X}●•")


@dataclass(frozen=True, slots=True)
class CheckBox:
    """Check box or radio button. `box` in page units as shown."""

    box: Box
    checked: bool


def annotations(page: pypdfium2.PdfPage) -> Iterator[pdfium.FPDF_ANNOTATION]:
    """Yield the page's annotations, each open until the next one."""
    for index in range(min(pdfium.FPDFPage_GetAnnotCount(page), _MOST_ANNOTATIONS)):
        annotation = pdfium.FPDFPage_GetAnnot(page, index)
        try:
            yield annotation
        finally:
            pdfium.FPDFPage_CloseAnnot(annotation)


def has_fields(page: pypdfium2.PdfPage) -> bool:
    """Return whether the page has form fields or free text."""
    return any(pdfium.FPDFAnnot_GetSubtype(annotation) in _FILLED_IN for annotation in annotations(page))


def has_bare_notes(page: pypdfium2.PdfPage) -> bool:
    """Return whether the page has free text without an appearance, which pdfium makes when it draws the page."""
    return any(
        pdfium.FPDFAnnot_GetSubtype(annotation) == pdfium.FPDF_ANNOT_FREETEXT
        and pdfium.FPDFAnnot_GetAP(annotation, pdfium.FPDF_ANNOT_APPEARANCEMODE_NORMAL, None, 0) <= _EMPTY
        for annotation in annotations(page)
    )


def notes_at(page: pypdfium2.PdfPage, frame: Frame) -> list[Box]:
    """Return the places of the annotations that may hide text: marks of redaction, rectangles, and stamps."""
    area, found = pdfium.FS_RECTF(), []
    for annotation in annotations(page):
        if pdfium.FPDFAnnot_GetSubtype(annotation) in _HIDING and pdfium.FPDFAnnot_GetRect(annotation, area):
            found.append(frame.box(area.left, area.bottom, area.right, area.top))
    return found


def check_boxes(page: pypdfium2.PdfPage, frame: Frame) -> tuple[CheckBox, ...]:
    """Return the visible check boxes and radio buttons of the page."""
    if page.formenv is None:
        return ()
    form, area = page.formenv.raw, pdfium.FS_RECTF()
    found = []
    for annotation in annotations(page):
        if (
            pdfium.FPDFAnnot_GetFormFieldType(form, annotation) in _BOXES
            and not pdfium.FPDFAnnot_GetFlags(annotation) & _UNSEEN
            and pdfium.FPDFAnnot_GetRect(annotation, ctypes.byref(area))
        ):
            box = frame.box(area.left, area.bottom, area.right, area.top)
            found.append(CheckBox(box, bool(pdfium.FPDFAnnot_IsChecked(form, annotation))))
    return tuple(found)


def drawn_check_boxes(content: PageContent) -> tuple[CheckBox, ...]:
    """Return the check boxes and radio buttons that are drawn beside lines: hollow, of one size, at least two.

    They are none if one of their size is not beside a line, touches another one, or has a word: these are symbols of a
    drawing, fields for single letters, and cells.
    """
    shapes = [
        path
        for path in content.paths
        if _SQUARE[0] * path.box.height < path.box.width < _SQUARE[1] * path.box.height and path.segments >= _SIDES
    ]
    shapes = [path for path in shapes if _is_dark(path.stroke) or _is_dark(path.fill)]
    groups: list[list[Path]] = []
    for path in sorted(shapes, key=lambda path: -path.box.width):  # a mark follows its box
        group = next((group for group in groups if path.box.width > _ALIKE * group[0].box.width), None)
        if group is None:
            groups.append([path])
        elif len(group) <= _MOST_DRAWN and not any(path.box.covered_by(other.box) > 0.5 for other in group):
            group.append(path)
    found: list[CheckBox] = []
    for group in groups:
        colours = {path.fill for path in group if path.fill and min(path.fill) < _WHITE}
        empty = any(not path.fill or min(path.fill) >= _WHITE for path in group)
        # Bullets are all full, and a legend has several colors.
        if len(colours) > 1 or not empty or not 2 <= len(group) <= _MOST_DRAWN:
            continue
        if all(_is_field(path, group, content) for path in group):
            found += [CheckBox(path.box, _is_ticked(path, content)) for path in group]
    return tuple(found)


def _is_field(path: Path, group: Sequence[Path], content: PageContent) -> bool:
    """Return whether the shape is beside a line, apart from the others of its group, and without words but a mark."""
    box = path.box
    if any(other is not path and box.covered_by(other.box.grown(0.05 * box.width)) > 0 for other in group):
        return False
    beside = False
    for line in content.lines:
        if line.box.y0 < box.centre[1] < line.box.y1:
            if any(word.box.covered_by(box) > 0.5 and word.text not in _MARKS for word in line.words):
                return False
            rest = _without_marks(line, [box])
            if rest is not None and any(map(str.isalpha, rest.text)):
                near = any(-0.5 * line.size < gap < _NEAR * line.size for gap, _ in _gaps(rest, box))
                beside |= near and _DRAWN[0] * line.size < box.width < _DRAWN[1] * line.size
    return beside


def _is_ticked(path: Path, content: PageContent) -> bool:
    """Return whether the shape is dark, or has a mark: a smaller path, or a word."""
    box = path.box
    inside = [other for other in content.paths if _has_centre(box, other.box) and _differs(other.box, box)]
    inside = [other for other in inside if _is_dark(other.stroke) or _is_dark(other.fill)]
    marked = any(max(other.box.width, other.box.height) > _MARK * box.width for other in inside)
    words = (word for line in content.lines for word in line.words)
    return marked or _is_dark(path.fill) or any(_has_centre(box, word.box) and word.text in _MARKS for word in words)


def _has_centre(box: Box, other: Box) -> bool:
    x, y = other.centre
    return box.x0 < x < box.x1 and box.y0 < y < box.y1 and other.width < 2 * box.width


def _differs(one: Box, other: Box) -> bool:
    """Return whether a path is no second drawing of the same shape, such as its filling."""
    sides = zip((one.x0, one.y0, one.x1, one.y1), (other.x0, other.y0, other.x1, other.y1), strict=True)
    return any(abs(a - b) > 0.08 * other.width for a, b in sides)


def _is_dark(colour: Colour | None) -> bool:
    return colour is not None and min(colour) <= _BORDER


def with_check_boxes(content: PageContent, boxes: Sequence[CheckBox]) -> PageContent:
    """Return the content with ☑ and ☐ before, or else behind, the line next to each box. The box's own mark is removed.

    Args:
        content: Content of the page.
        boxes: Results of `check_boxes` and `drawn_check_boxes` for the page.
    """
    if not boxes:
        return content
    places = [check_box.box for check_box in boxes]
    lines = [left for line in content.lines if (left := _without_marks(line, places)) is not None]
    for check_box in sorted(boxes, key=lambda item: (item.box.y0, -item.box.x0)):
        box = check_box.box
        mark = Word("☑" if check_box.checked else "☐", box)
        labels = [
            (gap, place, before)
            for place, line in enumerate(lines)
            if line.box.y0 < box.centre[1] < line.box.y1 or box.y0 < line.box.centre[1] < box.y1
            for gap, before in _gaps(line, box)
            if -0.5 * line.size < gap < _NEAR * line.size
        ]
        # A label on the right is usual: a box between two labels belongs to the right one.
        best = min(labels, key=lambda label: (not label[2], label[0]), default=None)
        if best is None:
            lines.append(Line(mark.text, box, min(box.height, box.width), (mark,)))
        else:
            lines[best[1]] = _marked(lines[best[1]], mark)
    lines.sort(key=lambda line: (line.box.y1, line.box.x0))
    return replace(content, lines=tuple(lines))


def _without_marks(line: Line, places: Sequence[Box]) -> Line | None:
    """Return the line without words inside the boxes, such as the letter that a form's font shows as a check mark."""
    words = tuple(word for word in line.words if not any(word.box.covered_by(place) > 0.5 for place in places))
    if len(words) == len(line.words):  # lines of pdfium have no words
        return line
    if not words:
        return None
    box = reduce(Box.union, (word.box for word in words))
    return replace(line, text=" ".join(word.text for word in words), words=words, box=box, scripts=(), parts=())


def _gaps(line: Line, box: Box) -> tuple[tuple[float, bool], tuple[float, bool]]:
    """Return the distances from the box to words on its right (True), and from the line's end to the box (False).

    A box inside of the line is before the word after it, if the words are those of the line's text.
    """
    before = line.box.x0 - box.x1
    if line.box.x0 < box.x0 and box.centre[0] <= line.box.x1 and line.text == " ".join(w.text for w in line.words):
        before = min((word.box.x0 - box.x1 for word in line.words if word.box.centre[0] > box.centre[0]), default=inf)
    return (before, True), (box.x0 - line.box.x1, False)


def _marked(line: Line, mark: Word) -> Line:
    """Return the line with the mark at its place, as high as the line, so that a large box does not move the line."""
    word = replace(mark, box=Box(mark.box.x0, line.box.y0, mark.box.x1, line.box.y1))
    box, words = line.box.union(word.box), line.words
    place = sum(other.box.centre[0] < word.box.centre[0] for other in words)
    if place == len(words):
        return replace(line, text=f"{line.text} {mark.text}", words=(*words, word), box=box)
    start, shift = sum(len(other.text) + 1 for other in words[:place]), len(mark.text) + 1
    scripts = tuple(
        replace(script, start=script.start + shift, end=script.end + shift) if script.start >= start else script
        for script in line.scripts
    )
    text = f"{line.text[:start]}{mark.text} {line.text[start:]}"
    return replace(line, text=text, words=(*words[:place], word, *words[place:]), box=box, scripts=scripts)


def placeholder(pdf: pypdfium2.PdfDocument) -> str:
    """Return for what the pages are placeholders; "" for a document whose pages are its content.

    Viewers without XFA show a page such as "Please wait" for a form of XFA. The page of a portfolio is its cover.
    """
    kind = pdf.get_formtype()
    only = pdfium.FPDF_GetPageCount(pdf) == 1
    stands_for_form = kind == pdfium.FORMTYPE_XFA_FULL
    if kind == pdfium.FORMTYPE_XFA_FOREGROUND and only:
        stands_for_form = True
        with contextlib.suppress(pypdfium2.PdfiumError), contextlib.closing(pdf[0]) as first:
            stands_for_form = not has_fields(first)
    if stands_for_form:
        return "the page is a placeholder for an XFA form, whose content was not read"
    files = 0
    for index in range(min(pdfium.FPDFDoc_GetAttachmentCount(pdf), _MOST_ANNOTATIONS)):
        attachment = pdfium.FPDFDoc_GetAttachment(pdf, index)
        buffer = (pdfium.FPDF_WCHAR * 256)()
        size = pdfium.FPDFAttachment_GetName(attachment, buffer, ctypes.sizeof(buffer)) if attachment else 0
        # Longer names are cut to 255 characters.
        name = bytes(buffer)[: max(0, min(size, ctypes.sizeof(buffer)) - 2)].decode("utf-16-le", "replace")
        files += not name.lower().endswith(".xml")  # data of an electronic invoice
    if files and only and pdf.get_pagemode() == pdfium.PAGEMODE_USEATTACHMENTS:
        return f"the page is the cover of a portfolio, whose {files:,} attached files were not read"
    return ""
