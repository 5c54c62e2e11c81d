"""Jobs of a launcher from their submission to their end."""

from collections.abc import Sequence

from llm_ocr.launch import Job, JobSpec, JobStatus, Launcher
from llm_ocr.launch.watching import Display, until_over


def submitted(launcher: Launcher, spec: JobSpec) -> Job:
    """Check the plan of one job and submit it."""
    (job,) = all_submitted(launcher, spec)
    return job


def all_submitted(launcher: Launcher, spec: JobSpec) -> list[Job]:
    """Check the plan of a spec and submit its jobs."""
    plan = launcher.plan(spec)
    launcher.check(plan)
    return list(launcher.submit(plan))


def over(launcher: Launcher, jobs: Sequence[Job]) -> list[JobStatus]:
    """Watch jobs until all have ended."""
    return list(until_over(launcher, jobs, Display(print), "extract", every=0.05))


def ended(launcher: Launcher, job: Job) -> JobStatus:
    """Watch one job until it has ended."""
    (status,) = over(launcher, [job])
    return status
