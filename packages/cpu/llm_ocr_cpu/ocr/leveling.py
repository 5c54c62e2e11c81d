"""Level a page image by its text lines: correct the skew of the sheet, and the curves of a bent sheet."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import cv2
import numpy as np
from numpy.typing import NDArray

from llm_ocr_cpu.ocr.detect import Pixels, Quad

Floats = NDArray[np.float64]

#: Minimum skew in degrees for leveling, and the maximum that counts as skew.
_LEVEL, _SKEWED = 0.5, 8.0
#: Minimum number of slender lines that determine the skew.
_SKEW_LINES = 3


def skew_of(quads: Sequence[Quad]) -> float:
    """Return the degrees by which the lines fall to the right; 0.0 for level or inconsistent lines."""
    slender = sorted((quad.angle, quad.width) for quad in quads if quad.width > 5 * quad.height)
    if len(slender) < _SKEW_LINES:
        return 0.0
    half = sum(width for _, width in slender) / 2
    angle = 0.0
    for angle, width in slender:  # noqa: B007 - the loop stops at the median
        half -= width
        if half <= 0:
            break
    return angle if _LEVEL <= abs(angle) <= _SKEWED else 0.0


def leveled(image: Pixels, quads: Sequence[Quad], skew: float) -> tuple[Pixels, list[Quad]]:
    """Return the image and its quads turned back by `skew` about the center; the image keeps its size."""
    height, width = image.shape[:2]
    matrix = cv2.getRotationMatrix2D((width / 2, height / 2), skew, 1)
    ground = tuple(float(np.median(image[::8, ::8, channel])) for channel in range(3))
    level: Pixels = cv2.warpAffine(image, matrix, (width, height), flags=cv2.INTER_LINEAR, borderValue=ground)
    cosine, sine = math.cos(math.radians(skew)), math.sin(math.radians(skew))

    def turned(x: float, y: float) -> tuple[float, float]:
        x, y = x - width / 2, y - height / 2
        return x * cosine + y * sine + width / 2, y * cosine - x * sine + height / 2

    moved = []
    for quad in quads:
        x, y = turned(quad.x, quad.y)
        middle = tuple(turned(*point) for point in quad.middle)
        moved.append(replace(quad, x=x, y=y, angle=quad.angle - skew, middle=middle))
    return level, moved


# Curves of a bent sheet: the middles of all long lines are fitted by one smooth surface of vertical shifts. The shift
# is a polynomial of the place on the page, up to the fourth power across the page and the second down the page. Each
# line adds an unknown height, which is removed by its mean.


#: Minimum number of long lines for the surface, and the part of the page's height that they span.
_LINES, _SPAN = 6, 0.25
#: Curves that are corrected: the middles leave their straight line by this share of the lines' height, in the root of
#: the mean square. On flat pages it is 0.03 to 0.04, and 0.15 on a worn newspaper, where no surface explains it.
_CURVED = 0.08
#: Share of the curves that may remain; a surface that explains less is not applied.
_REMAINING = 0.5
#: Weight of small coefficients: keeps the surface flat where no lines are.
_STIFF = 1e-3
#: Number of computed shifts per side; those between them are interpolated.
_GRID = 64
#: Lines that differ from the surface by this multiple of the median are left out of the second fit. The median is at
#: least this share of the letters' height.
_OUTLIER, _SMOOTH = 3.0, 0.05


@dataclass(frozen=True, slots=True)
class Bend:
    """Surface of vertical shifts of a page of `width` x `height` pixels."""

    terms: Floats
    width: int
    height: int

    def shift(self, x: Floats, y: Floats) -> Floats:
        """Return the shifts in pixels at points of the bent page, down positive."""
        return _powers(x, y, self.width) @ self.terms

    def source(self, x: Floats, y: Floats) -> Floats:
        """Return the rows of the bent page that are at points of the flat page."""
        rows = y
        for _ in range(3):  # the shift is known at the source, so it is found by iteration
            rows = y + self.shift(x, np.clip(rows, 0, self.height - 1))
        return rows


def bend_of(quads: Sequence[Quad], width: int, height: int) -> Bend | None:
    """Return the bend of a page of this size; None for a page whose lines are straight or inconsistent."""
    lines = [(np.array(quad.middle), quad.core) for quad in quads if quad.middle and not quad.tall]
    if len(lines) < _LINES:
        return None
    means = [float(points[:, 1].mean()) for points, _ in lines]
    letters = float(np.median([core for _, core in lines]))
    kept = [points for points, _ in lines]
    if max(means) - min(means) < _SPAN * height or _rms(_from_mean(kept)) < _CURVED * letters:
        return None
    bend = Bend(_fitted(kept, width), width, height)
    errors = [float(np.abs(rest).max()) for rest in _residuals(kept, bend)]
    limit = _OUTLIER * max(float(np.median(errors)), _SMOOTH * letters)
    kept = [points for points, error in zip(kept, errors, strict=True) if error <= limit]
    if 2 * len(kept) < len(lines) or len(kept) < _LINES:
        return None
    bend = Bend(_fitted(kept, width), width, height)
    curved = _rms(_from_mean(kept))
    if curved < _CURVED * letters or _rms(_residuals(kept, bend)) > _REMAINING * curved:
        return None
    return bend


def flattened(image: Pixels, bend: Bend) -> Pixels:
    """Return the image of the same size with straight lines."""
    height, width = image.shape[:2]
    middles = (np.arange(_GRID) + 0.5) / _GRID  # as `cv2.resize` places them
    y, x = np.meshgrid(middles * height - 0.5, middles * width - 0.5, indexing="ij")
    down = cv2.resize(bend.source(x, y).astype(np.float32), (width, height), interpolation=cv2.INTER_CUBIC)
    across = np.ascontiguousarray(np.broadcast_to(np.arange(width, dtype=np.float32), (height, width)))
    flat: Pixels = cv2.remap(image, across, down, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
    return flat


def _rms(parts: Sequence[Floats]) -> float:
    return float(np.sqrt(np.mean(np.square(np.concatenate(parts)))))


def _powers(x: Floats, y: Floats, width: int) -> Floats:
    """Return the terms of the polynomial at points in pixels: shape (points, 12)."""
    across, down = x / width - 0.5, y / width - 0.5
    return np.stack([across**i * down**j for i in range(1, 5) for j in range(3)], axis=-1)


def _fitted(lines: Sequence[Floats], width: int) -> Floats:
    """Return the coefficients of the surface, in pixels."""
    rows = []
    for points in lines:
        powers = _powers(points[:, 0], points[:, 1], width)
        rows.append(powers - powers.mean(axis=0))
    matrix, values = np.concatenate(rows), np.concatenate(_from_mean(lines))
    normal = matrix.T @ matrix
    stiff = _STIFF * np.trace(normal) / len(normal) * np.eye(len(normal))
    found: Floats = np.linalg.solve(normal + stiff, matrix.T @ values)
    return found


def _residuals(lines: Sequence[Floats], bend: Bend) -> list[Floats]:
    left = [points[:, 1] - bend.shift(points[:, 0], points[:, 1]) for points in lines]
    return [rest - rest.mean() for rest in left]


def _from_mean(lines: Sequence[Floats]) -> list[Floats]:
    return [points[:, 1] - points[:, 1].mean() for points in lines]
