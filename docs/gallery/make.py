"""Make the gallery: self-made pages of many kinds, read by the CPU engine, with their results as they are.

Headless Chromium prints `pages/*.html`; documents of the tests and examples are added. Nothing is chosen by its result.
"""

import io
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pypdfium2
from PIL import Image, ImageFilter

import llm_ocr
from llm_ocr.types import PageRecord

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
HEIGHT = 760  # pixels of a picture
_BROWSERS = ("chromium", "chromium-browser", "google-chrome")
#: Pages that are photographed, turned, or damaged after printing.
_SCANS = ("newspaper", "receipt", "form", "handwriting")


def main() -> None:
    """Write the page `index.md` and its pictures."""
    browser = next(filter(None, map(shutil.which, _BROWSERS)), None)
    if browser is None:
        sys.exit("the gallery needs Chromium: install the package chromium")
    for old in HERE.glob("*.webp"):
        old.unlink()
    with tempfile.TemporaryDirectory(prefix="llm-ocr-gallery-") as folder:
        sources = sorted(_documents(browser, Path(folder)))
        run = llm_ocr.run(sources, workspace=Path(folder) / "out", engine="embedded")
        parts = [_HEAD, *(_entry(page) for page in run.pages())]
    (HERE / "index.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def _documents(browser: str, folder: Path) -> Iterator[Path]:
    for source in sorted((HERE / "pages").glob("*.html")):
        name = source.stem
        made = folder / f"{name}.pdf"
        subprocess.run(
            [
                *(browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"),
                *(
                    "--no-pdf-header-footer",
                    f"--user-data-dir={folder / 'profile'}",
                    f"--print-to-pdf={made}",
                    str(source),
                ),
            ],
            check=True,
            capture_output=True,
            timeout=60,
        )
        yield _scanned(made, turned=name == "form") if name in _SCANS else made
    for path in ("examples/paper.pdf", "examples/scan.pdf", "examples/fax.tiff", "examples/invoice.png"):
        yield ROOT / path
    yield from (ROOT / "tests/fixtures/tex").glob("*.pdf")


def _scanned(pdf: Path, *, turned: bool) -> Path:
    """Return the first page as a JPEG of 150 dpi, slightly blurred, skewed by 0.7 degrees, or turned by 90."""
    with pypdfium2.PdfDocument(pdf) as document:
        image: Image.Image = document[0].render(scale=150 / 72).to_pil()
    image = image.rotate(0.7, fillcolor="white", expand=True).filter(ImageFilter.GaussianBlur(0.6))
    image = image.rotate(90, expand=True) if turned else image
    made = pdf.with_name(f"{pdf.stem}-scan.jpg")
    image.convert("L").save(made, quality=60)
    return made


def _entry(page: PageRecord) -> str:
    """Return the section of a page: its picture, status, score, and Markdown."""
    name = f"{Path(page.source).stem}-{page.page_number}"
    picture = page.image.data if page.image else b""
    with Image.open(io.BytesIO(picture)) as image:
        image.convert("RGB").resize((round(image.width * HEIGHT / image.height), HEIGHT)).save(
            HERE / f"{name}.webp", quality=60
        )
    score = "not judged" if page.quality is None else f"{page.quality:.2f}"
    reason = f" ({page.reason})" if page.reason else ""
    text = re.sub(r"!\[[^\]]*\]\(figure:[^)]*\)", "[a cropped figure]", page.markdown).replace("```", "'''")
    head = f"## {name}\n\nStatus: {page.status}{reason}. Quality: {score}."
    return f"{head}\n\n![{name}]({name}.webp)\n\n```markdown\n{text}\n```"


_HEAD = """# Gallery

Self-made pages of different kinds, read by the CPU engine of this version, with their results as they are.
None was chosen by its result. No model was run for this page. `make gallery` makes it again."""


if __name__ == "__main__":
    main()
