"""Count or estimate the pages of documents, and exclude filtered documents."""

import asyncio
import contextlib
from bisect import bisect_left
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import Literal, TypeVar

from llm_ocr.documents.files import IMAGE
from llm_ocr.documents.filters import Filters, LeftOut
from llm_ocr.documents.manifests import PageRanges, SourceDocument
from llm_ocr.documents.open_fd import Given, given_all, version_of
from llm_ocr.documents.remote import is_remote, is_web, shown, suffix_of
from llm_ocr.documents.rendering import Renderer
from llm_ocr.errors import PageFailure
from llm_ocr.stages.rendering import Remote
from llm_ocr.types import Reason
from llm_ocr.workspace.plan import KnownFiltered
from llm_ocr.workspace.planned import DiskDict, PlannedDocument, wanted_of, wanted_pages

Item = TypeVar("Item")
Result = TypeVar("Result")

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
            # If the command ends first, the task is never awaited, and asyncio would print its error.
            group.task.add_done_callback(lambda task: task.cancelled() or task.exception())
        place = len(group.documents)
        group.documents.append(document)
        assert group.task is not None
        return (await asyncio.shield(group.task))[place]

    async def _counted(self, group: _Group) -> list[Counted]:
        if self._group is group:
            self._group = None
        async with given_all([document.source for document in group.documents]) as files:
            found: list[Counted] = [
                ("", file) if isinstance(file, PageFailure) else (file.version, self._total(file.version) or 0)
                for file in files
            ]
            places = [place for place, (_, pages) in enumerate(found) if not pages]
            chosen = [(group.documents[place], files[place]) for place in places]
            asked = [(one.source, one.kind, file.descriptor) for one, file in chosen if isinstance(file, Given)]
            for place, pages in zip(places, await self._renderer.open_all(asked) if asked else [], strict=True):
                found[place] = (found[place][0], pages)
        return found


#: Documents opened ahead of the next planned document.
_AHEAD = 16


