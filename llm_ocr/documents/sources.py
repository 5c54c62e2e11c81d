"""Find the local documents that a user names: files, folders, globs, and lists."""

import contextlib
import glob
import hashlib
import heapq
import json
import os
import stat
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cache
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING

from llm_ocr.documents.files import ACCEPTED, kind_by_content, kind_by_name
from llm_ocr.documents.manifests import (
    SourceDocument,
    is_file,
    is_folder,
    listed_paths,
    local_path,
    manifest_entries,
)
from llm_ocr.documents.remote import hidden, is_remote, matcher, suffix_of
from llm_ocr.errors import UsageError
from llm_ocr.types import Reason, plural

if TYPE_CHECKING:
    from llm_ocr.documents.remote import RemoteOptions
    from llm_ocr.documents.remote.listing import RemoteListing


# Files below a folder in a fixed order, safe against link cycles. Memory holds the folders, never all files.


#: Limit of a folder's names sorted in memory; larger folders use sorted runs in files.
RUN = 100_000


@dataclass(frozen=True, slots=True)
class Unlisted:
    """Folder that could not be listed, or link that could not be followed.

    `dangling`: the link has no target.
    """

    path: Path
    problem: str
    dangling: bool = False


@dataclass(frozen=True, slots=True)
class OwnResults:
    """Folder that llm-ocr wrote. Its files are results, and no documents.

    `what`: workspace, export, or site.
    """

    path: Path
    what: str


def files_below(root: Path) -> Iterator[Path | Unlisted | OwnResults]:
    """Yield files by path, without hidden files and folders. Links are followed; each folder is visited once.

    A folder that llm-ocr wrote is yielded as `OwnResults`, without its files.

    A folder that is reachable without a link is listed under its own name. An inaccessible entry is yielded as
    `Unlisted` in its place and does not affect other entries.
    """
    visited: set[tuple[int, int]] = set()
    # links to folders that are listed under another path; None: no link found so far
    second: frozenset[str] | None = None
    stack = [_entries(str(root), visited)]
    while stack:
        entry = next(stack[-1], None)
        if entry is None:
            stack.pop()
        elif isinstance(entry, Unlisted | OwnResults):
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
    """Return the reason why the entry is inaccessible; None for an accessible one."""
    try:
        entry.stat()
    except OSError as error:
        dangling = isinstance(error, (FileNotFoundError, NotADirectoryError))
        problem = "broken link" if dangling else f"link cannot be followed: {error.strerror or error}"
        return Unlisted(Path(entry), problem, dangling)
    return None


def _entries(folder: str, visited: set[tuple[int, int]]) -> Iterator[_Entry | Unlisted | OwnResults]:
    """Yield a folder's entries by name; nothing for a visited folder."""
    folders: dict[str, bool] = {}  # by name: whether the folder is a link
    broken: dict[str, Unlisted] = {}  # by name
    with ExitStack() as runs:
        try:
            if not _first_time(folder, visited):
                return
            if what := _own_results(Path(folder)):
                yield OwnResults(Path(folder), what)
                return
            with os.scandir(folder) as found:
                names = _sorted(_names(found, folders, broken), runs)
        except OSError as error:
            yield Unlisted(Path(folder), f"folder cannot be listed: {error.strerror or error}")
            return
        for name in names:
            yield broken.get(name) or _Entry(os.path.join(folder, name), name in folders, folders.get(name, False))  # noqa: PTH118 - a string


def _own_results(folder: Path) -> str:
    """Return whether the folder is a `workspace`, `export`, or `site` of llm-ocr; "" if it is none of them."""
    if (folder / "llm-ocr-view.json").is_file():
        return "site"
    if (folder / "_llm-ocr").is_dir():
        return "export"
    try:
        run = json.loads((folder / "run.json").read_bytes())
    except (OSError, ValueError, RecursionError):
        return ""
    return "workspace" if isinstance(run, dict) and {"format", "created_by"} <= run.keys() else ""


def _first_time(folder: str, visited: set[tuple[int, int]]) -> bool:
    """Return whether the folder is new, and mark it as visited. Raises `OSError`."""
    status = os.stat(folder)  # noqa: PTH116 - a string
    number = (status.st_dev, status.st_ino)
    if number in visited:
        return False
    visited.add(number)
    return True


def _names(found: Iterable["os.DirEntry[str]"], folders: dict[str, bool], broken: dict[str, Unlisted]) -> Iterator[str]:
    """Yield the names that are not hidden; also record folders in `folders` and broken links in `broken`."""
    for entry in found:
        if entry.name.startswith("."):
            continue
        if _is_folder(entry):
            folders[entry.name] = entry.is_symlink()
        elif entry.is_symlink() and (problem := unfollowed(entry)):
            broken[entry.name] = problem
        yield entry.name


