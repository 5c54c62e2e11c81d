"""Files below a folder, in a fixed order, safe against loops of links."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder that could not be listed."""

    path: Path
    problem: str


def files_below(root: Path) -> Iterator[Path | Folder]:
    """Files by path, hidden ones and hidden folders left out. Links are followed; each folder is visited once."""
    found: list[Path | Folder] = []
    visited: set[tuple[int, int]] = set()
    plain, linked = [root], list[Path]()
    while plain or linked:
        # Links last: a folder that can be reached without one is listed under its own name.
        folder = plain.pop() if plain else linked.pop(0)
        try:
            status = folder.stat()
            if (status.st_dev, status.st_ino) in visited:
                continue
            visited.add((status.st_dev, status.st_ino))
            with os.scandir(folder) as entries:
                for entry in sorted(entries, key=lambda entry: entry.name):
                    if entry.name.startswith("."):
                        continue
                    if entry.is_dir():
                        (linked if entry.is_symlink() else plain).append(Path(entry.path))
                    else:
                        found.append(Path(entry.path))
        except OSError as error:
            found.append(Folder(folder, error.strerror or str(error)))
    yield from sorted(found, key=lambda item: (item if isinstance(item, Path) else item.path).parts)
