"""Estimate the quality of a page without a reference."""

import math
from collections.abc import Mapping

# `scoring.score` takes the parts that compare an answer with the page from its ledger (`results.ledger`), and detects
# defects that good text does not have. Each part is a measured share 0..1; the score is that of the worst part on a
# common scale. `benchmarks/quality.py` measures the detection of errors. The score changes no
# result and is in no key, unless pages below a score are read again.


#: Increased when a change gives the same answers other scores: with a minimum quality, it is in the key.
VERSION = 19
#: Score below which a page is `degraded`: its text is wrong, missing, or misplaced. With a text layer, no good answer
#: of `benchmarks/quality.py` is below.
LOW = 0.3
#: The same for the order of a model's answer by a true text layer.
LOW_OF_MODEL = 0.2

# Shares 0..1 of:
READ = "read"  # of the page's ink and text layer, in the answer
SUPPORTED = "supported"  # of the answer, by ink and text layer
ORDER = "order"  # of its chunks in order, by their positions in the layer
PLACED = "placed"  # of the answer, where the page has no other text
SEQUENCE = "sequence"  # the same, by the boxes of blocks
UNREPEATED = "unrepeated"  # of the answer, outside of loops
READABLE = "readable"  # of its characters, with a meaning
TABULAR = "tabular"  # of its text, outside of tables that are not tables
WHOLE = "whole"  # less than 1 for answers known to be cut or malformed
CONFIDENT = "confident"  # of the words, expected to be read right by OCR

#: Scale of a part: its share is divided by the share of a faultless page, and raised to a power that keeps good pages
#: above 0.8.
_SCALES: Mapping[str, tuple[float, float]] = {
    READ: (1.0, 5.5),
    SUPPORTED: (1.0, 2.7),
    ORDER: (0.95, 3.0),
    PLACED: (1.0, 50.0),
    SEQUENCE: (0.75, 3.0),
    UNREPEATED: (1.0, 4.0),
    READABLE: (1.0, 15.0),
    TABULAR: (1.0, 3.0),
    WHOLE: (1.0, 1.0),
    CONFIDENT: (0.98, 20.0),
}


def on_scale(name: str, value: float) -> float:
    """Return a part's share on the common scale, 0..1: below 0.8 there is a defect."""
    best, power = _SCALES.get(name, (1.0, 1.0))
    return float(min(1.0, max(0.0, value) / best) ** power)


def shown_score(score: float) -> str:
    """Return a score with two digits, rounded down: no score below 0.8 is shown as 0.80."""
    return f"{math.floor(round(100 * score, 6)) / 100:.2f}"  # 100 * 0.29 is 28.999999999999996


#: Parts below this on the common scale are described.
_DESCRIBED = 0.9
_WORDS: Mapping[str, str] = {
    READ: "text on the page that was not read: {lack}",
    SUPPORTED: "text that nothing on the page supports: {lack}",
    ORDER: "text out of column order, by the text layer: {lack}",
    PLACED: "text where the page has other text: {lack}",
    SEQUENCE: "blocks out of column order: {lack}",
    UNREPEATED: "repeated text: {lack}",
    READABLE: "unreadable characters: {lack}",
    TABULAR: "tables with running text, empty cells, or uneven rows: {lack}",
    WHOLE: "the answer is truncated or malformed",
    CONFIDENT: "about {lack} of the words are probably misread",
}


def what_is_wrong(parts: Mapping[str, float]) -> str:
    """Return a description of the defective parts, worst first; "" for none."""
    bad = sorted((on_scale(name, value), name) for name, value in parts.items() if name in _WORDS)
    return "; ".join(
        _WORDS[name].format(lack=percent(1 - parts[name]), share=percent(parts[name]))
        for scaled, name in bad
        if scaled < _DESCRIBED or (name == PLACED and scaled < 1)
    )


def percent(share: float) -> str:
    """Return the share in percent. A small share is not rounded to 0."""
    return f"{100 * share:.0f} %" if share >= 0.01 or share <= 0 else "under 1 %"
