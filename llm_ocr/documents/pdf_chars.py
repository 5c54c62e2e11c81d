"""The characters of a PDF page, as pdfium has them: codes, boxes and text objects, in arrays.

The functions are called some thousand times a page, so they are bound anew without the argument checks of the generated
bindings, and write into arrays by address.
"""

import ctypes
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pypdfium2
import pypdfium2.raw as pdfium

from llm_ocr.documents.pdf_frame import Frame

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

#: Characters read from one page. A broadsheet has 30,000; more is a bomb.
MAX_CHARS = 200_000

_BOLD = re.compile(r"bold|black|heavy|semibd|demi|medi(?!um)|cmbx|sfbx|[-,]bd|extb", re.IGNORECASE)
_ITALIC = re.compile(r"ital|obliq|slant|cmti|cmsl|cmmi|sfti|[-,](it|bi)(mt)?$", re.IGNORECASE)
_MONO = re.compile(r"courier|mono|consol|menlo|typewriter|cmtt|sftt|nimbusmonl|lettergothic", re.IGNORECASE)
_FIXED_PITCH, _ITALIC_FLAG, _FORCE_BOLD = 1, 1 << 6, 1 << 18  # PDF 32000-1, table 123


@dataclass(frozen=True, slots=True)
class Style:
    """How a text object is set. `size` in points as shown, `angle`: whole degrees clockwise from left to right."""

    size: float
    angle: int
    bold: bool
    italic: bool
    mono: bool


@dataclass(frozen=True, slots=True)
class Chars:
    """Characters in pdfium's order, whitespace too: it separates words.

    `codes` (n,) code points; `boxes` (n, 4) as shown: x0, y0, x1, y1; `objects` (n,) which text object; `style` (n,)
    index into `styles`, -1: none; `origins` (n, 2) a point on the baseline of each character's text object; `unread`:
    how many more the page has.
    """

    codes: Ints
    boxes: Floats
    objects: Ints
    style: Ints
    origins: Floats
    styles: tuple[Style, ...]
    unread: int = 0


def _bound(function: object, result: Any, *arguments: Any) -> Callable[..., Any]:
    address = ctypes.cast(function, ctypes.c_void_p).value  # type: ignore[arg-type]  # a ctypes function pointer
    return ctypes.CFUNCTYPE(result, *arguments)(address or 0)


_POINTER, _INT = ctypes.c_void_p, ctypes.c_int
_unicode = _bound(pdfium.FPDFText_GetUnicode, ctypes.c_uint, _POINTER, _INT)
_loose_box = _bound(pdfium.FPDFText_GetLooseCharBox, _INT, _POINTER, _INT, _POINTER)
_text_object = _bound(pdfium.FPDFText_GetTextObject, _POINTER, _POINTER, _INT)
_is_hyphen = _bound(pdfium.FPDFText_IsHyphen, _INT, _POINTER, _INT)
_matrix = _bound(pdfium.FPDFText_GetMatrix, _INT, _POINTER, _INT, _POINTER)
_origin = _bound(pdfium.FPDFText_GetCharOrigin, _INT, _POINTER, _INT, _POINTER, _POINTER)
_font_size = _bound(pdfium.FPDFText_GetFontSize, ctypes.c_double, _POINTER, _INT)
_font = _bound(pdfium.FPDFTextObj_GetFont, _POINTER, _POINTER)
_render_mode = _bound(pdfium.FPDFTextObj_GetTextRenderMode, _INT, _POINTER)
_font_name = _bound(pdfium.FPDFFont_GetBaseFontName, ctypes.c_size_t, _POINTER, _POINTER, ctypes.c_size_t)
_font_flags = _bound(pdfium.FPDFFont_GetFlags, _INT, _POINTER)


def read_chars(page: pypdfium2.PdfPage, frame: Frame) -> Chars:
    """Read the first `MAX_CHARS` characters of the text layer in pdfium's order, hyphens at line ends as `-`."""
    text_page = page.get_textpage()
    try:
        total = text_page.count_chars()
        count = min(total, MAX_CHARS)
        handle = ctypes.cast(text_page.raw, ctypes.c_void_p).value or 0
        codes = np.array([_unicode(handle, index) for index in range(count)], dtype=np.int64)
        for index in np.nonzero((codes == 2) | (codes == 0xFFFE) | (codes == 0xAD))[0].tolist():
            if codes[index] == 0xAD or _is_hyphen(handle, index) == 1:
                codes[index] = ord("-")
        bounds = np.zeros((count, 4), dtype=np.float32)  # left, top, right, bottom: the order of FS_RECTF
        address = bounds.ctypes.data
        for index in range(count):
            _loose_box(handle, index, address + 16 * index)
        objects = np.array([_text_object(handle, index) or 0 for index in range(count)], dtype=np.int64)
        chars = _assembled(handle, frame, codes, _shown(bounds.astype(np.float64), frame), objects)
        return replace(chars, unread=total - count)
    finally:
        text_page.close()


