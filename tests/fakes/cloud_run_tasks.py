"""Executions of the fake Cloud Run, and the requests that it refuses."""

import itertools
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from tests.fakes.container import Container

# Refusals, in words like the platform's.


Json = dict[str, Any]

_GPUS = {"nvidia-l4": (4, 16), "nvidia-rtx-pro-6000": (20, 80)}
_MOST_TASKS = 10_000


class Refused(Exception):
    """Error response."""

    def __init__(self, code: int, status: str, message: str) -> None:
        super().__init__(message)
        self.code, self.status, self.message = code, status, message

    def json(self) -> Json:
        return {"error": {"code": self.code, "status": self.status, "message": self.message}}


@dataclass(slots=True)
class Account:
    """Content of the projects; None: everything that is requested. All fields may be changed while the server runs."""

    secrets: dict[str, str] = field(default_factory=dict)
    states: dict[str, str] = field(default_factory=dict)  # states of secret versions other than ENABLED
    unreadable: set[str] = field(default_factory=set)  # secrets that the jobs' account may not read
    images: set[str] | None = None
    accounts: set[str] | None = None
    quota: dict[str, int] = field(default_factory=dict)  # accelerator -> GPUs; sufficient for missing ones
    regions: set[str] | None = None

    def check(self, name: str, job: Mapping[str, Any]) -> None:
        """Raise `Refused` for a job that cannot be created."""
        self.check_place(name)
        template = job.get("template", {})
        inner = template.get("template", {})
        self._check_tasks(template)
        self._check_machine(template, inner)
        account = inner.get("serviceAccount")
        if self.accounts is not None and account and account not in self.accounts:
            raise _invalid(f"template.service_account: Service account {account} does not exist.")
        for container in inner.get("containers", ()):
            image = container.get("image", "")
            if self.images is not None and image not in self.images:
                raise _invalid(f"template.containers[0].image: Image '{image}' not found.")
            for variable in container.get("env", ()):
                self._check_secret((variable.get("valueSource") or {}).get("secretKeyRef"))

    def check_place(self, name: str) -> None:
        region = name.split("/")[3]
        if self.regions is not None and region not in self.regions:
            raise Refused(404, "NOT_FOUND", f"Location {region} is not found or access is unauthorized.")

    def _check_tasks(self, template: Mapping[str, Any]) -> None:
        tasks, parallel = int(template.get("taskCount") or 1), int(template.get("parallelism") or 0)
        if tasks > _MOST_TASKS:
            raise _invalid(f"template.task_count: must be between 1 and {_MOST_TASKS}.")
        if parallel > tasks:
            raise _invalid("template.parallelism: must be less than or equal to task_count.")

    def _check_machine(self, template: Mapping[str, Any], inner: Mapping[str, Any]) -> None:
        limits = inner["containers"][0].get("resources", {}).get("limits", {})
        accelerator = inner.get("nodeSelector", {}).get("accelerator")
        if (accelerator is None) != ("nvidia.com/gpu" not in limits):
            raise _invalid("template.node_selector: an accelerator and a limit nvidia.com/gpu go together.")
        if accelerator is None:
            return
        if accelerator not in _GPUS:
            raise _invalid(f"template.node_selector.accelerator: unsupported accelerator {accelerator}.")
        cpu, memory = _GPUS[accelerator]
        if int(limits["cpu"]) < cpu or int(limits["memory"].removesuffix("Gi")) < memory:
            raise _invalid(f"template.containers[0].resources.limits: {accelerator} needs {cpu} CPU and {memory}Gi.")
        wanted = int(template.get("parallelism") or template.get("taskCount") or 1)
        if wanted > self.quota.get(accelerator, wanted):
            raise Refused(
                400,
                "FAILED_PRECONDITION",
                "You do not have quota for using GPUs without zonal redundancy: "
                f"{accelerator} requested: {wanted} allowed: {self.quota[accelerator]}.",
            )

    def _check_secret(self, reference: Mapping[str, str] | None) -> None:
        if reference is None:
            return
        secret, version = reference["secret"], reference.get("version", "latest")
        if secret not in self.secrets:
            raise _invalid(f"Secret projects/1/secrets/{secret}/versions/{version} was not found")
        if secret in self.unreadable:
            raise Refused(403, "PERMISSION_DENIED", f"Permission denied on secret: projects/1/secrets/{secret}")


def _invalid(message: str) -> Refused:
    return Refused(400, "INVALID_ARGUMENT", message)


# Executions: tasks are containers, with the parallelism of the job.


#: Google's status numbers.
_UNKNOWN, _DEADLINE, _ABORTED = 2, 4, 10


