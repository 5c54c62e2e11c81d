"""What became of a Beaker experiment: of each replica its newest job counts."""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from llm_ocr.launch import Job, JobStatus, State

_LATE = re.compile(r"time(d )?\s*out|time limit", re.IGNORECASE)
#: Of `canceledCode`: taken away by the scheduler, or by a person for something more urgent.
_PREEMPTED = (1, 2)
#: Of several replicas the first of these that one is in; nothing is over while one is not.
_ORDER = (
    *(State.RUNNING, State.QUEUED, State.FAILED, State.TIMED_OUT),
    *(State.PREEMPTED, State.CANCELLED, State.SUCCEEDED),
)


def experiment_status(job: Job, experiment: Mapping[str, Any]) -> JobStatus:
    """The status of all replicas as one."""
    ones = _newest(experiment.get("jobs") or ())
    if not ones:
        return JobStatus(job, State.QUEUED)
    found = [_replica(one) for one in ones]
    state = next(state for state in _ORDER if any(one is state for one, _ in found))
    reasons = dict.fromkeys(why for one, why in found if why and one.over) if state.over else {}
    starts = [_moment(one, "started") for one in ones]
    ends = [_moment(one, "exited", "failed", "canceled", "finalized") for one in ones]
    times = [end - start for start, end in zip(starts, ends, strict=True) if start and end]
    return JobStatus(
        job,
        state,
        "; ".join(reasons),
        min((one for one in starts if one), default=None),
        max((one for one in ends if one), default=None) if state.over else None,
        sum(times) if state.over else None,
    )


def _newest(jobs: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    newest: dict[Any, Mapping[str, Any]] = {}
    for one in sorted(jobs, key=lambda one: str(one.get("status", {}).get("created", ""))):
        newest[(one.get("execution") or {}).get("replicaRank")] = one.get("status", {})
    return list(newest.values())


def _replica(status: Mapping[str, Any]) -> tuple[State, str]:
    words = str(status.get("canceledFor") or status.get("message") or "")
    code = status.get("exitCode")
    if _moment(status, "canceled"):
        if status.get("canceledCode") in _PREEMPTED:
            return State.PREEMPTED, words or "preempted"
        return (State.TIMED_OUT if _LATE.search(words) else State.CANCELLED), words or "cancelled"
    if _moment(status, "failed") or (code is not None and code != 0):
        said = ", ".join(filter(None, (words, f"exit code {code}" if code is not None else "")))
        return (State.TIMED_OUT if _LATE.search(words) else State.FAILED), said or "failed"
    if _moment(status, "exited", "finalized"):
        return State.SUCCEEDED, ""
    return (State.RUNNING if _moment(status, "started") else State.QUEUED), ""


def _moment(status: Mapping[str, Any], *names: str) -> float | None:
    """The first of these times that is set, in seconds since 1970; year 1 is how unset ones are written."""
    for name in names:
        text = str(status.get(name) or "")
        if text and not text.startswith("0001-"):
            return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
    return None
