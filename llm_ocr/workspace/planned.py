"""Planned documents: selected pages and identity."""

import hashlib
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Self

from llm_ocr.documents.manifests import PageRanges, parse_pages
from llm_ocr.types import ALL_PAGES, PageSelection, Reason
from llm_ocr.workspace import codec
from llm_ocr.workspace.codec import document_id


class DiskDict:
    """Map from texts to integers from 0 to 2**63 - 1, for millions of entries, mostly on the local disk.

    Texts are stored as 15-byte hashes. Among a million texts, a collision occurs once in 10^24 runs. Not thread-safe.
    """

    def __init__(self) -> None:
        # A nameless file disappears with the connection. No entry must survive, so SQLite need not sync.
        self._database = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        for setting in ("journal_mode = OFF", "synchronous = OFF", "cache_size = -8192"):  # KiB of memory
            self._database.execute(f"PRAGMA {setting}")
        self._database.execute("CREATE TABLE numbers (hash BLOB PRIMARY KEY, number INTEGER) WITHOUT ROWID")
        self._database.execute("BEGIN")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def get(self, text: str) -> int | None:
        """Return the number of the text; None if it has none."""
        row = self._database.execute("SELECT number FROM numbers WHERE hash = ?", (_hash(text),)).fetchone()
        return None if row is None else int(row[0])

    def __setitem__(self, text: str, number: int) -> None:
        self._database.execute("INSERT OR REPLACE INTO numbers VALUES (?, ?)", (_hash(text), number))

    def close(self) -> None:
        """Delete all entries."""
        self._database.close()


def number_of(text: str) -> int:
    """Return 63 bits of a hash, sufficient to compare two texts, but not to find one among many."""
    return int.from_bytes(_hash(text)[:8]) >> 1


def _hash(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:15]


_ranges = lru_cache(maxsize=64)(parse_pages)  # usually the same for all documents of a plan


def wanted_of(
    ranges: PageRanges | None = None, named: Sequence[int] | None = None, most: int | None = None
) -> PageSelection:
    """Return the canonical selection: the same pages give the same value. The page count may be unknown."""
    merged: list[tuple[int, int | None]] = []  # in order, without overlaps
    for first, last in sorted(ranges.ranges, key=lambda bounds: bounds[0]) if ranges is not None else ():
        before = merged[-1] if merged else (0, -1)
        if merged and (before[1] is None or first <= before[1] + 1):
            merged[-1] = (before[0], None if before[1] is None or last is None else max(before[1], last))
        else:
            merged.append((first, last))
    if merged == [(1, None)]:  # all pages
        merged.clear()
    texts = (str(first) if first == last else f"{first}-{last or ''}" for first, last in merged)
    return PageSelection(codec.pages_to_text(sorted(set(named))) if named else "", ",".join(texts), most or 0)


def wanted_pages(wanted: PageSelection, total: int) -> tuple[int, ...]:
    """Return the selected pages of a document with `total` pages, ascending, from 1.

    Named pages beyond the end of the document are kept.
    """
    if wanted.named:
        pages = codec.pages_from_text(wanted.named)
        if wanted.ranges:
            within = set(_ranges(wanted.ranges).select(total))
            pages = tuple(page for page in pages if page in within)
    else:
        pages = _ranges(wanted.ranges).select(total) if wanted.ranges else tuple(range(1, total + 1))
    return pages[: wanted.most or None]


def place_of(wanted: PageSelection, number: int) -> int:
    """Return the number of selected pages before page `number`, which must be selected."""
    return sum(page < number for page in wanted_pages(PageSelection(wanted.named, wanted.ranges), number))


def no_such_page(total: int) -> str:
    """Return the message for a document without any selected page."""
    return f"none of the selected pages exists; the document has {total} page{'' if total == 1 else 's'}"


@dataclass(frozen=True, slots=True)
class PlannedDocument:
    """Document with its pages counted. `pages` are the selected pages, ascending, from 1.

    `reason` is set for a document that could not be opened: it has no pages, and counts as one expected, failed page.
    """

    source: str  # absolute path or URL that the user can open
    relative: str  # path below its source root
    version: str  # changes with the content; "" if the document could not be read
    document_id: str | None  # id from the manifest
    pages: tuple[int, ...]
    page_total: int
    reason: Reason | None = None
    detail: str = ""
    estimate: int = 0  # pages estimated from the file size, for a document that was not opened and has no `pages`
    wanted: PageSelection = ALL_PAGES  # selection of `pages`, or of the pages to read later
    name_in_id: str = ""  # as in `SourceDocument`
    filtered: str = ""  # filter that excluded it, and the detected kind: `language de`; see `detail`

    @property
    def id(self) -> str:
        """Id in the plan."""
        name = self.name_in_id or self.relative
        return document_id(self.document_id, relative=name, version=self.version, source=self.source)


def counted_content(version: str, pages: Iterable[int]) -> str:
    """Return the text that identifies a counted document."""
    return f"{version}\0{codec.pages_to_text(pages)}"


def asked_content(version: str, wanted: PageSelection) -> str:
    """Return the text that identifies a document that was not counted."""
    return f"{version}\0{wanted.named}\0{wanted.ranges}\0{wanted.most}"


def content_of(document: PlannedDocument) -> str:
    """Return the text that identifies the document: equal texts mean the same content and pages."""
    if document.estimate:
        return asked_content(document.version, document.wanted)
    return counted_content(document.version, document.pages)


def contents_of(document: PlannedDocument) -> tuple[int, ...]:
    """Return the contents under which the document may have been planned: counted or not, opened or not."""
    version = document.version
    texts = (content_of(document), asked_content(version, document.wanted), counted_content(version, ()))
    return tuple(number_of(text) for text in texts)