def _is_folder(entry: "os.DirEntry[str]") -> bool:
    """Return whether the entry is a folder; `is_dir` raises for link cycles and for inaccessible targets."""
    try:
        return entry.is_dir()
    except OSError:
        return False


def _sorted(names: Iterator[str], open_files: ExitStack) -> Iterator[str]:
    """Yield the names in order after reading all of them; files stay open until the stack is closed."""
    run = sorted(islice(names, RUN))
    if len(run) < RUN:
        return iter(run)
    runs = []
    while run:
        file = open_files.enter_context(tempfile.TemporaryFile("w+", encoding="ascii"))  # noqa: SIM115 - the stack closes
        file.writelines(json.dumps(name) + "\n" for name in run)  # a name may contain any character
        file.seek(0)
        runs.append(map(json.loads, file))
        run = sorted(islice(names, RUN))
    return heapq.merge(*runs)


def _second_ways(root: Path) -> frozenset[str]:
    """Return the folders that are skipped because another path leads there; links have lower priority."""
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
                shown = (entry for entry in found if not entry.name.startswith(".") and _is_folder(entry))
                below = sorted((entry.name, entry.is_symlink()) for entry in shown)
        except OSError:
            continue  # reported where the entry is listed
        for name, link in below:
            (linked if link else plain).append(os.path.join(folder, name))  # noqa: PTH118 - a string
    return frozenset(second)


@dataclass(slots=True)
class Found:
    """Documents in a fixed order, found lazily and to be consumed once.

    The iteration raises the errors of `find_documents`. `skipped` counts the files of folders and globs with an unknown
    type, by suffix. `own_results` are the skipped folders that llm-ocr wrote. Both are complete at the end of the
    documents.
    """

    documents: Iterator[SourceDocument] = field(default_factory=lambda: iter(()))
    skipped: Counter[str] = field(default_factory=Counter)
    own_results: list[OwnResults] = field(default_factory=list)


def find_documents(
    sources: Sequence[str],
    *,
    only: Sequence[str] = (),
    max_samples: int | None = None,
    remote: "RemoteOptions | None" = None,
    rows: Iterable[SourceDocument] = (),
) -> Found:
    """Expand the user's sources; the same pages of a file are included once, at their first place.

    A named file that is missing or of an unknown type becomes a document with a reason, and counts as failed. The
    function looks no further than the first document without a reason.

    Args:
        sources: Files, folders, globs, lists, manifests, and URLs.
        only: File names or patterns of names; of rows, also ids.
        max_samples: Maximum number of documents.
        remote: Options for reading URLs.
        rows: Documents of a dataset, after all others.

    Raises:
        UsageError: No document is left, or a list or manifest is invalid.
    """
    found = Found()
    every = _expanded(sources, found, remote)
    if len(sources) != 1 or _suffix(sources[0]) in (".txt", ".jsonl"):
        every = _first_of_each(every)  # only lists and manifests, or several sources, repeat documents

    def is_named(*names: str) -> bool:
        return any(name == wanted or fnmatchcase(name, wanted) for wanted in only for name in names)

    if only:
        of_files = ((one, Path(one.relative if is_remote(one.source) else one.source).name) for one in every)
        every = (document for document, name in of_files if is_named(name))
        rows = (row for row in rows if is_named(row.relative, Path(row.relative).name))
    documents = islice(chain(every, rows), max_samples)  # rows are already unique
    begin: list[SourceDocument] = []
    for document in documents:
        begin.append(document)
        if document.reason is None:
            found.documents = chain(begin, documents)
            return found
    raise _no_documents(sources, begin, only, found)


def _suffix(source: str) -> str:
    return suffix_of(source) if is_remote(source) else Path(source).suffix.lower()


def _first_of_each(documents: Iterable[SourceDocument]) -> Iterator[SourceDocument]:
    """Yield each document once.

    Memory holds a hash of 16 bytes per document, about 100 bytes in total. Among 10^9 documents, a collision occurs
    once in 10^20 runs.
    """
    seen: set[bytes] = set()
    for document in documents:
        # A selection of other pages makes another document; the plan refuses that where pages would be lost.
        named = f"{document.source}\0{document.document_id or ''}\0{document.pages}".encode("utf-8", "surrogatepass")
        number = hashlib.sha256(named).digest()[:16]
        if number not in seen:
            seen.add(number)
            yield document


