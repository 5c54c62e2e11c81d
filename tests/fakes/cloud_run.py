"""A fake Google Cloud Run: a real server whose tasks are subprocesses that really run."""

import base64
import contextlib
import copy
import itertools
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tests.fakes.cloud_run_tasks import Account, Execution, Json, Refused
from tests.fakes.loopback import Handler, LoopbackFake, Server, served

# API: the part of Google's REST APIs that launches on Cloud Run use.


_JOB = r"projects/[^/]+/locations/[^/]+/jobs/[^/:]+"
_EXECUTION = rf"{_JOB}/executions/[^/:]+"
_TYPE = "type.googleapis.com/google.cloud.run.v2."


class Api:
    """State and routes. `begin` creates an execution of (name, template)."""

    def __init__(self, account: Account, begin: Callable[[str, Json], Execution]) -> None:
        self.account = account
        self.jobs: dict[str, Json] = {}
        self.executions: dict[str, Execution] = {}
        self._begin = begin
        self._lock = threading.RLock()
        self._numbers = itertools.count(1)
        self._operations: dict[str, Json] = {}
        self._routes: list[tuple[str, re.Pattern[str], Callable[[str, Mapping[str, str], Json], Json]]] = [
            ("POST", re.compile(r"v2/(projects/[^/]+/locations/[^/]+)/jobs"), self._create),
            ("GET", re.compile(rf"v2/({_JOB})"), self._job),
            ("PATCH", re.compile(rf"v2/({_JOB})"), self._patch),
            ("DELETE", re.compile(rf"v2/({_JOB})"), self._delete),
            ("POST", re.compile(rf"v2/({_JOB}):run"), self._run),
            ("GET", re.compile(rf"v2/({_JOB})/executions"), self._list),
            ("GET", re.compile(rf"v2/({_EXECUTION})"), lambda name, *_: self._execution(name).json()),
            ("POST", re.compile(rf"v2/({_EXECUTION}):cancel"), self._cancel),
            ("GET", re.compile(rf"v2/({_EXECUTION})/tasks"), self._tasks),
            ("GET", re.compile(r"v[12]/(projects/[^/]+/locations/[^/]+/operations/[^/]+)"), self._operation),
            ("GET", re.compile(r"v1/(projects/[^/]+/secrets/[^/]+/versions/[^/]+)"), self._secret),
            ("POST", re.compile(r"v1/(projects/[^/]+/secrets/[^/]+):addVersion"), self._add_secret),
            ("POST", re.compile(r"v2/(entries):list"), self._entries),
        ]

    def answer(self, method: str, path: str, query: Mapping[str, str], body: Json) -> Json:
        """Return the response, or raise `Refused`."""
        for wanted, pattern, act in self._routes:
            found = pattern.fullmatch(path.removeprefix("/"))
            if found and wanted == method:
                with self._lock:
                    return act(found[1], query, body)
        raise Refused(404, "NOT_FOUND", f"No route {method} {path}")

    def _create(self, parent: str, query: Mapping[str, str], body: Json) -> Json:
        name = f"{parent}/jobs/{query['jobId']}"
        if name in self.jobs:
            raise Refused(409, "ALREADY_EXISTS", f"Resource '{query['jobId']}' already exists.")
        return self._store(name, query, body)

    def _patch(self, name: str, query: Mapping[str, str], body: Json) -> Json:
        if name not in self.jobs and query.get("allowMissing") != "true":
            raise _missing(name)
        return self._store(name, query, body)

    def _store(self, name: str, query: Mapping[str, str], body: Json) -> Json:
        self.account.check(name, body)
        job = {**body, "name": name}
        if query.get("validateOnly") != "true":
            self.jobs[name] = job
        return self._started(name, "Job", job)

    def _job(self, name: str, *_: Any) -> Json:
        if name not in self.jobs:
            self.account.check_place(name)
            raise _missing(name)
        return self.jobs[name]

    def _delete(self, name: str, *_: Any) -> Json:
        job = self._job(name)
        for one in [one for one in self.executions if one.startswith(f"{name}/")]:
            self.executions.pop(one).cancel()
        del self.jobs[name]
        return self._started(name, "Job", job)

    def _run(self, name: str, _: Mapping[str, str], body: Json) -> Json:
        job = self._job(name)
        template = with_overrides(job["template"], body.get("overrides", {}))
        self.account.check(name, {"template": template})  # its references may no longer exist
        execution = f"{name}/executions/{name.rpartition('/')[2]}-{next(self._numbers):05d}"
        self.executions[execution] = begun = self._begin(execution, template)
        shown = {"@type": f"{_TYPE}Execution", **begun.json()}
        return {"name": self._operation_name(name), "metadata": shown}

    def _list(self, job: str, query: Mapping[str, str], _: Json) -> Json:
        self._job(job)
        found = [one.json() for name, one in self.executions.items() if name.startswith(f"{job}/")]
        return _page(sorted(found, key=lambda one: str(one["name"]), reverse=True), "executions", query)

    def _execution(self, name: str) -> Execution:
        if name not in self.executions:
            raise _missing(name)
        return self.executions[name]

    def _cancel(self, name: str, *_: Any) -> Json:
        execution = self._execution(name)
        if execution.over:
            raise Refused(400, "FAILED_PRECONDITION", "Execution is already completed and cannot be cancelled.")
        execution.cancel()
        return self._started(name, "Execution", execution.json())

    def _tasks(self, name: str, query: Mapping[str, str], _: Json) -> Json:
        execution = self._execution(name)
        return _page([execution.task_json(one) for one in execution.tasks], "tasks", query)

    def _secret(self, name: str, *_: Any) -> Json:
        project, secret, version = name.split("/")[1::2]
        if secret not in self.account.secrets:
            raise Refused(
                404, "NOT_FOUND", f"Secret [projects/{project}/secrets/{secret}] not found or has no versions."
            )
        return {
            "name": f"projects/{project}/secrets/{secret}/versions/{version}",
            "state": self.account.states.get(secret, "ENABLED"),
        }

    def _add_secret(self, name: str, _: Mapping[str, str], body: Json) -> Json:
        secret = name.rpartition("/")[2]
        self.account.secrets[secret] = base64.b64decode(body["payload"]["data"]).decode()
        return self._secret(f"{name}/versions/1")

    def _entries(self, _path: str, _query: Mapping[str, str], body: Json) -> Json:
        wanted = dict(re.findall(r'([\w."/]+?)"?>?="([^"]*)"', body.get("filter", "")))
        name = wanted.get('labels."run.googleapis.com/execution_name', "")
        since = wanted.get("timestamp", "")
        execution = next((one for full, one in self.executions.items() if full.endswith(f"/executions/{name}")), None)
        lines = [] if execution is None else [one for one in execution.collect() if one.moment >= since]
        if body.get("orderBy") == "timestamp desc":
            lines.reverse()
        entries = [
            {
                "insertId": one.id,
                "timestamp": one.moment,
                "textPayload": one.text,
                "labels": {
                    "run.googleapis.com/execution_name": name,
                    "run.googleapis.com/task_index": str(one.task),
                },
            }
            for one in lines
        ]
        return _page(entries, "entries", {key: str(body[key]) for key in ("pageSize", "pageToken") if key in body})

    def _operation_name(self, place: str) -> str:
        parent = "/".join(place.split("/")[:4])
        return f"{parent}/operations/{next(self._numbers):08d}"

    def _started(self, place: str, kind: str, value: Json) -> Json:
        """Return an operation that is complete at the first request."""
        operation = {"name": self._operation_name(place), "done": False}
        response = {"@type": f"{_TYPE}{kind}", **value}
        self._operations[str(operation["name"])] = {**operation, "done": True, "response": response}
        return operation

    def _operation(self, name: str, *_: Any) -> Json:
        if name not in self._operations:
            raise _missing(name)
        return self._operations[name]


