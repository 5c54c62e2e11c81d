"""Which key of Assemble wrote an item's documents and dataset file.

Views stand at the same place whatever the options were, so a marker alone does not say that they are of its key: with
other options they are written anew, and with the first ones once more. The note goes before views are touched and comes
back when they are whole.
"""

from llm_ocr.work import codec
from llm_ocr.work.items import Item
from llm_ocr.work.keys import ASSEMBLE
from llm_ocr.work.workspace import Workspace


def key_of_views(workspace: Workspace, item: Item) -> str:
    """The key that wrote the item's views; empty when they are not whole, or a slow worker's of an older generation."""
    note = workspace.find_json(_note(item))
    return str(note["key"]) if note and note.get("generation", item.generation) == item.generation else ""


def begin_views(workspace: Workspace, item: Item) -> None:
    """From now on the item's views are of no key."""
    workspace.store.delete(_note(item))


def end_views(workspace: Workspace, item: Item, key: str) -> None:
    """The item's views are whole, and of this key."""
    workspace.store.put(_note(item), codec.dump({"key": key, "generation": item.generation}))


def _note(item: Item) -> str:
    return f"{ASSEMBLE}/views/{item.id}.json"
