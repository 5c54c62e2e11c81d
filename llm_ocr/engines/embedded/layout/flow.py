"""The page as a sequence: groups of rows, tables and figures in reading order, paragraphs whole across columns."""

from collections.abc import Sequence

from llm_ocr.engines.embedded.layout.groups import ends_sentence, group_rows, may_go_on
from llm_ocr.engines.embedded.layout.kinds import Entry, mark_kinds
from llm_ocr.engines.embedded.layout.measures import Measures
from llm_ocr.engines.embedded.layout.rows import Row, make_rows
from llm_ocr.engines.embedded.regions import Region
from llm_ocr.types import BlockKind, Box, Line

#: A text of fewer characters is not broken off by the end of a column: it is a label.
_SHORT, _BROKEN_OFF = 30, 150


def column_entries(column: int, lines: Sequence[Line], regions: Sequence[Region], measures: Measures) -> list[Entry]:
    """One column from top to bottom: a table or figure parts the rows above it from those below."""
    rows = make_rows(lines, measures)
    entries: list[Entry] = []
    start = 0
    for region in sorted(regions, key=lambda region: region.box.y0):
        end = start
        while end < len(rows) and _is_above(rows[end], region.box):
            end += 1
        entries += [Entry(column, group) for group in group_rows(rows[start:end], measures)]
        entries.append(Entry(column, region=region))
        start = end
    return entries + [Entry(column, group) for group in group_rows(rows[start:], measures)]


def _is_above(row: Row, box: Box) -> bool:
    return row.middle < box.y0 or (row.y0 < box.y0 and row.middle < (box.y0 + box.y1) / 2)


def arrange(entries: list[Entry], footnote_rules: Sequence[Box], measures: Measures) -> list[Entry]:
    """The entries with their kinds, what is broken off joined, and footnotes after everything else."""
    mark_kinds(entries, footnote_rules, measures)
    body = [entry for entry in entries if entry.kind is not BlockKind.FOOTNOTE]
    return _joined(body) + [entry for entry in entries if entry.kind is BlockKind.FOOTNOTE]


def _joined(entries: Sequence[Entry]) -> list[Entry]:
    joiner = _Joiner()
    for entry in entries:
        joiner.add(entry)
    return joiner.entries


class _Joiner:
    """Takes entries in reading order; texts that go on behind a column's end, a figure or a table become one."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self._last: Entry | None = None  # the text that may go on
        self._parted = False  # by a figure or table
        self._waiting: Entry | None = None  # a text broken off before a box or side column

    def add(self, entry: Entry) -> None:
        if entry.group is None or entry.kind is BlockKind.CAPTION:
            self._parted = True
            self.entries.append(entry)
        elif not (self._joins_code(entry) or self._joins_text(entry)):
            self.entries.append(entry)
            self._last = entry if entry.kind in (BlockKind.TEXT, BlockKind.LIST_ITEM) else None
            self._parted = False

    def _joins_code(self, entry: Entry) -> bool:
        before = self.entries[-1] if self.entries else None
        if before is None or before.column != entry.column or not before.kind is entry.kind is BlockKind.CODE:
            return False
        _append(before, entry)
        return True

    def _joins_text(self, entry: Entry) -> bool:
        last = self._last
        if last is None or not (self._parted or last.column != entry.column):
            return False
        if _continues(last, entry):
            _append(last, entry)
            self._parted = False
            return True
        if last.column == entry.column:
            return False
        waiting = self._waiting
        if waiting is not None and _continues(waiting, entry) and _same_margins(waiting, entry):
            _append(waiting, entry)
            self._last, self._waiting, self._parted = waiting, None, False
            return True
        self._waiting = last if _is_broken_off(last) else waiting
        return False


def _append(text: Entry, entry: Entry) -> None:
    if text.group is not None and entry.group is not None:
        text.group.rows += entry.group.rows
        text.group.breaks += [False, *entry.group.breaks[1:]]
        text.column = entry.column


def _is_broken_off(entry: Entry) -> bool:
    group = entry.group
    return group is not None and group.length > _BROKEN_OFF and not ends_sentence(group.rows[-1].text)


def _same_margins(text: Entry, entry: Entry) -> bool:
    """Whether both begin at the same margin: what stands between them was set beside the text."""
    if text.group is None or entry.group is None:
        return False
    before, after = text.group.rows[-1], entry.group.first
    return abs(before.x0 - after.x0) < before.size


def _continues(last: Entry, entry: Entry) -> bool:
    before, after = last.group, entry.group
    if before is None or after is None or entry.kind is not BlockKind.TEXT or after.marker is not None:
        return False
    one, other = before.rows[-1], after.first
    ratio = max(before.size, after.size) / max(min(before.size, after.size), 0.1)
    alike = ratio < 1.15 and one.cells == other.cells == 1 and before.length > _SHORT
    return alike and may_go_on(one.text, other.text) and not ends_sentence(one.text)
