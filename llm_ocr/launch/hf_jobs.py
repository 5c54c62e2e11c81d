"""Hugging Face Jobs: one job per shard, found by its labels.

Each request of a plan is a method of `huggingface_hub.HfApi` with its arguments. Placeholders are replaced at
submission: `<namespace>` and `<endpoint>` (the account of the token, and its Hub), `<secret NAME>`, `<commit>` (the
newest of the model), and those of `library`.

Jobs with vLLM get the model as a read-only volume, mounted where huggingface_hub would download this commit to. The job
finds all files there. If it needs another commit, it downloads that commit as without a volume.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from packaging.version import Version

from llm_ocr.config.environment import environment
from llm_ocr.costs.prices import hub_prices, machines
from llm_ocr.errors import LaunchError, MissingExtra
from llm_ocr.launch import GPU_STAGES, Job, JobSpec, JobStatus, Launcher, Plan, Request, State
from llm_ocr.launch.answers import Refusal, explained, first_line, near, translated
from llm_ocr.launch.bootstrap import GOOGLE_KEY
from llm_ocr.launch.library import CPU_IMAGE, GPU_IMAGE, filled, installs, job_command, library_notes
from llm_ocr.storage.hf.client import no_answer

if TYPE_CHECKING:
    from huggingface_hub import HfApi


#: `llm-ocr estimate` ranks an L40S below an A100 in cost per page.
HARDWARE: Mapping[str, str] = {
    "extract": "l40sx1",
    "describe": "l40sx1",
    "fields": "l40sx1",
    "repair": "l40sx1",
    "assemble": "cpu-upgrade",
    "pipeline": "cpu-basic",
}

#: Flavor -> GPUs, of the price list; the current offer is queried before a job.
GPUS: Mapping[str, int] = {machine.name: machine.gpus for machine in machines() if machine.platform == "hf-jobs"}
#: Labels that all jobs of a submission share.
OWN_LABELS = ("launch", "stage", "submission")
#: Seconds. The Hub's own default of half an hour is hardly enough to load a large model.
TIME_LIMIT = 3 * 3600
#: Folder of models in a job, for HF_HUB_CACHE.
MODELS = "/models"
#: First release whose `run_job` has `attempts`. Jobs themselves need only the release in pyproject.toml.
HUB_RELEASE = "2.1"

_COMMIT = re.compile(r"[0-9a-f]{40}")
_NEWEST = "<commit>"
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

LOG_IN = "Log in (hf auth login), or set HF_TOKEN to a token with write access: https://huggingface.co/settings/tokens"
_NO_TOKEN = "no Hugging Face token found"
_PAYING = "https://huggingface.co/settings/billing (for an organization: its settings)"
_AGAIN = "Run the same command again later; it finds the existing jobs."

_HINTS = {
    401: f"The token has expired or was revoked. {LOG_IN}",
    402: f"Jobs require a positive balance of credits: {_PAYING}",
    403: "The token needs write access and permission to start jobs in this namespace, and the account needs a plan or "
    f"credits for jobs: {_PAYING}",
    404: "Check --namespace and the account of the token: hf auth whoami",
    429: f"The Hub's limit of requests or jobs is reached. {_AGAIN}",
}


class HfJobs(Launcher):
    """Platform `hf-jobs`."""

    platform = "hf-jobs"
    usual_limit = TIME_LIMIT

    def __init__(self) -> None:
        super().__init__()
        self._apis: dict[str | None, HfApi] = {}

    def hardware(self, stage: str) -> str:
        return HARDWARE[stage]

    def gpus(self, hardware: str) -> int | None:
        return GPUS.get(hardware)

    def plan(self, spec: JobSpec) -> Plan:
        limit, volume = spec.time_limit or TIME_LIMIT, _volume(spec)
        command = job_command(spec, gpus=_gpus(spec))
        cache = {} if volume is None else {"HF_HUB_CACHE": MODELS}
        requests = []
        for shard in range(spec.shards):
            numbers = {}
            if spec.shards > 1:
                numbers = {"LLM_OCR_SHARD_INDEX": str(shard), "LLM_OCR_SHARD_COUNT": str(spec.shards)}
            body = {
                "image": spec.image or (GPU_IMAGE if _gpus(spec) else CPU_IMAGE),
                # Images need not have a `python`.
                "command": command if installs(spec) else ["python3", *command[1:]],
                "env": {"HF_ENDPOINT": "<endpoint>", **cache, **spec.environment, **numbers},
                "secrets": {name: f"<secret {name}>" for name in _secrets(spec)},
                **({} if volume is None else {"volumes": [volume]}),
                "flavor": spec.hardware or HARDWARE[spec.stage],
                "timeout": limit,
                # The launch itself submits again, and only while the run makes progress.
                "attempts": 1,
                "name": spec.shard_name(shard),
                "labels": {**_labels(spec), "shard": str(shard), "limit": str(limit)},
                "namespace": _namespace(spec),
            }
            requests.append(Request("run_job", body))
        notes = library_notes(spec, _gpus(spec))
        if _namespace(spec) == "<namespace>":
            notes.append("<namespace> is the account of the token; --namespace sets another")
        if volume is not None:
            branch = spec.options["hub_model"][1] or "main"
            newest = f" (the newest of {branch})" if volume["revision"] == _NEWEST else ""
            notes.append(
                f"{volume['source']} at {volume['revision']}{newest} is mounted in each job and not downloaded; --env "
                "HF_HUB_CACHE=FOLDER lets the jobs download it"
            )
        if secrets := _secrets(spec):
            named = [name if name == where else f"{name} (from {where})" for name, where in secrets.items()]
            notes.append(f"secrets from this machine, encrypted by the Hub: {', '.join(named)}")
        return Plan(self.platform, spec, tuple(requests), notes=tuple(notes))

    def check(self, plan: Plan) -> None:
        spec = plan.spec
        # Jobs have no identity in other clouds, and would fail on a paid machine.
        lacks = f"jobs on Hugging Face have no credentials for {spec.workspace}"
        if spec.workspace.startswith("s3:") and not any(name.startswith("AWS_") for name in spec.secrets):
            hint = "Add --secret AWS_ACCESS_KEY_ID --secret AWS_SECRET_ACCESS_KEY, and AWS_SESSION_TOKEN if it is set."
            raise LaunchError(lacks, hint=hint)
        emulated = "LLM_OCR_WORKSPACE_ENDPOINT" in spec.environment
        if spec.workspace.startswith("gs:") and GOOGLE_KEY not in spec.secrets and not emulated:
            hint = f"Set {GOOGLE_KEY} to the content of a service account's key file, and add --secret {GOOGLE_KEY}."
            raise LaunchError(lacks, hint=hint)
        _values(spec)
        api, namespace = self._account(spec)
        flavor = spec.hardware or HARDWARE[spec.stage]
        with _asking(f"start jobs in {namespace}"):
            offered = hub_prices(api.endpoint, api.token)
            if flavor not in offered:
                close = get_close_matches(flavor, offered, n=4, cutoff=0.4) or list(offered)
                known = {name: price for name in close if (price := offered[name]) is not None}
                names = [f"{name} (${known[name]:.2f} per hour)" if name in known else name for name in close]
                hint = f"Similar: {', '.join(names)}. List all: hf jobs hardware"
                raise LaunchError(f"Hugging Face Jobs has no hardware {flavor!r}", hint=hint)
            next(iter(api.list_jobs(namespace=namespace, status=["RUNNING"])), None)

    def find(self, spec: JobSpec) -> Sequence[Job]:
        api, namespace = self._account(spec)
        with _asking(f"list jobs in {namespace}"):
            found = list(api.list_jobs(namespace=namespace, labels=_labels(spec)))
        # A cancelled job counts only if its shard has no other job.
        found.sort(key=lambda info: (info.status.stage != "CANCELED", str(info.created_at)))
        by_shard = {(info.labels or {}).get("shard"): _job(info) for info in found}
        return sorted(by_shard.values(), key=lambda job: job.shard or 0)

    def submit(self, plan: Plan) -> Sequence[Job]:
        """Create all jobs or none: if the Hub refuses a job, the new ones are cancelled."""
        spec = plan.spec
        api, namespace = self._account(spec)
        known = {f"<secret {name}>": value for name, value in _values(spec).items()}
        known |= {"<namespace>": namespace, "<endpoint>": api.endpoint.rstrip("/"), **_newest(api, spec)}
        existing = self._existing(spec)
        made: list[Job] = []
        for request in plan.requests:
            shard = int(request.body["labels"]["shard"])
            try:
                made.append(existing.get(shard) or self._run(api, spec, filled(request.body, known)))
            except LaunchError as error:
                left = []
                for job in made:
                    try:
                        self.cancel(job)
                    except LaunchError:
                        left.append(job.url or job.id)
                more = f"; still running: {', '.join(left)}" if left else ""
                raise LaunchError(f"{error.args[0]}{more}", hint=error.hint) from error
        return made

    def status(self, jobs: Sequence[Job]) -> Sequence[JobStatus]:
        places = {(job.place["endpoint"], job.place["namespace"], *job.place["labels"].items()) for job in jobs}
        infos: dict[str, Any] = {}
        for endpoint, namespace, *labels in places:
            with _asking(f"list jobs in {namespace}"):
                listed = self._api(endpoint).list_jobs(namespace=namespace, labels=dict(labels))
                infos |= {info.id: info for info in listed}
        found = [status_of(job, infos[job.id]) if job.id in infos else self._status(job) for job in jobs]
        return [explained(status, self.logs, self._words) for status in found]

    def logs(self, job: Job, *, follow: bool = False, tail: int | None = None) -> Iterator[str]:
        with _asking(f"read the log of {job.url or job.id}"):
            api = self._api(job.place["endpoint"])
            lines = api.fetch_job_logs(job_id=job.id, namespace=job.place["namespace"], follow=follow, tail=tail)
            for line in lines:
                yield line.rstrip("\r\n")

    def _end(self, job: Job) -> None:
        with _asking(f"cancel {job.url or job.id}"):
            self._api(job.place["endpoint"]).cancel_job(job_id=job.id, namespace=job.place["namespace"])

    def clean(self, jobs: Sequence[Job]) -> Sequence[str]:
        places = sorted({(str(job.place["endpoint"]), str(job.place["namespace"])) for job in jobs})
        return [f"kept: finished jobs and their logs on the Hub: {endpoint}/jobs/{name}" for endpoint, name in places]

    def _api(self, endpoint: str | None) -> "HfApi":
        from huggingface_hub import HfApi, __version__, constants
        from huggingface_hub.utils import disable_progress_bars  # type: ignore[attr-defined]  # no __all__ there

        if Version(__version__) < Version(HUB_RELEASE):
            raise MissingExtra(
                f"launching on Hugging Face Jobs needs huggingface_hub {HUB_RELEASE}, but {__version__} is installed",
                hint=f'Install it: pip install --upgrade "huggingface_hub>={HUB_RELEASE}"',
            )
        if endpoint not in self._apis:
            if constants.HF_HUB_DISABLE_PROGRESS_BARS is None:
                disable_progress_bars()
            self._apis[endpoint] = HfApi(endpoint=endpoint, library_name="llm-ocr")
        return self._apis[endpoint]

    def _account(self, spec: JobSpec) -> tuple["HfApi", str]:
        """Return the client, and the namespace that pays. Raise `LaunchError` if the token cannot start jobs there."""
        api = self._api(spec.options.get("platform_endpoint"))
        with _asking("start jobs"):
            account = api.whoami(cache=True)
        own = [account["name"], *(member["name"] for member in account.get("orgs", ()))]
        wanted = _namespace(spec) if spec.options.get("namespace") else own[0]
        if wanted not in own:
            hint = near(wanted, own, f"Namespaces of the token: {', '.join(own)}", n=1)
            raise LaunchError(f"{own[0]} is not a member of the organization {wanted}", hint=hint)
        if account.get("auth", {}).get("accessToken", {}).get("role") == "read":
            hint = "Create a token with write access: https://huggingface.co/settings/tokens"
            raise LaunchError(f"the token of {own[0]} is read-only and cannot start jobs", hint=hint)
        return api, wanted

    def _existing(self, spec: JobSpec) -> Mapping[int | None, Job]:
        """Return the jobs of this submission that were created before and not cancelled."""
        found = self.find(spec)
        statuses = self.status(found) if found else ()
        return {status.job.shard: status.job for status in statuses if status.state is not State.CANCELLED}

    def _run(self, api: "HfApi", spec: JobSpec, body: Mapping[str, Any]) -> Job:
        from huggingface_hub import Volume

        volumes = [Volume(**volume) for volume in body.get("volumes", ()) if _COMMIT.fullmatch(volume["revision"])]
        shard, namespace = int(body["labels"]["shard"]), str(body["namespace"])
        try:
            with _asking(f"start a job on {body['flavor']} in {namespace}"):
                return _job(api.run_job(**{**body, "volumes": volumes}))
        except LaunchError as error:
            # A lost response does not show whether the job exists.
            if error.retryable and (job := self._existing(spec).get(shard)):
                return job
            raise

    def _status(self, job: Job) -> JobStatus:
        from huggingface_hub.errors import JobNotFoundError

        try:
            with _asking(f"read the status of {job.url or job.id}"):
                api = self._api(job.place["endpoint"])
                return status_of(job, api.inspect_job(job_id=job.id, namespace=job.place["namespace"]))
        except LaunchError as error:
            if isinstance(error.__cause__, JobNotFoundError):
                return JobStatus(job, State.FAILED, "the Hub does not have this job")
            raise


def _values(spec: JobSpec) -> dict[str, str]:
    """Return the secrets' values, or raise `LaunchError` for one that is not set here."""
    from huggingface_hub import get_token

    here, values = environment(), {}
    for name, where in _secrets(spec).items():
        value = here.get(where) or (get_token() if where == "HF_TOKEN" else None)
        if not value and where == "HF_TOKEN":
            raise Refusal(_NO_TOKEN, LOG_IN).error("cannot start jobs")
        if not value:
            raise LaunchError(f"the secret {name} is not set on this machine", hint=f"Set it: export {where}=...")
        values[name] = value
    return values


