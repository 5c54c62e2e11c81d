"""Ruling lines of a page: from thin shapes and frames to merged horizontal and vertical rules.

Everything is arrays of shape (n, 3): position, start, end. For a horizontal rule the position is y and the extent is
in x; for a vertical one the other way round. Page units throughout.
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from llm_ocr.types import PageContent

Floats = npt.NDArray[np.float64]

#: Rules kept in each direction, the longest first: a table has some hundreds at most, a map has ten thousands.
MAX_RULES = 700


@dataclass(frozen=True, slots=True)
class Rules:
    """`horizontal` and `vertical`: (n, 3) arrays, sorted by position. `unit`: a point of ordinary print."""

    horizontal: Floats
    vertical: Floats
    unit: float


@dataclass(frozen=True, slots=True)
class Shapes:
    """The boxes (n, 4) of a page's vector objects, and what is painted: `filled` with a colour other than white."""

    boxes: Floats
    stroked: npt.NDArray[np.bool_]
    filled: npt.NDArray[np.bool_]
    simple: npt.NDArray[np.bool_]  # few segments: a rule or a rectangle, not a curve
    slanted: npt.NDArray[np.bool_]  # a line that is not along an axis


def page_unit(content: PageContent) -> float:
    """The length that a point has on a page of ordinary print: 1 for PDFs in most cases, some pixels for scans."""
    by_page = max(math.sqrt(max(content.width * content.height, 0.0)) / 700, 1e-3)
    sizes = [line.size for line in content.lines if line.size > 0]
    if len(sizes) < 5:
        return by_page
    by_text = float(np.median(np.array(sizes))) / 10
    return min(max(by_text, 0.6 * by_page), 1.6 * by_page)


def page_shapes(content: PageContent) -> Shapes:
    """All paths, and images thinner than a line of text: some producers draw rules as images."""
    unit = page_unit(content)
    paths = content.paths
    thin = [r.box for r in content.rasters if min(r.box.width, r.box.height) <= 3 * unit]
    boxes = np.array(
        [(b.x0, b.y0, b.x1, b.y1) for b in (*(path.box for path in paths), *thin)], dtype=np.float64
    ).reshape(-1, 4)
    extra = len(thin)
    stroked = np.array([path.stroke is not None for path in paths] + [False] * extra, dtype=np.bool_)
    painted = [path.fill is not None and min(path.fill) < 250 for path in paths]
    filled = np.array(painted + [True] * extra, dtype=np.bool_)
    simple = np.array([path.segments <= 6 for path in paths] + [True] * extra, dtype=np.bool_)
    short = np.array([path.segments <= 3 and path.fill is None for path in paths] + [False] * extra, dtype=np.bool_)
    slanted = short & (np.minimum(boxes[:, 2] - boxes[:, 0], boxes[:, 3] - boxes[:, 1]) > 3 * unit)
    return Shapes(boxes, stroked, filled, simple, slanted)


def find_rules(content: PageContent, shapes: Shapes, *, fills: bool = False) -> Rules:
    """Rules of thin shapes and of stroked rectangles; with `fills` the edges of filled rectangles as well."""
    unit = page_unit(content)
    boxes = shapes.boxes
    if not len(boxes):
        return Rules(np.zeros((0, 3)), np.zeros((0, 3)), unit)
    width, height = boxes[:, 2] - boxes[:, 0], boxes[:, 3] - boxes[:, 1]
    thick = 3.0 * unit
    frame = shapes.simple & (width > thick) & (height > thick)
    edges = frame & (shapes.stroked | shapes.filled) if fills else frame & shapes.stroked
    horizontal = _thin(boxes[height <= thick], 1, width[height <= thick])
    vertical = _thin(boxes[width <= thick], 0, height[width <= thick])
    framed = boxes[edges]
    horizontal = np.concatenate((horizontal, framed[:, (1, 0, 2)], framed[:, (3, 0, 2)]))
    vertical = np.concatenate((vertical, framed[:, (0, 1, 3)], framed[:, (2, 1, 3)]))
    return Rules(_merged(horizontal, unit), _merged(vertical, unit), unit)


def _thin(boxes: Floats, axis: int, length: Floats) -> Floats:
    """Shapes thin across `axis` and not shorter than thick, as rules; dots of dotted rules are among them."""
    across = boxes[:, axis + 2] - boxes[:, axis]
    keep = boxes[length >= 0.9 * across]
    return np.stack(((keep[:, axis] + keep[:, axis + 2]) / 2, keep[:, 1 - axis], keep[:, 3 - axis]), axis=1)


def _merged(rules: Floats, unit: float) -> Floats:
    """Pieces on one line joined where they touch or nearly do, double lines made one, short ones dropped."""
    if not len(rules):
        return np.zeros((0, 3))
    rules = rules[np.lexsort((rules[:, 1], rules[:, 0]))]
    row = np.cumsum(np.diff(rules[:, 0], prepend=rules[0, 0]) > 1.2 * unit)
    order = np.lexsort((rules[:, 1], row))
    rules, row = rules[order], row[order]
    # Within a row, a piece begins a new rule when it starts beyond the farthest end so far: a running maximum per row.
    offset = row * (np.ptp(rules[:, 1:]) + 10 * unit)
    reach = np.maximum.accumulate(rules[:, 2] + offset)
    starts = np.ones(len(rules), dtype=np.bool_)
    starts[1:] = (rules[1:, 1] + offset[1:] > reach[:-1] + 2.5 * unit) | (row[1:] != row[:-1])
    first = np.nonzero(starts)[0]
    ends = np.maximum.reduceat(rules[:, 2], first)
    counts = np.diff(first, append=len(rules))
    where = np.add.reduceat(rules[:, 0], first) / counts
    joined = np.stack((where, rules[first, 1], ends), axis=1)
    length = joined[:, 2] - joined[:, 1]
    joined = joined[length >= 7 * unit]
    if len(joined) > MAX_RULES:
        longest = np.argsort(joined[:, 1] - joined[:, 2], kind="stable")[:MAX_RULES]
        joined = joined[longest]
    return _single(joined[np.argsort(joined[:, 0], kind="stable")], unit)


def _single(rules: Floats, unit: float) -> Floats:
    """Of rules closer than three points that run side by side, one that reaches as far as both."""
    kept: list[list[float]] = []
    for where, start, end in rules.tolist():
        twin = next((other for other in kept[-8:] if _beside(other, where, start, end, unit)), None)
        if twin is None:
            kept.append([where, start, end])
        else:
            twin[1], twin[2] = min(start, twin[1]), max(end, twin[2])
    return np.array(kept, dtype=np.float64).reshape(-1, 3)


def _beside(other: list[float], where: float, start: float, end: float, unit: float) -> bool:
    shared = min(end, other[2]) - max(start, other[1])
    return where - other[0] <= 3 * unit and shared > 0.8 * min(end - start, other[2] - other[1])
