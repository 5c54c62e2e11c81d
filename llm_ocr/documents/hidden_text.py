"""Hide text of a PDF that its page contradicts, from all readers.

Covered text: the page draws over it, such as a white box and a new amount, a black bar with a label, or a photo. The
picture has ink at such a place, so it does not show that the text is hidden. The page is drawn again without the text:
hidden text changes no pixel.

Marked text: its `/ActualText`, which pdfium reads in place of the glyphs, contradicts them, such as an amount that a
reader does not see. Most of it agrees with them, or says what the font does not: the letters of a ligature, or a soft
hyphen. The names of the glyphs count if both are numbers or letters that differ.
"""

import contextlib
import ctypes
import sys
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from itertools import islice
from typing import Any

import pypdfium2
import pypdfium2.raw as pdfium

from llm_ocr.documents.pdf_objects import (
    MAX_OBJECTS,
    Covered,
    Frame,
    Named,
    Objects,
    Placed,
    notes_at,
    page_frame,
    page_objects,
)
from llm_ocr.documents.text_layer import meaningless
from llm_ocr.types import SCAN, Box

#: Limits of the text objects that are compared with each other, and of the pairs.
_MOST_TEXTS, _MOST_PAIRS = 20_000, 200
#: Limits of the comparisons of texts with bars, and of the places found.
_MOST_COMPARED, _MOST_BARRED = 5_000_000, 2000
#: Least share of a text's height that a bar covers, and least height of the bar in heights of the text: a bar that is
#: no higher may be a letter that is drawn again as a shape. Least width of the bar in heights of the text.
_HIGH, _HIGHER, _WIDE = 0.9, 1.05, 0.5
#: Part of the height of a text that counts: lines that follow each other closely overlap above and below.
_BAND = (0.35, 0.7)
#: Least share of a text's band that another text covers, and of a text that a picture covers.
_OVERLAP, _BELOW = 0.4, 0.9
#: Side in points of the places in which texts are counted.
_CELL = 2.0
#: Longest side in pixels of the pictures that are compared, and largest difference of gray values that is not visible.
_SIDE, _UNSEEN = 1536, 8


def hide_covered_text(page: pypdfium2.PdfPage, frame: Frame, objects: Objects) -> None:
    """Deactivate the text objects of the page that others hide, and set `objects.covered`.

    pdfium neither draws nor reads objects that are not active. Of an object that is hidden in part, the places are
    told. If of two texts the lower one is visible, the upper one may be in a layer that is off.
    """
    texts, page_area = objects.texts_at, frame.width * frame.height
    # Older OCR of a scan may be drawn below it.
    scan = max((image.order for image in objects.images_at if image.box.area > SCAN * page_area), default=-1)
    above = [at for at, text in enumerate(texts) if text.order > scan]
    # What is drawn after glyphs that only clip it shows them.
    drawn = [
        at for at in above if pdfium.FPDFTextObj_GetTextRenderMode(texts[at].handle) != pdfium.FPDF_TEXTRENDERMODE_CLIP
    ]
    below = [
        at
        for at in drawn
        if any(
            image.order > texts[at].order and texts[at].box.covered_by(image.box) > _BELOW
            for image in objects.images_at
        )
    ]
    found = _pairs(frame, [texts[at].box for at in above]) if 1 < len(above) <= _MOST_TEXTS else []
    pairs = [(above[one], above[other], place) for one, other, place in found]
    bars = [*((bar.box, bar.order) for bar in objects.bars), *((box, MAX_OBJECTS) for box in notes_at(page, frame))]
    barred = _barred(texts, drawn, bars)
    if not (below or pairs or barred):
        return
    words = _texts_of(page, texts, {*below, *barred, *(at for one, other, _ in pairs for at in (one, other))})
    # The same words twice look bold.
    pairs = [pair for pair in pairs if not (words[pair[0]] in words[pair[1]] or words[pair[1]] in words[pair[0]])]
    lower: dict[int, list[Box]] = {at: [] for at in below} | barred
    for one, _, place in pairs:
        lower.setdefault(one, []).append(place)
    hidden = _hidden(page, frame, objects, lower, words)
    upper: dict[int, list[Box]] = {}
    for one, other, place in pairs:
        if one not in hidden:
            upper.setdefault(other, []).append(place)
    _hidden(page, frame, objects, upper, words)


