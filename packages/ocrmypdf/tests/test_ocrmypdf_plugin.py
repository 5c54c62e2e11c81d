"""`ocrmypdf --plugin llm_ocr_ocrmypdf`, with the real OCRmyPDF: what users find in the PDF, and what they are told."""

import contextlib
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pypdfium2
import pytest
from PIL import Image
from reportlab.pdfgen.canvas import Canvas

from llm_ocr.plugins import ENGINES
from llm_ocr_simulator import running

LINES = (
    "The library was built on a hill above the harbour,",
    "and from its windows the readers could watch ships",
    "leave for the islands. Every morning at half past",
    "seven the keeper opened the doors, wound the clock",
    "and wrote the number of visitors of the day before.",
)
WIDTH, HEIGHT, LEFT, TOP, SIZE, STEP = 380, 300, 40, 250, 13, 22
DPI = 150

needs_ocr = pytest.mark.skipif(ENGINES.get("embedded").missing() is not None, reason="OCR is not installed")


def scan(angle: float = 0) -> Image.Image:
    """Return an image of the lines, turned counterclockwise."""
    out = io.BytesIO()
    canvas = Canvas(out, pagesize=(WIDTH, HEIGHT))
    canvas.setFont("Helvetica", SIZE)
    for number, text in enumerate(LINES):
        canvas.drawString(LEFT, TOP - STEP * number, text)
    canvas.save()
    with contextlib.closing(pypdfium2.PdfDocument(out.getvalue())) as pdf:
        image = pdf[0].render(scale=DPI / 72).to_pil().convert("L")
    return image.rotate(angle, Image.Resampling.BICUBIC, expand=angle % 90 == 0, fillcolor=255)


def ocrmypdf(folder: Path, *options: str, image: Image.Image | None = None) -> subprocess.CompletedProcess[str]:
    """Run OCRmyPDF on `in.png`; the PDF is `out.pdf`."""
    (image or scan()).save(folder / "in.png", dpi=(DPI, DPI))
    plugin = ("--plugin", "llm_ocr_ocrmypdf", "--jobs", "1", "--output-type", "pdf")
    command = [sys.executable, "-m", "ocrmypdf", *plugin, *options, "in.png", "out.pdf"]
    names = {name: value for name, value in os.environ.items() if not name.startswith("LLM_OCR_")}
    return subprocess.run(command, cwd=folder, env=names, capture_output=True, text=True, encoding="utf-8", timeout=240)


def lines_of(folder: Path) -> dict[str, tuple[float, float, float]]:
    """Return left side, and bottom at both ends, of each line of the PDF's first page, by text."""
    with contextlib.closing(pypdfium2.PdfDocument(folder / "out.pdf")) as pdf:
        page = pdf[0].get_textpage()
        text = page.get_text_range()
        found = {}
        for line in filter(None, (one.strip() for one in text.splitlines())):
            start = text.index(line)
            (left, bottom, *_), (_, end, *_) = page.get_charbox(start), page.get_charbox(start + len(line) - 2)
            found[line] = (left, bottom, end)
        return found


def size_of(folder: Path) -> tuple[int, int]:
    with contextlib.closing(pypdfium2.PdfDocument(folder / "out.pdf")) as pdf:
        width, height = pdf[0].get_size()
        return round(width), round(height)


@needs_ocr
@pytest.mark.slow
def test_cpu_engine_makes_a_scan_searchable(tmp_path):
    done = ocrmypdf(tmp_path, "--sidecar", "out.txt")
    assert done.returncode == 0, done.stderr
    found = lines_of(tmp_path)
    assert list(found) == list(LINES)
    for number, (left, bottom, _) in enumerate(found.values()):
        assert abs(left - LEFT) < 4
        assert abs(bottom - (TOP - STEP * number)) < 5
    assert (tmp_path / "out.txt").read_text().split() == " ".join(LINES).split()
    with contextlib.closing(pypdfium2.PdfDocument(tmp_path / "out.pdf")) as pdf:
        assert "llm-ocr" in pdf.get_metadata_dict()["Creator"]


@needs_ocr
@pytest.mark.slow
def test_answer_of_a_server_stands_on_the_lines_of_the_page(tmp_path):
    answer = "\n".join(LINES).replace("harbour", "harbor").replace("half past", "**half** past")
    (tmp_path / "said.json").write_text(json.dumps({"*": answer}))
    with running(said=tmp_path / "said.json", model="reducto/RolmOCR", speed=100) as server:
        done = ocrmypdf(tmp_path, "--llm-ocr-server-url", server.url)
        asked = len(server.log()["requests"])
    assert done.returncode == 0, done.stderr
    assert asked >= 1
    found = lines_of(tmp_path)
    assert list(found) == [line.replace("harbour", "harbor") for line in LINES]
    for number, (left, bottom, _) in enumerate(found.values()):
        assert abs(left - LEFT) < 4
        assert abs(bottom - (TOP - STEP * number)) < 5


@needs_ocr
@pytest.mark.slow
def test_pages_are_turned_and_leveled(tmp_path):
    done = ocrmypdf(tmp_path, "--rotate-pages", image=scan(90))
    assert done.returncode == 0, done.stderr
    assert size_of(tmp_path) == (WIDTH, HEIGHT)
    done = ocrmypdf(tmp_path, "--deskew", image=scan(3))
    assert done.returncode == 0, done.stderr
    ends = [(bottom, end) for _, bottom, end in lines_of(tmp_path).values()]
    assert len(ends) == len(LINES)
    assert all(abs(bottom - end) < 3 for bottom, end in ends)


@pytest.mark.slow
def test_server_that_does_not_answer_ends_the_run(tmp_path):
    done = ocrmypdf(tmp_path, "--llm-ocr-server-url", "http://127.0.0.1:9/v1", "--llm-ocr-model", "rolmocr")
    assert done.returncode != 0
    assert "127.0.0.1:9" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out.pdf").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--pdf-renderer", "sandwich"), "--pdf-renderer sandwich needs Tesseract"),
        pytest.param(
            ("--ocr-engine", "tesseract"),
            "--ocr-engine tesseract contradicts --plugin llm_ocr_ocrmypdf",
            marks=pytest.mark.slow,
        ),
        pytest.param(("--no-use-threads",), "one session", marks=pytest.mark.slow),
        pytest.param(("--llm-ocr-server-url", "not a url"), "not a url", marks=pytest.mark.slow),
        (("--llm-ocr-config", "none.toml"), "none.toml"),
    ],
)
def test_options_without_sense_are_refused_at_once(tmp_path, options, words):
    done = ocrmypdf(tmp_path, *options)
    assert done.returncode == 1
    assert words in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_no_ocr_needs_no_engine(tmp_path):
    done = ocrmypdf(tmp_path, "--ocr-engine", "none")
    assert done.returncode == 0, done.stderr
    assert lines_of(tmp_path) == {}
