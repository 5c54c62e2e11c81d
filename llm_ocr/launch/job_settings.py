"""Which settings of a launch travel to its jobs, and what cannot travel.

A job reads them from the workspace (`launches/<id>/launch.json`): platforms cap what an environment may hold.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from llm_ocr.errors import UsageError
from llm_ocr.launch import GPU_STAGES, Launcher
from llm_ocr.settings.fields import Setting, settings_of
from llm_ocr.settings.groups import LogSettings
from llm_ocr.settings.models import AssembleSettings, DescribeSettings, ExtractSettings, LaunchSettings
from llm_ocr.settings.values import without_credentials

_MODELS: Mapping[str, type[LogSettings]] = {
    "extract": ExtractSettings,
    "describe": DescribeSettings,
    "assemble": AssembleSettings,
}

#: Said of the machine that launches, or by other means.
_STAY = {
    *LogSettings.model_fields,
    *("workspace", "workspace_profile", "workspace_endpoint", "workspace_region", "source_profile"),
    *("launch", "shard_index", "shard_count"),
    *("max_cost", "price_per_hour"),  # limits of the bill: `launching` applies them to each submission
}
#: Texts in which a URL may stand.
_WITH_URLS = ("prompt", "describe_prompt", "vllm_command")
#: Names that may be a file or folder of this machine.
_MAY_BE_FILES = ("model", "weights", "describe_model", "chat_template", "detector", "input")


def job_settings(stage: str, settings: LaunchSettings) -> dict[str, Any]:
    """What was given of the stage's own settings, as JSON values; what was left open is left open for the jobs, too.

    Raises `UsageError` for secrets, and for files of this machine: jobs cannot read them.
    """
    travelling = {}
    for name, setting in settings_of(_MODELS[stage]).items():
        if name in _STAY or name not in settings.model_fields_set:
            continue
        value = getattr(settings, name)
        if value is None or value == setting.default:
            continue
        _check(setting, value)
        travelling[name] = [str(one) for one in value] if isinstance(value, tuple) else _json(value)
    return travelling


def check_files(stage: str, travelling: Mapping[str, Any]) -> None:
    """Raises `UsageError` for what stands on this machine, where jobs run on others."""
    for name in _MAY_BE_FILES:
        value = travelling.get(name)
        if isinstance(value, str) and (
            Path(value).is_absolute() or value.startswith((".", "~")) or Path(value).is_file()
        ):
            hint = "Put it on s3:// or gs:// where that setting takes a URL, or into the image."
            raise UsageError(f"{name} {value} is on this machine: a job of {stage} cannot read it", hint=hint)


def with_engine(stage: str, travelling: Mapping[str, Any], launcher: Launcher, hardware: str) -> dict[str, Any]:
    """The settings with an engine that suits the hardware: vLLM where there are GPUs.

    Raises `UsageError` where GPUs would stand idle, and where a machine without one is to run vLLM.
    """
    settings = dict(travelling)
    gpus = launcher.gpus(hardware)
    if stage not in GPU_STAGES or gpus is None:
        return settings
    engine = settings.get("engine", "server" if settings.get("server_url") else "auto")
    if gpus and engine == "embedded":
        hint = "Leave --engine out, or take a machine without GPUs with --hardware."
        raise UsageError(f"--engine embedded uses no GPU, and {hardware} has {gpus}", hint=hint)
    if not gpus and engine in ("auto", "vllm"):
        hint = "Take a machine with one (--hardware), a running server (--server-url), or --engine embedded."
        raise UsageError(f"{hardware} has no GPU for {stage}", hint=hint)
    if engine == "auto":
        settings["engine"] = "vllm"
    return settings


def _check(setting: Setting, value: Any) -> None:
    if setting.secret:
        hint = f"Put it into {setting.variable} and give --secret {setting.variable}"
        raise UsageError(f"{setting.flag} is a secret: jobs do not get it from the workspace", hint=hint)
    if setting.name not in _WITH_URLS and isinstance(value, str) and without_credentials(value) != value:
        raise UsageError(
            f"{setting.flag} holds a name or password, which jobs do not get from the workspace",
            hint="Leave it out of the URL, and give the jobs their credentials with --secret NAME.",
        )
    if setting.kind is Path and setting.name.endswith("_file"):
        hint = f"Give its content as a secret: --secret {setting.variable.removesuffix('_FILE')}"
        raise UsageError(f"{setting.flag} {value} is a file of this machine: jobs cannot read it", hint=hint)


def _json(value: Any) -> Any:
    return str(value) if isinstance(value, Path) else value
