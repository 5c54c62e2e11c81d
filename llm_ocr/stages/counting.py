"""Count or estimate the pages of documents, and filter them."""

import asyncio
import functools
from bisect import bisect_left
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from itertools import accumulate, islice
from pathlib import Path
from typing import Literal, Protocol, TypeVar

from llm_ocr.config.groups import FilterSettings
from llm_ocr.config.models import PlanSettings
from llm_ocr.documents.file_types import IMAGE
from llm_ocr.documents.filters import FilterOptions, LeftOut
from llm_ocr.documents.filters.languages import Filters, Languages
from llm_ocr.documents.manifests import PageRanges
from llm_ocr.documents.open_fd import Given, given_all
from llm_ocr.documents.remote.urls import is_remote, is_web, shown, suffix_of
from llm_ocr.documents.rendering import Renderer
from llm_ocr.documents.sources import SourceDocument, version_of
from llm_ocr.errors import PageFailure
from llm_ocr.stages.runtime import Remote
from llm_ocr.types import PageSelection, Reason
from llm_ocr.workspace import Workspace
from llm_ocr.workspace.generations import generations
from llm_ocr.workspace.plan import KnownFiltered
from llm_ocr.workspace.planned import PlannedDocument, wanted_of, wanted_pages

# From settings to filters over documents that are planned.


def filter_options(settings: FilterSettings) -> FilterOptions:
    """Which filters the settings turn on."""
    return FilterOptions(
        languages=tuple(sorted({code.lower() for code in settings.filter_language})),
        forms=settings.filter_forms,
        spam=settings.filter_spam,
        blank=settings.filter_blank,
    )


async def check_filters(settings: PlanSettings) -> None:
    """Raises `UsageError` for a language that is not known, `MissingExtra` where none can be identified."""
    options = filter_options(settings)
    if options.languages:
        async with Languages(options.languages, confined=settings.confinement != "off") as languages:
            await languages.check()


class Filtering:
    """What one planning leaves out: what older plannings with the same filters did is not looked at again."""

    def __init__(self, filters: Filters, remote: Remote, known: KnownFiltered) -> None:
        self._filters = filters
        self._remote = remote
        self._known = known

    def known(self, document: PlannedDocument) -> str:
        """By what a document with this content was left out before; empty when it was not."""
        return self._known.cause(document.id, document.version)

    def message(self) -> str:
        """Return a message about documents that could not be checked; empty if there are none."""
        return self._filters.said()

    def looks_at_rows(self) -> bool:
        """Whether images of datasets must be fetched: only their being blank can be seen."""
        return self._filters.options.blank

    async def look(self, path: str, document: SourceDocument) -> tuple[int, LeftOut | None]:
        """The pages of a document at a local path, and why it is left out. Raises PageFailure."""
        return await self._filters.look(path, document.kind, shown(document.source))

    async def row(self, document: SourceDocument) -> LeftOut | None:
        """Why a dataset's row is left out; fetched up to its first image that is not blank, or cannot be had."""
        found = None
        for number in range(1, (document.page_total or 0) + 1):
            try:
                async with self._remote.page(document.source, document.version, number) as (path, _):
                    _, found = await self._filters.look(str(path), IMAGE, shown(document.source))
            except PageFailure:
                return None
            if found is None:
                return None
        return found


async def filtering(
    settings: PlanSettings, workspace: Workspace, renderer: Renderer, remote: Remote, stack: AsyncExitStack
) -> Filtering | None:
    """The filters that are on, open until the stack ends; None for none."""
    options = filter_options(settings)
    if not options.any:
        return None
    known = await asyncio.to_thread(_known, workspace, options)
    stack.callback(known.close)
    confined = settings.confinement != "off"
    filters = await stack.enter_async_context(Filters(renderer, options, confined=confined))
    return Filtering(filters, remote, known)


def _known(workspace: Workspace, options: FilterOptions) -> KnownFiltered:
    return KnownFiltered.of(workspace, generations(workspace), options.identity())


# Small local documents, hashed, opened and counted a few at a time: the steps cost more than the files.


#: Bytes up to which a file is small, and how many make one step.
_SMALL, _TOGETHER = 4 << 20, 4

#: The version of a document ("" where it cannot be read), and its pages or why it cannot be opened.
Counted = tuple[str, int | PageFailure]


@dataclass(slots=True)
class _Group:
    documents: list[SourceDocument] = field(default_factory=list)
    task: "asyncio.Future[list[Counted]] | None" = None


class SmallFiles:
    """Counts what is asked for at the same time together. `total` tells pages by version, where they are known."""

    def __init__(self, renderer: Renderer, total: Callable[[str], int | None]) -> None:
        self._renderer = renderer
        self._total = total
        self._group: _Group | None = None

    @staticmethod
    def takes(document: SourceDocument) -> bool:
        """Whether it is such a document."""
        return (
            not document.version
            and document.size is not None
            and document.size <= _SMALL
            and not is_remote(document.source)
        )

    async def look(self, document: SourceDocument) -> Counted:
        """Version and pages of one document."""
        group = self._group
        if group is None or len(group.documents) == _TOGETHER:
            group = self._group = _Group()
            # It begins when all that is asked for now has joined: tasks run in the order in which they were made.
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


# How many pages documents have, by opening them.


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

    def wanted(self, document: SourceDocument) -> PageSelection:
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


# How many pages very many documents have: by a sample that is opened, and by the size of the others. An estimate only
# says how the plan is cut and what is shown as expected: such a document is counted when it is read.


T = TypeVar("T")

#: Documents of a kind of nearly the same size that an estimate is made from.
_NEIGHBOURS = 16
#: Bytes of a page where no document of the kind could be opened.
_GUESS = 100_000
_TIFF = (".tif", ".tiff")


