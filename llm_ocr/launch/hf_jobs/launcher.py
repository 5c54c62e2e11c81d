"""Hugging Face Jobs: one job for each shard, found again by its labels."""

import contextlib
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from packaging.version import Version

from llm_ocr.costs.live import hub_prices
from llm_ocr.errors import LaunchError, LlmOcrError, MissingExtra
from llm_ocr.launch import Job, JobSpec, JobStatus, Plan, State
from llm_ocr.launch.hf_jobs.plan import (
    GPUS,
    HARDWARE,
    OWN_LABELS,
    PLATFORM,
    TIME_LIMIT,
    labels_of,
    namespace_of,
    plan_of,
    secrets_of,
)
from llm_ocr.launch.last_words import explained
from llm_ocr.launch.library import GOOGLE_KEY, filled
from llm_ocr.settings.environment import environment

if TYPE_CHECKING:
    from datetime import datetime

    from huggingface_hub import HfApi


#: The first release whose `run_job` has `attempts`. Jobs themselves need only what pyproject.toml asks for.
HUB_RELEASE = "2.1"

_STATES: Mapping[str, State] = {
    "SCHEDULING": State.QUEUED,
    "RUNNING": State.RUNNING,
    "COMPLETED": State.SUCCEEDED,
    "CANCELED": State.CANCELLED,
    "DELETED": State.CANCELLED,
    "ERROR": State.FAILED,
}
_TIME = re.compile(r"time[ -]?out|timed out|time limit|deadline", re.IGNORECASE)
_TAKEN = re.compile(r"pre-?empt|evict|node (?:was )?(?:lost|shut ?down|drained)", re.IGNORECASE)

LOG_IN = "Log in (hf auth login), or set HF_TOKEN to a token that may write: https://huggingface.co/settings/tokens"
_PAYING = "https://huggingface.co/settings/billing (for an organisation: its settings)"
_AGAIN = "Run the same command again later: what stands already is found."

_HINTS = {
    401: f"The token has expired or was revoked. {LOG_IN}",
    402: f"Jobs need a positive balance of credits: {_PAYING}",
    403: "The token must be allowed to write and to start jobs in this namespace, and the account must have a plan or "
    f"credits for jobs: {_PAYING}",
    404: "Check --namespace, and which account the token belongs to: hf auth whoami",
    429: f"The Hub's limit of requests or jobs is used up. {_AGAIN}",
}


