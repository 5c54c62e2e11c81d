"""A fake RunPod: one serverless endpoint whose jobs run in real worker processes."""

import json
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Self
from urllib.parse import urlsplit

from tests.fakes import loopback
from tests.fakes.container import Container

# HTTP of the fake RunPod: JSON in, JSON out, refusals with a status.


class Refusal(Exception):
    """Refused request. The job API answers with `error`, the management API with an RFC 9457 problem."""

    def __init__(self, status: int, message: str, *, problem: bool = False) -> None:
        super().__init__(message)
        self.status = status
        known = {"title": HTTPStatus(status).phrase, "status": status, "detail": message} if problem else None
        self.answer = known or {"error": message}


class Handler(loopback.Handler):
    """One request."""

    server: loopback.Server["LoopbackServer"]
    content: bytes  # body of the request

    def reply(self) -> None:
        self.content = self.body()
        try:
            found, status = self.server.fake.answer(self), 200
        except Refusal as refusal:
            found, status = refusal.answer, refusal.status
        if found is None:
            status = 204
        data = found if isinstance(found, bytes) else b"" if found is None else json.dumps(found).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


class LoopbackServer(loopback.LoopbackFake):
    """Server on loopback; `answer` receives each request in a separate thread."""

    def __init__(self, answer: Callable[[Handler], Any]) -> None:
        self.answer = answer
        self._server = loopback.Server(0, Handler, self)
        self._thread = threading.Thread(target=self.serve, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        super().stop()
        self._thread.join()


# RunPod on loopback: one serverless endpoint, whose jobs run in real worker processes. Use
# `FakeRunPod(environment={...})` as a context manager; `url` replaces RunPod's servers (--platform-endpoint). The fake
# can refuse requests, fail jobs, and lose its workers.


KEY = "key-of-the-tests"
ENDPOINT = "fake-endpoint"
#: Maximum seconds that a worker's request is held.
_HOLD = 0.5
_OVER = ("COMPLETED", "FAILED", "CANCELLED", "TIMED_OUT")
#: Examples of GPU types and their pools (docs.runpod.io/flash/configuration/gpu-types, November 2026).
_POOLS = {
    "NVIDIA L4": "ADA_24",
    "NVIDIA GeForce RTX 4090": "ADA_24",
    "NVIDIA A40": "AMPERE_48",
    "NVIDIA RTX A6000": "AMPERE_48",
    "NVIDIA L40": "ADA_48_PRO",
    "NVIDIA L40S": "ADA_48_PRO",
}


@dataclass(slots=True)
class FakeJob:
    """One job; `reports` are the progress reports of its worker."""

    id: str
    body: Mapping[str, Any]
    status: str = "IN_QUEUE"
    output: Any = None
    error: str = ""
    begun: float = 0.0
    ended: float = 0.0
    stop: bool = False  # its worker is informed
    reports: list[Any] = field(default_factory=list)

    def shown(self) -> dict[str, Any]:
        """Return the job as in the platform's response."""
        found: dict[str, Any] = {"id": self.id, "status": self.status, "delayTime": 1}
        if self.output is not None:
            found["output"] = self.output
        if self.error:
            found["error"] = self.error
        if self.status in _OVER and self.begun:
            found["executionTime"] = round((self.ended - self.begun) * 1000)
        return found


class FakeRunPod:
    """Fake RunPod with the endpoint's `environment`; the first job starts the workers, at most `workers`.

    The management API (REST v2) describes the endpoint if `about` is true. Otherwise `about` is the status of a
    refusal, or the text of the response. The response takes `about_seconds`.
    """

    def __init__(
        self,
        environment: Mapping[str, str] | None = None,
        *,
        workers: int = 1,
        gpus: Sequence[str] = (),
        compute: str = "GPU",
        about: bool | int | str = True,
        about_seconds: float = 0,
        command: Sequence[str] = ("python", "-m", "llm_ocr.serverless"),
    ) -> None:
        self.jobs: dict[str, FakeJob] = {}
        self._environment = dict(environment or {})
        self._workers = workers
        self._gpus = list(gpus)
        self._compute = compute
        self._about = about
        self._about_seconds = about_seconds
        self._stopped = threading.Event()
        self._command = command
        self._changed = threading.Condition()
        self._containers: list[Container] = []
        self._losses = 0
        self._failures: list[str] = []
        self._refusals: list[Refusal | None] = []
        self._server = LoopbackServer(self._answer)

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stopped.set()
        self._server.stop()
        for container in self._containers:
            container.remove()

    @property
    def url(self) -> str:
        return self._server.url

    def refuse(self, status: int, message: str, *, after: int = 0) -> None:
        """Refuse the next new job, or a later one after `after` more."""
        self._refusals += [None] * after + [Refusal(status, message)]

    def fail(self, words: str) -> None:
        """Fail the next job before a worker receives it."""
        self._failures.append(words)

    def lose_workers(self) -> None:
        """Remove the workers' machines; their jobs no longer report."""
        with self._changed:
            self._losses += 1
            for container in self._containers:
                container.remove()
            self._containers.clear()
            for job in self.jobs.values():
                if job.status == "IN_PROGRESS":
                    self._end(job, "TIMED_OUT")

    def forget(self) -> None:
        """Forget ended jobs, as RunPod does after half an hour."""
        with self._changed:
            self.jobs.clear()

    def logs(self) -> str:
        """Return the output of the workers."""
        return "\n".join(line for container in self._containers for line in container.lines())

    def _answer(self, request: Handler) -> Any:
        """Return the response to any request as JSON values; None: no content."""
        parts = urlsplit(request.path).path.strip("/").split("/")
        return self._of_users(request, parts) if parts[0] in ("v1", "v2") else self._of_workers(request, parts)

    def _of_workers(self, request: Handler, parts: Sequence[str]) -> Any:
        match parts:
            case ["job-take" | "job-take-batch" as kind, _, _]:
                return self._take(batch=kind == "job-take-batch")
            case ["job-stop", _, _]:
                return self._stops()
            case ["job-done", _, _, id_]:
                return self._done(id_, json.loads(request.content))
        raise Refusal(404, "no such path")

    def _of_users(self, request: Handler, parts: Sequence[str]) -> Any:
        if request.headers.get("Authorization") != f"Bearer {KEY}":
            raise Refusal(401, "invalid api key")
        match [request.command, *parts]:
            case [_, "v1", *_]:
                raise Refusal(410, "REST API v1 is retired")
            case ["GET", "v2", "serverless", endpoint]:
                return self._described(endpoint)
            case ["GET", "v2", "catalog", "gpus"]:
                return {"gpus": [{"id": name, "pool": pool} for name, pool in _POOLS.items()]}
            case ["POST", "v2", endpoint, "run"]:
                return self._run(endpoint, json.loads(request.content))
            case ["POST", "v2", endpoint, "runsync"]:
                return self._finished(self._run(endpoint, json.loads(request.content))["id"])
            case ["GET", "v2", endpoint, "health"]:
                self._check(endpoint)
                return {"jobs": {"inQueue": 0}, "workers": {"idle": 0, "running": len(self._containers)}}
            case ["GET", "v2", endpoint, "status", id_]:
                with self._changed:  # an end appears atomically
                    return self._job(endpoint, id_).shown()
            case ["POST", "v2", endpoint, "cancel", id_]:
                return self._cancel(endpoint, id_)
        raise Refusal(404, "no such path")

    def _check(self, endpoint: str) -> None:
        if endpoint != ENDPOINT:
            raise Refusal(404, f"endpoint {endpoint} not found")

    def _job(self, endpoint: str, id_: str) -> FakeJob:
        self._check(endpoint)
        with self._changed:
            self._expire()
            if id_ not in self.jobs:
                raise Refusal(404, "job not found")
            return self.jobs[id_]

    def _described(self, endpoint: str) -> Any:
        """Return the response of `GET /v2/serverless/{id}`.

        Source: docs.runpod.io/api-reference-v2/openapi.json, November 2026.
        """
        self._stopped.wait(self._about_seconds)
        self._check(endpoint)
        if isinstance(self._about, str):
            return self._about.encode()
        if self._about is not True:
            raise Refusal(int(self._about), "the endpoint cannot be read", problem=True)
        pools = sorted({_POOLS[name] for name in self._gpus})
        excluded = [name for name, pool in _POOLS.items() if pool in pools and name not in self._gpus]
        described = {
            "id": endpoint,
            "name": "llm-ocr",
            "type": "QUEUE",
            "workers": {"min": 0, "max": self._workers, "idleTimeout": 5},
            "env": {"LLM_OCR_ENGINE": "embedded", **self._environment},
        }
        if self._compute == "CPU":
            return {**described, "cpu": [{"id": "cpu3c"}]}
        return {**described, "gpu": {"pools": pools, "excludedTypes": excluded, "count": 1}}

    def _run(self, endpoint: str, body: Mapping[str, Any]) -> dict[str, Any]:
        self._check(endpoint)
        if self._refusals and (refusal := self._refusals.pop(0)):
            raise refusal
        job = FakeJob(f"{uuid.uuid4()}-u1", body)
        with self._changed:
            self.jobs[job.id] = job
            if self._failures:
                job.error = self._failures.pop(0)
                self._end(job, "FAILED")
            else:
                self._more_workers()
            self._changed.notify_all()
        return {"id": job.id, "status": job.status}

    def _more_workers(self) -> None:
        waiting = sum(job.status in ("IN_QUEUE", "IN_PROGRESS") for job in self.jobs.values())
        while len(self._containers) < min(self._workers, waiting):
            name = f"worker-{len(self._containers)}"
            own = {
                "RUNPOD_POD_ID": name,
                "RUNPOD_ENDPOINT_ID": ENDPOINT,
                "RUNPOD_WEBHOOK_GET_JOB": f"{self.url}/job-take/{ENDPOINT}/$ID?gpu=none",
                "RUNPOD_WEBHOOK_POST_OUTPUT": f"{self.url}/job-done/{ENDPOINT}/$RUNPOD_POD_ID/$ID?gpu=none",
                # These checks inspect the network and disk of the machine that runs the fake.
                "RUNPOD_SKIP_AUTO_SYSTEM_CHECKS": "true",
                "RUNPOD_SKIP_GPU_CHECK": "true",
            }
            self._containers.append(Container(self._command, {**self._environment, **own}))

    def _take(self, *, batch: bool) -> Any:
        with self._changed:
            losses = self._losses
            self._changed.wait_for(lambda: any(job.status == "IN_QUEUE" for job in self.jobs.values()), _HOLD)
            if self._losses != losses:
                return None  # the client may be gone: a job would be lost
            for job in self.jobs.values():
                if job.status == "IN_QUEUE":
                    job.status, job.begun = "IN_PROGRESS", time.time()
                    taken = {"id": job.id, "input": job.body.get("input")}
                    return [taken] if batch else taken
        return None

    def _stops(self) -> Any:
        with self._changed:
            self._changed.wait_for(lambda: self._expire() or any(job.stop for job in self.jobs.values()), _HOLD)
            stopped = [job for job in self.jobs.values() if job.stop]
            for job in stopped:
                job.stop = False
        return {"jobsToStop": [job.id for job in stopped]} if stopped else None

    def _done(self, id_: str, said: Mapping[str, Any]) -> Any:
        with self._changed:
            job = self.jobs.get(id_)
            if job is None or job.status in _OVER:
                return {}
            if said.get("status") == "IN_PROGRESS":
                job.output = said.get("output")
                job.reports.append(job.output)
                return {}
            job.output, job.error = said.get("output"), str(said.get("error") or "")
            self._end(job, "FAILED" if job.error else "COMPLETED")
        return {}

    def _cancel(self, endpoint: str, id_: str) -> dict[str, Any]:
        job = self._job(endpoint, id_)
        with self._changed:
            if job.status not in _OVER:
                job.stop = job.status == "IN_PROGRESS"
                self._end(job, "CANCELLED")
        return {"id": id_, "status": job.status}

    def _finished(self, id_: str) -> dict[str, Any]:
        with self._changed:
            self._changed.wait_for(lambda: self._expire() or self.jobs[id_].status in _OVER, 120)
            return self.jobs[id_].shown()

    def _expire(self) -> bool:
        """End jobs beyond their time limit."""
        for job in self.jobs.values():
            limit = (job.body.get("policy") or {}).get("executionTimeout", 600_000) / 1000
            if job.status == "IN_PROGRESS" and time.time() - job.begun > limit:
                job.stop = True
                self._end(job, "TIMED_OUT")
        return False

    def _end(self, job: FakeJob, status: str) -> None:
        job.status, job.ended = status, time.time()
        if status in ("CANCELLED", "TIMED_OUT"):
            job.output = None
        self._changed.notify_all()
