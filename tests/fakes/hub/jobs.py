"""Jobs of the fake Hub: each runs as a process of this machine."""

import contextlib
import itertools
import json
import re
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.fakes.container import Container
from tests.fakes.hub.answers import Answer, Refused, Request, iso, page

if TYPE_CHECKING:
    from tests.fakes.hub.state import State


# A job is its command, run as a process of this machine with the job's environment only. `tests.fakes.container`
# describes the replacement of images.


#: Dollars per hour of several flavors (the Hub's pricing page, August 2026), with accelerator and count.
FLAVORS: Mapping[str, tuple[float, str, int]] = {
    "cpu-basic": (0.01, "", 0),
    "cpu-upgrade": (0.03, "", 0),
    "cpu-xl": (1.00, "", 0),
    "t4-small": (0.40, "T4", 1),
    "l4x1": (0.80, "L4", 1),
    "l4x4": (3.80, "L4", 4),
    "a10g-large": (1.50, "A10G", 1),
    "l40sx1": (1.80, "L40S", 1),
    "a100-large": (2.50, "A100", 1),
    "a100x4": (10.00, "A100", 4),
    "h200": (5.00, "H200", 1),
}
OVER = ("COMPLETED", "CANCELED", "ERROR", "DELETED")


@dataclass(frozen=True, slots=True)
class Mishap:
    """Failure of the next job of `shard` (None: any), which ends as `stage` with the Hub's `message`.

    With `never_starts`, its command never runs. Otherwise the machine is lost as soon as a line of its log contains
    `after`.
    """

    message: str
    shard: int | None = None
    stage: str = "ERROR"
    after: str = ""
    never_starts: bool = False


@dataclass(slots=True)
class FakeJob:
    """Job; `spec` is the one in the request."""

    id: str
    namespace: str
    spec: dict[str, Any]
    mishap: Mishap | None
    created: float = field(default_factory=time.time)
    started: float | None = None
    ended: float | None = None
    stage: str = "SCHEDULING"
    message: str | None = None
    container: Container | None = None
    lines: list[str] = field(default_factory=list)
    seen: list[str] = field(default_factory=list)
    cancelled: bool = False
    over: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def labels(self) -> dict[str, str]:
        return dict(self.spec.get("labels") or {})

    def log(self) -> list[str]:
        """Return the lines written so far."""
        with contextlib.suppress(FileNotFoundError):  # the job ends at this moment
            if self.container is not None and not self.over.is_set():
                return self.container.lines()
        return self.lines

    def end(self, stage: str, message: str | None = None) -> None:
        """End the job; readers see all of its end or none."""
        with self.lock:
            self.stage, self.message = ("CANCELED", None) if self.cancelled else (stage, message)
            self.ended = time.time()
        self.over.set()

    def timed_log(self) -> list[tuple[str, str]]:
        """Return the lines with the times (ISO) at which they were first read."""
        lines = self.log()
        self.seen += [iso()] * (len(lines) - len(self.seen))
        return list(zip(self.seen, lines, strict=False))

    def shown(self) -> dict[str, Any]:
        """Return the job as the API shows it, with secrets by name."""
        with self.lock:
            stage, message, ended = self.stage, self.message, self.ended
        until = ended or time.time()
        running = None if self.started is None else int(until - self.started)
        return {
            "id": self.id,
            "createdAt": iso(self.created),
            "startedAt": self.started and iso(self.started),
            "finishedAt": ended and iso(ended),
            "dockerImage": self.spec.get("dockerImage"),
            "command": self.spec["command"],
            "arguments": self.spec.get("arguments", []),
            "environment": self.spec.get("environment", {}),
            "secrets": sorted(self.spec.get("secrets", {})),
            "flavor": self.spec["flavor"],
            "labels": self.labels,
            "status": {"stage": stage, "message": message},
            "durations": {"schedulingSecs": 0, "runningSecs": running, "totalSecs": int(until - self.created)},
            "owner": {"id": "0", "name": self.namespace, "type": "user"},
        }