@dataclass(slots=True)
class Task:
    """One task and its outcome; `containers` has one per attempt."""

    index: int
    containers: list[Container] = field(default_factory=list)
    started: float | None = None
    ended: float | None = None
    result: Json | None = None
    cancelled: bool = False
    taken: bool = False  # its machine was withdrawn

    @property
    def ok(self) -> bool:
        return self.ended is not None and not self.cancelled and not (self.result or {}).get("status")


@dataclass(frozen=True, slots=True)
class Line:
    """One entry of the log."""

    id: str
    moment: str
    task: int
    text: str


class Execution:
    """Execution of a job. `template` is the job's, with the overrides; `values` are the secrets' values.

    A task ends before its command starts if `refuse_start` returns a reason. A time limit of N seconds ends after N *
    `hurry`.
    """

    def __init__(
        self,
        name: str,
        template: Json,
        values: Mapping[str, str],
        machine: Mapping[str, str],
        *,
        hurry: float,
        grace: float,
        refuse_start: Callable[[], str],
    ) -> None:
        self.name = name
        self.created = time.time()
        self.ended: float | None = None
        self.lines: list[Line] = []
        self.tasks = [Task(index) for index in range(int(template.get("taskCount") or 1))]
        self._template = template
        self._values, self._machine = values, machine
        self._hurry, self._grace = hurry, grace
        self._refuse_start = refuse_start
        self._cancelled = threading.Event()
        self._lock = threading.Lock()
        self._taken: dict[int, int] = {}
        self._clock = 0.0
        self._over = threading.Event()
        self._parallelism = min(int(template.get("parallelism") or len(self.tasks)), len(self.tasks))
        threading.Thread(target=self._run, name=name, daemon=True).start()

    @property
    def over(self) -> bool:
        return self._over.is_set()

    def cancel(self) -> None:
        """Send SIGTERM to running tasks; waiting ones do not start."""
        self._cancelled.set()
        for task in self.tasks:
            if task.containers and task.ended is None:
                threading.Thread(target=task.containers[-1].stop, daemon=True).start()

    def take_away(self, index: int) -> None:
        """Withdraw the machine of a running task: SIGTERM, and SIGKILL after the grace."""
        self.tasks[index].taken = True
        self.tasks[index].containers[-1].stop()

    def time_out(self, index: int) -> None:
        """Reach the time limit of a running task now."""
        self.tasks[index].containers[-1].timed_out = True
        self.tasks[index].containers[-1].stop()

    def remove(self) -> None:
        """End all tasks at once and wait for their end."""
        self._cancelled.set()
        while not self._over.wait(0.05):
            for task in self.tasks:
                for container in list(task.containers):
                    container.remove()
        for task in self.tasks:
            for container in task.containers:
                container.remove()

    def collect(self) -> list[Line]:
        """Return all lines so far, with the times at which they were first read."""
        with self._lock:
            for task in self.tasks:
                for attempt, container in enumerate(list(task.containers)):
                    self._collect(task, attempt, container)
            return list(self.lines)

    def json(self) -> Json:
        """Return the execution as in the API."""
        over = self.over  # before the tasks are read, so that an end is shown completely
        counts = {
            "runningCount": sum(1 for one in self.tasks if one.started is not None and one.ended is None),
            "succeededCount": sum(1 for one in self.tasks if one.ok),
            "failedCount": sum(1 for one in self.tasks if one.ended is not None and not one.ok and not one.cancelled),
            "cancelledCount": sum(1 for one in self.tasks if one.cancelled),
            "retriedCount": sum(1 for one in self.tasks if len(one.containers) > 1),
        }
        started = [one.started for one in self.tasks if one.started is not None]
        return {
            "name": self.name,
            "job": self.name.split("/")[5],
            "labels": dict(self._template.get("labels", {})),
            "createTime": stamp(self.created),
            **({"startTime": stamp(min(started))} if started else {}),
            **({"completionTime": stamp(self.ended)} if over and self.ended else {}),
            "parallelism": self._parallelism,
            "taskCount": len(self.tasks),
            "template": self._template["template"],
            "conditions": [self._completed(over)],
            "logUri": f"https://console.example/logs?execution={self.name.rpartition('/')[2]}",
            **{name: count for name, count in counts.items() if count},
        }

    def task_json(self, task: Task) -> Json:
        """Return a task as in the API."""
        inner = self._template["template"]
        return {
            "name": f"{self.name}/tasks/{self.name.rpartition('/')[2]}-task{task.index}",
            "index": task.index,
            "timeout": inner.get("timeout", "600s"),
            "maxRetries": inner.get("maxRetries", 3),
            "retried": max(0, len(task.containers) - 1),
            **({"startTime": stamp(task.started)} if task.started else {}),
            **({"completionTime": stamp(task.ended)} if task.ended else {}),
            **({"lastAttemptResult": task.result} if task.result else {}),
        }

    def _completed(self, over: bool) -> Json:
        if not over:
            return {"type": "Completed", "state": "CONDITION_RECONCILING"}
        if self._cancelled.is_set():
            message = "Execution was cancelled by a user."
            return {
                "type": "Completed",
                "state": "CONDITION_FAILED",
                "executionReason": "CANCELLED",
                "message": message,
            }
        bad = next((one for one in self.tasks if not one.ok), None)
        if bad is None:
            return {"type": "Completed", "state": "CONDITION_SUCCEEDED"}
        words = ((bad.result or {}).get("status") or {}).get("message", "")
        name = f"{self.name.rpartition('/')[2]}-task{bad.index}"
        message = f"Task {name} failed with message: {words}"
        reason = {"executionReason": "NON_ZERO_EXIT_CODE"}
        return {"type": "Completed", "state": "CONDITION_FAILED", "message": message, **reason}

    def _run(self) -> None:
        try:
            with ThreadPoolExecutor(self._parallelism) as pool:
                list(pool.map(self._do, self.tasks))
        finally:
            self.collect()
            self.ended = time.time()
            self._over.set()

    def _do(self, task: Task) -> None:
        for attempt in range(int(self._template["template"].get("maxRetries", 3)) + 1):
            if self._cancelled.is_set():
                task.cancelled = True
                break
            task.started = task.started or time.time()
            task.result = self._attempt(task, attempt)
            if "status" not in task.result:
                break
        task.ended = time.time()

    def _attempt(self, task: Task, attempt: int) -> Json:
        if words := self._refuse_start():
            return {"status": {"code": _UNKNOWN, "message": words}, "exitCode": 1}
        inner = self._template["template"]
        limit = float(str(inner.get("timeout", "600s")).removesuffix("s"))
        command = inner["containers"][0]
        container = Container(
            [*command.get("command", ()), *command.get("args", ())],
            {**self._machine, **self._variables(command), **self._numbers(task, attempt)},
            time_limit=limit * self._hurry,
            grace=self._grace,
        )
        task.containers.append(container)
        if self._cancelled.is_set():  # set while the container started
            container.stop()
        return self._ended(task, container, limit)

    def _ended(self, task: Task, container: Container, limit: float) -> Json:
        code = container.wait()
        assert code is not None
        how = {"exitCode": code} if code >= 0 else {"termSignal": -code}
        if self._cancelled.is_set():
            task.cancelled = True
            return {**how, "status": {"code": _ABORTED, "message": "The task was cancelled."}}
        if container.timed_out:
            words = f"Terminating task because it has reached the maximum timeout of {limit:g} seconds."
            return {**how, "status": {"code": _DEADLINE, "message": words}}
        if task.taken:
            return {**how, "status": {"code": _ABORTED, "message": "The machine was stopped for maintenance."}}
        if code:
            return {**how, "status": {"code": _UNKNOWN, "message": "The container exited with an error."}}
        return {}

    def _variables(self, container: Json) -> dict[str, str]:
        found = {}
        for one in container.get("env", ()):
            reference = (one.get("valueSource") or {}).get("secretKeyRef")
            found[one["name"]] = self._values[reference["secret"]] if reference else one.get("value", "")
        return found

    def _numbers(self, task: Task, attempt: int) -> dict[str, str]:
        return {
            "CLOUD_RUN_JOB": self.name.split("/")[5],
            "CLOUD_RUN_EXECUTION": self.name.rpartition("/")[2],
            "CLOUD_RUN_TASK_INDEX": str(task.index),
            "CLOUD_RUN_TASK_COUNT": str(len(self.tasks)),
            "CLOUD_RUN_TASK_ATTEMPT": str(attempt),
        }

    def _collect(self, task: Task, attempt: int, container: Container) -> None:
        key = task.index * 1000 + attempt
        over = container.exit_code is not None  # before the log is read, so that its end is collected, too
        try:
            text = (container.home / "log").read_text(errors="replace")
        except FileNotFoundError:  # removed
            return
        # The last line may be incomplete.
        whole = text.splitlines() if over else text[: text.rfind("\n") + 1].splitlines()
        for number in itertools.count(self._taken.get(key, 0)):
            if number >= len(whole):
                break
            self._clock = max(time.time(), self._clock + 1e-6)  # no two lines have the same time
            self.lines.append(Line(f"{key}-{number:08d}", stamp(self._clock), task.index, whole[number]))
            self._taken[key] = number + 1


def stamp(moment: float) -> str:
    """Return a time in Google's form."""
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
