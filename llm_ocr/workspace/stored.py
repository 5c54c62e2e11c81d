"""Settings stored in a workspace, so that later commands need not repeat them. Secrets are never stored.

plan/settings.json  settings of the command that wrote the first generation of the plan
extract/key.json    under `remembered`: settings of the command that published Extract's first unit
run.json            settings of the first command, in workspaces of earlier versions

Flags, variables, and files override all of them. A command that published nothing stores none.

A workspace is not trusted: others may write into its bucket. Only `ALLOWED` settings are applied. These cannot name
programs, code, weights, servers, credentials, or files. A launch may carry any setting, because its jobs receive the
hash of its `launch.json` from the launching machine.
"""

import hashlib
import re
import shlex
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

from pydantic_settings import BaseSettings

from llm_ocr.config.groups import HYBRID, MODELS, ServerSettings, WorkspaceSettings, without_credentials
from llm_ocr.config.launch_groups import JobGroup
from llm_ocr.config.loading import Stored
from llm_ocr.config.models import FieldsSettings, RepairSettings
from llm_ocr.errors import LlmOcrError, ObjectNotFound, UsageError, WorkspaceError
from llm_ocr.storage import StoreOptions
from llm_ocr.workspace import Workspace, codec
from llm_ocr.workspace.keys import extract_origin, stored_by

#: Settings of the first command that the workspace stores.
REMEMBERED = (
    "engine",
    "text_layer",
    "invisible_text",
    "image_size",
    "image_format",
    "renderer",
    "pages_per_unit",
    "crop",
    "figures_from",
)
#: Additional settings stored if a model reads the pages.
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
    "model_threshold",
    "model_share",
    "batch_id",
)

#: Settings that select the planned documents: the same sources then mean the same documents to every command.
OF_PLANS = ("sample", "seed", "filter_language", "filter_forms", "filter_spam", "filter_blank")

#: Stored so that a command can tell the user to repeat them. Never applied: they name code, weights, or files.
OF_USERS = frozenset({"weights", "revision", "chat_template"})
#: Settings that a workspace may choose. `model` and `parser` are limited to names in the library's tables.
ALLOWED = frozenset((*REMEMBERED, *OF_MODELS, *OF_PLANS)) - OF_USERS

#: Folder of a workspace in which launchers store launch records and job settings.
LAUNCHES = "launches"

_OF_PLAN = "plan/settings.json"


def to_remember(settings: BaseSettings, *, engine: str) -> dict[str, Any]:
    """Return the settings of a command that are stored in the workspace, without unset ones."""
    values = dict(settings)
    if values.get("engine") == HYBRID:  # whichever engine serves its model
        engine = HYBRID
    names = REMEMBERED + OF_MODELS if engine in (*MODELS, HYBRID) else REMEMBERED
    found = {name: values.get(name) for name in names} | {"engine": engine}
    if engine == HYBRID:
        del found["fallback"]  # it has no effect
    kept = {name: value for name, value in found.items() if value not in (None, "auto", "drop", ())}
    kept |= {name: without_credentials(kept[name]) for name in ("model", "weights") if name in kept}
    kept |= {name: value for name in OF_PLANS if (value := values.get(name))}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in kept.items()}


def remember_plan(workspace: Workspace, command: str, settings: BaseSettings, *, engine: str) -> None:
    """Store the plan's settings once its first generation is written.

    The settings are those that shaped the plan. The `plan` command also stores the chosen engine and model.
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
    """Return the stored settings of a command's workspace that a workspace may choose.

    The result is empty for a missing or unreadable workspace; the command itself reports that error.

    Args:
        settings: settings of the command, without the workspace's.
        options: how to reach the workspace's store.
        given: settings from a launch.

    Raises:
        UsageError: the command needs a stored setting that a workspace may not choose, and does not repeat it.
    """
    fields = dict(settings)
    url = str(fields["workspace"])
    try:
        with Workspace.open(url, options=options) as workspace:
            held = remembered_in(workspace)
    except LlmOcrError:
        return Stored({}, {})
    chosen = Stored({name: value for name, value in held.items() if may_choose(name, value)}, held.by)
    known = {**given, **{name: fields[name] for name in settings.model_fields_set}}
    left = fields.keys() - chosen.keys() - known.keys()
    missing = {name: held[name] for name in OF_MODELS if name in left and held.get(name) is not None}
    if missing and {**chosen, **known}.get("engine") != "embedded":
        # Values are quoted for a shell, since the workspace may be another user's.
        texts = {name: shlex.quote(without_credentials(str(value))) for name, value in missing.items()}
        named = ", ".join(f"`{name}`" if "`" in text else f"`{name}={text}`" for name, text in texts.items())
        raise UsageError(
            f"{url} was made with {named}: a workspace must not choose code, weights, or files by itself",
            hint=f"If you trust these settings, repeat them: {named}",
        )
    return chosen


def may_choose(name: str, value: Any) -> bool:
    """Return whether a workspace may choose this value of a setting."""
    if name not in ("model", "parser"):
        return name in ALLOWED
    # Imported here: commands whose workspace names neither do not need the tables.
    from llm_ocr.models.parsers import parser_named
    from llm_ocr.models.registry import find_profile

    find: Callable[[str], object] = find_profile if name == "model" else parser_named
    try:
        return isinstance(value, str) and find(value) is not None
    except UsageError:
        return False


def remembered_in(workspace: Workspace) -> Stored:
    """Return all stored settings, trusted or not. Settings of the extraction override those of the plan."""
    planned = workspace.find_json(_OF_PLAN) or {}
    command, created = str(planned.get("command", "")), str(planned.get("created", ""))  # only for messages
    origin, claimed = extract_origin(workspace)
    layers = (
        (workspace.settings, ""),
        (planned.get("settings", {}), stored_by(command, created)),
        (origin.remembered, stored_by(origin.command, claimed)),
    )
    found = Stored({}, {})
    for values, by in layers:
        if not isinstance(values, dict):
            raise codec.damaged(workspace.url, "the stored settings are not an object")
        for name, value in values.items():
            if name in REMEMBERED + OF_MODELS + OF_PLANS:
                found[name], found.by[name] = value, by
    return found


def launch_key(launch: str) -> str:
    """Return the key of a launch's record."""
    return f"{LAUNCHES}/{launch}/launch.json"


