"""Hugging Face Jobs: one job a shard, told apart by labels; the library comes as a wheel from a private repository."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from packaging.version import Version

from llm_ocr.costs.live import hub_prices
from llm_ocr.errors import LaunchError, MissingExtra
from llm_ocr.launch import Job, JobSpec, JobStatus, Plan, State
from llm_ocr.launch.hf_jobs.errors import asking, no_login
from llm_ocr.launch.hf_jobs.hardware import GPUS, check_flavor
from llm_ocr.launch.hf_jobs.plan import (
    GOOGLE_KEY,
    HARDWARE,
    PLATFORM,
    REPOSITORY,
    TIME_LIMIT,
    Shipping,
    filled,
    labels_of,
    namespace_of,
    plan_of,
    secrets_of,
    shipping,
)
from llm_ocr.launch.hf_jobs.status import job_of, status_of
from llm_ocr.launch.hf_jobs.wheel import check_wheel
from llm_ocr.launch.hf_jobs.wheels import ALIVE, check_private, clean_wheels, uploaded, wheel_file, wheels_of
from llm_ocr.launch.programs import ENOUGH, last_words
from llm_ocr.settings.environment import environment

if TYPE_CHECKING:
    from huggingface_hub import HfApi


#: The first release whose `run_job` has `attempts`. Jobs themselves need only what pyproject.toml asks for.
HUB_RELEASE = "2.1"


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
        if wheel := wheel_file(spec):
            check_wheel(wheel)
        _values(spec)
        api, namespace = self._api(spec.options.get("platform_endpoint")), self._namespace(spec)
        with asking(f"start jobs in {namespace}"):
            check_flavor(spec.hardware or HARDWARE[spec.stage], hub_prices(api.endpoint, api.token))
            next(iter(api.list_jobs(namespace=namespace, status=ALIVE)), None)
            if shipping(spec.options.get("wheel")) is Shipping.HUB:
                check_private(api, f"{namespace}/{REPOSITORY}")

    def find(self, spec: JobSpec) -> Sequence[Job]:
        api, namespace = self._api(spec.options.get("platform_endpoint")), self._namespace(spec)
        with asking(f"look for jobs in {namespace}"):
            found = list(api.list_jobs(namespace=namespace, labels=labels_of(spec)))
        # One that was cancelled counts only where no other of its shard stands.
        found.sort(key=lambda info: (info.status.stage != "CANCELED", str(info.created_at)))
        wheels = wheels_of(spec, namespace)
        by_shard = {(info.labels or {}).get("shard"): job_of(info, wheels) for info in found}
        return sorted(by_shard.values(), key=lambda job: job.shard or 0)

    def submit(self, plan: Plan) -> Sequence[Job]:
        """All jobs or none: when the Hub refuses one, those that were just made are cancelled."""
        spec = plan.spec
        api, namespace = self._api(spec.options.get("platform_endpoint")), self._namespace(spec)
        known = {f"<secret {name}>": value for name, value in _values(spec).items()}
        known |= {"<namespace>": namespace, "<endpoint>": api.endpoint.rstrip("/")}
        known |= uploaded(api, plan, known)
        standing = self._standing(spec)
        made: list[Job] = []
        for request in (one for one in plan.requests if one.call == "run_job"):
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
        return [self._explained(one) for one in found]

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
        """The repository of wheels goes when no job of the namespace may still need it; the Hub keeps ended jobs."""
        said = []
        for endpoint, namespace, wheels in sorted({tuple(map(job.place.get, _PLACE)) for job in jobs}, key=str):
            with asking(f"clean up in {namespace}"):
                if wheels:
                    said.append(clean_wheels(self._api(endpoint), str(namespace), wheels))
                said.append(f"left: ended jobs and their logs, which the Hub keeps: {endpoint}/jobs/{namespace}")
        return said

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
            raise LaunchError(
                f"the token of {own[0]} may only read: it cannot start jobs",
                hint="Make one that may write: https://huggingface.co/settings/tokens",
            )
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
                return job_of(api.run_job(**body), wheels_of(spec, namespace))
        except LaunchError as error:
            # An answer that was lost says nothing of the job.
            if error.retryable and (job := self._standing(spec).get(shard)):
                return job
            raise

    def _explained(self, status: JobStatus) -> JobStatus:
        """The Hub says with which code a command ended; its log says why."""
        if status.state is not State.FAILED or status.started is None:
            return status
        job = status.job
        if job.id not in self._words:
            try:
                self._words[job.id] = last_words(self.logs(job, tail=ENOUGH))
            except LaunchError:
                return status
        return replace(status, reason=f"{status.reason}: {self._words[job.id]}".removesuffix(": "))

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


_PLACE = ("endpoint", "namespace", "wheels")


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
