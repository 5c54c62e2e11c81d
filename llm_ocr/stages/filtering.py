"""Filter documents while they are planned."""

import asyncio
from contextlib import AsyncExitStack

from llm_ocr.config.groups import FilterSettings
from llm_ocr.config.models import PlanSettings
from llm_ocr.documents.files import IMAGE
from llm_ocr.documents.filters import FilterOptions, Filters, Languages, LeftOut
from llm_ocr.documents.manifests import SourceDocument
from llm_ocr.documents.remote import shown
from llm_ocr.documents.rendering import Renderer
from llm_ocr.errors import PageFailure
from llm_ocr.stages.remote import Remote
from llm_ocr.workspace import Workspace
from llm_ocr.workspace.generations import generations
from llm_ocr.workspace.plan import KnownFiltered
from llm_ocr.workspace.planned import PlannedDocument


def filter_options(settings: FilterSettings) -> FilterOptions:
    """Return the filters that the settings turn on."""
    return FilterOptions(
        languages=tuple(sorted({code.lower() for code in settings.filter_language})),
        forms=settings.filter_forms,
        spam=settings.filter_spam,
        blank=settings.filter_blank,
    )


async def check_filters(settings: PlanSettings) -> None:
    """Check the filters.

    Raises:
        UsageError: A language is unknown.
        MissingExtra: Languages cannot be identified, because a package is not installed.
    """
    options = filter_options(settings)
    if options.languages:
        async with Languages(options.languages, confined=settings.confinement != "off") as languages:
            await languages.check()


class Filtering:
    """The filters of one planning. Documents that the same filters excluded before are not inspected again."""

    def __init__(self, filters: Filters, remote: Remote, known: KnownFiltered) -> None:
        self._filters = filters
        self._remote = remote
        self._known = known

    def known(self, document: PlannedDocument) -> str:
        """Return the cause for which a document with this content was excluded before; otherwise an empty string."""
        return self._known.cause(document.id, document.version)

    def message(self) -> str:
        """Return a message about documents that could not be checked; empty if there are none."""
        return self._filters.said()

    def filters_rows(self) -> bool:
        """Return whether images of datasets must be fetched. Only the filter of blank pages applies to them."""
        return self._filters.options.blank

    async def look(self, path: str, document: SourceDocument) -> tuple[int, LeftOut | None]:
        """Return the number of pages of a local document, and why it is excluded. Raises `PageFailure`."""
        return await self._filters.look(path, document.kind, shown(document.source))

    async def row(self, document: SourceDocument) -> LeftOut | None:
        """Return why a dataset's row is excluded; None if it is not.

        Images are fetched up to the first image that is not blank or cannot be fetched.
        """
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
    """Open the active filters until the stack closes; return None without filters."""
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
