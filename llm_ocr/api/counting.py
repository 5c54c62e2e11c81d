"""How many pages documents have, by opening them."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from llm_ocr.api.filtering import Filtering
from llm_ocr.api.remote import Remote
from llm_ocr.api.small_files import SmallFiles
from llm_ocr.documents.filters import LeftOut
from llm_ocr.documents.page_ranges import PageRanges
from llm_ocr.documents.remote.urls import is_remote
from llm_ocr.documents.rendering import Renderer
from llm_ocr.documents.sources import SourceDocument, version_of
from llm_ocr.errors import PageFailure
from llm_ocr.types import Reason, Wanted
from llm_ocr.work.planned import PlannedDocument
from llm_ocr.work.wanted import wanted_of, wanted_pages

#: Documents opened ahead of the one that is planned next.
_AHEAD = 16


class Totals(Protocol):
    """Numbers of pages by version."""

    def get(self, version: str, /) -> int | None:
        """None for a version that is not known."""


class PageCounter:
    """Opens documents and selects their pages.

    `totals` tells the number of pages by version, of documents that need not be opened: they are in the plan. 0: they
    were not counted there either. `filtering` says what is left out; what is in the plan is not looked at for that.
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
        """Open one document, unless its pages are known, and select from them."""
        if (told := self.at_once(document)) is not None:
            return told
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
        """Version, pages, and why it is left out. Raises PageFailure."""
        if document.page_total is None:
            return await self._opened(document, version)
        left_out = await self._filtering.row(document) if self._filtering else None
        return version, document.page_total, left_out

    def at_once(self, document: SourceDocument) -> PlannedDocument | None:
        """The document, if its listing says all about it."""
        if document.reason is not None:
            return self.failed(document, "", document.reason, document.detail)
        looked_at = self._filtering is not None and self._filtering.looks_at_rows()
        if document.page_total is not None and not looked_at:
            return self.counted(document, document.version, document.page_total)
        return None

    def total(self, version: str) -> int | None:
        """Pages of a content that is known; 0 where it is planned and not counted."""
        return self._met.get(version) or self._totals.get(version)

    def remember(self, document: PlannedDocument) -> None:
        """Documents of the same content need not be opened."""
        if document.page_total:
            self._met[document.version] = document.page_total

    async def located(self, document: SourceDocument) -> SourceDocument:
        """With version and size, where its store was not asked for them yet. Raises PageFailure."""
        if document.size is not None:
            return document
        found = await self._remote.look(document.source)
        return replace(document, version=found.version, size=found.size)

    async def version(self, document: SourceDocument) -> str:
        """What the listing says, or of a local file its content; empty where only fetching it tells.

        Raises PageFailure.
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

    def wanted(self, document: SourceDocument) -> Wanted:
        """What is asked of a document."""
        if document.pages is None:
            return self._wanted
        return wanted_of(self._ranges, document.pages, self._most_pages)

    def counted(self, document: SourceDocument, version: str, total: int) -> PlannedDocument:
        """A document of `total` pages."""
        wanted = self.wanted(document)
        return _planned(document, version, wanted, pages=wanted_pages(wanted, total), page_total=total)

    def estimated(self, document: SourceDocument, version: str, total: int) -> PlannedDocument:
        """A document of about `total` pages."""
        wanted = self.wanted(document)
        return _planned(document, version, wanted, estimate=len(wanted_pages(wanted, total)) or 1)

    def failed(self, document: SourceDocument, version: str, reason: Reason, detail: str) -> PlannedDocument:
        """A document that cannot be opened."""
        return _planned(document, version, self.wanted(document), reason=reason, detail=detail)


async def in_order(
    documents: Iterable[SourceDocument],
    one: Callable[[SourceDocument], Awaitable[PlannedDocument]],
    at_once: Callable[[SourceDocument], PlannedDocument | None] = lambda document: None,
) -> AsyncIterator[PlannedDocument]:
    """What `at_once` makes of each, else `one`, of which some are under way at a time."""
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
    wanted: Wanted,
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
