"""Jobs of a launch, and the settings that they read from its record, from the user's settings."""

import json
import re
import secrets
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from llm_ocr.config import launch_groups
from llm_ocr.config.fields import settings_of
from llm_ocr.config.groups import MODELS, FieldsGroup, Group, LogSettings, without_credentials
from llm_ocr.config.models import (
    AssembleSettings,
    DescribeSettings,
    ExtractSettings,
    FieldsSettings,
    LaunchSettings,
    RepairGroup,
    RepairSettings,
)
from llm_ocr.costs import price_per_hour
from llm_ocr.errors import UsageError
from llm_ocr.launch import FIELDS, GPU_STAGES, PIPELINE, REPAIR, STAGES, JobSpec, Launcher
from llm_ocr.launch.library import is_local, on_any_folder, store_extras
from llm_ocr.plugins import STORES
from llm_ocr.results.field_schema import load_schema, read_schema
from llm_ocr.storage.names import split_scheme

#: Platforms whose jobs can access this machine's files.
SHARED_DISK = frozenset({"slurm"})

#: Platforms whose jobs install the library into a stock image.
INSTALLING = frozenset({"hf-jobs", "sagemaker", "cloud-run", "kubernetes"})

_OF_PLATFORMS: Mapping[str, type[Group]] = {
    "hf-jobs": launch_groups.HfJobsGroup,
    "sagemaker": launch_groups.SageMakerGroup,
    "cloud-run": launch_groups.CloudRunGroup,
    "modal": launch_groups.ModalGroup,
    "slurm": launch_groups.SlurmGroup,
    "kubernetes": launch_groups.KubernetesGroup,
}

#: Settings of `PlatformGroup` without effect on a platform.
_IDLE: Mapping[str, tuple[str, ...]] = {
    "hf-jobs": ("region",),
    "slurm": ("region", "platform_endpoint"),
    "kubernetes": ("region", "platform_endpoint"),
}

_MODELS: Mapping[str, type[LogSettings]] = {
    "extract": ExtractSettings,
    "describe": DescribeSettings,
    "assemble": AssembleSettings,
    FIELDS: FieldsSettings,
    REPAIR: RepairSettings,
}

#: Settings of the launching machine, or settings that jobs receive by other means.
_STAY = {
    *LogSettings.model_fields,
    *("workspace", "workspace_profile", "workspace_endpoint", "workspace_region", "source_profile"),
    *("launch", "shard_index", "shard_count"),
    *("max_cost", "price_per_hour"),  # limits of the bill: `launching` applies them to each submission
}
#: Ends of names of secrets: the values of `--env` are part of plans.
_SECRET_NAMES = ("TOKEN", "KEY", "SECRET", "PASSWORD", "CREDENTIALS_JSON")
#: Beginnings of names that launches and platforms set.
_OF_LAUNCH = ("LLM_OCR_WORKSPACE", "LLM_OCR_LAUNCH", "LLM_OCR_SHARD_", "LLM_OCR_SECRETS", "LLM_OCR_ERROR_FILE")
#: Settings with which jobs on GPUs need OCR, too. Jobs without a GPU always have it.
_WITH_OCR = {
    "engine": "hybrid",
    "fallback": "embedded",
    "verify": "ocr",
    "rotate": "probe",
    "figures_from": "page",
    "detector": "embedded",
}
#: Settings that may contain a URL with a password.
_WITH_URLS = ("sources", "prompt", "describe_prompt", "vllm_command")
#: A model's id on the Hub.
_HUB_ID = re.compile(r"\w[\w.-]*/\w[\w.-]*")
#: Names that may be a local file or folder.
_MAY_BE_FILES = ("model", "weights", "describe_model", "chat_template", "detector", "input", "dataset")

#: Seconds. Modal's maximum; the same command continues a longer pipeline.
_COORDINATOR_LIMIT = 24 * 3600
#: Maximum share of the budget of `--max-cost` for the coordinator: the stages need the rest.
COORDINATOR_SHARE = 0.1

