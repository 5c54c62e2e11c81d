"""Planned documents: selected pages and identity."""

import hashlib
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any, Self

from llm_ocr.documents.manifests import PageRanges, parse_pages
from llm_ocr.types import ALL_PAGES, DocumentPart, PageSelection, Reason
from llm_ocr.workspace import codec
from llm_ocr.workspace.codec import document_id

# A dictionary from texts to whole numbers that may have millions of entries: most of it is on the local disk.


#: Of it in memory, in KiB.
_MEMORY = 8192


class DiskDict:
    """Remembers a number, 0 to 2**63 - 1, for each text; of the texts a hash of 15 bytes.

    Among a million texts two are taken for one once in 10^24 runs. For one thread at a time.
    """

    def __init__(self) -> None:
        # Without a name the file is gone with the connection; nothing of it need survive, so nothing is synced.
        self._database = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        for setting in ("journal_mode = OFF", "synchronous = OFF", f"cache_size = -{_MEMORY}"):
            self._database.execute(f"PRAGMA {setting}")
        self._database.execute("CREATE TABLE numbers (hash BLOB PRIMARY KEY, number INTEGER) WITHOUT ROWID")
        self._database.execute("BEGIN")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def get(self, text: str) -> int | None:
        """The number of the text; None when it has none."""
        row = self._database.execute("SELECT number FROM numbers WHERE hash = ?", (_hash(text),)).fetchone()
        return None if row is None else int(row[0])

    def __setitem__(self, text: str, number: int) -> None:
        self._database.execute("INSERT OR REPLACE INTO numbers VALUES (?, ?)", (_hash(text), number))

    def close(self) -> None:
        """Forget everything."""
        self._database.close()


def number_of(text: str) -> int:
    """63 bits of a hash: to compare two texts, not to look one up among many."""
    return int.from_bytes(_hash(text)[:8]) >> 1


def _hash(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:15]


# Which pages of a document are wanted, also of one whose number of pages is not known yet.


_ranges = lru_cache(maxsize=64)(parse_pages)  # the same for all documents of a plan


def wanted_of(
    ranges: PageRanges | None = None, named: Sequence[int] | None = None, most: int | None = None
) -> PageSelection:
    """A selection in its one form: the same pages are the same value."""
    return PageSelection(
        codec.pages_to_text(sorted(set(named))) if named else "",
        _merged(ranges) if ranges is not None else "",
        most or 0,
    )


def wanted_pages(wanted: PageSelection, total: int) -> tuple[int, ...]:
    """The pages of a document that has `total`, ascending, from 1. Named ones stay where they are beyond its end."""
    if wanted.named:
        pages = codec.pages_from_text(wanted.named)
        if wanted.ranges:
            within = set(_ranges(wanted.ranges).select(total))
            pages = tuple(page for page in pages if page in within)
    else:
        pages = _ranges(wanted.ranges).select(total) if wanted.ranges else tuple(range(1, total + 1))
    return pages[: wanted.most or None]


def place_of(wanted: PageSelection, number: int) -> int:
    """How many wanted pages stand before page `number`, which is wanted itself."""
    return sum(page < number for page in wanted_pages(PageSelection(wanted.named, wanted.ranges), number))


def no_such_page(total: int) -> str:
    """What is said of a document none of whose pages is wanted."""
    return f"none of the selected pages is among its {total}"


def _merged(ranges: PageRanges) -> str:
    """The ranges in order, without overlaps; empty for all pages."""
    merged: list[tuple[int, int | None]] = []
    for first, last in sorted(ranges.ranges, key=lambda one: one[0]):
        before = merged[-1] if merged else (0, -1)
        if merged and (before[1] is None or first <= before[1] + 1):
            merged[-1] = (before[0], None if before[1] is None or last is None else max(before[1], last))
        else:
            merged.append((first, last))
    if merged == [(1, None)]:
        return ""
    return ",".join(str(first) if first == last else f"{first}-{last or ''}" for first, last in merged)


# Documents as they are planned: counted, estimated or failed; and when two of them are the same one.


@dataclass(frozen=True, slots=True)
class PlannedDocument:
    """A document with its pages counted. `pages` are the selected ones, ascending, from 1.

    `reason` is set for a document that could not be opened, which has no pages; it is one expected, failed page.
    """

    source: str  # as the user can open it: absolute path or URL
    relative: str  # path below its source root
    version: str  # changes with the content; "" when it could not be read
    document_id: str | None  # the manifest's
    pages: tuple[int, ...]
    page_total: int
    reason: Reason | None = None
    detail: str = ""
    estimate: int = 0  # how many pages its size lets expect, where it was not opened: it has no `pages` then
    wanted: PageSelection = ALL_PAGES  # what `pages` were selected by, or will be
    name_in_id: str = ""  # as in `SourceDocument`
    filtered: str = ""  # by which filter it is left out, and what that found: `language de`; `detail` says more

    @property
    def id(self) -> str:
        """The id in the plan."""
        name = self.name_in_id or self.relative
        return document_id(self.document_id, relative=name, version=self.version, source=self.source)


_FIELDS = tuple(one.name for one in fields(PlannedDocument))


def with_reason(document: PlannedDocument) -> PlannedDocument:
    """The document itself, or as a failed one when its selection has no page."""
    if document.pages or document.reason is not None or document.estimate:
        return document
    detail = document.detail or no_such_page(document.page_total)
    return replace(document, reason=Reason.NO_SUCH_PAGE, detail=detail)


def part_of(document: PlannedDocument, aliases: tuple[str, ...]) -> DocumentPart:
    """As it stands in the plan, all its pages in one part."""
    return DocumentPart(
        document_id=document.id,
        source=document.source,
        relative=document.relative,
        version=document.version,
        pages=document.pages,
        page_total=document.page_total,
        first_index=0,
        aliases=aliases,
        reason=document.reason,
        detail=document.detail,
        estimate=document.estimate,
        wanted=ALL_PAGES if document.pages else document.wanted,
    )


def counted_content(version: str, pages: Iterable[int]) -> str:
    """What a counted document is known by."""
    return f"{version}\0{codec.pages_to_text(pages)}"


def asked_content(version: str, wanted: PageSelection) -> str:
    """What a document is known by that was not counted."""
    return f"{version}\0{wanted.named}\0{wanted.ranges}\0{wanted.most}"


def content_of(document: PlannedDocument) -> str:
    """What the document is known by: the same text stands for the same content and pages."""
    if document.estimate:
        return asked_content(document.version, document.wanted)
    return counted_content(document.version, document.pages)


def contents_of(document: PlannedDocument) -> tuple[int, ...]:
    """The contents under which the same document may be planned: counted then or not, opened then or not."""
    version = document.version
    texts = (content_of(document), asked_content(version, document.wanted), counted_content(version, ()))
    return tuple(number_of(text) for text in texts)


def document_to_json(document: PlannedDocument) -> dict[str, Any]:
    """JSON values, for the spool."""
    value = {name: getattr(document, name) for name in _FIELDS}  # `asdict` would copy all pages
    return value | {"pages": codec.pages_to_text(document.pages), "wanted": codec.wanted_to_json(document.wanted)}


def document_from_json(value: Mapping[str, Any]) -> PlannedDocument:
    """The inverse of `document_to_json`."""
    reason = Reason(value["reason"]) if value["reason"] else None
    pages, wanted = codec.pages_from_text(value["pages"]), PageSelection(**value["wanted"])
    return PlannedDocument(**{**value, "pages": pages, "wanted": wanted, "reason": reason})