def _expanded(sources: Sequence[str], found: Found, options: "RemoteOptions | None") -> Iterator[SourceDocument]:
    ids: dict[str, str] = {}

    @cache
    def remote() -> "RemoteListing":
        from llm_ocr.documents.remote.listing import RemoteListing  # loads aiohttp: 0.3 s, only for URLs

        return RemoteListing(found.skipped, ids, options)

    for source in sources:
        if is_remote(source):
            yield from remote().documents(source)
            continue
        file = local_path(source)
        suffix = file.suffix.lower()
        if suffix not in (".txt", ".jsonl") or not is_file(file) or _kind(file):
            yield from _from_path(file, found)
        elif suffix == ".txt":
            for line in listed_paths(file):
                if is_remote(line):
                    yield from remote().line(line)
                    continue
                path = _listed(line, file)
                if is_file(path) and path.is_relative_to(file.parent):
                    yield _explicit(path, path.relative_to(file.parent).as_posix())
                else:
                    yield from _from_path(path, found)
        else:
            for entry in manifest_entries(file, ids):
                if is_remote(entry.path):
                    yield remote().entry(entry)
                    continue
                path = _listed(entry.path, file)
                below = path.is_relative_to(file.parent)
                document = _explicit(path, path.relative_to(file.parent).as_posix() if below else path.name)
                pages = None if document.reason else entry.pages
                yield replace(document, document_id=entry.document_id, pages=pages)


def _from_path(path: Path, found: Found) -> Iterator[SourceDocument]:
    """Yield the documents of a path; a literal path has priority over a pattern with the same spelling."""
    if is_folder(path):
        yield from _from_folder(files_below(path), path, found)
    elif os.path.lexists(path) or not glob.has_magic(str(path)):
        yield _explicit(path, path.name)
    else:
        yield from _from_glob(path, found)


def _from_folder(entries: Iterable[Path | Unlisted | OwnResults], root: Path, found: Found) -> Iterator[SourceDocument]:
    for entry in entries:
        if isinstance(entry, OwnResults):
            found.own_results.append(entry)
            continue
        if isinstance(entry, Unlisted):
            if entry.dangling and entry.path.suffix and not kind_by_name(entry.path):
                found.skipped[entry.path.suffix.lower()] += 1  # the file is not a document, whatever its type
                continue
            reason = Reason.NOT_FOUND if entry.dangling else Reason.UNREADABLE
            yield _failed(entry.path, entry.path.relative_to(root).as_posix(), reason, entry.problem)
            continue
        # Only files whose name indicates a document or nothing are opened. The renderer reports unreadable ones.
        named = kind_by_name(entry)
        opened = (named or not entry.suffix) and is_file(entry)
        if opened and (kind := _kind(entry) or named):
            yield _document(entry, entry.relative_to(root).as_posix(), kind)
        else:
            found.skipped[entry.suffix.lower()] += 1


def _from_glob(pattern: Path, found: Found) -> Iterator[SourceDocument]:
    root = Path(pattern.anchor)
    for part in pattern.parts[1:]:
        if not os.path.lexists(root / part):
            break
        root /= part  # literal, even with brackets
    parts = pattern.relative_to(root).parts
    deep = parts.index("**") if "**" in parts and not hidden("/".join(parts)) else len(parts)
    names = glob.glob(str(Path(*parts[:deep])), root_dir=root, recursive=True)  # noqa: PTH207 - leaves hidden files out
    matches = sorted(root / name for name in names)
    files = _files_of(matches, "/".join(parts[deep:]), "**" in parts)
    first = next(files, None)
    if first is not None:
        yield from _from_folder(chain([first], files), root, found)
    elif not matches or deep < len(parts):
        yield _failed(pattern, pattern.name, Reason.NOT_FOUND, "no file matches")


def _files_of(matches: Iterable[Path], pattern: str, themselves: bool) -> Iterator[Path | Unlisted | OwnResults]:
    """Yield the files of the matches of a glob.

    Args:
        matches: Files and folders.
        pattern: Pattern of the files below the matching folders. `glob` would follow a link to a parent folder forty
            times. Empty: matching files, and all files of matching folders.
        themselves: Whether the files below matching folders are among the matches.
    """
    fits = matcher(pattern)
    for match in matches:
        if not is_folder(match):
            if not pattern:
                yield unfollowed(match) or match
        elif pattern or not themselves:
            for entry in files_below(match):
                if isinstance(entry, Path):
                    shown = not pattern or fits(entry.relative_to(match).as_posix())
                elif isinstance(entry, Unlisted):  # an inaccessible folder may contain matching files
                    shown = not pattern or not entry.dangling or fits(entry.path.relative_to(match).as_posix())
                else:
                    shown = True
                if shown:
                    yield entry


