"""Pages for table tests: made by reportlab and read back, or put together by hand."""

import contextlib
import io

import pypdfium2
import pytest

from llm_ocr.types import Box, Line, PageContent, Path, Word
from llm_ocr_cpu.pdf_text import page_content


def drawn(draw, width=595, height=842):
    """The content of a page on which `draw(canvas)` has drawn; y as in PDF, upwards."""
    canvas_module = pytest.importorskip("reportlab.pdfgen.canvas", reason="reportlab is not installed")
    out = io.BytesIO()
    canvas = canvas_module.Canvas(out, pagesize=(width, height))
    draw(canvas)
    canvas.save()
    pdf = pypdfium2.PdfDocument(out.getvalue())
    with contextlib.closing(pdf):
        return page_content(pdf[0])


def line(text, x, y, size=10, width=None, **look):
    """A line at x, y (top left, y down), its letters about half as wide as high, as in a proportional font."""
    words, at = [], x
    for part in text.split(" "):
        end = at + sum(size * (0.3 if letter in "ijlt.,:r" else 0.52) for letter in part)
        words.append(Word(part, Box(at, y, end, y + size)))
        at = end + 0.3 * size
    box = Box(x, y, words[-1].box.x1 if width is None else x + width, y + size)
    return Line(text, box, size, tuple(words), **look)


def rule(x0, y0, x1, y1, colour=(0, 0, 0)):
    """A stroked rule between two points."""
    half = 0.4
    box = Box(min(x0, x1) - half, min(y0, y1) - half, max(x0, x1) + half, max(y0, y1) + half)
    return Path(box, colour, None, 2)


def grid(xs, ys):
    """All rules of a grid."""
    across = [rule(xs[0], y, xs[-1], y) for y in ys]
    return across + [rule(x, ys[0], x, ys[-1]) for x in xs]


def page(lines=(), paths=(), rasters=(), width=595, height=842):
    return PageContent(width, height, tuple(lines), tuple(rasters), tuple(paths))


def rows(markdown):
    """The cells of a pipe table, the delimiter row left out."""
    lines = markdown.split("\n")
    return [[cell.strip() for cell in row.strip("|").split(" | ")] for row in [lines[0], *lines[2:]]]