#: Platform -> secrets without which its jobs cannot submit jobs. On other platforms, jobs have an identity.
_KEYS_TO_SUBMIT: Mapping[str, tuple[str, ...]] = {"modal": ("MODAL_TOKEN_ID", "MODAL_TOKEN_SECRET")}
#: Platform -> extra of the library with the platform's client.
_CLIENTS: Mapping[str, str] = {
    "cloud-run": "cloud-run",
    "kubernetes": "kubernetes",
    "modal": "modal",
    "sagemaker": "s3",
}


@dataclass(frozen=True, slots=True)
class LaunchRequest:
    """Launch, as requested or as recorded: its stages, the spec of each, and the settings that their jobs read."""

    id: str
    platform: str
    stages: tuple[str, ...]
    specs: Mapping[str, JobSpec] = field(default_factory=dict)
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    created: float = 0.0  # seconds since 1970, in a record
    limits: Mapping[str, Any] = field(default_factory=dict)  # `launching.Limits`, in a record
    reference: str = ""  # reference with the hash of the record's file; not stored in the record


def new_id() -> str:
    """Return an id from time and random characters: the ids of a workspace's launches sort by time."""
    return time.strftime("%Y%m%d-%H%M%S-", time.gmtime()) + secrets.token_hex(2)


def launch_request(
    settings: LaunchSettings, launcher: Launcher, launch: str, held: Mapping[str, Any] = MappingProxyType({})
) -> LaunchRequest:
    """Return the launch for the settings, without a request, or raise `UsageError`.

    `held` are the settings that the workspace holds.
    """
    stages = STAGES if settings.stage == "pipeline" else (settings.stage,)
    if is_local(settings.workspace) and settings.platform not in SHARED_DISK:
        raise UsageError(
            f"{settings.workspace} is on this machine, where jobs on {settings.platform} cannot reach it",
            hint="Use a workspace at s3://, gs://, or hf://",
        )
    if settings.stage in (FIELDS, REPAIR) and settings.sources:
        raise UsageError(
            f"{settings.stage} reads pages of the workspace, and no SOURCE", hint="Launch extract for new documents."
        )
    if settings.stage == FIELDS:
        _check_fields(settings)
    if settings.stage == REPAIR and "pages_from" in settings.model_fields_set:
        raise UsageError(
            "a launched repair takes no list of pages, which is on this machine",
            hint="Use `unbalanced`, `below_quality`, or `max_pages`, or repair without launch.",
        )
    own: tuple[tuple[str, type[Group]], ...] = ((REPAIR, RepairGroup), (FIELDS, FieldsGroup))
    for stage, group in own:
        idle = [name for name in group.model_fields if name in settings.model_fields_set and settings.stage != stage]
        if idle:
            names = ", ".join(f"`{name}`" for name in idle)
            raise UsageError(f"{names}: no effect on {settings.stage}, only on {stage}", hint=f"Remove {names}.")
    installs, scheme = settings.platform in INSTALLING, split_scheme(settings.workspace)[0]
    # `bootstrap`, which installs the packages, cannot read from a store of a package.
    if installs and settings.wheel != "image" and scheme in STORES.names():
        raise UsageError(
            f"{settings.workspace}: a job cannot install llm-ocr from {scheme}://",
            hint="Set --wheel image and an --image with llm-ocr and the store's package, or use another workspace.",
        )
    specs, travelling, alone = {}, {}, len(stages) == 1
    for stage in stages:
        small = stage == "assemble"
        separate = small and not alone  # in a pipeline, one job on the platform's CPU machine
        # If jobs install the library themselves, the platform's own CPU image is smaller than one with vLLM.
        stock = separate and installs and settings.wheel != "image"
        image = (settings.cpu_image if small else None) or ("" if stock else settings.image) or ""
        hardware = (None if separate else settings.hardware) or launcher.hardware(stage)
        options = _options(settings)
        if separate and price_per_hour(settings.platform, hardware) is not None:
            options["price_per_hour"] = None  # the given price is that of the other stages' machines
        environment, secret_places = _environment(settings, launch), _secrets(settings.secret)
        values = job_settings(stage, settings)
        if documents := values.get("sources"):
            values["sources"] = [on_any_folder(document) for document in documents]
        if settings.platform not in SHARED_DISK:
            _check_files(stage, values)
        of_this_machine = settings.platform in INSTALLING | SHARED_DISK and not settings.image and not settings.wheel
        if stage in ("extract", REPAIR) and of_this_machine and not values.get("server_url"):
            _check_model(settings)
        if installs:
            used = {**held, **values}
            needed = [*store_extras(values.get("sources", ())), *(["datasets"] if values.get("dataset") else ())]
            needed += [FIELDS] if stage == FIELDS else []
            needed += ["filters"] if stage == "extract" and used.get("filter_language") else []
            needed += ["embedded"] if stage in ("extract", REPAIR) and _needs_ocr(used) else []
            options["extra"] = [*needed, *options["extra"]]
        travelling[stage] = _with_engine(stage, values, launcher, hardware)
        if settings.platform == "hf-jobs" and travelling[stage].get("engine") == "vllm":
            options["hub_model"] = _hub_model(settings, stage, alone=alone)
        specs[stage] = JobSpec(
            stage=stage,
            workspace=on_any_folder(settings.workspace),
            launch=launch,
            shards=1 if separate else settings.shards,
            hardware=hardware,
            image=image,
            environment=environment,
            secrets=secret_places,
            time_limit=settings.time_limit,
            options=options,
        )
    return LaunchRequest(launch, settings.platform, stages, specs, travelling)


