"""Until jobs are over: one look at all of them at a time, and what has changed is said."""

import time
from collections import Counter
from collections.abc import Callable, Sequence

from llm_ocr.errors import LaunchError
from llm_ocr.launch import Job, JobStatus, Launcher, State

#: Seconds between two looks at the platform.
EVERY = 15.0
#: Looks in a row that may fail: networks and platforms have bad minutes.
_MAY_FAIL = 20

Say = Callable[[str], None]


def until_over(
    launcher: Launcher, jobs: Sequence[Job], say: Say, stage: str, *, every: float = EVERY
) -> Sequence[JobStatus]:
    """Every job's last status, when all are over. Raises `LaunchError` when the platform cannot be asked for long."""
    shown, failed = "", 0
    while True:
        try:
            statuses = launcher.status(jobs)
            failed = 0
        except LaunchError as error:
            failed += 1
            if failed >= _MAY_FAIL:
                raise
            say(f"{stage}: {error.args[0]}; asking again")
            time.sleep(every)
            continue
        line = summary(stage, statuses)
        if line != shown:
            say(line)
            shown = line
        if all(one.state.over for one in statuses):
            return statuses
        time.sleep(every)


def summary(stage: str, statuses: Sequence[JobStatus]) -> str:
    """`extract: 3 jobs: 1 running, 2 queued`."""
    counts = Counter(one.state for one in statuses)
    states = ", ".join(f"{counts[state]} {state.value}" for state in State if counts[state])
    return f"{stage}: {len(statuses)} {'job' if len(statuses) == 1 else 'jobs'}: {states}"


def reasons(statuses: Sequence[JobStatus]) -> str:
    """Why jobs ended badly, each reason once, with the names of the first few jobs; "" when none did."""
    found: dict[str, list[str]] = {}
    for one in statuses:
        if one.state is not State.SUCCEEDED:
            found.setdefault(one.reason or one.state.value, []).append(one.job.name)
    return "; ".join(
        f"{reason} ({', '.join(names[:3])}{', ...' if names[3:] else ''})" for reason, names in found.items()
    )
