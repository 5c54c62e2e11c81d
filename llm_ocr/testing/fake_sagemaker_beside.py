"""What stands beside SageMaker in its fake: CloudWatch's log of each job, and the account's quotas."""

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

from llm_ocr.testing.fake_sagemaker_jobs import PROCESSING, TRAINING, FakeJob, Kind

#: Events of a log, and quotas, that come at once.
_PAGE = 100
#: Of each machine, where a test says nothing else.
_QUOTA = 100.0


class Refused(Exception):
    """An error answer, in AWS's words."""

    def __init__(self, code: str, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.code, self.message, self.status = code, message, status


def hardware_of(kind: Kind) -> Sequence[str]:
    """The machines that a kind of job may have."""
    model = import_module("botocore.session").get_session().get_service_model("sagemaker")
    found: Sequence[str] = model.shape_for(f"{kind.word}InstanceType").enum
    return found


def filtered(jobs: Mapping[str, FakeJob], body: Mapping[str, Any]) -> Mapping[str, Any]:
    """FilterLogEvents in pages; the page before the first line is empty, as it may be."""
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
    """DeleteLogGroup."""
    for job in _of_group(jobs, body):
        for host in job.hosts:
            host.lines.clear()
    return {}


def quotas_page(quotas: Mapping[str, float], body: Mapping[str, Any]) -> Mapping[str, Any]:
    """ListServiceQuotas; `quotas` by name where they are not the usual."""
    kinds = {"processing": PROCESSING, "training": TRAINING, "spot training": TRAINING}
    names = [f"{one} for {word} job usage" for word, kind in kinds.items() for one in hardware_of(kind)]
    begin = int(body.get("NextToken") or 0)
    page = [
        {"ServiceCode": "sagemaker", "QuotaCode": f"L-{place:08X}", "QuotaName": name}
        | {"Value": quotas.get(name, _QUOTA)}
        for place, name in enumerate(names[begin : begin + _PAGE], begin)
    ]
    return {"Quotas": page, **({"NextToken": str(begin + _PAGE)} if begin + _PAGE < len(names) else {})}


def _of_group(jobs: Mapping[str, FakeJob], body: Mapping[str, Any]) -> list[FakeJob]:
    """The jobs whose lines are in a log group: it is there from the first line on."""
    found = [job for job in jobs.values() if job.kind.group == body["logGroupName"]]
    for job in found:
        job.look()
    if not any(host.lines for job in found for host in job.hosts):
        raise Refused("ResourceNotFoundException", "The specified log group does not exist.")
    return found
