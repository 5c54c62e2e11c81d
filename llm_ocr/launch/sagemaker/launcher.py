"""Amazon SageMaker: one processing job a stage, whose machines share the units; training jobs for spot machines.

Only boto3 is needed. A job's secrets are fetched by the job itself (`entry`).
"""

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from datetime import datetime
from typing import Any

from llm_ocr.errors import LaunchError
from llm_ocr.launch import GPU_STAGES, Job, JobSpec, JobStatus, Plan, State
from llm_ocr.launch.last_words import explained
from llm_ocr.launch.sagemaker.check import check
from llm_ocr.launch.sagemaker.client import Clients, code_of, is_absent, translated
from llm_ocr.launch.sagemaker.requests import (
    DEFAULT_TIME_LIMIT,
    IMAGE,
    PLATFORM,
    PROCESSING,
    TRAINING,
    compressed,
    default_image,
    gpus_of,
    kind_of,
    output_of,
    plan_for,
)

#: One L40S of 48 GB; four cores.
_GPU_MACHINE, _CPU_MACHINE, _SMALL_MACHINE = "ml.g6e.2xlarge", "ml.c5.xlarge", "ml.t3.medium"

_DESCRIBE = {PROCESSING: "describe_processing_job", TRAINING: "describe_training_job"}
_STOP = {PROCESSING: "stop_processing_job", TRAINING: "stop_training_job"}
_NAME = {PROCESSING: "ProcessingJobName", TRAINING: "TrainingJobName"}
_ARN = {PROCESSING: "ProcessingJobArn", TRAINING: "TrainingJobArn"}
_PAGES = {PROCESSING: "processing-jobs", TRAINING: "jobs"}


class SageMaker:
    """The platform `sagemaker`. `pause`: seconds between two looks into a log that is followed."""

    platform = PLATFORM

    def __init__(self, *, pause: float = 5.0) -> None:
        self._pause = pause
        self._clients: dict[tuple[str | None, str | None], Clients] = {}
        self._words: dict[str, str] = {}

    def hardware(self, stage: str) -> str:
        return _GPU_MACHINE if stage in GPU_STAGES else _CPU_MACHINE if stage == "assemble" else _SMALL_MACHINE

    def gpus(self, hardware: str) -> int | None:
        return gpus_of(hardware)

    def time_limit(self, spec: JobSpec) -> int:
        return DEFAULT_TIME_LIMIT

    def plan(self, spec: JobSpec) -> Plan:
        return plan_for(spec)

    def check(self, plan: Plan) -> None:
        check(plan, self._of_spec(plan.spec))

    def find(self, spec: JobSpec) -> Sequence[Job]:
        clients, kind = self._of_spec(spec), kind_of(spec)
        found = self._described(clients, kind, spec.name)
        return [] if found is None else [_job(clients, kind, found)]

    def submit(self, plan: Plan) -> Sequence[Job]:
        clients, kind = self._of_spec(plan.spec), kind_of(plan.spec)
        jobs = []
        for request in plan.requests:
            body = _sent(request.body, clients)
            self._create(clients, kind, request.call, body)
            found = self._described(clients, kind, body[_NAME[kind]])
            jobs.append(_job(clients, kind, found or body))
        return jobs

    def status(self, jobs: Sequence[Job]) -> Sequence[JobStatus]:
        return [self._status(job) for job in jobs]

    def logs(self, job: Job, *, follow: bool = False, tail: int | None = None) -> Iterator[str]:
        client = self._of_job(job).of("logs")

        def over() -> bool:
            return self._status(job).state.over

        yield from lines(client, job, over, follow=follow, tail=tail, pause=self._pause)

    def cancel(self, job: Job) -> None:
        if self._status(job).state.over:
            return
        kind = str(job.place["kind"])
        from botocore.exceptions import ClientError

        with translated(f"stop {job.name}"):
            try:
                getattr(self._of_job(job).of("sagemaker"), _STOP[kind])(**{_NAME[kind]: job.name})
            except ClientError:
                if not self._status(job).state.over:  # it may have ended by itself in between
                    raise

    def clean(self, jobs: Sequence[Job]) -> Sequence[str]:
        said = []
        for job in jobs:
            output = str(job.place.get("output") or "")
            # What a workspace says is not trusted: only a folder that has the name of one of our jobs is removed.
            if output.rpartition("/")[2] == job.name and job.name.startswith("llm-ocr-"):
                removed = _remove(self._of_job(job).of("s3"), output)
                said.append(f"{output}/: {removed} objects removed")
        groups = sorted({GROUPS[str(job.place["kind"])] for job in jobs})
        if groups:
            said.append(f"left: lines of the jobs in CloudWatch, {', '.join(groups)}, until their retention ends")
            said.append("left: the entries of the jobs (free), the role, the secrets (sagemaker/README.md)")
        return said

    def _create(self, clients: Clients, kind: str, call: str, body: Mapping[str, Any]) -> None:
        from botocore.exceptions import ClientError

        name = body[_NAME[kind]]
        with translated(f"submit {name}"):
            try:
                getattr(clients.of("sagemaker"), call)(**body)
            except ClientError as error:
                # The SDK repeats a request whose answer was lost; no other launch makes this name.
                if code_of(error) != "ResourceInUse" or self._described(clients, kind, name) is None:
                    raise

    def _described(self, clients: Clients, kind: str, name: str) -> Mapping[str, Any] | None:
        from botocore.exceptions import ClientError

        with translated(f"ask for {name}"):
            try:
                found: Mapping[str, Any] = getattr(clients.of("sagemaker"), _DESCRIBE[kind])(**{_NAME[kind]: name})
            except ClientError as error:
                if is_absent(error):
                    return None
                raise
        return found

    def _status(self, job: Job) -> JobStatus:
        clients = self._of_job(job)
        found = self._described(clients, str(job.place["kind"]), job.name)
        if found is None:
            return JobStatus(job, State.FAILED, f"SageMaker knows no job {job.name} in {job.place.get('region')}")
        status = status_of(job, found)
        # A container that does not run as root cannot write the file that SageMaker shows as the reason.
        return status if found.get("ExitMessage") else explained(status, self.logs, self._words)

    def _of_spec(self, spec: JobSpec) -> Clients:
        return self._clients_of(spec.options.get("region"), spec.options.get("platform_endpoint"))

    def _of_job(self, job: Job) -> Clients:
        if job.place.get("kind") not in _NAME:
            raise LaunchError(f"{job.name} is no job of SageMaker's: its place says {dict(job.place)}")
        return self._clients_of(job.place.get("region"), job.place.get("endpoint"))

    def _clients_of(self, region: str | None, endpoint: str | None) -> Clients:
        return self._clients.setdefault((region, endpoint), Clients(region, endpoint))


