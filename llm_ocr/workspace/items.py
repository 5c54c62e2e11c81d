"""Items of Assemble: groups of whole documents."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from llm_ocr.types import DocumentPart, Unit
from llm_ocr.workspace import Workspace
from llm_ocr.workspace.generations import Generation, Kind, planned_generations, units_of


@dataclass(frozen=True, slots=True)
class Item:
    """Unit of whole documents, or all ranges of one long document, with the newer units of retries.

    A unit of `newer` may also hold pages of other items' documents; `documents` names this item's documents.
    """

    id: str  # id of the first unit
    units: tuple[Unit, ...]
    newer: tuple[Unit, ...] = ()

    @property
    def generation(self) -> int:
        """Newest generation among the item's units."""
        return max(unit.generation for unit in (*self.units, *self.newer))

    @property
    def name(self) -> str:
        """Name of the item's marker; changes when a newer generation touches the item."""
        return item_name(self.id, self.generation)

    @property
    def unit_ids(self) -> tuple[str, ...]:
        """Ids of all units that must be finished, oldest generation first."""
        return tuple(unit.id for unit in (*self.units, *self.newer))

    def unit(self, id: str) -> Unit:
        """Return the unit of this id."""
        return next(unit for unit in (*self.units, *self.newer) if unit.id == id)

    @property
    def layers(self) -> list[list[str]]:
        """Ids of the units by generation, oldest first; within a generation, pages ascend."""
        layers = [[unit.id for unit in self.units]]
        for _, group in groupby(self.newer, key=lambda unit: unit.generation):
            layers.append([unit.id for unit in group])
        return layers

    @property
    def parts(self) -> tuple[DocumentPart, ...]:
        """Parts of the item's documents as first planned; ranges of a long document are separate parts."""
        return tuple(part for unit in self.units for part in unit.parts)

    @property
    def documents(self) -> frozenset[str]:
        """Ids of the item's documents."""
        return frozenset(part.document_id for part in self.parts)


def item_name(item: str, generation: int) -> str:
    """Return `<item>.<generation>`."""
    return f"{item}.{generation:04d}"


def parse_item_name(name: str) -> tuple[str, int]:
    """Parse a name made by `item_name`.

    Raises:
        ValueError: the text has another form.
    """
    item, _, generation = name.rpartition(".")
    return item, int(generation)


def items(workspace: Workspace, found: Sequence[Generation] = ()) -> Iterator[Item]:
    """Return an iterator over all items in the order of the plan.

    Memory holds the units of one item and all units of retries.

    Args:
        workspace: the workspace.
        found: the generations of the plan if already read.

    Raises:
        StageMissing: there is no plan. Raised at once.
    """
    found = found or planned_generations(workspace)
    newer: dict[str, list[Unit]] = {}  # units of retries by document, in order
    retries = (generation for generation in found if generation.kind is Kind.RETRY)
    for unit in (unit for generation in retries for unit in units_of(workspace, generation)):
        for document in dict.fromkeys(part.document_id for part in unit.parts):
            newer.setdefault(document, []).append(unit)

    def grouped() -> Iterator[Item]:
        sources = (generation for generation in found if generation.kind is Kind.SOURCES)
        for units in (group for generation in sources for group in whole_documents(units_of(workspace, generation))):
            parts = (part for unit in units for part in unit.parts)
            touching = {unit.id: unit for part in parts for unit in newer.get(part.document_id, ())}
            ordered = sorted(touching.values(), key=lambda unit: (unit.generation, unit.index))
            yield Item(units[0].id, units, tuple(ordered))

    return grouped()


def whole_documents(units: Iterable[Unit]) -> Iterator[tuple[Unit, ...]]:
    """Group the units of a generation of sources, so that the ranges of a long document are together."""
    # Within such a generation, a document is in two units only if both contain nothing but ranges of it.
    for _, group in groupby(units, key=lambda unit: unit.parts[0].document_id):
        yield tuple(group)
