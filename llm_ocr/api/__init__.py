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


def open(url: str) -> Run:
    """Any workspace, read-only. Raises `WorkspaceError` when there is none."""
    return Run(Workspace.open(str(url)))


def execute(command: str, settings: Any, progress: Progress | None = None) -> Run:
    """Carry out plan, extract, describe, assemble, run, retry-failed or clean with the settings of that command.

    Raises `LlmOcrError` for what could not be done; pages that failed are rows, never errors.
    """
    shown = progress or Silent()
    if command in ("run", "plan", "extract", "describe"):
        choose_engine(settings, command=command)  # before anything is written
    return run_blocking(lambda: _execute(command, settings, shown))


async def _execute(command: str, settings: Any, progress: Progress) -> Run:
    if command == "run":
        progress.say("Engine: embedded (text layer and OCR on the CPU)")
    make = command in _MAKE
    found = await find(settings, command) if make else None  # wrong usage leaves no workspace behind
    remember = to_remember(settings, engine=choose_engine(settings, command=command)) if make else None
    create = found is not None
    workspace = await asyncio.to_thread(Workspace.open, str(settings.workspace), create, settings=remember)
    if found is not None:
        await plan(workspace, settings, found, progress)
    elif make:
        await need_plan(workspace, command)
    await _COMMANDS[command](workspace, settings, command, progress)
    return Run(workspace)


async def _plan(workspace: Workspace, settings: Any, command: str, progress: Progress) -> None:
    """The plan stands already: sources are planned before any command."""


async def _run(workspace: Workspace, settings: Any, command: str, progress: Progress) -> None:
    await extract(workspace, settings, command, progress)
    await describe(workspace, settings, command, progress)
    await assemble(workspace, settings, progress)


async def _assemble(workspace: Workspace, settings: Any, command: str, progress: Progress) -> None:
    await assemble(workspace, settings, progress)


async def _retry(workspace: Workspace, settings: Any, command: str, progress: Progress) -> None:
    await retry_failed(workspace, settings, progress)


async def _clean(workspace: Workspace, settings: Any, command: str, progress: Progress) -> None:
    cleaned = await asyncio.to_thread(clean, workspace, older_than=settings.older_than, dry_run=settings.dry_run)
    verb = "would remove" if cleaned.dry_run else "removed"
    for leftover in cleaned.objects:
        progress.say(f"{verb} {leftover.key} ({leftover.size} bytes)")
    progress.say(f"{verb} {len(cleaned.objects)} files, {cleaned.size} bytes")


_COMMANDS: dict[str, Callable[[Workspace, Any, str, Progress], Awaitable[None]]] = {
    "plan": _plan,
    "extract": extract,
    "describe": describe,
    "assemble": _assemble,
    "run": _run,
    "retry-failed": _retry,
    "clean": _clean,
}
