"""Notes on views: the key of Assemble that wrote an item's documents and dataset file, and the file's hash.

Views have the same location for all options, so a marker alone does not prove that views belong to its key. After a
change of options they are rewritten, and rewritten again for the original options. The note is removed before views
change and written back when they are complete.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from llm_ocr.errors import DatasetDamaged, StorageError
from llm_ocr.results.dataset import item_of_file
from llm_ocr.storage import ObjectInfo
from llm_ocr.storage.local import LocalStore
from llm_ocr.workspace import Workspace, codec
from llm_ocr.workspace.items import Item, parse_item_name
from llm_ocr.workspace.keys import ASSEMBLE, VIEW_NOTES
from llm_ocr.workspace.marker import CompactedMarkers


@dataclass(frozen=True, slots=True)
class ViewsNote:
    """Origin of an item's views: the key, and the dataset file's hash and size, which older versions did not store."""

    key: str
    sha256: str = ""
    size: int | None = None


def copied_notes(workspace: Workspace, key: str, versions: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Return the content of notes that are copied beside the markers of a key of Assemble, by the key of the note.

    Args:
        workspace: the workspace.
        key: the key of Assemble.
        versions: the version of each note that exists, by its key.
    """
    return dict(CompactedMarkers(workspace.store, ASSEMBLE, key).among(versions))


def note_beside(name: str) -> str:
    """Return the key of the note on the views of an item, from the name of its marker."""
    return note_key(parse_item_name(name)[0])


def note_of_views(
    workspace: Workspace, item: Item, copied: Mapping[str, dict[str, Any]] = MappingProxyType({})
) -> ViewsNote | None:
    """Return the note on the item's views; None if they are incomplete or of an older generation.

    A note in `copied` is not read again.
    """
    key = note_key(item.id)
    note = copied[key] if key in copied else workspace.find_json(key)
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
    for _ in range(2):  # the file may have been rewritten between file and note
        workspace.store.download(key, path)
        note = (workspace.find_json(note_key(item)) or workspace.find_json(_damaged_key(item))) if item else None
        if not note or note.get("sha256") in (None, "", sha256_of(path)):
            return
    by_hand = ""
    try:
        workspace.store.put(_damaged_key(item), codec.dump(note))
        begin_views(workspace, item)
        workspace.flush()
    except StorageError:  # a read-only user cannot rename the note
        by_hand = f"Remove {key} there first. "
    raise DatasetDamaged(workspace.url, [key], before=by_hand)


def begin_views(workspace: Workspace, item: str) -> None:
    """Remove the note on the item's views, so that the next Assemble rewrites them."""
    workspace.store.delete(note_key(item))


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


def _damaged_key(item: str) -> str:
    """Return the key of the note while the file is known to be damaged and not yet rewritten."""
    return f"{VIEW_NOTES}{item}.damaged.json"
