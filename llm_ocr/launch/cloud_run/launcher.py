"""Google Cloud Run: a stage as one run of a job, its shards as tasks of it.

Imports Google's client when something is asked; `plan` asks nobody.
"""

import copy
from collections.abc import Iterator, Sequence
from typing import Any

from llm_ocr.errors import LaunchError, UsageError
from llm_ocr.launch import Job, JobSpec, JobStatus, Plan
from llm_ocr.launch.cloud_run.address import console_url
from llm_ocr.launch.cloud_run.client import CHANGE_TIMEOUT, TIMEOUT, Google, message_in
from llm_ocr.launch.cloud_run.errors import refused, translated
from llm_ocr.launch.cloud_run.hardware import MACHINES
from llm_ocr.launch.cloud_run.logs import log_lines
from llm_ocr.launch.cloud_run.plan import JOB_LABEL, PROJECT, default_hardware, default_limit, job_name, make_plan
from llm_ocr.launch.cloud_run.status import gone, is_over, job_status

#: Running executions of at most so many tasks are asked for each task, to know what they cost so far: one page.
_TASKS_WHILE_RUNNING = 100


class CloudRun:
    """See `Launcher`. `poll_seconds` is the time between two looks at a log that is followed."""

    platform = "cloud-run"

    def __init__(self) -> None:
        self.poll_seconds = 5.0
        self._clients: dict[str, Google] = {}

    def hardware(self, stage: str) -> str:
        return default_hardware(stage)

    def gpus(self, hardware: str) -> int | None:
        return MACHINES[hardware].gpus if hardware in MACHINES else None

    def time_limit(self, spec: JobSpec) -> int:
        return default_limit(spec)

    def plan(self, spec: JobSpec) -> Plan:
        return make_plan(self.platform, spec)

    def check(self, plan: Plan) -> None:
        """Asks for each secret, and Cloud Run whether it would take the job."""
        google = self._google(_endpoint(plan.spec))
        patch, run = _bodies(plan, google)
        for variable in patch["job"]["template"]["template"]["containers"][0].get("env", ()):
            _check_secret(google, run["name"], variable["valueSource"]["secretKeyRef"])
        with translated("take the job"):
            request = google.message("UpdateJobRequest", {**patch, "validateOnly": True})
            google.jobs.update_job(request=request, timeout=TIMEOUT).result(timeout=CHANGE_TIMEOUT)

    def find(self, spec: JobSpec) -> Sequence[Job]:
        google = self._google(_endpoint(spec))
        name = _with_project(job_name(spec), google)
        executions = _executions(google, name)
        return [_job(one.name, spec) for one in executions if one.labels.get(JOB_LABEL) == spec.name]

    def submit(self, plan: Plan) -> Sequence[Job]:
        """Raises `LaunchError`, `retryable` where another launch changed the job in between and nothing was run."""
        google = self._google(_endpoint(plan.spec))
        patch, run = _bodies(plan, google)
        with translated("create or update the job"):
            request = google.message("UpdateJobRequest", patch)
            google.jobs.update_job(request=request, timeout=TIMEOUT).result(timeout=CHANGE_TIMEOUT)
        with translated("run the job"):
            execution = google.jobs.run_job(request=google.message("RunJobRequest", run), timeout=TIMEOUT).metadata
        if execution is None or not execution.name:
            raise LaunchError("Cloud Run: the run was taken, but not named", hint="The same command finds it.")
        if execution.labels.get(JOB_LABEL, plan.spec.name) != plan.spec.name:
            self.cancel(Job(execution.name, plan.spec.name, place=_place(plan.spec)))
            made = LaunchError(
                f"Cloud Run: another launch changed {run['name'].rpartition('/')[2]} at the same moment; the run with "
                "its image and secrets was cancelled",
                hint="The same command tries again.",
            )
            made.retryable = True
            raise made
        return [_job(execution.name, plan.spec)]

    def status(self, jobs: Sequence[Job]) -> Sequence[JobStatus]:
        return [self._status(job) for job in jobs]

    def logs(self, job: Job, *, follow: bool = False, tail: int | None = None) -> Iterator[str]:
        google = self._google(str(job.place.get("endpoint", "")))
        return log_lines(google, job.id, follow=follow, tail=tail, every=self.poll_seconds)

    def cancel(self, job: Job) -> None:
        google = self._google(str(job.place.get("endpoint", "")))
        with translated("cancel the run"):
            execution = _get_execution(google, job.id)
            if execution is not None and not is_over(execution):
                google.executions.cancel_execution(name=job.id, timeout=TIMEOUT)

    def clean(self, jobs: Sequence[Job]) -> Sequence[str]:
        """Deletes the Cloud Run jobs, with their runs' records, unless something of them still runs."""
        lines = []
        for name, endpoint in {
            job.id.partition("/executions/")[0]: str(job.place.get("endpoint", "")) for job in jobs
        }.items():
            google = self._google(endpoint)
            if running := [one.name for one in _executions(google, name) if not is_over(one)]:
                lines.append(f"left {name}: {len(running)} of its runs are not over")
            else:
                lines.append(_delete(google, name))
        if lines:
            lines.append(
                "left: the images in Artifact Registry, the secrets, the workspace, the logs (30 days by default)"
            )
        return lines

    def _status(self, job: Job) -> JobStatus:
        google = self._google(str(job.place.get("endpoint", "")))
        with translated("ask for the run"):
            execution = _get_execution(google, job.id)
            if execution is None:
                return gone(job)
            over = is_over(execution)
            ask = over or (execution.running_count and execution.task_count <= _TASKS_WHILE_RUNNING)
            tasks = list(google.tasks.list_tasks(parent=job.id, timeout=TIMEOUT)) if ask else []
        return job_status(job, execution, tasks)

    def _google(self, endpoint: str) -> Google:
        if endpoint not in self._clients:
            self._clients[endpoint] = Google(endpoint)
        return self._clients[endpoint]