def _check_fields(settings: LaunchSettings) -> None:
    """Raise `UsageError` for a schema, an engine, or a model that its jobs would refuse."""
    if settings.fields_schema is None:
        raise UsageError("fields needs a schema", hint="Set `fields_schema=FILE`.")
    read_schema(load_schema(settings.fields_schema))
    engine, name = settings.engine, settings.model
    refused = f"`engine={engine}`" if engine not in ("auto", *MODELS) else ""
    if "model" in settings.model_fields_set:
        from llm_ocr.models.profiles.shared import follows_instructions
        from llm_ocr.models.registry import find_profile

        with suppress(UsageError):  # any other model
            refused = refused or ("" if follows_instructions(find_profile(name)) else f"`model={name}`")
    if refused:
        raise UsageError(f"fields need a model that follows instructions, unlike {refused}", hint=f"Remove {refused}.")


def with_coordinator(asked: LaunchRequest, launcher: Launcher) -> LaunchRequest:
    """Return the launch with the spec of its coordinator: a job like Assemble's, with the same image and secrets.

    Raises:
        UsageError: Jobs of the platform cannot submit jobs, or lack a secret for it.
    """
    platform, assemble = asked.platform, asked.specs["assemble"]
    if platform == "slurm" and assemble.image:
        hint = "Install the library on the nodes (--slurm-setup) instead of --image, or use --wait."
        raise UsageError("--detach on slurm: the image lacks sbatch, which the coordinator needs", hint=hint)
    if platform == "kubernetes" and not assemble.options.get("service_account"):
        raise UsageError(
            "--detach on kubernetes: the coordinator needs a service account that may create Jobs",
            hint="Set --service-account NAME (kubernetes-jobs/README.md), or use --wait.",
        )
    if missing := [name for name in _KEYS_TO_SUBMIT.get(platform, ()) if name not in assemble.secrets]:
        flags = " ".join(f"--secret {name}" for name in missing)
        raise UsageError(
            f"--detach on {platform}: the coordinator needs {' and '.join(missing)} to submit jobs",
            hint=f"Add {flags}, or use --wait.",
        )
    options, environ = dict(assemble.options), dict(assemble.environment)
    if platform in _CLIENTS:
        options["extra"] = [*options.get("extra", ()), _CLIENTS[platform]]
    if endpoint := options.get("platform_endpoint"):
        environ["LLM_OCR_PLATFORM_ENDPOINT"] = str(endpoint)  # otherwise the workspace's records may not name it
    secrets = {**assemble.secrets, **({"HF_TOKEN": ""} if platform == "hf-jobs" else {})}
    spec = replace(
        assemble,
        stage=PIPELINE,
        hardware=launcher.hardware(PIPELINE),
        environment=environ,
        secrets=secrets,
        options=options,
        time_limit=_COORDINATOR_LIMIT,
    )
    return replace(asked, specs={PIPELINE: spec, **asked.specs})


