"""Count the pages of documents by opening them."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from llm_ocr.documents.filters import LeftOut
from llm_ocr.documents.manifests import PageRanges, SourceDocument
from llm_ocr.documents.open_fd import Given, given_all
from llm_ocr.documents.remote import is_remote
from llm_ocr.documents.rendering import Renderer
from llm_ocr.documents.sources import version_of
from llm_ocr.errors import PageFailure
from llm_ocr.stages.filtering import Filtering
from llm_ocr.stages.remote import Remote
from llm_ocr.types import PageSelection, Reason
from llm_ocr.workspace.planned import PlannedDocument, wanted_of, wanted_pages

#: Largest size of a small file in bytes, and files per group.
_SMALL, _TOGETHER = 4 << 20, 4

#: The version of a document (empty if it cannot be read), and its pages or why it cannot be opened.
Counted = tuple[str, int | PageFailure]


@dataclass(slots=True)
class _Group:
    documents: list[SourceDocument] = field(default_factory=list)
    task: "asyncio.Future[list[Counted]] | None" = None


class SmallFiles:
    """Count small local files in groups, because a step (hash, open, count) costs more than a file.

    Args:
        renderer: Opens the files.
        total: Returns the pages of a version if they are known.
    """

    def __init__(self, renderer: Renderer, total: Callable[[str], int | None]) -> None:
        self._renderer = renderer
        self._total = total
        self._group: _Group | None = None

    @staticmethod
    def takes(document: SourceDocument) -> bool:
        """Return whether the document is a small local file."""
        return (
            not document.version
            and document.size is not None
            and document.size <= _SMALL
            and not is_remote(document.source)
        )

    async def look(self, document: SourceDocument) -> Counted:
        """Return version and pages of one document."""
        group = self._group
        if group is None or len(group.documents) == _TOGETHER:
            group = self._group = _Group()
            # The group starts after all current callers have joined, because tasks run in the order of their creation.
            group.task = asyncio.ensure_future(self._counted(group))
        place = len(group.documents)
        group.documents.append(document)
        assert group.task is not None
        return (await asyncio.shield(group.task))[place]

    async def _counted(self, group: _Group) -> list[Counted]:
        if self._group is group:
            self._group = None
        documents = group.documents
        async with given_all([document.source for document in documents]) as files:
            found = [("", file) if isinstance(file, PageFailure) else self._known(file) for file in files]
            places = [place for place, (_, pages) in enumerate(found) if not pages]
            for place, pages in zip(places, await self._opened(documents, files, places), strict=True):
                found[place] = (found[place][0], pages)
        return found

    def _known(self, file: Given) -> Counted:
        return file.version, self._total(file.version) or 0

    async def _opened(
        self, documents: Sequence[SourceDocument], files: Sequence[Given | PageFailure], places: Sequence[int]
    ) -> list[int | PageFailure]:
        chosen = [(documents[place], files[place]) for place in places]
        asked = [(one.source, one.kind, file.descriptor) for one, file in chosen if isinstance(file, Given)]
        return await self._renderer.open_all(asked) if asked else []


#: Documents opened ahead of the next planned document.
_AHEAD = 16


class Totals(Protocol):
    """Page counts by version."""

    def get(self, version: str, /) -> int | None:
        """Return the number of pages; None for an unknown version."""


class PageCounter:
    """Opens documents and selects their pages.

    Args:
        renderer: Opens the documents.
        remote: Fetches remote documents.
        ranges: Selected pages.
        most_pages: Limit of pages per document.
        totals: Page counts of planned documents, which are not opened again. 0: the plan contains only an estimate.
        filtering: Filters. Planned documents are not filtered again.
    """

    def __init__(
        self,
        renderer: Renderer,
        remote: Remote,
        ranges: PageRanges | None = None,
        most_pages: int | None = None,
        totals: Totals | None = None,
        filtering: Filtering | None = None,
    ) -> None:
        self._renderer = renderer
        self._remote = remote
        self._ranges = ranges
        self._most_pages = most_pages
        self._wanted = wanted_of(ranges, None, most_pages)
        self._totals: Totals = totals if totals is not None else {}
        self._met: dict[str, int] = {}
        self._filtering = filtering
        self._small = SmallFiles(renderer, self.total)

    async def one(self, document: SourceDocument) -> PlannedDocument:
        """Count one document, unless its pages are known, and select from them."""
        if (listed := self.at_once(document)) is not None:
            return listed
        if self._filtering is None and self._small.takes(document):
            version, found = await self._small.look(document)
            if isinstance(found, PageFailure):
                return self.failed(document, version, found.reason, found.detail)
            return self.counted(document, version, found)
        version, left_out = document.version, None
        try:
            version = await self.version(document)
            if known := self._left_out_before(document, version):
                return known
            total = self.total(version)
            if not total:
                version, total, left_out = await self._looked(document, version)
        except PageFailure as failure:
            return self.failed(document, version, failure.reason, failure.detail)
        made = self.counted(document, version, total)
        return replace(made, filtered=left_out.cause, detail=left_out.detail) if left_out else made

    def _left_out_before(self, document: SourceDocument, version: str) -> PlannedDocument | None:
        if self._filtering is None or not version:
            return None
        made = self.counted(document, version, 0)
        cause = self._filtering.known(made)
        return replace(made, filtered=cause) if cause else None

    async def _looked(self, document: SourceDocument, version: str) -> tuple[str, int, LeftOut | None]:
        """Return version, pages, and why the document is excluded. Raises `PageFailure`."""
        if document.page_total is None:
            return await self._opened(document, version)
        left_out = await self._filtering.row(document) if self._filtering else None
        return version, document.page_total, left_out

    def at_once(self, document: SourceDocument) -> PlannedDocument | None:
        """Return the document if its listing contains all facts."""
        if document.reason is not None:
            return self.failed(document, "", document.reason, document.detail)
        looked_at = self._filtering is not None and self._filtering.filters_rows()
        if document.page_total is not None and not looked_at:
            return self.counted(document, document.version, document.page_total)
        return None

    def total(self, version: str) -> int | None:
        """Return the known number of pages of a version; 0 if it is planned and not counted."""
        return self._met.get(version) or self._totals.get(version)

    def remember(self, document: PlannedDocument) -> None:
        """Keep the page count, so that documents with the same content need not be opened."""
        if document.page_total:
            self._met[document.version] = document.page_total

    async def located(self, document: SourceDocument) -> SourceDocument:
        """Return the document with version and size; request them from its store if necessary. Raises `PageFailure`."""
        if document.size is not None:
            return document
        found = await self._remote.look(document.source)
        return replace(document, version=found.version, size=found.size)

    async def version(self, document: SourceDocument) -> str:
        """Return the version from the listing, or the hash of a local file; empty if only fetching shows it.

        Raises:
            PageFailure: The file cannot be read.
        """
        if document.version or is_remote(document.source):
            return document.version
        return await asyncio.to_thread(_version, document.source)

    async def _opened(self, document: SourceDocument, version: str) -> tuple[str, int, LeftOut | None]:
        if not is_remote(document.source):
            return version, *await self._open(document.source, document, version)
        async with self._remote.open(document.source, version) as copy:
            return copy.version, *await self._open(str(copy.path), document)

    async def _open(self, path: str, document: SourceDocument, version: str = "") -> tuple[int, LeftOut | None]:
        if self._filtering is None:
            return await self._renderer.open(path, document.kind, version), None
        return await self._filtering.look(path, document)

    def wanted(self, document: SourceDocument) -> PageSelection:
        """Return the page selection of a document."""
        if document.pages is None:
            return self._wanted
        return wanted_of(self._ranges, document.pages, self._most_pages)

    def counted(self, document: SourceDocument, version: str, total: int) -> PlannedDocument:
        """Return a document of `total` pages."""
        if document.at_least:
            return self.estimated(document, version, total)
        wanted = self.wanted(document)
        return _planned(document, version, wanted, pages=wanted_pages(wanted, total), page_total=total)

    def estimated(self, document: SourceDocument, version: str, total: int) -> PlannedDocument:
        """Return a document of about `total` pages."""
        wanted = self.wanted(document)
        return _planned(document, version, wanted, estimate=len(wanted_pages(wanted, total)) or 1)

    def failed(self, document: SourceDocument, version: str, reason: Reason, detail: str) -> PlannedDocument:
        """Return a document that cannot be opened."""
        return _planned(document, version, self.wanted(document), reason=reason, detail=detail)


async def in_order(
    documents: Iterable[SourceDocument],
    one: Callable[[SourceDocument], Awaitable[PlannedDocument]],
    at_once: Callable[[SourceDocument], PlannedDocument | None] = lambda document: None,
) -> AsyncIterator[PlannedDocument]:
    """Yield one planned document for each document, in order.

    Args:
        documents: The documents.
        one: Counts a document. Several calls run concurrently.
        at_once: Returns a document that needs no call of `one`.
    """
    waiting: deque[PlannedDocument | asyncio.Future[PlannedDocument]] = deque()
    under_way = 0
    try:
        for document in documents:
            made = at_once(document)
            under_way += made is None
            waiting.append(made or asyncio.ensure_future(one(document)))
            while waiting and (under_way > _AHEAD or isinstance(waiting[0], PlannedDocument)):
                first = waiting[0]
                if not isinstance(first, PlannedDocument):
                    first = await first
                    under_way -= 1
                waiting.popleft()
                yield first
        while waiting:
            first = waiting[0]
            yield first if isinstance(first, PlannedDocument) else await first
            waiting.popleft()
    finally:
        for task in waiting:
            if isinstance(task, asyncio.Future):
                task.cancel()


def _version(source: str) -> str:
    try:
        return version_of(Path(source))
    except FileNotFoundError as error:
        raise PageFailure(Reason.NOT_FOUND, str(error)) from error
    except OSError as error:
        raise PageFailure(Reason.UNREADABLE, str(error)) from error


def _planned(
    document: SourceDocument,
    version: str,
    wanted: PageSelection,
    *,
    pages: tuple[int, ...] = (),
    page_total: int = 0,
    estimate: int = 0,
    reason: Reason | None = None,
    detail: str = "",
) -> PlannedDocument:
    return PlannedDocument(
        source=document.source,
        relative=document.relative,
        name_in_id=document.name_in_id,
        version=version,
        document_id=document.document_id,
        pages=pages,
        page_total=page_total,
        reason=reason,
        detail=detail,
        estimate=estimate,
        wanted=wanted,
    )
