"""`retry-failed` over a workspace."""

import asyncio
from dataclasses import replace

from llm_ocr.api.counting import PageCounter
from llm_ocr.api.engines import PAGES_PER_UNIT
from llm_ocr.api.job import Job
from llm_ocr.api.planning import RESULT_VERSIONS
from llm_ocr.api.wiring import passwords, render_options
from llm_ocr.documents.rendering import Renderer
from llm_ocr.documents.sources import SourceDocument
from llm_ocr.results.page_status import failed_pages, scored_pages
from llm_ocr.settings.models import RetrySettings
from llm_ocr.types import DocumentPart
from llm_ocr.work.keys import EXTRACT, need_same_version, required_key
from llm_ocr.work.planned import PlannedDocument
from llm_ocr.work.retry import Below, plan_retry
from llm_ocr.work.wanted import wanted_pages


async def retry_failed(job: Job[RetrySettings]) -> None:
    """Plan the pages that are failed now, or of low quality, once more, in a new generation.

    Raises:
        WorkspaceMismatch: the pages were extracted by a version whose results differ from this one's.
    """
    workspace, settings, progress = job.workspace, job.settings, job.progress
    key = await asyncio.to_thread(required_key, workspace, EXTRACT)
    await asyncio.to_thread(need_same_version, workspace, RESULT_VERSIONS)
    secrets = passwords(settings.password, settings.password_file)
    async with Renderer(render_options(settings, secrets)) as renderer:
        counter = PageCounter(renderer, job.remote)

        async def reopen(part: DocumentPart) -> PlannedDocument:
            document = await counter.one(_source(part))
            return replace(document, pages=wanted_pages(part.wanted, document.page_total))

        generation = await plan_retry(
            workspace,
            key,
            failed_rows=failed_pages,
            reopen=reopen,
            pages_per_unit=PAGES_PER_UNIT[settings.engine],
            below=None if settings.below_quality is None else Below(settings.below_quality, scored_pages),
        )
    if generation is None:
        low = "" if settings.below_quality is None else f", none has a quality below {settings.below_quality:g}"
        progress.say(f"Nothing to retry: no page is failed{low}, or its document still cannot be opened.")
    else:
        progress.say(f"Generation {generation.number}: {generation.expected} pages to be read again")


def _source(part: DocumentPart) -> SourceDocument:
    return SourceDocument(part.source, part.relative, "", "", None, None)
