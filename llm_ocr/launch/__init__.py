"""Stages as jobs on rented machines: the description of a job, its requests, and its status.

`JobSpec` -> `Launcher.plan` (pure) -> `Launcher.submit` -> `status`, `logs`, `cancel`. Each platform is a folder with
one launcher. The modules of this folder are shared (waiting, repeated submission, records in the workspace). No module
imports the pipeline: a laptop submits jobs without datasets, torch, or vLLM.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from llm_ocr.config.environment import environment
from llm_ocr.errors import LaunchError
from llm_ocr.plugins import PLATFORMS

#: Reading chosen pages again with other settings, as the stage of a launch. It plans, reads, describes, and assembles.
REPAIR = "repair"
#: Values of a schema from finished documents; not part of a pipeline.
FIELDS = "fields"
#: Stages that need a GPU; Assemble runs on a CPU.
GPU_STAGES = ("extract", "describe", FIELDS, REPAIR)
STAGES = ("extract", "describe", "assemble")
#: All stages; as the stage of a job: the job that submits the others (`coordinator`).
PIPELINE = "pipeline"


_GPUS = re.compile(r"gpu:([1-9]\d*)")


def cpu_or_gpus(stage: str) -> str:
    """Return the hardware of a stage on platforms with `cpu` or `gpu:N`."""
    return "gpu:1" if stage in GPU_STAGES else "cpu"


def gpus_of(hardware: str) -> int | None:
    """Return the GPUs of the hardware `cpu` or `gpu:N`; None for any other name."""
    found = _GPUS.fullmatch(hardware)
    return 0 if hardware == "cpu" else int(found[1]) if found else None


def moment(text: str | None) -> float | None:
    """Return a time in ISO 8601 as seconds since 1970; None for an unset time."""
    if not text:
        return None
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


class State(StrEnum):
    """State of a job on any platform."""

    QUEUED = "queued"  # accepted, without a machine
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed out"  # ended by its time limit; its published results stay
    PREEMPTED = "preempted"  # its machine was withdrawn; its published results stay

    @property
    def over(self) -> bool:
        """Return whether the state is final."""
        return self not in (State.QUEUED, State.RUNNING)


@dataclass(frozen=True, slots=True)
class JobSpec:
    """One stage as a job, or as one job per shard on platforms without arrays.

    A job receives only `environment` (the workspace, its launch, and `--env`) and secrets: its settings are in the
    workspace.
    `secrets` maps a variable's name to the place of its value on the platform, "" for the default place; never to a
    value.
    """

    stage: str
    workspace: str
    launch: str  # id of 20 characters from a-z, 0-9, and "-"; part of names on platforms
    submission: int = 1  # number of this submission of the stage in this launch
    shards: int = 1
    hardware: str = ""  # name on the platform; "": its default for the stage
    image: str = ""  # "": the platform's default, or a named placeholder
    environment: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)
    time_limit: int | None = None  # seconds; None: the platform's default for the stage
    options: Mapping[str, Any] = field(default_factory=dict)  # the platform's own settings, by field name

    @property
    def command(self) -> tuple[str, ...]:
        """Return the command of the job's container."""
        if self.stage == PIPELINE:
            return ("python", "-m", "llm_ocr.launch.coordinator")
        return ("python", "-m", "llm_ocr.stages", self.stage)

    @property
    def name(self) -> str:
        """Return the job's name on the platform.

        The name is unique for launch, stage, and submission. It has at most 48 characters from a-z, 0-9, and "-".
        """
        return f"llm-ocr-{self.launch}-{self.stage}-{self.submission}"

    def shard_name(self, shard: int) -> str:
        """Return the name of the job of one shard, on platforms without arrays."""
        return f"{self.name}-{shard}"


