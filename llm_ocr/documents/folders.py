"""Files below a folder, in a fixed order, safe against loops of links. In memory are the folders, never all files."""

import heapq
import json
import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

#: Names of one folder that are sorted in memory; of more, sorted runs go to files.
RUN = 100_000


@dataclass(frozen=True, slots=True)
class Unlisted:
    """A folder that could not be listed, or a link that could not be followed.

    `dangling`: the link leads to nothing.
    """

    path: Path
    problem: str
    dangling: bool = False


def files_below(root: Path) -> Iterator[Path | Unlisted]:
    """Return files by path, without hidden files and hidden folders. Links are followed; each folder is visited once.

    A folder that can be reached without a link is listed under its own name. An entry that cannot be looked at comes as
    `Unlisted` in its place, and costs no other entry.
    """
    visited: set[tuple[int, int]] = set()
    second: frozenset[str] | None = None  # links to folders that are listed elsewhere; None: no link was met yet
    stack = [_entries(str(root), visited)]
    while stack:
        entry = next(stack[-1], None)
        if entry is None:
            stack.pop()
        elif isinstance(entry, Unlisted):
            yield entry
        elif not entry.folder:
            yield Path(entry.path)
        else:
            if entry.link and second is None:
                second = _second_ways(root)
            if not second or entry.path not in second:
                stack.append(_entries(entry.path, visited))


@dataclass(frozen=True, slots=True)
class _Entry:
    path: str
    folder: bool = False
    link: bool = False


def unfollowed(entry: "Path | os.DirEntry[str]") -> Unlisted | None:
    """Return why the entry cannot be looked at; None when it can be."""
    try:
        entry.stat()
    except OSError as error:
        dangling = isinstance(error, (FileNotFoundError, NotADirectoryError))
        problem = "link leads to nothing" if dangling else f"link cannot be followed: {error.strerror or error}"
        return Unlisted(Path(entry), problem, dangling)
    return None


def _entries(folder: str, visited: set[tuple[int, int]]) -> Iterator[_Entry | Unlisted]:
    """What stands in a folder, by name; nothing of one that was visited before."""
    folders: dict[str, bool] = {}  # by name: whether it is a link
    broken: dict[str, Unlisted] = {}  # by name
    with ExitStack() as runs:
        try:
            if not _first_time(folder, visited):
                return
            with os.scandir(folder) as found:
                names = _sorted(_names(found, folders, broken), runs)
        except OSError as error:
            yield Unlisted(Path(folder), f"folder cannot be listed: {error.strerror or error}")
            return
        for name in names:
            yield broken.get(name) or _Entry(os.path.join(folder, name), name in folders, folders.get(name, False))  # noqa: PTH118 - a text


def _first_time(folder: str, visited: set[tuple[int, int]]) -> bool:
    """Raises OSError."""
    status = os.stat(folder)  # noqa: PTH116 - a text
    number = (status.st_dev, status.st_ino)
    if number in visited:
        return False
    visited.add(number)
    return True


def _names(found: Iterable["os.DirEntry[str]"], folders: dict[str, bool], broken: dict[str, Unlisted]) -> Iterator[str]:
    """The names that are not hidden; those of folders and broken links are put into `folders` and `broken`, too."""
    for entry in found:
        if entry.name.startswith("."):
            continue
        if _is_folder(entry):
            folders[entry.name] = entry.is_symlink()
        elif entry.is_symlink() and (problem := unfollowed(entry)):
            broken[entry.name] = problem
        yield entry.name


def _is_folder(entry: "os.DirEntry[str]") -> bool:
    """`is_dir` raises for links that lead in a circle, or to where this user may not look."""
    try:
        return entry.is_dir()
    except OSError:
        return False


def _sorted(names: Iterator[str], open_files: ExitStack) -> Iterator[str]:
    """All names are read at once, and given in order; files stay open until the stack is closed."""
    run = sorted(islice(names, RUN))
    if len(run) < RUN:
        return iter(run)
    runs = []
    while run:
        file = open_files.enter_context(tempfile.TemporaryFile("w+", encoding="ascii"))  # noqa: SIM115 - so it is closed
        file.writelines(json.dumps(name) + "\n" for name in run)  # a name may hold any character
        file.seek(0)
        runs.append(map(json.loads, file))
        run = sorted(islice(names, RUN))
    return heapq.merge(*runs)


def _second_ways(root: Path) -> frozenset[str]:
    """Paths of folders below which nothing is listed, because another path leads there: links come last."""
    visited: set[tuple[int, int]] = set()
    second = []
    plain, linked = [str(root)], list[str]()
    while plain or linked:
        folder = plain.pop() if plain else linked.pop(0)
        try:
            if not _first_time(folder, visited):
                second.append(folder)
                continue
            with os.scandir(folder) as found:
                below = sorted((entry.name, entry.is_symlink()) for entry in found if _is_shown_folder(entry))
        except OSError:
            continue  # said where it is listed
        for name, link in below:
            (linked if link else plain).append(os.path.join(folder, name))  # noqa: PTH118 - a text
    return frozenset(second)


def _is_shown_folder(entry: "os.DirEntry[str]") -> bool:
    return not entry.name.startswith(".") and _is_folder(entry)
