"""Keys: 12 hex of what changes a stage's result. Results of different settings never stand under one key.

<stage>/key.json             Extract only: the one key of the workspace, with its settings
<stage>/<key>/settings.json  written once, by the first worker
"""

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from llm_ocr.errors import StageMissing, UsageError, WorkspaceMismatch
from llm_ocr.work import codec
from llm_ocr.work.workspace import Workspace, library_version

EXTRACT = "extract"
DESCRIBE = "describe"
ASSEMBLE = "assemble"
STAGES = (EXTRACT, DESCRIBE, ASSEMBLE)

_KEY = re.compile(r"[0-9a-f]{12}")
_ONLY = f"{EXTRACT}/key.json"

#: Sorts after every character that follows in a key.
_LAST = "\U0010ffff"


@dataclass(frozen=True, slots=True)
class StageKey:
    """A key under which a stage has worked. `created` is ISO 8601 in UTC, by the clock of the worker that was first."""

    key: str
    settings: Mapping[str, Any]
    created: str


def key_of(settings: Mapping[str, Any]) -> str:
    """12 hex of the settings, whatever their order. Raises TypeError or ValueError for what is no JSON value."""
    return hashlib.sha256(codec.dump(dict(settings))).hexdigest()[:12]


def claim_key(workspace: Workspace, stage: str, settings: Mapping[str, Any]) -> str:
    """The stage's key for these settings, which are stored with it unless they are already.

    Raises `WorkspaceMismatch`, which shows the difference, when `stage` is extract and the workspace has another key.
    """
    key = key_of(settings)
    value = {
        "key": key,
        "settings": dict(settings),
        "created": datetime.now(UTC).isoformat(timespec="microseconds"),
        "created_by": library_version(),
    }
    if stage == EXTRACT:
        standing = workspace.find_json(_ONLY) or workspace.create_json(_ONLY, value)
        if standing.get("key") != key:
            raise _mismatch(workspace, standing.get("settings", {}), settings)
    name = f"{stage}/{key}/settings.json"
    if workspace.find_json(name) is None:
        # By number, for the clocks of workers may differ by hours, and a copied workspace has other times.
        workspace.create_json(name, {**value, "number": 1 + sum(1 for _ in _names(workspace, stage))})
    return key


def stage_keys(workspace: Workspace, stage: str) -> list[StageKey]:
    """All keys under which the stage has worked, oldest first."""
    found = [workspace.find_json(f"{stage}/{key}/settings.json") for key in _names(workspace, stage)]
    values = sorted(filter(None, found), key=lambda value: (value.get("number", 0), value.get("created", "")))
    return [StageKey(value["key"], value["settings"], value.get("created", "")) for value in values]


def key_settings(workspace: Workspace, stage: str, key: str) -> dict[str, Any]:
    """What a key of the stage is made of; empty for one that is not there."""
    return next((dict(one.settings) for one in stage_keys(workspace, stage) if one.key == key), {})


def newest_key(workspace: Workspace, stage: str, wanted: str = "") -> str | None:
    """The newest key of the stage, or `wanted`; None when the stage has not begun.

    Raises `UsageError` when there is no key `wanted`.
    """
    keys = [one.key for one in stage_keys(workspace, stage)]
    if wanted and wanted not in keys:
        there = f"There are: {', '.join(keys)}." if keys else f"{stage} has not begun there."
        raise UsageError(f"{workspace.url} has no {stage} key {wanted}", hint=there)
    return wanted or (keys[-1] if keys else None)


def required_key(workspace: Workspace, stage: str, wanted: str = "") -> str:
    """`newest_key`; raises `StageMissing` when the stage has not begun."""
    key = newest_key(workspace, stage, wanted)
    if key is None:
        ours = f"llm-ocr {stage} -w {workspace.url}"
        own = f"llm_ocr.transform(..., stage={stage!r})"
        raise StageMissing(
            f"{stage} has not begun in {workspace.url}", hint=f"Run first: {ours if stage in STAGES else own}"
        )
    return key


def stages_in(workspace: Workspace) -> Iterator[str]:
    """Our stages, and those of the user's own that have a key in the workspace."""
    yield from STAGES
    after = ""
    while (found := next(workspace.store.list("", start_after=after), None)) is not None:
        folder, _, rest = found.key.partition("/")
        if folder not in STAGES and _KEY.fullmatch(rest.partition("/")[0]):
            yield folder
        after = f"{folder}/{_LAST}"


def differences(old: Mapping[str, Any], new: Mapping[str, Any], within: str = "") -> list[str]:
    """One line for each setting that differs, `image_size: 1540 -> 1024`, nested ones with dots."""
    lines: list[str] = []
    for name in sorted({*old, *new}):
        before, after = old.get(name), new.get(name)
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            lines += differences(before, after, f"{within}{name}.")
        elif before != after:
            lines.append(f"{within}{name}: {_shown(old, name)} -> {_shown(new, name)}")
    return lines


def _shown(settings: Mapping[str, Any], name: str) -> str:
    return repr(settings[name]) if name in settings else "not set"


def _mismatch(workspace: Workspace, old: Mapping[str, Any], new: Mapping[str, Any]) -> WorkspaceMismatch:
    lines = "\n".join(f"  {line}" for line in differences(old, new))
    return WorkspaceMismatch(
        f"{workspace.url} was extracted with other settings:\n{lines}",
        hint="Use the settings of the workspace (on the left), or another workspace (-w) for the new ones.",
    )


def _names(workspace: Workspace, stage: str) -> Iterator[str]:
    """The folders below `<stage>/` that are keys: one short listing for each, whatever they hold."""
    after = ""
    while True:
        found = next(workspace.store.list(f"{stage}/", start_after=after), None)
        if found is None:
            return
        name = found.key.split("/")[1]
        if _KEY.fullmatch(name):
            yield name
        after = f"{stage}/{name}/{_LAST}"