def _job(info: Any) -> Job:
    labels = info.labels or {}
    shard = labels.get("shard", "")
    own = {name: labels[name] for name in OWN_LABELS if name in labels}
    place = {"endpoint": info.endpoint, "namespace": info.owner.name, "labels": own}
    return Job(info.id, labels.get("name", ""), int(shard) if shard.isdigit() else None, info.url, place)


def status_of(job: Job, info: Any) -> JobStatus:
    """Return the status in huggingface_hub's `JobInfo`."""
    stage, message = str(getattr(info.status.stage, "value", info.status.stage)), (info.status.message or "").strip()
    seconds = info.durations.running_secs if info.durations else None
    state = _STATES.get(stage) or (State.FAILED if info.finished_at else State.RUNNING)
    if state is State.FAILED:
        # The Hub has one stage for all failures; its message and the job's own limit have more detail.
        limit = (info.labels or {}).get("limit", "")
        if _TIME.search(message) or (limit.isdigit() and seconds is not None and seconds >= int(limit)):
            state = State.TIMED_OUT
        elif _TAKEN.search(message):
            state = State.PREEMPTED
    reason = message or stage if state.over and state is not State.SUCCEEDED else ""
    if seconds is None and state.over and info.started_at is None:
        seconds = 0  # the job never had a machine
    # Billed per minute.
    billed = None if seconds is None else math.ceil(seconds / 60) * 60.0
    started, ended = (None if at is None else at.timestamp() for at in (info.started_at, info.finished_at))
    return JobStatus(job, state, reason, started, ended, billed)


