"""Submit the stages of a launch, watch their jobs, and submit a stage again while it makes progress.

A stage is submitted again after its jobs have ended if units are missing and the last submission finished some. The
maximum is `attempts` submissions. With `max_cost`, the time limit of each submission follows from the rest of the
budget. The workspace records every submission (`records`). Nothing is therefore created twice, and any machine can
continue to watch.
"""

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from types import MappingProxyType
from typing import Any, TextIO

from llm_ocr.config.loading import Stored, check_effect, masked
from llm_ocr.config.models import LaunchSettings
from llm_ocr.costs import time_limit
from llm_ocr.errors import Interrupted, JobFailed, LaunchError, UsageError
from llm_ocr.launch import FIELDS, PIPELINE, REPAIR, Job, JobSpec, JobStatus, Launcher, Plan, State, launcher_for
from llm_ocr.launch.bill import Budget, bounded, budget_of, check_prices, has_ended, most_text, price_of, record_end
from llm_ocr.launch.library import UPLOADS, check_wheel, uploaded, with_library
from llm_ocr.launch.records import (
    Submission,
    read_launches,
    submissions,
    write_jobs,
    write_launch,
    write_spec,
)
from llm_ocr.launch.specs import COORDINATOR_SHARE, SHARED_DISK, LaunchRequest, launch_request, new_id, with_coordinator
from llm_ocr.launch.watching import (
    EVERY,
    Display,
    PipelineProgress,
    Progress,
    Say,
    reasons,
    stage_progress,
    until_over,
)
from llm_ocr.types import plural
from llm_ocr.workspace import Workspace
from llm_ocr.workspace.generations import planned_generations
from llm_ocr.workspace.keys import EXTRACT
from llm_ocr.workspace.stored import remembered, workspace_options

