"""What is usual on a page: the size of body text, the distance of its lines, the direction of its script."""

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median

from llm_ocr.engines.embedded.layout.joining import vocabulary
from llm_ocr.types import Line, PageContent

_RTL = re.compile(r"[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufeff]")
_LETTER = re.compile(r"[^\W\d_]")
#: Sizes within this ratio of each other are the same size.
SAME_SIZE = 1.06
#: With less than this share of the characters near the body size, sizes come from OCR boxes and waver.
_STEADY = 0.5
#: Line distance in font heights where a page has too few lines to tell.
_USUAL_LEADING = 1.2


@dataclass(frozen=True, slots=True)
class Measures:
    """A page's own standards. Lengths in page units."""

    width: float
    height: float
    body: float  # size of most of the text
    leading: float  # distance of baselines in parts of the size
    noisy: bool  # sizes waver, as those of OCR do
    rtl: bool  # most letters are Arabic or Hebrew
    typewriter: bool  # most of the text is set in a monospaced face, which then says nothing about code
    bold: bool  # most of the text is bold, which then says nothing about headings
    words: frozenset[str]  # the page's vocabulary

    @property
    def slack(self) -> float:
        """The ratio from which two sizes differ."""
        return 1.28 if self.noisy else 1.09

    def settled(self, size: float) -> float:
        """The size as rows are compared by it: where sizes waver, those near that of the body are that of the body."""
        return self.body if self.noisy and self.body / self.slack < size < self.body * self.slack else size


def is_vertical(line: Line) -> bool:
    """Whether the line runs up or down the page: much higher than wide, with several characters."""
    height, width = line.box.height, line.box.width
    return len(line.text.strip()) > 2 and height > 2.2 * width and (height > 2 * line.size or height > 5 * width)


def _body_size(lines: Sequence[Line]) -> tuple[float, float]:
    """The size with most characters within `SAME_SIZE` (the median, where no size prevails), and their share 0..1."""
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
    """The lines with sizes that can be compared.

    Those are the heights of the lines where the font sizes of a page are in disorder and the heights are not: fonts
    with broken metrics.
    """
    upright = [line for line in lines if line.box.height < 2.2 * line.box.width]
    if len(upright) < 5 or _body_size(upright)[1] >= _STEADY:
        return list(lines)
    by_height = [replace(line, size=max(line.box.height, 0.1)) for line in upright]
    if _body_size(by_height)[1] < _STEADY:
        return list(lines)
    return [line if is_vertical(line) else replace(line, size=max(line.box.height, 0.1)) for line in lines]


def _leading(lines: Sequence[Line], body: float) -> float:
    """The usual distance from one line of body text to the next below it, in parts of the size."""
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


def measure(content: PageContent, lines: Sequence[Line]) -> Measures:
    """The standards of the page, taken from `lines` (those of no table or figure where there are enough)."""
    body, share = _body_size(lines)
    texts = [line.text for line in lines]
    total = sum(len(text) for text in texts) or 1
    sample = "".join(texts)[:20_000]
    letters = len(_LETTER.findall(sample)) or 1
    return Measures(
        content.width,
        content.height,
        body,
        _leading(lines, body),
        share < _STEADY or median(line.confidence for line in lines) < 1.0,
        len(_RTL.findall(sample)) > 0.5 * letters,
        sum(len(line.text) for line in lines if line.mono) > 0.6 * total,
        sum(len(line.text) for line in lines if line.bold) > 0.5 * total,
        vocabulary(texts),
    )
