"""A fake Amazon SageMaker: a real server whose jobs run as subprocesses."""

import contextlib
import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from llm_ocr.errors import MissingExtra
from tests.fakes.sagemaker_jobs import ACCOUNT, INTERNAL, REGION, FakeJob

__all__ = ["ACCOUNT", "INTERNAL", "REGION", "FakeSageMaker", "Refused", "running"]


# Other services in the fake: CloudWatch's log of each job, and the account's quotas.


#: Events of a log, or quotas, per response.
_PAGE = 100
_GROUP = "/aws/sagemaker/TrainingJobs"
#: Default quota of each machine.
_QUOTA = 100.0


class Refused(Exception):
    """Error response in AWS's words."""

    def __init__(self, code: str, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.code, self.message, self.status = code, message, status


def known_hardware() -> Sequence[str]:
    """Return the machines that jobs may use."""
    model = import_module("botocore.session").get_session().get_service_model("sagemaker")
    found: Sequence[str] = model.shape_for("TrainingInstanceType").enum
    return found


def filtered(jobs: Mapping[str, FakeJob], body: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return FilterLogEvents in pages; the page before the first line is empty, as AWS allows."""
    prefix = body.get("logStreamNamePrefix", "")
    hosts = [host for job in _of_group(jobs, body) for host in job.hosts if host.stream.startswith(prefix)]
    since = body.get("startTime", 0)
    events = sorted((line.time, line.id, host.stream, line.text) for host in hosts for line in host.lines)
    events = [event for event in events if event[0] >= since]
    if "nextToken" not in body:
        return {"events": [], **({"nextToken": "0"} if events else {})}
    begin = int(body["nextToken"])
    page = [
        {"timestamp": when, "ingestionTime": when, "eventId": id_, "logStreamName": stream, "message": text}
        for when, id_, stream, text in events[begin : begin + _PAGE]
    ]
    return {"events": page, **({"nextToken": str(begin + _PAGE)} if begin + _PAGE < len(events) else {})}


def delete_log(jobs: Mapping[str, FakeJob], body: Mapping[str, Any]) -> Mapping[str, Any]:
    """Execute DeleteLogGroup."""
    for job in _of_group(jobs, body):
        for host in job.hosts:
            host.lines.clear()
    return {}


def quotas_page(quotas: Mapping[str, float], body: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return ListServiceQuotas; `quotas` by name override the default."""
    names = [f"{one} for {word} job usage" for word in ("training", "spot training") for one in known_hardware()]
    begin = int(body.get("NextToken") or 0)
    page = [
        {"ServiceCode": "sagemaker", "QuotaCode": f"L-{place:08X}", "QuotaName": name}
        | {"Value": quotas.get(name, _QUOTA)}
        for place, name in enumerate(names[begin : begin + _PAGE], begin)
    ]
    return {"Quotas": page, **({"NextToken": str(begin + _PAGE)} if begin + _PAGE < len(names) else {})}


def _of_group(jobs: Mapping[str, FakeJob], body: Mapping[str, Any]) -> list[FakeJob]:
    """Return the jobs whose lines are in a log group: the group exists from the first line on."""
    found = list(jobs.values()) if body["logGroupName"] == _GROUP else []
    for job in found:
        job.look()
    if not any(host.lines for job in found for host in job.hosts):
        raise Refused("ResourceNotFoundException", "The specified log group does not exist.")
    return found


# Server on loopback whose jobs run as processes of this machine. It implements boto3's requests to SageMaker about
# training jobs, to CloudWatch about their logs, and to Service Quotas. All other services are moto's
# (S3, STS, IAM, ECR, Secrets Manager), on the same port. A job's containers receive the same as on SageMaker: their
# hosts, a role's credentials, the region, a folder for /opt/ml. In tests: `with running("bucket") as sagemaker: ...`.


_HOST = "127.0.0.1"
_CREDENTIALS = "/fake/role-credentials"
Answer = tuple[int, Mapping[str, Any]]


@dataclass(slots=True)
class Fault:
    """Refusal of the next `times` calls of an operation; with `after`, they are executed nevertheless."""

    operation: str
    error: Refused
    times: int = 1
    after: bool = False


class FakeSageMaker:
    """Server with `serve` and `stop`.

    `image_environment` contains the variables of the image. `time_limit` (seconds) ends jobs earlier than theirs.
    `quotas`: by name of a quota, if not 100. `dead_machines`: number of jobs that fail before their command runs.
    `hold`: jobs wait for machines until it is False and `release` is called.
    """

    def __init__(self, *, image_environment: Mapping[str, str] | None = None) -> None:
        self.jobs: dict[str, FakeJob] = {}
        self.faults: list[Fault] = []
        self.quotas: dict[str, float] = {}
        self.counts: Counter[str] = Counter()
        self.image_environment = dict(image_environment or {})
        self.time_limit: float | None = None
        self.dead_machines = 0
        self.hold = False
        self._lock = threading.RLock()
        self._moto, handler = _moto()
        serving = import_module("werkzeug.serving")
        self._server = serving.make_server(_HOST, 0, self._application, threaded=True, request_handler=handler)

    @property
    def url(self) -> str:
        """Return the value for AWS_ENDPOINT_URL."""
        return f"http://{_HOST}:{self._server.server_port}"

    def serve(self) -> None:
        """Answer requests until `stop`."""
        self._server.serve_forever()

    def stop(self) -> None:
        """Close the port, and end all jobs. `serve` must be running."""
        self._server.shutdown()
        self._server.server_close()
        self.remove_jobs()

    def remove_jobs(self) -> None:
        """End all containers at once."""
        for job in self.jobs.values():
            job.remove()

    def refuse(
        self, operation: str, code: str, message: str, *, status: int = 400, times: int = 1, after: bool = False
    ) -> None:
        """Refuse the next calls of an operation, such as CreateTrainingJob; see `Fault`."""
        self.faults.append(Fault(operation, Refused(code, message, status), times, after))

    def release(self) -> None:
        """Assign machines to the waiting jobs."""
        self.hold = False
        for job in self.jobs.values():
            if job.started is None and not job.over:
                job.start()

    def _application(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Any:
        if environ.get("PATH_INFO") == _CREDENTIALS:
            return _sent(start_response, 200, _role_credentials())
        service, _, operation = str(environ.get("HTTP_X_AMZ_TARGET", "")).partition(".")
        act = self._operation(service, operation)
        if act is None:
            return self._moto(environ, start_response)
        body = json.loads(environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0)) or b"{}")
        return _sent(start_response, *self._answer(operation, act, body))

    def _answer(
        self, operation: str, act: Callable[[dict[str, Any]], Mapping[str, Any]], body: dict[str, Any]
    ) -> Answer:
        with self._lock:
            self.counts[operation] += 1
            fault = next((one for one in self.faults if one.operation == operation and one.times > 0), None)
            try:
                if fault is not None:
                    fault.times -= 1
                    if fault.after:
                        act(body)
                    raise fault.error
                return 200, act(body)
            except Refused as refused:
                return refused.status, {"__type": refused.code, "message": refused.message}

    def _operation(self, service: str, operation: str) -> Callable[[dict[str, Any]], Mapping[str, Any]] | None:
        if service == "SageMaker":
            return {
                "CreateTrainingJob": self._create,
                "DescribeTrainingJob": self._describe,
                "StopTrainingJob": self._stop_job,
                "ListTrainingJobs": self._list,
            }.get(operation)
        if (service, operation) == ("Logs_20140328", "FilterLogEvents"):
            return lambda body: filtered(self.jobs, body)
        if (service, operation) == ("Logs_20140328", "DeleteLogGroup"):
            return lambda body: delete_log(self.jobs, body)
        if (service, operation) == ("ServiceQuotasV20190624", "ListServiceQuotas"):
            return lambda body: quotas_page(self.quotas, body)
        return None

    def _create(self, body: dict[str, Any]) -> Mapping[str, Any]:
        name = body["TrainingJobName"]
        if name in self.jobs:
            raise Refused("ResourceInUse", f"Job name must be unique within an AWS account and region: {name}")
        environment = {**self.image_environment, **self._platform_environment()}
        job = FakeJob(body, environment, self.time_limit)
        hardware = job.machines["InstanceType"]
        if hardware not in known_hardware():
            job.remove()
            raise Refused("ValidationException", f"1 validation error detected: Value '{hardware}' at 'instanceType'")
        self.jobs[name] = job
        if self.dead_machines > 0:
            self.dead_machines -= 1
            job.fail_machine()
        elif not self.hold:
            job.start()
        return {"TrainingJobArn": job.arn}

    def _platform_environment(self) -> dict[str, str]:
        return {
            "AWS_REGION": REGION,
            "AWS_ENDPOINT_URL": self.url,  # the account's network
            "AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{self.url}{_CREDENTIALS}",
        }

    def _describe(self, body: dict[str, Any]) -> Mapping[str, Any]:
        return self._job(body).described()

    def _stop_job(self, body: dict[str, Any]) -> Mapping[str, Any]:
        job = self._job(body)
        job.look()
        if job.over:
            text = f"The request was rejected because the training job is in status {job.status}."
            raise Refused("ValidationException", text)
        job.stop()
        return {}

    def _list(self, body: dict[str, Any]) -> Mapping[str, Any]:
        found = [job.described() for job in self.jobs.values() if body.get("NameContains", "") in job.name]
        names = ("TrainingJobName", "TrainingJobArn", "TrainingJobStatus", "CreationTime", "LastModifiedTime")
        return {"TrainingJobSummaries": [{name: one[name] for name in names} for one in found]}

    def _job(self, body: dict[str, Any]) -> FakeJob:
        job = self.jobs.get(body["TrainingJobName"])
        if job is None:
            raise Refused("ValidationException", f"Requested resource not found. {body['TrainingJobName']}")
        return job


def _moto() -> tuple[Any, Any]:
    """Return moto's application of all services, and its request handler."""
    try:
        module = import_module("moto.moto_server.werkzeug_app")
    except ImportError as error:
        hint = 'Install it: pip install "moto[server]"'
        raise MissingExtra("the fake of SageMaker needs moto, which is not installed", hint=hint) from error
    quiet = {"log": lambda *arguments: None}  # the requests are counted
    return module.DomainDispatcherApplication(module.create_backend_app), type(
        "Handler", (module.MotoRequestHandler,), quiet
    )


def _role_credentials() -> dict[str, str]:
    return {
        "AccessKeyId": "ASIAROLEROLEROLEROLE",
        "SecretAccessKey": "of the role",
        "Token": "of the role",
        "Expiration": "2099-01-01T00:00:00Z",
    }


def _sent(start_response: Callable[..., Any], status: int, value: Mapping[str, Any]) -> list[bytes]:
    data = json.dumps(value).encode()
    headers = [("Content-Type", "application/x-amz-json-1.1"), ("Content-Length", str(len(data)))]
    start_response(f"{status} {'OK' if status == 200 else 'Error'}", headers)
    return [data]


def _make_buckets(url: str, names: Sequence[str]) -> None:
    boto3 = import_module("boto3")
    keys = {"aws_access_key_id": "AKIAFAKEFAKEFAKEFAKE", "aws_secret_access_key": "of the fake"}
    client = boto3.client("s3", endpoint_url=url, region_name=REGION, **keys)
    for name in names:
        client.create_bucket(Bucket=name)


@contextlib.contextmanager
def running(*buckets: str, image_environment: Mapping[str, str] | None = None) -> Iterator[FakeSageMaker]:
    """Run a server with these buckets in a thread of this process; the server and its jobs end with the block."""
    fake = FakeSageMaker(image_environment=image_environment)
    thread = threading.Thread(target=fake.serve, name="fake-sagemaker", daemon=True)
    thread.start()
    try:
        _make_buckets(fake.url, buckets)
        yield fake
    finally:
        fake.stop()
        thread.join()
