"""Captions of figures: "Figure 3: …" at the start of a paragraph, with the lines that go on with it."""

import re
from dataclasses import dataclass

import numpy as np

from llm_ocr.engines.embedded.caption_words import FIGURE_CAPTION
from llm_ocr.engines.embedded.figures.text import Texts
from llm_ocr.engines.embedded.tables.captions import caption_lines
from llm_ocr.types import Box, Line

#: Lines of the longest captions.
_LONGEST = 40
_MARKED = re.compile(r"[.:|)–—-]\s*$")
_SENTENCE = re.compile(
    r"^\s*(?:and|or|in|of|is|are|was|shows?|also|illustrates?|depicts?|can|we|the|to|for|with|by|at|on|as|from|gives?)\b"
)


@dataclass(frozen=True, slots=True)
class Caption:
    """`lines`: indices of its lines; `box` around them."""

    lines: frozenset[int]
    box: Box


def find_captions(texts: Texts) -> list[Caption]:
    """Captions from top to bottom. A sentence of the text that begins with "Figure 3 shows" is none."""
    lines = texts.content.lines
    order = sorted(range(len(lines)), key=lambda i: (lines[i].box.y0, lines[i].box.x0))
    found: list[tuple[str, Caption]] = []
    used: set[int] = set()
    for index in order:
        if index not in used and texts.free[index] and (name := _begins(texts, index)):
            members = _members(lines, index, texts) - used
            used |= members
            box = lines[index].box
            for member in members:
                box = box.union(lines[member].box)
            found.append((name, Caption(frozenset(members), box)))
    return _one_of_each(found, texts)


def _begins(texts: Texts, index: int) -> str:
    """The name of the figure, such as "figure3", where the line begins a caption; else empty."""
    line = texts.content.lines[index]
    match = FIGURE_CAPTION.match(line.text)
    if match is None:
        return ""
    name = "".join(filter(str.isalnum, match[0].lower()))
    rest = line.text[match.end() :]
    if _MARKED.search(match[0]) or not rest:
        return name
    if _SENTENCE.match(rest) or rest[:1].islower():
        return ""
    other_look = line.bold or line.italic or line.size < 0.93 * texts.body_size
    return name if other_look or not _in_paragraph(texts, index) else ""


def _in_paragraph(texts: Texts, index: int) -> bool:
    """Whether body text stands directly above."""
    line = texts.content.lines[index]
    step = line.box.y0 - texts.boxes[:, 1]
    beside = (texts.boxes[:, 0] < line.box.x1) & (texts.boxes[:, 2] > line.box.x0)
    return bool((texts.body & beside & (step > 0.3 * line.size) & (step < 1.5 * line.size)).any())


def _members(lines: tuple[Line, ...], start: int, texts: Texts) -> set[int]:
    down = texts.boxes[:, 1] - lines[start].box.y0
    reach = _LONGEST * max(lines[start].box.height, lines[start].size)
    near = np.nonzero(texts.free & (down > -0.5 * lines[start].size) & (down < reach))[0].tolist()
    following = [index for index in near if not FIGURE_CAPTION.match(lines[index].text)]
    return set(caption_lines(lines, following, start))


def _one_of_each(found: list[tuple[str, Caption]], texts: Texts) -> list[Caption]:
    """Of captions with the same number, the one that is set unlike the text; else the first."""
    best: dict[str, tuple[int, Caption]] = {}
    for name, caption in found:
        line = texts.content.lines[min(caption.lines, key=lambda i: texts.boxes[i, 1])]
        looks = int(line.bold) + int(line.italic) + 2 * (abs(line.size - texts.body_size) > 0.06 * texts.body_size)
        if name not in best or looks > best[name][0]:
            best[name] = (looks, caption)
    return sorted((caption for _, caption in best.values()), key=lambda caption: caption.box.y0)
