"""What the Hub says of a job, in our words."""

import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from llm_ocr.launch import Job, JobStatus, State

if TYPE_CHECKING:
    from datetime import datetime

#: What all jobs of a submission have in common.
OWN_LABELS = ("launch", "stage", "submission")
_STATES: Mapping[str, State] = {
    "SCHEDULING": State.QUEUED,
    "RUNNING": State.RUNNING,
    "COMPLETED": State.SUCCEEDED,
    "CANCELED": State.CANCELLED,
    "DELETED": State.CANCELLED,
    "ERROR": State.FAILED,
}
_TIME = re.compile(r"time[ -]?out|timed out|time limit|deadline", re.IGNORECASE)
_TAKEN = re.compile(r"pre-?empt|evict|node (?:was )?(?:lost|shut ?down|drained)", re.IGNORECASE)


def job_of(info: Any, wheels: str) -> Job:
    """A job of ours as it is kept; `wheels` is the repository that it takes the library from, if there is one."""
    labels = info.labels or {}
    shard = labels.get("shard", "")
    own = {name: labels[name] for name in OWN_LABELS if name in labels}
    place = {"endpoint": info.endpoint, "namespace": info.owner.name, "wheels": wheels, "labels": own}
    return Job(info.id, labels.get("name", ""), int(shard) if shard.isdigit() else None, info.url, place)


def status_of(job: Job, info: Any) -> JobStatus:
    """A status from huggingface_hub's `JobInfo`."""
    stage, message = str(getattr(info.status.stage, "value", info.status.stage)), (info.status.message or "").strip()
    seconds = info.durations.running_secs if info.durations else None
    state = _STATES.get(stage) or (State.FAILED if info.finished_at else State.RUNNING)
    if state is State.FAILED:
        state = _ended_by(message, seconds, (info.labels or {}).get("limit", ""))
    reason = message or stage if state.over and state is not State.SUCCEEDED else ""
    if seconds is None and state.over and info.started_at is None:
        seconds = 0  # it never had a machine
    # Billed by the minute.
    billed = None if seconds is None else math.ceil(seconds / 60) * 60.0
    return JobStatus(job, state, reason, _seconds(info.started_at), _seconds(info.finished_at), billed)


def _ended_by(message: str, seconds: int | None, limit: str) -> State:
    """The Hub has one stage for all that goes wrong; its words and the job's own limit tell more."""
    if _TIME.search(message) or (limit.isdigit() and seconds is not None and seconds >= int(limit)):
        return State.TIMED_OUT
    return State.PREEMPTED if _TAKEN.search(message) else State.FAILED


def _seconds(at: "datetime | None") -> float | None:
    return at.timestamp() if at is not None else None
