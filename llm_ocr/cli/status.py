"""llm-ocr status: reads a workspace, whatever failed in it."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from llm_ocr.cli.output import json_text, write_line
from llm_ocr.cli.report import advice, status_text
from llm_ocr.cli.worst import worst_text
from llm_ocr.settings.models import StatusSettings

if TYPE_CHECKING:
    from llm_ocr.costs.spent import Spent
    from llm_ocr.work.status import RunStatus

#: What is looked at: the status, and what jobs have cost.
Look = tuple["RunStatus", Sequence["Spent"]]

#: Seconds between two looks with --watch.
EVERY = 5.0


def run_status(command: str, settings: StatusSettings) -> int:
    """Print the status once, or until every page is accounted for; returns 0."""
    from llm_ocr.api import open as open_workspace

    def look() -> "Look":
        run = open_workspace(
            settings.workspace,
            profile=settings.workspace_profile,
            endpoint=settings.workspace_endpoint,
            region=settings.workspace_region,
        )
        status = run.status
        if settings.worst:
            # The status names some already, and counting once more takes its time.
            known = status.worst[: settings.worst]
            status = replace(status, worst=known if len(known) == settings.worst else run.worst(settings.worst))
        return status, run.spent

    watch(look, settings, time.sleep)
    return 0


def watch(look: Callable[[], "Look"], settings: StatusSettings, sleep: Callable[[float], object]) -> None:
    """Print what `look` finds; with --watch again whenever it has changed, until no page is missing."""
    shown = ""
    while True:
        status, spent = look()
        text = status_as_text(status, settings, spent)
        if text != shown:
            write_line(text)
            shown = text
        if not settings.watch or _accounted(status):
            return
        sleep(EVERY)


def status_as_text(status: "RunStatus", settings: StatusSettings, spent: Sequence["Spent"] = ()) -> str:
    """JSON for programs (one line while watching), a table for people."""
    if settings.json_output:
        from llm_ocr.costs.spent import spent_to_json

        values = status.to_json() | {"spent": spent_to_json(spent), "advice": advice(status) or None}
        return json_text(values, indent=None if settings.watch else 2)
    text = status_text(status, spent)
    return f"{text}\n{worst_text(status.worst, settings.worst)}" if settings.worst else text


def _accounted(status: "RunStatus") -> bool:
    """A plan may be of no page, where filters left all out; and pages that are estimated may be more than that."""
    pages = status.pages
    counted = status.generations > 0 and not status.estimated
    return counted and pages.expected == pages.ok + pages.degraded + pages.failed
