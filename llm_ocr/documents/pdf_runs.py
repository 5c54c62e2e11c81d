"""Glyphs to words, and words to runs: stretches that follow each other without a wide gap."""

from dataclasses import dataclass

import numpy as np

from llm_ocr.documents.pdf_chars import Floats, Ints
from llm_ocr.documents.pdf_glyphs import ASCENT, DESCENT, Bools, Glyphs

#: A gap between two words of a line, in parts of the font size, that needs no further evidence. Word spaces are 0.25 to
#: 0.35, justified ones up to about 0.7; the narrowest gutters in print are 1.2.
NEAR = 0.75


@dataclass(frozen=True, slots=True)
class Words:
    """Words in the PDF's order; `first` and `end` are glyph indices, `boxes` (n, 4) as shown."""

    texts: list[str]
    boxes: Floats
    turn: Ints
    u0: Floats
    u1: Floats
    base: Floats
    size: Floats
    first: Ints
    end: Ints
    spaced: Bools
    rtl: Bools


@dataclass(frozen=True, slots=True)
class Runs:
    """Runs of words, `first` to `end`, with the extent of each in its frame."""

    first: Ints
    end: Ints
    turn: Ints
    u0: Floats
    u1: Floats
    base: Floats
    size: Floats


def _distance(u0: Floats, u1: Floats) -> Floats:
    """The gap between neighbours in a list, whichever of them is left; negative when they overlap."""
    return np.maximum(u0[1:] - u1[:-1], u0[:-1] - u1[1:])


def _missed_spaces(glyphs: Glyphs) -> Bools:
    """Some writers place each glyph alone and leave spaces out; pdfium then misses narrow ones."""
    found = np.zeros(len(glyphs.texts), dtype=bool)
    alone = np.diff(glyphs.objects) != 0
    if len(alone) < 50 or alone.mean() < 0.7:
        return found
    gap = (glyphs.u0[1:] - glyphs.u1[:-1]) / glyphs.size[1:]
    beside = ~glyphs.spaced[1:] & (np.abs(np.diff(glyphs.base)) < 0.05 * glyphs.size[1:]) & (np.abs(gap) < 0.25)
    usual = float(np.median(gap[beside])) if beside.any() else 0.0
    found[1:] = beside & (gap > max(0.11, usual + 0.08))
    return found


def words_of(glyphs: Glyphs) -> Words:
    """Cut at whitespace, at gaps, and wherever the line of writing is left."""
    size, base, u0, u1, rtl = glyphs.size, glyphs.base, glyphs.u0, glyphs.u1, glyphs.rtl
    spaced = glyphs.spaced | _missed_spaces(glyphs)
    smaller = np.minimum(size[1:], size[:-1])
    cut = spaced[1:] | (glyphs.turn[1:] != glyphs.turn[:-1]) | (rtl[1:] != rtl[:-1])
    cut |= np.abs(np.diff(base)) > 0.15 * smaller
    cut |= np.maximum(size[1:], size[:-1]) > 1.3 * smaller
    cut |= _distance(u0, u1) > 0.25 * smaller
    backwards = np.where(rtl[1:], u1[1:] - u1[:-1], u0[:-1] - u0[1:])
    cut |= backwards > 0.3 * smaller
    first = np.concatenate(([0], np.nonzero(cut)[0] + 1)).astype(np.int64)
    end = np.append(first[1:], len(size))
    low, high = np.minimum.reduceat(glyphs.u0, first), np.maximum.reduceat(glyphs.u1, first)
    level, em = np.add.reduceat(base, first) / (end - first), np.maximum.reduceat(size, first)
    turn = glyphs.turn[first]
    texts = ["".join(glyphs.texts[a:b]) for a, b in zip(first.tolist(), end.tolist(), strict=True)]
    boxes = _as_shown(glyphs, first, turn, low, high, level, em)
    return Words(texts, boxes, turn, low, high, level, em, first, end, spaced[first], rtl[first])


def _as_shown(glyphs: Glyphs, first: Ints, turn: Ints, low: Floats, high: Floats, base: Floats, size: Floats) -> Floats:
    """Nominal boxes for text along the axes; the glyphs' own ones otherwise."""
    top, bottom = base - ASCENT * size, base + DESCENT * size
    shown = np.column_stack(
        (
            np.minimum.reduceat(glyphs.boxes[:, 0], first),
            np.minimum.reduceat(glyphs.boxes[:, 1], first),
            np.maximum.reduceat(glyphs.boxes[:, 2], first),
            np.maximum.reduceat(glyphs.boxes[:, 3], first),
        )
    )
    nominal = {  # where x and y of the page lie in the frame
        0: (low, top, high, bottom),
        90: (-bottom, low, -top, high),
        180: (-high, -bottom, -low, -top),
        270: (top, -high, bottom, -low),
    }
    for angle, sides in nominal.items():
        here = turn == angle
        if here.any():
            shown[here] = np.column_stack(sides)[here]
    return shown


def runs_of(words: Words) -> Runs:
    """Cut where the next word is not beside the last one on its baseline."""
    smaller = np.minimum(words.size[1:], words.size[:-1])
    distance = _distance(words.u0, words.u1)
    cut = (words.turn[1:] != words.turn[:-1]) | (np.abs(np.diff(words.base)) > 0.15 * smaller)
    cut |= np.maximum(words.size[1:], words.size[:-1]) > 1.25 * smaller
    cut |= (distance > NEAR * smaller) | (distance < -0.3 * smaller)
    first = np.concatenate(([0], np.nonzero(cut)[0] + 1)).astype(np.int64)
    end = np.append(first[1:], len(words.size))
    return Runs(
        first,
        end,
        words.turn[first],
        np.minimum.reduceat(words.u0, first),
        np.maximum.reduceat(words.u1, first),
        np.add.reduceat(words.base, first) / (end - first),
        np.maximum.reduceat(words.size, first),
    )
