"""The parts of a page's quality by name, and the scale that they have in common."""

from collections.abc import Mapping

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
