"""`retry-failed` over a workspace."""

import asyncio

from llm_ocr.api.planning import PageCounter
from llm_ocr.api.wiring import EMBEDDED_PAGES_PER_UNIT, passwords, render_options
from llm_ocr.documents.rendering import Renderer
from llm_ocr.documents.sources import SourceDocument
from llm_ocr.results.schema import failed_pages
from llm_ocr.settings.models import RetrySettings
from llm_ocr.stages import Progress
from llm_ocr.types import DocumentPart
from llm_ocr.work.keys import EXTRACT, required_key
from llm_ocr.work.plan import PlannedDocument
from llm_ocr.work.retry import plan_retry
from llm_ocr.work.workspace import Workspace


async def retry_failed(workspace: Workspace, settings: RetrySettings, progress: Progress) -> None:
    """Plan the pages that are failed now once more, in a new generation."""
    key = await asyncio.to_thread(required_key, workspace, EXTRACT)
    secrets = passwords(settings.password, settings.password_file)
    async with Renderer(render_options(settings, secrets)) as renderer:
        counter = PageCounter(renderer)

        async def reopen(part: DocumentPart) -> PlannedDocument:
            return await counter.one(_source(part))

        generation = await plan_retry(
            workspace, key, failed_rows=failed_pages, reopen=reopen, pages_per_unit=EMBEDDED_PAGES_PER_UNIT
        )
    if generation is None:
        progress.say("Nothing to retry: no page is failed, or its document still cannot be opened.")
    else:
        progress.say(f"Generation {generation.number}: {generation.expected} pages to be read again")


def _source(part: DocumentPart) -> SourceDocument:
    return SourceDocument(part.source, part.relative, "", "", None, None)
