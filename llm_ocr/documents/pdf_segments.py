"""Runs to segments: what stands on one baseline without a wide gap, scripts and stray order included."""

from dataclasses import dataclass

import numpy as np

from llm_ocr.documents.pdf_chars import Floats, Ints
from llm_ocr.documents.pdf_glyphs import ASCENT, DESCENT, Bools
from llm_ocr.documents.pdf_runs import NEAR, Runs, Words

#: Pairs of runs compared at most, in steps through the runs sorted by height: bounds the work on absurd pages.
_MAX_STEPS = 1000


@dataclass(slots=True)
class Segment:
    """Word indices of one line in the order in which they stand, left to right in the frame."""

    words: list[int]
    turn: int
    u0: float
    u1: float
    base: float
    size: float

    @property
    def top(self) -> float:
        return self.base - ASCENT * self.size


class Groups:
    """Disjoint sets of 0..n-1."""

    def __init__(self, count: int) -> None:
        self._parent = list(range(count))

    def find(self, member: int) -> int:
        parent = self._parent
        while parent[member] != member:
            parent[member] = parent[parent[member]]
            member = parent[member]
        return member

    def join(self, one: int, other: int) -> None:
        self._parent[self.find(one)] = self.find(other)

    def lists(self) -> list[list[int]]:
        found: dict[int, list[int]] = {}
        for member in range(len(self._parent)):
            found.setdefault(self.find(member), []).append(member)
        return list(found.values())


def segments_of(words: Words, runs: Runs) -> list[Segment]:
    """Runs joined to lines by where they stand, whatever order the PDF has them in."""
    groups = Groups(len(runs.first))
    beside, scripts = _neighbours(runs)
    for one, other in beside.tolist():
        groups.join(one, other)
    for script, host in _hosts(runs, scripts):
        groups.join(script, host)
    return [_segment(words, runs, members) for members in groups.lists()]


def _neighbours(runs: Runs) -> tuple[Ints, Ints]:
    """Pairs of runs on one baseline side by side, and pairs (script, run that it may belong to)."""
    order = np.lexsort((runs.base, runs.turn))
    turn, base, size = runs.turn[order], runs.base[order], runs.size[order]
    beside, scripts = [], []
    reach = 1.1 * float(size.max()) if len(size) else 0.0
    for step in range(1, min(len(order), _MAX_STEPS)):
        here = np.nonzero((turn[step:] == turn[:-step]) & (base[step:] - base[:-step] < reach))[0]
        if not len(here):
            break
        one, other = order[here], order[here + step]
        level, script = _compared(runs, one, other)
        beside.append(np.column_stack((one, other))[level])
        narrow = np.where(runs.u1[one] - runs.u0[one] < runs.u1[other] - runs.u0[other], one, other)
        scripts.append(np.column_stack((narrow, one + other - narrow))[script])
    none = np.zeros((0, 2), dtype=np.int64)
    return np.concatenate([*beside, none]), np.concatenate([*scripts, none])


def _compared(runs: Runs, one: Ints, other: Ints) -> tuple[Bools, Bools]:
    """For each pair: whether they stand side by side on one baseline, and whether one may be a script of the other."""
    small, large = np.minimum(runs.size[one], runs.size[other]), np.maximum(runs.size[one], runs.size[other])
    lift = np.abs(runs.base[one] - runs.base[other])
    gap = np.maximum(runs.u0[one], runs.u0[other]) - np.minimum(runs.u1[one], runs.u1[other])
    top = np.maximum(runs.base[one] - ASCENT * runs.size[one], runs.base[other] - ASCENT * runs.size[other])
    bottom = np.minimum(runs.base[one] + DESCENT * runs.size[one], runs.base[other] + DESCENT * runs.size[other])
    level = (lift <= 0.2 * small) & (large <= 1.6 * small) & (gap <= NEAR * small) & (gap >= -0.5 * small)
    width, across = runs.u1[one] - runs.u0[one], runs.u1[other] - runs.u0[other]
    alike = small > 0.9 * large  # a raised or lowered glyph of the same size: a few letters, hardly moved
    larger_is_narrow = (runs.size[one] > runs.size[other]) == (width < across)  # a large operator, not an initial
    script = ~level & (bottom - top >= np.where(alike, 0.6, 0.4) * small)
    script &= (np.minimum(width, across) <= 2 * small) | ~alike
    script &= large <= np.where(larger_is_narrow, 1.9, 2.5) * small
    script &= (gap <= 0.3 * large) & (gap >= -0.4 * large)
    return level, script


def _hosts(runs: Runs, pairs: Ints) -> list[tuple[int, int]]:
    """Each script with its best host, and with others only when they stand on the same baseline as that one."""
    options: dict[int, list[tuple[float, int]]] = {}
    for script, host in pairs.tolist():
        lift = abs(float(runs.base[script] - runs.base[host]))
        gap = max(0.0, float(max(runs.u0[script], runs.u0[host]) - min(runs.u1[script], runs.u1[host])))
        options.setdefault(script, []).append((lift + gap, host))
    joined = []
    for script, hosts in options.items():
        best = min(hosts)[1]
        level, reach = float(runs.base[best]), 0.2 * float(runs.size[best])
        joined += [(script, host) for _, host in hosts if abs(float(runs.base[host]) - level) <= reach]
    return joined


def _segment(words: Words, runs: Runs, members: list[int]) -> Segment:
    indices = [word for run in members for word in range(int(runs.first[run]), int(runs.end[run]))]
    if len(members) == 1:
        run = members[0]
        ordered = _sorted(words, indices)
        return Segment(
            ordered,
            int(runs.turn[run]),
            float(runs.u0[run]),
            float(runs.u1[run]),
            float(runs.base[run]),
            _main(words, ordered),
        )
    main = _main(words, indices)
    body = max(members, key=lambda run: (abs(runs.size[run] - main) < 0.1 * main, runs.u1[run] - runs.u0[run]))
    low, high = min(float(runs.u0[run]) for run in members), max(float(runs.u1[run]) for run in members)
    return Segment(_sorted(words, indices), int(runs.turn[members[0]]), low, high, float(runs.base[body]), main)


def _sorted(words: Words, indices: list[int]) -> list[int]:
    starts = words.u0[indices].tolist()
    return [indices[place] for place in sorted(range(len(indices)), key=starts.__getitem__)]


def _main(words: Words, indices: list[int]) -> float:
    """The font size of most glyphs."""
    weights: dict[float, int] = {}
    for index in indices:
        size = round(float(words.size[index]), 1)
        weights[size] = weights.get(size, 0) + int(words.end[index] - words.first[index])
    return max(weights.items(), key=lambda item: (item[1], item[0]))[0]


def gaps_within(words: Words, segment: Segment) -> list[float]:
    """The gaps between a segment's words in parts of its font size, left to right; touching words count as none."""
    low, high = words.u0[segment.words], words.u1[segment.words]
    gaps: Floats = (low[1:] - np.maximum.accumulate(high)[:-1]) / max(segment.size, 1e-6)
    return [gap for gap in gaps.tolist() if gap > 0.1]
