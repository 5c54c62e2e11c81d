"""Wide gaps on one baseline: a gutter or the edge of a table cell, or only a wide space of a justified line?"""

import re
from bisect import bisect_left
from statistics import median

from llm_ocr.documents.pdf_runs import Words
from llm_ocr.documents.pdf_segments import Groups, Segment, gaps_within

#: Gaps in parts of the font size: never joined beyond `_WIDEST`; without other evidence joined up to `_WIDE`.
_WIDE, _WIDEST = 1.4, 2.5
#: Drop capitals looked for on one page.
_MOST_CAPITALS = 20
_MARKER = re.compile(r"[•▪▫●○■□◦‣⁃–—*·➢✓❑-]|\(?\d{1,3}[.)]|\(?[a-zA-Z][.)]|\(?[ivxIVX]{1,5}[.)]|\[\d{1,3}\]")
_SECTION = re.compile(r"\d{1,2}(\.\d{1,2}){1,3}\.?")


class _Row:
    """A gap between two segments that stand side by side."""

    __slots__ = ("base", "left", "right", "size", "u0", "u1")

    def __init__(self, left: int, right: int, segments: list[Segment]) -> None:
        self.left, self.right = left, right
        self.u0, self.u1 = segments[left].u1, segments[right].u0
        self.base, self.size = segments[left].base, min(segments[left].size, segments[right].size)


def joined_over_gaps(words: Words, segments: list[Segment]) -> list[Segment]:
    """Segments side by side become one where the gap between them is only a wide space. All of one frame."""
    segments = sorted(segments, key=lambda segment: segment.base)
    gaps = _gaps(segments)
    edges = _Edges(segments)
    groups = Groups(len(segments))
    inner = {gap.right for gap in gaps}
    for gap in gaps:
        wide = (gap.u1 - gap.u0) / max(gap.size, 1e-6)
        marker = wide <= 2.0 and gap.left not in inner and _marks(words, segments[gap.left], segments[gap.right])
        if marker or (wide <= _WIDEST and _is_space(words, segments, gap, wide, gaps, edges)):
            groups.join(gap.right, gap.left)
    return [_merged([segments[i] for i in members]) for members in groups.lists()]


def _gaps(segments: list[Segment]) -> list[_Row]:
    """Each segment with its next neighbour to the right on the same baseline."""
    bases = [segment.base for segment in segments]
    found = []
    for index, segment in enumerate(segments):
        reach = 0.2 * segment.size
        best = -1
        for other in range(bisect_left(bases, segment.base - reach), len(segments)):
            if bases[other] > segment.base + reach:
                break
            near = segments[other].u0 > segment.u1 and (best < 0 or segments[other].u0 < segments[best].u0)
            if near and 0.75 <= segments[other].size / max(segment.size, 1e-6) <= 1.34:
                best = other
        if best >= 0:
            found.append(_Row(index, best, segments))
    return sorted(found, key=lambda gap: gap.base)


class _Edges:
    """Left edges of segments, to see whether many begin at the same place."""

    def __init__(self, segments: list[Segment]) -> None:
        self._lefts = sorted((segment.u0, segment.base) for segment in segments)

    def begins_here(self, u: float, base: float, size: float) -> int:
        """How many other lines within four lines above and below begin at `u`."""
        count = 0
        for index in range(bisect_left(self._lefts, (u - 0.25 * size, -1e9)), len(self._lefts)):
            left, level = self._lefts[index]
            if left > u + 0.25 * size:
                break
            count += 0.5 * size < abs(level - base) < 6 * size
        return count


def _marks(words: Words, left: Segment, right: Segment) -> bool:
    """Whether the left one is a list item's mark or a section's number."""
    if len(left.words) != 1:
        return False
    text = words.texts[left.words[0]]
    return bool(_MARKER.fullmatch(text) or (_SECTION.fullmatch(text) and words.texts[right.words[0]][:1].isalpha()))


def _is_space(words: Words, segments: list[Segment], gap: _Row, wide: float, gaps: list[_Row], edges: _Edges) -> bool:
    left, right = segments[gap.left], segments[gap.right]
    others = gaps_within(words, left) + gaps_within(words, right)
    if len(others) >= 2 and median(others) >= 0.4 and wide <= 1.6 * median(others):
        return True  # all of the line is stretched
    if wide > _WIDE or edges.begins_here(right.u0, right.base, right.size) >= 2:
        return False
    return not _continues(gap, gaps)


def _continues(gap: _Row, gaps: list[_Row]) -> bool:
    """Whether a line next to it has a gap at the same place: then it is a gutter or a table's."""
    bases = [other.base for other in gaps]
    reach = 2.2 * gap.size
    for index in range(bisect_left(bases, gap.base - reach), len(gaps)):
        other = gaps[index]
        if other.base > gap.base + reach:
            return False
        shared = min(gap.u1, other.u1) - max(gap.u0, other.u0)
        if abs(other.base - gap.base) > 0.5 * gap.size and shared > 0.4 * gap.size:
            return True
    return False


def _merged(members: list[Segment]) -> Segment:
    if len(members) == 1:
        return members[0]
    members.sort(key=lambda segment: segment.u0)
    main = max(members, key=lambda segment: len(segment.words))
    words = [word for segment in members for word in segment.words]
    return Segment(words, main.turn, members[0].u0, max(m.u1 for m in members), main.base, main.size)


def with_drop_capitals(words: Words, segments: list[Segment]) -> list[Segment]:
    """A large first letter joined to the line whose top it shares."""
    usual = median([segment.size for segment in segments])
    letters = [s for s in segments if s.size >= 1.8 * usual and len(s.words) == 1 and len(words.texts[s.words[0]]) == 1]
    taken: set[int] = set()
    for capital in letters[:_MOST_CAPITALS]:
        if not words.texts[capital.words[0]].isalpha():
            continue
        top = capital.base - 0.7 * capital.size
        for line in segments:
            beside = -0.3 <= (line.u0 - capital.u1) / line.size <= 1
            larger = line is not capital and capital.size >= 1.8 * line.size
            if larger and beside and abs(line.base - 0.7 * line.size - top) <= 0.6 * line.size:
                line.words.insert(0, capital.words[0])
                line.u0 = capital.u0
                taken.add(id(capital))
                break
    return [segment for segment in segments if id(segment) not in taken]
