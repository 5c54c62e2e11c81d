"""Stages as jobs on rented machines: a job's description, what is sent for it, and what became of it.

`JobSpec` -> `Launcher.plan` (pure) -> `Launcher.submit` -> `status`, `logs`, `cancel`. Each platform is one launcher;
what they share (waiting, submitting again, records in the workspace) stands beside them. Nothing here imports the
pipeline: a laptop submits jobs without datasets, torch or vLLM.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

#: Stages that need a GPU; Assemble runs on a CPU.
GPU_STAGES = ("extract", "describe")
STAGES = ("extract", "describe", "assemble")
#: All of them; as the stage of a job: the one that submits the others (`coordinator`).
PIPELINE = "pipeline"


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


class Launcher(Protocol):
    """One platform. Methods block; all but `plan` ask the platform and raise `LaunchError` with its words and a hint.

    Made without asking anybody, and without the platform's package: that is imported by the first call that needs it
    (`MissingExtra` names the pip command).
    """

    @property
    def platform(self) -> str:
        """As users write it, for example `hf-jobs`."""

    def hardware(self, stage: str) -> str:
        """What a stage runs on where the user does not say."""

    def gpus(self, hardware: str) -> int | None:
        """GPUs of one machine of that name; None for a name that is not known here."""

    def time_limit(self, spec: JobSpec) -> int | None:
        """Return the seconds that a job without a limit may run; None for a platform that never ends a job."""

    def plan(self, spec: JobSpec) -> Plan:
        """Exactly what `submit` will send. Pure. Raises `UsageError` for what can never work (shards, time, memory)."""

    def check(self, plan: Plan) -> None:
        """Find out what can be known before: account, hardware, quota, role, image, secrets. Creates nothing."""

    def find(self, spec: JobSpec) -> Sequence[Job]:
        """The jobs that stand already for this very spec (by its name), so that nothing is created twice."""

    def submit(self, plan: Plan) -> Sequence[Job]:
        """Create the jobs."""

    def status(self, jobs: Sequence[Job]) -> Sequence[JobStatus]:
        """One for each, in their order; one question for all where the platform allows it."""

    def logs(self, job: Job, *, follow: bool = False, tail: int | None = None) -> Iterator[str]:
        """Lines without line ends; `follow` until the job is over, `tail` only the last so many."""

    def cancel(self, job: Job) -> None:
        """End it; nothing happens to one that is over."""

    def clean(self, jobs: Sequence[Job]) -> Sequence[str]:
        """Remove what `submit` created besides jobs that are over; lines that say what was removed and what is left."""