def _environment(settings: LaunchSettings, launch: str) -> dict[str, str]:
    """Return the variables of a job, or raise `UsageError` for an `--env` that would show a secret or has no effect."""
    given, secret = {}, _secrets(settings.secret)
    for variable in settings.env:
        name, equals, value = variable.partition("=")
        if not name.isidentifier() or not equals:
            raise UsageError(f"--env {name}: must be the name of an environment variable and its value, NAME=VALUE")
        if name.upper().endswith(_SECRET_NAMES) or without_credentials(value) != value:
            hint = f"Set {name} on this machine or on the platform, and use --secret {name}."
            raise UsageError(f"--env {name}: plans and platforms show its value, and it looks like a secret", hint=hint)
        if name in secret or name.startswith(_OF_LAUNCH):
            why = f"--secret {name} sets it, too" if name in secret else "the launch itself sets it"
            raise UsageError(f"--env {name}: {why}", hint=f"Remove --env {name}.")
        given[name] = value
    own = {
        "LLM_OCR_WORKSPACE": on_any_folder(settings.workspace),
        "LLM_OCR_LAUNCH": launch,
        "LLM_OCR_WORKSPACE_ENDPOINT": settings.workspace_endpoint,
        "LLM_OCR_WORKSPACE_REGION": settings.workspace_region,
    }
    return given | {name: value for name, value in own.items() if value}


