"""The Hub's API of jobs."""

import json
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from llm_ocr.testing.fake_hub.answers import Answer, Refused, Request, iso, page
from llm_ocr.testing.fake_hub.jobs import FLAVORS, OVER, FakeJob

if TYPE_CHECKING:
    from llm_ocr.testing.fake_hub.state import State


def hardware(state: "State", request: Request) -> Answer:
    """GET /api/jobs/hardware"""
    return Answer.of([_flavor(name, *what) for name, what in FLAVORS.items()])


def _flavor(name: str, price: float, model: str, gpus: int) -> dict[str, Any]:
    accelerator = {
        "type": "gpu",
        "model": model,
        "quantity": str(gpus),
        "vram": "80 GB",
        "manufacturer": "Nvidia",
    }
    return {
        "name": name,
        "prettyName": name,
        "cpu": "8 vCPU",
        "ram": "32 GB",
        "accelerator": accelerator if gpus else None,
        "unitCostMicroUSD": round(price * 1e6 / 60),
        "unitCostUSD": price / 60,
        "unitLabel": "minute",
    }


def run(state: "State", request: Request, namespace: str) -> Answer:
    """POST /api/jobs/<namespace>"""
    _may(state, request, namespace)
    spec = request.json()
    if spec.get("flavor") not in FLAVORS:
        raise Refused(400, "", f"Invalid flavor: {spec.get('flavor')}")
    if not spec.get("command") or not (spec.get("dockerImage") or spec.get("spaceId")):
        raise Refused(400, "", "command and dockerImage or spaceId are required")
    return Answer.of(state.jobs.start(namespace, spec).shown())


def listed(state: "State", request: Request, namespace: str) -> Answer:
    """GET /api/jobs/<namespace>, the newest first; `stage` and `label` (name=value) may be repeated."""
    _may(state, request, namespace)
    stages, labels = (set(request.query.getall(name, [])) for name in ("stage", "label"))
    found = [
        job.shown()
        for job in reversed(list(state.jobs.by_id.values()))
        if job.namespace == namespace
        and (not stages or job.stage in stages)
        and labels <= {f"{name}={value}" for name, value in job.labels.items()}
    ]
    return page(request, found)


def inspect(state: "State", request: Request, namespace: str, job: str) -> Answer:
    """GET /api/jobs/<namespace>/<job>"""
    _may(state, request, namespace)
    return Answer.of(state.jobs.get(namespace, job).shown())


def cancel(state: "State", request: Request, namespace: str, job: str) -> Answer:
    """POST /api/jobs/<namespace>/<job>/cancel"""
    _may(state, request, namespace)
    found = state.jobs.get(namespace, job)
    if found.stage in OVER:
        raise Refused(409, "", "Job is already finished")
    state.jobs.cancel(found)
    return Answer.of(found.shown())


def logs(state: "State", request: Request, namespace: str, job: str) -> Answer:
    """GET /api/jobs/<namespace>/<job>/logs: an event for each line until the job is over; `tail`: from so many on."""
    _may(state, request, namespace)
    found = state.jobs.get(namespace, job)
    tail = request.query.get("tail")
    start = max(0, len(found.log()) - int(tail)) if tail else 0
    return Answer(200, b"", {"Content-Type": "text/event-stream"}, _events(found, start))


def _events(job: FakeJob, start: int) -> Callable[[], bytes | None]:
    sent = start
    first = _event(iso(job.created), f"===== Job started at {iso(job.created)} =====") if not start else b""

    def more() -> bytes | None:
        nonlocal sent, first
        over = job.over.is_set()  # before it is looked what there is
        lines = job.timed_log()[sent:]
        sent += len(lines)
        events, first = first + b"".join(_event(at, line) for at, line in lines), b""
        if not events and over:
            return None
        if not events:
            time.sleep(0.02)
        return events

    return more


def _event(at: str, line: str) -> bytes:
    return f"data: {json.dumps({'timestamp': at, 'data': line})}\n\n".encode()


def _may(state: "State", request: Request, namespace: str) -> None:
    account = state.accounts.needed(request)
    if not account.owns(namespace):
        raise Refused(403, "", f"You don't have the required permissions to use jobs of {namespace}.")
    if request.method == "POST" and account.role != "write":
        raise Refused(403, "", "Forbidden: this token may not start jobs.")
