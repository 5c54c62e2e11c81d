"""Convert characters of a PDF page to glyphs: ligatures resolved, overprints removed."""

import ctypes
import math
import re
import sys
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pypdfium2
import pypdfium2.raw as pdfium

from llm_ocr.documents.pdf_objects import Covered, Frame, Objects
from llm_ocr.types import DIRECTIONS, Box, Path
from llm_ocr_cpu.tex_fonts import AXIS, LARGE, LETTERS, QUOTES, ROOT, TEXT, family_of, is_extension, symbol
from llm_ocr_cpu.visibility import Pixels, unseen

# Characters of a PDF page from pdfium in arrays: codes, boxes, and text objects. The functions run thousands of times
# per page. So they are bound without the argument checks of the generated bindings, and write into arrays by address.


Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

#: Limit of characters read from one page. A broadsheet has 30,000; a larger number is an attack.
MAX_CHARS = 200_000

_BOLD = re.compile(
    r"bold|black|heavy|semibd|demi|medi(?!um)|(cm|sf|ec|tc|la)(ss)?bx|ecsx|cmssdc|[-,]bd|extb", re.IGNORECASE
)
_ITALIC = re.compile(r"ital|obliq|slant|(cm|ec|sf)(bx)?(ti|sl)\d|cmssi|cmmi|cmu\d|[-,](it|bi)(mt)?$", re.IGNORECASE)
_MONO = re.compile(
    r"courier|mono|consol|menlo|typewriter|(cm|sf|ec|cs)(sl|i)?tt|(sf|ec)(st|it|tc)\d|\dx(b|sl)?tt(?![a-z])|txtt$"
    r"|nimbusmonl|lettergothic|(source|fira|cascadia)code",
    re.IGNORECASE,
)
#: Last letter that the substitute of a font that is not embedded always has.
_LAST_LATIN = 0x24F
#: Code of a removed character: an invisible soft hyphen, or a piece of a tall delimiter.
_REMOVED = 0xAD
#: Least and largest width in font sizes of an underscore that TeX draws as a rule, and its largest width in points.
_UNDERSCORE, _LONGEST_UNDERSCORE = (0.2, 0.7), 20
#: Side in points of the grid cells in which such rules are looked up, and most rules of a cell that are compared.
_CELL, _MOST_IN_CELL = 4.0, 16
#: Height of letters such as `d` and `p` in font sizes, and fewest glyphs from which it is known.
_TALL, _TELLING_GLYPHS = 0.7, 8
#: Share of their height by which boxes of one height differ, and largest height of a line in font sizes: 1.1 to 1.3 in
#: most fonts.
_SAME, _LINE = 0.02, 1.5
#: Width in font sizes that is less than that of any letter (`l` has 0.22), and the width of most letters.
_NARROW, _WIDE = 0.15, 0.48
_FIXED_PITCH, _ITALIC_FLAG, _FORCE_BOLD = 1, 1 << 6, 1 << 18  # PDF 32000-1, table 123
#: Letters that are narrow in other fonts than monospaced ones, and fewest letters from which the pitch is known.
_NARROW_LETTERS, _TELLING_LETTERS = [ord(letter) for letter in "fijlrtI"], 6
#: Codes that show nothing: white space, joiners, marks of the direction, and the soft hyphen. Accents with a place of
#: their own.
_BLANKS = (0x20, 0xA0, 0xAD, *range(0x2000, 0x2010), 0x202F, *range(0x205F, 0x2066), *DIRECTIONS, 0x3000, 0xFEFF)
_MARKS = range(0x300, 0x370)
#: Least sides of the outline of a letter in heights of its line, and the smaller one of a letter that is named as a
#: soft hyphen. Least share of its height that has ink, and least difference of gray values, of 255, between
#: ink and paper. Pixels from which the paper is known.
_SIDES_OF_LETTER, _NO_HYPHEN, _INKED, _CONTRAST, _PAPER = (0.03, 0.25), 0.2, 0.5, 48, 4096
#: Width of the widest box of a letter in a monospaced font, relative to the pitch.
_BEYOND_PITCH = 1.5


@dataclass(frozen=True, slots=True)
class Style:
    """Style of a text object. `size` in points as shown, `angle` in whole degrees clockwise from left-to-right."""

    size: float
    angle: int
    bold: bool
    italic: bool
    mono: bool


@dataclass(frozen=True, slots=True)
class Chars:
    """Characters in pdfium's order, including whitespace, which separates words.

    Shapes: `codes` (n,) code points; `boxes` (n, 4) as shown: x0, y0, x1, y1; `objects` (n,) index of the text object;
    `style` (n,) index into `styles`, -1: none; `origins` (n, 2) a point on the baseline of each character's text
    object; `unnamed` (n,) whether the font has no Unicode mapping for the glyph, so that its code is a guess; `large`
    (n,) whether the glyph is a large operator or delimiter of TeX, whose origin is that of its formula's row; `letters`
    (n,) whether the glyph is of a font for variables; `fonts` (n,) number of the glyph's font on the page, from 1;
    `named` (n,) whether the character is of an `/ActualText` that several text objects share. `unread` is the number of
    further characters on the page, `invisible` that of words that the page's picture does not show; they became spaces.
    """

    codes: Ints
    boxes: Floats
    objects: Ints
    style: Ints
    origins: Floats
    styles: tuple[Style, ...]
    unnamed: Bools
    large: Bools
    letters: Bools
    fonts: Ints
    named: Bools
    unread: int = 0
    invisible: int = 0


def _bound(function: object, result: Any, *arguments: Any) -> Callable[..., Any]:
    address = ctypes.cast(function, ctypes.c_void_p).value  # type: ignore[arg-type]  # a ctypes function pointer
    return ctypes.CFUNCTYPE(result, *arguments)(address or 0)


_POINTER, _INT = ctypes.c_void_p, ctypes.c_int
_unicode = _bound(pdfium.FPDFText_GetUnicode, ctypes.c_uint, _POINTER, _INT)
_loose_box = _bound(pdfium.FPDFText_GetLooseCharBox, _INT, _POINTER, _INT, _POINTER)
_text_object = _bound(pdfium.FPDFText_GetTextObject, _POINTER, _POINTER, _INT)
_is_unnamed = _bound(pdfium.FPDFText_HasUnicodeMapError, _INT, _POINTER, _INT)
_is_hyphen = _bound(pdfium.FPDFText_IsHyphen, _INT, _POINTER, _INT)
_matrix = _bound(pdfium.FPDFText_GetMatrix, _INT, _POINTER, _INT, _POINTER)
_ink_box = _bound(pdfium.FPDFText_GetCharBox, _INT, _POINTER, _INT, _POINTER, _POINTER, _POINTER, _POINTER)
_origin = _bound(pdfium.FPDFText_GetCharOrigin, _INT, _POINTER, _INT, _POINTER, _POINTER)
_font_size = _bound(pdfium.FPDFText_GetFontSize, ctypes.c_double, _POINTER, _INT)
_font = _bound(pdfium.FPDFTextObj_GetFont, _POINTER, _POINTER)
_render_mode = _bound(pdfium.FPDFTextObj_GetTextRenderMode, _INT, _POINTER)
_font_name = _bound(pdfium.FPDFFont_GetBaseFontName, ctypes.c_size_t, _POINTER, _POINTER, ctypes.c_size_t)
_font_flags = _bound(pdfium.FPDFFont_GetFlags, _INT, _POINTER)
_is_embedded = _bound(pdfium.FPDFFont_GetIsEmbedded, _INT, _POINTER)


