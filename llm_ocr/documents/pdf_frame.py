"""From a PDF page's own coordinates to the page as shown: /Rotate and CropBox applied, y down, in points."""

import ctypes
from dataclasses import dataclass

import pypdfium2
import pypdfium2.raw as pdfium

from llm_ocr.types import Box

Matrix = tuple[float, float, float, float, float, float]


@dataclass(frozen=True, slots=True)
class Frame:
    """`matrix` maps a point of user space to the page as shown, `width` x `height` points."""

    matrix: Matrix
    width: float
    height: float

    def box(self, left: float, bottom: float, right: float, top: float) -> Box:
        """The box as shown of a rectangle in user space; not clipped."""
        a, b, c, d, e, f = self.matrix
        xs = (a * left + c * bottom + e, a * right + c * top + e, a * left + c * top + e, a * right + c * bottom + e)
        ys = (b * left + d * bottom + f, b * right + d * top + f, b * left + d * top + f, b * right + d * bottom + f)
        return Box(min(xs), min(ys), max(xs), max(ys))

    def within(self, inner: Matrix) -> "Frame":
        """The frame for what stands inside a form XObject with the matrix `inner`."""
        return Frame(multiplied(inner, self.matrix), self.width, self.height)


def multiplied(first: Matrix, then: Matrix) -> Matrix:
    """The matrix that applies `first` and after it `then`."""
    a, b, c, d, e, f = first
    p, q, r, s, t, u = then
    return (a * p + b * r, a * q + b * s, c * p + d * r, c * q + d * s, e * p + f * r + t, e * q + f * s + u)


def page_frame(page: pypdfium2.PdfPage) -> Frame:
    """Asked of pdfium itself, so that text and objects lie where it draws them."""
    width, height = page.get_size()
    longest = max(width, height, 1e-6)
    fine = 1e7 / longest  # FPDF_PageToDevice answers in whole numbers: ask on a device fine enough for 1e-7 of the page

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
