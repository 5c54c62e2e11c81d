"""A fake RunPod: one serverless endpoint whose jobs run in a real worker process."""

import json
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import urlsplit

from tests.fakes import loopback
from tests.fakes.container import Container

# HTTP of the fake RunPod: JSON in, JSON out, refusals with a status.


class Refusal(Exception):
    """Refused request."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.answer = {"error": message}


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
        self._server = loopback.Server(Handler, self)
        self._thread = threading.Thread(target=self.serve, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        super().stop()
        self._thread.join()


# RunPod on loopback: one serverless endpoint with one worker, a real process. Use `FakeRunPod(environment={...})` as a
# context manager; `url` replaces RunPod's server.


KEY = "key-of-the-tests"
ENDPOINT = "fake-endpoint"
#: Maximum seconds that a worker's request is held.
_HOLD = 0.5
_OVER = ("COMPLETED", "FAILED")


@dataclass(slots=True)
class FakeJob:
    """One job."""

    id: str
    body: Mapping[str, Any]
    status: str = "IN_QUEUE"
    output: Any = None
    error: str = ""
    begun: float = 0.0
    ended: float = 0.0

    def shown(self) -> dict[str, Any]:
        """Return the job as in the platform's response."""
        found: dict[str, Any] = {"id": self.id, "status": self.status, "delayTime": 1}
        if self.output is not None:
            found["output"] = self.output
        if self.error:
            found["error"] = self.error
        if self.status in _OVER:
            found["executionTime"] = round((self.ended - self.begun) * 1000)
        return found


class FakeRunPod:
    """Fake RunPod with the endpoint's `environment`; the first job starts the worker."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.jobs: dict[str, FakeJob] = {}
        self._environment = dict(environment)
        self._changed = threading.Condition()
        self._worker: Container | None = None
        self._server = LoopbackServer(self._answer)

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.stop()
        if self._worker is not None:
            self._worker.remove()

    @property
    def url(self) -> str:
        return self._server.url

    def logs(self) -> str:
        """Return the output of the worker."""
        return "" if self._worker is None else "\n".join(self._worker.lines())

    def _answer(self, request: Handler) -> Any:
        """Return the response to any request as JSON values; None: no content."""
        parts = urlsplit(request.path).path.strip("/").split("/")
        match parts:
            case ["v2", endpoint, "runsync"]:
                if request.headers.get("Authorization") != f"Bearer {KEY}":
                    raise Refusal(401, "invalid api key")
                if endpoint != ENDPOINT:
                    raise Refusal(404, f"endpoint {endpoint} not found")
                return self._run(json.loads(request.content))
            case ["job-take" | "job-take-batch" as kind, _, _]:
                return self._take(batch=kind == "job-take-batch")
            case ["job-stop", _, _]:
                time.sleep(_HOLD)
                return None
            case ["job-done", _, _, id_]:
                return self._done(id_, json.loads(request.content))
        raise Refusal(404, "no such path")

    def _run(self, body: Mapping[str, Any]) -> dict[str, Any]:
        job = FakeJob(f"{uuid.uuid4()}-u1", body)
        with self._changed:
            self.jobs[job.id] = job
            if self._worker is None:
                own = {
                    "RUNPOD_POD_ID": "worker-0",
                    "RUNPOD_ENDPOINT_ID": ENDPOINT,
                    "RUNPOD_WEBHOOK_GET_JOB": f"{self.url}/job-take/{ENDPOINT}/$ID?gpu=none",
                    "RUNPOD_WEBHOOK_POST_OUTPUT": f"{self.url}/job-done/{ENDPOINT}/$RUNPOD_POD_ID/$ID?gpu=none",
                    # These checks inspect the network and disk of the machine that runs the fake.
                    "RUNPOD_SKIP_AUTO_SYSTEM_CHECKS": "true",
                    "RUNPOD_SKIP_GPU_CHECK": "true",
                }
                self._worker = Container(["python", "-m", "llm_ocr_platforms.runpod"], {**self._environment, **own})
            self._changed.notify_all()
            self._changed.wait_for(lambda: job.status in _OVER, 120)
            return job.shown()

    def _take(self, *, batch: bool) -> Any:
        with self._changed:
            self._changed.wait_for(lambda: any(job.status == "IN_QUEUE" for job in self.jobs.values()), _HOLD)
            for job in self.jobs.values():
                if job.status == "IN_QUEUE":
                    job.status, job.begun = "IN_PROGRESS", time.time()
                    taken = {"id": job.id, "input": job.body.get("input")}
                    return [taken] if batch else taken
        return None

    def _done(self, id_: str, said: Mapping[str, Any]) -> Any:
        with self._changed:
            job = self.jobs[id_]
            if said.get("status") != "IN_PROGRESS":
                job.output, job.error = said.get("output"), str(said.get("error") or "")
                job.status, job.ended = "FAILED" if job.error else "COMPLETED", time.time()
                self._changed.notify_all()
        return {}