def _endpoint(spec: JobSpec) -> str:
    return str(spec.options.get("platform_endpoint") or "")


def _place(spec: JobSpec) -> dict[str, str]:
    return {"endpoint": _endpoint(spec)} if _endpoint(spec) else {}


def _job(execution: str, spec: JobSpec) -> Job:
    return Job(execution, spec.name, url=console_url(execution), place=_place(spec))


def _bodies(plan: Plan, google: Google) -> tuple[dict[str, Any], dict[str, Any]]:
    """The two requests, with the credentials' project where the plan leaves it open."""
    if plan.missing:
        raise UsageError(f"cloud-run needs {', '.join(plan.missing.values())}")
    patch, run = (copy.deepcopy(dict(one.body)) for one in plan.requests)
    patch["job"]["name"] = run["name"] = _with_project(run["name"], google)
    return patch, run


def _with_project(name: str, google: Google) -> str:
    return name.replace(PROJECT, google.project) if PROJECT in name else name


def _check_secret(google: Google, job: str, reference: dict[str, str]) -> None:
    """Whether the version stands and is enabled; who may not look is told by Cloud Run itself."""
    secret, version = reference["secret"], reference["version"]
    full = secret if "/" in secret else f"projects/{job.split('/')[1]}/secrets/{secret}"
    action = f"use the secret {secret}"
    status, answer = google.asked("GET", "secretmanager", f"v1/{full}/versions/{version}", action)
    if status == 404:
        raise refused(action, status, f"Secret not found: {message_in(answer)}")
    if status == 200 and answer.get("state", "ENABLED") != "ENABLED":
        raise LaunchError(
            f"Cloud Run: cannot {action}: its version {version} is {answer['state'].lower()}",
            hint=f'Add one: printf %s "$VALUE" | gcloud secrets versions add {secret} --data-file=-',
        )


def _executions(google: Google, job: str) -> list[Any]:
    """None for a job that is not there."""
    from google.api_core.exceptions import NotFound

    with translated("list the runs"):
        try:
            return list(google.executions.list_executions(parent=job, timeout=TIMEOUT))
        except NotFound:
            return []


def _get_execution(google: Google, name: str) -> Any:
    from google.api_core.exceptions import NotFound

    try:
        return google.executions.get_execution(name=name, timeout=TIMEOUT)
    except NotFound:
        return None


def _delete(google: Google, name: str) -> str:
    from google.api_core.exceptions import NotFound

    with translated(f"delete {name}"):
        try:
            google.jobs.delete_job(name=name, timeout=TIMEOUT).result(timeout=CHANGE_TIMEOUT)
        except NotFound:
            return f"{name} was not there any more"
    return f"deleted the job {name} and the records of its runs"
