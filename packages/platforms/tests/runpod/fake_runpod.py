"""A fake RunPod: one serverless endpoint whose jobs run in a real worker process."""

import threading
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.fakes import loopback
from tests.fakes.container import Container

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


class FakeRunPod(loopback.LoopbackFake):
    """Fake RunPod with the endpoint's `environment`; the first job starts the worker."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.jobs: dict[str, FakeJob] = {}
        self._environment = dict(environment)
        self._changed = threading.Condition()
        self._worker: Container | None = None
        self._server = loopback.Server(_Handler, self)

    def close(self) -> None:
        super().close()
        if self._worker is not None:
            self._worker.remove()

    def logs(self) -> str:
        """Return the output of the worker."""
        return "" if self._worker is None else "\n".join(self._worker.lines())

    def answer(self, path: str, authorization: str | None, body: Mapping[str, Any]) -> tuple[int, Any]:
        """Return the status and the response to any request."""
        match path.strip("/").split("/"):
            case ["v2", _, "runsync"] if authorization != f"Bearer {KEY}":
                return 401, {"error": "invalid api key"}
            case ["v2", endpoint, "runsync"] if endpoint != ENDPOINT:
                return 404, {"error": f"endpoint {endpoint} not found"}
            case ["v2", _, "runsync"]:
                return 200, self._run(body)
            case ["job-take" | "job-take-batch" as kind, _, _]:
                taken = self._take(batch=kind == "job-take-batch")
                return (204, None) if taken is None else (200, taken)
            case ["job-stop", _, _]:
                time.sleep(_HOLD)
                return 204, None
            case ["job-done", _, _, id_]:
                return 200, self._done(id_, body)
        return 404, {"error": "no such path"}

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


class _Handler(loopback.Handler):
    server: loopback.Server[FakeRunPod]

    def reply(self) -> None:
        _, path, _, body = self.json_request()
        status, answer = self.server.fake.answer(path, self.headers.get("Authorization"), body)
        if status == 204:
            self.send_response(status)
            self.end_headers()
        else:
            self.send_json(status, answer)
