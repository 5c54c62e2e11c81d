"""What a PDF page's text layer says, quickly: lines as pdfium has them, for judging answers, not for reading."""

import ctypes
from dataclasses import dataclass

import pypdfium2
import pypdfium2.raw as pdfium

from llm_ocr.documents.pdf_frame import Frame
from llm_ocr.documents.pdf_objects import Objects
from llm_ocr.types import Box

#: Characters of a page above which its text is not looked at: maps have 40,000, and take 0.1 s.
_MOST_CHARACTERS = 25_000
#: pdfium's sign for a hyphen at which a word was broken (U+FFFE, or U+0002 in older releases): no text of the page.
_BROKEN = str.maketrans("", "", "\ufffe\u0002")


@dataclass(frozen=True, slots=True)
class Layer:
    """As in `Evidence`."""

    lines: tuple[tuple[str, Box], ...] = ()
    pictured: float = 0.0


def layer_of(page: pypdfium2.PdfPage, frame: Frame, objects: Objects, *, whole: bool) -> Layer:
    """Lines and images of a page; takes 2 ms for most. Not `whole`: fields hold text that is not in the layer."""
    area = max(frame.width * frame.height, 1e-6)
    pictured = min(1.0, sum(raster.box.area for raster in objects.rasters) / area)
    return Layer(_lines(page, frame) if whole else (), pictured)


def _lines(page: pypdfium2.PdfPage, frame: Frame) -> tuple[tuple[str, Box], ...]:
    text_page = page.get_textpage()
    try:
        if not 0 < text_page.count_chars() <= _MOST_CHARACTERS:
            return ()
        lines = []
        start = 0
        for line in text_page.get_text_range().split("\r\n"):
            box = _box(text_page, frame, start, len(line)) if line.strip() else None
            if box is not None:
                lines.append((line.translate(_BROKEN), box))
            start += len(line) + 2
        return tuple(lines)
    finally:
        text_page.close()


def _box(text_page: pypdfium2.PdfTextPage, frame: Frame, start: int, count: int) -> Box | None:
    """Around the characters, relative; None where they have no place."""
    left, top, right, bottom = (ctypes.c_double() for _ in range(4))
    around: Box | None = None
    for index in range(max(0, pdfium.FPDFText_CountRects(text_page, start, count))):
        if pdfium.FPDFText_GetRect(text_page, index, left, top, right, bottom):
            box = frame.box(left.value, bottom.value, right.value, top.value)
            around = around.union(box) if around else box
    return around.scaled(1 / frame.width, 1 / frame.height).clipped() if around else None
