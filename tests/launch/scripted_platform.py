"""A platform whose jobs really do units, here and at once, and end as a test says."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import llm_ocr
from llm_ocr.errors import LaunchError
from llm_ocr.launch import Job, JobSpec, JobStatus, Plan, Request, State
from llm_ocr.storage import StoreOptions
from llm_ocr.workspace.stored import launched

FRUGAL = {"render_workers": 1, "ocr_workers": 1}


@dataclass
class Ending:
    """What becomes of a submission: the share of units it does (index, count), or none, and how its jobs end."""

    share: tuple[int, int] | None = (0, 1)
    state: State = State.SUCCEEDED
    reason: str = ""


@dataclass
class Scripted:
    """`endings` of the submissions of each stage, in their order; what is not there succeeds."""

    endings: dict[str, list[Ending]] = field(default_factory=dict)
    platform: str = "slurm"
    submitted: list[JobSpec] = field(default_factory=list)
    ended: dict[str, JobStatus] = field(default_factory=dict)
    unreachable: int = 0  # questions that fail
    dies_after_submit: bool = False
    seconds: float = 0.0  # that every job is billed for
    after_submit: Callable[[], None] = lambda: None

    def hardware(self, stage: str) -> str:
        return "cpu"

    def gpus(self, hardware: str) -> int | None:
        return {"cpu": None, "gpu": 1, "small": 0}[hardware]

    def time_limit(self, spec: JobSpec) -> int | None:
        return None

    def plan(self, spec: JobSpec) -> Plan:
        missing = {"<role>": "--role ARN"} if spec.options.get("needs_role") else {}
        return Plan(self.platform, spec, (Request("start", {"name": spec.name}),), missing)

    def check(self, plan: Plan) -> None:
        return

    def find(self, spec: JobSpec) -> Sequence[Job]:
        return [Job(spec.name, spec.name)] if spec.name in self.ended else []

    def submit(self, plan: Plan) -> Sequence[Job]:
        spec = plan.spec
        assert spec.name not in self.ended, "created twice"
        self.submitted.append(spec)
        script = self.endings.get(spec.stage, [])
        ending = script.pop(0) if script else Ending()
        if ending.share is not None:
            self._work(spec, *ending.share)
        job = Job(spec.name, spec.name)
        self.ended[job.id] = JobStatus(job, ending.state, ending.reason, 0.0, self.seconds, self.seconds)
        if self.dies_after_submit:
            self.dies_after_submit = False
            raise KeyboardInterrupt
        return [job]

    def _work(self, spec: JobSpec, index: int, count: int) -> None:
        settings = dict(launched(spec.workspace, StoreOptions(), spec.environment["LLM_OCR_LAUNCH"], spec.stage))
        if spec.stage == "fields":
            settings["schema"] = settings.pop("fields_schema")
        elif spec.stage != "assemble":
            settings |= {"engine": "embedded", **FRUGAL}
        if spec.stage == "repair":
            settings["launch"] = spec.environment["LLM_OCR_LAUNCH"]
        elif spec.stage != "extract":
            settings.pop("render_workers", None)
        call = getattr(llm_ocr, spec.stage)
        sources = settings.pop("sources", ())
        first = (sources,) if spec.stage == "extract" and sources else ()
        call(*first, workspace=spec.workspace, shard_index=index, shard_count=count, **settings)

    def status(self, jobs: Sequence[Job]) -> Sequence[JobStatus]:
        if self.unreachable:
            self.unreachable -= 1
            raise LaunchError("the platform does not answer")
        return [self.ended[job.id] for job in jobs]

    def logs(self, job: Job, *, follow: bool = False, tail: int | None = None):
        yield f"log of {job.id}"

    def cancel(self, job: Job) -> None:
        return

    def clean(self, jobs: Sequence[Job]) -> Sequence[str]:
        return [f"removed {job.id}" for job in jobs]
