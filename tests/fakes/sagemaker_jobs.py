"""Jobs of the SageMaker fake: containers as processes of this machine, and their descriptions."""

import base64
import itertools
import json
import tempfile
import threading
import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from llm_ocr.launch.sagemaker.requests import LOADER
from tests.fakes.container import Container

ACCOUNT, REGION = "123456789012", "us-east-1"
#: SageMaker's message for a failure of its own machine, as quoted by users.
INTERNAL = "InternalServerError: We encountered an internal error.  Please try again."

_COUNTER = itertools.count(1)


@dataclass(slots=True)
class Line:
    """One line of a log stream."""

    id: str
    time: int  # milliseconds since 1970
    text: str


@dataclass(slots=True)
class Host:
    """One machine of a job: its container, the folder for /opt/ml, its log."""

    name: str
    stream: str
    container: Container | None = None
    ml: Path | None = None
    lines: list[Line] = field(default_factory=list)
    taken: int = 0  # number of this container's lines in `lines`
    last: tuple[int, str] = (0, "")  # number and text of the last line, which may be incomplete
    message: str = ""
    exit_code: int | None = None

    def read(self) -> None:
        """Read the output of the container, and its end."""
        if self.container is None or self.ml is None:
            return
        over = self.container.exit_code
        written = self.container.lines()
        last = (len(written), written[-1]) if written else (0, "")
        whole = len(written) if over is not None or last == self.last else len(written) - 1
        self.last = last
        for text in written[self.taken : whole]:
            self.lines.append(Line(f"{next(_COUNTER):056d}", int(time.time() * 1000), text))
        self.taken = max(self.taken, whole)
        self.exit_code = over
        if over is not None and (file := self.ml / "output" / "failure").is_file():
            self.message = file.read_text()[:1024]

    def remove(self) -> None:
        """End the container at once."""
        if self.container is not None:
            self.container.remove()
            self.container = None


