"""Rows of one column into groups: paragraphs, list items, headings, runs of code. What each is comes later.

Two passes. Rows are first parted where they look different (distance, size, face); within such a stretch, margins and
short rows tell where paragraphs begin.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

from llm_ocr.engines.embedded.layout.margins import Margins, column_edge, find_margins
from llm_ocr.engines.embedded.layout.markers import (
    Marker,
    is_caption,
    is_footnote,
    is_keyword,
    is_reference,
    numbering,
    parse_marker,
)
from llm_ocr.engines.embedded.layout.measures import Measures
from llm_ocr.engines.embedded.layout.rows import Row

_SENTENCE_END = tuple('.!?。！？…:;"”’»)]؟۔')
_OPEN_ADDRESS = re.compile(r"(?:https?://|www\.)\S*$")
_CONTINUES = tuple("-,\u00ad\u2010–")


@dataclass(slots=True)
class Group:
    """Rows that are read as one. `breaks[i]`: row i begins on a line of its own (False for the first)."""

    rows: list[Row]
    breaks: list[bool] = field(default_factory=list)
    marker: Marker | None = None
    code: bool = False
    gap: float = 0.0  # to the row above in the column, page units; large for the first

    @property
    def size(self) -> float:
        return max(self.rows, key=lambda row: len(row.text)).size

    @property
    def bold(self) -> bool:
        return all(row.bold for row in self.rows)

    @property
    def first(self) -> Row:
        return self.rows[0]

    @property
    def length(self) -> int:
        return sum(len(row.text) for row in self.rows)


def ends_sentence(text: str) -> bool:
    """Whether the text may end a paragraph."""
    return text.endswith(_SENTENCE_END)


def goes_on(before: str, after: str) -> bool:
    """Whether the words say that `after` continues the sentence of `before`."""
    if after[:1].islower() and (not ends_sentence(before) or _OPEN_ADDRESS.search(before)):
        return True
    return before.endswith(_CONTINUES)


def may_go_on(before: str, after: str) -> bool:
    """As `goes_on`, and true as well where a script without small letters cannot tell."""
    first = after[:1]
    caseless = first.isalpha() and first.lower() == first.upper()
    return goes_on(before, after) or (caseless and not ends_sentence(before))


def _step(rows: Sequence[Row], measures: Measures) -> float:
    """The usual distance between the middles of rows in this column, in parts of their size."""
    steps = [
        (lower.middle - upper.middle) / upper.size
        for upper, lower in pairwise(rows)
        if max(upper.size, lower.size) < 1.2 * min(upper.size, lower.size)
    ]
    steps = sorted(step for step in steps if 0.5 < step < 3.2)
    if len(steps) < 5:
        return measures.leading
    return max(steps[len(steps) * 2 // 5], 0.7)


def _looks_apart(before: Row, row: Row, step: float, measures: Measures) -> bool:
    """Whether distance, size or face part two rows."""
    size = max(min(before.size, row.size), 0.1)
    distance = (row.middle - before.middle) / size
    white = (row.y0 - before.y1) / size
    large = size > 1.14 * measures.body and max(before.size, row.size) < 1.05 * size
    tolerance = 1.6 if large else 1.32 if measures.noisy else 1.27
    if distance > tolerance * step and white > step - 1.0 + 0.12:
        return True
    full = goes_on(before.text, row.text)
    if (
        measures.noisy
        and size > 0.9 * measures.body
        and before.size > 1.22 * row.size
        and before.x1 - before.x0 < 26 * size
    ):
        return not full
    one, other = measures.settled(before.size), measures.settled(row.size)
    if max(one, other) > (1.25 if full else 1.0) * measures.slack * min(one, other):
        return True
    return not full and _face_changes(before, row, measures)


def _face_changes(before: Row, row: Row, measures: Measures) -> bool:
    if before.mono != row.mono and not measures.typewriter:
        return True
    shorter, longer = sorted((before.x1 - before.x0, row.x1 - row.x0))
    if before.bold != row.bold:  # OCR takes a heavy line of a text for bold: a heading is shorter than the text
        return not measures.noisy or shorter < 0.8 * longer
    return before.italic and not row.italic and before.x1 < row.x1 - 3 * row.size


def _stretches(rows: Sequence[Row], measures: Measures) -> list[list[Row]]:
    step = _step(rows, measures)
    found: list[list[Row]] = [[rows[0]]]
    for before, row in pairwise(rows):
        if _looks_apart(before, row, step, measures):
            found.append([row])
        else:
            found[-1].append(row)
    return found


def is_sure_heading(row: Row) -> bool:
    """Whether the words alone make the row a heading: a section number or a usual name, short, not a sentence."""
    text = row.text
    if len(text) > 90 or row.cells > 2 or "\t" in text[12:]:
        return False
    if is_keyword(text):
        return True
    return numbering(text) > 0 and not text.endswith((".", ",", ";", ":")) and len(text.split()) > 1


def _starts_item(row: Row, before: Row | None, open_item: Group | None, short: bool) -> Marker | None:
    """The marker of a list item that begins here, unless the row is the middle of a sentence."""
    marker = parse_marker(row.text)
    if marker is None or marker.certain or before is None:
        return marker
    previous = open_item.marker if open_item else None
    if previous and marker.style == previous.style and marker.value in (None, (previous.value or 0) + 1):
        return marker
    if marker.value is not None and marker.value > 1 and not (short and ends_sentence(before.text)):
        return None
    return marker if short or ends_sentence(before.text) else None


def _starts_own(row: Row, before: Row, margins: Margins) -> bool:
    """Whether the first words open a new paragraph: a caption, a bibliography entry, a numbered heading."""
    if is_caption(row.text) and (ends_sentence(before.text) or margins.is_short(before, row)):
        return True
    if is_reference(row.text) and row.x0 <= margins.left + 0.5 * row.size and not before.text.endswith(","):
        return True
    return is_sure_heading(row) and margins.is_short(before, row) and (row.bold or not goes_on(before.text, row.text))


def _in_stretch(rows: Sequence[Row], measures: Measures, edge: float) -> list[Group]:
    margins = find_margins(rows, measures, edge)
    groups: list[Group] = []
    for index, row in enumerate(rows):
        before = rows[index - 1] if index else None
        group = groups[-1] if groups else None
        short = before is not None and margins.is_short(before, row)
        marker = _starts_item(row, before, group, short)
        if group is None or before is None or marker is not None:
            groups.append(Group([row], [False], marker))
        elif _starts_new(group, before, row, margins, short):
            groups.append(Group([row], [False]))
        else:
            group.rows.append(row)
            group.breaks.append(_own_line(group, before, row, margins, short))
    return groups


def _own_line(group: Group, before: Row, row: Row, margins: Margins, short: bool) -> bool:
    """Whether a row that stays in the group nevertheless begins on a line of its own: addresses, verses, cells."""
    if row.cells > 1 or before.cells > 1:
        return row.cells > 1 or group.marker is None
    return short and not goes_on(before.text, row.text)


def _starts_new(group: Group, before: Row, row: Row, margins: Margins, short: bool) -> bool:
    if _starts_own(row, before, margins) or (len(group.rows) == 1 and margins.stands_over(before, row, short)):
        return not goes_on(before.text, row.text) or is_caption(row.text)
    if len(group.rows) == 1 and is_sure_heading(before) and short and not goes_on(before.text, row.text):
        return True
    if group.marker is not None:
        return margins.leaves_item(group.first, before, row, len(group.rows) > 1, short)
    if margins.begins_paragraph(before, row, group.first):
        return not goes_on(before.text, row.text)
    capitals = before.text.isupper() and not row.text.isupper() and row.text[:1].isupper()
    if len(group.rows) == 1 and capitals and len(before.text) > (3 if short else 8):
        return True
    if margins.heading and not before.text.endswith("."):
        return False
    return short and ends_sentence(before.text) and before.cells == row.cells == 1 and not margins.centred


def _with_footnote_starts(groups: list[Group], measures: Measures) -> list[Group]:
    """Small print is cut at each footnote mark."""
    result: list[Group] = []
    for group in groups:
        result.append(group)
        if group.size > 0.93 * measures.body or len(group.rows) < 2 or group.marker:
            continue
        current = group
        rows, breaks = group.rows, group.breaks
        current.rows, current.breaks = [rows[0]], [False]
        for before, row, own in zip(rows, rows[1:], breaks[1:], strict=False):
            if is_footnote(row.text) and ends_sentence(before.text):
                current = Group([row], [False])
                result.append(current)
            else:
                current.rows.append(row)
                current.breaks.append(own)
    return result


def group_rows(rows: Sequence[Row], measures: Measures) -> list[Group]:
    """The groups of one column from top to bottom; every row is in exactly one."""
    if not rows:
        return []
    groups: list[Group] = []
    edge = column_edge(rows, measures)
    for stretch in _stretches(rows, measures):
        if stretch[0].mono and not measures.typewriter and all(row.mono for row in stretch):
            groups.append(Group(stretch, [True] * len(stretch), code=True))
        else:
            groups += _with_footnote_starts(_in_stretch(stretch, measures, edge), measures)
    usual = median(row.size for row in rows)
    for upper, lower in pairwise(groups):
        lower.gap = lower.first.y0 - upper.rows[-1].y1
    groups[0].gap = 2 * usual
    return groups
