"""Which key of Assemble wrote an item's documents and dataset file, and what is in that file.

Views are at the same place whatever the options were, so a marker alone does not say that they are of its key: with
other options they are written anew, and with the first ones once more. The note goes before views are touched and comes
back when they are whole.
"""

import hashlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from llm_ocr.errors import DatasetDamaged, StorageError
from llm_ocr.results.dataset import item_of_file
from llm_ocr.storage import ObjectInfo
from llm_ocr.storage.local import LocalStore
from llm_ocr.workspace import Workspace, codec
from llm_ocr.workspace.items import Item
from llm_ocr.workspace.keys import ASSEMBLE

#: Where the notes are.
NOTES = f"{ASSEMBLE}/views/"


@dataclass(frozen=True, slots=True)
class ViewsNote:
    """What wrote an item's views: the key, and hash and size of the dataset file; older versions noted neither."""

    key: str
    sha256: str = ""
    size: int | None = None


def note_of_views(workspace: Workspace, item: Item) -> ViewsNote | None:
    """Return the note on the item's views; None when they are not whole or of an older generation."""
    note = workspace.find_json(note_key(item.id))
    if not note or note.get("generation", item.generation) != item.generation:
        return None
    return ViewsNote(str(note["key"]), str(note.get("sha256", "")), note.get("size"))


def is_damaged(workspace: Workspace, note: ViewsNote, info: ObjectInfo) -> bool:
    """Return whether a dataset file has another size than noted or, in a local workspace, another hash.

    Files of other workspaces are compared with their hash when they are fetched.
    """
    if note.size not in (None, info.size):
        return True
    if not note.sha256 or not isinstance(workspace.store, LocalStore):
        return False
    return sha256_of(workspace.store.root / info.key) != note.sha256


def fetch_dataset_file(workspace: Workspace, key: str, path: Path) -> None:
    """Copy a dataset file from the store, and compare it with the hash that is noted, if there is one.

    Raises:
        DatasetDamaged: It has other content. Its note gets another name, so that the next Assemble makes it again.
    """
    item = item_of_file(key)
    for _ in range(2):  # it may have been written again between file and note
        workspace.store.download(key, path)
        note = _noted(workspace, item) if item else None
        if not note or note.get("sha256") in (None, "", sha256_of(path)):
            return
    by_hand = ""
    try:
        workspace.store.put(_damaged_key(item), codec.dump(note))
        begin_views(workspace, item)
        workspace.flush()
    except StorageError:  # who may only read can say no more
        by_hand = f"Remove {key} there first. "
    raise DatasetDamaged(workspace.url, [key], before=by_hand)


def _noted(workspace: Workspace, item: str) -> dict[str, Any] | None:
    return workspace.find_json(note_key(item)) or workspace.find_json(_damaged_key(item))


def begin_views(workspace: Workspace, item: str) -> None:
    """From now on the item's views are of no key: the next Assemble makes them."""
    workspace.store.delete(note_key(item))


def end_views(workspace: Workspace, item: Item, views: ViewsNote) -> None:
    """Note that the item's views are whole, and what wrote them."""
    workspace.store.put(note_key(item.id), codec.dump({**asdict(views), "generation": item.generation}))


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def note_key(item: str) -> str:
    """Return where the note on an item's views is."""
    return f"{NOTES}{item}.json"


def _damaged_key(item: str) -> str:
    """Where the note is while a file was found damaged and not made again."""
    return f"{NOTES}{item}.damaged.json"