def _sent(body: Mapping[str, Any], clients: Clients) -> dict[str, Any]:
    """Return the body with the image of the region, and with the bootstrap in words that SageMaker takes."""
    sent = deepcopy(dict(body))
    at = sent.get("AppSpecification") or sent["AlgorithmSpecification"]
    name = "ImageUri" if "ImageUri" in at else "TrainingImage"
    if at[name] == IMAGE:
        at[name] = default_image(clients.region)
    if "ContainerArguments" in at:
        at["ContainerEntrypoint"], at["ContainerArguments"] = compressed(
            [*at["ContainerEntrypoint"], *at["ContainerArguments"]]
        )
    return sent


def _job(clients: Clients, kind: str, found: Mapping[str, Any]) -> Job:
    name, place = str(found[_NAME[kind]]), clients.place
    machines = found["ResourceConfig"] if kind == TRAINING else found["ProcessingResources"]["ClusterConfig"]
    place |= {"kind": kind, "machines": machines["InstanceCount"], "hardware": machines["InstanceType"]}
    if output := output_of(found):
        place["output"] = output
    arn = str(found.get(_ARN[kind]) or name)
    host = f"https://{place['region']}.console.aws.amazon.com/sagemaker/home?region={place['region']}"
    url = f"{host}#/{_PAGES[kind]}/{name}" if arn.startswith("arn:aws:") else ""
    return Job(arn, name, None, url, place)


def _remove(client: Any, folder: str) -> int:
    """Remove what SageMaker wrote below a folder in S3; how many objects there were."""
    from botocore.exceptions import ClientError

    bucket, _, prefix = folder.removeprefix("s3://").partition("/")
    removed = 0
    with translated(f"remove {folder}/"):
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
#: Secondary states of a training job that has no machine, or no longer one.
_NO_MACHINE = frozenset({"Starting", "Pending", "LaunchingMLInstances", "Interrupted", "Restarting"})
#: A processing job does not say why it was stopped: who ran so long was ended by the limit.
_CLOSE = 0.98


def status_of(job: Job, found: Mapping[str, Any]) -> JobStatus:
    """`found` is the answer of DescribeProcessingJob or DescribeTrainingJob."""
    training = job.place.get("kind") == TRAINING
    started, ended = _times(found, "Training" if training else "Processing")
    state = _training_state(found, started) if training else _processing_state(found, started, ended)
    reason = _reason(found, state, training) if state.over and state is not State.SUCCEEDED else ""
    billed = 0.0 if started is None and state.over else _billed(job, found, started, ended)  # it never had a machine
    return JobStatus(job, state, reason, started, ended, billed)


def _processing_state(found: Mapping[str, Any], started: float | None, ended: float | None) -> State:
    status = str(found.get("ProcessingJobStatus"))
    if status in _GOING_ON:
        return State.QUEUED if started is None else State.RUNNING
    state = _OVER.get(status, State.FAILED)
    limit = found.get("StoppingCondition", {}).get("MaxRuntimeInSeconds")
    ran_out = bool(limit and started and ended and ended - started >= _CLOSE * limit)
    said = "MaxRuntimeExceeded" in str(found.get("FailureReason", ""))
    return State.TIMED_OUT if state is not State.SUCCEEDED and (ran_out or said) else state