def _asking(action: str) -> AbstractContextManager[None]:
    return translated(f"cannot {action}", _explained)


def _explained(error: Exception) -> Refusal | None:
    from huggingface_hub import errors as hub

    if isinstance(error, hub.LocalTokenNotFoundError):
        return Refusal(_NO_TOKEN, LOG_IN)
    if isinstance(error, hub.HfHubHTTPError):
        status = int(error.response.status_code)
        words = f"{first_line(error.server_message or error)} ({status})"
        return Refusal(words, _HINTS.get(status, _AGAIN if status >= 500 else ""), status)
    if isinstance(error, (no_answer(), OSError, RuntimeError)):
        return Refusal(f"no response from the Hub ({first_line(error)})", _AGAIN, 0)
    return Refusal(first_line(error)) if isinstance(error, ValueError) else None


def _namespace(spec: JobSpec) -> str:
    return spec.options.get("namespace") or "<namespace>"


def _labels(spec: JobSpec) -> dict[str, str]:
    return dict(zip(OWN_LABELS, (spec.launch, spec.stage, str(spec.submission)), strict=True))


def _secrets(spec: JobSpec) -> dict[str, str]:
    """Return the variable of this machine that holds the value, for each secret of a job."""
    token = {"HF_TOKEN": "HF_TOKEN"} if spec.workspace.startswith("hf:") else {}
    return {**token, **{name: where or name for name, where in spec.secrets.items()}}