def _listed(source: str, file: Path) -> Path:
    """Return a path in a list or manifest. Raises `UsageError` that also names the list."""
    try:
        return local_path(source, file.parent)
    except UsageError as error:
        raise UsageError(f"{file}: {error.args[0]}", hint=error.hint) from error


def _explicit(path: Path, relative: str) -> SourceDocument:
    """Return the document of an explicitly named file; its faults are recorded."""
    try:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            what = "a folder" if stat.S_ISDIR(mode) else "not a regular file"
            return _failed(path, relative, Reason.UNKNOWN_TYPE, what)
        kind = kind_by_content(path) or kind_by_name(path)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return _failed(path, relative, Reason.NOT_FOUND, "no such file")
    except OSError as error:
        return _failed(path, relative, Reason.UNREADABLE, error.strerror or str(error))
    if not kind:
        return _failed(path, relative, Reason.UNKNOWN_TYPE, f"accepted are {ACCEPTED}")
    return _document(path, relative, kind)


def _document(path: Path, relative: str, kind: str) -> SourceDocument:
    try:
        str(path).encode()
    except UnicodeEncodeError:  # bytes that are not text appear as lone surrogates
        return _failed(path, relative, Reason.UNREADABLE, "its name is not valid Unicode: rename it")
    size = None
    with contextlib.suppress(OSError):  # the renderer reports the error
        size = path.stat().st_size
    return SourceDocument(str(path), relative, kind, size=size)


def _failed(path: Path, relative: str, reason: Reason, detail: str) -> SourceDocument:
    source, relative = (text.encode("utf-8", "replace").decode() for text in (str(path), relative))
    return SourceDocument(source, relative, reason=reason, detail=detail)


def _kind(path: Path) -> str:
    """Return the kind by content; "" for other and for unreadable files."""
    try:
        return kind_by_content(path)
    except OSError:
        return ""


def _no_documents(
    sources: Sequence[str], documents: Sequence[SourceDocument], only: Sequence[str], found: Found
) -> UsageError:
    shown = [
        f"{document.source}: {document.reason}, {document.detail}" for document in documents[:5] if document.reason
    ]
    if not shown:
        named = ", ".join(sources[:5]) or "the dataset"
        shown = [f"{named}: no document" + (f" named {', '.join(only)}" if only else "")]
    if found.skipped and not only:
        shown[-1] += f" ({plural(found.skipped.total(), 'file')} of other types)"
    if found.own_results:
        shown[-1] += f" (skipped {own_results_text(found.own_results)})"
    hint = f"Accepted are {ACCEPTED}; a folder, a glob, a .txt list or a .jsonl manifest."
    if lists := [source for source in sources if _suffix(source) == ".txt"]:
        hint = (
            f"{lists[0]} is read as a list: each line is the path or URL of a document. Texts are no documents. {hint}"
        )
    return UsageError("; ".join(shown), hint=hint)


def own_results_text(found: Sequence[OwnResults]) -> str:
    """Return `results of llm-ocr: out (workspace), site (site)`; at most five are named."""
    named = ", ".join(f"{folder.path} ({folder.what})" for folder in found[:5])
    return f"results of llm-ocr: {named}" + (f", and {len(found) - 5} more" if len(found) > 5 else "")


def sampled(documents: Iterable[SourceDocument], count: int, seed: int) -> Iterator[SourceDocument]:
    """Yield `count` of the documents, with equal probability and in their original order.

    The sample consists of the smallest keyed hashes, so that a larger sample with the same seed includes the smaller
    one. All documents are listed before the first one is yielded; memory holds `count` of them.
    """
    key = seed.to_bytes((seed.bit_length() + 7) // 8 or 1)[-64:]

    def number(document: SourceDocument) -> int:
        """Return the hash of the id, or of the path below the root, which other machines share, and of the full path.

        The version is not included, because a local file would have to be read for it.
        """
        parts = (document.document_id or document.relative, document.source)
        digests = (
            hashlib.blake2b(part.encode("utf-8", "surrogatepass"), digest_size=16, key=key).digest() for part in parts
        )
        return int.from_bytes(b"".join(digests))

    numbered = ((number(document), place, document) for place, document in enumerate(documents))
    for _, _, document in sorted(heapq.nsmallest(count, numbered), key=lambda entry: entry[1]):
        yield document
