"""Items of Assemble: groups of whole documents, and notes on their views.

A note has the key of Assemble that wrote an item's documents and dataset file, and the file's hash. Views have the same
location for all options, so a marker alone does not prove that views belong to its key. After a change of options they
are rewritten, and rewritten again for the original options. The note is removed before views change and written back
when they are complete.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from types import MappingProxyType
from typing import Any

from llm_ocr.errors import DatasetDamaged, StorageError, WorkspaceError
from llm_ocr.results.dataset import item_of_file
from llm_ocr.storage import ObjectInfo
from llm_ocr.storage.local import LocalStore
from llm_ocr.types import DocumentPart, Unit
from llm_ocr.workspace import Workspace, codec
from llm_ocr.workspace.codec import item_name, parse_item_name
from llm_ocr.workspace.generations import Generation, Kind, planned_generations, units_of
from llm_ocr.workspace.keys import VIEW_NOTES


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

    @property
    def opened(self) -> int:
        """Rows of documents that only a retry could open, without the failed row that each had before."""
        documents = self.documents
        end = max(part.first_index + part.reserved for part in self.parts)  # the new rows have later indices
        first: dict[str, int] = {}  # generation that opened the document
        rows = 0
        for unit in self.newer:
            for part in (part for part in unit.parts if part.document_id in documents and part.first_index >= end):
                if first.setdefault(part.document_id, unit.generation) == unit.generation:
                    rows += part.expected
        return rows - len(first)


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


# Notes on views.


@dataclass(frozen=True, slots=True)
class ViewsNote:
    """Origin of an item's views: the key, and the dataset file's hash and size, which older versions did not store."""

    key: str
    sha256: str = ""
    size: int | None = None


def note_beside(name: str) -> str:
    """Return the key of the note on the views of an item, from the name of its marker."""
    return note_key(parse_item_name(name)[0])


def note_of_views(
    workspace: Workspace, item: Item, copied: Mapping[str, dict[str, Any]] = MappingProxyType({})
) -> ViewsNote | None:
    """Return the note on the item's views; None if it is damaged, or if they are incomplete or of an older generation.

    A note in `copied` is not read again.
    """
    key = note_key(item.id)
    try:
        note = copied[key] if key in copied else workspace.find_json(key)
    except WorkspaceError:  # Assemble writes the views and the note again
        return None
    if not note or "key" not in note or note.get("generation", item.generation) != item.generation:
        return None
    return ViewsNote(str(note["key"]), str(note.get("sha256", "")), note.get("size"))


def is_damaged(workspace: Workspace, note: ViewsNote, info: ObjectInfo) -> bool:
    """Return whether a dataset file differs from its note in size or, in a local workspace, in its hash.

    Files in other workspaces are compared with their hash when they are fetched.
    """
    if note.size not in (None, info.size):
        return True
    if not note.sha256 or not isinstance(workspace.store, LocalStore):
        return False
    return sha256_of(workspace.store.root / info.key) != note.sha256


def fetch_dataset_file(workspace: Workspace, key: str, path: Path) -> None:
    """Copy a dataset file from the store, and compare it with its noted hash, if there is one.

    Raises:
        DatasetDamaged: The file has other content. Its note is renamed, so that the next Assemble rewrites the file.
    """
    item = item_of_file(key)
    damaged = f"{VIEW_NOTES}{item}.damaged.json"  # the note until the file is rewritten
    for _ in range(2):  # the file may have been rewritten between file and note
        workspace.store.download(key, path)
        note = (workspace.find_json(note_key(item)) or workspace.find_json(damaged)) if item else None
        if not note or note.get("sha256") in (None, "", sha256_of(path)):
            return
    by_hand = ""
    try:
        workspace.store.put(damaged, codec.dump(note))
        workspace.store.delete(note_key(item))
        workspace.flush()
    except StorageError:  # a read-only user cannot rename the note
        by_hand = f"Remove {key} there first. "
    raise DatasetDamaged(workspace.url, [key], before=by_hand)


def end_views(workspace: Workspace, item: Item, views: ViewsNote) -> None:
    """Store the note that the item's views are complete, with their origin."""
    workspace.store.put(note_key(item.id), codec.dump({**asdict(views), "generation": item.generation}))


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def note_key(item: str) -> str:
    """Return the key of the note on an item's views."""
    return f"{VIEW_NOTES}{item}.json"
