"""Turn printed pages into damaged scans, seeded; boxes of the truth move with the page."""

import io
import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import numpy.typing
import pypdfium2
from PIL import Image, ImageFilter, ImageOps

Pixels = numpy.typing.NDArray[numpy.float32]  # height x width, 0 black to 255 white

#: What the OCR models do not support, or what no scan of them can show.
UNREADABLE = {"Cyrillic", "Hebrew", "Arabic"}
DAMAGES = ("skew", "noise", "blur", "bleed-through", "curl", "uneven light")
FORMS = ("jpg", "png", "pdf")


def scan(truth: dict[str, Any], folder: Path, place: int) -> dict[str, Any]:
    """Write a damaged image of a page and return its truth; `place` selects the main damage and the file's form."""
    name = f"{truth['id']}-scan"
    rng = random.Random(name)
    dots = rng.choice([150, 200, 300])
    main = DAMAGES[place % len(DAMAGES)]
    chosen = {main, *(one for one in DAMAGES if rng.random() < 0.25)}
    strength = rng.choice([0.4, 0.7, 1.0])
    with pypdfium2.PdfDocument(folder / truth["file"]) as pdf:
        number = truth["page"] - 1
        other = (number + 1) % len(pdf)
        image, behind = (pdf[one].render(scale=dots / 72, grayscale=True).to_pil() for one in (number, other))
    noise = numpy.random.default_rng(rng.getrandbits(64))
    move: Callable[[float, float], tuple[float, float]] = _still
    if "bleed-through" in chosen:
        image = _bled(image, behind, strength)
    if "skew" in chosen:
        degrees = rng.choice([-1, 1]) * rng.uniform(0.4, 2) * strength
        move = _turn(degrees, image.width / image.height)
        image = image.rotate(degrees, Image.Resampling.BICUBIC, fillcolor=255)
    if "blur" in chosen:
        image = image.filter(ImageFilter.GaussianBlur(rng.uniform(0.3, 0.9) * strength * dots / 150))
    pixels = numpy.asarray(image, dtype=numpy.float32)
    if "curl" in chosen:
        pixels, move = _curled(pixels, 0.012 * strength, move)
    if "uneven light" in chosen:
        pixels = _lit(pixels, rng.uniform(0.3, 0.5) * strength, rng.random())
    if "noise" in chosen:
        pixels = _noisy(pixels, 22 * strength, noise)
    image = Image.fromarray(pixels.clip(0, 255).astype(numpy.uint8))
    form = FORMS[place // 2 % len(FORMS)]
    _save(image, folder / f"{name}.{form}", rng.randint(25, 80), dots)
    blocks = [{**block, "boxes": [_moved(box, move) for box in block["boxes"]]} for block in truth["blocks"]]
    tags = [*truth["tags"], *sorted(chosen)]
    changed = {"id": name, "file": f"{name}.{form}", "page": 1, "tags": tags, "scanned": True, "blocks": blocks}
    return {**truth, **changed, "strength": strength, "dots": dots}


def _save(image: Image.Image, path: Path, quality: int, dots: int) -> None:
    if path.suffix == ".png":
        image.save(path, dpi=(dots, dots))
        return
    out = io.BytesIO()
    image.save(out, "JPEG", quality=quality, dpi=(dots, dots))
    if path.suffix == ".jpg":
        path.write_bytes(out.getvalue())
    else:
        Image.open(out).save(path, "PDF", resolution=dots)


def _still(x: float, y: float) -> tuple[float, float]:
    return x, y


def _turn(degrees: float, ratio: float) -> Callable[[float, float], tuple[float, float]]:
    """Return the map of relative points for a counterclockwise rotation; `ratio` is width over height."""
    sine, cosine = math.sin(math.radians(degrees)), math.cos(math.radians(degrees))

    def move(x: float, y: float) -> tuple[float, float]:
        right, down = (x - 0.5) * ratio, y - 0.5
        return 0.5 + (right * cosine + down * sine) / ratio, 0.5 - right * sine + down * cosine

    return move


def _moved(box: list[float], move: Callable[[float, float], tuple[float, float]]) -> list[float]:
    """Return the upright rectangle around the moved box."""
    corners = [move(x, y) for x in (box[0], box[2]) for y in (box[1], box[3])]
    xs, ys = zip(*corners, strict=True)
    return [round(edge, 4) for edge in (min(xs), min(ys), max(xs), max(ys))]


def _bled(image: Image.Image, behind: Image.Image, strength: float) -> Image.Image:
    """Darken the page where the mirrored other side has ink."""
    mirrored = ImageOps.mirror(behind.resize(image.size)).filter(ImageFilter.GaussianBlur(1.5))
    front, back = (numpy.asarray(one, dtype=numpy.float32) for one in (image, mirrored))
    return Image.fromarray((front * (1 - 0.3 * strength * (1 - back / 255))).clip(0, 255).astype(numpy.uint8))


def _curled(
    pixels: Pixels, height: float, move: Callable[[float, float], tuple[float, float]]
) -> tuple[Pixels, Callable[[float, float], tuple[float, float]]]:
    """Lower columns along an arc, as of a page near the spine, and darken the left edge."""
    rows, columns = pixels.shape
    across = numpy.arange(columns, dtype=numpy.float32) / columns
    down = height * numpy.sin(math.pi * across) * rows
    source = numpy.arange(rows, dtype=numpy.float32)[:, None] - down[None, :]
    above = numpy.floor(source).astype(int)
    part = source - above
    first, second = (numpy.take_along_axis(pixels, (above + more).clip(0, rows - 1), axis=0) for more in (0, 1))
    shade = 1 - 0.35 * numpy.exp(-across / 0.05)

    def moved(x: float, y: float) -> tuple[float, float]:
        x, y = move(x, y)
        return x, y + height * math.sin(math.pi * min(max(x, 0), 1))

    return ((first * (1 - part) + second * part) * shade).astype(numpy.float32), moved


def _lit(pixels: Pixels, depth: float, side: float) -> Pixels:
    """Darken the page away from a light at the height `side` of its left edge."""
    rows, columns = pixels.shape
    y, x = numpy.mgrid[0 : 1 : rows * 1j, 0 : 1 : columns * 1j]
    return (pixels * (1 - depth * numpy.hypot(x, y - side) / math.sqrt(2))).astype(numpy.float32)


def _noisy(pixels: Pixels, deviation: float, noise: numpy.random.Generator) -> Pixels:
    """Add the noise of a sensor, and black specks."""
    changed = pixels + noise.normal(0, deviation, pixels.shape)
    changed[noise.random(pixels.shape) < 0.0004] = 0
    return changed.astype(numpy.float32)
