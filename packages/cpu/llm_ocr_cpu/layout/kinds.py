"""Classify groups: heading, list item, footnote, caption, code, or text."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import takewhile

from llm_ocr.types import BlockKind, Box, Tag
from llm_ocr_cpu.layout.groups import (
    Group,
    Marker,
    is_capitals,
    is_caption,
    is_contents_entry,
    is_footnote,
    is_keyword,
    is_sure_heading,
    is_time,
    numbering,
    roman,
)
from llm_ocr_cpu.layout.measures import Measures
from llm_ocr_cpu.regions import Region

# Headings and their levels: size and face compared with the body text, section numbers, usual names.


_LARGE, _LARGE_NOISY = 1.14, 1.3
_TITLE, _TITLE_NOISY = 1.35, 1.42
#: Size ratio from which a short row of a scan is a heading, with space above and text below.
_RAISED = 1.08
#: Number of times that running text is longer than a heading in its size and face.
_MUCH_LONGER = 3
#: Minimum size ratio of a bold or slanted heading with a number: some journals set headings smaller than the text.
_LEAST_NUMBERED = 0.85
#: Maximum number of characters of a large, a bold, and a plain heading.
_LONGEST, _LONGEST_BOLD, _LONGEST_PLAIN = 220, 130, 70
#: Share of the page's height that contains titles.
_TITLE_DEPTH = 0.6
_DEEPEST = 4
#: Names with marks of their institutions, and addresses, as found below titles.
_PERSONS = re.compile(r"\S@\S|[a-zé][1-9*†‡](,[1-9*†‡])*(,| and |$)|\b(University|Universität|Institute)\b.*,")

#: Amount at the end of a line, as in a sum below a table.
_AMOUNT = re.compile(r"(?:[$€£¥]\s?[\d.,]+|\d[.,]\d\d(?:\s?[$€£¥])?)$")

#: Standard types of headings; those without a number are of the first level.
_TAGGED_HEADING = re.compile(r"(?:Title|H([1-6])?)")
_DIGITS = re.compile(r"\d+")
_OPERATOR = re.compile(r"[=≈≠≤≥<>+−·×√∑∏∫∈→]")


@dataclass(frozen=True, slots=True)
class _Style:
    """Properties that distinguish headings of different levels."""

    size: float
    bold: bool
    italic: bool


def _text(group: Group) -> str:
    return " ".join(row.text for row in group.rows)


def _can_be(group: Group, measures: Measures) -> bool:
    """Return False for groups that cannot be headings."""
    text = _text(group)
    letters = sum(character.isalpha() for character in text)
    if group.code or letters < 2 or letters < 0.4 * len(text.replace(" ", "")) or len(text) > _LONGEST:
        return False
    if (group.marker and group.marker.certain) or is_caption(text) or _is_scrawl(group, text):
        return False
    if is_contents_entry(text) or is_time(text) or _AMOUNT.search(text):
        return False
    if text.endswith((",", ";", "-", "\u00ad")) or (
        text.endswith(".") and len(text.split()) > 2 and not is_keyword(text)
    ):
        return False
    if _PERSONS.search(text.rstrip("*") if measures.noisy else text) or text.count(",") > 4:
        return False
    first = next(character for character in text if character.isalnum())
    large = group.size > 1.3 * measures.body and not measures.noisy
    ending = text.endswith(":") and text[:2].isalpha()  # of a sentence above small print
    return not first.islower() or (large and not ending)


def _continues_sentence(group: Group, following: Group) -> bool:
    """Return whether a near group of about the same size begins in lower case and is no formula such as `k = 2 + n`.

    An address in any size continues a name.
    """
    text = following.first.text
    if following.gap > group.size or (group.size > _LARGE_NOISY * following.size and "@" not in text):
        return False
    return text[:1].islower() and not (text[1:2].isspace() and _OPERATOR.search(text))


def _is_scrawl(group: Group, text: str) -> bool:
    """Return whether OCR has read a signature or drawing: few characters with low confidence."""
    return len(text) < 12 and min(line.confidence for row in group.rows for line in row.lines) < 0.9


def _is_large(group: Group, measures: Measures) -> bool:
    limit = _LARGE_NOISY if measures.noisy else _LARGE
    if group.size < limit * measures.body or len(group.rows) > 5:
        return False
    text = _text(group)
    words = len(text.split())
    return words <= 30 and not (words > 12 and text.endswith((".", ":"))) and max(row.cells for row in group.rows) < 3


def _is_apart(group: Group, measures: Measures) -> bool:
    """Return whether the distance to the content above exceeds that of a paragraph's lines."""
    usual = (measures.leading - 1.0) * measures.body
    return group.gap > usual + 0.3 * measures.body


