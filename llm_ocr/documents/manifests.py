"""Read paths, lists of paths (`.txt`), manifests (`.jsonl`), and page selections (`1-5,9,12-`)."""

import contextlib
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from llm_ocr.config.groups import without_credentials
from llm_ocr.documents.remote import unknown_scheme
from llm_ocr.errors import UsageError
from llm_ocr.types import Reason


def local_path(source: str, base: Path | None = None) -> Path:
    """Return a path or `file://` URL as an absolute, unresolved path. Raises `UsageError` for other URLs."""
    if source.startswith("file://"):
        try:
            parts = urlsplit(source.replace("#", "%23").replace("?", "%3F"))
        except ValueError as error:
            raise UsageError(f"{source}: {error}", hint="Write file:///path, or the path alone.") from error
        if parts.netloc not in ("", "localhost"):
            raise UsageError(f"{source}: a file on another host", hint="Write file:///path, or the path alone.")
        source = unquote(parts.path)
    elif "://" in source and not exists(Path(source)):
        named = without_credentials(source)
        raise unknown_scheme(source) or UsageError(f"{named}: not a readable file, folder, or URL")
    elif source.startswith("~") and not os.path.lexists(source):
        with contextlib.suppress(RuntimeError, ValueError):  # without such a user, the name is unchanged
            source = str(Path(source).expanduser())
    if not source:
        raise UsageError("a source is empty", hint="Give files, folders, globs, .txt lists, or .jsonl manifests.")
    return Path(os.path.abspath(base / source if base else source))  # noqa: PTH100 - keeps links


#: As `Path.exists`, `is_file`, and `is_dir`, which raise for names that are too long and for inaccessible folders.
exists, is_file, is_folder = os.path.exists, os.path.isfile, os.path.isdir


_PART = re.compile(r"(\d{1,9})?\s*(-)?\s*(\d{1,9})?")
_RANGES_HINT = "Write numbers from 1 and ranges, for example 1-5,9,12-"


@dataclass(frozen=True, slots=True)
class PageRanges:
    """Ranges of page numbers from 1, ends included; None: to the last page."""

    ranges: tuple[tuple[int, int | None], ...]

    def select(self, total: int) -> tuple[int, ...]:
        """Return the selected numbers of a document of `total` pages, ascending and unique.

        Numbers beyond its end are dropped.
        """
        chosen: set[int] = set()
        for first, last in self.ranges:
            chosen.update(range(first, min(total, last if last is not None else total) + 1))
        return tuple(sorted(chosen))


def parse_pages(text: str) -> PageRanges:
    """Parse `1-5,9,12-` (`-5` is `1-5`). Raises `UsageError` that names the wrong part, but not the setting."""
    parts = [part.strip() for part in text.split(",")]
    if not any(parts):
        raise UsageError("names no page", hint=_RANGES_HINT)
    ranges: list[tuple[int, int | None]] = []
    for part in parts:
        match = _PART.fullmatch(part)
        if match is None or not (match[1] or match[3]):
            raise UsageError(f"{part!r} is not a page or a range", hint=_RANGES_HINT)
        first = int(match[1] or 1)
        last = int(match[3]) if match[3] else (None if match[2] else first)
        if first < 1 or last == 0:
            raise UsageError(f"{part!r} begins before page 1", hint=_RANGES_HINT)
        if last is not None and last < first:
            raise UsageError(f"{part!r} ends before it begins", hint=_RANGES_HINT)
        ranges.append((first, last))
    return PageRanges(tuple(ranges))


#: Highest page number in a manifest: each named page becomes a row, even if it does not exist.
_LAST_PAGE = 1_000_000
_MANIFEST_HINT = 'Write one object per line: {"document_id": "a1", "pdf_path": "a.pdf", "pages": [1, 2]}'


@dataclass(frozen=True, slots=True)
class ManifestEntry:
    """Line of a manifest. `pages` None: all pages of the document."""

    path: str
    document_id: str | None
    pages: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class SourceDocument:
    """Document that the user named, directly or through a folder, glob, list, or manifest."""

    source: str  # absolute path, or URL
    relative: str  # path below its source root, with `/`
    kind: str = ""  # "pdf" or "image"; empty if `reason` is set
    version: str = ""  # from stores that report it without reading; local files: `open_fd.version_of`
    document_id: str | None = None  # from a manifest
    pages: tuple[int, ...] | None = None  # from a manifest; None: all
    reason: Reason | None = None  # reason for a failed document
    detail: str = ""
    size: int | None = None  # bytes; None if the listing does not include the size
    page_total: int | None = None  # None: requires opening the document
    at_least: bool = False  # `page_total` is the usual number; the file is opened when it is read
    name_in_id: str = ""  # replaces `relative` in the id; empty: `relative` itself


