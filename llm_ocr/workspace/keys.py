"""Keys of stage results: 12 hex digits of the settings that change the result.

Results of different settings never share a key.

<stage>/key.json             Extract only: the only key of the workspace, with its settings
<stage>/<key>/settings.json  written by the first worker, and again by Fields if an older key becomes the newest

Extract and Describe claim their key when a worker publishes its first unit (`Claim`). A command that failed earlier
leaves no key, so the next command may use other settings.
"""

import hashlib
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

from pydantic import BaseModel, StrictInt, StrictStr, TypeAdapter

from llm_ocr.errors import (
    ObjectChanged,
    ObjectNotFound,
    StageMissing,
    UsageError,
    WorkspaceError,
    WorkspaceMismatch,
)
from llm_ocr.workspace import Workspace, codec, library_version
from llm_ocr.workspace.generations import generations
from llm_ocr.workspace.publish import done_units

EXTRACT = "extract"
DESCRIBE = "describe"
ASSEMBLE = "assemble"
STAGES = (EXTRACT, DESCRIBE, ASSEMBLE)
FIELDS = "fields"  # optional, after the others
#: Folder of the notes on views, see `workspace.items`.
VIEW_NOTES = f"{ASSEMBLE}/views/"

_KEY = re.compile(r"[0-9a-f]{12}")
_ONLY = f"{EXTRACT}/key.json"

_VERSION = "result_version"
#: Values that no setting controls: a difference here means another version of llm-ocr, whatever other values differ.
_OF_VERSIONS = frozenset({f"reader.{_VERSION}", "render.revision"})

#: Name of a setting in a line of `differences`.
_IN_A_PART = re.compile(r"^(?:reader\.|render\.|ledger\.)?(\w+)(?=:)")
#: Stored settings that change no result, or only the plan.
_WITHOUT_EFFECT = re.compile("pages_per_unit|batch_id|sample|seed|filter_.+")

#: Sorts after every character that can follow in a key.
_LAST = "\U0010ffff"


@dataclass(frozen=True, slots=True)
class StageKey:
    """Key under which a stage has published. `created` is ISO 8601 in UTC, by the clock of the first worker."""

    key: str
    settings: Mapping[str, Any]
    created: str
    number: int = 0


def key_of(settings: Mapping[str, Any]) -> str:
    """Return 12 hex digits of the hash of the settings, independent of their order.

    Raises:
        TypeError: a value is not a JSON value.
        ValueError: a value is not a JSON value.
    """
    return hashlib.sha256(codec.dump(dict(settings))).hexdigest()[:12]


@dataclass(frozen=True, slots=True)
class Origin:
    """Settings for later commands (never a secret) and the command that gave them, stored with a key."""

    remembered: Mapping[str, Any] = field(default_factory=dict)
    command: str = ""


