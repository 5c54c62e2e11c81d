"""Submissions that are over: how they ended is recorded once, by whoever sees it first."""

import time
from collections.abc import Sequence

from llm_ocr.launch import JobStatus
from llm_ocr.launch.bill import bill
from llm_ocr.launch.platforms import launcher_for
from llm_ocr.launch.records import Submission, write_end, write_jobs
from llm_ocr.work.workspace import Workspace

#: Seconds from a decision in which its jobs may still be on their way: of several hundred, one after another.
_SENT = 600.0


def close(workspace: Workspace, submission: Submission, statuses: Sequence[JobStatus]) -> None:
    """Record the end of a submission whose jobs are over."""
    write_end(workspace, submission.spec, statuses, bill(submission.platform, submission.spec, statuses))
    workspace.flush()


def closed(workspace: Workspace, submission: Submission) -> bool:
    """Whether a submission is over; if it is, and nobody has recorded it yet, its end is recorded.

    One that was decided a while ago and of which the platform knows nothing is over, too: whoever decided it died
    before it was sent. Raises `LaunchError` when the platform cannot be asked.
    """
    if submission.over:
        return True
    launcher = launcher_for(submission.platform)
    jobs = submission.jobs
    if jobs is None:
        jobs = tuple(launcher.find(submission.spec))
        if not jobs and time.time() - submission.decided < _SENT:
            return False
        if not jobs:
            write_end(workspace, submission.spec, (), {})
            workspace.flush()
            return True
        write_jobs(workspace, submission.spec, jobs)
    statuses = launcher.status(jobs)
    if not all(one.state.over for one in statuses):
        return False
    close(workspace, submission, statuses)
    return True
