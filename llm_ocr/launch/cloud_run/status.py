"""What an execution and its tasks say of a job."""

import re
import time
from collections.abc import Sequence
from typing import Any

from llm_ocr.launch import Job, JobStatus, State

#: The exit code of a stage that SIGTERM ended (see errors.Interrupted).
_INTERRUPTED = 4
_SIGTERM, _SIGKILL = 15, 9
_TIMEOUT = re.compile(r"time(d)?[ -]?out|maximum time|deadline", re.IGNORECASE)
_TAKEN = re.compile(r"maintenance|pre-?empt|evict|migrat", re.IGNORECASE)
#: Reasons that are told one by one.
_TOLD = 3


def job_status(job: Job, execution: Any, tasks: Sequence[Any]) -> JobStatus:
    """Of an execution; `tasks` as far as they were asked for."""
    started, ended = _seconds(execution.start_time), _seconds(execution.completion_time)
    completed = next((one for one in execution.conditions if one.type_ == "Completed"), None)
    done = completed is not None and completed.state.name in ("CONDITION_SUCCEEDED", "CONDITION_FAILED")
    billed = sum(map(_billed, tasks)) if tasks else None
    if ended is None and not done:
        begun = execution.running_count or execution.succeeded_count or execution.failed_count
        return JobStatus(job, State.RUNNING if begun else State.QUEUED, "", started, None, billed)
    state, reason = _outcome(execution, completed, tasks)
    return JobStatus(job, state, reason, started, ended, billed)


def gone(job: Job) -> JobStatus:
    """Of an execution that Cloud Run does not know any more."""
    return JobStatus(job, State.FAILED, "Cloud Run does not know this execution any more: deleted, or too old")


def is_over(execution: Any) -> bool:
    """Whether nothing more will come of it."""
    return _seconds(execution.completion_time) is not None


def _outcome(execution: Any, completed: Any, tasks: Sequence[Any]) -> tuple[State, str]:
    if completed is not None and completed.state.name == "CONDITION_SUCCEEDED":
        return State.SUCCEEDED, ""
    said = completed.message if completed is not None else ""
    if execution.cancelled_count or (completed is not None and completed.execution_reason.name == "CANCELLED"):
        return State.CANCELLED, said or "cancelled"
    failed = [(task, *_of_task(task)) for task in tasks if _failed(task)]
    if not failed:
        return (State.TIMED_OUT if _TIMEOUT.search(said) else State.FAILED), said or "failed without a reason"
    states = {state for _, state, _ in failed}
    state = next((one for one in (State.FAILED, State.PREEMPTED, State.TIMED_OUT) if one in states), State.FAILED)
    count = f"{len(failed)} of {execution.task_count} tasks failed"
    told = "; ".join(f"task {task.index}: {why}" for task, one, why in failed if one is state)
    return state, f"{count}: {_short(told)}"


def _failed(task: Any) -> bool:
    result = task.last_attempt_result
    return bool(result.exit_code or result.term_signal or result.status.code)


def _of_task(task: Any) -> tuple[State, str]:
    """A task's end: by its message where that tells, else by whether its time was over when SIGTERM came."""
    result = task.last_attempt_result
    words = result.status.message or ""
    how = f"exit code {result.exit_code}" if result.exit_code else f"signal {result.term_signal}"
    why = f"{how}: {words}" if words else how
    if _TIMEOUT.search(words):
        return State.TIMED_OUT, why
    if _TAKEN.search(words):
        return State.PREEMPTED, why
    if result.exit_code == _INTERRUPTED or result.term_signal == _SIGTERM:
        return (State.TIMED_OUT if _time_was_over(task) else State.PREEMPTED), why
    if result.term_signal == _SIGKILL and _time_was_over(task):
        return State.TIMED_OUT, why
    return State.FAILED, why


def _time_was_over(task: Any) -> bool:
    limit = task.timeout.total_seconds() if task.timeout else 0
    return bool(limit) and _billed(task) >= limit


def _billed(task: Any) -> float:
    """Seconds from a task's start to its end, or to now."""
    started, ended = _seconds(task.start_time), _seconds(task.completion_time)
    if started is None:
        return 0.0
    return max(0.0, (time.time() if ended is None else ended) - started)


def _seconds(moment: Any) -> float | None:
    """Since 1970; None for a time that is not set."""
    return float(moment.timestamp()) if moment else None


def _short(told: str) -> str:
    parts = told.split("; ")
    return "; ".join([*parts[:_TOLD], *(["..."] if len(parts) > _TOLD else [])])