@dataclass(frozen=True, slots=True)
class Request:
    """Call to a platform: its name in the platform's API, and its arguments as JSON values."""

    call: str
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Plan:
    """Exact requests for a job, with secrets by name only.

    `missing` maps a placeholder for an unknown value to the way of setting it, for example `{"<role>": "--role ARN"}`.
    A plan with placeholders can be shown but not submitted. `notes` are for the user.
    """

    platform: str
    spec: JobSpec
    requests: tuple[Request, ...]
    missing: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Job:
    """Job on a platform. `shard` is None if one job does all shards; `url` is the page for people.

    `place` contains the data that its launcher needs in another process: region, endpoint, namespace, machines.
    """

    id: str
    name: str
    shard: int | None = None
    url: str = ""
    place: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class JobStatus:
    """Status of a job. `reason` is the platform's text for a failure or a wait; times are in seconds since 1970.

    `seconds` are the billed ones so far, summed over its machines; None if the platform does not report them.
    """

    job: Job
    state: State
    reason: str = ""
    started: float | None = None
    ended: float | None = None
    seconds: float | None = None
    image: str = ""  # with its digest; "" if the platform does not report the digest of a tag


class Launcher(ABC):
    """Platform. All methods but `plan` send requests, and raise `LaunchError` with the platform's message and a hint.

    A launcher is created without a request and without the platform's package. The first call that needs the package
    imports it (`MissingExtra` names the pip command).
    """

    platform: str  # name as users write it, for example `hf-jobs`
    usual_limit: int | None = None  # default time limit of a job in seconds; None: unlimited

    def __init__(self) -> None:
        self._words: dict[str, str] = {}  # last log lines of failed jobs, by job id

    @abstractmethod
    def hardware(self, stage: str) -> str:
        """Return the default hardware of a stage."""

    @abstractmethod
    def gpus(self, hardware: str) -> int | None:
        """Return the GPUs of one machine with that name; None for an unknown name."""

    def time_limit(self, spec: JobSpec) -> int | None:
        """Return the seconds that a job without a limit may run."""
        return self.usual_limit

    @abstractmethod
    def plan(self, spec: JobSpec) -> Plan:
        """Return the exact requests of `submit`. Pure. Raises `UsageError` for jobs that can never run."""

    @abstractmethod
    def check(self, plan: Plan) -> None:
        """Check account, hardware, quota, role, image, and secrets as far as possible, without creating anything."""

    @abstractmethod
    def find(self, spec: JobSpec) -> Sequence[Job]:
        """Return the existing jobs for this spec (by its name), so that nothing is created twice."""

    @abstractmethod
    def submit(self, plan: Plan) -> Sequence[Job]:
        """Create the jobs."""

    def status(self, jobs: Sequence[Job]) -> Sequence[JobStatus]:
        """Return the status of each job in order, with one request for all if the platform allows it."""
        return [self._status(job) for job in jobs]

    def _status(self, job: Job) -> JobStatus:
        return self.status([job])[0]

    @abstractmethod
    def logs(self, job: Job, *, follow: bool = False, tail: int | None = None) -> Iterator[str]:
        """Yield lines without line ends: with `follow`, until the job is over; with `tail`, only the last lines."""

    def cancel(self, job: Job) -> None:
        """End a job that is not over."""
        if not self._status(job).state.over:
            self._end(job)

    @abstractmethod
    def _end(self, job: Job) -> None:
        """End a job that was not over in the last status."""

    @abstractmethod
    def clean(self, jobs: Sequence[Job]) -> Sequence[str]:
        """Remove the objects that `submit` created for finished jobs; return lines about removed and remaining ones."""


def is_installed(platform: str) -> bool:
    """Return whether a platform is installed.

    Raises:
        UsageError: No platform is. The metadata of the library is missing, and running jobs must not count as ended.
    """
    if not PLATFORMS.names():
        PLATFORMS.get(platform)  # raises
    return platform in PLATFORMS.names()


def launcher_for(platform: str) -> Launcher:
    """Return the launcher of a platform, without a request.

    Raises:
        UsageError: The platform is unknown. The hint has a similar name, or all.
    """
    return PLATFORMS.get(platform)()


def secrets_here(spec: JobSpec, hint: str) -> dict[str, str]:
    """Return the values of a job's secrets whose place is this machine's environment.

    Args:
        spec: Job.
        hint: Hint of the error, in which `{name}` is the name of the variable.

    Raises:
        LaunchError: A variable is not set, or empty.
    """
    now = environment()
    values = {name: now.get(name, "") for name, where in spec.secrets.items() if not where}
    for name, value in values.items():
        if not value:
            raise LaunchError(f"the secret {name} is not set on this machine", hint=hint.format(name=name))
    return values
