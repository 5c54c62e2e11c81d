"""From settings to filters over documents that are planned."""

import asyncio
from contextlib import AsyncExitStack

from llm_ocr.api.remote import Remote
from llm_ocr.documents.file_types import IMAGE
from llm_ocr.documents.filters import FilterOptions, LeftOut
from llm_ocr.documents.filters.languages import Languages
from llm_ocr.documents.filters.looking import Filters
from llm_ocr.documents.remote.urls import shown
from llm_ocr.documents.rendering import Renderer
from llm_ocr.documents.sources import SourceDocument
from llm_ocr.errors import PageFailure
from llm_ocr.settings.groups import FilterSettings
from llm_ocr.settings.models import PlanSettings
from llm_ocr.work.filtered_lists import KnownFiltered
from llm_ocr.work.generations import generations
from llm_ocr.work.planned import PlannedDocument
from llm_ocr.work.workspace import Workspace


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

    def said(self) -> str:
        """What could not be looked at, in words; empty for nothing."""
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