@dataclass(frozen=True, slots=True)
class CountOptions:
    """Which documents are opened. `auto` opens all, unless there are more than `exact_up_to`; `estimate` never all."""

    mode: Literal["auto", "exact", "estimate"] = "auto"
    pages_per_unit: int = 64  # a document that seems to have more is opened, so that it can be cut
    exact_up_to: int = 10_000
    sample: int = 200  # documents of a kind


@dataclass(slots=True)
class Sizes:
    """Pages of documents of one kind by their size: what a document of another size may have."""

    known: list[tuple[int, int]]  # size in bytes, pages
    _bytes: list[int] = field(init=False)
    _pages: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.known.sort()
        self._bytes = [0, *accumulate(size for size, _ in self.known)]
        self._pages = [0, *accumulate(pages for _, pages in self.known)]

    def pages(self, size: int) -> int:
        """By the bytes per page of the documents that are nearest in size; at least 1."""
        begin = max(0, min(bisect_left(self.known, (size, 0)) - _NEIGHBOURS // 2, len(self.known) - _NEIGHBOURS))
        end = min(begin + _NEIGHBOURS, len(self.known))
        some = self._bytes[end] - self._bytes[begin]
        per_byte = (self._pages[end] - self._pages[begin]) / some if some else 1 / _GUESS
        return max(1, round(size * per_byte))


class Estimator:
    """Judges documents by their size, from a sample that it opens; opens those that cannot be judged."""

    def __init__(self, counter: PageCounter, options: CountOptions) -> None:
        self._counter = counter
        self._options = options
        self._sizes: dict[str, Sizes] = {}
        self._sampled: dict[int, PlannedDocument] = {}  # by the documents' identity

    async def look(self, batch: Sequence[SourceDocument]) -> None:
        """Open a sample of each kind that was not met before, spread over the batch."""
        self._sampled.clear()
        for kind in dict.fromkeys(_kind(one) for one in batch if _can_be_judged(one)):
            if kind == IMAGE or kind in self._sizes:
                continue
            alike = [one for one in batch if _can_be_judged(one) and _kind(one) == kind]
            count = min(len(alike), self._options.sample)
            chosen = [alike[number * len(alike) // count] for number in range(count)]
            known: list[tuple[int, int]] = []
            opened = [one async for one in in_order(chosen, functools.partial(self._opened, known))]
            for document, made in zip(chosen, opened, strict=True):
                self._sampled[id(document)] = made
                self._counter.remember(made)
            self._sizes[kind] = Sizes(known)

    async def _opened(self, known: list[tuple[int, int]], document: SourceDocument) -> PlannedDocument:
        try:
            document = await self._counter.located(document)
        except PageFailure as failure:
            return self._counter.failed(document, document.version, failure.reason, failure.detail)
        made = await self._counter.one(document)
        if made.page_total:
            known.append((document.size or 0, made.page_total))
        return made

    def at_once(self, document: SourceDocument) -> PlannedDocument | None:
        """The document, if nothing need be read for that."""
        if sampled := self._sampled.pop(id(document), None):
            return sampled
        if (told := self._counter.at_once(document)) is not None:
            return told
        if not _can_be_judged(document) or document.size is None or not document.version:
            return None
        return self._judged(document, document.version)

    async def one(self, document: SourceDocument) -> PlannedDocument:
        """The document, read as far as it must be."""
        if not _can_be_judged(document):
            return await self._counter.one(document)
        try:
            document = await self._counter.located(document)
            version = await self._counter.version(document)
        except PageFailure as failure:
            return self._counter.failed(document, document.version, failure.reason, failure.detail)
        return (self._judged(document, version) if version else None) or await self._counter.one(document)

    def _judged(self, document: SourceDocument, version: str) -> PlannedDocument | None:
        """None: it must be opened, because it may be too long for one unit."""
        known = self._counter.total(version)
        if known:
            return self._counter.counted(document, version, known)
        kind = _kind(document)
        total = 1 if kind == IMAGE else self._sizes[kind].pages(document.size or 0)
        planned = self._counter.estimated(document, version, total)
        short = known == 0 or planned.estimate <= self._options.pages_per_unit
        return planned if short else None


async def counted(
    documents: Iterable[SourceDocument], counter: PageCounter, options: CountOptions = CountOptions()
) -> AsyncGenerator[PlannedDocument, None]:
    """One planned document for each, in their order; what cannot be opened is planned as failed.

    The same documents give the same estimates. In memory are `options.exact_up_to` documents.
    """
    estimator = Estimator(counter, options)
    estimating = options.mode == "estimate"
    async for batch in _batches(documents, options.exact_up_to + 1):
        estimating = estimating or (options.mode == "auto" and len(batch) > options.exact_up_to)
        if estimating:
            await estimator.look(batch)
        by = estimator if estimating else counter
        async for document in in_order(batch, by.one, by.at_once):
            yield document


async def _batches(items: Iterable[T], size: int) -> AsyncIterator[list[T]]:
    iterator = await asyncio.to_thread(iter, items)
    while batch := await asyncio.to_thread(lambda: list(islice(iterator, size))):
        yield batch


def _can_be_judged(document: SourceDocument) -> bool:
    """Not what is on web servers: their documents have a version only when they are fetched."""
    if document.reason is not None or document.page_total is not None:
        return False
    return document.size is not None or (is_remote(document.source) and not is_web(document.source))


def _kind(document: SourceDocument) -> str:
    """Kinds of documents whose pages are of different size; all but `image` have any number of pages."""
    if document.kind == IMAGE and (suffix := suffix_of(document.source)) in _TIFF:
        return suffix
    return document.kind
