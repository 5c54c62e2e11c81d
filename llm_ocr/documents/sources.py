"""Which documents the user means: files, folders, globs, lists of paths and manifests."""

import glob
import hashlib
import os
import stat
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING

from llm_ocr.documents.file_types import ACCEPTED, kind_by_content, kind_by_name
from llm_ocr.documents.folders import Unlisted, files_below, unfollowed
from llm_ocr.documents.local_paths import is_file, is_folder, is_unspeakable, local_path
from llm_ocr.documents.manifests import ManifestEntry, UniqueIds, listed_paths, manifest_entries
from llm_ocr.documents.remote.matching import hidden, matcher
from llm_ocr.documents.remote.urls import is_remote, suffix_of
from llm_ocr.errors import UsageError
from llm_ocr.types import Reason

if TYPE_CHECKING:
    from llm_ocr.documents.remote.listing import RemoteListing
    from llm_ocr.documents.remote.options import RemoteOptions


@dataclass(frozen=True, slots=True)
class SourceDocument:
    """A document that the user named, directly or through a folder, glob, list or manifest."""

    source: str  # absolute path, or URL
    relative: str  # path below its source root, with `/`
    kind: str = ""  # "pdf" or "image"; empty when `reason` is set
    version: str = ""  # of stores that know it without reading; local files: `version_of`
    document_id: str | None = None  # from a manifest
    pages: tuple[int, ...] | None = None  # from a manifest; None: all
    reason: Reason | None = None  # why it will be a failed document
    detail: str = ""
    size: int | None = None  # bytes; None where the listing does not say
    page_total: int | None = None  # None: it must be opened to count them
    name_in_id: str = ""  # what its id is made of in the place of `relative`; empty: `relative` itself


@dataclass(frozen=True, slots=True)
class Found:
    """Documents in a fixed order, to be taken once: most are looked for when they are asked for.

    That raises what `find_documents` does. `skipped` counts the files of folders and globs that are of no known type,
    by suffix; it is whole when the documents are at their end.
    """

    documents: Iterator[SourceDocument]
    skipped: Counter[str] = field(default_factory=Counter)


def find_documents(
    sources: Sequence[str],
    *,
    only: Sequence[str] = (),
    max_samples: int | None = None,
    remote: "RemoteOptions | None" = None,
    rows: Iterable[SourceDocument] = (),
) -> Found:
    """Expand what the user named; the same pages of a file are taken once, at their first place.

    `remote`: how URLs are read. `only`: file names or patterns of names. `rows`: documents of a dataset, behind all
    others. What is named and is not there, or of no known type, comes as a document with a reason, so that it is
    counted as failed. Raises UsageError when nothing else is left, and for bad lists and manifests; looks no further
    than the first document without reason.
    """
    skipped: Counter[str] = Counter()
    named = _expanded(sources, skipped, remote)
    every = chain(named if _names_none_twice(sources) else _first_of_each(named), rows)  # a row is there only once
    documents = islice(_chosen(every, only), max_samples)
    begin: list[SourceDocument] = []
    for document in documents:
        begin.append(document)
        if document.reason is None:
            return Found(chain(begin, documents), skipped)
    raise _nothing(sources, begin, only, skipped)


def _names_none_twice(sources: Sequence[str]) -> bool:
    """Of one folder, pattern or prefix each document comes once; lists and manifests may repeat what they name."""
    return len(sources) == 1 and _suffix(sources[0]) not in (".txt", ".jsonl")


def _suffix(source: str) -> str:
    return suffix_of(source) if is_remote(source) else Path(source).suffix.lower()


def _first_of_each(documents: Iterable[SourceDocument]) -> Iterator[SourceDocument]:
    """In memory are 16 bytes of a hash for each, which take about 100: among a billion, two are the same once in 10^20
    runs.
    """
    seen: set[bytes] = set()
    for document in documents:
        # With other pages it is not the same: the plan refuses that, where it would lose pages.
        named = f"{document.source}\0{document.document_id or ''}\0{document.pages}".encode("utf-8", "surrogatepass")
        number = hashlib.sha256(named).digest()[:16]
        if number not in seen:
            seen.add(number)
            yield document


