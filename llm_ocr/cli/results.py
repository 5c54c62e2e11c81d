"""Commands over finished results: status, export, and estimate."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from llm_ocr.cli.outcome import advice, status_text, worst_text
from llm_ocr.cli.output import complain, json_text, write, write_json, write_line
from llm_ocr.cli.progress import progress_for
from llm_ocr.config.models import EstimateSettings, ExportSettings, StatusSettings
from llm_ocr.types import plural

if TYPE_CHECKING:
    from llm_ocr.costs.report import Spent
    from llm_ocr.workspace.status import RunStatus


#: Snapshot of a workspace: the status, and the costs of jobs.
Look = tuple["RunStatus", Sequence["Spent"]]

#: Seconds between two snapshots with --watch.
EVERY = 5.0


def run_status(command: str, settings: StatusSettings) -> int:
    """Print the status once, or until no page is missing; return 0."""
    from llm_ocr.runs import open as open_workspace

    def look() -> "Look":
        run = open_workspace(
            settings.workspace,
            profile=settings.workspace_profile,
            endpoint=settings.workspace_endpoint,
            region=settings.workspace_region,
        )
        status = run.status
        if settings.worst:
            # The status already contains weak pages (20 at most), and a second count takes time.
            known = status.worst[: settings.worst]
            status = replace(status, worst=known if len(known) == settings.worst else run.worst(settings.worst))
        return status, run.spent

    watch(look, settings, time.sleep)
    return 0


def watch(look: Callable[[], "Look"], settings: StatusSettings, sleep: Callable[[float], object]) -> None:
    """Print the result of `look`; with --watch, again after each change, until no page is missing."""
    shown = ""
    while True:
        status, spent = look()
        text = status_as_text(status, settings, spent)
        if text != shown:
            if settings.json_output:
                write(text + "\n")
            else:
                write_line(text)
            shown = text
        # A plan may have no page after filters; estimated pages may exceed the plan.
        pages, counted = status.pages, status.generations > 0 and not status.estimated
        if not settings.watch or (counted and pages.expected == pages.ok + pages.degraded + pages.failed):
            return
        sleep(EVERY)


def status_as_text(status: "RunStatus", settings: StatusSettings, spent: Sequence["Spent"] = ()) -> str:
    """Return JSON for programs (one line while watching), or a table for people."""
    if settings.json_output:
        from llm_ocr.costs.report import spent_to_json

        values = status.to_json() | {"spent": spent_to_json(spent), "advice": advice(status) or None}
        return json_text(values, indent=None if settings.watch else 2)
    text = status_text(status, spent)
    return f"{text}\n{worst_text(status.worst, settings.worst)}" if settings.worst else text


def run_export(command: str, settings: ExportSettings) -> int:
    """Write the results, and print their location and the way to open them; return 0."""
    from llm_ocr.exporting import export

    progress = progress_for(settings)
    try:
        done = export(settings, progress)
    finally:
        progress.close()
    rows, files = plural(done.rows, done.unit.removesuffix("s")), plural(done.files, "file")
    write_line(f"{rows} in {files} ({done.size / 1e6:,.1f} MB, {done.written:,} newly written): {done.url}")
    if done.dropped:
        documents = plural(done.dropped, "document")
        write_line(f"{documents} left out because of too many failed pages: {done.url}/dropped-documents.jsonl")
    if done.left_out:
        write_line(f"{plural(done.left_out, 'page')} left out, which are not balanced")
    write_line(f"Open it: {done.load}")
    if done.failed:
        complain(f"{plural(done.failed, 'document')} failed: {done.url}/failed-documents.jsonl has the reasons")
        return 3
    return 0


def run_estimate(command: str, settings: EstimateSettings) -> int:
    """Print the table, or JSON; return 0."""
    from llm_ocr.estimating import compared

    progress = progress_for(settings)
    try:
        found = compared(settings, progress)
    finally:
        progress.close()
    if settings.json_output:
        write_json(found.to_json())
        return 0
    cost = found.options[0].cost if len(found.options) == 1 and not found.stage else None
    if cost is None:
        write_line(str(found if settings.all_options else found.best(5)))
        return 0
    from llm_ocr.costs.comparison import money_text

    ins = f"{settings.tokens_in or 0:,} tokens in at ${settings.price_in or 0:g}"
    outs = f"{settings.tokens_out or 0:,} out at ${settings.price_out or 0:g}"
    write_line(f"{money_text(cost.likely)} for {ins} and {outs} per million")
    return 0
