"""Google Cloud Run: a stage as an execution of a job, its shards as tasks.

Google's client is imported at the first request; `plan` sends none.
"""

import json
import re
import time
from collections.abc import Iterator, Sequence
from functools import cache, partial
from itertools import islice
from typing import Any

from llm_ocr.errors import LaunchError
from llm_ocr.launch import Job, JobSpec, JobStatus, Launcher, Plan, State
from llm_ocr.launch.answers import explained, followed
from llm_ocr.launch.cloud_run.google import CHANGE_TIMEOUT, TIMEOUT, Google, asking, message_in, refused
from llm_ocr.launch.cloud_run.plan import (
    JOB_LABEL,
    MACHINES,
    PROJECT,
    default_hardware,
    job_name,
    make_plan,
    short_name,
    time_limit,
)
from llm_ocr.launch.library import filled
from llm_ocr.types import plural

#: Maximum tasks of a running execution for which each task is requested, to compute its costs so far: one page.
_TASKS_WHILE_RUNNING = 100


class CloudRun(Launcher):
    """Platform `cloud-run`. `poll_seconds` is the time between two requests for a followed log."""

    platform = "cloud-run"
    poll_seconds = 5.0

    def __init__(self) -> None:
        super().__init__()
        self._google = cache(Google)  # by endpoint

    def hardware(self, stage: str) -> str:
        return default_hardware(stage)

    def gpus(self, hardware: str) -> int | None:
        return MACHINES[hardware].gpus if hardware in MACHINES else None

    def time_limit(self, spec: JobSpec) -> int:
        return time_limit(spec)

    def plan(self, spec: JobSpec) -> Plan:
        return make_plan(self.platform, spec)

    def check(self, plan: Plan) -> None:
        """Check each secret, and let Cloud Run validate the job."""
        google = self._google(_endpoint(plan.spec))
        patch, run = _bodies(plan, google)
        for variable in patch["job"]["template"]["template"]["containers"][0].get("env", ()):
            if "valueSource" in variable:
                # A version must exist and be enabled, as far as this account may read.
                reference = variable["valueSource"]["secretKeyRef"]
                secret, version = reference["secret"], reference["version"]
                full = secret if "/" in secret else f"projects/{run['name'].split('/')[1]}/secrets/{secret}"
                action = f"use the secret {secret}"
                status, answer = google.asked("GET", "secretmanager", f"v1/{full}/versions/{version}", action)
                if status == 404:
                    raise refused(action, status, f"Secret not found: {message_in(answer)}")
                if status == 200 and answer.get("state", "ENABLED") != "ENABLED":
                    hint = f'Add one: printf %s "$VALUE" | gcloud secrets versions add {secret} --data-file=-'
                    why = f"version {version} is {answer['state'].lower()}"
                    raise LaunchError(f"Cloud Run: cannot {action}: {why}", hint=hint)
        google.update("accept the job", {**patch, "validateOnly": True})

    def find(self, spec: JobSpec) -> Sequence[Job]:
        google = self._google(_endpoint(spec))
        executions = _executions(google, _job_name(spec, google))
        return [_job(run.name, spec) for run in executions if run.labels.get(JOB_LABEL) == spec.name]

    def submit(self, plan: Plan) -> Sequence[Job]:
        google = self._google(_endpoint(plan.spec))
        patch, run = _bodies(plan, google)
        google.update("create or update the job", patch)
        with asking("run the job"):
            execution = google.jobs.run_job(request=google.message("RunJobRequest", run), timeout=TIMEOUT).metadata
        if execution is None or not execution.name:
            raise LaunchError(
                "Cloud Run: the run was accepted without a name", hint="Run the command again to find it."
            )
        return [_job(execution.name, plan.spec)]

    def logs(self, job: Job, *, follow: bool = False, tail: int | None = None) -> Iterator[str]:
        google = self._of_job(job)

        def execution() -> Any:
            with asking("read the log"):
                return google.executions.get_execution(name=job.id)

        log = _Log(google, execution())
        first = log.new() if tail is None else log.newest(tail)
        yield from followed(first, log.new, lambda: is_over(execution()), follow=follow, every=self.poll_seconds)

    def _end(self, job: Job) -> None:
        with asking("cancel the run"):
            self._of_job(job).executions.cancel_execution(name=job.id, timeout=TIMEOUT)

    def clean(self, jobs: Sequence[Job]) -> Sequence[str]:
        """Delete the Cloud Run jobs of these launches without running executions, with their execution records."""
        lines = []
        own = {job.id.partition("/executions/")[0]: job for job in jobs}
        for name, job in own.items():
            google = self._of_job(job)
            if name.rpartition("/")[2] != short_name(job.name):
                lines.append(f"kept {name}: an earlier version made it for the launches of all workspaces")
                continue
            if running := [run.name for run in _executions(google, name) if not is_over(run)]:
                lines.append(f"kept {name}: {plural(len(running), 'run')} in progress")
                continue
            with asking(f"delete {name}"):
                from google.api_core.exceptions import NotFound

                try:
                    google.jobs.delete_job(name=name, timeout=TIMEOUT).result(timeout=CHANGE_TIMEOUT)
                    lines.append(f"deleted: job {name} and the records of its runs")
                except NotFound:
                    lines.append(f"{name} no longer exists")
        if lines:
            lines.append("kept: images in Artifact Registry, secrets, workspace, logs (30 days by default)")
        return lines

    def _status(self, job: Job) -> JobStatus:
        from google.api_core.exceptions import NotFound

        google = self._of_job(job)
        with asking("read the run"):
            try:
                execution = google.executions.get_execution(name=job.id, timeout=TIMEOUT)
            except NotFound:
                reason = "Cloud Run no longer has this execution: deleted, or too old"
                return JobStatus(job, State.FAILED, reason)
            over = is_over(execution)
            ask = over or (execution.running_count and execution.task_count <= _TASKS_WHILE_RUNNING)
            tasks = list(google.tasks.list_tasks(parent=job.id, timeout=TIMEOUT)) if ask else []
        return explained(job_status(job, execution, tasks), self.logs, self._words)

    def _of_job(self, job: Job) -> Google:
        return self._google(str(job.place.get("endpoint", "")))


