"""From a clean page to what a scanner or a fax machine makes of it, and `scan.pdf` itself."""

import io
from typing import Any

import numpy as np
import numpy.typing as npt
import pypdfium2
from PIL import Image, ImageFilter
from reportlab.lib.pagesizes import A4
from reportlab.lib.utils import ImageReader
from reportlab.pdfgen.canvas import Canvas

from . import council
from .style import painted

DPI = 170
# Skew of each page in degrees, anticlockwise.
SKEW = (0.35, -0.6, 0.25)
QUALITY = 46


def make() -> bytes:
    """The bytes of the scan: images on portrait pages; the content of the third is turned a quarter anticlockwise."""
    clean = render(council.make(), DPI)
    clean[2] = clean[2].transpose(Image.Transpose.ROTATE_90)
    scans = [scanned(page, SKEW[n], seed=n + 1) for n, page in enumerate(clean)]

    def paint(canvas: Canvas) -> None:
        for scan in scans:
            canvas.drawImage(ImageReader(io.BytesIO(scan)), 0, 0, *A4)
            canvas.showPage()

    return painted(paint, A4, "Letter and report of the parish council, scanned")


def render(pdf: bytes, dpi: int, colour: bool = False) -> list[Image.Image]:
    """Every page of a PDF as an image: grey, or RGB."""
    with pypdfium2.PdfDocument(pdf) as document:
        pages = [document[n].render(scale=dpi / 72, grayscale=not colour).to_pil() for n in range(len(document))]
    return [page.convert("RGB" if colour else "L") for page in pages]


def scanned(page: Image.Image, skew: float, seed: int) -> bytes:
    """JPEG bytes of a grey page from a flat-bed scanner: soft, askew, on tinted paper, with dust and a dark edge."""
    dice = np.random.default_rng(seed)
    soft = page.filter(ImageFilter.GaussianBlur(0.45)).rotate(skew, Image.Resampling.BICUBIC, fillcolor=255)
    tones = np.asarray(soft, dtype=np.float64) / 255
    height, width = tones.shape
    down, across = np.mgrid[0:height, 0:width].astype(np.float64)
    paper = 240 - 6 * (across / width) - 4 * (down / height)
    paper -= 70 * np.exp(-across / 5) + 26 * np.exp(-(height - down) / 9)
    sheet = 38 + (paper - 38) * tones
    sheet += (dice.random((height, width)) + dice.random((height, width)) - 1) * 5
    _dust(sheet, dice)
    out = io.BytesIO()
    Image.fromarray(np.clip(sheet, 0, 255).astype(np.uint8)).save(out, "JPEG", quality=QUALITY, optimize=True)
    return out.getvalue()


def faxed(page: Image.Image, seed: int) -> Image.Image:
    """A page in black and white as a fax machine sends it: ragged edges, lost dots and a few stray ones."""
    dice = np.random.default_rng(seed)
    tones = np.asarray(page.filter(ImageFilter.GaussianBlur(0.7)), dtype=np.float64)
    grain = (dice.random(tones.shape) + dice.random(tones.shape) - 1) * 46
    white = tones + grain * ((tones > 24) & (tones < 240)) > 150
    height, width = white.shape
    for y, x in zip(dice.integers(0, height - 2, 130), dice.integers(0, width - 2, 130), strict=True):
        white[y : y + 1 + (x % 2), x : x + 1 + (y % 2)] = False
    return Image.fromarray(white)


def _dust(sheet: npt.NDArray[np.float64], dice: np.random.Generator) -> None:
    """Specks of one to three pixels, most of them faint, and two hairs."""
    height, width = sheet.shape
    for _ in range(160):
        y, x = int(dice.integers(0, height - 3)), int(dice.integers(0, width - 3))
        size = 1 + int(dice.integers(0, 3)) // 2
        sheet[y : y + size, x : x + size] -= 25 + 90 * dice.random() ** 2
    for _ in range(2):
        y, x = int(dice.integers(0, height - 60)), int(dice.integers(0, width - 60))
        bend = dice.random() * 0.05
        for step in range(40):
            sheet[y + step, min(width - 1, x + int(step * 0.4 + bend * step**2 / 2))] -= 45


def encode_frames(frames: list[Image.Image], dpi: int) -> bytes:
    """A TIFF of several black-and-white frames in CCITT Group 4."""
    out = io.BytesIO()
    first, *rest = frames
    options: dict[str, Any] = {"compression": "group4", "dpi": (dpi, dpi)}
    first.save(out, "TIFF", save_all=True, append_images=rest, **options)
    return out.getvalue()
