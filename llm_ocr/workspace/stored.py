"""Settings that stay with a workspace, so that later commands need not repeat them. Never a secret.

plan/settings.json  those of the command that wrote the first generation of the plan
extract/key.json    under `remembered`: those of the command that published Extract's first unit
run.json            those of the first command, in workspaces of earlier versions

Flags, variables and files count more than any of them. A command that published nothing leaves none.

A workspace is not trusted: others may write into its bucket. Of what it holds only `ALLOWED` settings are applied.
They cannot name programs, code, weights, servers, credentials, or files. A launch may carry any setting, because its
jobs know the hash of its `launch.json` from the machine that launched them.
"""

import hashlib
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

from pydantic_settings import BaseSettings

from llm_ocr.config.groups import ServerSettings, WorkspaceSettings, without_credentials
from llm_ocr.config.launch_groups import JobGroup
from llm_ocr.config.loading import Stored
from llm_ocr.errors import LlmOcrError, ObjectNotFound, UsageError, WorkspaceError
from llm_ocr.storage import StoreOptions
from llm_ocr.workspace import Workspace, codec
from llm_ocr.workspace.keys import extract_origin, stored_by

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

#: Stored, so that a command can say what to repeat; never applied: they name code, weights, or files.
OF_USERS = frozenset({"weights", "revision", "chat_template"})
#: What a workspace may choose. `model` and `parser` only by names that the library knows.
ALLOWED = frozenset((*REMEMBERED, *OF_MODELS, *OF_PLANS)) - OF_USERS

#: The folder of a workspace in which launchers keep what they sent, and what their jobs read.
LAUNCHES = "launches"

_OF_PLAN = "plan/settings.json"


def to_remember(settings: BaseSettings, *, engine: str) -> dict[str, Any]:
    """The remembered ones among a command's settings; those left open are left out."""
    names = REMEMBERED if engine == "embedded" else REMEMBERED + OF_MODELS
    values = dict(settings)
    found = {name: values.get(name) for name in names} | {"engine": engine}
    kept = {name: _json(value) for name, value in found.items() if value not in (None, "auto", ())}
    kept |= {name: without_credentials(kept[name]) for name in ("model", "weights") if name in kept}
    return kept | {name: _json(value) for name in OF_PLANS if (value := values.get(name))}