def _endpoint(spec: JobSpec) -> str:
    return str(spec.options.get("platform_endpoint") or "")


def _job(execution: str, spec: JobSpec) -> Job:
    _, project, _, region, _, _, _, name = execution.split("/")
    page = f"https://console.cloud.google.com/run/jobs/executions/details/{region}/{name}/tasks?project={project}"
    endpoint = _endpoint(spec)
    return Job(execution, spec.name, url=page, place={"endpoint": endpoint} if endpoint else {})


def _bodies(plan: Plan, google: Google) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the two requests, with the credentials' project if the plan leaves the project open."""
    known = {job_name(plan.spec): _job_name(plan.spec, google)}
    patch, run = (filled(request.body, known) for request in plan.requests)
    return patch, run


def _job_name(spec: JobSpec, google: Google) -> str:
    """Return the job's full name with the project of the credentials, unless the spec has one."""
    name = job_name(spec)
    return name.replace(PROJECT, google.project) if PROJECT in name else name


def _executions(google: Google, job: str) -> list[Any]:
    """Return the executions of a job; empty for a missing job."""
    from google.api_core.exceptions import NotFound

    with asking("list the runs"):
        try:
            return list(google.executions.list_executions(parent=job, timeout=TIMEOUT))
        except NotFound:
            return []


#: Exit code of a stage that SIGTERM ended (see errors.Interrupted).
_INTERRUPTED = 4
_SIGTERM, _SIGKILL = 15, 9
_TIMEOUT = re.compile(r"time(d)?[ -]?out|maximum time|deadline", re.IGNORECASE)
_TAKEN = re.compile(r"maintenance|pre-?empt|evict|migrat", re.IGNORECASE)
#: Maximum reasons that are listed singly.
_MOST_REASONS = 3


def job_status(job: Job, execution: Any, tasks: Sequence[Any]) -> JobStatus:
    """Return the status of an execution; `tasks` contains the known tasks."""
    started, ended = _seconds(execution.start_time), _seconds(execution.completion_time)
    completed = next((condition for condition in execution.conditions if condition.type_ == "Completed"), None)
    condition, message = (completed.state.name, completed.message) if completed is not None else ("", "")
    billed = sum(map(_billed, tasks)) if tasks else None
    # Cloud Run replaces the tag of an image by its digest at the start of an execution.
    images = (container.image for container in execution.template.containers)
    image = next((name for name in images if "@sha256:" in name), "")
    known = partial(JobStatus, job, started=started, ended=ended, seconds=billed, image=image)
    if ended is None and condition not in ("CONDITION_SUCCEEDED", "CONDITION_FAILED"):
        begun = execution.running_count or execution.succeeded_count or execution.failed_count
        return known(state=State.RUNNING if begun else State.QUEUED)
    if condition == "CONDITION_SUCCEEDED":
        return known(state=State.SUCCEEDED)
    if execution.cancelled_count or (completed is not None and completed.execution_reason.name == "CANCELLED"):
        return known(state=State.CANCELLED, reason=message or "canceled")
    failed: list[tuple[int, State, str]] = []
    for task in tasks:
        result = task.last_attempt_result
        if result.exit_code or result.term_signal or result.status.code:
            failed.append((task.index, *_of_task(task)))
    states = {task_state for _, task_state, _ in failed}
    order = (State.FAILED, State.PREEMPTED, State.TIMED_OUT)
    state = next((candidate for candidate in order if candidate in states), State.FAILED)
    if failed:
        shown = [f"task {index}: {why}" for index, task_state, why in failed if task_state is state]
        more = ["..."] if shown[_MOST_REASONS:] else []
        reason = f"{len(failed)} of {plural(execution.task_count, 'task')} failed: "
        reason += "; ".join([*shown[:_MOST_REASONS], *more])
    else:
        state = State.TIMED_OUT if _TIMEOUT.search(message) else State.FAILED
        reason = message or "failed without a reason"
    return known(state=state, reason=reason)


