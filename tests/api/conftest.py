"""Pictures that the tests of several files use."""

from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image, ImageDraw


@pytest.fixture(scope="session")
def numbered_pages(golden) -> Callable[[int], Path]:
    """Return `numbered_pages(count)`: a folder with that many small pictures, each with its number."""

    def make_them(folder: Path, count: int) -> None:
        for number in range(count):
            image = Image.new("RGB", (300, 400), "white")
            ImageDraw.Draw(image).text((20, 20), f"page {number}", fill="black")
            image.save(folder / f"{number:03d}.png")

    return lambda count: golden(f"pages-{count}", lambda folder: make_them(folder, count))
