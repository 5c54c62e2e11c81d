"""Horizontal rules of equal extent that stand above one another with tabular text between them."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from llm_ocr.engines.embedded.caption_words import TABLE_CAPTION
from llm_ocr.engines.embedded.tables.pieces import Row, is_code, rows_of
from llm_ocr.engines.embedded.tables.rules import Floats
from llm_ocr.engines.embedded.tables.spaced import Area, Rule
from llm_ocr.types import Box

if TYPE_CHECKING:
    from llm_ocr.engines.embedded.tables.finder import Finder

_MAX_RULES = 200  # per page; more are graph paper or a map


def rule_chains(finder: "Finder", horizontal: Floats) -> Iterator[Area]:
    """Areas between rules of equal extent in which no band is running text, from top to bottom of each chain."""
    content = finder.content
    long = horizontal[horizontal[:, 2] - horizontal[:, 1] >= 0.1 * content.width]
    for table in finder.found:  # its rules are spent
        box = table.box.grown(0.003 * content.height)
        y, x0, x1 = long.T
        long = long[(y < box.y0) | (y > box.y1) | (x0 > box.x1) | (x1 < box.x0)]
    if len(long) < 2 or len(long) > _MAX_RULES:
        return
    for group in _equal_extents(long, 0.012 * content.width):
        y, x0, x1 = group[:, 0], float(group[:, 1].min()), float(group[:, 2].max())
        run: list[float] = []
        for top, bottom in zip(y[:-1].tolist(), y[1:].tolist(), strict=True):
            if _is_band(finder, Box(x0, top, x1, bottom)):
                run = [*run, bottom] if run else [top, bottom]
            elif run:
                yield from _area(finder, run, x0, x1, horizontal)
                run = []
        if run:
            yield from _area(finder, run, x0, x1, horizontal)


def _equal_extents(rules: Floats, slack: float) -> list[Floats]:
    groups: list[list[list[float]]] = []
    for rule in rules.tolist():
        for group in groups:
            if abs(group[0][1] - rule[1]) <= slack and abs(group[0][2] - rule[2]) <= slack:
                group.append(rule)
                break
        else:
            groups.append([rule])
    return [np.array(group) for group in groups if len(group) > 1]


def _is_band(finder: "Finder", box: Box) -> bool:
    if any(table.box.covered_by(box) > 0.5 for table in finder.found):
        return False  # rules of the page around a table, not of a table
    members = finder.inside(box)
    lines = finder.content.lines
    if not members:
        return box.height < 0.04 * finder.content.height
    if any(TABLE_CAPTION.match(lines[index].text) for index in members):
        return False
    if is_code([lines[index] for index in members]):
        return False
    return not _is_text(rows_of(finder.pieces(members)), box)


def _is_text(rows: Sequence[Row], box: Box) -> bool:
    """Whether most rows run over the whole width, in one column or two."""
    if len(rows) < 2:
        return False
    wide = side_by_side = 0
    for row in rows:
        covered = sum(segment.x1 - segment.x0 for segment in row.segments)
        words = [len(segment.text.split()) for segment in row.segments]
        wide += len(words) == 1 and covered >= 0.75 * box.width and words[0] >= 4
        side_by_side += 2 <= len(words) <= 3 and covered >= 0.72 * box.width and min(words) >= 3
    return wide > 0.5 * len(rows) or (len(rows) >= 5 and wide + side_by_side >= 0.55 * len(rows))


def _area(finder: "Finder", run: list[float], x0: float, x1: float, rules: Floats) -> Iterator[Area]:
    """The area of a run, without bands at its end that hold a note rather than a row."""
    while len(run) > 2 and not _has_columns(finder, Box(x0, run[-2], x1, run[-1])):
        run = run[:-1]
    box = Box(x0, run[0], x1, run[-1])
    rows = rows_of(finder.pieces(finder.inside(box)))
    several = sum(len(row.segments) > 1 for row in rows)
    if several < (2 if len(run) > 2 else 3) or (len(run) == 2 and several < 0.6 * len(rows)):
        return
    yield Area(box, tuple(run), short_rules(rules, box))


def _has_columns(finder: "Finder", box: Box) -> bool:
    return any(len(row.segments) > 1 for row in rows_of(finder.pieces(finder.inside(box))))


def short_rules(rules: Floats, box: Box) -> tuple[Rule, ...]:
    """Rules inside the box that do not run over its whole width."""
    found = []
    for y, x0, x1 in rules.tolist():
        inside = box.y0 < y < box.y1 and x0 >= box.x0 - 0.02 * box.width and x1 <= box.x1 + 0.02 * box.width
        if inside and x1 - x0 < 0.9 * box.width:
            found.append((y, x0, x1))
    return tuple(found)