def _secrets(given: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for secret in given:
        name, _, where = secret.partition("=")
        if not name.isidentifier():
            raise UsageError(f"--secret {name}: must be the name of an environment variable, optionally with =WHERE")
        found[name] = where
    return found


def _options(settings: LaunchSettings) -> dict[str, Any]:
    """Return the platform's own settings, or raise `UsageError` for flags of other platforms."""
    groups: list[type[Group]] = [launch_groups.PlatformGroup]
    if group := _OF_PLATFORMS.get(settings.platform):
        groups.append(group)
    if settings.platform in INSTALLING:
        groups.append(launch_groups.LibraryGroup)
    names = [name for group in groups for name in group.model_fields]
    every: tuple[type[Group], ...] = (*_OF_PLATFORMS.values(), launch_groups.PlatformGroup, launch_groups.LibraryGroup)
    for group in every:
        for name in group.model_fields:
            kind, _, flag = settings.origins.get(name, "").partition(" ")
            if kind == "flag" and (name not in names or name in _IDLE.get(settings.platform, ())):
                raise UsageError(f"{flag} has no effect on {settings.platform}", hint=f"Remove {flag}.")
    values = dict(settings)
    return {name: list(values[name]) if isinstance(values[name], tuple) else values[name] for name in names}


def job_settings(stage: str, settings: LaunchSettings) -> dict[str, Any]:
    """Return the stage's own settings that the user gave, as JSON values.

    Raises:
        UsageError: A setting is a secret, or a local file: jobs cannot read it.
    """
    found: dict[str, Any] = {}
    values, passed = dict(settings), _secrets(settings.secret)
    for name, setting in settings_of(_MODELS[stage]).items():
        if name in _STAY or name not in settings.model_fields_set:
            continue
        value = values[name]
        if value is None or (setting.secret and not value):
            continue  # a given default counts: the workspace may hold another value
        if (
            setting.secret
            and setting.variable in passed
            and not settings.origins.get(name, "flag ").startswith("flag ")
        ):
            continue
        if setting.secret:
            hint = f"Set {setting.variable}, and add --secret {setting.variable}"
            raise UsageError(f"{setting.flag} is a secret, which the workspace does not pass to jobs", hint=hint)
        texts = [text for text in (value if isinstance(value, tuple) else [value]) if isinstance(text, str)]
        if name not in _WITH_URLS and any(without_credentials(text) != text for text in texts):
            raise UsageError(
                f"{setting.flag} contains a name or password, which the workspace does not pass to jobs",
                hint="Remove it from the URL, and pass credentials to the jobs with --secret NAME.",
            )
        if setting.kind is Path and name.endswith("_file"):
            hint = f"Pass its content as a secret: --secret {setting.variable.removesuffix('_FILE')}"
            raise UsageError(f"{setting.flag} {value} is on this machine, where jobs cannot read it", hint=hint)
        if name == "fields_schema":  # jobs have no file of this machine
            found[name] = json.dumps(load_schema(value))
        elif isinstance(value, tuple):
            found[name] = [str(item) for item in value]
        else:
            found[name] = str(value) if isinstance(value, Path) else value
    return found


def _check_files(stage: str, values: Mapping[str, Any]) -> None:
    for name in _MAY_BE_FILES:
        value = values.get(name)
        if isinstance(value, str) and (
            Path(value).is_absolute()
            or value.startswith((".", "~", "file://"))
            or Path(value).is_file()
            or (name == "dataset" and (Path(value).is_dir() or value.lower().endswith(".parquet")))
        ):
            hint = "Put it on s3:// or gs:// if this setting accepts a URL, or into the image."
            if name == "dataset":
                hint = "Upload the dataset to the Hub. Or give images and PDFs as sources, which are uploaded."
            raise UsageError(f"{name} {value} is on this machine, where jobs of {stage} cannot read it", hint=hint)


def _check_model(settings: LaunchSettings) -> None:
    """Raise `UsageError` for a given model or parser that jobs with the library of this machine do not know."""
    from llm_ocr.models.parsers import parser_named
    from llm_ocr.models.registry import find_profile

    values = dict(settings)
    given = {name: values[name] for name, origin in settings.origins.items() if origin.startswith("flag ")}
    name = given.get("model", "")
    # Other names may be a profile's file, a folder, or, with a prompt, any model of the Hub or a store.
    if name and not re.search(r"/|\.(toml|ya?ml)$", name) and not Path(name).is_dir():
        find_profile(name)
    if parser := given.get("parser"):
        parser_named(parser)


def _needs_ocr(values: Mapping[str, Any]) -> bool:
    """Return whether a model reads pages with the help of OCR, which images with vLLM lack."""
    from llm_ocr.models.choosing import gives_boxes
    from llm_ocr.models.registry import find_profile

    if any(values.get(name) == value for name, value in _WITH_OCR.items()):
        return True
    try:
        profile = find_profile(values.get("model", ExtractSettings.model_fields["model"].default))
    except UsageError:
        return False  # a profile that only the jobs have
    # Figures on scans are then found by OCR.
    return values.get("figures_from", "auto") == "auto" and not gives_boxes(profile, values.get("mode") or "")


def _with_engine(stage: str, values: Mapping[str, Any], launcher: Launcher, hardware: str) -> dict[str, Any]:
    """Return the settings with vLLM as the engine on a machine with GPUs.

    Raises:
        UsageError: The engine does not use the machine's GPUs, or needs GPUs that the machine lacks.
    """
    settings = dict(values)
    gpus = launcher.gpus(hardware)
    if stage not in GPU_STAGES or gpus is None:
        return settings
    engine = settings.get("engine", "auto")
    if engine == "auto" and settings.get("server_url"):
        engine = "server"
    if gpus and engine == "embedded":
        hint = "Remove --engine, or choose --hardware without GPUs."
        raise UsageError(f"--engine embedded uses no GPU, but {hardware} has {gpus}", hint=hint)
    if not gpus and (engine in ("auto", "vllm") or (engine == "hybrid" and not settings.get("server_url"))):
        hint = "Use --hardware with a GPU, a running server (--server-url), or --engine embedded."
        raise UsageError(f"{hardware} has no GPU for {stage}", hint=hint)
    if engine == "auto":
        settings["engine"] = "vllm"
    return settings


def _hub_model(settings: LaunchSettings, stage: str, *, alone: bool) -> list[str]:
    """Return the id and the revision ("" for the newest) of the model that vLLM loads from the Hub; [] if unknown."""
    from llm_ocr.models.registry import find_profile  # the tables of all models

    other = settings.describe_model if stage == "describe" else None
    if stage == FIELDS and "model" not in settings.model_fields_set:
        other = str(FieldsSettings.model_fields["model"].default)
    # Describe alone and repairs use the model of the workspace.
    known = (
        other
        or not ((stage == "describe" and alone) or stage == REPAIR)
        or settings.model_fields_set & {"model", "weights"}
    )
    if not known or settings.model_cache:
        return []
    name, revision = other or settings.model, None
    with suppress(UsageError):  # with --prompt, any model of the Hub
        profile = find_profile(name)
        name, revision = profile.model, profile.revision
    if not other and settings.weights:
        name, revision = settings.weights, None
    if not other and settings.revision:
        revision = settings.revision
    return [name, revision or ""] if _HUB_ID.fullmatch(name) else []
