"""Amazon SageMaker: one training job per stage, whose machines share the units.

Only boto3 is needed. The job itself fetches its secrets (`entry`).
"""

import json
import logging
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from copy import deepcopy
from functools import cache, partial
from typing import Any

from llm_ocr.errors import LaunchError, MissingExtra, UsageError
from llm_ocr.launch import GPU_STAGES, Job, JobSpec, JobStatus, Launcher, Plan, State
from llm_ocr.launch.answers import Refusal, explained, followed, last, near, translated
from llm_ocr.launch.sagemaker import requests
from llm_ocr.types import plural

_LOGGER = logging.getLogger("llm_ocr")

_SERVICE = "sagemaker.amazonaws.com"
_MIRROR = "Mirror the image there (sagemaker/README.md), or correct --image."
_MAKE_ROLE = "Create the role (sagemaker/README.md), or correct --role."

#: One L40S of 48 GB; four cores.
_GPU_MACHINE, _CPU_MACHINE, _SMALL_MACHINE = "ml.g6e.2xlarge", "ml.c5.xlarge", "ml.t3.medium"

#: Kind in the records of jobs. Older versions also recorded processing jobs.
_KIND = "training"
_GROUP = "/aws/sagemaker/TrainingJobs"


#: Error codes for a missing object. SageMaker itself uses a ValidationException.
ABSENT = frozenset(
    {
        *("ResourceNotFound", "ResourceNotFoundException", "NoSuchEntity", "NoSuchResourceException", "NoSuchBucket"),
        *("RepositoryNotFoundException", "ImageNotFoundException"),
    }
)
DENIED = frozenset({"AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "NotAuthorized"})
_NOT_FOUND = re.compile(r"not found|could not find|does not exist", re.IGNORECASE)
SIGN_IN = "Sign in (aws configure, aws sso login), or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY or AWS_PROFILE."
_REGION = "Set --region or AWS_DEFAULT_REGION."
_BUSY = ("ThrottlingException", "Throttling", "TooManyRequestsException", "RequestLimitExceeded")

#: Hints by error code, or by name of botocore's exception.
_HINTS: Mapping[str, str] = {
    **dict.fromkeys(("NoRegionError", "InvalidRegionError"), _REGION),
    **dict.fromkeys(("HTTPClientError", "ConnectionError"), f"Check the network and the region. {_REGION}"),
    **dict.fromkeys(("NoCredentialsError", "PartialCredentialsError", "ProfileNotFound"), SIGN_IN),
    **dict.fromkeys(("CredentialRetrievalError", "SSOError", "TokenRetrievalError"), SIGN_IN),
    **dict.fromkeys(("NoAuthTokenError", "LoginError"), SIGN_IN),
    **dict.fromkeys(("UnrecognizedClientException", "InvalidClientTokenId", "SignatureDoesNotMatch"), SIGN_IN),
    **dict.fromkeys(("IncompleteSignature", "InvalidSignatureException", "RequestExpired"), SIGN_IN),
    **dict.fromkeys(("ExpiredToken", "ExpiredTokenException"), SIGN_IN),
    **dict.fromkeys(("MissingAuthenticationToken", "MissingAuthenticationTokenException"), SIGN_IN),
    **dict.fromkeys(DENIED, "Grant your account the permissions in sagemaker/launcher-policy.json."),
    **dict.fromkeys(_BUSY, "Try again in a minute."),
    "ResourceLimitExceeded": "Request a higher quota under Service Quotas, Amazon SageMaker (new accounts have 0 of "
    "most GPUs), or use other --hardware, fewer --shards, or another --region.",
}


class Clients:
    """Clients of one region, created at their first use; `endpoint` replaces the server of all of them."""

    def __init__(self, region: str | None = None, endpoint: str | None = None) -> None:
        self._region, self.endpoint = region, endpoint
        self._made: dict[tuple[str, str | None], Any] = {}

    def of(self, service: str, *, region: str | None = None) -> Any:
        """Return a client. Raises `MissingExtra` without boto3, and `LaunchError` if no region is known."""
        key = (service, region)
        if key not in self._made:
            try:
                import boto3
                from botocore.config import Config
            except ImportError as error:
                raise MissingExtra("SageMaker needs boto3, which is not installed", install="s3") from error
            config = Config(retries={"mode": "standard", "max_attempts": 4}, connect_timeout=10.0, read_timeout=60.0)
            options = {"region_name": region or self._region, "endpoint_url": self.endpoint, "config": config}
            with asking(f"connect to {service}"):
                self._made[key] = boto3.Session().client(service, **options)
        return self._made[key]

    @property
    def region(self) -> str:
        return str(self.of("sagemaker").meta.region_name)


def is_absent(error: Any) -> bool:
    """Return whether a response means that no object has this name."""
    code = code_of(error)
    return code in ABSENT or (code == "ValidationException" and bool(_NOT_FOUND.search(str(error))))


def code_of(error: Any) -> str:
    """Return the code of an error response; "" for any other error."""
    return str(getattr(error, "response", {}).get("Error", {}).get("Code", ""))


def asking(action: str, hints: Mapping[str, str] | None = None) -> AbstractContextManager[None]:
    """Turn the client's errors into a `LaunchError` "cannot <action>: <AWS's message>"; `hints` by error code."""

    def explain(error: Any) -> Refusal | None:
        from botocore.exceptions import BotoCoreError, ClientError

        if isinstance(error, ClientError):
            code, words = code_of(error), str(error.response.get("Error", {}).get("Message") or "")
            status = 429 if code in _BUSY else error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 400)
            return Refusal(f"{words or code} ({code})", (hints or {}).get(code) or _HINTS.get(code, ""), status)
        if not isinstance(error, BotoCoreError):
            return None
        names = [kind.__name__ for kind in type(error).__mro__]
        hint = next((_HINTS[name] for name in names if name in _HINTS), "")
        return Refusal(str(error), hint, 0 if {"HTTPClientError", "ConnectionError"} & {*names} else 400)

    return translated(f"cannot {action}", explain)


class SageMaker(Launcher):
    """Platform `sagemaker`. `pause` is the time in seconds between two requests for a followed log."""

    platform = "sagemaker"
    usual_limit = requests.DEFAULT_TIME_LIMIT

    def __init__(self, *, pause: float = 5.0) -> None:
        super().__init__()
        self._pause = pause
        self._clients_of = cache(Clients)  # by region and endpoint

    def hardware(self, stage: str) -> str:
        return _GPU_MACHINE if stage in GPU_STAGES else _CPU_MACHINE if stage == "assemble" else _SMALL_MACHINE

    def gpus(self, hardware: str) -> int | None:
        return requests.gpus_of(hardware)

    def plan(self, spec: JobSpec) -> Plan:
        return requests.make_plan(self.platform, spec)

    def check(self, plan: Plan) -> None:
        """Log the requests that this account is not allowed to make: SageMaker then refuses the job."""
        spec, clients = plan.spec, self._of_spec(plan.spec)
        with asking("sign in to AWS"):
            account = str(clients.of("sts").get_caller_identity()["Account"])
        known = clients.of("sagemaker").meta.service_model.shape_for("TrainingInstanceType").enum
        if spec.hardware not in known:
            hint = near(spec.hardware, known, "Use a name such as ml.g6e.2xlarge, or update boto3.")
            raise LaunchError(f"the installed boto3 knows no machine {spec.hardware} for training jobs", hint=hint)

        arn = str(spec.options["role"])
        owner, role = arn.split(":")[4], arn.rpartition("/")[2]
        if owner != account:
            hint = "The role must be in the same account: correct --role, or use other credentials."
            raise LaunchError(f"the role {arn} is in account {owner}, but the credentials are for {account}", hint=hint)
        found = _asked(partial(clients.of("iam").get_role, RoleName=role), f"the role {arn}", _MAKE_ROLE)
        # botocore returns the document as an object, or as text if it is unreadable.
        if found and _SERVICE not in json.dumps(found["Role"].get("AssumeRolePolicyDocument", _SERVICE)):
            raise LaunchError(
                f"SageMaker cannot assume the role {arn}: its trust policy does not name {_SERVICE}",
                hint=f"aws iam update-assume-role-policy --role-name {role} "
                "--policy-document file://sagemaker/trust-policy.json",
            )

        if image := requests.parsed_image(spec.image):
            if image["region"] != clients.region:
                raise UsageError(
                    f"--image {spec.image} is in {image['region']}, but the job would run in {clients.region}",
                    hint=f"Set --region {image['region']}, or use an image in {clients.region}.",
                )
            which = {"imageDigest": image["digest"]} if image["digest"] else {"imageTag": image["tag"] or "latest"}
            arguments = {"registryId": image["account"], "repositoryName": image["repository"], "imageIds": [which]}
            describe = partial(clients.of("ecr", region=image["region"]).describe_images, **arguments)
            _asked(describe, f"the image {spec.image}", _MIRROR)
        else:
            # Raises for a region without images. Only AWS may describe its images.
            requests.default_image(spec, clients.region)

        for name, where in spec.secrets.items():
            secret = where or name
            hint = f"aws secretsmanager create-secret --name {secret} --secret-string file://FILE"
            describe = partial(clients.of("secretsmanager").describe_secret, SecretId=secret)
            found = _asked(describe, f"the secret {secret} (--secret {name})", hint)
            if found and found.get("DeletedDate"):
                hint = f"aws secretsmanager restore-secret --secret-id {secret}"
                raise LaunchError(f"the secret {secret} (--secret {name}) is being deleted", hint=hint)

        wanted = f"{spec.hardware} for {'spot training' if spec.options.get('spot') else 'training'} job usage"
        pages = clients.of("service-quotas").get_paginator("list_service_quotas").paginate(ServiceCode="sagemaker")

        def find_quota() -> Any:
            quotas = (quota for page in pages for quota in page["Quotas"])
            return next((quota for quota in quotas if quota["QuotaName"].lower() == wanted.lower()), None)

        quota = _asked(find_quota, f"the quota {wanted!r}", "", absent_is_known=False)
        if quota is not None and quota["Value"] < spec.shards:
            raise LaunchError(
                f"the quota {wanted!r} is {quota['Value']:g}, but the job needs {spec.shards}",
                hint="Request more: aws service-quotas request-service-quota-increase --service-code sagemaker "
                f"--quota-code {quota['QuotaCode']} --desired-value {spec.shards}; or use other --hardware.",
            )

    def find(self, spec: JobSpec) -> Sequence[Job]:
        clients = self._of_spec(spec)
        found = self._described(clients, spec.name)
        return [] if found is None else [_job(clients, found)]

    def submit(self, plan: Plan) -> Sequence[Job]:
        from botocore.exceptions import ClientError

        spec, clients = plan.spec, self._of_spec(plan.spec)
        (request,) = plan.requests
        body = deepcopy(dict(request.body))
        # The image of the region, and the bootstrap within SageMaker's limits.
        algorithm = body["AlgorithmSpecification"]
        if algorithm["TrainingImage"] == requests.IMAGE:
            algorithm["TrainingImage"] = requests.default_image(spec, clients.region)
        if "ContainerArguments" in algorithm:
            command = [*algorithm["ContainerEntrypoint"], *algorithm["ContainerArguments"]]
            algorithm["ContainerEntrypoint"], algorithm["ContainerArguments"] = requests.compressed(command)
        with asking(f"submit {spec.name}"):
            try:
                clients.of("sagemaker").create_training_job(**body)
            except ClientError as error:
                # The SDK repeats a request whose response was lost; no other launch creates this name.
                if code_of(error) != "ResourceInUse" or self._described(clients, spec.name) is None:
                    raise
        return [_job(clients, self._described(clients, spec.name) or body)]

    def logs(self, job: Job, *, follow: bool = False, tail: int | None = None) -> Iterator[str]:
        log = _Log(self._of_job(job).of("logs"), job)
        first = last(log.new(), tail)
        return followed(first, log.new, lambda: self._status(job).state.over, follow=follow, every=self._pause)

    def _end(self, job: Job) -> None:
        from botocore.exceptions import ClientError

        with asking(f"stop {job.name}"):
            try:
                self._of_job(job).of("sagemaker").stop_training_job(TrainingJobName=job.name)
            except ClientError:
                if not self._status(job).state.over:  # the job may have ended in the meantime
                    raise

    def clean(self, jobs: Sequence[Job]) -> Sequence[str]:
        lines = []
        for job in jobs:
            output = str(job.place.get("output") or "")
            # Records of a workspace are not trusted: only a folder with the name of a job of llm_ocr is removed.
            if output.rpartition("/")[2] == job.name and job.name.startswith("llm-ocr-"):
                removed = _remove(self._of_job(job).of("s3"), output)
                lines.append(f"deleted: {plural(removed, 'object')} in {output}/")
        if jobs:
            lines.append(f"kept: log lines of the jobs in CloudWatch, {_GROUP}, until their retention ends")
            lines.append("kept: entries of the jobs (free), role, secrets (sagemaker/README.md)")
        return lines

    def _described(self, clients: Clients, name: str) -> Mapping[str, Any] | None:
        from botocore.exceptions import ClientError

        with asking(f"read the status of {name}"):
            try:
                found: Mapping[str, Any] = clients.of("sagemaker").describe_training_job(TrainingJobName=name)
            except ClientError as error:
                if is_absent(error):
                    return None
                raise
        return found

    def _status(self, job: Job) -> JobStatus:
        if job.place.get("kind") == "processing":
            return JobStatus(job, State.FAILED, "processing job of an older version of llm-ocr; see the AWS console")
        found = self._described(self._of_job(job), job.name)
        if found is None:
            return JobStatus(job, State.FAILED, f"SageMaker has no job {job.name} in {job.place.get('region')}")
        # A container that does not run as root cannot write the file that SageMaker shows as the reason.
        return explained(status_of(job, found), self.logs, self._words)

    def _of_spec(self, spec: JobSpec) -> Clients:
        return self._clients_of(spec.options.get("region"), spec.options.get("platform_endpoint"))

    def _of_job(self, job: Job) -> Clients:
        if job.place.get("kind") != _KIND:
            raise LaunchError(f"{job.name} is not a training job of SageMaker: its place is {dict(job.place)}")
        return self._clients_of(job.place.get("region"), job.place.get("endpoint"))


def _job(clients: Clients, found: Mapping[str, Any]) -> Job:
    name, machines = str(found["TrainingJobName"]), found["ResourceConfig"]
    place = {"region": clients.region, **({"endpoint": clients.endpoint} if clients.endpoint else {})}
    place |= {"kind": _KIND, "machines": machines["InstanceCount"], "hardware": machines["InstanceType"]}
    place["output"] = f"{found['OutputDataConfig']['S3OutputPath']}/{name}"
    arn = str(found.get("TrainingJobArn") or name)
    host = f"https://{place['region']}.console.aws.amazon.com/sagemaker/home?region={place['region']}"
    url = f"{host}#/jobs/{name}" if arn.startswith("arn:aws:") else ""
    return Job(arn, name, None, url, place)


def _remove(client: Any, folder: str) -> int:
    """Remove SageMaker's output below a folder in S3; return the number of objects."""
    from botocore.exceptions import ClientError

    bucket, _, prefix = folder.removeprefix("s3://").partition("/")
    removed = 0
    with asking(f"remove {folder}/"):
        try:
            for page in client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=f"{prefix}/"):
                for found in page.get("Contents", ()):
                    client.delete_object(Bucket=bucket, Key=found["Key"])
                    removed += 1
        except ClientError as error:
            if not is_absent(error):
                raise
    return removed