def read_chars(page: pypdfium2.PdfPage, frame: Frame, found: Objects, picture: Pixels | None = None) -> Chars:
    """Read the first `MAX_CHARS` characters of the text layer in pdfium's order.

    Visible soft hyphens and hyphens at line ends become `-`; many fonts map their hyphen to U+00AD. Words that
    `picture`, the whole page in gray, does not show become spaces, and characters at places where others cover them.
    White space that it shows as a letter becomes U+FFFD.
    """
    text_page = page.get_textpage()
    try:
        total = text_page.count_chars()
        count = min(total, MAX_CHARS)
        handle = ctypes.cast(text_page.raw, ctypes.c_void_p).value or 0
        codes = np.array([_unicode(handle, index) for index in range(count)], dtype=np.int64)
        codes[codes > sys.maxunicode] = 0xFFFD  # from a damaged table of the font
        bounds = np.zeros((count, 4), dtype=np.float32)  # left, top, right, bottom: the order of FS_RECTF
        address = bounds.ctypes.data
        for index in range(count):
            _loose_box(handle, index, address + 16 * index)
        if picture is not None:
            _mark_letters(handle, frame, codes, bounds, picture)
        for index in np.nonzero((codes == 2) | (codes == 0xFFFE) | (codes == 0xAD))[0].tolist():
            soft = codes[index] == 0xAD and not _is_covered(bounds, index)
            if soft or _is_hyphen(handle, index) == 1:
                codes[index] = ord("-")
        objects = np.array([_text_object(handle, index) or 0 for index in range(count)], dtype=np.int64)
        boxes, named = _shown(bounds.astype(np.float64), frame), np.zeros(count, dtype=bool)
        around = {ctypes.cast(one.handle, ctypes.c_void_p).value: one.box for one in found.named}
        starts = np.nonzero(np.diff(objects, prepend=-1))[0] if around else ()
        for start, end in pairwise((*starts, count)):
            if box := around.get(int(objects[start])):
                named[start:end] = True
                edges = np.linspace(box.x0, box.x1, end - start + 1)
                boxes[start:end, 0], boxes[start:end, 2] = edges[:-1], edges[1:]
        chars = _assembled(handle, frame, codes, boxes, objects, named)
        invisible = 0
        if picture is not None:
            invisible = _blank_covered(chars, found.covered) + _blank_out(handle, frame, chars, picture)
        _write_underscores(chars, found.paths)
        return replace(chars, unread=total - count, invisible=invisible)
    finally:
        text_page.close()


