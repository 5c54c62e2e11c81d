"""The units that workers share, named without reading them, in groups whose state one listing tells."""

from array import array
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from llm_ocr.errors import StageMissing
from llm_ocr.types import Unit
from llm_ocr.work import codec
from llm_ocr.work.generations import Generation, generations, units_of
from llm_ocr.work.publish import marker_key
from llm_ocr.work.workspace import Workspace

#: Plans up to so many units are one group, or 16; larger ones are 256. A done unit is a marker and its data, and stores
#: list 1,000 objects at a time: a look takes few requests, and looking at all of a small plan few as well.
_ONE_GROUP = 1_000
_SIXTEEN_GROUPS = 32_000

#: Parts of the plan in memory, of at most 1,000 units each.
_PARTS_KEPT = 2

#: Of `<xx>`.
_DIGITS = 2

T_co = TypeVar("T_co", covariant=True)


class Units(Protocol[T_co]):
    """Units by their place in the plan. Names cost nothing; what they stand for is read when it is asked for."""

    def __len__(self) -> int: ...

    def name(self, place: int) -> str:
        """The id under which the unit's marker and lease stand."""

    def __getitem__(self, place: int) -> T_co: ...


class PlannedUnits:
    """The stored plan, all generations, in memory only where it is worked on. New generations are not seen.

    `generations` are those that it holds. Raises `StageMissing` when there is no plan.
    """

    def __init__(self, workspace: Workspace) -> None:
        found = generations(workspace)
        if not found:
            raise StageMissing(f"no plan in {workspace.url}", hint=f"Run first: llm-ocr plan SOURCE -w {workspace.url}")
        self.generations = tuple(found)
        self._workspace = workspace
        self._first: dict[int, int] = {}  # place of each generation's first unit
        self._parts: list[_Part] = []
        self._starts: list[int] = []
        self._kept: OrderedDict[int, Sequence[Unit]] = OrderedDict()
        start = 0
        for generation in found:
            index = 0
            self._first[generation.number] = start
            for number, part in enumerate(generation.parts):
                self._parts.append(_Part(generation, number, index))
                self._starts.append(start)
                start, index = start + part.units, index + part.units
        self._length = start

    def __len__(self) -> int:
        return self._length

    def name(self, place: int) -> str:
        """As `work.units.cut_units` makes it."""
        number = self._part_of(place)
        part = self._parts[number]
        return f"{part.generation.number:04d}-{part.first_index + place - self._starts[number]:06d}"

    def place(self, unit: Unit) -> int:
        """The inverse of `[place]`, for a unit of one of its generations."""
        return self._first[unit.generation] + unit.index

    def __getitem__(self, place: int) -> Unit:
        number = self._part_of(place)
        units = self._read(number)
        unit = units[place - self._starts[number]]
        if unit.id != self.name(place):
            raise codec.damaged(f"{self._workspace.url}: the plan", f"{self.name(place)} is called {unit.id}")
        return unit

    def _part_of(self, place: int) -> int:
        if not 0 <= place < self._length:
            raise IndexError(place)
        return bisect_right(self._starts, place) - 1

    def _read(self, number: int) -> Sequence[Unit]:
        if number not in self._kept:
            generation, part = self._parts[number].generation, self._parts[number].number
            alone = replace(generation, parts=generation.parts[part : part + 1])
            self._kept[number] = list(units_of(self._workspace, alone))
            while len(self._kept) > _PARTS_KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(number)
        return self._kept[number]


@dataclass(frozen=True, slots=True)
class _Part:
    generation: Generation
    number: int  # among the generation's parts
    first_index: int  # of its first unit


class Groups:
    """Units by the first digits of their folder `<xx>`: none, one or two of them, the more the larger the plan."""

    def __init__(self, units: Units[object], stage: str, key: str) -> None:
        digits = 0 if len(units) <= _ONE_GROUP else 1 if len(units) <= _SIXTEEN_GROUPS else _DIGITS
        folder = f"{stage}/{key}/"
        self._units = units
        self._digits = digits
        self._folder = folder
        self._stage, self._key = stage, key
        names = [f"{number:0{digits}x}" if digits else "" for number in range(16**digits)]
        self.prefixes = [f"{folder}{name}/" if digits == _DIGITS else folder + name for name in names]
        #: The places of each group's units, ascending; four bytes a unit.
        self.members = [array("I") for _ in self.prefixes]
        for place in range(len(units)):
            self.members[self.of(place)].append(place)

    def of(self, place: int) -> int:
        """The number of the group that the unit is in."""
        marker = marker_key(self._stage, self._key, self._units.name(place))
        start = len(self._folder)
        return int(marker[start : start + self._digits] or "0", 16)
