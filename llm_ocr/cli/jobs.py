"""llm-ocr jobs: what was launched on a workspace, wherever it runs."""

import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from llm_ocr.cli.output import one_line, write_json, write_line
from llm_ocr.errors import UsageError
from llm_ocr.settings.models import JobsSettings

if TYPE_CHECKING:
    from llm_ocr.launch.watching import LaunchedJob


def run_jobs(command: str, settings: JobsSettings) -> int:
    """List jobs, show a log, cancel or clean; returns 0."""
    from llm_ocr.launch.watching import launched_jobs
    from llm_ocr.work.stored import workspace_options
    from llm_ocr.work.workspace import Workspace

    with Workspace.open(settings.workspace, options=workspace_options(settings)) as workspace:
        found = launched_jobs(workspace)
    chosen = [one for one in found if settings.job in (None, one.job.id, one.job.name)]
    if settings.job is not None and not chosen:
        raise UsageError(f"no job {settings.job} was launched on {settings.workspace}", hint=_there(found))
    _ACTIONS[settings.action](settings, chosen)
    return 0


def _list(settings: JobsSettings, found: Sequence["LaunchedJob"]) -> None:
    if settings.json_output:
        values = [{"platform": one.platform, "stage": one.stage, **asdict(one.status)} for one in found]
        write_json(values)
        return
    if not found:
        write_line("No jobs were launched on this workspace.")
        return
    rows = [("platform", "stage", "state", "time", "job", ""), *(_row(one) for one in found)]
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    for row in rows:
        cells = [f"{cell:<{width}}" for cell, width in zip(row, widths, strict=False)]
        write_line(one_line("  ".join([*cells, row[5]])).rstrip())


def _row(one: "LaunchedJob") -> tuple[str, ...]:
    status = one.status
    ran = "" if status.started is None else f"{((status.ended or time.time()) - status.started) / 60:.0f} min"
    return one.platform, one.stage, status.state.value, ran, one.job.id, status.reason or one.job.url


def _logs(settings: JobsSettings, found: Sequence["LaunchedJob"]) -> None:
    if not found:
        write_line("No jobs were launched on this workspace.")
        return
    one = found[-1]
    for line in one.launcher.logs(one.job, follow=settings.follow, tail=settings.tail):
        write_line(line)


def _cancel(settings: JobsSettings, found: Sequence["LaunchedJob"]) -> None:
    running = [one for one in found if not one.status.state.over]
    for one in running:
        one.launcher.cancel(one.job)
        write_line(f"cancelled {one.job.id}")
    if not running:
        write_line("No job was under way.")


def _clean(settings: JobsSettings, found: Sequence["LaunchedJob"]) -> None:
    running = [one.job.id for one in found if not one.status.state.over]
    if running:
        raise UsageError(f"jobs are under way: {', '.join(running)}", hint="Wait for them, or: llm-ocr jobs cancel")
    lines: list[str] = []
    for platform in dict.fromkeys(one.platform for one in found):
        own = [one for one in found if one.platform == platform]
        lines += own[0].launcher.clean([one.job for one in own])
    for line in lines or ["Nothing was left on the platforms."]:
        write_line(line)


_ACTIONS = {"list": _list, "logs": _logs, "cancel": _cancel, "clean": _clean}


def _there(found: Sequence["LaunchedJob"]) -> str:
    return f"There are: {', '.join(one.job.id for one in found)}" if found else "None was launched on it."
