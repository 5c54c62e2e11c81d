"""Amazon SageMaker: one processing job a stage, whose machines share the units; training jobs for spot machines.

Only boto3 is needed. A job's secrets are fetched by the job itself (`entry`).
"""

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any

from llm_ocr.errors import LaunchError
from llm_ocr.launch import GPU_STAGES, Job, JobSpec, JobStatus, Plan, State
from llm_ocr.launch.sagemaker.check import check
from llm_ocr.launch.sagemaker.client import Clients, code_of, is_absent, translated
from llm_ocr.launch.sagemaker.hardware import gpus_of
from llm_ocr.launch.sagemaker.logs import GROUPS, lines
from llm_ocr.launch.sagemaker.requests import (
    DEFAULT_TIME_LIMIT,
    PLATFORM,
    PROCESSING,
    TRAINING,
    kind_of,
    output_of,
    plan_for,
)
from llm_ocr.launch.sagemaker.status import status_of

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
            body = deepcopy(dict(request.body))
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
            said.append(
                "left: the entries of the jobs (free), the image in ECR, the role, the secrets (sagemaker/README.md)"
            )
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
        return status_of(job, found)

    def _of_spec(self, spec: JobSpec) -> Clients:
        return self._clients_of(spec.options.get("region"), spec.options.get("platform_endpoint"))

    def _of_job(self, job: Job) -> Clients:
        if job.place.get("kind") not in _NAME:
            raise LaunchError(f"{job.name} is no job of SageMaker's: its place says {dict(job.place)}")
        return self._clients_of(job.place.get("region"), job.place.get("endpoint"))

    def _clients_of(self, region: str | None, endpoint: str | None) -> Clients:
        return self._clients.setdefault((region, endpoint), Clients(region, endpoint))


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
