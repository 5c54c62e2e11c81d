"""From settings to finished work: what the command line and the Python API both call."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from llm_ocr.api.assembling import assemble
from llm_ocr.api.describing import describe
from llm_ocr.api.extracting import extract
from llm_ocr.api.loop import run_blocking
from llm_ocr.api.planning import find, need_plan, plan
from llm_ocr.api.retrying import retry_failed
from llm_ocr.api.run import Run
from llm_ocr.api.wiring import choose_engine
from llm_ocr.stages import Progress, Silent
from llm_ocr.work.clean import clean
from llm_ocr.work.stored import to_remember
from llm_ocr.work.workspace import Workspace

__all__ = ["Run", "execute", "open"]

#: Commands that may make a workspace.
_MAKE = frozenset({"run", "plan", "extract"})
#: Commands that need an engine.
_ENGINE = frozenset({"run", "plan", "extract", "describe"})


def open(url: str) -> Run:
    """Any workspace, read-only. Raises `WorkspaceError` when there is none."""
    return Run(Workspace.open(str(url)))


def execute(command: str, settings: Any, progress: Progress | None = None) -> Run:
    """Carry out plan, extract, describe, assemble, run, retry-failed or clean with the settings of that command.

    Raises `LlmOcrError` for what could not be done; pages that failed are rows, never errors.
    """
    engine = choose_engine(settings, command=command) if command in _ENGINE else ""  # before anything is written
    return run_blocking(lambda: _execute(command, settings, engine, progress or Silent()))


async def _execute(command: str, settings: Any, engine: str, progress: Progress) -> Run:
    if command == "run":
        progress.say(f"Engine: {engine} (text layer and OCR on the CPU)")
    make = command in _MAKE
    found = await find(settings, command) if make else None  # wrong usage leaves no workspace behind
    remember = to_remember(settings, engine=engine) if make else None
    create = found is not None
    workspace = await asyncio.to_thread(Workspace.open, str(settings.workspace), create, settings=remember)
    if found is not None:
        await plan(workspace, settings, found, progress)
    elif make:
        await need_plan(workspace, command)
    for stage in _STAGES[command]:
        await stage(workspace, settings, progress)
    return Run(workspace)


async def _clean(workspace: Workspace, settings: Any, progress: Progress) -> None:
    cleaned = await asyncio.to_thread(clean, workspace, older_than=settings.older_than, dry_run=settings.dry_run)
    verb = "would remove" if cleaned.dry_run else "removed"
    for leftover in cleaned.objects:
        progress.say(f"{verb} {leftover.key} ({leftover.size} bytes)")
    progress.say(f"{verb} {len(cleaned.objects)} files, {cleaned.size} bytes")


#: What each command does when the plan stands.
_STAGES: dict[str, tuple[Callable[[Workspace, Any, Progress], Awaitable[None]], ...]] = {
    "plan": (),
    "extract": (extract,),
    "describe": (describe,),
    "assemble": (assemble,),
    "run": (extract, describe, assemble),
    "retry-failed": (retry_failed,),
    "clean": (_clean,),
}