def is_over(execution: Any) -> bool:
    """Return whether an execution has ended."""
    return _seconds(execution.completion_time) is not None


def _of_task(task: Any) -> tuple[State, str]:
    """Return the end of a task: by its message, otherwise by whether its time was over at SIGTERM."""
    result = task.last_attempt_result
    words = result.status.message or ""
    limit = task.timeout.total_seconds() if task.timeout else 0
    time_was_over = bool(limit) and _billed(task) >= limit
    how = f"exit code {result.exit_code}" if result.exit_code else f"signal {result.term_signal}"
    why = f"{how}: {words}" if words else how
    if _TIMEOUT.search(words):
        return State.TIMED_OUT, why
    if _TAKEN.search(words):
        return State.PREEMPTED, why
    if result.exit_code == _INTERRUPTED or result.term_signal == _SIGTERM:
        return (State.TIMED_OUT if time_was_over else State.PREEMPTED), why
    if result.term_signal == _SIGKILL and time_was_over:
        return State.TIMED_OUT, why
    return State.FAILED, why


def _billed(task: Any) -> float:
    """Return the seconds from a task's start to its end, or to now."""
    started, ended = _seconds(task.start_time), _seconds(task.completion_time)
    if started is None:
        return 0.0
    return max(0.0, (time.time() if ended is None else ended) - started)


def _seconds(moment: Any) -> float | None:
    return float(moment.timestamp()) if moment else None


_PAGE = 1000
_INDEX = "run.googleapis.com/task_index"


class _Log:
    """Lines of an execution's log, each with the number of its task if there are several tasks."""

    def __init__(self, google: Google, execution: Any) -> None:
        _, self._project, _, region, _, job, _, name = execution.name.split("/")
        self._google = google
        self._many = execution.task_count > 1
        uri = str(execution.log_uri)
        self._hint = f"This requires roles/logging.viewer. The log is at {uri}" if uri else ""
        self._filter = (
            f'resource.type="cloud_run_job" AND resource.labels.job_name="{job}" AND '
            f'resource.labels.location="{region}" AND labels."run.googleapis.com/execution_name"="{name}"'
        )
        self._since = ""
        self._given: set[str] = set()

    def newest(self, count: int) -> Iterator[str]:
        """Yield the last lines."""
        found = list(islice(self._entries("timestamp desc", min(count, _PAGE)), count))
        return map(self._line, reversed(found))

    def new(self) -> Iterator[str]:
        """Yield the lines that were not yielded before."""
        entries = self._entries("timestamp asc", _PAGE)
        return (self._line(entry) for entry in entries if entry.get("insertId", "") not in self._given)

    def _line(self, entry: dict[str, Any]) -> str:
        moment = str(entry.get("timestamp", ""))
        if moment > self._since:
            self._since, self._given = moment, set()
        self._given.add(str(entry.get("insertId", "")))
        message = entry.get("textPayload")
        if message is None:
            value = entry.get("jsonPayload") or entry.get("protoPayload") or {}
            message = value.get("message") or json.dumps(value, sort_keys=True)
        index = entry.get("labels", {}).get(_INDEX, "")
        return f"[{index}] {str(message).rstrip()}" if self._many and index else str(message).rstrip()

    def _entries(self, order: str, size: int) -> Iterator[dict[str, Any]]:
        since = f' AND timestamp>="{self._since}"' if self._since else ""
        body: dict[str, Any] = {"resourceNames": [f"projects/{self._project}"], "filter": self._filter + since}
        body |= {"orderBy": order, "pageSize": size}
        while True:
            try:
                status, answer = self._google.asked("POST", "logging", "v2/entries:list", "read the log", body)
                if status >= 400:
                    raise refused("read the log", status, message_in(answer))
            except LaunchError as error:
                raise LaunchError(error.args[0], hint=self._hint or error.hint) from error
            yield from answer.get("entries", ())
            if not answer.get("nextPageToken"):
                return
            body["pageToken"] = answer["nextPageToken"]