class FakeJob:
    """One job, from its request to its end. `environment` contains the variables of the platform and the image."""

    def __init__(self, body: Mapping[str, Any], environment: Mapping[str, str], limit: float | None) -> None:
        self.body = body
        self.name = str(body["TrainingJobName"])
        self.arn = f"arn:aws:sagemaker:{REGION}:{ACCOUNT}:training-job/{self.name}"
        self.created = self.modified = time.time()
        self.started: float | None = None
        self.ended: float | None = None
        self.reason = ""
        self.status, self.second = "InProgress", "Starting"
        self.transitions: list[tuple[str, float]] = [("Starting", self.created)]
        self._environment, self._limit = dict(environment), limit
        self._lock = threading.RLock()
        self._folder = tempfile.TemporaryDirectory(prefix="llm-ocr-sagemaker-")
        self._attempt = 0
        self._billed = 0.0
        self.hosts = self._new_hosts()

    @property
    def machines(self) -> Mapping[str, Any]:
        """Return count, type, and disks."""
        return dict(self.body["ResourceConfig"])

    @property
    def over(self) -> bool:
        return self.status in ("Completed", "Failed", "Stopped")

    @property
    def _newest(self) -> list[Host]:
        """Return the machines after the last interruption."""
        return self.hosts[-int(self.machines["InstanceCount"]) :]

    @property
    def runs(self) -> bool:
        """Return whether one of its containers runs."""
        return any(host.container is not None and host.container.exit_code is None for host in self.hosts)

    def start(self) -> None:
        """Assign machines to the job."""
        with self._lock:
            self.started = self.started or time.time()
            self._at = time.time()
            self._to("InProgress", "Training")
            for host in self.hosts:
                self._start(host)

    def look(self) -> None:
        """Update its state from its containers."""
        with self._lock:
            runs = self.runs  # before reading: an end in between is read completely the next time
            for host in self.hosts:
                host.read()
            if self.over or self.started is None or self.second == "Interrupted" or runs:
                return
            containers = [host.container for host in self._newest if host.container is not None]
            self._billed += time.time() - self._at
            codes = {host.exit_code for host in self._newest}
            if any(one.timed_out for one in containers):
                self._end("Stopped", "MaxRuntimeExceeded")
            elif any(one.stopped for one in containers):
                self._end("Stopped", "Stopped")
            elif codes == {0}:
                self._end("Completed", "Completed")
            else:
                self._end("Failed", "Failed", self._failure(codes))

    def stop(self) -> None:
        """Stop the job as StopTrainingJob does: SIGTERM, then SIGKILL."""
        with self._lock:
            self._to("Stopping", "Stopping")
            if self.started is None or self.second == "Interrupted":
                self._end("Stopped", "Stopped")
        threading.Thread(target=self._stop, daemon=True).start()

    def fail_machine(self) -> None:
        """Remove its machines, as after a power failure."""
        with self._lock:
            for host in self.hosts:
                host.read()
                host.remove()
            self._end("Failed", "Failed", INTERNAL)

    def interrupt(self) -> None:
        """Withdraw the spot machines: SIGTERM, and no machine until `resume`."""
        with self._lock:
            self._to("InProgress", "Interrupted")  # first: concurrent readers must not see it as stopped
        self._stop()
        with self._lock:
            self._billed += time.time() - self._at
            for host in self.hosts:
                host.read()
                host.remove()

    def resume(self) -> None:
        """Provide spot machines again: the same command from its beginning."""
        with self._lock:
            self._attempt += 1
            self._to("InProgress", "Restarting")
            self.hosts += self._new_hosts()
            self._at = time.time()
            self._to("InProgress", "Training")
            for host in self._newest:
                self._start(host)

    def wait_ended(self) -> None:
        """End the job after too long a wait for a machine."""
        with self._lock:
            self._end("Stopped", "MaxWaitTimeExceeded")

    def remove(self) -> None:
        """End all its processes at once."""
        with self._lock:
            for host in self.hosts:
                host.remove()
            self._folder.cleanup()

    def described(self) -> dict[str, Any]:
        """Return the response of DescribeTrainingJob."""
        with self._lock:
            self.look()
            found = {**self.body, "TrainingJobArn": self.arn, "TrainingJobStatus": self.status}
            found |= {"CreationTime": self.created, "LastModifiedTime": self.modified}
            found |= {"TrainingStartTime": self.started} if self.started else {}
            found |= {"TrainingEndTime": self.ended} if self.ended else {}
            found |= {"FailureReason": self.reason} if self.reason else {}
            found |= {"SecondaryStatus": self.second, "ModelArtifacts": {"S3ModelArtifacts": ""}}
            found["SecondaryStatusTransitions"] = [{"Status": one, "StartTime": when} for one, when in self.transitions]
            billed = {"BillableTimeInSeconds": max(1, round(self._billed))}
            return found | (billed if self.over and self.started else {})

    def _new_hosts(self) -> list[Host]:
        names = [f"algo-{number + 1}" for number in range(int(self.machines["InstanceCount"]))]
        stamp = int(self.created) + self._attempt
        return [Host(name, f"{self.name}/{name}-{stamp}") for name in names]

    def _start(self, host: Host) -> None:
        names = sorted({one.name for one in self.hosts})
        host.ml = Path(self._folder.name, str(self._attempt), host.name)
        (host.ml / "output").mkdir(parents=True)
        at = self.body["AlgorithmSpecification"]
        words = expanded(at.get("ContainerEntrypoint", ()), at.get("ContainerArguments", ()))
        # Each container has its own /opt/ml; here, each has its own folder.
        given = self.body.get("Environment", {})
        variables = {name: value.replace("/opt/ml/", f"{host.ml}/") for name, value in given.items()}
        told = {"SM_HOSTS": json.dumps(names), "SM_CURRENT_HOST": host.name}
        told |= {"TRAINING_JOB_NAME": self.name, "TRAINING_JOB_ARN": self.arn}
        limit = float(self.body.get("StoppingCondition", {}).get("MaxRuntimeInSeconds", 86_400))
        host.container = Container(
            words,
            {**self._environment, **told, **variables},
            time_limit=min(limit, self._limit) if self._limit is not None else limit,
            grace=60.0,
        )

    def _stop(self) -> None:
        containers = [host.container for host in self.hosts if host.container is not None]
        threads = [threading.Thread(target=one.stop, daemon=True) for one in containers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _failure(self, codes: set[int | None]) -> str:
        code = next((one for one in sorted(filter(None, codes))), 1)
        said = "".join(host.message for host in self._newest).strip()
        return f"AlgorithmError: {said or 'See job logs for more information'}, exit code: {code}"[:1024]

    def _to(self, status: str, second: str) -> None:
        self.status, self.second, self.modified = status, second, time.time()
        self.transitions.append((second, self.modified))

    def _end(self, status: str, second: str, reason: str = "") -> None:
        self._to(status, second)
        self.reason, self.ended = reason, time.time()


def expanded(entrypoint: Sequence[str], arguments: Sequence[str]) -> list[str]:
    """Return the command for these arguments; the inverse of `requests.compressed`."""
    if LOADER not in entrypoint:
        return [*entrypoint, *arguments]
    return [*entrypoint[:2], zlib.decompress(base64.b64decode("".join(arguments))).decode()]