def _training_state(found: Mapping[str, Any], started: float | None) -> State:
    status, second = str(found.get("TrainingJobStatus")), str(found.get("SecondaryStatus", ""))
    if status in _GOING_ON:
        return State.QUEUED if started is None or second in _NO_MACHINE else State.RUNNING
    if second == "MaxRuntimeExceeded":
        return State.TIMED_OUT
    taken = any(one.get("Status") == "Interrupted" for one in found.get("SecondaryStatusTransitions", ()))
    if second == "MaxWaitTimeExceeded":
        return State.PREEMPTED if taken else State.TIMED_OUT
    last = [one.get("Status") for one in found.get("SecondaryStatusTransitions", ())][-2:]
    if status == "Failed" and "Interrupted" in last:
        return State.PREEMPTED
    return _OVER.get(status, State.FAILED)


def _reason(found: Mapping[str, Any], state: State, training: bool) -> str:
    """SageMaker's words, then the containers' own; what several of them say is said once."""
    said = [str(found.get(name) or "").strip() for name in ("FailureReason", "ExitMessage")]
    text = "; ".join(dict.fromkeys(row for one in said for row in one.splitlines()))
    status = str(found.get("TrainingJobStatus" if training else "ProcessingJobStatus"))
    second = str(found.get("SecondaryStatus") or "")
    word = second if second not in ("", status) else status
    limit = found.get("StoppingCondition", {}).get("MaxRuntimeInSeconds")
    if state is State.TIMED_OUT and not text:
        return f"{word}: MaxRuntimeInSeconds is {limit}"
    return text or word


def _times(found: Mapping[str, Any], kind: str) -> tuple[float | None, float | None]:
    return _seconds(found.get(f"{kind}StartTime")), _seconds(found.get(f"{kind}EndTime"))


def _seconds(value: Any) -> float | None:
    return value.timestamp() if isinstance(value, datetime) else None


def _billed(job: Job, found: Mapping[str, Any], started: float | None, ended: float | None) -> float | None:
    """Of all machines. Billable time is what SageMaker says of training jobs that are over, spot ones above all."""
    machines = int(job.place.get("machines") or 1)
    billable = found.get("BillableTimeInSeconds")
    if billable is not None:
        return float(billable) * machines
    if started is None:
        return None
    return max(0.0, (ended if ended is not None else time.time()) - started) * machines


GROUPS = {TRAINING: "/aws/sagemaker/TrainingJobs", "processing": "/aws/sagemaker/ProcessingJobs"}

#: Milliseconds. Events of several machines arrive out of order; who asks again asks from so long before the newest.
_OVERLAP = 60_000
_HINTS = {"AccessDeniedException": "Allow logs:FilterLogEvents to whoever looks: sagemaker/launcher-policy.json."}


class Log:
    """A job's lines, each once however often it is asked for. With several machines each line names its own."""

    def __init__(self, client: Any, job: Job) -> None:
        self._client, self._job = client, job
        self._group = GROUPS[str(job.place["kind"])]
        self._named = int(job.place.get("machines") or 1) > 1
        self._newest = 0
        self._seen: dict[str, int] = {}  # event -> its time

    def new(self) -> Iterator[str]:
        """What has come since it was last asked for."""
        token: str | None = None
        while True:
            page = self._page(token)
            for event in page.get("events", ()):
                if event["eventId"] in self._seen:
                    continue
                self._seen[event["eventId"]] = event["timestamp"]
                self._newest = max(self._newest, event["timestamp"])
                yield self._line(event)
            token = page.get("nextToken")  # an empty page may have one
            if token is None:
                break
        limit = self._newest - _OVERLAP
        self._seen = {event: when for event, when in self._seen.items() if when >= limit}

    def _page(self, token: str | None) -> Any:
        from botocore.exceptions import ClientError

        arguments: dict[str, Any] = {"logGroupName": self._group, "logStreamNamePrefix": f"{self._job.name}/"}
        if self._newest > _OVERLAP:
            arguments["startTime"] = self._newest - _OVERLAP
        if token:
            arguments["nextToken"] = token
        with translated(f"read the log of {self._job.name}", _HINTS):
            try:
                return self._client.filter_log_events(**arguments)
            except ClientError as error:
                if is_absent(error):  # the first line makes the group
                    return {}
                raise

    def _line(self, event: Any) -> str:
        message = str(event["message"]).rstrip("\r\n")
        return f"{_machine(event['logStreamName'])}: {message}" if self._named else message


def lines(
    client: Any, job: Job, over: Callable[[], bool], *, follow: bool, tail: int | None, pause: float
) -> Iterator[str]:
    """The job's lines; `follow` asks every `pause` seconds until it is `over`, and once more after that."""
    log = Log(client, job)
    yield from deque(log.new(), maxlen=tail) if tail is not None else log.new()
    while follow:
        ended = over()
        time.sleep(pause)
        yield from log.new()
        if ended:
            return


def _machine(stream: str) -> str:
    """`algo-1` of `<job>/algo-1-1234567890`."""
    return "-".join(stream.rpartition("/")[2].split("-")[:2])
