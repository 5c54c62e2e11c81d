"""Workspaces that the tests of several files use."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from bad_documents import good_pages, text_pdf
from export_workspaces import make
from PIL import Image, ImageDraw, ImageFont
from viewer_browser import Browser


@pytest.fixture(scope="session")
def standing(golden) -> Path:
    """An assembled workspace of 6 documents of 3 pages, one of them failed; tests that change it copy it."""
    return golden("export", lambda folder: make(str(folder / "w"), fails=frozenset({"4.pdf"}))) / "w"


@pytest.fixture
def workspace(standing, tmp_path) -> Path:
    """A copy of that workspace."""
    return Path(shutil.copytree(standing, tmp_path / "w"))


@pytest.fixture(scope="session")
def small_examples(golden) -> Path:
    """Documents with the names of the examples that are read in little time, for tests of what becomes of any."""

    def make_them(folder: Path) -> None:
        (folder / "paper.pdf").write_bytes(text_pdf(*good_pages("the paper", 3)))
        for name, text in (("invoice.png", "Invoice number 1234"), ("fax.tiff", "This is a fax message")):
            image = Image.new("L", (400, 120), 255)
            ImageDraw.Draw(image).text((20, 40), text, fill=0, font=ImageFont.load_default(32))
            image.save(folder / name)

    return golden("small examples", make_them)


@pytest.fixture(scope="session")
def numbered_pages(golden) -> Callable[[int], Path]:
    """Return `numbered_pages(count)`: a folder of so many small pictures, each with its number."""

    def make_them(folder: Path, count: int) -> None:
        for number in range(count):
            image = Image.new("RGB", (300, 400), "white")
            ImageDraw.Draw(image).text((20, 20), f"page {number}", fill="black")
            image.save(folder / f"{number:03d}.png")

    return lambda count: golden(f"pages-{count}", lambda folder: make_them(folder, count))


@pytest.fixture(scope="session")
def browser(require, tmp_path_factory) -> Iterator[Browser]:
    """Chromium, which reads pages of this machine."""
    require("chromium")
    with Browser(tmp_path_factory.mktemp("chromium")) as browser:
        yield browser
