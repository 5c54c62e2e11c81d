"""Commands that work on a workspace: run, plan, extract, describe, assemble, retry-failed, clean."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

from llm_ocr.cli import outcome
from llm_ocr.cli.output import write, write_line
from llm_ocr.cli.progress import QuietProgress, progress_for
from llm_ocr.config.groups import OutcomeSettings
from llm_ocr.config.models import (
    AssemblyCommand,
    ExtractSettings,
    PipelineCommand,
    PlanOnlySettings,
    PlanSettings,
    RetrySettings,
    RunSettings,
)

if TYPE_CHECKING:
    from llm_ocr.runs import Run
    from llm_ocr.workspace.status import RunStatus


#: Next command after each command.
_NEXT = {"plan": "extract", "retry-failed": "run", "extract": "describe", "describe": "assemble"}


def run_stage(command: str, settings: PipelineCommand) -> int:
    """Run a command and print its outcome; return the exit code."""
    if isinstance(settings, PlanOnlySettings) and settings.dry_run:
        return _preview(settings)
    from llm_ocr.stages.execute import execute

    progress = Removals(quiet=settings.quiet) if command == "clean" else progress_for(settings)
    try:
        run = execute(command, settings, progress)
    finally:
        progress.close()
    if isinstance(progress, Removals):
        progress.finish()
        return 0
    to_stdout = False
    if isinstance(settings, RunSettings) and settings.stdout:
        to_stdout = True
        _print_documents(run, settings.sources if settings.dataset is None else ())
    return finish(command, settings, run, sys.stderr if to_stdout else sys.stdout)


def _preview(settings: PlanOnlySettings) -> int:
    """Print the documents and pages that a plan would contain."""
    from llm_ocr.stages.plan import preview

    progress = progress_for(settings)
    try:
        found = preview(settings, progress)
    finally:
        progress.close()
    for line in outcome.preview_lines(found):
        write_line(line)
    return 0


def finish(command: str, settings: PipelineCommand, run: "Run", out: TextIO) -> int:
    """Write the closing lines of a command; return its exit code."""
    status = run.status
    if not isinstance(settings, OutcomeSettings):  # plan and retry-failed
        text = outcome.plan_line(status) if command == "plan" else outcome.retry_line(status)
        done = status.stages["extract"].finished
        write_line(text if done else f"{text}. {_next(command, settings)}", out)
        return 0
    if not settings.quiet:
        for line in _results(command, settings, status):
            write_line(line, out)
    if command == "describe":
        write_line(outcome.figures_line(status), out)
        return outcome.exit_code(status.figures, settings.max_failed_rate)
    write_line(outcome.last_line(status, settings.workspace), out)
    return outcome.exit_code(status.pages, settings.max_failed_rate)


class Removals(QuietProgress):
    """Output of `clean`: the objects that were, or would be, removed, and their sum."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._last = ""

    def say(self, message: str) -> None:
        if self._last and not self._quiet:
            write_line(self._last)
        self._last = message

    def finish(self) -> None:
        """Write the last line."""
        write_line(self._last or "Nothing to remove")


def _results(command: str, settings: PipelineCommand, status: "RunStatus") -> list[str]:
    if isinstance(settings, AssemblyCommand):
        workspace = settings.workspace
        how = "open with load_dataset" if outcome.is_folder(workspace) else "one row per page"
        result = [f"Result: {workspace}/documents (Markdown), {workspace}/dataset ({how})"]
        if not outcome.is_folder(workspace):
            result.append(f"Open the dataset: {outcome.load_line(settings)}")
        return [outcome.figures_line(status), *result] if status.figures.expected else result
    return [_next(command, settings)]


def _next(command: str, settings: PipelineCommand) -> str:
    servers = settings.server_url if isinstance(settings, ExtractSettings) else ()  # a workspace does not store servers
    named = "".join(f" --server-url {outcome.quoted(url)}" for url in servers)
    planned = settings if isinstance(settings, PlanSettings | RetrySettings) and command != "extract" else None
    if planned is not None and (planned.password or planned.password_file):  # nor passwords
        file = outcome.quoted(str(planned.password_file)) if planned.password_file else "FILE"
        named += f" --password-file {file} (passwords are not stored)"
    return f"Next: llm-ocr {_NEXT[command]} -w {outcome.quoted(settings.workspace)}{named}"


def _print_documents(run: "Run", sources: Sequence[str]) -> None:
    """Print the documents of the sources; without sources, all documents of the workspace."""
    from llm_ocr.documents.remote.urls import shown
    from llm_ocr.documents.sources import find_documents

    named = {shown(document.source) for document in find_documents(sources).documents} if sources else None
    texts = [one.markdown for one in run.documents() if named is None or one.source in named]
    for number, text in enumerate(texts):
        write(("\n" if number else "") + (text if text.endswith("\n") else text + "\n"))
