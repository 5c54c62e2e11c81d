"""Jobs of Hugging Face in tests: a Hub on loopback whose jobs run, and jobs to launch."""

from dataclasses import dataclass, field
from typing import Any

from cases_hf_jobs import LAUNCH
from huggingface_hub import HfApi

from llm_ocr.launch import Job, JobSpec, JobStatus, Plan
from llm_ocr.launch.hf_jobs import HfJobs
from llm_ocr.launch.library import with_library
from llm_ocr.storage import StoreOptions
from llm_ocr.workspace import Workspace
from tests.fakes.hub import TOKEN, FakeHub

WORKSPACE = "hf://buckets/tester/ws/run"


@dataclass
class Platform:
    """The Hub, the launcher, and the client that looks at what it did."""

    hub: FakeHub
    wheel: str
    launcher: HfJobs = field(default_factory=HfJobs)

    @property
    def api(self) -> HfApi:
        return HfApi(endpoint=self.hub.url, token=TOKEN)

    def spec(self, stage: str = "extract", workspace: str = WORKSPACE, **more: Any) -> JobSpec:
        """On a machine without a GPU, with the embedded engine."""
        options = {"platform_endpoint": self.hub.url, "wheel": self.wheel, **more.pop("options", {})}
        environment = {"LLM_OCR_WORKSPACE": workspace, "LLM_OCR_ENGINE": "embedded", **more.pop("environment", {})}
        settings = {"hardware": "cpu-upgrade", "environment": environment, "options": options, **more}
        return JobSpec(stage, workspace, LAUNCH, **settings)

    def submit(self, plan: Plan) -> list[Job]:
        """The plan's jobs, with the library in the workspace as a launch puts it there."""
        hub = StoreOptions(endpoint=self.hub.url)
        if plan.spec.workspace.startswith("hf://buckets/"):
            self.api.create_bucket("/".join(plan.spec.workspace.split("/")[3:5]), private=True, exist_ok=True)
        variables = plan.spec.environment
        there = StoreOptions(endpoint=variables.get("LLM_OCR_WORKSPACE_ENDPOINT"), region="us-east-1")
        options = hub if plan.spec.workspace.startswith("hf:") else there
        with Workspace.open(plan.spec.workspace, True, options=options) as workspace:
            return list(self.launcher.submit(with_library(plan, workspace)))

    def over(self, jobs: Any) -> list[JobStatus]:
        """Their statuses, when all are over."""
        for job in jobs:
            assert self.hub.state.jobs.by_id[job.id].over.wait(240)
        return list(self.launcher.status(jobs))
