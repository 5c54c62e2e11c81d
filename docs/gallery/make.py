"""Make the gallery: self-made pages of many kinds, read by the CPU engine, with their results as they are.

Headless Chromium prints `pages/*.html`; documents of the tests and examples are added. Nothing is chosen by its result.
Remarks say what a page tests. Status, score, defects, and the share of words found come from the run.
"""

import html
import io
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

import pypdfium2
from PIL import Image, ImageFilter

import llm_ocr
from llm_ocr.results.quality import what_is_wrong
from llm_ocr.types import PageRecord

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
HEIGHT = 760  # pixels of a picture
#: Most lines of a shown result, and most characters of a line and of all lines.
LINES, WIDTH, CHARACTERS = 40, 300, 1800
_BROWSERS = ("chromium", "chromium-browser", "google-chrome")
#: Pages that are photographed, turned, or damaged after printing.
_SCANS = ("newspaper", "receipt", "form", "handwriting", "worksheet", "hebrew")


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
        entries = {f"{Path(page.source).stem}-{page.page_number}": page for page in run.pages()}
        unknown = entries.keys() ^ {name for pages in PAGES.values() for name in pages}
        if unknown:
            sys.exit(f"PAGES of {Path(__file__).name} and the documents differ: {', '.join(sorted(unknown))}")
        parts = [_HEAD, _summary(entries)]
        for title, pages in PAGES.items():
            parts.append(f"## {title}")
            parts += [_entry(name, *about, entries[name]) for name, about in pages.items()]
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


def _summary(entries: Mapping[str, PageRecord]) -> str:
    """Return the table of all pages with their outcome."""
    rows = [
        f"| [{title}](#{name}) | {_status(entries[name])} | {_found(name, entries[name])} |"
        for pages in PAGES.values()
        for name, (title, _) in pages.items()
    ]
    return "\n".join(("| Page | Status, quality | Words or phrases found |", "|---|---|---|", *rows))


def _entry(name: str, title: str, remark: str, page: PageRecord) -> str:
    """Return the section of a page: its picture beside its Markdown, and how the run judged it."""
    picture = page.image.data if page.image else b""
    with Image.open(io.BytesIO(picture)) as image:
        image.convert("RGB").resize((round(image.width * HEIGHT / image.height), HEIGHT)).save(
            HERE / f"{name}.webp", quality=60
        )
    defects = what_is_wrong(page.quality_parts)
    judged = f"**{_status(page)}**" + (f" ({defects})" if defects else "") + f". Found: {_found(name, page)}."
    text = re.sub(r"!\[[^\]]*\]\(figure:[^)]*\)", "[a cropped figure]", page.markdown)
    lines = [line if len(line) <= WIDTH else f"{line[:WIDTH]} …" for line in text.splitlines()]
    fits = [sum(map(len, lines[:count])) <= CHARACTERS for count in range(1, min(LINES, len(lines)) + 1)]
    shown = "\n".join(lines[: sum(fits)] + ["…"] * (sum(fits) < len(lines)))
    return (
        f"### {title} {{ #{name} }}\n\n{remark} {judged}\n\n"
        f'<div class="page" markdown>\n\n![{title}]({name}.webp)\n\n````markdown\n{shown}\n````\n\n</div>'
    )


def _status(page: PageRecord) -> str:
    score = "not judged" if page.quality is None else f"{page.quality:.2f}"
    return f"{page.status}, {score}"


