"""Assemble's items by their place in the plan, named without reading their units: for workers that share them."""

from array import array
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator

from llm_ocr.types import Unit
from llm_ocr.work.items import Item, item_name, items
from llm_ocr.work.lease_groups import PlannedUnits
from llm_ocr.work.workspace import Workspace


class PlannedItems:
    """The items of a plan; in memory twelve bytes for each, and all units of retries.

    `read` must have come to its end before anything else is asked. Raises `StageMissing` when there is no plan.
    """

    def __init__(self, workspace: Workspace) -> None:
        self.units = PlannedUnits(workspace)
        self._workspace = workspace
        self._first = array("Q")  # place of the first unit
        self._count = array("I")
        self._newer: dict[int, tuple[Unit, ...]] = {}
        self._of_retry: defaultdict[int, list[int]] = defaultdict(list)

    def read(self) -> Iterator[Item]:
        """All items in order, once: the whole plan is read, one part at a time."""
        for place, item in enumerate(items(self._workspace, self.units.generations)):
            self._first.append(self.units.place(item.units[0]))
            self._count.append(len(item.units))
            if item.newer:
                self._newer[place] = item.newer
                for unit in item.newer:
                    self._of_retry[self.units.place(unit)].append(place)
            yield item

    def __len__(self) -> int:
        return len(self._first)

    def name(self, place: int) -> str:
        """`Item.name`: the name of its marker and lease."""
        first = self.units.name(self._first[place])
        newer = self._newer.get(place)
        return item_name(first, newer[-1].generation if newer else int(first.partition("-")[0]))

    def __getitem__(self, place: int) -> Item:
        first = self._first[place]
        units = tuple(self.units[number] for number in range(first, first + self._count[place]))
        return Item(units[0].id, units, self._newer.get(place, ()))

    def units_of(self, place: int) -> int:
        """How many units must be published before the item can be assembled."""
        return self._count[place] + len(self._newer.get(place, ()))

    def of_unit(self, unit: int) -> list[int]:
        """The places of the items that have pages of the unit at this place of the plan."""
        if unit in self._of_retry:
            return self._of_retry[unit]
        return [bisect_right(self._first, unit) - 1]