#: Examples in documentation that users replace by their own values, and the settings that may still contain one.
_EXAMPLE = re.compile(
    r"\b(ACCOUNT|BUCKET|DIGEST|EMAIL|NAMESPACE|PROJECT|REGION|REPOSITORY|TAG|YOUR[-_][A-Z]+)\b|<[a-z ]+>"
)
#: Platforms whose job limit follows from the pages; others use the platform's default.
_FITTED = frozenset({"hf-jobs", "sagemaker"})
_EXAMPLES_IN = ("workspace", "image", "role", "project", "region", "service_account", "training_output", "namespace")


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a launch. `every` is the time between two requests to the platform, in seconds."""

    attempts: int = 3
    max_cost: float | None = None
    every: float = EVERY
    max_failed_rate: float = 0.01  # share of the pages, for the exit code of the coordinator


@dataclass(frozen=True, slots=True)
class StagePlan:
    """First submission of a stage, and the settings that its jobs will read from the workspace."""

    plan: Plan
    settings: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        """Return JSON values: the requests, their unknown parts, and notes."""
        return {
            "platform": self.plan.platform,
            "stage": self.plan.spec.stage,
            "requests": [asdict(request) for request in self.plan.requests],
            "settings": {
                name: [masked(source) for source in value] if name == "sources" else value
                for name, value in self.settings.items()
            },
            "missing": dict(self.plan.missing),
            "notes": list(self.plan.notes),
        }


def plans(settings: LaunchSettings) -> list[StagePlan]:
    """Return the requests for each stage without sending any.

    Raises:
        UsageError: A setting can never work, or `max_cost` requires a price.
    """
    launcher = launcher_for(settings.platform)
    asked = _asked(settings, launcher, "00000000-000000-0000")
    found = []
    for stage, spec in asked.specs.items():
        notes: tuple[str, ...] = ()
        if settings.max_cost is not None:
            check_prices(launcher.platform, {stage: spec}, live=False)
            # Earlier costs are unknown without a request to the workspace.
            share = COORDINATOR_SHARE if stage == PIPELINE else 1.0
            spec = bounded(launcher, spec, Budget(settings.max_cost, 0.0, 0.0), share=share, live=False)
            if price_of(launcher.platform, spec, live=False) is None:
                notes = (f"the price of {spec.hardware} is that of the submission, when --max-cost limits the time",)
        plan = launcher.plan(spec)
        found.append(StagePlan(replace(plan, notes=(*plan.notes, *notes)), asked.settings.get(stage, {})))
    return found


def complete_plan(launcher: Launcher, spec: JobSpec) -> Plan:
    """Return the complete plan of a job.

    Raises:
        UsageError: A part is missing, an example was not replaced, or the wheel or image cannot be used.
    """
    bucket = "/".join(spec.workspace.split("/")[: 5 if spec.workspace.startswith("hf:") else 3])
    for name, value in {"workspace": bucket, "image": spec.image, **spec.options}.items():
        if name in _EXAMPLES_IN and (found := _EXAMPLE.search(value or "")):
            flag = f"--{name.replace('_', '-')}"
            raise UsageError(f"{flag} {value}: {found[0]} is a placeholder", hint="Replace it with your own value.")
    plan = launcher.plan(spec)
    if plan.missing:
        gaps = ", ".join(f"{name[1:-1]}: {how}" for name, how in plan.missing.items())
        raise UsageError(f"{launcher.platform} requires {gaps}")
    wheel = spec.options.get("wheel")
    if wheel == "image" and not spec.image:
        hint = "Set an image that does, for example --image registry.example/llm-ocr:1 (docker/README.md)."
        raise UsageError("--wheel image: the stock images do not contain llm-ocr", hint=hint)
    if wheel not in (None, "image"):
        check_wheel(wheel)
    return plan


@dataclass
class Launch:
    """Launch of one or all stages on one platform."""

    workspace: Workspace
    launcher: Launcher
    asked: LaunchRequest
    limits: Limits
    display: Display
    resumed: bool = False
    _over: set[str] = field(default_factory=set)  # stages that `wait` has seen the end of

    @property
    def _hint(self) -> str:
        return f"Log: llm-ocr jobs logs -w {self.workspace.url}. Run the same command again to continue."

    @property
    def id(self) -> str:
        return self.asked.id

    def submit(self) -> Sequence[Job]:
        """Submit the first stage, or find its jobs, or the coordinator's; do not wait for them."""
        return self._submit(PIPELINE if self._open(PIPELINE) else self.asked.stages[0])

    def detach(self) -> Sequence[Job]:
        """Submit the job that submits the stages, or find it."""
        return self._submit(PIPELINE)

    def jobs(self) -> list[Job]:
        """Return all jobs submitted so far."""
        return [job for submission in submissions(self.workspace, self.id) for job in submission.jobs or ()]

    def status(self) -> Sequence[JobStatus]:
        """Return the status of each job."""
        return self.launcher.status(self.jobs())

    def wait(self, until: str | None = None) -> None:
        """Wait until all stages are done. Submit them, unless a coordinator on the platform does.

        Args:
            until: The last stage to submit and to wait for, so that its results can be looked at; the next `wait`
                continues. By default all stages. A coordinator does not stop there.

        Raises:
            UsageError: The launch has no such stage.
            JobFailed: A stage cannot be finished; contains the platform's reason.
            LimitReached: The rest of `max_cost` is too small for the next submission.
            Interrupted: Ctrl-C or SIGTERM arrived while jobs run. They continue; the message says how to end them.
        """
        if until is not None and until not in self.asked.stages:
            raise UsageError(f"this launch has no stage {until!r}", hint=f"Its stages: {', '.join(self.asked.stages)}")
        try:
            coordinator = self._open(PIPELINE)
            if coordinator is None:
                self.run_stages(until)
                return
            jobs = self._submit(PIPELINE)
            progress = PipelineProgress(self.workspace, self.launcher, self.id, self.limits.max_cost)
            every = self.limits.every
            statuses = until_over(self.launcher, jobs, self.display, PIPELINE, every=every, progress=progress)
            record_end(self.workspace, coordinator, statuses)
            if (why := reasons(statuses)) and not stage_progress(self.workspace, self.asked.stages[-1]).finished:
                raise JobFailed(f"{PIPELINE}: {why}", hint=self._hint)
            if why:
                self.display.say(f"{PIPELINE}: all units are done, but a job failed: {why}")
        except KeyboardInterrupt as interrupt:
            if not (jobs := self._running()):
                raise
            going, cost = ("goes on", "costs") if len(jobs) == 1 else ("go on", "cost")
            money = "" if self.launcher.platform in SHARED_DISK else f" and {cost} money"
            raise Interrupted(
                f"{plural(len(jobs), 'job')} {going}{money}: llm-ocr jobs cancel -w {self.workspace.url}",
                hint="Run the same command again to watch them.",
            ) from interrupt

    def _running(self) -> list[Job]:
        """Return the jobs that have not ended; all open ones if the platform does not respond."""
        jobs: list[Job] = []
        try:
            for submission in submissions(self.workspace, self.id):
                if not submission.over:
                    jobs += submission.jobs or self.launcher.find(submission.spec)
            return [status.job for status in self.launcher.status(jobs) if not status.state.over]
        except LaunchError:
            return jobs

    def run_stages(self, until: str | None = None) -> None:
        """Submit each stage, repeatedly while it makes progress, until it is done. Raises as `wait` does."""
        for stage in self.asked.stages:
            if stage not in self._over:
                self._run_stage(stage)
                self._over.add(stage)
            if stage == until:
                break

    def _run_stage(self, stage: str) -> None:
        """Submit a stage until all units are done; raise `JobFailed` once another submission makes no progress."""
        before, settings = stage_progress(self.workspace, stage, self.id), self.asked.settings[stage]
        new = not self.resumed and (settings.get("sources") or settings.get("dataset"))
        if stage == "extract" and before.finished and not new and not self._open(stage):
            self.display.say("extract: all units are done")
            return
        while True:
            if (found := self._open(stage)) and found.done is not None:  # another machine may have submitted it
                before = replace(before, done=found.done)
            jobs = self._submit(stage)
            spec = self._of(stage)[-1].spec
            progress = Progress(self.workspace, self.launcher.platform, spec, self.limits.max_cost)
            every = self.limits.every
            statuses = until_over(self.launcher, jobs, self.display, stage, every=every, progress=progress)
            record_end(self.workspace, self._of(stage)[-1], statuses)
            after, why = stage_progress(self.workspace, stage, self.id), reasons(statuses)
            if stage == REPAIR and not after.total and not why:
                self.display.say(f"{stage}: no further page was chosen")
                return
            if after.finished:
                if why:  # for example, more failed pages than --max-failed-rate
                    self.display.say(f"{stage}: all units are done, but a job failed: {why}")
                return
            why = why or "its jobs succeeded without finishing all units"
            missing = stage
            if after.total:
                missing = f"{stage}: {plural(after.total - after.done, 'unit')} of {after.total:,} missing"
            if after.done <= before.done:
                raise JobFailed(f"{missing}, and the last submission finished none: {why}", hint=self._hint)
            if spec.submission >= self.limits.attempts:
                raise JobFailed(f"{missing} after {plural(spec.submission, 'submission')}: {why}", hint=self._hint)
            if any(status.state is State.CANCELLED for status in statuses):
                raise JobFailed(f"{missing}: {why}", hint=self._hint)
            self.display.say(f"{missing} ({why}): submitting again")
            before = after

    def _submit(self, stage: str) -> Sequence[Job]:
        """Return the stage's open jobs, or submit new ones; raise `LimitReached` if `max_cost` pays for none."""
        found = self._open(stage)
        if found is not None and found.jobs:
            return found.jobs
        if stage not in self.asked.specs:
            hint = "Run the same command again in 10 minutes, or cancel the launch: llm-ocr jobs cancel."
            raise LaunchError(f"{stage} of {self.workspace.url} is being submitted by another process", hint=hint)
        # The recorded decision only shows that a submission exists; the spec is that of this command.
        spec = self._next_spec(stage, found)
        plan = complete_plan(self.launcher, spec)
        jobs = self.launcher.find(spec) if found is not None else ()
        if not jobs:
            if self.limits.max_cost is not None:
                others = [other for other in submissions(self.workspace) if other.spec.name != spec.name]
                share = COORDINATOR_SHARE if stage == PIPELINE else 1.0
                spec = bounded(self.launcher, spec, budget_of(self.limits.max_cost, others), share=share)
                self.display.say(f"{stage}: {most_text(self.launcher.platform, spec)}")
            plan = self.launcher.plan(spec)
            if found is None:
                done = None if stage == PIPELINE else stage_progress(self.workspace, stage, self.id).done
                write_spec(self.workspace, self.asked.platform, spec, done)
                self.workspace.flush()
            jobs = self.launcher.submit(with_library(plan, self.workspace))
        write_jobs(self.workspace, spec, jobs)
        self.workspace.flush()
        for note in plan.notes:
            self.display.say(f"{stage}: {note}")
        for job in jobs:
            self.display.say(f"{stage}: {job.name} {job.url or job.id}")
        return jobs

    def _next_spec(self, stage: str, found: Submission | None) -> JobSpec:
        """Return the spec of the next submission, or of a recorded one, with at most one shard per missing unit."""
        spec = replace(self.asked.specs[stage], submission=len(self._of(stage)) + 1)
        progress = stage_progress(self.workspace, EXTRACT if stage == PIPELINE else stage, self.id)
        missing = progress.total - progress.done
        settings = self.asked.settings.get(stage, {})
        # The first jobs of Extract add sources to the plan.
        grows = stage == EXTRACT and spec.submission == 1 and (settings.get("sources") or settings.get("dataset"))
        if found is not None:
            spec = replace(spec, submission=found.spec.submission, shards=min(spec.shards, found.spec.shards))
        elif 0 < missing < spec.shards and not grows:
            self.display.say(
                f"{stage}: --shards {spec.shards}, but {plural(missing, 'unit')} to process: only {missing} started"
            )
            spec = replace(spec, shards=missing)
        elif not progress.total and spec.shards > 1 and grows:
            self.display.say(
                f"{stage}: the number of units is unknown before the plan, and shards without a unit cost their start; "
                f"llm-ocr plan -w {self.workspace.url} SOURCE... before the launch makes it known"
            )
        pages = min(progress.pages, settings.get("max_pages", progress.pages))
        if spec.time_limit is None and pages and self.asked.platform in _FITTED:
            model = "embedded" if settings.get("engine") == "embedded" else str(settings.get("model", ""))
            kind = EXTRACT if stage == REPAIR else stage
            limit = time_limit(kind, model, self.asked.platform, spec.hardware, pages, shards=spec.shards)
            spec = replace(spec, time_limit=limit)
        return spec

    def _of(self, stage: str) -> list[Submission]:
        return [submission for submission in submissions(self.workspace, self.id) if submission.spec.stage == stage]

    def _open(self, stage: str) -> Submission | None:
        return next((submission for submission in self._of(stage) if not submission.over), None)


