"""Pages with known text for the tests of OCR: set in Helvetica, which every PDF renderer has, and drawn as images."""

import contextlib
import io
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import pytest

from llm_ocr_cpu.ocr import available

needs_ocr = pytest.mark.skipif(not available(), reason="rapidocr or onnxruntime is not installed")

PROSE = [
    "The library was built on a hill above the harbour,",
    "and from its windows the readers could watch ships",
    "leave for the islands. Every morning at half past",
    "seven the keeper opened the doors, wound the clock",
    "and wrote the number of visitors of the day before",
    "into a ledger: 214 on Monday, 87 on Tuesday, and",
    "none at all on the day of the great storm (1953).",
]


class _Aside:
    """A recogniser in a thread of its own, as onnxruntime makes denormal numbers zero for its thread and for ever."""

    def __init__(self):
        from llm_ocr_cpu.ocr import Recogniser

        self._thread = ThreadPoolExecutor(1)
        self._reader = self._thread.submit(Recogniser).result()

    def read(self, *arguments):
        return self._thread.submit(self._reader.read, *arguments).result()

    def rest(self):
        self._thread.submit(self._reader.rest).result()

    def probe(self, *arguments, **options):
        return self._thread.submit(self._reader.probe, *arguments, **options).result()

    def reread(self, *arguments):
        return self._thread.submit(self._reader.reread, *arguments).result()

    def read_pictures(self, *arguments):
        return self._thread.submit(self._reader.read_pictures, *arguments).result()

    def read_outside(self, *arguments):
        return self._thread.submit(self._reader.read_outside, *arguments).result()

    def with_hints(self, *arguments):
        return self._thread.submit(self._reader.with_hints, *arguments).result()

    @property
    def scripts(self):
        return self._reader.scripts


@cache
def recogniser():
    """One for all tests of a process: loading the models takes a second."""
    return _Aside()


def prose(x=40, top=260, size=12, font="Helvetica"):
    """Drawing instructions of `page` for the seven lines of PROSE."""
    return [(text, x, top - 1.4 * size * row, size, font) for row, text in enumerate(PROSE)]


def page(*drawn, width=380, height=300, decorate=None):
    """A PDF of one small page; `drawn` are (text, x, y of the baseline from below, size, font)."""
    from reportlab.pdfgen.canvas import Canvas

    out = io.BytesIO()
    canvas = Canvas(out, pagesize=(width, height))
    for text, x, y, size, font in drawn:
        canvas.setFont(font, size)
        canvas.drawString(x, y, text)
    if decorate:
        decorate(canvas)
    canvas.save()
    return out.getvalue()


def pixels(pdf, longest=800):
    """The page as an RGB array, its longest side of `longest` pixels."""
    import numpy
    import pypdfium2

    with contextlib.closing(pypdfium2.PdfDocument(pdf)) as document:
        size = document[0].get_size()
        image = document[0].render(scale=longest / max(size), rev_byteorder=True).to_numpy()
        return numpy.array(image[:, :, :3])


def content(pdf):
    """The page's text layer."""
    import pypdfium2

    from llm_ocr_cpu.pdf_text import page_content

    with contextlib.closing(pypdfium2.PdfDocument(pdf)) as document:
        return page_content(document[0])


def downwards(lines):
    """Texts from top to bottom, lines of one height from left to right."""
    return [line.text for line in sorted(lines, key=lambda line: (round(line.box.y0 / 10), line.box.x0))]