def with_overrides(template: Json, overrides: Mapping[str, Any]) -> Json:
    """Return a job's template with the overrides of an execution."""
    changed = copy.deepcopy(template)
    changed["taskCount"] = overrides.get("taskCount") or changed.get("taskCount", 1)
    if "timeout" in overrides:
        changed["template"]["timeout"] = overrides["timeout"]
    container = changed["template"]["containers"][0]
    for one in overrides.get("containerOverrides", ()):
        container["args"] = one.get("args") or container.get("args", [])
        given = {variable["name"] for variable in one.get("env", ())}
        kept = [variable for variable in container.get("env", ()) if variable["name"] not in given]
        container["env"] = [*kept, *one.get("env", ())]
    return changed


def _page(found: list[Json], what: str, query: Mapping[str, str]) -> Json:
    first, size = int(query.get("pageToken") or 0), int(query.get("pageSize") or 100)
    more = {"nextPageToken": str(first + size)} if first + size < len(found) else {}
    return {what: found[first : first + size], **more}


def _missing(name: str) -> Refused:
    return Refused(404, "NOT_FOUND", f"Resource '{name.rpartition('/')[2]}' of kind was not found.")


# Server on loopback whose tasks are real subprocesses. It implements the part of these REST APIs that launches use:
# Cloud Run v2 (jobs, executions with overrides, tasks, operations), Secret Manager (a version's state), Cloud Logging
# (entries), and Cloud Build (operations). Google's clients connect with `client_options={"api_endpoint": url}`,
# `transport="rest"`, and anonymous credentials. In tests: `with running(environment={...}) as run: ...`.


