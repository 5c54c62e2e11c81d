"""Run a command: open the workspace, start the engine, plan, and run the stages."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

from llm_ocr.config.groups import HYBRID, SERVER, VLLM, RaySettings
from llm_ocr.config.models import (
    CleanSettings,
    DescribeSettings,
    FieldsSettings,
    InputCommand,
    PipelineCommand,
    PlanSettings,
    ReadingCommand,
    RepairSettings,
    ServingCommand,
)
from llm_ocr.documents.rendering import Renderer
from llm_ocr.documents.sources import Found
from llm_ocr.errors import StageMissing, StorageError, install_command
from llm_ocr.plugins import ENGINES
from llm_ocr.results.field_schema import load_schema, read_schema
from llm_ocr.runs import Run
from llm_ocr.stages import Progress, Silent
from llm_ocr.stages.assemble import assemble
from llm_ocr.stages.clean import clean
from llm_ocr.stages.describe import describe
from llm_ocr.stages.engine_choice import choose_engine
from llm_ocr.stages.extract import extract, warming_up
from llm_ocr.stages.fields import fields
from llm_ocr.stages.job import Job, Stage, log_folder, without_servers, worker_name
from llm_ocr.stages.limits import Limits, check_limits
from llm_ocr.stages.loop import run_blocking
from llm_ocr.stages.model_choice import instructed_model, model_choice, with_served_model
from llm_ocr.stages.plan import find, need_plan, plan
from llm_ocr.stages.recording import Recorded, Tally
from llm_ocr.stages.rendering import Remote, passwords, render_options
from llm_ocr.stages.retry import finish_repair, give_up, plan_repair, retry_failed
from llm_ocr.stages.servers import Engines
from llm_ocr.stages.sharing import describe_options
from llm_ocr.types import plural
from llm_ocr.workspace import Workspace
from llm_ocr.workspace.status import Worked
from llm_ocr.workspace.stored import remember_plan, workspace_options

__all__ = ["execute"]


#: Description of each engine in the first line of a run.
_ABOUT = {
    "embedded": "embedded (text layer and OCR on the CPU)",
    "vllm": "vLLM on {whose} GPUs",
    "server": "running servers",
}


def execute(command: str, settings: PipelineCommand, progress: Progress | None = None) -> Run:
    """Run a command: plan, extract, describe, assemble, fields, run, retry-failed, repair, or clean.

    Args:
        command: The name of the command.
        settings: Its settings.
        progress: Receives the progress. By default none is shown.

    Returns:
        The results of the workspace.

    Raises:
        LlmOcrError: The work cannot be done. A page that fails is a row with a reason, and no error.
    """
    check_limits(settings)
    # Errors of the settings are raised before anything is written.
    engine = ""
    gives_up = isinstance(settings, RepairSettings) and settings.give_up
    if isinstance(settings, PlanSettings | DescribeSettings | FieldsSettings | RepairSettings) and not gives_up:
        engine = choose_engine(settings, command=command)
    if isinstance(settings, FieldsSettings):
        read_schema(load_schema(settings.fields_schema))
        instructed_model(settings, engine)
    if isinstance(settings, ReadingCommand) and engine in (VLLM, SERVER) and settings.ray is None:
        model_choice(settings)
    return run_blocking(lambda: _execute(command, settings, engine, progress or Silent()))


def options_of_describe(settings: PipelineCommand) -> str:
    """Return the settings that a command needs to continue Describe; see `describe_options`."""
    with Workspace.open(settings.workspace, options=workspace_options(settings)) as workspace:
        return describe_options(workspace)


async def _execute(command: str, settings: PipelineCommand, engine: str, progress: Progress) -> Run:
    settings = await with_served_model(settings, engine, progress.say)
    serving = settings if isinstance(settings, ServingCommand) and engine else None  # giving up needs no engine
    # The workers of a cluster run the engines and record their costs.
    on_ray = isinstance(serving, RaySettings) and serving.ray is not None
    planning = settings if isinstance(settings, PlanSettings) else None  # only these commands may create a workspace
    found = await find(planning, command) if planning else None  # before the workspace is created
    dataset = None  # of the predecessor, which the command imports
    if isinstance(settings, InputCommand) and settings.input is not None:
        from llm_ocr.compat.datasets import input_of

        dataset = await asyncio.to_thread(input_of, settings)
    if command == "run":  # after errors of the settings and the sources
        progress.say(f"Engine: {_about(engine, on_ray, hybrid=planning is not None and planning.engine == HYBRID)}")
    create = found is not None or dataset is not None
    with await asyncio.to_thread(
        Workspace.open, settings.workspace, create, options=workspace_options(settings)
    ) as workspace:
        worker = worker_name()
        engines = Engines(engine, settings, log_folder(workspace, worker), progress.say)
        async with contextlib.AsyncExitStack() as stack:
            recorded, worked = None, Worked()
            if serving is not None and not on_ray:
                recorded = Recorded(progress, workspace, worker, serving, worked)
            limits = Limits(settings, workspace, recorded, engines, worked)
            await limits.check()
            if not on_ray:  # the cluster's workers write their costs, but not every second
                await limits.show(progress)
            await stack.enter_async_context(limits.kept())  # entered first: everything else is closed before it raises
            stack.push_async_callback(engines.close)
            if recorded is not None:
                await stack.enter_async_context(recorded.kept())
            remote = Remote(settings)
            stack.push_async_callback(remote.close)
            progress = recorded or Tally(progress, worked)
            job: Job[Any] = Job(
                workspace, settings, progress, engines, remote, stop=limits.stop, command=command, worked=worked
            )
            if isinstance(serving, RaySettings) and on_ray:
                from llm_ocr.stages.ray import cluster

                job = replace(job, run=await stack.enter_async_context(cluster(serving)))
            if found is not None:
                job = await _planned(job, found, stack, on_ray=on_ray)
            elif planning is not None:
                await need_plan(workspace, command)
            if dataset is not None:
                from llm_ocr.compat.importing import take_over

                await take_over(job, dataset)
            await _run_stages(job, limits, on_ray=on_ray)
        if workspace.url.startswith("hf://"):  # the preview; the engine has ended, so no GPU waits for the upload
            from llm_ocr.compat.stage_dataset import show_pages

            await show_pages(job, command)
        await asyncio.to_thread(workspace.flush)
        engines.check_answers()
    return Run(workspace, worked)


async def _run_stages(job: Job[Any], limits: Limits, *, on_ray: bool) -> None:
    """Run the stages of a command, after planning. `run` ends before a stage that waits for units of other workers."""
    stages = _STAGES[job.command]
    if isinstance(job.settings, RepairSettings):
        if job.settings.give_up:
            stages = (give_up,)
        elif not await plan_repair(without_servers(job) if on_ray else job):  # no page to read
            stages = tuple(stage for stage in stages if stage is not extract)
    for stage in stages:
        async with (
            _still_exists(job.workspace),
            limits.stage(stage.__name__, job.progress, finishes=not on_ray, last=stage is stages[-1]),
        ):
            try:
                await job.run(stage, job)
            except StageMissing as missing:
                if job.command != "run" or not job.worked.held:
                    raise
                others = f"the worker that finishes last continues with {stage.__name__}"
                job.progress.say(f"{missing.args[0]}: {others}, and so does a later run")
                return


async def _planned(job: Job[Any], found: Found, stack: contextlib.AsyncExitStack, *, on_ray: bool) -> Job[Any]:
    """Plan the documents. Return the command with the renderer of planning, unless other machines read the pages."""
    workspace, settings, command = job.workspace, job.settings, job.command
    secrets = passwords(settings.password, settings.password_file)
    renderer = await stack.enter_async_context(Renderer(render_options(settings, secrets)))
    async with _still_exists(workspace), contextlib.nullcontext() if on_ray else warming_up(job, command):
        planned = await plan(job, found, renderer)
    if planned.generation is not None and planned.generation.number == 1:
        await asyncio.to_thread(remember_plan, workspace, command, settings, engine=job.engines.engine)
    if not on_ray:
        return replace(job, renderer=renderer)
    await renderer.close()
    return job


@contextlib.asynccontextmanager
async def _still_exists(workspace: Workspace) -> AsyncIterator[None]:
    """Check at the end of the block that the workspace still exists. Stores silently create deleted folders again."""
    try:
        yield
    except Exception:
        with contextlib.suppress(StorageError):
            await asyncio.to_thread(workspace.check_there)  # a missing workspace is the cause of the error
        raise
    await asyncio.to_thread(workspace.check_there)


def _about(engine: str, on_ray: bool, *, hybrid: bool) -> str:
    if hybrid:
        return f"hybrid (text layer and OCR on the CPU; some pages by {_about(engine, on_ray, hybrid=False)})"
    if engine == "embedded" and not on_ray and ENGINES.get(engine).missing():
        return f"embedded (text layer only: OCR is not installed; {install_command('embedded')})"
    return _ABOUT.get(engine, engine).format(whose="the cluster's" if on_ray else "this machine's")


async def _clean(job: Job[CleanSettings]) -> None:
    from llm_ocr.launch.library import kept_uploads

    settings, progress = job.settings, job.progress
    cleaned = await asyncio.to_thread(clean, job.workspace, older_than=settings.older_than, dry_run=settings.dry_run)
    verb = "would remove" if cleaned.dry_run else "removed"
    for leftover in cleaned.objects:
        progress.say(f"{verb} {leftover.key} ({leftover.size} bytes)")
    for line in await asyncio.to_thread(kept_uploads, job.workspace):
        progress.say(line)
    progress.say(f"{verb} {plural(len(cleaned.objects), 'file')}, {plural(cleaned.size, 'byte')}")


#: The stages of each command, after planning.
_STAGES: dict[str, tuple[Stage, ...]] = {
    "plan": (),
    "extract": (extract,),
    "describe": (describe,),
    "assemble": (assemble,),
    "fields": (fields,),
    "run": (extract, describe, assemble),
    "retry-failed": (retry_failed,),
    "repair": (extract, finish_repair),
    "clean": (_clean,),
}
