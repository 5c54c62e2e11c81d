"""All jobs that were launched on a workspace, and where each of them is."""

from collections.abc import Sequence
from dataclasses import dataclass

from llm_ocr.launch import Job, JobStatus, Launcher
from llm_ocr.launch.closing import closed
from llm_ocr.launch.platforms import launcher_for
from llm_ocr.launch.records import submissions
from llm_ocr.work.workspace import Workspace


@dataclass(frozen=True, slots=True)
class Launched:
    """One job, where it runs, and its state now."""

    platform: str
    stage: str
    launcher: Launcher
    job: Job
    status: JobStatus


def launched_jobs(workspace: Workspace) -> Sequence[Launched]:
    """The oldest first; ends that nobody has recorded yet are recorded. Raises `LaunchError` of a platform."""
    found = []
    for one in submissions(workspace):
        if not one.over:
            closed(workspace, one)
    for one in submissions(workspace):
        launcher = launcher_for(one.platform)
        jobs = one.jobs or ()
        for job, status in zip(jobs, launcher.status(jobs) if jobs else (), strict=True):
            found.append(Launched(one.platform, one.spec.stage, launcher, job, status))
    return found
