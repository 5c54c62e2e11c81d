"""What can be shown of a job's log: RunPod has no API for logs, but tells what a worker reports."""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from llm_ocr.launch import Job
from llm_ocr.launch.runpod.states import status_of

#: Seconds between two looks.
EVERY = 3.0


def console(endpoint: str) -> str:
    """Where people look at an endpoint, its workers and their logs."""
    return f"https://console.runpod.io/serverless/user/endpoint/{endpoint}"


def log_lines(job: Job, ask: Callable[[], Mapping[str, Any]], *, follow: bool) -> Iterator[str]:
    """Where the log is; what the worker reports, each line once; how the job ended, with the stage's last lines."""
    yield f"RunPod has no API for logs. The workers' own: {console(str(job.place['endpoint']))} (tab Logs)"
    shown = ""
    while True:
        answer = ask()
        status = status_of(job, answer)
        line = _reported(answer) if not status.state.over else ""
        if line and line != shown:
            yield line
            shown = line
        if status.state.over or not follow:
            yield f"{job.name} {status.state.value}"
            yield from _end(answer)
            return
        time.sleep(EVERY)


def _reported(answer: Mapping[str, Any]) -> str:
    output = answer.get("output")
    if isinstance(output, dict):
        return str(output.get("line") or json.dumps(output))
    return str(output) if output else ""


def _end(answer: Mapping[str, Any]) -> Iterator[str]:
    error = answer.get("error")
    if isinstance(error, str):
        try:
            held = json.loads(error)
        except ValueError:
            held = {}
        yield from str(held.get("error_message") or error if isinstance(held, dict) else error).splitlines()
    elif isinstance(answer.get("output"), dict) and answer.get("status") == "COMPLETED":
        yield json.dumps(answer["output"])
