"""llm-ocr launch: stages as jobs on rented machines."""

import sys

from llm_ocr.cli import report
from llm_ocr.cli.output import write_json, write_line
from llm_ocr.errors import UsageError
from llm_ocr.settings.environment import environment
from llm_ocr.settings.models import LaunchSettings


def run_launch(command: str, settings: LaunchSettings) -> int:
    """Show, submit, or submit and wait; returns the exit code."""
    from llm_ocr.launch.launching import begin, plans

    if settings.dry_run:
        write_json([plan.to_json() for plan in plans(settings)])
        return 0
    if settings.stage == "pipeline" and not settings.wait and not settings.detach:
        raise UsageError(
            "the stages of a pipeline follow one another: something must wait for each of them",
            hint="Add --wait, and this machine waits; or --detach, and a CPU job on the platform does. Or launch the "
            "stages one by one (describe and assemble with --follow).",
        )
    shown = not settings.quiet and sys.stderr.isatty() and environment().get("TERM") != "dumb"
    launch = begin(
        settings,
        lambda line: None if settings.quiet else write_line(line, sys.stderr),
        sys.stderr if shown else None,
    )
    workspace = report.quoted(settings.workspace)
    if not settings.wait:
        jobs = launch.detach() if settings.detach else launch.submit()
        write_line(f"{len(jobs)} {'job' if len(jobs) == 1 else 'jobs'} submitted. Watch: llm-ocr jobs -w {workspace}")
        return 0
    launch.wait()
    return _outcome(settings)


def _outcome(settings: LaunchSettings) -> int:
    """The closing line of the same stage here."""
    from llm_ocr.work.status import run_status
    from llm_ocr.work.stored import workspace_options
    from llm_ocr.work.workspace import Workspace

    with Workspace.open(settings.workspace, options=workspace_options(settings)) as workspace:
        status = run_status(workspace)
    if settings.stage == "describe":
        write_line(report.figures_line(status))
        return report.exit_code(status.figures, settings.max_failed_rate)
    write_line(report.last_line(status, settings.workspace))
    return report.exit_code(status.pages, settings.max_failed_rate)