def begin(settings: LaunchSettings, say: Say = print, terminal: TextIO | None = None) -> Launch:
    """Return a new launch that is recorded in the workspace, or the open one there.

    A new launch is not yet submitted. Raises `UsageError`, `LaunchError`, `StageMissing` without sources and plan, and
    the errors of opening the workspace.
    """
    launcher = launcher_for(settings.platform)
    # Errors in the settings are found before any request to a store.
    first = _asked(settings, launcher, new_id())
    if settings.max_cost is not None:
        check_prices(first.platform, first.specs)
    for spec in first.specs.values():
        complete_plan(launcher, spec)
    options = workspace_options(settings)
    # The workspace stores settings of the model that read the pages, which finds no fields.
    held = Stored({}, {}) if settings.stage == FIELDS else remembered(settings, options)
    # A repair that names a server or a model reads with it what another engine has read.
    other = settings.stage == REPAIR and (settings.server_url or "model" in settings.model_fields_set)
    if held.get("engine") and "engine" not in settings.model_fields_set and not other:
        settings = settings.model_copy(update={"engine": held["engine"]})
        settings.model_fields_set.add("engine")
    if settings.engine != "auto":
        check_effect(
            settings, settings.engine, f"with which this workspace was begun {held.by.get('engine', '')}".rstrip()
        )
    asked = _asked(settings, launcher, new_id(), held)
    workspace = Workspace.open(settings.workspace, True, options=options)
    limits = Limits(settings.attempts, settings.max_cost, EVERY, settings.max_failed_rate)
    if running := under_way(workspace, asked, asdict(limits)):
        say(f"continuing launch {running.id}, which is in progress")
        return Launch(workspace, launcher, running, limits, Display(say, terminal), resumed=True)
    plans_itself = "extract" in asked.stages and (settings.sources or settings.dataset)
    if not (plans_itself or settings.input):
        planned_generations(workspace)  # raises without a plan: the jobs would fail, on paid machines
    for spec in asked.specs.values():
        launcher.check(complete_plan(launcher, spec))
    if settings.sources and "extract" in asked.stages and settings.platform not in SHARED_DISK:
        sources = uploaded(workspace, settings.sources, say)
        # Uploaded documents are read from the server of the workspace's store.
        server = {"source_endpoint": settings.workspace_endpoint, "source_region": settings.workspace_region}
        there = {name: value for name, value in server.items() if value} if sources != settings.sources else {}
        extract = {**there, **asked.settings["extract"], "sources": list(sources)}
        asked = replace(asked, settings={**asked.settings, "extract": extract})
    reference = write_launch(workspace, replace(asked, created=time.time(), limits=asdict(limits)))
    return Launch(workspace, launcher, known_as(asked, reference), limits, Display(say, terminal))


