"""Estimate the quality of a page without ground truth."""

from collections.abc import Mapping

# How good the answer for a page is, judged without knowing the truth. `scoring.score` compares what was read with what
# is known of the page before: its text layer, where that is true, and the ink of its image; and it looks for what no
# good text has. Each part is a measured share 0..1, the score that of the worst part on one scale: a page is as good as
# what is worst about it. `benchmarks/quality.py` shows what it finds. The score changes no result, and is in no key,
# unless pages below one are to be read again.


#: Raised when a change gives the same answers other scores: with `--min-quality` it goes into the key.
VERSION = 1


# The parts of a page's quality by name, and the scale that they have in common.


# Shares 0..1 of:
FOUND = "found"  # of the text layer, in the answer
BACKED = "backed"  # of the answer, in the text layer
ORDER = "order"  # of its pieces in order, by their places in the layer
SEQUENCE = "sequence"  # the same, by the boxes of blocks
COVERED = "covered"  # of the ink, within boxes
FILLED = "filled"  # of the text that the ink is good for, there
FITS = "fits"  # of the answer, that the ink is good for
UNREPEATED = "unrepeated"  # of the answer, in no loop
READABLE = "readable"  # of its characters, with a meaning
WHOLE = "whole"  # less than 1 for answers known to be cut or malformed
CONFIDENT = "confident"  # OCR's own confidence

#: How a part's share counts: over the share at which nothing is wrong, to a power by which good pages stay above 0.8.
_SCALES: Mapping[str, tuple[float, float]] = {
    FOUND: (1.0, 5.5),
    BACKED: (1.0, 2.7),
    ORDER: (0.95, 3.0),
    SEQUENCE: (0.75, 3.0),
    COVERED: (1.0, 5.0),
    FILLED: (0.72, 3.5),
    FITS: (0.84, 3.5),
    UNREPEATED: (1.0, 4.0),
    READABLE: (0.97, 3.0),
    WHOLE: (1.0, 1.0),
    CONFIDENT: (0.95, 4.0),
}


def on_scale(name: str, value: float) -> float:
    """A part's share on the scale that all parts have in common, 0..1: below 0.8 something is wrong."""
    best, power = _SCALES.get(name, (1.0, 1.0))
    return float(min(1.0, max(0.0, value) / best) ** power)


# What is wrong with a page, in words for people, from the parts of its quality.


#: Parts that are worse than this on the common scale are told.
_TOLD = 0.9
_WORDS: Mapping[str, str] = {
    FOUND: "text of the page's layer is missing: {lack}",
    BACKED: "text that the page's layer does not have: {lack}",
    ORDER: "text that is not read down its columns, by the places of the layer: {lack}",
    SEQUENCE: "pieces that are not read down their columns, by their boxes: {lack}",
    COVERED: "ink outside of all boxes: {lack}",
    FILLED: "less text than the ink is good for: {share} of it",
    FITS: "more text than the ink is good for: it holds {share} of it",
    UNREPEATED: "text that repeats itself: {lack}",
    READABLE: "characters that cannot be read: {lack}",
    WHOLE: "the answer was cut off or malformed",
    CONFIDENT: "OCR is not sure of what it read: {share}",
}


def what_is_wrong(parts: Mapping[str, float]) -> str:
    """The parts that are not as they should be, the worst first; "" for none."""
    bad = sorted((on_scale(name, value), name) for name, value in parts.items() if name in _WORDS)
    return "; ".join(_told(name, parts[name]) for scaled, name in bad if scaled < _TOLD)


def _told(name: str, value: float) -> str:
    return _WORDS[name].format(lack=_percent(1 - value), share=_percent(value))


def _percent(share: float) -> str:
    """A small share is not told as none."""
    return f"{100 * share:.0f} %" if share >= 0.01 or share <= 0 else "under 1 %"
