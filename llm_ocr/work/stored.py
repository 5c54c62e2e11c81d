"""Settings that stay with a workspace, so that later commands need not repeat them. Never a secret."""

from collections.abc import Mapping
from typing import Any

from llm_ocr.errors import LlmOcrError, WorkspaceError
from llm_ocr.storage import StoreOptions
from llm_ocr.work.workspace import Workspace

#: What the workspace remembers of the command that made it.
REMEMBERED = ("engine", "text_layer", "image_size", "image_format", "renderer", "pages_per_unit")
#: The same, where a model reads the pages.
OF_MODELS = (
    "model",
    "weights",
    "revision",
    "parser",
    "chat_template",
    "mode",
    "prompt",
    "max_tokens",
    "temperature",
    "crop",
    "fallback",
    "batch_id",
)

#: Which documents are planned: the same sources then mean the same documents to every command.
OF_PLANS = ("sample", "seed", "filter_language", "filter_forms", "filter_spam", "filter_blank")

#: The folder of a workspace in which launchers keep what they sent, and what their jobs read.
LAUNCHES = "launches"


def to_remember(settings: object, *, engine: str) -> dict[str, Any]:
    """The remembered ones among a command's settings; those left open are left out."""
    names = REMEMBERED if engine == "embedded" else REMEMBERED + OF_MODELS
    found = {name: getattr(settings, name, None) for name in names} | {"engine": engine}
    kept = {name: _json(value) for name, value in found.items() if value not in (None, "auto", ())}
    return kept | {name: _json(value) for name in OF_PLANS if (value := getattr(settings, name, None))}


def _json(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def remembered(url: str, options: StoreOptions) -> Mapping[str, Any]:
    """What the workspace at `url` remembers; nothing when there is none, or it cannot be read: the command says so."""
    try:
        with Workspace.open(url, options=options) as workspace:
            return {
                name: value for name, value in workspace.settings.items() if name in REMEMBERED + OF_MODELS + OF_PLANS
            }
    except LlmOcrError:
        return {}


def launch_key(launch: str) -> str:
    """Where a launch keeps what its jobs read."""
    return f"{LAUNCHES}/{launch}/launch.json"


def launched(url: str, options: StoreOptions, launch: str, stage: str) -> Mapping[str, Any]:
    """The settings that a launch has left for a stage. Raises `WorkspaceError` when there is no such launch."""
    with Workspace.open(url, options=options) as workspace:
        found = workspace.find_json(launch_key(launch))
    if found is None:
        raise WorkspaceError(
            f"{url} knows no launch {launch}",
            hint="Launches of it: llm-ocr jobs list -w URL. Without --launch: no need.",
        )
    settings: Mapping[str, Any] = found.get("settings", {}).get(stage, {})
    return settings


def stored_settings(command: str, settings: Any) -> Mapping[str, Any]:
    """What fills the settings that a command leaves open: what its launch left for it, what the workspace remembers.

    Raises `WorkspaceError` when there is no such launch.
    """
    url, options = str(settings.workspace), workspace_options(settings)
    launch = getattr(settings, "launch", None)
    of_launch = launched(url, options, launch, command) if launch else {}
    return {**remembered(url, options), **of_launch}


def workspace_options(settings: Any) -> StoreOptions:
    """How a command's settings say that its workspace's store is reached."""
    names = ("workspace_profile", "workspace_endpoint", "workspace_region")  # demo has none of them
    return StoreOptions(*(getattr(settings, name, None) for name in names))
