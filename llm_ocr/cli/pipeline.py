"""Commands that work on a workspace: run, plan, extract, describe, assemble, fields, retry-failed, repair, clean."""

import importlib.util
import posixpath
import shlex
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, TextIO
from urllib.parse import quote

from llm_ocr.cli import outcome
from llm_ocr.cli.output import as_flags, with_flags, write, write_line
from llm_ocr.cli.progress import NOUNS, shown_progress
from llm_ocr.cli.progress import outcome as shown_outcome
from llm_ocr.config.fields import command_models, settings_of
from llm_ocr.config.groups import OutcomeSettings
from llm_ocr.config.models import (
    AssemblyCommand,
    FieldsSettings,
    PipelineCommand,
    PlanOnlySettings,
    PlanSettings,
    RepairSettings,
    RetrySettings,
    RunSettings,
)
from llm_ocr.errors import install_command
from llm_ocr.stages import Silent
from llm_ocr.types import Counts, plural

if TYPE_CHECKING:
    from llm_ocr.runs import Run
    from llm_ocr.workspace.status import RunStatus


#: Next command after each command.
_NEXT = {"plan": "extract", "retry-failed": "run", "repair": "run", "extract": "describe", "describe": "assemble"}
#: Settings that the next command needs as well, because a workspace stores neither servers nor access to documents.
_REPEATED = (
    *("server_url", "server_key_file"),
    *("source_profile", "source_endpoint", "source_region", "allow_private_addresses"),
)


def run_stage(command: str, settings: PipelineCommand) -> int:
    """Run a command and print its outcome; return the exit code."""
    if isinstance(settings, PlanOnlySettings) and settings.dry_run:
        from llm_ocr.stages.plan import preview

        with shown_progress(settings) as progress:
            found = preview(settings, progress)
        for line in outcome.preview_lines(found):
            write_line(line)
        return 0
    if isinstance(settings, RunSettings) and settings.without_folder:
        with tempfile.TemporaryDirectory(prefix="llm-ocr-") as folder:
            return _execute(command, settings.model_copy(update={"workspace": folder}), kept=False)
    return _execute(command, settings)


def _execute(command: str, settings: PipelineCommand, *, kept: bool = True) -> int:
    """Run a command in a workspace that is `kept` afterwards or not, and print its outcome; return the exit code."""
    from llm_ocr.stages.execute import execute

    if command == "clean":
        removals = Removals(quiet=settings.quiet)
        execute(command, settings, removals)
        write_line(removals.last or "Nothing to remove")
        return 0
    with shown_progress(settings) as progress:
        run = execute(command, settings, progress)
    out = sys.stdout
    if isinstance(settings, RunSettings) and settings.stdout:
        out = sys.stderr
        figures = _print_documents(run, settings, kept=kept)
        if figures and not kept and not settings.quiet:
            write_line(f"{plural(figures, 'figure')} left out: add -w FOLDER to keep them", sys.stderr)
    return finish(command, settings, run, out, kept=kept)


def finish(command: str, settings: PipelineCommand, run: "Run", out: TextIO, *, kept: bool = True) -> int:
    """Write the closing lines of a command; return its exit code. Only a `kept` workspace is named in them."""
    if not isinstance(settings, OutcomeSettings):  # plan and retry-failed
        planned = run.status
        extract = planned.stages["extract"]
        text = f"{plural(extract.total - extract.done, 'unit')} to read"
        figures = planned.figures.expected - planned.figures.ended if command == "retry-failed" else 0
        if command == "plan":
            text = outcome.plan_line(planned)
        elif figures and planned.stages["describe"].key:
            text += ", and figures to describe again"
            if extract.finished:
                text += f". {_next('describe', settings)}"
        write_line(text if extract.finished else f"{text}. {_next(_NEXT[command], settings)}", out)
        return 0
    status = run.known_status
    if not settings.quiet and kept:
        repaired = status if isinstance(settings, RepairSettings) else None
        if repaired is not None and repaired.repairs and run.processed.get("extract"):
            write_line(str(repaired.repairs[-1]), out)
        assembled = repaired is not None and repaired.stages["assemble"].finished
        if command == "run" and "extract" in run.processed and "assemble" not in run.processed:
            lines = []  # the progress has said that other workers still read or describe
        elif isinstance(settings, AssemblyCommand) or (isinstance(settings, RepairSettings) and assembled):
            lines = _results(settings, status)
        elif isinstance(settings, FieldsSettings):
            workspace = shlex.quote(settings.workspace)
            lines = [f"Next: llm-ocr export -w {workspace} --format fields --output FOLDER"]
        elif repaired is not None and any(
            stage.key and not stage.finished for name, stage in repaired.stages.items() if name != "assemble"
        ):
            lines = []  # the progress has named the commands that do the rest
        else:
            unfinished = status is not None and command in status.stages and not status.stages[command].finished
            lines = [_next(command if unfinished else _NEXT[command], settings)]
        for line in lines:
            write_line(line, out)
    if status is None:  # one of many workers, which knows what it has done itself
        own = run.processed.get("extract" if command == "run" else command, Counts())
        named = f"{plural(own.expected, NOUNS.get(command, 'page'))}, {shown_outcome(own)}"
        everything = f"llm-ocr status -w {shlex.quote(settings.workspace)}"
        write_line(f"This worker: {named}. All workers: {everything}", out)
        return outcome.exit_code(own, settings.max_failed_rate)
    reached = _repeated("retry-failed", settings)
    line, code = outcome.ending(
        command, status, settings.max_failed_rate, settings.workspace if kept else None, reached
    )
    write_line(line, out)
    return code