def _shown(bounds: Floats, frame: Frame) -> Floats:
    a, b, c, d, e, f = frame.matrix
    left, top, right, bottom = bounds.T
    xs = np.stack((a * left + c * bottom, a * right + c * top, a * left + c * top, a * right + c * bottom)) + e
    ys = np.stack((b * left + d * bottom, b * right + d * top, b * left + d * top, b * right + d * bottom)) + f
    return np.stack((xs.min(0), ys.min(0), xs.max(0), ys.max(0)), axis=1)


def _assembled(handle: int, frame: Frame, codes: Ints, boxes: Floats, objects: Ints) -> Chars:
    count = len(codes)
    if not objects.any():
        return Chars(codes, boxes, objects, np.full(count, -1, dtype=np.int64), np.zeros((count, 2)), ())
    starts = np.nonzero(np.diff(objects, prepend=-1))[0]  # of stretches of one object; it may come again later
    lengths = np.diff(starts, append=count)
    looks, origins = _looks(handle, frame, starts, objects[starts], boxes)
    unique, which = np.unique(looks, axis=0, return_inverse=True)
    styles = tuple(Style(size / 100, int(angle), bool(b), bool(i), bool(m)) for size, angle, b, i, m in unique.tolist())
    style = np.where(objects[starts] == 0, -1, which.reshape(-1))
    return Chars(codes, boxes, objects, np.repeat(style, lengths), np.repeat(origins, lengths, axis=0), styles)


def _looks(handle: int, frame: Frame, starts: Ints, objects: Ints, boxes: Floats) -> tuple[Ints, Floats]:
    """Of each stretch: size in 1/100 point, angle, bold, italic, mono; and a point on its baseline."""
    count = len(starts)
    matrices, origins = np.zeros((count, 6), dtype=np.float32), np.zeros((count, 2))
    sizes, faces = np.zeros(count), np.zeros((count, 3), dtype=np.int64)
    at, point = matrices.ctypes.data, origins.ctypes.data
    fonts: dict[int, tuple[bool, bool, bool]] = {}
    for row, (start, text_object) in enumerate(zip(starts.tolist(), objects.tolist(), strict=True)):
        if not text_object:
            continue
        _matrix(handle, start, at + 24 * row)
        _origin(handle, start, point + 16 * row, point + 16 * row + 8)
        sizes[row] = _font_size(handle, start)
        font = _font(text_object) or 0
        if font not in fonts:
            fonts[font] = _font_style(font)
        bold, italic, mono = fonts[font]
        # A font without a bold face is often thickened by its outline.
        thick = bold or _render_mode(text_object) == pdfium.FPDF_TEXTRENDERMODE_FILL_STROKE
        faces[row] = thick, italic, mono
    a, b, c, d, e, f = frame.matrix
    along_x, along_y = matrices[:, 0] * a + matrices[:, 1] * c, matrices[:, 0] * b + matrices[:, 1] * d
    up_x, up_y = matrices[:, 2] * a + matrices[:, 3] * c, matrices[:, 2] * b + matrices[:, 3] * d
    angles = np.round(np.degrees(np.arctan2(along_y, along_x))).astype(np.int64) % 360
    em = sizes * np.hypot(up_x, up_y)
    loose = np.where(angles % 180 == 90, boxes[starts, 2] - boxes[starts, 0], boxes[starts, 3] - boxes[starts, 1])
    # A font with a matrix of its own (Type 3) has any size by name; slanted boxes say nothing of the height.
    strange = ((em < 0.6 * loose) | (em > 1.5 * loose)) & (loose > 0) & (angles % 90 == 0)
    size = np.where(strange, loose, em)
    looks = np.column_stack((np.round(size * 100).astype(np.int64), angles, faces))
    x, y = origins.T
    return looks, np.column_stack((a * x + c * y + e, b * x + d * y + f))


def _font_style(font: int) -> tuple[bool, bool, bool]:
    if not font:
        return False, False, False
    buffer = ctypes.create_string_buffer(256)
    _font_name(font, ctypes.addressof(buffer), len(buffer))
    return _style_of(buffer.value.decode("utf-8", "replace"), _font_flags(font))


@lru_cache(maxsize=1024)
def _style_of(name: str, flags: int) -> tuple[bool, bool, bool]:
    """Bold, italic, mono of a font. Its weight is not asked: pdfium guesses it from the stem and is often wrong."""
    name = name.partition("+")[2] or name
    flags = max(flags, 0)
    return (
        bool(_BOLD.search(name)) or bool(flags & _FORCE_BOLD),
        bool(_ITALIC.search(name)) or bool(flags & _ITALIC_FLAG),
        bool(_MONO.search(name)) or bool(flags & _FIXED_PITCH),
    )
