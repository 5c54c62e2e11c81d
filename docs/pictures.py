"""Make the pictures of the documentation from the current product: `make pictures`.

The examples are read by the CPU engine. Headless Chromium photographs the viewer, an exported HTML file, and the
report; pdfium draws the pages of an exported PDF, of a PDF by OCRmyPDF, and of a document with exported words.
"""

import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pypdfium2
from ocrmypdf.hocrtransform import HocrParser
from PIL import Image, ImageDraw

import llm_ocr
from llm_ocr.types import page_id
from llm_ocr_simulator import running

ROOT = Path(__file__).resolve().parent.parent
SIZE = (1400, 900)
_BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def main() -> None:
    """Write the pictures."""
    browser = next(filter(None, map(shutil.which, _BROWSERS)), None)
    if browser is None:
        sys.exit("pictures need Chromium: install the package chromium")
    with tempfile.TemporaryDirectory(prefix="llm-ocr-pictures-") as folder:
        made = Path(folder)
        first, second, asked = made / "examples", made / "with-ocr", made / "asked/examples"
        documents = sorted(path for path in (ROOT / "examples").iterdir() if path.suffix in (".pdf", ".png", ".tiff"))
        llm_ocr.run(documents, workspace=first, engine="embedded")
        llm_ocr.run(ROOT / "examples/paper.pdf", workspace=second, engine="embedded", text_layer="never")
        llm_ocr.run(ROOT / "examples/invoice.png", workspace=asked, engine="embedded")
        answers = made / "answers.json"  # the answer of examples/invoice-answer.json, from a simulated server
        answers.write_text(json.dumps({"Quarrel": (ROOT / "examples/invoice-answer.json").read_text()}))
        with running(forced=answers, served_model_name="qwen3-vl-8b") as server:
            llm_ocr.fields(workspace=asked, schema=ROOT / "examples/invoice.json", server_url=server.url)
        for address, picture, flags in _views(made, first, second, asked):
            _photograph(browser, address, ROOT / "docs" / picture, made, flags)
        llm_ocr.export(workspace=first, output=made / "hocr", format="hocr")
        _draw_words(made / "hocr/documents/paper.pdf.hocr", ROOT / "examples/paper.pdf", ROOT / "docs/guides/hocr.png")
        llm_ocr.export(workspace=first, output=made / "pdfs", format="pdf")
        _draw_found(made / "pdfs/scan.pdf", "quay", ROOT / "docs/guides/searchable-pdf.png")
        plugin = (sys.executable, "-m", "ocrmypdf", "--plugin", "llm_ocr_ocrmypdf", "--quiet")
        subprocess.run([*plugin, ROOT / "examples/fax.tiff", made / "fax.pdf"], check=True, timeout=120)
        _draw_found(made / "fax.pdf", "weir", ROOT / "docs/guides/ocrmypdf.png")


def _views(made: Path, first: Path, second: Path, asked: Path) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Yield the address, the file, and the browser's flags of each picture."""
    index = llm_ocr.view(workspace=first, output=made / "site").index.as_uri()
    both = llm_ocr.view(workspace=first, output=made / "both", compare=str(second)).index.as_uri()
    page = next(one for one in llm_ocr.open(first).pages(images=False) if one.source.endswith("paper.pdf"))
    yield f"{index}#page={page_id(page.document_id, page.page_number)}", "viewer/page.png", ()
    (invoice,) = llm_ocr.open(asked).pages(images=False)
    with_fields = llm_ocr.view(workspace=asked, output=made / "values").index.as_uri()
    yield f"{with_fields}#page={page_id(invoice.document_id, 1)}", "viewer/fields.png", ()
    yield f"{both}#page={page_id(page.document_id, page.page_number)}", "viewer/compare.png", ()
    llm_ocr.export(workspace=first, output=made / "html", format="html")
    yield (made / "html/documents/paper.pdf.html").as_uri(), "guides/html.png", ("--window-size=1000,1500",)
    yield llm_ocr.open(first).report(made / "report.html").as_uri(), "report/report.png", ()


def _draw_words(hocr: Path, document: Path, picture: Path) -> None:
    """Draw the boxes of the words in an hOCR file over the upper half of its first page."""
    page = HocrParser(hocr).parse()
    if page.bbox is None:
        sys.exit(f"{hocr} has no size of its first page")
    with pypdfium2.PdfDocument(document) as pdf:
        image = pdf[0].render(scale=page.bbox.right / pdf[0].get_width()).to_pil().convert("RGB")
    draw = ImageDraw.Draw(image)
    for word in page.words:
        if word.bbox is not None:
            draw.rectangle((word.bbox.left, word.bbox.top, word.bbox.right, word.bbox.bottom), outline="#d6001c")
    image.crop((0, 0, image.width, image.height // 2)).quantize(64).save(picture, optimize=True)


def _draw_found(pdf: Path, wanted: str, picture: Path) -> None:
    """Draw the first page of a PDF with a box around each word of its text, and the places of a search."""
    scale = 1.6
    with pypdfium2.PdfDocument(pdf) as document:
        page = document[0]
        image = page.render(scale=scale).to_pil().convert("RGB")
        text = page.get_textpage()
        found, search = set[int](), text.search(wanted)
        while place := search.get_next():
            found.update(range(place[0], sum(place)))
        draw = ImageDraw.Draw(image, "RGBA")
        for word in re.finditer(r"\S+", text.get_text_range()):
            boxes = [text.get_charbox(index) for index in range(*word.span())]
            left, bottom, right, top = (
                pick(side) for pick, side in zip((min, min, max, max), zip(*boxes, strict=True), strict=True)
            )
            place = (scale * left, image.height - scale * top, scale * right, image.height - scale * bottom)
            color = (255, 190, 0, 110) if found.intersection(range(*word.span())) else None
            draw.rectangle(place, fill=color, outline=(40, 110, 200, 150))
    image.crop((0, 0, image.width, image.height // 2)).quantize(128).save(picture, optimize=True)


def _photograph(browser: str, address: str, picture: Path, folder: Path, flags: tuple[str, ...]) -> None:
    width, height = SIZE
    subprocess.run(
        [
            *(
                browser,
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--hide-scrollbars",
                "--virtual-time-budget=8000",
                "--run-all-compositor-stages-before-draw",  # with images that are decoded late on a busy machine
            ),
            *(
                "--disable-background-networking",
                f"--user-data-dir={folder / 'profile'}",
                f"--window-size={width},{height}",
            ),
            *(*flags, f"--screenshot={picture}", address),
        ],
        check=True,
        capture_output=True,
        timeout=60,
    )
    with Image.open(picture) as image:
        image.convert("RGB").quantize(256).save(picture, optimize=True)


if __name__ == "__main__":
    main()