class Removals(Silent):
    """Output of `clean`: the objects that were, or would be, removed. `last` is their sum, once it is known."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self.last = ""

    def say(self, message: str) -> None:
        if self.last and not self._quiet:
            write_line(self.last)
        self.last = message


def _results(settings: AssemblyCommand | RepairSettings, status: "RunStatus | None") -> list[str]:
    """Return the lines on the figures, the location of the results, and the way to open them."""
    workspace = settings.workspace
    lines = [outcome.figures_line(status, workspace)] if status and status.figures.expected else []
    result = f"Result: {workspace}/documents (Markdown), {workspace}/dataset"
    if not outcome.is_folder(workspace):
        return [*lines, f"{result} (one row per page)", f"Open the dataset: {outcome.load_line(settings)}"]
    if importlib.util.find_spec("datasets") is None:
        return [*lines, f"{result} (Parquet files; for load_dataset: {install_command('datasets')})"]
    return [*lines, f"{result} (open with load_dataset)"]


def _repeated(command: str, settings: PipelineCommand) -> str:
    """Return the flags of these settings that another command needs as well."""
    following = settings_of(command_models()[command])
    return as_flags(settings, [name for name in _REPEATED if name in type(settings).model_fields and name in following])


def _next(command: str, settings: PipelineCommand) -> str:
    """Return the line with the command that follows; it repeats what a workspace does not store."""
    following, named = settings_of(command_models()[command]), _repeated(command, settings)
    planned = settings if isinstance(settings, PlanSettings | RetrySettings) and "password_file" in following else None
    if planned is not None and (planned.password or planned.password_file):
        file = shlex.quote(str(planned.password_file)) if planned.password_file else "FILE"
        named += f" --password-file {file} (passwords are not stored)"
    if command == "describe":
        from llm_ocr.stages.execute import options_of_describe

        options = with_flags(options_of_describe(settings))
        named = (options.replace(" --server-url URL", "") if "--server-url" in named else options) + named
    return f"Next: llm-ocr {command} -w {shlex.quote(settings.workspace)}{named}"


def _print_documents(run: "Run", settings: RunSettings, *, kept: bool) -> int:
    """Print the documents of the sources, or all documents of a dataset; return the number of their figures.

    Links to figures lead from the working directory to a kept workspace. Otherwise the figure's name replaces them.
    """
    from llm_ocr.documents.remote import shown
    from llm_ocr.documents.sources import find_documents
    from llm_ocr.results.markdown import IMAGE, map_prose

    sources: Sequence[str] = () if settings.dataset is not None else settings.sources
    named = {shown(document.source) for document in find_documents(sources).documents} if sources else None
    figures = 0
    documents = (document for document in run.documents() if named is None or document.source in named)
    for number, document in enumerate(documents):
        folder = posixpath.dirname(document.path)
        if outcome.is_folder(settings.workspace):
            folder = quote(posixpath.relpath(posixpath.join(settings.workspace, folder)))
        else:
            folder = f"{settings.workspace.rstrip('/')}/{quote(folder)}"
        replaced = rf"![\g<alt>]({folder}/\g<target>)" if kept else r"[\g<alt>]"
        figures += len(IMAGE.findall(document.markdown))
        text = map_prose(document.markdown, partial(IMAGE.sub, replaced))
        write(("\n" if number else "") + (text if text.endswith("\n") else text + "\n"))
    return figures
