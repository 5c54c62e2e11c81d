"""A photo-like landscape computed from noise: sky, sun, hills in haze, and a river that mirrors them."""

import io
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageFilter

Field = npt.NDArray[np.float64]


def landscape(seed: int, width: int = 720, height: int = 470, sun: float = 0.68, quality: int = 80) -> bytes:
    """JPEG bytes of a landscape; the same seed gives the same picture. `sun`: its place from left (0) to right (1)."""
    dice = np.random.default_rng(seed)
    down, across = np.mgrid[0:height, 0:width].astype(np.float64)
    x, y = across / width, down / height
    horizon = 0.56
    photo = _sky(x, y, horizon, sun, dice)
    layers = [(0.44, 0.10, (150, 160, 178)), (0.50, 0.075, (106, 124, 136)), (0.545, 0.05, (66, 88, 80))]
    for top, swing, colour in layers:
        ridge = top + swing * (_curve(width, 5, dice) - 0.5) * 2
        grain = 1 + 0.16 * (_noise(height, width, 36, dice) - 0.5)
        lit = 1 + 0.25 * np.exp(-np.abs(x - sun) * 3)
        _paint(photo, (y > ridge[None, :]) & (y <= horizon + 0.02), np.array(colour, dtype=np.float64), grain * lit)
    _meadow(photo, x, y, horizon, dice)
    _river(photo, x, y, horizon, sun, dice)
    photo += (dice.random((height, width, 1)) + dice.random((height, width, 1)) - 1) * 9
    vignette = 1 - 0.28 * ((x - 0.5) ** 2 + (y - 0.5) ** 2) * 2
    pixels = np.clip(photo * vignette[:, :, None], 0, 255).astype(np.uint8)
    out = io.BytesIO()
    Image.fromarray(pixels).filter(ImageFilter.GaussianBlur(0.6)).save(out, "JPEG", quality=quality, optimize=True)
    return out.getvalue()


def _sky(x: Field, y: Field, horizon: float, sun: float, dice: np.random.Generator) -> Field:
    """Blue to warm haze, a sun with its glow, and clouds."""
    depth = np.clip(y / horizon, 0, 1)[:, :, None]
    sky = (1 - depth) * np.array([92.0, 138.0, 190.0]) + depth * np.array([250.0, 212.0, 170.0])
    away = np.hypot((x - sun) * 1.5, y - 0.27)
    sky = sky + (np.exp(-away * 4.2) * 88)[:, :, None] * np.array([1.0, 0.85, 0.55])
    height, width = x.shape
    octaves = [(4, 6, 0.5), (9, 14, 0.27), (20, 30, 0.15), (50, 70, 0.08)]
    drift = np.zeros((height, width))
    for wide, high, part in octaves:
        drift += _noise(height, width, wide, dice, high) * part
    cloud = np.clip((drift - 0.5) * 5, 0, 1) * np.clip(1.25 - y / horizon, 0, 1)
    sky = sky * (1 - 0.7 * cloud[:, :, None]) + 0.7 * cloud[:, :, None] * np.array([250.0, 244.0, 238.0])
    disc = np.clip((0.036 - away) * 160, 0, 1)[:, :, None]
    return np.asarray(sky * (1 - disc) + disc * np.array([255.0, 250.0, 228.0]))


def _meadow(photo: Field, x: Field, y: Field, horizon: float, dice: np.random.Generator) -> None:
    """Grass that grows coarser and darker towards the viewer."""
    height, width = x.shape
    near = np.clip((y - horizon) / (1 - horizon), 0, 1)
    far = 1 / (near + 0.06)
    texture = (_noise(512, 512, 128, dice) + _noise(512, 512, 40, dice) + _noise(512, 512, 12, dice)) / 3
    # Folded like a concertina, the texture has no seam where it ends.
    column = np.abs(((x + 0.37) * far * 150) % 1022 - 511).astype(np.int64)
    row = np.abs((far * 190) % 1022 - 511).astype(np.int64)
    patches = _noise(height, width, 6, dice, 24)
    shade = (0.62 + 0.62 * texture[row, column] + 0.3 * (patches - 0.5)) * (1.12 - 0.42 * near)
    haze = (1 - near)[:, :, None] ** 3 * 0.45
    grass = np.array([122.0, 128.0, 70.0]) * shade[:, :, None] * (1 - haze) + np.array([196.0, 186.0, 150.0]) * haze
    photo[y > horizon] = grass[y > horizon]


def _river(photo: Field, x: Field, y: Field, horizon: float, sun: float, dice: np.random.Generator) -> None:
    """A bend of water that widens towards the viewer and mirrors what stands above the horizon."""
    height, width = x.shape
    near = np.clip((y - horizon) / (1 - horizon), 0, 1)
    middle = 0.60 - 0.34 * near + 0.13 * np.sin(near * 5.2) * (1 - 0.4 * near)
    half = 0.018 + 0.24 * near**1.35
    edge = (_noise(height, width, 30, dice) - 0.5) * 0.03 * near
    wet = (np.abs(x - middle) < half + edge) & (y > horizon + 0.008)
    ripple = ((_noise(height, width, 14, dice, 90) - 0.5) * 22 * near).astype(np.int64)
    source = np.clip((2 * horizon * height - y * height).astype(np.int64) + ripple, 0, height - 1)
    mirrored = photo[source, (x * width).astype(np.int64)]
    spark = np.clip((_noise(height, width, 30, dice, 150) - 0.55) * 5, 0, 1)
    glitter = np.exp(-np.abs(x - sun + 0.2 * near) * 8) * spark * 58
    water = mirrored * 0.78 + np.array([16.0, 24.0, 34.0]) + glitter[:, :, None]
    photo[wet] = water[wet]
    bank = (np.abs(np.abs(x - middle) - half - edge) < 0.006 + 0.012 * near) & (y > horizon + 0.008)
    photo[bank] = photo[bank] * 0.62 + np.array([30.0, 24.0, 14.0])


def _paint(photo: Field, where: npt.NDArray[np.bool_], colour: Field, shade: Field) -> None:
    photo[where] = (colour[None, None, :] * shade[:, :, None])[where]


def _noise(height: int, width: int, cells: int, dice: np.random.Generator, down: int = 0) -> Field:
    """Smooth noise in 0..1: a coarse grid of random values, interpolated; square cells unless `down` counts rows."""
    rows = down or max(2, round(cells * height / width))
    grid: Any = Image.fromarray((dice.random((rows + 1, cells + 1)) * 255).astype(np.uint8))
    return np.asarray(grid.resize((width, height), Image.Resampling.BICUBIC), dtype=np.float64) / 255


def _curve(width: int, bumps: int, dice: np.random.Generator) -> Field:
    """A rough line in 0..1 for a ridge: slow bumps, and faster ones of less height."""
    total = np.zeros(width)
    for octave in range(4):
        knots = dice.random(bumps * 2**octave + 2)
        places = np.linspace(0, len(knots) - 1, width)
        left = np.minimum(places.astype(np.int64), len(knots) - 2)
        part = places - left
        part = part * part * (3 - 2 * part)
        total += (knots[left] * (1 - part) + knots[left + 1] * part) / 2.2**octave
    return total / 1.85
