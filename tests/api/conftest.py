"""Documents and a workspace that the tests of several files use."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image, ImageDraw
from running import FRUGALLY

import llm_ocr


@pytest.fixture(scope="session")
def numbered_pages(golden) -> Callable[[int], Path]:
    """Return `numbered_pages(count)`: a folder with that many small pictures, each with its number."""

    def make_them(folder: Path, count: int) -> None:
        for number in range(count):
            image = Image.new("RGB", (300, 400), "white")
            ImageDraw.Draw(image).text((20, 20), f"page {number}", fill="black")
            image.save(folder / f"{number:03d}.png")

    return lambda count: golden(f"pages-{count}", lambda folder: make_them(folder, count))


@pytest.fixture(scope="session")
def invoice_and_paper(golden, examples) -> Path:
    """Return a workspace with an invoice and a paper of three pages, extracted; tests copy it before a change."""

    def make(folder: Path) -> None:
        sources = [examples / "invoice.png", examples / "paper.pdf"]
        llm_ocr.extract(sources, workspace=folder / "w", pages_per_unit=2, **FRUGALLY)

    return golden("invoice and paper", make) / "w"


@pytest.fixture
def extracted(invoice_and_paper, tmp_path) -> Path:
    """Return a copy of this workspace."""
    return shutil.copytree(invoice_and_paper, tmp_path / "w")