_OVER = {"Completed": State.SUCCEEDED, "Failed": State.FAILED, "Stopped": State.CANCELLED}
_GOING_ON = ("InProgress", "Stopping")
#: Secondary states of a job without a machine.
_NO_MACHINE = frozenset({"Starting", "Pending", "LaunchingMLInstances", "Interrupted", "Restarting"})


def status_of(job: Job, found: Mapping[str, Any]) -> JobStatus:
    """Return the status in the response of DescribeTrainingJob."""
    times = (found.get("TrainingStartTime"), found.get("TrainingEndTime"))
    started, ended = (None if at is None else at.timestamp() for at in times)
    word, second = str(found.get("TrainingJobStatus")), str(found.get("SecondaryStatus") or "")
    state = _state(found, word, second, started)
    reason = ""
    if state.over and state is not State.SUCCEEDED:
        # A line that several containers share occurs once.
        text = "; ".join(dict.fromkeys(str(found.get("FailureReason") or "").strip().splitlines()))
        limit = found.get("StoppingCondition", {}).get("MaxRuntimeInSeconds")
        late = f": MaxRuntimeInSeconds is {limit}" if state is State.TIMED_OUT else ""
        reason = text or f"{second or word}{late}"
    machines, billable = int(job.place.get("machines") or 1), found.get("BillableTimeInSeconds")
    billed: float | None = None
    if started is None and state.over:
        billed = 0.0  # no machine was used
    elif billable is not None:  # reported for ended jobs
        billed = float(billable) * machines
    elif started is not None:
        billed = max(0.0, (ended if ended is not None else time.time()) - started) * machines
    return JobStatus(job, state, reason, started, ended, billed)


