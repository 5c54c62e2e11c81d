"""What each group is: footnote, code, caption, heading, list item; the rest is text."""

from collections.abc import Sequence
from dataclasses import dataclass

from llm_ocr.engines.embedded.layout.groups import Group
from llm_ocr.engines.embedded.layout.headings import find_headings
from llm_ocr.engines.embedded.layout.markers import Marker, is_caption, is_footnote
from llm_ocr.engines.embedded.layout.measures import Measures
from llm_ocr.engines.embedded.regions import Region
from llm_ocr.types import BlockKind, Box

_SMALL, _SMALL_NOISY = 0.93, 0.86
#: Footnotes stand below this part of the page's height.
_FOOTNOTE_DEPTH = 0.45
#: A caption has fewer characters than this.
_LONGEST_CAPTION = 1500
#: Items of one list stand within this many entries of each other.
_NEAR = 6


@dataclass(slots=True)
class Entry:
    """A group or a region at its place; `column` counts the parts of the page in reading order."""

    column: int
    group: Group | None = None
    region: Region | None = None
    kind: BlockKind = BlockKind.TEXT
    level: int = 0


def mark_kinds(entries: Sequence[Entry], footnote_rules: Sequence[Box], measures: Measures) -> None:
    """Sets kind and level of all entries with a group."""
    _mark_footnotes(entries, footnote_rules, measures)
    _mark_code_and_captions(entries)
    _mark_headings(entries, measures)
    _mark_lists(entries, measures)


def _mark_footnotes(entries: Sequence[Entry], rules: Sequence[Box], measures: Measures) -> None:
    columns: dict[int, list[Entry]] = {}
    for entry in entries:
        columns.setdefault(entry.column, []).append(entry)
    for column in columns.values():
        for entry in _footnotes_of(column, rules, measures):
            entry.kind = BlockKind.FOOTNOTE
            if entry.group is not None:
                entry.group.marker = None


def _footnotes_of(column: Sequence[Entry], rules: Sequence[Box], measures: Measures) -> list[Entry]:
    """The foot of a column from a short rule or, in small print, from a footnote mark on."""
    small = (_SMALL_NOISY if measures.noisy else _SMALL) * measures.body
    found: list[Entry] = []
    pending: list[Entry] = []
    for entry in reversed(column):
        group = entry.group
        if group is None or group.first.y0 < _FOOTNOTE_DEPTH * measures.height or group.size > 1.02 * measures.body:
            break
        pending.append(entry)
        ruled = any(_rule_above(rule, group) for rule in rules)
        marked = is_footnote(group.first.text)
        if (marked and group.size <= small) or (ruled and (marked or _is_note(group, small))):
            found += pending
            pending = []
        elif group.size > small and not marked:
            break
        if ruled:
            break
    return found


def _is_note(group: Group, small: float) -> bool:
    """Whether small print below a rule is a sentence, as that of a note begun on the page before; not a cell."""
    return group.size <= small and group.length > 60 and all(row.cells == 1 for row in group.rows)


def _rule_above(rule: Box, group: Group) -> bool:
    """Whether the rule stands just above the group and begins where it does."""
    first = group.first
    return -0.3 * first.size < first.y0 - rule.y1 < 1.2 * first.size and abs(rule.x0 - first.x0) < 2 * first.size


def _mark_code_and_captions(entries: Sequence[Entry]) -> None:
    for entry in entries:
        group = entry.group
        if group is None or entry.kind is not BlockKind.TEXT:
            continue
        if group.code:
            entry.kind = BlockKind.CODE
        elif is_caption(group.first.text) and group.length < _LONGEST_CAPTION and not group.marker:
            entry.kind = BlockKind.CAPTION


def _mark_headings(entries: Sequence[Entry], measures: Measures) -> None:
    open_entries = [
        entry for entry in entries if entry.group is not None and entry.kind in (BlockKind.TEXT, BlockKind.CODE)
    ]
    groups = [entry.group for entry in open_entries if entry.group is not None]
    last = {
        index
        for index, entry in enumerate(open_entries)
        if index + 1 == len(open_entries) or open_entries[index + 1].column != entry.column
    }
    for index, (kind, level) in find_headings(groups, last, measures).items():
        entry = open_entries[index]
        entry.kind, entry.level = kind, level
        groups[index].marker = None


def _mark_lists(entries: Sequence[Entry], measures: Measures) -> None:
    """List items and their depth; a letter or roman number alone is no list."""
    depths: list[float] = []
    column = -1
    for index, entry in enumerate(entries):
        group = entry.group
        if entry.column != column:
            column, depths = entry.column, []
        if group is None or group.marker is None or entry.kind is not BlockKind.TEXT:
            if group is not None:
                depths = []
            continue
        if not _is_item(entries, index, group.marker):
            group.marker = None
            depths = []
            continue
        start = -group.first.x1 if measures.rtl else group.first.x0
        while depths and start < depths[-1] - 0.7 * group.first.size:
            depths.pop()
        if not depths or start > depths[-1] + 0.7 * group.first.size:
            depths.append(start)
        entry.kind, entry.level = BlockKind.LIST_ITEM, len(depths) - 1


def _is_item(entries: Sequence[Entry], index: int, marker: Marker) -> bool:
    if marker.certain or marker.value is None or "1" in marker.style:
        return True
    for other in entries[max(0, index - _NEAR) : index + _NEAR + 1]:
        found = other.group.marker if other.group is not None else None
        if found and found.style == marker.style and found.value is not None and abs(found.value - marker.value) == 1:
            return True
    return False