class Claim:
    """Claim of a stage's key, stored when the first unit is published. Safe to use from several threads."""

    def __init__(
        self, workspace: Workspace, stage: str, settings: Mapping[str, Any], origin: Origin | None = None
    ) -> None:
        """Prepare the claim.

        Raises:
            TypeError: a setting is not a JSON value.
            ValueError: a setting is not a JSON value.
        """
        self.stage = stage
        self.key = key_of(settings)
        self.folder = self.key  # where units are published; of a repair, the key of the workspace
        self._workspace = workspace
        self._settings = settings
        self._origin = origin or Origin()
        self._lock = threading.Lock()
        self._unused = ""  # version of another key's claim that had no unit when this command began
        self._taken = self._confirmed = False

    def check(self) -> str:
        """Return the key of the folder in which units are published, without storing it.

        That is this key, or the workspace's if the plan has a repair with this key. All readers then find the units.

        A claim of another key without a published unit is the leftover of a worker that exited between claim and unit.
        `take` replaces that claim if it is still unused at that time.

        Raises:
            WorkspaceMismatch: the workspace has published units under another key; the message shows the difference.
        """
        if self.stage == EXTRACT:
            claimed, version = _stored_claim(self._workspace)
            if claimed and claimed.get("key") != self.key:
                base = str(claimed.get("key"))
                if any(generation.key(base) == self.key for generation in generations(self._workspace)):
                    self.folder, self._taken, self._confirmed = base, True, True
                    return base
                self._unused = version if self._is_unused(claimed) else ""
                if not self._unused:
                    raise _mismatch(self._workspace, claimed, self._settings, self._origin)
        return self.key

    def take(self) -> str:
        """Store the key if it is not stored yet, and return it. Call this right before publishing a unit.

        Raises:
            WorkspaceMismatch: another key was stored first; the message shows the difference.
        """
        workspace = self._workspace
        with self._lock:
            if self._taken:
                return self.key
            value = {
                "key": self.key,
                "settings": dict(self._settings),
                "created": datetime.now(UTC).isoformat(timespec="microseconds"),
                "created_by": library_version(),
            }
            if self._origin.command:
                value |= {"command": self._origin.command, "remembered": dict(self._origin.remembered)}
            if self.stage == EXTRACT:
                claimed = _stored_claim(workspace)[0] or workspace.create_json(_ONLY, value)
                if claimed.get("key") != self.key and not self._replaced(claimed, value):
                    raise _mismatch(workspace, claimed, self._settings, self._origin)
            name = f"{self.stage}/{self.key}/settings.json"
            if workspace.find_json(name) is None:
                # Order by number: the clocks of workers may differ by hours, and a copied workspace has other times.
                numbers = [stored.number for stored in stage_keys(workspace, self.stage)]
                workspace.create_json(name, {**value, "number": 1 + max(numbers, default=0)})
            self._taken = True
        return self.key

    def confirm(self) -> None:
        """Check, after the first published unit, that the stored claim is still this one.

        A worker that was suspended between claim and unit may have lost its claim to another worker.

        Raises:
            WorkspaceMismatch: the stored claim has another key.
        """
        if self.stage != EXTRACT or self._confirmed:
            return
        claimed, _ = _stored_claim(self._workspace)
        if claimed and claimed.get("key") != self.key:
            raise _mismatch(self._workspace, claimed, self._settings, self._origin)
        self._confirmed = True

    def _replaced(self, claimed: Mapping[str, Any], value: Mapping[str, Any]) -> bool:
        """Replace a claim that has been unused since `check`; return whether this key is the stored one now."""
        if not self._unused or not self._is_unused(claimed):
            return False
        store = self._workspace.store
        try:
            version = store.swap(_ONLY, codec.dump(value, indent=2), self._unused)
        except ObjectChanged:
            return False
        if self._is_unused(claimed):
            return True
        with suppress(ObjectChanged):  # the claim's worker is alive and has published just now
            store.swap(_ONLY, codec.dump(claimed, indent=2), version)
        return False

    def _is_unused(self, claimed: Mapping[str, Any]) -> bool:
        """Return whether a claim may be replaced. Imports claim their key before the plan, and keep it."""
        if "imported" in claimed.get("settings", {}) or not self._workspace.store.capabilities().swap:
            return False
        folder = f"{EXTRACT}/{claimed.get('key')}/"
        return not any(info.key.endswith(".done") for info in self._workspace.store.list(folder))


def claim_key(workspace: Workspace, stage: str, settings: Mapping[str, Any]) -> str:
    """Return the stage's key for these settings; store the settings with it unless they are stored already.

    Raises:
        WorkspaceMismatch: `stage` is extract and the workspace has another key; the message shows the difference.
    """
    return Claim(workspace, stage, settings).take()


def extract_origin(workspace: Workspace) -> tuple[Origin, str]:
    """Return the origin stored with Extract's key and its time of creation; both are empty if nothing was extracted."""
    value, _ = _stored_claim(workspace)
    return Origin(value.get("remembered", {}), value.get("command", "")), value.get("created", "")


class _Settings(BaseModel):
    """Settings of a key that are objects, if the stage has them."""

    reader: dict[str, Any] = {}
    render: dict[str, Any] = {}


class _Stored(BaseModel):
    """Content of `key.json` and `settings.json`."""

    key: StrictStr
    settings: _Settings
    created: StrictStr = ""
    number: StrictInt = 0
    command: StrictStr = ""
    remembered: dict[str, Any] = {}
    created_by: StrictStr = ""


_STORED = TypeAdapter(_Stored)


def _stored_claim(workspace: Workspace) -> tuple[dict[str, Any], str]:
    """Return the content of `key.json` and its version; both empty if Extract has not claimed its key."""
    try:
        data, version = workspace.store.fetch(_ONLY)
    except ObjectNotFound:
        return {}, ""
    where = f"{workspace.url}: {_ONLY}"
    value = codec.load(data, where)
    codec.typed(_STORED, value, where)
    return value, version