class HfJobs:
    """The platform `hf-jobs`."""

    platform = PLATFORM

    def __init__(self) -> None:
        self._apis: dict[str | None, HfApi] = {}
        self._words: dict[str, str] = {}

    def hardware(self, stage: str) -> str:
        return HARDWARE[stage]

    def gpus(self, hardware: str) -> int | None:
        return GPUS.get(hardware)

    def time_limit(self, spec: JobSpec) -> int:
        return TIME_LIMIT

    def plan(self, spec: JobSpec) -> Plan:
        return plan_of(spec)

    def check(self, plan: Plan) -> None:
        spec = plan.spec
        _check_keys(spec)
        _values(spec)
        api, namespace = self._api(spec.options.get("platform_endpoint")), self._namespace(spec)
        with asking(f"start jobs in {namespace}"):
            check_flavor(spec.hardware or HARDWARE[spec.stage], hub_prices(api.endpoint, api.token))
            next(iter(api.list_jobs(namespace=namespace, status=["RUNNING"])), None)

    def find(self, spec: JobSpec) -> Sequence[Job]:
        api, namespace = self._api(spec.options.get("platform_endpoint")), self._namespace(spec)
        with asking(f"look for jobs in {namespace}"):
            found = list(api.list_jobs(namespace=namespace, labels=labels_of(spec)))
        # One that was cancelled counts only where no other of its shard stands.
        found.sort(key=lambda info: (info.status.stage != "CANCELED", str(info.created_at)))
        by_shard = {(info.labels or {}).get("shard"): job_of(info) for info in found}
        return sorted(by_shard.values(), key=lambda job: job.shard or 0)

    def submit(self, plan: Plan) -> Sequence[Job]:
        """All jobs or none: when the Hub refuses one, those that were just made are cancelled."""
        spec = plan.spec
        api, namespace = self._api(spec.options.get("platform_endpoint")), self._namespace(spec)
        known = {f"<secret {name}>": value for name, value in _values(spec).items()}
        known |= {"<namespace>": namespace, "<endpoint>": api.endpoint.rstrip("/")}
        standing = self._standing(spec)
        made: list[Job] = []
        for request in plan.requests:
            shard = int(request.body["labels"]["shard"])
            try:
                made.append(standing.get(shard) or self._run(api, spec, filled(request.body, known)))
            except LaunchError as error:
                raise self._taken_back(made, error) from error
        return made

    def status(self, jobs: Sequence[Job]) -> Sequence[JobStatus]:
        places = {(job.place["endpoint"], job.place["namespace"], *job.place["labels"].items()) for job in jobs}
        infos: dict[str, Any] = {}
        for endpoint, namespace, *labels in places:
            with asking(f"look after jobs in {namespace}"):
                listed = self._api(endpoint).list_jobs(namespace=namespace, labels=dict(labels))
                infos |= {info.id: info for info in listed}
        found = [status_of(job, infos[job.id]) if job.id in infos else self._single(job) for job in jobs]
        return [explained(one, self.logs, self._words) for one in found]

    def logs(self, job: Job, *, follow: bool = False, tail: int | None = None) -> Iterator[str]:
        with asking(f"read the log of {job.url or job.id}"):
            api = self._api(job.place["endpoint"])
            lines = api.fetch_job_logs(job_id=job.id, namespace=job.place["namespace"], follow=follow, tail=tail)
            for line in lines:
                yield line.rstrip("\r\n")

    def cancel(self, job: Job) -> None:
        with asking(f"cancel {job.url or job.id}"):
            if not self._single(job).state.over:
                api = self._api(job.place["endpoint"])
                api.cancel_job(job_id=job.id, namespace=job.place["namespace"])

    def clean(self, jobs: Sequence[Job]) -> Sequence[str]:
        places = sorted({(str(job.place["endpoint"]), str(job.place["namespace"])) for job in jobs})
        return [f"left: ended jobs and their logs, which the Hub keeps: {one}/jobs/{name}" for one, name in places]

    def _api(self, endpoint: str | None) -> "HfApi":
        from huggingface_hub import HfApi, __version__, constants
        from huggingface_hub.utils import disable_progress_bars  # type: ignore[attr-defined]  # no __all__ there

        if Version(__version__) < Version(HUB_RELEASE):
            raise MissingExtra(
                f"launching on Hugging Face Jobs needs huggingface_hub {HUB_RELEASE}, and {__version__} is installed",
                hint=f'Install it: pip install --upgrade "huggingface_hub>={HUB_RELEASE}"',
            )
        if endpoint not in self._apis:
            if constants.HF_HUB_DISABLE_PROGRESS_BARS is None:
                disable_progress_bars()
            self._apis[endpoint] = HfApi(endpoint=endpoint, library_name="llm-ocr")
        return self._apis[endpoint]

    def _namespace(self, spec: JobSpec) -> str:
        """Who pays. Raises `LaunchError` for a token that cannot start jobs there."""
        api = self._api(spec.options.get("platform_endpoint"))
        with asking("start jobs"):
            account = api.whoami(cache=True)
        own = [account["name"], *(one["name"] for one in account.get("orgs", ()))]
        wanted = namespace_of(spec) if spec.options.get("namespace") else own[0]
        if wanted not in own:
            near = get_close_matches(wanted, own, n=1)
            known = f"Did you mean {near[0]}?" if near else f"The token's: {', '.join(own)}"
            raise LaunchError(f"{own[0]} is not in the organisation {wanted}", hint=known)
        if account.get("auth", {}).get("accessToken", {}).get("role") == "read":
            hint = "Make one that may write: https://huggingface.co/settings/tokens"
            raise LaunchError(f"the token of {own[0]} may only read: it cannot start jobs", hint=hint)
        return wanted

    def _taken_back(self, made: Sequence[Job], error: LaunchError) -> LaunchError:
        """What is raised when the jobs that were just made are cancelled; those that cannot be are named."""
        left = []
        for job in made:
            try:
                self.cancel(job)
            except LaunchError:
                left.append(job.url or job.id)
        if not left:
            return error
        return LaunchError(f"{error.args[0]}; still there: {', '.join(left)}", hint=error.hint)

    def _standing(self, spec: JobSpec) -> Mapping[int | None, Job]:
        """Jobs of this very submission that were made before, and not taken back."""
        found = self.find(spec)
        statuses = self.status(found) if found else ()
        return {one.job.shard: one.job for one in statuses if one.state is not State.CANCELLED}

    def _run(self, api: "HfApi", spec: JobSpec, body: Mapping[str, Any]) -> Job:
        shard, namespace = int(body["labels"]["shard"]), str(body["namespace"])
        try:
            with asking(f"start a job on {body['flavor']} in {namespace}"):
                return job_of(api.run_job(**body))
        except LaunchError as error:
            # An answer that was lost says nothing of the job.
            if error.retryable and (job := self._standing(spec).get(shard)):
                return job
            raise

    def _single(self, job: Job) -> JobStatus:
        from huggingface_hub.errors import JobNotFoundError

        try:
            with asking(f"look after {job.url or job.id}"):
                api = self._api(job.place["endpoint"])
                return status_of(job, api.inspect_job(job_id=job.id, namespace=job.place["namespace"]))
        except LaunchError as error:
            if isinstance(error.__cause__, JobNotFoundError):
                return JobStatus(job, State.FAILED, "the Hub knows nothing of this job")
            raise


