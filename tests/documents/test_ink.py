"""Blank pages are distinguished from pages with ink, whatever the paper, the scanner, and the light."""

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFilter, ImageFont

from llm_ocr.documents.ink import ink_of, lines_of_text, pixels_of

WIDTH, HEIGHT = 1000, 1414


def picture(pixels: np.ndarray) -> Image.Image:
    return Image.fromarray(np.clip(np.rint(pixels), 0, 255).astype("uint8"))


def sheet(gray: float = 245) -> np.ndarray:
    return np.full((HEIGHT, WIDTH), float(gray))


def noise(deviation: float) -> np.ndarray:
    return np.random.default_rng(3).normal(0, deviation, (HEIGHT, WIDTH))


def speckled() -> np.ndarray:
    pixels = sheet()
    drawn = np.random.default_rng(4)
    for x, y in zip(drawn.integers(60, WIDTH - 60, 40), drawn.integers(60, HEIGHT - 60, 40), strict=True):
        pixels[y : y + 3, x : x + 3] = 80
    return pixels


def bordered() -> np.ndarray:
    pixels = sheet()
    pixels[:, :25] = 20
    pixels[-40:, :] = 35
    for row in range(HEIGHT):  # a sheet that lies askew
        pixels[row, WIDTH - 10 - row // 40 :] = 20
    return pixels + noise(2)


def gutter() -> np.ndarray:
    return sheet() - 120 * np.exp(-np.arange(WIDTH) / 50) + noise(2)


def uneven_light() -> np.ndarray:
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH]
    return 250 - 90 * ((x / WIDTH - 0.5) ** 2 + (y / HEIGHT - 0.5) ** 2) + noise(3)


BLANK = {
    "white": lambda: sheet(255),
    "black": lambda: sheet(0),
    "grain": lambda: sheet(240) + noise(10),
    "specks": speckled,
    "border": bordered,
    "gutter": gutter,
    "light": uneven_light,
}


def written(pixels: np.ndarray, text: str, ink: int, size: int, at: tuple[int, int] = (200, 300)) -> np.ndarray:
    image = picture(pixels)
    ImageDraw.Draw(image).text(at, text, fill=ink, font=ImageFont.load_default(size=size))
    return np.asarray(image, dtype=float)


def stained() -> np.ndarray:
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH]
    pixels, drawn = sheet(), np.random.default_rng(5)
    for _ in range(12):
        across, down = (x - drawn.uniform(0, WIDTH)) / 60, (y - drawn.uniform(0, HEIGHT)) / 40
        pixels -= drawn.uniform(4, 14) * np.exp(-((across**2 + down**2) ** 2))
    return pixels + noise(2)


def folded() -> np.ndarray:
    pixels = sheet() + noise(2)
    pixels[HEIGHT // 2 - 4 : HEIGHT // 2 + 4] -= 9
    pixels[:, WIDTH // 2 - 3 : WIDTH // 2 + 3] -= 9
    return pixels


def ruled() -> np.ndarray:
    pixels = sheet() + noise(2)
    pixels[100::36] -= 20
    return pixels


def printed(ink: float) -> np.ndarray:
    """Twenty lines of text, this much darker than the paper."""
    lines = written(sheet(255), "\n".join(20 * ["Two boats left the quay before noon, one came back."]), 0, 24)
    return sheet(240) - ink * (1 - lines / 255)


def shining_through() -> np.ndarray:
    blurred = picture(printed(120)[:, ::-1]).filter(ImageFilter.GaussianBlur(3))
    return 240 - (240 - np.asarray(blurred, dtype=float)) / 8 + noise(2)


BLANK |= {"stains": stained, "folds": folded, "rules": ruled, "blurred show-through": shining_through}
PALE = {
    "clean": lambda: printed(10),
    "noise": lambda: printed(20) + noise(6),
    "grain": lambda: printed(25) + noise(10),
    "on its side": lambda: (printed(20) + noise(6)).T,
}
INKED = {
    "page number": lambda: written(sheet(255), "7", 0, 20, (490, 1360)),
    "pencil": lambda: written(sheet(), "Two boats left before noon.", 214, 30) + noise(1),
    "dark paper": lambda: written(sheet(10), "NIGHT CHART", 240, 30),
    "in the shade": lambda: written(uneven_light() - 80, "Text in the shade", 30, 24),
    "beside a border": lambda: written(bordered(), "Entry 12", 30, 24),
    "at the edge": lambda: written(sheet(255), "Cut off at the edge", 0, 24, (-5, 300)),
    "dark area": lambda: np.where(np.arange(HEIGHT)[:, None] < HEIGHT // 2, 90.0, sheet(255)),
}


@pytest.mark.parametrize("name", BLANK)
def test_blank_sheet_is_blank(name):
    assert ink_of(picture(BLANK[name]())).blank


@pytest.mark.parametrize("name", INKED)
def test_sheet_with_ink_is_not_blank(name):
    assert not ink_of(picture(INKED[name]())).blank


@pytest.mark.parametrize("name", PALE)
def test_text_that_noise_hides_pixel_by_pixel_is_pale_ink(name):
    ink = ink_of(picture(PALE[name]()))
    assert (ink.blank, ink.pale) == (False, True)
    assert 15 <= len(lines_of_text(pixels_of(ink))) <= 30


def test_red_on_a_green_that_is_as_bright_is_ink():
    page = Image.new("RGB", (WIDTH, HEIGHT), (0, 128, 0))
    assert ink_of(page).blank
    ImageDraw.Draw(page).text((100, 200), "The quay is closed", font=ImageFont.load_default(40), fill=(250, 0, 0))
    assert not ink_of(page).blank
