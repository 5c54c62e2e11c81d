"""The Extract stage over a workspace."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from llm_ocr.api.job import Job, Share
from llm_ocr.api.reading import page_model, page_profile, reading
from llm_ocr.api.sharing import Split, publish_held, shared, shows_all, split_of, take_without_units
from llm_ocr.api.threads import stepwise
from llm_ocr.api.wiring import PartRenderer, passwords, render_options
from llm_ocr.documents.remote.urls import shown
from llm_ocr.documents.rendering import Renderer
from llm_ocr.engines import PageReader
from llm_ocr.errors import PageFailure, UsageError
from llm_ocr.results.parquet import release_memory
from llm_ocr.results.schema import pages_to_parquet
from llm_ocr.settings.groups import LeaseSettings
from llm_ocr.settings.model_groups import ModelSettings, RequestSettings
from llm_ocr.settings.models import ReadingCommand
from llm_ocr.stages import Progress, Silent
from llm_ocr.stages.extract import Extract
from llm_ocr.stages.turns import Caps
from llm_ocr.types import Counts, DocumentPart, PageRecord, Reason, Unit
from llm_ocr.work.expected import Expected, expected_pages
from llm_ocr.work.free import free_units
from llm_ocr.work.generations import generations, units_of
from llm_ocr.work.keys import EXTRACT, Claim, Origin, newest_key
from llm_ocr.work.publish import done_units
from llm_ocr.work.stored import to_remember
from llm_ocr.work.summary import pages_summary
from llm_ocr.work.workspace import Workspace


async def extract(job: Job[ReadingCommand]) -> None:
    """Read the pages of this worker's units that have no marker yet."""
    workspace, settings, progress = job.workspace, job.settings, job.progress
    secrets = passwords(settings.password, settings.password_file)
    profile = page_profile(settings, job.engines)
    async with Renderer(render_options(settings, secrets, profile)) as renderer:
        pages = PartRenderer(renderer, job.remote)
        ready = await reading(job, renderer)
        try:
            origin = Origin(to_remember(settings, engine=job.engines.engine), job.command)
            claim = Claim(workspace, EXTRACT, identity(renderer, ready.reader, settings), origin)
            key = await asyncio.to_thread(claim.check)
            if not secrets:
                await _need_passwords(workspace, key, pages)
            split = await split_of(job, EXTRACT)
            expected = await asyncio.to_thread(_expected, job, split, key)
            progress.begin(EXTRACT, expected.pages, expected.done, *([True] if expected.estimated else []))
            async with shared(job, split, EXTRACT, key) as share:
                stage = Extract(
                    pages,
                    ready.reader,
                    _publisher(workspace, claim, share),
                    progress,
                    ready.admission,
                    caps_of(settings),
                    expected.estimated,
                    furniture=settings.headers == "keep",
                )
                units = stepwise(share.units, job.stop)
                await stage.run(units if expected.whole else _counted(units, progress))
            await asyncio.to_thread(take_without_units, workspace, claim)
        finally:
            await ready.reader.close()
    progress.end()


async def _need_passwords(workspace: Workspace, key: str, pages: PartRenderer) -> None:
    """Refuse to read encrypted documents without the passwords with which `retry-failed` has planned their pages.

    Raises:
        UsageError: such a document still needs its password, and none was given.
    """
    for part in await asyncio.to_thread(_once_encrypted, workspace, key):
        try:
            await pages.count(part)
        except PageFailure as failure:  # other reasons become the rows of its pages
            if failure.reason is Reason.ENCRYPTED:
                raise UsageError(
                    f"{shown(part.source)} was planned again with its password, which is stored nowhere",
                    hint="Repeat --password-file FILE as for retry-failed. With other passwords its pages fail.",
                ) from failure


def _once_encrypted(workspace: Workspace, key: str) -> list[DocumentPart]:
    """The parts of retries that are not done and stand for documents that could not be opened without a password."""
    found = [one for one in generations(workspace) if any(Reason.ENCRYPTED in why for why in one.replaced.values())]
    done = done_units(workspace, EXTRACT, key) if found else set()
    return [
        part
        for one in found
        for unit in units_of(workspace, one)
        if unit.id not in done and Reason.ENCRYPTED in one.replaced.get(unit.id, {})
        for part in unit.parts
    ]


@contextlib.asynccontextmanager
async def warming_up(job: Job[ReadingCommand], command: str) -> AsyncIterator[None]:
    """Start the model's servers while the block plans the documents, when it is sure that there is something to read.

    What would keep them from starting is raised before the block; at its end where a plan stands already, since what is
    left of that is looked for beside the block.
    """
    if command == "plan" or not job.engines.uses_models:
        yield
        return
    found = await asyncio.to_thread(generations, job.workspace)
    if not found:
        await _warm_up(job)
        yield
        return
    sure = asyncio.Event()
    going_on = asyncio.create_task(_go_on(job, sure))
    try:
        yield
        if sure.is_set():
            await going_on
    finally:
        going_on.cancel()  # Extract finds out by itself
        await asyncio.gather(going_on, return_exceptions=True)


async def _go_on(job: Job[ReadingCommand], sure: asyncio.Event) -> None:
    """A plan stands: units may be done already, or in other hands."""
    key = await asyncio.to_thread(newest_key, job.workspace, EXTRACT)
    split = await split_of(replace(job, progress=Silent()), EXTRACT)
    if await asyncio.to_thread(free_units, job.workspace, EXTRACT, key, split.shard):
        sure.set()
        await _warm_up(job)


async def _warm_up(job: Job[ReadingCommand]) -> None:
    model = await page_model(job.settings, job.engines, job.workspace)
    fleet = await job.engines.fleet(model.profile, model=model.name, revision=model.revision)
    await job.engines.check()
    fleet.begin()


def identity(renderer: Renderer, reader: PageReader, settings: ModelSettings) -> Mapping[str, Any]:
    """What Extract's key is made of."""
    about = {"reader": dict(reader.identity()), "render": dict(renderer.identity())}
    return about if settings.headers == "drop" else {**about, "headers": settings.headers}


def caps_of(settings: RequestSettings) -> Caps:
    """What the user allows at once."""
    return Caps(settings.workers, settings.max_concurrent_documents, settings.max_page_concurrency)


def _expected(job: Job[LeaseSettings], split: Split, key: str) -> Expected:
    if shows_all(job, split, EXTRACT):
        return expected_pages(job.workspace, key, split.shard)
    return Expected(0, Counts(), whole=False)


async def _counted(units: AsyncIterator[Unit], progress: Progress) -> AsyncIterator[Unit]:
    """The units, whose pages are expected from now on."""
    async for unit in units:
        progress.correct(unit.planned, exact=True)
        yield unit


def _publisher(
    workspace: Workspace, claim: Claim, share: Share
) -> Callable[[Unit, Sequence[PageRecord]], Awaitable[None]]:
    encoding = asyncio.Lock()  # each takes several times its images' size in memory

    async def publish_unit(unit: Unit, pages: Sequence[PageRecord]) -> None:
        async with encoding:
            data = await asyncio.to_thread(pages_to_parquet, pages)
            await asyncio.to_thread(release_memory)
        summary = pages_summary(unit, pages)
        await asyncio.to_thread(publish_held, share, workspace, claim, unit.id, data, summary)

    return publish_unit