class Jobs:
    """All jobs. `mishaps` apply to later jobs; `second` is the real length of a second of a time limit.

    `image` is the environment of every image; `images` contains the Python of an image by its name.
    """

    def __init__(self) -> None:
        self.by_id: dict[str, FakeJob] = {}
        self.mishaps: list[Mishap] = []
        self.image: dict[str, str] = {}
        self.images: dict[str, str] = {}
        self.second = 1.0
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._closed = False

    def start(self, namespace: str, spec: dict[str, Any]) -> FakeJob:
        """Create a job and start it."""
        with self._lock:
            made = FakeJob(f"{next(self._numbers):024x}", namespace, spec, self._mishap(spec))
            self.by_id[made.id] = made
        threading.Thread(target=self._run, args=(made,), name=f"fake-job-{made.id}", daemon=True).start()
        return made

    def get(self, namespace: str, job: str) -> FakeJob:
        """Return the job, or raise `Refused` (404)."""
        found = self.by_id.get(job)
        if found is None or found.namespace != namespace:
            raise Refused(404, "JobNotFound", "Job not found")
        return found

    def cancel(self, job: FakeJob) -> None:
        """Cancel the job, and return when it is over."""
        job.cancelled = True
        if job.container is not None:
            job.container.stop()
        job.over.wait()

    def close(self) -> None:
        """End all jobs and remove their data."""
        self._closed = True
        for job in list(self.by_id.values()):
            if job.container is not None:
                job.container.kill()
            job.over.wait()

    def _mishap(self, spec: dict[str, Any]) -> Mishap | None:
        shard = (spec.get("labels") or {}).get("shard")
        for one in self.mishaps:
            if one.shard is None or str(one.shard) == shard:
                self.mishaps.remove(one)
                return one
        return None

    def _run(self, job: FakeJob) -> None:
        end: tuple[str, str | None] = ("ERROR", "The job could not be started")
        try:
            if job.mishap and job.mishap.never_starts:
                end = (job.mishap.stage, job.mishap.message)
            elif not self._closed and not job.cancelled:
                end = self._to_its_end(job)
            if job.container is not None:
                job.lines = job.container.lines()
                job.container.remove()
        finally:
            job.end(*end)

    def _to_its_end(self, job: FakeJob) -> tuple[str, str | None]:
        """Run the job; return its final stage, and the Hub's message."""
        limit = job.spec.get("timeoutSeconds")
        job.container = Container(
            job.spec["command"],
            {**self._environment(job), **job.spec.get("environment", {}), **job.spec.get("secrets", {})},
            time_limit=limit and limit * self.second,
        )
        job.started, job.stage = time.time(), "RUNNING"
        if job.cancelled or self._closed:  # set in the meantime
            job.container.kill()
        hit = job.mishap is not None and self._befallen(job.container, job.mishap)
        code = job.container.wait()
        if hit and job.mishap:
            return job.mishap.stage, job.mishap.message
        if job.container.timed_out:
            return "ERROR", "Job timeout"
        return ("ERROR", f"Job failed with exit code: {code}") if code else ("COMPLETED", None)

    def _befallen(self, container: Container, mishap: Mishap) -> bool:
        """Return whether the failure happened before the job ended by itself."""
        pattern = re.compile(mishap.after)
        while container.wait(0.02) is None:
            if any(pattern.search(line) for line in container.lines()) or not mishap.after:
                container.kill()
                return True
        return False

    def _environment(self, job: FakeJob) -> dict[str, str]:
        path = f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"
        said = {"JOB_ID": job.id, "ACCELERATOR": FLAVORS[job.spec["flavor"]][1]}
        python = self.images.get(job.spec.get("dockerImage", ""))
        own = {"IMAGE_PYTHON": python} if python else {}
        return {"PATH": path, "HF_HUB_DISABLE_XET": "1", **said, **self.image, **own}


# API of jobs.


def hardware(state: "State", request: Request) -> Answer:
    """GET /api/jobs/hardware."""
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
    """POST /api/jobs/<namespace>."""
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
    """GET /api/jobs/<namespace>/<job>."""
    _may(state, request, namespace)
    return Answer.of(state.jobs.get(namespace, job).shown())


def cancel(state: "State", request: Request, namespace: str, job: str) -> Answer:
    """POST /api/jobs/<namespace>/<job>/cancel."""
    _may(state, request, namespace)
    found = state.jobs.get(namespace, job)
    if found.stage in OVER:
        raise Refused(409, "", "Job is already finished")
    state.jobs.cancel(found)
    return Answer.of(found.shown())


def logs(state: "State", request: Request, namespace: str, job: str) -> Answer:
    """GET /api/jobs/<namespace>/<job>/logs: an event per line until the job is over; `tail` limits old lines."""
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
        over = job.over.is_set()  # read before the lines
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
