"""The example documents: they are what README.md and expected.json say, and the recipes still make them."""

import hashlib
import importlib
import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pypdfium2
import pytest
from PIL import Image

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
NAMES = ("paper.pdf", "scan.pdf", "fax.tiff", "invoice.png")
EXPECTED: dict[str, Any] = json.loads((EXAMPLES / "expected.json").read_text(encoding="utf-8"))["files"]
MADE_WITH: dict[str, Any] = json.loads((EXAMPLES / "made_with.json").read_text(encoding="utf-8"))

needs_reportlab = pytest.mark.skipif(
    importlib.util.find_spec("reportlab") is None, reason="reportlab is not installed: pip install reportlab"
)


def make(folder: Path, hash_seed: str) -> dict[str, Any]:
    """Run the script into a folder, in a process of its own; returns what it recorded."""
    command = [sys.executable, "-B", str(EXAMPLES / "make_examples.py"), "--output", str(folder)]
    subprocess.run(command, check=True, capture_output=True, env={**os.environ, "PYTHONHASHSEED": hash_seed})
    record: dict[str, Any] = json.loads((folder / "made_with.json").read_text(encoding="utf-8"))
    return record


def different(one: Path, two: Path) -> list[str]:
    return [name for name in NAMES if (one / name).read_bytes() != (two / name).read_bytes()]


def page_texts(source: Path | bytes) -> list[str]:
    """The text layer of each page on one line, with words joined that a line end had divided."""
    with pypdfium2.PdfDocument(source) as document:
        raw = [document[n].get_textpage().get_text_range() for n in range(len(document))]
    return [flat(text.replace("\ufffe", "").replace("\x02", "")) for text in raw]


def flat(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()


def promised(page: dict[str, Any]) -> list[str]:
    """Every string of a page's entry in expected.json that is printed on that page."""
    figures = [words for figure in page["figures"] for words in (figure["caption"], *figure["text"])]
    captions = [table["caption"] for table in page["tables"] if table["caption"]]
    cells = [cell for table in page["tables"] for row in table["rows"] for cell in row]
    items = [item for one in page["lists"] for item in one["items"]]
    pairs = [words for pair in page["order"] for words in pair]
    return [*page["headings"], *page["present"], *page["absent"], *figures, *captions, *cells, *items, *pairs]


def missing(page: dict[str, Any], text: str) -> list[str]:
    return [words for words in promised(page) if words not in text]


def missing_by_page(name: str, texts: list[str]) -> dict[int, list[str]]:
    """Per page number the promised strings that its text lacks; only pages that lack some."""
    lost = {page["number"]: missing(page, text) for page, text in zip(EXPECTED[name]["pages"], texts, strict=True)}
    return {number: words for number, words in lost.items() if words}


@pytest.mark.slow
@needs_reportlab
def test_the_script_makes_the_files_that_are_committed(tmp_path: Path) -> None:
    made = make(tmp_path, "0")
    if made["versions"] != MADE_WITH["versions"]:
        pytest.skip(f"other versions give other bytes: here {made['versions']}, committed {MADE_WITH['versions']}")
    assert different(tmp_path, EXAMPLES) == []


def test_the_committed_files_are_the_recorded_ones() -> None:
    sums = {name: hashlib.sha256((EXAMPLES / name).read_bytes()).hexdigest() for name in NAMES}
    assert sums == MADE_WITH["sha256"]


def test_all_files_together_take_less_than_two_megabytes() -> None:
    files = [path for path in EXAMPLES.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    assert sum(path.stat().st_size for path in files) < 2_000_000


def test_expected_json_names_every_file_and_page() -> None:
    assert set(EXPECTED) == set(NAMES)
    pages = {name: [page["number"] for page in entry["pages"]] for name, entry in EXPECTED.items()}
    assert pages == {"paper.pdf": [1, 2, 3], "scan.pdf": [1, 2, 3], "fax.tiff": [1, 2], "invoice.png": [1]}


def test_documents_have_the_kinds_of_pages_that_are_expected() -> None:
    for name in ("paper.pdf", "scan.pdf"):
        with pypdfium2.PdfDocument(EXAMPLES / name) as document:
            assert [document[n].get_rotation() for n in range(len(document))] == [0] * len(EXPECTED[name]["pages"])
    with pypdfium2.PdfDocument(EXAMPLES / "scan.pdf") as document:
        for n in range(len(document)):
            assert document[n].get_textpage().count_chars() == 0
            assert [thing.type for thing in document[n].get_objects()] == [pypdfium2.raw.FPDF_PAGEOBJ_IMAGE]
    with Image.open(EXAMPLES / "fax.tiff") as fax:
        assert (getattr(fax, "n_frames", 1), fax.mode) == (len(EXPECTED["fax.tiff"]["pages"]), "1")
        assert fax.info["compression"] == "group4"
    with Image.open(EXAMPLES / "invoice.png") as invoice:
        assert (invoice.format, getattr(invoice, "n_frames", 1), invoice.height > invoice.width) == ("PNG", 1, True)


def test_the_text_layer_of_the_paper_holds_everything_expected() -> None:
    assert missing_by_page("paper.pdf", page_texts(EXAMPLES / "paper.pdf")) == {}


def test_the_paper_has_words_divided_at_line_ends_on_every_page() -> None:
    with pypdfium2.PdfDocument(EXAMPLES / "paper.pdf") as document:
        divided = [document[n].get_textpage().get_text_range().count("\ufffe") for n in range(len(document))]
    assert min(divided) >= 3


@needs_reportlab
def test_expected_scan_text_is_printed_on_its_clean_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    clean = importlib.import_module("recipes.council").make()
    assert missing_by_page("scan.pdf", page_texts(clean)) == {}


@needs_reportlab
def test_expected_fax_and_invoice_text_is_in_their_recipes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    fax, invoice = (importlib.import_module(f"recipes.{name}") for name in ("fax", "invoice"))
    sheets = [flat(f"{' '.join(lines)} PAGE {number:02d} OF 02") for number, lines in enumerate(fax.PAGES, 1)]
    assert missing_by_page("fax.tiff", sheets) == {}
    cells = [cell for row in (*invoice.ROWS, *invoice.TOTALS) for cell in row]
    assert missing_by_page("invoice.png", [flat(" ".join([*cells, *invoice.NOTES, "Invoice", "Bill to"]))]) == {}