def _mark_letters(handle: int, frame: Frame, codes: Ints, bounds: npt.NDArray[np.float32], picture: Pixels) -> None:
    """Replace codes that show nothing by U+FFFD in place where the font and the picture have a letter."""
    gray = picture if picture.ndim == 2 else picture[..., 3]
    scale = np.array(2 * (gray.shape[1] / frame.width, gray.shape[0] / frame.height))
    places = np.nonzero(np.isin(codes, (*_BLANKS, *_MARKS)))[0]
    ink = np.zeros((len(places), 4))  # left, right, bottom, top
    for number, at in enumerate(places.tolist()):
        address = ink.ctypes.data + 32 * number
        _ink_box(handle, at, address, address + 8, address + 16, address + 24)
    widths, heights = ink[:, 1] - ink[:, 0], ink[:, 3] - ink[:, 2]
    line = np.abs(bounds[places, 1] - bounds[places, 3])
    lower, longer = (side * line for side in _SIDES_OF_LETTER)
    letters = (np.minimum(widths, heights) > lower) & (np.maximum(widths, heights) > longer)
    letters &= (codes[places] != 0xAD) | (np.minimum(widths, heights) > _NO_HYPHEN * line)
    # An accent is on its letter.
    letters &= (codes[places] < _MARKS[0]) | (codes[places] > _MARKS[-1]) | (ink[:, 0] > bounds[places - 1, 2] - lower)
    matrix = np.zeros(6, np.float32)
    for number in np.nonzero(letters)[0].tolist():
        at, (left, right, bottom, top) = int(places[number]), ink[number].tolist()
        if not _text_object(handle, at) or _is_unnamed(handle, at) == 1:
            continue
        # The box around a space at an angle, as in a watermark, is no letter, and has the ink of the text below it.
        _matrix(handle, at, matrix.ctypes.data)
        if abs(math.sin(2 * math.atan2(matrix[1], matrix[0]))) > 0.2:
            continue
        shown = _shown(np.array([[left, top, right, bottom]]), frame)[0] * scale
        x0, y0, x1, y1 = shown.clip(0, max(gray.shape)).round().astype(int).tolist()
        near = gray[max(0, 2 * y0 - y1) : 2 * y1 - y0, max(0, 2 * x0 - x1) : 2 * x1 - x0]
        middle = gray[y0:y1, (3 * x0 + x1) // 4 : (x0 + 3 * x1) // 4 + 1]
        if not middle.size:
            continue
        step = 1 + math.isqrt(near.size // _PAPER)
        inked = np.nonzero((np.abs(middle - np.median(near[::step, ::step])) > _CONTRAST).any(1))[0]
        if len(inked) and inked[-1] + 1 - inked[0] > _INKED * len(middle):
            codes[at] = 0xFFFD


def _write_underscores(chars: Chars, paths: Sequence[Path]) -> None:
    """Replace spaces between letters by the underscores that TeX draws there as rules: its text fonts have none."""
    near: dict[tuple[int, int], list[Box]] = {}
    for box in (path.box for path in paths):
        if 4 * box.height < box.width < _LONGEST_UNDERSCORE:
            near.setdefault((int(box.x0 // _CELL), int(box.y1 // _CELL)), []).append(box)
    if not near:
        return
    visible = (chars.style >= 0) & (chars.codes > ord(" "))
    spaces = 1 + np.nonzero((chars.codes[1:-1] == ord(" ")) & visible[:-2] & visible[2:])[0]
    for space in spaces.tolist():
        letter, after = space - 1, space + 1
        style, start, end = chars.styles[chars.style[letter]], chars.boxes[letter, 2], chars.boxes[after, 0]
        size, base = style.size, chars.origins[letter, 1]
        if style.angle or not _UNDERSCORE[0] * size < end - start < 2 * _UNDERSCORE[1] * size:
            continue
        across, down = int(start // _CELL), int(base // _CELL)
        cells = ((x, y) for x in (across - 1, across, across + 1) for y in (down - 1, down, down + 1))
        for box in (box for cell in cells for box in near.get(cell, ())[:_MOST_IN_CELL]):
            level = abs(box.y1 - base) < size / 8 and 8 * box.height < size
            fits = abs(box.x0 - start) < size / 7 and abs(box.x1 - end) < size / 7
            if level and fits and _UNDERSCORE[0] * size < box.width < _UNDERSCORE[1] * size:
                chars.codes[space], chars.style[space] = ord("_"), chars.style[letter]
                chars.objects[space], chars.fonts[space] = chars.objects[letter], chars.fonts[letter]
                chars.boxes[space], chars.origins[space] = chars.boxes[letter], chars.origins[letter]
                chars.boxes[space, ::2] = box.x0, box.x1
                break


def _blank_out(handle: int, frame: Frame, chars: Chars, picture: Pixels) -> int:
    """Replace the characters of words that the picture does not show by spaces in place; return their number."""
    if not chars.styles:
        return 0
    sides, box = np.zeros(4), np.zeros((1, 4))
    left, right, bottom, top = (sides.ctypes.data + 8 * side for side in range(4))

    def inked(start: int, end: int) -> tuple[float, float, float, float] | None:
        font = _font(int(chars.objects[start])) if chars.objects[start] else 0
        if font and not _is_embedded(font) and (chars.codes[start:end] > _LAST_LATIN).any():
            return None  # a substitute may lack these letters
        found = []
        for at in range(start, end):
            if _ink_box(handle, at, left, right, bottom, top) == 1 and sides[1] > sides[0]:
                box[0] = sides[0], sides[3], sides[1], sides[2]
                found.append(_shown(box, frame)[0])
        x0, y0, *_ = np.min(found or [chars.boxes[start]], axis=0).tolist()
        *_, x1, y1 = np.max(found or [chars.boxes[start]], axis=0).tolist()
        return x0, y0, x1, y1

    sizes = np.array([style.size for style in chars.styles])[chars.style]
    angles = np.array([style.angle for style in chars.styles])[chars.style]
    scale = picture.shape[1] / frame.width, picture.shape[0] / frame.height
    hidden = unseen(chars.codes, chars.boxes, sizes, angles, picture, scale, inked)
    chars.codes[hidden] = ord(" ")
    for marks in (chars.unnamed, chars.large, chars.letters):
        marks[hidden] = False
    return int(hidden.sum())


def _blank_covered(chars: Chars, covered: Sequence[Covered]) -> int:
    """Replace words at places where others cover their text object by spaces in place; return their characters."""
    hidden = np.zeros(len(chars.codes), dtype=bool)
    if not covered or not len(hidden):
        return 0
    x, y = (chars.boxes[:, 0] + chars.boxes[:, 2]) / 2, (chars.boxes[:, 1] + chars.boxes[:, 3]) / 2
    places: dict[int | None, list[Box]] = {}
    for text in covered:  # those without a place are not active
        if text.place is not None:
            places.setdefault(ctypes.cast(text.handle, ctypes.c_void_p).value, []).append(text.place)
    for address, boxes in places.items():
        own = np.flatnonzero(chars.objects == address)
        for box in boxes:
            inside = (x[own] > box.x0) & (x[own] < box.x1) & (y[own] > box.y0 - box.height)
            hidden[own] |= inside & (y[own] < box.y1 + box.height)
    letters = ~np.isin(chars.codes, _SPACES)
    words = np.cumsum(~letters | (np.diff(chars.objects, prepend=0) != 0))
    hidden = letters & (2 * np.bincount(words, hidden & letters) > np.bincount(words, letters))[words]
    chars.codes[hidden] = ord(" ")
    return int(hidden.sum())


def _is_covered(bounds: npt.NDArray[np.float32], index: int) -> bool:
    """Return whether the next character begins at the same place, as after a hyphen without a width."""
    if index + 1 == len(bounds):
        return False
    left, _, _, bottom = np.abs(bounds[index + 1] - bounds[index]).tolist()
    return bool(max(left, bottom) < 0.5)


def _shown(bounds: Floats, frame: Frame) -> Floats:
    a, b, c, d, e, f = frame.matrix
    left, top, right, bottom = bounds.T
    xs = np.stack((a * left + c * bottom, a * right + c * top, a * left + c * top, a * right + c * bottom)) + e
    ys = np.stack((b * left + d * bottom, b * right + d * top, b * left + d * top, b * right + d * bottom)) + f
    return np.stack((xs.min(0), ys.min(0), xs.max(0), ys.max(0)), axis=1)


def _assembled(handle: int, frame: Frame, codes: Ints, boxes: Floats, objects: Ints, named: Bools) -> Chars:
    count = len(codes)
    if not objects.any():
        style, unnamed = np.full(count, -1, dtype=np.int64), np.zeros(count, dtype=bool)
        return Chars(codes, boxes, objects, style, np.zeros((count, 2)), (), unnamed, unnamed, unnamed, objects, named)
    starts = np.nonzero(np.diff(objects, prepend=-1))[0]  # starts of stretches; an object may have several
    lengths = np.diff(starts, append=count)
    looks, origins, fonts, families = _looks(handle, frame, codes, starts, objects[starts], boxes)
    unique, which = np.unique(looks, axis=0, return_inverse=True)
    styles = tuple(Style(size / 100, int(angle), bool(b), bool(i), bool(m)) for size, angle, b, i, m in unique.tolist())
    style = np.where(objects[starts] == 0, -1, which.reshape(-1))
    unnamed = _unnamed(handle, codes, np.repeat(fonts, lengths))
    families |= _old_text_fonts(codes, boxes, unnamed, np.repeat(fonts, lengths))
    chars = Chars(
        codes,
        boxes,
        objects,
        np.repeat(style, lengths),
        np.repeat(origins, lengths, axis=0),
        styles,
        unnamed,
        np.zeros(count, dtype=bool),
        np.zeros(count, dtype=bool),
        np.repeat(np.unique(fonts, return_inverse=True)[1].reshape(-1) + 1, lengths),
        named,
    )
    if families:
        _read_symbols(handle, frame, chars, np.repeat(fonts, lengths), families)
    return chars


def _old_text_fonts(codes: Ints, boxes: Floats, unnamed: Bools, fonts: Ints) -> dict[int, str]:
    """Return the fonts of TeX's oldest encoding that name no glyph, such as bitmap fonts.

    In these fonts, letters have their ASCII codes. Ligatures have the codes of control characters.
    """
    if unnamed.sum() <= _FEW_UNNAMED * len(codes):
        return {}
    lower = (codes >= 97) & (codes <= 122)
    beside = (fonts[1:] == fonts[:-1]) & lower[1:] & lower[:-1]
    ligature = unnamed & (codes >= 11) & (codes <= 15)
    between = ligature[1:] & (fonts[1:] == fonts[:-1]) & lower[:-1]
    if not between.any():
        return {}
    found = {}
    for font in np.unique(fonts[unnamed]).tolist():
        own = fonts == font
        widths = boxes[:, 2] - boxes[:, 0]
        usual = widths[own & (codes == ord("n"))]
        if len(usual) and (widths[own & ligature] < 0.95 * usual[0]).any():
            return {}  # an encoding of its own: a ligature is at least as wide as an `n`
        pairs, letters = int((beside & own[1:]).sum()), int((lower & own).sum())
        narrow, wide = np.percentile(boxes[own & lower, 2] - boxes[own & lower, 0], (5, 95)) if letters else (0, 0)
        if narrow > 0.8 * wide:
            continue  # a fixed pitch: programs, with the characters of ASCII
        if unnamed[own & lower].all() and letters >= _TELLING_GLYPHS and 2 * pairs > letters:
            found[font] = TEXT
    return found


def _read_symbols(handle: int, frame: Frame, chars: Chars, fonts: Ints, families: Mapping[int, str]) -> None:
    """Replace codes, boxes, and origins of glyphs of TeX's mathematical fonts in place.

    The middle of a large symbol's outline gives its row. The pieces of a tall delimiter become one glyph.
    """
    ink, sides = np.zeros((1, 4), dtype=np.float64), np.zeros(4)
    left, right, bottom, top = (sides.ctypes.data + 8 * side for side in range(4))
    last = -1
    new_codes, new_unnamed = chars.codes.copy(), chars.unnamed.copy()
    large = np.zeros(len(fonts), dtype=bool)
    for font, family in families.items():
        own = (fonts == font) & ((chars.codes != 32) | chars.unnamed)  # without spaces that pdfium adds
        chars.letters[own] = family == LETTERS
        for code, unnamed in {*zip(chars.codes[own].tolist(), chars.unnamed[own].tolist(), strict=True)}:
            same = own & (chars.codes == code) & (chars.unnamed == unnamed)
            found = symbol(family, code, named=not unnamed)
            known = (family == LARGE or found != code) and found != 0xFFFD
            new_codes[same], new_unnamed[same] = found, unnamed and not known
        large |= own & ((family == LARGE) | (new_codes == ROOT))
        if family == QUOTES:
            new_codes[1:][own[1:] & own[:-1] & (new_codes[1:] == new_codes[:-1])] = _REMOVED
    chars.codes[:], chars.unnamed[:] = new_codes, new_unnamed
    for at in np.nonzero(large)[0].tolist():
        if _ink_box(handle, at, left, right, bottom, top) != 1:
            continue
        ink[0] = sides[0], sides[3], sides[1], sides[2]
        x0, y0, x1, y1 = _shown(ink, frame)[0].tolist()
        chars.large[at] = True
        style = chars.styles[chars.style[at]]
        if last >= 0 and _is_next_piece(chars, last, at, (x0, y0, x1, y1), style):
            y0, y1 = min(y0, float(chars.boxes[last, 1])), max(y1, float(chars.boxes[last, 3]))
            if is_extension(int(chars.codes[at])):
                chars.codes[at] = chars.codes[last]
            chars.codes[last] = _REMOVED
        if style.angle % 180 == 0:
            chars.boxes[at, 1::2] = y0, y1
        down = np.array([-np.sin(np.radians(style.angle)), np.cos(np.radians(style.angle))])
        chars.origins[at] = np.array([(x0 + x1) / 2, (y0 + y1) / 2]) + AXIS * style.size * down
        last = at


def _is_next_piece(chars: Chars, last: int, at: int, ink: tuple[float, float, float, float], style: Style) -> bool:
    """Return whether the glyph continues the tall delimiter before it."""
    one, other = int(chars.codes[last]), int(chars.codes[at])
    if style.angle or not (one == other or is_extension(one) or (is_extension(other) and chr(one) in "{}")):
        return False
    room = 0.15 * style.size
    touching = ink[1] <= chars.boxes[last, 3] + room and ink[3] >= chars.boxes[last, 1] - room
    return bool(touching and abs(chars.boxes[at, 0] - chars.boxes[last, 0]) < room)


def _unnamed(handle: int, codes: Ints, fonts: Ints) -> Bools:
    """Return which glyphs have no Unicode mapping; pdfium returns their codes in the font as characters.

    A visible glyph that is mapped to a control code has no mapping either. Only the first glyph of each font and code
    is examined. White space that pdfium adds has no font.
    """
    _, numbers = np.unique(fonts, return_inverse=True)
    _, first, kinds = np.unique((numbers.reshape(-1) << 32) + codes, return_index=True, return_inverse=True)
    names = [_is_unnamed(handle, at) == 1 or (codes[at] < 32 and _is_visible(handle, at)) for at in first.tolist()]
    found: Bools = np.array(names, dtype=bool)[kinds.reshape(-1)] & (fonts != 0)
    return found


def _is_visible(handle: int, index: int) -> bool:
    """Return whether the glyph has an outline, unlike white space."""
    sides = np.zeros(4)
    left, right, bottom, top = (sides.ctypes.data + 8 * side for side in range(4))
    found = _ink_box(handle, index, left, right, bottom, top) == 1
    return found and bool(sides[1] - sides[0] > 0.1 and sides[3] - sides[2] > 0.1)


def _looks(
    handle: int, frame: Frame, codes: Ints, starts: Ints, objects: Ints, boxes: Floats
) -> tuple[Ints, Floats, Ints, dict[int, str]]:
    """Return the looks of stretches of characters.

    Returns:
        Size in 1/100 point, angle, bold, italic, and mono; points on their baselines; their fonts; and the encodings of
        those fonts that are TeX's mathematical fonts.
    """
    count = len(starts)
    matrices, origins = np.zeros((count, 6), dtype=np.float32), np.zeros((count, 2))
    sizes, faces = np.zeros(count), np.zeros((count, 3), dtype=np.int64)
    at, point = matrices.ctypes.data, origins.ctypes.data
    fonts: dict[int, tuple[bool, bool, bool]] = {}
    families: dict[int, str] = {}
    used = np.zeros(count, dtype=np.int64)
    for row, (start, text_object) in enumerate(zip(starts.tolist(), objects.tolist(), strict=True)):
        if not text_object:
            continue
        _matrix(handle, start, at + 24 * row)
        _origin(handle, start, point + 16 * row, point + 16 * row + 8)
        sizes[row] = _font_size(handle, start)
        font = _font(text_object) or 0
        if font not in fonts:
            name, fonts[font] = _font_style(font)
            if family_of(name):
                families[font] = family_of(name)
        used[row] = font
        bold, italic, mono = fonts[font]
        # A font without a bold face is often thickened by its outline.
        thick = bold or _render_mode(text_object) == pdfium.FPDF_TEXTRENDERMODE_FILL_STROKE
        faces[row] = thick, italic, mono
    matrices *= np.where(sizes < 0, -1.0, 1.0)[:, None]  # some producers draw upright text with both negative
    sizes = np.abs(sizes)
    a, b, c, d, e, f = frame.matrix
    along_x, along_y = matrices[:, 0] * a + matrices[:, 1] * c, matrices[:, 0] * b + matrices[:, 1] * d
    up_x, up_y = matrices[:, 2] * a + matrices[:, 3] * c, matrices[:, 2] * b + matrices[:, 3] * d
    angles = np.round(np.degrees(np.arctan2(along_y, along_x))).astype(np.int64) % 360
    em = sizes * np.hypot(up_x, up_y)
    lengths = np.diff(starts, append=len(codes))
    widths = (boxes[:, 2] - boxes[:, 0]) / np.maximum(np.repeat(em, lengths), 1e-6)
    letters = _within(codes, ((0x41, 0x5A), (0x61, 0x7A))) & (np.repeat(angles, lengths) % 180 == 0)
    owners, texts, widths = np.repeat(used, lengths)[letters], codes[letters], widths[letters]
    for font, (_, _, mono) in fonts.items():
        if not mono and _has_one_pitch(texts[owners == font], widths[owners == font]):
            faces[used == font, 2] = 1
    loose = np.where(angles % 180 == 90, boxes[starts, 2] - boxes[starts, 0], boxes[starts, 3] - boxes[starts, 1])
    # A font with its own matrix (Type 3) has an arbitrary nominal size; slanted boxes do not determine the height.
    strange = ((em < 0.6 * loose) | (em > 1.5 * loose)) & (loose > 0) & (angles % 90 == 0)
    if families:  # their nominal sizes are right, and their boxes as high as the symbols
        strange &= ~np.isin(used, list(families))
    size = np.where(strange, loose, em)
    widest = np.maximum.reduceat(np.min(boxes[:, 2:] - boxes[:, :2], axis=1), starts)
    narrow = (widest < _NARROW * size) & (widest > 0) & (angles % 90 == 0)
    if strange.any() or narrow.any():
        kinds: Floats = np.column_stack((used, np.round(10 * em), angles)).astype(np.float64)
        rtl, cjk = _within(codes[starts], _RTL), _within(codes[starts], _CJK)
        _even_out(size, em, np.unique(kinds[strange | narrow], axis=0), kinds, starts, boxes, rtl, cjk)
    looks = np.column_stack((np.round(size * 100).astype(np.int64), angles, faces))
    x, y = origins.T
    return looks, np.column_stack((a * x + c * y + e, b * x + d * y + f)), used, families


def _even_out(
    size: Floats, em: Floats, doubtful: Floats, kinds: Floats, starts: Ints, boxes: Floats, rtl: Bools, cjk: Bools
) -> None:
    """Set one size for the stretches of a font whose boxes are those of its glyphs, or are too high.

    The former are usual in Type 3 fonts, the latter in fonts for formulas, which have room for roots and fractions.

    Args:
        size: Sizes of stretches of characters, changed in place.
        em: Their nominal sizes.
        doubtful: Font, nominal size, and angle of the stretches to check.
        kinds: The same of all stretches.
        starts: First characters of the stretches.
        boxes: Boxes of all characters.
        rtl: Whether the stretches are of right-to-left letters.
        cjk: Whether they are of Chinese, Japanese, or Korean characters.
    """
    ends = np.append(starts[1:], len(boxes))
    for kind in doubtful:
        members = np.nonzero((kinds == kind).all(axis=1))[0]
        own = boxes[np.concatenate([np.arange(starts[row], ends[row]) for row in members.tolist()])]
        sides = own[:, 2:] - own[:, :2]
        wide, high = (sides[:, ::-1] if kind[2] % 180 == 90 else sides)[(sides > 0).all(axis=1)].T
        if kind[2] % 90 or not len(wide):
            continue
        low, tall, middle = (float(part) for part in (*np.percentile(high, (20, 85)), np.median(wide)))
        nominal = float(em[members[0]])
        is_rtl, is_cjk = rtl[members].mean() > 0.5, cjk[members].mean() > 0.5
        # Arabic letters have dots, and ideographs are as wide as high.
        least, most = 0.15 if is_rtl else 0.5, 2.2 if is_cjk else 2
        plausible = least * _WIDE < middle / max(nominal, 1e-6) < most * _WIDE
        if plausible and (is_rtl or is_cjk):
            size[members] = nominal  # Arabic letters are high, or have boxes of their own, as `一` has
        elif middle < _NARROW * low:
            if plausible:
                size[members] = nominal
            elif len(wide) >= _TELLING_GLYPHS or size[members[0]] != nominal:
                size[members] = middle / _WIDE
        elif plausible and nominal < tall < _LINE * nominal and np.mean(np.abs(high - tall) < _SAME * tall) > 0.5:
            size[members] = nominal  # the boxes of most letters are as high as their line, those of leader dots are not
        elif tall > 1.15 * low and len(wide) >= _TELLING_GLYPHS:
            size[members] = tall / _TALL
        elif plausible and nominal > 1.5 * tall:
            size[members] = nominal  # a font of few signs, such as dashes, has their height


def _has_one_pitch(letters: Ints, widths: Floats) -> bool:
    """Return whether letters that have different widths in other fonts have one width."""
    narrow = np.isin(letters, _NARROW_LETTERS)
    if len(np.unique(letters)) < _TELLING_LETTERS or not 0 < narrow.sum() < len(letters):
        return False
    # The box of a letter that reaches beyond its pitch is wider, as of slanted ones.
    one, other = widths[narrow].min(), widths[~narrow].min()
    return bool(abs(one - other) < 0.01 * other and widths.max() < _BEYOND_PITCH * other)


def _font_style(font: int) -> tuple[str, tuple[bool, bool, bool]]:
    """Return the name of a font, and whether it is bold, italic, and mono."""
    if not font:
        return "", (False, False, False)
    buffer = ctypes.create_string_buffer(256)
    _font_name(font, ctypes.addressof(buffer), len(buffer))
    name = buffer.value.decode("utf-8", "replace")
    return name, _style_of(name, _font_flags(font))


@lru_cache(maxsize=1024)
def _style_of(name: str, flags: int) -> tuple[bool, bool, bool]:
    """Return bold, italic, and mono of a font.

    Its weight is ignored: pdfium guesses it from the stem, often wrongly.
    """
    name = name.partition("+")[2] or name
    flags = max(flags, 0)
    return (
        bool(_BOLD.search(name)) or bool(flags & _FORCE_BOLD),
        bool(_ITALIC.search(name)) or bool(flags & _ITALIC_FLAG),
        bool(_MONO.search(name)) or bool(flags & _FIXED_PITCH),
    )


# Glyphs from a PDF's characters: ligatures resolved, overprints removed. A glyph's coordinates are in the frame of its
# writing direction. `u` runs along the text, and `v` runs down from line to line, so that turned text needs no special
# case.


#: Nominal extent of a glyph above and below its baseline, in font sizes (Latin text fonts).
ASCENT, DESCENT = 0.8, 0.22
#: Share of characters without a Unicode mapping up to which they are single wrong glyphs.
_FEW_UNNAMED = 0.05

_SPACES = (9, 10, 13, 32, 0x85, 0xA0, *range(0x2000, 0x200C), 0x2028, 0x2029, 0x202F, 0x205F, 0x2060, 0x3000, 0xFEFF)
#: Bullets of the fonts Symbol and Wingdings, which have no code points of their own.
_BULLETS = {0xF0B7: "•", 0xF0A7: "▪", 0xF0A8: "☐", 0xF06E: "■", 0xF071: "❑", 0xF0D8: "➢", 0xF0FC: "✓", 0xF02D: "-"}
_BULLETS |= {0xF0FE: "☑", 0xF0FD: "☒", 0xF06F: "☐"}  # boxes of forms
#: Radicals, ligatures, and forms of Arabic letters and vertical punctuation: characters that searches do not find.
_FORMS = (
    *((0x2E80, 0x2FD5), (0xFB00, 0xFB18), (0xFB1D, 0xFDFF), (0xFE10, 0xFE19), (0xFE35, 0xFE44)),
    (0xFE70, 0xFEFD),
)
#: Radicals that fonts have in place of ideographs, and that Unicode does not decompose.
_RADICALS = str.maketrans(
    "⺟⺠⻁⻄⻅⻆⻉⻋⻓⻔⻘⻙⻚⻛⻜⻢⻣⻤⻥⻦⻧⻨⻩⻬⻮⻰",
    "母民虎西见角贝车长门青韦页风飞马骨鬼鱼鸟卤麦黄齐齿龙",
)
_SLASH = 0x338
#: Combining characters by the accents that fonts of seven bits have as glyphs of their own.
_ACCENTS = {
    **{0x60: "\u0300", 0xB4: "\u0301", 0x2C6: "\u0302", 0x2DC: "\u0303", 0xAF: "\u0304", 0x2C9: "\u0304"},
    **{0x2D8: "\u0306", 0x2D9: "\u0307", 0xA8: "\u0308", 0x2DA: "\u030a", 0x2DD: "\u030b", 0x2C7: "\u030c"},
    **{0xB8: "\u0327", 0x2DB: "\u0328", 0x20D7: "\u20d7", _SLASH: "\u0338", 0x20DD: "\u20dd", 0x21A6: "\u21a6"},
}
#: Accents that join signs, not only letters.
_OVER_SIGNS = frozenset((_SLASH, 0x21A6))
#: Characters that Unicode does not compose of a letter or sign and an accent.
_JOINED = {"c\u20dd": "©", "R\u20dd": "®", "→\u21a6": "↦"}
_DOTLESS = {"ı": "i", "ȷ": "j"}
_RTL_MARKS = ((0x591, 0x5BD), (0x610, 0x61A), (0x64B, 0x65F), (0x670, 0x670), (0x6D6, 0x6DC))
#: Least gap in font sizes of a space between right-to-left letters; pdfium also reports spaces inside their words.
RTL_SPACE = 0.12
#: Least gap in font sizes of a space between other letters.
_WORD_SPACE = 0.17
#: The same after letters of a shared `/ActualText`. Fonts of these scripts are high: a space of Devanagari has 0.13.
_NAMED_SPACE = 0.08
#: Turns in degrees of a curve in all, at least, and from letter to letter, at most; largest gap in font sizes, and
#: fewest letters of a curve.
_BEND, _SPREAD, _CURVED_LETTERS = (20, 45), 1.6, 5
#: Limit of letters and marks of one right-to-left word; bounds the work on extreme pages.
_LONGEST = 100
#: Letters and marks of Chinese, Japanese, and Korean.
_CJK = ((0x2E80, 0x2FDF), (0x3001, 0x9FFF), (0xAC00, 0xD7A3), (0xF900, 0xFAFF), (0xFE10, 0xFE4F), (0xFF00, 0xFFEF))
#: Pitch of glyphs in font sizes down a column of vertical writing, and fewest glyphs of a column on a horizontal page.
_PITCH, _COLUMN_GLYPHS = (0.5, 1.4), 8
_RTL_DIGITS = ((0x660, 0x669), (0x6F0, 0x6F9))
_RTL = ((0x590, 0x8FF), (0xFB1D, 0xFDFF), (0xFE70, 0xFEFD), (0x10800, 0x10FFF), (0x1E800, 0x1EFFF))


@dataclass(frozen=True, slots=True)
class Glyphs:
    """Glyphs in the PDF's order. All fields are arrays of length n, except `texts`, `styles`, and `thick`."""

    texts: list[str]
    boxes: Floats  # (n, 4) as shown
    turn: Ints  # degrees clockwise of the frame
    u0: Floats
    u1: Floats
    base: Floats  # v of the baseline
    size: Floats
    style: Ints
    spaced: Bools  # preceded by whitespace
    rtl: Bools
    thick: Bools  # printed more than once, as a substitute for bold
    objects: Ints
    styles: tuple[Style, ...]
    large: Bools  # a large operator or delimiter, which is a word
    letters: Bools  # of a font for variables of formulas
    doubtful: Bools  # without a Unicode mapping, or with one without a meaning
    fonts: Ints
    unmapped: int
    tags: Ints  # places of their tags, -1 without one


def _within(codes: Ints, ranges: tuple[tuple[int, int], ...]) -> Bools:
    found = np.zeros(len(codes), dtype=bool)
    for first, last in ranges:
        found |= (codes >= first) & (codes <= last)
    return found


def glyphs_of(chars: Chars, width: float, height: float) -> Glyphs:
    """Return the glyphs that lie on a page of this size."""
    codes = _with_pairs_joined(chars.codes)
    control = chars.unnamed & (codes >= 0) & (codes < 32)  # a glyph, also with the code of white space
    space = (np.isin(codes, _SPACES) | (codes < 0)) & ~control
    unmapped = _unmapped(codes) | control
    # If most fonts of a page lack mappings, they usually have the codes of ASCII: the page is judged as a whole.
    few = chars.unnamed.sum() <= _FEW_UNNAMED * len(codes)
    doubtful = unmapped | (chars.unnamed if few else False)
    boxes = _placed(chars.boxes)
    x, y = (boxes[:, 0] + boxes[:, 2]) / 2, (boxes[:, 1] + boxes[:, 3]) / 2
    kept = ~space & (chars.style >= 0) & (x >= 0) & (y >= 0) & (x <= width) & (y <= height)
    sizes = np.array([style.size for style in chars.styles] or [0.0])
    size = sizes[np.maximum(chars.style, 0)]
    kept &= (size > 0) & ~np.isin(codes, (_REMOVED, *DIRECTIONS))  # an invisible soft hyphen divides no word
    again, thick = _overprints(chars, codes, size, kept)
    kept &= ~again
    kept[_underlines(codes, boxes, kept)] = False
    index = np.nonzero(kept)[0]
    gaps = np.cumsum(space)
    texts = _texts(codes, unmapped)
    index = _with_accents(index, codes, boxes, size, texts)
    spaced = np.diff(gaps[index], prepend=-1) > 0
    turn, u0, u1, base = _framed(chars, boxes, size, index)
    _straighten(_Placed(chars.objects[index], turn, u0, u1, base, size[index], spaced))
    left_out = again | kept
    left_out[index] = False  # overprints, and accents, which are part of their letters
    jumped = np.diff(np.cumsum(left_out)[index], prepend=0) > 0  # pdfium reports spaces around what is left out
    level = (turn[1:] == turn[:-1]) & (np.abs(np.diff(base)) < 0.05 * size[index][1:])
    least = np.where(jumped[1:], _WORD_SPACE, -np.inf)
    least[chars.named[index][:-1]] = _NAMED_SPACE  # pdfium knows only the first object's place: a space seems to follow
    spaced[1:] &= ~(level & (u0[1:] - u1[:-1] < least * size[index][1:]))
    if _within(codes[index], _CJK).any():
        _stack(codes[index], boxes[index], _Placed(chars.objects[index], turn, u0, u1, base, size[index], spaced))
    if _within(codes[index], _RTL).any():
        placed = _Placed(chars.objects[index], turn, u0, u1, base, size[index], spaced)
        order = _right_to_left(codes[index], boxes[index], placed)
        index, turn, spaced = index[order], turn[order], spaced[order]
        u0, u1, base = u0[order], u1[order], base[order]
    return Glyphs(
        [texts[i] for i in index.tolist()],
        boxes[index],
        turn,
        u0,
        u1,
        base,
        size[index],
        chars.style[index],
        spaced,
        _within(codes[index], _RTL) & ~_within(codes[index], _RTL_DIGITS),
        thick[index],
        chars.objects[index],
        chars.styles,
        chars.large[index],
        chars.letters[index],
        doubtful[index],
        chars.fonts[index],
        int(unmapped.sum()),
        np.full(len(index), -1, dtype=np.int64),
    )


def _with_accents(index: Ints, codes: Ints, boxes: Floats, size: Floats, texts: list[str]) -> Ints:
    """Join accents that are glyphs of their own with the letter below or above, in `texts`; return the other glyphs."""
    accents = np.nonzero(np.isin(codes[index], list(_ACCENTS)))[0].tolist()
    if not accents:
        return index
    left = np.ones(len(index), dtype=bool)
    placed, sizes = boxes[index], size[index]
    for at in accents:
        near = [place for place in (at + 1, at - 1) if 0 <= place < len(index)]
        place = next((place for place in near if _has_accent(placed, sizes, at, place)), -1)
        if place < 0:
            far = _nearest_on_line(placed, at)
            place = far if far != at and _has_accent(placed, sizes, at, far) else -1
        if place < 0 or not left[place]:
            continue
        letter, accent = int(index[place]), int(codes[index[at]])
        plain = _DOTLESS.get(texts[letter], texts[letter])
        if plain[:1].isalpha() or accent in _OVER_SIGNS:
            joined = plain + _ACCENTS[accent]
            texts[letter] = _JOINED.get(joined) or unicodedata.normalize("NFC", joined)
            left[at] = False
    return index[left]


def _has_accent(boxes: Floats, sizes: Floats, at: int, place: int) -> bool:
    """Return whether the accent at `at` covers the glyph at `place` across, and both have one size."""
    (x0, y0, x1, y1), (left, top, right, bottom) = boxes[at].tolist(), boxes[place].tolist()
    if min(y1, bottom) <= max(y0, top) or abs(sizes[at] - sizes[place]) >= 0.1 * sizes[place]:
        return False
    if x1 - x0 > 1.2 * max(right - left, 0.8 * sizes[at]):
        return False  # an accent of several letters
    if x1 - x0 <= 0.05 * sizes[at]:  # an accent without a width
        return bool(left - 0.1 * sizes[place] < (x0 + x1) / 2 < right)
    return bool(min(x1, right) - max(x0, left) > 0.5 * min(x1 - x0, right - left))


def _nearest_on_line(boxes: Floats, at: int) -> int:
    """Return the index of the glyph nearest to the accent on its line; a PDF may write them far from each other."""
    accent = boxes[at]
    level = np.minimum(boxes[:, 3], accent[3]) - np.maximum(boxes[:, 1], accent[1])
    far = np.abs(boxes[:, 0] + boxes[:, 2] - accent[0] - accent[2])
    far[level < 0.5 * (accent[3] - accent[1])] = np.inf
    far[at] = np.inf
    return int(np.argmin(far))


def _with_pairs_joined(codes: Ints) -> Ints:
    """Join surrogate pairs to one code point at the first half's place; the second half becomes -1.

    Of some pairs, pdfium returns only the second half. It is read as a mathematical letter (U+1D400 to U+1D7FF): these
    have all second halves with the same first half, and are the most frequent characters outside the basic plane.
    """
    high, low_half = (codes >= 0xD800) & (codes < 0xDC00), (codes >= 0xDC00) & (codes < 0xE000)
    if not high.any() and not low_half.any():
        return codes
    alone = low_half & ~np.concatenate(([False], high[:-1]))
    codes = np.where(alone, 0x1D400 + codes - 0xDC00, codes)
    for at in np.nonzero(high[:-1])[0].tolist():
        low = int(codes[at + 1])
        if 0xDC00 <= low < 0xE000:
            codes[at] = 0x10000 + ((int(codes[at]) - 0xD800) << 10) + low - 0xDC00
            codes[at + 1] = -1
    return codes


def _unmapped(codes: Ints) -> Bools:
    control = ((codes >= 0) & (codes < 32) & (codes != 10) & (codes != 13)) | ((codes > 0x7E) & (codes < 0xA0))
    private = ((codes >= 0xD800) & (codes < 0xF900)) | (codes >= 0xF0000)
    known = np.isin(codes, list(_BULLETS)) | (codes == 0x85)
    nothing = (codes == 0xFFFD) | ((codes >= 0xFDD0) & (codes < 0xFDF0)) | (codes & 0xFFFE == 0xFFFE)
    found: Bools = (control | private | nothing) & ~known & (codes >= 0)
    return found


def _texts(codes: Ints, unmapped: Bools) -> list[str]:
    texts = [chr(code) if code >= 0 else "" for code in codes.tolist()]
    for at in np.nonzero(unmapped)[0].tolist():
        texts[at] = "\ufffd"
    for at in np.nonzero(_within(codes, _FORMS))[0].tolist():
        texts[at] = unicodedata.normalize("NFKC", texts[at]).translate(_RADICALS).strip()
    for at in np.nonzero(np.isin(codes, list(_BULLETS)))[0].tolist():
        texts[at] = _BULLETS[int(codes[at])]
    return texts


def _placed(boxes: Floats) -> Floats:
    """Place characters without a box (joiners, marks) at the end of their predecessor."""
    empty = (boxes[:, 2] <= boxes[:, 0]) & (boxes[:, 3] <= boxes[:, 1])
    if not empty.any():
        return boxes
    last = np.maximum.accumulate(np.where(empty, 0, np.arange(len(boxes))))
    boxes = boxes.copy()
    before = boxes[last[empty]]
    boxes[empty] = np.column_stack((before[:, 2], before[:, 1], before[:, 2], before[:, 3]))
    return boxes


def _overprints(chars: Chars, codes: Ints, size: Floats, kept: Bools) -> tuple[Bools, Bools]:
    """Return which characters repeat another at the same place, and which are repeated."""
    x, y = chars.boxes[:, 0], chars.boxes[:, 1]
    if chars.styles:  # the boxes of outlines are those of their glyphs
        angles = np.array([style.angle for style in chars.styles])[chars.style]
        y = np.where(angles == 0, chars.origins[:, 1], y)
    again, repeated = np.zeros(len(codes), dtype=bool), np.zeros(len(codes), dtype=bool)
    index = np.nonzero(kept & (chars.boxes[:, 2] > x))[0]
    power = np.log2(np.maximum(size[index], 1))
    # Two close neighbors of similar sizes share a cell in one of the grids.
    for cell in (2 ** np.floor(power), 2 ** np.round(power)):
        for shift in (0.0, 0.5):
            rows = np.floor(y[index] / cell + shift)
            order = index[np.lexsort((x[index], rows, cell, codes[index]))]
            one, other = np.minimum(order[:-1], order[1:]), np.maximum(order[:-1], order[1:])
            reach = 0.1 * np.minimum(size[one], size[other])
            near = (codes[one] == codes[other]) & (np.maximum(size[one], size[other]) < 15 * reach)
            near &= (np.abs(x[one] - x[other]) < reach) & (np.abs(y[one] - y[other]) < reach)
            near &= (other - one != 1) | (chars.objects[one] != chars.objects[other])  # not the letters of a ligature
            again[other[near]] = True
            repeated[one[near]] = True
    return again, repeated


def _underlines(codes: Ints, boxes: Floats, kept: Bools) -> list[int]:
    """Return the underscores below other characters: words are underlined, and fields filled in, in this way."""
    marked = kept & (codes == ord("_"))
    inner = 1 + np.nonzero(marked[2:] & marked[1:-1] & marked[:-2])[0]  # those at the ends touch letters of a name
    if not len(inner):
        return []
    others = boxes[kept & ~marked]
    others = others[np.argsort(others[:, 1] + others[:, 3])]
    levels = (others[:, 1] + others[:, 3]) / 2

    def is_below(at: int) -> bool:
        x0, y0, x1, y1 = boxes[at].tolist()
        across, down = (x1 - x0) / 8, (y1 - y0) / 4
        first, end = np.searchsorted(levels, (y0 + down, y1 - down)).tolist()
        return bool(((others[first:end, 0] < x1 - across) & (others[first:end, 2] > x0 + across)).any())

    below = [at for at in inner.tolist() if is_below(at)]
    return [
        *below,
        *(end for end in {at + step for at in below for step in (-1, 1)}.difference(below) if is_below(end)),
    ]


@dataclass(frozen=True, slots=True)
class _Placed:
    """Glyphs in their frames. `_stack` and `_right_to_left` correct the arrays in place."""

    objects: Ints
    turn: Ints
    u0: Floats
    u1: Floats
    base: Floats
    size: Floats
    spaced: Bools


def _straighten(glyphs: "_Placed") -> None:
    """Place the letters along a curve, each of which is turned further than the one before, on one line, in place.

    The line has the direction of its middle letter, but not along an axis: its box is that of all letters.
    """
    turn, u0, u1, base, size = glyphs.turn, glyphs.u0, glyphs.u1, glyphs.base, glyphs.size
    cos, sin = np.cos(np.radians(turn)), np.sin(np.radians(turn))
    bend = (np.diff(turn) + 180) % 360 - 180
    if np.count_nonzero(bend) < _CURVED_LETTERS:
        return
    step_x = (u0 * cos - base * sin)[1:] - (u1 * cos - base * sin)[:-1]
    step_y = (u0 * sin + base * cos)[1:] - (u1 * sin + base * cos)[:-1]
    half = np.radians(turn[:-1] + bend / 2)
    gap, aside = step_x * np.cos(half) + step_y * np.sin(half), step_y * np.cos(half) - step_x * np.sin(half)
    small = np.minimum(size[1:], size[:-1])
    follows = (
        (np.abs(bend) <= _BEND[1]) & (gap > -0.5 * small) & (gap < _SPREAD * small) & (np.abs(aside) < 0.4 * small)
    )
    follows &= np.abs(np.diff(size)) < 0.1 * small
    edges = np.diff(follows.astype(np.int8), prepend=0, append=0)
    for first, last in zip(np.nonzero(edges == 1)[0].tolist(), np.nonzero(edges == -1)[0].tolist(), strict=True):
        bends, line = bend[first:last], slice(first, last + 1)
        if 2 * np.count_nonzero(bends) < len(bends) or abs(bends.sum()) < _BEND[0] or len(bends) < _CURVED_LETTERS:
            continue
        gaps = gap[first:last] / small[first:last]
        usual = float(np.median(gaps))  # letters along a curve are often spread
        spaces = gaps > max(usual, 1.5 * usual) + _WORD_SPACE
        glyphs.spaced[first + 1 : last + 1] = spaces
        middle, widths = (first + last) // 2, (u1 - u0)[line]
        ends = np.cumsum(widths + np.append(0.0, np.where(spaces, 2 * _WORD_SPACE, 0) * small[first:last]))
        x, y = (u0 * cos - base * sin)[middle], (u0 * sin + base * cos)[middle]
        angle = int(turn[middle]) + (turn[middle] % 90 == 0)
        along, across = np.cos(np.radians(angle)), np.sin(np.radians(angle))
        u1[line] = ends + (x * along + y * across) - (ends - widths)[middle - first]
        u0[line] = u1[line] - widths
        turn[line], base[line] = angle, y * along - x * across


def _stack(codes: Ints, boxes: Floats, glyphs: "_Placed") -> None:
    """Place columns of vertical writing in the frame of text that runs down the page, in place.

    The letters stand upright, one below the other, in the PDF's order. On a page with mostly horizontal text, only long
    columns are vertical writing.
    """
    turn, size, spaced = glyphs.turn, glyphs.size, glyphs.spaced
    cjk, em = _within(codes, _CJK), np.minimum(size[1:], size[:-1])
    x, y = (boxes[:, 0] + boxes[:, 2]) / 2, (boxes[:, 1] + boxes[:, 3]) / 2
    level = (turn[1:] == 0) & (turn[:-1] == 0) & (np.maximum(size[1:], size[:-1]) < 1.2 * em)
    # The boxes of punctuation and Latin letters are narrower in some fonts, and at one side of the column.
    near = (np.abs(np.diff(x)) < 0.3 * em) | (np.abs(np.diff(boxes[:, 2])) < 0.1 * em)
    pitch = np.diff(y) / em
    below = level & near & (pitch > _PITCH[0]) & (pitch < _PITCH[1] + spaced[1:])
    beside = level & (np.abs(np.diff(y)) < 0.2 * em) & (np.diff(x) > 0.3 * em) & (np.diff(x) < 1.6 * em)
    pairs = cjk[1:] & cjk[:-1]
    mostly = (below & pairs).sum() > (beside & pairs).sum()
    edges = np.diff(below.astype(np.int8), prepend=0, append=0)
    for first, last in zip(np.nonzero(edges == 1)[0].tolist(), np.nonzero(edges == -1)[0].tolist(), strict=True):
        column = slice(first, last + 1)
        own = cjk[column]
        if 2 * own.sum() < len(own) or not (mostly or len(own) >= _COLUMN_GLYPHS):
            continue
        middle, half = float(np.median(x[column][own])), size[column] / 2
        turn[column], glyphs.base[column] = 90, (ASCENT - DESCENT) / 2 * size[column] - middle
        glyphs.u0[column], glyphs.u1[column] = y[column] - half, y[column] + half
        spaced[first + 1 : last + 1] &= pitch[first:last] > _PITCH[1]  # pdfium reports a space before a new line


def _right_to_left(codes: Ints, boxes: Floats, glyphs: _Placed) -> Ints:
    """Return the order of the glyphs in which the letters of right-to-left words are in reading order.

    pdfium returns some of these words from left to right, for example those that a browser printed glyph by glyph. All
    letters of a word get the baseline of its last letter, because letters of Nastaliq descend to it.
    """
    order = np.arange(len(codes))
    ordered = _has_ordered_ligatures(codes, boxes, glyphs.objects)
    rtl, marks = _within(codes, _RTL) & ~_within(codes, _RTL_DIGITS), _within(codes, _RTL_MARKS)
    u0, u1, base, size, spaced = glyphs.u0, glyphs.u1, glyphs.base, glyphs.size, glyphs.spaced
    marked = np.append(marks[1:] & (np.diff(glyphs.objects) == 0), False)
    low_box = np.where(glyphs.turn % 180 == 0, boxes[:, 3] - boxes[:, 1], size) < 0.3 * size
    lost = rtl & ~marks & marked & low_box  # these letters have the box of their vowel mark
    u0[lost], u1[lost] = u0[lost] - 0.25 * size[lost], u0[lost] + 0.25 * size[lost]
    at = 0
    while at < len(codes):
        if not rtl[at]:
            at += 1
            continue
        end, low, high = at + 1, u0[at], u1[at]
        while end < min(len(codes), at + _LONGEST) and rtl[end] and glyphs.turn[end] == glyphs.turn[at]:
            if abs(base[end] - base[end - 1]) >= size[at]:
                break
            near = max(u0[end] - high, low - u1[end])
            if not marks[end] and near > (RTL_SPACE if spaced[end] else 0.25) * size[end]:
                break
            low, high = min(low, u0[end]), max(high, u1[end])
            end += 1
        word = order[at:end].copy()
        order[at:end] = word = word[
            _reading_order(codes[word], marks[word], glyphs.objects[word], u0[word], u1[word], ordered=ordered)
        ]
        base[word] = next((base[letter] for letter in word[::-1] if not marks[letter] and not lost[letter]), base[at])
        spaced[word[0]], spaced[word[1:]] = spaced[at], False
        at = end
    return order


def _reading_order(codes: Ints, marks: Bools, objects: Ints, u0: Floats, u1: Floats, *, ordered: bool) -> Ints:
    """Return the order of the glyphs of one right-to-left word: letters from the right, each followed by its marks."""
    middle, width = (u0 + u1) / 2, u1 - u0
    letters = np.nonzero(~marks)[0]
    if not len(letters):
        return np.arange(len(marks))
    steps = np.diff(middle[letters])
    descending = bool((steps > 0).sum() <= (steps < 0).sum())  # pdfium has reversed the word
    letters = letters[np.argsort(-middle[letters], kind="stable")]
    borders = np.nonzero((np.diff(middle[letters]) != 0) | (np.diff(objects[letters]) != 0))[0] + 1
    if len(borders) + 1 < len(letters):  # a glyph of several letters
        glyphs = np.split(letters, borders)
        letters = np.concatenate([_as_written(glyph, codes, descending, ordered=ordered) for glyph in glyphs])
    owned: dict[int, list[int]] = {}
    for mark in np.nonzero(marks)[0].tolist():
        beyond = np.maximum(np.maximum(u0[letters] - middle[mark], middle[mark] - u1[letters]), 0)
        # pdfium divides the box of a letter with marks into parts of the same width.
        parts = (objects[letters] == objects[mark]) & (np.abs(width[letters] - width[mark]) < 0.01)
        owned.setdefault(int(letters[np.argmin(np.where(parts, beyond - 1000, beyond))]), []).append(mark)
    return np.array([at for letter in letters.tolist() for at in (letter, *owned.get(letter, ()))], dtype=np.int64)


def _as_written(glyph: Ints, codes: Ints, descending: bool, *, ordered: bool) -> Ints:
    """Return the letters of one glyph in reading order.

    pdfium reverses the letters that a font names for a ligature with their word. It decomposes presentation forms
    afterwards, so that their letters are `ordered`.
    """
    known, given = _rtl_ligatures(), tuple(codes[glyph].tolist())
    if (given in known) != (given[::-1] in known):
        return glyph if given in known else glyph[::-1]
    return glyph[::-1] if descending and not ordered else glyph


def _has_ordered_ligatures(codes: Ints, boxes: Floats, objects: Ints) -> bool:
    """Return whether most ligatures of the page that have one possible order are in it."""
    same = (boxes[1:] == boxes[:-1]).all(axis=1) & (np.diff(objects) == 0)
    pairs = np.nonzero(same & ~np.append(False, same[:-1]) & ~np.append(same[1:], False))[0]  # of two letters
    known = _rtl_ligatures()
    given = list(zip(codes[pairs].tolist(), codes[pairs + 1].tolist(), strict=True))
    return sum((pair in known) - (pair[::-1] in known) for pair in given) > 0


@cache
def _rtl_ligatures() -> frozenset[tuple[int, ...]]:
    """Return the letters of Unicode's Arabic and Hebrew ligatures in reading order."""
    forms = (unicodedata.normalize("NFKC", chr(code)) for code in (*range(0xFB1D, 0xFE00), *range(0xFE70, 0xFEFD)))
    return frozenset(tuple(map(ord, form)) for form in forms if len(form) > 1 and form.isalpha())


def _framed(chars: Chars, boxes: Floats, size: Floats, index: Ints) -> tuple[Ints, Floats, Floats, Floats]:
    """Return the frame's turn, and u0, u1, and the baseline's v in the frame."""
    angles = np.array([style.angle for style in chars.styles] or [0])
    angle = angles[np.maximum(chars.style[index], 0)]
    right = (np.round(angle / 90).astype(np.int64) * 90) % 360
    tilt = (angle - right + 180) % 360 - 180
    turn = np.where(np.abs(tilt) <= 5, right, angle)  # a scan's text is slightly tilted: neighbors still line up
    tilt = np.where(np.abs(tilt) <= 5, tilt, 0)
    cos, sin = np.cos(np.radians(turn)), np.sin(np.radians(turn))
    box, em = boxes[index], size[index]
    x, y = (box[:, 0] + box[:, 2]) / 2, (box[:, 1] + box[:, 3]) / 2
    wide, high = box[:, 2] - box[:, 0], box[:, 3] - box[:, 1]
    middle, level = x * cos + y * sin, y * cos - x * sin
    flat = np.abs(cos) >= np.abs(sin)
    slanted = np.minimum(np.abs(cos), np.abs(sin)) > 1e-6
    lean = np.where(slanted, em, 0)
    across = np.where(flat, wide - lean * np.abs(sin), high - lean * np.abs(cos))
    across = np.maximum(across / np.maximum(np.abs(cos), np.abs(sin)), 0)
    origin = chars.origins[index]
    along = origin[:, 0] * cos + origin[:, 1] * sin
    base = origin[:, 1] * cos - origin[:, 0] * sin + np.tan(np.radians(tilt)) * (middle - along)
    height = np.where(flat, high, wide)
    low = level + height / 2
    shared = np.minimum(base + DESCENT * em, low) - np.maximum(base - ASCENT * em, level - height / 2)
    # a font with wrong metrics
    base = np.where((shared < 0.5 * np.minimum(em, height)) & ~slanted, low - DESCENT * em, base)
    return turn, middle - across / 2, middle + across / 2, base