def listed_paths(file: Path, url: str = "") -> Iterator[str]:
    """Yield the paths of a list: one per line; comment lines (`#`) and empty lines are skipped.

    Args:
        file: The list, or the local copy of a remote list.
        url: The remote list. Paths of this machine may have spaces at their ends.
    """
    for _, line in _lines(file, url):
        if not line.lstrip().startswith("#"):
            yield line if not url and exists(file.parent / line) else line.strip()


def manifest_entries(file: Path, ids: dict[str, str], url: str = "") -> Iterator[ManifestEntry]:
    """Yield the documents of a manifest. `ids`: those of all manifests of a run; `url`: as in `listed_paths`.

    Raises `UsageError` with the faulty line.
    """
    for number, line in _lines(file, url):
        yield entry_of(line, f"{url or file} line {number}", ids)


def _lines(file: Path, url: str) -> Iterator[tuple[int, str]]:
    """Yield the lines that are not empty, with their numbers."""
    try:
        with file.open(encoding="utf-8-sig", errors="replace" if url else "surrogateescape", newline="\n") as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    yield number, line.rstrip("\r\n")
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror or error}") from error


def entry_of(line: str, place: str, ids: dict[str, str]) -> ManifestEntry:
    """Return the document of a manifest's line, and add its id to `ids`, which have their `place`: file and line.

    Raises `UsageError`.
    """
    try:
        entry = json.loads(line)
    except json.JSONDecodeError as error:
        raise UsageError(f"{place}: not JSON ({error.msg})", hint=_MANIFEST_HINT) from error
    except (ValueError, RecursionError) as error:  # numbers with thousands of digits, or thousands of levels
        raise UsageError(f"{place}: not readable JSON", hint=_MANIFEST_HINT) from error
    if not isinstance(entry, dict):
        raise UsageError(f"{place}: not an object", hint=_MANIFEST_HINT)
    path = entry.get("pdf_path")
    if not isinstance(path, str) or not path:
        raise UsageError(f"{place}: no pdf_path", hint=_MANIFEST_HINT)
    document_id = entry.get("document_id", entry.get("id"))
    if document_id is not None:
        if isinstance(document_id, bool) or not isinstance(document_id, (str, int)):
            raise UsageError(f"{place}: the id is neither text nor a number", hint=_MANIFEST_HINT)
        document_id = str(document_id)  # any text: file names use safe forms of ids, never the ids themselves
        if not document_id.strip():
            raise UsageError(f"{place}: the id is empty", hint=_MANIFEST_HINT)
        if document_id in ids:
            what = f"{place}: id {document_id!r} already exists in {ids[document_id]}"
            raise UsageError(what, hint="Give each document a different id.")
        ids[document_id] = place
    return ManifestEntry(path, document_id, _pages(entry.get("pages"), place))


def _pages(given: Any, place: str) -> tuple[int, ...] | None:
    if given is None:
        return None
    if isinstance(given, list) and given:
        numbers = [page for page in given if isinstance(page, int) and not isinstance(page, bool)]
        if len(numbers) == len(given) and all(1 <= page <= _LAST_PAGE for page in numbers):
            return tuple(sorted(set(numbers)))
    if not isinstance(given, str):
        problem = "pages is neither a list of numbers from 1 to a million nor a text such as 1-5,9"
        raise UsageError(f"{place}: {problem}", hint=_MANIFEST_HINT)
    try:
        ranges = parse_pages(given)
    except UsageError as error:
        raise UsageError(f"{place}: pages {given!r}: {error.args[0]}", hint=error.hint) from error
    last = 0
    for _, end in ranges.ranges:
        if end is None:
            hint = "Also give the last page: a manifest needs exact pages."
            raise UsageError(f"{place}: pages {given!r} has no end", hint=hint)
        last = max(last, end)
    if last > _LAST_PAGE:
        raise UsageError(f"{place}: pages {given!r} exceeds a million pages")
    return ranges.select(last)
