"""From the settings of a launch to the jobs of its stages. Pure, but for the id."""

import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from llm_ocr.costs import price_per_hour
from llm_ocr.errors import UsageError
from llm_ocr.launch import STAGES, JobSpec, Launcher
from llm_ocr.launch.job_settings import check_files, job_settings, with_engine
from llm_ocr.launch.library import store_extras
from llm_ocr.launch.uploads import is_local, on_any_folder
from llm_ocr.settings import launch_groups
from llm_ocr.settings.groups import Group
from llm_ocr.settings.models import LaunchSettings

#: Platforms whose jobs see this machine's files.
SHARED_DISK = frozenset({"local", "slurm"})

#: Platforms whose jobs install the library into a stock image.
INSTALLING = frozenset({"hf-jobs", "sagemaker", "cloud-run", "beaker", "kubernetes"})

_OF_PLATFORMS: Mapping[str, type[Group]] = {
    "hf-jobs": launch_groups.HfJobsGroup,
    "sagemaker": launch_groups.SageMakerGroup,
    "cloud-run": launch_groups.CloudRunGroup,
    "modal": launch_groups.ModalGroup,
    "runpod": launch_groups.RunPodGroup,
    "slurm": launch_groups.SlurmGroup,
    "beaker": launch_groups.BeakerGroup,
    "kubernetes": launch_groups.KubernetesGroup,
}


@dataclass(frozen=True, slots=True)
class Wanted:
    """A launch as it was asked for: its stages, what each job of them is, and the settings that their jobs read."""

    id: str
    platform: str
    stages: tuple[str, ...]
    specs: Mapping[str, JobSpec]
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def new_id() -> str:
    """Time and chance, so that launches of a workspace stand in their order."""
    return time.strftime("%Y%m%d-%H%M%S-", time.gmtime()) + secrets.token_hex(2)


def wanted(settings: LaunchSettings, launcher: Launcher, launch: str) -> Wanted:
    """What is to be launched, checked as far as nobody need be asked. Raises `UsageError`."""
    stages = STAGES if settings.stage == "pipeline" else (settings.stage,)
    if is_local(settings.workspace) and settings.platform not in SHARED_DISK:
        raise UsageError(
            f"{settings.workspace} is on this machine: jobs on {settings.platform} cannot reach it",
            hint="Give a workspace at s3://, gs:// or hf://",
        )
    specs, travelling = {}, {}
    for stage in stages:
        specs[stage] = _spec(settings, launcher, stage, launch, alone=len(stages) == 1)
        values = job_settings(stage, settings)
        if sources := values.get("sources"):
            values["sources"] = [on_any_folder(source) for source in sources]
        if settings.platform not in SHARED_DISK:
            check_files(stage, values)
        options = specs[stage].options
        if settings.platform in INSTALLING:
            needed = [*store_extras(values.get("sources", ())), *(["datasets"] if values.get("dataset") else ())]
            specs[stage] = replace(specs[stage], options={**options, "extra": [*needed, *options["extra"]]})
        travelling[stage] = with_engine(stage, values, launcher, specs[stage].hardware)
    return Wanted(launch, settings.platform, stages, specs, travelling)


def _spec(settings: LaunchSettings, launcher: Launcher, stage: str, launch: str, *, alone: bool) -> JobSpec:
    """In a pipeline Assemble is one job on the platform's CPU machine, whatever the other stages run on."""
    small = stage == "assemble"
    apart = small and not alone
    # Where jobs install the library themselves, the platform's own CPU image is smaller than one with vLLM.
    installs = settings.platform in INSTALLING and settings.wheel != "image"
    image = settings.cpu_image if small else None
    image = image or ("" if apart and installs else settings.image) or ""
    hardware, options = (None if apart else settings.hardware) or launcher.hardware(stage), _options(settings)
    if apart and price_per_hour(settings.platform, hardware) is not None:
        options["price_per_hour"] = None  # what is given is the price of the other stages' machines
    return JobSpec(
        stage=stage,
        workspace=on_any_folder(settings.workspace),
        launch=launch,
        shards=1 if apart else settings.shards,
        hardware=hardware,
        image=image,
        environment=_environment(settings, launch),
        secrets=_secrets(settings.secret),
        time_limit=settings.time_limit,
        options=options,
    )


def _environment(settings: LaunchSettings, launch: str) -> dict[str, str]:
    found = {
        "LLM_OCR_WORKSPACE": on_any_folder(settings.workspace),
        "LLM_OCR_LAUNCH": launch,
        "LLM_OCR_WORKSPACE_ENDPOINT": settings.workspace_endpoint,
        "LLM_OCR_WORKSPACE_REGION": settings.workspace_region,
    }
    return {name: value for name, value in found.items() if value}


def _secrets(given: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for one in given:
        name, _, where = one.partition("=")
        if not name.isidentifier():
            raise UsageError(f"--secret {name}: must be the name of an environment variable, then =WHERE")
        found[name] = where
    return found


def _options(settings: LaunchSettings) -> dict[str, Any]:
    """Return the platform's own settings. Raises `UsageError` for flags that only other platforms have."""
    groups: list[type[Group]] = [launch_groups.PlatformGroup]
    if group := _OF_PLATFORMS.get(settings.platform):
        groups.append(group)
    if settings.platform in INSTALLING:
        groups.append(launch_groups.LibraryGroup)
    names = [name for group in groups for name in group.model_fields]
    every: tuple[type[Group], ...] = (*_OF_PLATFORMS.values(), launch_groups.LibraryGroup)
    for group in every:
        for name in group.model_fields:
            kind, _, flag = settings.origins.get(name, "").partition(" ")
            if kind == "flag" and name not in names:
                raise UsageError(f"{flag} has no effect on {settings.platform}", hint=f"Leave out {flag}.")
    values = dict(settings)
    return {name: list(values[name]) if isinstance(values[name], tuple) else values[name] for name in names}
