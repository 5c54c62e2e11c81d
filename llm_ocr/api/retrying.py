"""`retry-failed` over a workspace."""

import asyncio
from dataclasses import replace

from llm_ocr.api.counting import PageCounter
from llm_ocr.api.engines import PAGES_PER_UNIT
from llm_ocr.api.job import Job
from llm_ocr.api.wiring import passwords, render_options
from llm_ocr.documents.rendering import Renderer
from llm_ocr.documents.sources import SourceDocument
from llm_ocr.engines.embedded import reader as embedded
from llm_ocr.engines.model import reader as model
from llm_ocr.engines.model.page_reading import SOURCE
from llm_ocr.errors import WorkspaceMismatch
from llm_ocr.results.page_status import failed_pages, scored_pages
from llm_ocr.types import DocumentPart
from llm_ocr.work.keys import EXTRACT, key_settings, required_key
from llm_ocr.work.planned import PlannedDocument
from llm_ocr.work.retry import Below, plan_retry
from llm_ocr.work.wanted import wanted_pages
from llm_ocr.work.workspace import Workspace

#: What the readers of pages make now, by the engine that is stored with Extract's key.
_RESULT_VERSIONS = {"embedded": embedded.RESULT_VERSION, SOURCE: model.RESULT_VERSION}


async def retry_failed(job: Job) -> None:
    """Plan the pages that are failed now, or of low quality, once more, in a new generation.

    Raises:
        WorkspaceMismatch: the pages were extracted by a version whose results differ from this one's.
    """
    workspace, settings, progress = job.workspace, job.settings, job.progress
    key = await asyncio.to_thread(required_key, workspace, EXTRACT)
    await asyncio.to_thread(_need_same_version, workspace, key)
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


def _need_same_version(workspace: Workspace, key: str) -> None:
    """Extract would refuse the new generation, and the stages after it would wait for pages that nothing reads."""
    reader = key_settings(workspace, EXTRACT, key).get("reader", {})
    stored, here = reader.get("result_version"), _RESULT_VERSIONS.get(reader.get("engine", ""))
    if stored is not None and here is not None and stored != here:
        raise WorkspaceMismatch(
            f"{workspace.url} was extracted by another version of llm-ocr (result version {stored}, this one makes "
            f"{here}): its pages cannot be read again, for two versions would be mixed",
            hint="Use the version that extracted it, or extract into another workspace (-w). Its finished pages stay: "
            "describe, assemble, and export work with them.",
        )


def _source(part: DocumentPart) -> SourceDocument:
    return SourceDocument(part.source, part.relative, "", "", None, None)