def _barred(texts: Sequence[Placed], numbers: Sequence[int], bars: Sequence[tuple[Box, int]]) -> dict[int, list[Box]]:
    """Return the places at which bars that are drawn later cover texts, by the texts' numbers.

    Args:
        texts: Text objects of the page.
        numbers: Places in `texts` of those that are compared.
        bars: Box and drawing order of each bar.
    """
    import numpy as np

    found: dict[int, list[Box]] = {}
    if not numbers or not bars:
        return found
    orders = np.array([texts[at].order for at in numbers], dtype=float)
    x0, y0, x1, y1 = np.array([(box.x0, box.y0, box.x1, box.y1) for box in (texts[at].box for at in numbers)]).T
    least = np.minimum(_HIGH * (x1 - x0), _WIDE * (y1 - y0))
    places = 0
    for bar, order in islice(dict(bars).items(), _MOST_COMPARED // len(numbers)):  # the last one of equal bars
        if places >= _MOST_BARRED:
            break
        near = (orders < order) & (_HIGHER * (y1 - y0) < bar.height) & (_WIDE * (y1 - y0) < bar.width)
        near &= np.minimum(y1, bar.y1) - np.maximum(y0, bar.y0) > _HIGH * (y1 - y0)
        near &= np.minimum(x1, bar.x1) - np.maximum(x0, bar.x0) > least
        places += int(near.sum())
        for at in np.flatnonzero(near).tolist():
            box = texts[numbers[at]].box
            place = Box(max(box.x0, bar.x0), max(box.y0, bar.y0), min(box.x1, bar.x1), min(box.y1, bar.y1))
            found.setdefault(numbers[at], []).append(place)
        orders[near & (bar.x0 <= x0) & (x1 <= bar.x1)] = np.inf  # covered as a whole: further bars add nothing
    return found


def _pairs(frame: Frame, boxes: Sequence[Box]) -> list[tuple[int, int, Box]]:
    """Return pairs of texts of which one covers much of the other, in drawing order, with the common place."""
    import numpy as np

    bands = np.array([(b.x0, b.y0 + _BAND[0] * b.height, b.x1, b.y0 + _BAND[1] * b.height) for b in boxes])
    # The number of texts at each place of the page, from the corners of their bands.
    width, height = (int(side / _CELL) + 2 for side in (frame.width, frame.height))
    left, right = (np.clip(np.round(bands[:, side] / _CELL).astype(np.int64), 0, width - 1) for side in (0, 2))
    top = np.clip(np.floor(bands[:, 1] / _CELL).astype(np.int64), 0, height - 2)
    bottom = np.clip(np.maximum(np.round(bands[:, 3] / _CELL).astype(np.int64), top + 1), 0, height - 1)
    counts = np.zeros((height, width), np.int32)
    for rows, columns, sign in ((top, left, 1), (bottom, right, 1), (top, right, -1), (bottom, left, -1)):
        np.add.at(counts, (rows, columns), sign)
    shared = counts.cumsum(0, dtype=np.int32).cumsum(1, dtype=np.int32) > 1
    if not shared.any():
        return []
    sums = np.pad(shared, ((1, 0), (1, 0))).cumsum(0, dtype=np.int32).cumsum(1, dtype=np.int32)
    over = sums[bottom, right] - sums[top, right] - sums[bottom, left] + sums[top, left]
    near = np.flatnonzero(over > _OVERLAP * np.maximum(1, (right - left) * (bottom - top)))
    found: dict[tuple[int, int], Box] = {}
    for one in near.tolist():
        low, high = np.maximum(bands[one, :2], bands[:, :2]), np.minimum(bands[one, 2:], bands[:, 2:])
        common = np.clip(high - low, 0, None).prod(1)
        common[one] = 0
        for other in np.flatnonzero(common > _OVERLAP * (bands[one, 2:] - bands[one, :2]).prod()).tolist():
            place = Box(*low[other].tolist(), *high[other].tolist())
            found[min(one, other), max(one, other)] = place
        if len(found) > _MOST_PAIRS:
            break
    return [(one, other, place) for (one, other), place in found.items()]


def _hidden(
    page: pypdfium2.PdfPage, frame: Frame, objects: Objects, places: Mapping[int, list[Box]], words: Mapping[int, str]
) -> set[int]:
    """Deactivate the texts of which no pixel is visible; return these, and those that are hidden at their places."""
    import numpy as np

    def drawn() -> "np.ndarray[tuple[int, int], np.dtype[np.int16]]":
        scale = _SIDE / max(frame.width, frame.height)
        return np.asarray(page.render(scale=scale, grayscale=True).to_numpy().astype(np.int16))

    def is_unseen(box: Box) -> bool:
        shown = box.clipped(frame.width, frame.height).scaled(across, down)
        return not changed[int(shown.y0) : int(shown.y1) + 1, int(shown.x0) : int(shown.x1) + 1].any()

    if not places:
        return set()
    whole = drawn()
    for number in places:
        pdfium.FPDFPageObj_SetIsActive(objects.texts_at[number].handle, False)
    changed = np.abs(drawn() - whole) > _UNSEEN
    across, down = changed.shape[1] / frame.width, changed.shape[0] / frame.height
    found = set()
    for number, regions in places.items():
        handle, box, _ = objects.texts_at[number]
        if is_unseen(box):
            objects.covered.append(Covered(handle, None, len(words[number])))
            found.add(number)
            continue
        pdfium.FPDFPageObj_SetIsActive(handle, True)
        for region in filter(is_unseen, regions):
            objects.covered.append(Covered(handle, region, 0))
            found.add(number)
    return found


#: Bytes of `/ActualText` that are compared.
_LONGEST = 4096
_buffer = (ctypes.c_ubyte * _LONGEST)()  # a worker has one thread
_NAME = b"ActualText"
#: Height of the glyphs of a syllable in heights of the tallest one; stacked marks of Burmese have up to 2.65.
_ONE_LINE = 3.0
#: First words of the names of letters whose order in the file is that of the text, and which have one form.
_PLAIN_SCRIPTS = ("LATIN", "GREEK", "CYRILLIC", "DIGIT")


def drop_contradicted_names(page: pypdfium2.PdfPage, number: int, objects: Objects) -> None:
    """Remove the marks from the text objects of page `number` whose `/ActualText` contradicts their glyphs.

    In other spans of several text objects, the `/ActualText` of the first one stands for all; see `Objects.named`.
    """
    texts, is_level = objects.texts_at, page_frame(page).matrix[1] == 0
    spans: dict[int, tuple[str, list[int]]] = {}  # by mark: the objects of one span share it
    for at, text in enumerate(texts):
        for mark, told in _names_of(text.handle):
            if any(map(str.isalnum, told)):
                spans.setdefault(_address(mark), (told, []))[1].append(at)
    if not spans or page.pdf is None:
        return
    with contextlib.closing(page.pdf[number - 1]) as copy:  # its text is that of the glyphs
        copies = page_objects(copy, page_frame(copy), paths=False).texts_at
        if len(copies) != len(texts):
            return
        numbers = {at for _, places in spans.values() for at in places}
        for at in numbers:
            _remove_names(copies[at].handle)
        drawn, unnamed = _texts_of(copy, copies, numbers), _unnamed(copy)
        for told, places in spans.values():
            is_named = not any(_address(copies[at].handle) in unnamed for at in places)
            letters = "".join(drawn[at] for at in places)
            if is_named and contradicts(told, letters):
                for at in places:
                    _remove_names(texts[at].handle)
            elif len(places) > 1 and _has_all(told, letters) and is_level and _is_level(texts[places[0]].handle):
                first, *others = (texts[at] for at in places)
                boxes = [first.box, *(text.box for text in others)]
                around, high = reduce(Box.union, boxes), max(box.height for box in boxes)
                # The parts of a divided word are far from each other.
                if around.height < _ONE_LINE * high and around.width < sum(box.width for box in boxes) + high:
                    objects.named.append(Named(first.handle, [text.handle for text in others], around))


def _is_level(handle: Any) -> bool:
    """Return whether a text object is neither turned nor slanted upward."""
    matrix = pdfium.FS_MATRIX()
    return bool(pdfium.FPDFPageObj_GetMatrix(handle, matrix)) and abs(matrix.b) < 0.01 * abs(matrix.a)


def contradicts(told: str, drawn: str) -> bool:
    """Return whether `/ActualText` has other numbers or letters than the glyphs; it may have more letters."""
    ours, theirs = _plain(told), _plain(drawn)
    if not ours or not theirs or meaningless(drawn):
        return False
    if not all(unicodedata.name(c, "?").startswith(_PLAIN_SCRIPTS) for c in ours + theirs):
        return False
    if "".join(filter(str.isdigit, ours)) != "".join(filter(str.isdigit, theirs)):
        return True
    rest = iter(ours)
    return not all(letter in rest for letter in theirs)


def _has_all(told: str, drawn: str) -> bool:
    """Return whether `/ActualText` has all letters and marks of the glyphs, in any order, and runs to the right."""
    ours, theirs = (Counter(unicodedata.normalize("NFKD", text)) for text in (told, drawn))
    whole = all(theirs[letter] <= ours[letter] for letter in theirs if not letter.isspace())
    return whole and not any(unicodedata.bidirectional(letter) in ("R", "AL") for letter in told)


def _plain(text: str) -> str:
    return "".join(filter(str.isalnum, unicodedata.normalize("NFKD", text).casefold()))


def _names_of(handle: Any) -> Iterator[tuple[Any, str]]:
    """Yield the marks of a text object that have `/ActualText`, with this text."""
    for index in range(max(0, pdfium.FPDFPageObj_CountMarks(handle))):
        mark, size = pdfium.FPDFPageObj_GetMark(handle, index), ctypes.c_ulong()
        if mark and pdfium.FPDFPageObjMark_GetParamBlobValue(mark, _NAME, _buffer, _LONGEST, size):
            yield mark, _decoded(bytes(_buffer[: size.value]))


def _decoded(data: bytes) -> str:
    """Return a text string (ISO 32000-2, 7.9.2.2), which pdfium would return as it is in the file."""
    for mark, encoding in ((b"\xfe\xff", "utf-16-be"), (b"\xff\xfe", "utf-16-le"), (b"\xef\xbb\xbf", "utf-8")):
        if data.startswith(mark):
            return data[len(mark) :].decode(encoding, "replace")
    return data.decode("latin-1")


def _remove_names(handle: Any) -> None:
    for mark, _ in list(_names_of(handle)):
        pdfium.FPDFPageObj_RemoveMark(handle, mark)


def _address(handle: Any) -> int:
    return ctypes.cast(handle, ctypes.c_void_p).value or 0


def _unnamed(page: pypdfium2.PdfPage) -> set[int]:
    """Return the addresses of the text objects with glyphs for which their font has no name."""
    text_page = page.get_textpage()
    try:
        return {
            _address(pdfium.FPDFText_GetTextObject(text_page, index))
            for index in range(max(0, text_page.count_chars()))
            if pdfium.FPDFText_HasUnicodeMapError(text_page, index) == 1
        }
    finally:
        text_page.close()


def _texts_of(page: pypdfium2.PdfPage, texts: Sequence[Placed], numbers: set[int]) -> dict[int, str]:
    """Return the letters, digits, and signs of the text objects with these numbers."""
    text_page = page.get_textpage()
    found: dict[int, list[str]] = {number: [] for number in numbers}
    wanted = {_address(texts[number].handle): number for number in numbers}
    try:
        for index in range(max(0, text_page.count_chars())):
            number = wanted.get(_address(pdfium.FPDFText_GetTextObject(text_page, index)))
            if number is not None:
                found[number].append(chr(min(pdfium.FPDFText_GetUnicode(text_page, index), sys.maxunicode)))
    finally:
        text_page.close()
    whole = ((number, "".join(drawn).encode("utf-16-le", "surrogatepass")) for number, drawn in found.items())
    return {number: "".join(drawn.decode("utf-16-le", "replace").replace("\0", "").split()) for number, drawn in whole}
