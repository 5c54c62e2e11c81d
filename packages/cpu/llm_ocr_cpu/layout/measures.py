"""Measure a page: size of its body text, distance of its lines, direction of its script."""

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median

from llm_ocr.results.joining import vocabulary
from llm_ocr.types import Line, PageContent

RTL = re.compile(r"[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufeff]")
_LETTER = re.compile(r"[^\W\d_]")
#: Ratio of sizes that count as equal.
SAME_SIZE = 1.06
#: Share of characters near the body size below which sizes are from OCR boxes and unsteady.
_STEADY = 0.5
#: Share of characters in the three most frequent sizes from which the sizes are exact, as in print.
_EXACT = 0.8
#: Least share of monospaced text on a typewritten page, without and with OCR, which recognizes only some of it. On
#: other pages, monospaced text is code.
_TYPED = 0.9, 0.6
#: Line distance in font heights for pages with too few lines.
_USUAL_LEADING = 1.2


@dataclass(frozen=True, slots=True)
class Measures:
    """Measures of a page. Lengths in page units."""

    width: float
    height: float
    body: float  # size of most of the text
    leading: float  # distance of baselines as a factor of the size
    noisy: bool  # sizes are unsteady, as in OCR
    rtl: bool  # most letters are Arabic or Hebrew
    typewriter: bool  # most of the text is monospaced, so that the face does not indicate code
    bold: bool  # most of the text is bold, so that the face does not indicate headings
    italic: bool  # most of the text is italic
    words: frozenset[str]  # the page's vocabulary
    links: tuple[str, ...] = ()  # addresses of links

    @property
    def slack(self) -> float:
        """Minimum ratio of two different sizes."""
        return 1.28 if self.noisy else 1.09

    def settled(self, size: float) -> float:
        """Return the size for comparisons of rows: with unsteady sizes, a size near the body's is the body's."""
        return self.body if self.noisy and self.body / self.slack < size < self.body * self.slack else size


def is_vertical(line: Line) -> bool:
    """Return whether the line runs up or down the page: much higher than wide, with several characters."""
    height, width = line.box.height, line.box.width
    return len(line.text.strip()) > 2 and height > 2.2 * width and (height > 2 * line.size or height > 5 * width)


def _body_size(lines: Sequence[Line]) -> tuple[float, float]:
    """Return the size with most characters within `SAME_SIZE` (otherwise the median), and their share 0..1."""
    weights: defaultdict[float, int] = defaultdict(int)
    for line in lines:
        weights[round(line.size, 1)] += len(line.text)
    sizes = sorted(weights)
    best, best_weight, low, held = sizes[0], 0, 0, 0
    for high, size in enumerate(sizes):
        held += weights[size]
        while sizes[low] * SAME_SIZE < size:
            held -= weights[sizes[low]]
            low += 1
        if held > best_weight:
            best, best_weight = max(sizes[low : high + 1], key=weights.__getitem__), held
    total = sum(weights.values())
    if best_weight < _STEADY * total:
        best, passed = sizes[0], 0
        for size in sizes:
            passed += weights[size]
            if 2 * passed >= total:
                best = size
                break
    return max(best, 0.1), best_weight / max(1, total)


def steadied(lines: Sequence[Line]) -> list[Line]:
    """Return the lines with comparable sizes.

    Fonts with broken metrics have inconsistent sizes. If the heights of the lines are consistent, they replace the
    sizes.
    """
    upright = [line for line in lines if line.box.height < 2.2 * line.box.width]
    if len(upright) < 5 or _body_size(upright)[1] >= _STEADY:
        return list(lines)
    by_height = [replace(line, size=max(line.box.height, 0.1)) for line in upright]
    if _body_size(by_height)[1] < _STEADY:
        return list(lines)
    return [line if is_vertical(line) else replace(line, size=max(line.box.height, 0.1)) for line in lines]


def _leading(lines: Sequence[Line], body: float) -> float:
    """Return the usual distance between consecutive lines of body text, as a factor of the size."""
    near = [line for line in lines if body / 1.3 < line.size < body * 1.3 and len(line.text) > 12]
    near.sort(key=lambda line: (round(line.box.x0 / (3 * body)), line.box.y1))
    steps = []
    for upper, lower in pairwise(near):
        step = (lower.box.y1 - upper.box.y1) / body
        if 0.5 < step < 2.6 and min(upper.box.x1, lower.box.x1) > max(upper.box.x0, lower.box.x0):
            steps.append(step)
    if len(steps) < 4:
        return _USUAL_LEADING
    steps.sort()
    return max(0.7, steps[len(steps) * 2 // 5])


def _are_exact(lines: Sequence[Line]) -> bool:
    weights: Counter[float] = Counter()
    for line in lines:
        weights[round(line.size, 1)] += len(line.text)
    return sum(weight for _, weight in weights.most_common(3)) >= _EXACT * weights.total()


def measure(content: PageContent, lines: Sequence[Line]) -> Measures:
    """Return the measures of the page from `lines` (outside tables and figures, if there are enough)."""
    body, share = _body_size(lines)
    texts = [line.text for line in lines]
    total = sum(len(text) for text in texts) or 1
    noisy = (share < _STEADY and not _are_exact(lines)) or median(line.confidence for line in lines) < 1.0
    sample = "".join(texts)[:20_000]
    letters = len(_LETTER.findall(sample)) or 1
    return Measures(
        content.width,
        content.height,
        body,
        _leading(lines, body),
        noisy,
        len(RTL.findall(sample)) > 0.5 * letters,
        sum(len(line.text) for line in lines if line.mono) > _TYPED[noisy] * total,
        sum(len(line.text) for line in lines if line.bold) > 0.5 * total,
        sum(len(line.text) for line in lines if line.italic) > 0.5 * total,
        vocabulary(texts),
        content.links,
    )