def _is_between(group: Group, following: Group, measures: Measures) -> bool:
    """Return whether the group is apart from a paragraph of several rows below it, of which it is no part."""
    usual = (measures.leading - 1.0) * measures.body
    running = len(following.rows) > 1 and following.length > _MUCH_LONGER * group.length
    return running and following.marker is None and following.gap > usual + 0.2 * measures.body


def _is_numbered(group: Group) -> bool:
    return numbering(_text(group)) > 0 and is_sure_heading(group.first)


def _is_bold(group: Group, following: Group | None, measures: Measures) -> bool:
    least = _LEAST_NUMBERED if _is_numbered(group) else 0.93
    if measures.bold or not group.bold or group.size < least * measures.body:
        return False
    if group.length > _LONGEST_BOLD or len(group.rows) > 3 or any(row.cells > 1 for row in group.rows):
        return False
    if following is None:  # the text begins on the next page
        return _is_numbered(group)
    if sum(group.breaks) > 1 or _text(group).endswith(":"):
        return is_sure_heading(group.first)
    return not (following.bold and following.length > group.length and numbering(_text(group)) == 0)


def _is_plain(group: Group, following: Group | None, measures: Measures) -> bool:
    """Return whether the group is a heading in the size and face of the text.

    Such a heading is identified by its words, capitals, or slant; it has one row (in capitals, two) before a text.
    """
    text = _text(group)
    most = 1 + is_capitals(text)
    if following is None or len(group.rows) > most or len(text) > _LONGEST_PLAIN or group.first.cells > 2:
        return False
    if is_keyword(text):
        return group.size > 0.75 * measures.body
    slanted = group.first.italic and _is_numbered(group) and _is_apart(group, measures)
    if group.size < (_LEAST_NUMBERED if slanted else 0.92) * measures.body:
        return False
    if following.length < 1.5 * len(text) or following.first.cells > 1:
        return False
    if (
        measures.noisy
        and (group.size > _RAISED * measures.body or _is_between(group, following, measures))
        and _is_apart(group, measures)
        and text[:1].isalpha()
        and text[-1].isalpha()
    ):
        return following.gap < group.gap
    if following.marker is not None:
        return False
    if numbering(text) and is_sure_heading(group.first):
        return numbering(text) > 1 or _is_apart(group, measures)
    if group.first.cells > 1 or text.endswith((":", "?", "!", ")")):
        return False
    if group.first.italic and not following.first.italic and len(text) < 60:
        return True
    return is_capitals(text) and len(text) > 3 and _is_apart(group, measures)


def find_headings(
    groups: Sequence[Group], last_of_column: set[int], measures: Measures
) -> dict[int, tuple[BlockKind, int]]:
    """Return the indices of `groups` (a page in reading order) that are headings, with kind and level.

    `last_of_column`: indices of the last groups of columns, where only size makes a heading.
    """
    found = []
    for index, group in enumerate(groups):
        following = groups[index + 1] if index + 1 < len(groups) else None
        below = None if index in last_of_column and not group.bold else following
        if following is not None and _continues_sentence(group, following):
            continue
        if _can_be(group, measures) and (
            _is_large(group, measures)
            or _is_bold(group, below, measures)
            or (_is_plain(group, below, measures) and not _is_listed(groups, index))
        ):
            found.append(index)
    if measures.noisy:
        found = sorted({*found, *_siblings(groups, found, measures)})
    title = _title(groups, found, measures)
    if title is not None:
        found = [index for index in found if not _is_byline(groups, index, title, measures)]
    levels = _levels([groups[index] for index in found if index != title], measures)
    kinds = {index: (BlockKind.HEADING, levels[id(groups[index])]) for index in found if index != title}
    if title is not None:
        kinds[title] = (BlockKind.TITLE, 1)
    return kinds