def version_of(path: str | Path) -> str:
    """The SHA-256 of a file's bytes, in hex. Raises OSError."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _expanded(
    sources: Sequence[str], skipped: Counter[str], options: "RemoteOptions | None"
) -> Iterator[SourceDocument]:
    from llm_ocr.documents.remote.listing import RemoteListing  # it is made of what stands here

    ids = UniqueIds()
    remote = RemoteListing(skipped, ids, options)
    for source in sources:
        if is_remote(source):
            yield from remote.documents(source)
            continue
        path = local_path(source)
        if not _is_document(path) and is_file(path):
            if path.suffix.lower() == ".txt":
                yield from _from_list(path, skipped, remote)
                continue
            if path.suffix.lower() == ".jsonl":
                yield from _from_manifest(path, ids, remote)
                continue
        yield from _from_path(path, skipped)


def _from_path(path: Path, skipped: Counter[str]) -> Iterator[SourceDocument]:
    """A literal path wins over a pattern of the same spelling."""
    if is_folder(path):
        yield from _from_folder(files_below(path), path, skipped)
    elif os.path.lexists(path) or not glob.has_magic(str(path)):
        yield _explicit(path, path.name)
    else:
        yield from _from_glob(path, skipped)


def _from_folder(found: Iterable[Path | Unlisted], root: Path, skipped: Counter[str]) -> Iterator[SourceDocument]:
    for entry in found:
        if isinstance(entry, Unlisted):
            if entry.dangling and entry.path.suffix and not kind_by_name(entry.path):
                skipped[entry.path.suffix.lower()] += 1  # whatever it was, it was no document
                continue
            reason = Reason.NOT_FOUND if entry.dangling else Reason.UNREADABLE
            yield _failed(entry.path, _relative(entry.path, root), reason, entry.problem)
        elif kind := _kind_in_folder(entry):
            yield _document(entry, _relative(entry, root), kind)
        else:
            skipped[entry.suffix.lower()] += 1


def _from_glob(pattern: Path, skipped: Counter[str]) -> Iterator[SourceDocument]:
    root = Path(pattern.anchor)
    for part in pattern.parts[1:]:
        if not os.path.lexists(root / part):
            break
        root /= part  # as it stands, whatever brackets are in it
    parts = pattern.relative_to(root).parts
    deep = parts.index("**") if "**" in parts and not hidden("/".join(parts)) else len(parts)
    found = glob.glob(str(Path(*parts[:deep])), root_dir=root, recursive=True)  # noqa: PTH207 - leaves hidden files out
    matches = sorted(root / match for match in found)
    below = _below(matches, "/".join(parts[deep:])) if deep < len(parts) else _matched(matches, "**" in parts)
    first = next(below, None)
    if first is not None:
        yield from _from_folder(chain([first], below), root, skipped)
    elif not matches or deep < len(parts):
        yield _failed(pattern, pattern.name, Reason.NOT_FOUND, "no file matches")


def _below(folders: Iterable[Path], pattern: str) -> Iterator[Path | Unlisted]:
    """Files below the folders that match. `glob` would follow a link to a folder above it forty times."""
    fits = matcher(pattern)
    for folder in filter(is_folder, folders):
        for entry in files_below(folder):
            path, hides = (entry.path, not entry.dangling) if isinstance(entry, Unlisted) else (entry, False)
            if hides or fits(_relative(path, folder)):  # what cannot be looked at may hold files that match
                yield entry


def _matched(matches: Iterable[Path], themselves: bool) -> Iterator[Path | Unlisted]:
    """Files as they are, folders as what is below them, unless their files match `themselves`."""
    for match in matches:
        if not is_folder(match):
            yield unfollowed(match) or match
        elif not themselves:
            yield from files_below(match)


def _from_list(file: Path, skipped: Counter[str], remote: "RemoteListing") -> Iterator[SourceDocument]:
    for line in listed_paths(file):
        if is_remote(line):
            yield from remote.line(line)
            continue
        path = _listed(line, file)
        if is_file(path) and path.is_relative_to(file.parent):
            yield _explicit(path, _relative(path, file.parent))
        else:
            yield from _from_path(path, skipped)


def _from_manifest(file: Path, ids: UniqueIds, remote: "RemoteListing") -> Iterator[SourceDocument]:
    for entry in manifest_entries(file, ids):
        if is_remote(entry.path):
            yield remote.entry(entry)
            continue
        path = _listed(entry.path, file)
        below = path.is_relative_to(file.parent)
        yield _explicit(path, _relative(path, file.parent) if below else path.name, entry)


def _listed(source: str, file: Path) -> Path:
    """A path in a list or manifest. Raises UsageError that names the list, too."""
    try:
        return local_path(source, file.parent)
    except UsageError as error:
        raise UsageError(f"{file}: {error.args[0]}", hint=error.hint) from error


def _explicit(path: Path, relative: str, entry: ManifestEntry | None = None) -> SourceDocument:
    """A file that was named itself: what is wrong with it is recorded."""
    try:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            what = "a folder" if stat.S_ISDIR(mode) else "not a regular file"
            return _failed(path, relative, Reason.UNKNOWN_TYPE, what, entry)
        kind = kind_by_content(path) or kind_by_name(path)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return _failed(path, relative, Reason.NOT_FOUND, "no such file", entry)
    except OSError as error:
        return _failed(path, relative, Reason.UNREADABLE, error.strerror or str(error), entry)
    if not kind:
        return _failed(path, relative, Reason.UNKNOWN_TYPE, f"accepted are {ACCEPTED}", entry)
    return _document(path, relative, kind, entry)


def _document(path: Path, relative: str, kind: str, entry: ManifestEntry | None = None) -> SourceDocument:
    if is_unspeakable(path):
        return _failed(path, relative, Reason.UNREADABLE, "its name is not valid Unicode: rename it", entry)
    return SourceDocument(
        str(path),
        relative,
        kind,
        document_id=entry.document_id if entry else None,
        pages=entry.pages if entry else None,
        size=_size(path),
    )


def _failed(
    path: Path, relative: str, reason: Reason, detail: str, entry: ManifestEntry | None = None
) -> SourceDocument:
    source, relative = (text.encode("utf-8", "replace").decode() for text in (str(path), relative))
    return SourceDocument(
        source, relative, document_id=entry.document_id if entry else None, reason=reason, detail=detail
    )


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None  # the renderer says what is wrong with it


def _is_document(path: Path) -> bool:
    try:
        return path.is_file() and bool(kind_by_content(path))
    except OSError:
        return False


def _kind_in_folder(path: Path) -> str:
    """By content where the name promises a document or says nothing; other files are not opened."""
    by_name = kind_by_name(path)
    if (path.suffix and not by_name) or not is_file(path):
        return ""
    try:
        return kind_by_content(path) or by_name
    except OSError:
        return by_name  # the renderer says what is wrong with it


def _relative(path: Path, root: Path) -> str:
    return path.relative_to(root).as_posix()


def _chosen(documents: Iterable[SourceDocument], only: Sequence[str]) -> Iterator[SourceDocument]:
    if not only:
        yield from documents
        return
    for document in documents:
        name = Path(document.relative if is_remote(document.source) else document.source).name
        if any(name == wanted or fnmatchcase(name, wanted) for wanted in only):
            yield document


def _nothing(
    sources: Sequence[str], documents: Sequence[SourceDocument], only: Sequence[str], skipped: Counter[str]
) -> UsageError:
    shown = [
        f"{document.source}: {document.reason}, {document.detail}" for document in documents[:5] if document.reason
    ]
    if not shown:
        named = ", ".join(sources[:5]) or "no source"
        shown = [f"{named}: no document" + (f" named {', '.join(only)}" if only else "")]
    if skipped and not only:
        shown[-1] += f" ({sum(skipped.values())} files of other types)"
    return UsageError(
        "; ".join(shown), hint=f"Accepted are {ACCEPTED}; a folder, a glob, a .txt list or a .jsonl manifest."
    )
