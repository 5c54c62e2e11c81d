"""Estimate the quality of a page without a reference."""

import math
from collections.abc import Mapping

# `scoring.score` compares an answer with independent data of the page: its text layer, if reliable, and the ink of its
# image. It also detects defects that good text does not have. Each part is a measured share 0..1; the score is that of
# the worst part on a common scale. `benchmarks/quality.py` measures the detection of errors. The score changes no
# result and is in no key, unless pages below a score are read again.


#: Increased when a change gives the same answers other scores: with a minimum quality, it is in the key.
VERSION = 9
#: Score below which a page is `degraded`: its text is wrong, missing, or misplaced. With a text layer, no good answer
#: of `benchmarks/quality.py` is below.
LOW = 0.3
#: The same for the parts that compare a model's answer with a true text layer. In `benchmarks/quality_of_models.py`,
#: 0.4 % of 1,970 good answers are below. Of the same answers without the last 30 % of their text, 95 % are below.
LOW_OF_MODEL = 0.2

# Shares 0..1 of:
FOUND = "found"  # of the text layer, in the answer
BACKED = "backed"  # of the answer, in the text layer
ORDER = "order"  # of its chunks in order, by their positions in the layer
SEQUENCE = "sequence"  # the same, by the boxes of blocks
COVERED = "covered"  # of the ink, within boxes
FILLED = "filled"  # of the text expected from the ink, in the answer
FITS = "fits"  # of the answer, within the text expected from the ink
UNREPEATED = "unrepeated"  # of the answer, outside of loops
READABLE = "readable"  # of its characters, with a meaning
TABULAR = "tabular"  # of its text, outside of tables that are not tables
WHOLE = "whole"  # less than 1 for answers known to be cut or malformed
CONFIDENT = "confident"  # OCR's own confidence

#: Scale of a part: its share is divided by the share of a faultless page, and raised to a power that keeps good pages
#: above 0.8.
_SCALES: Mapping[str, tuple[float, float]] = {
    FOUND: (1.0, 5.5),
    BACKED: (1.0, 2.7),
    ORDER: (0.95, 3.0),
    SEQUENCE: (0.75, 3.0),
    COVERED: (1.0, 5.0),
    FILLED: (0.72, 3.5),
    FITS: (0.84, 3.5),
    UNREPEATED: (1.0, 4.0),
    READABLE: (1.0, 15.0),
    TABULAR: (1.0, 3.0),
    WHOLE: (1.0, 1.0),
    CONFIDENT: (0.95, 12.0),
}


def on_scale(name: str, value: float) -> float:
    """Return a part's share on the common scale, 0..1: below 0.8 there is a defect."""
    best, power = _SCALES.get(name, (1.0, 1.0))
    return float(min(1.0, max(0.0, value) / best) ** power)


def shown_score(score: float) -> str:
    """Return a score with two digits, rounded down: no score below 0.8 is shown as 0.80."""
    return f"{math.floor(round(100 * score, 6)) / 100:.2f}"  # 100 * 0.29 is 28.999999999999996


#: Parts that compare an answer with a true text layer.
BY_LAYER = (FOUND, BACKED, ORDER)


def by_layer(parts: Mapping[str, float]) -> float:
    """Return the worst part that compares the answer with the text layer, on the common scale; 1 for none."""
    return min((on_scale(name, parts[name]) for name in BY_LAYER if name in parts), default=1.0)


#: Parts below this on the common scale are described.
_DESCRIBED = 0.9
_WORDS: Mapping[str, str] = {
    FOUND: "text of the text layer is missing: {lack}",
    BACKED: "text that is not in the text layer: {lack}",
    ORDER: "text out of column order, by the text layer: {lack}",
    SEQUENCE: "blocks out of column order: {lack}",
    COVERED: "text in the image outside of all blocks: {lack}",
    FILLED: "less text than its image suggests: {share} of it",
    FITS: "more text than its image suggests: the image accounts for {share} of it",
    UNREPEATED: "repeated text: {lack}",
    READABLE: "unreadable characters: {lack}",
    TABULAR: "tables with running text, empty cells, or uneven rows: {lack}",
    WHOLE: "the answer is truncated or malformed",
    CONFIDENT: "low OCR confidence: {share}",
}


def what_is_wrong(parts: Mapping[str, float]) -> str:
    """Return a description of the defective parts, worst first; "" for none."""
    bad = sorted((on_scale(name, value), name) for name, value in parts.items() if name in _WORDS)
    return "; ".join(
        _WORDS[name].format(lack=_percent(1 - parts[name]), share=_percent(parts[name]))
        for scaled, name in bad
        if scaled < _DESCRIBED
    )


def _percent(share: float) -> str:
    """Return the share in percent. A small share is not rounded to 0."""
    return f"{100 * share:.0f} %" if share >= 0.01 or share <= 0 else "under 1 %"
