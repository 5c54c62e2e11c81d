"""Lists of paths (`.txt`) and manifests (`.jsonl`)."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llm_ocr.documents.local_paths import exists
from llm_ocr.documents.page_ranges import parse_pages
from llm_ocr.errors import UsageError

#: The highest page number that a manifest may name: each page named becomes a row, there or not.
_LAST_PAGE = 1_000_000


@dataclass(frozen=True, slots=True)
class ManifestEntry:
    """One line of a manifest. `pages` None: all of the document."""

    path: str
    document_id: str | None
    pages: tuple[int, ...] | None


class UniqueIds:
    """Which line has used an id, over all manifests of a run."""

    def __init__(self) -> None:
        self._places: dict[str, str] = {}

    def take(self, document_id: str, place: str) -> None:
        """Raises UsageError for an id that another line has."""
        if document_id in self._places:
            raise UsageError(
                f"{place}: id {document_id!r} stands in {self._places[document_id]} already",
                hint="Give each document an id of its own.",
            )
        self._places[document_id] = place


def listed_paths(file: Path) -> Iterator[str]:
    """The paths of a list: one a line, `#` begins a comment line, empty lines are skipped."""
    for _, line in _lines(file):
        if line.strip() and not line.lstrip().startswith("#"):
            yield line if exists(file.parent / line) else line.strip()


def manifest_entries(file: Path, ids: UniqueIds) -> Iterator[ManifestEntry]:
    """The documents of a manifest. Raises UsageError that names the line and what is wrong."""
    for number, line in _lines(file):
        if line.strip():
            yield entry_of(line, f"{file} line {number}", ids)


def _lines(file: Path) -> Iterator[tuple[int, str]]:
    try:
        with file.open(encoding="utf-8-sig", errors="surrogateescape", newline="\n") as lines:
            for number, line in enumerate(lines, start=1):
                yield number, line.rstrip("\r\n")
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror or error}") from error


def entry_of(line: str, place: str, ids: UniqueIds) -> ManifestEntry:
    """The document that a manifest's line names; `place` is said of a wrong one. Raises UsageError."""
    try:
        entry = json.loads(line)
    except json.JSONDecodeError as error:
        raise UsageError(f"{place}: not JSON ({error.msg})", hint=_HINT) from error
    except (ValueError, RecursionError) as error:  # numbers of thousands of digits, thousands of levels
        raise UsageError(f"{place}: not JSON that can be read", hint=_HINT) from error
    if not isinstance(entry, dict):
        raise UsageError(f"{place}: not an object", hint=_HINT)
    path = entry.get("pdf_path")
    if not isinstance(path, str) or not path:
        raise UsageError(f"{place}: no pdf_path", hint=_HINT)
    return ManifestEntry(path, _id(entry, place, ids), _pages(entry.get("pages"), place))


_HINT = 'Write one object a line: {"document_id": "a1", "pdf_path": "a.pdf", "pages": [1, 2]}'


def _id(entry: dict[str, Any], place: str, ids: UniqueIds) -> str | None:
    given = entry.get("document_id", entry.get("id"))
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, (str, int)):
        raise UsageError(f"{place}: the id is neither text nor a number", hint=_HINT)
    document_id = str(given)  # any text: files are named by made-safe forms of ids, never by the ids themselves
    if not document_id.strip():
        raise UsageError(f"{place}: the id is empty", hint=_HINT)
    ids.take(document_id, place)
    return document_id


def _pages(given: Any, place: str) -> tuple[int, ...] | None:
    if given is None:
        return None
    if isinstance(given, str):
        return _from_ranges(given, place)
    if isinstance(given, list) and given and all(_is_page(page) for page in given):
        return tuple(sorted(set(given)))
    problem = "pages is neither a list of numbers from 1 to a million nor a text such as 1-5,9"
    raise UsageError(f"{place}: {problem}", hint=_HINT)


def _is_page(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= _LAST_PAGE


def _from_ranges(text: str, place: str) -> tuple[int, ...]:
    try:
        ranges = parse_pages(text)
    except UsageError as error:
        raise UsageError(f"{place}: {error}") from error
    last = max((end or 0 for _, end in ranges.ranges), default=0)
    if any(end is None for _, end in ranges.ranges):
        raise UsageError(
            f"{place}: pages {text!r} has no end", hint="Name the last page too: a manifest fixes its pages."
        )
    if last > _LAST_PAGE:
        raise UsageError(f"{place}: pages {text!r} goes beyond a million pages")
    return ranges.select(last)