@dataclass(frozen=True, slots=True)
class Fault:
    """Faulty response to requests with this method whose path contains `path`; `count` times."""

    method: str
    path: str
    code: int
    status: str
    message: str
    count: int = 1


class FakeRun(LoopbackFake):
    """Server. `environment` contains the variables of every container in addition to the job's own, for its account.

    `hurry`: a time limit of N seconds ends after N * `hurry`. `start_failures`: number of tasks that end before their
    command starts. `requests` are the received ones: method, path, query, body.
    """

    def __init__(self, *, environment: Mapping[str, str] | None = None, grace: float = 10.0) -> None:
        self.account = Account()
        self.environment = dict(environment or {})
        self.hurry, self.grace = 1.0, grace
        self.start_failures = 0
        self.requests: list[tuple[str, str, Mapping[str, str], Json]] = []
        self._faults: list[Fault] = []
        self._lock = threading.Lock()
        self.api = Api(self.account, self._begin)
        self._server = Server(_Handler, self)

    @property
    def executions(self) -> list[Execution]:
        """Return all executions, in the order of their requests."""
        return list(self.api.executions.values())

    def refuse(self, fault: Fault) -> None:
        """Add a faulty response for later requests."""
        with self._lock:
            self._faults.extend([fault] * fault.count)

    def close(self) -> None:
        """Close all sockets and end every container."""
        super().close()
        for execution in self.executions:
            execution.remove()

    def answer(self, method: str, path: str, query: Mapping[str, str], body: Json) -> tuple[int, Json]:
        """Return HTTP status and body."""
        with self._lock:
            self.requests.append((method, path, query, body))
            fault = next((one for one in self._faults if one.method == method and one.path in path), None)
            if fault is not None:
                self._faults.remove(fault)
        try:
            if fault is not None:
                raise Refused(fault.code, fault.status, fault.message)
            return 200, self.api.answer(method, path, query, body)
        except Refused as refused:
            return refused.code, refused.json()

    def _begin(self, name: str, template: Json) -> Execution:
        return Execution(
            name,
            template,
            self.account.secrets,
            self.environment,
            hurry=self.hurry,
            grace=self.grace,
            refuse_start=self._refuse_start,
        )

    def _refuse_start(self) -> str:
        with self._lock:
            if self.start_failures <= 0:
                return ""
            self.start_failures -= 1
        return "The container failed to start."


class _Handler(Handler):
    server: Server[FakeRun]

    def reply(self) -> None:
        self.send_json(*self.server.fake.answer(*self.json_request()))


@contextlib.contextmanager
def running(*, environment: Mapping[str, str] | None = None, grace: float = 10.0) -> Iterator[FakeRun]:
    """Run a server in a thread of this process; the server and all containers end with the block."""
    with served(FakeRun(environment=environment, grace=grace)) as run:
        yield run
