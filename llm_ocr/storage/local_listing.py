"""The files of a folder as keys, in key order."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from llm_ocr.storage.local_errors import translated
from llm_ocr.storage.local_locks import LOCKS
from llm_ocr.storage.names import TEMPORARY

#: At the root and no content: made by mkfs on ext file systems, readable by root only; and our locks.
_NOT_CONTENT = frozenset({"lost+found/", f"{LOCKS}/"})


def walk(root: Path, folder: str, wanted: Callable[[str], bool]) -> Iterator[str]:
    """All files below `root`/`folder` in key order, without the subfolders (given with a `/` at the end) not `wanted`.

    `folder` is a key, or empty for the root itself.
    """
    for name in _sorted_names(root / folder, root=not folder):
        key = f"{folder}/{name}" if folder else name
        if not name.endswith("/"):
            yield key
        elif wanted(key):
            yield from walk(root, key[:-1], wanted)


def _sorted_names(folder: Path, *, root: bool) -> list[str]:
    """Sorted as keys are: a folder's name counts with the `/` that follows it. Empty for a folder that is gone."""
    with translated("list", str(folder)):
        try:
            with os.scandir(folder) as entries:
                names = [f"{entry.name}/" if _is_folder(entry) else entry.name for entry in entries]
        except (FileNotFoundError, NotADirectoryError):
            return []
    return sorted(name for name in names if not root or name not in _NOT_CONTENT)


def _is_folder(entry: "os.DirEntry[str]") -> bool:
    """`is_dir` raises for links that lead in a circle: they are no folder, and cost the other names nothing."""
    try:
        return entry.is_dir()
    except OSError:
        return False


def is_temporary(key: str) -> bool:
    """Whether the key is that of an unfinished write."""
    return key.rpartition("/")[2].startswith(TEMPORARY)


def may_hold(folder: str, prefix: str, start_after: str) -> bool:
    """Whether a folder (with `/` at the end) may hold keys with the prefix and after `start_after`."""
    fits = folder.startswith(prefix) or prefix.startswith(folder)
    return fits and (folder > start_after or start_after.startswith(folder))