#: Number of neighbors that are numbered names in succession, without text between, as in a table of contents.
_CONTENTS = 3


def _is_listed(groups: Sequence[Group], index: int) -> bool:
    """Return whether the group is in a list of names: its number follows that of a neighbor, or many are numbered."""
    sides = (groups[max(0, index - _CONTENTS) : index][::-1], groups[index + 1 : index + 1 + _CONTENTS])
    numbered = sum(len(list(takewhile(_is_numbered, side))) for side in sides)
    if numbered >= _CONTENTS and _is_numbered(groups[index]):
        return True
    marker = groups[index].marker
    beside = [group.marker for group in groups[max(0, index - 1) : index + 2] if group.marker is not None]
    return marker is not None and any(other.style == marker.style and _follow(marker, other) for other in beside)


def _siblings(groups: Sequence[Group], found: Sequence[int], measures: Measures) -> list[int]:
    """Return the rows that differ from a heading of the scan only in their number, such as `Article 7`."""
    patterns = {_DIGITS.sub("#", _text(groups[index])) for index in found}
    patterns = {pattern for pattern in patterns if "#" in pattern and sum(map(str.isalpha, pattern)) > 2}
    return [
        index
        for index, group in enumerate(groups if patterns else ())
        if len(group.rows) == 1
        and _DIGITS.sub("#", _text(group)) in patterns
        and _can_be(group, measures)
        and _is_apart(group, measures)
    ]


def _is_byline(groups: Sequence[Group], index: int, title: int, measures: Measures) -> bool:
    """Return whether the group is between a title and the text: names, institutions, dates."""
    group = groups[index]
    if not title < index <= title + 4 or group.bold:
        return False
    if group.size > _LARGE * measures.body and not _is_centred_below(group, groups[title], measures):
        return False
    text = _text(group)
    running = any(other.length > 250 for other in groups[title:index])
    return not (running or numbering(text) or is_keyword(text))


def _is_centred_below(group: Group, title: Group, measures: Measures) -> bool:
    """Return whether the group is smaller than a title in the middle of the page, and has the same middle."""
    middles = [(one.first.x0 + one.first.x1) / 2 for one in (group, title)]
    flush = title.first.x0 < 0.15 * measures.width
    return not flush and group.size < 0.9 * title.size and abs(middles[0] - middles[1]) < group.size


def _title(groups: Sequence[Group], found: Sequence[int], measures: Measures) -> int | None:
    """Return the largest heading of the page if it is high on the page and before any running text."""
    if not found:
        return None
    index = max(found, key=lambda number: (round(groups[number].size / measures.body, 1), -number))
    group = groups[index]
    limit = _TITLE_NOISY if measures.noisy else _TITLE
    if group.size < limit * measures.body or group.first.y0 > _TITLE_DEPTH * measures.height:
        return None
    if numbering(_text(group)) or is_keyword(_text(group)) or group.length < 4:
        return None
    before = groups[:index]
    running = any(other.length > 250 and other.first.y0 < group.first.y0 for other in before)
    return None if running else index


def _style(group: Group) -> _Style:
    return _Style(group.size, group.bold, all(row.italic for row in group.rows))


def _levels(headings: Sequence[Group], measures: Measures) -> Mapping[int, int]:
    """Return levels by section numbers; other headings have the level of those with the same style."""
    known: list[tuple[_Style, int]] = []
    for group in headings:
        depth = numbering(_text(group)) or (1 if is_keyword(_text(group)) else 0)
        if depth:
            known.append((_style(group), depth))
    return {id(group): _level(group, known, measures) for group in headings}


