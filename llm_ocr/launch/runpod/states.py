"""From RunPod's answer about a job to its status."""

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from llm_ocr.launch import Job, JobStatus, State

STATES: Mapping[str, State] = MappingProxyType(
    {
        "IN_QUEUE": State.QUEUED,
        "IN_PROGRESS": State.RUNNING,
        "RUNNING": State.RUNNING,
        "COMPLETED": State.SUCCEEDED,
        "FAILED": State.FAILED,
        "CANCELLED": State.CANCELLED,
        "TIMED_OUT": State.TIMED_OUT,
    }
)
_LONGEST = 1000  # characters of a reason


def status_of(job: Job, answer: Mapping[str, Any]) -> JobStatus:
    """A state that RunPod adds some day counts as running while the job has no end, which an error or output is."""
    word = str(answer.get("status", ""))
    unknown = State.FAILED if answer.get("error") else State.RUNNING
    state = STATES.get(word, unknown)
    reason = "" if state in (State.QUEUED, State.RUNNING, State.SUCCEEDED) else _reason(word, answer)
    if word not in STATES:
        reason = f"RunPod calls it {word or 'nothing'}"
    took = answer.get("executionTime")
    seconds = took / 1000 if state.over and isinstance(took, int | float) else None
    return JobStatus(job, state, reason, seconds=seconds)


def _reason(word: str, answer: Mapping[str, Any]) -> str:
    """The worker's own words: its last line stands first."""
    error = answer.get("error")
    if isinstance(error, str):
        try:
            held = json.loads(error)
        except ValueError:
            held = None
        if isinstance(held, dict):
            error = held.get("error_message") or error
    text = str(error or "").strip()
    if word == "TIMED_OUT":
        text = text or "its time limit, or nothing more was heard of its worker"
    return text.splitlines()[0][:_LONGEST] if text else word.lower().replace("_", " ")
