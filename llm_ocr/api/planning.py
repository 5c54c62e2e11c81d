"""Planning over a workspace: documents found, opened in renderer processes to count their pages, cut into units."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable, Mapping
from pathlib import Path

from llm_ocr.api.threads import stepwise
from llm_ocr.api.wiring import EMBEDDED_PAGES_PER_UNIT, passwords, render_options
from llm_ocr.documents.page_ranges import PageRanges, parse_pages
from llm_ocr.documents.rendering import Renderer
from llm_ocr.documents.sources import Found, SourceDocument, find_documents, version_of
from llm_ocr.errors import PageFailure, StageMissing, UsageError, WorkspaceError, WorkspaceMismatch
from llm_ocr.settings.models import PlanSettings, RunSettings
from llm_ocr.stages import Progress
from llm_ocr.types import Reason
from llm_ocr.work.generations import generations, read_units
from llm_ocr.work.plan import PlannedDocument, PlanResult, plan_stream
from llm_ocr.work.workspace import Workspace

#: Documents opened ahead of the one that is planned next.
_AHEAD = 16
_NAME_SOURCES = "Name files or folders: llm-ocr run SOURCE -w FOLDER"


async def find(settings: PlanSettings | RunSettings, command: str) -> Found | None:
    """The documents that the sources mean; None without sources, when those of an earlier run are meant.

    Writes nothing. Raises `UsageError` for nothing to do and for wrong page ranges.
    """
    if settings.pages:
        parse_pages(settings.pages)
    if settings.sources:
        return await asyncio.to_thread(
            find_documents, settings.sources, only=settings.only, max_samples=settings.max_samples
        )
    if command != "extract":
        await asyncio.to_thread(_need_workspace, str(settings.workspace))
    return None


def _need_workspace(url: str) -> None:
    try:
        Workspace.open(url)
    except WorkspaceMismatch:
        raise
    except WorkspaceError as error:
        raise UsageError(f"no source, and {error.args[0]}", hint=_NAME_SOURCES) from error


async def plan(workspace: Workspace, settings: PlanSettings | RunSettings, found: Found, progress: Progress) -> None:
    """Add the documents to the plan. Says what was new."""
    ranges = parse_pages(settings.pages) if settings.pages else None
    secrets = passwords(settings.password, settings.password_file)
    async with Renderer(render_options(settings, secrets)) as renderer:
        totals = await asyncio.to_thread(_known_totals, workspace)
        counter = PageCounter(renderer, ranges, settings.max_pages_per_document, totals)
        result = await plan_stream(
            workspace,
            counter.all(found.documents),
            pages_per_unit=settings.pages_per_unit or EMBEDDED_PAGES_PER_UNIT,
            skipped=found.skipped,
        )
    _tell(result, dict(found.skipped), progress)


async def need_plan(workspace: Workspace, command: str) -> None:
    """Raise `StageMissing`, or `UsageError` where the command names sources by itself, unless there is a plan."""
    if await asyncio.to_thread(generations, workspace):
        return
    if command != "extract":
        raise UsageError("no source and no plan", hint=_NAME_SOURCES)
    raise StageMissing(
        f"no plan in {workspace.url}", hint=f"Name the sources: llm-ocr extract SOURCE -w {workspace.url}"
    )


def _tell(result: PlanResult, skipped: dict[str, int], progress: Progress) -> None:
    if skipped:
        kinds = ", ".join(f"{count} {suffix or 'without suffix'}" for suffix, count in sorted(skipped.items()))
        progress.say(f"Skipped files of other types: {kinds}")
    if result.copies:
        progress.say(f"{result.copies} documents are copies of others: read once, written under each path")
    if result.differing:
        named = ", ".join(result.examples)
        progress.say(
            f"{result.differing} documents are in the plan with other content or pages and stay as planned: {named}"
        )


def _known_totals(workspace: Workspace) -> dict[str, int]:
    """How many pages the documents of the plan have, by version: the same content is not opened again to be counted."""
    if not generations(workspace):
        return {}
    return {part.version: part.page_total for unit in read_units(workspace) for part in unit.parts if part.page_total}


class PageCounter:
    """Opens documents, some at a time, and gives them in their order with their pages selected.

    `totals` are numbers of pages by version, of documents that need not be opened.
    """

    def __init__(
        self,
        renderer: Renderer,
        ranges: PageRanges | None = None,
        most_pages: int | None = None,
        totals: Mapping[str, int] | None = None,
    ) -> None:
        self._renderer = renderer
        self._ranges = ranges
        self._most_pages = most_pages
        self._totals = totals or {}

    async def all(self, documents: Iterable[SourceDocument]) -> AsyncIterator[PlannedDocument]:
        """One planned document for each, in order; what cannot be opened is planned as failed."""
        waiting: deque[asyncio.Task[PlannedDocument]] = deque()
        try:
            async for document in stepwise(documents):
                waiting.append(asyncio.create_task(self.one(document)))
                if len(waiting) > _AHEAD:
                    yield await waiting.popleft()
            while waiting:
                yield await waiting.popleft()
        finally:
            for task in waiting:
                task.cancel()

    async def one(self, document: SourceDocument) -> PlannedDocument:
        """Open one document and select its pages."""
        if document.reason is not None:
            return _planned(document, "", (), 0, document.reason, document.detail)
        version = ""
        try:
            version = document.version or await asyncio.to_thread(_version, document.source)
            total = self._totals.get(version) or await self._renderer.open(document.source, document.kind)
        except PageFailure as failure:
            return _planned(document, version, (), 0, failure.reason, failure.detail)
        pages = document.pages if document.pages is not None else tuple(range(1, total + 1))
        if self._ranges is not None:
            chosen = set(self._ranges.select(total))
            pages = tuple(page for page in pages if page in chosen)
        return _planned(document, version, tuple(sorted(set(pages)))[: self._most_pages], total)


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
    pages: tuple[int, ...],
    total: int,
    reason: Reason | None = None,
    detail: str = "",
) -> PlannedDocument:
    return PlannedDocument(
        source=document.source,
        relative=document.relative,
        version=version,
        document_id=document.document_id,
        pages=pages,
        page_total=total,
        reason=reason,
        detail=detail,
    )