def stage_keys(workspace: Workspace, stage: str) -> list[StageKey]:
    """Return all keys under which the stage has published, oldest first."""
    # Keys of units published by this command count even if a listing does not show them yet.
    names = {name.split("/")[1] for name in workspace.published(f"{stage}/")}
    after = ""
    # One short listing per key, regardless of its size.
    while (listed := next(workspace.store.list(f"{stage}/", start_after=after), None)) is not None:
        name = listed.key.split("/")[1]
        if _KEY.fullmatch(name):
            names.add(name)
        after = f"{stage}/{name}/{_LAST}"
    found: list[StageKey] = []
    for key in sorted(names):
        where = f"{stage}/{key}/settings.json"
        try:
            value = workspace.find_json(where)
            if value is None:
                continue
            stored = codec.typed(_STORED, value, f"{workspace.url}: {where}")
            if stored.key != key:
                raise codec.damaged(f"{workspace.url}: {where}", "it is of another key")
            if stage == ASSEMBLE and not {EXTRACT, DESCRIBE} <= value["settings"].keys():
                raise codec.damaged(f"{workspace.url}: {where}", "it names no keys of Extract and Describe")
        except WorkspaceError as error:
            hint = (
                f"Remove {where} from the workspace, and run {stage} again with the same settings, to write it again."
            )
            raise WorkspaceError(error.args[0], hint=hint) from error
        found.append(StageKey(stored.key, value["settings"], stored.created, stored.number))
    return sorted(found, key=lambda stored: (stored.number, stored.created))


def used_settings(workspace: Workspace, stage: str) -> list[Mapping[str, Any]]:
    """Return the settings of the stage's keys, the newest first; of Extract, those of repairs before all others."""
    repairs = [generation.repair for generation in generations(workspace)] if stage == EXTRACT else []
    found = [repair.settings for repair in reversed(repairs) if repair is not None]
    return [*found, *(key.settings for key in reversed(stage_keys(workspace, stage)))]


#: Keys of stages that are already read, by stage.
KnownKeys = Mapping[str, Sequence[StageKey]]
NO_KEYS: KnownKeys = MappingProxyType({})


def key_settings(workspace: Workspace, stage: str, key: str, known: KnownKeys = NO_KEYS) -> dict[str, Any]:
    """Return the settings of a stage's key; empty if the key does not exist. `known` keys are not read again."""
    keys = known[stage] if stage in known else stage_keys(workspace, stage)
    return next((dict(stored.settings) for stored in keys if stored.key == key), {})


def newest_key(workspace: Workspace, stage: str, wanted: str = "", known: KnownKeys = NO_KEYS) -> str | None:
    """Return the stage's newest key, or `wanted` if given; None if the stage has not begun.

    `known` keys are not read again.

    Raises:
        UsageError: there is no key `wanted`.
    """
    keys = [stored.key for stored in (known[stage] if stage in known else stage_keys(workspace, stage))]
    if wanted and wanted not in keys:
        there = f"Keys: {', '.join(keys)}." if keys else f"{stage} has not started there."
        raise UsageError(f"{workspace.url} has no {stage} key {wanted}", hint=there)
    return wanted or (keys[-1] if keys else None)


def make_newest(workspace: Workspace, stage: str, key: str) -> None:
    """Make a stored key the stage's newest, because a command uses it again. Without the key, nothing happens."""
    keys = stage_keys(workspace, stage)
    if key in [stored.key for stored in keys[:-1]]:
        name = f"{stage}/{key}/settings.json"
        value = {**workspace.get_json(name), "number": keys[-1].number + 1}
        workspace.store.put(name, codec.dump(value, indent=2))


def assembled_key(workspace: Workspace) -> str | None:
    """Return the key of Assemble that wrote the documents and the dataset; None if it has not begun."""
    note, named = next(iter(workspace.store.list(VIEW_NOTES)), None), None
    with suppress(WorkspaceError):  # a damaged note, which Assemble writes again
        named = workspace.find_json(note.key) if note else None
    return str(named["key"]) if named and "key" in named else newest_key(workspace, ASSEMBLE)


def required_key(workspace: Workspace, stage: str, wanted: str = "") -> str:
    """Return the same key as `newest_key`.

    Raises:
        StageMissing: the stage has not begun.
    """
    key = newest_key(workspace, stage, wanted)
    if key is None:
        ours = f"llm-ocr {stage} -w {workspace.url}"
        own = f"llm_ocr.transform(..., stage={stage!r})"
        first = ours if stage in (*STAGES, FIELDS) else own
        raise StageMissing(f"{stage} has not started in {workspace.url}", hint=f"Run first: {first}")
    return key


def stages_in(workspace: Workspace) -> Iterator[str]:
    """Yield the three stages, then Fields and the user-defined stages that have a key in the workspace."""
    yield from STAGES
    after = ""
    while (found := next(workspace.store.list("", start_after=after), None)) is not None:
        folder, _, rest = found.key.partition("/")
        if folder not in STAGES and _KEY.fullmatch(rest.partition("/")[0]):
            yield folder
        after = f"{folder}/{_LAST}"


