"""Inspect a page for a model reader: figures, orientation, and text. Runs in a worker process."""

from dataclasses import replace
from typing import Any

from llm_ocr.documents.text_layer import suspicious
from llm_ocr.engines import Inspection
from llm_ocr.errors import install_command
from llm_ocr.types import Block, BlockKind, EncodedImage, Line, OcrText, Page, PageContent
from llm_ocr_cpu.layout import page_blocks
from llm_ocr_cpu.layout.rows import turn_of
from llm_ocr_cpu.page import GetRecogniser, has_text, is_scan, laid_out, pixels_of
from llm_ocr_cpu.regions import FORMULA, scaled_lines

_NO_OCR = "figures on scans are not detected: OCR is not installed"


def inspect_page(page: Page, recogniser: GetRecogniser, *, hinted: bool) -> Inspection:
    """Return the page's blocks if they include figures.

    A digital page is inspected by its objects, a scan by its pixels. OCR runs only if a scan shows a picture, or with
    `hinted`, if the text mentions one. Callers exclude pages without drawings. Raises `PageFailure`.
    """
    content = page.content
    if content is not None and content.lines and not is_scan(content):
        return Inspection(_with_figures(laid_out(content)), digital=True)
    return _seen_on_scan(page, recogniser, hinted=hinted)


def orientation(page: Page, recogniser: GetRecogniser) -> int:
    """Return the clockwise turn in degrees (0, 90, 180, or 270) that makes the page upright. Raises `PageFailure`.

    A text layer shows the direction of its lines; a scan is read by OCR. Columns of vertical writing are upright.
    """
    content = page.content
    if content is not None and has_text(content) and not is_scan(content):
        return turn_of(replace(content, lines=tuple(line for line in content.lines if not line.stacked)))
    return recogniser().orientation(pixels_of(page.image))


def text_of(page: Page) -> str:
    """Return the text layer in reading order; "" without one, or for text in no language."""
    content = page.content
    if content is None or not has_text(content) or suspicious(content):
        return ""
    return "\n".join(block.text for block in page_blocks(content, ()) if block.text)


def ocr_text(image: EncodedImage, recogniser: GetRecogniser) -> OcrText:
    """Return the text that OCR finds in a page image, with boxes on this image. Raises `PageFailure`."""
    loaded = recogniser()
    return loaded.read(pixels_of(image)).text(loaded.scripts)


def _with_figures(blocks: tuple[Block, ...]) -> tuple[Block, ...]:
    """Return the blocks if they include figures. The other reader reads formulas itself."""
    blocks = tuple(
        replace(block, kind=BlockKind.FORMULA) if block.label == FORMULA and block.kind is BlockKind.FIGURE else block
        for block in blocks
    )
    return blocks if any(block.kind is BlockKind.FIGURE for block in blocks) else ()


def _seen_on_scan(page: Page, recogniser: GetRecogniser, *, hinted: bool) -> Inspection:
    from llm_ocr_cpu.ocr import available

    if not available():  # OpenCV is part of the OCR package
        return Inspection(detail=f"{_NO_OCR} ({install_command('embedded')})")
    from llm_ocr_cpu.scan_objects import scan_objects

    pixels = pixels_of(page.image)
    content = page.content
    if content is not None and has_text(content):
        across, down = pixels.shape[1] / content.width, pixels.shape[0] / content.height
        return Inspection(_laid_out_on(pixels, scaled_lines(content.lines, across, down)))
    if not hinted and not scan_objects(pixels, ()).rasters:
        return Inspection()
    read = recogniser().read(pixels)
    blocks = _laid_out_on(read.image, read.lines)
    return Inspection(tuple(replace(block, box=read.on_page(block.box), continued=()) for block in blocks))


def _laid_out_on(pixels: Any, lines: tuple[Line, ...]) -> tuple[Block, ...]:
    from llm_ocr_cpu.scan_objects import scan_objects

    found = scan_objects(pixels, lines)
    height, width = pixels.shape[:2]
    return _with_figures(laid_out(PageContent(float(width), float(height), lines, found.rasters, found.paths)))