def _asked(
    settings: LaunchSettings, launcher: Launcher, launch: str, held: Mapping[str, Any] = MappingProxyType({})
) -> LaunchRequest:
    """Return the requested launch, with its coordinator if it detaches, or raise `UsageError`."""
    asked = launch_request(settings, launcher, launch, held)
    if not settings.detach:
        return asked
    if settings.wait or settings.stage != PIPELINE:
        with_what = "--wait" if settings.wait else settings.stage
        hint = "Remove --wait: the platform waits. For a single stage, remove both."
        raise UsageError(f"--detach cannot be used with {with_what}", hint=hint)
    return with_coordinator(asked, launcher)


def under_way(workspace: Workspace, asked: LaunchRequest, limits: Mapping[str, Any]) -> LaunchRequest | None:
    """Return the open launch of the same stages, and record the ends of finished submissions.

    Raises:
        LaunchError: A stage is open with other settings. Two launches would share its units without coordination.
    """
    stages = (PIPELINE, *asked.stages)
    running = [
        submission
        for submission in submissions(workspace)
        if not submission.over and submission.spec.stage in stages and not has_ended(workspace, submission)
    ]
    if not running:
        return None
    spec = running[-1].spec
    found = next((launched for launched in read_launches(workspace) if launched.id == spec.launch), None)
    if found is None or not _covers(found, asked, limits, f"{workspace.url}/{UPLOADS}/"):
        raise LaunchError(
            f"{spec.stage} of {workspace.url} is in progress as launch {spec.launch} on {running[-1].platform}",
            hint=f"Show it: llm-ocr jobs -w {workspace.url}. Cancel it: llm-ocr jobs cancel -w {workspace.url}",
        )
    return known_as(replace(found, specs=asked.specs), found.reference)


