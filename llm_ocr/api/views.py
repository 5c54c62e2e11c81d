"""Which key of Assemble wrote an item's documents and dataset file.

Views stand at the same place whatever the options were, so a marker alone does not say that they are of its key: with
other options they are written anew, and with the first ones once more. The note goes before views are touched and comes
back when they are whole.
"""

import hashlib
from pathlib import Path

from llm_ocr.results.dataset import dataset_file
from llm_ocr.storage.local import LocalStore
from llm_ocr.work import codec
from llm_ocr.work.items import Item
from llm_ocr.work.keys import ASSEMBLE
from llm_ocr.work.workspace import Workspace


def key_of_views(workspace: Workspace, item: Item) -> str:
    """Return the key that wrote the item's views; empty when they are not whole, damaged, or of an older generation.

    The dataset file of a local workspace is read and compared with its hash; notes of older versions have none.
    """
    note = workspace.find_json(_note(item))
    if not note or note.get("generation", item.generation) != item.generation:
        return ""
    if "sha256" in note and isinstance(workspace.store, LocalStore):
        path = workspace.store.root / dataset_file(item.id)
        if not path.is_file() or sha256_of(path) != note["sha256"]:
            return ""
    return str(note["key"])


def begin_views(workspace: Workspace, item: Item) -> None:
    """From now on the item's views are of no key."""
    workspace.store.delete(_note(item))


def end_views(workspace: Workspace, item: Item, key: str, dataset: str) -> None:
    """Note that the item's views are whole and of this key; `dataset` is the SHA-256 of its dataset file."""
    note = {"key": key, "generation": item.generation, "sha256": dataset}
    workspace.store.put(_note(item), codec.dump(note))


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _note(item: Item) -> str:
    return f"{ASSEMBLE}/views/{item.id}.json"