class PageCounter:
    """Opens documents and selects their pages.

    Args:
        renderer: Opens the documents.
        remote: Fetches remote documents.
        ranges: Selected pages.
        most_pages: Limit of pages per document.
        totals: Page counts of planned documents, which are not opened again. 0: the plan contains only an estimate.
        filters: The active filters. Planned documents are not filtered again.
        left_out: Documents that the same filters excluded before. They are not inspected again.
    """

    def __init__(
        self,
        renderer: Renderer,
        remote: Remote,
        ranges: PageRanges | None = None,
        most_pages: int | None = None,
        totals: DiskDict | Mapping[str, int] | None = None,
        filters: Filters | None = None,
        left_out: KnownFiltered | None = None,
    ) -> None:
        self._renderer = renderer
        self._remote = remote
        self._ranges = ranges
        self._most_pages = most_pages
        self._wanted = wanted_of(ranges, None, most_pages)
        self._totals = totals if totals is not None else dict[str, int]()
        self._met: dict[str, int] = {}
        self._filters = filters
        self._left_out = left_out
        self._small = SmallFiles(renderer, self.total)

    async def one(self, document: SourceDocument) -> PlannedDocument:
        """Count one document, unless its pages are known, and select from them."""
        if document.reason is not None:
            return self.failed(document, "", document.reason, document.detail)
        # Of the filters, only that of blank pages applies to rows of datasets, whose images must then be fetched.
        if document.page_total is not None and not (self._filters and self._filters.options.blank):
            return self.counted(document, document.version, document.page_total)
        if self._filters is None and self._small.takes(document):
            version, found = await self._small.look(document)
            if isinstance(found, PageFailure):
                return self.failed(document, version, found.reason, found.detail)
            return self.counted(document, version, found)
        version, left_out = document.version, None
        try:
            version = await self.version(document)
            if self._left_out is not None and version:
                made = self.counted(document, version, 0)
                if cause := self._left_out.cause(made.id, version):
                    return replace(made, filtered=cause)
            total = self.total(version)
            if not total and document.page_total is not None:
                total, left_out = document.page_total, await self._left_out_row(document)
            elif not total:
                version, total, left_out = await self._opened(document, version)
        except PageFailure as failure:
            return self.failed(document, version, failure.reason, failure.detail)
        made = self.counted(document, version, total)
        return replace(made, filtered=left_out.cause, detail=left_out.detail) if left_out else made

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
        try:
            return await asyncio.to_thread(version_of, document.source)
        except FileNotFoundError as error:
            raise PageFailure(Reason.NOT_FOUND, str(error)) from error
        except OSError as error:
            raise PageFailure(Reason.UNREADABLE, str(error)) from error

    async def _opened(self, document: SourceDocument, version: str) -> tuple[str, int, LeftOut | None]:
        """Return version, pages, and why the document is excluded. Raises `PageFailure`."""
        async with contextlib.AsyncExitStack() as stack:
            path, expected = document.source, version
            if is_remote(document.source):
                copy = await stack.enter_async_context(self._remote.open(document.source, version))
                path, version, expected = str(copy.path), copy.version, ""
            if self._filters is None:
                return version, await self._renderer.open(path, document.kind, expected), None
            return version, *await self._filters.look(path, document.kind, shown(document.source))

    async def _left_out_row(self, document: SourceDocument) -> LeftOut | None:
        """Return why a dataset's row is excluded; None if it is not.

        Images are fetched up to the first image that is not blank or cannot be fetched.
        """
        found = None
        if self._filters is None:
            return None
        for number in range(1, (document.page_total or 0) + 1):
            try:
                async with self._remote.page(document.source, document.version, number) as (path, _):
                    _, found = await self._filters.look(str(path), IMAGE, shown(document.source))
            except PageFailure:
                return None
            if found is None:
                return None
        return found

    def counted(self, document: SourceDocument, version: str, total: int) -> PlannedDocument:
        """Return a document of `total` pages."""
        if document.at_least:
            return self.estimated(document, version, total)
        made = self._planned(document, version)
        return replace(made, pages=wanted_pages(made.wanted, total), page_total=total)

    def estimated(self, document: SourceDocument, version: str, total: int) -> PlannedDocument:
        """Return a document of about `total` pages."""
        made = self._planned(document, version)
        return replace(made, estimate=len(wanted_pages(made.wanted, total)) or 1)

    def failed(self, document: SourceDocument, version: str, reason: Reason, detail: str) -> PlannedDocument:
        """Return a document that cannot be opened."""
        return replace(self._planned(document, version), reason=reason, detail=detail)

    def _planned(self, document: SourceDocument, version: str) -> PlannedDocument:
        """Return a document with its page selection, without pages."""
        own = document.pages
        return PlannedDocument(
            source=document.source,
            relative=document.relative,
            name_in_id=document.name_in_id,
            version=version,
            document_id=document.document_id,
            pages=(),
            page_total=0,
            wanted=self._wanted if own is None else wanted_of(self._ranges, own, self._most_pages),
        )


async def in_order(items: Iterable[Item], one: Callable[[Item], Awaitable[Result]]) -> AsyncIterator[Result]:
    """Yield the result of `one` for each item, in order. Several calls run concurrently."""
    waiting: deque[asyncio.Future[Result]] = deque()
    try:
        for item in items:
            waiting.append(asyncio.ensure_future(one(item)))
            if len(waiting) > _AHEAD:
                yield await waiting[0]
                waiting.popleft()
        while waiting:
            yield await waiting[0]
            waiting.popleft()
    finally:
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


# Estimated page counts: a sample of the documents is opened, and the others are estimated from their size. An estimate
# only determines how the plan is divided and which progress is shown. A document is counted when it is read.


#: Documents of the same kind and nearly the same size that an estimate is based on.
_NEIGHBOURS = 16
#: Bytes per page if no document of the kind could be opened.
_GUESS = 100_000
_TIFF = (".tif", ".tiff")


@dataclass(frozen=True, slots=True)
class CountOptions:
    """Selection of the documents that are opened."""

    #: `exact` opens all documents, `estimate` only a sample, and `auto` estimates above `exact_up_to` documents.
    mode: Literal["auto", "exact", "estimate"] = "auto"
    pages_per_unit: int = 64  # a document with more estimated pages is opened, so that it can be divided
    exact_up_to: int = 10_000  # documents
    sample: int = 200  # opened documents per kind