def known_as(asked: LaunchRequest, reference: str) -> LaunchRequest:
    """Return the launch with jobs that receive its reference."""
    launch, variable = reference.partition("@")[0], {"LLM_OCR_LAUNCH": reference}
    specs = {
        stage: replace(spec, launch=launch, environment={**spec.environment, **variable})
        for stage, spec in asked.specs.items()
    }
    return replace(asked, specs=specs)


def _covers(found: LaunchRequest, asked: LaunchRequest, limits: Mapping[str, Any], uploads: str) -> bool:
    """Return whether the record is of the requested platform, stages, and settings.

    Sources may also be uploads in the workspace's store. An engine that was not set is stored when its first unit is
    published.
    """
    if (found.platform, found.stages) != (asked.platform, asked.stages):
        return False
    if PIPELINE in asked.specs:
        # A coordinator submits the specs of the record, so they must equal the requested ones.
        if not found.specs or found.limits != limits:
            return False
        for stage in asked.stages:
            theirs, ours = (
                replace(spec, launch="", environment={**spec.environment, "LLM_OCR_LAUNCH": ""})
                for spec in (found.specs[stage], asked.specs[stage])
            )
            if theirs != ours:
                return False
    flexible = ("sources", "source_endpoint", "source_region", "engine")
    for stage in asked.stages:
        old, new, environment = found.settings[stage], asked.settings[stage], asked.specs[stage].environment
        fixed = [{name: settings[name] for name in settings if name not in flexible} for settings in (old, new)]
        if fixed[0] != fixed[1] or old.get("engine") not in (None, "auto", new.get("engine")):
            return False
        for source in old.get("sources", ()):
            if source not in new.get("sources", ()) and (not source.startswith(uploads) or ".." in source):
                return False
        for name in ("endpoint", "region"):
            usual = (None, new.get(f"source_{name}"), environment.get(f"LLM_OCR_WORKSPACE_{name.upper()}"))
            if old.get(f"source_{name}") not in usual:
                return False
    return True
