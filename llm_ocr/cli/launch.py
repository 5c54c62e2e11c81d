"""llm-ocr launch and llm-ocr jobs: stages as jobs on rented machines."""

import shlex
import sys
import time
from dataclasses import asdict

from llm_ocr.cli import outcome
from llm_ocr.cli.output import aligned, harmless, one_line, write, write_json, write_line
from llm_ocr.config.environment import environment
from llm_ocr.config.models import JobsSettings, LaunchSettings
from llm_ocr.errors import UsageError
from llm_ocr.types import plural


def run_launch(command: str, settings: LaunchSettings) -> int:
    """Show the plan, submit the jobs, or submit and wait; return the exit code."""
    from llm_ocr.launch.launching import begin, plans

    if settings.dry_run:
        write_json([plan.to_json() for plan in plans(settings)])
        return 0
    if settings.stage == "pipeline" and not settings.wait and not settings.detach:
        raise UsageError(
            "a pipeline needs a process that waits for each stage",
            hint="Add --wait to wait on this machine, or --detach to wait in a CPU job on the platform. Or launch each "
            "stage after the one before it.",
        )
    shown = not settings.quiet and sys.stderr.isatty() and environment().get("TERM") != "dumb"
    launch = begin(
        settings, lambda line: None if settings.quiet else write_line(line, sys.stderr), sys.stderr if shown else None
    )
    if not settings.wait:
        jobs = launch.detach() if settings.detach else launch.submit()
        write_line(f"{plural(len(jobs), 'job')} submitted. Watch: llm-ocr jobs -w {shlex.quote(settings.workspace)}")
        return 0
    launch.wait()

    from llm_ocr.workspace import Workspace
    from llm_ocr.workspace.status import run_status
    from llm_ocr.workspace.stored import workspace_options

    with Workspace.open(settings.workspace, options=workspace_options(settings)) as opened:
        status = run_status(opened)
    line, code = outcome.ending(settings.stage, status, settings.max_failed_rate, settings.workspace)
    write_line(line)
    return code


def run_jobs(command: str, settings: JobsSettings) -> int:
    """List jobs, show a log, cancel, or clean; return 0."""
    from llm_ocr.launch.library import kept_uploads, remove_wheels
    from llm_ocr.launch.watching import launched_jobs
    from llm_ocr.workspace import Workspace
    from llm_ocr.workspace.stored import workspace_options

    options = workspace_options(settings)
    with Workspace.open(settings.workspace, options=options) as workspace:
        found = launched_jobs(workspace)
    chosen = [launched for launched in found if settings.job in (None, launched.job.id, launched.job.name)]
    if settings.job is not None and not chosen:
        hint = f"Its jobs: {', '.join(launched.job.id for launched in found)}" if found else "It has no jobs."
        raise UsageError(f"{settings.workspace} has no job {settings.job}", hint=hint)
    running = [launched for launched in chosen if not launched.status.state.over]
    if settings.action == "cancel":
        for launched in running:
            launched.launcher.cancel(launched.job)
            write_line(f"Canceled {launched.job.id}")
        if not running:
            write_line("No job is running.")
    elif settings.action == "clean":
        if running:
            ids = ", ".join(launched.job.id for launched in running)
            raise UsageError(f"still running: {ids}", hint="Wait for these jobs, or: llm-ocr jobs cancel")
        lines: list[str] = []
        for platform in dict.fromkeys(launched.platform for launched in chosen):
            own = [launched for launched in chosen if launched.platform == platform]
            lines += own[0].launcher.clean([launched.job for launched in own])
        lines = lines or ["Nothing to remove on the platforms."]
        for line in lines:
            write_line(line)
        if settings.job is None:  # no job runs that could still need its wheel
            with Workspace.open(settings.workspace, options=options) as workspace:
                for line in [*remove_wheels(workspace), *kept_uploads(workspace)]:
                    write_line(line)
                workspace.flush()
    elif settings.action == "list" and settings.json_output:
        write_json(
            [{"platform": launched.platform, "stage": launched.stage, **asdict(launched.status)} for launched in chosen]
        )
    elif not chosen:
        write_line("This workspace has no jobs.")
    elif settings.action == "logs":
        newest = chosen[-1]
        for line in newest.launcher.logs(newest.job, follow=settings.follow, tail=settings.tail):
            write(harmless(line) + "\n")
    else:
        rows = [("platform", "stage", "state", "time", "job", "")]
        for launched in chosen:
            status, job = launched.status, launched.job
            ran = "" if status.started is None else f"{((status.ended or time.time()) - status.started) / 60:.0f} min"
            rows.append((launched.platform, launched.stage, status.state.value, ran, job.id, status.reason or job.url))
        for line in aligned(rows):
            write_line(one_line(line).rstrip())
    return 0
