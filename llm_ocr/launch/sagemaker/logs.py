"""What a job's containers wrote, from CloudWatch Logs."""

import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from llm_ocr.launch import Job
from llm_ocr.launch.sagemaker.client import is_absent, translated
from llm_ocr.launch.sagemaker.requests import TRAINING

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
