"""Which groups are headings, and of what level: size and face against the body text, section numbers, usual names."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from llm_ocr.engines.embedded.layout.groups import Group, is_sure_heading
from llm_ocr.engines.embedded.layout.markers import is_caption, is_keyword, numbering
from llm_ocr.engines.embedded.layout.measures import Measures
from llm_ocr.types import BlockKind

_LARGE, _LARGE_NOISY = 1.14, 1.3
_TITLE, _TITLE_NOISY = 1.35, 1.42
#: With room above and a text below, a short row of a scan is a heading from this size on.
_RAISED = 1.08
#: Largest number of characters of a large, a bold and a plain heading.
_LONGEST, _LONGEST_BOLD, _LONGEST_PLAIN = 220, 130, 70
#: Titles stand in this part of the page.
_TITLE_DEPTH = 0.6
_DEEPEST = 4
#: Names with marks of their institutions, and addresses, as they stand below titles.
_PERSONS = re.compile(r"\S@\S|[a-zé][1-9*†‡](,[1-9*†‡])*(,| and |$)|\b(University|Universität|Institute)\b.*,")


@dataclass(frozen=True, slots=True)
class _Style:
    """What distinguishes headings of one level from those of another."""

    size: float
    bold: bool
    italic: bool


def _text(group: Group) -> str:
    return " ".join(row.text for row in group.rows)


def _can_be(group: Group, measures: Measures) -> bool:
    """Rules out what no heading is."""
    text = _text(group)
    letters = sum(character.isalpha() for character in text)
    if group.code or letters < 2 or letters < 0.4 * len(text.replace(" ", "")) or len(text) > _LONGEST:
        return False
    if (group.marker and group.marker.certain) or is_caption(text) or _is_scrawl(group, text):
        return False
    if text.endswith((",", ";", "-", "\u00ad")) or (
        text.endswith(".") and len(text.split()) > 2 and not is_keyword(text)
    ):
        return False
    if _PERSONS.search(text) or text.count(",") > 4:
        return False
    first = next(character for character in text if character.isalnum())
    return not first.islower() or (group.size > 1.3 * measures.body and not measures.noisy)


def _is_scrawl(group: Group, text: str) -> bool:
    """Whether OCR has read a signature or a drawing: few characters, and unsure of them."""
    return len(text) < 12 and min(line.confidence for row in group.rows for line in row.lines) < 0.9


def _is_large(group: Group, measures: Measures) -> bool:
    limit = _LARGE_NOISY if measures.noisy else _LARGE
    if group.size < limit * measures.body or len(group.rows) > 5:
        return False
    text = _text(group)
    words = len(text.split())
    return words <= 30 and not (words > 12 and text.endswith((".", ":"))) and max(row.cells for row in group.rows) < 3


def _is_apart(group: Group, measures: Measures) -> bool:
    """Whether the group stands further from what is above it than lines of a paragraph do."""
    usual = (measures.leading - 1.0) * measures.body
    return group.gap > usual + 0.3 * measures.body


def _is_bold(group: Group, following: Group | None, measures: Measures) -> bool:
    if measures.bold or not group.bold or group.size < 0.93 * measures.body or following is None:
        return False
    if group.length > _LONGEST_BOLD or len(group.rows) > 3 or any(row.cells > 1 for row in group.rows):
        return False
    if sum(group.breaks) > 1 or _text(group).endswith(":"):
        return is_sure_heading(group.first)
    return not (following.bold and following.length > group.length and numbering(_text(group)) == 0)


def _is_plain(group: Group, following: Group | None, measures: Measures) -> bool:
    """Headings in the size and face of the text: known by their words, capitals or slant, one row, before a text."""
    text = _text(group)
    if following is None or len(group.rows) > 1 or len(text) > _LONGEST_PLAIN or group.first.cells > 2:
        return False
    if is_keyword(text):
        return group.size > 0.75 * measures.body
    if group.size < 0.92 * measures.body:
        return False
    if following.length < 1.5 * len(text) or following.first.cells > 1:
        return False
    if (
        measures.noisy
        and group.size > _RAISED * measures.body
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
    return text.isupper() and len(text) > 3 and _is_apart(group, measures)


def find_headings(
    groups: Sequence[Group], last_of_column: set[int], measures: Measures
) -> dict[int, tuple[BlockKind, int]]:
    """Indices of `groups` (a page in reading order) that are headings, with kind and level.

    `last_of_column`: indices with nothing below them in their column, where only size makes a heading.
    """
    found = []
    for index, group in enumerate(groups):
        following = groups[index + 1] if index + 1 < len(groups) else None
        below = None if index in last_of_column and not group.bold else following
        if following is not None and following.first.text[:1].islower() and following.gap < group.size:
            continue  # the sentence goes on
        if _can_be(group, measures) and (
            _is_large(group, measures) or _is_bold(group, below, measures) or _is_plain(group, below, measures)
        ):
            found.append(index)
    title = _title(groups, found, measures)
    if title is not None:
        found = [index for index in found if not _is_byline(groups, index, title, measures)]
    levels = _levels([groups[index] for index in found if index != title], measures)
    kinds = {index: (BlockKind.HEADING, levels[id(groups[index])]) for index in found if index != title}
    if title is not None:
        kinds[title] = (BlockKind.TITLE, 1)
    return kinds


def _is_byline(groups: Sequence[Group], index: int, title: int, measures: Measures) -> bool:
    """Whether the group is what stands between a title and the text: names, institutions, dates."""
    group = groups[index]
    if not title < index <= title + 4 or group.bold or group.size > _LARGE * measures.body:
        return False
    text = _text(group)
    running = any(other.length > 250 for other in groups[title:index])
    return not (running or numbering(text) or is_keyword(text))


def _title(groups: Sequence[Group], found: Sequence[int], measures: Measures) -> int | None:
    """The largest heading of the page, if it stands high on it and before any running text."""
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
    """Levels by section number where there is one; other headings take the level of those that look like them."""
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