def _found(name: str, page: PageRecord) -> str:
    """Return the share of the page's own words, or of the phrases expected of an example, that the result has."""
    read = _words(page.markdown)
    source = HERE / "pages" / f"{re.sub('-scan-.*|-[0-9]+$', '', name)}.html"
    if source.is_file():
        text = re.sub(r"<(style|math)\b.*?</\1>|<[^>]*>", " ", source.read_text(encoding="utf-8"), flags=re.DOTALL)
        wanted = _words(html.unescape(text))
        found = (Counter(wanted) & Counter(read)).total() / len(wanted)
        alike = SequenceMatcher(None, wanted, read, autojunk=False).get_matching_blocks()
        order = sum(block.size for block in alike) / len(wanted)
        return f"{100 * found:.0f} % of {len(wanted):,} words, {100 * order:.0f} % in order"
    files = json.loads((ROOT / "examples/expected.json").read_text(encoding="utf-8"))["files"]
    pages = files.get(Path(page.source).name, {"pages": []})["pages"]
    phrases = [phrase for one in pages if one["number"] == page.page_number for phrase in _phrases(one)]
    if not phrases:
        return "not counted"
    flat = " ".join(read)
    return f"{sum(' '.join(_words(phrase)) in flat for phrase in phrases)} of {len(phrases)} phrases"


def _phrases(expected: Mapping[str, Any]) -> Iterator[str]:
    """Yield the headings, phrases, list items, and table cells that a page has."""
    yield from (*expected["headings"], *expected["present"])
    yield from (item for one in expected["lists"] for item in one["items"])
    yield from (cell for table in expected["tables"] for row in table["rows"] for cell in row)


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", re.sub(r"<[^<>]*>|[*_]", " ", text).casefold())


#: Pages by kind: name, title, and what the page tests.
PAGES: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "Digital pages": {
        "paper-1": ("Paper in two columns", "Tests columns below a title across the page, a list, and a picture."),
        "paper-2": ("Tables and a formula", "Tests a table without rules, a ruled one, and a display formula."),
        "paper-3": ("Charts and references", "Tests charts, which are cropped, and a list of references."),
        "columns-1": ("LaTeX in two columns", "Tests columns and running heads of a document set by LaTeX."),
        "formulas-1": ("LaTeX formulas", "Tests sums, roots, matrices, and cases, read from TeX's own fonts."),
        "bitmaps-1": ("Old bitmap fonts of TeX", "Tests fonts without Unicode: ligatures, dashes, and accents."),
        "mathml-1": ("Formulas of a browser", "Tests formulas that Chromium prints from MathML."),
        "manual-1": ("Manual with a program", "Tests a code block with its indentation, and a numbered list."),
        "slide-1": ("Slide", "Tests light text on a dark page, and bullets."),
    },
    "Scans, photographs, and faxes": {
        "scan-1": ("Scanned letter", "Tests a letterhead with a mark, and a signature."),
        "scan-2": ("Scanned report", "Tests a ruled table and a picture on an image without text."),
        "scan-3": ("Page that lies sideways", "Tests whether the page is turned before it is read."),
        "fax-1": ("Fax", "Tests typed text in black and white with stray dots."),
        "fax-2": ("Second page of the fax", "Tests a list on the same kind of image."),
        "invoice-1": ("Invoice", "Tests a table of items with totals, in color."),
        "receipt-scan-1": ("Receipt", "Tests columns of prices on a narrow, skewed scan."),
    },
    "Hard for the CPU engine": {
        "form-scan-1": (
            "Form, turned by 90 degrees",
            "Tests labels beside values. Look for the state of the check boxes.",
        ),
        "handwriting-scan-1": ("Script font", "Tests a font like handwriting. Real handwriting is not read."),
        "newspaper-scan-1": (
            "Newspaper in five narrow columns",
            "Tests the order of dense columns. Look where a column ends.",
        ),
        "arabic-1": ("Arabic", "Tests text from right to left, whose PDF stores joined letters out of order."),
        "worksheet-scan-1": ("Scanned worksheet", "Tests formulas without a text layer, which need a model."),
        "hebrew-scan-1": ("Scanned Hebrew", "Tests a script for which no OCR model exists here."),
    },
}
_HEAD = """# Gallery

Self-made pages of different kinds, read by the CPU engine of this version, with their results as they are.
None was chosen by its result, so failures are here, too. No model was run for this page. `make gallery` makes it again.

*Status* and *quality* are what a run stores for the page. A low [score](../explanation/quality.md) with a correct text
is a false alarm, and a high score with missing words is a miss. *Found* compares the result with the page's source,
which the engine does not see. Long results are cut."""


if __name__ == "__main__":
    main()