def _json(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def remember_plan(workspace: Workspace, command: str, settings: BaseSettings, *, engine: str) -> None:
    """Store what later commands need not repeat, once the first generation of the plan is written.

    That is how it was planned; and, of the command that only plans, the engine and model that were chosen.
    """
    kept = to_remember(settings, engine=engine)
    if command != "plan":
        kept = {name: value for name, value in kept.items() if name in (*OF_PLANS, "pages_per_unit")}
    if kept and workspace.find_json(_OF_PLAN) is None:
        created = datetime.now(UTC).isoformat(timespec="seconds")
        workspace.create_json(_OF_PLAN, {"command": command, "created": created, "settings": kept})


def remembered(
    settings: BaseSettings, options: StoreOptions, given: Mapping[str, Any] = MappingProxyType({})
) -> Stored:
    """Return what a command's workspace remembers, as far as a workspace may choose it.

    Nothing is returned for a workspace that is missing or unreadable: the command itself says so.

    Args:
        settings: those of the command, found without the workspace.
        options: how the workspace's store is reached.
        given: settings that a launch gives.

    Raises:
        UsageError: the command needs a remembered setting that a workspace may not choose, and does not repeat it.
    """
    fields = dict(settings)
    url = str(fields["workspace"])
    try:
        with Workspace.open(url, options=options) as workspace:
            held = remembered_in(workspace)
    except LlmOcrError:
        return Stored({}, {})
    chosen = Stored({name: value for name, value in held.items() if _may_choose(name, value)}, held.by)
    known = {**given, **{name: fields[name] for name in settings.model_fields_set}}
    left = fields.keys() - chosen.keys() - known.keys()
    missing = {name: held[name] for name in OF_MODELS if name in left and held.get(name) is not None}
    if missing and {**chosen, **known}.get("engine") != "embedded":
        flags = " ".join(_flags(missing))
        raise UsageError(
            f"{url} was made with {flags}: a workspace may not choose code, weights, or files by itself",
            hint=f"If you trust this, repeat it: {flags}",
        )
    return chosen


def _may_choose(name: str, value: Any) -> bool:
    if name not in ("model", "parser"):
        return name in ALLOWED
    # Imported here: commands that find neither in a workspace do not need the tables.
    from llm_ocr.models.parsers import parser_named
    from llm_ocr.models.registry import find_profile

    find: Callable[[str], object] = find_profile if name == "model" else parser_named
    try:
        return isinstance(value, str) and find(value) is not None
    except UsageError:
        return False


def _flags(settings: Mapping[str, Any]) -> Iterator[str]:
    for name, value in settings.items():
        yield f"--{name.replace('_', '-')} {shlex.quote(without_credentials(str(value)))}"


def remembered_in(workspace: Workspace) -> Stored:
    """Return what a workspace remembers: of its plan, and above that of what was extracted; not all is trusted."""
    planned = workspace.find_json(_OF_PLAN) or {}
    origin, claimed = extract_origin(workspace)
    layers = (
        (workspace.settings, ""),
        (planned.get("settings", {}), stored_by(planned.get("command", ""), planned.get("created", ""))),
        (origin.remembered, stored_by(origin.command, claimed)),
    )
    found = Stored({}, {})
    for values, by in layers:
        if not isinstance(values, dict):
            raise codec.damaged(workspace.url, "its remembered settings are no object")
        for name, value in values.items():
            if name in REMEMBERED + OF_MODELS + OF_PLANS:
                found[name], found.by[name] = value, by
    return found


def launch_key(launch: str) -> str:
    """Where a launch keeps what its jobs read."""
    return f"{LAUNCHES}/{launch}/launch.json"


def launch_reference(launch: str, data: bytes) -> str:
    """Return what a job is given as its launch: the id, and the hash of the `launch.json` that it may trust."""
    return f"{launch}@{hashlib.sha256(data).hexdigest()}"


def verified_launch(url: str, options: StoreOptions, reference: str) -> dict[str, Any]:
    """Return what a launch has left, as the machine that launched wrote it.

    Args:
        url: the workspace.
        options: how its store is reached.
        reference: the launch's id and hash (`launch_reference`).

    Raises:
        UsageError: the reference is malformed, or has no hash.
        WorkspaceError: there is no such launch, or its file has changed since the launch.
    """
    if "@" not in reference:
        raise UsageError(f"LLM_OCR_LAUNCH={reference}: must be ID@SHA256 as launchers give it")
    return _launch_record(url, options, reference)


def launched(url: str, options: StoreOptions, reference: str, stage: str) -> Mapping[str, Any]:
    """Return the settings that a launch has left for a stage.

    Args:
        url: the workspace.
        options: how its store is reached.
        reference: the launch's id and hash (`launch_reference`). With the id alone, only `ALLOWED` settings are taken.
        stage: the stage's name.

    Raises:
        UsageError: the reference is malformed.
        WorkspaceError: there is no such launch, its file has changed since the launch, or without a hash it holds a
            setting that a workspace may not choose.
    """
    settings = _launch_record(url, options, reference).get("settings")
    settings = settings.get(stage, {}) if isinstance(settings, dict) else None
    launch, _, digest = reference.partition("@")
    key = launch_key(launch)
    if not isinstance(settings, dict):
        raise codec.damaged(f"{url}: {key}", f"it has no settings of {stage}")
    refused = [] if digest else sorted(name for name, value in settings.items() if not _may_choose(name, value))
    if refused:
        raise WorkspaceError(
            f"{url}: {key} sets {', '.join(refused)}, which a workspace may not choose",
            hint="Launch the stage again: its jobs then know the hash of the file. Or give these settings yourself.",
        )
    return settings


def _launch_record(url: str, options: StoreOptions, reference: str) -> dict[str, Any]:
    launch, _, digest = reference.partition("@")
    if not re.fullmatch(r"[A-Za-z0-9-]+(@[0-9a-f]{64})?", reference):
        raise UsageError(f"--launch {reference}: must be a launch's id, or ID@SHA256 as launchers give it")
    key = launch_key(launch)
    try:
        with Workspace.open(url, options=options) as workspace:
            data = workspace.store.get(key)
    except ObjectNotFound:
        raise WorkspaceError(
            f"{url} knows no launch {launch}",
            hint="Launches of it: llm-ocr jobs list -w URL. Without --launch: no need.",
        ) from None
    if digest and hashlib.sha256(data).hexdigest() != digest:
        raise WorkspaceError(
            f"{url}: {key} is not what was launched: its SHA-256 has changed",
            hint="Somebody else has written it, and its settings are not used. Launch the stage again.",
        )
    return codec.load(data, f"{url}: {key}")


def stored_settings(command: str, settings: WorkspaceSettings) -> Stored:
    """What fills the settings that a command leaves open: what its launch left for it, what the workspace remembers.

    A server that the command names is its engine, whatever the workspace remembers. Raises `WorkspaceError` when there
    is no such launch, or its file has changed; `UsageError` for a setting that must be repeated.
    """
    options = workspace_options(settings)
    launch = settings.launch if isinstance(settings, JobGroup) else None
    of_launch = launched(settings.workspace, options, launch, command) if launch else {}
    found = remembered(settings, options, of_launch)
    if isinstance(settings, ServerSettings) and settings.server_url:
        found.pop("engine", None)
    return Stored({**found, **of_launch}, {name: by for name, by in found.by.items() if name not in of_launch})


def workspace_options(settings: WorkspaceSettings) -> StoreOptions:
    """How a command's settings say that its workspace's store is reached."""
    return StoreOptions(settings.workspace_profile, settings.workspace_endpoint, settings.workspace_region)