def _check_keys(spec: JobSpec) -> None:
    """Jobs have no identity in other clouds: without keys their first request is refused, on a machine that is paid."""
    if spec.workspace.startswith("s3:") and not any(name.startswith("AWS_") for name in spec.secrets):
        hint = "Give --secret AWS_ACCESS_KEY_ID --secret AWS_SECRET_ACCESS_KEY, and AWS_SESSION_TOKEN if it is set."
        raise LaunchError(f"jobs on Hugging Face have no keys for {spec.workspace}", hint=hint)
    emulated = "LLM_OCR_WORKSPACE_ENDPOINT" in spec.environment
    if spec.workspace.startswith("gs:") and GOOGLE_KEY not in spec.secrets and not emulated:
        hint = f"Put the content of a service account's key file into {GOOGLE_KEY}, and give --secret {GOOGLE_KEY}."
        raise LaunchError(f"jobs on Hugging Face have no credentials for {spec.workspace}", hint=hint)


def _values(spec: JobSpec) -> dict[str, str]:
    """The secrets' values. Raises `LaunchError` for one that is not set here."""
    from huggingface_hub import get_token

    here, values = environment(), {}
    for name, where in secrets_of(spec).items():
        value = here.get(where) or (get_token() if where == "HF_TOKEN" else None)
        if not value and where == "HF_TOKEN":
            raise no_login("start jobs")
        if not value:
            raise LaunchError(f"secret {name} is not set here", hint=f"Set it first: export {where}=…")
        values[name] = value
    return values


def check_flavor(flavor: str, offered: Mapping[str, float | None]) -> None:
    """Raise `LaunchError` with the nearest names, and their prices, for one that the Hub does not offer."""
    if flavor in offered:
        return
    near = get_close_matches(flavor, offered, n=4, cutoff=0.4) or list(offered)
    shown = ", ".join(_shown(name, offered[name]) for name in near)
    raise LaunchError(
        f"Hugging Face Jobs has no hardware {flavor!r}", hint=f"Near: {shown}. All of them: hf jobs hardware"
    )


def _shown(name: str, price: float | None) -> str:
    return name if price is None else f"{name} (${price:.2f} an hour)"


def job_of(info: Any) -> Job:
    """Return a job of this library as a launch records it."""
    labels = info.labels or {}
    shard = labels.get("shard", "")
    own = {name: labels[name] for name in OWN_LABELS if name in labels}
    place = {"endpoint": info.endpoint, "namespace": info.owner.name, "labels": own}
    return Job(info.id, labels.get("name", ""), int(shard) if shard.isdigit() else None, info.url, place)


def status_of(job: Job, info: Any) -> JobStatus:
    """A status from huggingface_hub's `JobInfo`."""
    stage, message = str(getattr(info.status.stage, "value", info.status.stage)), (info.status.message or "").strip()
    seconds = info.durations.running_secs if info.durations else None
    state = _STATES.get(stage) or (State.FAILED if info.finished_at else State.RUNNING)
    if state is State.FAILED:
        state = _ended_by(message, seconds, (info.labels or {}).get("limit", ""))
    reason = message or stage if state.over and state is not State.SUCCEEDED else ""
    if seconds is None and state.over and info.started_at is None:
        seconds = 0  # it never had a machine
    # Billed by the minute.
    billed = None if seconds is None else math.ceil(seconds / 60) * 60.0
    return JobStatus(job, state, reason, _seconds(info.started_at), _seconds(info.finished_at), billed)


def _ended_by(message: str, seconds: int | None, limit: str) -> State:
    """The Hub has one stage for all that goes wrong; its words and the job's own limit tell more."""
    if _TIME.search(message) or (limit.isdigit() and seconds is not None and seconds >= int(limit)):
        return State.TIMED_OUT
    return State.PREEMPTED if _TAKEN.search(message) else State.FAILED


def _seconds(at: "datetime | None") -> float | None:
    return at.timestamp() if at is not None else None


@contextlib.contextmanager
def asking(action: str) -> Iterator[None]:
    """Errors of huggingface_hub inside become `LaunchError`s: "cannot <action>", the Hub's words, what to do."""
    from huggingface_hub import errors as hub

    # The error of the HTTP library, which is another one in other releases.
    no_answer: type[BaseException] = hub.HfHubHTTPError.__bases__[0]
    try:
        yield
    except LlmOcrError:
        raise
    except hub.LocalTokenNotFoundError as error:
        raise no_login(action) from error
    except hub.HfHubHTTPError as error:
        raise _refused(error, action) from error
    except (no_answer, OSError, RuntimeError) as error:
        raise _made(f"cannot {action}: no answer from the Hub ({_said(error)})", _AGAIN, retryable=True) from error
    except ValueError as error:
        raise LaunchError(f"cannot {action}: {_said(error)}") from error


def no_login(action: str) -> LaunchError:
    """Nobody is logged in on this machine."""
    return LaunchError(f"cannot {action}: there is no token of the Hugging Face Hub", hint=LOG_IN)


def _refused(error: Any, action: str) -> LaunchError:
    status = int(error.response.status_code)
    message = (error.server_message or _said(error)).strip().partition("\n")[0]
    hint = _HINTS.get(status, _AGAIN if status >= 500 else "")
    return _made(f"cannot {action}: {message} ({status})", hint, retryable=status >= 500 or status in (408, 429))


def _made(message: str, hint: str, *, retryable: bool) -> LaunchError:
    made = LaunchError(message, hint=hint)
    made.retryable = retryable
    return made


def _said(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__