def launch_reference(launch: str, data: bytes) -> str:
    """Return a launch's reference for jobs: its id and the hash of the trusted `launch.json`."""
    return f"{launch}@{hashlib.sha256(data).hexdigest()}"


def verified_launch(url: str, options: StoreOptions, reference: str) -> dict[str, Any]:
    """Return a launch's record, verified against the hash in the reference.

    Args:
        url: the workspace.
        options: how to reach its store.
        reference: the launch's id and hash (`launch_reference`).

    Raises:
        UsageError: the reference is malformed, or has no hash.
        WorkspaceError: there is no such launch, or its file has changed since the launch.
    """
    if "@" not in reference:
        raise UsageError(f"LLM_OCR_LAUNCH={reference}: must be ID@SHA256, as launchers set it")
    return _launch_record(url, options, reference)


def launched(url: str, options: StoreOptions, reference: str, stage: str) -> Mapping[str, Any]:
    """Return the settings that a launch has stored for a stage.

    Args:
        url: the workspace.
        options: how to reach its store.
        reference: the launch's id and hash (`launch_reference`). With the id alone, only `ALLOWED` settings are
            accepted.
        stage: the stage's name.

    Raises:
        UsageError: the reference is malformed.
        WorkspaceError: there is no such launch, its file has changed since the launch, or without a hash the record has
            a setting that a workspace may not choose.
    """
    settings = _launch_record(url, options, reference).get("settings")
    settings = settings.get(stage, {}) if isinstance(settings, dict) else None
    launch, _, digest = reference.partition("@")
    key = launch_key(launch)
    if not isinstance(settings, dict):
        raise codec.damaged(f"{url}: {key}", f"the settings of {stage} are missing")
    refused = [] if digest else sorted(name for name, value in settings.items() if not may_choose(name, value))
    if refused:
        raise WorkspaceError(
            f"{url}: {key} sets {', '.join(refused)}, which a workspace must not choose",
            hint="Launch the stage again, so that its jobs have the hash of the file. Or give these settings yourself.",
        )
    return settings


def _launch_record(url: str, options: StoreOptions, reference: str) -> dict[str, Any]:
    launch, _, digest = reference.partition("@")
    if not re.fullmatch(r"[A-Za-z0-9-]+(@[0-9a-f]{64})?", reference):
        raise UsageError(f"`launch={reference}`: must be the id of a launch, or ID@SHA256, as launchers set it")
    key = launch_key(launch)
    try:
        with Workspace.open(url, options=options) as workspace:
            data = workspace.store.get(key)
    except ObjectNotFound:
        raise WorkspaceError(
            f"{url} has no launch {launch}",
            hint="Launches: llm-ocr jobs list -w URL. Or leave out `launch`.",
        ) from None
    if digest and hashlib.sha256(data).hexdigest() != digest:
        raise WorkspaceError(
            f"{url}: {key} differs from the launched file: the SHA-256 has changed",
            hint="Another process has written the file, so its settings have no effect. Launch the stage again.",
        )
    return codec.load(data, f"{url}: {key}")


def stored_settings(command: str, settings: WorkspaceSettings) -> Stored:
    """Return the settings from a command's launch and from its workspace, for settings that the command leaves open.

    A server that the command names is its engine, whatever the workspace stores. If a repair names a model, its engine
    is chosen again.

    Raises:
        WorkspaceError: there is no such launch, or its file has changed.
        UsageError: a setting must be repeated.
    """
    options = workspace_options(settings)
    launch = settings.launch if isinstance(settings, JobGroup) else None
    of_launch = launched(settings.workspace, options, launch, command) if launch else {}
    # The workspace stores settings of the model that read the pages.
    found = Stored({}, {}) if isinstance(settings, FieldsSettings) else remembered(settings, options, of_launch)
    if isinstance(settings, ServerSettings) and settings.server_url and found.get("engine") != HYBRID:
        found.pop("engine", None)
    if isinstance(settings, RepairSettings) and "model" in settings.model_fields_set:
        found.pop("engine", None)  # a repair may read with a model what the CPU engine read
    return Stored({**found, **of_launch}, {name: by for name, by in found.by.items() if name not in of_launch})


def workspace_options(settings: WorkspaceSettings) -> StoreOptions:
    """Return the options of a command for its workspace's store."""
    return StoreOptions(settings.workspace_profile, settings.workspace_endpoint, settings.workspace_region)
