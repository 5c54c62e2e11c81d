"""Stages as jobs on rented machines: the description of a job, its requests, and its status.

`JobSpec` -> `Launcher.plan` (pure) -> `Launcher.submit` -> `status`, `logs`, `cancel`. Each platform is a folder with
one launcher; the modules of this folder are shared (waiting, submitting again, records in the workspace). Nothing here
imports the pipeline: a laptop submits jobs without datasets, torch or vLLM.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

#: Stages that need a GPU; Assemble runs on a CPU.
GPU_STAGES = ("extract", "describe")
STAGES = ("extract", "describe", "assemble")
#: All of them; as the stage of a job: the one that submits the others (`coordinator`).
PIPELINE = "pipeline"


_GPUS = re.compile(r"gpu:([1-9]\d*)")


def cpu_or_gpus(stage: str) -> str:
    """Return the hardware of a stage, where hardware is `cpu` or `gpu:N`."""
    return "gpu:1" if stage in GPU_STAGES else "cpu"


def gpus_of(hardware: str) -> int | None:
    """Return the GPUs of hardware that is `cpu` or `gpu:N`; None for any other name."""
    found = _GPUS.fullmatch(hardware)
    return 0 if hardware == "cpu" else int(found[1]) if found else None


def moment(text: str | None) -> float | None:
    """Read a time in ISO 8601, in seconds since 1970; None for a time that is not set (empty, or of the year 1)."""
    if not text or text.startswith("0001-"):
        return None
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


class State(StrEnum):
    """Where a job is, on any platform."""

    QUEUED = "queued"  # accepted, no machine yet
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed out"  # ended by its time limit: what it published stays
    PREEMPTED = "preempted"  # its machine was taken away: what it published stays

    @property
    def over(self) -> bool:
        """Whether nothing more will come of it."""
        return self not in (State.QUEUED, State.RUNNING)


@dataclass(frozen=True, slots=True)
class JobSpec:
    """One stage as a job, or as one job a shard where a platform has no arrays.

    A job gets `environment` (the workspace and which launch it belongs to) and secrets, nothing else: its settings
    stand in the workspace. `secrets` maps a variable's name to where its value stands on the platform, "" for the
    platform's usual way; never a value.
    """

    stage: str
    workspace: str
    launch: str  # id, of 20 characters from a-z, 0-9 and "-"; platform names are made from it
    submission: int = 1  # how many-th of this stage in this launch
    shards: int = 1
    hardware: str = ""  # the platform's name for it; "": its default for the stage
    image: str = ""  # "": the platform's default, or a named placeholder
    environment: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)
    time_limit: int | None = None  # seconds; None: the platform's default for the stage
    options: Mapping[str, Any] = field(default_factory=dict)  # the platform's own settings, by field name

    @property
    def command(self) -> tuple[str, ...]:
        """What a job's container runs."""
        if self.stage == PIPELINE:
            return ("python", "-m", "llm_ocr.launch.coordinator")
        return ("python", "-m", "llm_ocr.stages", self.stage)

    @property
    def name(self) -> str:
        """Of the job on the platform: unique for launch, stage and submission; a-z, 0-9 and "-", at most 48 long."""
        return f"llm-ocr-{self.launch}-{self.stage}-{self.submission}"

    def shard_name(self, shard: int) -> str:
        """Return the name of the job of one shard, on platforms without arrays."""
        return f"{self.name}-{shard}"

    def shard_variables(self, shard: int) -> dict[str, str]:
        """Return the variables of the job of one shard; none if it does all units."""
        if self.shards == 1:
            return {}
        return {"LLM_OCR_SHARD_INDEX": str(shard), "LLM_OCR_SHARD_COUNT": str(self.shards)}


@dataclass(frozen=True, slots=True)
class Request:
    """One call to a platform: its name in the platform's API, and its arguments as JSON values."""

    call: str
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Plan:
    """Exactly what will be sent for a job; secrets by name only.

    `missing` says what is not known yet: the placeholder that stands in a body -> how to give it, for example
    `{"<role>": "--role ARN"}`. A plan with such gaps can be shown and not submitted. `notes` are for the user.
    """

    platform: str
    spec: JobSpec
    requests: tuple[Request, ...]
    missing: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Job:
    """One job on a platform. `shard` is None where one job does all shards; `url` is where people look at it.

    `place` is what its launcher needs to ask for it again, in another process: region, endpoint, namespace, machines.
    """

    id: str
    name: str
    shard: int | None = None
    url: str = ""
    place: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class JobStatus:
    """What a platform says of a job. `reason`, in its words: why it ended badly, or why it waits; times since 1970.

    `seconds` is what it is billed for so far, summed over its machines; None where the platform does not say.
    """

    job: Job
    state: State
    reason: str = ""
    started: float | None = None
    ended: float | None = None
    seconds: float | None = None
    image: str = ""  # with its digest; "" where the platform does not say which one a tag was


class Launcher(ABC):
    """One platform. All methods but `plan` ask the platform, and raise `LaunchError` with its message and a hint.

    A launcher is created without a request and without the platform's package. The first call that needs the package
    imports it (`MissingExtra` names the pip command).
    """

    platform: str  # as users write it, for example `hf-jobs`
    usual_limit: int | None = None  # seconds of a job without a time limit; None: the platform never ends a job

    def __init__(self) -> None:
        self._words: dict[str, str] = {}  # the last words of failed jobs, by their id

    @abstractmethod
    def hardware(self, stage: str) -> str:
        """Return the hardware of a stage if the user names none."""

    @abstractmethod
    def gpus(self, hardware: str) -> int | None:
        """Return the GPUs of one machine of that name; None for a name that is not known here."""

    def time_limit(self, spec: JobSpec) -> int | None:
        """Return the seconds that a job without a limit may run."""
        return self.usual_limit

    @abstractmethod
    def plan(self, spec: JobSpec) -> Plan:
        """Return exactly what `submit` will send. Pure. Raises `UsageError` for jobs that can never run."""

    @abstractmethod
    def check(self, plan: Plan) -> None:
        """Check account, hardware, quota, role, image, and secrets as far as possible. Create nothing."""

    @abstractmethod
    def find(self, spec: JobSpec) -> Sequence[Job]:
        """Return the jobs that exist for this spec (by its name), so that nothing is created twice."""

    @abstractmethod
    def submit(self, plan: Plan) -> Sequence[Job]:
        """Create the jobs."""

    def status(self, jobs: Sequence[Job]) -> Sequence[JobStatus]:
        """Return the status of each job, in their order; with one request for all where the platform allows it."""
        return [self._status(job) for job in jobs]

    def _status(self, job: Job) -> JobStatus:
        return self.status([job])[0]

    @abstractmethod
    def logs(self, job: Job, *, follow: bool = False, tail: int | None = None) -> Iterator[str]:
        """Yield lines without line ends: with `follow` until the job is over, with `tail` only the last so many."""

    def cancel(self, job: Job) -> None:
        """End a job, unless it is over."""
        if not self._status(job).state.over:
            self._end(job)

    @abstractmethod
    def _end(self, job: Job) -> None:
        """End a job that was not over a moment ago."""

    @abstractmethod
    def clean(self, jobs: Sequence[Job]) -> Sequence[str]:
        """Remove what `submit` created for jobs that are over; return lines with what was removed and what is left."""