def differences(old: Mapping[str, Any], new: Mapping[str, Any], within: str = "") -> list[str]:
    """Return one line per setting that differs, `image_size: 1540 -> 1024`. Names of nested settings have dots."""
    lines: list[str] = []
    for name in sorted({*old, *new}):
        before, after = old.get(name), new.get(name)
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            lines += differences(before, after, f"{within}{name}.")
        elif before != after:
            shown = [repr(settings[name]) if name in settings else "not set" for settings in (old, new)]
            lines.append(f"{within}{name}: {' -> '.join(shown)}")
    return lines


def stored_by(command: str, created: str) -> str:
    """Return `llm-ocr run on 2026-11-22 at 22:10 UTC`, without the parts that are unknown."""
    when = f"on {created[:10]} at {created[11:16]} UTC" if created else ""
    return " ".join(filter(None, (f"llm-ocr {command}" if command else "", when)))


def need_same_version(workspace: Workspace, versions: Mapping[str, int]) -> None:
    """Refuse to plan pages whose results would differ in version from the extracted pages.

    Otherwise Extract would refuse the new generation, and later stages would wait for pages that are never read.

    Args:
        workspace: the workspace.
        versions: the result version of each engine in this version of llm-ocr.

    Raises:
        WorkspaceMismatch: units were extracted by a version whose results differ.
    """
    claimed, _ = _stored_claim(workspace)
    changed = list(_other_versions(claimed.get("settings", {}), versions))
    if changed and done_units(workspace, EXTRACT, str(claimed.get("key"))):
        raise _other_release(workspace, claimed, changed)


def _other_versions(settings: Mapping[str, Any], versions: Mapping[str, int], within: str = "") -> Iterator[str]:
    """Yield a line in the form of `differences` for each engine in a key's settings whose results differ now."""
    stored, here = settings.get(_VERSION), versions.get(str(settings.get("engine")))
    if stored is not None and here is not None and stored != here:
        yield f"{within}{_VERSION}: {stored!r} -> {here!r}"
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from _other_versions(value, versions, f"{within}{name}.")


def _other_release(workspace: Workspace, claimed: Mapping[str, Any], changed: Sequence[str]) -> WorkspaceMismatch:
    by = claimed.get("created_by")
    release = f" ({by})" if by and by != library_version() else ""
    return WorkspaceMismatch(
        f"{workspace.url} was extracted by another version of llm-ocr{release}, whose results differ "
        f"({'; '.join(changed)}): a workspace must not mix pages of two versions",
        hint="Describe, Assemble, and exports work with the finished pages. To read more pages, use another "
        "`workspace`, or the version that extracted this one.",
    )


def _mismatch(
    workspace: Workspace, claimed: Mapping[str, Any], new: Mapping[str, Any], origin: Origin
) -> WorkspaceMismatch:
    from llm_ocr.config.fields import every_setting  # it imports the settings of all commands

    changed = differences(claimed.get("settings", {}), new)
    other = [line for line in changed if line.startswith("reader.engine: ")]
    names = [line.partition(":")[0] for line in changed]
    if not other and (not _OF_VERSIONS.isdisjoint(names) or all(name.endswith(f".{_VERSION}") for name in names)):
        return _other_release(workspace, claimed, changed)
    by = stored_by(claimed.get("command", ""), claimed.get("created", ""))
    if other or "reader.model" in names:  # another engine or model has entirely different settings
        readers: list[str] = []
        for reader in (claimed.get("settings", {}).get("reader", {}), new.get("reader", {})):
            engine = "the CPU engine" if reader.get("engine") == "embedded" else f"the engine {reader.get('engine')}"
            readers.append(f"the model {reader['model']}" if reader.get("model") else engine)
        return WorkspaceMismatch(
            f"{workspace.url} was extracted with {readers[0]}{f' by {by}' if claimed.get('command') else ''}, "
            f"and this command would read with {readers[1]}",
            hint="Use the settings of the workspace (name no other model or engine), or another `workspace`. Pages of "
            "two models never mix.",
        )
    # A setting of the user may change several values of a key, under other names. Some settings are only in the key.
    stored, given = (
        {name: value for name, value in values.items() if not _WITHOUT_EFFECT.fullmatch(name)}
        for values in (claimed.get("remembered", {}), origin.remembered)
    )
    parts = {found[1]: line for line in changed if (found := _IN_A_PART.match(line))}
    own = [line for name, line in parts.items() if name in every_setting() and name not in {*stored, *given}]
    remembered = differences(stored, given)
    lines = "; ".join(_IN_A_PART.sub(r"`\1`", line) for line in ([*remembered, *own] if remembered else changed))
    return WorkspaceMismatch(
        f"{workspace.url} was extracted with other settings{f' by {by}' if claimed.get('command') else ''}: {lines}",
        hint="Use the settings of the workspace (on the left), or another `workspace` for the new settings.",
    )