def likely_pages(size: int, known: Sequence[tuple[int, int]]) -> int:
    """Return the pages by the mean bytes per page of the documents of nearest size; at least 1.

    Args:
        size: Bytes of the document.
        known: Size in bytes and pages of documents of its kind, in ascending order.
    """
    begin = max(0, min(bisect_left(known, (size, 0)) - _NEIGHBOURS // 2, len(known) - _NEIGHBOURS))
    near = known[begin : begin + _NEIGHBOURS]
    some = sum(one for one, _ in near)
    per_byte = sum(pages for _, pages in near) / some if some else 1 / _GUESS
    return max(1, round(size * per_byte))


class Estimator:
    """Estimates page counts from a sample that it opens. Opens documents that cannot be estimated."""

    def __init__(self, counter: PageCounter, options: CountOptions) -> None:
        self._counter = counter
        self._options = options
        self._sizes: dict[str, list[tuple[int, int]]] = {}  # see `likely_pages`
        self._sampled: dict[int, PlannedDocument] = {}  # by the documents' identity

    async def look(self, batch: Sequence[SourceDocument]) -> None:
        """Open a sample of each new kind, spread over the batch."""
        self._sampled.clear()
        for kind in dict.fromkeys(_kind(one) for one in batch if _can_be_estimated(one)):
            if kind == IMAGE or kind in self._sizes:
                continue
            alike = [one for one in batch if _can_be_estimated(one) and _kind(one) == kind]
            count = min(len(alike), self._options.sample)
            chosen = [alike[number * len(alike) // count] for number in range(count)]
            known: list[tuple[int, int]] = []
            opened = [one async for one in in_order(chosen, partial(self._opened, known))]
            for document, made in zip(chosen, opened, strict=True):
                self._sampled[id(document)] = made
                self._counter.remember(made)
            self._sizes[kind] = sorted(known)

    async def _opened(self, known: list[tuple[int, int]], document: SourceDocument) -> PlannedDocument:
        try:
            document = await self._counter.located(document)
        except PageFailure as failure:
            return self._counter.failed(document, document.version, failure.reason, failure.detail)
        made = await self._counter.one(document)
        if made.page_total:
            known.append((document.size or 0, made.page_total))
        return made

    async def one(self, document: SourceDocument) -> PlannedDocument:
        """Return the document; read only if necessary."""
        if sampled := self._sampled.pop(id(document), None):
            return sampled
        if not _can_be_estimated(document):
            return await self._counter.one(document)
        try:
            document = await self._counter.located(document)
            version = await self._counter.version(document)
        except PageFailure as failure:
            return self._counter.failed(document, document.version, failure.reason, failure.detail)
        return (self._estimated(document, version) if version else None) or await self._counter.one(document)

    def _estimated(self, document: SourceDocument, version: str) -> PlannedDocument | None:
        """Return the estimated document; None if it must be opened, because it may be too long for one unit."""
        known = self._counter.total(version)
        if known:
            return self._counter.counted(document, version, known)
        kind = _kind(document)
        total = 1 if kind == IMAGE else likely_pages(document.size or 0, self._sizes[kind])
        planned = self._counter.estimated(document, version, total)
        short = known == 0 or planned.estimate <= self._options.pages_per_unit
        return planned if short else None


async def counted(
    documents: Iterable[SourceDocument], counter: PageCounter, options: CountOptions = CountOptions()
) -> AsyncGenerator[PlannedDocument, None]:
    """Yield one planned document for each document, in order. A document that cannot be opened is planned as failed.

    The same documents give the same estimates. Memory holds `options.exact_up_to` documents.

    Args:
        documents: The documents.
        counter: Opens documents.
        options: Which documents are opened.
    """
    estimator = Estimator(counter, options)
    estimating = options.mode == "estimate"
    rest = await asyncio.to_thread(iter, documents)
    while batch := await asyncio.to_thread(lambda: list(islice(rest, options.exact_up_to + 1))):
        estimating = estimating or (options.mode == "auto" and len(batch) > options.exact_up_to)
        if estimating:
            await estimator.look(batch)
        async for document in in_order(batch, estimator.one if estimating else counter.one):
            yield document


def _can_be_estimated(document: SourceDocument) -> bool:
    """Return whether pages can be estimated. Documents of web servers have no version until they are fetched."""
    if document.reason is not None or document.page_total is not None:
        return False
    return document.size is not None or (is_remote(document.source) and not is_web(document.source))


def _kind(document: SourceDocument) -> str:
    """Return the kind of document whose pages have similar sizes. All kinds except `image` have any number of pages."""
    if document.kind == IMAGE and (suffix := suffix_of(document.source)) in _TIFF:
        return suffix
    return document.kind
