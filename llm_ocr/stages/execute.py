"""Run a command: open the workspace, start the engine, plan, and run the stages."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

from llm_ocr.compat.datasets import input_of
from llm_ocr.compat.importing import take_over
from llm_ocr.compat.stage_dataset import show_pages
from llm_ocr.config.models import (
    CleanSettings,
    DescribeSettings,
    PipelineCommand,
    PlanSettings,
    RetrySettings,
    ServingCommand,
)
from llm_ocr.documents.rendering import Renderer
from llm_ocr.documents.sources import SourceDocument
from llm_ocr.engines.embedded.ocr.models import available
from llm_ocr.errors import StorageError, install_command
from llm_ocr.results.schema import failed_pages, scored_pages
from llm_ocr.runs import Run
from llm_ocr.stages import Progress, Silent
from llm_ocr.stages.assemble import assemble
from llm_ocr.stages.clean import clean
from llm_ocr.stages.counting import PageCounter
from llm_ocr.stages.describe import describe
from llm_ocr.stages.extract import extract, warming_up
from llm_ocr.stages.limits import Limits, check_limits
from llm_ocr.stages.loop import run_blocking
from llm_ocr.stages.plan import RESULT_VERSIONS, find, need_plan, plan
from llm_ocr.stages.ray import Stage, cluster
from llm_ocr.stages.recording import Recorded
from llm_ocr.stages.runtime import Job, Remote, log_folder, passwords, render_options, worker_name
from llm_ocr.stages.servers import PAGES_PER_UNIT, Engines, choose_engine
from llm_ocr.types import DocumentPart
from llm_ocr.workspace import Workspace
from llm_ocr.workspace.keys import EXTRACT, need_same_version, required_key
from llm_ocr.workspace.planned import PlannedDocument, wanted_pages
from llm_ocr.workspace.retry import Below, plan_retry
from llm_ocr.workspace.stored import remember_plan, workspace_options

__all__ = ["execute"]


# `retry-failed` over a workspace.


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


# What `execute` does: the workspace opened, the engine made, the documents planned, the stages carried out.


def execute(command: str, settings: PipelineCommand, progress: Progress | None = None) -> Run:
    """Carry out plan, extract, describe, assemble, run, retry-failed or clean with the settings of that command.

    Raises `LlmOcrError` for what could not be done; pages that failed are rows, never errors.
    """
    check_limits(settings)
    # Before anything is written.
    engine = choose_engine(settings, command=command) if isinstance(settings, PlanSettings | DescribeSettings) else ""
    return run_blocking(lambda: _execute(command, settings, engine, progress or Silent()))


async def _execute(command: str, settings: PipelineCommand, engine: str, progress: Progress) -> Run:
    serving = settings if isinstance(settings, ServingCommand) else None
    on_ray = serving is not None and serving.ray is not None  # its workers ask the models, and record what they spend
    if command == "run":
        progress.say(f"Engine: {_about(engine, on_ray)}")
    planning = settings if isinstance(settings, PlanSettings) else None  # only these commands may make a workspace
    found = await find(planning, command) if planning else None  # wrong usage leaves no workspace behind
    begun_elsewhere = await asyncio.to_thread(input_of, settings)
    create = found is not None or begun_elsewhere is not None
    options = workspace_options(settings)
    workspace = await asyncio.to_thread(Workspace.open, settings.workspace, create, options=options)
    worker = worker_name()
    engines = Engines(engine, settings, log_folder(workspace, worker), progress.say)
    async with contextlib.AsyncExitStack() as stack:
        recorded = None
        if serving is not None and not on_ray:
            recorded = Recorded(progress, workspace, worker, serving)
        limits = Limits(settings, workspace, recorded, engines)
        await limits.check()
        if not on_ray:  # its workers write what they spend, but not by the second
            await limits.show(progress)
        await stack.enter_async_context(limits.kept())  # what is entered later has ended when it raises
        stack.push_async_callback(engines.close)
        if recorded is not None:
            await stack.enter_async_context(recorded.kept())
            progress = recorded
        remote = Remote(settings)
        stack.push_async_callback(remote.close)
        # The command's name decides which stages take the job: types cannot say that.
        job: Job[Any] = Job(workspace, settings, progress, engines, remote, stop=limits.stop, command=command)
        carry_out = await stack.enter_async_context(cluster(serving)) if serving and on_ray else _here
        if found is not None:
            async with _there(workspace), contextlib.nullcontext() if on_ray else warming_up(job, command):
                planned = await plan(job, found)
            if planned.generation is not None and planned.generation.number == 1:
                await asyncio.to_thread(remember_plan, workspace, command, settings, engine=engine)
        elif planning is not None:
            await need_plan(workspace, command)
        if begun_elsewhere is not None:
            await take_over(job, begun_elsewhere)
        for stage in (stages := _STAGES[command]):
            last = stage is stages[-1]
            async with _there(workspace), limits.stage(stage.__name__, progress, finishes=not on_ray, last=last):
                await carry_out(stage, job)
    await show_pages(job, command)  # the engine has ended, so no GPU waits for the upload
    await asyncio.to_thread(workspace.flush)
    return Run(workspace)


@contextlib.asynccontextmanager
async def _there(workspace: Workspace) -> AsyncIterator[None]:
    """What a block has read and written counts only if the workspace is still there: stores make folders again."""
    try:
        yield
    except Exception:
        with contextlib.suppress(StorageError):
            await asyncio.to_thread(workspace.check_there)  # else this is why the block has failed
        raise
    await asyncio.to_thread(workspace.check_there)


def _about(engine: str, on_ray: bool) -> str:
    if engine == "embedded" and not on_ray and not available():
        return f"embedded (text layer only: OCR is not installed; {install_command('embedded')})"
    return _ABOUT[engine].format(whose="the cluster's" if on_ray else "this machine's")


async def _here(stage: Stage, job: Job[Any]) -> None:
    await stage(job)


async def _clean(job: Job[CleanSettings]) -> None:
    settings, progress = job.settings, job.progress
    cleaned = await asyncio.to_thread(clean, job.workspace, older_than=settings.older_than, dry_run=settings.dry_run)
    verb = "would remove" if cleaned.dry_run else "removed"
    for leftover in cleaned.objects:
        progress.say(f"{verb} {leftover.key} ({leftover.size} bytes)")
    progress.say(f"{verb} {len(cleaned.objects)} files, {cleaned.size} bytes")


#: What each engine is, in the first line of a run.
_ABOUT = {
    "embedded": "embedded (text layer and OCR on the CPU)",
    "vllm": "vLLM on {whose} GPUs",
    "server": "running servers",
}

#: What each command does when the plan stands.
_STAGES: dict[str, tuple[Stage, ...]] = {
    "plan": (),
    "extract": (extract,),
    "describe": (describe,),
    "assemble": (assemble,),
    "run": (extract, describe, assemble),
    "retry-failed": (retry_failed,),
    "clean": (_clean,),
}
