"""From SageMaker's description of a job to what became of it."""

import time
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from llm_ocr.launch import Job, JobStatus, State
from llm_ocr.launch.sagemaker.requests import TRAINING

_OVER = {"Completed": State.SUCCEEDED, "Failed": State.FAILED, "Stopped": State.CANCELLED}
_GOING_ON = ("InProgress", "Stopping")
#: Secondary states of a training job that has no machine, or no longer one.
_NO_MACHINE = frozenset({"Starting", "Pending", "LaunchingMLInstances", "Interrupted", "Restarting"})
#: A processing job does not say why it was stopped: who ran so long was ended by the limit.
_CLOSE = 0.98


def status_of(job: Job, found: Mapping[str, Any]) -> JobStatus:
    """`found` is the answer of DescribeProcessingJob or DescribeTrainingJob."""
    training = job.place.get("kind") == TRAINING
    started, ended = _times(found, "Training" if training else "Processing")
    state = _training_state(found, started) if training else _processing_state(found, started, ended)
    reason = _reason(found, state, training) if state.over and state is not State.SUCCEEDED else ""
    billed = 0.0 if started is None and state.over else _billed(job, found, started, ended)  # it never had a machine
    return JobStatus(job, state, reason, started, ended, billed)


def _processing_state(found: Mapping[str, Any], started: float | None, ended: float | None) -> State:
    status = str(found.get("ProcessingJobStatus"))
    if status in _GOING_ON:
        return State.QUEUED if started is None else State.RUNNING
    state = _OVER.get(status, State.FAILED)
    limit = found.get("StoppingCondition", {}).get("MaxRuntimeInSeconds")
    ran_out = bool(limit and started and ended and ended - started >= _CLOSE * limit)
    said = "MaxRuntimeExceeded" in str(found.get("FailureReason", ""))
    return State.TIMED_OUT if state is not State.SUCCEEDED and (ran_out or said) else state


def _training_state(found: Mapping[str, Any], started: float | None) -> State:
    status, second = str(found.get("TrainingJobStatus")), str(found.get("SecondaryStatus", ""))
    if status in _GOING_ON:
        return State.QUEUED if started is None or second in _NO_MACHINE else State.RUNNING
    if second == "MaxRuntimeExceeded":
        return State.TIMED_OUT
    taken = any(one.get("Status") == "Interrupted" for one in found.get("SecondaryStatusTransitions", ()))
    if second == "MaxWaitTimeExceeded":
        return State.PREEMPTED if taken else State.TIMED_OUT
    last = [one.get("Status") for one in found.get("SecondaryStatusTransitions", ())][-2:]
    if status == "Failed" and "Interrupted" in last:
        return State.PREEMPTED
    return _OVER.get(status, State.FAILED)


def _reason(found: Mapping[str, Any], state: State, training: bool) -> str:
    """SageMaker's words, then the containers' own; what several of them say is said once."""
    said = [str(found.get(name) or "").strip() for name in ("FailureReason", "ExitMessage")]
    text = "; ".join(dict.fromkeys(row for one in said for row in one.splitlines()))
    status = str(found.get("TrainingJobStatus" if training else "ProcessingJobStatus"))
    second = str(found.get("SecondaryStatus") or "")
    word = second if second not in ("", status) else status
    limit = found.get("StoppingCondition", {}).get("MaxRuntimeInSeconds")
    if state is State.TIMED_OUT and not text:
        return f"{word}: MaxRuntimeInSeconds is {limit}"
    return text or word


def _times(found: Mapping[str, Any], kind: str) -> tuple[float | None, float | None]:
    return _seconds(found.get(f"{kind}StartTime")), _seconds(found.get(f"{kind}EndTime"))


def _seconds(value: Any) -> float | None:
    return value.timestamp() if isinstance(value, datetime) else None


def _billed(job: Job, found: Mapping[str, Any], started: float | None, ended: float | None) -> float | None:
    """Of all machines. Billable time is what SageMaker says of training jobs that are over, spot ones above all."""
    machines = int(job.place.get("machines") or 1)
    billable = found.get("BillableTimeInSeconds")
    if billable is not None:
        return float(billable) * machines
    if started is None:
        return None
    return max(0.0, (ended if ended is not None else time.time()) - started) * machines
