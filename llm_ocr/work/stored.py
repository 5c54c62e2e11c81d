"""Settings that stay with a workspace, so that later commands need not repeat them. Never a secret.

plan/settings.json  those of the command that wrote the first generation of the plan
extract/key.json    under `remembered`: those of the command that published Extract's first unit
run.json            those of the first command, in workspaces of earlier versions

Flags, variables and files count more than any of them. A command that published nothing leaves none.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from pydantic_settings import BaseSettings

from llm_ocr.errors import LlmOcrError, WorkspaceError
from llm_ocr.settings.sources import Stored
from llm_ocr.storage import StoreOptions
from llm_ocr.work.keys import extract_origin, stored_by
from llm_ocr.work.workspace import Workspace

#: What the workspace remembers of the command that made it.
REMEMBERED = (
    "engine",
    "text_layer",
    "image_size",
    "image_format",
    "renderer",
    "pages_per_unit",
    "crop",
    "figures_from",
)
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
    "fallback",
    "batch_id",
)

#: Which documents are planned: the same sources then mean the same documents to every command.
OF_PLANS = ("sample", "seed", "filter_language", "filter_forms", "filter_spam", "filter_blank")

#: The folder of a workspace in which launchers keep what they sent, and what their jobs read.
LAUNCHES = "launches"

_OF_PLAN = "plan/settings.json"


def to_remember(settings: object, *, engine: str) -> dict[str, Any]:
    """The remembered ones among a command's settings; those left open are left out."""
    names = REMEMBERED if engine == "embedded" else REMEMBERED + OF_MODELS
    found = {name: getattr(settings, name, None) for name in names} | {"engine": engine}
    kept = {name: _json(value) for name, value in found.items() if value not in (None, "auto", ())}
    return kept | {name: _json(value) for name in OF_PLANS if (value := getattr(settings, name, None))}


def _json(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def command_of(settings: BaseSettings) -> str:
    """`llm-ocr run`: the command whose settings these are."""
    return (type(settings).__doc__ or "").partition(":")[0]


def remember_plan(workspace: Workspace, settings: BaseSettings, *, engine: str) -> None:
    """Store what later commands need not repeat, once the first generation of the plan is written.

    That is how it was planned; and, of the command that only plans, the engine and model that were chosen.
    """
    command = command_of(settings)
    kept = to_remember(settings, engine=engine)
    if command != "llm-ocr plan":
        kept = {name: value for name, value in kept.items() if name in (*OF_PLANS, "pages_per_unit")}
    if kept and workspace.find_json(_OF_PLAN) is None:
        created = datetime.now(UTC).isoformat(timespec="seconds")
        workspace.create_json(_OF_PLAN, {"command": command, "created": created, "settings": kept})


def remembered(url: str, options: StoreOptions) -> Stored:
    """What the workspace at `url` remembers; nothing when there is none, or it cannot be read: the command says so."""
    try:
        with Workspace.open(url, options=options) as workspace:
            return remembered_in(workspace)
    except LlmOcrError:
        return Stored({}, {})


def remembered_in(workspace: Workspace) -> Stored:
    """What a workspace remembers: of its plan, and above that of what was extracted."""
    planned = workspace.find_json(_OF_PLAN) or {}
    origin, claimed = extract_origin(workspace)
    layers = (
        (workspace.settings, ""),
        (planned.get("settings", {}), stored_by(planned.get("command", ""), planned.get("created", ""))),
        (origin.remembered, stored_by(origin.command, claimed)),
    )
    found = Stored({}, {})
    for values, by in layers:
        for name, value in values.items():
            if name in REMEMBERED + OF_MODELS + OF_PLANS:
                found[name], found.by[name] = value, by
    return found


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


def stored_settings(command: str, settings: Any) -> Stored:
    """What fills the settings that a command leaves open: what its launch left for it, what the workspace remembers.

    A server that the command names is its engine, whatever the workspace remembers. Raises `WorkspaceError` when there
    is no such launch.
    """
    url, options = str(settings.workspace), workspace_options(settings)
    launch = getattr(settings, "launch", None)
    of_launch = launched(url, options, launch, command) if launch else {}
    found = remembered(url, options)
    if getattr(settings, "server_url", ()):
        found.pop("engine", None)
    return Stored({**found, **of_launch}, {name: by for name, by in found.by.items() if name not in of_launch})


def workspace_options(settings: Any) -> StoreOptions:
    """How a command's settings say that its workspace's store is reached."""
    names = ("workspace_profile", "workspace_endpoint", "workspace_region")  # demo has none of them
    return StoreOptions(*(getattr(settings, name, None) for name in names))