def _gpus(spec: JobSpec) -> int:
    return GPUS.get(spec.hardware or HARDWARE[spec.stage], int(spec.stage in GPU_STAGES))


def _volume(spec: JobSpec) -> dict[str, Any] | None:
    """Return the volume with the model of a job; None if the job may not look for it there.

    An image of the user may have the model, or may run without the right to write into HF_HUB_CACHE.
    """
    model, revision = spec.options.get("hub_model") or ("", "")
    if not model or spec.image or {"HF_HOME", "HF_HUB_CACHE"} & spec.environment.keys():
        return None
    commit = revision if _COMMIT.fullmatch(revision) else _NEWEST
    path = f"{MODELS}/models--{model.replace('/', '--')}/snapshots/{commit}"
    return {"type": "model", "source": model, "mount_path": path, "revision": commit, "read_only": True}


def _newest(api: "HfApi", spec: JobSpec) -> dict[str, str]:
    """Return the newest commit of the model, by its placeholder; {} if the Hub does not say it."""
    from huggingface_hub.errors import HfHubHTTPError

    volume = _volume(spec)
    if volume is None or volume["revision"] != _NEWEST:
        return {}
    try:
        commit = api.model_info(volume["source"], revision=spec.options["hub_model"][1] or None).sha
    except (HfHubHTTPError, no_answer(), OSError):
        return {}  # the job itself explains what is wrong with the model
    return {_NEWEST: commit} if commit else {}
