"""What Assemble does at a time: documents that are whole."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from llm_ocr.errors import StageMissing
from llm_ocr.types import DocumentPart, Unit
from llm_ocr.workspace import Workspace
from llm_ocr.workspace.generations import Generation, Kind, generations, units_of


@dataclass(frozen=True, slots=True)
class Item:
    """One unit of whole documents, or all ranges of one long document, with what newer generations hold of them.

    A unit of `newer` may also hold pages of other items' documents: `documents` says which are this item's.
    """

    id: str  # of the first unit
    units: tuple[Unit, ...]
    newer: tuple[Unit, ...] = ()

    @property
    def generation(self) -> int:
        """The newest generation that the item's pages come from."""
        return max(unit.generation for unit in (*self.units, *self.newer))

    @property
    def name(self) -> str:
        """The name of the item's marker: it changes when a newer generation touches the item."""
        return item_name(self.id, self.generation)

    @property
    def unit_ids(self) -> tuple[str, ...]:
        """All units that must be done, oldest generation first."""
        return tuple(unit.id for unit in (*self.units, *self.newer))

    @property
    def layers(self) -> list[list[str]]:
        """The ids of the units by generation, oldest first; within one, pages ascend."""
        layers = [[unit.id for unit in self.units]]
        for _, group in groupby(self.newer, key=lambda unit: unit.generation):
            layers.append([unit.id for unit in group])
        return layers

    @property
    def parts(self) -> tuple[DocumentPart, ...]:
        """The item's documents as they were first planned, ranges of a long one apart."""
        return tuple(part for unit in self.units for part in unit.parts)

    @property
    def documents(self) -> frozenset[str]:
        """The ids of the item's documents."""
        return frozenset(part.document_id for part in self.parts)


def item_name(item: str, generation: int) -> str:
    """`<item>.<generation>`."""
    return f"{item}.{generation:04d}"


def parse_item_name(name: str) -> tuple[str, int]:
    """The inverse of `item_name`. Raises ValueError for another text."""
    item, _, generation = name.rpartition(".")
    return item, int(generation)


def items(workspace: Workspace, found: Sequence[Generation] = ()) -> Iterator[Item]:
    """All items in the order of the plan, or of the generations `found` that were read of it before.

    In memory: the units of one item, and all units of retries. Raises `StageMissing` at once when there is no plan.
    """
    found = found or generations(workspace)
    if not found:
        raise StageMissing(f"no plan in {workspace.url}", hint=f"Run first: llm-ocr plan SOURCE -w {workspace.url}")
    newer = _newer(workspace, found)
    return (
        _item(group, newer)
        for generation in found
        if generation.kind is Kind.SOURCES
        for group in whole_documents(units_of(workspace, generation))
    )


def whole_documents(units: Iterable[Unit]) -> Iterator[tuple[Unit, ...]]:
    """Units of one generation of sources, the ranges of a long document together."""
    # Within such a generation a document is in two units only if both are ranges of it and of nothing else.
    for _, group in groupby(units, key=lambda unit: unit.parts[0].document_id):
        yield tuple(group)


def _newer(workspace: Workspace, found: Iterable[Generation]) -> dict[str, list[Unit]]:
    """The retries' units by document, in order."""
    newer: dict[str, list[Unit]] = {}
    for generation in found:
        if generation.kind is Kind.RETRY:
            for unit in units_of(workspace, generation):
                for document in dict.fromkeys(part.document_id for part in unit.parts):
                    newer.setdefault(document, []).append(unit)
    return newer


def _item(units: tuple[Unit, ...], newer: dict[str, list[Unit]]) -> Item:
    touching = {unit.id: unit for one in units for part in one.parts for unit in newer.get(part.document_id, ())}
    ordered = sorted(touching.values(), key=lambda unit: (unit.generation, unit.index))
    return Item(units[0].id, units, tuple(ordered))