def _state(found: Mapping[str, Any], word: str, second: str, started: float | None) -> State:
    if word in _GOING_ON:
        return State.QUEUED if started is None or second in _NO_MACHINE else State.RUNNING
    steps = [step.get("Status") for step in found.get("SecondaryStatusTransitions", ())]
    if second == "MaxWaitTimeExceeded" and "Interrupted" in steps:
        return State.PREEMPTED
    if second in ("MaxRuntimeExceeded", "MaxWaitTimeExceeded"):
        return State.TIMED_OUT
    if word == "Failed" and "Interrupted" in steps[-2:]:
        return State.PREEMPTED
    return _OVER.get(word, State.FAILED)


#: Milliseconds. Events of several machines arrive out of order, so that requests overlap by this time.
_OVERLAP = 60_000
_LOG_HINTS = {"AccessDeniedException": "Grant your account logs:FilterLogEvents: sagemaker/launcher-policy.json."}


class _Log:
    """Lines of a job, each once across all calls of `new`. With several machines, each line names its machine."""

    def __init__(self, client: Any, job: Job) -> None:
        self._pages = client.get_paginator("filter_log_events")
        self._job = job
        self._machines = int(job.place.get("machines") or 1)
        self._newest = 0
        self._seen: dict[str, int] = {}  # event -> its time

    def new(self) -> Iterator[str]:
        from botocore.exceptions import ClientError

        since = max(0, self._newest - _OVERLAP)
        arguments: dict[str, Any] = {"logGroupName": _GROUP, "logStreamNamePrefix": f"{self._job.name}/"}
        arguments |= {"startTime": since} if since else {}
        with asking(f"read the log of {self._job.name}", _LOG_HINTS):
            try:
                for page in self._pages.paginate(**arguments):
                    for event in page.get("events", ()):
                        if event["eventId"] not in self._seen:
                            self._seen[event["eventId"]] = event["timestamp"]
                            self._newest = max(self._newest, event["timestamp"])
                            message = str(event["message"]).rstrip("\r\n")
                            if self._machines > 1:  # `algo-1` of `<job>/algo-1-1234567890`
                                machine = event["logStreamName"].rpartition("/")[2].split("-")[:2]
                                message = f"{'-'.join(machine)}: {message}"
                            yield message
            except ClientError as error:
                if not is_absent(error):  # the first line creates the group
                    raise
        limit = self._newest - _OVERLAP
        self._seen = {event: when for event, when in self._seen.items() if when >= limit}


def _asked(ask: Callable[[], Any], what: str, hint: str, *, absent_is_known: bool = True) -> Any:
    """Return the response; None, and a line in the log, if these credentials may not send the request."""
    from botocore.exceptions import ClientError

    with asking(f"check {what}"):
        try:
            return ask()
        except ClientError as error:
            code = code_of(error)
            if code in DENIED or (code in ABSENT and not absent_is_known):
                _LOGGER.warning("not checked: %s (%s)", what, code)
                return None
            if code in ABSENT:
                raise LaunchError(f"{what} does not exist ({code})", hint=hint) from error
            raise
