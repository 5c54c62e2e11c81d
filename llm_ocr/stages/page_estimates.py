"""Estimate page counts: a sample of the documents is opened, and the others are estimated from their size.

An estimate only determines how the plan is divided and which progress is shown. A document is counted when it is read.
"""

import asyncio
import functools
from bisect import bisect_left
from collections.abc import AsyncGenerator, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, islice
from typing import Literal

from llm_ocr.documents.files import IMAGE
from llm_ocr.documents.manifests import SourceDocument
from llm_ocr.documents.remote import is_remote, is_web, suffix_of
from llm_ocr.errors import PageFailure
from llm_ocr.stages.counting import PageCounter, in_order
from llm_ocr.workspace.planned import PlannedDocument

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


@dataclass(slots=True)
class Sizes:
    """Pages of documents of one kind by size, for estimates."""

    known: list[tuple[int, int]]  # size in bytes, pages
    _bytes: list[int] = field(init=False)
    _pages: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.known.sort()
        self._bytes = [0, *accumulate(size for size, _ in self.known)]
        self._pages = [0, *accumulate(pages for _, pages in self.known)]

    def pages(self, size: int) -> int:
        """Return the pages by the mean bytes per page of the documents of nearest size; at least 1."""
        begin = max(0, min(bisect_left(self.known, (size, 0)) - _NEIGHBOURS // 2, len(self.known) - _NEIGHBOURS))
        end = min(begin + _NEIGHBOURS, len(self.known))
        some = self._bytes[end] - self._bytes[begin]
        per_byte = (self._pages[end] - self._pages[begin]) / some if some else 1 / _GUESS
        return max(1, round(size * per_byte))


class Estimator:
    """Estimates page counts from a sample that it opens. Opens documents that cannot be estimated."""

    def __init__(self, counter: PageCounter, options: CountOptions) -> None:
        self._counter = counter
        self._options = options
        self._sizes: dict[str, Sizes] = {}
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
        """Return the document if nothing must be read."""
        if sampled := self._sampled.pop(id(document), None):
            return sampled
        if (listed := self._counter.at_once(document)) is not None:
            return listed
        if not _can_be_estimated(document) or document.size is None or not document.version:
            return None
        return self._estimated(document, document.version)

    async def one(self, document: SourceDocument) -> PlannedDocument:
        """Return the document; read only if necessary."""
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
        total = 1 if kind == IMAGE else self._sizes[kind].pages(document.size or 0)
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
        by = estimator if estimating else counter
        async for document in in_order(batch, by.one, by.at_once):
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