def _level(group: Group, known: Sequence[tuple[_Style, int]], measures: Measures) -> int:
    depth = numbering(_text(group))
    if depth:
        return min(depth, _DEEPEST)
    style = _style(group)
    same = [
        level
        for other, level in known
        if max(other.size, style.size) < measures.slack * min(other.size, style.size)
        and (other.bold, other.italic) == (style.bold, style.italic)
    ]
    if same:
        return min(_DEEPEST, min(same))
    if is_keyword(_text(group)):
        return 1
    larger = [level for other, level in known if other.size > style.size * measures.slack]
    ratio = style.size / measures.body
    guess = 1 if ratio > 1.45 else 2 if ratio > 1.1 or style.bold else 3
    if larger:
        return min(_DEEPEST, max(guess, max(larger) + 1))
    smaller = [level for other, level in known if other.size * measures.slack < style.size]
    return max(1, min(guess, min(smaller) if smaller else guess))


# Kinds of groups: footnote, code, caption, heading, list item; all others are text.


_SMALL, _SMALL_NOISY = 0.93, 0.86
#: Share of the page's height below which footnotes are found.
_FOOTNOTE_DEPTH = 0.45
#: Maximum number of characters of a caption.
_LONGEST_CAPTION = 1500
#: Maximum distance in entries between items of one list.
_NEAR = 6


@dataclass(slots=True)
class Entry:
    """Group or region at its place in a `frame`; `column` counts the parts of the page in reading order.

    `note`: beside a text, which goes on after it.
    """

    column: int
    group: Group | None = None
    region: Region | None = None
    kind: BlockKind = BlockKind.TEXT
    level: int = 0
    frame: Box | None = None
    note: bool = False

    @property
    def box(self) -> Box:
        """Return the box around the group or region."""
        if self.group is None:
            return self.region.box if self.region is not None else Box(0, 0, 0, 0)
        return reduce(Box.union, (row.box for row in self.group.rows))


def mark_kinds(
    entries: Sequence[Entry], footnote_rules: Sequence[Box], measures: Measures, tags: Sequence[Tag]
) -> None:
    """Set kind and level of all entries with a group; the tags of a page name headings and captions."""
    _mark_footnotes(entries, footnote_rules, measures)
    _mark_code_and_captions(entries)
    _mark_headings(entries, measures)
    _mark_tagged(entries, tags)
    _mark_lists(entries, measures)


def _mark_tagged(entries: Sequence[Entry], tags: Sequence[Tag]) -> None:
    """Mark the texts that the tags of the page name as headings or captions."""
    for entry in entries if tags else ():
        group = entry.group
        if group is None or group.first.tag < 0 or entry.kind is BlockKind.TITLE:
            continue
        kind = tags[group.first.tag].kind
        heading = _TAGGED_HEADING.fullmatch(kind)
        if heading and group.length <= _LONGEST:
            entry.kind, entry.level = BlockKind.HEADING, min(int(heading[1] or 1), _DEEPEST)
            group.marker = None
        elif kind == "Caption" and entry.kind is BlockKind.TEXT and not group.marker:
            entry.kind = BlockKind.CAPTION


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
    """Return the foot of a column, from a short rule, or in small print from a footnote mark."""
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
            below = pending[:-1]
            small_below = all(one.group.size <= small for one in below if one.group)
            if not (ruled or measures.noisy) and small_below and _is_cut(group):
                found += below  # a note without a mark between the halves of a sentence
            break
        if ruled:
            break
    return found


def _is_cut(group: Group) -> bool:
    """Return whether a paragraph ends within a sentence, which the next column continues."""
    return group.length > 60 and not _text(group).rstrip("\"'”’)]").endswith((".", "!", "?", ":", ";"))


def _is_note(group: Group, small: float) -> bool:
    """Return whether small print below a rule is a sentence of a note from the previous page, not a cell."""
    return group.size <= small and group.length > 60 and all(row.cells == 1 for row in group.rows)


def _rule_above(rule: Box, group: Group) -> bool:
    """Return whether the rule is just above the group and begins at the same position."""
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
    """Mark list items and their depth; a single letter or Roman numeral is not a list."""
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
        if found and found.style == marker.style and _follow(found, marker):
            return True
    return False


def _follow(one: Marker, other: Marker) -> bool:
    """Return whether two markers are consecutive; `i` is a letter or a Roman numeral."""
    first, second = ([marker.value, roman(marker.mark.strip("- ().")) or None] for marker in (one, other))
    return any(a is not None and b is not None and abs(a - b) == 1 for a in first for b in second)
